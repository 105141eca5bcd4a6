"""The Gaussian mechanism as [S] Definition 2 and [C] Definition 3 have it, beside the accounts that runs are given."""

import math

import numpy as np
import pytest
from scipy.stats import norm

from dpadmm_mpi.privacy import gaussian_noise


def printed(epsilon: float, delta: float) -> float:
    """sigma over the sensitivity: sqrt(2 ln(1.25/delta)) / epsilon"""
    return math.sqrt(2.0 * math.log(1.25 / delta)) / epsilon


def true_delta(epsilon: float, sigma: float) -> float:
    """Balle, Wang 2018, Theorem 8."""
    return float(norm.cdf(0.5 / sigma - epsilon * sigma) - math.exp(epsilon) * norm.cdf(-0.5 / sigma - epsilon * sigma))


@pytest.mark.parametrize("delta", [1e-3, 1e-5, 1e-8])
@pytest.mark.parametrize("epsilon", [0.05, 0.3, 0.99])
def test_the_printed_sigma_is_enough_below_1_and_more_than_the_account_asks_for(epsilon: float, delta: float) -> None:
    """One release with the printed sigma: private by the exact delta, and its sound epsilon is at most about its own."""
    sigma = printed(epsilon, delta)
    assert true_delta(epsilon, sigma) <= delta
    spent = float(gaussian_noise.epsilon(gaussian_noise.gaussian(sigma), np.array([1.0]), delta)[0])
    assert 0.3 * epsilon < spent < 1.05 * epsilon
    assert true_delta(spent, sigma) <= delta


def test_the_printed_sigma_is_not_enough_for_a_large_epsilon() -> None:
    """Both definitions leave out epsilon < 1. At 10 and delta = 1e-5 the true delta is larger; the account says more."""
    sigma = printed(10.0, 1e-5)
    assert true_delta(10.0, sigma) > 1e-5
    assert float(gaussian_noise.epsilon(gaussian_noise.gaussian(sigma), np.array([1.0]), 1e-5)[0]) > 10.0
