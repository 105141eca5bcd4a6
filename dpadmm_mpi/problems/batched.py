"""Many small nodes at once, on stacks of shards: a few steps by gradients alone, then the damped Newton method of newton.py.

numpy works through a stack matrix by matrix, and sums along the last axis row by row: a node's numbers are the same
whichever nodes are in the stack with it. Whether a node is small, and how its shard is padded, follows from its own shape.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dpadmm_mpi.problems.losses import Loss
from dpadmm_mpi.problems.newton import ARMIJO, ITERATIONS, ROUND_OFF, TOLERANCE, norms
from dpadmm_mpi.problems.objective import NodeProblem
from dpadmm_mpi.problems.quasi_newton import corrections
from dpadmm_mpi.problems.strategies import gradients_pay, nodes_in_a_chunk
from dpadmm_mpi.types import Array, Bools, Ints, Matrix

STEPS = 16  # by gradients, after which the damped Newton method takes over
_ROWS = 8  # shards are padded with rows of zeros to a multiple of this


def padded_rows(signed: Matrix) -> int:
    return int(-(-signed.shape[0] // _ROWS) * _ROWS)


class _Points(NamedTuple):
    """The objectives of some nodes, each at its f; the fields of newton.Point, one row per node."""

    f: Array
    margins: Array
    gradient: Array
    residual: Array  # inf where numbers have overflowed
    value: Array
    magnitude: Array

    def at(self, rows: Ints) -> "_Points":
        return _Points(*(field[rows] for field in self))

    def put(self, rows: Ints, points: "_Points") -> None:
        for field, values in zip(self, points, strict=True):
            field[rows] = values


class Batch:
    """Small nodes with one padded shape and one loss. Their shards move into the stack; the problems keep views of it."""

    def __init__(self, problems: Sequence[NodeProblem]) -> None:
        first = problems[0]
        self.loss = first.loss
        self.signed = np.zeros((len(problems), padded_rows(first.signed), first.features))
        self.weight = np.zeros(self.signed.shape[:2])  # C/B of a record, 0 of padding
        self.targets = np.zeros(self.signed.shape[:2] if first.targets is not None else (len(problems), 1))
        for k, problem in enumerate(problems):
            view = self.signed[k, : problem.signed.shape[0]]
            view[...] = problem.signed if isinstance(problem.signed, np.ndarray) else problem.signed.toarray()
            problem.signed = view
            self.weight[k, : len(view)] = problem.weight
            if problem.targets is not None:
                self.targets[k, : len(view)] = problem.targets
        self.C = np.array([problem.C for problem in problems])
        self.scales = np.array([problem.scales for problem in problems])
        self.ridge = np.array([problem.ridge for problem in problems])

    def _chunks(self) -> list[slice]:
        nodes, B, d = self.signed.shape
        size = int(nodes_in_a_chunk(B, d))
        return [slice(first, min(first + size, nodes)) for first in range(0, nodes, size)]

    def mean_losses(self, primals: Array) -> Array:
        """(runs, nodes)"""
        means = np.empty(primals.shape[:-1])
        for chunk in self._chunks():
            for run, f in enumerate(primals[:, chunk]):
                values = self.loss.value(_times(self.signed[chunk], f) - self.targets[chunk])
                means[run, chunk] = np.sum(self.weight[chunk] * values, axis=-1) / self.C[chunk]
        return means

    def data_gradients(self, points: Array) -> Array:
        """(C/B_i) sum_n L'_n x_n, (runs, nodes, d)"""
        sums = np.empty_like(points)
        for chunk in self._chunks():
            signed, weight = self.signed[chunk], self.weight[chunk]
            for run, f in enumerate(points[:, chunk]):
                slopes = weight * self.loss.first(_times(signed, f) - self.targets[chunk])
                sums[run, chunk] = (slopes[:, None, :] @ signed)[:, 0, :]
        return sums

    def argmins(self, linear: Array, quadratic: Array, start: Array, active: Bools) -> tuple[Array, Array]:
        """argmin_f O_i(f) + linear_i.f + (quadratic_i/2) ||f||^2 of every active node and run, and the relative residuals.

        All are (runs, nodes, ...).
        """
        found, residuals = start.copy(), np.full(start.shape[:-1], np.nan)
        for chunk in self._chunks():
            for run, here in enumerate(active[:, chunk]):
                some = chunk if here.all() else np.arange(chunk.start, chunk.stop)[here]
                records = self.signed[some], self.targets[some], self.weight[some]
                ridge = (self.ridge + quadratic[run])[some]
                stack = Tilted(self.loss, *records, self.scales[some], linear[run, some], ridge)
                found[run, some], residuals[run, some] = stack.argmins(start[run, some])
        return found, residuals


