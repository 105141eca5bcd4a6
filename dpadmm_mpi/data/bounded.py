"""Files from others, opened within bounds: what is packed may not unpack to any size, and what declares a size must have it.

A file may become FREE bytes, or RATIO times what it has on the disk, if that is more. Tables and matrices of real data pack to
a tenth, seldom to a fiftieth; files that were made to fill a memory pack to a thousandth.
"""

import bz2
import gzip
import io
import lzma
import math
import warnings
import zipfile
import zlib
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from dpadmm_mpi.errors import InputError, advice_on, reason_of
from dpadmm_mpi.files import naming, open_to_read, size_of

FREE = 128 << 20
RATIO = 200

_OPEN: dict[bytes, Any] = {b"\x1f\x8b": gzip.open, b"BZh": bz2.open, b"\xfd7zXZ\x00": lzma.open}


def refuse_expansion(path: Path, declared: int, packed: int) -> None:
    """Before it is unpacked, where a file says how large it will be."""
    if declared > max(FREE, RATIO * packed):
        raise InputError(
            f"{path} has {packed:,} bytes and would become {declared:,}; more than {RATIO} times its size is not read; unpack "
            "it yourself, if it is meant"
        )


def refuse_width(path: Path, features: float, held: int) -> None:
    """Few numbers may stand far apart: a vector of all features is compared with the bytes that the file holds."""
    if features > min(max(FREE, RATIO * held) / np.dtype(np.float64).itemsize, np.iinfo(np.int32).max):
        raise InputError(f"{path} has the feature number {features:g}, which is too large; is it the right file?")


class _Counted(io.RawIOBase):
    """What comes out of a decompressor, until it is too much."""

    def __init__(self, inner: Any, path: Path) -> None:
        self._inner, self._path = inner, path
        self._packed, self._come = size_of(path), 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        piece = self._inner.read(len(buffer))
        buffer[: len(piece)] = piece
        self._come += len(piece)
        refuse_expansion(self._path, self._come, self._packed)
        return len(piece)


@contextmanager
def open_bytes(path: Path) -> Iterator[BinaryIO]:
    """A file, plain or compressed (gz, bz2, xz), to be read piece by piece."""
    try:
        with naming(path), open_to_read(path) as raw:
            start = raw.read(6)
            raw.seek(0)
            opener = next((opener for magic, opener in _OPEN.items() if start.startswith(magic)), None)
            yield io.BufferedReader(_Counted(opener(raw), path), 1 << 20) if opener else raw
    except (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile) as error:
        raise InputError(f"{path} is damaged or cut short ({error}); get the file again") from None
    except OSError as error:
        damaged = error.errno is None  # bz2 has no error of its own
        what = f"is damaged or cut short ({error}); get the file again"
        if not damaged:
            what = f"cannot be read: {reason_of(error)}; {advice_on(error)}"
        raise InputError(f"{path} {what}") from None


def content(path: Path) -> bytes:
    """A file's bytes, decompressed."""
    with open_bytes(path) as file:
        return file.read()


def text(path: Path, key: str = "") -> str:
    """A file's text; `key`, of the configuration, names it in errors."""
    where = f"{key}: {path}" if key else str(path)
    try:
        found = content(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{where} is not text in UTF-8 (byte {error.start}); is it the right file?") from None
    except InputError as error:
        raise InputError(f"{key}: {error}" if key else str(error)) from None
    if (place := found.find("\0")) >= 0:
        raise InputError(f"{where} is not text (character {place} is NUL); is it the right file?")
    return found


def read_arrays(path: Path, wanted: Collection[str]) -> dict[str, NDArray[Any]]:
    """The arrays of an npz file with these names; ValueError, KeyError, ... where it is none."""
    packed = content(path)
    with zipfile.ZipFile(io.BytesIO(packed)) as archive:
        members = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}
        chosen = {name: info for name, info in members.items() if name in wanted}
        refuse_expansion(path, sum(info.file_size for info in chosen.values()), len(packed))
        found = {}
        for name, info in chosen.items():
            with archive.open(info) as member:
                found[name] = _read_array(member, info.file_size)
    return found


def read_array(path: Path) -> NDArray[Any]:
    """The array of an npy file; ValueError where it is none."""
    with naming(path), open_to_read(path) as file:
        return _read_array(file, size_of(path))


def names_in(path: Path) -> list[str]:
    """Of the arrays in an npz file."""
    with zipfile.ZipFile(io.BytesIO(content(path))) as archive:
        return [name.removesuffix(".npy") for name in archive.namelist()]


def _read_array(file: Any, size: int) -> NDArray[Any]:
    """numpy reserves the memory for what the header declares, before it finds out that it is not there."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of headers in a form of long ago
        version = npy.read_magic(file)
        header = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        shape, _, dtype = header(file)
        if math.prod(shape) * dtype.itemsize > size:
            raise ValueError(f"the shape {shape} is declared, which the file does not have")
        file.seek(0)
        return np.asarray(npy.read_array(file, allow_pickle=False))
