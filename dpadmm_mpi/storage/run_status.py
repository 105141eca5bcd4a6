"""What became of a run whose log is not complete: is somebody writing it, or has it failed? Told by its restart folder."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dpadmm_mpi.errors import DpadmmError, InputError, Stopped, system_sentence
from dpadmm_mpi.files import open_descriptor, read_text
from dpadmm_mpi.storage.checkpoint import restart_folder


def is_locked(log: Path) -> bool | None:
    """Whether a process is writing a log, if this host can tell."""
    try:
        lock = open_descriptor(restart_folder(log) / "lock")
    except (OSError, InputError):
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return None
    finally:
        os.close(lock)
    return False


@contextmanager
def noting_failure(log: Path | None) -> Iterator[None]:
    """Leave the sentence of a failure where `failure` finds it, on whichever rank it is; a stop is none.

    Of several ranks that fail at once, the first one says why.
    """
    try:
        yield
    except Exception as error:
        if log is not None and not isinstance(error, Stopped):
            try:
                with (restart_folder(log) / "failed").open("x") as file:
                    file.write(system_sentence(error) if isinstance(error, OSError) else str(error))
            except FileExistsError:
                if isinstance(error, DpadmmError):
                    error.told = True
            except OSError:  # a disk without room even for that
                pass
        raise


def failure(log: Path) -> str | None:
    """The sentence with which the last run of a log failed."""
    try:
        return read_text(restart_folder(log) / "failed")
    except (OSError, InputError, UnicodeDecodeError):
        return None
