"""Averaging over a network: Metropolis weights, Chebyshev's acceleration, and sums with weights."""

import numpy as np
import pytest
from oracles.gradient import gossip_matrix, metropolis, second_eigenvalue

from dpadmm_mpi.networks import IncomingSum, Topology, build, graphs, mixing
from dpadmm_mpi.networks.graphs import Graph

NETWORKS: list[Graph] = [
    graphs["ring"](nodes=7),
    graphs["path"](nodes=2),
    graphs["star"](nodes=6),
    graphs["random"](nodes=9, probability=0.4),
    graphs["complete"](nodes=5),
]


@pytest.mark.parametrize("graph", NETWORKS, ids=lambda graph: type(graph).__name__)
def test_weights_and_contraction(graph: Graph) -> None:
    """Against loops and all eigenvalues: symmetric, not negative, rows of sum 1, the second eigenvalue below 1."""
    topology = build(graph, 3)
    weights = mixing.metropolis(topology)
    W = weights.matrix(topology)
    np.testing.assert_allclose(W, metropolis(topology.neighbours), atol=1e-15)
    np.testing.assert_array_equal(W, W.T)
    np.testing.assert_allclose(W.sum(axis=0), 1.0, atol=1e-15)
    assert (W >= -1e-16).all()
    assert mixing.contraction(weights, topology) == pytest.approx(second_eigenvalue(W), abs=1e-14)


def test_a_complete_graph_averages_in_one_step() -> None:
    topology = build(graphs["complete"](nodes=6), 1)
    weights = mixing.metropolis(topology)
    np.testing.assert_allclose(weights.matrix(topology), 1.0 / 6.0, atol=1e-15)
    assert mixing.contraction(weights, topology) == 0.0
    np.testing.assert_array_equal(mixing.chebyshev_weights(0.0, 4), np.ones(4))


def test_many_nodes_have_the_same_contraction_by_another_solver(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lanczos instead of all eigenvalues; a ring has 1/3 + 2/3 cos(2 pi / N)."""
    topology = build(graphs["ring"](nodes=60), 1)
    weights = mixing.metropolis(topology)
    expected = 1.0 / 3.0 + 2.0 / 3.0 * np.cos(2.0 * np.pi / 60)
    assert mixing.contraction(weights, topology) == pytest.approx(expected, abs=1e-13)
    monkeypatch.setattr(mixing, "LARGEST_DENSE", 10)
    assert mixing.contraction(weights, topology) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("graph", NETWORKS[:4], ids=lambda graph: type(graph).__name__)
def test_accelerated_steps_are_chebyshevs_polynomial(graph: Graph, rng: np.random.Generator) -> None:
    """y_k = T_k(W/c) y_0 / T_k(1/c) for every k, by eigenvalues; the mean stays, and the bound on the rest holds."""
    topology = build(graph, 3)
    weights = mixing.metropolis(topology)
    W, c = weights.matrix(topology), mixing.contraction(weights, topology)
    start = rng.standard_normal((topology.nodes, 3))
    spread = np.linalg.norm(start - start.mean(axis=0))
    for k in range(1, 9):
        found = mixing.average(start, lambda y: W @ y, mixing.chebyshev_weights(c, k))
        np.testing.assert_allclose(found, gossip_matrix(W, k) @ start, atol=1e-12)
        np.testing.assert_allclose(found.mean(axis=0), start.mean(axis=0), atol=1e-14)
        assert np.linalg.norm(found - start.mean(axis=0)) <= mixing.chebyshev_contraction(c, k) * spread * (1.0 + 1e-9) + 1e-14


@pytest.mark.parametrize("few", [2, 9])
def test_sums_take_the_weights_and_the_order_of_the_senders(few: int, rng: np.random.Generator) -> None:
    """Places one by one or all at once: the same bits, whatever the order in which vectors are known."""
    plain = build(graphs["random"](nodes=9, probability=0.4), 3)
    topology = Topology(plain.neighbours, weights=mixing.metropolis(plain).edges)
    values, places = rng.standard_normal((9, 4)), np.arange(9)
    expected = np.zeros((9, 4))
    for i, neighbours in enumerate(topology.neighbours):
        for j in neighbours:
            expected[i] += 1.0 / (1 + max(len(neighbours), len(topology.neighbours[j]))) * values[j]
    shuffled = rng.permutation(9)
    for known in (places, shuffled):
        total = IncomingSum(topology.channels["edges"], places[:few], known)(values[known])
        np.testing.assert_array_equal(total, expected[:few])
