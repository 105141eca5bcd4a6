"""Sentences of [C] beside its algorithms, measured: Algorithm 1, rates, lemmas, the bound with noise, other problems.

What is compared is written out here or comes from cvxpy and scipy; nothing of the package's numerics is used on that side.
"""

from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.optimize import brentq, minimize
from scipy.stats import norm
from support import Raw, curated_plan, result_of

from dpadmm_mpi.methods.curated import theory
from dpadmm_mpi.methods.curated.accounts import paper_variance
from dpadmm_mpi.types import Array

GRAPH = np.array([[1.0, -1.0, 0.0, 0.0], [0.0, 1.0, 1.0, 0.0], [0.0, 0.0, 1.0, -1.0]])  # three edges of four features


def some_records(n: int = 80, d: int = 4, seed: int = 3) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    X /= np.maximum(np.linalg.norm(X, axis=1, keepdims=True), 1.0)
    return X, np.where(
        rng.random(n) < 1.0 / (1.0 + np.exp(-4.0 * X @ np.array([1.0, 1.0, -1.0, 0.3] + [0.5] * (d - 4)))), 1.0, -1.0
    )


def slow_records() -> tuple[Array, Array]:
    """An optimum near 4 i^-1/2 and curvatures that fall like i^-2: gradient descent then takes steps of order 1/T for long.

    Every point is there 50 times, with the labels in the proportion that makes the optimum what it is.
    """
    rng, i = np.random.default_rng(2), np.arange(1, 21.0)
    points = rng.standard_normal((300, 20)) / i
    points /= np.linalg.norm(points, axis=1).max()
    wanted = 4 * i**-0.5 * np.where(i % 2, 1.0, -1.0)
    positive = np.round(50 / (1 + np.exp(-points @ wanted))).astype(int)
    y = np.concatenate([np.r_[np.ones(k), -np.ones(50 - k)] for k in positive])
    return np.repeat(points, 50, axis=0), y


def configuration(folder: Path, data: tuple[Array, Array], method: str, **sections: Any) -> Raw:
    np.savez(folder / "records.npz", X=data[0], y=data[1])
    base: Raw = {
        "iterations": 100,
        "data": {"source": "npz", "path": str(folder / "records.npz"), "train": 1.0},
        "network": {"nodes": 1},
        "problem": {"lambda1": 0.01},
        "algorithm": {"method": method, "rho": 0.1},
        "record": {"trajectory": True, "optimum": True},
    }
    for name, extra in sections.items():
        base[name] = {**base.get(name, {}), **extra} if isinstance(extra, dict) else extra
    return base


def with_map(folder: Path, A: Array, **problem: Any) -> Raw:
    np.save(folder / "A.npy", A)
    return {"map": "file", "map_path": str(folder / "A.npy")} | problem


def f(x: Array, X: Array, y: Array) -> float:
    return float(np.mean(np.logaddexp(0.0, -y * (X @ x))))


def slope(x: Array, X: Array, y: Array) -> Array:
    return np.asarray(-X.T @ (y / (1.0 + np.exp(y * (X @ x)))) / len(y))


def exponent(gap: Array, first: int, last: int) -> float:
    """p of gap = T^p, by least squares."""
    t = np.arange(first, last)
    return float(np.polyfit(np.log(t), np.log(gap[t]), 1)[0])


def test_without_a_penalty_the_accelerated_method_is_nesterovs(tmp_path: Path) -> None:
    """[C] III.C, Algorithm 1, written out: AccADMM with lambda1 = 0 and any map takes its steps, with the step eta/gamma."""
    X, y = some_records()
    problem = with_map(tmp_path, np.vstack([GRAPH, np.eye(4)]), lambda1=0.0)
    got = result_of(configuration(tmp_path, (X, y), "gl-acc-admm", problem=problem, record={"optimum": False}))
    step = float(got["algorithm/eta"][-1, 0] / got["algorithm/gamma"][-1, 0])
    x, at, theta = np.zeros(4), np.zeros(4), 1.0
    for t in range(1, 101):
        before, x = x, at - step * slope(at, X, y)
        theta, past = (1.0 + np.sqrt(4.0 * theta**2 + 1.0)) / 2.0, theta
        at = x + (past - 1.0) * (x - before) / theta
        np.testing.assert_allclose(got["server_trajectory"][0, t], x, atol=1e-11)


