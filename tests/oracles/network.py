"""A plain implementation of SPEC 2, as one would write it first: loops, dictionaries, scipy's root finder on (KKT).

It shares no code with the package. Noise vectors are handed in.
"""

import numpy as np
from scipy.optimize import minimize, root

from dpadmm_mpi.problems.losses import Loss
from dpadmm_mpi.types import Array


def logistic(z: Array):
    return np.logaddexp(0.0, -z)


def logistic_slope(z: Array):
    return -1.0 / (1.0 + np.exp(z))


def logistic_curvature(z: Array):
    p = 1.0 / (1.0 + np.exp(-z))
    return p * (1.0 - p)


LOGISTIC = (logistic, logistic_slope, logistic_curvature)


def huber(h):
    """The smoothed hinge piece by piece: 0, then (1 + h - z)^2 / 4h, then 1 - z."""

    def pieces(z: Array, above, between, below):
        return np.where(z > 1 + h, above, np.where(z < 1 - h, below, between))

    return (
        lambda z: pieces(z, 0.0, (1 + h - z) ** 2 / (4 * h), 1 - z),
        lambda z: pieces(z, 0.0, -(1 + h - z) / (2 * h), -1.0),
        lambda z: pieces(z, 0.0, 1 / (2 * h), 0.0),
    )


class Node:
    def __init__(self, X: Array, y: Array, C, rho, N, loss: Loss = LOGISTIC) -> None:
        self.X, self.y, self.C, self.rho, self.N = X, y, C, rho, N
        self.loss, self.slope, self.curvature = loss

    def objective(self, f: Array):
        return self.C * np.mean(self.loss(self.y * (self.X @ f))) + self.rho / self.N * (f @ f) / 2

    def gradient(self, f: Array):
        slopes = self.slope(self.y * (self.X @ f))
        return self.C * np.mean(slopes[:, None] * self.y[:, None] * self.X, axis=0) + self.rho / self.N * f

    def hessian(self, f: Array):
        w = self.curvature(self.y * (self.X @ f))
        return self.C * (self.X.T * w) @ self.X / len(self.y) + self.rho / self.N * np.eye(len(f))


def centralised_optimum(nodes: int, d: int):
    """argmin of sum_i O_i, by a trust-region method and a few exact Newton steps."""
    result = minimize(
        lambda f: sum(node.objective(f) for node in nodes),
        np.zeros(d),
        jac=lambda f: sum(node.gradient(f) for node in nodes),
        hess=lambda f: sum(node.hessian(f) for node in nodes),
        method="trust-exact",
        options={"gtol": 1e-10},
    )
    f = result.x
    for _ in range(3):
        f = f - np.linalg.solve(sum(node.hessian(f) for node in nodes), sum(node.gradient(f) for node in nodes))
    return f


def trajectory(nodes: int, neighbours, start: Array, iterations, recycles, eta: float, theta, gamma, perturbation: str, noise):
    """f_i(t) for t = 0..T, shape (T+1, N, d). eta(t, i), theta(t, i), noise(t, i) are functions."""
    N, d = start.shape
    f = {i: start[i].copy() for i in range(N)}
    lam = {i: np.zeros(d) for i in range(N)}
    f_before, lam_before = f, lam  # of the last data step
    history = [start.copy()]
    for t in range(1, iterations + 1):
        new = {}
        if recycles and t % 2 == 0:
            for i in range(N):
                V, e = len(neighbours[i]), eta(t - 1, i)
                g = -2 * lam_before[i] - e * sum(2 * f[i] - f_before[i] - f_before[j] for j in neighbours[i])
                pull = e * sum(f[i] - f[j] for j in neighbours[i])
                new[i] = f[i] - (g + 2 * lam[i] + pull) / (2 * e * V + gamma)
            f = new
        else:
            for i in range(N):
                e, V = eta(t, i), len(neighbours[i])
                n = np.zeros(d)
                if perturbation in ("dual", "penalty"):
                    n = 2 * e * V * noise(t, i)
                elif perturbation == "objective":
                    n = noise(t, i)

                def kkt(x: Array, i: int = i, n=n, e=e, f: Array = f, lam: Array = lam):
                    pull = e * sum(2 * x - f[i] - f[j] for j in neighbours[i])
                    return nodes[i].gradient(x) + n + 2 * lam[i] + pull

                def jacobian(x: Array, i: int = i, e=e, V=V):
                    return nodes[i].hessian(x) + 2 * e * V * np.eye(d)

                solution = root(kkt, f[i], jac=jacobian, tol=1e-13)
                assert np.linalg.norm(kkt(solution.x)) < 1e-9
                new[i] = solution.x + (noise(t, i) if perturbation == "primal" else 0.0)
            f_before, lam_before = f, lam
            f = new
            lam = {i: lam[i] + theta(t, i) / 2 * sum(f[i] - f[j] for j in neighbours[i]) for i in range(N)}
        history.append(np.stack([f[i] for i in range(N)]))
    return np.stack(history)
