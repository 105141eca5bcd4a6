"""The solves of other losses than the logistic one, as ratios against references measured in the same minutes.

Softmax: six classes, the relationship in Adult (5 nodes of 8,000 records, 51 features, so 306 numbers in f), the private run of
MR-ADMM at epsilon 1 with the papers' settings. Huber regression: Adult's labels as numbers, R-ADMM with alpha 1. Least squares:
the same without noise, which nothing makes private. References, per solve on one core: (a) a plain script, scipy's L-BFGS-B per
node on dense records; (c) scikit-learn from zero with no linear term, where it expresses the same problem: multinomial
LogisticRegression and Ridge do, HuberRegressor does not (it fits a scale too); (d) one gradient by BLAS.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from common import Row
from plain import huber_objective, minimise, softmax_objective
from solves import ACCURACY, CONFIG, DEFAULT, EXACT, GRADIENT, ONE_OFF, OURS, Array, Clock, Step, run_of

from dpadmm_mpi.problems.local_problems import LocalProblems
from dpadmm_mpi.problems.losses import HuberRegression
from dpadmm_mpi.problems.objective import NodeProblem

ONE_RUN = CONFIG | {"runs": 1, "record": {"optimum": False}}
Objective = Callable[[Array], tuple[float, Array]]


class Case(NamedTuple):
    name: str
    config: dict[str, Any]
    plain: Callable[[NodeProblem, Array, float], Objective]  # with a linear term and all of the ridge
    scikit_learn: Callable[[NodeProblem, float], Any] | None
    from_zero: float | None = None  # how many times as fast as scikit-learn, at least


def _softmax(problem: NodeProblem, linear: Array, ridge: float) -> Objective:
    return softmax_objective(problem.signed, problem.targets, problem.C, linear, ridge)


def _regression(problem: NodeProblem, linear: Array, ridge: float) -> Objective:
    width = problem.loss.width if isinstance(problem.loss, HuberRegression) else np.inf
    return huber_objective(problem.signed, problem.targets, width, problem.C, linear, ridge)


def _multinomial(problem: NodeProblem, ridge: float) -> Any:
    from sklearn.linear_model import LogisticRegression

    return LogisticRegression(C=problem.weight / ridge, fit_intercept=False, solver="lbfgs", tol=ACCURACY, max_iter=10_000)


def _ridge(problem: NodeProblem, ridge: float) -> Any:
    from sklearn.linear_model import Ridge

    return Ridge(alpha=ridge / problem.weight, fit_intercept=False, solver="cholesky")


CASES = (
    Case(
        "softmax, six classes, Adult",
        ONE_RUN | {
            "seed": 8,
            "data": {"source": "adult-relationship", "train": 40_000},
            "problem": CONFIG["problem"] | {"loss": "softmax"},
            "algorithm": {"method": "mr-admm", "gamma": 0.5, "eta": {"first": 1.04, "ratio": 1.04}},
            "privacy": {"perturbation": "objective", "target": 1.0, "target_account": "epsilon", "delta": 1e-5},
        },
        _softmax,
        _multinomial,
        1.2,
    ),
    Case(
        "Huber regression, Adult",
        ONE_RUN | {"problem": CONFIG["problem"] | {"loss": "huber-regression"}},
        _regression,
        None,
    ),
    Case(
        "least squares, Adult",
        ONE_RUN | {"problem": CONFIG["problem"] | {"loss": "least-squares"}, "privacy": {"perturbation": "none"}},
        _regression,
        _ridge,
    ),
)  # fmt: skip


def fresh(problem: NodeProblem) -> NodeProblem:
    """As a run gets it: what solves store otherwise, or keep, they make anew."""
    return problem.with_records(problem.signed.copy(), problem.targets)


def residual(objective: Objective, terms: tuple[Array, ...], f: Array) -> float:
    gradient = objective(f)[1]
    data = gradient - sum(terms)
    return float(np.linalg.norm(gradient) / sum(map(np.linalg.norm, (data, *terms))))


def measured(case: Case, rounds: int) -> Clock:
    problems, steps = run_of(case.config)
    clock = Clock()
    for k in range(rounds):
        one_round(clock, case, problems, steps, note=k == 0)
        from_zero(clock, case, problems[0], float(steps[0][1][0]))
    return clock


def one_round(clock: Clock, case: Case, problems: list[NodeProblem], steps: list[Step], note: bool) -> None:
    tasks = [
        (case.plain(p, linear[0, i], p.ridge + quadratic[i]), (linear[0, i], (p.ridge + quadratic[i])), start[0, i])
        for linear, quadratic, start in steps
        for i, p in enumerate(problems)
    ]

    def gradients() -> None:
        for objective, _, start in tasks[-len(problems) :]:
            for _ in range(10):
                objective(start)

    def ours() -> list[Array]:
        kept = LocalProblems(fresh(p) for p in problems)
        return [f for linear, quadratic, start in steps for f in kept.argmins(linear, quadratic, start)[0][0]]

    def plain(**options: float) -> list[Array]:
        return [minimise(objective, start, **options) for objective, _, start in tasks]

    clock.measure(GRADIENT, 10 * len(problems), gradients)
    for name, work in (
        (OURS, ours),
        (DEFAULT, plain),
        (EXACT, lambda: plain(ftol=0.0, gtol=ACCURACY, maxiter=1000, maxfun=10_000)),
    ):
        found = clock.measure(name, len(tasks), work)
        if note:
            clock.residual[name] = max(
                residual(objective, (linear, ridge * f), f)
                for (objective, (linear, ridge), _), f in zip(tasks, found, strict=True)
            )


def from_zero(clock: Clock, case: Case, problem: NodeProblem, quadratic: float) -> None:
    """(c) one node's O_i with the run's quadratic term, without a linear one."""
    zero, ridge = np.zeros(problem.features), problem.ridge + quadratic

    def ours() -> Array:
        return LocalProblems([fresh(problem)]).argmins(zero[None, None], np.array([quadratic]), zero[None, None])[0][0, 0]

    solvers: dict[str, Callable[[], Array]] = {ONE_OFF: ours}
    if case.scikit_learn is not None:
        try:
            model = case.scikit_learn(problem, ridge)
        except ImportError:
            return
        name = f"(c) scikit-learn {type(model).__name__} {model.solver}, from zero"
        solvers[name] = lambda: model.fit(problem.signed, problem.targets).coef_.ravel()
    for name, solve in solvers.items():
        f = clock.measure(name, 1, solve)
        clock.residual[name] = residual(case.plain(problem, zero, ridge), (ridge * f,), f)


def rows(rounds: int) -> list[Row]:
    table = []
    for case in CASES:
        clock = measured(case, rounds)
        gradient, ours = clock.median(GRADIENT), clock.median(OURS)
        print(f"{case.name}, per solve:\n{'':52}{'ms':>8}{'gradients':>11}{'x ours':>9}{'residual':>10}")
        for name in clock.seconds:
            seconds, worst = clock.median(name), clock.residual.get(name)
            text = "" if worst is None else f"{worst:.0e}"
            print(f"{name:52}{1e3 * seconds:8.2f}{seconds / gradient:11.1f}{seconds / ours:9.2f}{text:>10}")
        table += [
            Row(case.name, f"{EXACT} : this package", clock.median(EXACT) / ours, at_least=3.0),
            Row(case.name, f"{DEFAULT} : this package", clock.median(DEFAULT) / ours, at_least=1.0),
            Row(case.name, "this package : (d) one gradient by BLAS", ours / gradient, at_most=6.0),
        ]
        table += [
            Row(case.name, f"{name} : this package", clock.median(name) / clock.median(ONE_OFF), at_least=case.from_zero)
            for name in clock.seconds
            if name.startswith("(c)")
        ]
    return table
