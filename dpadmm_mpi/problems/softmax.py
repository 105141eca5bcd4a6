"""The objective of softmax regression: a score for each class and record, and a vector for each class.

f is the d x k matrix of the classes' vectors, column after column; the margins are the scores f_c.x_n, class after class. So
the solvers, messages and noises, which know vectors alone, stay as they are.
"""

from functools import cached_property

import numpy as np

from dpadmm_mpi.problems.losses import Loss, Softmax
from dpadmm_mpi.problems.objective import ALL, Evaluation, NodeProblem
from dpadmm_mpi.problems.regularisers import SmoothRegulariser
from dpadmm_mpi.types import Array, Bools, Ints, Matrix


class SoftmaxProblem(NodeProblem):
    """O_i(f) = (C/B_i) sum_n ( log sum_c exp(f_c.x_n) - f_{y_n}.x_n ) + (rho/N) R(f), the targets y_n counted from 0"""

    @property
    def outputs(self) -> int:
        return self.loss.outputs

    @cached_property
    def _labels(self) -> Ints:
        assert self.targets is not None
        return self.targets.astype(np.int64)

    @cached_property
    def _is_class(self) -> Bools:
        """(k, records); a byte each. To subtract all of it takes half as long as to pick the records' own classes."""
        return np.asarray(np.arange(self.outputs)[:, None] == self._labels)

    def leave_out_zeros(self) -> None:
        super().leave_out_zeros()
        for name in ("_labels", "_is_class"):  # the records may have changed their order
            self.__dict__.pop(name, None)

    def _by_class(self, margins: Array, records: int) -> Array:
        """(..., k, records)"""
        return margins.reshape(-1, self.outputs, records)

    def from_products(self, products: Array, part: slice = ALL) -> Array:
        """Class after class: what is summed over the classes is fetched three times as slowly if it lies record by record."""
        return np.ascontiguousarray(products)

    def losses(self, margins: Array) -> Array:
        scores = self._by_class(margins, self.records)
        values = self.loss.value(scores) - scores[:, self._labels, np.arange(self.records)]
        return np.asarray(values if margins.ndim > 1 else values[0])

    def slopes(self, margins: Array, part: slice = ALL) -> Array:
        """p - e_y"""
        own = self._is_class[:, part]
        p = self.loss.first(self._by_class(margins, own.shape[1]))
        p -= own
        return p.reshape(margins.shape)

    def at(self, f: Array) -> Evaluation:
        """Row by row: the scores of all classes in several runs would not stay in the processor's cache."""
        found = [super(SoftmaxProblem, self).at(row[None]) for row in f]
        return found[0] if len(found) == 1 else Evaluation(*(np.concatenate(parts) for parts in zip(*found, strict=True)))

    def products(self, f: Array) -> Array:
        return np.concatenate([super(SoftmaxProblem, self).products(row[None]) for row in f])

    def bends(self, margins: Array) -> Array:
        some = self._by_class(margins, self.records)[:, :, self._sample]
        return np.asarray(self.loss.second(some).mean(axis=(1, 2)))

    def hessian(self, margins: Array, ridge: float) -> Array:
        """(C/B) sum_n (diag p - p p') (x) x_n x_n' + ridge I: a d x d block for every pair of classes.

        The p of a record add up to one, so the blocks in a row add up to zero: those of a class with itself need no product.
        """
        p = self.loss.first(self._by_class(margins, self.records))[0]
        k, d = self.outputs, self.rows.shape[1]
        H = np.zeros((k, d, k, d))
        for a in range(k):
            for b in range(a):
                product = self.gram(self.weight * p[a] * p[b])
                H[a, :, b] = H[b, :, a] = -product
                H[a, :, a] += product
                H[b, :, b] += product
        whole = H.reshape(k * d, k * d)
        whole.flat[:: k * d + 1] += ridge
        return whole

    def curvatures(self, margins: Array) -> Array:
        p = self.loss.first(self._by_class(margins, self.records)).swapaxes(1, 2)
        return np.asarray(p[..., None] * (np.eye(self.outputs) - p[..., None, :]))

    def hessian_product(self, margins: Array, v: Array, ridge: float) -> Array:
        p = self.loss.first(self._by_class(margins, self.records))[0]
        change = self._by_class(self.products(v[None]), self.records)[0]
        bent = p * (change - np.sum(p * change, axis=0))
        return self.weight * self.weighted_sums(bent)[0] + ridge * v

    def hessian_diagonal(self, margins: Array, ridge: float) -> Array:
        bend = self.weight * self.loss.second(self._by_class(margins, self.records))[0]
        return np.concatenate([self.weighted_squares(w) for w in bend]) + ridge

    def curvature_bounds(self) -> Array:
        """p_c (1 - p_c) is at most 1/4."""
        return np.tile(self.weighted_squares(np.full(self.records, 0.25 * self.weight)), self.outputs)


def node_problem(
    signed: Matrix,
    loss: Loss,
    C: float,
    ridge: float,
    regulariser: SmoothRegulariser | None = None,
    tolerance: float | None = None,
    targets: Array | None = None,
) -> NodeProblem:
    """A node's objective (C/B) sum_n L(n) + ridge R(f), of the kind that the loss asks for.

    Parameters
    ----------
    signed : y_n x_n, a row for each record; x_n itself for losses of several classes and of numbers
    loss : L
    C : weight of the loss
    ridge : rho/N
    regulariser : R; ||f||^2 / 2, if it is not given
    tolerance : norm of the gradient at which a solve may end; exact, if it is not given
    targets : classes or numbers of the records, where the loss needs them

    Returns
    -------
    The problem, with value, gradient and Hessian.

    Examples
    --------
    >>> import numpy as np
    >>> import dpadmm_mpi as dp
    >>> problem = dp.problems.node_problem(np.eye(2), dp.problems.Logistic(), C=1.0, ridge=0.1)
    >>> round(problem.value(np.zeros(2)), 4)  # ln 2
    0.6931
    """
    kind = SoftmaxProblem if isinstance(loss, Softmax) else NodeProblem
    return kind(signed, loss, C, ridge, regulariser, tolerance, targets)
