"""How --pack shares variants over groups of ranks."""

from pathlib import Path

from dpadmm_mpi.configfile import load
from dpadmm_mpi.packing import _share
from dpadmm_mpi.runcommand import targets

FIGURE = Path(__file__).parents[2] / "configs" / "recycled-fig5.toml"


def test_recycling_methods_count_half():
    """The five curves of [R] Fig. 5 at one alpha: three of 50 data steps and two of 25 come out even on two groups."""
    jobs = [job for job in targets(load(FIGURE, []), Path("out")) if job.config.name.endswith(("non-private", "alpha 1"))]
    assert len(jobs) == 5
    steps = {"admm": 50, "m-admm": 50, "r-admm": 25, "mr-admm": 25}
    assert [sum(steps[job.config.algorithm.method] for job in share) for share in _share(jobs, 2)] == [100, 100]
