"""The edge form of ADMM, [M] (4)-(7), as an oracle: with variables and duals on every edge it takes the steps of (8)-(9)."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import minimize

import dpadmm_mpi
from dpadmm_mpi.methods.base import make_plan
from dpadmm_mpi.methods.experiment import parse

Array = NDArray[np.float64]
C, RHO, NODES, D = 5.0, 0.5, 5, 4


def edge_form(raw: dict[str, Any], start: Array, eta: float, iterations: int) -> Array:
    """f_i(t), t = 0..T, by minimising the augmented Lagrangian (3) block by block; no code of the package's steps."""
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
                        value += a[k, j] @ (x - w[k, j]) + eta / 2 * np.sum((x - w[k, j]) ** 2)
                        gradient = gradient + a[k, j] + eta * (x - w[k, j])
                    if j == i:  # the constraint w_ki = f_i
                        value += b[k, j] @ (w[k, j] - x) + eta / 2 * np.sum((w[k, j] - x) ** 2)
                        gradient = gradient - b[k, j] - eta * (w[k, j] - x)
                return float(value), gradient

            new[i] = minimize(lagrangian, f[i], jac=True, method="BFGS", options={"gtol": 1e-11}).x
        f = new
        for i, j in pairs:  # (5): a quadratic
            w[i, j] = (f[i] + f[j]) / 2 + (a[i, j] - b[i, j]) / (2 * eta)
        for i, j in pairs:  # (6), (7)
            a[i, j] = a[i, j] + eta * (f[i] - w[i, j])
            b[i, j] = b[i, j] + eta * (w[i, j] - f[j])
        history.append(f.copy())
    return np.array(history)


@pytest.mark.parametrize("graph", ["ring", "random", "star"])
def test_the_edge_form_takes_the_same_steps(graph: str) -> None:
    eta, iterations = 0.8, 8
    raw = {
        "iterations": iterations,
        "data": {"records": 200, "features": D, "train": 1.0},
        "network": {"graph": graph, "nodes": NODES},
        "problem": {"C": C, "rho": RHO},
        "algorithm": {"method": "admm", "eta": eta},
        "record": {"trajectory": True},
    }
    result = dpadmm_mpi.run(raw)
    assert result is not None
    ours = result["trajectory"][0]
    assert np.abs(edge_form(raw, ours[0], eta, iterations) - ours).max() < 1e-7
