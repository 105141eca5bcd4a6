"""What the convergence theorems say, against steps and runs: [M] Theorems 3.1 and 3.2, [R] (26)-(27), a theta that varies."""

from typing import Any

import numpy as np
import pytest
from oracles.network import Node, centralised_optimum, trajectory
from scipy.optimize import root
from support import Raw, dense, network_plan, result_of, shard_of

from dpadmm_mpi.methods.decentralised.convergence import GraphMatrices, madmm_largest_rate, madmm_rate
from dpadmm_mpi.types import Array

N, D, C, RHO = 5, 3, 4.0, 0.5
TRIANGLE_AND_TAIL = ((1, 2), (0, 2), (0, 1, 3), (2, 4), (3,))


def configuration(algorithm: Raw, iterations: int, **sections: Any) -> Raw:
    return {
        "iterations": iterations,
        "data": {"records": 200, "features": D, "train": 1.0, "split": "by-label", "skew": 0.4},
        "network": {"graph": "random", "nodes": N},
        "problem": {"C": C, "rho": RHO},
        "algorithm": algorithm,
        "record": {"trajectory": True, "optimum": True},
    } | sections


def nodes_of(raw: Raw) -> tuple[list[Node], tuple[tuple[int, ...], ...]]:
    """The records as the package deals them, in the oracle's nodes; and the neighbours."""
    plan, dataset = network_plan(raw)
    shards = [shard_of(dataset, i) for i in range(N)]
    return [Node(dense(shard.X), shard.y, C, RHO, N) for shard in shards], tuple(plan.topology.neighbours)


def matrices(neighbours: tuple[tuple[int, ...], ...]) -> tuple[Array, Array]:
    """D - A and D + A."""
    A = np.array([[float(j in nb) for j in range(len(neighbours))] for nb in neighbours])
    degrees = np.diag(A.sum(axis=1))
    return degrees - A, degrees + A


def squared_norm(f: Array, twice_dual: Array, optimum: Array, gradients: Array, graph: Any, eta: float, theta: float) -> float:
    """||Z - Z*||_J^2 with J of the penalty eta: [M] Theorem 3.1, from Y = sqrt(D - A)^+ 2 Lambda."""
    minus, plus = graph
    root_inverse = np.linalg.pinv(np.asarray(_root(minus)))
    Y, Y_star = root_inverse @ twice_dual, -root_inverse @ gradients
    return float(np.sum((Y - Y_star) ** 2) / theta + eta * np.sum((f - optimum) * (plus @ (f - optimum))))


def _root(matrix: Array) -> Array:
    values, vectors = np.linalg.eigh(matrix)
    return np.asarray(vectors * np.sqrt(np.maximum(values, 0.0)) @ vectors.T)


SCHEDULES: list[Any] = [0.7, 1.5, {"first": 0.8, "ratio": 1.02, "limit": 3.0}, {"first": 0.7, "ratio": 1.05}]


@pytest.mark.parametrize("eta", SCHEDULES, ids=str)
def test_the_distance_of_primals_and_duals_never_grows(eta: Any) -> None:
    """[M] Theorem 3.1 compares both ends of a step in the norm of its own iteration, J(t), also while the penalty grows.

    The recorded z_distance is that norm at the end of each step.
    """
    raw = configuration({"method": "m-admm", "eta": eta, "theta": 0.7}, 300)
    result = result_of(raw)
    nodes, neighbours = nodes_of(raw)
    graph = matrices(neighbours)
    optimum = centralised_optimum(nodes, D)
    gradients = np.stack([node.gradient(optimum) for node in nodes])
    f, etas = result["trajectory"][0], result["algorithm/eta"][:, 0]
    twice = np.zeros_like(f[0])
    growing = 0
    for t in range(1, len(f)):
        after = twice + 0.7 * graph[0] @ f[t]
        before, now = (
            squared_norm(f[s], dual, optimum, gradients, graph, etas[t], 0.7) for s, dual in ((t - 1, twice), (t, after))
        )
        assert now <= before * (1.0 + 1e-9) + 1e-12
        assert result["z_distance"][0, t] == pytest.approx(now, rel=1e-6, abs=1e-9)
        growing += t > 1 and etas[t] > etas[t - 1]
        twice = after
    assert growing > 60 or not isinstance(eta, dict)


