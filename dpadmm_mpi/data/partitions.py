"""How records are spread: which are for training, how many each node gets, and which ones."""

from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np

from dpadmm_mpi.config.options import Count, FilePath, Options, Positive, Probability
from dpadmm_mpi.data.bounded import text
from dpadmm_mpi.errors import InputError
from dpadmm_mpi.registry import Registry, is_inside, place_of
from dpadmm_mpi.rng import Generator, Purpose, generator
from dpadmm_mpi.types import Array, Bools, Ints

TEST = -1  # in node_of_record
DEFAULT_TRAIN = 0.8  # of the records, where no test file is given
MANY_LABELS = 1000  # so many different ones are a number that is to be predicted, and no classes

partitions = Registry["Partition"]("partition", "partitions")


class Traits(NamedTuple):
    """What a partition may know of some records."""

    labels: Array
    numbers: Ints | None = None  # of the records in their files, counted from 0, also of those that a step removed
    groups: Ints | None = None  # by the column that the partition names, or the file that a record is from
    group_names: tuple[str, ...] = ()

    def of(self, records: Ints | slice) -> "Traits":
        numbers, groups = (None if part is None else part[records] for part in (self.numbers, self.groups))
        return Traits(self.labels[records], numbers, groups, self.group_names)


@partitions.base
class Partition(Options):
    """How many training records each node gets, and which ones."""

    fixed_total: ClassVar[bool] = False  # the options say how many training records there are
    by_labels_alone: ClassVar[bool] = False  # `spread` looks at labels alone, so that synthetic records can be made for it

    @property
    def group_column(self) -> str | None:
        """The column that decides on the node; it is no feature then."""
        return None

    def total(self) -> int | None:
        """The number of training records, where the options fix it."""
        return None

    def shard_sizes(self, records: int, nodes: int, rng: Generator) -> Ints:
        """Training records per node, at least one each; evenly, unless a class says otherwise."""
        return apportion(np.full(nodes, 1.0 / nodes), records)

    def ordered(self, sizes: Ints) -> Ints:
        """How many of each node's records are dealt in order of their labels; none, unless a class says otherwise."""
        return np.zeros_like(sizes)

    def deal(self, labels: Array, sizes: Ints) -> Ints:
        """The node of each training record, given their labels; the records come in random order.

        A class that deals otherwise takes records from files only: synthetic ones are made node by node.
        """
        ordered, nodes = self.ordered(sizes), np.arange(len(sizes))
        first = int(ordered.sum())
        node_of = np.empty(len(labels), dtype=np.int64)
        node_of[np.argsort(labels[:first], kind="stable")] = np.repeat(nodes, ordered)
        node_of[first:] = np.repeat(nodes, sizes - ordered)
        return node_of

    def training(self, records: Traits) -> Bools | None:
        """Which of all records are for training, where the partition itself says so."""
        return None

    def spread(self, records: Traits, nodes: int, rng: Generator) -> Ints:
        """The node of each training record; the records come in random order.

        `shard_sizes` and `deal` unless a class decides on sizes and records at once; then every node needs a record.
        """
        sizes = _checked_sizes(self, self.shard_sizes(len(records.labels), nodes, rng), len(records.labels), nodes)
        return _checked_deal(self, np.asarray(self.deal(records.labels, sizes)), sizes)


@partitions.register("even")
class Even(Partition):
    """Every node gets as many records as the others, at random."""


@partitions.register("uneven")
class Uneven(Partition):
    """Sizes from a Dirichlet law; a smaller `concentration` is more uneven."""

    concentration: Positive = 1.0  # small is more uneven

    def shard_sizes(self, records: int, nodes: int, rng: Generator) -> Ints:
        weights = rng.dirichlet(np.full(nodes, self.concentration))
        return 1 + apportion(weights, records - nodes)  # nobody is empty


@partitions.register("by-label")
class ByLabel(Partition):
    """A share `skew` of each shard is dealt in order of the labels: 0 at random, 1 sorted."""

    skew: Probability = 0.5  # share of each shard that is dealt in order of the labels

    def ordered(self, sizes: Ints) -> Ints:
        return np.rint(self.skew * sizes).astype(np.int64)


