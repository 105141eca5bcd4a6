"""Records per node that [R] Theorems VI.1 and VI.2 ask for, up to their unnamed constant w, and the lemmas behind VI.2.

With so many records the loss of a data step's classifier exceeds that of any reference classifier of norm f_ref by at most
tau, with probability 1 - beta (VI.1) or 1 - 2 beta (VI.2). `gap` is Delta_i(k), how far the iteration still is from its limit.
"""

import numpy as np


def without_noise(f_ref: float, tau: float, beta: float, gap: float = 0.0) -> float:
    """[R] Theorem VI.1: ||f_ref||^2 log(1/beta) / (tau - Delta)^2; inf where the iteration is further off than tau."""
    if gap >= tau:
        return float("inf")
    return f_ref**2 * float(np.log(1.0 / beta)) / (tau - gap) ** 2


def with_noise(
    f_ref: float,
    tau: float,
    beta: float,
    alpha: float,
    features: int,
    C: float,
    nodes: int,
    *,
    a: float = 1.0,
    gap: float = 0.0,
) -> float:
    """[R] Theorem VI.2; inf where the noise is too large for any number of records."""
    if gap >= tau:
        return float("inf")
    needed = nodes * C * (tau - gap) ** 2 / (2.0 * f_ref**2)
    taken = (1.0 + a) * nodes * features**2 / (C * alpha**2) * float(np.log(features / beta)) ** 2
    return C * nodes * float(np.log(1.0 / beta)) / (needed - taken) if needed > taken else float("inf")


def noise_norm(features: int, alpha: float, beta: float) -> float:
    """[R] Lemma E.3: what the norm of gamma noise, Gamma(d, 1/alpha), does not exceed with probability 1 - beta."""
    return features / alpha * float(np.log(features / beta))


def noise_cost(norm: float, ridge: float) -> float:
    """[R] Lemma E.1: noise of that norm in the linear term moves a minimum by at most so much of the objective.

    With strong convexity `ridge` = rho/N the argmin moves by at most norm/ridge (Lemma E.2), the objective by norm times that.
    """
    return norm**2 / ridge
