"""Inputs that somebody has damaged, by accident or on purpose: seeds, edits of their bytes, and edits of what they mean.

An edit is a name and a number, from which all its randomness comes: a failure can be told in a line, and hypothesis can shrink
it. `cases` draws many, for scripts/fuzz.sh; tests/fuzz/test_fuzz.py draws them by hypothesis.
"""

import gzip
import io
import random
import re
import struct
import tomllib
import warnings
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import h5py
import msgspec
import numpy as np
import tomli_w

EVIL = (
    "\x1b]0;owned\x07",
    "\x1b[2J",
    "a\nb",
    "\r",
    "\x00",
    "\u202egpj.exe",
    "$x^2$ \\alpha",
    "<script>",
    "=1+1",
    "%s%n{}",
    "../../x",
    "/etc/passwd",
    "con",
    "",
    " ",
    "é😀日",
    "\u200b",
    "\uffff",
    "x" * 300,
    "y" * 70_000,
    "&amp;",
    "\\",
    "'",
    '"',
)
NUMBERS = (
    "0",
    "-1",
    "1e308",
    "-1e308",
    "1e-320",
    "nan",
    "inf",
    "-inf",
    "1e400",
    "9223372036854775807",
    "9223372036854775808",
    "1" * 5000,
    "0x" + "f" * 90,
    "0.1",
    "1e15",
    "2.5",
    "true",
    "[]",
    "{}",
    "[[[[[[]]]]]]",
    '"text"',
    "2026-01-01",
)
VALUES: tuple[Any, ...] = (
    0,
    -1,
    1,
    2,
    0.5,
    -0.5,
    1e308,
    1e-320,
    float("nan"),
    float("inf"),
    1 << 62,
    (1 << 63) - 1,
    True,
    False,
    [],
    {},
    [1],
    [0.1, "x"],
    [[]],
    {"first": 1.0},
    {"first": -1.0, "ratio": 1e300},
    [[0, 1], [1, 2]],
    "auto",
    "none",
    "admm",
    "x.txt",
    *EVIL,
)

Edit = tuple[str, int]  # its name, and the number of its randomness


@dataclass(frozen=True)
class Case:
    """Files in a folder, and the words behind `dpadmm` that are said there."""

    files: dict[str, bytes]
    words: tuple[str, ...]
    damaged: str  # the file that the edits are for
    edits: tuple[Edit, ...] = ()

    def edited(self, edits: Sequence[Edit]) -> "Case":
        content = self.files[self.damaged]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of what the damage does to numbers
            for name, number in edits:
                content = EDITS[name](content, random.Random(number))
        return replace(self, files={**self.files, self.damaged: content}, edits=tuple(edits))

    def write(self, folder: Path) -> None:
        for name, content in self.files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)


# Bytes


def _flip(content: bytes, rng: random.Random) -> bytes:
    changed = bytearray(content or b"\0")
    for _ in range(rng.choice((1, 1, 4, 32))):
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def _cut(content: bytes, rng: random.Random) -> bytes:
    return content[: rng.randrange(len(content) + 1)]


def _remove(content: bytes, rng: random.Random) -> bytes:
    begin = rng.randrange(len(content) + 1)
    return content[:begin] + content[begin + rng.choice((1, 2, 8, 100)) :]


def _insert(content: bytes, rng: random.Random) -> bytes:
    begin = rng.randrange(len(content) + 1)
    what = rng.choice(
        (b"\0", b"\xff\xfe", b"\r", b"\n", b'"', b",", rng.randbytes(9), rng.choice(EVIL).encode(), b"\xef\xbb\xbf")
    )
    return content[:begin] + what + content[begin:]


def _repeat(content: bytes, rng: random.Random) -> bytes:
    begin = rng.randrange(len(content) + 1)
    part = content[begin : begin + rng.choice((1, 10, 200))]
    return content[:begin] + part * rng.choice((2, 50)) + content[begin:]


def _overwrite(content: bytes, rng: random.Random) -> bytes:
    """A field of a binary format becomes very large, or negative, or nothing."""
    begin = rng.randrange(len(content) + 1)
    what = rng.choice((b"\xff" * 8, b"\0" * 8, struct.pack("<q", -1), struct.pack("<Q", 1 << 40), struct.pack("<I", 1 << 31)))
    return content[:begin] + what + content[begin + len(what) :]


