"""Adult-like records from a known classifier, made per node by address: a rank makes only its own shards.

One-hot groups with the sizes and the uneven frequencies of Adult's categorical attributes, a few continuous columns
in [0, 1], rows scaled to norm at most 1, about a quarter of the labels positive. y = +1 has the probability
1 / (1 + exp(-(SHARPNESS w.x + OFFSET))), so the classifier w is known and the labels are noisy.
"""

import numpy as np

from dpadmm_mpi.data.shard import Shard, row_norms
from dpadmm_mpi.errors import InputError
from dpadmm_mpi.rng import Generator, Purpose, generator
from dpadmm_mpi.types import Array

ADULT_GROUPS = (8, 16, 7, 14, 6, 5, 2, 41)  # categories of Adult's categorical attributes; 6 continuous ones make 105
SHARPNESS, OFFSET = 3.0, -2.0
POSITIVE = 0.25  # share of positive labels that a label-skewed split assumes
BLOCK = 256
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
    return _draw(generator(seed, purpose, node=node), classifier(seed, features), count)


def records_by_label(seed: int, features: int, positive: int, negative: int, node: int) -> Shard:
    """Records of one node with given numbers of labels: the first ones of each label that its stream brings."""
    rng, w = generator(seed, Purpose.RECORDS, node=node), classifier(seed, features)
    wanted, kept = {1.0: positive, -1.0: negative}, []
    for _ in range(BLOCKS):
        block = _draw(rng, w, BLOCK)
        index = np.concatenate([np.flatnonzero(block.y == label)[: wanted[label]] for label in wanted])
        kept.append(block.rows(np.sort(index)))
        for label in wanted:
            wanted[label] -= int(np.sum(kept[-1].y == label))
        if not any(wanted.values()):
            return Shard(np.concatenate([part.X for part in kept]), np.concatenate([part.y for part in kept]))
    raise InputError(f"data.features: with {features} synthetic features one label is too rare to split by label; use more")


def _draw(rng: Generator, w: Array, count: int) -> Shard:
    X = np.zeros((count, len(w)))
    column = 0
    for size in groups(len(w)):
        frequency = 1.0 / np.arange(1, size + 1)
        category = rng.choice(size, size=count, p=frequency / frequency.sum())
        X[np.arange(count), column + category] = 1.0
        column += size
    X[:, column:] = rng.beta(2.0, 5.0, size=(count, len(w) - column))
    X /= np.maximum(row_norms(X), 1.0)[:, None]
    probability = 1.0 / (1.0 + np.exp(-(SHARPNESS * (X @ w) + OFFSET)))
    return Shard(X, np.where(rng.random(count) < probability, 1.0, -1.0))
