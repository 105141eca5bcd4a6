"""Another process goes first into files that may be damaged: in some, HDF5's own library loops without end, or crashes.

python -m dpadmm_mpi.storage.probe FILE...      that process; a dot on standard output for each file that it begins
"""

import os
import signal
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from dpadmm_mpi.errors import InputError
from dpadmm_mpi.files import is_file, is_folder, names_in, size_of
from dpadmm_mpi.storage.result import load

PATIENCE = 20.0  # seconds, and
SPEED = 4 << 20  # ... one more for so many bytes of a file
PAUSE = 0.002  # seconds between two looks at the process


def probe(paths: Iterable[Path], forks: bool = True) -> None:
    """InputError for a file that does not come to an end; whatever else is wrong is said by who reads it in earnest.

    Folders mean their result files. Ranks of a job must not fork: for them a new interpreter does it, which takes a second.
    """
    inside = [file for path in paths for file in (names_in(path, "*.h5") if is_folder(path) else [path])]
    files = [file for file in inside if is_file(file)]
    if not files:
        return
    reader, writer = os.pipe()
    with os.fdopen(reader, "rb") as dots:
        try:
            child = _forked(files, writer) if forks else _spawned(files, writer)
        finally:
            os.close(writer)
        fate = _fate_of(child, files)
        if fate and (begun := len(dots.read())):
            raise InputError(f"{files[begun - 1]}: damaged: HDF5's library {fate} in it; get the file again")


def _fate_of(child: int, files: list[Path]) -> str:
    end = time.monotonic() + PATIENCE + sum(map(size_of, files)) / SPEED
    while not (ended := os.waitpid(child, os.WNOHANG))[0]:
        if time.monotonic() > end:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return "does not come to an end"
        time.sleep(PAUSE)
    return "crashes" if os.WIFSIGNALED(ended[1]) else ""


def _spawned(files: list[Path], writer: int) -> int:
    words = [sys.executable, "-m", "dpadmm_mpi.storage.probe", *map(str, files)]
    quiet = (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0)
    return os.posix_spawn(sys.executable, words, os.environ, file_actions=[(os.POSIX_SPAWN_DUP2, writer, 1), quiet])


def _forked(files: list[Path], writer: int) -> int:
    sys.stdout.flush()
    sys.stderr.flush()
    if child := os.fork():
        return child
    try:
        os.dup2(writer, 1)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        _read(files)
    finally:
        os._exit(0)  # without anything that the other process would clear up


def _read(files: Iterable[Path]) -> None:
    for file in files:
        os.write(1, b".")
        with suppress(Exception):  # the other process finds the same
            load(file)


if __name__ == "__main__":
    _read(map(Path, sys.argv[1:]))
