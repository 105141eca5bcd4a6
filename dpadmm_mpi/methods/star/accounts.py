"""Privacy of PS-ADMM: two accounts of all noisy gradients of one provider, for replacing one of its records.

[S] Ding, Errapotu, Zhang, Gong, Pan, Han: Stochastic ADMM Based Distributed Machine Learning with Differential Privacy, 2019.

Letters of [S]: K outer iterations of S inner steps, M records, G Lipschitz constant of a record's loss, sigma noise_std.
"""

from dataclasses import dataclass, replace

import numpy as np

from dpadmm_mpi.methods.base import NO_NOISE
from dpadmm_mpi.methods.gaussian import paper_account, paper_noise, papers_noise_std, sound_account, sound_noise
from dpadmm_mpi.privacy import gaussian_noise, sampled_steps
from dpadmm_mpi.privacy.account import Account
from dpadmm_mpi.privacy.recorded_curves import SMALLEST, RenyiProfile
from dpadmm_mpi.privacy.releases import StarReleases
from dpadmm_mpi.types import Array, Ints

NEIGHBOURS = "replace one record of one provider"
PAPER = (
    "[S] Theorem 2 with c = {c:g}, solved for epsilon; nothing proves it: its constants c and c1 are not given, its condition "
    "epsilon <= c1 K S / M^2 excludes nearly every budget, and the full gradient that enters every inner step unsampled is "
    "overlooked"
)
SPLIT = (
    "split: sigma^2 = s1^2 + s2^2: in every inner step the sampled difference is a sampled Gaussian mechanism (rate {b}/M, "
    "sensitivity {hit}, noise s1) and the full gradient a Gaussian mechanism (sensitivity 2G/M, noise s2); Renyi curves "
    "added over all inner steps, at the best split and order"
)
CONDITIONED = (
    "conditioned on the sampling: delta is the mean, over the number J ~ Binomial(K S, {b}/M) of inner steps that the record "
    "enters, of that of a Gaussian mechanism with mu^2 = (J ({hit} + 2G/M)^2 + (K S - J)(2G/M)^2) / sigma^2"
)
GROUPS = 8  # sizes for which the sound account is computed; sizes in between count as the next smaller one
LEVELS = 16  # of a noise that changes, for the split account; sigma in between counts as the next smaller one
SHARES = np.geomspace(1e-6, 0.9, 16)  # s2^2 / sigma^2, to begin the search with
USUAL_DELTA = 1e-5  # at which one of SHARES is chosen for a whole curve
SHARE_TOLERANCE = 3e-3  # of ln(s2^2 / sigma^2); the account is flat at its best


@paper_noise.register
def smallest_noise(r: StarReleases, epsilon: float, delta: float) -> float:
    """[S] Theorem 2: sigma^2 = c G^2 K S ln(1/delta) / (M^2 epsilon^2), for the provider with fewest records.

    With a batch the noise on its mean is the same: by [S] Theorem 1 it grows like the batch, and the mean divides by it.
    """
    steps = _equal_steps(r)[-1]
    return float(np.sqrt(r.c) * r.G * np.sqrt(steps * np.log(1.0 / delta)) / (r.M.min() * epsilon))


def paper_epsilon(r: StarReleases, delta: float) -> Array:
    """[S] Theorem 2 solved for epsilon_i after k iterations, k in place of K, (K+1, N)."""
    if r.noise_std == 0.0:
        return _nothing_private(r)
    return np.sqrt(r.c) * r.G * np.sqrt(_equal_steps(r) * np.log(1.0 / delta))[:, None] / (r.M * r.noise_std)


def paper_margin(r: StarReleases, delta: float) -> Array:
    """c1 K S / M_i^2 - epsilon_i with c1 = 1, which Theorem 2 needs not to be negative, (N,)."""
    return r.iterations * r.inner_steps / r.M**2 - paper_epsilon(r, delta)[-1]


def sound_epsilon(r: StarReleases, delta: float) -> Array:
    """epsilon_i at delta after k iterations, (K+1, N): the smaller of the two sound accounts."""
    return np.minimum(*sound_epsilons(r, delta))


