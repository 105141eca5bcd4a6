"""The privacy loss of one data step with gamma noise as a random variable.

The noise e in R^d has a density proportional to exp(-alpha ||e||). With u = alpha ||e|| ~ Gamma(d) and c = alpha times the
largest shift, the loss of a data step is, or is at most,

    L = sqrt(u^2 + 2 u c b + c^2) - u                       plus the determinant term

- a shift v in a direction that does not depend on the noise: b is the cosine between the two, (1+b)/2 ~ Beta((d-1)/2, (d-1)/2),
  and the loss is exactly L for ||v|| = c/alpha. Noise on the release is of this kind, and each half of the shift in the
  objective of a decreasing loss.
- a shift anywhere in a ball of a subspace of m dimensions: it is at most c along the noise's projection on it,
  b^2 ~ Beta(m/2, (d-m)/2). For d <= m the subspace is everything: b = 1 and L = c.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from dpadmm_mpi.types import Array

COSINES = 20_000  # cells of the cosine between noise and shift


@dataclass(frozen=True)
class GammaLoss:
    """The random loss; see privacy/composition.py: RandomLoss."""

    features: int
    subspace: int = 0  # its dimension m; 0: the shift does not depend on the noise

    def tail(self, loss: Array, c: float) -> Array:
        return survival(loss, c, self.features, self.subspace)

    def quick_tail(self, loss: Array, c: float) -> Array:
        """In many dimensions the loss hardly depends on the radius: fewer cells of it are enough."""
        return survival(loss, c, self.features, self.subspace, few=self.features >= 20)

    def largest(self, c: float) -> float:
        return c

    def deviation(self, c: float) -> float:
        return float(c / np.sqrt(self.features))

    @property
    def signed(self) -> bool:
        return self.subspace == 0

    def cell(self, c: float) -> float:
        return c / 300

    def log_tail_moments(self, orders: Array, c: float) -> Array:
        return np.full(len(orders), -np.inf)

    def growth(self, c: float) -> tuple[float, float]:
        return 0.0, c

    def as_one(self, c: Array) -> float:
        return np.nan


@lru_cache(maxsize=8)
def _radius_cells(features: int, few: bool) -> tuple[Array, Array]:
    """Lower edges of cells of u and their probabilities: fine in the bulk, finer towards u = 0, where the loss is largest."""
    from scipy.special import gammaincinv

    towards_zero, bulk = (12, 40) if few else (64, 150)
    p = np.concatenate([[0.0], np.geomspace(1e-24, 1e-3, towards_zero), np.linspace(1e-3, 1.0, bulk)[1:]])
    return np.maximum(gammaincinv(features, p[:-1]), 1e-300), np.diff(p)


def survival(loss: Array, c: float, features: int, subspace: int, few: bool = False) -> Array:
    """P(L > loss), rounded up: within a cell of u the loss is largest at the lower edge.

    L > l means b > x with x = (2 u l + l^2 - c^2) / (2 u c).
    """
    if 0 < features <= subspace:
        return (loss < c).astype(np.float64)
    u, weight = _radius_cells(features, few)
    with np.errstate(over="ignore"):  # far below every cosine
        x = ((loss**2 - c**2) / (2.0 * c))[:, None] / u[None, :]
    x += (loss / c)[:, None]  # and so on in one place: there are millions of these numbers in an account
    tail = _share_tail(x, features, subspace) if subspace else _cosine_tail(x, features)
    tail[loss >= c] = 0.0
    return np.asarray(tail @ weight)


def _share_tail(x: Array, features: int, subspace: int) -> Array:
    """P(b > x) for the share b of a uniform direction's length that lies in a subspace; it takes the place of x."""
    share = np.clip(x, 0.0, 1.0, out=x)
    if subspace == 2:
        np.square(share, out=x)
        return np.asarray(np.power(np.subtract(1.0, x, out=x), (features - 2) / 2.0, out=x))
    x *= COSINES
    return _looked_up(_share_table(features, subspace), x)


@lru_cache(maxsize=8)
def _share_table(features: int, subspace: int) -> Array:
    from scipy.special import betaincc

    return np.asarray(betaincc(subspace / 2.0, (features - subspace) / 2.0, np.linspace(0.0, 1.0, COSINES + 1) ** 2))


def _cosine_tail(x: Array, features: int) -> Array:
    """P(b > x) for the cosine b between a fixed and a uniform direction; it takes the place of x."""
    if features == 1:
        return np.where(x < -1.0, 1.0, np.where(x < 1.0, 0.5, 0.0))
    np.clip(x, -1.0, 1.0, out=x)
    x += 1.0
    x *= COSINES / 2
    return _looked_up(_cosine_table(features), x)


def _looked_up(table: Array, place: Array) -> Array:
    """Values of a table at places that are rounded down, which they take the place of."""
    return np.take(table, place.astype(np.int64), out=place, mode="clip")


@lru_cache(maxsize=8)
def _cosine_table(features: int) -> Array:
    from scipy.special import betaincc

    half = (features - 1) / 2.0
    return np.asarray(betaincc(half, half, np.linspace(0.0, 1.0, COSINES + 1)))
