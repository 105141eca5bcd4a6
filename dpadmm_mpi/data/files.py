"""Records from npz, csv and LIBSVM files, plain or compressed (gz, bz2, xz)."""

import bz2
import gzip
import io
import lzma
import re
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from dpadmm_mpi.config import Data
from dpadmm_mpi.data.shard import Shard, row_norms
from dpadmm_mpi.errors import InputError

# Above this share of non-zeros a sparse file is kept dense: less memory per entry, and BLAS.
DENSE_SHARE = 1 / 3

_LIBSVM_LINE = re.compile(r"\s*[^\s:]+(\s+\d+:[^\s:]+)*\s*")
_DECOMPRESS = {b"\x1f\x8b": gzip.decompress, b"BZh": bz2.decompress, b"\xfd7zXZ\x00": lzma.decompress}


def read(data: Data) -> tuple[Shard, Shard | None]:
    """The records of data.path, and of data.test_path where given."""
    path = Path(str(data.path))
    shard = _read_one(path, data)
    test = None
    if data.test_path is not None:
        test_path = Path(data.test_path)
        test = _read_one(test_path, data, shard.features)
        if test.features != shard.features:
            raise InputError(
                f"data.test_path: {test_path} has {test.features} features, but {path} has {shard.features}; "
                "both files must have the same columns"
            )
    for step in data.preprocess or []:
        shard, test = _STEPS[step](shard, test)
    return shard, test


def _read_one(path: Path, data: Data, features: int | None = None) -> Shard:
    content = _content(path)
    if data.source == "npz":
        return _npz(content, path)
    if data.source == "csv":
        return _csv(content, path, str(data.label))
    return _libsvm(content, path, data.features or features)


def _content(path: Path) -> bytes:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InputError(f"data.path: {path} cannot be read: {error.strerror}") from None
    for magic, decompress in _DECOMPRESS.items():
        if content.startswith(magic):
            try:
                return decompress(content)
            except (EOFError, OSError, ValueError, zlib.error, lzma.LZMAError) as error:
                raise InputError(f"data.path: {path} is damaged or cut short ({error}); get the file again") from None
    return content


def _npz(content: bytes, path: Path) -> Shard:
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as archive:
            arrays = dict(archive)
    except (ValueError, OSError, EOFError, zipfile.BadZipFile, zlib.error, KeyError) as error:
        raise InputError(f"data.path: {path} is not a readable npz file ({error})") from None
    if "y" not in arrays:
        raise InputError(f"data.path: {path} has no array y; found {', '.join(arrays) or 'nothing'}")
    X: Any
    try:
        X = np.ascontiguousarray(arrays["X"], dtype=np.float64) if "X" in arrays else _csr_of_parts(arrays, path)
        y = np.asarray(arrays["y"], dtype=np.float64).ravel()
    except (TypeError, ValueError) as error:
        raise InputError(f"data.path: {path} holds something other than numbers ({error})") from None
    if X.ndim != 2 or X.shape[0] != len(y):
        raise InputError(f"data.path: in {path} X has the shape {X.shape} and y {len(y)} labels; X needs a row per label")
    return Shard(X, y)


def _csr_of_parts(arrays: dict[str, Any], path: Path) -> Any:
    from scipy.sparse import csr_matrix

    for prefix in ("", "X_"):
        names = [f"{prefix}{part}" for part in ("data", "indices", "indptr", "shape")]
        if all(name in arrays for name in names):
            values, indices, indptr, shape = (arrays[name] for name in names)
            X = csr_matrix((values.astype(np.float64), indices, indptr), shape=tuple(shape))
            X.check_format(full_check=True)
            X.sum_duplicates()
            return _in_the_right_storage(X)
    raise InputError(
        f"data.path: {path} has neither X nor the CSR parts data, indices, indptr and shape; found {', '.join(arrays)}"
    )


