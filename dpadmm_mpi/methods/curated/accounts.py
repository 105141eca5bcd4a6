"""Privacy and utility of DP-ADMM and DP-AccADMM: T noisy mean gradients of n records.

[C] Xu, Shang, Liu, Liu, Shen, Gong: Differentially Private ADMM Algorithms for Machine Learning, 2020.

Letters of [C]: c bound on a record's gradient, L_f Lipschitz constant of grad f, gamma and eta of the linearised step,
d1 features, `a` its order alpha.
"""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from dpadmm_mpi.privacy import gaussian_noise
from dpadmm_mpi.privacy.gaussian_noise import GaussianLedger, line
from dpadmm_mpi.privacy.releases import CuratedReleases

Array = NDArray[np.float64]

NEIGHBOURS_PAPER = "add or remove one record, n fixed"
NEIGHBOURS_SOUND = "replace one record"
PAPER = "[C] Theorem 1, (8), solved for epsilon: sensitivity c/n"
SOUND = "Gaussian mechanism of sensitivity 2c/n, Renyi curves added over the iterations, at the best order"
NOT_PRIVATE = "not private: u_0 is computed from the records without noise"


def paper_variance(r: CuratedReleases, epsilon: float, delta: float) -> float:
    """[C] (8) per iteration: c^2 a / (2 n^2 epsilon mu), a = ln(1/delta) / ((1 - mu) epsilon) + 1"""
    a = np.log(1.0 / delta) / ((1.0 - r.mu) * epsilon) + 1.0
    return float(r.c**2 * a / (2.0 * r.records**2 * epsilon * r.mu))


def paper_epsilon(r: CuratedReleases, delta: float) -> Array:
    """[C] (8) solved for epsilon after t iterations, t in place of T, (T+1, nodes).

    With b = c^2 t / (2 n^2 sigma^2 mu), (8) is epsilon^2 = b (ln(1/delta) / (1 - mu) + epsilon).
    """
    if not _is_private(r):
        return _nothing_private(r)
    b = r.c**2 * np.arange(r.iterations + 1.0) / (2.0 * (r.records * r.noise_std) ** 2 * r.mu)
    return _for_every_node(r, 0.5 * (b + np.sqrt(b**2 + 4.0 * b * np.log(1.0 / delta) / (1.0 - r.mu))))


def sound_epsilon(r: CuratedReleases, delta: float) -> Array:
    """Epsilon at delta after t iterations, (T+1, nodes)."""
    if not _is_private(r):
        return _nothing_private(r)
    return _for_every_node(r, gaussian_noise.epsilon(_sound_curve(r), np.arange(r.iterations + 1.0), delta))


def _sound_curve(r: CuratedReleases) -> Array:
    """Replacing a record moves the mean gradient by at most 2c/n (SPEC 8.3)."""
    return gaussian_noise.gaussian(r.noise_std * r.records / (2.0 * r.c))


def calibrate(r: CuratedReleases, target: float, account: str, delta: float) -> CuratedReleases:
    """The same releases with the noise that meets the target by `sound` or `paper`; u_0 as printed is not paid for by it.

    The search for the sound noise begins at the paper's and goes upwards only: who asks for the sound account never gets less
    noise than the paper prescribes for the same numbers. (For tiny epsilon the paper's conversion from Renyi to epsilon is
    so loose that its noise meets the sound account too.)
    """
    paper = float(np.sqrt(r.iterations * paper_variance(r, target, delta)))
    if account == "paper":
        return replace(r, noise_std=paper)
    last = np.array([float(r.iterations)])

    def total(noise_std: float) -> float:
        return float(gaussian_noise.epsilon(_sound_curve(replace(r, noise_std=noise_std)), last, delta)[0])

    return replace(r, noise_std=gaussian_noise.calibrate(total, target, start=paper))


def ledger(r: CuratedReleases, delta: float) -> GaussianLedger:
    return GaussianLedger(
        node_epsilon_paper=paper_epsilon(r, delta),
        node_epsilon_sound=sound_epsilon(r, delta),
        delta=delta,
        paper=NOT_PRIVATE if r.u0_as_printed else PAPER,
        sound=NOT_PRIVATE if r.u0_as_printed else SOUND,
        neighbours_paper=NEIGHBOURS_PAPER,
        neighbours_sound=NEIGHBOURS_SOUND,
        proven_paper=True,  # inf needs no proof
        proven_sound=True,
    )


