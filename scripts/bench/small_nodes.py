"""Many small nodes (20 records, d = 20, a regular graph of degree 4), a data step in every iteration, all of it recorded.

The loop with everything in it: noise, solves, exchange, measuring, recording into the file and its journal.
"""

from common import Row, medians, run

NODES = (100, 1000, 10_000)
UPDATES = 200_000  # node updates of one measurement, at most 500 iterations


def config(nodes: int, iterations: int, every: int = 1) -> dict:
    return {
        "iterations": iterations,
        "data": {"source": "synthetic", "records": 20 * nodes + 1000, "train": 20 * nodes, "features": 20},
        "network": {"graph": "regular", "degree": 4, "nodes": nodes},
        "problem": {"C": 20.0, "rho": 0.22},
        "algorithm": {"method": "admm", "eta": 1.0},
        "privacy": {"perturbation": "dual", "alpha": 1.0},
        "record": {"every": every},
    }


def per_update(nodes: int) -> float:
    iterations = min(500, UPDATES // nodes)
    return run(config(nodes, iterations), to_file=True)["loop_cpu"] / (nodes * iterations)


def rows(rounds: int) -> list[Row]:
    seconds = medians({str(nodes): lambda nodes=nodes: per_update(nodes) for nodes in NODES}, rounds)
    smallest, largest = seconds[str(NODES[0])], seconds[str(NODES[-1])]
    whole = run(config(NODES[-1], 1), to_file=True)
    name = "many small nodes"
    return [
        Row(name, "time per node and iteration, 10,000 nodes : 100 nodes", largest / smallest, at_most=1.3),
        Row(name, "node updates per second and core, 10,000 nodes", 1.0 / largest, at_least=80_000, is_ratio=False),
        Row(name, "seconds of set-up, 10,000 nodes", whole["cpu"] - whole["loop_cpu"], is_ratio=False),
    ]