@partitions.register("sizes")
class Sizes(Partition):
    """As many records for each node as `sizes` says, at random."""

    fixed_total: ClassVar[bool] = True

    sizes: list[Count]  # training records of each node

    def total(self) -> int | None:
        return sum(self.sizes)

    def shard_sizes(self, records: int, nodes: int, rng: Generator) -> Ints:
        if len(self.sizes) != nodes:
            raise InputError(f"data.sizes: found {len(self.sizes)} sizes; one per node is needed, {nodes}")
        if sum(self.sizes) != records:
            raise InputError(f"data.sizes: they add up to {sum(self.sizes)}, but {records} records are for training")
        return np.asarray(self.sizes, dtype=np.int64)


@partitions.register("stratified")
class Stratified(Partition):
    """Every node gets as many records of each label as the others, give or take one."""

    by_labels_alone: ClassVar[bool] = True

    def spread(self, records: Traits, nodes: int, rng: Generator) -> Ints:
        node_of = np.empty(len(records.labels), dtype=np.int64)
        node_of[np.argsort(records.labels, kind="stable")] = np.arange(len(node_of)) % nodes
        return node_of


@partitions.register("dirichlet")
class Dirichlet(Partition):
    """Each label is spread over the nodes by a Dirichlet law: a small `concentration` is more skew, a large one less.

    A node that would be empty gets one record, at random, of those that have more.
    """

    by_labels_alone: ClassVar[bool] = True

    concentration: Positive = 0.5  # small is more skew

    def spread(self, records: Traits, nodes: int, rng: Generator) -> Ints:
        labels, label_of = np.unique(records.labels, return_inverse=True)
        if len(labels) > MANY_LABELS:
            raise InputError(
                f'data.split: "dirichlet" deals each label by itself, but there are {len(labels)} different ones; use '
                '"shards", "stratified" or "even"'
            )
        node_of = np.empty(len(label_of), dtype=np.int64)
        for label in range(len(labels)):
            mine = np.flatnonzero(label_of == label)
            shares = rng.dirichlet(np.full(nodes, self.concentration))
            node_of[mine] = np.repeat(np.arange(nodes), apportion(shares, len(mine)))
        return _nobody_empty(node_of, nodes)


def _nobody_empty(node_of: Ints, nodes: int) -> Ints:
    """Records come in random order, so the first ones that can be spared are random ones."""
    occupied, first = np.unique(node_of, return_index=True)
    empty = np.setdiff1d(np.arange(nodes), occupied)
    spare = np.setdiff1d(np.arange(len(node_of)), first)[: len(empty)]
    node_of[spare] = empty
    return node_of


@partitions.register("shards")
class Shards(Partition):
    """Records sorted by label are cut into chunks of equal size, and each node gets `chunks` of them at random."""

    by_labels_alone: ClassVar[bool] = True

    chunks: Count = 2  # of each node; fewer are more skew

    def spread(self, records: Traits, nodes: int, rng: Generator) -> Ints:
        count, total = len(records.labels), nodes * self.chunks
        if count < total:
            raise InputError(f"data.chunks: {count} training records are too few for {total} chunks; use fewer chunks or nodes")
        node_of_chunk = rng.permutation(total) % nodes
        node_of = np.empty(count, dtype=np.int64)
        node_of[np.argsort(records.labels, kind="stable")] = np.repeat(
            node_of_chunk, apportion(np.full(total, 1.0 / total), count)
        )
        return node_of


class Grouped(Partition):
    """Every group of records is a node."""

    def spread(self, records: Traits, nodes: int, rng: Generator) -> Ints:
        assert records.groups is not None
        if records.groups.min() < 0:
            raise InputError("data.train: the records of the test file belong to no node; remove data.train")
        return records.groups

    def no_group(self) -> str:
        """Why there are no groups, and what to do, in a sentence."""
        raise NotImplementedError

    def wrong_number(self, found: int, nodes: int) -> str:
        """There are other groups than nodes, in a sentence."""
        raise NotImplementedError


@partitions.register("by-column")
class ByColumn(Grouped):
    """Every value of `column` is a node, in ascending order; the column is no feature then."""

    column: str  # whose values make the groups

    @property
    def group_column(self) -> str | None:
        return self.column

    def no_group(self) -> str:
        return f'data.column: the records have no column "{self.column}"; use a table with named columns'

    def wrong_number(self, found: int, nodes: int) -> str:
        return f'data.column: "{self.column}" has {found} different values, but there are {nodes} nodes; use {found} nodes'


