"""How fast the local solves are, as ratios against references measured in the same minutes on the same machine.

Setting: the 125 solves of one private R-ADMM run (N = 5, 8000 records each, d = 105, alpha = 1, eta = 1, C = 1750, rho = 0.22,
50 iterations), each started from the node's last released value as in the run; beside it those of ten runs that go side by
side. References, per solve, on one core: (a) a plain script: scipy's L-BFGS-B per node, at its default accuracy and asked for
1e-10; (c) scikit-learn's logistic regression (if installed; it cannot express the linear term, so each side solves one node's
O_i with the run's quadratic term alone, from zero; at scikit-learn's default tolerance and as accurately as it can); (d) one
gradient by BLAS, two passes over the dense shard. Every round measures all of them after each other; the figures are medians
over rounds.
"""

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from common import Row
from plain import argmin

import dpadmm_mpi
from dpadmm_mpi.problems.local_problems import LocalProblems
from dpadmm_mpi.problems.losses import Logistic
from dpadmm_mpi.problems.objective import NodeProblem

NODES, C, RHO, RUNS = 5, 1750.0, 0.22, 10
RIDGE = RHO / NODES
ACCURACY = 1e-10

OURS, SIDE_BY_SIDE, GRADIENT = "this package", f"this package, {RUNS} runs side by side", "(d) one gradient by BLAS"
DEFAULT, EXACT = "(a) L-BFGS-B, default accuracy", "(a) L-BFGS-B, asked for 1e-10"
ONE_OFF = "this package, from zero"

Array = np.ndarray
Step = tuple[Array, Array, Array]  # linear and start (runs, nodes, d), quadratic (nodes)


CONFIG: dict[str, Any] = {
    "iterations": 50,
    "runs": RUNS,
    "data": {"source": "adult", "train": 40_000},
    "network": {"graph": "random", "nodes": NODES},
    "problem": {"C": C, "rho": RHO},
    "algorithm": {"method": "r-admm", "eta": 1.0, "gamma": 0.5},
    "privacy": {"perturbation": "objective", "alpha": 1.0},
}


def run_of(config: dict[str, Any]) -> tuple[list[NodeProblem], list[Step]]:
    """The problems of the nodes, their records dense, and what each data step of the run asks for."""
    steps: list[Step] = []
    problems: list[NodeProblem] = []
    original = LocalProblems.argmins

    def listening(
        self: LocalProblems, linear: Array, quadratic: Array, start: Array, active: Array | None = None
    ) -> tuple[Array, Array]:
        if not problems:
            for p in self:
                rows = p.signed.copy() if isinstance(p.signed, np.ndarray) else p.signed.toarray()
                problems.append(p.with_records(rows, p.targets))
        steps.append((linear.copy(), quadratic.copy(), start.copy()))
        return original(self, linear, quadratic, start, active)

    LocalProblems.argmins = listening  # type: ignore[method-assign]
    try:
        dpadmm_mpi.run(config)
    finally:
        LocalProblems.argmins = original  # type: ignore[method-assign]
    return problems, steps


def relative_residual(X: Array, linear: Array, ridge: float, f: Array) -> float:
    data = C / len(X) * (X.T @ Logistic().first(X @ f))
    size = sum(map(np.linalg.norm, (data, ridge * f, linear)))
    return float(np.linalg.norm(data + ridge * f + linear) / size)


class Clock:
    """Processor seconds per solve of each contender, one number per round, and its worst accuracy."""

    def __init__(self) -> None:
        self.seconds: dict[str, list[float]] = {}
        self.residual: dict[str, float] = {}

    def measure(self, name: str, solves: int, work: Callable[[], Any]) -> Any:
        begin = time.process_time()
        outcome = work()
        self.seconds.setdefault(name, []).append((time.process_time() - begin) / solves)
        return outcome

    def median(self, name: str) -> float:
        return float(np.median(self.seconds[name]))