def _is_private(r: CuratedReleases) -> bool:
    return r.noise_std > 0.0 and not r.u0_as_printed


def _nothing_private(r: CuratedReleases) -> Array:
    return np.full((r.iterations + 1, r.nodes), np.inf)


def _for_every_node(r: CuratedReleases, total: Array) -> Array:
    """The curator answers for all shards: one number."""
    return np.repeat(total[:, None], r.nodes, axis=1)


def gamma_needed(eta: float, rho: float, A_norm: float) -> float:
    """gamma_min = eta rho ||A'A|| + 1, so that G = gamma I - eta rho A'A >= I ([C] below (7)); A_norm = ||A||."""
    return eta * rho * A_norm**2 + 1.0


def start_constant(eta: float, gamma: float, rho: float, L_f: float, singular_values: Array) -> float:
    """c_1 of [C] (18): ||G|| / (2 eta) + rho ||A'A|| / 2 + L_f ||A^+ (A^+)'|| / (2 rho), from A's singular values.

    `singular_values` has one entry per feature, 0 beyond A's rank. The last part belongs to u_0 as printed. The proof's L_f
    there should be L_f^2; for L_f <= 1, as with the logistic loss, the printed one is the larger.
    """
    G_norm = np.abs(gamma - eta * rho * singular_values**2).max()
    smallest = singular_values[singular_values > 0.0].min()
    return float(G_norm / (2.0 * eta) + rho * singular_values.max() ** 2 / 2.0 + L_f / (2.0 * rho * smallest**2))


def utility_bound(c_1: float, distance: float, eta: float, features: int, noise_std: float, T: int) -> float:
    """[C] (18), before sigma is put in: c_1 ||x_0 - x*||^2 / T + eta sigma^2 d1"""
    return c_1 * distance**2 / T + eta * noise_std**2 * features


def best_iterations(c_1: float, distance: float, eta: float, features: int, variance: float) -> float:
    """[C] (19) with its constants: the T that minimises (18) if sigma^2 = variance * T, as in (8)."""
    return distance * float(np.sqrt(c_1 / (eta * features * variance)))


def conditions(
    r: CuratedReleases,
    eta: float,
    gamma: float,
    rho: float,
    L_f: float,
    singular_values: Array,
    rows: int,
    distance: float,
    accelerated: bool = False,
) -> list[str]:
    """Which conditions of [C] hold, in words; A has `rows` rows, `distance` stands for ||x_0 - x*||."""
    A_norm = float(singular_values.max())
    rank = int(np.count_nonzero(singular_values))
    steps = (1.0 / L_f - eta, gamma - gamma_needed(eta, rho, A_norm), float(rank - rows))
    lines = [f"FAILS  privacy: {NOT_PRIVATE}"] if r.u0_as_printed else []
    lines += [
        line(steps[0], "convergence: eta <= 1/L_f ([C] Lemma 5)"),
        line(steps[1], f"convergence: gamma >= eta rho ||A'A|| + 1 = {gamma_needed(eta, rho, A_norm):.4g} ([C] below (7))"),
        line(steps[2], f"convergence: A has full row rank; of its {rows} rows {rank} are independent ([C] Assumption 2)"),
    ]
    if accelerated:
        return [*lines, "-      utility: no bound is known for the accelerated method; [C] analyses Algorithm 2 alone"]
    c_1 = start_constant(eta, gamma, rho, L_f, singular_values)
    bound = utility_bound(c_1, distance, eta, r.features, r.noise_std, r.iterations)
    proven = "" if min(steps) >= 0.0 and r.u0_as_printed else ", not proven here"
    lines.append(
        f"-      utility of the mean of the iterates after {r.iterations} iterations: R <= {bound:.4g} ([C] (18){proven})"
    )
    if r.noise_std > 0.0:
        best = max(1.0, best_iterations(c_1, distance, eta, r.features, r.noise_std**2 / r.iterations))
        lines.append(f"-      iterations that minimise it at this epsilon: {best:.4g} ([C] (19))")
    return lines
