"""Records from files and by address; splits; what is refused, each with its sentence."""

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.random import Generator
from scipy import sparse
from support import (
    COMPRESS,
    Raw,
    csv_text,
    dataset_of,
    dense,
    libsvm_text,
    records_for_testing,
    result_of,
    rows_of,
    shard_of,
    write_records,
)

from dpadmm_mpi.data import dataset as dataset_module
from dpadmm_mpi.data.shard import row_norms
from dpadmm_mpi.errors import InputError
from dpadmm_mpi.methods import Observation, metrics
from dpadmm_mpi.types import Array


@pytest.mark.parametrize("suffix", COMPRESS)
@pytest.mark.parametrize("source", ["csv", "libsvm"])
def test_text_files_plain_and_compressed(tmp_path: Path, records: tuple[Array, Array], source: str, suffix: str) -> None:
    X, y = records
    found = shard_of(dataset_of(source=source, path=str(write_records(tmp_path, source, X, y, suffix)), train=1.0, nodes=1), 0)
    assert np.array_equal(dense(found.X), X)
    assert np.array_equal(found.y, y)


def test_npz_dense_and_sparse_parts(tmp_path: Path, records: tuple[Array, Array]) -> None:
    X, y = records
    csr = sparse.csr_matrix(X)
    parts = {"data": csr.data, "indices": csr.indices, "indptr": csr.indptr, "shape": csr.shape}
    np.savez(tmp_path / "a.npz", X=X, y=y)
    np.savez(tmp_path / "b.npz", y=y, **parts)
    np.savez(tmp_path / "c.npz", y=y, **{f"X_{key}": value for key, value in parts.items()})
    shards = [shard_of(dataset_of(source="npz", path=str(tmp_path / f"{n}.npz"), train=1.0, nodes=1), 0) for n in "abc"]
    for shard in shards:
        assert np.array_equal(dense(shard.X), X)
        assert np.array_equal(shard.y, y)
    assert sparse.issparse(shards[1].X)


def test_csv_without_a_header_has_its_label_last(tmp_path: Path, records: tuple[Array, Array]) -> None:
    X, y = records
    (tmp_path / "r.csv").write_text(csv_text(X, y, header=False))
    found = shard_of(dataset_of(source="csv", path=str(tmp_path / "r.csv"), train=1.0, nodes=1), 0)
    assert np.array_equal(dense(found.X), X)
    assert np.array_equal(found.y, y)


def test_libsvm_stays_sparse_unless_it_is_dense(tmp_path: Path, rng: Generator) -> None:
    y = np.array([1.0, -1.0] * 10)
    for share, expected in ((0.1, True), (0.9, False)):
        X = np.where(rng.random((20, 8)) < share, 0.1, 0.0)
        X[0, 7] = 0.1
        (tmp_path / "r").write_text(libsvm_text(X, y))
        assert (
            sparse.issparse(shard_of(dataset_of(source="libsvm", path=str(tmp_path / "r"), train=1.0, nodes=1), 0).X)
            == expected
        )


def test_sparse_and_dense_records_give_the_same_run(tmp_path: Path, records: tuple[Array, Array]) -> None:
    """The same records as npz and as LIBSVM: equal to round-off, all methods' products and Hessians included."""
    X, y = records
    common = {"problem": {"C": 2.0, "rho": 0.3}, "algorithm": {"method": "r-admm"}, "iterations": 5}
    privacy = {"perturbation": "objective", "alpha": 2.0}
    runs = []
    for source in ("npz", "libsvm"):
        data = {"source": source, "path": str(write_records(tmp_path, source, X, y))}
        runs.append(result_of({**common, "data": data, "privacy": privacy}))
    assert np.allclose(runs[0]["final/primal"], runs[1]["final/primal"], rtol=0, atol=1e-9)
    assert np.array_equal(runs[0]["data/node_of_record"], runs[1]["data/node_of_record"])


def test_given_test_file(tmp_path: Path, records: tuple[Array, Array]) -> None:
    X, y = records
    a, b = tmp_path / "a", tmp_path / "b"
    a.write_text(libsvm_text(X, y))
    b.write_text(libsvm_text(X[:7, :4], y[:7]))  # never uses the last feature
    found = dataset_of(source="libsvm", path=str(a), test_path=str(b))
    assert found.sizes.sum() == 40
    assert records_for_testing(found).features == 5
    assert np.array_equal(found.node_of_record()[40:], np.full(7, -1))


