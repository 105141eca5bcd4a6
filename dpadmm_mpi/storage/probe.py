"""Another process goes first into a file that may be damaged: in some, HDF5's own library loops without end, or crashes."""

import os
import signal
import sys
import time
from collections.abc import Iterable
from pathlib import Path

from dpadmm_mpi.errors import InputError
from dpadmm_mpi.files import is_file, is_folder, names_in, size_of
from dpadmm_mpi.storage.result import load

PATIENCE = 20.0  # seconds, and
SPEED = 4 << 20  # ... one more for so many bytes of a file
PAUSE = 0.002  # seconds between two looks at the process


def probe(paths: Iterable[Path]) -> None:
    """InputError for a file that does not come to an end; whatever else is wrong is said by who reads it in earnest.

    Folders mean their result files. For commands of one process: ranks of a job must not fork.
    """
    files = [file for path in paths for file in (names_in(path, "*.h5") if is_folder(path) else [path])]
    for file in files:
        if is_file(file) and (fate := _fate_of(file)):
            raise InputError(f"{file}: damaged: HDF5's library {fate} in it; get the file again")


def _fate_of(file: Path) -> str:
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child == 0:
        _read_and_leave(file)
    end = time.monotonic() + PATIENCE + size_of(file) / SPEED
    while not (ended := os.waitpid(child, os.WNOHANG))[0]:
        if time.monotonic() > end:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return "does not come to an end"
        time.sleep(PAUSE)
    return "crashes" if os.WIFSIGNALED(ended[1]) else ""


def _read_and_leave(file: Path) -> None:
    """In the process that goes first: silent, and without anything that the other one would clear up."""
    try:
        for number in (1, 2):
            os.dup2(os.open(os.devnull, os.O_WRONLY), number)
        load(file)
    except Exception:
        pass  # the other process finds the same
    finally:
        os._exit(0)
