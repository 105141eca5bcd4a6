"""Where data live: the user's cache folder, or DPADMM_DATA."""

import hashlib
import os
import sys
from pathlib import Path

from dpadmm_mpi.data import readers
from dpadmm_mpi.data.catalogue import SourceFile, public_datasets
from dpadmm_mpi.errors import InputError

_COMPRESSED = ("", ".bz2", ".gz", ".xz")


def cache_folder() -> Path:
    if given := os.environ.get("DPADMM_DATA"):
        return Path(given).expanduser().resolve()
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "dpadmm_mpi"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "dpadmm_mpi"


def raw_folder(name: str) -> Path:
    return cache_folder() / "raw" / name


def find_file(folder: Path, file: SourceFile) -> Path | None:
    """A file of the catalogue in a folder, plain or compressed."""
    plain = file.name.removesuffix(".bz2")
    return next((path for suffix in _COMPRESSED if (path := folder / f"{plain}{suffix}").is_file()), None)


def verify(path: Path, file: SourceFile) -> None:
    """Refuse a file that is not, byte for byte once decompressed, the one in the catalogue."""
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


def is_fetched(name: str) -> bool:
    return all(find_file(raw_folder(name), file) for file in public_datasets()[name].raw)
