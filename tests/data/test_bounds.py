"""Files that were made to break a reader: one sentence each, without a warning, in bounded memory."""

import bz2
import gzip
import io
import lzma
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest
from fuzz.judging import Answer, say

from dpadmm_mpi.data import bounded, fast_tables, readers
from dpadmm_mpi.data.records import Wanted
from dpadmm_mpi.errors import InputError

TABLE = "label,a\n1,0.5\n-1,0.25\n1,0.125\n"
MB = 1 << 20


def npy(shape: tuple[int, ...], dtype: str = "<f8") -> bytes:
    """A header that declares a shape, and no numbers."""
    header = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}"
    header += " " * (-(len(header) + 11) % 64) + "\n"
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode()


def npz(**members: bytes) -> bytes:
    memory = io.BytesIO()
    with zipfile.ZipFile(memory, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(f"{name}.npy", content)
    return memory.getvalue()


def saved(**arrays: object) -> bytes:
    memory = io.BytesIO()
    np.savez(memory, allow_pickle=True, **arrays)  # type: ignore[arg-type]
    return memory.getvalue()


def hdf5(make: Callable[[h5py.File], None]) -> bytes:
    memory = io.BytesIO()
    with h5py.File(memory, "w") as file:
        make(file)
    return memory.getvalue()


def huge_dataset(file: h5py.File) -> None:
    file["y"] = np.ones(3)
    file.create_dataset("X", shape=(1 << 40, 8), chunks=(1024, 8), dtype="f8")


def elsewhere(file: h5py.File) -> None:
    file["y"] = np.ones(3)
    file.create_dataset("X", shape=(3, 2), dtype="f8", external=[("/etc/passwd", 0, 48)])


REFUSED: dict[str, tuple[str, bytes, str]] = {
    "bare carriage returns": ("t.csv", TABLE.replace("\n", "\r").encode(), "a carriage return stands alone"),
    "a long cell": ("t.csv", TABLE.encode() + b'1,"' + b"x" * 200_000 + b'"\n', "more than 131,072 characters"),
    "an open quotation mark": ("t.csv", TABLE.encode() + b'1,"' + b"0.5\n1," * 50_000, "is a quotation mark not closed"),
    "NUL in csv": ("t.csv", TABLE.encode() + b"1,\0\n", "character 32 is NUL"),
    "UTF-16": ("t.csv", TABLE.encode("utf-16"), "not text in UTF-8"),
    "Latin-1": ("t.csv", TABLE.encode() + b"1,\xe9\n", "not text in UTF-8"),
    "ragged": ("t.csv", TABLE.encode() + b"1,2,3\n", "line 5 has 3 columns, but 2 are expected"),
    "very many columns": ("t.csv", ",".join(["label", *map(str, range(100_000))]).encode() + b"\n1\n", "100,001 columns"),
    "the same name twice": ("t.csv", b"label,a,a\n1,2,3\n", 'more than one column "a"'),
    "a bomb, gz": ("t.csv", gzip.compress(TABLE.encode() + b"1,0\n" * (2 * MB)), "more than 200 times its size is not read"),
    "a bomb, bz2": ("t.csv", bz2.compress(b"1" * (5 * MB), 9), "more than 200 times its size is not read"),
    "a bomb, xz": ("t.csv", lzma.compress(b"1" * (5 * MB), preset=0), "more than 200 times its size is not read"),
    "a broken gz": ("t.csv", gzip.compress(TABLE.encode())[:-4], "damaged or cut short"),
    "a broken bz2": ("t.csv", b"BZh9" + b"\0" * 40, "damaged or cut short"),
    "beyond 64 bits": ("t.libsvm", b"1 99999999999999999999999:1\n", "feature number 1e+23, which is too large"),
    "more features than memory": ("t.libsvm", b"1 2147483646:1\n", "feature number 2.14748e+09, which is too large"),
    "more features than memory, npz": (
        "t.npz", saved(data=np.ones(2), indices=np.arange(2), indptr=np.arange(3), shape=np.array([2, 1 << 28]), y=np.ones(2)),
        "feature number 2.68435e+08, which is too large",
    ),
    "a negative number of a feature": ("t.libsvm", b"1 -1:1\n", '"label index:value ..." is needed'),
    "the feature 0": ("t.libsvm", b"1 0:1\n", "counted from 1"),
    "no colon": ("t.libsvm", b"1 2\n", "is needed"),
    "a shape without numbers": ("t.npz", npz(X=npy((10**12, 8)), y=npy((3,))), "not a readable npz file"),
    "a shape beyond 64 bits": ("t.npz", npz(X=npy((10**15, 10**15)), y=npy((3,))), "not a readable npz file"),
    "objects": ("t.npz", saved(X=np.array([{}], dtype=object), y=np.ones(1)), "plain arrays"),
    "a bomb, npz": ("t.npz", npz(X=npy((5 * MB // 8, 1)) + bytes(5 * MB), y=npy((1,))), "more than 200 times"),
    "complex": ("t.npz", saved(X=np.ones((2, 1)) * 1j, y=np.ones(2)), "complex"),
    "dates": ("t.npz", saved(X=np.ones((2, 1)), y=np.zeros(2, dtype=[("a", "f8"), ("b", "f8")])), "other than numbers"),
    "a huge dataset": ("t.h5", hdf5(huge_dataset), "which the file does not hold"),
    "numbers in another file": ("t.h5", hdf5(elsewhere), "values in another file"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_refused_with_one_sentence(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Warnings are errors in these tests, so none is given."""
    monkeypatch.setattr(bounded, "FREE", 4 * MB)
    file, content, words = REFUSED[name]
    (tmp_path / file).write_bytes(content)
    tracemalloc.start()
    found = say(("data", "info", file, *(["--label", "label"] if file == "t.csv" else [])), tmp_path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert_sentence(found, words)
    assert peak < 100 * MB


def assert_sentence(found: Answer, words: str) -> None:
    assert found.code == 2, found
    assert words in found.error
    assert found.error.count("\n") == 1
    assert len(found.error) <= 600


def test_what_real_data_pack_to_is_read(tmp_path: Path) -> None:
    """A byte-order mark; a table that packs to a hundredth, below the free size."""
    path = tmp_path / "t.csv"
    path.write_bytes(gzip.compress(b"\xef\xbb\xbf" + TABLE.encode() + b"1,0.5\n" * 50_000))
    assert len(readers.read_csv(path, Wanted("label"))) == 50_003


def test_the_ratio_counts_from_the_free_size_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded, "FREE", 1000)
    path = tmp_path / "t.gz"
    path.write_bytes(gzip.compress(bytes(100_000)))
    packed = path.stat().st_size
    with pytest.raises(InputError, match=f"has {packed:,} bytes and would become"):
        bounded.content(path)
    monkeypatch.setattr(bounded, "RATIO", -(-100_000 // packed))
    assert bounded.content(path) == bytes(100_000)


@pytest.mark.parametrize("name", ["a long cell", "NUL in csv", "ragged", "bare carriage returns", "Latin-1"])
def test_large_tables_are_refused_for_the_same(name: str, tmp_path: Path) -> None:
    pytest.importorskip("pandas")
    path = tmp_path / "t.csv"
    path.write_bytes(REFUSED[name][1])
    with pytest.raises(InputError, match=r"t\.csv"):
        fast_tables.read_large_csv(path, Wanted("label"), ",")


def test_numbers_whose_squares_are_none(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(TABLE + "1,1e200\n")
    (tmp_path / "c.toml").write_text(
        '[data]\nsource = "csv"\npath = "t.csv"\npreprocess = ["scale-rows"]\n[network]\nnodes = 1\n'
    )
    assert_sentence(say(("check", "c.toml"), tmp_path), "found the number 1e+200; at most 1e+150 is possible")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("0 99999999999999999999999", "two node numbers are needed"),
        ("0 123456789012", "at most 1,000,000 are possible"),
        ("0 -1", "two node numbers are needed"),
        ("0 " + "1" * 100_000, "two node numbers are needed"),
        ("0 \x1b[2J", "two node numbers are needed"),
    ],
)
def test_edge_lists(line: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "e.txt").write_text(f"0 1\n{line}\n")
    (tmp_path / "c.toml").write_text('[network]\ngraph = "edges"\npath = "e.txt"\n')
    assert_sentence(say(("check", "c.toml"), tmp_path), words)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("123456789012345,0", "has no node for record 3"),
        ("-3,0", "record -3; they are counted from 0"),
        ("9" * 30 + ",0", "whole number"),
    ],
)
def test_node_files(line: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(TABLE + "-1,0.5\n")
    (tmp_path / "n.csv").write_text(f"record,node\n0,0\n1,1\n2,0\n{line}\n")
    (tmp_path / "c.toml").write_text(
        '[data]\nsource = "csv"\npath = "t.csv"\nsplit = "node-file"\nnode_file = "n.csv"\n[network]\nnodes = 2\n'
    )
    assert_sentence(say(("check", "c.toml"), tmp_path), words)


@pytest.mark.parametrize(
    ("file", "content", "words"),
    [
        ("m.npy", npy((10**12, 3)), "must be whole and hold one array"),
        ("m.npz", npz(A=npy((10**12, 3))), "must be whole and hold an array"),
        ("m.csv", b"1,1e200,0\n", "beyond 1e+100"),
        ("m.csv", b"1,2,\x1b[2J\n", "every line must hold the same number of numbers"),
    ],
)
def test_maps(file: str, content: bytes, words: str, tmp_path: Path) -> None:
    (tmp_path / file).write_bytes(content)
    (tmp_path / "c.toml").write_text(
        f'[data]\nrecords = 20\nfeatures = 3\n[network]\nnodes = 2\n[problem]\nmap = "file"\nmap_path = "{file}"\n'
        '[algorithm]\nmethod = "gl-admm"\n'
    )
    assert_sentence(say(("check", "c.toml"), tmp_path), words)
