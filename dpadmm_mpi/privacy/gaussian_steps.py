"""The loss N(mu^2/2, mu^2) of Gaussian mechanisms one after the other, which is that of one: exact delta and epsilon."""

import numpy as np

from dpadmm_mpi.privacy.sampled_steps import delta_of, smallest_epsilon
from dpadmm_mpi.types import Array


def gaussian_delta(epsilon: Array, mu: float) -> Array:
    """Phi(mu/2 - epsilon/mu) - exp(epsilon) Phi(-mu/2 - epsilon/mu): Balle, Wang 2018, Theorem 8."""
    ones = np.ones((len(epsilon), 1))
    return delta_of(epsilon, ones, mu * ones)[0]


def gaussian_epsilon(mu: Array, delta: float) -> Array:
    """The smallest epsilon with delta(epsilon) <= delta, at each mu."""
    values, place = np.unique(mu, return_inverse=True)
    found = smallest_epsilon(np.ones((len(values), 1)), values[:, None], delta)
    return found[place].reshape(mu.shape)
