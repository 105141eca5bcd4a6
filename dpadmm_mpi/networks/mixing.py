"""Averaging over a network: weights with which a node mixes what its neighbours send, and Chebyshev's acceleration.

With the weights W, x_i <- sum_j W_ij x_j keeps the mean over the nodes and brings everybody nearer to it: by the factor of W's
second largest eigenvalue `contraction`. It uses what was sent and nothing else, so after a private release it is free.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from dpadmm_mpi.networks.topology import Topology
from dpadmm_mpi.types import Array

LARGEST_DENSE = 1000  # nodes up to which all eigenvalues are computed; of more, the two that are needed
DISCONNECTED = 1.0 - 1e-12  # a contraction above it is round-off


@dataclass(frozen=True)
class MixingWeights:
    """A symmetric W with rows that add up to 1, not negative, and positive along the edges alone."""

    own: Array  # (N,): W_ii
    edges: tuple[tuple[float, ...], ...]  # of node i: W_ij of its neighbours j, ascending

    def matrix(self, topology: Topology) -> Array:
        """W, (N, N)."""
        W = np.diag(self.own)
        for i, (neighbours, weights) in enumerate(zip(topology.neighbours, self.edges, strict=True)):
            W[i, list(neighbours)] = weights
        return W


def metropolis(topology: Topology) -> MixingWeights:
    """W_ij = 1 / (1 + max(V_i, V_j)) along the edges, V the degrees (Xiao, Boyd, Lall 2005); 11'/N on a complete graph."""
    V = topology.degree.tolist()
    edges = tuple(tuple(1.0 / (1 + max(V[i], V[j])) for j in nb) for i, nb in enumerate(topology.neighbours))
    return MixingWeights(np.array([1.0 - sum(weights) for weights in edges]), edges)


def contraction(weights: MixingWeights, topology: Topology) -> float:
    """The largest modulus of an eigenvalue of W but the first, which is 1: a step brings nodes nearer to their mean by it."""
    N = topology.nodes
    if N == 1:
        return 0.0
    if N <= LARGEST_DENSE:
        values = np.linalg.eigvalsh(weights.matrix(topology) - 1.0 / N)
        largest = float(np.abs(values).max())
    else:
        largest = _largest_of_many(weights, topology)
    return min(largest, DISCONNECTED) if largest > 1e-14 else 0.0


def _largest_of_many(weights: MixingWeights, topology: Topology) -> float:
    from scipy.sparse import csr_matrix
    from scipy.sparse.linalg import LinearOperator, eigsh

    N = topology.nodes
    columns = [[i, *nb] for i, nb in enumerate(topology.neighbours)]
    values = [[own, *edges] for own, edges in zip(weights.own.tolist(), weights.edges, strict=True)]
    starts = np.cumsum([0, *map(len, columns)])
    W = csr_matrix((np.concatenate(values), np.concatenate(columns).astype(np.int64), starts), shape=(N, N))
    rest = LinearOperator((N, N), matvec=lambda v: W @ v - v.mean(), dtype=np.float64)
    start = np.cos(np.arange(N))  # the same on every call, and in no way symmetric
    return float(np.abs(eigsh(rest, k=1, which="LM", v0=start, return_eigenvectors=False, tol=1e-6)).max())


def chebyshev_weights(contraction: float, steps: int) -> Array:
    """omega_1, ..., omega_steps of y_k = omega_k W y_{k-1} + (1 - omega_k) y_{k-2}, y_1 = W y_0 (Golub, Varga 1961).

    y_k = T_k(W/c) y_0 / T_k(1/c) with Chebyshev's polynomials and the contraction c: among the polynomials of degree k in W
    that keep the mean the one that brings the nodes nearest to it, if all that is known of W is c.
    """
    omega = np.ones(steps)
    for k in range(1, steps):
        omega[k] = 1.0 / (1.0 - contraction**2 / (2.0 if k == 1 else 4.0 / omega[k - 1]))
    return omega


def chebyshev_contraction(contraction: float, steps: int) -> float:
    """1 / T_k(1/c): what k accelerated steps leave of the distance to the mean."""
    if contraction == 0.0:
        return 0.0
    return float(1.0 / np.cosh(steps * np.arccosh(1.0 / contraction)))


def chebyshev_step(mixed: Array, before_last: Array, omega: float) -> Array:
    """y_k from W y_{k-1} and y_{k-2}."""
    return omega * mixed + (1.0 - omega) * before_last


def average(values: Array, mix: Callable[[Array], Array], omega: Array) -> Array:
    """As many accelerated steps as there are weights omega, where mix(y) is W y."""
    before_last, last = np.zeros_like(values), values
    for weight in omega.tolist():
        before_last, last = last, chebyshev_step(mix(last), before_last, weight)
    return last
