"""Mixing by Metropolis weights and Chebyshev's polynomials, against loops and eigenvalues."""

import numpy as np
import pytest
from oracles.gradient import gossip_matrix, metropolis, second_eigenvalue

from dpadmm_mpi.networks import build, graphs
from dpadmm_mpi.networks import metropolis as mixing
from dpadmm_mpi.networks.graphs import Graph

NETWORKS: list[Graph] = [
    graphs["ring"](nodes=7),
    graphs["path"](nodes=2),
    graphs["star"](nodes=6),
    graphs["random"](nodes=9, probability=0.4),
    graphs["complete"](nodes=5),
]


@pytest.mark.parametrize("graph", NETWORKS, ids=lambda graph: type(graph).__name__)
def test_the_matrix(graph: Graph) -> None:
    """Symmetric, rows of sum 1, and the second eigenvalue below 1; 11'/N on a complete graph."""
    topology = build(graph, 3)
    W = mixing.matrix(topology)
    np.testing.assert_allclose(W, metropolis(topology.neighbours), atol=1e-15)
    np.testing.assert_array_equal(W, W.T)
    np.testing.assert_allclose(W.sum(axis=0), 1.0, atol=1e-15)
    assert mixing.second_eigenvalue(topology) == pytest.approx(second_eigenvalue(W), abs=1e-12)


@pytest.mark.parametrize("graph", NETWORKS, ids=lambda graph: type(graph).__name__)
def test_accelerated_steps_are_chebyshevs_polynomial(graph: Graph, rng: np.random.Generator) -> None:
    """T_k(W/c) / T_k(1/c) for every k, by eigenvalues; the mean stays, and no more than `remaining` of the rest."""
    topology = build(graph, 3)
    W, c = mixing.matrix(topology), mixing.second_eigenvalue(topology)
    start = rng.standard_normal((topology.nodes, 3))
    spread = np.linalg.norm(start - start.mean(axis=0))
    before, now = np.zeros_like(start), start
    for k, weight in enumerate(mixing.acceleration(c, 8), 1):
        before, now = now, mixing.accelerated(W @ now, before, weight)
        np.testing.assert_allclose(now, gossip_matrix(W, k) @ start, atol=1e-12)
        np.testing.assert_allclose(now.mean(axis=0), start.mean(axis=0), atol=1e-14)
        assert np.linalg.norm(now - start.mean(axis=0)) <= mixing.remaining(c, k) * spread * (1.0 + 1e-9) + 1e-14