class Tilted(NamedTuple):
    """The objectives of some nodes with their linear and quadratic terms; `ridge` holds both quadratic terms."""

    loss: Loss
    signed: Array
    targets: Array  # what residuals are from; 0 for margins
    weight: Array
    scales: Array  # (nodes, 2)
    linear: Array
    ridge: Array

    def at(self, rows: Ints) -> "Tilted":
        if len(rows) == len(self.ridge):
            return self
        return Tilted(self.loss, *(field[rows] for field in self[1:]))

    def argmins(self, start: Array) -> tuple[Array, Array]:
        """Of every node, and the relative residuals."""
        # Overflow ends in an infinite residual; a solve at its end may have a residual of 0.
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            if not gradients_pay(*self.signed.shape[1:]):
                return self._damped(start)
            found, residuals = _descend(self, start)
            left = np.flatnonzero(~(residuals <= TOLERANCE))
            if len(left):
                near = np.where((residuals[left] < np.inf)[:, None], found[left], start[left])
                found[left], residuals[left] = self.at(left)._damped(near)
        return found, residuals

    def _damped(self, start: Array) -> tuple[Array, Array]:
        """The same by the damped Newton method."""
        points = self.evaluate(start)
        active = np.arange(len(start))
        for _ in range(ITERATIONS):
            residual = points.residual[active]
            active = active[(residual > TOLERANCE) & (residual < np.inf)]
            if not len(active):
                break
            active = _line_search(self.at(active), points, active)
        return points.f, points.residual

    def gradients(self, f: Array) -> tuple[Array, Array, Array]:
        """Margins, gradients, and their norms relative to those of their terms: nan or inf where numbers have overflowed."""
        margins = _times(self.signed, f)
        margins -= self.targets
        slopes = self.loss.first(margins)
        slopes *= self.weight
        gradient = (slopes[:, None, :] @ self.signed)[:, 0, :]
        scale = norms(gradient) + norms(self.linear)
        pull = self.ridge[:, None] * f
        scale += norms(pull)
        gradient += pull
        gradient += self.linear
        scale = np.minimum(np.maximum(scale, self.scales[:, 0]), self.scales[:, 1])
        return margins, gradient, np.where(scale < np.inf, norms(gradient) / scale, np.nan)

    def evaluate(self, f: Array) -> _Points:
        margins, gradient, residual = self.gradients(f)
        terms = (
            np.sum(self.weight * self.loss.value(margins), axis=-1),
            0.5 * self.ridge * np.vecdot(f, f),
            np.vecdot(self.linear, f),
        )
        value, magnitude = terms[0] + terms[1] + terms[2], np.abs(terms[0]) + np.abs(terms[1]) + np.abs(terms[2])
        overflown = ~((residual < np.inf) & np.isfinite(value))
        return _Points(f.copy(), margins, gradient, np.where(overflown, np.inf, residual), value, magnitude)

    def directions(self, points: _Points) -> Array:
        w = self.weight * self.loss.second(points.margins)
        H = self.signed.swapaxes(1, 2) @ (w[:, :, None] * self.signed)
        diagonal = np.arange(H.shape[1])
        H[:, diagonal, diagonal] += self.ridge[:, None]
        return np.asarray(np.linalg.solve(H, -points.gradient[:, :, None])[:, :, 0])

    def curvatures_along(self, v: Array, margins: Array) -> Array:
        """v'H v / v'v at points with these margins, (nodes, 1)."""
        along = _times(self.signed, v)
        along *= along
        w = self.weight * self.loss.second(margins)
        return np.asarray((self.ridge + np.vecdot(w, along) / np.vecdot(v, v))[:, None])


