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
import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from dpadmm_mpi.errors import InputError, RunError, advice_on, file_in, reason_of
from dpadmm_mpi.files import (
    exists,
    is_folder,
    make_folder,
    names_in,
    naming,
    open_descriptor,
    open_to_read,
    refuse_special,
    remove,
    replace,
    sync_folder,
    uninterrupted,
    write_all,
)
from dpadmm_mpi.storage.journal import Damaged, Entry, Packed, entries, frame, pack, read_frame
from dpadmm_mpi.types import Array

LOGGER = logging.getLogger(__name__)

_NO_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EPERM)  # file systems without locks: go on without
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
    if exists(folder) and not is_folder(folder):
        raise InputError(f"{folder} is not a folder; remove it, or choose another place with -o")
    notes: list[str] = []
    for name in ("checkpoint", "checkpoint.before"):
        try:
            checkpoint = _checkpoint(folder / name)
            if checkpoint is None:
                continue
            journal = folder / checkpoint.journal
            if journal.parent != folder:
                raise Damaged("its journal lies elsewhere")
            _refuse_lost(journal)
            head: Entry | None = None
            for entry in entries(journal, checkpoint.length):  # all of it, for the checksums
                head = head or entry
            if head is None or head.kind != "config":
                raise Damaged("it does not begin with the configuration")
            return Found(checkpoint, journal, head.text, head.identity, notes)
        except (Damaged, msgspec.MsgspecError, FileNotFoundError) as error:
            notes.append(f"{folder / name} is damaged ({error}) and was left aside")
        except OSError as error:  # not damaged, as far as anybody knows: nothing is begun anew
            raise InputError(
                f"{file_in(error)} cannot be read ({reason_of(error)}); {advice_on(error)} and go on with --resume, or remove "
                f"{folder / name} to go on without it"
            ) from None
    return None


def _checkpoint(path: Path) -> Checkpoint | None:
    """What a file holds, if it is there."""
    _refuse_lost(path)
    try:
        file = open_to_read(path)
    except FileNotFoundError:
        return None
    with naming(path), file:
        return msgspec.msgpack.decode(read_frame(file), type=Checkpoint)


def _refuse_lost(path: Path) -> None:
    """A link to where nothing is just now, as on a disk that is not mounted: nothing is begun anew."""
    refuse_special(path)
    if uninterrupted(path.is_symlink) and not exists(path):
        raise InputError(f"{path} is a symbolic link that leads nowhere; bring back what it leads to, or remove it")


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
                make_folder(self.folder)
                sync_folder(self.folder.parent)
                _refuse_lost(self.folder / "lock")
                lock = open_descriptor(self.folder / "lock", os.O_RDWR | os.O_CREAT)
            except FileNotFoundError:  # removed in between by a job that has just finished
                continue
            except OSError as error:
                raise InputError(f"{self.log} cannot be created ({reason_of(error)}); choose another place with -o") from None
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(lock)
                continue
            except OSError as error:
                if error.errno not in _NO_LOCKS:
                    os.close(lock)
                    raise InputError(
                        f"{self.folder / 'lock'} cannot be locked ({reason_of(error)}); {advice_on(error)}, and run the "
                        "command again"
                    ) from None
                LOGGER.warning("%s: its file system has no locks; see to it that no other job writes it", self.log)
            if self._is_in_place(lock):
                return lock
            os.close(lock)
        if exists(self.folder):
            raise InputError(f"{self.log}: another process is writing it; wait until that has ended")
        raise InputError(f"{self.log} cannot be created (its folder has been removed); choose another place with -o")

    def _is_in_place(self, lock: int) -> bool:
        """Whether the locked file still has its name: a job that has just finished may have removed it."""
        try:
            with naming(self.folder / "lock"):
                return os.path.samestat(os.fstat(lock), uninterrupted((self.folder / "lock").stat))
        except FileNotFoundError:
            return False
        except BaseException:
            os.close(lock)
            raise

    def begin(self, config: str, identity: str) -> None:
        """A new journal. Of another configuration, its first checkpoint makes it the valid one."""
        self._name = f"journal-{hashlib.sha256(config.encode()).hexdigest()[:12]}"
        with self.writing():
            self._journal = open_descriptor(self.folder / self._name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        self._length = 0
        self.add(Entry("config", text=config, identity=identity))

    def resume(self, found: Found) -> None:
        """Go on behind a checkpoint; what the journal holds after it is recorded again."""
        with self.writing():
            remove(self.folder / "failed")
            if found.notes:
                replace(self.folder / "checkpoint.before", self.folder / "checkpoint")
            self._name, self._length = found.checkpoint.journal, found.checkpoint.length
            self._journal = open_descriptor(found.journal, os.O_WRONLY)
            with naming(found.journal):
                os.ftruncate(self._journal, self._length)
                os.lseek(self._journal, 0, os.SEEK_END)

    def forget(self) -> None:
        """Remove checkpoints and journals: the run begins anew."""
        with self.writing():
            self._remove(lambda name: name != "lock")

    def forget_others(self) -> None:
        """Remove what belongs to the configuration before this one."""
        with self.writing():
            self._remove(lambda name: name not in ("lock", "checkpoint", self._name))

    def add(self, entry: Entry) -> None:
        content = frame(entry)
        with self.writing(), naming(self.folder / self._name):
            write_all(self._journal, content)
        self._length += len(content)

    def save(self, run: int, iteration: int, state: Mapping[str, Array], seconds: float) -> None:
        """A checkpoint: the journal first, then the state under a new name, then the name."""
        content = frame(Checkpoint(self._name, self._length, run, iteration, pack(state), seconds))
        new, newest = self.folder / "checkpoint.new", self.folder / "checkpoint"
        with self.writing():
            with naming(self.folder / self._name):
                os.fsync(self._journal)
            file = open_descriptor(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            try:
                with naming(new):
                    write_all(file, content)
                    os.fsync(file)
            finally:
                os.close(file)
            if exists(newest):
                replace(newest, self.folder / "checkpoint.before")
            replace(new, newest)
            sync_folder(self.folder)

    def remove(self) -> None:
        """The log is complete, or nothing was begun: nothing here is needed any more, nor does it harm."""
        try:
            self._remove(lambda name: True)
            uninterrupted(self.folder.rmdir)
        except FileNotFoundError:
            pass
        except OSError as error:
            LOGGER.warning(
                "%s is not needed any more, but cannot be removed (%s: %s); remove it by hand",
                self.folder,
                file_in(error),
                reason_of(error),
            )

    def remove_unless_begun(self) -> None:
        """Without a checkpoint, whatever its state, there is nothing to go on from."""
        with suppress(OSError):
            if not {"checkpoint", "checkpoint.before"} & {path.name for path in names_in(self.folder)}:
                self.remove()

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
                f"{file_in(error, self.folder)} cannot be written ({reason_of(error)}); {advice_on(error)} and go on with "
                "--resume; what was recorded until the last checkpoint is still there"
            ) from None

    def _remove(self, unwanted: Callable[[str], bool]) -> None:
        """Checkpoints before the journals that they refer to, the lock last."""
        order = {"checkpoint": 0, "lock": 2}
        with suppress(FileNotFoundError):
            for path in sorted(names_in(self.folder), key=lambda path: order.get(path.stem, 1)):
                if unwanted(path.name):
                    remove(path)
