"""The optimum of the curated family, min f(x) + g(w), A x + B w = c, by an interior-point method that shares nothing with ADMM.

The points that meet the constraint are x = x_0 + X v, w = w_0 + W v, and v is free: for w = A x, v is x itself.

lambda1 |z| is the smallest lambda1 s with s >= |z|. The logarithmic barrier mu ln(s^2 - z^2), with the best s put in, makes
of it

    phi(z) = lambda1 s - mu ln(s^2 - z^2),   s = (mu + r) / lambda1,   r = sqrt(mu^2 + lambda1^2 z^2)
    phi'(z) = lambda1^2 z / (mu + r),   phi''(z) = lambda1^2 mu / (r (mu + r))

which Newton's method minimises for mu that falls to 0. For every y with |y_k| <= lambda1, and near the centre for phi'(A x),

    objective(x) - minimum <= lambda1 ||w||_1 - y.w + ||X'grad f(x) + W'y|| ||v - v*||

Rank 0 drives.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dpadmm_mpi.errors import InputError, RunError
from dpadmm_mpi.methods.base import Ask, Question
from dpadmm_mpi.methods.curated.linear_maps import LinearMap
from dpadmm_mpi.methods.curated.regularisers import L1, regularisers
from dpadmm_mpi.methods.curated.splitting import Given, Splitting
from dpadmm_mpi.methods.curated.steps import Settings
from dpadmm_mpi.methods.metrics import Optimum
from dpadmm_mpi.problems.newton import TOLERANCE, Point, minimise
from dpadmm_mpi.problems.objective import NodeProblem
from dpadmm_mpi.types import Array, Ints

GAP = 1e-10  # relative to the objective
SHRINK = 0.1  # of the barrier's weight from one centre to the next
CENTRES = 40
FEASIBLE = 1e-10  # by how much A x + B w = c may be missed, relative to c


@dataclass(frozen=True)
class Feasible:
    """All x and w that meet the constraint; here those with w = A x, W is A and v is x."""

    W: LinearMap

    def x(self, v: Array) -> Array:
        return v

    def w(self, v: Array) -> Array:
        return self.W(v)

    def slope(self, of_x: Array) -> Array:
        """X' times a gradient."""
        return of_x

    def curvature(self, of_x: Array) -> Array:
        """X' times a Hessian times X."""
        return of_x

    def multiplier(self, of_x: Array, of_w: Array) -> Array:
        """y with A'y = -grad f and B'y = -g', where these two are given."""
        return of_w


@dataclass(frozen=True)
class GivenFeasible(Feasible):
    """Those with A x + B w = c."""

    x_0: Array
    w_0: Array
    X: Array
    both: Array  # [A B]

    def x(self, v: Array) -> Array:
        return np.asarray(self.x_0 + self.X @ v)

    def w(self, v: Array) -> Array:
        return np.asarray(self.w_0 + self.W(v))

    def slope(self, of_x: Array) -> Array:
        return np.asarray(self.X.T @ of_x)

    def curvature(self, of_x: Array) -> Array:
        return np.asarray(self.X.T @ of_x @ self.X)

    def multiplier(self, of_x: Array, of_w: Array) -> Array:
        return np.asarray(np.linalg.lstsq(self.both.T, -np.concatenate([of_x, of_w]), rcond=None)[0])


def feasible_points(A: LinearMap, splitting: Splitting) -> Feasible:
    if not isinstance(splitting, Given):
        return Feasible(A)
    from scipy.linalg import null_space

    both, c, d = (
        np.concatenate([A.A if isinstance(A.A, np.ndarray) else A.A.toarray(), splitting.B], axis=1),
        splitting.c,
        A.features,
    )
    one = np.linalg.lstsq(both, c, rcond=None)[0]
    if np.linalg.norm(both @ one - c) > FEASIBLE * (1.0 + np.linalg.norm(c)):
        raise InputError("problem.map_c: no x and w meet A x + B w = c; give a c within the reach of A and B")
    directions = np.asarray(null_space(both), dtype=np.float64)
    if not directions.shape[1]:
        raise InputError("problem.map_B: one x alone meets A x + B w = c, and nothing is left to minimise; give B more columns")
    return GivenFeasible(LinearMap(directions[d:]), one[:d], one[d:], directions[:d], both)


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
        settings, given = self.settings, isinstance(self.settings.splitting, Given)
        objective = _Penalised(self, ask)
        point, gap = _solve(objective, settings)
        at_zero = np.inf
        if not given:  # at a kink; where B and c are given, it need not meet the constraint
            objective.evaluate(np.zeros_like(point.f))
            at_zero = objective.mean_loss
        objective.evaluate(point.f)  # the one before may have been a trial of the line search
        value = objective.mean_loss + settings.penalty(objective.feasible.w(point.f))
        if at_zero <= value:  # the centres come close to a kink, but not onto it
            return Optimum(np.zeros_like(point.f), at_zero, dual=objective.multiplier(point))
        if not gap <= GAP * value:
            raise RunError(
                f"the optimum was found to a relative gap of {gap / value:.1e} only, above {GAP:.0e}; raise problem.lambda1, "
                "or set record.optimum = false"
            )
        return Optimum(objective.feasible.x(point.f), value, dual=objective.multiplier(point))


