"""Privacy of noisy gradients, for replacing one record of one node: exactly a Gaussian mechanism, however many there are.

Replacing a record of node i moves grad O_i by at most Delta_i = 2 G C / B_i, so g~_i(1), ..., g~_i(K) together lose no more
than one Gaussian mechanism with mu_i^2 = sum_k (Delta_i / sigma_k)^2 (Dong, Roth, Su 2019, Corollary 3.3), and there are
records for which it is this much. All that travels is computed from them. Where neighbours share noise, Sigma_k = sigma_k^2 M
is its covariance over the nodes without the colluders, and mu_i^2 = sum_k Delta_i^2 [Sigma_k^-1]_ii (docs/baselines.md).
"""

from dataclasses import replace

import numpy as np

from dpadmm_mpi.methods.base import NO_NOISE
from dpadmm_mpi.methods.gaussian import sound_account, sound_noise
from dpadmm_mpi.methods.shared_noise import CORRELATED
from dpadmm_mpi.privacy.account import Account
from dpadmm_mpi.privacy.recorded_curves import GaussianProfile
from dpadmm_mpi.privacy.releases import GradientReleases
from dpadmm_mpi.privacy.sampled_steps import gaussian_delta, gaussian_epsilon
from dpadmm_mpi.types import Array, Bools

NEIGHBOURS = "replace one record of one node"
EXACT = (
    "Gaussian mechanisms of sensitivity 2 G C/B one after the other, exactly one with mu = (2 G C/B) sqrt(sum of 1/sigma^2); "
    "all else that travels is computed from these noisy gradients"
)


def words(r: GradientReleases) -> str:
    """What it rests on, with noise."""
    return EXACT if r.worth is None else EXACT + CORRELATED


def mu(r: GradientReleases) -> Array:
    """mu_i after each iteration, (T+1, N); inf without noise. Where nodes may be absent, the largest over the runs."""
    if r.taken is not None:
        return np.asarray(mu_of_runs(r, r.taken).max(axis=0))
    if r.noise_std == 0.0:
        return np.full((r.iterations + 1, r.nodes), np.inf)
    total = np.concatenate([[0.0], np.cumsum(r.sigma**-2.0)])
    steps_before = np.searchsorted(r.data_steps, np.arange(r.iterations + 1), side="right")
    return np.sqrt(total)[steps_before][:, None] * shift(r)


def shift(r: GradientReleases) -> Array:
    """How far a record moves a gradient, over what the noise is worth, (N,)."""
    return r.sensitivity if r.worth is None else r.sensitivity / r.worth


def mu_of_runs(r: GradientReleases, taken: Bools) -> Array:
    """mu_i after each iteration of each run, (runs, T+1, N): of the gradients that the node has taken."""
    if r.noise_std == 0.0:
        return np.full((len(taken), r.iterations + 1, r.nodes), np.inf)
    by_step = np.cumsum(taken * r.sigma[:, None] ** -2.0, axis=1)
    total = np.concatenate([np.zeros_like(by_step[:, :1]), by_step], axis=1)
    steps_before = np.searchsorted(r.data_steps, np.arange(r.iterations + 1), side="right")
    return np.asarray(np.sqrt(total[:, steps_before]) * shift(r))


def epsilon_of(mu: Array, delta: float) -> Array:
    """Of Gaussian mechanisms, at `delta`; 0 at mu = 0, inf at inf."""
    found = np.where(np.isinf(mu), np.inf, 0.0)
    some = (mu > 0.0) & np.isfinite(mu)
    found[some] = gaussian_epsilon(mu[some], delta)
    return found


def epsilon(r: GradientReleases, delta: float) -> Array:
    """epsilon_i(t) at `delta`, (T+1, N)."""
    return epsilon_of(mu(r), delta)


def largest_mu(epsilon: float, delta: float) -> float:
    """The mu at which a Gaussian mechanism is (epsilon, delta)-private and not more: delta grows with mu."""
    from scipy.optimize import brentq

    def excess(log_mu: float) -> float:
        return float(np.log(max(float(gaussian_delta(np.array([epsilon]), float(np.exp(log_mu)))[0]), 1e-300)) - np.log(delta))

    low, high = np.log(1e-12), np.log(1.0)
    while excess(high) < 0.0:
        high += 1.0
    return float(np.exp(brentq(excess, low, high, xtol=1e-14, rtol=1e-14)))


@sound_noise.register
def _(r: GradientReleases, target: float, delta: float) -> float:
    """That brings the worst node to the target."""
    unit = float(mu(replace(r, noise_std=1.0))[-1].max())
    return unit / largest_mu(target, delta)


@sound_account.register
def _(r: GradientReleases, delta: float) -> Account:
    private = r.noise_std > 0.0
    worst = float(mu(r)[-1].max())
    return Account(
        "epsilon_sound",
        f"epsilon at delta = {delta:g}, exact",
        epsilon(r, delta),
        words(r) if private else NO_NOISE,
        proven=True,
        neighbours=NEIGHBOURS,
        delta=delta,
        details={"gaussian_mu": worst} if private else {},
        profile=GaussianProfile(worst) if private else None,
        run_values=None if r.taken is None else epsilon_of(mu_of_runs(r, r.taken), delta),
    )
