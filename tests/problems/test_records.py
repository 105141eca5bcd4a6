"""Every form in which records are stored multiplies as the dense matrix does."""

import numpy as np
import pytest
from numpy.random import Generator
from scipy import sparse

from dpadmm_mpi.problems import strategies
from dpadmm_mpi.problems.losses import HuberRegression
from dpadmm_mpi.problems.objective import NodeProblem
from dpadmm_mpi.problems.records import SKINNY, Records, as_records, blocks, without_zeros
from dpadmm_mpi.types import Array

B, d = 3000, 60


@pytest.fixture
def rows(rng: Generator) -> Array:
    """A few columns that nearly all records have, one that none has, and others that few have; a record of zeros."""
    X = np.where(rng.random((B, d)) < 0.04, rng.standard_normal((B, d)), 0.0)
    X[:, 3:9] = np.where(rng.random((B, 6)) < 0.8, rng.standard_normal((B, 6)), 0.0)
    X[:, 20] = 0.0
    X[77] = 0.0
    return X


def stored(rows: Array, form: str) -> tuple[Records, Array]:
    """The records in a form, and the dense rows in their order."""
    if form == "dense":
        return as_records(rows), rows
    if form == "csr":
        return as_records(sparse.csr_matrix(rows)), rows
    found = without_zeros(rows if form == "without zeros" else sparse.csr_matrix(rows))
    assert found is not None
    return found.records, rows[found.order]


FORMS = ("dense", "csr", "without zeros", "csr without zeros")


@pytest.mark.parametrize("vectors", [1, 3, 4, 11])
@pytest.mark.parametrize("form", FORMS)
def test_products_are_those_of_the_matrix(rng: Generator, rows: Array, form: str, vectors: int) -> None:
    records, X = stored(rows, form)
    f, weights = rng.standard_normal((vectors, d)), rng.standard_normal((vectors, B))
    assert records.shape == (B, d)
    np.testing.assert_allclose(records.products(f), f @ X.T, atol=1e-12)
    np.testing.assert_allclose(records.product(f[0]), X @ f[0], atol=1e-12)
    np.testing.assert_allclose(records.weighted_sums(weights), weights @ X, atol=1e-11)
    np.testing.assert_allclose(records.weighted_sum(weights[0]), weights[0] @ X, atol=1e-11)
    np.testing.assert_allclose(records.products(np.asfortranarray(f)), f @ X.T, atol=1e-12)
    np.testing.assert_allclose(records.weighted_sums(np.asfortranarray(weights)), weights @ X, atol=1e-11)


@pytest.mark.parametrize("form", FORMS)
def test_weighted_gram_matrices(rng: Generator, rows: Array, form: str) -> None:
    records, X = stored(rows, form)
    weights = rng.random(B)
    gram = X.T @ (weights[:, None] * X)
    np.testing.assert_allclose(records.gram(weights), gram, atol=1e-11)
    np.testing.assert_allclose(records.weighted_squares(weights), np.diag(gram), atol=1e-11)


@pytest.mark.parametrize("form", FORMS)
def test_the_matrix_can_be_had_again(rows: Array, form: str) -> None:
    records, X = stored(rows, form)
    matrix = records.matrix()
    assert np.array_equal(matrix if isinstance(matrix, np.ndarray) else matrix.toarray(), X)


@pytest.mark.parametrize("form", FORMS)
def test_blocks_are_parts_of_the_matrix(rng: Generator, rows: Array, form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    records, X = stored(rows, form)
    assert len(blocks(records)) == 1
    monkeypatch.setattr(strategies, "IN_CACHE", 5000)
    monkeypatch.setattr(strategies, "BLOCK", 2000)
    f, weights = rng.standard_normal((5, d)), rng.standard_normal((5, B))
    divided = blocks(records)
    assert len(divided) > 1
    np.testing.assert_allclose(np.concatenate([block.products(f) for _, block in divided], axis=1), f @ X.T, atol=1e-12)
    sums = sum(block.weighted_sums(weights[:, part]) for part, block in divided)
    np.testing.assert_allclose(sums, weights @ X, atol=1e-11)


def test_narrow_products_are_divided(rng: Generator) -> None:
    """BLAS gets no more than SKINNY multiplications at a time, and the sum is that of all records."""
    X = np.where(rng.random((9000, 40)) < 0.9, rng.standard_normal((9000, 40)), 0.0)
    f, weights = rng.standard_normal((9, 40)), rng.standard_normal((9, 9000))
    records = as_records(sparse.csr_matrix(X))
    assert X.size * len(f) > 3 * SKINNY
    np.testing.assert_allclose(records.products(f), f @ X.T, atol=1e-11)
    np.testing.assert_allclose(records.weighted_sums(weights), weights @ X, atol=1e-10)


def test_only_large_shards_with_many_zeros_are_stored_without_them(rng: Generator, rows: Array) -> None:
    assert without_zeros(rng.standard_normal((B, d))) is None
    assert without_zeros(rows) is not None
    assert without_zeros(rows[: strategies.SPARSE_SIZE // d - 1]) is None


def test_entries_that_stand_twice_in_a_csr_matrix_are_added() -> None:
    twice = sparse.csr_matrix((np.ones(6), [0, 0, 1, 0, 2, 2], [0, 3, 4, 6]), shape=(3, 3))
    f = np.array([[1.0, 10.0, 100.0]])
    np.testing.assert_allclose(as_records(twice).products(f), f @ twice.toarray().T)


def test_targets_go_with_their_records(rng: Generator, rows: Array) -> None:
    """Records change their order when their zeros are left out: what a problem computes does not."""
    targets = rng.standard_normal(B)
    given, changed = (NodeProblem(rows.copy(), HuberRegression(), 5.0, 0.1, targets=targets.copy()) for _ in range(2))
    changed.leave_out_zeros()
    assert changed.rows.numbers < given.rows.numbers
    f = rng.standard_normal((2, d))
    assert changed.targets is not None
    assert not np.array_equal(changed.targets, targets)  # otherwise this proves nothing
    np.testing.assert_allclose(changed.at(f).sums, given.at(f).sums, atol=1e-10)
    np.testing.assert_allclose(changed.mean_losses(f), given.mean_losses(f), rtol=1e-12)
    z = changed.margins(f[:1])[0]
    np.testing.assert_allclose(changed.hessian(z, 0.1), given.hessian(given.margins(f[:1])[0], 0.1), atol=1e-10)
