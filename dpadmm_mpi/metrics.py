"""What is measured (SPEC 6), as pure functions of iterates."""

import numpy as np
from numpy.typing import NDArray

from dpadmm_mpi.data.dataset import TestSet

Array = NDArray[np.float64]


def consensus_error(primals: Array) -> float:
    """(1/N) sum_i ||f_i - fbar||"""
    return float(np.mean(np.linalg.norm(primals - primals.mean(axis=0), axis=1)))


def test_error(classifier: Array, test: TestSet | None) -> float:
    """Share of the test records that the classifier gets wrong, where 0 predicts +1; nan without test records."""
    if test is None:
        return float("nan")
    wrong = 0
    for block in test.blocks():
        predicted = np.where(np.asarray(block.X @ classifier) >= 0.0, 1.0, -1.0)
        wrong += int(np.sum(predicted != block.y))
    return wrong / test.records


def distance(primals: Array, optimum: Array | None) -> float:
    """(1/N) sum_i ||f_i - f*|| / ||f*||, not relative where f* = 0; nan where f* was not found"""
    if optimum is None:
        return float("nan")
    norm = float(np.linalg.norm(optimum))
    mean_distance = float(np.mean(np.linalg.norm(primals - optimum, axis=1)))
    return mean_distance / norm if norm > 0.0 else mean_distance
