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
Pairs = list[tuple[Array, Array, Array]]  # step, change of the gradient, their product: one row, one number per solve

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
        near = _descend(problem, lambda g: g / diagonal, zero, problem.ridge, zero, roughly=True)
        if near.residual[0] < np.inf:
            margins = problem.margins(near.f)[0]
        curvatures, Q = np.linalg.eigh(problem.hessian(margins, 0.0))
    return Reference(Q, np.maximum(curvatures, 0.0))


def argmin(problem: NodeProblem, kept: Reference, linear: Array, quadratic: float, start: Array) -> Solutions:
    """argmin_f O_i(f) + linear.f + (quadratic/2) ||f||^2 for every row of `linear`, from that row of `start`."""
    ridge = problem.ridge + quadratic
    with np.errstate(over="ignore", invalid="ignore"):  # overflow ends in the damped method, and there in a residual
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
    own_inverse: dict[int, Array] = {}  # of the solves that have taken a Hessian of their own
    pairs: Pairs = []
    history: list[Array] = []  # residuals; nan before a solve has taken its present Hessian
    g_before = s = np.zeros_like(f)
    for _ in range(_ROUGH_EVALUATIONS if roughly else EVALUATIONS):
        data, pull = problem.weight * problem.weighted_sums(slopes), ridge * f
        g = data + pull + linear
        scale = np.maximum(_norms(data) + _norms(pull) + _norms(linear), SCALE_FLOOR * problem.C)
        residual = np.where(scale < np.inf, _norms(g) / scale, np.nan)
        found.f[here], found.residual[here] = f, residual
        under_way = residual > TOLERANCE  # neither found nor no longer a number
        if not under_way.any():
            break
        if history:
            y = g - g_before
            sy = np.vecdot(s, y)
            pairs.append((s, y, np.where(sy > 0.0, sy, np.inf)))  # positive by convexity, but for round-off: inf drops it
        history.append(residual)
        if np.count_nonzero(under_way) <= _CROWDED * len(here):
            stay = np.flatnonzero(under_way)
            here, under_way = here[stay], under_way[stay]
            f, g, linear, margins = f[stay], g[stay], linear[stay], _rows(margins, stay)
            pairs = [(s[stay], y[stay], sy[stay]) for s, y, sy in pairs]
            history = [residuals[stay] for residuals in history]
            own_inverse = {new: own_inverse[old] for new, old in enumerate(stay.tolist()) if old in own_inverse}
        if not roughly:
            for k in np.flatnonzero(under_way & _are_slow(history)).tolist():
                own_inverse[k] = np.asarray(np.linalg.inv(problem.hessian(margins[k], ridge)), dtype=np.float64)
                for _, _, products in pairs:
                    products[k] = np.inf
                for residuals in history[:-1]:
                    residuals[k] = np.nan
        direction = -_bfgs(inverse, own_inverse, pairs, g)
        direction[~under_way] = 0.0
        length, margins, slopes = _search(problem, margins, g, direction, f, linear, ridge)
        s, g_before = length[:, None] * direction, g
        f = f + s
    return found


def _rows(values: Array, which: NDArray[np.int64]) -> Array:
    """Some rows, laid out in memory as all of them are."""
    return values.T[:, which].T if values.flags.f_contiguous else values[which]


def _are_slow(history: list[Array]) -> NDArray[np.bool_]:
    """Whether a Hessian here costs less than the evaluations that are left at the present rate."""
    if len(history) <= _LOOK_BACK:
        return np.zeros(len(history[0]), dtype=bool)
    fall_per_step = np.log(history[-1 - _LOOK_BACK] / history[-1]) / _LOOK_BACK
    return np.log(history[-1] / TOLERANCE) > HESSIAN_COST * fall_per_step


def _bfgs(inverse: Product, own_inverse: dict[int, Array], pairs: Pairs, g: Array) -> Array:
    """The inverse Hessians, corrected by the pairs (step, change of the gradient), times g: the two-loop recursion."""
    q = g
    coefficients = []
    for s, y, sy in reversed(pairs):
        a = np.vecdot(s, q) / sy
        coefficients.append(a)
        q = q - a[:, None] * y
    corrected = inverse(q)
    for k, H in own_inverse.items():
        corrected[k] = H @ q[k]
    for (s, y, sy), a in zip(pairs, reversed(coefficients), strict=True):
        corrected += (a - np.vecdot(y, corrected) / sy)[:, None] * s
    return corrected


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
    return length, at, slopes


def _norms(a: Array) -> Array:
    return np.sqrt(np.vecdot(a, a))
