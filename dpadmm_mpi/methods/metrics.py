"""What is measured (SPEC 6), as pure functions of iterates: one value for each of the runs that go side by side."""

import numpy as np
from numpy.typing import NDArray

from dpadmm_mpi.data.dataset import TestSet

Array = NDArray[np.float64]


def consensus_error(primals: Array, centre: Array) -> Array:
    """(1/N) sum_i ||f_i - centre||; primals are (runs, nodes, features), the centres (runs, features)."""
    return np.asarray(np.mean(np.linalg.norm(primals - centre[:, None], axis=-1), axis=-1))


def test_error(classifiers: Array, test: TestSet | None) -> Array:
    """Share of the test records that each classifier gets wrong, where 0 predicts +1; nan without test records."""
    if test is None:
        return np.full(len(classifiers), np.nan)
    wrong = np.zeros(len(classifiers))
    for block in test.blocks():
        positive = np.asarray(block.X @ classifiers.T) >= 0.0
        wrong += np.sum(positive != (block.y > 0.0)[:, None], axis=0)
    return wrong / test.records


def distance(primals: Array, optimum: Array | None) -> Array:
    """(1/N) sum_i ||f_i - f*|| / ||f*||, not relative where f* = 0; nan where f* was not found"""
    if optimum is None:
        return np.full(len(primals), np.nan)
    norm = float(np.linalg.norm(optimum))
    mean_distance = np.mean(np.linalg.norm(primals - optimum, axis=-1), axis=-1)
    return np.asarray(mean_distance / norm if norm > 0.0 else mean_distance)
