"""[R] Fig. 5 in full: 13 curves of 10 runs (Adult, 5 nodes of 8,000 records, d = 105, 50 iterations).

Whole runs, from the plan with its privacy accounts to the finished file, against reference (a), which does the same
iterations with the same schedules and measures the same in every iteration, at L-BFGS-B's default accuracy, without a file
and with its records in memory already. (a) does each run by itself, so two runs of each curve tell what ten take.
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import plain
from common import Row, medians

from dpadmm_mpi.methods.base import make_plan, perturbation_name
from dpadmm_mpi.storage.experiments import load

FIGURE = Path(__file__).parents[2] / "configs" / "recycled-fig5.toml"
RUNS, PLAIN_RUNS = 10, 2


def dense(X: Any) -> np.ndarray:
    return X if isinstance(X, np.ndarray) else X.toarray()


def plain_script() -> float:
    """Processor seconds of all curves, RUNS runs each."""
    seconds = 0.0
    for config in load(FIGURE).configs:
        plan, dataset = make_plan(config)
        shards = [dense(dataset.loader.shard(dataset.address(i)).into_signed()) for i in range(plan.nodes)]
        tests = list(dataset.test().blocks())
        test = np.concatenate([dense(block.X) for block in tests]), np.concatenate([block.y for block in tests])
        settings = plan.settings
        for run in range(PLAIN_RUNS):
            begin = time.process_time()
            plain.simulate(
                shards, test, [list(nb) for nb in plan.topology.neighbours], plan.releases.C, plan.releases.rho,
                (settings.eta, settings.theta, settings.parameter), plan.method.recycling_gamma is not None,
                perturbation_name(config), plan.method.recycling_gamma or 0.0, run,
            )  # fmt: skip
            seconds += time.process_time() - begin
    return seconds * RUNS / PLAIN_RUNS


def this_package(ranks: int, *options: str) -> tuple[float, float]:
    """Wall clock and processor seconds of `dpadmm run` on the figure's file, start-up included."""
    with tempfile.TemporaryDirectory() as folder:
        words = [sys.executable, "-m", "dpadmm_mpi", "run", str(FIGURE), "-o", f"{folder}/out", "--set", f"runs={RUNS}"]
        launcher = ["mpiexec", "-n", str(ranks)] if ranks > 1 else []
        wall, cpu = time.perf_counter(), _children()
        subprocess.run([*launcher, *words, *options], check=True, capture_output=True)
        return time.perf_counter() - wall, _children() - cpu


def _children() -> float:
    times = os.times()
    return times.children_user + times.children_system


def rows(rounds: int) -> list[Row]:
    alone: list[tuple[float, float]] = []

    def on_one_rank() -> float:
        alone.append(this_package(1))
        return alone[-1][1]

    seconds = medians({
        "ours": on_one_rank,
        "plain": plain_script,
        "2": lambda: this_package(2, "--pack")[0],
        "2 by nodes": lambda: this_package(2)[0],
    }, rounds)  # fmt: skip
    wall, name = float(np.median([wall for wall, _ in alone])), "[R] Fig. 5 in full"
    return [
        Row(name, "(a) L-BFGS-B at default accuracy : this package", seconds["plain"] / seconds["ours"], at_least=8.0),
        Row(name, "wall clock, 1 rank : 2 ranks with --pack", wall / seconds["2"], at_least=1.7),
        Row(name, "wall clock, 1 rank : 2 ranks with 3 and 2 nodes (at best 1.67)", wall / seconds["2 by nodes"]),
    ]