def errors(f: Array, test: dataset_module.TestSet | None) -> Array:
    """The test error of every row of f."""
    zero = np.zeros(len(f))
    seen = Observation(
        points=f[:, None], classifier=f, node_loss=zero[:, None], loss=zero, objective=zero, disagreement=zero, residual=None,
        test=test, optimum=None,
    )  # fmt: skip
    return metrics["test_error"]().value(seen)


@pytest.mark.parametrize("source", ["npz", "libsvm"])
def test_test_records_that_do_not_fit_are_read_in_blocks(
    tmp_path: Path, records: tuple[Array, Array], monkeypatch: pytest.MonkeyPatch, source: str
) -> None:
    """The error of every classifier is the same, from the memory and from the disk."""
    X, y = records
    place: Raw = {"source": source, "path": str(write_records(tmp_path, source, X, y)), "train": 17}
    f = np.random.default_rng(1).standard_normal((3, 5))
    found = dataset_of(**place)
    test = found.node_of_record() == -1
    expected = [np.mean(np.where(X @ v >= 0.0, 1.0, -1.0)[test] != y[test]) for v in f]
    monkeypatch.setattr(dataset_module, "TEST_BLOCK", 5)
    assert isinstance(found.test(), dataset_module.InMemory)
    assert np.array_equal(errors(f, found.test()), expected)
    monkeypatch.setattr(dataset_module, "TEST_IN_MEMORY", 100)
    on_disk = dataset_of(**place).test()
    assert isinstance(on_disk, dataset_module.OnDisk)
    assert np.array_equal(errors(f, on_disk), expected)


def test_preprocessing_steps(tmp_path: Path, rng: Generator) -> None:
    X = 10 * rng.standard_normal((30, 4))
    X[:, 2] = 0
    np.savez(tmp_path / "r.npz", X=X, y=np.where(np.arange(30) % 2, 1, -1))
    place: Raw = {"source": "npz", "path": str(tmp_path / "r.npz"), "train": 1.0}
    both = rows_of(dataset_of(nodes=1, **place, preprocess=["scale-columns", "scale-rows"]), 0)
    columns = X / np.where(np.abs(X).max(axis=0) > 0, np.abs(X).max(axis=0), 1)
    assert np.allclose(both, columns / np.maximum(np.linalg.norm(columns, axis=1), 1)[:, None])
    rows = rows_of(dataset_of(nodes=1, **place, preprocess=["scale-rows"]), 0)
    assert np.allclose(np.linalg.norm(rows, axis=1), 1)


def change(X: Array, index: Any, value: Any) -> Array:
    X = X.copy()
    X[index] = value
    return X


BAD: dict[str, tuple[Callable[[Array, Array], tuple[Array, Array]], str]] = {
    "norm": (
        lambda X, y: (change(X, 3, [1.0, 1, 0, 0, 0]), y),
        r"record 3 of .* has norm 1.4142136, .*preprocess = \[\"scale-rows\"\]",
    ),
    "nan": (
        lambda X, y: (change(X, (5, 1), np.nan), y),
        "record 5( has a feature that is not a finite number|; add .drop-missing)",
    ),
    "inf": (lambda X, y: (change(X, (2, 1), np.inf), y), "record 2 has a feature that is not a finite number"),
    "label": (lambda X, y: (X, change(y, 7, 2.0)), "but the labels are 3 classes: -1, 1, 2; use .softmax."),
    "labels 0 and 1": (lambda X, y: (X, (y + 1) / 2), "found the label 0; labels must be"),
}


@pytest.mark.parametrize("source", ["npz", "csv", "libsvm"])
@pytest.mark.parametrize("fault", BAD)
def test_bad_records_are_refused(tmp_path: Path, records: tuple[Array, Array], source: str, fault: str) -> None:
    spoil, sentence = BAD[fault]
    path = write_records(tmp_path, source, *spoil(*records))
    with pytest.raises(InputError, match=sentence):
        result_of({"data": {"source": source, "path": str(path)}})


def broken_gzip(text: str) -> bytes:
    return gzip.compress(text.encode(), mtime=0)[:-20]  # no clock: the workers of the tests must agree on their names