@pytest.mark.parametrize("lambda1", [0.0, 1e-5])
def test_acceleration_has_twice_the_exponent(tmp_path: Path, lambda1: float) -> None:
    """[C] III.C and IV.C: 1/T and 1/T^2 on a problem that is slow enough to show it, without and with the paper's penalty.

    Without one, both lie below the bounds of gradient descent and of Nesterov's method, at every iteration.
    """
    gaps, result = {}, None
    for method in ("gl-admm", "gl-acc-admm"):
        raw = configuration(tmp_path, slow_records(), method, problem={"lambda1": lambda1}, algorithm={"rho": 0.01})
        result = result_of(raw)
        gaps[method] = np.array(result["objective_gap"][0])
    assert exponent(gaps["gl-admm"], 10, 100) == pytest.approx(-1.0, abs=0.1)
    assert exponent(gaps["gl-acc-admm"], 10, 100) == pytest.approx(-2.0, abs=0.2)
    if lambda1 == 0.0 and result is not None:
        step = float(result["algorithm/eta"][-1, 0] / result["algorithm/gamma"][-1, 0])
        start, t = float(np.sum(result["optimum/primal"] ** 2)), np.arange(1, 101)
        assert np.all(gaps["gl-admm"][1:] <= start / (2 * step * t))
        assert np.all(gaps["gl-acc-admm"][1:] <= 2 * start / (step * (t + 1) ** 2))


def test_noise_leaves_the_rate_and_adds_what_grows_like_its_variance(tmp_path: Path) -> None:
    """[C] after Theorem 2: the mean gap is that without noise plus c(t) sigma^2; twice the noise adds four times as much.

    250 runs; the ratio within four standard errors.
    """
    record = {"trajectory": False, "every": 50}
    raw = configuration(tmp_path, some_records(), "dp-admm", problem={"regulariser": "l2"}, record=record, iterations=100)
    added, error = {}, {}
    quiet = result_of(raw | {"privacy": {"perturbation": "none"}})["objective_gap"][0]
    for sigma in (0.02, 0.04):
        gap = result_of(raw | {"runs": 250, "privacy": {"noise_std": sigma}})["objective_gap"]
        added[sigma], error[sigma] = gap.mean(axis=0) - quiet, gap.std(axis=0) / np.sqrt(250)
    for t in (1, 2):  # rows: iterations 50 and 100
        spread = np.hypot(error[0.04][t] / added[0.02][t], 4 * error[0.02][t] / added[0.02][t])
        assert added[0.04][t] / added[0.02][t] == pytest.approx(4.0, abs=4 * spread)
        assert spread < 0.5


def test_the_bound_of_theorem_2_holds_with_noise(tmp_path: Path) -> None:
    """[C] (18): the mean of R over 50 runs stays below the bound; the bound is the formula."""
    metrics = ["mean_criterion", "mean_criterion_bound"]
    X, y = some_records()
    privacy, record = {"noise_std": 0.1}, {"optimum": True, "metrics": metrics, "trajectory": False, "every": 10}
    result = result_of(configuration(tmp_path, (X, y), "dp-admm", privacy=privacy, runs=50, record=record))
    R, bound = result["mean_criterion"][:, 1:], result["mean_criterion_bound"][0, 1:]
    best = result["optimum/primal"]
    start = best @ best / (2 * 4) + 0.1 / 2 * best @ best + np.sum(slope(best, X, y) ** 2) / (2 * 0.1)
    np.testing.assert_allclose(bound, start / np.arange(10, 101, 10) + 4 * 0.1**2 * 4, rtol=1e-5)
    assert np.all(R.mean(axis=0) + 4 * R.std(axis=0) / 7 < bound)
    noiseless = start / 100
    assert R.mean(axis=0)[-1] - 4 * R.std(axis=0)[-1] / 7 > 0.02 * noiseless


