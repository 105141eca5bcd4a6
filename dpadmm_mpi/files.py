"""Files as the operating system has them: ordinary ones only, never waited for, and with their names in every error.

A call that a signal interrupts is made again. Python does so by itself for most calls, but not for those that change names,
which only some network file systems interrupt.
"""

import errno
import io
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import ParamSpec, TypeVar

import numpy as np
from numpy.typing import NDArray

from dpadmm_mpi.errors import InputError

P = ParamSpec("P")
T = TypeVar("T")

_PERMISSIONS = 0o666  # less the umask
_AT_ONCE = os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC  # a pipe without a writer would be waited for
_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def uninterrupted(call: Callable[P, T], *arguments: P.args, **keywords: P.kwargs) -> T:
    """The result of a call that is made again after each signal in its middle."""
    while True:
        try:
            return call(*arguments, **keywords)
        except InterruptedError:
            continue


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Errors of calls that know a file by its number only get its name."""
    try:
        yield
    except OSError as error:
        if error.filename is None and error.errno is not None:
            error.filename = str(path)
        raise


def refuse_special(path: Path, key: str = "") -> None:
    """Whatever is no ordinary file is refused before it is opened; one that is not there is somebody else's matter."""
    try:
        mode = uninterrupted(path.stat).st_mode
    except OSError as error:
        if error.errno != errno.ELOOP:
            return  # opening it says why
        raise InputError(
            f"{key}{path} is a symbolic link that leads back to itself; remove it, or name an ordinary file"
        ) from None
    _refuse(mode, path, key)


def _refuse(mode: int, path: Path, key: str = "") -> None:
    if not stat.S_ISREG(mode):
        raise InputError(f"{key}{path} is {_KINDS.get(stat.S_IFMT(mode), 'a special file')}; an ordinary file is needed")


def open_descriptor(path: Path, flags: int = os.O_RDONLY) -> int:
    """An ordinary file by its number; never waits."""
    refuse_special(path)
    file = os.open(path, flags | _AT_ONCE, _PERMISSIONS)
    try:
        with naming(path):
            found = os.fstat(file)
            _refuse(found.st_mode, path)  # should it have been exchanged in between
            if not found.st_size and not flags & (os.O_WRONLY | os.O_RDWR):
                os.pread(file, 1, 0)  # BlockingIOError for those files of the kernel that wait for something to say
    except BaseException:
        os.close(file)
        raise
    return file


def open_to_read(path: Path) -> io.BufferedReader:
    """An ordinary file to read from."""
    return os.fdopen(open_descriptor(path), "rb")


def read_bytes(path: Path) -> bytes:
    with naming(path), open_to_read(path) as file:
        return file.read()


def read_text(path: Path, encoding: str = "utf-8") -> str:
    """With line ends as Python has them."""
    return read_bytes(path).decode(encoding).replace("\r\n", "\n").replace("\r", "\n")


def read_array(path: Path, dtype: type, first: int, count: int) -> NDArray[np.generic]:
    """So many numbers of a raw file, or as many as there are."""
    size = np.dtype(dtype).itemsize
    with naming(path), open_to_read(path) as file:
        file.seek(first * size)
        content = file.read(count * size)
    return np.frombuffer(bytearray(content[: len(content) // size * size]), dtype=dtype)


def write_bytes(path: Path, content: bytes | memoryview) -> None:
    """A new file, or a new content of an ordinary one."""
    file = open_descriptor(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    try:
        with naming(path):
            write_all(file, content)
    finally:
        os.close(file)


def write_text(path: Path, text: str) -> None:
    write_bytes(path, text.encode("utf-8"))


def write_all(file: int, content: bytes | memoryview) -> None:
    if not memoryview(content).nbytes:
        return
    rest = memoryview(content).cast("B")
    while rest:
        rest = rest[os.write(file, rest) :]


def resolved(path: Path) -> Path:
    """Without symbolic links; one that leads back to itself stays, for whoever opens it."""
    return Path(os.path.realpath(path))


def exists(path: Path) -> bool:
    return uninterrupted(path.exists)


def is_file(path: Path) -> bool:
    return uninterrupted(path.is_file)


def is_folder(path: Path) -> bool:
    return uninterrupted(path.is_dir)


def status(path: Path) -> os.stat_result:
    return uninterrupted(path.stat)


def size_of(path: Path) -> int:
    return status(path).st_size


def names_in(folder: Path, pattern: str | None = None) -> list[Path]:
    """All of them, or those that match; then a folder that is not there has none."""
    return uninterrupted(lambda: sorted(folder.iterdir() if pattern is None else folder.glob(pattern)))


def replace(path: Path, target: Path) -> None:
    uninterrupted(path.replace, target)


def remove(path: Path) -> None:
    """Whether it is there or not."""
    uninterrupted(path.unlink, missing_ok=True)


def make_folder(path: Path) -> None:
    uninterrupted(path.mkdir, parents=True, exist_ok=True)


def sync_folder(folder: Path) -> None:
    """The names in a folder, on the disk."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with naming(folder):
            os.fsync(handle)
    finally:
        os.close(handle)
