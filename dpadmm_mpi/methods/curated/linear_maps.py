"""The linear map A of the curated family (docs/mathematics.md, section 9): [W; I] from a graphical lasso, I, or from a file.

W has one row per edge (i, j) of the sparsity pattern of an inverse covariance: +1 at i, and at j -1 for a positive partial
correlation, +1 for a negative one, so that |W f| is small where related features have matching weights ([C] V.A; Kim, Sohn,
Xing: A multivariate regression approach to association analysis of a quantitative trait network, 2009).
"""

import hashlib
import io
import os
import pickle
import warnings
import zlib
from abc import abstractmethod
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from dpadmm_mpi.config.options import FilePath, Options, Positive
from dpadmm_mpi.data.bounded import names_in, read_array, read_arrays
from dpadmm_mpi.data.cache import cache_folder
from dpadmm_mpi.data.dataset import Dataset
from dpadmm_mpi.errors import InputError, RunError, reason_of
from dpadmm_mpi.files import make_folder, read_bytes, remove, replace, write_bytes
from dpadmm_mpi.registry import Registry
from dpadmm_mpi.types import Array, CsrMatrix, Ints, Matrix

DENSE_ENTRIES = 1 << 20  # a map with more is stored as CSR
LARGEST = 2000  # features up to which d x d matrices are formed
HUGE = 1e100  # an entry: squares and products of them are numbers
NEGLIGIBLE = 1e-8  # partial correlation that is no edge
ROUND_OFF = 1e-14  # of squared singular values, relative to the largest
ACCURACY = 1e-3  # of a correlation, which the graphical lasso must reach
VERSION = 1  # of the cached patterns
UNREADABLE = (ValueError, TypeError, KeyError, EOFError, BadZipFile, zlib.error, OverflowError, IndexError, RuntimeError)
EXPECTED = {  # of a file with this ending
    ".npz": 'an .npz file must be whole and hold an array "A", or a matrix as scipy.sparse.save_npz writes it',
    ".npy": "an .npy file must be whole and hold one array of numbers",
    ".csv": "every line must hold the same number of numbers, with commas between them",
}


@dataclass(frozen=True)
class LinearMap:
    """A, (m, d), dense or scipy CSR."""

    A: Matrix
    from_records: bool = False  # estimated from the training records, without noise

    @property
    def rows(self) -> int:
        return int(self.A.shape[0])

    @property
    def features(self) -> int:
        return int(self.A.shape[1])

    def __call__(self, x: Array) -> Array:
        """A x"""
        return np.asarray(self.A @ x)

    def transposed(self, v: Array) -> Array:
        """A' v"""
        return np.asarray(self.A.T @ v)

    def transposed_pseudo_inverse(self, g: Array) -> Array:
        """(A')^+ g: the shortest v with the smallest ||A'v - g||."""
        if isinstance(self.A, np.ndarray):
            return np.asarray(np.linalg.lstsq(self.A.T, g, rcond=None)[0])
        from scipy.sparse.linalg import lsqr

        return np.asarray(lsqr(self.A.T, g, atol=1e-15, btol=1e-15)[0])

    def gram(self, weights: Array) -> Array:
        """A' diag(weights) A, dense."""
        if isinstance(self.A, np.ndarray):
            return np.asarray(self.A.T @ (weights[:, None] * self.A))
        return np.asarray((self.A.T @ self.A.multiply(weights[:, None])).toarray())

    @cached_property
    def square(self) -> Array:
        """A'A, dense."""
        return self.gram(np.ones(self.rows))

    @cached_property
    def singular_values(self) -> Array | None:
        """One per feature, descending, 0 beyond the rank; None where there are too many features."""
        if self.features > LARGEST:
            return None
        squares = np.linalg.eigvalsh(self.square)[::-1]
        return np.sqrt(np.where(squares > ROUND_OFF * squares[0], squares, 0.0))

    @property
    def small(self) -> Array | None:
        """A itself, if it is dense."""
        return self.A if isinstance(self.A, np.ndarray) else None

    @cached_property
    def sha256(self) -> str:
        """Of shape and entries."""
        parts = (self.A,) if isinstance(self.A, np.ndarray) else (self.A.data, self.A.indices, self.A.indptr)
        digest = hashlib.sha256(str(self.A.shape).encode())
        for part in parts:
            digest.update(np.ascontiguousarray(part).tobytes())
        return digest.hexdigest()

    @property
    def norm(self) -> float:
        """||A||, or, where there are too many features, sqrt(||A||_1 ||A||_inf), which is not below it."""
        if self.singular_values is not None:
            return float(self.singular_values[0])
        magnitudes: Any = abs(self.A)  # type: ignore[arg-type]  # scipy's matrices have it too
        return float(np.sqrt(magnitudes.sum(axis=0).max() * magnitudes.sum(axis=1).max()))


