"""More ranks than cores: Adult on 20 nodes, on 20 ranks and on 2 ranks with 10 nodes each; the loop, by the wall clock."""

from common import Row, medians, run

CONFIG = {
    "iterations": 50,
    "runs": 2,
    "data": {"source": "adult", "train": 40_000},
    "network": {"graph": "random", "nodes": 20},
    "problem": {"C": 1750.0, "rho": 0.22},
    "algorithm": {"method": "r-admm", "eta": 1.0, "gamma": 0.5},
    "privacy": {"perturbation": "objective", "alpha": 1.0},
}


def rows(rounds: int) -> list[Row]:
    seconds = medians({str(n): lambda n=n: run(CONFIG, ranks=n)["loop_wall"] for n in (2, 20)}, rounds)
    return [Row("20 nodes on 2 cores", "wall clock, 20 ranks : 2 ranks", seconds["20"] / seconds["2"], at_most=1.3)]
