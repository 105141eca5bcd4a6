"""The journal: what was written comes back, and whatever a kill cuts off is noticed."""

import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from dpadmm_mpi.files import write_all
from dpadmm_mpi.storage.journal import Damaged, Entry, entries, frame, pack, unpack
from dpadmm_mpi.types import Array

ARRAYS = st.dictionaries(
    st.text(max_size=8), arrays.arrays(np.float64, arrays.array_shapes(min_dims=0, max_dims=3, max_side=4)), max_size=3
)
KINDS = st.sampled_from(["optimum", "rows", "state"])
ENTRIES = st.lists(
    st.tuples(KINDS, st.integers(0, 99), st.integers(0, 999), ARRAYS, st.text(max_size=20)), min_size=1, max_size=5
)
Written = list[tuple[str, int, int, dict[str, Array], str]]


def made(written: Written) -> list[Entry]:
    return [Entry(kind, run, at, pack(values), text) for kind, run, at, values, text in written]  # type: ignore[arg-type]


def read(path: Path, length: int) -> tuple[list[Entry], bool]:
    """The entries up to the end or the damage, and whether there was any."""
    found = []
    try:
        for entry in entries(path, length):
            found.append(entry)
    except Damaged:
        return found, True
    return found, False


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("journal") / "journal"


@given(ENTRIES)
def test_what_was_written_comes_back(journal: Path, written: Written) -> None:
    handle = os.open(journal, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for entry in made(written):
        write_all(handle, frame(entry))
    os.close(handle)
    found, damaged = read(journal, journal.stat().st_size)
    assert not damaged
    assert found == made(written)
    for entry, (_, _, _, values, _) in zip(found, written, strict=True):
        for name, array in unpack(entry.arrays).items():
            assert array.shape == values[name].shape
            assert array.tobytes() == np.ascontiguousarray(values[name]).tobytes()


@given(ENTRIES, st.data())
def test_a_journal_cut_off_anywhere_is_a_readable_prefix_or_damaged(
    journal: Path, written: Written, data: st.DataObject
) -> None:
    """Whole entries before the cut are read; a cut between two of them is no damage, unless more was promised."""
    frames = [frame(entry) for entry in made(written)]
    content = b"".join(frames)
    cut = data.draw(st.integers(0, len(content)))
    journal.write_bytes(content[:cut])
    ends = np.cumsum([len(part) for part in frames]).tolist()
    whole = sum(end <= cut for end in ends)
    for promised in (cut, len(content)):
        found, damaged = read(journal, promised)
        assert found == made(written)[:whole]
        assert damaged == (promised not in (0, *ends[:whole]))


@given(ENTRIES, st.data())
def test_a_changed_byte_is_never_read_as_something_else(journal: Path, written: Written, data: st.DataObject) -> None:
    content = bytearray(b"".join(frame(entry) for entry in made(written)))
    place, flipped = data.draw(st.integers(0, len(content) - 1)), data.draw(st.integers(1, 255))
    content[place] ^= flipped
    journal.write_bytes(content)
    found, damaged = read(journal, len(content))
    assert damaged
    assert found == made(written)[: len(found)]
