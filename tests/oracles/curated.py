"""[C] (3)-(5) and Algorithms 2 and 3 as one would write them first, and the generalised lasso by a conic solver.

Shares no code with the package. Noise vectors are handed in.
"""

import warnings
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np

from oracles.network import Array


class Problem(NamedTuple):
    """Records, the map and the constants of [C]."""

    X: Array
    y: Array
    A: Array
    kind: str  # l1 or l2
    lambda1: float
    rho: float
    eta: float
    gamma: float


def gradient(x: Array, X: Array, y: Array) -> Array:
    """Of (1/n) sum log(1 + exp(-y x.l))."""
    total = np.zeros(len(x))
    for row, label in zip(X, y, strict=True):
        total += -label * row / (1.0 + np.exp(label * (row @ x)))
    return total / len(y)


def shrink(v: Array, p: Problem) -> Array:
    """argmin_w g(w) + (rho/2)(v - w)^2, entry by entry."""
    if p.kind == "l2":
        return p.rho * v / (p.rho + p.lambda1)
    edge = p.lambda1 / p.rho
    return np.array([0.0 if abs(a) <= edge else a - edge if a > 0 else a + edge for a in v])


def algorithm_2(p: Problem, x0: Array, u0: Array, noise: Array) -> tuple[Array, Array, Array]:
    """x_0, ..., x_T; the last w and u."""
    x, u, path, A = x0, u0, [x0], p.A
    for P in noise:
        w = shrink(A @ x + u, p)
        x = x - p.eta / p.gamma * (gradient(x, p.X, p.y) + P + p.rho * A.T @ (A @ x - w + u))
        u = u + A @ x - w
        path.append(x)
    return np.array(path), w, u


def algorithm_3(p: Problem, x0: Array, u0: Array, noise: Array) -> tuple[Array, Array, Array]:
    x, u, xhat, uhat, theta, path, A = x0, u0, x0, u0, 1.0, [x0], p.A
    for P in noise:
        x_old, u_old = x, u
        w = shrink(A @ xhat + uhat, p)
        x = xhat - p.eta / p.gamma * (gradient(xhat, p.X, p.y) + P + p.rho * A.T @ (A @ xhat - w + uhat))
        u = uhat + A @ x - w
        theta_next = (1 + np.sqrt(1 + 4 * theta**2)) / 2
        xhat = x + (theta - 1) / theta_next * (x - x_old)
        uhat = u + (theta - 1) / theta_next * (u - u_old)
        theta = theta_next
        path.append(x)
    return np.array(path), w, u


def exact_admm(p: Problem, x0: Array, iterations: int) -> tuple[Array, Array, Array]:
    """[C] (3)-(5): the x step is where MINPACK finds the gradient to vanish."""
    from scipy.optimize import root

    x, u, path, A = x0, np.zeros(len(p.A)), [x0], p.A
    for _ in range(iterations):
        w = shrink(A @ x + u, p)

        def slope(v: Array, w: Array = w, u: Array = u) -> Array:
            return gradient(v, p.X, p.y) + p.rho * A.T @ (A @ v - w + u)

        x = root(slope, x, tol=1e-14).x
        u = u + A @ x - w
        path.append(x)
    return np.array(path), w, u


def optimum(X: Array, y: Array, A: Array, kind: str, lambda1: float) -> tuple[Array, float]:
    """x* and the smallest objective, by cvxpy and Clarabel."""
    cp: Any = import_module("cvxpy")  # has no types
    x = cp.Variable(X.shape[1])
    loss = cp.sum(cp.logistic(-cp.multiply(y, X @ x))) / len(y)
    penalty = lambda1 * cp.norm1(A @ x) if kind == "l1" else lambda1 / 2 * cp.sum_squares(A @ x)
    problem = cp.Problem(cp.Minimize(loss + penalty))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it may stop a little short of these tolerances, and says so
        problem.solve(solver=cp.CLARABEL, tol_gap_abs=1e-12, tol_gap_rel=1e-12, tol_feas=1e-12)
    return np.asarray(x.value), float(problem.value)
