"""What the loss of a whole run means: delta over epsilon, Renyi divergences, what an attacker can do, and composition.

A run's curve says, for every epsilon, with which delta everything that it released is private. All that can be said about
somebody who tests whether a record was there follows from it; so does what the run costs together with other runs.
Every number is an upper bound where the curve is one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from dpadmm_mpi.errors import InputError
from dpadmm_mpi.privacy.composition import tilted_tails
from dpadmm_mpi.privacy.gaussian_noise import ORDERS, converted
from dpadmm_mpi.privacy.sampled_steps import gaussian_delta
from dpadmm_mpi.types import Array

POINTS = 400  # of a recorded curve
SMALLEST = 1e-14  # the delta with which a recorded curve ends
LARGEST = 700.0  # the epsilon up to which exp(epsilon) is a number
CELLS = 4000  # of the grid on which loss distributions are convolved, for the widest of them
SHAPES = (0.0, 0.5, 1.0)  # eta of the truncated negative binomial numbers of tries


class Profile(Protocol):
    """What an account knows about everything that a node has released."""

    def delta(self, epsilon: Array) -> Array:
        """The delta with which it is private at each epsilon >= 0."""

    def renyi(self, orders: Array) -> Array:
        """The Renyi divergence of each order above 1."""


@dataclass(frozen=True)
class RecordedCurve:
    """delta at each of `epsilon`, which grow from 0, and the Renyi divergence of each of `orders`.

    >>> curve = gaussian_curve(1.0)  # a Gaussian mechanism whose noise is as large as its sensitivity
    >>> round(curve.advantage, 3), round(curve.true_positive_rate(0.001), 3)
    (0.383, 0.018)
    """

    epsilon: Array
    delta: Array
    renyi: Array  # of ORDERS

    def delta_at(self, epsilon: Array | float) -> Array:
        """delta is convex in exp(epsilon), so a straight line between two points lies above it."""
        return np.interp(np.exp(np.minimum(epsilon, LARGEST)), np.exp(self.epsilon), self.delta)

    def epsilon_at(self, delta: float) -> float:
        """The smallest epsilon that the curve or the divergences show at delta."""
        below = np.flatnonzero(self.delta <= delta)
        by_curve = np.inf
        if len(below):
            k = int(below[0])
            x, y = np.exp(self.epsilon[max(k - 1, 0) : k + 1]), self.delta[max(k - 1, 0) : k + 1]
            by_curve = float(np.log(np.interp(-delta, -y, x))) if k else float(self.epsilon[0])
        return min(by_curve, epsilon_of(self.renyi, delta))

    @property
    def advantage(self) -> float:
        """The largest difference between the rates of true and false accusations, delta(0)."""
        return float(self.delta[0])

    def true_positive_rate(self, false_positive_rate: Array | float) -> Array:
        """The share of the guilty that somebody finds at most who accuses this share of the innocent.

        Every point of the curve is two straight lines above the trade-off; the lowest counts.
        """
        a = np.asarray(false_positive_rate)[..., None]
        growth = np.exp(self.epsilon)
        rates = np.minimum(self.delta + growth * a, 1.0 - (1.0 - self.delta - a) / growth)
        return np.clip(rates.min(axis=-1), 0.0, 1.0)

    @property
    def gaussian_mu(self) -> float:
        """The smallest mu for which the whole curve lies below that of a mu-Gaussian mechanism (Dong, Roth, Su 2019)."""
        there = self.delta > 1e-10  # below, rounding counts more than the run
        epsilon, delta = self.epsilon[there], self.delta[there]
        if not len(delta):
            return 0.0
        low, high = 0.0, 1.0
        while np.any(gaussian_delta(epsilon, high) < delta):
            if high > 1e3:
                return np.inf
            low, high = high, 2.0 * high
        while high > low * (1.0 + 1e-9) + 1e-12:
            middle = 0.5 * (low + high)
            low, high = (middle, high) if np.any(gaussian_delta(epsilon, middle) < delta) else (low, middle)
        return high


def curve_of(profile: Profile) -> RecordedCurve:
    """The recorded form of what an account knows: up to the epsilon at which delta is SMALLEST."""
    top = 1.0
    while top < LARGEST and profile.delta(np.array([top]))[0] > SMALLEST:
        top = min(2.0 * top, LARGEST)
    coarse = np.linspace(0.0, top, 65)
    ended = np.flatnonzero(profile.delta(coarse) <= SMALLEST)
    top = float(coarse[ended[0]]) if len(ended) and ended[0] > 0 else top
    epsilon = np.linspace(0.0, top, POINTS)
    delta = np.minimum.accumulate(np.minimum(profile.delta(epsilon), 1.0))
    return RecordedCurve(epsilon, delta, profile.renyi(ORDERS))


def epsilon_of(renyi: Array, delta: float) -> float:
    """Of Renyi divergences of ORDERS."""
    return float(converted(renyi[None, :], delta)[0])


@dataclass(frozen=True)
class GaussianProfile:
    """A Gaussian mechanism, or several of them one after the other: mu^2 adds up."""

    mu: float

    def delta(self, epsilon: Array) -> Array:
        return gaussian_delta(epsilon, self.mu)

    def renyi(self, orders: Array) -> Array:
        return orders * self.mu**2 / 2.0


def gaussian_curve(mu: float) -> RecordedCurve:
    """That of a Gaussian mechanism."""
    return curve_of(GaussianProfile(mu))


@dataclass(frozen=True)
class RenyiProfile:
    """What is known by Renyi divergences of ORDERS alone."""

    divergences: Array

    def delta(self, epsilon: Array) -> Array:
        """Canonne, Kamath, Steinke 2020, Proposition 12, solved for delta: the smallest over the orders."""
        at_orders = (ORDERS - 1.0) * (self.divergences + np.log1p(-1.0 / ORDERS) - epsilon[:, None]) - np.log(ORDERS)
        return np.exp(np.minimum(at_orders.min(axis=1), 0.0))

    def renyi(self, orders: Array) -> Array:
        if not np.array_equal(orders, ORDERS):
            raise ValueError("known at ORDERS only")
        return self.divergences


def compose(curves: Sequence[RecordedCurve]) -> RecordedCurve:
    """The curve of all of them together: of the same people's records, each run with noise of its own.

    Loss distributions that dominate are made of the curves (Doroshenko et al.: Connect the Dots, 2022) and convolved; Renyi
    divergences add up.
    """
    if not curves:
        raise InputError("compose: nothing to compose")
    renyi = np.sum([curve.renyi for curve in curves], axis=0)
    if len(curves) == 1:
        return curves[0]
    reach = max(float(curve.epsilon[-1]) for curve in curves)
    spacing = reach / CELLS
    losses = [_loss_distribution(curve, spacing) for curve in curves]
    certain = 1.0 - float(np.prod([1.0 - infinite for _, _, infinite in losses]))
    size = 1 << int(np.ceil(np.log2(sum(len(p) for _, p, _ in losses))))
    product = np.prod([np.fft.rfft(p, size) for _, p, _ in losses], axis=0)
    total = np.fft.irfft(product, size)[: sum(len(p) - 1 for _, p, _ in losses) + 1]
    # What rounding may hide of a tail is added to every delta.
    hidden = size * len(losses) * np.finfo(np.float64).eps * 1e-3
    loss: Array = spacing * (sum(first for first, _, _ in losses) + np.arange(len(total), dtype=np.float64))
    positive = loss > 0.0
    loss, p = loss[positive], np.maximum(total[positive], 0.0)
    epsilon = np.linspace(0.0, float(loss[-1]), 4 * POINTS)
    # sum over losses above epsilon of p (1 - exp(epsilon - loss)): the exponentials never exceed 1
    above = np.searchsorted(loss, epsilon, side="right")
    mass = np.append(np.cumsum(p[::-1])[::-1], 0.0)
    tilted = np.append(tilted_tails(p, spacing), 0.0)
    shifted = np.exp(np.minimum(epsilon - np.append(loss, loss[-1])[above], 0.0))
    delta = np.clip(mass[above] - shifted * tilted[above], 0.0, None) + hidden + certain
    end = int(np.argmax(np.append(delta <= SMALLEST + hidden + certain, True)))
    keep = np.unique(np.linspace(0, min(end, len(epsilon) - 1), 2 * POINTS).astype(int))
    return RecordedCurve(epsilon[keep], np.minimum.accumulate(np.minimum(delta[keep], 1.0)), renyi)


def _loss_distribution(curve: RecordedCurve, spacing: float) -> tuple[int, Array, float]:
    """(first, p, infinite): losses (first + k) spacing with probability p[k], and what is lost for certain.

    Neighbours may change places, so delta(-epsilon) <= 1 - exp(-epsilon) (1 - delta(epsilon)).
    """
    top = int(np.ceil(curve.epsilon[-1] / spacing))
    steps = np.arange(-top, top + 1)
    epsilon = spacing * steps
    positive = curve.delta_at(np.abs(epsilon))
    delta = np.where(steps >= 0, positive, 1.0 - np.exp(-np.abs(epsilon)) * (1.0 - positive))
    delta = _convex(np.exp(epsilon), delta)
    # A loss distribution on the grid with these deltas: its delta is linear in exp(epsilon) between the points.
    slopes = np.append(-1.0, np.append(np.diff(delta) / np.diff(np.exp(epsilon)), 0.0))
    slopes[0] = (delta[0] - 1.0) / np.exp(epsilon[0])  # towards epsilon = -infinity, where delta is 1
    p = np.maximum(np.diff(slopes), 0.0) * np.exp(epsilon)
    return int(steps[0]), p, float(delta[-1])


def _convex(x: Array, y: Array) -> Array:
    """The largest convex function below the points: what is bounded by them is convex, so it lies below it too."""
    hull_x, hull_y = list[float](), list[float]()
    for a, b in zip(x.tolist(), y.tolist(), strict=True):  # Python's numbers: numpy's cost several times as much one by one
        while len(hull_x) > 1 and (hull_y[-1] - hull_y[-2]) * (a - hull_x[-2]) >= (b - hull_y[-2]) * (hull_x[-1] - hull_x[-2]):
            hull_x.pop()
            hull_y.pop()
        hull_x.append(a)
        hull_y.append(b)
    return np.interp(x, hull_x, hull_y)


def mean_tries(shape: float, gamma: float) -> float:
    """E[K] of the truncated negative binomial distribution; shape 0 is the logarithmic, 1 the geometric one."""
    if shape == 0.0:
        return float((1.0 / gamma - 1.0) / np.log(1.0 / gamma))
    return float(shape * (1.0 - gamma) / (gamma * (1.0 - gamma**shape)))


def gamma_of(shape: float, tries: float) -> float:
    """The gamma with which the mean is `tries`, above 1."""
    from scipy.optimize import brentq

    return float(brentq(lambda gamma: np.log(mean_tries(shape, gamma) / tries), 1e-12, 1.0 - 1e-9))


def number_of_tries(shape: float, gamma: float, share: float) -> int:
    """K of the truncated negative binomial distribution at a share in [0, 1) of its probability: share at random, K drawn.

    P[K = k] is proportional to (1 - gamma)^k Gamma(k + shape) / k!, k = 1, 2, ... (Papernot and Steinke, Definition 1).
    """
    k = 1
    p = (1.0 - gamma) / np.log(1.0 / gamma) if shape == 0.0 else shape * (1.0 - gamma) / (gamma**-shape - 1.0)
    below = p
    while share >= below and p > 1e-300:
        p *= (1.0 - gamma) * (k + shape) / (k + 1)
        k += 1
        below += p
    return k


def selection(renyi: Array, tries: float) -> tuple[Array, float]:
    """Renyi divergences of the best of a random number of tries with this mean, and the shape of that number's law.

    Papernot, Steinke: Hyperparameter Tuning with Renyi Differential Privacy, 2022, Theorem 2. `renyi` bounds each try. The
    shape is chosen to make the divergences small at large orders; it does not depend on the records.
    """
    found = []
    for shape in SHAPES:
        if tries <= 1.0:
            return renyi, shape
        gamma = gamma_of(shape, tries)
        once_more = (1.0 + shape) * np.min((1.0 - 1.0 / ORDERS) * renyi + np.log(1.0 / gamma) / ORDERS)
        found.append((renyi + once_more + np.log(tries) / (ORDERS - 1.0), shape))
    return min(found, key=lambda item: epsilon_of(item[0], 1e-6))
