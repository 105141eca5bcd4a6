"""Gaussian noise on steps that a record enters by chance: the account conditioned on the sampling.

Who is sampled does not depend on the records, so it may as well be published. Given that, the steps are Gaussian mechanisms
one after the other, and theirs is one Gaussian mechanism with mu^2 = sum of (sensitivity / noise)^2. The delta of the whole is
the mean of that mechanism's delta over the sampling:

    delta(epsilon) = E_J[ Phi(mu_J/2 - epsilon/mu_J) - exp(epsilon) Phi(-mu_J/2 - epsilon/mu_J) ]

(Balle, Wang: Improving the Gaussian Mechanism for Differential Privacy, 2018, Theorem 8). Whatever is rounded is rounded to
the safe side: numbers of hits that are taken together count as the largest of them, and those left out, whose probability
is at most 1e-12 delta, count fully. Steps that every record enters are the case of one mu.
"""

from typing import NamedTuple

import numpy as np

from dpadmm_mpi.types import Array

LEFT_OUT = 1e-12  # of delta
BINS = 256  # numbers of hits that are told apart; more are taken together
GRID = 1 << 14  # points for mu^2 where the noise changes from iteration to iteration
TOLERANCE = 1e-12  # relative, of epsilon
ROUNDS = 200  # of Newton steps and bisections; what is left then is still on the safe side
ROUND_OFF = 1e-15  # of Phi, which is added to a delta


class Mixture(NamedTuple):
    """The law of mu^2 with noise 1 after some numbers of iterations: a row for each."""

    probabilities: Array  # (rows, bins)
    squares: Array  # mu^2, (rows, bins)

    def epsilon(self, noise: float, delta: float) -> Array:
        """The smallest epsilon with delta(epsilon) <= delta, (rows,)."""
        return smallest_epsilon(self.probabilities, np.sqrt(self.squares) / noise, delta)

    def delta(self, noise: float, epsilon: Array) -> Array:
        """delta at each epsilon after the last number of iterations; what the law leaves out is not counted here."""
        mu = np.sqrt(self.squares[-1:]) / noise
        return np.array([delta_of(np.array([each]), self.probabilities[-1:], mu)[0][0] for each in epsilon])


class Steps(NamedTuple):
    """`steps` in every iteration, with noise of its own, (K,); a record enters each with the chance `rate`."""

    steps: int
    rate: float
    noise: Array  # over a common factor
    hit: float  # sensitivity of a step that the record enters
    missed: float  # and of one that it does not


def mixture(s: Steps, iterations: Array, delta: float) -> Mixture:
    """After each of these numbers of iterations, all above 0."""
    if np.all(s.noise == s.noise[0]):
        return _constant(s, iterations, delta)
    return _changing(s, iterations, delta)


def _constant(s: Steps, iterations: Array, delta: float) -> Mixture:
    n = iterations * float(s.steps)
    first, last = _window(n, s.rate, LEFT_OUT * delta)
    together = np.ceil((last - first + 1.0) / BINS)  # numbers of hits in a bin, for each row by itself
    hits, probabilities = np.repeat(n[:, None], BINS, axis=1), np.zeros((len(n), BINS))
    for size in np.unique(together).astype(int):
        rows = np.flatnonzero(together == size)
        all_hits, chances = _binomial(n[rows], s.rate, LEFT_OUT * delta)
        ends = np.append(np.arange(size, all_hits.shape[1], size), all_hits.shape[1])
        hits[rows, : len(ends)] = all_hits[:, ends - 1]
        probabilities[rows, : len(ends)] = np.add.reduceat(chances, np.append(0, ends[:-1]), axis=1)
    used = probabilities.any(axis=0)
    hits, probabilities = hits[:, used], probabilities[:, used]
    squares = (hits * s.hit**2 + (n[:, None] - hits) * s.missed**2) / s.noise[0] ** 2
    return Mixture(probabilities, squares)


def _changing(s: Steps, iterations: Array, delta: float) -> Mixture:
    """A hit in iteration k adds (hit^2 - missed^2) / noise_k^2, rounded up onto a grid; the law of the sum, step by step."""
    K = int(iterations[-1])
    noise = s.noise[:K]
    unit = (s.hit**2 - s.missed**2) / noise**2
    fixed = np.cumsum(s.steps * s.missed**2 / noise**2)
    mean, largest, L = s.steps * s.rate * unit.sum(), float(unit.max()), -np.log(LEFT_OUT * delta / 2.0)
    top = mean + largest * L / 3.0 + np.sqrt((largest * L / 3.0) ** 2 + 2.0 * largest * mean * L)  # Bernstein
    spacing = min(top, s.steps * float(unit.sum())) / (GRID - 1)
    hits, chances = _binomial(np.array([float(s.steps)]), s.rate, LEFT_OUT * delta / (2.0 * K))
    law, rows, values = np.zeros(GRID), [], spacing * np.arange(GRID)
    law[0] = 1.0
    wanted = set(iterations.astype(int).tolist())
    for k in range(1, K + 1):
        shifts = hits[0].astype(int) * int(np.ceil(unit[k - 1] / spacing * (1.0 - 1e-15)))
        law = _shifted_sum(law, shifts, chances[0])
        if k in wanted:
            rows.append(_in_bins(law, values + fixed[k - 1]))
    return Mixture(np.stack([row.probabilities for row in rows]), np.stack([row.squares for row in rows]))