@pytest.mark.parametrize("full_row_rank", [True, False])
def test_the_dual_at_the_optimum(tmp_path: Path, full_row_rank: bool) -> None:
    """[C] Lemma 4: u_T goes to -(1/rho) (A')^+ grad f(x*) if A has full row rank. The experiments' [W; I] does not, and there
    u_T goes elsewhere, to one of the many u with rho A'u = -grad f(x*)."""
    X, y = some_records()
    A = GRAPH if full_row_rank else np.vstack([GRAPH, np.eye(4)])
    raw = configuration(
        tmp_path, (X, y), "gl-acc-admm", problem=with_map(tmp_path, A), algorithm={"restart": "safeguarded"}, iterations=300
    )
    result = result_of(raw)
    best, u = result["optimum/primal"], result["final/dual"][0]
    shortest = -np.linalg.pinv(A.T) @ slope(best, X, y) / 0.1
    np.testing.assert_allclose(0.1 * A.T @ u, -slope(best, X, y), atol=1e-6)
    assert (np.linalg.norm(u - shortest) < 1e-5) == full_row_rank


def test_the_lemmas_of_theorem_2(tmp_path: Path) -> None:
    """[C] Lemmas 5 to 7 along a noisy path: 5 at random points, with its inequality the other way round; 6 with minus
    before (B'alpha)'(y* - y_t), and with x_t in its second square, where x_{t-1} is printed twice; 7 is an identity."""
    X, y = some_records()
    raw = configuration(
        tmp_path, (X, y), "dp-admm", problem=with_map(tmp_path, GRAPH), privacy={"noise_std": 0.05}, iterations=60
    )
    result = result_of(raw)
    path, best = result["server_trajectory"][0], result["optimum/primal"]
    lambda1, rho, eta, gamma = 0.01, 0.1, 4.0, float(result["algorithm/gamma"][-1, 0])
    G = gamma * np.eye(4) - eta * rho * GRAPH.T @ GRAPH
    u_best, y_best = -np.linalg.pinv(GRAPH.T) @ slope(best, X, y) / rho, GRAPH @ best
    u, rng, nearest = np.zeros(3), np.random.default_rng(1), np.inf
    for t in range(1, 61):
        before, x, u_before = path[t - 1], path[t], u
        v = GRAPH @ before + u
        w = np.sign(v) * np.maximum(np.abs(v) - lambda1 / rho, 0.0)
        u = u + GRAPH @ x - w
        q = rho * GRAPH.T @ u
        g = -G @ (x - before) / eta
        noise = g - q - slope(before, X, y)
        for point in (best, x, *rng.standard_normal((5, 4))):
            left = f(point, X, y) + q @ (point - x)
            right = f(x, X, y) + g @ (point - before) + eta / 2 * g @ np.linalg.solve(G, g) + noise @ (x - point)
            assert left >= right - 1e-12
            nearest = min(nearest, left - right)
        alpha = rho * (u - u_best)
        gain = lambda1 * (np.abs(w).sum() - np.abs(y_best).sum()) - rho * u_best @ (w - y_best) + alpha @ (y_best - w)
        squares = np.sum((GRAPH @ before - y_best) ** 2) - np.sum((GRAPH @ x - y_best) ** 2) + np.sum((u - u_before) ** 2)
        assert 2 * gain <= rho * squares + 1e-7
        identity = np.sum((u_before - u_best) ** 2) - np.sum((u - u_best) ** 2) - np.sum((u - u_before) ** 2)
        assert -2 * (GRAPH @ x - w) @ alpha == pytest.approx(rho * identity, abs=1e-12)
    assert nearest < 1e-2


