"""The nodes of one rank: which way each node's records are stored and its argmin is found, by its own shape alone.

Small nodes are solved in batches, nodes with many records one by one with a kept factorisation, the others by the damped
Newton method. The runs of a configuration share all of it: arrays are (runs, nodes, ...). A result is a function of the node's
records and of the arguments of all runs, on every layout and after every restart.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from dpadmm_mpi import quasinewton
from dpadmm_mpi.batch import Batch, is_small, padded_rows
from dpadmm_mpi.problem import NodeProblem

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

KEPT_FEATURES = 512  # up to which a node keeps a d x d factorisation, if it has more records than features
SPARSE_SIZE = 1 << 17  # numbers in a dense shard from which its zeros are worth leaving out
SPARSE_SHARE = 0.25  # of non-zeros, up to which the sparse storage is smaller and faster


class Problems(Sequence[NodeProblem]):
    """The problems of a rank's nodes."""

    def __init__(self, problems: Iterable[NodeProblem]) -> None:
        self._problems = list(problems)
        self._C = np.array([problem.C for problem in self._problems])
        self._ridge = np.array([problem.ridge for problem in self._problems])
        self._references: dict[int, quasinewton.Reference] = {}
        # Points and their margins, of a node in all runs, for whoever asks next.
        self._solved: dict[int, tuple[Array, Array]] = {}  # by a solve, step upon step: to be measured
        self._measured: dict[int, tuple[Array, Array]] = {}  # from the points: to begin a solve as if they were not known
        shapes: dict[Any, list[int]] = {}
        self._single: list[int] = []
        for k, problem in enumerate(self._problems):
            if is_small(problem.signed):
                shapes.setdefault((padded_rows(problem.signed), problem.features, problem.loss), []).append(k)
            else:
                problem.signed = without_zeros(problem.signed)
                self._single.append(k)
        self._batches = [(np.array(nodes), Batch([self._problems[k] for k in nodes])) for nodes in shapes.values()]

    @overload
    def __getitem__(self, index: int) -> NodeProblem: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[NodeProblem]: ...

    def __getitem__(self, index: int | slice) -> NodeProblem | Sequence[NodeProblem]:
        return self._problems[index]

    def __len__(self) -> int:
        return len(self._problems)

    def __iter__(self) -> Iterator[NodeProblem]:
        return iter(self._problems)

    def mean_losses(self, primals: Array) -> Array:
        """The mean loss of every node at its own point in every run; points are (runs, nodes, d)."""
        means = np.empty(primals.shape[:-1])
        for nodes, batch in self._batches:
            means[:, nodes] = batch.mean_losses(primals[:, nodes])
        for k in self._single:
            means[:, k] = self._mean_losses(k, primals[:, k])
        return means

    def _mean_losses(self, k: int, points: Array) -> Array:
        problem, margins = self._problems[k], _known(self._solved.get(k), points)
        if margins is None:
            margins = problem.margins(points)
            if problem.stays_in_cache:  # otherwise the start of a solve fetches the records anyway
                self._measured[k] = points.copy(), margins
        return np.asarray(np.mean(problem.loss.value(margins), axis=-1))

    def values_from(self, mean_losses: Array, primals: Array) -> Array:
        """O_i of every node at its own point in every run, where the mean losses there are known already."""
        return np.asarray(self._C * mean_losses + 0.5 * self._ridge * np.sum(primals * primals, axis=-1))

    def argmins(self, linear: Array, quadratic: Array, start: Array) -> tuple[Array, Array]:
        """argmin_f O_i(f) + linear_i.f + (quadratic_i/2) ||f||^2 of every node in every run, and the relative residuals."""
        found, residuals = np.empty_like(start), np.empty(start.shape[:-1])
        for nodes, batch in self._batches:
            found[:, nodes], residuals[:, nodes] = batch.argmins(linear[:, nodes], quadratic[nodes], start[:, nodes])
        for k in self._single:
            found[:, k], residuals[:, k] = self._argmin(k, linear[:, k], float(quadratic[k]), start[:, k])
        return found, residuals

    def _argmin(self, k: int, linear: Array, quadratic: float, start: Array) -> tuple[Array, Array]:
        problem = self._problems[k]
        if problem.features > min(problem.signed.shape[0], KEPT_FEATURES):
            points = [problem.argmin(l, quadratic, s) for l, s in zip(linear, start, strict=True)]
            return np.stack([point.f for point in points]), np.array([point.residual for point in points])
        if k not in self._references:
            self._references[k] = quasinewton.reference(problem)
        margins = _known(self._measured.pop(k, None), start)
        found = quasinewton.argmin(problem, self._references[k], linear, quadratic, start, margins)
        self._solved[k] = found.f, found.margins
        return found.f, found.residual


def _known(points_and_margins: tuple[Array, Array] | None, points: Array) -> Array | None:
    if points_and_margins is None or not np.array_equal(points_and_margins[0], points):
        return None
    return points_and_margins[1]


def without_zeros(signed: Any) -> Any:
    """The rows as scipy CSR where that is smaller and faster, otherwise as they are."""
    if not isinstance(signed, np.ndarray) or signed.size < SPARSE_SIZE:
        return signed
    if np.count_nonzero(signed) > SPARSE_SHARE * signed.size:
        return signed
    from scipy import sparse  # a start-up time that small shards do not pay

    return sparse.csr_matrix(signed)
