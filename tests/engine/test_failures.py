"""Whatever goes wrong, the job ends in seconds with one sentence and the right code, and no file claims to be complete."""

import contextlib
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TypeAlias

import numpy as np
import pytest
from support import (
    KILLED,
    MPI_ENVIRONMENT,
    PROGRAMS,
    TIMEOUT,
    MakeConfig,
    Process,
    WriteToml,
    command,
    dpadmm,
    popen,
    sentences,
)

from dpadmm_mpi import InputError, load

SABOTAGE = PROGRAMS / "sabotage.py"
RANKS = 3

Job: TypeAlias = tuple[str, Path, str, Path]  # run CONFIG -o FILE


@pytest.fixture
def job(config: MakeConfig, write_toml: WriteToml, tmp_path: Path) -> Job:
    return "run", write_toml(config("r-admm", "objective")), "-o", tmp_path / "out.h5"


def run_sabotaged(job: Job, fault: str, rank: int, ranks: int | None = RANKS) -> Process:
    return command(fault, rank, *job, ranks=ranks, program=SABOTAGE)


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("fault", ["raise", "exit"])
def test_one_rank_fails(job: Job, fault: str, rank: int) -> None:
    process = run_sabotaged(job, fault, rank)
    assert process.returncode == 1
    assert len(sentences(process)) == 1
    assert sentences(process)[0].startswith(f"dpadmm: rank {rank}: internal error, ")
    assert not load(job[-1]).complete


@pytest.mark.parametrize("rank", [0, 1])
def test_one_rank_is_killed(job: Job, rank: int) -> None:
    """The launcher notices; its code says the signal. The log of rank 0 is readable and not complete."""
    process = run_sabotaged(job, "kill", rank)
    assert process.returncode in KILLED
    assert not load(job[-1]).complete


@pytest.mark.parametrize("ranks", [None, RANKS])
def test_full_disk(job: Job, ranks: int) -> None:
    process = run_sabotaged(job, "full-disk", 0, ranks)
    assert process.returncode == 1
    assert len(sentences(process)) == 1
    assert "does not fit on the disk" in sentences(process)[0]
    assert not job[-1].exists()


def test_bad_configuration_is_said_once(config: MakeConfig, write_toml: WriteToml, tmp_path: Path) -> None:
    path = write_toml(config() | {"itertions": 3})
    process = command("run", path, "-o", tmp_path / "out.h5", ranks=RANKS)
    line = next(number for number, text in enumerate(path.read_text().splitlines(), 1) if text.startswith("itertions"))
    assert process.returncode == 2
    assert sentences(process) == [f'dpadmm: itertions: unknown key; did you mean "iterations"? ({path}, line {line})']
    assert not (tmp_path / "out.h5").exists()


def test_bad_option_is_said_once() -> None:
    process = command("run", "--no-such-option", ranks=RANKS)
    assert process.returncode == 2
    assert process.stderr.count("No such option") == 1


@pytest.mark.parametrize("ranks", [None, RANKS])
def test_existing_output_is_refused_and_kept(job: Job, ranks: int) -> None:
    job[-1].write_text("precious")
    process = command(*job, ranks=ranks)
    assert process.returncode == 2
    assert sentences(process) == [f"dpadmm: {job[-1]} exists; choose another place with -o, or replace it with --force"]
    assert job[-1].read_text() == "precious"


def test_force_replaces(job: Job) -> None:
    job[-1].write_text("old")
    assert command(*job, "--force", ranks=2).returncode == 0
    assert load(job[-1]).complete


def test_more_ranks_than_nodes(job: Job) -> None:
    process = command(*job, ranks=7)
    assert process.returncode == 2
    assert sentences(process) == ["dpadmm: started on 7 ranks, but the network has 6 nodes; use at most 6 ranks"]


def test_python_interface_under_mpi(config: MakeConfig, tmp_path: Path) -> None:
    """run(comm=...): a failing rank ends the job; copies without a communicator are refused."""
    program = tmp_path / "program.py"
    program.write_text(
        "import sys\n"
        "from mpi4py import MPI\n"
        "import dpadmm_mpi\n"
        "from dpadmm_mpi.methods.decentralised.algorithm import NetworkNodes\n"
        "raw, fault = eval(sys.argv[1]), sys.argv[2]\n"
        "if fault == 'raise' and MPI.COMM_WORLD.Get_rank() == 1:\n"
        "    NetworkNodes.receive = None\n"
        "comm = None if fault == 'copies' else MPI.COMM_WORLD\n"
        "result = dpadmm_mpi.run(raw, sys.argv[3], comm=comm)\n"
        "print('result' if result is not None else 'nothing')\n"
    )
    raw = repr(config("r-admm", "objective"))
    fine = command(raw, "none", tmp_path / "a.h5", ranks=RANKS, program=program)
    assert sorted(fine.stdout.split()) == ["nothing", "nothing", "result"]
    assert command(raw, "raise", tmp_path / "b.h5", ranks=RANKS, program=program).returncode == 1
    copies = command(raw, "copies", tmp_path / "c.h5", ranks=RANKS, program=program)
    assert copies.returncode != 0
    assert "call run(..., comm=MPI.COMM_WORLD)" in copies.stderr
    assert not (tmp_path / "c.h5").exists()