@partitions.register("by-file")
class ByFile(Grouped):
    """Every file that `path`, as in "node-*.csv", names is a node, in the order of the numbers in their names."""

    def no_group(self) -> str:
        return 'data.split: "by-file" needs a pattern that names a file for each node, as in path = "node-*.csv"'

    def wrong_number(self, found: int, nodes: int) -> str:
        return f"data.path: there are {found} files, but {nodes} nodes; use {found} nodes"


@partitions.register("node-file")
class NodeFile(Partition):
    """`node_file` has the number of a node for each record, -1 for testing: one per line, or what `data partition` writes."""

    node_file: FilePath  # a file with the node of each record, one per line

    def training(self, records: Traits) -> Bools | None:
        for_training = self._node_of(records) != TEST
        return None if for_training.all() else for_training

    def spread(self, records: Traits, nodes: int, rng: Generator) -> Ints:
        node_of = self._node_of(records)
        if node_of.max(initial=0) >= nodes:
            raise InputError(
                f"data.node_file: {self.node_file} has node {node_of.max()}, but there are {nodes} nodes, counted from 0; "
                "use more nodes"
            )
        return node_of

    def _node_of(self, records: Traits) -> Ints:
        assert records.numbers is not None
        table = self._table(int(records.numbers.max(initial=-1)))
        missing = records.numbers[records.numbers >= len(table)]
        found = table[np.minimum(records.numbers, len(table) - 1)] if len(table) else missing
        if len(missing) or np.any(found < TEST):
            record = missing[0] if len(missing) else records.numbers[np.argmax(found < TEST)]
            raise InputError(f"data.node_file: {self.node_file} has no node for record {record}, counted from 0; add it")
        return found

    def _table(self, last: int) -> Ints:
        """The node of each record in the files, up to the number `last`; below TEST where nothing is said."""
        path = Path(self.node_file)
        lines = text(path, "data.node_file").split()
        pairs = bool(lines) and lines[0] == PARTITION_HEADER
        try:
            if not pairs:
                return np.array(lines, dtype=np.int64)
            record, node = np.array([line.split(",") for line in lines[1:]], dtype=np.int64).reshape(-1, 2).T
        except (ValueError, OverflowError):
            raise InputError(
                f'data.node_file: {path} must have a whole number per line, or the header "{PARTITION_HEADER}" and two of them'
            ) from None
        if record.min(initial=0) < 0:
            raise InputError(f"data.node_file: {path} has the record {record.min()}; they are counted from 0")
        table, named = np.full(last + 1, TEST - 1), record <= last
        table[record[named]] = node[named]
        return table


PARTITION_HEADER = "record,node"


