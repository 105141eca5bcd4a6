"""A configuration's data: sizes and addresses on rank 0; shards by address on any rank."""

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any, Protocol, TypeVar

import numpy as np
from msgspec import Struct

from dpadmm_mpi.data import synthetic
from dpadmm_mpi.data.partitions import PARTITION_HEADER, TEST
from dpadmm_mpi.data.records import SIGNS, Target
from dpadmm_mpi.data.shard import Shard, portions
from dpadmm_mpi.data.statistics import Counting, Statistics
from dpadmm_mpi.data.store import Store
from dpadmm_mpi.rng import Purpose
from dpadmm_mpi.types import Array, Ints

TEST_BLOCK = 4096  # test records are looked at in blocks of this many, the same ones on every layout
TEST_IN_MEMORY = 256 << 20  # bytes of test records that rank 0 keeps; more are read again each time
STATISTICS_NUMBERS = 1 << 26  # features times records up to which the nodes' means are taken: they cost a pass over the store
STATISTICS_MADE = 1 << 20  # ... of synthetic records, which have to be made for it
STATISTICS_BLOCK = 1 << 20  # numbers at a time

PORTION = 1 << 20  # numbers of many small shards that are read at a time,
PASSES = 16  # or more, so that no more passes over the store are needed

A = TypeVar("A")  # an address: what a loader needs to make a node's shard; small
A_in = TypeVar("A_in", contravariant=True)


class Loader(Protocol[A_in]):
    """Small and picklable: makes a shard of its address on any rank."""

    def shard(self, address: A_in) -> Shard: ...


def shards_of(loader: Loader[A], addresses: Sequence[A]) -> Iterator[Shard]:
    """The shards in the order of their addresses; a loader may have a faster way to make many of them."""
    many: Callable[[Sequence[A]], Iterator[Shard]] | None = getattr(loader, "shards", None)
    return map(loader.shard, addresses) if many is None else many(addresses)


class TestSet(Protocol):
    @property
    def records(self) -> int: ...

    def blocks(self) -> Iterator[Shard]: ...


class Dataset(Protocol[A]):
    """What rank 0 knows of the data."""

    @property
    def loader(self) -> Loader[A]: ...

    @property
    def features(self) -> int: ...

    @property
    def sizes(self) -> Ints:
        """Training records of each node."""
        ...

    def address(self, node: int) -> A:
        """What the loader needs to make the node's shard."""
        ...

    def sample(self, count: int) -> Shard:
        """A few records of node 0, to look at."""
        ...

    def test(self) -> TestSet | None: ...

    def node_of_record(self) -> Ints: ...

    def description(self) -> dict[str, Any]:
        """Where the records come from and what was done to them, for the record."""
        ...

    def feature_names(self) -> list[str] | None: ...


def target_of(dataset: Any) -> Target:
    """What the labels are; two classes, -1 and +1, where a data set does not say."""
    found: Target = getattr(dataset, "target", SIGNS)
    return found


def statistics_of(dataset: Any) -> Statistics | None:
    """How the nodes' records differ; None where the data set does not say, or it would take long."""
    found = getattr(dataset, "statistics", None)
    return None if found is None else found()


def same_records(dataset: Any, other: Any) -> bool:
    """Whether two data sets have the same records, at the same nodes; False where the first does not say."""
    is_like: Callable[[Any], bool] | None = getattr(dataset, "is_like", None)
    return is_like is not None and is_like(other)


def partition_table(dataset: Dataset[Any]) -> str:
    """CSV that says which node has each record, with the numbers that records have in their files."""
    nodes = dataset.node_of_record()
    numbers = dataset.record_numbers() if isinstance(dataset, StoredDataset) else np.arange(len(nodes))
    lines = [f"{record},{node}" for record, node in zip(numbers.tolist(), nodes.tolist(), strict=True)]
    return "\n".join([PARTITION_HEADER, *lines]) + "\n"


def notes_of(dataset: Any, private: bool) -> list[str]:
    """What the user should know about the records."""
    notes = list(getattr(dataset, "notes", list)())
    leaks: list[str] = getattr(dataset, "leaks", list)() if private else []
    return notes + [
        f"preprocessing takes from the records without noise, which no privacy account counts, {leak}" for leak in leaks
    ]


