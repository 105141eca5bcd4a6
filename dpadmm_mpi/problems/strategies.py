"""Which way a node's records are stored and its argmin is found, by its own shape alone.

The solvers ask here, and so does the cost model: whole arrays of nodes at once. B records, d features.
"""

from typing import TypeVar

import numpy as np

from dpadmm_mpi.types import Array, Bools, Ints

N = TypeVar("N", float, Array)

SMALL_WORK = 1 << 18  # multiplications of one Hessian, up to which a call of numpy costs more than the arithmetic
SMALL_FEATURES = 64
CHUNK = 1 << 18  # numbers of a stack of small nodes that are worked on together: they stay in the processor's cache
STACKED = 1 << 22  # numbers of small nodes in one place; more of them begin another one
KEPT_FEATURES = 1024  # up to which a node keeps a d x d factorisation, if it has more records than features: 8 MB
TOGETHER = 1 << 22  # numbers of nodes that are solved together: they stay in the cache from one step to the next
VECTORS = 16  # numbers beside its own that a solve has for every record, roughly
SPARSE_SIZE = 1 << 17  # numbers in a dense shard from which its zeros are worth leaving out
SPARSE_SHARE = 0.25  # of non-zeros, up to which the sparse storage is smaller and faster
COMMON = 0.15  # share of the records that have a column, from which a sparse shard keeps it dense
IN_CACHE = 1 << 19  # numbers of a shard, up to which it stays in the processor's cache from one pass to the next
BLOCK = 1 << 17  # numbers of a larger one, that both passes are over before the next ones are fetched


def is_small(B: N, d: int) -> Bools:
    """Solved in a batch with other small nodes (batched.py)."""
    return np.asarray((d <= SMALL_FEATURES) & (np.asarray(B, dtype=np.float64) * d * d <= SMALL_WORK))


def keeps_factorisation(B: N, d: int) -> Bools:
    """Solved with a kept factorisation (quasi_newton.py), if it is not small; otherwise by the damped Newton method."""
    return np.asarray(d <= np.minimum(B, KEPT_FEATURES))


def becomes_sparse(B: N, d: int, share: float) -> Bools:
    """A dense shard with this share of non-zeros that is better stored without its zeros."""
    return np.asarray((np.asarray(B) * d >= SPARSE_SIZE) & (share <= SPARSE_SHARE))


def is_common(counts: Array | Ints, B: int) -> Bools:
    """The columns of a sparse shard that are kept dense, by the number of records that have them."""
    return np.asarray(counts >= COMMON * B)


def solved_together(numbers: N, B: N) -> Array:
    """How many nodes alike, with so many numbers stored, are solved by common calls; at least 1."""
    return np.maximum(1, TOGETHER // (np.asarray(numbers) + VECTORS * np.asarray(B)))


def gradients_pay(B: N, d: int) -> Bools:
    """Solved without Hessians at first, in a batch of small nodes: each Hessian costs as much as many gradients."""
    return np.asarray((d >= 16) & (np.asarray(B) <= 8 * d))


def nodes_in_a_chunk(B: N, d: int) -> Array:
    """Of a batch of small nodes."""
    return np.maximum(1, CHUNK // (np.asarray(B) * d))
