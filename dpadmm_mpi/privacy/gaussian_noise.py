"""Renyi curves of Gaussian noise, plain and with one sampled record, and what they are worth at a delta.

A curve is the Renyi divergence of one release at every order of ORDERS; curves add up over releases (Mironov: Renyi
Differential Privacy, 2017, Proposition 1). Everything here is what dp-accounting's RdpAccountant computes for
GaussianDpEvent and SampledWithoutReplacementDpEvent under REPLACE_ONE, for whole arrays at once: a search over many noise
levels takes a second instead of minutes. The even moments are summed without cancellation, so they stay right where the
noise is large.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from dpadmm_mpi.privacy.perturbations import GradientPerturbation, Perturbation
from dpadmm_mpi.types import Array, Ints

# The orders that dp-accounting takes unless it is told others.
ORDERS = np.array([1.0 + x / 10.0 for x in range(1, 100)] + list(range(11, 64)) + [128, 256, 512, 1024], dtype=np.float64)
LARGEST_EXACT = 256  # order up to which all even moments enter; above it dp-accounting takes the simpler bound
FEW = 120  # terms of the orders up to this, which are nearly all
STEP = 0.2  # of the trapezoidal rule; its relative error is below exp(-(2 pi / STEP)^2 / 4)
CALIBRATION = 1e-4  # relative, of epsilon


def gaussian(noise_multiplier: float) -> Array:
    """alpha / (2 z^2), z = noise over sensitivity: Mironov 2017, Proposition 7."""
    return ORDERS / (2.0 * noise_multiplier**2)


def sampled_gaussian(rate: float, noise_multiplier: float) -> Array:
    """A uniform sample without replacement, one record of the data set replaced: the curve's upper bound.

    Wang, Balle, Kasiviswanathan: Subsampled Renyi Differential Privacy, AISTATS 2019, Theorem 27; for integer alpha

        (alpha - 1) curve(alpha) = ln( 1 + sum_{i=2..alpha} rate^i (alpha over i) m_i ),
        m_2 = min( 4 (exp(1/z^2) - 1), 2 exp(1/z^2) ),
        m_i = min( 4 sqrt(B_lo B_hi), 2 exp(i (i-1) / (2 z^2)) ),   B_n = E_Q (P/Q - 1)^n, lo, hi the even numbers around i;

    between integers a straight line, Corollary 10.
    """
    if rate == 1.0:
        return gaussian(noise_multiplier)
    t = _tables()
    simple = np.log(2.0) + t.i * (t.i - 1.0) / (2.0 * noise_multiplier**2)
    power = noise_multiplier**-2.0
    simple[0] = min(simple[0], np.log(4.0) + power + np.log(-np.expm1(-power)))
    exact = simple.copy()
    if noise_multiplier > 1.0:  # below, 2 exp(i (i-1) / (2 z^2)) is the smaller one for every i > 2
        B = _log_even_moments(noise_multiplier)
        i = np.arange(3, LARGEST_EXACT + 1)
        exact[i - 2] = np.minimum(simple[i - 2], np.log(4.0) + 0.5 * (B[i // 2 - 1] + B[(i + 1) // 2 - 1]))
    log_sums = []
    for rows in t.rows:  # a small order has few terms
        count = rows.log_binomial.shape[1]
        terms = np.where(rows.integers[:, None] <= LARGEST_EXACT, exact[:count], simple[:count])
        terms += t.i[:count] * np.log(rate)
        terms += rows.log_binomial
        log_sums.append(_log_sum(terms))
    log_a = np.concatenate([[0.0], np.logaddexp(0.0, np.concatenate(log_sums))])  # order 1 first
    share = ORDERS - np.floor(ORDERS)
    return np.asarray(((1.0 - share) * log_a[t.floor] + share * log_a[t.ceil]) / (ORDERS - 1.0))


def _log_sum(terms: Array) -> Array:
    """ln of the sum of exp along rows, in the place of the terms."""
    largest = terms.max(axis=1)
    terms -= largest[:, None]
    return np.asarray(largest + np.log(np.exp(terms, out=terms).sum(axis=1)))


class _Rows(NamedTuple):
    integers: Array  # some of the integer orders above 1 that are needed
    log_binomial: Array  # (integers, i), -inf where i exceeds the order


class _Tables(NamedTuple):
    i: Array  # 2 .. largest order
    rows: tuple[_Rows, ...]
    floor: Ints  # place of each order's neighbours in [1, *integers]
    ceil: Ints


@lru_cache(maxsize=1)
def _tables() -> _Tables:
    from scipy.special import gammaln

    integers = np.unique(np.concatenate([np.floor(ORDERS), np.ceil(ORDERS)]))
    floor, ceil = np.searchsorted(integers, np.floor(ORDERS)), np.searchsorted(integers, np.ceil(ORDERS))
    i = np.arange(2.0, ORDERS[-1] + 1.0)
    rows = []
    for some, length in ((integers[1:] <= FEW + 1, FEW), (integers[1:] > FEW + 1, len(i))):
        n, k = integers[1:][some], i[:length]
        rows.append(_Rows(n, gammaln(n[:, None] + 1.0) - gammaln(k + 1.0) - gammaln(n[:, None] - k + 1.0)))
    return _Tables(i, tuple(rows), floor, ceil)


def _log_even_moments(noise_multiplier: float) -> Array:
    """ln E_Q (P/Q - 1)^n for n = 2, 4, ..., LARGEST_EXACT, where ln P/Q = x / z - 1 / (2 z^2), x standard normal.

    The n-th difference of exp(i (i-1) / (2 z^2)) is the same number, but loses all digits when the noise is large; the
    trapezoidal rule adds positive terms only. The integrand's peaks lie between -sqrt(n) and n/z + sqrt(n).
    """
    n = np.arange(2.0, LARGEST_EXACT + 1.0, 2.0)
    x = np.arange(-28.0, LARGEST_EXACT / noise_multiplier + 30.0, STEP)
    with np.errstate(divide="ignore"):
        log_base = np.log(np.abs(np.expm1(x / noise_multiplier - 0.5 / noise_multiplier**2)))
    exponent = n[:, None] * log_base
    exponent -= 0.5 * x**2
    largest = exponent.max(axis=1)
    exponent -= largest[:, None]
    return np.asarray(largest + np.log(np.exp(exponent, out=exponent).sum(axis=1) * STEP / np.sqrt(2.0 * np.pi)))


def epsilon(curve: Array, steps: Array, delta: float) -> Array:
    """Epsilon at `delta` after each number of `steps` with this curve, at the best order."""
    return converted(steps[:, None] * curve, delta)


def converted(spent: Array, delta: float) -> Array:
    """Epsilon at `delta` of Renyi divergences, (rows, orders), at the best order of each row.

    Canonne, Kamath, Steinke: The Discrete Gaussian for Differential Privacy, 2020, Proposition 12; 0 where already
    delta >= sqrt(1 - exp(-KL)), for the divergence of every order is at least KL.
    """
    at_orders = np.where(delta**2 + np.expm1(-spent) > 0.0, 0.0, spent + _prices(delta))
    return np.maximum(at_orders.min(axis=1), 0.0)


@lru_cache(maxsize=8)
def _prices(delta: float) -> Array:
    return np.array([_price(order, delta) for order in ORDERS])


def _price(order: float, delta: float) -> float:
    """What the conversion at this order adds to the Renyi divergence."""
    return float(np.log1p(-1.0 / order) - np.log(delta * order) / (order - 1.0))


def resolution(delta: float) -> float:
    """No epsilon between 0 and this can be shown: what the largest order adds."""
    return _price(float(ORDERS[-1]), delta)


def notes(noise: Perturbation, delta: float) -> list[str]:
    """What who asks for a small epsilon should know."""
    if not isinstance(noise, GradientPerturbation) or noise.target is None or noise.target_account != "sound":
        return []
    if noise.target > resolution(delta):
        return []
    return [
        f"privacy.target: no epsilon between 0 and {resolution(delta):.3g} can be shown at delta = {delta:g} with Renyi orders "
        f"up to {ORDERS[-1]:g}, so the noise is what epsilon = 0 needs"
    ]


def calibrate(epsilon_of: Callable[[float], float], target: float, start: float) -> float:
    """The smallest noise from `start` upwards with epsilon_of(noise) <= target, met from below to CALIBRATION.

    A target below `resolution` is met at epsilon = 0, which larger noise reaches in one jump.
    """
    from scipy.optimize import brentq

    if epsilon_of(start) <= target:
        return start
    low, high = start, 2.0 * start
    while epsilon_of(high) > target:
        low, high = high, 2.0 * high
    aim = np.log(target * (1.0 - 0.5 * CALIBRATION))

    def excess(log_noise: float) -> float:
        return float(np.log(max(epsilon_of(float(np.exp(log_noise))), 1e-300)) - aim)

    if excess(np.log(high)) >= 0.0:  # between the aim and the target
        return high
    noise = float(np.exp(brentq(excess, np.log(low), np.log(high), xtol=1e-8)))
    step = 1e-8
    while epsilon_of(noise) > target:
        noise *= 1.0 + step
        step *= 2.0
    return noise
