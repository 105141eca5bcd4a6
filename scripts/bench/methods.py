"""The loops of the methods beside the papers' ADMM, against the plain numpy script that one writes first (plain.py).

Adult, 5 nodes of 8,000 records, d = 105, 50 iterations, one run and ten: gradient descent, gossip, gradient tracking, the
single solve, the trusted curator and arc-based ADMM. Both sides measure the same in every iteration. The scripts hold dense
records, and where something is minimised they use L-BFGS-B at its default accuracy. They do each run by itself, so one run
tells what ten take. Processor time of the loop, without start-up.
"""

import time
from typing import Any

import numpy as np
import plain
from common import Row, medians, run
from figure import dense

from dpadmm_mpi.methods.base import Plan, make_plan
from dpadmm_mpi.methods.decentralised.plan import NetworkPlan
from dpadmm_mpi.methods.gradient.plan import GradientPlan
from dpadmm_mpi.networks.metropolis import matrix
from dpadmm_mpi.storage.experiments import load

RUNS = 10
CONFIG: dict[str, Any] = {
    "iterations": 50,
    "data": {"source": "adult", "train": 40_000},
    "network": {"graph": "random", "nodes": 5},
    "problem": {"C": 1750.0, "rho": 0.22},
    "record": {"optimum": False},
}
BY_ITSELF = {"perturbation": "objective", "alpha": 1.0, "allow_unproven": True}
METHODS: dict[str, dict[str, Any]] = {
    "dp-dgd": {"target": 1.0},
    "gossip": {"target": 1.0},
    "dp-gradient-tracking": {"target": 1.0},
    "one-shot": BY_ITSELF,
    "central-objective": BY_ITSELF,
    "arc-admm": {"perturbation": "objective", "alpha": 1.0},
}


def config(method: str) -> dict[str, Any]:
    return CONFIG | {"algorithm": {"method": method}, "privacy": METHODS[method]}


class PlainScript:
    """One run of a method; the records are in memory before the clock starts."""

    def __init__(self, given: dict[str, Any]) -> None:
        self.method = given["algorithm"]["method"]
        self.plan: Plan[Any]
        self.plan, dataset = make_plan(load(given).configs[0])
        self.shards = [dense(dataset.loader.shard(dataset.address(i)).into_signed()) for i in range(self.plan.nodes)]
        tests = list(dataset.test().blocks())
        self.test = np.concatenate([dense(block.X) for block in tests]), np.concatenate([block.y for block in tests])

    def __call__(self) -> float:
        begin = time.process_time()
        self.simulate()
        return time.process_time() - begin

    def simulate(self) -> plain.Records:
        plan = self.plan
        C, rho = CONFIG["problem"]["C"], CONFIG["problem"]["rho"]
        W = matrix(plan.topology)
        records = self.shards, self.test
        if isinstance(plan, GradientPlan):
            s = plan.settings
            if self.method == "dp-gradient-tracking":
                return plain.track(*records, W, C, rho, s.step, s.noise_std, 0)
            return plain.descend(*records, W, C, rho, s.step, s.noise_std, s.momentum, s.omega, 0)
        assert isinstance(plan, NetworkPlan)
        s = plan.settings
        eta, alpha = float(s.eta[1, 0]), s.parameter
        if self.method == "arc-admm":
            neighbours = [list(nb) for nb in plan.topology.neighbours]
            return plain.arc_admm(*records, neighbours, C, rho, eta, alpha, plan.method.relaxation, 0)
        rho *= plan.nodes / CONFIG["network"]["nodes"]  # the curator has the ridge of one node
        return plain.solve_once(*records, W, C, rho, eta, alpha[1], s.omega[: plan.iterations - 1], 0)


def rows(rounds: int) -> list[Row]:
    table = []
    for method in METHODS:
        given = config(method)
        seconds = medians({
            "plain": PlainScript(given),
            "one run": lambda given=given: run(given)["loop_cpu"],
            "ten runs": lambda given=given: run(given | {"runs": RUNS})["loop_cpu"] / RUNS,
        }, rounds)  # fmt: skip
        for name in ("one run", "ten runs"):
            text = f"(a) plain numpy script : this package, {name}"
            table.append(Row(f"loop of {method}", text, seconds["plain"] / seconds[name], at_least=1.0))
    return table
