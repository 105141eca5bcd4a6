"""In which order --pack hands variants to groups of ranks."""

from pathlib import Path

from dpadmm_mpi.cli.run import targets
from dpadmm_mpi.config.files import load
from dpadmm_mpi.engine.several import _work

FIGURE = Path(__file__).parents[2] / "configs" / "recycled-fig5.toml"


def test_recycling_methods_count_half():
    """[R] Fig. 5: the curves of 50 data steps come before those of 25, which even out what is left at the end."""
    jobs = targets(load(FIGURE, []), Path("out"))
    steps = {"admm": 50, "m-admm": 50, "r-admm": 25, "mr-admm": 25}
    assert [_work(job) for job in jobs] == [10 * steps[job.config.algorithm.method] for job in jobs]
