"""What a run has recorded, as entries in an append-only file: each one framed by its length and its checksum.

The journal lies beside the HDF5 log, which a kill may leave unreadable: the log can be written again from it.
"""

import os
import struct
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import BinaryIO, Literal

import msgspec
import numpy as np

from dpadmm_mpi.files import naming, open_to_read
from dpadmm_mpi.types import Array

Packed = dict[str, tuple[tuple[int, ...], bytes]]  # name -> shape, float64 in C order

_HEAD = struct.Struct("<QI")  # length and crc32 of what follows


class Damaged(Exception):
    """A file that is cut short or whose checksum does not fit."""


class Entry(msgspec.Struct, frozen=True, array_like=True):
    kind: Literal["config", "optimum", "rows", "state"]
    run: int = 0  # the first of those whose arrays these are: rows are (runs, rows, ...), states (runs, ...)
    at: int = 0  # rows: the first row; state: its iteration
    arrays: Packed = {}
    text: str = ""  # config: the resolved TOML
    identity: str = ""  # config: of graph and data


def pack(arrays: Mapping[str, Array]) -> Packed:
    return {name: (values.shape, np.ascontiguousarray(values, dtype=np.float64).tobytes()) for name, values in arrays.items()}


def unpack(packed: Packed) -> dict[str, Array]:
    return {name: np.frombuffer(content).reshape(shape).copy() for name, (shape, content) in packed.items()}


def frame(value: msgspec.Struct) -> bytes:
    content = msgspec.msgpack.encode(value)
    return _HEAD.pack(len(content), zlib.crc32(content)) + content


def read_frame(file: BinaryIO) -> bytes:
    head = file.read(_HEAD.size)
    if len(head) < _HEAD.size:
        raise Damaged("cut short")
    length, checksum = _HEAD.unpack(head)
    if length > os.fstat(file.fileno()).st_size - file.tell():
        raise Damaged("cut short")
    content = file.read(length)
    if len(content) < length or zlib.crc32(content) != checksum:
        raise Damaged("the checksum does not fit")
    return content


def entries(path: Path, length: int) -> Iterator[Entry]:
    """The entries in the first `length` bytes; whatever follows was written after the checkpoint and does not count."""
    with naming(path), open_to_read(path) as file:
        while file.tell() < length:
            content = read_frame(file)
            if file.tell() > length:
                raise Damaged("cut short")
            try:
                yield msgspec.msgpack.decode(content, type=Entry)
            except msgspec.MsgspecError as error:
                raise Damaged(str(error)) from None