def test_rho_is_in_the_constant_of_the_bound_and_not_in_its_order(tmp_path: Path) -> None:
    """[C] V.B: "rho will not influence the utility bound". (9), as an order, has no rho; the number (18) has it, in c_1.

    At the best T of (19) the bound goes with the root of c_1, which a hundred times larger or smaller rho multiplies by 3 and
    more; the noise of (8) does not change. `dpadmm check` prints the number.
    """
    X, y = some_records()
    bounds, variances = {}, {}
    for rho in (0.01, 1.0, 100.0):
        raw = configuration(
            tmp_path, (X, y), "dp-admm", algorithm={"rho": rho}, privacy={"target": 1.0, "target_account": "paper"}
        )
        plan, _ = curated_plan(raw)
        s, r = plan.settings, plan.releases
        assert s.A.singular_values is not None
        c_1 = theory.start_constant(s.eta, s.gamma, rho, 0.25, s.A.singular_values)
        variances[rho] = paper_variance(r, 1.0, 1e-5)
        T = theory.best_iterations(c_1, 1.0, s.eta, 4, variances[rho])
        bounds[rho] = theory.utility_bound(c_1, 1.0, s.eta, 4, float(np.sqrt(variances[rho] * T)), 1) - c_1 + c_1 / T
        assert bounds[rho] == pytest.approx(2 * np.sqrt(c_1 * s.eta * 4 * variances[rho]), rel=1e-9)
    assert len(set(variances.values())) == 1
    assert bounds[0.01] > 3 * bounds[1.0]
    assert bounds[100.0] > 3 * bounds[1.0]


@pytest.mark.parametrize("loss", ["logistic", "huber"])
@pytest.mark.parametrize("name", ["generalised lasso", "graph-guided"])
def test_generalised_lasso_and_graph_guided_support_vectors(tmp_path: Path, loss: str, name: str) -> None:
    """[C] I: second differences for the lasso, edges of a graph and the smoothed hinge for the support vector machine, at the
    objective that cvxpy finds, to 1e-7."""
    cp: Any = import_module("cvxpy")
    X, y = some_records()
    A = (
        np.array([[1.0, -2.0, 1.0, 0.0], [0.0, 1.0, -2.0, 1.0]])
        if name == "generalised lasso"
        else np.vstack([GRAPH, np.eye(4)])
    )
    raw = configuration(
        tmp_path,
        (X, y),
        "gl-exact-admm",
        problem=with_map(tmp_path, A, loss=loss, lambda1=0.02),
        iterations=400,
        algorithm={"rho": 0.05},
    )
    result = result_of(raw)
    x = cp.Variable(4)
    margins = cp.multiply(y, X @ x)
    if loss == "logistic":
        losses = cp.sum(cp.logistic(-margins)) / len(y)
    else:  # the hinge, smoothed by a parabola between 1 - h and 1 + h: its infimal convolution, h = 0.5
        s = cp.Variable(len(y))
        losses = cp.sum(cp.pos(1.0 + 0.5 - margins - s) + cp.square(s) / (4 * 0.5)) / len(y)
    problem = cp.Problem(cp.Minimize(losses + 0.02 * cp.norm1(A @ x)))
    problem.solve(solver=cp.CLARABEL)
    assert float(result["objective"][0, -1]) == pytest.approx(float(problem.value), abs=1e-7)
    assert abs(float(result["objective_gap"][0, -1])) < 1e-7


def test_several_blocks_are_one_block_with_a_stacked_map(tmp_path: Path) -> None:
    """[C] VI, more than two blocks: f(x) + ||w_1||_1 + ||w_2||_1 + ..., w_j = A_j x, are two blocks, x and w = (w_1, w_2, ...).

    A three-block method written out, every w_j with a multiplier of its own, takes the same steps; they do not depend on one
    another, so there is nothing else that it could do. (Blocks that share a constraint are columns of B.)
    """
    X, y = some_records()
    blocks, lambda1, rho, eta = (GRAPH, np.eye(4)), 0.01, 0.1, 4.0
    stacked = configuration(tmp_path, (X, y), "gl-admm", problem=with_map(tmp_path, np.vstack(blocks)))
    result = result_of(stacked)
    gamma = float(result["algorithm/gamma"][-1, 0])
    x, us = np.zeros(4), [np.zeros(3), np.zeros(4)]
    for t in range(1, 101):
        ws = []
        for A, u in zip(blocks, us, strict=True):
            v = A @ x + u
            ws.append(np.sign(v) * np.maximum(np.abs(v) - lambda1 / rho, 0.0))
        pull = sum(rho * A.T @ (A @ x - w + u) for A, w, u in zip(blocks, ws, us, strict=True))
        x = x - eta / gamma * (slope(x, X, y) + pull)
        us = [u + A @ x - w for A, w, u in zip(blocks, ws, us, strict=True)]
        np.testing.assert_allclose(result["server_trajectory"][0, t], x, atol=1e-11)


