"""Privacy and utility of DP-ADMM and DP-AccADMM: T noisy mean gradients of n records.

[C] Xu, Shang, Liu, Liu, Shen, Gong: Differentially Private ADMM Algorithms for Machine Learning, 2020.

Letters of [C]: c bound on a record's gradient, L_f Lipschitz constant of grad f, gamma and eta of the linearised step,
d1 features, `a` its order alpha.
"""

from dataclasses import replace

import numpy as np

from dpadmm_mpi.methods.base import NO_NOISE
from dpadmm_mpi.methods.gaussian import paper_account, paper_noise, papers_noise_std, sound_account, sound_noise
from dpadmm_mpi.privacy import gaussian_noise, sampled_steps
from dpadmm_mpi.privacy.account import Account
from dpadmm_mpi.privacy.recorded_curves import GaussianProfile, Profile, RenyiProfile
from dpadmm_mpi.privacy.releases import CuratedReleases
from dpadmm_mpi.types import Array

NEIGHBOURS_PAPER = "add or remove one record, n fixed"
NEIGHBOURS_SOUND = "replace one record"
PAPER = "[C] Theorem 1, (8), solved for epsilon: sensitivity c/n"
SOUND = "Gaussian mechanism of sensitivity 2c/n, Renyi curves added over the iterations, at the best order"
PAPER_SAMPLED = "[C] (8) with the batch in the place of n, solved for epsilon: sensitivity c/batch, nothing gained by sampling"
SOUND_SAMPLED = (
    "Gaussian mechanism of sensitivity 2c/batch on a sample without replacement (Wang et al. 2019, Theorem 27), Renyi curves "
    "added over the iterations, at the best order"
)
UNSEEN = 1e-9  # sensitivity, of 1, of a step that the record does not enter: above 0, for something is divided by it
GIVEN_MAP = "for a given A; this one is estimated from the records without noise, which is not accounted for"
NOT_PRIVATE = "not private: u_0 is computed from the records without noise"


def paper_variance(r: CuratedReleases, epsilon: float, delta: float) -> float:
    """[C] (8) per iteration: c^2 a / (2 n^2 epsilon mu), a = ln(1/delta) / ((1 - mu) epsilon) + 1"""
    a = np.log(1.0 / delta) / ((1.0 - r.mu) * epsilon) + 1.0
    return float(r.c**2 * a / (2.0 * r.averaged**2 * epsilon * r.mu))


def paper_epsilon(r: CuratedReleases, delta: float) -> Array:
    """[C] (8) solved for epsilon after t iterations, t in place of T, (T+1, nodes).

    With b = c^2 / (2 n^2 mu) sum_{s <= t} 1/sigma_s^2, (8) is epsilon^2 = b (ln(1/delta) / (1 - mu) + epsilon).
    """
    if not _is_private(r):
        return _nothing_private(r)
    b = r.c**2 * r.steps / (2.0 * (r.averaged * r.noise_std) ** 2 * r.mu)
    return _for_every_node(r, 0.5 * (b + np.sqrt(b**2 + 4.0 * b * np.log(1.0 / delta) / (1.0 - r.mu))))


def sound_epsilon(r: CuratedReleases, delta: float) -> Array:
    """Epsilon at delta after t iterations, (T+1, nodes)."""
    if not _is_private(r):
        return _nothing_private(r)
    return _for_every_node(r, _sound_totals(r, delta))


def _sound_totals(r: CuratedReleases, delta: float, last: bool = False) -> Array:
    """Epsilon after each iteration, or after the last alone. Curves of plain Gaussian noise differ by a factor."""
    if r.batch is None:
        return gaussian_noise.epsilon(_sound_curve(r), r.steps[-1:] if last else r.steps, delta)
    return gaussian_noise.converted(_sampled_total(r, last), delta)


def _sampled_total(r: CuratedReleases, last: bool) -> Array:
    """Renyi divergences after each iteration, or after the last alone, (rows, orders)."""
    shape = np.ones(r.iterations) if r.noise_shape is None else r.noise_shape
    sizes, which = np.unique(shape, return_inverse=True)
    curves = np.stack([_sampled_curve(replace(r, noise_std=r.noise_std * float(size))) for size in sizes], axis=1)
    if last:
        total = (curves @ np.bincount(which, minlength=len(sizes)))[:, None]
    else:
        total = np.concatenate([np.zeros((len(curves), 1)), np.cumsum(curves[:, which], axis=1)], axis=1)
    return np.asarray(total.T)


