"""X' diag(w) X of one node's records for many weightings w: the Hessians of many runs.

One weighting by itself is BLAS's business (records.py). Many of them share the products of every two features of a record, and
their matrices are one product of the weightings with these. That pays where records have few features, or few that are not
zero.
"""

from dataclasses import dataclass

import numpy as np

from dpadmm_mpi.types import Array, CsrMatrix, Ints

SPARSE_COST = 3  # of a multiplication whose place is looked up, where one of BLAS costs 1
MOST_KEPT = 1 << 25  # products of one node that are kept
BLOCK = 1 << 18  # products that are made and used at a time: they stay in the processor's cache


@dataclass(frozen=True)
class PairProducts:
    """x_i x_j for i >= j of each record, without those that are zero."""

    features: int
    order: Ints  # of the records
    i: Ints  # of the pairs that occur
    j: Ints
    products: CsrMatrix  # (records, pairs)

    def grams(self, weights: Array) -> Array:
        """For every row of weights, (rows, d, d)."""
        sums = self.products.T @ np.ascontiguousarray(weights[:, self.order].T)
        return _symmetric(sums.T, self.i, self.j, self.features)


def pair_products(rows: Array) -> PairProducts | None:
    """To be kept for many weightings; None: too many are not zero."""
    (B, d), stored = rows.shape, rows != 0.0
    lengths = stored.sum(axis=1)
    counts = lengths * (lengths + 1) // 2
    if counts.sum() > MOST_KEPT or SPARSE_COST * counts.sum() > B * d * (d + 1) // 2:
        return None
    from scipy import sparse  # a start-up time that dense records do not pay

    order = np.argsort(lengths, kind="stable")  # records with equally many numbers beside each other
    stored, rows = stored[order], rows[order]
    columns, values = np.nonzero(stored)[1], rows[stored]
    keys, products, begin = list[Array](), list[Array](), 0
    for length, number in zip(*np.unique(lengths, return_counts=True), strict=True):
        part = slice(begin, begin := begin + int(length * number))
        a, b = np.tril_indices(length)
        of_records, numbers = (all_of_them[part].reshape(number, length) for all_of_them in (columns, values))
        keys.append((of_records[:, a] * d + of_records[:, b]).ravel())
        products.append((numbers[:, a] * numbers[:, b]).ravel())
    key = np.concatenate(keys)
    pairs = np.flatnonzero(np.bincount(key, minlength=d * d))
    place = np.zeros(d * d, dtype=np.int32)
    place[pairs] = np.arange(len(pairs))
    ends = np.concatenate([[0], np.cumsum(counts[order])])
    matrix = sparse.csr_matrix((np.concatenate(products), place[key], ends), shape=(B, len(pairs)))
    return PairProducts(d, order, *np.divmod(pairs, d), matrix)


def dense_grams(rows: Array, weights: Array) -> Array | None:
    """The same of records without zeros; None: each weighting by itself is faster."""
    (B, d), (i, j) = rows.shape, np.tril_indices(rows.shape[1])
    if len(weights) < d and B * len(i) > BLOCK:
        return None
    count, sums = max(1, BLOCK // len(i)), np.zeros((len(weights), len(i)))
    for part in (slice(first, first + count) for first in range(0, B, count)):
        sums += weights[:, part] @ (rows[part][:, i] * rows[part][:, j])
    return _symmetric(sums, i, j, d)


def _symmetric(lower: Array, i: Ints, j: Ints, d: int) -> Array:
    whole = np.zeros((len(lower), d, d))
    whole[:, i, j] = whole[:, j, i] = lower
    return whole
