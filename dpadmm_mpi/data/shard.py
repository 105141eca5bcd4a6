"""The records of one node."""

from collections.abc import Iterator

import numpy as np
from msgspec import Struct

from dpadmm_mpi.types import Array, Ints, Matrix

NORM_SLACK = 1e-6  # for round-off in rows that were scaled to norm 1, also in single precision


class Shard(Struct, frozen=True):
    """Features X, (B, d), dense or scipy CSR, and labels y: -1 and +1, classes counted from 0, or numbers in [-1, 1]."""

    X: Matrix
    y: Array

    @property
    def records(self) -> int:
        return len(self.y)

    @property
    def features(self) -> int:
        return int(self.X.shape[1])

    def rows(self, index: Ints) -> "Shard":
        return Shard(self.X[index], self.y[index])

    def into_signed(self) -> Matrix:
        """The rows y_n x_n, which is all that a margin loss needs; takes over the memory of X, which is lost."""
        if isinstance(self.X, np.ndarray):
            np.multiply(self.X, self.y[:, None], out=self.X)
        else:
            np.multiply(self.X.data, np.repeat(self.y, np.diff(self.X.indptr)), out=self.X.data)
        return self.X


def portions(sizes: Ints, most: int) -> Iterator[slice]:
    """Of nodes with shards of these sizes, as many as have no more than `most` together, at least one."""
    ends, first = np.cumsum(sizes), 0
    while first < len(sizes):
        before = int(ends[first] - sizes[first])
        last = max(first + 1, int(np.searchsorted(ends, before + most, side="right")))
        yield slice(first, last)
        first = last


def row_norms(X: Matrix) -> Array:
    if isinstance(X, np.ndarray):
        return np.sqrt(np.einsum("ij,ij->i", X, X))
    return np.sqrt(np.asarray(X.multiply(X).sum(axis=1), dtype=np.float64).ravel())
