"""The optimum of the curated family, min f(x) + g(A x), by an interior-point method that shares nothing with ADMM.

lambda1 |z| is the smallest lambda1 s with s >= |z|. The logarithmic barrier mu ln(s^2 - z^2), with the best s put in, makes
of it

    phi(z) = lambda1 s - mu ln(s^2 - z^2),   s = (mu + r) / lambda1,   r = sqrt(mu^2 + lambda1^2 z^2)
    phi'(z) = lambda1^2 z / (mu + r),   phi''(z) = lambda1^2 mu / (r (mu + r))

which Newton's method minimises for mu that falls to 0. For every y with |y_k| <= lambda1, and near the centre for phi'(A x),

    objective(x) - minimum <= lambda1 ||A x||_1 - y.A x + ||grad f(x) + A'y|| ||x - x*||

Rank 0 drives.
"""

from collections.abc import Sequence

import numpy as np

from dpadmm_mpi.errors import InputError, RunError
from dpadmm_mpi.methods.base import Ask, Question
from dpadmm_mpi.methods.curated.regularisers import L1, regularisers
from dpadmm_mpi.methods.curated.steps import Settings
from dpadmm_mpi.methods.metrics import Optimum
from dpadmm_mpi.problems.newton import TOLERANCE, Point, minimise
from dpadmm_mpi.problems.objective import NodeProblem
from dpadmm_mpi.types import Array, Ints

GAP = 1e-10  # relative to the objective
SHRINK = 0.1  # of the barrier's weight from one centre to the next
CENTRES = 40


class CuratedOptimum:
    """The search for x*, which rank 0 drives."""

    def __init__(self, settings: Settings, sizes: Ints) -> None:
        if not (settings.regulariser.smooth or isinstance(settings.regulariser, L1)):
            name = regularisers.name_of(type(settings.regulariser))
            raise InputError(f'record.optimum: found for the regularisers l1 and l2, and not for "{name}"; remove it')
        d = settings.features
        self.settings, self.sizes = settings, sizes
        self.evaluation = Question(1 + d, _loss_and_gradient, moves=True)
        self.hessian = Question(d * d, lambda problem, margins, _: problem.hessian(margins, 0.0).ravel())
        self.questions: Sequence[Question] = (self.evaluation, self.hessian)

    def find(self, ask: Ask) -> Optimum | None:
        settings = self.settings
        objective = _Penalised(self, ask)
        point, gap = _solve(objective, settings)
        objective.evaluate(np.zeros_like(point.f))
        at_zero = objective.mean_loss
        objective.evaluate(point.f)  # the one before may have been a trial of the line search
        value = objective.mean_loss + settings.penalty(settings.A(point.f))
        if at_zero <= value:  # the centres come close to a kink, but not onto it
            return Optimum(np.zeros_like(point.f), at_zero, dual=objective.dual(point))
        if not gap <= GAP * value:
            raise RunError(
                f"the optimum was found to a relative gap of {gap / value:.1e} only, above {GAP:.0e}; raise problem.lambda1, "
                "or set record.optimum = false"
            )
        return Optimum(point.f, value, dual=objective.dual(point))


def _solve(objective: "_Penalised", s: Settings) -> tuple[Point, float]:
    """The last centre and a bound on how far its objective is above the minimum."""
    point = minimise(objective, np.zeros(s.features))
    gap = objective.gap(point)
    for _ in range(0 if s.regulariser.smooth else CENTRES):
        if gap <= GAP * point.value:
            break
        objective.mu *= SHRINK
        point = minimise(objective, point.f)
        gap = objective.gap(point)
    return point, gap


class _Penalised:
    """f(x) + sum_k phi((A x)_k), or + lambda1 ||A x||^2 / 2, as an objective for Newton's method."""

    def __init__(self, search: CuratedOptimum, ask: Ask) -> None:
        self._search, self._ask = search, ask
        self.settings = search.settings
        self.mu = self.settings.lambda1 if self.settings.lambda1 > 0.0 else 1.0
        self.mean_loss = np.nan  # at the point last evaluated

    def evaluate(self, f: Array) -> Point:
        s = self.settings
        rows = self._ask(self._search.evaluation, f)
        totals = rows.sum(axis=0) / s.records
        self.mean_loss = float(totals[0])
        value, slopes, curvatures = self._penalty(s.A(f))
        parts = (totals[1:], s.A.transposed(slopes))
        # Round-off in A x comes back multiplied with the curvatures, which grow as mu falls.
        round_off = 1e-15 * s.A.norm**2 * float(curvatures.max()) * float(np.linalg.norm(f))
        scale = max(sum(float(np.linalg.norm(part)) for part in parts), round_off / TOLERANCE, 1e-12)
        return Point(f, self.mean_loss + value, parts[0] + parts[1], scale, self.mean_loss + abs(value), margins=np.zeros(0))

    def direction(self, point: Point) -> Array:
        d = len(point.f)
        rows = self._ask(self._search.hessian, point.f)
        H = (self._search.sizes @ rows).reshape(d, d) / self.settings.records
        H += self.settings.A.gram(self._penalty(self.settings.A(point.f))[2])
        H.flat[:: d + 1] += 1e-15 * H.diagonal().max()  # directions that neither the records nor A see
        return np.asarray(np.linalg.solve(H, -point.gradient))

    def gap(self, point: Point) -> float:
        """Where ||x - x*|| is taken as 1 + 2 ||x||; y is from one more Newton step, which round-off in A x does not touch."""
        s = self.settings
        complementarity, residual = 0.0, point.gradient
        if not s.regulariser.smooth:
            z = s.A(point.f)
            slopes, y = self._penalty(z)[1], self.dual(point)
            complementarity, residual = s.penalty(z) - float(y @ z), residual + s.A.transposed(y - slopes)
        return complementarity + float(np.linalg.norm(residual)) * (1.0 + 2.0 * float(np.linalg.norm(point.f)))

    def dual(self, point: Point) -> Array:
        """y with A'y = -grad f and, for l1, |y_k| <= lambda1: the multiplier of A x - w = 0."""
        s = self.settings
        _, slopes, curvatures = self._penalty(s.A(point.f))
        if s.regulariser.smooth:
            return slopes
        return np.clip(slopes + curvatures * s.A(self.direction(point)), -s.lambda1, s.lambda1)

    def _penalty(self, z: Array) -> tuple[float, Array, Array]:
        """Value, first and second derivatives by z of the smooth penalty."""
        lambda1, mu = self.settings.lambda1, self.mu
        if self.settings.regulariser.smooth or lambda1 == 0.0:
            return 0.5 * lambda1 * float(z @ z), lambda1 * z, np.full_like(z, lambda1)
        r = np.hypot(mu, lambda1 * z)
        s = (mu + r) / lambda1
        value = lambda1 * s - mu * np.log(2.0 * s * mu / lambda1)  # s^2 - z^2 = 2 s mu / lambda1
        return float(value.sum()), lambda1**2 * z / (mu + r), lambda1**2 * mu / (r * (mu + r))


def _loss_and_gradient(problem: NodeProblem, margins: Array, f: Array) -> Array:
    """Their sums over the records."""
    return np.append(np.sum(problem.losses(margins)), problem.signed.T @ problem.loss.first(margins))
