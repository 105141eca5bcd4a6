"""The exact argmin at a node with many records, in a dozen passes over them and without a Hessian of its own.

A node keeps one factorised Hessian, that of O_i near its own minimum: a function of its records alone, so that a solve
depends on its arguments and on nothing that went before, on every layout and after every restart. Q diag(lambda) Q' makes any
quadratic term free: (H + mu I)^-1 g takes two products with Q. BFGS pairs correct for the distance between the two points.

The solves of several runs, which share the records, go side by side, one in each row: a pass over the records serves them all.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpadmm_mpi.newton import TOLERANCE, minimise
from dpadmm_mpi.problem import SCALE_FLOOR, NodeProblem, Tilted

Array = NDArray[np.float64]
Product = Callable[[Array], Array]

EVALUATIONS = 60  # more than this, and the damped Newton method takes over
HESSIAN_COST = 40  # evaluations that a Hessian at the current point costs, roughly, and about what is left after it
_ROUGH_EVALUATIONS = 12  # a Hessian near the minimum is as good as one at it
_LOOK_BACK = 4  # steps over which the rate of convergence is measured
_FLAT = 0.5  # a step along a direction is long enough when the slope has fallen to this share: BFGS asks for no more
_TRIALS = 30
_CROWDED = 0.7  # share of solves under way, up to which those at their end leave


class Solutions(NamedTuple):
    """Where the solves ended, and the gradients there relative to their terms."""

    f: Array  # (solves, d)
    residual: Array  # (solves,)


class Reference(NamedTuple):
    """The Hessian of O_i's mean loss near O_i's minimum, Q diag(curvatures) Q'."""

    Q: Array
    curvatures: Array

    def inverse(self, ridge: float) -> Product:
        scale = 1.0 / (self.curvatures + ridge)
        return lambda g: np.asarray(((g @ self.Q) * scale) @ self.Q.T)


def reference(problem: NodeProblem) -> Reference:
    """The Hessian at the end of a short descent from zero, which starts with the diagonal there."""
    zero = np.zeros((1, problem.features))
    margins = np.zeros(problem.signed.shape[0])
    with np.errstate(over="ignore", invalid="ignore"):
        diagonal = problem.hessian_diagonal(margins, problem.ridge)
        if not diagonal.all():  # without a ridge: a column of zeros, which nothing moves, or a loss that is straight at zero
            steepest = problem.curvature_bounds() + problem.ridge
            diagonal = np.where(steepest > 0.0, steepest, 1.0)
        near = _descend(problem, lambda g: g / diagonal, zero, problem.ridge, zero, roughly=True)
        if near.residual[0] < np.inf:
            margins = problem.margins(near.f)[0]
        curvatures, Q = np.linalg.eigh(problem.hessian(margins, 0.0))
    return Reference(Q, np.maximum(curvatures, 0.0))


def argmin(problem: NodeProblem, kept: Reference, linear: Array, quadratic: float, start: Array) -> Solutions:
    """argmin_f O_i(f) + linear.f + (quadratic/2) ||f||^2 for every row of `linear`, from that row of `start`."""
    ridge = problem.ridge + quadratic
    # Overflow ends in the damped method, and there in a residual; a solve at its end may have a residual of 0.
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        found = _descend(problem, kept.inverse(ridge), linear, ridge, start)
    for k in np.flatnonzero(~(found.residual <= TOLERANCE)):
        point = minimise(Tilted(problem, linear[k], ridge), found.f[k] if found.residual[k] < np.inf else start[k])
        found.f[k], found.residual[k] = point.f, point.residual
    return found


def _descend(
    problem: NodeProblem, inverse: Product, linear: Array, ridge: float, start: Array, roughly: bool = False
) -> Solutions:
    """BFGS from an inverse Hessian; where it pays, and a rough solution will not do, one at the current point replaces it.

    A solve that has come to its end stays where it is, and leaves when enough of them are to make the others faster.
    """
    found = Solutions(start.copy(), np.full(len(start), np.nan))
    here = np.arange(len(start))  # the solves that have not left
    f, margins = start.copy(), problem.margins(start)
    slopes = problem.loss.first(margins)
    hessian = _Inverse(inverse, f.shape)
    history: list[Array] = []  # residuals; nan before a solve has taken its present Hessian
    g_before = direction = s = np.zeros_like(f)
    for _ in range(_ROUGH_EVALUATIONS if roughly else EVALUATIONS):
        data, pull = problem.weight * problem.weighted_sums(slopes), ridge * f
        g = data + pull + linear
        scale = np.maximum(_norms(data) + _norms(pull) + _norms(linear), SCALE_FLOOR * problem.C)
        residual = np.where(scale < np.inf, _norms(g) / scale, np.nan)
        found.f[here], found.residual[here] = f, residual
        under_way = residual > TOLERANCE  # neither found nor no longer a number
        if not under_way.any():
            break
        ascent = hessian.times(g)
        if history:
            ascent = hessian.learn(s, g - g_before, ascent + direction, g, ascent)
        history.append(residual)
        if np.count_nonzero(under_way) <= _CROWDED * len(here):
            stay = np.flatnonzero(under_way)
            here, under_way = here[stay], under_way[stay]
            f, g, ascent, linear, margins = f[stay], g[stay], ascent[stay], linear[stay], _rows(margins, stay)
            history = [residuals[stay] for residuals in history]
            hessian.keep(stay)
        if not roughly:
            for k in np.flatnonzero(under_way & _are_slow(history)).tolist():
                ascent[k] = hessian.replace(k, problem.hessian(margins[k], ridge)) @ g[k]
                for residuals in history[:-1]:
                    residuals[k] = np.nan
        direction = np.where(under_way[:, None], -ascent, 0.0)
        length, margins, slopes = _search(problem, margins, g, direction, f, linear, ridge)
        s, g_before = length[:, None] * direction, g
        f = f + s
    return found


