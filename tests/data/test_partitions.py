"""How records are spread over the nodes, and which are for testing."""

from pathlib import Path

import numpy as np
import pytest
from numpy.random import Generator
from support import Raw, dataset_of, records_for_testing, result_of, rows_of, shard_of, write_records

from dpadmm_mpi.data.partitions import ByLabel, Division, Even, Uneven
from dpadmm_mpi.errors import InputError
from dpadmm_mpi.types import Array


@pytest.mark.parametrize("split", [{}, {"split": "uneven"}, {"split": "by-label"}, {"sizes": [3, 20, 9]}])
@pytest.mark.parametrize("source", ["synthetic", "npz"])
def test_node_of_record_says_where_each_record_went(
    tmp_path: Path, records: tuple[Array, Array], source: str, split: Raw
) -> None:
    X, y = records
    place = {"path": str(write_records(tmp_path, "npz", X, y))} if source == "npz" else {"records": 40, "features": 5}
    found = dataset_of(source=source, **place, **split, train=32)
    owners = found.node_of_record()
    assert len(owners) == 40
    assert np.array_equal(np.bincount(owners + 1), [8, *found.sizes])
    assert found.sizes.sum() == 32
    if "sizes" in split:
        assert found.sizes.tolist() == [3, 20, 9]
    if source == "npz":
        for node in range(3):
            assert np.array_equal(rows_of(found, node), X[owners == node])
        assert np.array_equal(records_for_testing(found).y, y[owners == -1])
    else:
        assert [shard_of(found, i).records for i in range(3)] == found.sizes.tolist()
        assert records_for_testing(found).records == 8


def test_even_split_is_even_and_uneven_follows_its_concentration() -> None:
    assert np.ptp(dataset_of(nodes=7, records=100, train=1.0).sizes) <= 1
    spread = {
        c: np.std(dataset_of(nodes=50, records=10_000, train=1.0, split="uneven", concentration=c).sizes) for c in (0.5, 5, 500)
    }
    assert spread[0.5] > spread[5] > spread[500]
    assert dataset_of(nodes=50, records=100, train=1.0, split="uneven", concentration=0.05).sizes.min() >= 1


@pytest.mark.parametrize("source", ["synthetic", "npz"])
def test_by_label_skews_the_labels(tmp_path: Path, rng: Generator, source: str) -> None:
    """skew = 0: every node has the same share of positives within chance; skew = 1: at most one node has both labels."""
    X = np.full((4000, 3), 0.5)
    y = np.where(rng.random(4000) < 0.25, 1.0, -1.0)
    np.savez(tmp_path / "r.npz", X=X, y=y)
    place = {"path": str(tmp_path / "r.npz")} if source == "npz" else {"records": 4000, "features": 9}
    shares = {}
    for skew in (0.0, 0.5, 1.0):
        found = dataset_of(nodes=8, source=source, **place, train=1.0, split="by-label", skew=skew)
        shares[skew] = np.array([np.mean(shard_of(found, i).y > 0) for i in range(8)])
        assert np.ptp(found.sizes) <= 1
    assert np.ptp(shares[0.0]) < 0.15
    assert np.ptp(shares[0.5]) > 0.4
    assert sum((shares[1.0] > 0) & (shares[1.0] < 1)) <= 1


def test_C_equal_to_the_smallest_shard_is_allowed() -> None:
    raw = {"network": {"nodes": 2}, "data": {"sizes": [60, 30], "records": 100, "features": 3}, "problem": {"C": 30.0}}
    assert result_of(raw | {"iterations": 1}).complete


def test_C_above_the_smallest_shard_is_refused() -> None:
    with pytest.raises(InputError, match=r"problem.C: found 50, but node 1 has only 30 records"):
        result_of({"network": {"nodes": 2}, "data": {"sizes": [60, 30], "records": 100}, "problem": {"C": 50.0}})


def test_splits_at_scale() -> None:
    """100,000 records over 1,000 nodes, every split: each record once, and the sizes add up."""
    labels = np.where(np.arange(100_000) % 4 == 0, 1.0, -1.0)
    for split in (Even(), Uneven(), ByLabel()):
        owners, sizes = Division(0.8, split).deal(labels, 1000, seed=1)
        assert np.array_equal(np.bincount(owners + 1), [20_000, *sizes])