maps = Registry["MapKind"]("linear map", "maps")


@maps.base
class MapKind(Options):
    """The linear map A of g(A x)."""

    @abstractmethod
    def make(self, dataset: Dataset[Any]) -> LinearMap:
        """A for these records; on rank 0."""


@maps.register("identity")
class Identity(MapKind):
    """A = I: the lasso"""

    def make(self, dataset: Dataset[Any]) -> LinearMap:
        nothing = np.zeros((0, 2), dtype=np.int64)
        return LinearMap(_economical(stacked(nothing, np.zeros(0), dataset.features)))


@maps.register("graphical-lasso")
class GraphicalLasso(MapKind):
    """A = [W; I], W the edges of a sparse inverse covariance of the features, with the penalty `sparsity`"""

    sparsity: Positive = 0.3  # penalty on the correlations

    def make(self, dataset: Dataset[Any]) -> LinearMap:
        edges, signs = _pattern(dataset, self.sparsity)
        return LinearMap(_economical(stacked(edges, signs, dataset.features)), from_records=True)


@maps.register("file")
class MapFile(MapKind):
    """A from `map_path`: .npy, .csv, or .npz with an array A or a scipy sparse matrix"""

    map_path: FilePath  # A as .npy, .npz or .csv

    def make(self, dataset: Dataset[Any]) -> LinearMap:
        return LinearMap(_economical(_read(Path(self.map_path), dataset.features)))


def stacked(edges: Ints, signs: Array, features: int) -> CsrMatrix:
    """[W; I] as CSR; `signs` are those of the partial correlations."""
    from scipy.sparse import csr_matrix, identity, vstack

    rows = np.repeat(np.arange(len(edges)), 2)
    values = np.stack([np.ones(len(edges)), -signs], axis=1).ravel()
    W = csr_matrix((values, (rows, edges.ravel())), shape=(len(edges), features))
    return csr_matrix(vstack([W, identity(features)]))


def _economical(A: Matrix) -> Matrix:
    """Dense where that is small; a rank then needs no sparse matrices."""
    small = A.shape[0] * A.shape[1] <= DENSE_ENTRIES
    return A.toarray() if small and not isinstance(A, np.ndarray) else A


def _pattern(dataset: Dataset[Any], sparsity: float) -> tuple[Ints, Array]:
    """Edges and signs of the graphical lasso, from the cache where the same records were looked at before."""
    if dataset.features > LARGEST:
        raise InputError(
            f'problem.map: "graphical-lasso" is for up to {LARGEST} features, and there are {dataset.features}; use "identity" '
            "or a file"
        )
    # Loader and addresses say which records, from where.
    identity = pickle.dumps([VERSION, sparsity, dataset.loader, [dataset.address(i) for i in range(len(dataset.sizes))]])
    path = cache_folder() / "maps" / f"{hashlib.sha256(identity).hexdigest()[:24]}.npz"
    # If it is there, and whole:
    with suppress(OSError, ValueError, KeyError, BadZipFile), np.load(io.BytesIO(read_bytes(path))) as stored:
        return stored["edges"], stored["signs"]
    edges, signs = graphical_lasso_edges(correlation(dataset), sparsity)
    scratch = path.with_name(f".{path.stem}.{os.getpid()}.npz")
    try:
        content = io.BytesIO()
        np.savez(content, edges=edges, signs=signs)
        make_folder(path.parent)
        write_bytes(scratch, content.getbuffer())
        replace(scratch, path)
    except OSError as error:
        with suppress(OSError):
            remove(scratch)
        raise RunError(f"{path.parent} cannot be written ({reason_of(error)}); set DPADMM_DATA to a folder with room") from None
    return edges, signs


