"""How records are spread over the nodes, and which are for testing."""

import bz2
import gzip
import lzma
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.random import Generator
from support import Raw, run, shard_of

from dpadmm_mpi.data import partitions as splits
from dpadmm_mpi.data.dataset import prepare
from dpadmm_mpi.data.shard import row_norms
from dpadmm_mpi.errors import InputError
from dpadmm_mpi.methods import parse
from dpadmm_mpi.types import Array

COMPRESS = {"": lambda b: b, ".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress}


@pytest.fixture
def records(rng: Generator):
    X = rng.standard_normal((40, 5)) * (rng.random((40, 5)) < 0.2)
    X /= np.maximum(row_norms(X), 1.0)[:, None]
    X[0, 4] = 0.25  # the last feature occurs
    X[0] /= max(1.0, np.linalg.norm(X[0]))
    return X, np.where(rng.random(40) < 0.4, 1.0, -1.0)


def libsvm_text(X: Array, y: Array):
    rows = zip(X, y, strict=True)
    return "".join(f"{int(v):+d} " + " ".join(f"{j + 1}:{float(a)!r}" for j, a in enumerate(x) if a) + "\n" for x, v in rows)


def csv_text(X: Array, y: Array, header: bool = True):
    lines = ["label," + ",".join(f"x{j}" for j in range(X.shape[1]))] if header else []
    for x, v in zip(X, y, strict=True):
        cells = [repr(float(a)) for a in x]
        lines.append(",".join([f"{v:g}", *cells] if header else [*cells, f"{v:g}"]))
    return "\n".join(lines) + "\n"


def write(folder: Path, source: str, X: Array, y: Array, suffix: str = ""):
    path = folder / f"records.{source}{suffix}"
    if source == "npz":
        np.savez(path, X=X, y=y)
    else:
        text = libsvm_text(X, y) if source == "libsvm" else csv_text(X, y)
        path.write_bytes(COMPRESS[suffix](text.encode()))
    return path


def dataset(nodes: int = 3, seed: int = 1, **data: Any):
    return prepare(parse({"data": data}).data, nodes, seed)


@pytest.mark.parametrize("split", [{}, {"split": "uneven"}, {"split": "by-label"}, {"sizes": [3, 20, 9]}])
@pytest.mark.parametrize("source", ["synthetic", "npz"])
def test_node_of_record_says_where_each_record_went(
    tmp_path: Path, records: tuple[Array, Array], source: str, split: Raw
) -> None:
    X, y = records
    place = {"path": str(write(tmp_path, "npz", X, y))} if source == "npz" else {"records": 40, "features": 5}
    found = dataset(source=source, **place, **split, train=32)
    owners = found.node_of_record()
    assert len(owners) == 40
    assert np.array_equal(np.bincount(owners + 1), [8, *found.sizes])
    assert found.sizes.sum() == 32
    if "sizes" in split:
        assert found.sizes.tolist() == [3, 20, 9]
    if source == "npz":
        for node in range(3):
            assert np.array_equal(shard_of(found, node).X, X[owners == node])
        assert np.array_equal(found.test().shard.y, y[owners == -1])
    else:
        assert [shard_of(found, i).records for i in range(3)] == found.sizes.tolist()
        assert found.test().records == 8


def test_even_split_is_even_and_uneven_follows_its_concentration() -> None:
    assert np.ptp(dataset(nodes=7, records=100, train=1.0).sizes) <= 1
    spread = {
        c: np.std(dataset(nodes=50, records=10_000, train=1.0, split="uneven", concentration=c).sizes) for c in (0.5, 5, 500)
    }
    assert spread[0.5] > spread[5] > spread[500]
    assert dataset(nodes=50, records=100, train=1.0, split="uneven", concentration=0.05).sizes.min() >= 1


@pytest.mark.parametrize("source", ["synthetic", "npz"])
def test_by_label_skews_the_labels(tmp_path: Path, rng: Generator, source: str) -> None:
    """skew = 0: every node has the same share of positives within chance; skew = 1: at most one node has both labels."""
    X = np.full((4000, 3), 0.5)
    y = np.where(rng.random(4000) < 0.25, 1.0, -1.0)
    np.savez(tmp_path / "r.npz", X=X, y=y)
    place = {"path": str(tmp_path / "r.npz")} if source == "npz" else {"records": 4000, "features": 9}
    shares = {}
    for skew in (0.0, 0.5, 1.0):
        found = dataset(nodes=8, source=source, **place, train=1.0, split="by-label", skew=skew)
        shares[skew] = np.array([np.mean(shard_of(found, i).y > 0) for i in range(8)])
        assert np.ptp(found.sizes) <= 1
    assert np.ptp(shares[0.0]) < 0.15
    assert np.ptp(shares[0.5]) > 0.4
    assert sum((shares[1.0] > 0) & (shares[1.0] < 1)) <= 1


def test_C_equal_to_the_smallest_shard_is_allowed() -> None:
    raw = {"network": {"nodes": 2}, "data": {"sizes": [60, 30], "records": 100, "features": 3}, "problem": {"C": 30.0}}
    assert run(raw | {"iterations": 1}).complete


def test_C_above_the_smallest_shard_is_refused() -> None:
    with pytest.raises(InputError, match=r"problem.C: found 50, but node 1 has only 30 records"):
        run({"network": {"nodes": 2}, "data": {"sizes": [60, 30], "records": 100}, "problem": {"C": 50.0}})


def test_splits_at_scale() -> None:
    """100,000 records over 1,000 nodes, every split: each record once, and the sizes add up."""
    labels = np.where(np.arange(100_000) % 4 == 0, 1.0, -1.0)
    for split in ({}, {"split": "uneven"}, {"split": "by-label"}):
        data = parse({"data": {"train": 0.8, **split}}).data
        owners, sizes = splits.deal(data, labels, 1000, seed=1)
        assert np.array_equal(np.bincount(owners + 1), [20_000, *sizes])