def conditioned_epsilon(r: CuratedReleases, delta: float) -> Array:
    """Epsilon at delta after t iterations against one who knows which records were sampled, (T+1, nodes).

    A step that the record enters is a Gaussian mechanism of sensitivity 2c/batch; the others do not see it.
    """
    hit = 2.0 * r.c / r.averaged
    noise = np.ones(r.iterations) if r.noise_shape is None else r.noise_shape
    steps = sampled_steps.Steps(1, r.averaged / r.records, noise, hit, missed=UNSEEN * hit)
    mixture = sampled_steps.mixture(steps, np.arange(1.0, r.iterations + 1.0), delta)
    return _for_every_node(r, np.append(0.0, mixture.epsilon(r.noise_std, delta)))


def _sound_curve(r: CuratedReleases) -> Array:
    """Replacing a record moves the mean gradient by at most 2c/n (docs/mathematics.md, section 9)."""
    return gaussian_noise.gaussian(r.noise_std * r.records / (2.0 * r.c))


def _sampled_curve(r: CuratedReleases) -> Array:
    """Replacing a record that is in the batch moves its mean gradient by at most 2c/batch."""
    return gaussian_noise.sampled_gaussian(r.averaged / r.records, r.noise_std * r.averaged / (2.0 * r.c))


@paper_noise.register
def _(r: CuratedReleases, target: float, delta: float) -> float:
    """u_0 as printed is not paid for by it."""
    return float(np.sqrt(r.steps[-1] * paper_variance(r, target, delta)))


@sound_noise.register
def _(r: CuratedReleases, target: float, delta: float) -> float:
    """For tiny epsilon the paper's conversion from Renyi to epsilon is so loose that its noise meets the sound account too.

    Of a batch, the paper's noise for all records: it gives nothing for the sampling, which the sound account does.
    """

    def total(noise_std: float) -> float:
        return float(_sound_totals(replace(r, noise_std=noise_std), delta, last=True)[0])

    return gaussian_noise.calibrate(total, target, start=papers_noise_std(replace(r, batch=None), target, delta))


@paper_account.register
def _(r: CuratedReleases, delta: float) -> Account:
    title = f"the paper's epsilon at delta = {delta:g}"
    words, values = _words(r, PAPER if r.batch is None else PAPER_SAMPLED), paper_epsilon(r, delta)
    return Account("epsilon_paper", title, values, words, _is_proven(r), NEIGHBOURS_PAPER, delta)


@sound_account.register
def _(r: CuratedReleases, delta: float) -> Account:
    title = f"sound epsilon at delta = {delta:g}"
    words, values = _words(r, SOUND if r.batch is None else SOUND_SAMPLED), sound_epsilon(r, delta)
    profile = _profile(r) if _is_private(r) else None
    return Account("epsilon_sound", title, values, words, _is_proven(r), NEIGHBOURS_SOUND, delta, profile=profile)


def _profile(r: CuratedReleases) -> Profile:
    """Gaussian mechanisms one after the other are one; of sampled ones the Renyi divergences are known."""
    if r.batch is None:
        return GaussianProfile(float(np.sqrt(r.steps[-1])) * 2.0 * r.c / (r.records * r.noise_std))
    return RenyiProfile(_sampled_total(r, last=True)[0])


def _words(r: CuratedReleases, theorem: str) -> str:
    if r.noise_std == 0.0:
        return NO_NOISE
    return (NOT_PRIVATE if r.u0_as_printed else theorem) + (f"; {GIVEN_MAP}" if r.map_from_records else "")


def _is_proven(r: CuratedReleases) -> bool:
    """Infinity needs no proof."""
    return not (r.map_from_records and _is_private(r))


def _is_private(r: CuratedReleases) -> bool:
    return r.noise_std > 0.0 and not r.u0_as_printed


def _nothing_private(r: CuratedReleases) -> Array:
    return np.full((r.iterations + 1, r.nodes), np.inf)


def _for_every_node(r: CuratedReleases, total: Array) -> Array:
    """The curator answers for all shards: one number."""
    return np.repeat(total[:, None], r.nodes, axis=1)
