"""Plain averaging over the edges of a network: Metropolis weights, and Chebyshev's polynomials, which make it faster.

x <- W x with W_ij = 1 / (1 + max(V_i, V_j)) for neighbours i and j, and rows that add up to 1, leads all nodes to the mean
(Xiao, Boyd and Kim 2007). W is symmetric, so the mean stays, and a step leaves at most the share lambda of what the nodes
disagree in, the largest absolute eigenvalue but for the 1 of the mean. x(k+1) = w_k W x(k) + (1 - w_k) x(k-1) makes the
polynomial T_k(W / lambda) / T_k(1 / lambda) of W instead of W^k: of those that are 1 at 1 it is the smallest one on
[-lambda, lambda], and it leaves 1 / T_k(1 / lambda) of the disagreement. T_k is Chebyshev's polynomial of the first kind.
"""

import math
from functools import cache
from typing import NamedTuple

import numpy as np

from dpadmm_mpi.networks.topology import Topology, components
from dpadmm_mpi.types import Array

DENSE_EIGENVALUES = 1000  # nodes up to which all eigenvalues are computed; of larger networks the two at the ends


class Weights(NamedTuple):
    """Row i of W: what a node gives to itself, and to each of its neighbours in ascending order."""

    own: Array  # (N,)
    of_neighbours: tuple[tuple[float, ...], ...]


@cache
def metropolis(topology: Topology) -> Weights:
    """W of a network without a hub; positive on the diagonal."""
    degree = topology.degree.tolist()
    weights = tuple(
        tuple(1.0 / (1 + max(degree[i], degree[j])) for j in neighbours) for i, neighbours in enumerate(topology.neighbours)
    )
    return Weights(np.array([1.0 - math.fsum(row) for row in weights]), weights)


def second_eigenvalue(topology: Topology) -> float:
    """lambda: how much of the disagreement is left after a plain step, at most; 0 for a single node, 1 where no path leads."""
    if topology.nodes == 1:
        return 0.0
    if len(components(topology)) > 1:
        return 1.0
    from scipy import sparse

    own, of_neighbours = metropolis(topology)
    rows = np.repeat(np.arange(topology.nodes), [len(row) for row in of_neighbours])
    columns = np.concatenate([np.array(row, dtype=np.int64) for row in topology.neighbours])
    values = np.concatenate([np.array(row) for row in of_neighbours])
    W = sparse.coo_array((values, (rows, columns)), shape=(topology.nodes, topology.nodes)).tocsr() + sparse.diags_array(own)
    if topology.nodes <= DENSE_EIGENVALUES:
        eigenvalues = np.linalg.eigvalsh(W.toarray() - 1.0 / topology.nodes)
    else:
        start = np.cos(np.arange(topology.nodes, dtype=np.float64))  # the same in every process
        eigenvalues = sparse.linalg.eigsh(W, k=3, which="BE", v0=start, return_eigenvectors=False)
        eigenvalues = np.sort(eigenvalues)[:-1]  # but for the 1 of the mean
    found = float(np.abs(eigenvalues).max())
    return found if found > 1e-12 else 0.0  # complete: one step is the mean


def acceleration(eigenvalue: float, steps: int) -> tuple[float, ...]:
    """w_k of every step: w_0 = 1, w_1 = 1 / (1 - lambda^2 / 2), w_k = 1 / (1 - lambda^2 w_(k-1) / 4)."""
    factors: list[float] = []
    for k in range(steps):
        before = 0.0 if k == 0 else 2.0 if k == 1 else factors[-1]
        factors.append(1.0 / (1.0 - 0.25 * eigenvalue**2 * before))
    return tuple(factors)


def steps_until(eigenvalue: float, tolerance: float) -> int:
    """The smallest k with 1 / T_k(1 / lambda) <= tolerance, T_k(x) = cosh(k arccosh x): what is left of the disagreement."""
    if eigenvalue == 0.0:
        return 1
    return math.ceil(math.acosh(1.0 / tolerance) / math.acosh(1.0 / eigenvalue))


def remaining(eigenvalue: float, steps: int) -> float:
    """1 / T_k(1 / lambda): what k accelerated steps leave of the disagreement, at most."""
    return 0.0 if eigenvalue == 0.0 else 1.0 / math.cosh(steps * math.acosh(1.0 / eigenvalue))


def accelerated(mixed: Array, before_last: Array, weight: float) -> Array:
    """x(k+1) from W x(k) and x(k-1)."""
    return weight * mixed + (1.0 - weight) * before_last


def matrix(topology: Topology) -> Array:
    """W, (N, N), of a small network."""
    own, of_neighbours = metropolis(topology)
    W = np.diag(own)
    for i, (neighbours, weights) in enumerate(zip(topology.neighbours, of_neighbours, strict=True)):
        W[i, list(neighbours)] = weights
    return W
