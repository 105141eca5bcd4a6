"""Jobs over several hosts, which are namespaces of this machine: the same bits, and what happens when one of them is lost.

The losses happen with the default patience, each to a job with hosts of its own, all at the same time: the tests wait once.
"""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import tomli_w
from hosts.machines import Machines, missing
from support import PROGRAMS, MakeConfig, Raw, command, result_of

import dpadmm_mpi
from dpadmm_mpi.storage.compare import compare

PATIENCE = 20.0  # seconds, the default: so long a host may stand still, and a rank may be stopped
END = 30.0  # seconds from a loss to the end of the job at the latest, on a busy machine too
HOLD = 25.0  # seconds in which a rank lets no other thread run: more than a silent host has
START = 150.0  # seconds for a job to have written a checkpoint
LOSSES: dict[str, tuple[Callable[[Machines, str], None], str]] = {
    "link": (Machines.unplug, "gamma"),
    "power": (Machines.power_off, "beta"),
    "frozen": (Machines.freeze, "gamma"),
    "link of rank 0 and the launcher": (Machines.unplug, "alpha"),
}
HOSTS = ("alpha", "beta", "gamma")  # of each job; all but the first job's have its number behind their names
SURVIVOR = len(LOSSES)  # the number of the job that loses nothing for long enough


@pytest.fixture(scope="module")
def machines() -> Iterator[Machines]:
    if reason := missing():
        if os.environ.get("DPADMM_REQUIRE_HOSTS") == "1":
            pytest.fail(f"DPADMM_REQUIRE_HOSTS is set, but {reason}")
        pytest.skip(reason)
    with Machines([name for number in range(len(LOSSES) + 1) for name in hosts_of(number)]) as made:
        yield made


def hosts_of(number: int) -> list[str]:
    return [f"{host}{number or ''}" for host in HOSTS]


@pytest.fixture(scope="module")
def raw(shared_config: MakeConfig) -> Raw:
    return shared_config("r-admm", "objective", iterations=60, record={"checkpoint": 2})


