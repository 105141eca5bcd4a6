"""The papers' data sets, from their real files: counts, balance, names, norms, and what logistic regression makes of them."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse
from scipy.optimize import minimize
from support import command, dataset_of, dense, records_for_testing, result_of, sentences, shard_of

import dpadmm_mpi
from dpadmm_mpi.data.dataset import Dataset
from dpadmm_mpi.data.prepare import ensure_store
from dpadmm_mpi.data.shard import Shard, row_norms
from dpadmm_mpi.data.sources import StoredSource
from dpadmm_mpi.methods import parse
from dpadmm_mpi.types import Array

RIDGE = 0.22 / (5 * 1750)  # of [R]: rho = 0.22, C = 1750, five nodes


def load(name: str, nodes: int = 1, seed: int = 1, **data: Any) -> Dataset[Any]:
    return dataset_of(nodes, seed, source=name, **data)


def test_adult(fetched: Callable[[str], str], real_data: Path) -> None:
    """45,222 records, 24.78 % positive, 105 features in the order of adult.names, rows of norm 1, one column of zeros."""
    dataset = load(fetched("adult"), train=1.0)
    shard = shard_of(dataset, 0)
    assert shard.X.shape == (45_222, 105)
    assert round(100 * np.mean(shard.y > 0), 2) == 24.78
    assert np.abs(row_norms(shard.X) - 1).max() < 1e-12
    names = dataset.feature_names()
    assert names is not None
    X = dense(shard.X)
    assert names[:4] == ["age", "workclass=Private", "workclass=Self-emp-not-inc", "workclass=Self-emp-inc"]
    assert names[-1] == "native-country=Holand-Netherlands"
    assert [name for name in names if "=" not in name] == [
        "age", "fnlwgt", "education-num", "capital-gain", "capital-loss", "hours-per-week"
    ]  # fmt: skip
    zero = [names[k] for k in np.flatnonzero(~X.any(axis=0))]
    assert zero == ["workclass=Never-worked"]
    assert np.linalg.matrix_rank(X) == 96
    # The first record by hand: 39, State-gov, ..., divided by the columns' maxima and then by the row's norm.
    row = dict(zip(names, X[0], strict=True))
    assert row["workclass=State-gov"] == row["education=Bachelors"] == row["sex=Male"] > 0
    assert row["age"] / row["sex=Male"] == pytest.approx(39 / 90)
    assert row["capital-gain"] / row["sex=Male"] == pytest.approx(2174 / 99999)
    assert np.count_nonzero(X[0]) == 8 + 5


@pytest.mark.parametrize(
    ("name", "records", "training", "features", "positive"),
    [
        ("a9a", 48_842, 32_561, 123, 11_687),
        ("a8a", 32_561, 22_696, 123, 7_841),
        ("ijcnn1", 141_691, 49_990, 22, 13_565),
        ("bio_train", 145_751, None, 74, 1_296),
    ],
)
def test_counts(
    fetched: Callable[[str], str], name: str, records: int, training: int | None, features: int, positive: int
) -> None:
    source = parse({"data": {"source": fetched(name)}}).data.source
    assert isinstance(source, StoredSource)
    meta = ensure_store(source).meta
    assert (meta.records, meta.training, meta.features, meta.positive) == (records, training, features, positive)
    assert meta.largest_norm <= 1 + 1e-12
    assert meta.sparse == (name in ("a9a", "a8a"))
    dataset = load(name, nodes=3)
    if training is not None:  # the given test file is the test set
        assert dataset.sizes.sum() == training
        assert (dataset.node_of_record()[training:] == -1).all()
        assert records_for_testing(dataset).records == records - training
    assert load(name, nodes=3, train=0.7).sizes.sum() == round(0.7 * records)


def test_the_relationship_of_adult_is_six_classes_without_what_gives_them_away(fetched: Callable[[str], str]) -> None:
    fetched("adult")
    source = parse({"data": {"source": "adult-relationship"}, "problem": {"loss": "softmax"}}).data.source
    assert isinstance(source, StoredSource)
    store = ensure_store(source)
    assert (store.meta.records, store.meta.features) == (46_033, 51)
    assert store.meta.target.classes == ("Husband", "Not-in-family", "Other-relative", "Own-child", "Unmarried", "Wife")
    assert np.bincount(store.traits().labels.astype(int)).tolist() == [19_005, 11_916, 1_400, 6_706, 4_867, 2_139]
    names = store.meta.names or []
    assert not [name for name in names if name.startswith(("sex", "marital-status", "relationship", "native-country"))]
    assert [name for name in names if name.startswith("income")] == ["income=<=50K", "income=>50K"]


def test_sparse_stays_sparse(fetched: Callable[[str], str]) -> None:
    dataset = load(fetched("a9a"), nodes=4)
    assert all(sparse.issparse(shard_of(dataset, node).X) for node in range(4))


def test_logistic_regression_on_adult(fetched: Callable[[str], str]) -> None:
    """40,000 records at random for training: 15.3 to 16 % test error over some splits, by an independent solver."""
    errors = []
    for seed in range(1, 5):
        dataset = load(fetched("adult"), train=40_000, seed=seed)
        shard, test = shard_of(dataset, 0), records_for_testing(dataset)
        assert (shard.records, test.records) == (40_000, 5_222)

        def objective(f: Array, shard: Shard = shard) -> tuple[float, Array]:
            z = shard.y * (shard.X @ f)
            value = float(np.mean(np.logaddexp(0, -z)) + RIDGE * f @ f / 2)
            return value, RIDGE * f - (shard.X.T @ (shard.y / (1 + np.exp(z)))) / len(z)

        f = minimize(objective, np.zeros(105), jac=True, method="L-BFGS-B", options={"maxiter": 500}).x
        errors.append(np.mean(np.sign(test.X @ f) != test.y))
    assert 0.153 <= np.mean(errors) <= 0.160


def test_preprocessing_is_recorded(fetched: Callable[[str], str], tmp_path: Path) -> None:
    raw = {"iterations": 2, "data": {"source": fetched("adult"), "train": 40_000}, "problem": {"C": 1750.0, "rho": 0.22}}
    result = result_of(raw, tmp_path / "out.h5")
    attributes = dpadmm_mpi.load(tmp_path / "out.h5").attributes["data"]
    assert [step.split(":")[0] for step in attributes["preprocessing"]] == [
        "drop-missing", "one-hot", "scale-columns", "scale-rows"
    ]  # fmt: skip
    assert "3620 of 48842" in attributes["preprocessing"][0]
    assert any("5b00264637dbfec3" in file for file in attributes["files"])
    assert result["data/feature_names"][0] in (b"age", "age")
    assert np.bincount(result["data/node_of_record"] + 1).tolist() == [5222, 8000, 8000, 8000, 8000, 8000]


def test_fetch_twice_does_nothing_and_a_flipped_byte_is_refused(
    real_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DPADMM_DATA", str(tmp_path / "cache"))
    folder = tmp_path / "files"
    folder.mkdir()
    for name in ("adult.data", "adult.test", "adult.names"):
        shutil.copyfile(real_data / name, folder / name)
    spoiled = bytearray((folder / "adult.data").read_bytes())
    spoiled[1_000_000] ^= 1
    (folder / "adult.data").write_bytes(spoiled)
    refused = command("data", "fetch", "adult", "--from", folder)
    assert refused.returncode == 2
    assert "its checksum differs" in sentences(refused)[0]
    assert not list((tmp_path / "cache" / "raw" / "adult").iterdir())

    first = command("data", "fetch", "adult", "--from", real_data)
    assert first.returncode == 0
    second = command("data", "fetch", "adult")  # no place needed: it is there
    assert second.returncode == 0
    assert "there already" in second.stdout

    cached = tmp_path / "cache" / "raw" / "adult" / "adult.test"
    spoiled = bytearray(cached.read_bytes())
    spoiled[500] ^= 1
    cached.write_bytes(spoiled)
    shutil.rmtree(tmp_path / "cache" / "prepared")
    info = command("data", "info", "adult")  # nothing is prepared from this file
    assert info.returncode == 2
    assert "its checksum differs" in sentences(info)[0]
    assert "fetched from" in command("data", "fetch", "adult", "--from", real_data).stdout  # and mended


def test_two_processes_that_fetch_at_once(real_data: Path, tmp_path: Path) -> None:
    import os
    import subprocess
    import sys

    environment = {**os.environ, "DPADMM_DATA": str(tmp_path)}
    arguments = [sys.executable, "-m", "dpadmm_mpi", "data", "fetch", "a8a", "--from", str(real_data)]
    processes = [subprocess.Popen(arguments, env=environment, stdout=subprocess.DEVNULL) for _ in range(4)]
    assert [process.wait() for process in processes] == [0] * 4
    assert sorted(p.name for p in (tmp_path / "raw" / "a8a").iterdir()) == ["a8a", "a8a.t"]
    assert len(list((tmp_path / "prepared").iterdir())) == 1
