"""The edge form of ADMM, [M] (4)-(7), as an oracle: with variables and duals on every edge it takes the steps of (8)-(9).

With penalties eta_ij of each edge, which [M] 3.1 sets aside, it takes those of the equations before (10).
"""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import minimize
from support import result_of

from dpadmm_mpi.methods.base import make_plan
from dpadmm_mpi.methods.experiment import parse

Array = NDArray[np.float64]
C, RHO, NODES, D = 5.0, 0.5, 5, 4


def edge_form(raw: dict[str, Any], start: Array, etas: Array, theta: float, iterations: int) -> Array:
    """f_i(t), t = 0..T, by minimising the augmented Lagrangian (3) block by block; no code of the package's steps.

    `etas` are eta_ij of (4)-(5), theta is the dual step of (6)-(7); conventional ADMM has one number for all of them.
    """
    plan, dataset = make_plan(parse(raw))
    shards = [dataset.loader.shard(dataset.address(i)) for i in range(NODES)]
    pairs = [(i, j) for i in range(NODES) for j in plan.topology.neighbours[i]]
    f = start.copy()
    w = {(i, j): (f[i] + f[j]) / 2 for i, j in pairs}
    a = {pair: np.zeros(D) for pair in pairs}
    b = {pair: np.zeros(D) for pair in pairs}
    history = [f.copy()]
    for _ in range(iterations):
        new = np.empty_like(f)
        for i, shard in enumerate(shards):

            def lagrangian(x: Array, i: int = i, shard: Any = shard) -> tuple[float, Array]:
                z = shard.y * (shard.X @ x)
                value = C * np.mean(np.logaddexp(0, -z)) + RHO / NODES * (x @ x) / 2
                gradient = C * shard.X.T @ (-shard.y / (1 + np.exp(z))) / len(z) + RHO / NODES * x
                for k, j in pairs:
                    if k == i:  # the constraint f_i = w_ij
                        value += a[k, j] @ (x - w[k, j]) + etas[k, j] / 2 * np.sum((x - w[k, j]) ** 2)
                        gradient = gradient + a[k, j] + etas[k, j] * (x - w[k, j])
                    if j == i:  # the constraint w_ki = f_i
                        value += b[k, j] @ (w[k, j] - x) + etas[k, j] / 2 * np.sum((w[k, j] - x) ** 2)
                        gradient = gradient - b[k, j] - etas[k, j] * (w[k, j] - x)
                return float(value), gradient

            new[i] = minimize(lagrangian, f[i], jac=True, method="BFGS", options={"gtol": 1e-11}).x
        f = new
        for i, j in pairs:  # (5): a quadratic
            w[i, j] = (f[i] + f[j]) / 2 + (a[i, j] - b[i, j]) / (2 * etas[i, j])
        for i, j in pairs:  # (6), (7)
            a[i, j] = a[i, j] + theta * (f[i] - w[i, j])
            b[i, j] = b[i, j] + theta * (w[i, j] - f[j])
        history.append(f.copy())
    return np.array(history)


def configuration(graph: str, algorithm: dict[str, Any], iterations: int) -> dict[str, Any]:
    return {
        "iterations": iterations,
        "data": {"records": 200, "features": D, "train": 1.0},
        "network": {"graph": graph, "nodes": NODES},
        "problem": {"C": C, "rho": RHO},
        "algorithm": algorithm,
        "record": {"trajectory": True},
    }


@pytest.mark.parametrize("graph", ["ring", "random", "star"])
def test_the_edge_form_takes_the_same_steps(graph: str) -> None:
    eta, iterations = 0.8, 8
    raw = configuration(graph, {"method": "admm", "eta": eta}, iterations)
    ours = result_of(raw)["trajectory"][0]
    assert np.abs(edge_form(raw, ours[0], np.full((NODES, NODES), eta), eta, iterations) - ours).max() < 1e-7


def test_penalties_of_each_edge_act_as_the_mean_of_both_directions() -> None:
    """[M] 3.1: node i needs eta_ji, its neighbour's secret. Where eta_ij + eta_ji = 2 eta, M-ADMM with eta takes its steps."""
    eta, theta, iterations = 0.9, 0.5, 8
    raw = configuration("random", {"method": "m-admm", "eta": eta, "theta": theta}, iterations)
    ours = result_of(raw)["trajectory"][0]
    lean = np.triu(np.random.default_rng(3).uniform(-0.3, 0.3, (NODES, NODES)), 1)
    etas = eta + lean - lean.T
    assert np.abs(edge_form(raw, ours[0], etas, theta, iterations) - ours).max() < 1e-7
    # A node that takes its own eta_ij alone, as M-ADMM does with eta_i = eta_ij, goes another way.
    own = np.array([0.6, 0.7, 0.9, 1.1, 1.3])
    private = result_of(configuration("random", {"method": "m-admm", "eta": own.tolist(), "theta": theta}, iterations))
    of_edges = edge_form(raw, ours[0], np.repeat(own[:, None], NODES, axis=1), theta, iterations)
    assert np.abs(of_edges - private["trajectory"][0]).max() > 1e-3