def sound_epsilons(r: StarReleases, delta: float) -> tuple[Array, Array]:
    """The split and the conditioned account, (K+1, N) each: equal sizes once, and at most GROUPS sizes, rounded down."""
    if r.noise_std == 0.0:
        return _nothing_private(r), _nothing_private(r)
    sizes, node = np.unique(r.M, return_inverse=True)
    groups = np.array_split(sizes, min(GROUPS, len(sizes)))
    group_of_size = np.repeat(np.arange(len(groups)), [len(group) for group in groups])
    iterations = np.arange(1.0, r.iterations + 1.0)
    columns = group_of_size[node]
    of_sizes = [float(group[0]) for group in groups]
    split = np.stack([split_epsilon(r, M, iterations, delta) for M in of_sizes], axis=1)
    conditioned = np.stack([conditioned_mixture(r, M, iterations, delta).epsilon(r.noise_std, delta) for M in of_sizes], axis=1)
    nothing_yet = np.zeros((1, r.nodes))
    return np.concatenate([nothing_yet, split[:, columns]]), np.concatenate([nothing_yet, conditioned[:, columns]])


def split_curve(r: StarReleases, M: float, share: float) -> Array:
    """The Renyi curve of one inner step with s2^2 = share * sigma^2 (docs/mathematics.md, section 8)."""
    s1, s2 = r.noise_std * np.sqrt(1.0 - share), r.noise_std * np.sqrt(share)
    difference = gaussian_noise.sampled_gaussian(r.batch_size / M, s1 / (4.0 * r.G / r.batch_size))
    full_gradient = gaussian_noise.gaussian(s2 * M / (2.0 * r.G))
    return difference + full_gradient


def split_epsilon(r: StarReleases, M: float, iterations: Array, delta: float) -> Array:
    """Epsilon after each number of iterations. Every split is a valid account: the search ends at the best one for the last
    number, and the numbers before it take the best of all that were tried."""
    from scipy.optimize import minimize_scalar

    tried: list[Array] = []
    levels, level = _levels(r)

    def last(log_share: float) -> float:
        share = float(np.exp(log_share))
        if len(levels) == 1:
            tried.append(gaussian_noise.epsilon(split_curve(r, M, share), iterations * r.inner_steps, delta))
        else:
            curves = np.stack([split_curve(replace(r, noise_std=sigma), M, share) for sigma in levels])
            spent = r.inner_steps * np.cumsum(curves[level], axis=0)
            tried.append(gaussian_noise.converted(spent[iterations.astype(int) - 1], delta))
        return float(tried[-1][-1])

    log_shares = np.log(SHARES)
    best = int(np.argmin([last(share) for share in log_shares]))
    between = (log_shares[max(best - 1, 0)], log_shares[min(best + 1, len(SHARES) - 1)])
    minimize_scalar(last, bounds=between, method="bounded", options={"xatol": SHARE_TOLERANCE})
    return np.min(tried, axis=0)


def conditioned_mixture(r: StarReleases, M: float, iterations: Array, delta: float) -> sampled_steps.Mixture:
    """The law of mu^2 at noise_std = 1 after each number of iterations (docs/mathematics.md, section 8)."""
    missed = 2.0 * r.G / M
    hit = 4.0 * r.G / r.batch_size + missed
    steps = sampled_steps.Steps(r.inner_steps, r.batch_size / M, replace(r, noise_std=1.0).sigma, hit, missed)
    return sampled_steps.mixture(steps, iterations, delta)


def _levels(r: StarReleases) -> tuple[Array, Ints]:
    """The sigmas that the split account tells apart, and which of them each iteration has."""
    levels, level = np.unique(r.sigma, return_inverse=True)
    if len(levels) > LEVELS:
        levels = np.geomspace(levels[0], levels[-1], LEVELS + 1)[:-1]
        level = np.searchsorted(levels, r.sigma * (1.0 + 1e-12), side="right") - 1
    return levels, level


@sound_noise.register
def _(r: StarReleases, target: float, delta: float) -> float:
    """That brings the worst provider, the smallest, to the target."""
    last, M = np.array([float(r.iterations)]), float(r.M.min())
    conditioned = conditioned_mixture(r, M, last, delta)

    def worst(noise_std: float) -> float:
        split = split_epsilon(replace(r, noise_std=noise_std), M, last, delta)
        return float(min(split[-1], conditioned.epsilon(noise_std, delta)[-1]))

    return gaussian_noise.calibrate(worst, target, start=papers_noise_std(r, target, delta))


