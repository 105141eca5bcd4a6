"""The scripts of `dpadmm submit` on a real Slurm: the loss of a node, arrays, the time limit, launchers that do not fit."""

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hosts.machines import Machines
from hosts.machines import missing as no_hosts
from slurm.cluster import Cluster, missing
from support import MPI_ENVIRONMENT, MakeConfig, Process, WriteToml, command, result_of

from dpadmm_mpi import load
from dpadmm_mpi.storage.compare import compare

HERE = Path(__file__).parent
PROGRAMS = Path(sys.executable).parent
SECONDS = 150  # for all jobs of a test to end


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    if reason := missing():
        if os.environ.get("DPADMM_REQUIRE_SLURM") == "1":
            pytest.fail(f"DPADMM_REQUIRE_SLURM is set, but {reason}")
        pytest.skip(reason)
    with Cluster() as private:
        private.environment |= MPI_ENVIRONMENT
        yield private


def dpadmm(cluster: Cluster, *arguments: object, **options: Any) -> Process:
    return cluster.run(PROGRAMS / "dpadmm", *arguments, **options)


def number(process: Process) -> str:
    """The job's, from "Submitted batch job 7"."""
    assert process.returncode == 0, process.stderr
    return process.stdout.split()[-1]


def wait_for_all(cluster: Cluster) -> None:
    limit = time.monotonic() + SECONDS
    while cluster.run("squeue", "--noheader").stdout.strip():
        assert time.monotonic() < limit, f"{cluster.run('squeue').stdout}\n{cluster.logs()}"
        time.sleep(0.5)


def outputs(folder: Path) -> str:
    return "\n".join(path.read_text() for path in folder.glob("*.out"))


def test_the_time_limit_stops_a_job_of_an_array_and_it_ends_with_the_same_bits(
    cluster: Cluster, config: MakeConfig, write_toml: WriteToml, tmp_path: Path
) -> None:
    """Slurm itself sends the warning and starts the job again; nothing here helps it."""
    raw = config("r-admm", "objective", iterations=400) | {"name": "many", "variant": [{"name": "one"}, {"name": "two"}]}
    path = write_toml(raw)
    search = f"{HERE / 'slow'}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    submit = dpadmm(
        cluster, "submit", path, "--scheduler", "slurm", "--ranks", 3, "--time", "0:02:00", "-o", "batch", "--now",
        cwd=tmp_path, env={**cluster.environment, "PYTHONPATH": search},
    )  # fmt: skip
    array = number(submit)
    wait_for_all(cluster)
    jobs = [cluster.job(f"{array}_{k}") for k in range(2)]
    assert [job["JobState"] for job in jobs] == ["COMPLETED", "COMPLETED"], outputs(tmp_path)
    assert [job["Restarts"] for job in jobs] == ["0", "1"]
    assert command("run", path, "-o", tmp_path / "serial").returncode == 0
    for name in ("one.h5", "two.h5"):
        assert command("diff", tmp_path / "batch" / name, tmp_path / "serial" / name).stdout == "identical\n"
    assert command("status", path, "-o", tmp_path / "batch").stdout.endswith("2 done\n")


@pytest.fixture
def nodes() -> Iterator[tuple[Machines, Cluster]]:
    """Three nodes of two CPUs each."""
    if reason := missing() or no_hosts():
        if {os.environ.get("DPADMM_REQUIRE_SLURM"), os.environ.get("DPADMM_REQUIRE_HOSTS")} == {"1"}:
            pytest.fail(f"DPADMM_REQUIRE_SLURM and DPADMM_REQUIRE_HOSTS are set, but {reason}")
        pytest.skip(reason)
    with Machines(["alpha", "beta", "gamma"]) as machines, Cluster(machines) as cluster:
        # As many ranks on a node as it has CPUs: otherwise Open MPI starts all of them on the first.
        cluster.environment |= MPI_ENVIRONMENT | {"PRTE_MCA_rmaps_default_mapping_policy": "slot:nooversubscribe"}
        yield machines, cluster


def test_a_job_over_two_nodes_that_loses_one_goes_on_with_the_third_to_the_same_bits(
    nodes: tuple[Machines, Cluster], config: MakeConfig, write_toml: WriteToml, tmp_path: Path
) -> None:
    """The run notices the loss, and its script puts the job back; nothing here helps them."""
    machines, cluster = nodes
    path = write_toml(config("mr-admm", "objective", iterations=60, record={"checkpoint": 2, "patience": 3.0}))
    script = command("submit", path, "--scheduler", "slurm", "--ranks", 3, "-o", "batch.h5").stdout
    (tmp_path / "job.sbatch").write_text(script)
    search = f"{HERE / 'slow'}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    environment = {**cluster.environment, "PYTHONPATH": search}
    job = number(cluster.run("sbatch", "job.sbatch", cwd=tmp_path, env=environment))
    limit = time.monotonic() + SECONDS
    while not (tmp_path / "batch.h5.restart" / "checkpoint").exists():
        assert time.monotonic() < limit, f"{outputs(tmp_path)}\n{cluster.logs()}"
        time.sleep(0.1)
    assert cluster.job(job)["NodeList"] == "alpha,beta"
    machines.power_off("beta")
    wait_for_all(cluster)
    fields = cluster.job(job)
    assert (fields["JobState"], fields["Restarts"]) == ("COMPLETED", "1"), outputs(tmp_path)
    assert "dpadmm: host beta (rank 2) has been silent for more than 3 s" in outputs(tmp_path)
    assert load(tmp_path / "batch.h5").attributes["timing"]["hosts"].tolist() == ["alpha", "alpha", "gamma"]
    result_of(path, tmp_path / "serial.h5")
    assert list(compare(tmp_path / "batch.h5", tmp_path / "serial.h5")) == []


def test_srun_without_a_plug_in_of_this_mpi_is_refused(
    cluster: Cluster, config: MakeConfig, write_toml: WriteToml, tmp_path: Path
) -> None:
    """Open MPI does not know pmi2: srun starts ranks that see themselves alone and would all write one file."""
    path, result = write_toml(config()), tmp_path / "out.h5"
    process = cluster.run("srun", "--mpi=pmi2", "-n", 2, PROGRAMS / "dpadmm", "run", path, "-o", result)
    assert process.returncode == 2
    assert "launcher and MPI library do not belong together" in process.stderr
    assert not result.exists()


def test_what_slurm_refuses_is_said_in_one_sentence(cluster: Cluster, config: MakeConfig, write_toml: WriteToml) -> None:
    path = write_toml(config())
    process = dpadmm(cluster, "submit", path, "--scheduler", "slurm", "--partition", "nowhere", "--now")
    assert process.returncode == 1
    assert process.stderr.startswith("dpadmm: sbatch did not take the job: ")
    assert process.stderr.count("\n") == 1
