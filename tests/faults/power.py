"""A disk without power: what of a recorded run is still there, if nothing but what was synced is certain.

Of a file, everything until its last fsync is kept; of what was written after it some parts are, perhaps torn. Of a folder,
names are as at its last fsync; of later changes some have come through, in any order.
"""

import os
import random
from pathlib import Path
from typing import NamedTuple

SECTOR = 512


class Call(NamedTuple):
    """One line of the shim's record."""

    name: str
    inode: int
    path: str
    other: str
    at: int
    flags: int
    data: bytes


def read_record(path: Path) -> list[Call]:
    content, calls, at = path.read_bytes(), [], 0
    while at < len(content):
        end = content.index(b"\n", at)
        name, inode, first, second, offset, flags, length = content[at:end].decode().split("\t")
        at = end + 1 + int(length)
        calls.append(Call(name, int(inode), first, second, int(offset), int(flags), content[end + 1 : at]))
    return calls


class File:
    """Bytes: those on the disk for certain, and the changes since."""

    def __init__(self) -> None:
        self.certain = b""
        self.changes: list[tuple[int, bytes | None]] = []  # a place and bytes; or a new length

    def after(self, changes: list[tuple[int, bytes | None]]) -> bytes:
        content = bytearray(self.certain)
        for at, data in changes:
            if data is None:
                content = content[:at] + bytes(max(0, at - len(content)))
            else:
                content += bytes(max(0, at - len(content)))
                content[at : at + len(data)] = data
        return bytes(content)

    def now(self) -> bytes:
        return self.after(self.changes)

    def sync(self) -> None:
        self.certain, self.changes = self.now(), []

    def after_the_cut(self, rng: random.Random, share: float) -> bytes:
        kept = []
        for at, data in self.changes:
            if rng.random() >= share:
                continue
            if data is not None and rng.random() < 0.3:  # torn
                data = data[: rng.randrange(0, len(data) + 1) // SECTOR * SECTOR]
            kept.append((at, data))
        return self.after(kept)


FOLDER = "folder"


class Disk:
    """Names and files, as the calls so far have left them."""

    def __init__(self) -> None:
        self.names: dict[str, File | str] = {}
        self.certain: dict[str, File | str] = {}
        self.changes: list[tuple[str, str, File | str | None]] = []  # folder, name, what it is from now on (None: nothing)
        self.open: dict[int, File] = {}

    def _name(self, path: str, what: "File | str | None") -> None:
        self.changes.append((str(Path(path).parent), path, what))
        if what is None:
            self.names.pop(path, None)
        else:
            self.names[path] = what

    def apply(self, call: Call) -> None:
        getattr(self, f"_{call.name}")(call)

    def _open(self, call: Call) -> None:
        if call.flags & os.O_DIRECTORY:
            return
        found = self.names.get(call.path)
        if found is None and call.flags & os.O_CREAT:
            found = File()
            self._name(call.path, found)
        if isinstance(found, File):
            self.open[call.inode] = found
            if call.flags & os.O_TRUNC:
                found.changes.append((0, None))

    def _write(self, call: Call) -> None:
        if call.inode in self.open:
            self.open[call.inode].changes.append((call.at, call.data))

    def _ftruncate(self, call: Call) -> None:
        if call.inode in self.open:
            self.open[call.inode].changes.append((call.at, None))

    def _fsync(self, call: Call) -> None:
        if call.inode in self.open:
            self.open[call.inode].sync()
            return
        rest = []
        for change in self.changes:
            if change[0] == call.path:
                _set(self.certain, *change[1:])
            else:
                rest.append(change)
        self.changes = rest

    def _mkdir(self, call: Call) -> None:
        self._name(call.path, FOLDER)

    def _rmdir(self, call: Call) -> None:
        self._name(call.path, None)

    def _unlink(self, call: Call) -> None:
        self._name(call.path, None)

    def _link(self, call: Call) -> None:
        self._name(call.other, self.names[call.path])

    def _rename(self, call: Call) -> None:
        what = self.names[call.path]
        self._name(call.other, what)
        self._name(call.path, None)

    def after_the_cut(self, rng: random.Random) -> dict[str, bytes | None]:
        """path -> bytes, None for a folder. Sometimes everything has come through, sometimes nothing that was not synced."""
        share = rng.choice([0.0, 0.5, 1.0])
        names = dict(self.certain)
        for _, path, what in self.changes:
            if rng.random() < share:
                _set(names, path, what)
        contents: dict[int, bytes] = {}
        found: dict[str, bytes | None] = {}
        for path, what in sorted(names.items()):
            if isinstance(what, File):
                found[path] = contents.setdefault(id(what), what.after_the_cut(rng, share))
            else:
                found[path] = None
        return {path: data for path, data in found.items() if _has_folder(path, found)}


def _set(names: "dict[str, File | str]", path: str, what: "File | str | None") -> None:
    if what is None:
        names.pop(path, None)
    else:
        names[path] = what


def _has_folder(path: str, found: dict[str, bytes | None]) -> bool:
    """A name in a folder that was lost is lost with it."""
    return ".restart/" not in path or found.get(str(Path(path).parent), b"") is None


def put(found: dict[str, bytes | None], before: Path, folder: Path) -> None:
    """The disk as files again, in another folder."""
    for path, data in found.items():
        target = folder / os.path.relpath(path, before)
        if data is None:
            target.mkdir(parents=True, exist_ok=True)
        else:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)