@pytest.fixture(scope="module")
def toml(raw: Raw, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("hosts") / "config.toml"
    path.write_text(tomli_w.dumps(raw))
    return path


@pytest.fixture(scope="module")
def serial(toml: Path) -> Path:
    """What every job must end with."""
    path = toml.parent / "serial.h5"
    result_of(toml, path)
    return path


@pytest.fixture(scope="module")
def variants(raw: Raw, serial: Path) -> tuple[Path, dict[str, Path]]:
    """A file with the same configuration and one whose network has faults; and what they must end with, by name."""
    faults = {"loss": 0.2, "delay": {"kind": "geometric", "mean": 1.5}, "absence": 0.2}
    path = serial.with_name("variants.toml")
    path.write_text(tomli_w.dumps({"variant": [{"name": "sound"}, {"name": "faulty", "network": {"faults": faults}}]} | raw))
    expected = {name: serial.with_name(f"{name}.h5") for name in ("sound", "faulty")}
    for name, result in expected.items():
        result_of(path, result, only=name)
    return path, expected


def job(toml: Path, output: Path, *program: object) -> list[object]:
    return [sys.executable, *(program or ("-m", "dpadmm_mpi")), "run", toml, "-o", output]


def wait_for(condition: Callable[[], bool], seconds: float = END) -> bool:
    limit = time.monotonic() + seconds
    while not condition() and time.monotonic() < limit:
        time.sleep(0.05)
    return condition()


@pytest.mark.parametrize("placed", [{"alpha": 1, "gamma": 2}, {"beta": 2, "alpha": 1, "gamma": 1}], ids=["2 hosts", "3 hosts"])
def test_same_bits_over_several_hosts(
    machines: Machines, variants: tuple[Path, dict[str, Path]], tmp_path: Path, placed: dict[str, int]
) -> None:
    path, expected = variants
    process = machines.mpiexec(placed, job(path, tmp_path), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    _, errors = process.communicate(timeout=START)
    assert process.returncode == 0, errors
    hosts = [name for name, ranks in placed.items() for _ in range(ranks)]
    for name, result in expected.items():
        assert dpadmm_mpi.load(tmp_path / f"{name}.h5").attributes["timing"]["hosts"].tolist() == hosts
        assert list(compare(tmp_path / f"{name}.h5", result)) == []
    assert not np.array_equal(dpadmm_mpi.load(expected["sound"])["loss"], dpadmm_mpi.load(expected["faulty"])["loss"])


class Job(NamedTuple):
    number: int
    process: "subprocess.Popen[str]"
    output: Path
    errors: Path


class End(NamedTuple):
    """What became of a job."""

    code: int
    seconds: float  # from the loss
    errors: str
    output: Path
    deserted: bool  # by everybody, on the hosts without the launcher


@pytest.fixture(scope="module")
def ends(machines: Machines, toml: Path) -> Iterator[list[End]]:
    """Of a job for each loss, in their order, and of the survivor."""
    jobs = []
    for number in range(len(LOSSES) + 1):
        output, errors = toml.parent / f"{number}.h5", toml.parent / f"{number}.errors"
        slow = (0.01, 1, HOLD) if number == SURVIVOR else (0.2,)
        with errors.open("w") as file:
            words, placed = job(toml, output, PROGRAMS / "slow.py", *slow), dict.fromkeys(hosts_of(number), 1)
            process = machines.mpiexec(placed, words, stdout=subprocess.DEVNULL, stderr=file)
        jobs.append(Job(number, process, output, errors))
    try:
        with ThreadPoolExecutor(len(jobs)) as pool:
            yield list(pool.map(lambda job: (survive if job.number == SURVIVOR else lose)(machines, job), jobs))
    finally:
        for job_ in jobs:
            job_.process.kill()
            job_.process.wait()


def lose(machines: Machines, job: Job) -> End:
    """A host, as soon as there is a checkpoint; it is alive again when the job has ended, and must end by itself."""
    happen, victim = list(LOSSES.values())[job.number]
    hosts = hosts_of(job.number)
    checkpoint = job.output.with_name(f"{job.output.name}.restart") / "checkpoint"
    assert wait_for(lambda: checkpoint.exists() or job.process.poll() is not None, START), "no checkpoint"
    begin = time.monotonic()
    happen(machines, hosts[HOSTS.index(victim)])
    code = job.process.wait(timeout=3 * END)
    seconds = time.monotonic() - begin
    machines.thaw(hosts[HOSTS.index(victim)])
    deserted = wait_for(lambda: not any(list(machines.processes(name)) for name in hosts[1:]))
    return End(code, seconds, job.errors.read_text(), job.output, deserted)


def survive(machines: Machines, job: Job) -> End:
    """A rank holds the interpreter; meanwhile another one is stopped, and the third one's whole host stands still."""
    alpha, _, gamma = hosts_of(job.number)
    held = job.output.with_name(f"{job.output.name}.held")
    assert wait_for(lambda: held.exists() or job.process.poll() is not None, START), "no tenth iteration"
    begin = time.monotonic()
    rank = next(
        pid for pid in machines.processes(alpha) if str(job.output) in arguments_of(pid) and "mpiexec" not in arguments_of(pid)
    )
    os.kill(rank, signal.SIGSTOP)
    machines.freeze(gamma)
    time.sleep(PATIENCE)
    machines.thaw(gamma)
    time.sleep(HOLD - PATIENCE)
    os.kill(rank, signal.SIGCONT)
    code = job.process.wait(timeout=START)
    return End(code, time.monotonic() - begin, job.errors.read_text(), job.output, deserted=True)


@pytest.mark.parametrize("number", range(len(LOSSES)), ids=list(LOSSES))
def test_a_lost_host_ends_the_job_which_goes_on_with_the_same_bits(ends: list[End], serial: Path, number: int) -> None:
    victim = list(LOSSES.values())[number][1]
    end, (alpha, beta, gamma) = ends[number], hosts_of(number)
    print(f"the job ended {end.seconds:.1f} s after the loss")
    assert end.code in (1, -signal.SIGKILL), end.errors
    assert PATIENCE < end.seconds < END
    (sentence,) = [line for line in end.errors.splitlines() if line.startswith("dpadmm: host")]
    one = {"beta": beta, "gamma": gamma}.get(victim)
    gone = rf"host {one} \(rank \d\) has" if one else rf"hosts {beta} \(rank 1\), {gamma} \(rank 2\) have"
    assert re.match(rf"dpadmm: {gone} been silent for more than 20 s \(record.patience; heard on {alpha}\)", sentence)
    assert end.deserted
    assert not dpadmm_mpi.load(end.output).complete
    resume = sentence.partition("go on with: dpadmm ")[2].split()
    assert resume[-1] == "--resume"
    again = command(*resume)
    assert again.returncode == 0, again.stderr
    assert list(compare(end.output, serial)) == []


def test_slow_and_stopped_ranks_and_a_host_that_comes_back_do_not_end_a_job(ends: list[End], serial: Path) -> None:
    """A rank lets no other thread run for more than the patience, one is stopped as long, a host stands still for all of it."""
    end = ends[SURVIVOR]
    assert end.code == 0, end.errors
    assert end.seconds >= HOLD
    assert list(compare(end.output, serial)) == []


def arguments_of(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
