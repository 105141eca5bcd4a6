"""A configuration's data: sizes and addresses on rank 0, shards on demand."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from dpadmm_mpi.config import Data
from dpadmm_mpi.data import files, splits, synthetic
from dpadmm_mpi.data.shard import Shard, validate
from dpadmm_mpi.streams import Purpose

Ints = NDArray[np.int64]


class Dataset(Protocol):
    """What the engine asks of data. A portable one is small and makes shards on any rank; the others stay on rank 0."""

    @property
    def portable(self) -> bool: ...

    @property
    def features(self) -> int: ...

    @property
    def sizes(self) -> Ints:
        """Training records of each node."""
        ...

    def shard(self, node: int) -> Shard: ...

    def test(self) -> Shard | None: ...

    def node_of_record(self) -> Ints: ...


def prepare(data: Data, nodes: int, seed: int) -> Dataset:
    if data.source == "synthetic":
        return _synthetic(data, nodes, seed)
    return _from_files(data, nodes, seed)


@dataclass(frozen=True)
class SyntheticDataset:
    """Records are numbered node after node, the test records last."""

    data: Data
    seed: int
    features: int
    sizes: Ints
    test_records: int
    positives: Ints | None  # of each node, where the split is by label
    portable = True

    def shard(self, node: int) -> Shard:
        size = int(self.sizes[node])
        if self.positives is None:
            return synthetic.records(self.seed, self.features, size, node)
        positive = int(self.positives[node])
        return synthetic.records_by_label(self.seed, self.features, positive, size - positive, node)

    def test(self) -> Shard | None:
        if not self.test_records:
            return None
        return synthetic.records(self.seed, self.features, self.test_records, 0, Purpose.TEST_RECORDS)

    def node_of_record(self) -> Ints:
        owners = np.append(np.arange(len(self.sizes)), splits.TEST)
        return np.repeat(owners, np.append(self.sizes, self.test_records))


def _synthetic(data: Data, nodes: int, seed: int) -> SyntheticDataset:
    records, features = int(data.records or 0), int(data.features or 0)
    training = splits.train_count(data, records)
    sizes = splits.shard_sizes(data, training, nodes, seed)
    positives = None
    if data.split == "by-label":
        # What dealing POSITIVE * training positive labels out of one hat would give each node.
        ordered = splits.label_ordered_counts(data, sizes)
        last = np.cumsum(ordered)
        negatives = round((1 - synthetic.POSITIVE) * last[-1])
        in_order = np.clip(last - negatives, 0, ordered)
        positives = in_order + np.rint(synthetic.POSITIVE * (sizes - ordered)).astype(np.int64)
    return SyntheticDataset(data, seed, features, sizes, records - training, positives)


@dataclass(frozen=True)
class FileDataset:
    """All records of the files, in the memory of rank 0."""

    records: Shard
    owners: Ints  # node of each record in `records`
    given_test: Shard | None
    features: int
    sizes: Ints
    portable = False

    def shard(self, node: int) -> Shard:
        return self.records.rows(np.flatnonzero(self.owners == node))

    def test(self) -> Shard | None:
        if self.given_test is not None:
            return self.given_test
        index = np.flatnonzero(self.owners == splits.TEST)
        return self.records.rows(index) if len(index) else None

    def node_of_record(self) -> Ints:
        """Records in the order of the files, a given test file after the training file."""
        extra = 0 if self.given_test is None else self.given_test.records
        return np.append(self.owners, np.full(extra, splits.TEST, dtype=np.int64))


def _from_files(data: Data, nodes: int, seed: int) -> FileDataset:
    records, test = files.read(data)
    validate(records, f"data.path: {data.path}")
    if test is not None:
        validate(test, f"data.test_path: {data.test_path}")
    owners, sizes = splits.deal(data, records.y, nodes, seed)
    return FileDataset(records, owners, test, records.features, sizes)
