"""Kills, power cuts and errors of the system at single calls, in a short form; `bash scripts/faults.sh` is the long one.

Twice independently: by a shim before the C library, in many lives of one process (campaign.py), and by strace, which is outside
of it all, at the system calls of `dpadmm run` itself.
"""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support import MPI_ENVIRONMENT, RESTARTS, TOP, MakeConfig, WriteToml, command, dpadmm, result_of

from dpadmm_mpi.storage.compare import compare

FAULTS, SEED = 50, 3


def test_a_short_campaign(tmp_path: Path) -> None:
    """All kinds of faults, all families, in one process each: no hang, nothing lost, a sentence for each error."""
    if shutil.which("gcc") is None:
        pytest.skip("no C compiler: the shim before the C library cannot be built")
    words = [sys.executable, "-m", "faults.campaign", str(FAULTS), str(SEED), "--serial"]
    done = subprocess.run(words, cwd=TOP / "tests", capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "hangs 0, lost 0, internal errors 0, failures 0" in done.stdout
    for kind in ("error", "kill at a call", "power cut", "call that a file system lacks"):
        assert f"| {kind} |" in done.stdout


def traced(inject: str, folder: Path, *words: object) -> "subprocess.CompletedProcess[str]":
    """`dpadmm WORDS` under strace, with a fault at the calls that touch what may lie in the restart folder."""
    names = ("lock", "checkpoint", "checkpoint.new", "checkpoint.before", "log.h5")
    paths = [folder / "out.h5", folder / "out.h5.restart", *(folder / "out.h5.restart" / name for name in names)]
    start = ["strace", "-f", "-qq", "-o", "/dev/null", *(f"--trace-path={path}" for path in paths), "-e", f"inject={inject}"]
    return subprocess.run(
        [*start, *dpadmm(*words)],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, **MPI_ENVIRONMENT},
        check=False,
    )


@pytest.fixture
def strace() -> None:
    if shutil.which("strace") is None or subprocess.call(["strace", "-qqo", "/dev/null", "true"]):
        pytest.skip("no strace, or it may not trace here")


@pytest.mark.usefixtures("strace")
@pytest.mark.parametrize(
    ("inject", "code", "words"),
    [
        ("fsync:error=EIO:when=4", 1, "Input/output error"),
        ("flock:error=EROFS:when=1", 2, "out.h5.restart/lock cannot be locked (Read-only file system)"),
        ("link,linkat:signal=SIGKILL:when=1", -signal.SIGKILL, ""),
        ("unlink,unlinkat:error=EPERM:when=2+", 0, "cannot be removed"),
    ],
)
def test_faults_at_system_calls(
    config: MakeConfig, write_toml: WriteToml, tmp_path: Path, inject: str, code: int, words: str
) -> None:
    """One sentence, and --resume gives the undisturbed file; a folder that cannot be removed is no error."""
    path = write_toml(RESTARTS["admm"](config) | {"iterations": 4, "record": {"checkpoint": 1}})
    result_of(path, tmp_path / "expected.h5")
    process = traced(inject, tmp_path, "run", path, "-o", tmp_path / "out.h5")
    assert process.returncode == code, process.stderr
    assert words in process.stderr
    assert "internal error" not in process.stderr
    assert command("run", path, "-o", tmp_path / "out.h5", "--resume").returncode == 0
    assert list(compare(tmp_path / "expected.h5", tmp_path / "out.h5")) == []
