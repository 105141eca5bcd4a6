"""Losses against finite differences, the solver against other solvers, dense and sparse, small and large d."""

import numpy as np
import pytest
from numpy.random import Generator
from scipy import optimize, sparse

from dpadmm_mpi.data.shard import Shard
from dpadmm_mpi.problems import objective as problem_module
from dpadmm_mpi.problems import strategies
from dpadmm_mpi.problems.losses import HuberHinge, Logistic, Loss, losses
from dpadmm_mpi.problems.newton import TOLERANCE
from dpadmm_mpi.problems.objective import NodeProblem
from dpadmm_mpi.types import Array, Matrix

LOGISTIC = Logistic()
LOSSES: list[Loss] = [LOGISTIC, HuberHinge(width=0.5), HuberHinge(width=0.05)]


def signed(X: Matrix, y: Array) -> Matrix:
    return Shard(X.copy(), y).into_signed()


def records(rng: Generator, B: int, d: int, density: float = 1.0) -> tuple[Array, Array]:
    X = rng.standard_normal((B, d)) * (rng.random((B, d)) < density)
    X /= np.maximum(np.linalg.norm(X, axis=1, keepdims=True), 1.0)
    return X, np.where(rng.random(B) < 0.4, 1.0, -1.0)


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: f"{losses.name_of(type(loss))} {loss.curvature_bound}")
@pytest.mark.parametrize("storage", ["dense", "sparse"])
def test_argmin_agrees_with_a_quasi_newton_solver(rng: Generator, loss: Loss, storage: str) -> None:
    for C, quadratic in ((1.0, 0.0), (40.0, 3.0), (60.0, 0.01)):
        X, y = records(rng, 60, 6, 0.5)
        problem = NodeProblem(signed(X if storage == "dense" else sparse.csr_matrix(X), y), loss, C, 0.1)
        linear = rng.standard_normal(6)
        point = problem.argmin(linear, quadratic, start=10 * rng.standard_normal(6))
        assert point.residual <= TOLERANCE

        def objective(
            f: Array, X: Array = X, y: Array = y, C: float = C, linear: Array = linear, quadratic: float = quadratic
        ) -> tuple[float, Array]:
            value = float(C * np.mean(loss.value(y * (X @ f))) + (0.1 + quadratic) / 2 * f @ f + linear @ f)
            gradient = C / len(y) * X.T @ (y * loss.first(y * (X @ f))) + (0.1 + quadratic) * f + linear
            return value, gradient

        other = optimize.minimize(objective, np.zeros(6), jac=True, method="BFGS", options={"gtol": 1e-9})
        assert np.allclose(point.f, other.x, atol=1e-6)
        # The residual that is recorded is the gradient's, relative to its terms.
        assert np.linalg.norm(objective(point.f)[1]) <= 1e-9 * (C + np.linalg.norm(linear) + np.linalg.norm(point.f))


def test_conjugate_gradients_and_factorisation_find_the_same_argmin(rng: Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = records(rng, 80, 12)
    problem = NodeProblem(signed(X, y), LOGISTIC, 30.0, 0.05)
    linear = rng.standard_normal(12)
    by_factorisation = problem.argmin(linear, 0.3, np.zeros(12))
    monkeypatch.setattr(problem_module, "DENSE_HESSIAN", 0)
    by_conjugate_gradients = problem.argmin(linear, 0.3, np.zeros(12))
    assert by_conjugate_gradients.residual <= TOLERANCE
    assert np.allclose(by_factorisation.f, by_conjugate_gradients.f, atol=1e-9)


def test_large_sparse_problem_without_a_hessian(rng: Generator) -> None:
    """d = 100,000: a d x d Hessian would take 80 GB."""
    B, d, k = 400, 100_000, 20
    columns = rng.integers(0, d, (B, k))
    X = sparse.csr_matrix((np.full(B * k, 1 / np.sqrt(k)), columns.ravel(), np.arange(0, B * k + 1, k)), shape=(B, d))
    X.sum_duplicates()
    X = X.multiply(1 / np.maximum(np.sqrt(np.asarray(X.multiply(X).sum(axis=1))), 1.0)).tocsr()
    y = np.where(rng.random(B) < 0.5, 1.0, -1.0)
    problem = NodeProblem(signed(X, y), LOGISTIC, 200.0, 0.1)
    point = problem.argmin(0.01 * rng.standard_normal(d), 1.0, np.zeros(d))
    assert point.residual <= TOLERANCE


def test_gradient_and_hessian_belong_to_the_value(rng: Generator) -> None:
    X, y = records(rng, 30, 4)
    for storage in (X, sparse.csr_matrix(X)):
        problem = NodeProblem(signed(storage, y), LOGISTIC, 7.0, 0.2)
        f, v = rng.standard_normal(4), rng.standard_normal(4)
        margins = problem.signed @ f
        gradient = problem.data_gradient(margins) + 0.2 * f
        assert np.allclose(optimize.approx_fprime(f, problem.value, 1e-7), gradient, atol=1e-5)
        H = problem.hessian(margins, 0.2)
        assert np.allclose(H @ v, problem.hessian_product(margins, v, 0.2))
        assert np.allclose(np.diag(H), problem.hessian_diagonal(margins, 0.2))
        numeric = np.array([(problem.data_gradient(problem.signed @ (f + 1e-6 * e)) - problem.data_gradient(margins)) / 1e-6
                            for e in np.eye(4)])  # fmt: skip
        assert np.allclose(H - 0.2 * np.eye(4), numeric, atol=1e-4)


@pytest.mark.parametrize("vectors", [1, 2, 5])
@pytest.mark.parametrize("density", [1.0, 0.1])
@pytest.mark.parametrize("d", [6, 80])
def test_a_shard_that_outgrows_the_cache_is_worked_through_in_blocks(
    rng: Generator, monkeypatch: pytest.MonkeyPatch, d: int, density: float, vectors: int
) -> None:
    """Products, sums and Newton's parts are those of the whole matrix, whatever its storage and however many vectors."""
    monkeypatch.setattr(strategies, "IN_CACHE", 500)
    monkeypatch.setattr(strategies, "BLOCK", 170)
    X, y = records(rng, 203, d, density)
    whole = y[:, None] * X
    problem = NodeProblem(signed(X if density == 1.0 else sparse.csr_matrix(X), y), LOGISTIC, 7.0, 0.2)
    f = rng.standard_normal((vectors, d))
    weights = rng.standard_normal((vectors, 203))
    assert np.allclose(problem.margins(f), f @ whole.T, atol=1e-13)
    assert np.allclose(problem.weighted_sums(weights), weights @ whole, atol=1e-12)
    margins, sums = problem.at(f)
    assert np.allclose(margins, f @ whole.T, atol=1e-12)
    slopes = -1.0 / (1.0 + np.exp(f @ whole.T))
    assert np.allclose(sums, slopes @ whole, atol=1e-12)
    assert np.allclose(problem.data_gradient(whole @ f[0]), 7.0 / 203 * slopes[0] @ whole, atol=1e-12)


def test_balanced_records_with_nothing_to_pull(rng: Generator) -> None:
    """The gradient's terms all vanish at the solution: round-off must not count as a residual."""
    X, _ = records(rng, 25, 3)
    problem = NodeProblem(signed(np.vstack([X, X]), np.repeat([1.0, -1.0], 25)), LOGISTIC, 10.0, 0.1)
    point = problem.argmin(np.zeros(3), 0.5, start=np.ones(3))
    assert point.residual <= TOLERANCE
    assert np.linalg.norm(point.f) < 1e-9
