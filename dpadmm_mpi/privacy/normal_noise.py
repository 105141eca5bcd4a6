"""The privacy loss of one data step with the noise N(0, sigma^2 I) as a random variable.

With c = ||v|| / sigma for a shift v, the loss ln p(e) - ln p(e + v) = (2 e.v + ||v||^2) / (2 sigma^2) is

- N(c^2/2, c^2) if the shift does not depend on the noise, so a sum of steps has the loss of one with c^2 = sum of c_k^2;
- at most c s + c^2/2, s ~ chi_m, if it may lie anywhere in a ball of a subspace of m dimensions.
"""

from dataclasses import dataclass

import numpy as np

from dpadmm_mpi.types import Array

FAR = 12.0  # standard deviations that are looked at; the probability of more counts fully


@dataclass(frozen=True)
class NormalLoss:
    """The random loss; see privacy/composition.py: RandomLoss."""

    features: int
    subspace: int = 0  # its dimension m; 0: the shift does not depend on the noise

    @property
    def _dimension(self) -> int:
        return min(self.subspace, self.features)

    def tail(self, loss: Array, c: float) -> Array:
        from scipy.special import gammaincc, ndtr

        s = loss / c - c / 2.0
        if self.subspace == 0:
            return np.asarray(ndtr(-s))
        return np.asarray(gammaincc(self._dimension / 2.0, np.maximum(s, 0.0) ** 2 / 2.0))

    def quick_tail(self, loss: Array, c: float) -> Array:
        return self.tail(loss, c)

    def largest(self, c: float) -> float:
        return float(c * c / 2.0 + c * (FAR + np.sqrt(self._dimension)))

    def deviation(self, c: float) -> float:
        return c

    @property
    def signed(self) -> bool:
        return self.subspace == 0

    def cell(self, c: float) -> float:
        return c / 300

    def log_tail_moments(self, orders: Array, c: float) -> Array:
        """A fixed direction: exp(order l) times the density is exp(order (order + 1) c^2 / 2) times the density moved by it.

        A subspace: chi_m grows by at most 1 with its normal vector, so E exp(x s) <= exp(x sqrt(m) + x^2/2), and by the
        inequality of Cauchy and Schwarz the part above `start` is at most the root of E exp(2 x s) P(s > start).
        """
        from scipy.special import gammaincc, log_ndtr

        start = FAR + np.sqrt(self._dimension)
        if self.subspace == 0:
            return np.asarray(orders * (orders + 1.0) * c * c / 2.0 + log_ndtr(orders * c - start))
        x, m = orders * c, self._dimension
        rest = 0.5 * np.log(gammaincc(m / 2.0, start**2 / 2.0))
        return np.asarray(orders * c * c / 2.0 + x * np.sqrt(m) + np.minimum(x**2 / 2.0, x**2 + rest))

    def growth(self, c: float) -> tuple[float, float]:
        """E exp(x max(0, l)) <= 2 exp(x (x + 1) c^2 / 2); in a subspace at most exp(x c^2/2 + x c sqrt(m) + x^2 c^2/2)."""
        return c * c / 2.0, float(c * np.sqrt(self._dimension)) if self.subspace else float(np.log(2.0))

    def as_one(self, c: Array) -> float:
        return float(np.sqrt(np.sum(c**2))) if self.subspace == 0 else np.nan