def _nothing(content: bytes, rng: random.Random) -> bytes:
    return rng.choice((b"", b"\0" * 100, b"\n" * 10, rng.randbytes(200), b"\x1f\x8b" + rng.randbytes(50)))


# Text


def _number(content: bytes, rng: random.Random) -> bytes:
    """Another number, or something else in its place."""
    found = list(re.finditer(rb"(?<![\w.])-?\d+(\.\d+)?(e-?\d+)?", content))
    if not found:
        return content
    place = rng.choice(found)
    return content[: place.start()] + rng.choice(NUMBERS).encode() + content[place.end() :]


def _word(content: bytes, rng: random.Random) -> bytes:
    found = list(re.finditer(rb"[A-Za-z_]+", content))
    if not found:
        return content
    place = rng.choice(found)
    other = rng.choice((rng.choice(EVIL).encode(), rng.choice(found)[0]))
    return content[: place.start()] + other + content[place.end() :]


def _lines(content: bytes, rng: random.Random) -> bytes:
    lines = content.split(b"\n")
    k = rng.randrange(len(lines))
    what = rng.randrange(4)
    if what == 0:
        del lines[k]
    elif what == 1:
        lines.insert(k, rng.choice(lines))
    elif what == 2:
        rng.shuffle(lines)
    else:
        lines[k] = rng.choice(EVIL).encode()
    return b"\n".join(lines)


# What a configuration means


