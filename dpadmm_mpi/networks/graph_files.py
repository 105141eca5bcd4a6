"""Edges in text files."""

from dpadmm_mpi.errors import InputError
from dpadmm_mpi.showing import brief

DIGITS = 18  # of a node's number in a file


def edge_in_line(line: str, where: str) -> tuple[int, int]:
    """The two node numbers of a line without comments; `where` is the key, the file and the line in words."""
    words = line.split()
    if len(words) != 2 or not all(word.isdecimal() and len(word) <= DIGITS for word in words):
        raise InputError(f'{where} is "{brief(line)}"; two node numbers are needed')
    i, j = int(words[0]), int(words[1])
    if i == j:
        raise InputError(f"{where} joins node {i} to itself; remove it")
    return i, j
