"""The numbers of N nodes' data steps that the privacy of a network method depends on, and what a step may cost."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from dpadmm_mpi.types import Array, Ints

Tie = Callable[[Array, Array], Array]  # (c, K) -> max over margins z of c |L'(z)| + ln(1 + K L''(z))


@dataclass(frozen=True)
class DataSteps:
    """K data steps of N nodes (docs/mathematics.md, sections 1 and 2).

    Glossary: eta_i(r) penalties and theta_i(r) dual steps are (K, N); V degrees are (N,), or (K, N) where they change, B record
    counts (N,); C, rho as in the problem; G and c1 bound the slope and the curvature of the loss; all records have norm at
    most 1.
    """

    iterations: int  # T
    data_steps: Ints  # (K,) the iterations that touch the records
    eta: Array
    theta: Array
    V: Array
    B: Array
    C: float
    rho: float
    G: float
    c1: float
    features: int
    decreasing: bool = False  # L' <= 0 everywhere, and somebody says so
    tie: Tie | None = None  # slope and curvature of one record together; None: nobody has tied them
    subspace: int = 2  # dimension of what the gradients of two records span

    @property
    def nodes(self) -> int:
        return self.V.shape[-1]

    @property
    def curvature(self) -> Array:
        """Strong convexity rho/N + 2 eta_i V_i of the objective that a data step minimises, (K, N)."""
        return self.rho / self.nodes + 2.0 * self.eta * self.V

    @property
    def weight(self) -> Array:
        """K = C / (B_i mu_i): what one record weighs in a Hessian over the least of all others, (K, N)."""
        return self.C / (self.B * self.curvature)

    def slope_and_curvature(self, c: Array, weight: Array) -> Array:
        """max over margins z of c |L'(z)| + ln(1 + K L''(z)), or what the bounds G and c1 make of it."""
        if self.tie is not None:
            return self.tie(c, weight)
        return self.G * np.maximum(c, 0.0) + np.log1p(self.c1 * weight)


class StepCost(NamedTuple):
    """Cost of each data step at each node, (K, N): `fixed`, and what the noise loses by a shift of at most `shift`."""

    fixed: Array
    shift: Array
