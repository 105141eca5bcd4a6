"""Stores of prepared records; a user's own tables and the steps that make numbers of them."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.random import Generator
from scipy import sparse
from support import Raw, dataset_of, dense, rows_of, shard_of

from dpadmm_mpi.data import prepare as prepare_module
from dpadmm_mpi.data.dataset import Dataset
from dpadmm_mpi.data.records import Records
from dpadmm_mpi.data.shard import row_norms
from dpadmm_mpi.data.steps import ScaleRows
from dpadmm_mpi.data.store import write_store
from dpadmm_mpi.errors import InputError, RunError


def test_a_store_gives_back_every_row(tmp_path: Path, rng: Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    """Dense and sparse, any rows, also when the buffer holds a few rows only."""
    monkeypatch.setattr("dpadmm_mpi.data.store.BUFFER", 300)
    X = rng.standard_normal((200, 5)) * (rng.random((200, 5)) < 0.3)
    y = np.where(rng.random(200) < 0.5, 1.0, -1.0)
    for kind, matrix in (("dense", X), ("sparse", sparse.csr_matrix(X))):
        store = write_store(tmp_path / kind, Records(y=y, X=matrix), ["none"], {})
        assert store.meta.sparse == (kind == "sparse")
        for rows in (np.arange(200), np.array([0]), np.array([199]), np.sort(rng.choice(200, 70, replace=False)), np.arange(0)):
            shard = store.read(rows)
            assert np.array_equal(dense(shard.X), X[rows])
            assert np.array_equal(shard.y, y[rows])


def test_a_damaged_store_is_noticed(tmp_path: Path, rng: Generator) -> None:
    store = write_store(tmp_path / "s", Records(y=np.ones(50), X=rng.standard_normal((50, 3))), [], {})
    (tmp_path / "s" / "values.bin").write_bytes(b"\0" * 100)
    with pytest.raises(InputError, match="is cut short; remove the folder"):
        store.read(np.arange(50))


CENSUS = """age, city,smoker,income,zip
31, Paris,yes,high,10
47,"Rome, Lazio",no,low,20
 25,Paris,no,low,10
?,Oslo,yes,high,20
62,Oslo,no,low,30
58,Paris,yes,high,10
"""


def own_table(tmp_path: Path, text: str = CENSUS, **data: Any) -> Dataset[Any]:
    path = tmp_path / "census.csv"
    path.write_text(text)
    given: Raw = {"source": "csv", "path": str(path), "label": "income", "positive": "high", "train": 1.0} | data
    return dataset_of(1, **given)


STEPS = ["drop-missing", "one-hot", "scale-columns", "scale-rows"]


def test_a_users_table(tmp_path: Path) -> None:
    """Categories, numbers, quotes, spaces, a missing value, a named label; the steps in the user's order."""
    dataset = own_table(tmp_path, preprocess=STEPS, categorical=["zip"])
    names = ["age", "city=Oslo", "city=Paris", "city=Rome, Lazio", "smoker=no", "smoker=yes", "zip=10", "zip=20", "zip=30"]
    assert dataset.feature_names() == names
    shard = shard_of(dataset, 0)
    assert shard.y.tolist() == [1, -1, -1, -1, 1]
    first = np.array([31 / 62, 0, 1, 0, 0, 1, 1, 0, 0])
    assert np.allclose(dense(shard.X)[0], first / np.linalg.norm(first))
    assert dataset.description()["preprocessing"][0] == "drop-missing: 1 of 6 records dropped for missing values"


def test_only_rows_above_norm_1_are_scaled() -> None:
    norms = np.array([0.5, 1.0, 1.05, 3.0])
    scaled, words = ScaleRows().apply(Records(y=np.ones(4), X=norms[:, None] * np.array([[0.6, 0.8]])))
    assert np.allclose(row_norms(scaled.matrix), [0.5, 1.0, 1.0, 1.0], rtol=0, atol=1e-15)
    assert words == "2 of 4 rows scaled to norm 1"


def test_order_of_the_steps_matters(tmp_path: Path) -> None:
    rows_last = rows_of(own_table(tmp_path, preprocess=STEPS), 0)
    other = ["drop-missing", "one-hot", "scale-rows", "scale-columns", "scale-rows"]
    rows_first = rows_of(own_table(tmp_path, preprocess=other), 0)
    assert not np.allclose(rows_last, rows_first)


