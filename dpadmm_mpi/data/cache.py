"""Where data live: the user's cache folder, or DPADMM_DATA."""

import hashlib
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from dpadmm_mpi.errors import InputError
from dpadmm_mpi.files import is_file, resolved
from dpadmm_mpi.types import Array

_COMPRESSED = ("", ".bz2", ".gz", ".xz")


class Values(NamedTuple):
    """Numbers can be written in more than one way: what they are, and the checksum of that."""

    read: Callable[[Path], Array]
    sha256: str


@dataclass(frozen=True)
class SourceFile:
    """A file as it lies in the cache, perhaps compressed. `sha256` is that of its decompressed bytes."""

    name: str
    sha256: str
    url: str
    member: str | None = None  # of the archive at url
    values: Values | None = None


def cache_folder() -> Path:
    if given := os.environ.get("DPADMM_DATA"):
        return resolved(Path(given).expanduser())
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "dpadmm_mpi"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "dpadmm_mpi"


def raw_folder(name: str) -> Path:
    return cache_folder() / "raw" / name


def find_file(folder: Path, file: SourceFile) -> Path | None:
    """A file of the catalogue in a folder, plain or compressed."""
    plain = file.name.removesuffix(".bz2")
    return next((path for suffix in _COMPRESSED if is_file(path := folder / f"{plain}{suffix}")), None)


def verify(path: Path, file: SourceFile) -> None:
    """Refuse a file that is not, byte for byte once decompressed, the one in the catalogue."""
    from dpadmm_mpi.data import readers

    if hashlib.sha256(readers.content(path)).hexdigest() == file.sha256:
        return
    if file.values is not None and hashlib.sha256(file.values.read(path).tobytes()).hexdigest() == file.values.sha256:
        return
    raise InputError(f"{path} is not the file that it should be: its checksum differs; get it again from another place")


def raw_files(name: str, files: tuple[SourceFile, ...]) -> dict[str, Path]:
    """The files of a fetched data set; one that is not there is answered with the command that brings it."""
    folder = raw_folder(name)
    found = {file.name: find_file(folder, file) for file in files}
    if any(path is None for path in found.values()):
        raise InputError(f"data.source: {name} is not on this machine yet; bring it with: dpadmm data fetch {name}")
    return {name: path for name, path in found.items() if path is not None}
