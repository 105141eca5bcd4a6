"""Damped Newton for smooth, strongly convex functions, to a relative residual of the gradient.

The direction is the objective's business: a dense factorisation, or conjugate gradients where a d x d Hessian does
not fit. Everything here is a function of one objective's own numbers, so it gives the same bits on every layout.
"""

from collections.abc import Callable
from typing import NamedTuple, Protocol

import numpy as np

from dpadmm_mpi.types import Array

TOLERANCE = 1e-10  # relative residual of an exact argmin (docs/mathematics.md, section 6)
ITERATIONS = 200
ARMIJO = 1e-4
ROUND_OFF = 1e-14  # relative to the sum of the objective's terms: below it a decrease cannot be seen


class Point(NamedTuple):
    """An objective evaluated at f."""

    f: Array
    value: float
    gradient: Array
    scale: float  # of the gradient's terms before they cancel: what the residual is relative to
    magnitude: float  # sum of the absolute terms of the value
    margins: Array  # y f.x of every record, for the Hessian at the same point

    @property
    def residual(self) -> float:
        """Relative to the terms; inf where numbers have overflowed, which is no solution."""
        with np.errstate(over="ignore", invalid="ignore"):
            residual = float(np.linalg.norm(self.gradient)) / self.scale
        return residual if np.isfinite(residual) and np.isfinite(self.scale) and np.isfinite(self.value) else np.inf


class Smooth(Protocol):
    def evaluate(self, f: Array) -> Point: ...

    def direction(self, point: Point) -> Array:
        """The Newton direction, exact or accurate enough for superlinear convergence."""
        ...


def minimise(objective: Smooth, start: Array) -> Point:
    """The argmin, or the best point reached: the caller compares its residual with TOLERANCE."""
    with np.errstate(over="ignore", invalid="ignore"):  # overflow ends in an infinite residual
        point = objective.evaluate(start)
        for _ in range(ITERATIONS):
            if point.residual <= TOLERANCE or point.residual == np.inf:
                break
            step = _line_search(objective, point, objective.direction(point))
            if step is None:
                break
            point = step
    return point


def _line_search(objective: Smooth, point: Point, direction: Array) -> Point | None:
    slope = float(point.gradient @ direction)
    length = 1.0
    while length > 1e-12:
        trial = objective.evaluate(point.f + length * direction)
        if trial.value <= point.value + ARMIJO * length * slope + ROUND_OFF * point.magnitude:
            return trial
        length /= 2.0
    return None


def conjugate_gradients(product: Callable[[Array], Array], diagonal: Array, point: Point) -> Array:
    """-H^-1 gradient by conjugate gradients with the diagonal as preconditioner, as accurately as the residual asks."""
    forcing = min(0.1, point.residual)  # quadratic convergence; 0.1 far from the solution
    x = np.zeros_like(point.gradient)
    r = -point.gradient
    target = forcing * np.linalg.norm(r)
    z = r / diagonal
    p = z
    rz = r @ z
    for _ in range(10 * len(r)):
        if np.linalg.norm(r) <= target:
            break
        Hp = product(p)
        step = rz / (p @ Hp)
        x = x + step * p
        r = r - step * Hp
        z = r / diagonal
        rz, before = r @ z, rz
        p = z + (rz / before) * p
    return x


def norms(rows: Array) -> Array:
    """Of the vectors along the last axis."""
    return np.sqrt(np.vecdot(rows, rows))