class InMemory(Struct, frozen=True, dict=True):
    """Test records that fit."""

    shard: Shard

    @property
    def records(self) -> int:
        return self.shard.records

    @cached_property
    def _blocks(self) -> list[Shard]:
        parts = [slice(first, first + TEST_BLOCK) for first in range(0, self.records, TEST_BLOCK)]
        return [Shard(self.shard.X[part], self.shard.y[part]) for part in parts]

    def blocks(self) -> Iterator[Shard]:
        return iter(self._blocks)


class OnDisk(Struct, frozen=True):
    """Test records that are read block by block, each time."""

    store: Store
    index: Ints

    @property
    def records(self) -> int:
        return len(self.index)

    def blocks(self) -> Iterator[Shard]:
        for first in range(0, self.records, TEST_BLOCK):
            yield self.store.read(self.index[first : first + TEST_BLOCK])


class SyntheticLoader(Struct, frozen=True):
    seed: int
    features: int

    def shard(self, address: tuple[int, int, int | None]) -> Shard:
        node, size, positive = address
        if positive is None:
            return synthetic.records(self.seed, self.features, size, node)
        return synthetic.records_by_label(self.seed, self.features, positive, size - positive, node)

    def shards(self, addresses: Sequence[tuple[int, int, int | None]]) -> Iterator[Shard]:
        if not addresses or addresses[0][2] is not None:
            return map(self.shard, addresses)
        nodes, counts = np.array([address[:2] for address in addresses]).T
        return synthetic.records_of_nodes(self.seed, self.features, nodes, counts)


class SyntheticDataset(Struct, frozen=True):
    """Records are numbered node after node, the test records last."""

    loader: SyntheticLoader
    sizes: Ints
    test_records: int
    positives: Ints | None  # of each node, where the split is by label

    @property
    def features(self) -> int:
        return self.loader.features

    def address(self, node: int) -> tuple[int, int, int | None]:
        return node, int(self.sizes[node]), None if self.positives is None else int(self.positives[node])

    def sample(self, count: int) -> Shard:
        return self.loader.shard((0, count, None))

    def test(self) -> TestSet | None:
        if not self.test_records:
            return None
        return InMemory(synthetic.records(self.loader.seed, self.features, self.test_records, 0, Purpose.TEST_RECORDS))

    def node_of_record(self) -> Ints:
        owners = np.append(np.arange(len(self.sizes)), TEST)
        return np.repeat(owners, np.append(self.sizes, self.test_records))

    def is_like(self, other: Any) -> bool:
        return (
            isinstance(other, SyntheticDataset)
            and (self.loader, self.test_records) == (other.loader, other.test_records)
            and np.array_equal(self.sizes, other.sizes)
            and np.array_equal(np.asarray(self.positives), np.asarray(other.positives))
        )

    def statistics(self) -> Statistics | None:
        if self.sizes.sum() * self.features > STATISTICS_MADE:
            return None
        count = Counting(len(self.sizes), self.features)
        for node in range(len(self.sizes)):
            shard = self.loader.shard(self.address(node))
            count.add(np.full(shard.records, node), shard.y, shard.X)
        return count.statistics()

    def description(self) -> dict[str, Any]:
        return {"source": "synthetic"}

    def feature_names(self) -> list[str] | None:
        return None


def synthetic_labels(records: int) -> Array:
    """The labels that a partition by labels deals: a share POSITIVE of +1. Records are then made to fit."""
    return np.where(np.arange(records) < round(synthetic.POSITIVE * records), 1.0, -1.0)


def synthetic_positives(ordered: Ints, sizes: Ints) -> Ints:
    """Positive labels of each node: what dealing POSITIVE of all training labels out of one hat would give it."""
    last = np.cumsum(ordered)
    negatives = round((1 - synthetic.POSITIVE) * last[-1])
    in_order = np.clip(last - negatives, 0, ordered)
    return np.asarray(in_order + np.rint(synthetic.POSITIVE * (sizes - ordered)).astype(np.int64))


