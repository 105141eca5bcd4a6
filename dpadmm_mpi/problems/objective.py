"""One node's objective O_i (docs/mathematics.md, section 1) and the exact argmin of it plus linear and quadratic terms."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from dpadmm_mpi.problems.losses import Loss
from dpadmm_mpi.problems.newton import TOLERANCE, Point, conjugate_gradients, minimise
from dpadmm_mpi.problems.regularisers import SmoothRegulariser
from dpadmm_mpi.types import Array, CsrMatrix, Matrix

DENSE_HESSIAN = 2000  # features up to which a d x d Hessian is formed and factorised
IN_CACHE = 1 << 19  # numbers of a shard, up to which it stays in the processor's cache from one pass to the next
BLOCK = 1 << 17  # numbers of a larger one, that both passes of a step are over before the next ones are fetched
FEW = 3  # vectors that are multiplied with the records faster one by one than together
LONG = 64  # features from which numpy fetches a record in one go, and three times as fast as BLAS fetches several
ALL = slice(None)
HESSIAN_ROWS = 1024  # weighted at a time: the copy stays in the processor's cache, and a shard is in memory once

# Round-off in a mean over records weighted with C: a gradient whose terms are all below this share of C is noise.
SCALE_FLOOR = 1e-5


class MarginStep(NamedTuple):
    """Where margins come to along some directions."""

    change: Array  # what a whole step adds to the margins
    margins: Array  # after it
    sums: Array  # sum_n L'_n y_n x_n there


class NodeProblem:
    """O_i(f) = (C/B_i) sum_n L(z_n) + (rho/N) R(f), R(f) = ||f||^2 / 2 unless another regulariser is given.

    z_n, here and in the solvers called margin, is y_n f.x_n, or with `targets` the residual f.x_n - y_n; softmax.py has more
    than one for each record. Rows of f, of margins and of what is summed belong together: a row for each of several points.
    """

    def __init__(
        self,
        signed: Matrix,
        loss: Loss,
        C: float,
        ridge: float,
        regulariser: SmoothRegulariser | None = None,
        tolerance: float | None = None,
        targets: Array | None = None,
    ) -> None:
        self.signed = signed
        self.targets = targets
        self.loss = loss
        self.C = C
        self.weight = C / signed.shape[0]  # of one record
        self.ridge = ridge  # rho/N
        self.regulariser = None if regulariser is None or regulariser.is_ridge else regulariser  # None: the ridge alone
        self.tolerance = tolerance  # norm of the gradient at which a solve ends; None: it is exact, relative to the terms

    @property
    def scales(self) -> tuple[float, float]:
        """The smallest and the largest number that gradients are relative to; with a tolerance of its own it is fixed, so that
        a residual of TOLERANCE means a gradient of that norm.
        """
        return (SCALE_FLOOR * self.C, np.inf) if self.tolerance is None else (self.tolerance / TOLERANCE,) * 2

    @property
    def signed(self) -> Matrix:
        """The rows y_n x_n, dense or CSR; x_n where there are `targets`."""
        return self._signed

    @signed.setter
    def signed(self, rows: Matrix) -> None:
        self._signed = rows
        self._blocks = _blocks(rows)

    @property
    def stays_in_cache(self) -> bool:
        return len(self._blocks) == 1

    @property
    def transposed(self) -> Matrix:
        """Of `signed`, if it stays in the cache."""
        return self._blocks[0].transposed

    @property
    def records(self) -> int:
        return int(self.signed.shape[0])

    @property
    def outputs(self) -> int:
        """Margins of one record."""
        return 1

    @property
    def features(self) -> int:
        """Numbers in f."""
        return int(self.signed.shape[1]) * self.outputs

    @property
    def numbers(self) -> int:
        """That are stored."""
        return _numbers(self.signed)

    def with_records(self, signed: Matrix, targets: Array | None) -> "NodeProblem":
        """The same with other records, each of which weighs as much as before."""
        C = self.weight * signed.shape[0]
        return type(self)(signed, self.loss, C, self.ridge, self.regulariser, self.tolerance, targets)

    def products(self, f: Array) -> Array:
        """What f adds to the margins of all records: f.x_n, with the sign of y_n where there are no targets."""
        vectors = f.reshape(-1, self.signed.shape[1])
        return _joined([block.margins(vectors) for block in self._blocks]).reshape(len(f), -1)

    def margins(self, f: Array) -> Array:
        """Of all records."""
        products = self.products(f)
        return products if self.targets is None else products - self.targets

    def zero_margins(self, count: int) -> Array:
        """Those of `count` rows of zeros."""
        B = self.signed.shape[0]
        # Laid out in memory as the products with the records are.
        dense = isinstance(self.signed, np.ndarray) or count <= FEW
        zeros = np.zeros((count, B)) if dense else np.zeros((B, count)).T
        return zeros if self.targets is None else zeros - self.targets

    def losses(self, margins: Array) -> Array:
        """L of every record."""
        return self.loss.value(margins)

    def slopes(self, margins: Array, part: slice = ALL) -> Array:
        """L' at the margins of some records, one for each margin."""
        return self.loss.first(margins)

    def bends(self, margins: Array) -> Array:
        """The mean of L'' in every row, roughly: over no more than a thousand records or two."""
        return np.asarray(np.mean(self.loss.second(margins[:, self._sample]), axis=-1))

    @property
    def _sample(self) -> slice:
        return slice(None, None, max(1, self.records // 1000))

    def weighted_sums(self, weights: Array) -> Array:
        """sum_n weight_n y_n x_n, with a weight for each margin."""
        weights = weights.reshape(-1, self.signed.shape[0])
        rows = len(weights) // self.outputs
        return np.asarray(sum(block.weighted_sums(weights[:, block.part]) for block in self._blocks)).reshape(rows, -1)

    def step(self, margins: Array, directions: Array) -> MarginStep:
        """A whole step along every row of `directions`; the records come from the memory once, not twice."""
        B, d = self.signed.shape
        before, vectors = margins.reshape(-1, B), directions.reshape(-1, d)
        changes, after, sums = list[Array](), list[Array](), np.zeros_like(vectors)
        for block in self._blocks:
            changes.append(block.margins(vectors))
            after.append(before[:, block.part] + changes[-1])
            sums += block.weighted_sums(self.slopes(after[-1], block.part))
        change, moved = _joined(changes).reshape(margins.shape), _joined(after).reshape(margins.shape)
        return MarginStep(change, moved, sums.reshape(directions.shape))

    def at(self, f: Array) -> MarginStep:
        """A step from zero to every row of f."""
        return self.step(self.zero_margins(len(f)), f)

    def mean_losses(self, f: Array) -> Array:
        """The mean loss at every row of f."""
        return np.asarray(np.mean(self.losses(self.margins(f)), axis=-1))

    def value(self, f: Array) -> float:
        return self.C * float(self.mean_losses(f[None])[0]) + 0.5 * self.ridge * float(f @ f) + self.rest(f)

    def rest(self, f: Array) -> float:
        """(rho/N) times what R has beside ||f||^2 / 2."""
        return 0.0 if self.regulariser is None else self.ridge * float(self.regulariser.rest(f))

    def rest_gradient(self, f: Array) -> Array:
        return np.zeros_like(f) if self.regulariser is None else self.ridge * self.regulariser.rest_gradient(f)

    def rest_curvature(self, f: Array) -> Array:
        """The diagonal of its Hessian."""
        return np.zeros_like(f) if self.regulariser is None else self.ridge * self.regulariser.rest_curvature(f)

    def data_gradient(self, margins: Array) -> Array:
        return self.weight * self.weighted_sums(self.slopes(margins[None]))[0]

    def hessian(self, margins: Array, ridge: float) -> Array:
        """(C/B) sum_n L''_n x_n x_n' + ridge I, dense."""
        H = self.gram(self.weight * self.loss.second(margins))
        H.flat[:: len(H) + 1] += ridge
        return np.asarray(H)

    def curvatures(self, margins: Array) -> Array:
        """Hessians of the loss in the outputs of each record, (records, outputs, outputs)."""
        return self.loss.second(margins)[:, None, None]

    def gram(self, w: Array) -> Array:
        """sum_n w_n x_n x_n' for weights that are not negative, dense."""
        if isinstance(self.signed, np.ndarray):
            d = self.signed.shape[1]
            H = np.zeros((d, d))
            for first in range(0, len(w), HESSIAN_ROWS):
                rows = slice(first, first + HESSIAN_ROWS)
                weighted = np.sqrt(w[rows, None]) * self.signed[rows]
                H += weighted.T @ weighted  # numpy sees that it is symmetric, and does half of it
            return H
        scaled = self.signed.copy()
        scaled.data *= np.repeat(w, np.diff(scaled.indptr))
        return np.asarray((self.signed.T @ scaled).toarray())

    def hessian_product(self, margins: Array, v: Array, ridge: float) -> Array:
        w = self.weight * self.loss.second(margins)
        return self.weighted_sums(w * self.products(v[None]))[0] + ridge * v

    def hessian_diagonal(self, margins: Array, ridge: float) -> Array:
        return self.weighted_squares(self.weight * self.loss.second(margins)) + ridge

    def weighted_squares(self, w: Array) -> Array:
        """sum_n w_n x_n^2"""
        if isinstance(self.signed, np.ndarray):
            return np.einsum("ni,ni,n->i", self.signed, self.signed, w)
        return np.asarray(self.signed.multiply(self.signed).T @ w)

    def curvature_bounds(self) -> Array:
        """What no diagonal of the data's Hessian exceeds: (C/B) c1 sum_n x_n^2."""
        squares = self.signed**2 if isinstance(self.signed, np.ndarray) else self.signed.multiply(self.signed)
        return np.asarray(self.weight * self.loss.curvature_bound * squares.sum(axis=0), dtype=np.float64).ravel()

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
        margins = problem.margins(f[None])[0]
        terms: tuple[float, ...] = (
            problem.weight * float(np.sum(problem.losses(margins))),
            0.5 * self.ridge * float(f @ f),
            float(self.linear @ f),
        )
        parts: tuple[Array, ...] = (problem.data_gradient(margins), self.ridge * f, self.linear)
        gradient = parts[0] + parts[1] + parts[2]
        if problem.regulariser is not None:
            terms, parts = (*terms, problem.rest(f)), (*parts, problem.rest_gradient(f))
            gradient = gradient + parts[3]
        return Point(
            f=f,
            value=sum(terms),
            gradient=gradient,
            scale=float(np.clip(sum(float(np.linalg.norm(part)) for part in parts), *problem.scales)),
            magnitude=sum(map(abs, terms)),
            margins=margins,
        )

    def direction(self, point: Point) -> Array:
        problem, margins = self.problem, point.margins
        rest = problem.rest_curvature(point.f)
        if problem.features <= DENSE_HESSIAN:
            H = problem.hessian(margins, self.ridge)
            H.flat[:: len(H) + 1] += rest
            return np.asarray(np.linalg.solve(H, -point.gradient), dtype=np.float64)
        return conjugate_gradients(
            lambda v: problem.hessian_product(margins, v, self.ridge) + rest * v,
            problem.hessian_diagonal(margins, self.ridge) + rest,
            point,
        )


class _Block(NamedTuple):
    """Some of a node's records: views, not copies."""

    part: slice
    rows: Matrix
    transposed: Matrix  # scipy takes longer to transpose than numpy for a small product
    fetch: bool  # dense, and not in the cache

    def margins(self, f: Array) -> Array:
        if isinstance(self.rows, np.ndarray) and self.fetch:
            first = np.vecdot(self.rows, f[0])[None]
            return first if len(f) == 1 else np.concatenate([first, f[1:] @ self.rows.T])
        if len(f) <= FEW:
            return _one_by_one(self.rows, f)
        return f @ self.rows.T if isinstance(self.rows, np.ndarray) else np.asarray((self.rows @ f.T).T)

    def weighted_sums(self, weights: Array) -> Array:
        if len(weights) <= FEW:
            return _one_by_one(self.transposed, weights)
        return weights @ self.rows if isinstance(self.rows, np.ndarray) else np.asarray((self.transposed @ weights.T).T)


def _joined(parts: list[Array]) -> Array:
    return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)


def _one_by_one(matrix: Matrix, vectors: Array) -> Array:
    if len(vectors) == 1:
        return np.asarray((matrix @ vectors[0])[None])
    return np.stack([matrix @ vector for vector in vectors])


def _numbers(rows: Matrix) -> int:
    return int(rows.size if isinstance(rows, np.ndarray) else rows.nnz)


def _blocks(rows: Matrix) -> list[_Block]:
    B, d = rows.shape
    dense, numbers = isinstance(rows, np.ndarray), _numbers(rows)
    if numbers <= IN_CACHE:
        return [_Block(slice(0, B), rows, rows.T, fetch=False)]
    count = max(1, B * BLOCK // numbers)
    blocks = []
    for first in range(0, B, count):
        part = slice(first, min(first + count, B))
        some = rows[part] if isinstance(rows, np.ndarray) else _csr_rows(rows, part)
        blocks.append(_Block(part, some, some.T, fetch=dense and d >= LONG))
    return blocks


def _csr_rows(rows: CsrMatrix, part: slice) -> CsrMatrix:
    entries = slice(rows.indptr[part.start], rows.indptr[part.stop])
    content = (rows.data[entries], rows.indices[entries], rows.indptr[part.start : part.stop + 1] - entries.start)
    made: CsrMatrix = type(rows)(content, shape=(part.stop - part.start, rows.shape[1]))  # type: ignore[call-arg]  # scipy's
    return made
