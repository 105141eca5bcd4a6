"""A plain implementation of docs/mathematics.md, section 2, as one would write it first: loops, dictionaries, scipy's root
finder on (KKT).

It shares no code with the package. Noise vectors are handed in.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize, root

Array: TypeAlias = NDArray[np.float64]
Function: TypeAlias = Callable[[Any], Any]  # of margins
Functions: TypeAlias = tuple[Function, Function, Function]  # a loss, its slope, its curvature
AtStepAndNode: TypeAlias = Callable[[int, int], Any]


def logistic(z: Any) -> Any:
    return np.logaddexp(0.0, -z)


def logistic_slope(z: Any) -> Any:
    return -1.0 / (1.0 + np.exp(z))


def logistic_curvature(z: Any) -> Any:
    p = 1.0 / (1.0 + np.exp(-z))
    return p * (1.0 - p)


LOGISTIC: Functions = (logistic, logistic_slope, logistic_curvature)


def huber(h: float) -> Functions:
    """The smoothed hinge piece by piece: 0, then (1 + h - z)^2 / 4h, then 1 - z."""

    def pieces(z: Any, above: Any, between: Any, below: Any) -> Any:
        return np.where(z > 1 + h, above, np.where(z < 1 - h, below, between))

    return (
        lambda z: pieces(z, 0.0, (1 + h - z) ** 2 / (4 * h), 1 - z),
        lambda z: pieces(z, 0.0, -(1 + h - z) / (2 * h), -1.0),
        lambda z: pieces(z, 0.0, 1 / (2 * h), 0.0),
    )


class Node:
    def __init__(self, X: Array, y: Array, C: float, rho: float, N: int, loss: Functions = LOGISTIC) -> None:
        self.X, self.y, self.C, self.rho, self.N = X, y, C, rho, N
        self.loss, self.slope, self.curvature = loss

    def objective(self, f: Array) -> float:
        return float(self.C * np.mean(self.loss(self.y * (self.X @ f))) + self.rho / self.N * (f @ f) / 2)

    def gradient(self, f: Array) -> Array:
        slopes = self.slope(self.y * (self.X @ f))
        mean: Array = np.mean(slopes[:, None] * self.y[:, None] * self.X, axis=0)
        return self.C * mean + self.rho / self.N * f

    def hessian(self, f: Array) -> Array:
        w = self.curvature(self.y * (self.X @ f))
        return np.asarray(self.C * (self.X.T * w) @ self.X / len(self.y) + self.rho / self.N * np.eye(len(f)))


def centralised_optimum(nodes: Sequence[Node], d: int) -> Array:
    """argmin of sum_i O_i, by a trust-region method and a few exact Newton steps."""

    def gradient(f: Array) -> Array:
        return np.asarray(np.sum([node.gradient(f) for node in nodes], axis=0))

    def hessian(f: Array) -> Array:
        return np.asarray(np.sum([node.hessian(f) for node in nodes], axis=0))

    result = minimize(
        lambda f: sum(node.objective(f) for node in nodes),
        np.zeros(d),
        jac=gradient,
        hess=hessian,
        method="trust-exact",
        options={"gtol": 1e-10},
    )
    f: Array = result.x
    for _ in range(3):
        f = f - np.linalg.solve(hessian(f), gradient(f))
    return f


def trajectory(
    nodes: Sequence[Node],
    neighbours: Sequence[Sequence[int]],
    *,
    start: Array,
    iterations: int,
    recycles: int | bool,
    eta: AtStepAndNode,
    theta: AtStepAndNode,
    gamma: float,
    perturbation: str,
    noise: AtStepAndNode,
) -> Array:
    """f_i(t) for t = 0..T, shape (T+1, N, d). eta(t, i), theta(t, i), noise(t, i) are functions.

    `recycles` steps after each data step, at time s, are each the minimum of
    g.x + (gamma/2) ||x - f_i(s)||^2 + 2 lam_i.x + eta sum_j ||(f_i + f_j)/2 - x||^2, where its gradient vanishes.
    """
    N, d = start.shape
    f = {i: start[i].copy() for i in range(N)}
    lam = {i: np.zeros(d) for i in range(N)}
    f_before, lam_before = f, lam  # of the last data step
    history = [start.copy()]
    for t in range(1, iterations + 1):
        new = {}
        since = (t - 1) % (int(recycles) + 1)  # the data step
        if since:
            s = history[t - since]
            for i in range(N):
                V, e = len(neighbours[i]), eta(t - since, i)
                g = -2 * lam_before[i] - e * sum(2 * s[i] - f_before[i] - f_before[j] for j in neighbours[i])
                drawn = e * sum(f[i] + f[j] for j in neighbours[i])
                new[i] = (gamma * s[i] + drawn - g - 2 * lam[i]) / (2 * e * V + gamma)
            f = new
        else:
            for i in range(N):
                e, V = eta(t, i), len(neighbours[i])
                n = np.zeros(d)
                if perturbation in ("dual", "penalty"):
                    n = 2 * e * V * noise(t, i)
                elif perturbation == "objective":
                    n = noise(t, i)

                def kkt(x: Array, i: int = i, n: Array = n, e: float = e, f: Any = f, lam: Any = lam) -> Array:
                    pull = e * sum(2 * x - f[i] - f[j] for j in neighbours[i])
                    return np.asarray(nodes[i].gradient(x) + n + 2 * lam[i] + pull)

                def jacobian(x: Array, i: int = i, e: float = e, V: int = V) -> Array:
                    return nodes[i].hessian(x) + 2 * e * V * np.eye(d)

                solution = root(kkt, f[i], jac=jacobian, tol=1e-13)
                assert np.linalg.norm(kkt(solution.x)) < 1e-9
                new[i] = solution.x + (noise(t, i) if perturbation == "primal" else 0.0)
            f_before, lam_before = f, lam
            f = new
            lam = {i: lam[i] + theta(t, i) / 2 * sum(f[i] - f[j] for j in neighbours[i]) for i in range(N)}
        history.append(np.stack([f[i] for i in range(N)]))
    return np.stack(history)