def _paths(table: Any, before: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    items = table.items() if isinstance(table, dict) else enumerate(table) if isinstance(table, list) else ()
    for key, value in items:
        yield (*before, key)
        yield from _paths(value, (*before, key))


def _toml(content: bytes, rng: random.Random) -> bytes:
    """A key gets another value, goes, moves, or comes in."""
    try:
        table = tomllib.loads(content.decode())
    except ValueError:
        return _flip(content, rng)
    paths = list(_paths(table)) or [("name",)]
    path = rng.choice(paths)
    inner: Any = table
    for key in path[:-1]:
        inner = inner[key]
    what = rng.randrange(5)
    if what == 0 and paths[0] in _paths(table):
        del inner[path[-1]]
    elif what == 1 and isinstance(inner, dict):
        inner[rng.choice((*EVIL, "name", "extensions", "sweep", "variant", str(rng.choice(paths)[-1])))] = rng.choice(VALUES)
    else:
        inner[path[-1]] = rng.choice(VALUES)
    try:
        return tomli_w.dumps(table).encode(errors="surrogatepass")
    except (TypeError, ValueError):
        return content


# What is in an HDF5 file


def _hdf5(content: bytes, rng: random.Random) -> bytes:
    """An object or an attribute goes, or becomes another."""
    memory = io.BytesIO(content)
    try:
        with h5py.File(memory, "r+") as file:
            names: list[str] = []
            file.visit(names.append)
            _damage(file, rng.choice(names) if names else "x", rng)
    except (OSError, RuntimeError, KeyError, ValueError, TypeError):
        return _flip(content, rng)
    return memory.getvalue()


def _damage(file: h5py.File, name: str, rng: random.Random) -> None:
    item = file[name]
    what = rng.randrange(8)
    if what <= 3:
        holder = rng.choice((file, item))
        keys = list(holder.attrs)
        if keys:
            key = rng.choice(keys)
            del holder.attrs[key]
            if what:
                holder.attrs[key] = rng.choice(
                    (1, -1.5, np.nan, [1, 2, 3], b"bytes\xff", *(e for e in EVIL if "\0" not in e and len(e) < 60_000))
                )
        return
    group, last = item.parent, name.split("/")[-1]
    if what == 4:
        del group[last]
    elif what == 5:
        del group[last]
        group[last] = rng.choice(
            (file["/"], h5py.SoftLink("/nowhere"), h5py.SoftLink(f"/{name}"), h5py.ExternalLink("/etc/passwd", "/x"))
        )
    else:
        old = item[()] if isinstance(item, h5py.Dataset) and item.size and item.size < 10_000 else np.zeros(3)
        del group[last]
        _other_dataset(group, last, np.asarray(old), rng)


def _other_dataset(group: Any, name: str, old: Any, rng: random.Random) -> None:
    what = rng.randrange(8)
    if what == 0:
        group.create_dataset(name, shape=(1 << 40, 5), chunks=(1024, 5), dtype="f8")
    elif what == 1:
        group.create_dataset(name, data=np.array(["text", "\x1b[2J"], dtype=object), dtype=h5py.string_dtype())
    elif what == 2:
        group[name] = np.zeros(0)
    elif what == 3:
        group[name] = 3.0
    elif what == 4:
        group[name] = old.astype(np.complex128) if old.dtype.kind in "iuf" else np.zeros(2, dtype="c16")
    elif what == 5:
        group[name] = old.T if old.ndim > 1 else old[None]
    elif what == 6:
        group[name] = np.full(old.shape, np.nan if rng.random() < 0.5 else 1e308)
    else:
        group.create_group(name)


# What is in an npz file


def _npz(content: bytes, rng: random.Random) -> bytes:
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as stored:
            arrays = dict(stored)
    except Exception:
        return _flip(content, rng)
    name = rng.choice(list(arrays) or ["X"])
    old = arrays.pop(name, np.zeros(1))
    shape = old.shape
    other: Any = rng.choice(
        (
            None,
            np.array([{"a": 1}], dtype=object),
            np.full(shape, "text"),
            old[:0] if shape else old,
            np.zeros(()),
            old.T,
            np.full(shape, np.nan),
            np.full(shape, 1e308),
            np.full(shape, 1e308j),
            -np.ones(shape),
            np.ones(shape, dtype="i1"),
            np.zeros((3, 3, 3)),
            np.array(["1970-01-01"], dtype="M8[D]"),
            np.zeros(2, dtype=[("a", "f8"), ("b", "i4")]),
            np.full(shape, 1 << 62),
            np.full(shape, np.longdouble("1e4000")),
        )
    )
    if other is not None:
        arrays[name] = other
    memory = io.BytesIO()
    np.savez(memory, allow_pickle=True, **arrays)
    return memory.getvalue()


def _gz(content: bytes, rng: random.Random) -> bytes:
    """Packed, whatever is inside."""
    return rng.choice(
        (gzip.compress(content, mtime=0), gzip.compress(b"1," * 100_000_000, 1, mtime=0) if rng.random() < 0.1 else content)
    )


# What is in a restart folder


def _frame(content: bytes, rng: random.Random) -> bytes:
    """Another message in a frame whose length and checksum are right."""
    head = struct.Struct("<QI")
    if len(content) < head.size:
        return content
    length, _ = head.unpack(content[: head.size])
    inner, rest = content[head.size : head.size + length], content[head.size + length :]
    try:
        message = msgspec.msgpack.decode(inner)
    except (msgspec.MsgspecError, ValueError):
        return _flip(content, rng)
    if isinstance(message, list) and message:
        message[rng.randrange(len(message))] = rng.choice(VALUES)
    inner = msgspec.msgpack.encode(message)
    return head.pack(len(inner), zlib.crc32(inner)) + inner + rest


EDITS: dict[str, Callable[[bytes, random.Random], bytes]] = {
    "flip": _flip,
    "cut": _cut,
    "remove": _remove,
    "insert": _insert,
    "repeat": _repeat,
    "overwrite": _overwrite,
    "nothing": _nothing,
    "number": _number,
    "word": _word,
    "lines": _lines,
    "toml": _toml,
    "hdf5": _hdf5,
    "npz": _npz,
    "gz": _gz,
    "frame": _frame,
}
BYTES = ("flip", "cut", "remove", "insert", "repeat", "overwrite", "nothing")
TEXT = (*BYTES, "number", "number", "word", "lines", "gz")
FITTING = {
    ".toml": ("toml", "toml", "toml", "number", "word", "lines", "flip", "cut", "insert", "repeat", "nothing"),
    ".csv": TEXT,
    ".txt": TEXT,
    ".libsvm": TEXT,
    ".npz": ("npz", "npz", "npz", *BYTES),
    ".npy": BYTES,
    ".h5": ("hdf5", "hdf5", "hdf5", "hdf5", *BYTES),
    ".parquet": BYTES,
    "": ("frame", "frame", *BYTES),
}


def fitting(case: Case) -> tuple[str, ...]:
    """The edits that make sense for the damaged file."""
    return FITTING.get(Path(case.damaged).suffix, BYTES)


def cases(seeds: Sequence[Case], number: int, start: int = 0) -> Iterator[Case]:
    """So many damaged inputs, the same for the same numbers; every seed gets its share."""
    for k in range(start, start + number):
        rng = random.Random(k)
        seed = seeds[k % len(seeds)]
        names = fitting(seed)
        yield seed.edited([(rng.choice(names), rng.randrange(1 << 32)) for _ in range(rng.choice((1, 1, 1, 2, 4)))])
