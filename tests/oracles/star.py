"""A plain implementation of SPEC 3, as one would write it first from [S] Algorithms 1 and 2: loops, no shared code.

Sampled records and noise vectors are handed in.
"""

from itertools import pairwise

import numpy as np
from scipy.optimize import minimize

from dpadmm_mpi.problems.losses import Loss
from dpadmm_mpi.types import Array
from oracles.network import LOGISTIC, huber

__all__ = ["LOGISTIC", "Provider", "huber", "inner_path", "optimum", "trajectory"]


class Provider:
    def __init__(self, X: Array, y: Array, loss: Loss = LOGISTIC) -> None:
        self.X, self.y = X, y
        self.loss, self.slope, self.curvature = loss

    def record_gradient(self, m, x: Array):
        return self.slope(self.y[m] * (self.X[m] @ x)) * self.y[m] * self.X[m]

    def value(self, x: Array):
        return np.mean(self.loss(self.y * (self.X @ x)))

    def gradient(self, x: Array):
        return np.mean([self.record_gradient(m, x) for m in range(len(self.y))], axis=0)

    def hessian(self, x: Array):
        w = self.curvature(self.y * (self.X @ x))
        return (self.X.T * w) @ self.X / len(self.y)


def _newton(value, gradient, hessian, start: Array):
    """A trust-region method and a few exact Newton steps."""
    x = minimize(value, start, jac=gradient, hess=hessian, method="trust-exact", options={"gtol": 1e-10}).x
    for _ in range(3):
        x = x - np.linalg.solve(hessian(x), gradient(x))
    return x


def optimum(providers, reg, d: int):
    """argmin_z sum_i f_i(z) + reg ||z||^2"""
    return _newton(
        lambda z: sum(p.value(z) for p in providers) + reg * z @ z,
        lambda z: sum(p.gradient(z) for p in providers) + 2 * reg * z,
        lambda z: sum(p.hessian(z) for p in providers) + 2 * reg * np.eye(d),
        np.zeros(d),
    )


def argmin(provider, lam: Array, z: Array, rho):
    return _newton(
        lambda x: provider.value(x) + lam @ x + rho / 2 * np.sum((x - z) ** 2),
        lambda x: provider.gradient(x) + lam + rho * (x - z),
        lambda x: provider.hessian(x) + rho * np.eye(len(x)),
        z,
    )


def inner_path(provider, x: Array, lam: Array, z: Array, rho, eta: float, samples, noise):
    """v^0 .. v^S, lines 4 to 8"""
    u = provider.gradient(x)
    vs = [x]
    for m, theta in zip(samples, noise, strict=True):
        v = vs[-1]
        g = provider.record_gradient(m, v) - provider.record_gradient(m, x) + u + lam + rho * (v - z) + theta
        vs.append(v - eta * g)
    return vs


def svrg(provider, x: Array, lam: Array, z: Array, rho, eta: float, v_L, averaging, samples, noise):
    """Lines 4 to 11"""
    vs = inner_path(provider, x, lam, z, rho, eta, samples, noise)
    xi = 4 * eta / (1 - 2 * eta * v_L)
    zeta = 2 * eta - xi
    hats = [(zeta * v + xi * after) / (2 * eta) for v, after in pairwise(vs)]
    return np.mean(vs[1:] if averaging == "uniform" else hats, axis=0)


def trajectory(providers, x: Array, z: Array, iterations, rho, reg, inner=None):
    """x_i(k) and z(k) for k = 0..K. `inner`: eta, v_L, averaging, samples(k, i), noise(k, i); None: the exact argmin."""
    N = len(providers)
    x, lam = [row.copy() for row in x], [np.zeros_like(z) for _ in providers]
    xs, zs = [np.array(x)], [z]
    for k in range(1, iterations + 1):
        for i, provider in enumerate(providers):
            if inner is None:
                x[i] = argmin(provider, lam[i], z, rho)
            else:
                eta, v_L, averaging, samples, noise = inner
                x[i] = svrg(provider, x[i], lam[i], z, rho, eta, v_L, averaging, samples(k, i), noise(k, i))
        z = sum(lam[i] + rho * x[i] for i in range(N)) / (N * rho + 2 * reg)
        lam = [lam[i] + rho * (x[i] - z) for i in range(N)]
        xs.append(np.array(x))
        zs.append(z)
    return np.array(xs), np.array(zs)
