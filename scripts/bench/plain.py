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


def softmax_objective(X: Array, labels: Array, C: float, linear: Array, ridge: float) -> Callable[[Array], tuple[float, Array]]:
    """(C/B) sum_n ( log sum_c exp(f_c.x_n) - f_{y_n}.x_n ) and the two terms, of f with a row for each class."""
    d, B, own = X.shape[1], np.arange(len(X)), labels.astype(int)

    def value_and_gradient(f: Array) -> tuple[float, Array]:
        z = X @ f.reshape(-1, d).T
        z -= z.max(axis=1, keepdims=True)
        p = np.exp(z)
        total = p.sum(axis=1)
        value = C * np.mean(np.log(total) - z[B, own]) + 0.5 * ridge * f @ f + linear @ f
        p /= total[:, None]
        p[B, own] -= 1.0
        return float(value), C / len(X) * (p.T @ X).ravel() + ridge * f + linear

    return value_and_gradient


def huber_objective(
    X: Array, y: Array, width: float, C: float, linear: Array, ridge: float
) -> Callable[[Array], tuple[float, Array]]:
    """(C/B) sum_n of z^2 / (2 width) up to `width` and |z| - width / 2 beyond, z = f.x_n - y_n; infinite: of z^2 / 2."""

    def value_and_gradient(f: Array) -> tuple[float, Array]:
        z = X @ f - y
        if np.isinf(width):
            losses, slopes = 0.5 * z * z, z
        else:
            losses = np.where(np.abs(z) <= width, z * z / (2 * width), np.abs(z) - width / 2)
            slopes = np.clip(z / width, -1.0, 1.0)
        value = C * np.mean(losses) + 0.5 * ridge * f @ f + linear @ f
        return float(value), C / len(X) * (X.T @ slopes) + ridge * f + linear

    return value_and_gradient


def minimise(value_and_gradient: Callable[[Array], tuple[float, Array]], start: Array, **options: float) -> Array:
    return optimize.minimize(value_and_gradient, start, jac=True, method="L-BFGS-B", options=options).x


def argmin(X: Array, C: float, linear: Array, ridge: float, start: Array, **options: float) -> Array:
    return minimise(objective(X, C, linear, ridge), start, **options)


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


Records = list[tuple[float, ...]]  # what is measured in every iteration


def descend(
    shards: list[Array], test: tuple[Array, Array], W: Array, C: float, rho: float,
    steps: Array, sigma: Array, momentum: float, omega: tuple[float, ...], seed: int,
) -> Records:  # fmt: skip
    """dp-dgd and gossip: x = W psi (with Chebyshev's weights omega), then psi = x - a m with m = momentum m + noisy gradients.

    steps and sigma, (T+1,), have a nan in iterations that only mix.
    """
    N, d = len(shards), shards[0].shape[1]
    rng = np.random.default_rng(seed)
    psi = before = direction = np.zeros((N, d))
    record = []
    for t in range(1, len(steps)):
        weight = 1.0 if t == 1 else omega[(t - 2) % len(omega)]
        x, before = weight * (W @ psi) + (1.0 - weight) * before, psi
        psi = x
        if not np.isnan(steps[t]):
            noisy = np.array([data_gradient(X, C, f) + rho / N * f for X, f in zip(shards, x, strict=True)])
            direction = momentum * direction + noisy + sigma[t] * rng.standard_normal((N, d))
            psi = x - steps[t] * direction
        record.append(measures(shards, test, C, rho, list(psi)))
    return record


def track(
    shards: list[Array], test: tuple[Array, Array], W: Array, C: float, rho: float, steps: Array, sigma: Array, seed: int
) -> Records:
    """dp-gradient-tracking: y = W (y + g - g before), psi = x - a y, x = W psi."""
    N, d = len(shards), shards[0].shape[1]
    rng = np.random.default_rng(seed)
    x = y = before = np.zeros((N, d))
    record = []
    for t in range(1, len(steps)):
        noisy = np.array([data_gradient(X, C, f) + rho / N * f for X, f in zip(shards, x, strict=True)])
        noisy += sigma[t] * rng.standard_normal((N, d))
        y, before = W @ (y + noisy - before), noisy
        psi = x - steps[t] * y
        record.append(measures(shards, test, C, rho, list(psi)))
        x = W @ psi
    return record


def solve_once(
    shards: list[Array], test: tuple[Array, Array], W: Array, C: float, rho: float,
    eta: float, alpha: Array, omega: tuple[float, ...], seed: int,
) -> Records:  # fmt: skip
    """one-shot, and central-objective with all records in one shard: a noisy solve, then averaging."""
    N, d = len(shards), shards[0].shape[1]
    rng = np.random.default_rng(seed)
    start = np.zeros(d)
    f = np.array([argmin(X, C, noise(rng, d, alpha[i]), rho / N + 2 * eta, start) for i, X in enumerate(shards)])
    before, record = np.zeros_like(f), [measures(shards, test, C, rho, list(f))]
    for weight in omega:
        f, before = weight * (W @ f) + (1.0 - weight) * before, f
        record.append(measures(shards, test, C, rho, list(f)))
    return record


def arc_admm(
    shards: list[Array], test: tuple[Array, Array], neighbours: list[list[int]], C: float, rho: float,
    eta: float, alpha: Array, relaxation: float, seed: int,
) -> Records:  # fmt: skip
    """A vector z for each neighbour; alpha is (T+1, N)."""
    N, d = len(shards), shards[0].shape[1]
    rng = np.random.default_rng(seed)
    x = [rng.standard_normal(d) for _ in range(N)]
    z = {(i, j): 2 * eta * x[i] for i in range(N) for j in neighbours[i]}
    record = []
    for t in range(len(alpha)):
        if t > 0:
            for i, X in enumerate(shards):
                linear = noise(rng, d, alpha[t, i]) - sum(z[i, j] for j in neighbours[i])
                x[i] = argmin(X, C, linear, rho / N + 2 * eta * len(neighbours[i]), x[i])
        sent = {(i, j): 4 * eta * x[i] - z[i, j] for i, j in z}
        z = {(i, j): (1 - relaxation) * z[i, j] + relaxation * sent[j, i] for i, j in z}
        if t > 0:
            record.append(measures(shards, test, C, rho, x))
    return record


def data_gradient(X: Array, C: float, f: Array) -> Array:
    return C / len(X) * (X.T @ (-1.0 / (1.0 + np.exp(X @ f))))


def measures(shards: list[Array], test: tuple[Array, Array], C: float, rho: float, f: list[Array]) -> tuple[float, ...]:
    losses = [np.mean(np.logaddexp(0.0, -(X @ f[i]))) for i, X in enumerate(shards)]
    mean = np.mean(f, axis=0)
    return (
        float(np.mean(losses)),
        float(sum(C * loss + rho / len(f) * (f[i] @ f[i]) / 2 for i, loss in enumerate(losses))),
        float(np.mean([np.linalg.norm(x - mean) for x in f])),
        float(np.mean(np.where(test[0] @ mean >= 0, 1.0, -1.0) != test[1])),
    )
