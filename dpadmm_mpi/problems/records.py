"""The records of a node as a matrix, multiplied with vectors from either side: the only thing that a solve does with them.

Dense records are numpy's business. Of sparse ones, a number costs several times what it costs in a dense product, for its
place is looked up; so columns that many records have are kept dense beside the rest. A shard that outgrows the cache is divided
into blocks of rows, so that both passes of an evaluation are over a block before the next one is fetched.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from dpadmm_mpi.problems import strategies
from dpadmm_mpi.types import Array, CsrMatrix, Ints, Matrix

FEW = 3  # vectors that are multiplied with the records faster one by one than together
FEW_SPARSE = 7  # the same of the columns that are looked up
LONG = 64  # features from which numpy fetches a record in one go, and three times as fast as BLAS fetches several
GRAM_ROWS = 1024  # weighted at a time: the copy stays in the processor's cache, and a shard is in memory once
SKINNY = 10**6  # multiplications up to which BLAS takes matrices as they lie, which is twice as fast for narrow ones


class Records(Protocol):
    """Rows x_n of a node, or some of them: X."""

    shape: tuple[int, int]
    numbers: int  # that are stored

    def product(self, f: Array) -> Array:
        """X f"""
        ...

    def products(self, f: Array) -> Array:
        """X f for every row of f, as rows."""
        ...

    def weighted_sum(self, weights: Array) -> Array:
        """X' w"""
        ...

    def weighted_sums(self, weights: Array) -> Array:
        """X' w for every row of weights, as rows."""
        ...

    def gram(self, weights: Array) -> Array:
        """X' diag(weights) X for weights that are not negative, dense"""
        ...

    def weighted_squares(self, weights: Array) -> Array:
        """The diagonal of it."""
        ...

    def part(self, rows: slice) -> "Records":
        """Some rows: views where that is possible."""
        ...

    def in_single(self) -> "Records":
        """A copy in single precision."""
        ...

    def matrix(self) -> Matrix:
        """The rows as they are read: dense or CSR."""
        ...


class DenseRecords:
    """A numpy array."""

    def __init__(self, rows: Array, fetch: bool = False) -> None:
        self._rows = rows
        self._fetch = fetch and rows.shape[1] >= LONG  # from memory, not from the cache
        self.shape: tuple[int, int] = rows.shape
        self.numbers = rows.size

    def product(self, f: Array) -> Array:
        return np.vecdot(self._rows, f) if self._fetch else self._rows @ f

    def products(self, f: Array) -> Array:
        if self._fetch:
            first = self.product(f[0])[None]
            return first if len(f) == 1 else np.concatenate([first, f[1:] @ self._rows.T])
        return np.stack([self._rows @ each for each in f]) if len(f) <= FEW else f @ self._rows.T

    def weighted_sum(self, weights: Array) -> Array:
        return self._rows.T @ weights

    def weighted_sums(self, weights: Array) -> Array:
        return np.stack([self.weighted_sum(w) for w in weights]) if len(weights) <= FEW else weights @ self._rows

    def gram(self, weights: Array) -> Array:
        d = self.shape[1]
        H = np.zeros((d, d))
        for first in range(0, len(weights), GRAM_ROWS):
            rows = slice(first, first + GRAM_ROWS)
            weighted = np.sqrt(weights[rows, None]) * self._rows[rows]
            H += weighted.T @ weighted  # numpy sees that it is symmetric, and does half of it
        return H

    def weighted_squares(self, weights: Array) -> Array:
        return np.einsum("ni,ni,n->i", self._rows, self._rows, weights)

    def part(self, rows: slice) -> "DenseRecords":
        return DenseRecords(self._rows[rows], fetch=True)

    def in_single(self) -> "DenseRecords":
        return DenseRecords(self._rows.astype(np.float32), self._fetch)

    def matrix(self) -> Matrix:
        return self._rows