def _solve(objective: "_Penalised", s: Settings) -> tuple[Point, float]:
    """The last centre and a bound on how far its objective is above the minimum."""
    point = minimise(objective, np.zeros(objective.feasible.W.features))
    gap = objective.gap(point)
    for _ in range(0 if s.regulariser.smooth else CENTRES):
        if gap <= GAP * point.value:
            break
        objective.mu *= SHRINK
        point = minimise(objective, point.f)
        gap = objective.gap(point)
    return point, gap


class _Penalised:
    """f(x) + sum_k phi(w_k), or + lambda1 ||w||^2 / 2, as an objective of v for Newton's method."""

    def __init__(self, search: CuratedOptimum, ask: Ask) -> None:
        self._search, self._ask = search, ask
        s = self.settings = search.settings
        self.feasible = feasible_points(s.A, s.splitting)
        self.mu = self.settings.lambda1 if self.settings.lambda1 > 0.0 else 1.0
        self.mean_loss = np.nan  # at the point last evaluated
        self.mean_gradient = np.zeros(0)

    def evaluate(self, f: Array) -> Point:
        s, feasible = self.settings, self.feasible
        rows = self._ask(self._search.evaluation, feasible.x(f))
        totals = rows.sum(axis=0) / s.records
        self.mean_loss, self.mean_gradient = float(totals[0]), totals[1:]
        value, slopes, curvatures = self._penalty(feasible.w(f))
        parts = (feasible.slope(totals[1:]), feasible.W.transposed(slopes))
        # Round-off in w comes back multiplied with the curvatures, which grow as mu falls.
        round_off = 1e-15 * feasible.W.norm**2 * float(curvatures.max()) * float(np.linalg.norm(f))
        scale = max(sum(float(np.linalg.norm(part)) for part in parts), round_off / TOLERANCE, 1e-12)
        return Point(f, self.mean_loss + value, parts[0] + parts[1], scale, self.mean_loss + abs(value), margins=np.zeros(0))

    def direction(self, point: Point) -> Array:
        d, feasible = self.settings.features, self.feasible
        rows = self._ask(self._search.hessian, feasible.x(point.f))
        H = feasible.curvature((self._search.sizes @ rows).reshape(d, d) / self.settings.records)
        H += feasible.W.gram(self._penalty(feasible.w(point.f))[2])
        H.flat[:: len(H) + 1] += 1e-15 * H.diagonal().max()  # directions that neither the records nor A see
        return np.asarray(np.linalg.solve(H, -point.gradient))

    def gap(self, point: Point) -> float:
        """Where ||v - v*|| is taken as 1 + 2 ||v||; y is from one more Newton step, which round-off in w does not touch."""
        s = self.settings
        complementarity, residual = 0.0, point.gradient
        if not s.regulariser.smooth:
            w = self.feasible.w(point.f)
            slopes, y = self._penalty(w)[1], self.subgradient(point)
            complementarity, residual = s.penalty(w) - float(y @ w), residual + self.feasible.W.transposed(y - slopes)
        return complementarity + float(np.linalg.norm(residual)) * (1.0 + 2.0 * float(np.linalg.norm(point.f)))

    def subgradient(self, point: Point) -> Array:
        """Of g at w: X'grad f + W'y = 0 and, for l1, |y_k| <= lambda1."""
        s = self.settings
        _, slopes, curvatures = self._penalty(self.feasible.w(point.f))
        if s.regulariser.smooth:
            return slopes
        return np.clip(slopes + curvatures * self.feasible.W(self.direction(point)), -s.lambda1, s.lambda1)

    def multiplier(self, point: Point) -> Array:
        """Of the constraint, where the point was evaluated last."""
        return self.feasible.multiplier(self.mean_gradient, self.subgradient(point))

    def _penalty(self, z: Array) -> tuple[float, Array, Array]:
        """Value, first and second derivatives by w of the smooth penalty."""
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
