"""Partitions by labels, columns, files and node numbers: who gets which record, against the law of each."""

from pathlib import Path

import h5py
import numpy as np
import pytest
from support import Raw, command, dataset_of, dense, result_of, rows_of, shard_of

from dpadmm_mpi.data.dataset import statistics_of
from dpadmm_mpi.data.partitions import Dirichlet, Division, Partition, Shards, Stratified
from dpadmm_mpi.errors import InputError
from dpadmm_mpi.types import Array, Ints

LABELS = np.repeat([-1.0, 1.0, 2.0], [50_000, 30_000, 20_000])
NODES = 1000


def counts_of(split: Partition, labels: Array = LABELS, nodes: int = NODES, seed: int = 1) -> Ints:
    """(nodes, labels), all records for training."""
    owners, sizes = Division(1.0, split).deal(labels, nodes, seed)
    assert sizes.min() >= 1
    table = np.stack([np.bincount(owners[labels == label], minlength=nodes) for label in np.unique(labels)], axis=1)
    assert np.array_equal(table.sum(axis=1), sizes)
    return table


@pytest.mark.parametrize("concentration", [0.5, 5.0, 500.0])
def test_dirichlet_counts_have_the_moments_of_the_law(concentration: float) -> None:
    """Share p of a label at a node: E p = 1/N, E p^2 = (a+1) / (N (N a + 1)); tolerance: 5 standard errors over the nodes."""
    counts = counts_of(Dirichlet(concentration=concentration))
    assert np.array_equal(counts.sum(axis=0), [50_000, 30_000, 20_000])
    for column in counts.T:
        squares = (column / column.sum()) ** 2
        expected = (concentration + 1) / (NODES * (NODES * concentration + 1))
        rounding = 2 / column.sum() / NODES + 1 / column.sum() ** 2  # counts are whole numbers
        assert abs(squares.mean() - expected) < 5 * squares.std() / np.sqrt(NODES) + rounding
    # Labels are spread independently of each other.
    assert abs(np.corrcoef(counts[:, 0], counts[:, 1])[0, 1]) < 5 / np.sqrt(NODES)


def test_a_small_concentration_leaves_nobody_empty() -> None:
    counts = counts_of(Dirichlet(concentration=0.01))
    assert (counts.sum(axis=1) == 1).sum() > 100
    assert counts.max() > 1000


def test_stratified_nodes_differ_by_one_record_of_each_label() -> None:
    counts = counts_of(Stratified(), nodes=77)
    assert (np.ptp(counts, axis=0) <= 1).all()
    assert np.ptp(counts.sum(axis=1)) <= 1


def test_shards_are_chunks_of_one_label_at_random() -> None:
    """2,000 chunks of 50 records: 1,000, 600 and 400 of each label. A node has 2 of them without replacement."""
    counts = counts_of(Shards(chunks=2))
    assert set(np.unique(counts)) == {0, 50, 100}
    assert (counts.sum(axis=1) == 100).all()
    both = (counts[:, 0] == 100).mean()  # hypergeometric: 1000 999 / (2000 1999)
    assert abs(both - 0.5 * 999 / 1999) < 5 * np.sqrt(0.25 * 0.75 / NODES)


def test_another_seed_is_another_partition() -> None:
    for split in (Dirichlet(), Shards()):
        assert np.array_equal(counts_of(split), counts_of(split))
        assert not np.array_equal(counts_of(split), counts_of(split, seed=2))


@pytest.mark.parametrize("split", ["dirichlet", "shards", "stratified"])
def test_synthetic_records_follow_the_labels_that_were_dealt(split: str) -> None:
    found = dataset_of(4, records=400, features=9, train=300, split=split)
    statistics = statistics_of(found)
    assert statistics is not None
    shards = [shard_of(found, node) for node in range(4)]
    assert statistics.counts.tolist() == [[int((s.y < 0).sum()), int((s.y > 0).sum())] for s in shards]
    assert statistics.counts.sum(axis=0).tolist() == [225, 75]
    if split == "stratified":
        assert np.ptp(statistics.counts[:, 1]) <= 1


