"""Adult-like records from a known classifier, made per node by address: a rank makes only its own shards.

One-hot groups with the sizes and the uneven frequencies of Adult's categorical attributes, a few continuous columns
in [0, 1], rows scaled to norm at most 1, about a quarter of the labels positive. y = +1 has the probability
1 / (1 + exp(-(SHARPNESS w.x + OFFSET))), so the classifier w is known and the labels are noisy.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

import numpy as np

from dpadmm_mpi.data.shard import Shard, portions, row_norms
from dpadmm_mpi.errors import InputError
from dpadmm_mpi.rng import Generator, Purpose, generator, generators
from dpadmm_mpi.types import Array, Ints

ADULT_GROUPS = (8, 16, 7, 14, 6, 5, 2, 41)  # categories of Adult's categorical attributes; 6 continuous ones make 105
SHARPNESS, OFFSET = 3.0, -2.0
POSITIVE = 0.25  # share of positive labels that a label-skewed split assumes
BLOCK = 256
PORTION = 1 << 20  # numbers that are made at a time, for one node or many
BLOCKS = 10_000  # tried for a rare label before giving up


def classifier(seed: int, features: int) -> Array:
    """The weights w behind the labels."""
    return generator(seed, Purpose.CLASSIFIER).standard_normal(features)


def groups(features: int) -> list[int]:
    """Sizes of the one-hot groups; the columns left over are continuous and come last."""
    categories = features - max(1, round(features * 6 / 105))
    sizes: list[int] = []
    while sum(sizes) < categories:
        sizes.append(min(ADULT_GROUPS[len(sizes) % len(ADULT_GROUPS)], categories - sum(sizes)))
    return sizes


def records(seed: int, features: int, count: int, node: int, purpose: Purpose = Purpose.RECORDS) -> Shard:
    """`count` records of one node."""
    return _draw(classifier(seed, features), [count], [generator(seed, purpose, node=node)])[0]


def records_of_nodes(seed: int, features: int, nodes: Ints, counts: Ints) -> Iterator[Shard]:
    """`counts` records of each of the nodes, node after node."""
    w, rngs = classifier(seed, features), generators(seed, Purpose.RECORDS, range(1), nodes, 0)
    for some in portions(counts * features, PORTION):
        yield from _draw(w, counts[some].tolist(), rngs)


def records_by_label(seed: int, features: int, positive: int, negative: int, node: int) -> Shard:
    """Records of one node with given numbers of labels: the first ones of each label that its stream brings."""
    rng, w = generator(seed, Purpose.RECORDS, node=node), classifier(seed, features)
    wanted, kept = {1.0: positive, -1.0: negative}, []
    for _ in range(BLOCKS):
        [block] = _draw(w, [BLOCK], [rng])
        index = np.concatenate([np.flatnonzero(block.y == label)[: wanted[label]] for label in wanted])
        kept.append(block.rows(np.sort(index)))
        for label in wanted:
            wanted[label] -= int(np.sum(kept[-1].y == label))
        if not any(wanted.values()):
            return Shard(np.concatenate([part.X for part in kept]), np.concatenate([part.y for part in kept]))
    raise InputError(f"data.features: with {features} synthetic features one label is too rare to split by label; use more")


def _draw(w: Array, counts: Sequence[int], rngs: Iterable[Generator]) -> list[Shard]:
    """Records of several nodes, with a generator for each; what does not draw is done for all of them at once."""
    sizes, rows = groups(len(w)), [slice(*ends) for ends in pairwise(np.cumsum([0, *counts]).tolist())]
    total, continuous = sum(counts), sum(sizes)
    X, category, label = np.zeros((total, len(w))), np.empty((len(sizes), total)), np.empty(total)
    for some, rng in zip(rows, rngs, strict=False):
        category[:, some] = rng.random((len(sizes), some.stop - some.start))
        X[some, continuous:] = rng.beta(2.0, 5.0, size=(some.stop - some.start, len(w) - continuous))
        rng.random(out=label[some])
    column = 0
    for size, drawn in zip(sizes, category, strict=True):
        frequency = 1.0 / np.arange(1, size + 1)
        share = np.cumsum(frequency / frequency.sum())
        X[np.arange(total), column + np.searchsorted(share / share[-1], drawn, side="right")] = 1.0
        column += size
    X /= np.maximum(row_norms(X), 1.0)[:, None]
    margin = np.empty(total)
    for some in rows:  # node by node: how BLAS adds up a row may depend on the rows around it
        margin[some] = X[some] @ w
    probability = 1.0 / (1.0 + np.exp(-(SHARPNESS * margin + OFFSET)))
    y = np.where(label < probability, 1.0, -1.0)
    return [Shard(X[some], y[some]) for some in rows]
