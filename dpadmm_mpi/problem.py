"""One node's objective O_i (SPEC 1) and the exact argmin of it plus a linear and a quadratic term."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpadmm_mpi.losses import Loss
from dpadmm_mpi.newton import Point, conjugate_gradients, minimise

Array = NDArray[np.float64]

DENSE_HESSIAN = 2000  # features up to which a d x d Hessian is formed and factorised
HESSIAN_ROWS = 1024  # weighted at a time: the copy stays in the processor's cache, and a shard is in memory once

# Round-off in a mean over records weighted with C: a gradient whose terms are all below this share of C is noise.
SCALE_FLOOR = 1e-5


class NodeProblem:
    """O_i(f) = (C/B_i) sum_n L(y_n f.x_n) + (rho/N) ||f||^2 / 2"""

    def __init__(self, signed: Any, loss: Loss, C: float, ridge: float) -> None:
        self.signed = signed
        self.loss = loss
        self.C = C
        self.weight = C / signed.shape[0]  # of one record
        self.ridge = ridge  # rho/N

    @property
    def signed(self) -> Any:
        """The rows y_n x_n, dense or CSR."""
        return self._signed

    @signed.setter
    def signed(self, rows: Any) -> None:
        self._signed, self._transposed = rows, rows.T  # scipy takes longer to transpose than numpy for a small product

    @property
    def features(self) -> int:
        return int(self.signed.shape[1])

    def margins(self, f: Array) -> Array:
        """y_n f.x_n of all records, one row for each row of f."""
        if isinstance(self.signed, np.ndarray):
            return f @ self.signed.T
        return np.asarray((self.signed @ f.T).T)

    def weighted_sums(self, weights: Array) -> Array:
        """sum_n weight_n y_n x_n, one row for each row of weights."""
        if isinstance(self.signed, np.ndarray):
            return weights @ self.signed
        return np.asarray((self._transposed @ weights.T).T)

    def mean_losses(self, f: Array) -> Array:
        """The mean loss at every row of f."""
        return np.asarray(np.mean(self.loss.value(self.margins(f)), axis=-1))

    def value(self, f: Array) -> float:
        return self.C * float(self.mean_losses(f[None])[0]) + 0.5 * self.ridge * float(f @ f)

    def data_gradient(self, margins: Array) -> Array:
        return np.asarray(self.weight * (self._transposed @ self.loss.first(margins)))

    def hessian(self, margins: Array, ridge: float) -> Array:
        """(C/B) sum_n L''_n x_n x_n' + ridge I, dense."""
        w = self.weight * self.loss.second(margins)
        if isinstance(self.signed, np.ndarray):
            H = np.zeros((self.features, self.features))
            for first in range(0, len(w), HESSIAN_ROWS):
                rows = slice(first, first + HESSIAN_ROWS)
                H += (self.signed[rows] * w[rows, None]).T @ self.signed[rows]
        else:
            weighted = self.signed.copy()
            weighted.data *= np.repeat(w, np.diff(weighted.indptr))
            H = (self.signed.T @ weighted).toarray()
        H.flat[:: len(H) + 1] += ridge
        return np.asarray(H)

    def hessian_product(self, margins: Array, v: Array, ridge: float) -> Array:
        w = self.weight * self.loss.second(margins)
        return np.asarray(self._transposed @ (w * (self.signed @ v)) + ridge * v)

    def hessian_diagonal(self, margins: Array, ridge: float) -> Array:
        w = self.weight * self.loss.second(margins)
        if isinstance(self.signed, np.ndarray):
            return np.einsum("ni,ni,n->i", self.signed, self.signed, w) + ridge
        return np.asarray(self.signed.multiply(self.signed).T @ w + ridge)

    def curvature_bounds(self) -> Array:
        """What no diagonal of the data's Hessian exceeds: (C/B) c1 sum_n x_n^2."""
        squares = self.signed**2 if isinstance(self.signed, np.ndarray) else self.signed.multiply(self.signed)
        return np.asarray(self.weight * self.loss.c1 * squares.sum(axis=0), dtype=np.float64).ravel()

    def argmin(self, linear: Array, quadratic: float, start: Array) -> Point:
        """argmin_f O_i(f) + linear.f + (quadratic/2) ||f||^2"""
        return minimise(Tilted(self, linear, self.ridge + quadratic), start)


@dataclass(frozen=True)
class Tilted:
    """O_i plus linear and quadratic terms, as the Newton iteration sees it; `ridge` holds both quadratic terms."""

    problem: NodeProblem
    linear: Array
    ridge: float

    def evaluate(self, f: Array) -> Point:
        problem = self.problem
        margins = np.asarray(problem.signed @ f)
        terms = (
            problem.weight * float(np.sum(problem.loss.value(margins))),
            0.5 * self.ridge * float(f @ f),
            float(self.linear @ f),
        )
        parts = (problem.data_gradient(margins), self.ridge * f, self.linear)
        return Point(
            f=f,
            value=sum(terms),
            gradient=parts[0] + parts[1] + parts[2],
            scale=max(sum(float(np.linalg.norm(part)) for part in parts), SCALE_FLOOR * problem.C),
            magnitude=sum(map(abs, terms)),
            margins=margins,
        )

    def direction(self, point: Point) -> Array:
        problem, margins = self.problem, point.margins
        if problem.features <= DENSE_HESSIAN:
            return np.asarray(np.linalg.solve(problem.hessian(margins, self.ridge), -point.gradient), dtype=np.float64)
        return conjugate_gradients(
            lambda v: problem.hessian_product(margins, v, self.ridge),
            problem.hessian_diagonal(margins, self.ridge),
            point,
        )
