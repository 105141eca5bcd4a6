"""One node's objective O_i (docs/mathematics.md, section 1) and the exact argmin of it plus linear and quadratic terms."""

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from dpadmm_mpi.problems.losses import Loss
from dpadmm_mpi.problems.newton import TOLERANCE, Point, conjugate_gradients, minimise
from dpadmm_mpi.problems.pair_products import PairProducts, dense_grams, pair_products
from dpadmm_mpi.problems.records import Records, as_records, blocks, without_zeros
from dpadmm_mpi.problems.regularisers import SmoothRegulariser
from dpadmm_mpi.types import Array, Matrix

DENSE_HESSIAN = 2000  # features up to which a d x d Hessian is formed and factorised
ALL = slice(None)

# Round-off in a mean over records weighted with C: a gradient whose terms are all below this share of C is noise.
SCALE_FLOOR = 1e-5


class Evaluation(NamedTuple):
    """Of the losses of all records at some points."""

    margins: Array
    sums: Array  # sum_n L'_n y_n x_n


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
        return self.rows.matrix() if self._given is None else self._given

    @signed.setter
    def signed(self, rows: Matrix) -> None:
        self._given: Matrix | None = rows
        self._forget_division()

    def leave_out_zeros(self) -> None:
        """Store the records without their zeros, in another order, where that is smaller and faster."""
        found = without_zeros(self.signed)
        if found is None:
            return
        self._given = None
        self._forget_division()
        self.rows = found.records
        if self.targets is not None:
            self.targets = self.targets[found.order]

    @cached_property
    def rows(self) -> Records:
        """For products; made when somebody multiplies, for small nodes are solved in batches of their own."""
        assert self._given is not None
        return as_records(self._given)

    @cached_property
    def _blocks(self) -> Sequence[tuple[slice, Records]]:
        return blocks(self.rows)

    def _forget_division(self) -> None:
        for name in ("rows", "_blocks", "_pair_products", "in_single"):
            vars(self).pop(name, None)

    @property
    def _shape(self) -> tuple[int, int]:
        shape: tuple[int, int] = self.rows.shape if self._given is None else self._given.shape
        return shape

    @cached_property
    def in_single(self) -> "NodeProblem":
        """The same objective in single precision, for the evaluations of a solve that is not yet near its end."""
        rough = copy(self)
        rough._forget_division()
        rough.rows = self.rows.in_single()
        if self.targets is not None:
            rough.targets = self.targets.astype(np.float32)
        return rough

    @property
    def stays_in_cache(self) -> bool:
        return len(self._blocks) == 1

    @property
    def records(self) -> int:
        return self._shape[0]

    @property
    def outputs(self) -> int:
        """Margins of one record."""
        return 1

    @property
    def features(self) -> int:
        """Numbers in f."""
        return self._shape[1] * self.outputs

    @property
    def numbers(self) -> int:
        """That are stored."""
        return self.rows.numbers

    def with_records(self, signed: Matrix, targets: Array | None) -> "NodeProblem":
        """The same with other records, each of which weighs as much as before."""
        C = self.weight * signed.shape[0]
        return type(self)(signed, self.loss, C, self.ridge, self.regulariser, self.tolerance, targets)

    def products(self, f: Array) -> Array:
        """What f adds to the margins of all records: f.x_n, with the sign of y_n where there are no targets."""
        vectors = f.reshape(-1, self.rows.shape[1])
        return _joined([block.products(vectors) for _, block in self._blocks]).reshape(len(f), -1)

    def margins(self, f: Array) -> Array:
        """Of all records."""
        return self.from_products(self.products(f))

    def from_products(self, products: Array, part: slice = ALL) -> Array:
        """The margins of some records."""
        return products if self.targets is None else products - self.targets[part]

    def zero_margins(self) -> Array:
        """Those of f = 0."""
        return self.from_products(np.zeros(self.records * self.outputs))

    def losses(self, margins: Array) -> Array:
        """L of every record."""
        return self.loss.value(margins)

    def slopes(self, margins: Array, part: slice = ALL) -> Array:
        """L' at the margins of some records, one for each margin, in their precision."""
        return self.loss.first(margins).astype(margins.dtype, copy=False)

    def bends(self, margins: Array) -> Array:
        """The mean of L'' in every row, roughly: over no more than a thousand records or two."""
        return np.asarray(np.mean(self.loss.second(margins[:, self._sample]), axis=-1))

    @property
    def _sample(self) -> slice:
        return slice(None, None, max(1, self.records // 1000))

    def weighted_sums(self, weights: Array) -> Array:
        """sum_n weight_n y_n x_n, with a weight for each margin."""
        weights = weights.reshape(-1, self.records)
        rows = len(weights) // self.outputs
        sums = sum(block.weighted_sums(weights[:, part]) for part, block in self._blocks)
        return np.asarray(sums).reshape(rows, -1)

    def at(self, f: Array) -> Evaluation:
        """At every row of f; the records come from the memory once, not twice."""
        vectors = f.reshape(-1, self.rows.shape[1])
        margins, sums = list[Array](), np.zeros_like(vectors)
        for part, block in self._blocks:
            margins.append(self.from_products(block.products(vectors), part))
            sums += block.weighted_sums(self.slopes(margins[-1], part))
        return Evaluation(_joined(margins).reshape(len(f), -1), sums.reshape(f.shape))

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

    def hessians(self, margins: Array) -> Array:
        """The same at many points, (points, features, features), without a ridge."""
        k, d = self.outputs, self.rows.shape[1]
        bends = self.weight * self.curvatures(margins)
        H = np.empty((len(margins), k, d, k, d))
        for a in range(k):
            for b in range(a + 1):
                grams = self._grams(np.ascontiguousarray(bends[..., a, b]))
                if grams is None:
                    return np.stack([self.hessian(each, 0.0) for each in margins])
                H[:, a, :, b] = H[:, b, :, a] = grams
        return H.reshape(len(H), k * d, k * d)

    def _grams(self, weights: Array) -> Array | None:
        """sum_n w_n x_n x_n' for every row of weights; None: each by itself is faster."""
        if self._pair_products is not None:
            return self._pair_products.grams(weights)
        return dense_grams(self.signed, weights) if isinstance(self.signed, np.ndarray) else None

    @cached_property
    def _pair_products(self) -> PairProducts | None:
        return pair_products(self.signed) if isinstance(self.signed, np.ndarray) else None

    def curvatures(self, margins: Array) -> Array:
        """Hessians of the loss in the outputs of each record, (points, records, outputs, outputs)."""
        return self.loss.second(margins)[..., None, None]

    def gram(self, w: Array) -> Array:
        """sum_n w_n x_n x_n' for weights that are not negative, dense."""
        return self.rows.gram(w)

    def hessian_product(self, margins: Array, v: Array, ridge: float) -> Array:
        w = self.weight * self.loss.second(margins)
        return self.weighted_sums(w * self.products(v[None]))[0] + ridge * v

    def hessian_diagonal(self, margins: Array, ridge: float) -> Array:
        return self.weighted_squares(self.weight * self.loss.second(margins)) + ridge

    def weighted_squares(self, w: Array) -> Array:
        """sum_n w_n x_n^2"""
        return self.rows.weighted_squares(w)

    def curvature_bounds(self) -> Array:
        """What no diagonal of the data's Hessian exceeds: (C/B) c1 sum_n x_n^2."""
        return self.weighted_squares(np.full(self.records, self.weight * self.loss.curvature_bound))

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


def _joined(parts: list[Array]) -> Array:
    return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)