def long_job(config: MakeConfig, write_toml: WriteToml, tmp_path: Path, runs: int = 50) -> list[str]:
    path = write_toml(config("r-admm", "objective", iterations=500, runs=runs))
    return ["run", str(path), "-o", str(tmp_path / "out.h5")]


def wait_until_running(tmp_path: Path, process: "subprocess.Popen[str]") -> None:
    """Until some rows are on the disk; the running job may be read."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(InputError):
            if np.isfinite(load(tmp_path / "out.h5").loss).sum() > 20:
                return
        time.sleep(0.1)
    raise AssertionError(f"not running: {process.poll()}")


def test_a_killed_serial_run_leaves_a_readable_file(config: MakeConfig, write_toml: WriteToml, tmp_path: Path) -> None:
    """kill -9 at full speed: everything up to the last second is there, the rest is nan, complete is false."""
    process = popen(dpadmm(*long_job(config, write_toml, tmp_path)))
    wait_until_running(tmp_path, process)
    process.kill()
    process.wait()
    result = load(tmp_path / "out.h5")
    assert not result.complete
    reached = np.isfinite(result.loss)
    assert 20 < reached.sum() < reached.size
    assert (np.diff(reached.astype(int), axis=1) <= 0).all()  # no holes in any run
    assert np.isfinite(result["trajectory"][0, 1]).all()


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's parent-death signal is Linux's")
def test_a_killed_launcher_leaves_no_orphans(config: MakeConfig, write_toml: WriteToml, tmp_path: Path) -> None:
    words = dpadmm(*long_job(config, write_toml, tmp_path), ranks=3)
    process = popen(words, env={**os.environ, **MPI_ENVIRONMENT}, stderr=subprocess.DEVNULL)
    wait_until_running(tmp_path, process)

    def ranks() -> list[int]:
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdecimal():
                try:
                    line = (entry / "cmdline").read_bytes().split(b"\0")
                except OSError:
                    continue
                if str(tmp_path / "out.h5").encode() in line and b"mpiexec" not in line[0] and b"prterun" not in line[0]:
                    found.append(int(entry.name))
        return found

    assert len(ranks()) == 3
    process.kill()
    process.wait()
    deadline = time.monotonic() + 10
    while ranks() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert ranks() == []
    assert not load(tmp_path / "out.h5").complete


@pytest.mark.parametrize("ranks", [None, RANKS])
def test_interrupt_ends_the_job(config: MakeConfig, write_toml: WriteToml, tmp_path: Path, ranks: int) -> None:
    job = long_job(config, write_toml, tmp_path)
    process = popen(
        dpadmm(*job, ranks=ranks),
        env={**os.environ, **MPI_ENVIRONMENT},
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    wait_until_running(tmp_path, process)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=15)
    assert process.returncode != 0
    assert not load(tmp_path / "out.h5").complete
    if ranks is None:
        *_, sentence, again, _ = errors.split("\n")
        assert sentence.startswith("dpadmm: stopped by SIGINT after iteration ")
        assert shlex.split(again) == ["dpadmm", *map(str, job), "--resume"]


def test_a_read_only_folder_is_said(config: MakeConfig, write_toml: WriteToml, tmp_path: Path) -> None:
    """Before anything is computed, and nothing appears beside the configuration."""
    path, folder = write_toml(config()), tmp_path / "read-only"
    folder.mkdir(mode=0o555)
    words = dpadmm("run", path, "-o", folder / "out.h5")
    if os.geteuid() == 0:  # who may write everywhere, unless the right to is taken away
        words = ["setpriv", "--bounding-set=-dac_override,-dac_read_search", *words]
    process = subprocess.run(words, capture_output=True, text=True, timeout=TIMEOUT, check=False)
    assert process.returncode == 2
    said = sentences(process)
    assert said == [f"dpadmm: {folder}/out.h5 cannot be created (Permission denied); choose another place with -o"]
    assert list(folder.iterdir()) == []
