"""How records are spread: which are for training, how many each node gets, and which ones."""

import numpy as np
from numpy.typing import NDArray

from dpadmm_mpi.config.options import DEFAULT_TRAIN, Data
from dpadmm_mpi.errors import InputError
from dpadmm_mpi.rng import Purpose, generator

Ints = NDArray[np.int64]

TEST = -1  # in node_of_record


def train_count(data: Data, records: int) -> int:
    """How many of the records are for training."""
    wanted: int | float
    if data.sizes is not None and data.train is None:
        wanted = sum(data.sizes)
    else:
        wanted = DEFAULT_TRAIN if data.train is None else data.train
    count = wanted if isinstance(wanted, int) else round(wanted * records)
    if count > records:
        key = "data.sizes: they add up to" if data.sizes is not None else "data.train: found"
        raise InputError(f"{key} {count}, but there are only {records} records")
    return count


def shard_sizes(data: Data, records: int, nodes: int, seed: int) -> Ints:
    """Training records per node."""
    if data.sizes is not None:
        if len(data.sizes) != nodes:
            raise InputError(f"data.sizes: found {len(data.sizes)} sizes; one per node is needed, {nodes}")
        if sum(data.sizes) != records:
            raise InputError(f"data.sizes: they add up to {sum(data.sizes)}, but {records} records are for training")
        return np.asarray(data.sizes, dtype=np.int64)
    if records < nodes:
        raise InputError(f"data: {records} training records leave some of the {nodes} nodes without any; use fewer nodes")
    if data.split == "uneven":
        weights = generator(seed, Purpose.SPLIT).dirichlet(np.full(nodes, data.concentration))
        return 1 + _apportion(weights, records - nodes)  # nobody is empty
    return _apportion(np.full(nodes, 1.0 / nodes), records)


def deal(data: Data, labels: NDArray[np.float64], nodes: int, seed: int, given: int | None = None) -> tuple[Ints, Ints]:
    """(node_of_record, sizes) for records with these labels: a random training set, spread over the nodes.

    With a test file the first `given` records are for training, unless data.train asks for a random split of all of them.
    """
    rng = generator(seed, Purpose.SPLIT, iteration=1)
    if given is not None and data.train is None:
        train = rng.permutation(given)
    else:
        train = rng.permutation(len(labels))[: train_count(data, len(labels))]
    sizes = shard_sizes(data, len(train), nodes, seed)
    node_of_record = np.full(len(labels), TEST, dtype=np.int64)
    in_label_order = label_ordered_counts(data, sizes)
    pool, rest = np.split(train, [in_label_order.sum()])
    pool = pool[np.argsort(labels[pool], kind="stable")]
    node_of_record[pool] = np.repeat(np.arange(nodes), in_label_order)
    node_of_record[rest] = np.repeat(np.arange(nodes), sizes - in_label_order)
    return node_of_record, sizes


def label_ordered_counts(data: Data, sizes: Ints) -> Ints:
    """How many of each node's records are dealt in order of their labels; 0 unless the split is by label."""
    skew = data.skew if data.split == "by-label" and data.skew is not None else 0.0
    return np.rint(skew * sizes).astype(np.int64)


def _apportion(weights: NDArray[np.float64], total: int) -> Ints:
    """Whole numbers that add up to total, as near to the weights as can be; ties to the lower node."""
    shares = weights * total
    counts = np.floor(shares).astype(np.int64)
    short = total - int(counts.sum())
    counts[np.argsort(-(shares - counts), kind="stable")[:short]] += 1
    return counts
