"""The privacy loss of one data step with gamma noise as a random variable, and its (epsilon, delta) composition.

The noise e in R^d has a density proportional to exp(-alpha ||e||). With u = alpha ||e|| ~ Gamma(d) and c = alpha times the
largest shift that one record makes, the loss of a data step is at most

    L = sqrt(u^2 + 2 u c b + c^2) - u                       plus the determinant term, which is a number

- noise in the objective: the two gradients lie in a plane that the pair of data sets fixes, and the shift is at most c along
  the noise's projection on it: b^2 ~ Beta(1, (d-2)/2) (SPEC 2). For d < 3 the plane is everything: b = 1 and L = c.
- noise on the release: the shift does not depend on the noise, so b is the cosine between the two, (1+b)/2 ~
  Beta((d-1)/2, (d-1)/2), and the loss is exactly L.

Given the past this holds in every data step whatever the records, so the sum over steps is dominated by the sum of
independent copies, and delta(epsilon) <= E[(1 - exp(epsilon - sum))_+]. All rounding is upwards.
"""

from functools import lru_cache, reduce
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

ORDERS = np.concatenate([np.geomspace(0.05, 1.0, 12)[:-1], np.geomspace(1.0, 500.0, 50)])  # lambda of the moments
COSINES = 20_000  # cells of the cosine between noise and shift
TABLE = 48  # values of c at which the moments are tabulated


@lru_cache(maxsize=8)
def _radius_cells(features: int) -> tuple[Array, Array]:
    """Lower edges of cells of u and their probabilities: fine in the bulk, finer towards u = 0, where the loss is largest."""
    from scipy.special import gammaincinv

    p = np.concatenate([[0.0], np.geomspace(1e-24, 1e-3, 64), np.linspace(1e-3, 1.0, 150)[1:]])
    return np.maximum(gammaincinv(features, p[:-1]), 1e-300), np.diff(p)


def survival(loss: Array, c: float, features: int, on_release: bool) -> Array:
    """P(L > loss), rounded up: within a cell of u the loss is largest at the lower edge.

    L > l means b > x with x = (2 u l + l^2 - c^2) / (2 u c).
    """
    if not on_release and features < 3:
        return (loss < c).astype(np.float64)
    u, weight = _radius_cells(features)
    x = (loss / c)[:, None] + ((loss**2 - c**2) / (2.0 * c))[:, None] / u[None, :]
    tail = _cosine_tail(x, features) if on_release else _plane_tail(x, features)
    tail[loss >= c] = 0.0
    return np.asarray(tail @ weight)


def _plane_tail(x: Array, features: int) -> Array:
    """P(b > x) for the share b of a uniform direction's length that lies in a plane."""
    return np.asarray((1.0 - np.clip(x, 0.0, 1.0) ** 2) ** ((features - 2) / 2.0))


def _cosine_tail(x: Array, features: int) -> Array:
    """P(b > x) for the cosine b between a fixed and a uniform direction; x is rounded down to the table's grid."""
    if features == 1:
        return np.where(x < -1.0, 1.0, np.where(x < 1.0, 0.5, 0.0))
    place = np.floor((np.clip(x, -1.0, 1.0) + 1.0) * (COSINES / 2)).astype(np.int64)
    return _cosine_table(features)[place]


@lru_cache(maxsize=8)
def _cosine_table(features: int) -> Array:
    from scipy.special import betaincc

    half = (features - 1) / 2.0
    return np.asarray(betaincc(half, half, np.linspace(0.0, 1.0, COSINES + 1)))


def loss_grid(c: float, features: int, on_release: bool, spacing: float) -> tuple[int, Array]:
    """(first, probabilities): P(L rounded up = (first + k) * spacing)."""
    top = int(np.ceil(c / spacing * (1.0 - 1e-12)))
    first = -top if on_release else 0
    tail = survival(spacing * np.arange(first, top, dtype=np.float64), c, features, on_release)
    return first, np.diff(np.concatenate([[1.0], np.minimum(tail, 1.0), [0.0]])) * -1.0


def bins(c: Array) -> float:
    """Cells of the grid for the mean c of a node: rounding up costs half a cell per step on average, at most 0.1 %."""
    if len(c) <= 100 and len(np.unique(c)) <= 4:
        return 4000.0  # a fine grid costs nothing here
    return float(np.clip(10_000 / np.sqrt(len(c)), 500, 1000))


def moment_epsilon(c: Array, features: int, on_release: bool, delta: float) -> Array:
    """Epsilon after each step of each node, (K, N), from the moments E exp(lambda L): valid, cheap, a few percent loose.

    The logarithm of the moments is convex in c, so between tabulated values of c a straight line lies above it. Conversion:
    (1 - exp(-x))_+ <= exp(lambda x) lambda^lambda / (1 + lambda)^(1 + lambda), optimised over lambda.
    """
    knots = np.unique(np.geomspace(c.min(), c.max(), TABLE)) if c.max() > c.min() * (1 + 1e-12) else np.array([c.max()])
    knots[-1] = max(knots[-1], c.max())
    log_moments = np.stack([_log_moments(float(knot), features, on_release) for knot in knots])
    best = np.full(c.shape, np.inf)
    for k, order in enumerate(ORDERS):
        spent = np.cumsum(np.interp(c, knots, log_moments[:, k]), axis=0)
        price = np.log(1.0 / delta) + order * np.log(order) - (1.0 + order) * np.log1p(order)
        best = np.minimum(best, (spent + price) / order)
    return np.maximum(best, 0.0)


def _log_moments(c: float, features: int, on_release: bool) -> Array:
    spacing = c / 300
    first, probability = loss_grid(c, features, on_release, spacing)
    loss = spacing * (first + np.arange(len(probability)))
    exponent = ORDERS[:, None] * loss[None, :]
    largest = exponent.max(axis=1, keepdims=True)
    return np.log(np.exp(exponent - largest) @ probability) + largest[:, 0]


def composed_epsilon(c: Array, features: int, on_release: bool, delta: float, every_step: bool) -> Array:
    """Epsilon after each of the K steps of one node (or, if not `every_step`, after the last), by dp-accounting.

    Its privacy loss distributions convolve and convert, pessimistically.
    """
    spacing = float(np.mean(c)) / bins(c)
    values, counts = np.unique(c, return_counts=True)
    step = {value: _distribution(float(value), features, on_release, spacing) for value in values.tolist()}
    if every_step:
        growing = accumulate((step[value] for value in c.tolist()), lambda a, b: a.compose(b))
        return np.array([total.get_epsilon_for_delta(delta) for total in growing])
    parts = [step[value].self_compose(count) for value, count in zip(values.tolist(), counts.tolist(), strict=True)]
    composed = reduce(lambda a, b: a.compose(b), parts)
    return np.array([composed.get_epsilon_for_delta(delta)])


def _distribution(c: float, features: int, on_release: bool, spacing: float) -> Any:
    from dp_accounting.pld.pld_pmf import DensePLDPmf
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

    first, probability = loss_grid(c, features, on_release, spacing)
    return PrivacyLossDistribution(DensePLDPmf(spacing, first, probability, infinity_mass=0.0, pessimistic_estimate=True))
