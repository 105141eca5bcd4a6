"""Privacy of PS-ADMM: two accounts of all noisy gradients of one provider, for replacing one of its records.

[S] Ding, Errapotu, Zhang, Gong, Pan, Han: Stochastic ADMM Based Distributed Machine Learning with Differential Privacy, 2019.

Letters of [S]: K outer iterations of S inner steps, M records, G Lipschitz constant of a record's loss, sigma noise_std.
"""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from dpadmm_mpi.privacy import gaussian_noise
from dpadmm_mpi.privacy.gaussian_noise import GaussianLedger, line
from dpadmm_mpi.privacy.releases import StarReleases

Array = NDArray[np.float64]

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


def paper_noise(r: StarReleases, epsilon: float, delta: float) -> float:
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
    """The Renyi curve of one inner step with s2^2 = share * sigma^2 (SPEC 8.2)."""
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


def calibrate(r: StarReleases, target: float, account: str, delta: float) -> StarReleases:
    """The same releases with the noise that brings the worst provider, the smallest, to the target by `sound` or `paper`.

    The search for the sound noise begins at the paper's and goes upwards only: who asks for the sound account never gets less
    noise than the paper prescribes for the same numbers.
    """
    paper = paper_noise(r, target, delta)
    if account == "paper":
        return replace(r, noise_std=paper)
    last = np.array([float(r.iterations * r.inner_steps)])

    def worst(noise_std: float) -> float:
        return float(_best_split(replace(r, noise_std=noise_std), float(r.M.min()), last, delta)[-1])

    return replace(r, noise_std=gaussian_noise.calibrate(worst, target, start=paper))


def ledger(r: StarReleases, delta: float) -> GaussianLedger:
    return GaussianLedger(
        node_epsilon_paper=paper_epsilon(r, delta),
        node_epsilon_sound=sound_epsilon(r, delta),
        delta=delta,
        paper=PAPER,
        sound=SOUND,
        neighbours_paper=NEIGHBOURS,
        neighbours_sound=NEIGHBOURS,
        proven_paper=False,  # whatever its condition says: constants that nobody knows prove nothing
        proven_sound=True,
    )


def _steps(r: StarReleases) -> Array:
    """Inner steps after k outer iterations, (K+1,)"""
    return np.arange(r.iterations + 1.0) * r.inner_steps


def _nothing_private(r: StarReleases) -> Array:
    return np.full((r.iterations + 1, r.nodes), np.inf)


def step_margins(rho: float, eta: float, S: int, v_L: float, mu_f: float) -> tuple[float, float, float]:
    """The three conditions of [S] Theorem 3 on eta, right side minus left side; mu_L = mu_f + rho, the largest (Lemma 1).

    With mu_f = 0 the second asks for eta <= 0, and the third for 2 eta rho >= 1 - 2 eta v_L + 4 eta^2 v_L^2 S, where the right
    side exceeds 2 eta v_L by at least (1 - 2 eta v_L)^2: neither can hold.
    """
    room = 1.0 - 2.0 * eta * v_L
    first = 1.0 / (2.0 * v_L) - eta
    second = mu_f / (8.0 * v_L**2 + 2.0 * mu_f * v_L) - eta
    if room <= 0.0:
        return first, second, -np.inf
    xi = 4.0 * eta / room
    left = 1.0 - rho * xi / 2.0 - mu_f * xi / 4.0 + 4.0 * eta**2 * v_L**2 * S / room
    return first, second, S * eta * mu_f / 2.0 - left


def start_cost(rho: float, mu_f: float, distance: float, tau: float) -> float:
    """A of [S] A.4 for x^0 = z^0 = lambda^0 = 0, where `distance` is the norm of the optimum."""
    return (mu_f / 4.0 + rho / 2.0) * distance**2 + tau**2 / (2.0 * rho)


def noise_cost(eta: float, v_L: float, features: int, noise_std: float) -> float:
    """The noise's part of [S] (10) per provider: 2 eta / (1 - 2 eta v_L) p sigma^2."""
    return 2.0 * eta / (1.0 - 2.0 * eta * v_L) * features * noise_std**2


def suboptimality_bound(A: float, noise: float, nodes: int, K: int) -> float:
    """[S] (10): N A / K + N * noise. Printed without N before the noise; the proof, A.3, has it under the sum."""
    return nodes * (A / K + noise)


def best_iterations(A: float, noise: float, K: int) -> float:
    """The K that minimises (10) if sigma^2 grows like K, as in Theorem 2; `noise` is the noise's part at the given K."""
    return float(np.sqrt(A * K / noise))


def theorem_4_iterations(M: float, G: float, epsilon: float, delta: float, mu_f: float, v_f: float, features: int) -> float:
    """[S] Theorem 4, up to a constant that is not given: K = (M epsilon / G) sqrt(mu_f / (v_f p ln(1/delta)))"""
    return M * epsilon / G * float(np.sqrt(mu_f / (v_f * features * np.log(1.0 / delta))))


def conditions(
    r: StarReleases,
    delta: float,
    rho: float,
    eta: float,
    v_L: float,
    v_f: float,
    mu_f: float,
    distance: float,
    tau: float = 1.0,
) -> list[str]:
    """Which conditions of [S] hold, in words; `distance` stands for the norm of the optimum, `tau` for the weights in (9)."""
    lines = []
    if r.noise_std > 0.0:
        margin = paper_margin(r, delta)
        worst = int(np.argmin(margin))
        words = "privacy, paper's account: epsilon <= c1 K S / M^2 ([S] Theorem 2, c1 not given: 1 here)"
        lines.append(f"{line(float(margin[worst]), words)} at node {worst}")
    first, second, third = step_margins(rho, eta, r.inner_steps, v_L, mu_f)
    lines += [
        line(first, "convergence: eta <= 1/(2 v_L) ([S] Theorem 3)"),
        line(second, "convergence: eta <= (4 mu_L - 4 rho - 3 mu_f)/(8 v_L^2 + 2 mu_f v_L) ([S] Theorem 3)"),
        line(third, "convergence: 1 - rho xi/2 - mu_f xi/4 + 4 eta^2 v_L^2 S/(1 - 2 eta v_L) <= S eta mu_f/2 ([S] Theorem 3)"),
    ]
    if mu_f == 0.0:
        lines.append("-      the last two cannot hold for any eta: the plain loss is not strongly convex, mu_f = 0")
    if first <= 0.0:
        return lines
    A, noise = start_cost(rho, mu_f, distance, tau), noise_cost(eta, v_L, r.features, r.noise_std)
    proven = "" if min(second, third) >= 0.0 else ", not proven here"
    bound = suboptimality_bound(A, noise, r.nodes, r.iterations)
    lines.append(f"-      suboptimality after {r.iterations} iterations: at most {bound:.4g} ([S] (10){proven})")
    if r.noise_std > 0.0:
        best = max(1.0, best_iterations(A, noise, r.iterations))
        lines.append(f"-      outer iterations that minimise it at this epsilon: {best:.4g} (if sigma^2 grows like K)")
        lines.append(_theorem_4(r, delta, v_f, mu_f))
    return lines


def _theorem_4(r: StarReleases, delta: float, v_f: float, mu_f: float) -> str:
    if mu_f == 0.0:
        return "-      [S] Theorem 4, the best number of outer iterations, does not apply: it needs mu_f > 0"
    epsilon = float(paper_epsilon(r, delta)[-1].max())
    order = max(1.0, theorem_4_iterations(float(r.M.min()), r.G, epsilon, delta, mu_f, v_f, r.features))
    return f"-      outer iterations by [S] Theorem 4, up to a constant that is not given: {order:.4g}"
