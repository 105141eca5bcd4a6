"""The disk space of a new file, and the name that it takes when it is worth it."""

import errno
import logging
import os
import shutil
from contextlib import suppress
from pathlib import Path

from dpadmm_mpi.errors import InputError
from dpadmm_mpi.files import exists, is_file, naming, open_descriptor, remove, replace, uninterrupted
from dpadmm_mpi.storage.checkpoint import restart_folder

LOGGER = logging.getLogger(__name__)

# What file systems answer that lack something: some cannot, some pretend that it is not allowed.
_NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EINVAL, errno.EACCES)
_NO_RESERVATION = (errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS, errno.EPERM)


def claim(path: Path, size: int) -> None:
    """Make `path` an empty file, if the disk has room for all of it.

    HDF5 does not survive a full disk well, so it never meets one: its file takes all its space at the beginning.
    """
    try:
        remove(path)  # after a kill it may be a second name of the log, which must not be emptied
        with naming(path):
            file = open_descriptor(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
            try:
                _allocate(file, size, path.parent)
            finally:
                os.close(file)
    except OSError:
        with suppress(OSError):
            remove(path)
        raise


def take_name(new: Path, path: Path, force: bool) -> None:
    """Rename a file; unless by force, FileExistsError where there is one of that name."""
    if not force:
        try:
            uninterrupted(os.link, new, path)
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            LOGGER.info("%s: its file system has no hard links; the file takes its name by being renamed", path)
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL))
        else:
            with suppress(OSError):  # it goes with its folder
                remove(new)
            return
    try:
        replace(new, path)
    except OSError:
        if not force:
            with suppress(OSError):
                remove(path)  # what kept the name
        raise


def _allocate(file: int, size: int, folder: Path) -> None:
    try:
        os.posix_fallocate(file, 0, size)
    except (AttributeError, OSError) as error:  # not every system and file system can; then ask how much is free
        if getattr(error, "errno", errno.EINVAL) not in _NO_RESERVATION:
            raise
        if shutil.disk_usage(folder).free < size:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)) from None
        LOGGER.info("%s: its file system cannot reserve room; there is enough now, but others may take it", folder)


def refuse_existing(path: Path, force: bool) -> None:
    if exists(path) and not is_file(path):
        raise InputError(f"{path} is not an ordinary file; choose another place with -o")
    if force:
        return
    if exists(restart_folder(path)):
        raise InputError(
            f"{path} is not finished; go on with it with --resume, choose another place with -o, or replace it with --force"
        )
    if exists(path):
        raise InputError(f"{path} exists; choose another place with -o, or replace it with --force")
