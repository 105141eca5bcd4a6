"""Privacy of PS-ADMM: two accounts of all noisy gradients of one provider, for replacing one of its records.

[S] Ding, Errapotu, Zhang, Gong, Pan, Han: Stochastic ADMM Based Distributed Machine Learning with Differential Privacy, 2019.

Letters of [S]: K outer iterations of S inner steps, M records, G Lipschitz constant of a record's loss, sigma noise_std.
"""

from dataclasses import replace

import numpy as np

from dpadmm_mpi.methods.base import NO_NOISE
from dpadmm_mpi.methods.gaussian import paper_account, paper_noise, sound_account, sound_noise
from dpadmm_mpi.privacy import gaussian_noise
from dpadmm_mpi.privacy.account import Account
from dpadmm_mpi.privacy.releases import StarReleases
from dpadmm_mpi.types import Array

NEIGHBOURS = "replace one record of one provider"
PAPER = (
    "[S] Theorem 2 with c = 1, solved for epsilon; the constants c and c1 are not given, and the full gradient that enters "
    "every inner step unsampled is overlooked"
)
SOUND = (
    "sigma^2 = s1^2 + s2^2: in every inner step the sampled difference is a sampled Gaussian mechanism (rate 1/M, "
    "sensitivity 4G, noise s1) and the full gradient a Gaussian mechanism (sensitivity 2G/M, noise s2); Renyi curves "
    "added over all inner steps, at the best split and order"
)
GROUPS = 8  # sizes for which the sound account is computed; sizes in between count as the next smaller one
SHARES = np.geomspace(1e-6, 0.9, 16)  # s2^2 / sigma^2, to begin the search with
SHARE_TOLERANCE = 3e-3  # of ln(s2^2 / sigma^2); the account is flat at its best


@paper_noise.register
def smallest_noise(r: StarReleases, epsilon: float, delta: float) -> float:
    """[S] Theorem 2 with c = 1: sigma^2 = c G^2 K S ln(1/delta) / (M^2 epsilon^2), for the provider with fewest records."""
    return float(r.G * np.sqrt(r.iterations * r.inner_steps * np.log(1.0 / delta)) / (r.M.min() * epsilon))


def paper_epsilon(r: StarReleases, delta: float) -> Array:
    """[S] Theorem 2 solved for epsilon_i after k iterations, k in place of K, (K+1, N)."""
    if r.noise_std == 0.0:
        return _nothing_private(r)
    return r.G * np.sqrt(_steps(r) * np.log(1.0 / delta))[:, None] / (r.M * r.noise_std)


def paper_margin(r: StarReleases, delta: float) -> Array:
    """c1 K S / M_i^2 - epsilon_i with c1 = 1, which Theorem 2 needs not to be negative, (N,)."""
    return r.iterations * r.inner_steps / r.M**2 - paper_epsilon(r, delta)[-1]


def sound_epsilon(r: StarReleases, delta: float) -> Array:
    """epsilon_i at delta after k iterations, (K+1, N): equal sizes once, and at most GROUPS sizes, rounded down."""
    if r.noise_std == 0.0:
        return _nothing_private(r)
    sizes, node = np.unique(r.M, return_inverse=True)
    groups = np.array_split(sizes, min(GROUPS, len(sizes)))
    group_of_size = np.repeat(np.arange(len(groups)), [len(group) for group in groups])
    columns = [_best_split(r, float(group[0]), _steps(r), delta) for group in groups]
    return np.stack(columns, axis=1)[:, group_of_size[node]]


def split_curve(r: StarReleases, M: float, share: float) -> Array:
    """The Renyi curve of one inner step with s2^2 = share * sigma^2 (docs/mathematics.md, section 8)."""
    s1, s2 = r.noise_std * np.sqrt(1.0 - share), r.noise_std * np.sqrt(share)
    difference = gaussian_noise.sampled_gaussian(1.0 / M, s1 / (4.0 * r.G))
    full_gradient = gaussian_noise.gaussian(s2 * M / (2.0 * r.G))
    return difference + full_gradient


def _best_split(r: StarReleases, M: float, steps: Array, delta: float) -> Array:
    """Epsilon after each number of steps. Every split is a valid account: the search ends at the best one for the last
    number, and the numbers before it take the best of all that were tried."""
    from scipy.optimize import minimize_scalar

    tried: list[Array] = []

    def last(log_share: float) -> float:
        tried.append(gaussian_noise.epsilon(split_curve(r, M, float(np.exp(log_share))), steps, delta))
        return float(tried[-1][-1])

    log_shares = np.log(SHARES)
    best = int(np.argmin([last(share) for share in log_shares]))
    between = (log_shares[max(best - 1, 0)], log_shares[min(best + 1, len(SHARES) - 1)])
    minimize_scalar(last, bounds=between, method="bounded", options={"xatol": SHARE_TOLERANCE})
    return np.min(tried, axis=0)


@sound_noise.register
def _(r: StarReleases, target: float, delta: float) -> float:
    """That brings the worst provider, the smallest, to the target."""
    last = np.array([float(r.iterations * r.inner_steps)])

    def worst(noise_std: float) -> float:
        return float(_best_split(replace(r, noise_std=noise_std), float(r.M.min()), last, delta)[-1])

    return gaussian_noise.calibrate(worst, target, start=smallest_noise(r, target, delta))


@paper_account.register
def _(r: StarReleases, delta: float) -> Account:
    # Whatever its condition says: constants that nobody knows prove nothing. Infinity needs no proof.
    words, proven = (PAPER, False) if r.noise_std > 0.0 else (NO_NOISE, True)
    title = f"epsilon at delta = {delta:g}, paper's"
    return Account("epsilon_paper", title, paper_epsilon(r, delta), words, proven, NEIGHBOURS, delta)


@sound_account.register
def _(r: StarReleases, delta: float) -> Account:
    words = SOUND if r.noise_std > 0.0 else NO_NOISE
    title = f"epsilon at delta = {delta:g}, sound"
    return Account("epsilon_sound", title, sound_epsilon(r, delta), words, True, NEIGHBOURS, delta)


def _steps(r: StarReleases) -> Array:
    """Inner steps after k outer iterations, (K+1,)"""
    return np.arange(r.iterations + 1.0) * r.inner_steps


def _nothing_private(r: StarReleases) -> Array:
    return np.full((r.iterations + 1, r.nodes), np.inf)
