"""A pipe, a socket, a device, a folder or a link to itself in place of a file: refused with a sentence, never waited for."""

import os
import re
import signal
import socket
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest
from support import PROGRAMS, MakeConfig, WriteToml, command, planned, result_of

from dpadmm_mpi import load
from dpadmm_mpi.config.extensions import Extension
from dpadmm_mpi.config.extensions import load as load_extensions
from dpadmm_mpi.config.files import read_table
from dpadmm_mpi.data.readers import read_csv, read_hdf5, read_libsvm, read_npz
from dpadmm_mpi.data.records import Wanted
from dpadmm_mpi.errors import InputError, RunError
from dpadmm_mpi.methods.curated.linear_maps import load_array
from dpadmm_mpi.reports.live import look
from dpadmm_mpi.storage.checkpoint import Restart, find, restart_folder
from dpadmm_mpi.storage.compare import compare
from dpadmm_mpi.storage.experiments import source_of
from dpadmm_mpi.storage.journal import entries
from dpadmm_mpi.storage.run_status import failure, is_locked

pytestmark = pytest.mark.timeout(60)


def _socket(path: Path) -> None:
    here = Path.cwd()
    os.chdir(path.parent)  # names of sockets are short
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path.name)
    os.chdir(here)


KINDS: dict[str, Callable[[Path], object]] = {
    "a named pipe": os.mkfifo,
    "a socket": _socket,
    "a device": lambda path: path.symlink_to("/dev/zero"),
    "a folder": Path.mkdir,
    "a symbolic link that leads back to itself": lambda path: path.symlink_to(path.name),
}
every_kind = pytest.mark.parametrize("kind", KINDS)

READERS: dict[str, Callable[[Path], object]] = {
    "config.toml": read_table,
    "result.h5": load,
    "watched.h5": look,
    "compared.h5": lambda path: list(compare(path, path)),
    "again.h5": source_of,
    "extension.py": lambda path: load_extensions([Extension(str(path))]),
    "records.csv": lambda path: read_csv(path, Wanted("label", (), (), ())),
    "records.npz": read_npz,
    "records.hdf5": read_hdf5,
    "records.libsvm": lambda path: read_libsvm(path, None),
    "map.npy": load_array,
    "map.npz": load_array,
    "map.csv": load_array,
    "journal": lambda path: list(entries(path, 10)),
}


@every_kind
@pytest.mark.parametrize("name", READERS)
def test_no_reader_takes_a_special_file(tmp_path: Path, kind: str, name: str) -> None:
    KINDS[kind](tmp_path / name)
    with pytest.raises(InputError) as refused:
        READERS[name](tmp_path / name)
    assert kind in str(refused.value)
    assert str(tmp_path / name) in str(refused.value)


@every_kind
@pytest.mark.parametrize("key", ["network.path", "data.path", "data.node_file"])
def test_no_path_of_a_configuration_leads_to_a_special_file(
    tmp_path: Path, config: MakeConfig, monkeypatch: pytest.MonkeyPatch, kind: str, key: str
) -> None:
    raw, path = config("admm"), tmp_path / "special"
    KINDS[kind](path)
    if key == "data.path":
        raw["data"] = {"source": "csv", "path": str(path)}
    elif key == "data.node_file":
        monkeypatch.setenv("DPADMM_DATA", str(tmp_path / "cache"))
        (tmp_path / "records.csv").write_text("x,label\n0.5,1\n0.2,-1\n")
        raw["data"] = {"source": "csv", "path": str(tmp_path / "records.csv"), "split": "node-file", "node_file": str(path)}
    else:
        raw["network"]["path"] = str(path)
    with pytest.raises(InputError, match=kind):
        planned(raw)


