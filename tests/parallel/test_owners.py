"""Which rank hosts which place."""

import numpy as np
import pytest
from numpy.random import Generator

from dpadmm_mpi.parallel.owners import assign_owners


@pytest.mark.parametrize("ranks", [1, 2, 3, 7, 10])
def test_owners_are_contiguous_balanced_and_nobody_is_idle(ranks: int, rng: Generator) -> None:
    for sizes in (np.full(10, 8), rng.integers(1, 500, 10), np.array([10_000, *[1] * 9]), np.array([*[1] * 9, 10_000])):
        owner = assign_owners(sizes, ranks)
        assert np.array_equal(np.unique(owner), np.arange(ranks))
        assert (np.diff(owner) >= 0).all()
    even = assign_owners(np.full(10, 8), ranks)
    assert np.ptp(np.bincount(even)) <= 1