class SparseRecords:
    """`dense`: the columns `common`, which many records have; `rest`: all others, a CSR matrix in which those are empty."""

    def __init__(self, common: Ints, dense: Array, rest: CsrMatrix) -> None:
        # scipy's own loops, which it does not document: they add to what is there already, where its operator @ makes a matrix
        # of its own that must be added afterwards, and that takes as long again.
        from scipy.sparse import _sparsetools

        self._loops = _sparsetools
        self._common, self._dense, self._rest = common, dense, rest
        self._csr = rest.indptr, rest.indices, rest.data
        self.shape = rest.shape
        self.numbers = dense.size + rest.nnz

    def product(self, f: Array) -> Array:
        product = f[self._common] @ self._dense
        self._loops.csr_matvec(*self.shape, *self._csr, f, product)
        return product

    def products(self, f: Array) -> Array:
        if len(f) <= FEW_SPARSE:
            products = f[:, self._common] @ self._dense
            for row, each in zip(products, f, strict=True):
                self._loops.csr_matvec(*self.shape, *self._csr, each, row)
            return products
        # A row for each record: what belongs to a number that is looked up lies together.
        products, vectors = np.empty((self.shape[0], len(f)), self._rest.data.dtype), np.ascontiguousarray(f.T)
        common = vectors[self._common]
        for rows in self._skinny(len(f)):
            np.matmul(self._dense[:, rows].T, common, out=products[rows])
        self._loops.csr_matvecs(*self.shape, len(f), *self._csr, vectors.ravel(), products.ravel())
        return products.T

    def weighted_sum(self, weights: Array) -> Array:
        sums = np.zeros(self.shape[1], self._rest.data.dtype)
        self._loops.csc_matvec(*self.shape[::-1], *self._csr, weights, sums)  # X in CSR is X' in CSC
        sums[self._common] = self._dense @ weights
        return sums

    def weighted_sums(self, weights: Array) -> Array:
        if len(weights) <= FEW_SPARSE:
            sums = np.zeros((len(weights), self.shape[1]), self._rest.data.dtype)
            for row, each in zip(sums, np.ascontiguousarray(weights), strict=True):
                self._loops.csc_matvec(*self.shape[::-1], *self._csr, each, row)
            sums[:, self._common] = weights @ self._dense.T
            return sums
        sums = self._rest_sums(np.ascontiguousarray(weights.T))
        sums[self._common] = sum(self._dense[:, rows] @ weights[:, rows].T for rows in self._skinny(len(weights)))
        return sums.T

    def _rest_sums(self, weights: Array) -> Array:
        """X' w without the common columns; vectors are columns."""
        sums = np.zeros((self.shape[1], weights.shape[1]), self._rest.data.dtype)
        self._loops.csc_matvecs(*self.shape[::-1], weights.shape[1], *self._csr, weights.ravel(), sums.ravel())
        return sums

    def _skinny(self, vectors: int) -> Iterator[slice]:
        """Rows that BLAS multiplies at a time."""
        records = self.shape[0]
        size = max(1, SKINNY // max(1, vectors * len(self._common)))
        return (slice(first, min(first + size, records)) for first in range(0, records, size))

    def gram(self, weights: Array) -> Array:
        rest = self._rest.copy()
        rest.data *= np.repeat(weights, self.lengths())
        H = np.asarray((self._rest.T @ rest).toarray())
        weighted = weights * self._dense
        beside = self._rest_sums(np.ascontiguousarray(weighted.T))
        H[:, self._common] = beside
        H[self._common] = beside.T
        dense = sum(weighted[:, rows] @ self._dense[:, rows].T for rows in self._skinny(len(self._common)))
        H[np.ix_(self._common, self._common)] = dense
        return H

    def weighted_squares(self, weights: Array) -> Array:
        of_each = self._rest.data**2 * np.repeat(weights, self.lengths())
        squares = np.bincount(self._rest.indices, of_each, self.shape[1]).astype(np.float64)  # whole numbers, if there are none
        squares[self._common] = self._dense**2 @ weights
        return squares

    def lengths(self) -> Ints:
        """Numbers of each record that are looked up."""
        return np.diff(self._rest.indptr)

    def reordered(self, order: Ints) -> "SparseRecords":
        return SparseRecords(self._common, self._dense.take(order, axis=1), self._rest[order])

    def part(self, rows: slice) -> "SparseRecords":
        return SparseRecords(self._common, self._dense[:, rows], _csr_rows(self._rest, rows))

    def in_single(self) -> "SparseRecords":
        content = self._rest.data.astype(np.float32), self._rest.indices, self._rest.indptr
        rest = type(self._rest)(content, shape=self.shape)  # type: ignore[call-arg]  # scipy's
        return SparseRecords(self._common, self._dense.astype(np.float32), rest)

    def matrix(self) -> Matrix:
        """Put together as CSR, in memory of its own."""
        from scipy import sparse

        records, d = self.shape
        entries = np.nonzero(self._dense)
        columns = np.concatenate([self._rest.indices, self._common[entries[0]]])
        rows = np.concatenate([np.repeat(np.arange(records), np.diff(self._rest.indptr)), entries[1]])
        values = np.concatenate([self._rest.data, self._dense[entries]])
        return sparse.csr_matrix((values, (rows, columns)), shape=(records, d))


def _csr_rows(rows: CsrMatrix, part: slice) -> CsrMatrix:
    entries = slice(rows.indptr[part.start], rows.indptr[part.stop])
    content = (rows.data[entries], rows.indices[entries], rows.indptr[part.start : part.stop + 1] - entries.start)
    made: CsrMatrix = type(rows)(content, shape=(part.stop - part.start, rows.shape[1]))  # type: ignore[call-arg]  # scipy's
    return made


def as_records(rows: Matrix) -> Records:
    """In the order in which they are given."""
    return DenseRecords(rows) if isinstance(rows, np.ndarray) else _divided(rows)


class Reordered(NamedTuple):
    """Records and where each of them was before."""

    records: SparseRecords
    order: Ints


def without_zeros(rows: Matrix) -> Reordered | None:
    """Sparse records, those with equally many numbers beside each other; None: where dense ones are smaller and faster.

    A loop over the numbers of a record that ends where the last one did costs the processor half as much as one that does not.
    """
    if isinstance(rows, np.ndarray):
        # A look at the size, before the zeros are counted.
        B, d = rows.shape
        found = _from_dense(rows) if strategies.becomes_sparse(B, d, share=0.0) else None
        if found is None:
            return None
    else:
        found = _divided(rows)
    order = np.argsort(found.lengths(), kind="stable")
    return Reordered(found.reordered(order), order)


def _from_dense(rows: Array) -> SparseRecords | None:
    B, d = rows.shape
    stored = rows != 0.0
    counts = np.zeros(d)
    for first in range(0, B, GRAM_ROWS):  # by BLAS: three times as fast as a sum of truth values
        some = stored[first : first + GRAM_ROWS].astype(np.float32)
        counts += np.ones(len(some), dtype=np.float32) @ some
    if not strategies.becomes_sparse(B, d, share=float(counts.sum()) / rows.size):
        return None
    from scipy import sparse  # start-up time and 10 MB of memory, which dense shards do not pay

    is_common = strategies.is_common(counts, B)
    stored &= ~is_common
    entries = np.flatnonzero(stored)
    of_row, common = entries // d, np.flatnonzero(is_common)
    ends = np.concatenate([[0], np.cumsum(np.bincount(of_row, minlength=B))])
    content = rows.ravel()[entries], (entries - d * of_row).astype(np.int32), ends.astype(np.int32)
    return SparseRecords(common, rows.T[common], sparse.csr_matrix(content, shape=(B, d)))


def _divided(rows: CsrMatrix) -> SparseRecords:
    """The columns that many records have taken out of a CSR matrix."""
    B, d = rows.shape
    common = np.flatnonzero(strategies.is_common(np.bincount(rows.indices, minlength=d), B))
    place = np.full(d, -1)
    place[common] = np.arange(len(common))
    places, of_row = place[rows.indices], np.repeat(np.arange(B), np.diff(rows.indptr))
    is_dense = places >= 0
    dense = np.zeros((len(common), B))
    np.add.at(dense, (places[is_dense], of_row[is_dense]), rows.data[is_dense])  # an entry may stand twice
    starts = np.concatenate([[0], np.cumsum(~is_dense)])[rows.indptr].astype(rows.indptr.dtype)
    content = rows.data[~is_dense], rows.indices[~is_dense], starts
    return SparseRecords(common, dense, type(rows)(content, shape=(B, d)))  # type: ignore[call-arg]  # scipy's


def blocks(records: Records) -> Sequence[tuple[slice, Records]]:
    """The records in blocks that stay in the cache for both passes of an evaluation; one, if all of them do."""
    B = records.shape[0]
    if records.numbers <= strategies.IN_CACHE:
        return [(slice(0, B), records)]
    count = max(1, B * strategies.BLOCK // records.numbers)
    parts = (slice(first, min(first + count, B)) for first in range(0, B, count))
    return [(part, records.part(part)) for part in parts]
