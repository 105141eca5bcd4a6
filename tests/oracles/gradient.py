"""Gradient methods on a network, one-shot solves and mixing as one would write them first: loops and dense matrices.

It shares no code with the package. Noise vectors are handed in.
"""

from collections.abc import Callable, Sequence

import numpy as np
from scipy.optimize import minimize

from oracles.network import Array, AtStepAndNode, Node

Gradient = Callable[[int, Array], Array]  # of node i at a point


def metropolis(neighbours: Sequence[Sequence[int]]) -> Array:
    """W_ij = 1 / (1 + max(V_i, V_j)), the rest on the diagonal."""
    N = len(neighbours)
    W = np.zeros((N, N))
    for i in range(N):
        for j in neighbours[i]:
            W[i, j] = 1.0 / (1.0 + max(len(neighbours[i]), len(neighbours[j])))
        W[i, i] = 1.0 - W[i].sum()
    return W


def second_eigenvalue(W: Array) -> float:
    return float(np.sort(np.abs(np.linalg.eigvalsh(W)))[-2])


def chebyshev(x: Array, k: int) -> Array:
    """T_k at the numbers or at the eigenvalues of a symmetric matrix."""
    if x.ndim == 2:
        values, vectors = np.linalg.eigh(x)
        return np.asarray((vectors * chebyshev(values, k)) @ vectors.T)
    inside = np.abs(x) <= 1.0
    angle = np.cos(k * np.arccos(np.clip(x, -1.0, 1.0)))
    beyond = np.sign(x) ** k * np.cosh(k * np.arccosh(np.maximum(np.abs(x), 1.0)))
    return np.where(inside, angle, beyond)


def gossip_matrix(W: Array, k: int) -> Array:
    """T_k(W / c) / T_k(1 / c), c the second eigenvalue."""
    c = second_eigenvalue(W)
    if c < 1e-12:
        return np.linalg.matrix_power(W, k)
    return chebyshev(W / c, k) / chebyshev(np.array([1.0 / c]), k)[0]


def descent(
    gradient: Gradient, start: Array, W: Array, *, steps: Sequence[float], momentum: float, mixing: int, noise: AtStepAndNode
) -> Array:
    """What is sent in every iteration, (T+1, N, d): a step along noisy gradients, then `mixing` - 1 further ones to mix."""
    N = len(start)
    sent, points, direction = [start], W @ start, np.zeros_like(start)
    t = 0
    for step in steps:
        t += 1
        moved = np.empty_like(start)
        for i in range(N):
            direction[i] = momentum * direction[i] + gradient(i, points[i]) + noise(t, i)
            moved[i] = points[i] - step * direction[i]
        sent.append(moved)
        for k in range(1, mixing):
            t += 1
            sent.append(gossip_matrix(W, k) @ moved)
        points = gossip_matrix(W, mixing) @ moved
    return np.array(sent)


def tracking(gradient: Gradient, start: Array, W: Array, steps: Sequence[float], noise: AtStepAndNode) -> tuple[Array, Array]:
    """Points and trackers as they are sent, (T+1, N, d) each."""
    N = len(start)
    points, trackers = [start], [np.zeros_like(start)]
    x, y, before = W @ start, np.zeros_like(start), np.zeros_like(start)
    for t, step in enumerate(steps, 1):
        noisy = np.array([gradient(i, x[i]) + noise(t, i) for i in range(N)])
        trackers.append(y + noisy - before)
        y, before = W @ trackers[-1], noisy
        points.append(x - step * y)
        x = W @ points[-1]
    return np.array(points), np.array(trackers)


def solved(node: Node, linear: Array, eta: float) -> Array:
    """argmin O_i(f) + linear.f + eta ||f||^2, by scipy and exact Newton steps."""

    def value(f: Array) -> float:
        return node.objective(f) + float(linear @ f + eta * f @ f)

    def slope(f: Array) -> Array:
        return np.asarray(node.gradient(f) + linear + 2.0 * eta * f)

    f: Array = minimize(value, np.zeros(len(linear)), jac=slope, method="BFGS", options={"gtol": 1e-10}).x
    for _ in range(4):
        w = node.curvature(node.y * (node.X @ f))
        H = node.C * (node.X.T * w) @ node.X / len(node.y) + (node.rho / node.N + 2.0 * eta) * np.eye(len(f))
        f = f - np.linalg.solve(H, slope(f))
    return f


def seen_share(W: Array, neighbours: Sequence[Sequence[int]], u: int, v: int, exchanges: int) -> float:
    """How much of a record's shift at u node v sees: 1 less the squared distance of e_u to the span of what v was sent."""
    N = len(W)
    powers = [np.linalg.matrix_power(W, k) for k in range(exchanges)]
    rows = [P[w] for P in powers for w in neighbours[v]] + [np.eye(N)[v]]
    M = np.array([row / np.linalg.norm(row) for row in rows])
    e = np.eye(N)[u]
    best = M.T @ np.linalg.lstsq(M.T, e, rcond=1e-9)[0]
    return float(1.0 - np.sum((e - best) ** 2))
