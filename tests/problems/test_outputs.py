"""Losses of a residual and of several scores: derivatives, exact solves in every way, and agreement with other programs."""

from typing import Any

import numpy as np
import pytest
from scipy import optimize, sparse
from scipy.special import logsumexp

from dpadmm_mpi.problems import (
    HuberRegression,
    LeastSquares,
    LocalProblems,
    Logistic,
    Loss,
    NodeProblem,
    Softmax,
    node_problem,
    quasi_newton,
)
from dpadmm_mpi.problems.newton import TOLERANCE
from dpadmm_mpi.types import Array

K, RIDGE, C = 3, 0.05, 8.0
# Records and features for each way of solving (problems/strategies.py); with three classes small nodes are not in batches.
SHAPES = {"small": (40, 5), "kept": (500, 30), "damped": (40, 70), "conjugate gradients": (50, 700)}


def records(rng: np.random.Generator, B: int, d: int) -> Array:
    X = rng.standard_normal((B, d)) * (rng.random((B, d)) < 0.5)
    return X / np.maximum(np.linalg.norm(X, axis=1, keepdims=True), 1e-9)


def written_out(loss: Loss, X: Array, y: Array, f: Array) -> float:
    """The mean loss, without the package."""
    if isinstance(loss, Softmax):
        scores = X @ f.reshape(K, -1).T
        return float(np.mean(logsumexp(scores, axis=1) - scores[np.arange(len(y)), y.astype(int)]))
    z = X @ f - y
    if isinstance(loss, LeastSquares):
        return float(np.mean(z**2) / 2)
    w = loss.width  # type: ignore[attr-defined]
    return float(np.mean(np.where(np.abs(z) <= w, z**2 / (2 * w), np.abs(z) - w / 2)))


def targets(loss: Loss, rng: np.random.Generator, B: int) -> Array:
    return rng.integers(K, size=B).astype(float) if isinstance(loss, Softmax) else rng.uniform(-1.0, 1.0, B)


LOSSES = [HuberRegression(width=0.3), LeastSquares(), Softmax(classes=K)]


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: type(loss).__name__)
@pytest.mark.parametrize("storage", ["dense", "sparse"])
def test_derivatives_are_those_of_the_value(loss: Loss, storage: str) -> None:
    """Gradient, Hessian, its products and its diagonal against differences of the written-out loss."""
    rng = np.random.default_rng(1)
    X, y = records(rng, 30, 4), targets(loss, rng, 30)
    problem = node_problem(X if storage == "dense" else sparse.csr_matrix(X), loss, C, RIDGE, targets=y)
    f, v = rng.standard_normal((2, problem.features))
    margins = problem.margins(f[None])[0]
    assert problem.value(f) == pytest.approx(C * written_out(loss, X, y, f) + RIDGE / 2 * f @ f, rel=1e-12)

    def gradient(at: Array) -> Array:
        return problem.data_gradient(problem.margins(at[None])[0]) + RIDGE * at

    numeric = optimize.approx_fprime(f, lambda at: C * written_out(loss, X, y, at) + RIDGE / 2 * at @ at, 1e-7)
    np.testing.assert_allclose(gradient(f), numeric, atol=1e-5)
    H = problem.hessian(margins, RIDGE)
    numeric = np.array([(gradient(f + 1e-6 * e) - gradient(f - 1e-6 * e)) / 2e-6 for e in np.eye(len(f))])
    np.testing.assert_allclose(H, numeric, atol=1e-6)
    np.testing.assert_allclose(problem.hessian_product(margins, v, RIDGE), H @ v, rtol=1e-10)
    np.testing.assert_allclose(problem.hessian_diagonal(margins, RIDGE), np.diag(H), rtol=1e-10)
    assert (np.diag(H) - RIDGE <= problem.curvature_bounds() * (1 + 1e-12)).all()