def one_round(clock: Clock, shards: list[Array], steps: list[Step], note: bool) -> None:
    solves = len(steps) * len(shards)

    def ours(runs: int) -> list[Array]:
        """Where the first run ends."""
        problems = LocalProblems(NodeProblem(X, Logistic(), C, RIDGE) for X in shards)  # with all that is kept for later solves
        return [problems.argmins(linear[:runs], quadratic, start[:runs])[0][0] for linear, quadratic, start in steps]

    def plain(**options: float) -> list[list[Array]]:
        return [
            [argmin(X, C, linear[0, i], RIDGE + quadratic[i], start[0, i], **options) for i, X in enumerate(shards)]
            for linear, quadratic, start in steps
        ]

    def damped_newton() -> list[list[Array]]:
        problems = [NodeProblem(X, Logistic(), C, RIDGE) for X in shards]
        return [
            [p.argmin(linear[0, i], float(quadratic[i]), start[0, i]).f for i, p in enumerate(problems)]
            for linear, quadratic, start in steps
        ]

    def gradients() -> None:
        for X in shards:
            f = steps[-1][2][0, 0]
            for _ in range(10):
                X.T @ Logistic().first(X @ f)

    contenders: dict[str, Callable[[], Any]] = {
        OURS: lambda: ours(1),
        SIDE_BY_SIDE: lambda: ours(RUNS),
        DEFAULT: plain,
        EXACT: lambda: plain(ftol=0.0, gtol=ACCURACY, maxiter=1000),
        "damped Newton, a Hessian per step": damped_newton,
    }
    clock.measure(GRADIENT, 10 * len(shards), gradients)
    for name, work in contenders.items():
        found = clock.measure(name, solves * (RUNS if name == SIDE_BY_SIDE else 1), work)
        if note:
            clock.residual[name] = max(
                relative_residual(X, linear[0, i], RIDGE + quadratic[i], f[i])
                for (linear, quadratic, _), f in zip(steps, found, strict=True)
                for i, X in enumerate(shards)
            )


def one_local_solve(clock: Clock, X: Array, quadratic: float) -> None:
    """(c) argmin O_i + (quadratic/2) ||f||^2 from zero: y x with label 1 is x with label y."""
    try:
        from sklearn.linear_model import LogisticRegression
    except ImportError:
        return
    ridge = RIDGE + quadratic
    zero = np.zeros(X.shape[1])
    labels = np.ones(len(X))
    records = X.copy()
    records[::2], labels[::2] = -records[::2], -1.0  # the same losses, and two classes as scikit-learn wants
    models = {
        "(c) scikit-learn newton-cholesky": ("newton-cholesky", ACCURACY),
        "(c) scikit-learn lbfgs": ("lbfgs", ACCURACY),
        "(c) scikit-learn lbfgs, default tolerance": ("lbfgs", 1e-4),
    }

    def ours() -> Array:
        problems = LocalProblems([NodeProblem(X, Logistic(), C, RIDGE)])  # as a node of a run does
        return problems.argmins(zero[None, None], np.array([quadratic]), zero[None, None])[0][0, 0]

    for _ in range(5):
        clock.residual[ONE_OFF] = relative_residual(X, zero, ridge, clock.measure(ONE_OFF, 1, ours))
        for name, (solver, tolerance) in models.items():
            model = LogisticRegression(C=C / len(X) / ridge, fit_intercept=False, solver=solver, tol=tolerance, max_iter=10_000)
            clock.measure(name, 1, lambda model=model: model.fit(records, labels))
            clock.residual[name] = relative_residual(X, zero, ridge, model.coef_[0])


def rows(rounds: int) -> list[Row]:
    problems, steps = run_of(CONFIG)
    shards = [problem.signed for problem in problems]
    clock = Clock()
    for k in range(rounds):
        one_round(clock, shards, steps, note=k == 0)
    one_local_solve(clock, shards[0], float(steps[0][1][0]))
    gradient, ours = clock.median(GRADIENT), clock.median(OURS)
    print(f"{len(steps) * len(shards)} solves of {shards[0].shape[0]} records, d = {shards[0].shape[1]}, per solve:")
    print(f"{'':42}{'ms':>8}{'gradients':>11}{'x ours':>9}{'residual':>10}")
    for name in clock.seconds:
        seconds, residual = clock.median(name), clock.residual.get(name)
        worst = "" if residual is None else f"{residual:.0e}"
        print(f"{name:42}{1e3 * seconds:8.2f}{seconds / gradient:11.1f}{seconds / ours:9.2f}{worst:>10}")
    benchmark, one_off = "solves of a run, Adult", "one solve from zero, Adult"
    side_by_side = clock.median(SIDE_BY_SIDE)
    table = [
        Row(benchmark, "this package : (d) one gradient by BLAS", ours / gradient, at_most=5.0),
        Row(benchmark, f"{SIDE_BY_SIDE} : (d)", side_by_side / gradient, at_most=2.5),
        Row(benchmark, f"{EXACT} : this package", clock.median(EXACT) / ours, at_least=10.0),
        Row(benchmark, f"{DEFAULT} : this package", clock.median(DEFAULT) / ours, at_least=4.0),
        Row(benchmark, f"{DEFAULT} : {SIDE_BY_SIDE}", clock.median(DEFAULT) / side_by_side),
    ]
    for name in clock.seconds:
        if name.startswith("(c)"):
            target = 1.2 if name.startswith("(c) scikit-learn lbfgs") else None
            table.append(Row(one_off, f"{name} : this package", clock.median(name) / clock.median(ONE_OFF), at_least=target))
    return table
