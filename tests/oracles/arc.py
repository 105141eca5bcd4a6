"""A plain implementation of relaxed arc-based ADMM (docs/mathematics.md, section 2): a dictionary with a vector for each arc,
scipy's root finder on the optimality condition. It shares no code with the package. Noise vectors are handed in.
"""

from collections.abc import Callable, Sequence

import numpy as np
from scipy.optimize import root

from oracles.network import Array, AtStepAndNode, Node

Happens = Callable[[int, int], bool]  # (t, i): whether node i is active


def trajectory(
    nodes: Sequence[Node],
    neighbours: Sequence[Sequence[int]],
    *,
    start: Array,
    iterations: int,
    eta: float,
    relaxation: float,
    perturbation: str,
    noise: AtStepAndNode,
    active: Happens = lambda t, i: True,
    age: Callable[[int, int, int], int] = lambda t, i, j: 0,
) -> Array:
    """x_i(t) for t = 0..T, (T+1, N, d). age(t, i, j): how many iterations ago j sent what i gets from it in t; -1: nothing."""
    N, d = start.shape
    x = [start[i].copy() for i in range(N)]
    z = {(i, j): 2 * eta * start[i] for i in range(N) for j in neighbours[i]}
    history = []
    sent: list[dict[tuple[int, int], Array]] = []
    for t in range(iterations + 1):
        for i in range(N):
            if t == 0 or not active(t, i):
                continue
            V = len(neighbours[i])
            drawn = noise(t, i)
            factor = {"dual": 2 * eta * V, "penalty": 2 * eta * V, "objective": 1.0}.get(perturbation, 0.0)
            linear = factor * drawn - sum((z[i, j] for j in neighbours[i]), np.zeros(d))

            def condition(f: Array, i: int = i, linear: Array = linear, V: int = V) -> Array:
                return np.asarray(nodes[i].gradient(f) + linear + 2 * eta * V * f)

            def jacobian(f: Array, i: int = i, V: int = V) -> Array:
                return nodes[i].hessian(f) + 2 * eta * V * np.eye(d)

            solution = root(condition, x[i], jac=jacobian, tol=1e-13)
            assert np.linalg.norm(condition(solution.x)) < 1e-9
            x[i] = solution.x + (drawn if perturbation == "primal" else 0.0)
        sent.append({(j, i): 4 * eta * x[j] - z[j, i] for j in range(N) for i in neighbours[j]})
        for i, j in list(z):
            if (ago := age(t, i, j)) >= 0:
                assert t == ago or active(t - ago, j)
                z[i, j] = (1 - relaxation) * z[i, j] + relaxation * sent[t - ago][j, i]
        history.append(np.stack(x))
    return np.stack(history)
