"""The folder beside a log from which a killed run goes on: OUT.h5.restart, there until the log is complete.

    lock              held by the process that writes; the kernel releases it however that process ends
    journal-*         everything recorded so far (journal.py)
    checkpoint        the state of all places after some iteration, and how long the journal was then
    checkpoint.before the one before, should the newest be damaged
    log.h5            the log, until it is worth its name
    failed            the sentence with which the run failed, until it is gone on with

A checkpoint is a new file, on the disk before it takes its name, after the journal that it refers to.
"""

import errno
import fcntl
import hashlib
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from dpadmm_mpi.errors import InputError, RunError
from dpadmm_mpi.storage.journal import Damaged, Entry, Packed, entries, frame, pack, read_frame, write_all
from dpadmm_mpi.types import Array

_NO_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS)  # file systems without locks: go on without
_PERMISSIONS = 0o666  # less the umask
ATTEMPTS, PAUSE = (
    5,
    0.05,
)  # at the lock, and the seconds between them: a look at it (run_status.is_locked) takes it for a moment


class Checkpoint(msgspec.Struct, frozen=True, array_like=True):
    journal: str
    length: int  # bytes of the journal that belong to it
    run: int  # the first of those that go side by side
    iteration: int
    arrays: Packed  # every field of their state; none between two groups of runs
    seconds: float  # of all parts until then


class Found(msgspec.Struct, frozen=True):
    """A usable checkpoint with its journal."""

    checkpoint: Checkpoint
    journal: Path
    config: str
    identity: str
    notes: list[str]

    def entries(self) -> Iterator[Entry]:
        """The journal but for its head; what is under way last, as a state."""
        for entry in entries(self.journal, self.checkpoint.length):
            if entry.kind != "config":
                yield entry
        if self.checkpoint.arrays:
            yield Entry("state", self.checkpoint.run, self.checkpoint.iteration, self.checkpoint.arrays)


def restart_folder(log: Path) -> Path:
    return log.with_name(f"{log.name}.restart")


def find(log: Path) -> Found | None:
    """The newest usable checkpoint of a log; None without one."""
    folder = restart_folder(log)
    notes: list[str] = []
    for name in ("checkpoint", "checkpoint.before"):
        if not (folder / name).exists():
            continue
        try:
            with (folder / name).open("rb") as file:
                checkpoint = msgspec.msgpack.decode(read_frame(file), type=Checkpoint)
            journal = folder / checkpoint.journal
            head: Entry | None = None
            for entry in entries(journal, checkpoint.length):  # all of it, for the checksums
                head = head or entry
            if head is None or head.kind != "config":
                raise Damaged("it does not begin with the configuration")
            return Found(checkpoint, journal, head.text, head.identity, notes)
        except (OSError, Damaged, msgspec.MsgspecError) as error:
            notes.append(f"{folder / name} is damaged ({error}) and was left aside")
    return None


class Restart:
    """The folder of one log, on rank 0 of the job that writes it."""

    def __init__(self, log: Path) -> None:
        self.log = log
        self.folder = restart_folder(log)
        self.new_log = self.folder / "log.h5"
        self._journal = -1
        self._name = ""
        self._length = 0
        self._lock = self._take_lock()

    def _take_lock(self) -> int:
        for attempt in range(ATTEMPTS):
            time.sleep(PAUSE * (attempt > 0))
            try:
                self.folder.mkdir(parents=True, exist_ok=True)
                sync_folder(self.folder.parent)
                lock = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT, _PERMISSIONS)
            except FileNotFoundError:  # removed in between by a job that has just finished
                continue
            except OSError as error:
                raise InputError(
                    f"{self.log} cannot be created ({os.strerror(error.errno or 0)}); choose another place with -o"
                ) from None
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(lock)
                continue
            except OSError as error:
                if error.errno not in _NO_LOCKS:
                    os.close(lock)
                    raise
            with suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(lock), (self.folder / "lock").stat()):
                    return lock
            os.close(lock)
        if self.folder.exists():
            raise InputError(f"{self.log}: another process is writing it; wait until that has ended")
        raise InputError(f"{self.log} cannot be created (its folder has been removed); choose another place with -o")

    def begin(self, config: str, identity: str) -> None:
        """A new journal. Of another configuration, its first checkpoint makes it the valid one."""
        self._name = f"journal-{hashlib.sha256(config.encode()).hexdigest()[:12]}"
        with self.writing():
            self._journal = os.open(self.folder / self._name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, _PERMISSIONS)
        self._length = 0
        self.add(Entry("config", text=config, identity=identity))

    def resume(self, found: Found) -> None:
        """Go on behind a checkpoint; what the journal holds after it is recorded again."""
        with self.writing():
            (self.folder / "failed").unlink(missing_ok=True)
            if found.notes:
                (self.folder / "checkpoint.before").replace(self.folder / "checkpoint")
            self._name, self._length = found.checkpoint.journal, found.checkpoint.length
            self._journal = os.open(found.journal, os.O_WRONLY)
            os.ftruncate(self._journal, self._length)
            os.lseek(self._journal, 0, os.SEEK_END)

    def forget(self) -> None:
        """Remove checkpoints and journals: the run begins anew."""
        self._remove(lambda name: name != "lock")

    def forget_others(self) -> None:
        """Remove what belongs to the configuration before this one."""
        self._remove(lambda name: name not in ("lock", "checkpoint", self._name))

    def add(self, entry: Entry) -> None:
        content = frame(entry)
        with self.writing():
            write_all(self._journal, content)
        self._length += len(content)

    def save(self, run: int, iteration: int, state: Mapping[str, Array], seconds: float) -> None:
        """A checkpoint: the journal first, then the state under a new name, then the name."""
        content = frame(Checkpoint(self._name, self._length, run, iteration, pack(state), seconds))
        new, newest = self.folder / "checkpoint.new", self.folder / "checkpoint"
        with self.writing():
            os.fsync(self._journal)
            file = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, _PERMISSIONS)
            try:
                write_all(file, content)
                os.fsync(file)
            finally:
                os.close(file)
            if newest.exists():
                newest.replace(self.folder / "checkpoint.before")
            new.replace(newest)
            sync_folder(self.folder)

    def remove(self) -> None:
        """The log is complete: nothing here is needed any more."""
        self._remove(lambda name: True)
        with suppress(OSError):
            self.folder.rmdir()

    def close_journal(self) -> None:
        if self._journal >= 0:
            os.close(self._journal)
        self._journal = -1

    def close(self) -> None:
        self.close_journal()
        if self._lock >= 0:
            os.close(self._lock)
        self._lock = -1

    @contextmanager
    def writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise RunError(
                f"{self.folder} cannot be written ({os.strerror(error.errno or 0)}); make room and go on with --resume; what "
                "was recorded until the last checkpoint is still there"
            ) from None

    def _remove(self, unwanted: Callable[[str], bool]) -> None:
        """Checkpoints before the journals that they refer to, the lock last."""
        order = {"checkpoint": 0, "lock": 2}
        with suppress(FileNotFoundError):
            for path in sorted(self.folder.iterdir(), key=lambda path: order.get(path.stem, 1)):
                if unwanted(path.name):
                    path.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