@pytest.mark.parametrize(("eta", "theta", "loose"), [(0.7, 0.7, 100), (1.5, 0.7, 100), (3.0, 0.2, 1000)])
def test_every_step_shrinks_by_at_least_the_largest_rate(eta: float, theta: float, loose: float) -> None:
    """[M] Theorem 3.2, (21)-(22): 150 steps by the oracle from random primals and duals."""
    rng = np.random.default_rng(5)
    nodes = [Node(X / np.linalg.norm(X, axis=1, keepdims=True), np.sign(rng.normal(size=30)), C, RHO, N)
             for X in rng.normal(size=(N, 30, D))]  # fmt: skip
    minus, _ = graph = matrices(TRIANGLE_AND_TAIL)
    optimum = centralised_optimum(nodes, D)
    gradients = np.stack([node.gradient(optimum) for node in nodes])
    M = np.array([C * 0.25 * np.linalg.eigvalsh(node.X.T @ node.X / 30)[-1] + RHO / N for node in nodes])
    network = GraphMatrices.of(TRIANGLE_AND_TAIL)
    largest, mu = madmm_largest_rate(network, eta, theta, RHO / N, M)
    assert largest >= madmm_rate(network, np.full(N, eta), theta, RHO / N, float(M.max()), as_printed=False)[0] * (1 - 1e-3)
    assert mu > 1.0
    slowest = np.inf
    for k in range(150):
        scale = 10.0 ** rng.uniform(-2, 1)
        f = optimum + scale * (rng.normal(size=(N, D)) if k % 3 else np.ones((N, 1)) * rng.normal(size=D))
        twice = -gradients + scale * minus @ rng.normal(size=(N, D)) * (k % 2)
        new = np.stack([_argmin(node, i, f, twice, eta) for i, node in enumerate(nodes)])
        before = squared_norm(f, twice, optimum, gradients, graph, eta, theta)
        after = squared_norm(new, twice + theta * minus @ new, optimum, gradients, graph, eta, theta)
        slowest = min(slowest, before / after - 1.0)
    assert slowest >= largest > 0.0
    assert slowest < loose * largest  # a lower bound, and not by so much that a wrong one could pass


def _argmin(node: Node, i: int, f: Array, twice: Array, eta: float) -> Array:
    """f_i(t+1) by (12)."""
    nb = TRIANGLE_AND_TAIL[i]

    def kkt(x: Array) -> Array:
        return np.asarray(node.gradient(x) + twice[i] + eta * sum(2 * x - f[i] - f[j] for j in nb))

    def jacobian(x: Array) -> Array:
        return node.hessian(x) + 2 * eta * len(nb) * np.eye(D)

    return np.asarray(root(kkt, f[i], jac=jacobian, tol=1e-13).x)


@pytest.mark.parametrize("algorithm", [
    {"method": "r-admm", "eta": 0.9, "gamma": 0.4},
    {"method": "mr-admm", "eta": [{"first": 0.6 + 0.1 * i, "ratio": 1.03} for i in range(N)], "gamma": 0.8},
], ids=["r-admm", "mr-admm"])  # fmt: skip
def test_odd_iterations_follow_the_recursion(algorithm: Raw) -> None:
    """[R] (26)-(27): two iterations in one, from odd to odd, with gradients of the oracle and matrices of the test."""
    raw = configuration(algorithm, 21)
    result = result_of(raw)
    nodes, neighbours = nodes_of(raw)
    minus, plus = matrices(neighbours)
    degree = np.diag(plus)
    odd = result["trajectory"][0, 1::2]
    etas = result["algorithm/eta"][1::2]
    twice = etas[0][:, None] * (minus @ odd[0])  # 2 Lambda(1), by (27) from 0
    for k in range(len(odd) - 1):
        f, f_next, W, W_next = odd[k], odd[k + 1], etas[k][:, None], etas[k + 1][:, None]
        g, g_next = (np.stack([node.gradient(x) for node, x in zip(nodes, at, strict=True)]) for at in (f, f_next))
        tilde = 2.0 * W * degree[:, None] + algorithm["gamma"]
        twice_next = twice + W_next * (minus @ f_next)  # (27)
        pulled = (g + W * (minus @ f) + twice) / tilde
        left = g_next + W_next * (plus @ (pulled + f_next - f)) + twice_next  # (26)
        assert np.abs(left).max() < 1e-8 * np.abs(g).max()
        twice = twice_next
    assert np.abs(result["final/dual"][0] * 2 - twice).max() < 1e-10


def test_a_dual_step_that_varies_over_time() -> None:
    """[M] 3.1, 5.1: one theta(t) for all that rises to a limit: the oracle's steps, and in the end the optimum."""
    theta = {"first": 0.3, "ratio": 1.1, "limit": 0.6}
    raw = configuration({"method": "m-admm", "eta": 0.7, "theta": theta}, 400)
    result = result_of(raw)
    nodes, neighbours = nodes_of(raw)
    found = result["trajectory"][0]
    expected = trajectory(
        nodes, neighbours, start=found[0], iterations=12, recycles=False, eta=lambda t, i: 0.7,
        theta=lambda t, i: min(0.3 * 1.1 ** (t - 1), 0.6), gamma=0.0, perturbation="none", noise=lambda t, i: 0.0,
    )  # fmt: skip
    assert np.abs(found[:13] - expected).max() < 1e-7
    assert result["distance_to_optimum"][0, -1] < 1e-6
