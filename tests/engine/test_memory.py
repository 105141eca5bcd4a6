"""The memory of a rank grows with its shard, not with the data set."""

from collections.abc import Callable
from pathlib import Path

from support import PROGRAMS, WriteToml, command

RANKS = 8
PROGRAM = PROGRAMS / "memory.py"
TINY = ["data.source=synthetic", "data.records=400", "data.train=200", "data.features=74", "problem.C=1"]


def test_eight_ranks_on_bio_train(fetched: Callable[[str], str], write_toml: WriteToml, tmp_path: Path) -> None:
    """Peak of each rank: that without the data, plus its share of the data, plus at most 20 %."""
    raw = {
        "iterations": 3,
        "data": {"source": fetched("bio_train"), "train": 1.0},
        "network": {"nodes": RANKS},
        "problem": {"C": 100.0, "rho": 0.22},
        "privacy": {"perturbation": "objective", "alpha": 10.0},
    }
    path = write_toml(raw)

    def peaks(*overrides: str) -> list[float]:
        settings = [word for override in overrides for word in ("--set", override)]
        process = command(tmp_path, "run", path, "-o", tmp_path / "o.h5", "--force", *settings, ranks=RANKS, program=PROGRAM)
        assert process.returncode == 0, process.stderr
        return [float((tmp_path / f"rank-{rank}").read_text()) for rank in range(RANKS)]

    share = 145_751 * 74 * 8 / RANKS / 2**20
    for with_data, without in zip(peaks(), peaks(*TINY), strict=True):
        assert with_data <= 1.2 * (without + share)
