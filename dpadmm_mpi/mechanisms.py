"""Noise vectors, perturbations, and the record of what was released: data that theory/ folds over.

The noise e in R^d has a density proportional to exp(-alpha ||e||): its norm is Gamma(shape d, scale 1/alpha), its
direction uniform ([M] section 4, [R] section III.C).
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpadmm_mpi.streams import Generator, Purpose, generator

Array = NDArray[np.float64]
Ints = NDArray[np.int64]


def unit_noise(rng: Generator, features: int) -> Array:
    """e for alpha = 1; e / alpha is the noise for any other alpha."""
    direction = rng.standard_normal(features)
    return rng.standard_gamma(features) * direction / np.linalg.norm(direction)


def noise(seed: int, run: int, nodes: Ints, iteration: int, alpha: Array, features: int) -> Array:
    """e_i(t), one row per node, each from its own address."""
    rows = [unit_noise(generator(seed, Purpose.NOISE, run, int(i), iteration), features) for i in nodes]
    return np.stack(rows) / alpha[:, None]


@dataclass(frozen=True)
class Perturbation:
    """Where the noise enters a data step (SPEC 2, table of perturbations)."""

    source: str
    in_objective: bool = False  # n_i is a multiple of e_i
    times_penalty: bool = False  # ... and that multiple is 2 eta_i V_i, otherwise 1
    on_release: bool = False  # e_i is added to the argmin before it is released

    def objective_factor(self, eta: Array, degree: Array) -> Array:
        """n_i / e_i"""
        if not self.in_objective:
            return np.zeros_like(eta)
        return 2.0 * eta * degree if self.times_penalty else np.ones_like(eta)


PERTURBATIONS = {
    "none": Perturbation("-"),
    "dual": Perturbation("[M] 2.4(i), note 3", in_objective=True, times_penalty=True),
    "penalty": Perturbation("[M] (24)-(25)", in_objective=True, times_penalty=True),
    "objective": Perturbation("[R] (18)", in_objective=True),
    "primal": Perturbation("[M] 2.4(ii)", on_release=True),
}


@dataclass(frozen=True)
class Releases:
    """Everything that N nodes release of their records in K data steps; enough for every privacy account.

    Glossary: eta_i(r) penalties, theta_i(r) dual steps and alpha_i(r) noise parameters are (K, N); V degrees and
    B record counts are (N,); C, rho, c1 as in SPEC 1; all records have norm at most 1.
    """

    perturbation: str
    iterations: int  # T
    data_steps: Ints  # (K,) the iterations that touch the records
    eta: Array
    theta: Array
    alpha: Array
    V: Array
    B: Array
    C: float
    rho: float
    c1: float
    features: int

    @property
    def nodes(self) -> int:
        return len(self.V)

    @property
    def curvature(self) -> Array:
        """Strong convexity rho/N + 2 eta_i V_i of the objective that a data step minimises, (K, N)."""
        return self.rho / self.nodes + 2.0 * self.eta * self.V