def sampled_model_noise(r: StarReleases, epsilon: float, delta: float) -> float:
    """What [S]'s own model needs with a proper accountant: every inner step a sampled Gaussian mechanism of sensitivity 3G.

    It still overlooks the full gradient, and is here to say what that costs.
    """
    steps, M = np.array([float(r.inner_steps) * r.iterations]), float(r.M.min())

    def spent(noise_std: float) -> float:
        curve = gaussian_noise.sampled_gaussian(r.batch_size / M, noise_std / (3.0 * r.G))
        return float(gaussian_noise.epsilon(curve, steps, delta)[0])

    return gaussian_noise.calibrate(spent, epsilon, start=smallest_noise(r, epsilon, delta))


@paper_account.register
def _(r: StarReleases, delta: float) -> Account:
    # Whatever its condition says: constants that nobody knows prove nothing. Infinity needs no proof.
    words, proven = (PAPER.format(c=r.c), False) if r.noise_std > 0.0 else (NO_NOISE, True)
    title = f"epsilon at delta = {delta:g}, paper's"
    return Account("epsilon_paper", title, paper_epsilon(r, delta), words, proven, NEIGHBOURS, delta)


@sound_account.register
def _(r: StarReleases, delta: float) -> Account:
    split, conditioned = sound_epsilons(r, delta)
    words = _words(r, split, conditioned) if r.noise_std > 0.0 else NO_NOISE
    title = f"epsilon at delta = {delta:g}, sound"
    profile = StarProfile(r, float(r.M.min())) if r.noise_std > 0.0 else None
    return Account("epsilon_sound", title, np.minimum(split, conditioned), words, True, NEIGHBOURS, delta, profile=profile)


@dataclass(frozen=True)
class StarProfile:
    """What the provider with fewest records, M, releases: the smaller of the two sound accounts."""

    releases: StarReleases
    M: float

    def delta(self, epsilon: Array) -> Array:
        r = self.releases
        last = np.array([float(r.iterations)])
        conditioned = conditioned_mixture(r, self.M, last, SMALLEST).delta(r.noise_std, epsilon)
        left_out = sampled_steps.LEFT_OUT * SMALLEST
        return np.minimum(conditioned + left_out, RenyiProfile(self._split()).delta(epsilon))

    def renyi(self, orders: Array) -> Array:
        """Conditioned on the sampling, the steps are independent, and so are their moments."""
        r, missed = self.releases, 2.0 * self.releases.G / self.M
        hit, rate = 4.0 * r.G / r.batch_size + missed, r.batch_size / self.M
        factor = orders[:, None] * (orders[:, None] - 1.0) / (2.0 * r.sigma**2)
        hits = factor * (hit**2 - missed**2)
        if rate < 1.0:
            hits = np.logaddexp(np.log1p(-rate), np.log(rate) + hits)
        conditioned = r.inner_steps * np.sum(hits + factor * missed**2, axis=1) / (orders - 1.0)
        return np.minimum(conditioned, RenyiProfile(self._split()).renyi(orders))

    def _split(self) -> Array:
        """Divergences of all inner steps, at the best of SHARES for a small delta."""
        r = self.releases
        levels, level = _levels(r)
        counts = r.inner_steps * np.bincount(level, minlength=len(levels))
        found = [
            sum(
                n * split_curve(replace(r, noise_std=float(sigma)), self.M, float(share))
                for n, sigma in zip(counts, levels, strict=True)
            )
            for share in SHARES
        ]
        return np.asarray(
            min(found, key=lambda curve: float(gaussian_noise.converted(np.asarray(curve)[None], USUAL_DELTA)[0]))
        )


def _words(r: StarReleases, split: Array, conditioned: Array) -> str:
    """Which of the two accounts it is, after the last iteration and before."""
    b = r.batch_size
    names = {"b": b, "hit": "4G" if b == 1 else f"4G/{b}"}
    texts = {True: CONDITIONED.format(**names), False: SPLIT.format(**names)}
    worst = int(np.minimum(split, conditioned)[-1].argmax())
    smaller = conditioned[1:, worst] < split[1:, worst]
    ends = bool(smaller[-1])
    if np.all(smaller == ends):
        return texts[ends]
    return f"{texts[ends]}; in {np.sum(smaller != ends)} of {len(smaller)} iterations before, {texts[not ends]}"


def _equal_steps(r: StarReleases) -> Array:
    """How many inner steps with the noise of the first iteration cost the same as those of k iterations, (K+1,)."""
    weights = np.ones(r.iterations) if not len(r.growth) else r.growth**-2.0
    return np.concatenate([[0.0], np.cumsum(weights)]) * r.inner_steps


def _nothing_private(r: StarReleases) -> Array:
    return np.full((r.iterations + 1, r.nodes), np.inf)
