"""More ranks than cores: Adult on 20 nodes, on 20 ranks and on 2 ranks with 10 nodes each; the loop, by the wall clock."""

from common import Row, medians, run

CONFIG = {
    "iterations": 50,
    "data": {"source": "adult", "train": 40_000},
    "network": {"graph": "random", "nodes": 20},
    "problem": {"C": 1750.0, "rho": 0.22},
    "algorithm": {"method": "r-admm", "eta": 1.0, "gamma": 0.5},
    "privacy": {"perturbation": "objective", "alpha": 1.0},
}


def rows(rounds: int) -> list[Row]:
    """Ten runs side by side, as in the papers' figures, and one."""
    table = []
    for runs, target in ((10, 1.3), (1, None)):
        config = CONFIG | {"runs": runs}
        seconds = medians({str(n): lambda n=n, config=config: run(config, ranks=n)["loop_wall"] for n in (2, 20)}, rounds)
        text = f"wall clock, 20 ranks : 2 ranks, {runs} {'run' if runs == 1 else 'runs'}"
        table.append(Row("20 nodes on 2 cores", text, seconds["20"] / seconds["2"], at_most=target))
    return table