@pytest.mark.parametrize(
    ("data", "text", "sentence"),
    [
        ({"preprocess": ["one-hot"]}, CENSUS, 'record 3 has a feature that is not a finite number; .*"drop-missing"'),
        ({"preprocess": ["drop-missing"]}, CENSUS, 'column "city" holds text, for example "Paris"; add "one-hot"'),
        ({"preprocess": STEPS, "positive": None}, CENSUS, r"found the label high, low; labels must be .* data.positive"),
        ({"preprocess": STEPS, "positive": "rich"}, CENSUS, r'no label in .* is "rich"; the labels are high, low'),
        ({"preprocess": STEPS, "label": "wealth"}, CENSUS, 'has no column "wealth"; its columns are age, city'),
        ({"preprocess": STEPS, "categorical": ["street"]}, CENSUS, 'has no column "street"'),
        ({"preprocess": STEPS}, CENSUS.replace("high,10\n", "middle,10\n", 1), "found 3 different labels"),
        ({"preprocess": STEPS}, CENSUS.replace("zip", "age"), 'more than one column "age"'),
        ({"preprocess": STEPS}, CENSUS.replace("yes,high,20", "yes,,20"), "records without a label"),
        ({"preprocess": STEPS}, "age,income\n?,high\n?,low\n", "no record is left after drop-missing"),
        ({"preprocess": STEPS}, CENSUS + "1,2\n", "line 8 has 2 columns, but 5 are expected"),
        ({"preprocess": ["drop-missing", "one-hot"]}, CENSUS, 'has norm .*preprocess = \\["scale-rows"\\]'),
    ],
)
def test_tables_with_surprises(tmp_path: Path, data: Raw, text: str, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        own_table(tmp_path, text, **data)


def test_carriage_returns_are_no_surprise(tmp_path: Path) -> None:
    plain = shard_of(own_table(tmp_path, preprocess=STEPS), 0)
    dos = shard_of(own_table(tmp_path, CENSUS.replace("\n", "\r\n"), preprocess=STEPS), 0)
    assert np.array_equal(dense(plain.X), dense(dos.X))


def test_nothing_is_cached_of_a_bad_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DPADMM_DATA", str(tmp_path / "cache"))
    with pytest.raises(InputError):
        own_table(tmp_path, CENSUS + "1,2\n", preprocess=STEPS)
    assert not (tmp_path / "cache").exists() or not list((tmp_path / "cache" / "prepared").iterdir())


def test_a_changed_file_is_prepared_again(tmp_path: Path) -> None:
    before = shard_of(own_table(tmp_path, preprocess=STEPS), 0)
    after = shard_of(own_table(tmp_path, CENSUS.replace("31, Paris", "33, Paris"), preprocess=STEPS), 0)
    assert not np.array_equal(dense(before.X), dense(after.X))


def test_hdf5_and_labels_0_1(tmp_path: Path, rng: Generator) -> None:
    import h5py

    X = 0.3 * rng.random((12, 4))
    with h5py.File(tmp_path / "r.h5", "w") as file:
        file["X"], file["y"] = X, np.arange(12) % 2
    given: Raw = {"source": "hdf5", "path": str(tmp_path / "r.h5"), "train": 1.0, "positive": 1}
    shard = shard_of(dataset_of(1, **given), 0)
    assert np.array_equal(dense(shard.X), X)
    assert shard.y.tolist() == [-1, 1] * 6
    (tmp_path / "cut.h5").write_bytes((tmp_path / "r.h5").read_bytes()[:1500])
    with pytest.raises(InputError, match="not a readable HDF5 file"):
        dataset_of(1, **given | {"path": str(tmp_path / "cut.h5")})


def test_large_files_are_prepared_in_a_process_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same store and the same sentences, whether this process prepares or another one."""
    monkeypatch.setattr(prepare_module, "SMALL", 0)
    monkeypatch.setattr(prepare_module, "prepare", None)  # this process cannot
    assert shard_of(own_table(tmp_path, preprocess=STEPS), 0).records == 5
    with pytest.raises(InputError, match='column "city" holds text'):
        own_table(tmp_path, preprocess=["drop-missing"])


def test_test_file_with_other_columns(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("age,town,smoker,income,zip\n3,Paris,no,low,10\n")
    with pytest.raises(InputError, match="other columns than the training file: city, town"):
        own_table(tmp_path, preprocess=STEPS, test_path=str(tmp_path / "t.csv"), train=None)


def test_train_beside_a_test_file_pools_both(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(CENSUS)
    given = own_table(tmp_path, preprocess=STEPS, test_path=str(tmp_path / "t.csv"), train=None)
    assert given.node_of_record().tolist() == [0] * 5 + [-1] * 5
    pooled = own_table(tmp_path, preprocess=STEPS, test_path=str(tmp_path / "t.csv"), train=7)
    assert (pooled.node_of_record() == 0).sum() == 7


def test_unwritable_cache_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("DPADMM_DATA", str(tmp_path / "file" / "cache"))
    with pytest.raises(RunError, match=r"cannot be written .*set DPADMM_DATA"):
        own_table(tmp_path, preprocess=STEPS)
