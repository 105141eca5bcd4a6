"""Noise vectors, perturbations, and the record of what was released: data that theory/ folds over.

The noise e in R^d has a density proportional to exp(-alpha ||e||): its norm is Gamma(shape d, scale 1/alpha), its
direction uniform ([M] section 4, [R] section III.C).
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpadmm_mpi.problems.newton import norms
from dpadmm_mpi.rng import Purpose, generators

Array = NDArray[np.float64]
Ints = NDArray[np.int64]


def noise(seed: int, runs: range, nodes: Ints, iteration: int, alpha: Array, features: int) -> Array:
    """e_i(t), (runs, nodes, d), each from its own address: Gamma(d) times a normal vector of length 1, over alpha_i."""
    direction = np.empty((len(runs) * len(nodes), features))
    radius = np.empty((len(direction), 1))
    for k, rng in enumerate(generators(seed, Purpose.NOISE, runs, nodes, iteration)):
        rng.standard_normal(out=direction[k])
        radius[k] = rng.standard_gamma(features)
    e = radius * direction / norms(direction)[:, None]
    return e.reshape(len(runs), len(nodes), features) / alpha[:, None]


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


@dataclass(frozen=True)
class StarReleases:
    """Everything that N providers release in K outer iterations of S inner steps ([S] Algorithm 2): S noisy gradients each.

    Glossary: M record counts, (N,); G Lipschitz constant of one record's loss; noise_std is sigma, the same for all providers
    and steps, 0 for none.
    """

    iterations: int  # K
    inner_steps: int  # S
    M: Array
    noise_std: float
    features: int  # p
    G: float = 1.0

    @property
    def nodes(self) -> int:
        return len(self.M)


@dataclass(frozen=True)
class CuratedReleases:
    """Everything that the curator of n records in `nodes` shards releases in T iterations ([C] Algorithms 2 and 3).

    Glossary: noise_std is sigma, of the noise added to the mean gradient, 0 for none; c bounds the gradient of one record's
    loss; mu splits epsilon in [C] Theorem 1; u0_as_printed: u_0 comes from the exact gradient.
    """

    iterations: int  # T
    records: int  # n
    nodes: int
    noise_std: float
    features: int  # d1
    c: float = 1.0
    mu: float = 0.5
    u0_as_printed: bool = False
