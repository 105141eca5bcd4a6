"""What [C] proves about the curated methods, as numbers: conditions on the steps, utility, best iterations.

Letters of [C]: L_f Lipschitz constant of grad f, gamma and eta of the linearised step, d1 features.
"""

import numpy as np

from dpadmm_mpi.methods.base import condition
from dpadmm_mpi.methods.curated.accounts import NOT_PRIVATE
from dpadmm_mpi.methods.curated.steps import Settings
from dpadmm_mpi.privacy.releases import CuratedReleases
from dpadmm_mpi.types import Array


def gamma_needed(eta: float, rho: float, A_norm: float) -> float:
    """gamma_min = eta rho ||A'A|| + 1, so that G = gamma I - eta rho A'A >= I ([C] below (7)); A_norm = ||A||."""
    return eta * rho * A_norm**2 + 1.0


def balanced_rho(lambda1: float, A_norm: float, rows: int, L_f: float, smooth: bool) -> float:
    """rho = "auto": what minimises rho ||A||^2 ||x*||^2 + ||y*||^2 / rho, the share of rho in the distance from x_0 = u_0 = 0.

    y* is the multiplier of the constraint. For g = lambda1 ||.||_1 no entry exceeds lambda1, and with ||x*|| taken as 1 rho is
    lambda1 sqrt(rows) / ||A||; for lambda1 ||.||^2 / 2, y* = lambda1 A x* and rho is lambda1. No record is looked at. Without g
    the constraint does not matter, and L_f / ||A||^2 is of the size of the gradients.
    """
    if lambda1 == 0.0:
        return L_f / A_norm**2
    return lambda1 if smooth else lambda1 * float(np.sqrt(rows)) / A_norm


def start_constant(eta: float, gamma: float, rho: float, L_f: float, singular_values: Array) -> float:
    """c_1 of [C] (18): ||G|| / (2 eta) + rho ||A'A|| / 2 + L_f ||A^+ (A^+)'|| / (2 rho), from A's singular values.

    `singular_values` has one entry per feature, 0 beyond A's rank. The last part belongs to u_0 as printed. The proof's L_f
    there should be L_f^2; for L_f <= 1, as with the logistic loss, the printed one is the larger.
    """
    G_norm = np.abs(gamma - eta * rho * singular_values**2).max()
    smallest = singular_values[singular_values > 0.0].min()
    return float(G_norm / (2.0 * eta) + rho * singular_values.max() ** 2 / 2.0 + L_f / (2.0 * rho * smallest**2))


def criterion_bound(s: Settings, L_f: float, distance: float, y_star: Array, t: int) -> float:
    """[C] (18) for the means of t iterates; `distance` = ||x_0 - x*||. For u_0 = 0 the last part of c_1 ||x_0 - x*||^2, which
    stands for (rho/2) ||u_0 - u*||^2, is ||y*||^2 / (2 rho) itself; with an exact x step ||G|| / (2 eta) is not there. nan at
    t = 0.
    """
    if t == 0 or s.A.singular_values is None:
        return float("nan")
    if s.exact:
        return (s.rho * (s.A.norm * distance) ** 2 + float(y_star @ y_star) / s.rho) / (2.0 * t)
    start = start_constant(s.eta, s.gamma, s.rho, L_f, s.A.singular_values) * distance**2
    if s.u0 == "zero":
        smallest = s.A.singular_values[s.A.singular_values > 0.0].min()
        start += (float(y_star @ y_star) - L_f * distance**2 / smallest**2) / (2.0 * s.rho)
    variances = [s.noise_at(step) ** 2 for step in range(1, t + 1)]
    return float(start / t + s.eta * float(np.mean(variances)) * s.features)


def utility_bound(c_1: float, distance: float, eta: float, features: int, noise_std: float, T: int) -> float:
    """[C] (18), before sigma is put in: c_1 ||x_0 - x*||^2 / T + eta sigma^2 d1"""
    return c_1 * distance**2 / T + eta * noise_std**2 * features


def best_iterations(c_1: float, distance: float, eta: float, features: int, variance: float) -> float:
    """[C] (19) with its constants: the T that minimises (18) if sigma^2 = variance * T, as in (8)."""
    return distance * float(np.sqrt(c_1 / (eta * features * variance)))


def conditions(
    r: CuratedReleases,
    *,
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
        condition(steps[0], "convergence: eta <= 1/L_f ([C] Lemma 5)"),
        condition(
            steps[1], f"convergence: gamma >= eta rho ||A'A|| + 1 = {gamma_needed(eta, rho, A_norm):.4g} ([C] below (7))"
        ),
        condition(steps[2], f"convergence: A has full row rank; of its {rows} rows {rank} are independent ([C] Assumption 2)"),
    ]
    if accelerated:
        words = "-      utility: no bound is known for the accelerated method; [C] analyses Algorithm 2 alone"
        return [*lines, words]
    c_1 = start_constant(eta, gamma, rho, L_f, singular_values)
    bound = utility_bound(c_1, distance, eta, r.features, r.mean_std, r.iterations)
    proven = "" if min(steps) >= 0.0 and r.u0_as_printed and r.batch is None else ", not proven here"
    lines.append(
        f"-      utility of the mean of the iterates after {r.iterations} iterations: R <= {bound:.4g} ([C] (18){proven})"
    )
    if r.noise_std > 0.0:
        best = max(1.0, best_iterations(c_1, distance, eta, r.features, r.mean_std**2 / r.iterations))
        lines.append(f"-      iterations that minimise it at this epsilon: {best:.4g} ([C] (19))")
    return lines


def gradient_complexity(r: CuratedReleases) -> str:
    """n T of [C] Theorem 2; of sampled gradients, batch times T."""
    total = r.averaged * r.iterations
    return (
        f"-      gradient complexity: {r.averaged} records times {r.iterations} iterations = {total} gradients ([C] Theorem 2)"
    )
