"""The exact argmin at a node with many records, in a dozen passes over them and without a Hessian of its own.

A node keeps one factorised Hessian, that of O_i near its own minimum: a function of its records alone, so that a solve
depends on its arguments and on nothing that went before, on every layout and after every restart. Q diag(lambda) Q' makes any
quadratic term free: (H + mu I)^-1 g takes two products with Q. BFGS pairs correct for the distance between the two points.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpadmm_mpi.newton import TOLERANCE, minimise
from dpadmm_mpi.problem import NodeProblem, Solution, Tilted, gradient_scale, norm

Array = NDArray[np.float64]
Product = Callable[[Array], Array]

EVALUATIONS = 60  # more than this, and the damped Newton method takes over
HESSIAN_COST = 20  # evaluations that a Hessian at the current point costs, roughly, and about what is left after it
_ROUGH_EVALUATIONS = 12  # a Hessian near the minimum is as good as one at it
_LOOK_BACK = 4  # steps over which the rate of convergence is measured
_FLAT = 0.1  # a step along a direction is long enough when the slope has fallen to this share
_TRIALS = 30


class Reference(NamedTuple):
    """The Hessian of O_i's mean loss near O_i's minimum, Q diag(curvatures) Q'."""

    Q: Array
    curvatures: Array

    def inverse(self, ridge: float) -> Product:
        scale = 1.0 / (self.curvatures + ridge)
        return lambda g: np.asarray(self.Q @ (scale * (self.Q.T @ g)))


def reference(problem: NodeProblem) -> Reference:
    """The Hessian at the end of a short descent from zero, which starts with the diagonal there."""
    zero = np.zeros(problem.features)
    margins = np.zeros(problem.signed.shape[0])
    with np.errstate(over="ignore", invalid="ignore"):
        diagonal = problem.hessian_diagonal(margins, problem.ridge)
        near = _descend(problem, lambda g: g / diagonal, zero, problem.ridge, zero, roughly=True)
        if near.residual < np.inf:
            margins = np.asarray(problem.signed @ near.f)
        curvatures, Q = np.linalg.eigh(problem.hessian(margins, 0.0))
    return Reference(Q, np.maximum(curvatures, 0.0))


def argmin(problem: NodeProblem, kept: Reference, linear: Array, quadratic: float, start: Array) -> Solution:
    """argmin_f O_i(f) + linear.f + (quadratic/2) ||f||^2"""
    with np.errstate(over="ignore", invalid="ignore"):  # overflow ends in the damped method, and there in a residual
        found = _descend(problem, kept.inverse(problem.ridge + quadratic), linear, problem.ridge + quadratic, start)
    if found.residual <= TOLERANCE:
        return found
    point = minimise(Tilted(problem, linear, problem.ridge + quadratic), found.f if found.residual < np.inf else start)
    return Solution(point.f, point.residual)


def _descend(
    problem: NodeProblem, inverse: Product, linear: Array, ridge: float, start: Array, roughly: bool = False
) -> Solution:
    """BFGS from an inverse Hessian; where it pays, and a rough solution will not do, one at the current point replaces it."""
    signed, first, weight = problem.signed, problem.loss.first, problem.weight
    transposed = signed.T
    f, margins = start, np.asarray(signed @ start)
    slopes = first(margins)
    pairs: list[tuple[Array, Array, float]] = []
    residuals: list[float] = []  # since the Hessian was taken
    g_before = s = np.zeros_like(f)
    for _ in range(_ROUGH_EVALUATIONS if roughly else EVALUATIONS):
        data = weight * (transposed @ slopes)
        g = data + ridge * f + linear
        scale = gradient_scale(problem, data, ridge * f, linear)
        residual = norm(g) / scale if scale < np.inf else np.nan
        if not residual > TOLERANCE:  # found, or no longer a number
            break
        residuals.append(residual)
        if len(residuals) > 1:
            y = g - g_before
            if (sy := float(s @ y)) > 0.0:  # by convexity, but for round-off
                pairs.append((s, y, sy))
        if not roughly and _is_slow(residuals):
            H = np.linalg.inv(problem.hessian(margins, ridge))
            inverse, pairs, residuals = H.__matmul__, [], [residual]
        direction = -_bfgs(inverse, pairs, g)
        line = _Line(problem, margins, np.asarray(signed @ direction), float((ridge * f + linear) @ direction),
                     ridge * float(direction @ direction))  # fmt: skip
        length, slopes = line.search(float(g @ direction))
        s, g_before = length * direction, g
        f, margins = f + s, margins + length * line.along
    return Solution(f, residual)


def _is_slow(residuals: list[float]) -> bool:
    """Whether a Hessian here costs less than the evaluations that are left at the present rate."""
    if len(residuals) <= _LOOK_BACK:
        return False
    fall_per_step = np.log(residuals[-1 - _LOOK_BACK] / residuals[-1]) / _LOOK_BACK
    return bool(np.log(residuals[-1] / TOLERANCE) > HESSIAN_COST * fall_per_step)


def _bfgs(inverse: Product, pairs: list[tuple[Array, Array, float]], g: Array) -> Array:
    """The inverse Hessian, corrected by the pairs (step, change of the gradient), times g: the two-loop recursion."""
    q = g
    coefficients = []
    for s, y, sy in reversed(pairs):
        a = float(s @ q) / sy
        coefficients.append(a)
        q = q - a * y
    q = inverse(q)
    for (s, y, sy), a in zip(pairs, reversed(coefficients), strict=True):
        q = q + (a - float(y @ q) / sy) * s
    return q


class _Line(NamedTuple):
    """The objective along a direction p: its slope is (C/B) sum_n L'_n (X p)_n + (ridge f + linear).p + t ridge p.p."""

    problem: NodeProblem
    margins: Array
    along: Array  # X p
    tilt: float  # (ridge f + linear).p
    bend: float  # ridge p.p

    def search(self, slope: float) -> tuple[float, Array]:
        """A length at which the slope has nearly vanished from `slope` at 0, and the records' L' there.

        The objective is convex: the slope rises along the line and has one zero, which secants close in on.
        """
        first, weight = self.problem.loss.first, self.problem.weight
        low, slope_low, high, slope_high = 0.0, slope, np.inf, np.inf
        length = 1.0
        for _ in range(_TRIALS):
            slopes = first(self.margins + length * self.along)
            here = weight * float(slopes @ self.along) + self.tilt + length * self.bend
            if not abs(here) > -_FLAT * slope:  # flat enough, or not a number, which the caller sees
                break
            if here < 0.0:
                low, slope_low = length, here
            else:
                high, slope_high = length, here
            if high == np.inf:
                length *= 3.0
            else:
                share = slope_low / (slope_low - slope_high)
                length = low + min(max(share, 0.1), 0.9) * (high - low)
        return length, slopes
