"""A plain implementation of [S] Algorithms 1 and 2, as one would write it first: loops, no code of the package.

Sampled records and noise vectors are handed in.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import minimize

from oracles.network import LOGISTIC, Array, AtStepAndNode, Functions, huber

__all__ = ["LOGISTIC", "Inner", "Provider", "huber", "inner_path", "optimum", "trajectory"]


class Provider:
    def __init__(self, X: Array, y: Array, loss: Functions = LOGISTIC) -> None:
        self.X, self.y = X, y
        self.loss, self.slope, self.curvature = loss

    def record_gradient(self, m: int, x: Array) -> Array:
        return np.asarray(self.slope(self.y[m] * (self.X[m] @ x)) * self.y[m] * self.X[m])

    def value(self, x: Array) -> float:
        return float(np.mean(self.loss(self.y * (self.X @ x))))

    def gradient(self, x: Array) -> Array:
        return np.asarray(np.mean([self.record_gradient(m, x) for m in range(len(self.y))], axis=0))

    def hessian(self, x: Array) -> Array:
        w = self.curvature(self.y * (self.X @ x))
        return np.asarray((self.X.T * w) @ self.X / len(self.y))


class Inner(NamedTuple):
    """Stochastic inner steps: samples(k, i) are the numbers of the records, noise(k, i) the noise vectors."""

    eta: float
    v_L: float
    averaging: str
    samples: AtStepAndNode
    noise: AtStepAndNode


def _newton(
    value: Callable[[Array], float], gradient: Callable[[Array], Any], hessian: Callable[[Array], Any], start: Array
) -> Array:
    """A trust-region method and a few exact Newton steps."""
    x: Array = minimize(value, start, jac=gradient, hess=hessian, method="trust-exact", options={"gtol": 1e-10}).x
    for _ in range(3):
        x = x - np.linalg.solve(hessian(x), gradient(x))
    return x


def optimum(providers: Sequence[Provider], reg: float, d: int) -> Array:
    """argmin_z sum_i f_i(z) + reg ||z||^2"""
    return _newton(
        lambda z: float(sum(p.value(z) for p in providers) + reg * z @ z),
        lambda z: sum(p.gradient(z) for p in providers) + 2 * reg * z,
        lambda z: sum(p.hessian(z) for p in providers) + 2 * reg * np.eye(d),
        np.zeros(d),
    )


def argmin(provider: Provider, lam: Array, z: Array, rho: float) -> Array:
    return _newton(
        lambda x: float(provider.value(x) + lam @ x + rho / 2 * np.sum((x - z) ** 2)),
        lambda x: provider.gradient(x) + lam + rho * (x - z),
        lambda x: provider.hessian(x) + rho * np.eye(len(x)),
        z,
    )


def inner_path(
    provider: Provider, x: Array, lam: Array, z: Array, *, rho: float, eta: float, samples: Any, noise: Any
) -> list[Array]:
    """v^0 .. v^S, lines 4 to 8"""
    u = provider.gradient(x)
    vs = [x]
    for m, theta in zip(samples, noise, strict=True):
        v = vs[-1]
        g = provider.record_gradient(m, v) - provider.record_gradient(m, x) + u + lam + rho * (v - z) + theta
        vs.append(v - eta * g)
    return vs


def svrg(provider: Provider, vs: list[Array], inner: Inner) -> Array:
    """Lines 9 to 11"""
    eta = inner.eta
    xi = 4 * eta / (1 - 2 * eta * inner.v_L)
    zeta = 2 * eta - xi
    hats = [(zeta * v + xi * after) / (2 * eta) for v, after in pairwise(vs)]
    return np.asarray(np.mean(vs[1:] if inner.averaging == "uniform" else hats, axis=0))


def trajectory(
    providers: Sequence[Provider], x: Array, z: Array, iterations: int, rho: float, reg: float, inner: Inner | None = None
) -> tuple[Array, Array]:
    """x_i(k) and z(k) for k = 0..K. Without `inner`: the exact argmin."""
    N = len(providers)
    xi, lam = [row.copy() for row in x], [np.zeros_like(z) for _ in providers]
    xs, zs = [np.array(xi)], [z]
    for k in range(1, iterations + 1):
        for i, provider in enumerate(providers):
            if inner is None:
                xi[i] = argmin(provider, lam[i], z, rho)
            else:
                draws = {"samples": inner.samples(k, i), "noise": inner.noise(k, i)}
                xi[i] = svrg(provider, inner_path(provider, xi[i], lam[i], z, rho=rho, eta=inner.eta, **draws), inner)
        z = np.asarray(sum(lam[i] + rho * xi[i] for i in range(N)) / (N * rho + 2 * reg))
        lam = [lam[i] + rho * (xi[i] - z) for i in range(N)]
        xs.append(np.array(xi))
        zs.append(z)
    return np.array(xs), np.array(zs)
