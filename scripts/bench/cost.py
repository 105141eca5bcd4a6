"""What `dpadmm check` predicts per iteration, against the processor time that a run takes: a table.

The data sets must have been fetched (`dpadmm data fetch adult a9a`); without them their lines are left out.
"""

import time
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from common import Row
from worker import peak_bytes

from dpadmm_mpi.engine.cost import Cost, cost, look_at
from dpadmm_mpi.engine.loop import Silent, execute
from dpadmm_mpi.engine.machine import measure
from dpadmm_mpi.errors import DpadmmError
from dpadmm_mpi.methods.base import Config, make_plan
from dpadmm_mpi.parallel.owners import assign_owners
from dpadmm_mpi.parallel.serial import Serial
from dpadmm_mpi.storage.experiments import load

CONFIGS = Path(__file__).parents[2] / "configs"
SMALL_NODES = {
    "name": "10,000 small nodes",
    "iterations": 10,
    "data": {"source": "synthetic", "records": 200_000, "features": 20, "train": 1.0},
    "network": {"graph": "regular", "nodes": 10_000, "degree": 4},
    "problem": {"C": 20.0, "rho": 0.22},
    "algorithm": {"method": "admm", "eta": 1.0},
    "privacy": {"perturbation": "dual", "alpha": 1.0},
}
STAR = {
    "name": "star, exact solves",
    "iterations": 10,
    "data": {"source": "synthetic", "records": 20_000, "features": 60, "train": 0.9},
    "network": {"nodes": 5},
    "problem": {"reg": 1e-4},
    "algorithm": {"method": "star-admm", "rho": 0.1},
}
MANY_FEATURES = {
    "name": "1,200 features",
    "iterations": 8,
    "data": {"source": "synthetic", "records": 10_000, "features": 1200, "train": 0.9},
    "network": {"graph": "ring", "nodes": 5},
    "problem": {"C": 20.0, "rho": 0.22},
    "algorithm": {"method": "admm", "eta": 1.0},
}
CASES: tuple[tuple[Any, str | None], ...] = (
    (CONFIGS / "quickstart.toml", None),
    (CONFIGS / "recycled-fig5.toml", "ADMM (DVP), alpha 1"),
    (CONFIGS / "recycled-fig5.toml", "R-ADMM, alpha 1"),
    (CONFIGS / "madmm-fig3.toml", "PP, alpha 3"),
    (SMALL_NODES, None),
    (MANY_FEATURES, None),
    (STAR, None),
    (CONFIGS / "psadmm-fig2.toml", "non-private"),
    (CONFIGS / "psadmm-fig2.toml", "PS-ADMM, sound noise, epsilon 0.1"),
    (CONFIGS / "dpadmm-fig1.toml", "DP-ADMM, a9a"),
)

RUNS = (1, 10)


class Watch(Silent):
    """Processor time at each recorded iteration."""

    def __init__(self) -> None:
        self.times: dict[int, float] = {}

    def row(self, runs: range, iteration: int, values: dict[str, Any]) -> None:
        self.times[iteration] = time.process_time()


def actual(config: Config) -> tuple[float, float]:
    """Processor seconds per iteration of a run, and peak memory.

    The median over pairs of iterations, as every other one of the recycling methods touches no records; without the first
    pair, in which what is kept for later is made.
    """
    watch = Watch()
    execute(config, Serial(), None, watch)
    times = np.array([watch.times[t] for t in sorted(watch.times)])[2::2]
    return float(np.median(np.diff(times))) / 2.0 / config.runs, peak_bytes()


def compare(config: Config) -> tuple[Cost, float, float]:
    plan, dataset = make_plan(config)
    assert len(plan.groups_of_runs) == 1  # so that every time is one of all runs
    owner = assign_owners(plan.sizes, 1, plan.topology.has_hub)
    return cost(plan, owner, look_at(dataset), measure), *actual(config)


def rows(rounds: int) -> list[Row]:
    print(f"{'':42}{'ms per iteration of a run':>30}{'MB':>25}")
    print(f"{'':42}{'predicted':>10}{'actual':>10}{'ratio':>10}{'predicted':>10}{'actual':>8}{'ratio':>7}")
    time_factors, memory_factors = [1.0], [1.0]
    # A process each, so that none counts the memory of those before.
    with ProcessPoolExecutor(max_workers=1, max_tasks_per_child=1, mp_context=get_context("spawn")) as pool:
        for (source, only), runs in product(CASES, RUNS):
            config = load(source, [f"runs={runs}"], only).configs[0]
            name = f"{config.name}, {runs} {'run' if runs == 1 else 'runs'}"
            try:
                predicted, seconds, memory = pool.submit(compare, config).result()
            except DpadmmError as error:
                print(f"{name:42}left out: {error}")
                continue
            ratio, memory_ratio = predicted.seconds / seconds, predicted.memory / memory
            time_factors.append(max(ratio, 1.0 / ratio))
            memory_factors.append(max(memory_ratio, 1.0 / memory_ratio))
            print(
                f"{name:42}{1e3 * predicted.seconds:10.2f}{1e3 * seconds:10.2f}{ratio:10.2f}"
                f"{predicted.memory / 1e6:10.0f}{memory / 1e6:8.0f}{memory_ratio:7.2f}",
                flush=True,
            )
    return [
        Row("cost model", "largest factor between predicted and actual seconds", max(time_factors), at_most=2.0),
        Row("cost model", "largest factor between predicted and actual memory", max(memory_factors), at_most=2.0),
    ]
