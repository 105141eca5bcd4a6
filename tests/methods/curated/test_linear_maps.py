"""The linear maps of the curated family: estimated from records, read from files, large and deficient ones."""

from pathlib import Path

import numpy as np
import pytest
from curated_cases import curated_config
from numpy.random import Generator
from support import curated_plan, dense, result_of

from dpadmm_mpi import InputError
from dpadmm_mpi.methods.curated import linear_maps
from dpadmm_mpi.methods.curated.theory import start_constant
from dpadmm_mpi.types import Array


def test_graphical_lasso_meets_its_optimality_conditions(rng: Generator) -> None:
    """Features in two groups and a constant one: edges inside the groups only, with the signs of their partial correlations."""
    Z = rng.standard_normal((4000, 2))
    signs = np.array([1.0, 1.0, -1.0, 1.0, -1.0])
    groups = np.array([0, 0, 0, 1, 1])
    X = signs * Z[:, groups] + 0.7 * rng.standard_normal((4000, 5))
    S = np.corrcoef(X.T)
    with_constant = np.full((6, 6), np.nan)
    with_constant[:5, :5] = S
    edges, found = linear_maps.graphical_lasso_edges(with_constant, 0.3)
    assert edges.tolist() == [[0, 1], [0, 2], [1, 2], [3, 4]]
    np.testing.assert_array_equal(found, [signs[i] * signs[j] for i, j in edges])
    A = linear_maps.stacked(edges, found, 6).toarray()
    np.testing.assert_array_equal(A[4:], np.eye(6))
    np.testing.assert_array_equal(A[:4], [[1, -1, 0, 0, 0, 0], [1, 0, 1, 0, 0, 0], [0, 1, 1, 0, 0, 0], [0, 0, 0, 1, 1, 0]])
    assert len(linear_maps.graphical_lasso_edges(with_constant, 0.99)[0]) == 0


@pytest.mark.parametrize("sparse", [False, True])
def test_correlation_is_streamed_over_the_shards(tmp_path: Path, rng: Generator, sparse: bool) -> None:
    X = rng.random((90, 4)) * (rng.random((90, 4)) < 0.6)
    X[:, 2] = 0.3  # constant, but not zero
    X /= 2 * np.linalg.norm(X, axis=1, keepdims=True) if sparse else 2.5
    X[:, 2] = 0.3
    y = np.where(rng.random(90) < 0.5, 1.0, -1.0)
    if sparse:
        entries = [" ".join(f"{j + 1}:{float(v)!r}" for j, v in enumerate(x) if v) for x in X]
        lines = [f"{label:+g} {row}" for label, row in zip(y, entries, strict=True)]
        (tmp_path / "r.svm").write_text("\n".join(lines))
        data = {"source": "libsvm", "path": str(tmp_path / "r.svm"), "features": 4, "train": 1.0}
    else:
        np.savez(tmp_path / "r.npz", X=X, y=y)
        data = {"source": "npz", "path": str(tmp_path / "r.npz"), "train": 1.0}
    config = {"data": data, "algorithm": {"method": "gl-admm"}, "problem": {"map": "graphical-lasso", "sparsity": 0.01}}
    plan, dataset = curated_plan(config)
    found = linear_maps.correlation(dataset)
    assert np.isnan(found[2]).all()
    varying = [0, 1, 3]
    np.testing.assert_allclose(found[np.ix_(varying, varying)], np.corrcoef(X[:, varying].T), atol=1e-12)
    assert not dense(plan.settings.A.A)[:-4, 2].any()


