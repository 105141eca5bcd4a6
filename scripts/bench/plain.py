"""Reference (a): the script that one writes first. A loop over the nodes, dense numpy, scipy's L-BFGS-B in every data step."""

from collections.abc import Callable

import numpy as np
from scipy import optimize

Array = np.ndarray


def objective(X: Array, C: float, linear: Array, ridge: float) -> Callable[[Array], tuple[float, Array]]:
    """Value and gradient of (C/B) sum_n log(1 + exp(-x_n.f)) + (ridge/2) ||f||^2 + linear.f, the rows of X signed."""

    def value_and_gradient(f: Array) -> tuple[float, Array]:
        z = X @ f
        t = np.exp(-np.abs(z))
        value = C * np.mean(np.maximum(-z, 0.0) + np.log1p(t)) + 0.5 * ridge * f @ f + linear @ f
        gradient = C / len(X) * (X.T @ (-np.where(z >= 0.0, t, 1.0) / (1.0 + t))) + ridge * f + linear
        return float(value), gradient

    return value_and_gradient


def argmin(X: Array, C: float, linear: Array, ridge: float, start: Array, **options: float) -> Array:
    return optimize.minimize(objective(X, C, linear, ridge), start, jac=True, method="L-BFGS-B", options=options).x


def noise(rng: np.random.Generator, d: int, alpha: float) -> Array:
    direction = rng.standard_normal(d)
    return rng.gamma(d) / alpha * direction / np.linalg.norm(direction)


def simulate(
    shards: list[Array],  # signed rows of each node
    test: tuple[Array, Array],
    neighbours: list[list[int]],
    C: float,
    rho: float,
    schedules: tuple[Array, Array, Array],  # eta, theta and alpha, (T+1, N)
    recycles: bool,
    perturbation: str,
    gamma: float,
    seed: int,
) -> list[tuple[float, float, float, float]]:
    """One run: loss, objective, consensus error and test error of every iteration."""
    N, d = len(shards), shards[0].shape[1]
    eta, theta, alpha = schedules
    rng = np.random.default_rng(seed)
    f = [rng.standard_normal(d) for _ in range(N)]
    lam = [np.zeros(d) for _ in range(N)]
    gradient = [np.zeros(d) for _ in range(N)]
    record = []
    for t in range(1, len(eta)):
        new = []
        for i, X in enumerate(shards):
            V, total = len(neighbours[i]), sum(f[j] for j in neighbours[i])
            if recycles and t % 2 == 0:
                step = gradient[i] + 2 * lam[i] + eta[t, i] * (V * f[i] - total)
                new.append(f[i] - step / (2 * eta[t, i] * V + gamma))
                continue
            n = np.zeros(d)
            if perturbation != "none":
                n = noise(rng, d, alpha[t, i]) * (1.0 if perturbation == "objective" else 2 * eta[t, i] * V)
            linear = 2 * lam[i] + n - eta[t, i] * (V * f[i] + total)
            new.append(argmin(X, C, linear, rho / N + 2 * eta[t, i] * V, f[i]))
            gradient[i] = -2 * lam[i] - eta[t, i] * (2 * V * new[i] - V * f[i] - total)
        f = new
        if not recycles or t % 2 == 1:
            lam = [lam[i] + theta[t, i] / 2 * sum(f[i] - f[j] for j in neighbours[i]) for i in range(N)]
        record.append(measures(shards, test, C, rho, f))
    return record


def measures(shards: list[Array], test: tuple[Array, Array], C: float, rho: float, f: list[Array]) -> tuple[float, ...]:
    losses = [np.mean(np.logaddexp(0.0, -(X @ f[i]))) for i, X in enumerate(shards)]
    mean = np.mean(f, axis=0)
    return (
        float(np.mean(losses)),
        float(sum(C * loss + rho / len(f) * (f[i] @ f[i]) / 2 for i, loss in enumerate(losses))),
        float(np.mean([np.linalg.norm(x - mean) for x in f])),
        float(np.mean(np.where(test[0] @ mean >= 0, 1.0, -1.0) != test[1])),
    )
