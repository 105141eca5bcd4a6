"""A signal at any rank, or the walltime: all ranks stop after the same iteration, with a checkpoint, exit code 75."""

import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support import LAUNCHES, MPI_ENVIRONMENT, MakeConfig, WriteToml, command, dpadmm, popen, result_of

from dpadmm_mpi import load
from dpadmm_mpi.storage.checkpoint import restart_folder
from dpadmm_mpi.storage.compare import compare

STOPPED = 75


@pytest.fixture
def job(config: MakeConfig, write_toml: WriteToml, tmp_path: Path) -> list[str]:
    """Long enough to be stopped in the middle, short enough to be finished."""
    return ["run", str(write_toml(config("admm", iterations=1000, runs=2))), "-o", str(tmp_path / "out.h5")]


def start(job: list[str], ranks: int | None) -> "subprocess.Popen[str]":
    """The job, once its first rows are in the journal."""
    for _ in range(LAUNCHES):
        process = popen(
            dpadmm(*job, ranks=ranks),
            env={**os.environ, **MPI_ENVIRONMENT},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        while process.poll() is None:
            journals = list(restart_folder(Path(job[-1])).glob("journal-*"))
            if journals and journals[0].stat().st_size > 20_000:
                return process
            time.sleep(0.02)
    raise AssertionError(process.communicate())


def ranks_of(launcher: "subprocess.Popen[str]") -> list[int]:
    """The processes that a launcher started."""
    children = Path(f"/proc/{launcher.pid}/task").glob("*/children")
    return sorted(int(pid) for child in children for pid in child.read_text().split())


def finish_and_compare(job: list[str], tmp_path: Path) -> None:
    """The rest, and the same in one go: identical."""
    assert command(*job, "--resume").returncode == 0
    undisturbed = tmp_path / "undisturbed.h5"
    assert command(*job[:-1], undisturbed).returncode == 0
    assert list(compare(undisturbed, Path(job[-1]))) == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1, signal.SIGINT])
def test_signal_to_one_process(job: list[str], tmp_path: Path, number: signal.Signals) -> None:
    process = start(job, None)
    process.send_signal(number)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == STOPPED, errors
    (sentence,) = [line for line in errors.splitlines() if "dpadmm:" in line]
    assert sentence.startswith(f"dpadmm: stopped by {number.name} after iteration ")
    assert sentence.endswith("; go on with --resume")
    assert shlex.split(errors.splitlines()[-1]) == ["dpadmm", *map(str, job), "--resume"]  # the whole command
    assert not load(job[-1]).complete
    if number == signal.SIGUSR1:
        finish_and_compare(job, tmp_path)


def test_launcher_forwards_usr1(job: list[str], tmp_path: Path) -> None:
    process = start(job, 3)
    process.send_signal(signal.SIGUSR1)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == STOPPED, errors
    assert errors.count("dpadmm: stopped by SIGUSR1 after iteration ") == 1
    # Behind it a launcher may write of its own: Open MPI without shared memory ends with a NUL.
    [line] = [line for line in errors.splitlines() if line.strip().startswith("mpiexec ")]
    assert shlex.split(line) == ["mpiexec", "-n", "3", "dpadmm", *map(str, job), "--resume"]
    finish_and_compare(job, tmp_path)


@pytest.mark.skipif(sys.platform != "linux", reason="the children of a process are read from /proc")
@pytest.mark.parametrize("rank", [0, 2])
def test_signal_to_one_rank_stops_all(job: list[str], rank: int) -> None:
    process = start(job, 3)
    os.kill(ranks_of(process)[rank], signal.SIGTERM)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == STOPPED, errors
    assert errors.count("dpadmm: stopped by SIGTERM after iteration ") == 1
    assert (restart_folder(Path(job[-1])) / "checkpoint").exists()


def test_second_interrupt_stops_at_once(config: MakeConfig, write_toml: WriteToml, tmp_path: Path) -> None:
    """While no iteration ends: the first interrupt waits for one, the second does not."""
    program = tmp_path / "slow.py"
    program.write_text(
        "import os, signal, sys, time\n"
        "from dpadmm_mpi.cli.main import entry\n"
        "from dpadmm_mpi.engine.simulation import Simulation\n"
        "def slow(*_):\n"
        "    for _ in range(2): os.kill(os.getpid(), signal.SIGINT)\n"
        "    time.sleep(1000)\n"
        "Simulation._iterate = slow\n"
        "entry()\n"
    )
    process = command("run", write_toml(config()), "-o", tmp_path / "out.h5", program=program)
    assert process.returncode == 130
    assert "dpadmm: interrupted" in process.stderr


@pytest.mark.parametrize("ranks", [None, 3])
def test_walltime(job: list[str], tmp_path: Path, ranks: int | None) -> None:
    process = command(*job, "--set", "iterations=20000", "--walltime", "0:03", ranks=ranks)
    assert process.returncode == STOPPED, process.stderr
    assert process.stderr.count("dpadmm: stopped by --walltime after iteration ") == 1
    assert (restart_folder(Path(job[-1])) / "checkpoint").exists()


def test_walltime_that_cannot_be_read(job: list[str]) -> None:
    process = command(*job, "--walltime", "3h")
    assert process.returncode == 2
    assert "HH:MM:SS" in process.stderr


def test_the_python_interface_leaves_signals_alone(config: MakeConfig, tmp_path: Path) -> None:

    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT)]
    result_of(config(), tmp_path / "out.h5")
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT)] == before