class StoreLoader(Struct, frozen=True):
    store: Store

    def shard(self, address: Ints) -> Shard:
        return self.store.read(address)

    def shards(self, addresses: Sequence[Ints]) -> Iterator[Shard]:
        """Those of many small nodes by a few passes over the store."""
        sizes = np.array([len(address) for address in addresses], dtype=np.int64) * self.store.meta.features
        for some in portions(sizes, max(PORTION, int(sizes.sum()) // PASSES)):
            if some.stop - some.start == 1:
                yield self.store.read(addresses[some.start])
                continue
            rows = np.concatenate(addresses[some])
            ascending = np.argsort(rows)
            place = np.empty_like(ascending)
            place[ascending] = np.arange(len(rows))
            records, ends = self.store.read(rows[ascending]), np.cumsum([0, *map(len, addresses[some])])
            for first, last in pairwise(ends.tolist()):
                yield records.rows(place[first:last])


class StoredDataset(Struct, frozen=True, dict=True):
    """Records in a store on disk; an address is a list of their numbers."""

    source: str
    store: Store
    owners: Ints  # node of each record
    sizes: Ints
    node_names: list[str] | None = None  # where nodes are groups of records

    @property
    def loader(self) -> StoreLoader:
        return StoreLoader(self.store)

    @property
    def features(self) -> int:
        return self.store.meta.features

    @property
    def target(self) -> Target:
        return self.store.meta.target

    @cached_property
    def _by_node(self) -> list[Ints]:
        """The records of test, node 0, node 1, ..., each ascending."""
        order = np.argsort(self.owners, kind="stable")
        return np.split(order, np.cumsum(np.bincount(self.owners + 1, minlength=len(self.sizes) + 1))[:-1])

    def address(self, node: int) -> Ints:
        return self._by_node[node + 1]

    def sample(self, count: int) -> Shard:
        return self.store.read(self.address(0)[:count])

    def is_like(self, other: Any) -> bool:
        return (
            isinstance(other, StoredDataset)
            and (self.source, self.store, self.node_names) == (other.source, other.store, other.node_names)
            and np.array_equal(self.owners, other.owners)
        )

    def test(self) -> TestSet | None:
        return self._test

    @cached_property
    def _test(self) -> TestSet | None:
        index = self._by_node[0]
        if not len(index):
            return None
        if 8 * len(index) * self.features <= TEST_IN_MEMORY:
            return InMemory(self.store.read(index))
        return OnDisk(self.store, index)

    def node_of_record(self) -> Ints:
        return self.owners

    def record_numbers(self) -> Ints:
        """Of the records in their files, counted from 0: other ones than here where a step dropped some."""
        numbers = self.store.traits().numbers
        return np.arange(len(self.owners)) if numbers is None else numbers

    def description(self) -> dict[str, Any]:
        meta = self.store.meta
        files = [f"{name} sha256 {digest}" for name, digest in meta.files.items()]
        names = {} if self.node_names is None else {"node_names": self.node_names}
        target: dict[str, Any] = {"target": meta.target.kind, "classes": list(meta.target.classes)}
        if meta.target.kind == "number":
            target = {"target": "number", "target_centre": meta.target.centre, "target_scale": meta.target.scale}
        return {"source": self.source, "files": files, "preprocessing": meta.steps or ["none"], **names, **target}

    def statistics(self) -> Statistics:
        return self._statistics

    @cached_property
    def _statistics(self) -> Statistics:
        count = Counting(len(self.sizes), self.features)
        labels, step = self.store.labels(), max(1, STATISTICS_BLOCK // self.features)
        with_means = self.store.meta.records * self.features <= STATISTICS_NUMBERS
        for first in range(0, len(labels), step):
            block = np.arange(first, min(first + step, len(labels)))
            block = block[self.owners[block] != TEST]
            count.add(self.owners[block], labels[block], self.store.read(block).X if with_means else None)
        return count.statistics()

    def notes(self) -> list[str]:
        return self.store.meta.warnings

    def leaks(self) -> list[str]:
        return self.store.meta.learned

    def feature_names(self) -> list[str] | None:
        return self.store.meta.names
