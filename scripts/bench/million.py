"""A million small nodes (20 records, d = 20, a regular graph of degree 4) on one workstation, against 10,000 of them.

Ten data steps, every one recorded without what each node has in it (record.nodes = false), by a process of their own. Time is
processor time per node, of the whole run with its set-up and of the loop alone. The million runs once: some minutes.
"""

import numpy as np
from common import Row, run
from small_nodes import config

FEW, MANY = 10_000, 1_000_000
ITERATIONS = 10
RECORDS = 20 * 20 * 8  # bytes of a node's records


def measured(nodes: int) -> dict[str, float]:
    return run(config(nodes, ITERATIONS) | {"record": {"nodes": False}}, to_file=True)


def rows(rounds: int) -> list[Row]:
    many = measured(MANY)  # once: it takes minutes
    few = [measured(FEW) for _ in range(rounds)]
    ratio = {key: many[key] / MANY / (np.median([each[key] for each in few]) / FEW) for key in ("cpu", "loop_cpu")}
    name = "a million small nodes"
    return [
        Row(name, "GB at the peak", many["peak_bytes"] / 1e9, at_most=12.0),
        Row(name, "the same : its records", many["peak_bytes"] / (RECORDS * MANY)),
        Row(name, "time per node, whole run, 1,000,000 : 10,000", ratio["cpu"], at_most=1.3),
        Row(name, "time per node, loop alone, 1,000,000 : 10,000", ratio["loop_cpu"], at_most=1.3),
        Row(name, "microseconds of set-up per node", 1e6 * (many["cpu"] - many["loop_cpu"]) / MANY),
        Row(name, "microseconds per node and iteration", 1e6 * many["loop_cpu"] / (MANY * ITERATIONS)),
    ]