def test_the_pattern_is_kept_and_belongs_to_its_records(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = curated_config(problem={"map": "graphical-lasso", "sparsity": 0.07}, seed=77)
    first = curated_plan(config)[0].settings.A.A
    monkeypatch.setattr(linear_maps, "graphical_lasso_edges", lambda S, sparsity: pytest.fail("computed again"))
    np.testing.assert_array_equal(curated_plan(config)[0].settings.A.A, first)
    for path in (cache / "maps").iterdir():  # damaged, all of them
        path.write_bytes(path.read_bytes()[:-50])
    with pytest.raises(pytest.fail.Exception, match="computed again"):
        curated_plan(config)
    for change in ({"seed": 78}, {"problem": {**config["problem"], "sparsity": 0.08}}):
        with pytest.raises(pytest.fail.Exception, match="computed again"):
            curated_plan(config | change)


@pytest.mark.filterwarnings("error")
def test_maps_from_files(tmp_path: Path) -> None:
    from scipy import sparse

    A = np.array([[1.0, -1, 0, 0, 0], [0, 0, 2, 0, 0]])
    np.savetxt(tmp_path / "a.csv", A, delimiter=",")
    np.savez(tmp_path / "a.npz", A=A)
    sparse.save_npz(tmp_path / "s.npz", sparse.csr_matrix(A))
    for name in ("a.csv", "a.npz", "s.npz"):
        plan, _ = curated_plan(curated_config(problem={"map": "file", "map_path": str(tmp_path / name)}))
        np.testing.assert_array_equal(plan.settings.A.A, A)
        assert plan.settings.A.norm == pytest.approx(2.0)
    np.save(tmp_path / "nan.npy", A * np.nan)
    np.save(tmp_path / "wide.npy", np.ones((2, 6)))
    np.save(tmp_path / "complex.npy", A * 1j)
    np.save(tmp_path / "zeros.npy", A * 0)
    np.save(tmp_path / "rowless.npy", A[:0])
    np.savez(tmp_path / "other.npz", B=A)
    for name in ("a", "s"):
        (tmp_path / f"cut-{name}.npz").write_bytes((tmp_path / f"{name}.npz").read_bytes()[:-60])
    (tmp_path / "swapped.npz").write_bytes((tmp_path / "nan.npy").read_bytes())
    (tmp_path / "text.csv").write_text("one,two\n")
    (tmp_path / "ragged.csv").write_text("1,2,3,4,5\n1,2\n")
    (tmp_path / "empty.csv").write_text("")
    for name, words in (
        ("missing.npy", "No such file"),
        ("nan.npy", "not a finite number"),
        ("wide.npy", r"shape \(2, 6\), but the records have 5"),
        ("complex.npy", "complex numbers; A is a real matrix"),
        ("zeros.npy", "has no entry but zeros"),
        ("rowless.npy", "has no rows"),
        ("other.npz", 'cannot be read as a matrix: an .npz file must be whole and hold an array "A"'),
        ("cut-a.npz", "an .npz file must be whole"),
        ("cut-s.npz", "an .npz file must be whole"),
        ("swapped.npz", "an .npz file must be whole"),
        ("text.csv", "cannot be read as a matrix: every line must hold the same number of numbers"),
        ("ragged.csv", "every line must hold the same number of numbers"),
        ("empty.csv", "has no rows"),
    ):
        with pytest.raises(InputError, match=words):
            curated_plan(curated_config(problem={"map": "file", "map_path": str(tmp_path / name)}))


def test_rank_and_singular_values_of_a_deficient_map(rng: Generator) -> None:
    """Rank 3 by construction: the squares' round-off is no singular value."""
    A: Array = rng.standard_normal((8, 3)) @ rng.standard_normal((3, 6))
    found, exact = linear_maps.LinearMap(A).singular_values, np.linalg.svd(A, compute_uv=False)
    assert found is not None
    np.testing.assert_allclose(found[:3], exact[:3], rtol=1e-9)
    assert found[3:].tolist() == [0.0] * 3
    c_1 = start_constant(0.4, 9.0, 0.7, 0.25, found)
    G = 9.0 * np.eye(6) - 0.4 * 0.7 * A.T @ A
    parts = np.linalg.norm(G, 2) / 0.8 + 0.35 * exact[0] ** 2 + 0.25 / (1.4 * exact[2] ** 2)
    assert c_1 == pytest.approx(parts, rel=1e-9)


def test_large_maps_are_sparse_and_do_the_same(rng: Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    edges, signs = np.array([[0, 3], [1, 2]]), np.array([1.0, -1.0])
    A = linear_maps.stacked(edges, signs, 5)
    dense, sparse = linear_maps.LinearMap(A.toarray()), linear_maps.LinearMap(A)
    x, v, g, weights = rng.standard_normal(5), rng.standard_normal(7), rng.standard_normal(5), rng.random(7)
    np.testing.assert_allclose(sparse(x), dense(x))
    np.testing.assert_allclose(sparse.transposed(v), dense.transposed(v))
    np.testing.assert_allclose(sparse.gram(weights), A.toarray().T @ np.diag(weights) @ A.toarray())
    for map in (dense, sparse):
        np.testing.assert_allclose(map.transposed_pseudo_inverse(g), np.linalg.pinv(A.toarray().T) @ g, atol=1e-10)
    exact = np.linalg.norm(A.toarray(), 2)
    assert dense.norm == pytest.approx(exact)
    monkeypatch.setattr(linear_maps, "LARGEST", 1)
    assert exact <= linear_maps.LinearMap(A).norm < 2 * exact
    monkeypatch.setattr(linear_maps, "DENSE_ENTRIES", 10)
    assert not isinstance(curated_plan(curated_config())[0].settings.A.A, np.ndarray)
    assert np.isfinite(result_of(curated_config("dp-acc-admm", 5, algorithm={"u0": "as-printed"}))["loss"]).all()
