"""Records that the tests of this room write to files."""

import numpy as np
import pytest
from numpy.random import Generator

from dpadmm_mpi.data.shard import row_norms
from dpadmm_mpi.types import Array


@pytest.fixture
def records(rng: Generator) -> tuple[Array, Array]:
    """Forty sparse rows of five features, of norm at most 1, and their labels."""
    X = rng.standard_normal((40, 5)) * (rng.random((40, 5)) < 0.2)
    X /= np.maximum(row_norms(X), 1.0)[:, None]
    X[0, 4] = 0.25  # the last feature occurs
    X[0] /= max(1.0, float(np.linalg.norm(X[0])))
    return X, np.where(rng.random(40) < 0.4, 1.0, -1.0)