def _descend(tilted: Tilted, start: Array) -> tuple[Array, Array]:
    """BFGS by whole steps, without a Hessian or a value: where the solves have come to, and the relative residuals there.

    The quadratic term of a data step makes most objectives so round that seven gradients are enough, the price of one step of
    Newton's method. A solve leaves when it falls behind the pace at which `STEPS` of them would do.
    """
    found, residuals = start.copy(), np.empty(len(start))
    here, f = np.arange(len(start)), start
    margins, gradient, residual = tilted.gradients(f)
    curvature = tilted.curvatures_along(gradient, margins)
    ascent = gradient / curvature
    before, step = gradient, ascent  # of the step that has led here
    pairs = np.empty((len(start), 2 * STEPS, start.shape[1]))  # p, z, p, z, ...
    bound, pace = residual, (TOLERANCE / residual) ** (1.0 / STEPS)
    under_way = residual < np.inf
    for steps in range(STEPS):
        under_way = under_way & (residual > TOLERANCE) & (residual <= bound)
        left = np.count_nonzero(under_way)
        if 2 * left <= len(here):  # otherwise those that have left cost less than their neighbours' move
            found[here], residuals[here] = f, residual
            if not left:
                return found, residuals
            stay = np.flatnonzero(under_way)
            tilted, here, under_way = tilted.at(stay), here[stay], under_way[stay]
            f, gradient, before, step, ascent = f[stay], gradient[stay], before[stay], step[stay], ascent[stay]
            curvature, pairs, bound, pace = curvature[stay], pairs[stay], bound[stay], pace[stay]
        if steps > 0:
            # The inverse Hessian H becomes H - (p z' + z p'), as in quasi_newton.py.
            product = gradient / curvature
            if steps > 1:
                product -= corrections(pairs[:, : 2 * steps - 2], gradient)
            y, u = gradient - before, product - ascent  # u = H y
            sy = np.vecdot(step, y)
            weight = np.where(sy > 0.0, 1.0 / sy, 0.0)[:, None]  # 0: round-off, or the solve has left
            root = np.sqrt(weight)
            p = root * step
            z = root * u - 0.5 * (1.0 + weight * np.vecdot(y, u)[:, None]) * p
            pairs[:, 2 * steps - 2], pairs[:, 2 * steps - 1] = p, z
            ascent = product - (np.vecdot(z, gradient)[:, None] * p + np.vecdot(p, gradient)[:, None] * z)
        step = np.where(under_way[:, None], -ascent, 0.0)
        f, before = f + step, gradient
        _, gradient, residual = tilted.gradients(f)
        bound = bound * pace
    found[here], residuals[here] = f, residual
    return found, residuals


def _line_search(tilted: Tilted, points: _Points, active: Ints) -> Ints:
    """One Newton step of the active nodes, each halved until the value falls; the nodes that moved."""
    here = points.at(active)
    directions = tilted.directions(here)
    slope = np.vecdot(here.gradient, directions)
    moved = np.zeros(len(active), dtype=bool)
    length = 1.0
    while length > 1e-12 and not moved.all():
        rows = np.flatnonzero(~moved)
        trial = tilted.at(rows).evaluate(here.f[rows] + length * directions[rows])
        bound = here.value[rows] + ARMIJO * length * slope[rows] + ROUND_OFF * here.magnitude[rows]
        lower = trial.value <= bound
        points.put(active[rows[lower]], trial.at(np.flatnonzero(lower)))
        moved[rows[lower]] = True
        length /= 2.0
    return active[moved]


def _times(signed: Array, f: Array) -> Array:
    return np.asarray((signed @ f[:, :, None])[:, :, 0])