@every_kind
@pytest.mark.parametrize("name", ["lock", "checkpoint"])
def test_a_special_file_in_the_restart_folder_is_refused(tmp_path: Path, kind: str, name: str) -> None:
    log = tmp_path / "out.h5"
    restart_folder(log).mkdir()
    KINDS[kind](restart_folder(log) / name)
    with pytest.raises(InputError, match=kind):
        Restart(log) if name == "lock" else find(log)
    assert is_locked(log) is None
    assert failure(log) is None


@pytest.mark.parametrize("name", ["lock", "checkpoint", "journal"])
def test_a_link_that_leads_nowhere_is_no_reason_to_begin_anew(
    tmp_path: Path, config: MakeConfig, write_toml: WriteToml, name: str
) -> None:
    """Its disk may not be mounted just now."""
    job = ("run", write_toml(config(iterations=50, record={"checkpoint": 1})), "-o", tmp_path / "out.h5")
    assert command(0, 20, *job, program=PROGRAMS / "mortal.py").returncode == -signal.SIGKILL
    folder = restart_folder(tmp_path / "out.h5")
    (path,) = folder.glob(f"{name}-*" if name == "journal" else name)
    moved = path.replace(tmp_path / "elsewhere")
    path.symlink_to(moved)
    moved.rename(tmp_path / "unmounted")
    process = command(*job, "--resume")
    assert (process.returncode, "leads nowhere" in process.stderr) == (2, True)
    (tmp_path / "unmounted").rename(moved)
    assert command(*job, "--resume").returncode == 0


@pytest.mark.parametrize("kind", ["a named pipe", "a socket", "a device"])
def test_what_stands_in_place_of_the_restart_folder_is_named(tmp_path: Path, kind: str) -> None:
    KINDS[kind](restart_folder(tmp_path / "out.h5"))
    with pytest.raises(InputError, match=re.escape("out.h5.restart is")):
        find(tmp_path / "out.h5")


@pytest.mark.parametrize("name", READERS)
def test_a_file_of_the_kernel_that_waits_for_something_to_say(tmp_path: Path, name: str) -> None:
    """It claims to be an ordinary one."""
    if not os.access("/proc/kmsg", os.R_OK):
        pytest.skip("no /proc/kmsg here that may be read")
    (tmp_path / name).symlink_to("/proc/kmsg")
    with pytest.raises((InputError, RunError, BlockingIOError)):
        READERS[name](tmp_path / name)


@every_kind
def test_what_watchers_look_at_is_not_waited_for(tmp_path: Path, kind: str) -> None:
    log = tmp_path / "out.h5"
    restart_folder(log).mkdir()
    KINDS[kind](restart_folder(log) / "failed")
    assert failure(log) is None


@pytest.mark.parametrize("what", ["external link", "soft link", "another file", "claims"])
def test_records_in_hdf5_come_from_the_file_itself(tmp_path: Path, what: str) -> None:
    """The link leads to a pipe, on which its reader would wait."""
    os.mkfifo(tmp_path / "pipe")
    path = tmp_path / "records.h5"
    with h5py.File(path, "w") as file:
        file["y"] = np.array([1.0, -1.0])
        if what == "external link":
            file["X"] = h5py.ExternalLink(str(tmp_path / "pipe"), "/X")
        elif what == "soft link":
            file["X"] = h5py.SoftLink("/elsewhere")
        elif what == "another file":
            file.create_dataset("X", shape=(2, 2), dtype="f8", external=[("/dev/zero", 0, h5py.h5f.UNLIMITED)])
        else:
            file.create_dataset("X", shape=(2, 1 << 40), dtype="f8", chunks=(1, 1 << 16))
    with pytest.raises(InputError, match=what):
        read_hdf5(path)


def test_an_ordinary_link_is_followed(tmp_path: Path, config: MakeConfig) -> None:
    """Links of the file system to ordinary files are everyday."""
    result_of(config("admm"), tmp_path / "real.h5")
    (tmp_path / "link.h5").symlink_to("real.h5")
    assert load(tmp_path / "link.h5").complete