def _shifted_sum(law: Array, shifts: Array, chances: Array) -> Array:
    total = np.zeros_like(law)
    for shift, chance in zip(shifts, chances, strict=True):
        if shift < len(law):
            total[shift:] += chance * law[: len(law) - shift]
    return total


def _window(n: Array, rate: float, left_out: float) -> tuple[Array, Array]:
    """The smallest and the largest number of hits in n steps, but for `left_out` of the probability: Bernstein's bound."""
    if rate == 1.0:
        return n, n
    L, mean = -np.log(left_out / 2.0), n * rate
    first = np.maximum(np.floor(mean - np.sqrt(2.0 * mean * L)), 0.0)
    return first, np.minimum(np.ceil(mean + L / 3.0 + np.sqrt((L / 3.0) ** 2 + 2.0 * mean * L)), n)


def _binomial(n: Array, rate: float, left_out: float) -> tuple[Array, Array]:
    """Numbers of hits in n steps and their probabilities, (rows, hits).

    The probabilities are built up from neighbour to neighbour, and add up to 1: what is left out is spread over the rest.
    """
    first, last = _window(n, rate, left_out)
    hits = first[:, None] + np.arange(float((last - first).max()) + 1.0)
    if rate == 1.0:
        return hits, np.ones_like(hits)
    with np.errstate(divide="ignore"):
        ratios = np.log(np.maximum(n[:, None] - hits[:, :-1], 0.0)) - np.log(hits[:, :-1] + 1.0)
    ratios += np.log(rate) - np.log1p(-rate)
    logs = np.concatenate([np.zeros((len(n), 1)), np.cumsum(ratios, axis=1)], axis=1)
    logs = np.where(hits <= n[:, None], logs, -np.inf)
    chances = np.exp(logs - logs.max(axis=1, keepdims=True))
    return np.minimum(hits, n[:, None]), chances / chances.sum(axis=1, keepdims=True)


def _in_bins(probabilities: Array, squares: Array) -> Mixture:
    """BINS of a grid, but for its empty ends; what is in one counts as the largest in it."""
    there = np.flatnonzero(probabilities > 0.0)
    ends = np.unique(np.linspace(there[0], there[-1] + 1, BINS + 1).astype(int))
    together = np.add.reduceat(probabilities[: ends[-1]], ends[:-1])
    padding = (0, BINS - len(together))
    return Mixture(np.pad(together, padding), np.pad(squares[ends[1:] - 1], padding, mode="edge"))


def smallest_epsilon(probabilities: Array, mu: Array, delta: float) -> Array:
    """Newton's method on ln delta, which is nearly concave, between bounds that close in; a row each."""
    aim = delta * (1.0 - LEFT_OUT)
    largest = mu.max(axis=1)
    low, high = np.zeros(len(mu)), largest**2 / 2.0 + largest * np.sqrt(-2.0 * np.log(aim))
    x, rows = np.zeros(len(mu)), np.arange(len(mu))
    for _ in range(ROUNDS):
        at = x[rows]
        value, slope = delta_of(at, probabilities[rows], mu[rows])
        above = value > aim
        low[rows], high[rows] = np.where(above, at, low[rows]), np.where(above, high[rows], at)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            step = value * np.log(value / aim) / slope
        newton = at + step + np.where(above, TOLERANCE / 4.0 * at, 0.0)  # an end on the safe side
        inside = (newton > low[rows]) & (newton < high[rows])
        x[rows] = np.where(inside, newton, low[rows] + (high[rows] - low[rows]) / 2.0)
        ended = (~above & (np.abs(step) <= TOLERANCE * at)) | (high[rows] - low[rows] <= TOLERANCE * high[rows])
        rows = rows[~ended]
        if not len(rows):
            break
    return high


def delta_of(epsilon: Array, probabilities: Array, mu: Array) -> tuple[Array, Array]:
    """delta(epsilon) of the mixtures, and minus its derivative, sum of p exp(epsilon) Phi(-mu/2 - epsilon/mu)."""
    from scipy.special import erfcx, ndtr

    centre = epsilon[:, None] / mu
    a, b = mu / 2.0 - centre, mu / 2.0 + centre
    tail = ndtr(a)
    weighted = 0.5 * np.exp(-0.5 * a**2) * erfcx(b / np.sqrt(2.0))  # exp(epsilon) Phi(-b): phi(a) = exp(epsilon) phi(b)
    delta = np.maximum(tail - weighted, 0.0) + ROUND_OFF * tail
    return np.sum(probabilities * delta, axis=1), np.sum(probabilities * weighted, axis=1)


def gaussian_delta(epsilon: Array, mu: float) -> Array:
    """Phi(mu/2 - epsilon/mu) - exp(epsilon) Phi(-mu/2 - epsilon/mu): Balle, Wang 2018, Theorem 8."""
    ones = np.ones((len(epsilon), 1))
    return delta_of(epsilon, ones, mu * ones)[0]


def gaussian_epsilon(mu: Array, delta: float) -> Array:
    """The smallest epsilon with delta(epsilon) <= delta, at each mu."""
    values, place = np.unique(mu, return_inverse=True)
    found = smallest_epsilon(np.ones((len(values), 1)), values[:, None], delta)
    return found[place].reshape(mu.shape)