# Records, features, share of zeros, points: products of sparse records that are kept, of dense ones in blocks, one by one.
MANY_POINTS = {"sparse": (300, 30, 0.9, 4), "blocks": (6000, 10, 0.0, 12), "one by one": (6000, 12, 0.0, 2)}


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: type(loss).__name__)
@pytest.mark.parametrize("way", MANY_POINTS)
def test_hessians_at_many_points(loss: Loss, way: str) -> None:
    """Written out, with records of different lengths and one that is empty."""
    B, d, zeros, points = MANY_POINTS[way]
    rng = np.random.default_rng(4)
    X, y = rng.standard_normal((B, d)) * (rng.random((B, d)) >= zeros), targets(loss, rng, B)
    X[7] = 0.0
    problem = node_problem(X, loss, C, RIDGE, targets=y)
    f = 0.3 * rng.standard_normal((points, problem.features))
    for H, at in zip(problem.hessians(problem.margins(f)), f, strict=True):
        if isinstance(loss, Softmax):
            scores = X @ at.reshape(K, -1).T
            p = np.exp(scores - logsumexp(scores, axis=1, keepdims=True))
            bends = p[:, :, None] * (np.eye(K) - p[:, None, :])
        else:
            inside = np.abs(X @ at - y) < (np.inf if isinstance(loss, LeastSquares) else loss.width)  # type: ignore[attr-defined]
            bends = (inside / (1.0 if isinstance(loss, LeastSquares) else loss.width))[:, None, None]  # type: ignore[attr-defined]
        expected = C / B * np.einsum("nab,ni,nj->aibj", bends, X, X, optimize=True).reshape(H.shape)
        np.testing.assert_allclose(H, expected, atol=1e-13 * np.abs(expected).max())


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: type(loss).__name__)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("runs", [1, 5])
def test_exact_solves(loss: Loss, shape: str, runs: int) -> None:
    """Whichever way a node is solved, the gradient of the written-out objective vanishes, to the tolerance that is promised."""
    (B, d), nodes = SHAPES[shape], 2
    if shape == "conjugate gradients" and (runs > 1 or loss.outputs == 1):
        pytest.skip("runs are solved one by one, and a Hessian of so few features is formed")
    rng = np.random.default_rng(2)
    X, y = [records(rng, B, d) for _ in range(nodes)], [targets(loss, rng, B) for _ in range(nodes)]
    problems = LocalProblems(node_problem(x.copy(), loss, C, RIDGE, targets=t) for x, t in zip(X, y, strict=True))
    linear, start = 0.1 * rng.standard_normal((2, runs, nodes, problems[0].features))
    quadratic = np.array([0.3, 1.0])
    found, residuals = problems.argmins(linear, quadratic, start)
    assert residuals.max() <= TOLERANCE
    for r in range(runs):
        for i in range(nodes):
            f = found[r, i]
            slopes = _slopes(loss, X[i], y[i], f)
            data = C / B * (X[i].T @ slopes).T.ravel()
            terms = (data, (RIDGE + quadratic[i]) * f, linear[r, i])  # what a residual is relative to
            assert np.linalg.norm(sum(terms)) <= 1.01 * TOLERANCE * sum(np.linalg.norm(term) for term in terms)
            assert problems.mean_losses(found)[r, i] == pytest.approx(written_out(loss, X[i], y[i], f), rel=1e-10)


def _slopes(loss: Loss, X: Array, y: Array, f: Array) -> Array:
    """(records, outputs), written out."""
    if isinstance(loss, Softmax):
        scores = X @ f.reshape(K, -1).T
        return np.exp(scores - logsumexp(scores, axis=1, keepdims=True)) - np.eye(K)[y.astype(int)]
    z = (X @ f - y)[:, None]
    return z if isinstance(loss, LeastSquares) else np.clip(z / loss.width, -1.0, 1.0)  # type: ignore[attr-defined]


def test_a_solve_starts_from_how_much_the_losses_bend_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """Noise that drives the probabilities to 0 and 1 takes most of the curvature that the kept Hessian has."""
    rng = np.random.default_rng(6)
    X, y = records(rng, 900, 20), rng.integers(K, size=900).astype(float)
    noise = 400.0 * rng.standard_normal((2, K * 20))

    def evaluations() -> int:
        problem = node_problem(X, Softmax(classes=K), 200.0, RIDGE, targets=y)
        kept = quasi_newton.references([problem])
        start = quasi_newton.argmin([problem], kept, noise[:1], np.array([3.0]), np.zeros((1, K * 20))).f
        count, at = [0], quasi_newton.Objectives.at

        def counted(*arguments: Any) -> Any:
            count[0] += 1
            return at(*arguments)

        with monkeypatch.context() as patch:
            patch.setattr(quasi_newton.Objectives, "at", counted)
            found = quasi_newton.argmin([problem], kept, noise.sum(axis=0)[None], np.array([3.0]), start)
        assert found.residual[0] <= TOLERANCE
        return count[0]

    few = evaluations()
    monkeypatch.setattr(quasi_newton, "_BENDS", (1.0, 1.0))
    assert few < 0.8 * evaluations()