def exact_gaussian(epsilon: float, delta: float) -> float:
    """The noise over the sensitivity that is (epsilon, delta)-private, from the exact delta of Gaussian noise."""

    def excess(sigma: float) -> float:
        a, b = 0.5 / sigma - epsilon * sigma, -0.5 / sigma - epsilon * sigma
        return float(norm.cdf(a) - np.exp(epsilon) * norm.cdf(b)) - delta

    return float(brentq(excess, 1e-3, 1e4))


def perturbed_gaps(X: Array, y: Array, lambda1: float, epsilon: float, delta: float) -> dict[str, Array]:
    """Of output and of objective perturbation with Gaussian noise, 30 draws each; a record is replaced.

    Output: sensitivity 2/(n lambda1), exact noise. Objective: Kifer, Smith, Thakurta 2012, Theorem 2.
    """
    n, d = X.shape
    rng = np.random.default_rng(1)

    def minimiser(b: Array, more: float = 0.0) -> Array:
        def value(v: Array) -> tuple[float, Array]:
            ridge = lambda1 + more
            return float(f(v, X, y) + ridge / 2 * v @ v + b @ v), slope(v, X, y) + ridge * v + b

        return np.asarray(minimize(value, np.zeros(d), jac=True, options={"gtol": 1e-10}).x)

    best = minimiser(np.zeros(d))

    def gap(v: Array) -> float:
        return float(f(v, X, y) + lambda1 / 2 * v @ v - f(best, X, y) - lambda1 / 2 * best @ best)

    spread = exact_gaussian(epsilon, delta) * 2 / (n * lambda1)
    size = np.sqrt(8 * np.log(2 / delta) + 4 * epsilon) / epsilon
    more = max(0.0, 2 * 0.25 / epsilon / n - lambda1)
    return {
        "output": np.array([gap(best + spread * rng.standard_normal(d)) for _ in range(30)]),
        "objective": np.array([gap(minimiser(size / n * rng.standard_normal(d), more)) for _ in range(30)]),
    }


@pytest.mark.parametrize(("epsilon", "iterations", "beats_objective"), [(0.2, 20, True), (3.0, 50, False)])
def test_gradient_against_output_and_objective_perturbation(
    tmp_path: Path, epsilon: float, iterations: int, beats_objective: bool
) -> None:
    """[C] I says that gradient perturbation is the most accurate of the three. One problem, 2,000 records, ridge 0.001, equal
    epsilon and delta: better than output perturbation both times; better than objective perturbation at 0.2, worse at 3. By
    more than three standard errors each. The iterations are those that did best on other records of the same kind."""
    X, y = some_records(2000, 10)
    gaps = perturbed_gaps(X, y, 0.001, epsilon, 1e-5)
    raw = configuration(
        tmp_path,
        (X, y),
        "dp-admm",
        iterations=iterations,
        runs=30,
        problem={"lambda1": 0.001, "regulariser": "l2"},
        algorithm={"rho": "auto"},
        privacy={"target": epsilon, "delta": 1e-5},
        record={"trajectory": False, "every": iterations},
    )
    gaps["gradient"] = np.array(result_of(raw)["objective_gap"][:, -1])

    def better(one: str, other: str) -> bool:
        error = np.sqrt((gaps[one].var(ddof=1) + gaps[other].var(ddof=1)) / 30)
        return bool(gaps[other].mean() - gaps[one].mean() > 3 * error)

    assert better("gradient", "output")
    assert better("gradient", "objective") == beats_objective
    assert better("objective", "gradient") == (not beats_objective)
