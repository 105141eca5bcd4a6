"""How strongly the nodes' objectives curve, from their records; the theorems take the numbers and never see a record."""

from typing import Any

import numpy as np

from dpadmm_mpi.data.dataset import Dataset
from dpadmm_mpi.methods.decentralised.theory import Curvature
from dpadmm_mpi.privacy.releases import NetworkReleases
from dpadmm_mpi.types import Matrix

LARGEST_GRAM = 2000  # features, and
LARGEST_RECORDS = 2e8  # numbers of all records, up to which their eigenvalues are computed


def curvature_of(r: NetworkReleases, ridge: float, dataset: Dataset[Any] | None) -> Curvature:
    """C c1 lambda_max(X_i'X_i / B_i) + rho/N from the records, where they may be looked at.

    Otherwise with 1 for the eigenvalue, which no records of norm at most 1 exceed.
    """
    if dataset is None or dataset.features > LARGEST_GRAM or float(r.B.sum()) * dataset.features > LARGEST_RECORDS:
        return Curvature(np.full(r.nodes, r.C * r.c1 + ridge), "M_i = C c1 + rho/N, for records of norm 1")
    largest = [_largest_eigenvalue(dataset.loader.shard(dataset.address(i)).X) for i in range(r.nodes)]
    return Curvature(r.C * r.c1 * np.array(largest) + ridge, "M_i from the largest eigenvalue of each node's records")


def _largest_eigenvalue(X: Matrix) -> float:
    """Of X'X / B."""
    gram: Any = X.T @ X if isinstance(X, np.ndarray) else (X.T @ X).toarray()
    return float(np.linalg.eigvalsh(gram)[-1]) / X.shape[0]
