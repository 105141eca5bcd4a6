"""Gaussian noise that neighbours share: what it is worth against whom (docs/mathematics.md, section 3).

Every edge has a secret seed that its two ends know. Node i adds to its own noise, N(0, s^2 I), a vector N(0, (r s)^2 I) for
each of its edges, which the other end takes away. Over all nodes the shared parts cancel; the covariance over the nodes is
s^2 M,  M = I + r^2 L,  L the Laplacian of the graph.

A record of node i moves the noise of node i alone. Given the noise of all others it is N(m, s^2 / [M^-1]_ii), so that is
what protects the record: its deviation is worth 1 / sqrt([M^-1]_ii) >= 1 times s. Who takes part in the network knows the
shared parts of its own edges; against a set of such nodes M is that of the graph without them.
"""

from collections.abc import Sequence
from itertools import combinations
from math import comb
from typing import NamedTuple

import numpy as np

from dpadmm_mpi.rng import Purpose, generators
from dpadmm_mpi.types import Array, Ints

Neighbours = Sequence[Sequence[int]]  # of each node, ascending

MOST_WORK = 1e9  # sets of colluders times the cube of the nodes, up to which all of them are looked at


class Worth(NamedTuple):
    """What protects each node, as a multiple of noise_std, and against whom."""

    factor: Array  # (N,), at least 1
    colluders: list[tuple[int, ...]]  # of each node, the set that is the worst for it
    exact: bool = True  # otherwise a lower bound, from the edges of each node alone


def covariance(neighbours: Neighbours, ratio: float, nodes: Sequence[int]) -> Array:
    """I + r^2 L of the graph of some nodes alone, in their order."""
    place = {node: k for k, node in enumerate(nodes)}
    laplacian = np.zeros((len(nodes), len(nodes)))
    for node, k in place.items():
        for other in neighbours[node]:
            if other in place:
                laplacian[k, k] += 1.0
                laplacian[k, place[other]] -= 1.0
    return np.eye(len(nodes)) + ratio**2 * laplacian


def worth(neighbours: Neighbours, ratio: float, colluders: int | Sequence[int]) -> Worth:
    """Against the named nodes together, or any so many; a named node's own records against the others of them."""
    nodes = len(neighbours)
    if not isinstance(colluders, int):
        named = tuple(sorted(colluders))
        sets = [tuple(j for j in named if j != i) for i in range(nodes)]
        if nodes**3 > MOST_WORK:
            return _by_own_edges(neighbours, ratio, sets)
        found = {together: _factors(neighbours, ratio, together) for together in set(sets)}
        return Worth(np.array([found[together][i] for i, together in enumerate(sets)]), sets)
    count = min(colluders, nodes - 1)
    if comb(nodes, count) * nodes**3 > MOST_WORK:
        return _by_own_edges(neighbours, ratio, [tuple(nb[:count]) for nb in neighbours])
    factor, worst = np.full(nodes, np.inf), [tuple[int, ...]()] * nodes
    for together in combinations(range(nodes), count):
        for i, value in _factors(neighbours, ratio, together).items():
            if value < factor[i]:
                factor[i], worst[i] = value, together
    return Worth(factor, worst)


def _factors(neighbours: Neighbours, ratio: float, colluders: tuple[int, ...]) -> dict[int, float]:
    """1 / sqrt([M^-1]_ii) of every other node."""
    honest = [i for i in range(len(neighbours)) if i not in colluders]
    precision = np.linalg.inv(covariance(neighbours, ratio, honest))
    return dict(zip(honest, (np.diag(precision) ** -0.5).tolist(), strict=True))


def _by_own_edges(neighbours: Neighbours, ratio: float, colluders: list[tuple[int, ...]]) -> Worth:
    """A lower bound for large networks: who knows all edges but those of node i to its honest neighbours knows more.

    Given the noise of such a neighbour the shared part has the variance r^2/(1 + r^2), so the factor is the root of
    1 + m r^2/(1 + r^2) with m of them. Exact for the centre of a star. Any k colluders can be as many neighbours, and no more.
    """
    left = [len(set(nb) - set(those)) for nb, those in zip(neighbours, colluders, strict=True)]
    return Worth(np.sqrt(1.0 + np.array(left) * ratio**2 / (1.0 + ratio**2)), colluders, exact=False)


def shared_noise(seed: int, runs: range, nodes: Ints, iteration: int, neighbours: Neighbours, features: int) -> Array:
    """sum over the edges of each node of its vectors N(0, I), + at the smaller end and - at the larger one, (runs, nodes, d).

    An edge has an address of its own, (run, edge, iteration), so both ends draw the same wherever they are; a node adds its
    edges up in ascending order of the neighbours, so every layout has the same bits.
    """
    total = len(neighbours)
    pairs = {(min(i, j), max(i, j)) for i in nodes.tolist() for j in neighbours[i]}
    numbers = np.array(sorted(i * total + j for i, j in pairs), dtype=np.int64)
    place = {number: k for k, number in enumerate(numbers.tolist())}
    rngs = generators(seed, Purpose.EDGE_NOISE, runs, numbers, iteration)
    units = [rng.standard_normal(features) for rng in rngs]
    drawn = np.reshape(units, (len(runs), len(numbers), features))
    sums = np.zeros((len(runs), len(nodes), features))
    for k, i in enumerate(nodes.tolist()):
        for j in neighbours[i]:
            edge = drawn[:, place[min(i, j) * total + max(i, j)]]
            sums[:, k] += edge if i < j else -edge
    return sums
