"""Conditions under which the papers prove convergence, as margins: positive means that the condition holds.

Glossary: A adjacency matrix, D degrees, W = diag(eta_i), M_i Lipschitz constants of grad O_i, m_i strong convexity,
D~ = diag(2 eta_i V_i + gamma).
"""

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from msgspec import Struct

from dpadmm_mpi.types import Array

Pairs: TypeAlias = Sequence[tuple[Array, Array]]  # penalties of a data step and of the next one

_FREE = [(L, mu) for L in (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0) for mu in (1.25, 1.5, 2.0, 3.0, 5.0)]
_LARGEST_GAMMA = 1e12
LARGEST_NETWORK = 300  # nodes up to which matrices over all of them are made, and their eigenvalues computed


class GraphMatrices(Struct, frozen=True):
    """The matrices of a graph."""

    laplacian: Array  # D - A
    signless: Array  # D + A
    degree: Array

    @classmethod
    def of(cls, neighbours: Sequence[Sequence[int]]) -> "GraphMatrices":
        N = len(neighbours)
        A = np.zeros((N, N))
        for i, nb in enumerate(neighbours):
            A[i, list(nb)] = 1.0
        degree = A.sum(axis=1)
        return cls(np.diag(degree) - A, np.diag(degree) + A, degree)

    @property
    def is_bipartite(self) -> bool:
        """D + A is singular exactly then (for a connected graph)."""
        return bool(np.linalg.eigvalsh(self.signless)[0] < 1e-9 * max(1.0, self.degree.max()))


def madmm_rate(network: GraphMatrices, eta: Array, theta: float, m: float, M: float, as_printed: bool) -> tuple[float, float]:
    """The lower bound [M] (23) on delta(t), with the best mu > 1; (delta, mu).

    (W - theta I)(D - A) has the consensus direction in its null space, so its smallest singular value must be 0 for a bound
    that holds everywhere; as printed it is the smallest non-zero one (docs/mathematics.md, section 5).
    """
    gaps = np.linalg.svd((eta - theta)[:, None] * network.laplacian, compute_uv=False)
    largest_gap = gaps[0]
    non_zero = gaps[gaps > 1e-9 * max(1.0, largest_gap)]
    smallest_gap = float(non_zero[-1]) if as_printed and len(non_zero) else 0.0
    connectivity = float(np.linalg.eigvalsh(network.laplacian)[1])
    largest = float(np.linalg.svd(eta[:, None] * network.signless, compute_uv=False)[0])
    mu = 1.0 + np.geomspace(1e-4, 1e4, 4001)
    first = theta * connectivity / (mu**2 * largest)
    second = (2.0 * m + 2.0 * smallest_gap) / (
        (mu**2 * M**2 + mu * largest_gap**2) / (theta * connectivity * (mu - 1.0)) + largest
    )
    rate = np.minimum(first, second)
    best = int(rate.argmax())
    return float(rate[best]), float(mu[best])


def madmm_largest_rate(network: GraphMatrices, eta: float, theta: float, m: float, M: Array) -> tuple[float, float]:
    """The largest delta(t) that meets [M] (21) and (22), with the best mu > 1, for one penalty; (delta, mu).

    (22) has the strong convexity m on its right, where D_M is printed (docs/mathematics.md, section 10). It is a matrix
    inequality delta left <= right, so the largest delta is the smallest generalised eigenvalue of both.
    """
    from scipy.linalg import eigh

    one = np.eye(len(M))
    connectivity = float(np.linalg.eigvalsh(network.laplacian)[1])
    gap = (eta - theta) * float(np.linalg.eigvalsh(network.laplacian)[-1])
    spread = eta * network.signless
    right = 2.0 * (eta - theta) * network.laplacian + 2.0 * m * one
    top = float(np.linalg.eigvalsh(spread)[-1])

    def rate(mu: float) -> float:
        left = (mu * gap**2 * one + mu**2 * np.diag(M**2)) / (theta * connectivity * (mu - 1.0)) + spread
        second = float(eigh(right, left, eigvals_only=True, subset_by_index=(0, 0))[0])
        return min(theta * connectivity / (mu**2 * top), second)

    grid = np.geomspace(1e-3, 1e3, 61)  # of mu - 1, and again between the neighbours of its best
    for _ in range(2):
        best = int(np.argmax([rate(1.0 + step) for step in grid]))
        grid = np.geomspace(grid[max(best - 1, 0)], grid[min(best + 1, len(grid) - 1)], 61)
    mu = 1.0 + float(max(grid, key=lambda step: rate(1.0 + step)))
    return rate(mu), mu


def recycling_margins(
    network: GraphMatrices, eta: Array, eta_next: Array, gamma: float, M: Array, L: float, mu: float
) -> tuple[float, float]:
    """Margins of [R] Theorem IV.1 (i) and (ii): smallest eigenvalue of the symmetrised difference of the two sides.

    With one eta, L = 2 and mu = 2 they are (iii) and (iv) of R-ADMM.
    """
    W, W_next = np.diag(eta), np.diag(eta_next)
    tilde = 2.0 * eta * network.degree + gamma
    inverse = np.diag(1.0 / tilde)
    spread = W_next @ network.signless
    D_M = np.diag(M**2)
    share = L * mu / (2.0 * tilde.min())
    one = np.eye(len(eta)) + spread @ inverse - share * np.linalg.pinv(W_next @ network.laplacian) @ D_M
    two = spread - spread @ inverse @ (W @ network.laplacian + (2.0 / L) * spread) - share / (mu - 1.0) * D_M
    return _smallest(one), _smallest(two)


def recycling_holds(network: GraphMatrices, pairs: Pairs, gamma: float, M: Array, fixed: bool) -> tuple[float, float]:
    """The margins over pairs of consecutive penalties, for R-ADMM's L = mu = 2 (`fixed`) or the best constants."""
    best = (-np.inf, -np.inf)
    for L, mu in [(2.0, 2.0)] if fixed else _FREE:
        margins = [recycling_margins(network, eta, eta_next, gamma, M, L, mu) for eta, eta_next in pairs]
        worst = (min(m[0] for m in margins), min(m[1] for m in margins))
        best = max(best, worst, key=min)
    return best


def smallest_gamma(network: GraphMatrices, pairs: Pairs, M: Array, fixed: bool) -> float | None:
    """The smallest gamma that meets both conditions, to 0.1 %; None if no gamma does."""

    def holds(gamma: float) -> bool:
        return min(recycling_holds(network, pairs, gamma, M, fixed)) > 0.0

    if holds(0.0):
        return 0.0
    high = 1.0
    while not holds(high):
        high *= 4.0
        if high > _LARGEST_GAMMA:
            return None
    low = 0.0 if high == 1.0 else high / 4.0
    while high - low > 1e-3 * high:
        middle = 0.5 * (low + high)
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def _smallest(matrix: Array) -> float:
    return float(np.linalg.eigvalsh(0.5 * (matrix + matrix.T))[0])