BROKEN = [
    ("libsvm", b"", "is empty"),
    ("libsvm", b"+1 1:0.5\n-1 2:\n", "record 1 is"),
    ("libsvm", b"+1 1:0.5 qid:3\n", "record 0 is"),
    ("libsvm", b"+1 0:0.5\n", "has a feature number 0"),
    ("libsvm", b"+1 1:0.5\n-1 1:abc\n", "not in LIBSVM format"),
    ("libsvm", b"+1 1:0.5\n-1 0.3 0.2\n", 'record 1 is "-1 0.3 0.2"'),
    ("libsvm", b"\x93\xff\x00", "is not text"),
    ("csv", b"", "is empty"),
    ("csv", b"label,a\n", "has a header but no records"),
    ("csv", b"lab,a\n1,2\n", 'has no column "label"; its columns are lab, a'),
    ("csv", b"label,label,a\n1,1,2\n", 'more than one column "label"'),
    ("csv", b"label,a,b\n1,0.1,0.2\n1,0.1\n", "line 3 has 2 columns, but 3 are expected"),
    ("csv", b"label,a\n1,red\n-1,blue\n", 'column "a" holds text, for example "red"; add "one-hot"'),
    ("csv", broken_gzip("label,a\n" + "1,0.5\n" * 500), "damaged or cut short"),
    ("npz", b"PK\x03\x04 cut", "not a readable npz"),
    ("npz", b"", "not a readable npz"),
    ("npz", b"label,a\n1,2\n", "is data.source right?"),
    ("libsvm", b"+1 1:0.5\n-1 99999999999999:0.5\n", "which is too large"),
    ("libsvm", b"+1 1:0.5\n+1 1:0.4\n", "all labels are 1; two different ones are needed"),
]


@pytest.mark.parametrize(("source", "content", "sentence"), BROKEN)
def test_broken_files_are_refused(tmp_path: Path, source: str, content: bytes, sentence: str) -> None:
    path = tmp_path / "r"
    path.write_bytes(content)
    with pytest.raises(InputError, match=sentence):
        dataset_of(source=source, path=str(path))


def test_other_refusals(tmp_path: Path, records: tuple[Array, Array]) -> None:
    X, y = records
    np.savez(tmp_path / "a.npz", X=X, y=y)
    np.savez(tmp_path / "narrow.npz", X=X[:, :3], y=y)
    np.savez(tmp_path / "short.npz", X=X, y=y[:-1])
    np.savez(tmp_path / "noy.npz", X=X)
    np.savez(tmp_path / "nox.npz", y=y)
    np.savez(tmp_path / "objects.npz", X=np.array([["a", "b"]]), y=np.array([1.0]))
    (tmp_path / "w").write_text(libsvm_text(X, y))
    a = str(tmp_path / "a.npz")
    refused: list[tuple[Raw, str]] = [
        ({"source": "npz", "path": str(tmp_path / "missing.npz")}, "cannot be read: no such file"),
        ({"source": "npz", "path": a, "test_path": str(tmp_path / "narrow.npz")}, "has 3 features, but .* has 5"),
        ({"source": "npz", "path": str(tmp_path / "short.npz")}, "X needs a row per label"),
        ({"source": "npz", "path": str(tmp_path / "noy.npz")}, "has no array y; found X"),
        ({"source": "npz", "path": str(tmp_path / "nox.npz")}, "neither X nor the CSR parts"),
        ({"source": "npz", "path": str(tmp_path / "objects.npz")}, "something other than numbers"),
        ({"source": "libsvm", "path": str(tmp_path / "w"), "features": 4}, "has feature 5, but only 4 are expected"),
        ({"source": "npz", "path": a, "train": 41}, "data.train: found 41, but there are only 40 records"),
        ({"source": "npz", "path": a, "sizes": [20, 20, 20]}, "add up to 60, but there are only 40"),
        ({"source": "npz", "path": a, "sizes": [20, 10]}, "found 2 sizes; one per node is needed, 3"),
        ({"source": "npz", "path": a, "train": 2}, "2 training records leave some of the 3 nodes without any"),
    ]
    for data, sentence in refused:
        with pytest.raises(InputError, match=sentence):
            dataset_of(**data)


def test_a_given_test_file_is_checked_and_scaled_too(tmp_path: Path, records: tuple[Array, Array]) -> None:
    X, y = records
    np.savez(tmp_path / "a.npz", X=X, y=y)
    np.savez(tmp_path / "long.npz", X=3 * X, y=y)
    place: Raw = {"source": "npz", "path": str(tmp_path / "a.npz"), "test_path": str(tmp_path / "long.npz")}
    with pytest.raises(InputError, match="has norm"):
        dataset_of(**place)
    assert row_norms(records_for_testing(dataset_of(**place, preprocess=["scale-rows"])).X).max() <= 1 + 1e-12
