"""[C] Algorithms 2 and 3 as one would write them first, and the generalised lasso by a conic solver.

Shares no code with the package. Noise vectors are handed in.
"""

import warnings

import numpy as np

from dpadmm_mpi.types import Array


def gradient(x: Array, X: Array, y: Array):
    """Of (1/n) sum log(1 + exp(-y x.l))."""
    total = np.zeros(len(x))
    for row, label in zip(X, y, strict=True):
        total += -label * row / (1.0 + np.exp(label * (row @ x)))
    return total / len(y)


def shrink(v: Array, kind: str, lambda1, rho):
    """argmin_w g(w) + (rho/2)(v - w)^2, entry by entry."""
    if kind == "l2":
        return rho * v / (rho + lambda1)
    return np.array([0.0 if abs(a) <= lambda1 / rho else a - lambda1 / rho if a > 0 else a + lambda1 / rho for a in v])


def algorithm_2(X: Array, y: Array, A, x0, u0, noise, kind: str, lambda1, rho, eta: float, gamma):
    """x_0, ..., x_T; the last w and u."""
    x, u, path = x0, u0, [x0]
    for P in noise:
        w = shrink(A @ x + u, kind, lambda1, rho)
        x = x - eta / gamma * (gradient(x, X, y) + P + rho * A.T @ (A @ x - w + u))
        u = u + A @ x - w
        path.append(x)
    return np.array(path), w, u


def algorithm_3(X: Array, y: Array, A, x0, u0, noise, kind: str, lambda1, rho, eta: float, gamma):
    x, u, xhat, uhat, theta, path = x0, u0, x0, u0, 1.0, [x0]
    for P in noise:
        x_old, u_old = x, u
        w = shrink(A @ xhat + uhat, kind, lambda1, rho)
        x = xhat - eta / gamma * (gradient(xhat, X, y) + P + rho * A.T @ (A @ xhat - w + uhat))
        u = uhat + A @ x - w
        theta_next = (1 + np.sqrt(1 + 4 * theta**2)) / 2
        xhat = x + (theta - 1) / theta_next * (x - x_old)
        uhat = u + (theta - 1) / theta_next * (u - u_old)
        theta = theta_next
        path.append(x)
    return np.array(path), w, u


def optimum(X: Array, y: Array, A, kind: str, lambda1):
    """x* and the smallest objective, by cvxpy and Clarabel."""
    import cvxpy as cp

    x = cp.Variable(X.shape[1])
    loss = cp.sum(cp.logistic(-cp.multiply(y, X @ x))) / len(y)
    penalty = lambda1 * cp.norm1(A @ x) if kind == "l1" else lambda1 / 2 * cp.sum_squares(A @ x)
    problem = cp.Problem(cp.Minimize(loss + penalty))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it may stop a little short of these tolerances, and says so
        problem.solve(solver=cp.CLARABEL, tol_gap_abs=1e-12, tol_gap_rel=1e-12, tol_feas=1e-12)
    return np.asarray(x.value), float(problem.value)
