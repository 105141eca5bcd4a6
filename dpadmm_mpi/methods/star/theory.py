"""What [S] proves about the stochastic methods, as numbers: conditions on the step size, suboptimality, best iterations."""

import numpy as np

from dpadmm_mpi.methods.base import condition
from dpadmm_mpi.methods.star.accounts import paper_epsilon, paper_margin, sampled_model_noise, smallest_noise, sound_epsilon
from dpadmm_mpi.privacy.releases import StarReleases


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


def theorem_4_bound(r: StarReleases, epsilon: float, delta: float, mu_f: float, v_f: float) -> float:
    """[S] Theorem 4, up to a constant, for S of the order v_f / mu_f: N G / (M epsilon) sqrt(p ln(1/delta) v_f / mu_f)"""
    return r.nodes * r.G / (float(r.M.min()) * epsilon) * float(np.sqrt(r.features * np.log(1.0 / delta) * v_f / mu_f))


def conditions(
    r: StarReleases,
    delta: float,
    *,
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
        lines.append(f"{condition(float(margin[worst]), words)} at node {worst}")
    first, second, third = step_margins(rho, eta, r.inner_steps, v_L, mu_f)
    lines += [
        condition(first, "convergence: eta <= 1/(2 v_L) ([S] Theorem 3)"),
        condition(second, "convergence: eta <= (4 mu_L - 4 rho - 3 mu_f)/(8 v_L^2 + 2 mu_f v_L) ([S] Theorem 3)"),
        condition(
            third, "convergence: 1 - rho xi/2 - mu_f xi/4 + 4 eta^2 v_L^2 S/(1 - 2 eta v_L) <= S eta mu_f/2 ([S] Theorem 3)"
        ),
    ]
    if r.noise_std > 0.0:
        lines += _cost_of_soundness(r, delta)
    if mu_f == 0.0:
        lines.append(
            "-      the last two conditions cannot hold for any eta: the plain loss is not strongly convex, mu_f = 0; "
            "problem.local_ridge makes it so"
        )
    if first <= 0.0:
        return lines
    sigma = float(np.sqrt(np.mean(r.sigma**2)))  # (10) takes the mean over the iterations of what each one's noise costs
    A, noise = start_cost(rho, mu_f, distance, tau), noise_cost(eta, v_L, r.features, sigma)
    proven = "" if min(second, third) >= 0.0 else ", not proven here"
    bound = suboptimality_bound(A, noise, r.nodes, r.iterations)
    lines.append(f"-      suboptimality after {r.iterations} iterations: at most {bound:.4g} ([S] (10){proven})")
    if r.noise_std > 0.0:
        best = max(1.0, best_iterations(A, noise, r.iterations))
        lines.append(f"-      outer iterations that minimise it at this epsilon: {best:.4g} (if sigma^2 grows like K)")
        lines.append(_theorem_4(r, delta, v_f, mu_f))
    return lines


def _cost_of_soundness(r: StarReleases, delta: float) -> list[str]:
    """How the noise of this run compares with Theorem 2's for the same epsilon, and which gap of the theorem costs what."""
    epsilon = float(sound_epsilon(r, delta)[-1].max())
    if len(r.growth) or not 0.0 < epsilon < np.inf:
        return []
    paper, model = smallest_noise(r, epsilon, delta), sampled_model_noise(r, epsilon, delta)
    words = (
        f"-      noise: {r.noise_std:.4g} for a sound epsilon of {epsilon:.4g}, {r.noise_std / paper:.3g} times what "
        f"[S] Theorem 2 has with c = {r.c:g}"
    )
    if model > r.noise_std:  # the model's accountant is loose where the noise is small
        return [words]
    parts = f"leaving the theorem's range and c cost a factor of {model / paper:.3g}"
    return [f"{words}: {parts}, the full gradient that nothing samples {r.noise_std / model:.3g}"]


def _theorem_4(r: StarReleases, delta: float, v_f: float, mu_f: float) -> str:
    if mu_f == 0.0:
        return "-      [S] Theorem 4, the best number of outer iterations, does not apply: it needs mu_f > 0"
    epsilon = float(paper_epsilon(r, delta)[-1].max())
    order = max(1.0, theorem_4_iterations(float(r.M.min()), r.G, epsilon, delta, mu_f, v_f, r.features))
    bound = theorem_4_bound(r, epsilon, delta, mu_f, v_f)
    words = f"suboptimality at most {bound:.4g} with inner steps of the order v_f/mu_f = {v_f / mu_f:.4g}"
    return f"-      outer iterations by [S] Theorem 4, up to a constant that is not given: {order:.4g} ({words})"