def test_too_many_labels_and_too_few_records_are_said() -> None:
    with pytest.raises(InputError, match=r'"dirichlet" deals each label by itself, but there are 2000 different ones'):
        counts_of(Dirichlet(), np.arange(2000.0), 3)
    with pytest.raises(InputError, match=r"10 training records are too few for 12 chunks"):
        counts_of(Shards(chunks=4), np.ones(10), 3)


TABLE = "age,hospital,label\n" + "".join(f"0.{k % 9},{'CAB'[k % 3]},{1 if k % 2 else -1}\n" for k in range(60))


def table_source(tmp_path: Path, text: str = TABLE, **data: object) -> Raw:
    (tmp_path / "t.csv").write_text(text)
    return {"source": "csv", "path": str(tmp_path / "t.csv"), **data}


def test_by_column_makes_a_node_of_each_value(tmp_path: Path) -> None:
    found = dataset_of(3, **table_source(tmp_path, split="by-column", column="hospital", train=48))
    owners = found.node_of_record()
    assert found.feature_names() == ["age"]  # the column is no feature
    assert found.description()["node_names"] == ["A", "B", "C"]
    train = owners >= 0
    assert train.sum() == 48
    assert np.array_equal(owners[train], np.array([2, 0, 1] * 20)[train])


@pytest.mark.parametrize(
    ("nodes", "data", "text", "sentence"),
    [
        (4, {"column": "hospital"}, TABLE, r'"hospital" has 3 different values, but there are 4 nodes; use 3 nodes'),
        (3, {"column": "clinic"}, TABLE, r'no column "clinic" .*the columns are age, hospital'),
        (3, {"column": "hospital"}, TABLE.replace("0.4,A", "0.4,?", 1), r'has no value in column "hospital"'),
        (4, {"column": "hospital", "train": 5}, TABLE + "0.1,D,1\n", r'node . \("[ABCD]"\) has no training record'),
    ],
)
def test_by_column_with_surprises(tmp_path: Path, nodes: int, data: Raw, text: str, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        dataset_of(nodes, 2, **table_source(tmp_path, text, split="by-column", **data))


def test_by_column_needs_columns(tmp_path: Path) -> None:
    np.savez(tmp_path / "r.npz", X=np.full((9, 2), 0.1), y=np.resize([-1.0, 1.0], 9))
    with pytest.raises(InputError, match=r'there is no column "a" .*none with a name'):
        dataset_of(3, source="npz", path=str(tmp_path / "r.npz"), split="by-column", column="a")


def test_one_file_per_node(tmp_path: Path) -> None:
    """In the order of the numbers in their names; the test file belongs to nobody."""
    for node in (0, 1, 2, 10):
        rows = "".join(f"0.{node + 1},{label}\n" for label in (1, -1) * (node + 1))
        (tmp_path / f"node-{node}.csv").write_text("x,label\n" + rows)
    (tmp_path / "t.csv").write_text("x,label\n0.5,1\n0.5,-1\n")
    given: Raw = {
        "source": "csv",
        "path": str(tmp_path / "node-*.csv"),
        "split": "by-file",
        "test_path": str(tmp_path / "t.csv"),
    }
    found = dataset_of(4, **given)
    assert found.sizes.tolist() == [2, 4, 6, 22]
    assert [np.unique(rows_of(found, node)).tolist() for node in range(4)] == [[0.1], [0.2], [0.3], [0.11]]
    assert found.description()["node_names"][-1] == "node-10.csv"
    assert dataset_of(2, **given | {"split": "even"}).sizes.tolist() == [17, 17]  # pooled
    with pytest.raises(InputError, match="there are 4 files, but 5 nodes"):
        dataset_of(5, **given)
    with pytest.raises(InputError, match=r"records of the test file belong to no node; remove data.train"):
        dataset_of(4, **given | {"train": 1.0})
    with pytest.raises(InputError, match=r'"by-file" needs a pattern'):
        dataset_of(4, **given | {"path": str(tmp_path / "node-0.csv")})
    (tmp_path / "node-2.csv").write_text("z,label\n0.1,1\n")
    with pytest.raises(InputError, match=r"node-2.csv has other columns than node-0.csv: x, z"):
        dataset_of(4, **given)


def test_data_partition_can_be_read_back(tmp_path: Path) -> None:
    """Records are counted as in the file, also when a step dropped some before."""
    text = TABLE.replace("0.4,A", "?,A")
    data = table_source(tmp_path, text, split="dirichlet", concentration=1.0, preprocess=["drop-missing"], drop=["hospital"])
    (tmp_path / "c.toml").write_text(
        "[data]\n" + "".join(f"{key} = {value!r}\n" for key, value in data.items()) + "[network]\nnodes = 3\n"
    )
    written = command("data", "partition", tmp_path / "c.toml", "-o", tmp_path / "p.csv")
    assert written.returncode == 0, written.stderr
    assert "records per node" in written.stdout
    table = np.loadtxt(tmp_path / "p.csv", delimiter=",", skiprows=1, dtype=int)
    kept = [k for k, line in enumerate(text.splitlines()[1:]) if not line.startswith("?")]
    assert table[:, 0].tolist() == kept
    dealt = dataset_of(3, **data).node_of_record()
    assert np.array_equal(table[:, 1], dealt)
    again = {key: value for key, value in data.items() if key != "concentration"}
    read = dataset_of(3, **again | {"split": "node-file", "node_file": str(tmp_path / "p.csv")})
    assert np.array_equal(read.node_of_record(), dealt)


def test_a_file_of_node_numbers(tmp_path: Path) -> None:
    given = table_source(tmp_path, drop=["hospital"], split="node-file", node_file=str(tmp_path / "n.txt"))
    (tmp_path / "n.txt").write_text("\n".join(str(k % 4 - 1) for k in range(60)))
    assert dataset_of(3, **given).node_of_record().tolist() == [k % 4 - 1 for k in range(60)]
    for text, nodes, sentence in (
        ("0\n1\n", 2, "has no node for record 2, counted from 0"),
        ("0\nb\n", 2, "must have a whole number per line"),
        ("\n".join(["3"] * 60), 2, "has node 3, but there are 2 nodes"),
        ("\n".join(["-7"] * 60), 2, "has no node for record 0"),
    ):
        (tmp_path / "n.txt").write_text(text)
        with pytest.raises(InputError, match=sentence):
            dataset_of(nodes, **given)
    (tmp_path / "n.txt").write_text("\n".join(str(k % 3 - 1) for k in range(60)))
    with pytest.raises(InputError, match=r"remove data.train"):
        dataset_of(2, **given | {"train": 0.5})
    with pytest.raises(InputError, match=r"nothing.txt cannot be read"):
        dataset_of(2, **given | {"node_file": str(tmp_path / "nothing.txt")})


def test_statistics_are_recorded_and_drawn(tmp_path: Path) -> None:
    """Counts, total variation and distance of means as they follow from the nodes' own records."""
    data = table_source(tmp_path, split="by-column", column="hospital", train=48)
    raw = {"iterations": 1, "data": data, "network": {"nodes": 3}}
    result_of(raw, tmp_path / "r.h5")
    shards = [shard_of(dataset_of(3, **data), node) for node in range(3)]
    X, y = [dense(s.X) for s in shards], np.concatenate([s.y for s in shards])
    with h5py.File(tmp_path / "r.h5") as file:
        assert file["data/label"][...].tolist() == [-1, 1]
        assert file["data/label_counts"][...].tolist() == [[(s.y < 0).sum(), (s.y > 0).sum()] for s in shards]
        assert np.allclose(file["data/label_distance"], [abs((s.y > 0).mean() - (y > 0).mean()) for s in shards])
        assert np.allclose(file["data/mean_distance"], [abs(x.mean() - np.concatenate(X).mean()) for x in X])
    drawn = command("plot", tmp_path / "r.h5", "--kind", "partition", "-o", tmp_path / "p.svg")
    assert drawn.returncode == 0, drawn.stderr
    text = (tmp_path / "p.svg").read_text()
    assert text.count("<!-- label ") == 2 and "<!-- training records -->" in text