def correlation(dataset: Dataset[Any]) -> Array:
    """Of the training features, one shard in memory at a time; nan for a constant feature."""
    d, n = dataset.features, int(dataset.sizes.sum())
    total, squares = np.zeros(d), np.zeros((d, d))
    for node in range(len(dataset.sizes)):
        X = dataset.loader.shard(dataset.address(node)).X
        total += np.asarray(X.sum(axis=0)).ravel()
        squares += X.T @ X if isinstance(X, np.ndarray) else (X.T @ X).toarray()
    covariance = squares / n - np.outer(total, total) / n**2
    variance = covariance.diagonal()
    # What is left of a constant column is round-off of its mean square.
    deviation = np.where(variance > 1e-12 * squares.diagonal() / n, np.sqrt(np.maximum(variance, 0.0)), np.nan)
    return np.asarray(covariance / np.outer(deviation, deviation))


def graphical_lasso_edges(correlations: Array, sparsity: float) -> tuple[Ints, Array]:
    """The pairs i < j with a partial correlation in the sparse inverse, (E, 2), and its signs; none for nan rows."""
    try:
        from sklearn.covariance import graphical_lasso
    except ImportError:
        raise InputError(
            'problem.map: "graphical-lasso" needs scikit-learn; install it with: pip install "dpadmm-mpi[lasso]"'
        ) from None
    varying = np.flatnonzero(~np.isnan(correlations.diagonal()))
    if len(varying) < 2:
        return np.zeros((0, 2), dtype=np.int64), np.zeros(0)
    S = correlations[np.ix_(varying, varying)].copy()
    np.fill_diagonal(S, 1.0)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of steps on the way; what counts is examined below
            _, precision = graphical_lasso(S, alpha=sparsity, tol=1e-5, enet_tol=1e-8, max_iter=500)
        # The optimality condition: off the diagonal the fitted covariance is within `sparsity` of S.
        excess = np.abs(np.triu(S - np.linalg.inv(precision), 1)).max() - sparsity
    except (FloatingPointError, np.linalg.LinAlgError, ValueError):
        excess = np.inf
    if not excess < ACCURACY:
        raise InputError(
            f"problem.sparsity: the graphical lasso does not converge at {sparsity:g}; raise it (from 1 on no edge is left)"
        )
    scale = np.sqrt(precision.diagonal())
    partial = -np.triu(precision / np.outer(scale, scale), 1)
    i, j = np.nonzero(np.abs(partial) > NEGLIGIBLE)
    return np.stack([varying[i], varying[j]], axis=1).astype(np.int64), np.sign(partial[i, j])


def _read(path: Path, features: int) -> Matrix:
    """A from .npy, .csv, or .npz: an array A, or a scipy sparse matrix as its save_npz writes it."""
    expected = EXPECTED.get(path.suffix, EXPECTED[".csv"])
    try:
        A = load_array(path)
        if np.iscomplexobj(A):
            raise InputError(f"problem.map_path: {path} holds complex numbers; A is a real matrix")
        with np.errstate(all="ignore"):  # what is beyond float64 becomes inf, which is refused below
            A = A.astype(np.float64)
    except OSError as error:
        raise InputError(f"problem.map_path: {path} cannot be read as a matrix: {error.strerror or expected}") from None
    except UNREADABLE:
        raise InputError(f"problem.map_path: {path} cannot be read as a matrix: {expected}") from None
    values = A if isinstance(A, np.ndarray) else A.data
    if not A.shape or not A.shape[0] or not values.any():
        what = "no rows" if A.shape and not A.shape[0] else "no entry but zeros"
        raise InputError(f"problem.map_path: {path} has {what}; a matrix with an entry that is not 0 is needed")
    if A.ndim != 2 or A.shape[1] != features:
        raise InputError(
            f"problem.map_path: {path} has the shape {tuple(A.shape)}, but the records have {features} features; a matrix with "
            "that many columns is needed"
        )
    if not np.isfinite(values).all() or np.abs(values).max() > HUGE:
        raise InputError(f"problem.map_path: {path} has an entry that is not a finite number, or beyond {HUGE:g}; replace it")
    return A


def load_array(path: Path) -> Any:
    content = io.BytesIO(read_bytes(path))
    if path.suffix == ".npy":
        return read_array(path)
    if path.suffix != ".npz":
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of an empty file, which has no rows
            return np.loadtxt(content, delimiter=",", ndmin=2)
    if found := read_arrays(path, ("A",)):
        return found["A"]
    from scipy.sparse import load_npz

    read_arrays(path, names_in(path))  # whether they are what they say
    A = load_npz(content).tocsr()
    A.sum_duplicates()  # one way to write a matrix
    return A
