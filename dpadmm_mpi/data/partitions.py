"""How records are spread: which are for training, how many each node gets, and which ones."""

from typing import Any, ClassVar, NamedTuple

import numpy as np

from dpadmm_mpi.config.options import Count, Options, Positive, Probability
from dpadmm_mpi.errors import InputError
from dpadmm_mpi.registry import Registry, is_inside, place_of
from dpadmm_mpi.rng import Generator, Purpose, generator
from dpadmm_mpi.types import Array, Ints

TEST = -1  # in node_of_record
DEFAULT_TRAIN = 0.8  # of the records, where no test file is given

partitions = Registry["Partition"]("partition", "partitions")


@partitions.base
class Partition(Options):
    """How many training records each node gets, and which ones."""

    fixed_total: ClassVar[bool] = False  # the options say how many training records there are

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


@partitions.register("even")
class Even(Partition):
    """Every node gets as many records as the others, at random."""


@partitions.register("uneven")
class Uneven(Partition):
    """Sizes from a Dirichlet law; a smaller `concentration` is more uneven."""

    concentration: Positive = 1.0

    def shard_sizes(self, records: int, nodes: int, rng: Generator) -> Ints:
        weights = rng.dirichlet(np.full(nodes, self.concentration))
        return 1 + apportion(weights, records - nodes)  # nobody is empty


@partitions.register("by-label")
class ByLabel(Partition):
    """A share `skew` of each shard is dealt in order of the labels: 0 at random, 1 sorted."""

    skew: Probability = 0.5

    def ordered(self, sizes: Ints) -> Ints:
        return np.rint(self.skew * sizes).astype(np.int64)


@partitions.register("sizes")
class Sizes(Partition):
    """As many records for each node as `sizes` says, at random."""

    fixed_total: ClassVar[bool] = True

    sizes: list[Count]

    def total(self) -> int | None:
        return sum(self.sizes)

    def shard_sizes(self, records: int, nodes: int, rng: Generator) -> Ints:
        if len(self.sizes) != nodes:
            raise InputError(f"data.sizes: found {len(self.sizes)} sizes; one per node is needed, {nodes}")
        if sum(self.sizes) != records:
            raise InputError(f"data.sizes: they add up to {sum(self.sizes)}, but {records} records are for training")
        return np.asarray(self.sizes, dtype=np.int64)


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
        """Training records per node."""
        if records < nodes and not self.split.fixed_total:
            raise InputError(f"data: {records} training records leave some of the {nodes} nodes without any; use fewer nodes")
        return self._checked_sizes(self.split.shard_sizes(records, nodes, generator(seed, Purpose.SPLIT)), records, nodes)

    def _checked_sizes(self, sizes: Any, records: int, nodes: int) -> Ints:
        if not is_inside(type(self.split)):
            sizes = np.asarray(sizes)
            if sizes.shape != (nodes,) or sizes.dtype.kind not in "iu" or sizes.min() < 1 or sizes.sum() != records:
                raise InputError(
                    f"{place_of(type(self.split))}: shard_sizes must return {nodes} whole numbers above 0 that add up to "
                    f"{records}; found {sizes.tolist()}"
                )
        return np.asarray(sizes, dtype=np.int64)

    def deal(self, labels: Array, nodes: int, seed: int, given: int | None = None) -> tuple[Ints, Ints]:
        """(node_of_record, sizes) for records with these labels: a random training set, spread over the nodes.

        With a test file the first `given` records are for training, unless data.train asks for a random split of all of them.
        """
        rng = generator(seed, Purpose.SPLIT, iteration=1)
        if given is not None and self.train is None:
            train = rng.permutation(given)
        else:
            train = rng.permutation(len(labels))[: self.training(len(labels))]
        sizes = self.sizes(len(train), nodes, seed)
        node_of_record = np.full(len(labels), TEST, dtype=np.int64)
        node_of_record[train] = self._checked(np.asarray(self.split.deal(labels[train], sizes)), sizes)
        return node_of_record, sizes

    def _checked(self, node_of: Ints, sizes: Ints) -> Ints:
        total = int(sizes.sum())
        if node_of.shape != (total,) or node_of.dtype.kind not in "iu" or node_of.min() < 0 or node_of.max() >= len(sizes):
            raise InputError(f"{place_of(type(self.split))}: deal must return the number of a node for each of {total} records")
        counts = np.bincount(node_of, minlength=len(sizes))
        if not np.array_equal(counts, sizes):
            name = partitions.name_of(type(self.split))
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
