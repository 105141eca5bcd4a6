"""The records of one node, and the checks that every record passes."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpadmm_mpi.errors import InputError

Array = NDArray[np.float64]

NORM_SLACK = 1e-9  # for round-off in rows that were scaled to norm 1


@dataclass(frozen=True)
class Shard:
    """Features X, (B, d), dense or scipy CSR, and labels y in {-1, +1}."""

    X: Any
    y: Array

    @property
    def records(self) -> int:
        return len(self.y)

    @property
    def features(self) -> int:
        return int(self.X.shape[1])

    def rows(self, index: NDArray[np.int64]) -> "Shard":
        return Shard(self.X[index], self.y[index])

    def signed(self) -> Any:
        """The rows y_n x_n, which is all that a margin loss needs."""
        if isinstance(self.X, np.ndarray):
            return self.X * self.y[:, None]
        return self.X.multiply(self.y[:, None]).tocsr()


def row_norms(X: Any) -> Array:
    if isinstance(X, np.ndarray):
        return np.sqrt(np.einsum("ij,ij->i", X, X))
    return np.sqrt(np.asarray(X.multiply(X).sum(axis=1), dtype=np.float64).ravel())


def validate(shard: Shard, where: str) -> None:
    """Refuse what the theory or the solver cannot work with; `where` names the file or source."""
    values = shard.X if isinstance(shard.X, np.ndarray) else shard.X.data
    if shard.records == 0 or shard.features == 0:
        raise InputError(f"{where}: holds no records or no features; at least one of each is needed")
    if not np.all(np.isfinite(values)):
        raise InputError(f"{where}: {_first_bad_row(shard.X)} has a feature that is not a finite number; remove the record")
    odd = np.unique(shard.y[(shard.y != 1.0) & (shard.y != -1.0)])
    if len(odd):
        shown = ", ".join(f"{value:g}" for value in odd[:4]) + (", ..." if len(odd) > 4 else "")
        raise InputError(f"{where}: found the label {shown}; labels must be +1 or -1")
    norms = row_norms(shard.X)
    worst = int(np.argmax(norms))
    if norms[worst] > 1.0 + NORM_SLACK:
        raise InputError(
            f"{where}: record {worst} has norm {norms[worst]:.6g}, but the privacy bounds need norms of at most 1; "
            'scale the rows with data.preprocess = ["scale-rows"]'
        )


def _first_bad_row(X: Any) -> str:
    if isinstance(X, np.ndarray):
        return f"record {int(np.argmax(~np.all(np.isfinite(X), axis=1)))}"
    bad = int(np.argmax(~np.isfinite(X.data)))
    return f"record {int(np.searchsorted(X.indptr, bad, side='right')) - 1}"
