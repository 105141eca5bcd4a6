"""The disk space of a new file, and the name that it takes when it is worth it."""

import errno
import os
import shutil
from pathlib import Path

from dpadmm_mpi.errors import InputError
from dpadmm_mpi.storage.checkpoint import restart_folder


def claim(path: Path, size: int) -> None:
    """Make `path` an empty file, if the disk has room for all of it.

    HDF5 does not survive a full disk well, so it never meets one: its file takes all its space at the beginning.
    """
    try:
        with path.open("wb") as file:
            _allocate(file.fileno(), size, path.parent)
    except OSError:
        path.unlink(missing_ok=True)
        raise


def take_name(new: Path, path: Path, force: bool) -> None:
    """Rename a file; unless by force, FileExistsError where there is one of that name."""
    if not force:
        try:
            os.link(new, path)
        except FileExistsError:
            raise
        except OSError:  # a file system without hard links
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL))
        else:
            new.unlink()
            return
    new.replace(path)


def _allocate(file: int, size: int, folder: Path) -> None:
    try:
        os.posix_fallocate(file, 0, size)
    except (AttributeError, OSError) as error:  # not every system and file system can; then ask how much is free
        if getattr(error, "errno", errno.EINVAL) not in (errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS):
            raise
        if shutil.disk_usage(folder).free < size:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)) from None


def refuse_existing(path: Path, force: bool) -> None:
    if path.exists() and not path.is_file():
        raise InputError(f"{path} is not an ordinary file; choose another place with -o")
    if force:
        return
    if restart_folder(path).exists():
        raise InputError(
            f"{path} is not finished; go on with it with --resume, choose another place with -o, or replace it with --force"
        )
    if path.exists():
        raise InputError(f"{path} exists; choose another place with -o, or replace it with --force")