class Division(NamedTuple):
    """What a configuration says about training, testing and the nodes' shares."""

    train: int | float | None  # records for training, a count or a fraction; None: as given, or most of them
    split: Partition

    def training(self, records: int) -> int:
        """How many of the records are for training."""
        wanted = self.split.total() if self.train is None else self.train
        wanted = DEFAULT_TRAIN if wanted is None else wanted
        count = wanted if isinstance(wanted, int) else round(wanted * records)
        if count > records:
            key = "data.sizes: they add up to" if self.split.fixed_total else "data.train: found"
            raise InputError(f"{key} {count}, but there are only {records} records")
        return count

    def sizes(self, records: int, nodes: int, seed: int) -> Ints:
        """Training records per node, where their sizes do not depend on what is in the records."""
        self._refuse_too_few(records, nodes)
        return _checked_sizes(self.split, self.split.shard_sizes(records, nodes, self._rng(seed)), records, nodes)

    def sizes_by_label(self, labels: Array, nodes: int, seed: int) -> tuple[Ints, Ints]:
        """(records, records with label +1) of each node, for training records with these labels."""
        self._refuse_too_few(len(labels), nodes)
        labels = generator(seed, Purpose.SPLIT, iteration=1).permutation(labels)
        node_of = self.split.spread(Traits(labels), nodes, self._rng(seed))
        return np.bincount(node_of, minlength=nodes), np.bincount(node_of[labels > 0], minlength=nodes)

    def deal(
        self, labels: Array, nodes: int, seed: int, given: int | None = None, traits: Traits | None = None
    ) -> tuple[Ints, Ints]:
        """(node_of_record, sizes) for records with these labels: a random training set, spread over the nodes.

        With a test file the first `given` records are for training, unless data.train asks for a random split of all of them.
        """
        records = self._traits(traits or Traits(labels), nodes, given if self.train is None else None)
        train = self._training_records(records, generator(seed, Purpose.SPLIT, iteration=1), given)
        self._refuse_too_few(len(train), nodes)
        dealt = _checked_spread(self.split, self.split.spread(records.of(train), nodes, self._rng(seed)), len(train), nodes)
        sizes = np.bincount(dealt, minlength=nodes)
        if sizes.min() < 1:
            empty = int(sizes.argmin())
            name = f' ("{records.group_names[empty]}")' if records.group_names else ""
            raise InputError(f"data: node {empty}{name} has no training record; use fewer nodes, or more records for training")
        node_of_record = np.full(len(labels), TEST, dtype=np.int64)
        node_of_record[train] = dealt
        return node_of_record, sizes

    def _traits(self, records: Traits, nodes: int, given: int | None) -> Traits:
        """With numbers, and groups that are nodes: those that occur among the records that may be for training, ascending."""
        if records.numbers is None:
            records = records._replace(numbers=np.arange(len(records.labels)))
        if not isinstance(self.split, Grouped):
            return records._replace(groups=None, group_names=())
        if records.groups is None:
            raise InputError(self.split.no_group())
        groups = records.groups[:given]
        present = np.unique(groups[groups >= 0])
        if len(present) != nodes:
            raise InputError(self.split.wrong_number(len(present), nodes))
        names = tuple(records.group_names[group] for group in present)
        node_of_group = np.where(records.groups < 0, -1, np.searchsorted(present, records.groups))
        return records._replace(groups=node_of_group, group_names=names)

    def _training_records(self, records: Traits, rng: Generator, given: int | None) -> Ints:
        """Their numbers, in random order."""
        chosen = self.split.training(records)
        if chosen is not None:
            if self.train is not None:
                raise InputError("data.train: data.node_file says which records are for testing; remove data.train")
            return rng.permutation(np.flatnonzero(chosen))
        if given is not None and self.train is None:
            return rng.permutation(given)
        return rng.permutation(len(records.labels))[: self.training(len(records.labels))]

    def _refuse_too_few(self, records: int, nodes: int) -> None:
        if records < nodes and not self.split.fixed_total:
            raise InputError(f"data: {records} training records leave some of the {nodes} nodes without any; use fewer nodes")

    @staticmethod
    def _rng(seed: int) -> Generator:
        return generator(seed, Purpose.SPLIT)


def _checked_sizes(split: Partition, sizes: Any, records: int, nodes: int) -> Ints:
    if not is_inside(type(split)):
        sizes = np.asarray(sizes)
        if sizes.shape != (nodes,) or sizes.dtype.kind not in "iu" or sizes.min() < 1 or sizes.sum() != records:
            raise InputError(
                f"{place_of(type(split))}: shard_sizes must return {nodes} whole numbers above 0 that add up to "
                f"{records}; found {sizes.tolist()}"
            )
    return np.asarray(sizes, dtype=np.int64)


def _checked_spread(split: Partition, node_of: Any, records: int, nodes: int) -> Ints:
    node_of = np.asarray(node_of)
    if node_of.shape != (records,) or node_of.dtype.kind not in "iu" or node_of.min() < 0 or node_of.max() >= nodes:
        raise InputError(f"{place_of(type(split))}: spread must return the number of a node for each of {records} records")
    return np.asarray(node_of, dtype=np.int64)


def _checked_deal(split: Partition, node_of: Ints, sizes: Ints) -> Ints:
    total = int(sizes.sum())
    if node_of.shape != (total,) or node_of.dtype.kind not in "iu" or node_of.min() < 0 or node_of.max() >= len(sizes):
        raise InputError(f"{place_of(type(split))}: deal must return the number of a node for each of {total} records")
    counts = np.bincount(node_of, minlength=len(sizes))
    if not np.array_equal(counts, sizes):
        name = partitions.name_of(type(split))
        raise InputError(
            f'data.split: "{name}" deals {counts.tolist()} records to the nodes, but their sizes are {sizes.tolist()}'
        )
    return node_of


def apportion(weights: Array, total: int) -> Ints:
    """Whole numbers that add up to total, as near to the weights as can be; ties to the lower node."""
    shares = weights * total
    counts = np.floor(shares).astype(np.int64)
    short = total - int(counts.sum())
    counts[np.argsort(-(shares - counts), kind="stable")[:short]] += 1
    return counts