class _Inverse:
    """The inverse Hessians H of the solves: a first one, corrected by every pair (s, y) of step and change of the gradient.

    BFGS with the corrections multiplied out: with u = H y before the correction, it adds to H v
        ((1 + y.u / s.y) (s.v) - u.v) / s.y  times s,  and  -(s.v) / s.y  times u.
    """

    def __init__(self, first: Product, shape: tuple[int, ...]) -> None:
        self._first = first
        self._own: dict[int, Array] = {}  # of the solves that have taken a Hessian of their own
        self._s, self._u = np.empty((EVALUATIONS, *shape)), np.empty((EVALUATIONS, *shape))
        self._weight = np.zeros((EVALUATIONS, shape[0]))  # 1 / s.y; 0: no correction
        self._stretch = np.zeros((EVALUATIONS, shape[0]))  # 1 + y.u / s.y
        self._pairs = 0

    def times(self, v: Array) -> Array:
        product = self._first(v)
        for k, H in self._own.items():
            product[k] = H @ v[k]
        return product + self._corrections(slice(self._pairs), v) if self._pairs else product

    def _corrections(self, which: slice, v: Array) -> Array:
        s, u, weight = self._s[which], self._u[which], self._weight[which]
        along = weight * np.vecdot(s, v)
        of_s = self._stretch[which] * along - weight * np.vecdot(u, v)
        return np.einsum("kr,krd->rd", of_s, s) - np.einsum("kr,krd->rd", along, u)

    def learn(self, s: Array, y: Array, u: Array, v: Array, product: Array) -> Array:
        """One more pair, with u = H y; what H v then is, from the product before."""
        k, sy = self._pairs, np.vecdot(s, y)
        convex = sy > 0.0  # but for round-off, or where a solve has come to its end
        self._s[k], self._u[k] = s, u
        self._weight[k] = np.where(convex, 1.0 / np.where(convex, sy, 1.0), 0.0)
        self._stretch[k] = 1.0 + self._weight[k] * np.vecdot(y, u)
        self._pairs += 1
        return product + self._corrections(slice(k, k + 1), v)

    def replace(self, k: int, H: Array) -> Array:
        """Begin again with the inverse of this Hessian of solve k."""
        self._own[k] = np.asarray(np.linalg.inv(H), dtype=np.float64)
        self._weight[:, k] = 0.0
        return self._own[k]

    def keep(self, which: NDArray[np.int64]) -> None:
        """Of these solves alone."""
        self._s, self._u = self._s[:, which], self._u[:, which]
        self._weight, self._stretch = self._weight[:, which], self._stretch[:, which]
        self._own = {new: self._own[old] for new, old in enumerate(which.tolist()) if old in self._own}


def _rows(values: Array, which: NDArray[np.int64]) -> Array:
    """Some rows, laid out in memory as all of them are."""
    return values.T[:, which].T if values.flags.f_contiguous else values[which]


def _are_slow(history: list[Array]) -> NDArray[np.bool_]:
    """Whether a Hessian here costs less than the evaluations that are left at the present rate."""
    if len(history) <= _LOOK_BACK:
        return np.zeros(len(history[0]), dtype=bool)
    fall_per_step = np.log(history[-1 - _LOOK_BACK] / history[-1]) / _LOOK_BACK
    return np.log(history[-1] / TOLERANCE) > HESSIAN_COST * fall_per_step


def _search(
    problem: NodeProblem, margins: Array, g: Array, direction: Array, f: Array, linear: Array, ridge: float
) -> tuple[Array, Array, Array]:
    """Lengths at which the slopes along the directions have nearly vanished; the margins there, and the records' L'.

    The slope along p is (C/B) sum_n L'_n (X p)_n + (ridge f + linear).p + t ridge p.p. The objective is convex: the slope
    rises along the line and has one zero, which secants close in on.
    """
    along = problem.margins(direction)
    tilt, bend = np.vecdot(ridge * f + linear, direction), ridge * np.vecdot(direction, direction)
    enough = -_FLAT * np.vecdot(g, direction)
    length = np.ones(len(f))
    low, slope_low = np.zeros(len(f)), np.vecdot(g, direction)
    high, slope_high = np.full(len(f), np.inf), np.full(len(f), np.inf)
    at = margins + along
    for _ in range(_TRIALS):
        slopes = problem.loss.first(at)
        here = problem.weight * np.vecdot(slopes, along) + tilt + length * bend
        steep = np.abs(here) > enough  # neither flat enough nor not a number, which the caller sees
        if not steep.any():
            break
        short, far = steep & (here < 0.0), steep & (here > 0.0)
        low[short], slope_low[short] = length[short], here[short]
        high[far], slope_high[far] = length[far], here[far]
        share = np.clip(slope_low / (slope_low - slope_high), 0.1, 0.9)
        closer = np.where(high < np.inf, low + share * (high - low), 3.0 * length)
        length = np.where(steep, closer, length)
        at = margins + length[:, None] * along
    else:
        slopes = problem.loss.first(at)
    return length, at, slopes


def _norms(a: Array) -> Array:
    return np.sqrt(np.vecdot(a, a))
