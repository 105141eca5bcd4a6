"""HDF5 files as others may have made them: opened with their name in every error, and nothing outside them followed."""

import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from dpadmm_mpi.errors import InputError, RunError, advice_on, reason_of
from dpadmm_mpi.files import open_descriptor

_OPENINGS = 5  # of a file, where signals interrupt them
UNCOMPRESSED = 1 << 20  # bytes that a dataset may have without taking room in the file
RATIO = 1100  # how many times its room in the file a dataset may be: more than deflate can compress


def reason(error: Exception) -> str:
    """What HDF5 says about a failure, without its own bookkeeping: the system's words, if it is an error of the system."""
    if isinstance(error, OSError) and error.errno:
        return reason_of(error)
    text = str(error).strip("'\"").split("\n")[0]
    found = re.search(r"errno = (\d+), error message = '([^']*)'", text)
    return found[2] if found else text


@contextmanager
def reading(path: Path | str) -> Iterator[None]:
    """What h5py raises inside becomes a sentence with the file's name."""
    try:
        yield
    except (OSError, RuntimeError, KeyError, ValueError, TypeError, OverflowError) as error:  # all that it raises for damage
        _raise_system(error, path)
        raise InputError(f"{path}: cannot be read to the end ({reason(error)}); the file is damaged, get it again") from error


def _raise_system(error: Exception, path: Path | str) -> None:
    """The disk fails, not the file: nobody may take it for a damaged one, and write it anew."""
    if isinstance(error, OSError) and error.errno:
        raise RunError(f"{path}: {reason_of(error)}; {advice_on(error)}, and run the command again") from error


def open_to_read(path: Path) -> h5py.File:
    """Without a lock: looking at a running job disturbs nobody."""
    for attempt in range(_OPENINGS):
        try:
            os.close(open_descriptor(path))  # HDF5 itself would wait
            return _opened(path)
        except FileNotFoundError:
            raise InputError(f"{path}: no such file") from None
        except (OSError, RuntimeError) as error:
            if getattr(error, "errno", None) == errno.EINTR and attempt < _OPENINGS - 1:
                continue
            _raise_system(error, path)
            raise InputError(f"{path}: not a readable HDF5 file, perhaps cut short or damaged ({reason(error)})") from None
    raise AssertionError


def _opened(path: Path) -> h5py.File:
    try:
        return h5py.File(path, "r", locking=False)
    except OSError as error:
        if "locking flag" not in str(error):
            raise
        return h5py.File(path, "r")  # this process has it open already, with a lock


def values_of(dataset: h5py.Dataset) -> Any:
    """All of them; whole numbers as int64, however few bytes they take in the file."""
    values = dataset[...]
    return values.astype(np.int64) if values.dtype.kind == "i" else values


def own_item(group: h5py.Group, name: str, path: Path | str) -> Any:
    """A member of a group; one that is a link to elsewhere is refused, not followed."""
    place = f"{group.name.rstrip('/')}/{name}"
    link = group.get(name, getlink=True)
    if not isinstance(link, h5py.HardLink):
        kind = "an external" if isinstance(link, h5py.ExternalLink) else "a soft"
        raise InputError(f"{path}: {place} is {kind} link, which is not followed; copy what it leads to into the file")
    item = group[name]
    if isinstance(item, h5py.Dataset):
        _refuse_elsewhere(item, place, path)
    return item


def _refuse_elsewhere(dataset: h5py.Dataset, place: str, path: Path | str) -> None:
    """Bytes in other files, and more of them than the file can hold."""
    properties = dataset.id.get_create_plist()
    if properties.get_external_count() or dataset.is_virtual:
        raise InputError(f"{path}: {place} has its values in another file, which is not followed; copy them into the file")
    if dataset.shape is None:
        raise InputError(f"{path}: {place} is empty; numbers or text are needed")
    if dataset.nbytes > max(UNCOMPRESSED, RATIO * dataset.id.get_storage_size()):
        raise InputError(f"{path}: {place} claims {dataset.nbytes} bytes, which the file does not hold; it is damaged")
