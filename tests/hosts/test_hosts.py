"""Jobs over several hosts, which are namespaces of this machine: the same bits, and what happens when one of them is lost."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hosts.machines import Machines, missing
from support import PROGRAMS, MakeConfig, command

import dpadmm_mpi
from dpadmm_mpi.storage.compare import compare

PATIENCE = 3.0  # seconds; the default would take half a minute in each test
END = 60.0  # seconds from a loss to the end of the job at the latest, on a busy machine too
START = 150.0  # seconds for a job to have written a checkpoint
LOSSES = {
    "link": (Machines.unplug, "gamma"),
    "power": (Machines.power_off, "beta"),
    "frozen": (Machines.freeze, "gamma"),
    "link of rank 0 and the launcher": (Machines.unplug, "alpha"),
}


@pytest.fixture(scope="module")
def machines() -> Iterator[Machines]:
    if reason := missing():
        if os.environ.get("DPADMM_REQUIRE_HOSTS") == "1":
            pytest.fail(f"DPADMM_REQUIRE_HOSTS is set, but {reason}")
        pytest.skip(reason)
    with Machines(["alpha", "beta", "gamma"]) as made:
        yield made


@pytest.fixture(scope="module")
def toml(shared_config: MakeConfig, tmp_path_factory: pytest.TempPathFactory) -> Path:
    import tomli_w

    raw = shared_config("r-admm", "objective", iterations=200, record={"checkpoint": 2, "patience": PATIENCE})
    path = tmp_path_factory.mktemp("hosts") / "config.toml"
    path.write_text(tomli_w.dumps(raw))
    return path


@pytest.fixture(scope="module")
def serial(toml: Path) -> Path:
    """What every job must end with."""
    path = toml.parent / "serial.h5"
    assert command("run", toml, "-o", path).returncode == 0
    return path


def job(toml: Path, output: Path, *program: object) -> list[object]:
    return [sys.executable, *(program or ("-m", "dpadmm_mpi")), "run", toml, "-o", output]


def wait_for_checkpoint(output: Path, process: "subprocess.Popen[str]") -> None:
    limit = time.monotonic() + START
    while not (output.parent / f"{output.name}.restart" / "checkpoint").exists():
        assert time.monotonic() < limit and process.poll() is None, process.poll()
        time.sleep(0.05)


def wait_for(condition: Callable[[], bool], seconds: float = END) -> bool:
    limit = time.monotonic() + seconds
    while not condition() and time.monotonic() < limit:
        time.sleep(0.1)
    return condition()


@pytest.mark.parametrize("placed", [{"alpha": 1, "gamma": 2}, {"beta": 2, "alpha": 1, "gamma": 1}], ids=["2 hosts", "3 hosts"])
def test_same_bits_over_several_hosts(
    machines: Machines, toml: Path, serial: Path, tmp_path: Path, placed: dict[str, int]
) -> None:
    output = tmp_path / "out.h5"
    process = machines.mpiexec(placed, job(toml, output), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    _, errors = process.communicate(timeout=START)
    assert process.returncode == 0, errors
    hosts = [name for name, ranks in placed.items() for _ in range(ranks)]
    assert dpadmm_mpi.load(output).attributes["timing"]["hosts"].tolist() == hosts
    assert list(compare(output, serial)) == []


@pytest.mark.parametrize("loss", LOSSES)
def test_a_lost_host_ends_the_job_which_goes_on_with_the_same_bits(
    machines: Machines, toml: Path, serial: Path, tmp_path: Path, loss: str
) -> None:
    lose, victim = LOSSES[loss]
    output = tmp_path / "out.h5"
    words, placed = job(toml, output, PROGRAMS / "slow.py", 0.2), {"alpha": 2, "beta": 1, "gamma": 1}
    with (tmp_path / "errors").open("w") as file:
        process = machines.mpiexec(placed, words, stdout=subprocess.DEVNULL, stderr=file)
    try:
        wait_for_checkpoint(output, process)
        lose(machines, victim)
        lost = time.monotonic()
        code = process.wait(timeout=END)
        print(f"{loss}: the job ended {time.monotonic() - lost:.1f} s after the loss, patience {PATIENCE} s")
        machines.thaw(victim)  # then it is alive again, and must end by itself
        errors = (tmp_path / "errors").read_text()
        assert code == 1, errors
        (sentence,) = [line for line in errors.splitlines() if line.startswith("dpadmm: host")]
        gone = r"hosts beta \(rank 2\), gamma \(rank 3\) have" if victim == "alpha" else rf"host {victim} \(rank \d\) has"
        assert re.match(rf"dpadmm: {gone} been silent for 3 s \(record.patience; heard on alpha\)", sentence)
        resume = sentence.partition("go on with: dpadmm ")[2].split()
        assert resume[-1] == "--resume"
        assert wait_for(lambda: not any(list(machines.processes(name)) for name in machines.names if name != "alpha"))
    finally:
        process.kill()
        for name in machines.names:
            machines.repair(name)
    assert not dpadmm_mpi.load(output).complete
    again = command(*resume)
    assert again.returncode == 0, again.stderr
    assert list(compare(output, serial)) == []


def test_slow_and_stopped_ranks_and_a_host_that_comes_back_do_not_end_a_job(
    machines: Machines, toml: Path, serial: Path, tmp_path: Path
) -> None:
    """A rank lets no other thread run for twice the patience, one is stopped as long, a host stands still for a third of it."""
    output = tmp_path / "out.h5"
    words = job(toml, output, PROGRAMS / "slow.py", 0.01, 1, 2 * PATIENCE)
    process = machines.mpiexec({"alpha": 1, "beta": 1, "gamma": 1}, words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    held = tmp_path / "out.h5.held"
    assert wait_for(held.exists, START)
    rank = next(
        pid for pid in machines.processes("alpha") if str(output) in arguments_of(pid) and "mpiexec" not in arguments_of(pid)
    )
    os.kill(rank, signal.SIGSTOP)
    machines.freeze("gamma")
    time.sleep(PATIENCE / 3)
    machines.thaw("gamma")
    time.sleep(5 * PATIENCE / 3)
    os.kill(rank, signal.SIGCONT)
    _, errors = process.communicate(timeout=START)
    assert process.returncode == 0, errors
    assert list(compare(output, serial)) == []


def arguments_of(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
