"""What is read from the environment that a launcher leaves."""

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support import MakeConfig, Raw, WriteToml, command, sentences

from dpadmm_mpi.cli.progress import log_header
from dpadmm_mpi.parallel.launcher import prefer_shared_memory


@pytest.mark.parametrize(
    ("sizes", "chosen", "used"),
    [
        (("4", "4"), None, {"osc": "^ucx", "pml": "ob1", "btl": "^uct,ofi"}),
        (("4", "4"), "cm", {"osc": "^ucx", "pml": "cm", "btl": "^uct,ofi"}),
        (("2", "4"), None, {}),
        ((None, None), None, {}),
    ],
    ids=["one host", "the user's own choice", "several hosts", "another library"],
)
def test_ucx_is_left_out_on_one_host_only(
    sizes: tuple[str | None, str | None], chosen: str | None, used: dict[str, str]
) -> None:
    names = ("OMPI_COMM_WORLD_LOCAL_SIZE", "OMPI_COMM_WORLD_SIZE", "OMPI_MCA_pml")
    environment = {name: value for name, value in zip(names, (*sizes, chosen), strict=True) if value is not None}
    prefer_shared_memory(environment)
    assert {name.removeprefix("OMPI_MCA_"): value for name, value in environment.items() if "MCA" in name} == used


@pytest.mark.parametrize(
    ("cores", "advised"),
    [
        (4, []),
        (
            2,
            [
                "4 ranks that share 2 cores take longer than 2 ranks; start as many ranks as there are cores: "
                "the nodes are dealt over them"
            ],
        ),
    ],
)
def test_a_job_with_more_ranks_than_cores_says_what_is_faster(
    monkeypatch: pytest.MonkeyPatch, cores: int, advised: list[str]
) -> None:
    """Two ranks that may use the first half of the cores, and two that may use the other half."""
    halves = iter([set(range(cores // 2)), set(range(cores // 2, cores))] * 2)
    monkeypatch.setattr("dpadmm_mpi.cli.progress.usable_cores", lambda: next(halves))
    transport: Any = SimpleNamespace(rank=0, size=4, library="MPI")
    transport.gather_objects = lambda mine: [mine, *((mine[0], next(halves)) for _ in range(3))]
    assert [line.split(",")[0] for line in log_header(transport, "dpadmm run")[2:]] == advised


@pytest.fixture
def job(config: MakeConfig, write_toml: WriteToml, tmp_path: Path) -> tuple[str, Path, str, Path]:
    return "run", write_toml(config("r-admm", "objective")), "-o", tmp_path / "out.h5"


@pytest.mark.parametrize(
    ("environment", "rank"),
    [({"PMI_SIZE": "4", "PMI_RANK": "0"}, 0), ({"SLURM_NTASKS": "4", "SLURM_PROCID": "2"}, 2)],
)
def test_copies_that_each_see_one_rank_are_refused(job: tuple[str, Path, str, Path], environment: Raw, rank: int) -> None:
    """As under the launcher of another MPI library: N singletons, of which one speaks and none writes."""
    home = {"HOME": os.environ.get("HOME", str(job[-1].parent))}  # without one Open MPI does not start
    process = command(*job, environment=home | environment)
    assert not job[-1].exists()
    if rank:  # whose code could make the launcher end rank 0 before it has spoken
        assert (process.returncode, sentences(process)) == (0, [])
    else:
        assert process.returncode == 2
        assert "launcher started 4 processes" in sentences(process)[0]
        assert "sees one" in sentences(process)[0]


def test_a_serial_run_inside_an_allocation_can_be_asked_for(job: tuple[str, Path, str, Path]) -> None:
    assert command(*job, "--serial", environment={"SLURM_NTASKS": "4"}).returncode == 0
