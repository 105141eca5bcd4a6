"""Synthetic records: what they look like, and that each node's depend on its own address only."""

import numpy as np
from support import dataset_of, dense, rows_of

from dpadmm_mpi.data import synthetic
from dpadmm_mpi.data.shard import row_norms


def test_synthetic_labels_follow_the_known_classifier() -> None:
    """y = +1 with the stated probability: the sum of the errors is within four standard errors, in ten bins of w.x."""
    shard = synthetic.records(9, 105, 20_000, node=0)
    score = shard.X @ synthetic.classifier(9, 105)
    p = 1 / (1 + np.exp(-(synthetic.SHARPNESS * score + synthetic.OFFSET)))
    for chunk in np.array_split(np.argsort(score), 10):
        surplus = np.sum((shard.y[chunk] > 0) - p[chunk])
        assert abs(surplus) < 4 * np.sqrt(np.sum(p[chunk] * (1 - p[chunk])))
    assert 0.1 < np.mean(shard.y > 0) < 0.5


def test_synthetic_records_look_like_adult() -> None:
    shard = synthetic.records(3, 105, 500, node=2)
    assert synthetic.groups(105) == list(synthetic.ADULT_GROUPS)
    assert np.allclose(row_norms(shard.X), 1.0)
    column = 0
    for size in synthetic.ADULT_GROUPS:
        assert (np.count_nonzero(dense(shard.X)[:, column : column + size], axis=1) == 1).all()
        column += size
    assert (dense(shard.X)[:, column:] > 0).all()
    for features in (1, 2, 3, 10, 400):
        found = synthetic.records(3, features, 50, node=0)
        assert found.X.shape == (50, features)
        assert row_norms(found.X).max() <= 1 + 1e-12


def test_synthetic_shards_depend_on_their_own_address_only() -> None:
    """The same node has the same records whatever the other nodes are; different nodes have different ones."""
    few = dataset_of(nodes=2, records=100, features=6, train=1.0)
    many = dataset_of(nodes=4, records=200, features=6, train=1.0)
    assert np.array_equal(rows_of(few, 1), rows_of(many, 1))
    assert not np.array_equal(rows_of(few, 0), rows_of(few, 1))
