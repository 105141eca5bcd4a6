"""The centralised optimum f* of the networks and stars, by a Newton method of its own over all nodes, which rank 0 drives."""

from collections.abc import Sequence

import numpy as np

from dpadmm_mpi.errors import RunError
from dpadmm_mpi.methods.base import Ask, Question
from dpadmm_mpi.methods.metrics import Optimum
from dpadmm_mpi.problems.newton import TOLERANCE, Point, conjugate_gradients, minimise
from dpadmm_mpi.problems.objective import SCALE_FLOOR, NodeProblem
from dpadmm_mpi.problems.regularisers import Ridge, SmoothRegulariser
from dpadmm_mpi.types import Array


class CentralisedOptimum:
    """argmin of the sum of the nodes' losses, each with (ridge/2) ||f||^2; None where it is neither found nor required."""

    def __init__(self, features: int, ridge: float, required: bool, regulariser: SmoothRegulariser | None = None) -> None:
        self.features, self.ridge, self.required = features, ridge, required
        self.regulariser = Ridge() if regulariser is None else regulariser
        self.extra = 0.0  # of (extra/2) ||f||^2 beside all of this, which rank 0 alone may set and adds
        self.evaluation = Question(2 + 2 * features, self._evaluate_node, moves=True)
        self.gradient = Question(features, self._gradient_of_node)
        self.product = Question(features, lambda problem, margins, v: problem.hessian_product(margins, v, ridge))
        self.questions: Sequence[Question] = (self.evaluation, self.product, self.gradient)

    def _gradient_of_node(self, problem: NodeProblem, margins: Array, f: Array) -> Array:
        """grad O_i at the current point."""
        return problem.data_gradient(margins) + self.ridge * (f + self.regulariser.rest_gradient(f))

    def _evaluate_node(self, problem: NodeProblem, margins: Array, f: Array) -> Array:
        """The loss, its weight C, gradient and Hessian diagonal."""
        loss = problem.C * np.mean(problem.losses(margins))
        diagonal = problem.hessian_diagonal(margins, self.ridge)
        return np.concatenate([[loss, problem.C], problem.data_gradient(margins), diagonal])

    def find(self, ask: Ask) -> Optimum | None:
        point = minimise(_Sum(self, ask), np.zeros(self.features))
        if point.residual > TOLERANCE:
            if not self.required:
                return None
            raise RunError(
                f"the centralised optimum was found to a relative residual of {point.residual:.1e} only, above "
                f"{TOLERANCE:.0e}; scale the features or raise problem.rho (of a star: problem.reg)"
            )
        ask(self.evaluation, point.f)  # the one before may have been a trial of the line search
        return Optimum(point.f, point.value, ask(self.gradient, point.f))


class _Sum:
    """sum_i O_i as an objective for Newton's method."""

    def __init__(self, search: CentralisedOptimum, ask: Ask) -> None:
        self._search, self._ask = search, ask
        self._diagonal = self._rest = np.zeros(0)

    def evaluate(self, f: Array) -> Point:
        rows = self._ask(self._search.evaluation, f)
        d = len(f)
        ridge = self._search.ridge * len(rows)
        R = self._search.regulariser
        extra = self._search.extra
        value = float(rows[:, 0].sum()) + 0.5 * (ridge + extra) * float(f @ f) + ridge * float(R.rest(f))
        self._rest = ridge * R.rest_curvature(f) + extra
        data_gradient, self._diagonal = rows[:, 2 : 2 + d].sum(axis=0), rows[:, 2 + d :].sum(axis=0) + self._rest
        parts = (data_gradient, (ridge + extra) * f + ridge * R.rest_gradient(f))
        scale = sum(float(np.linalg.norm(part)) for part in parts)
        floor = SCALE_FLOOR * float(rows[:, 1].sum())
        return Point(f, value, parts[0] + parts[1], max(scale, floor), abs(value), margins=np.zeros(0))

    def direction(self, point: Point) -> Array:
        def product(v: Array) -> Array:
            return np.asarray(self._ask(self._search.product, v).sum(axis=0) + self._rest * v)

        return conjugate_gradients(product, self._diagonal, point)
