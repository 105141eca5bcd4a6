"""The steps of the curated family that everything else is made of: settings, what the curator carries, [C] (3), (5) and (7)."""

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from dpadmm_mpi.methods.curated.linear_maps import LinearMap
from dpadmm_mpi.methods.curated.regularisers import Regulariser
from dpadmm_mpi.methods.curated.splitting import DIRECT, Splitting
from dpadmm_mpi.types import Array, Ints

NOTHING = np.zeros(0)


@dataclass(frozen=True)
class Settings:
    """What a configuration says about the method."""

    accelerated: bool
    A: LinearMap
    lambda1: float
    regulariser: Regulariser
    rho: float
    eta: float  # of the exact member: 1/L_f
    gamma: float  # of the exact member: nan, for it has none
    noise_std: float  # in the first iteration; 0: none
    u0: str
    restart: bool | str
    init: str
    records: int  # n
    nodes: int
    seed: int
    features: int
    splitting: Splitting = DIRECT  # B and c
    noise_shape: Array | None = None  # of the noise over the iterations, 1 in the first; None: it does not change
    batch: int | None = None  # records of a gradient; None: all
    sizes: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))  # of the shards, where gradients are sampled
    keeps_means: bool = False  # of the iterates, for the criterion of [C] Theorem 2
    exact: bool = False  # whether the x step is solved, and not linearised

    def penalty(self, w: Array) -> float:
        """g(w)"""
        return self.regulariser.value(w, self.lambda1)

    def split(self, q: Array, rho: float) -> Array:
        """argmin_w g(w) + (rho/2) ||q + B w - c||^2"""
        return self.splitting.step(q, self.regulariser, self.lambda1, rho)

    @property
    def columns(self) -> int:
        """Numbers in w."""
        return self.splitting.columns(self.A.rows)

    @property
    def averaged(self) -> int:
        """Records in the mean of a gradient."""
        return self.records if self.batch is None else self.batch

    @property
    def largest_noise(self) -> float:
        """Of all iterations."""
        return self.noise_std if self.noise_shape is None else self.noise_std * float(self.noise_shape.max())

    def noise_at(self, t: int) -> float:
        """Standard deviation of the noise in iteration t."""
        return self.noise_std if self.noise_shape is None else float(self.noise_std * self.noise_shape[t - 1])


class Curator(NamedTuple):
    """What the curator carries from one iteration to the next."""

    x: Array
    x_hat: Array
    w: Array
    u: Array
    u_hat: Array
    theta: float  # theta_{t+1}; stays 1 without acceleration
    combined: float  # residual of the last iteration, for the restart
    memory: Array = NOTHING  # of the safeguarded and the exact method
    totals: Array = NOTHING  # sums of x_1, ..., x_t and of w_1, ..., w_t, t, and x_0, where the means are kept


def splitting_step(c: Curator, s: Settings) -> Array:
    """w_t, [C] step 2."""
    return s.split(s.A(c.x_hat) + c.u_hat, s.rho)


def pull(c: Curator, w: Array, s: Settings) -> Array:
    """rho A'(A xhat + B w - c + uhat), what the constraint adds to the gradient in [C] step 3."""
    return s.rho * s.A.transposed(s.splitting.residual(s.A(c.x_hat), w) + c.u_hat)


def primal_step(c: Curator, w: Array, noisy_gradient: Array, s: Settings) -> Array:
    """x_t, the closed form of [C] (7)."""
    return c.x_hat - (s.eta / s.gamma) * (noisy_gradient + pull(c, w, s))


def noisy_gradient_of(c: Curator, x: Array, s: Settings) -> Array:
    """The noisy gradient that primal_step made x of: given the past, the two determine each other."""
    return (s.gamma / s.eta) * (c.x_hat - x) - pull(c, splitting_step(c, s), s)
