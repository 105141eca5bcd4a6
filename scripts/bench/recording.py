"""What recording costs: a row in every iteration against only the first and the last, the file and its journal included."""

import numpy as np
from common import Row, run
from small_nodes import config as small_nodes

ADULT = {
    "iterations": 50,
    "runs": 3,
    "data": {"source": "adult", "train": 40_000},
    "network": {"graph": "random", "nodes": 5},
    "problem": {"C": 1750.0, "rho": 0.22},
    "algorithm": {"method": "admm", "eta": 1.0},
    "privacy": {"perturbation": "dual", "alpha": 1.0},
}


def shares(every: dict, seldom: dict, rounds: int) -> tuple[float, float]:
    """What the rows take of the processor time: of the whole run, and of its loop."""
    answers: list[tuple[dict[str, float], dict[str, float]]] = []
    for _ in range(rounds):
        answers.append((run(every, to_file=True), run(seldom, to_file=True)))
    rows = np.median([often["loop_cpu"] - once["loop_cpu"] for often, once in answers])
    whole, loop = (np.median([often[key] for often, _ in answers]) for key in ("cpu", "loop_cpu"))
    return float(rows / whole), float(rows / loop)


def rows(rounds: int) -> list[Row]:
    adult = shares(ADULT, ADULT | {"record": {"every": 50}}, 2 * rounds + 1)
    small = shares(small_nodes(1000, 100), small_nodes(1000, 100, every=100), 2 * rounds + 1)
    name = "recording every iteration"
    return [
        Row(name, "share of the run, 5 nodes on Adult", adult[0], at_most=0.05),
        Row(name, "share of the loop, 5 nodes on Adult", adult[1]),
        Row(name, "share of the run, 1,000 small nodes", small[0], at_most=0.10),
        Row(name, "share of the loop, 1,000 small nodes", small[1]),
    ]