def test_large_shards_are_worked_on_in_blocks() -> None:
    """More records than stay in the cache: the same numbers as from all of them at once."""
    rng = np.random.default_rng(3)
    X = records(rng, 9000, 70)
    y = rng.integers(K, size=len(X)).astype(float)
    problem = node_problem(X, Softmax(classes=K), C, RIDGE, targets=y)
    assert not problem.stays_in_cache
    f = rng.standard_normal((2, problem.features))
    margins, sums = problem.at(f)
    for r in range(2):
        np.testing.assert_allclose(margins[r].reshape(K, -1), f[r].reshape(K, -1) @ X.T, rtol=1e-10, atol=1e-12)
        expected = (X.T @ _slopes(problem.loss, X, y, f[r])).T.ravel()
        np.testing.assert_allclose(sums[r], expected, rtol=1e-10, atol=1e-9)


def test_softmax_is_the_multinomial_regression_of_scikit_learn() -> None:
    """O_i(f) = (C/B) sum loss + (ridge/2) ||f||^2: scikit-learn's with its C = C / (B ridge)."""
    linear_model = pytest.importorskip("sklearn.linear_model")
    rng = np.random.default_rng(4)
    X = records(rng, 300, 6)
    y = np.argmax(X @ rng.standard_normal((6, K)) + 0.3 * rng.gumbel(size=(300, K)), axis=1)
    problem = LocalProblems([node_problem(X.copy(), Softmax(classes=K), C, RIDGE, targets=y.astype(float))])
    zero = np.zeros((1, 1, problem[0].features))
    found, _ = problem.argmins(zero, np.zeros(1), zero)
    model = linear_model.LogisticRegression(C=C / (300 * RIDGE), fit_intercept=False, tol=1e-12, max_iter=10_000)
    np.testing.assert_allclose(found[0, 0].reshape(K, -1), model.fit(X, y).coef_, atol=1e-6)


def test_two_classes_are_the_binary_problem() -> None:
    """By symmetry f_0 = -f_1 at the minimum, and f_1 - f_0 minimises the binary objective with half the ridge."""
    rng = np.random.default_rng(5)
    X = records(rng, 200, 6)
    y = np.where(rng.random(200) < 1 / (1 + np.exp(-6 * X[:, 0])), 1.0, -1.0)
    zero = np.zeros(12)
    two = node_problem(X, Softmax(classes=2), C, RIDGE, targets=np.maximum(y, 0.0)).argmin(zero, 0.0, zero).f.reshape(2, -1)
    binary = NodeProblem(y[:, None] * X, Logistic(), C, RIDGE / 2).argmin(np.zeros(6), 0.0, np.zeros(6)).f
    np.testing.assert_allclose(two[0], -two[1], atol=1e-9)
    np.testing.assert_allclose(two[1] - two[0], binary, rtol=1e-7)


@pytest.mark.parametrize("k", [2, 3, 7])
def test_constants_of_softmax(k: int) -> None:
    """Norm of the gradient, trace of the Hessian and the determinant at random and extreme scores; the bounds are reached."""
    loss, rng = Softmax(classes=k), np.random.default_rng(6)
    scores = np.concatenate([s * rng.standard_normal((2000, k)) for s in (0.01, 1.0, 30.0)])
    p = np.exp(scores - logsumexp(scores, axis=1, keepdims=True))
    worst = np.linalg.norm(p - np.eye(k)[p.argmin(axis=1)], axis=1)
    assert 0.99 * loss.slope_bound < worst.max() <= loss.slope_bound * (1 + 1e-12)
    hessians = p[:, :, None] * (np.eye(k) - p[:, None, :])
    traces = np.trace(hessians, axis1=1, axis2=2)
    assert 0.99 * loss.curvature_bound < traces.max() <= loss.curvature_bound * (1 + 1e-12)
    for weight in (0.1, 5.0):
        terms = np.linalg.slogdet(np.eye(k) + weight * hessians)[1]
        bound = float(loss.slope_and_curvature(np.zeros(1), np.array([weight]))[0])
        assert 0.99 * bound < terms.max() <= bound * (1 + 1e-12)
    assert loss.span == 2 * (k - 1)