def _csv(content: bytes, path: Path, label: str) -> Shard:
    lines = _text(content, path).splitlines()
    if not lines:
        raise InputError(f"data.path: {path} is empty")
    header = [cell.strip().strip('"') for cell in lines[0].split(",")]
    if all(_is_number(cell) for cell in header):
        label_column = len(header) - 1  # without a header the label is the last column
    else:
        lines = lines[1:]
        if header.count(label) != 1:
            raise InputError(
                f'data.label: {path} needs one column "{label}"; its columns are {", ".join(header[:12])}'
                + (", ..." if len(header) > 12 else "")
            )
        label_column = header.index(label)
    lines = [line for line in lines if line.strip()]
    if not lines:
        raise InputError(f"data.path: {path} has a header but no records")
    try:
        table = np.loadtxt(lines, delimiter=",", ndmin=2, comments=None)
    except ValueError as error:
        raise InputError(f"data.path: {path} is not a table of numbers ({error})") from None
    return Shard(np.ascontiguousarray(np.delete(table, label_column, axis=1)), table[:, label_column].copy())


def _libsvm(content: bytes, path: Path, features: int | None) -> Shard:
    """`label index:value ...` per line, indices from 1 and ascending."""
    from scipy.sparse import csr_matrix

    lines = [line for line in (line.split("#")[0] for line in _text(content, path).splitlines()) if line.strip()]
    if not lines:
        raise InputError(f"data.path: {path} is empty")
    for number, line in enumerate(lines):
        if not _LIBSVM_LINE.fullmatch(line):
            raise InputError(f'data.path: {path} record {number} is "{line[:60]}"; "label index:value ..." is needed')
    counts = np.array([line.count(":") for line in lines])
    try:
        tokens = np.array(" ".join(lines).replace(":", " ").split(), dtype=np.float64)
    except ValueError as error:
        raise InputError(f"data.path: {path} is not in LIBSVM format ({error})") from None
    starts = np.concatenate([[0], np.cumsum(1 + 2 * counts)[:-1]])
    pairs = np.delete(tokens, starts).reshape(-1, 2)
    indices = pairs[:, 0].astype(np.int64) - 1
    if np.any(indices + 1 != pairs[:, 0]) or np.any(indices < 0):
        raise InputError(f"data.path: {path} has a feature number that is not 1, 2, ...")
    highest = int(indices.max(initial=-1)) + 1
    width = features or highest
    if highest > width:
        raise InputError(f"data.features: {path} has feature {highest}, but only {width} are expected; set data.features")
    X = csr_matrix((pairs[:, 1], indices, np.concatenate([[0], np.cumsum(counts)])), shape=(len(lines), width))
    X.sum_duplicates()
    return Shard(_in_the_right_storage(X), tokens[starts])


def _in_the_right_storage(X: Any) -> Any:
    return X.toarray() if X.nnz > DENSE_SHARE * X.shape[0] * X.shape[1] else X


def _text(content: bytes, path: Path) -> str:
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        raise InputError(f"data.path: {path} is not text; is data.source right?") from None


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _scale_columns(shard: Shard, test: Shard | None) -> tuple[Shard, Shard | None]:
    """Each column by its largest absolute value over all records; a column of zeros stays."""
    largest = np.max([_column_maxima(part.X) for part in (shard, test) if part is not None], axis=0)
    factor = 1.0 / np.where(largest > 0, largest, 1.0)
    return _times(shard, factor[None, :]), None if test is None else _times(test, factor[None, :])


def _scale_rows(shard: Shard, test: Shard | None) -> tuple[Shard, Shard | None]:
    """Rows with a norm above 1 to norm 1."""
    scaled = [
        None if part is None else _times(part, 1.0 / np.maximum(row_norms(part.X), 1.0)[:, None]) for part in (shard, test)
    ]
    assert scaled[0] is not None
    return scaled[0], scaled[1]


def _column_maxima(X: Any) -> Any:
    largest = abs(X).max(axis=0)
    return largest if isinstance(largest, np.ndarray) else largest.toarray().ravel()


def _times(shard: Shard, factor: Any) -> Shard:
    if isinstance(shard.X, np.ndarray):
        return Shard(shard.X * factor, shard.y)
    return Shard(shard.X.multiply(factor).tocsr(), shard.y)


_STEPS = {"scale-columns": _scale_columns, "scale-rows": _scale_rows}
