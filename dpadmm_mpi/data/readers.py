"""Files -> Records: csv, npz, HDF5 and LIBSVM, plain or compressed (gz, bz2, xz)."""

import bz2
import csv
import gzip
import io
import itertools
import lzma
import re
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from dpadmm_mpi.data.records import Column, Records, Wanted
from dpadmm_mpi.errors import InputError, advice_on, reason_of
from dpadmm_mpi.files import naming, open_to_read, read_bytes

# Above this share of non-zeros a sparse matrix is kept dense: less memory per entry, and BLAS.
DENSE_SHARE = 1 / 3
MISSING = ("", "?", "NA", "nan", "NaN")

SEPARATORS = (",", ";", "\t", "|")
SEPARATOR_LINES = 20  # that they are detected from

_LIBSVM_LINE = re.compile(r"\s*[^\s:]+(\s+\d+:[^\s:]+)*\s*")
_DECOMPRESS = {b"\x1f\x8b": gzip.decompress, b"BZh": bz2.decompress, b"\xfd7zXZ\x00": lzma.decompress}
_OPEN: dict[bytes, Any] = {b"\x1f\x8b": gzip.open, b"BZh": bz2.open, b"\xfd7zXZ\x00": lzma.open}


def content(path: Path) -> bytes:
    """A file's bytes, decompressed."""
    try:
        raw = read_bytes(path)
    except OSError as error:
        raise InputError(f"{path} cannot be read: {reason_of(error)}; {advice_on(error)}") from None
    for magic, decompress in _DECOMPRESS.items():
        if raw.startswith(magic):
            try:
                return decompress(raw)
            except (EOFError, OSError, ValueError, zlib.error, lzma.LZMAError) as error:
                raise InputError(f"{path} is damaged or cut short ({error}); get the file again") from None
    return raw


def text(path: Path) -> str:
    try:
        return content(path).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InputError(f"{path} is not text; is data.source right?") from None


def with_signs(records: Records, positive: str | int | float | None, where: str) -> Records:
    """Labels -1 and +1. Other pairs of values need `positive`, which says which one is +1."""
    values = records.y
    distinct = np.unique(values)
    if len(distinct) == 1:
        raise InputError(f"{where}: all labels are {_sample(distinct)}; two different ones are needed")
    if positive is not None:
        if len(distinct) > 2:
            raise InputError(_too_many(where, distinct))
        is_positive = values == (str(positive) if values.dtype.kind == "U" else positive)
        if not np.any(is_positive):
            raise InputError(f'data.positive: no label in {where} is "{positive}"; the labels are {_sample(distinct)}')
        return replace(records, y=np.where(is_positive, 1.0, -1.0))
    try:
        numbers = values.astype(np.float64)
    except ValueError:
        numbers = np.full(len(values), np.nan)
    odd = np.unique(values[(numbers != 1.0) & (numbers != -1.0)])
    if len(odd) and len(distinct) > 2:
        raise InputError(_too_many(where, distinct))
    if len(odd):
        raise InputError(
            f"{where}: found the label {_sample(odd)}; labels must be +1 or -1, or data.positive says which of two is +1"
        )
    return replace(records, y=numbers)


def _too_many(where: str, distinct: NDArray[Any]) -> str:
    return f"{where}: found {len(distinct)} different labels ({_sample(distinct)}); two are needed"


def _sample(values: NDArray[Any]) -> str:
    shown = [str(value) if values.dtype.kind == "U" else f"{value:g}" for value in values[:10]]
    return ", ".join(shown) + (", ..." if len(values) > 10 else "")


def read_csv(path: Path, wanted: Wanted, separator: str | None = None) -> Records:
    """A header line and one record per line; columns that are not numbers are text.

    Without a header, which is a first line of numbers only, the label is the last column.
    """
    separator = separator or detected_separator(path)
    rows = [row for row in csv.reader(io.StringIO(text(path)), delimiter=separator, skipinitialspace=True) if row]
    if not rows:
        raise InputError(f"{path} is empty")
    header, has_header = header_of(rows[0], wanted.label)
    rows = rows[1:] if has_header else rows
    if not rows:
        raise InputError(f"{path} has a header but no records")
    return table(rows, header, wanted, path, first_line=2 if has_header else 1)


def csv_header(path: Path, separator: str) -> list[str]:
    """The names of the columns of a csv file; "label" for the last one, if the file does not say."""
    with open_bytes(path) as file:
        first = next((line for line in file if line.strip()), b"").decode("utf-8-sig", errors="replace")
    if not first:
        raise InputError(f"{path} is empty")
    return header_of(next(csv.reader([first], delimiter=separator, skipinitialspace=True)), "label")[0]


def header_of(first: Sequence[str], label: str) -> tuple[list[str], bool]:
    """The names of the columns, and whether the first line has them."""
    names = [cell.strip() for cell in first]
    if all(_is_number(cell) for cell in names):
        return [*map(str, range(len(names) - 1)), label], False
    return names, True


def detected_separator(path: Path) -> str:
    """The comma, unless another separator divides the first lines into equal numbers of columns, and the comma does not."""
    with open_bytes(path) as file:
        filled = (line for line in file if line.strip())
        lines = [line.decode(errors="replace") for line in itertools.islice(filled, SEPARATOR_LINES)]
    columns = {}
    for separator in SEPARATORS:
        try:
            widths = {len(row) for row in csv.reader(lines, delimiter=separator, skipinitialspace=True) if row}
        except csv.Error:
            continue
        if len(widths) == 1 and (width := widths.pop()) > 1:
            columns[separator] = width
    if "," in columns or not columns:
        return ","
    return max(columns, key=lambda separator: columns[separator])


@contextmanager
def open_bytes(path: Path) -> Iterator[BinaryIO]:
    """A file, plain or compressed, to be read piece by piece."""
    try:
        with naming(path), open_to_read(path) as raw:
            start = raw.read(6)
            raw.seek(0)
            opener = next((opener for magic, opener in _OPEN.items() if start.startswith(magic)), None)
            yield opener(raw) if opener else raw
    except (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile) as error:
        raise InputError(f"{path} is damaged or cut short ({error}); get the file again") from None
    except OSError as error:
        raise InputError(f"{path} cannot be read: {reason_of(error)}; {advice_on(error)}") from None


def table(
    rows: list[list[str]],
    header: list[str],
    wanted: Wanted,
    path: Path,
    categories: dict[str, tuple[str, ...]] | None = None,
    first_line: int = 1,
) -> Records:
    """Cells -> typed columns and labels. `categories` fixes the categories, and so the kind, of named columns."""
    wanted.check(header, str(path))
    for number, row in enumerate(rows, first_line):
        if len(row) != len(header):
            raise InputError(f"{path} line {number} has {len(row)} columns, but {len(header)} are expected")
    cells = {name: [row[k].strip() for row in rows] for k, name in enumerate(header)}
    if any(value in MISSING for value in cells[wanted.label]):
        raise InputError(f'{path} has records without a label in column "{wanted.label}"; remove them')
    columns = []
    for name in wanted.features(header):
        known = (categories or {}).get(name)
        columns.append(column(name, cells[name], known, as_text=known is not None or name in wanted.categorical))
    return Records(y=np.array(cells[wanted.label], dtype=str), columns=tuple(columns))


def column(name: str, values: list[str], categories: tuple[str, ...] | None, as_text: bool) -> Column:
    """Numbers, if all cells are."""
    if not as_text:
        try:
            numbers = np.array([np.nan if value in MISSING else float(value) for value in values])
            return Column(name, numbers)
        except ValueError:
            pass
    return Column(name, np.array(["" if value in MISSING else value for value in values], dtype=str), categories)


def read_npz(path: Path) -> Records:
    """X and y, or y and the parts of a CSR matrix: data, indices, indptr, shape (also with the prefix X_)."""
    try:
        with np.load(io.BytesIO(content(path)), allow_pickle=False) as archive:
            arrays = dict(archive)
    except (ValueError, OSError, EOFError, TypeError, AttributeError, zipfile.BadZipFile, zlib.error, KeyError):
        raise InputError(f"{path} is not a readable npz file of plain arrays; is data.source right?") from None
    return _from_arrays(arrays, path)


def read_hdf5(path: Path) -> Records:
    """Datasets as in npz."""
    import h5py

    from dpadmm_mpi.hdf5 import open_to_read, own_item, reading

    with open_to_read(path) as file, reading(path):
        items = {name: own_item(file, name, path) for name in file}
        arrays = {name: item[...] for name, item in items.items() if isinstance(item, h5py.Dataset)}
    return _from_arrays(arrays, path)


def _from_arrays(arrays: dict[str, Any], path: Path) -> Records:
    if "y" not in arrays:
        raise InputError(f"{path} has no array y; found {', '.join(arrays) or 'nothing'}")
    if any(np.iscomplexobj(values) for values in arrays.values()):
        raise InputError(f"{path} holds complex numbers; real ones are needed")
    X: Any
    try:
        X = np.ascontiguousarray(arrays["X"], dtype=np.float64) if "X" in arrays else _csr_of_parts(arrays, path)
        y = np.asarray(arrays["y"], dtype=np.float64).ravel()
    except (TypeError, ValueError) as error:
        raise InputError(f"{path} holds something other than numbers ({error})") from None
    if X.ndim != 2 or X.shape[0] != len(y):
        raise InputError(f"{path}: X has the shape {X.shape} and y {len(y)} labels; X needs a row per label")
    if not X.size:
        raise InputError(f"{path}: X has the shape {X.shape}; at least one record and one feature are needed")
    return Records(y=y, X=X)


def _csr_of_parts(arrays: dict[str, Any], path: Path) -> Any:
    from scipy.sparse import csr_matrix

    for prefix in ("", "X_"):
        names = [f"{prefix}{part}" for part in ("data", "indices", "indptr", "shape")]
        if all(name in arrays for name in names):
            values, indices, indptr, shape = (arrays[name] for name in names)
            X = csr_matrix((values.astype(np.float64), indices, indptr), shape=tuple(shape))
            X.check_format(full_check=True)
            return _in_the_right_storage(X)
    raise InputError(f"{path} has neither X nor the CSR parts data, indices, indptr and shape; found {', '.join(arrays)}")


def read_libsvm(path: Path, features: int | None) -> Records:
    """`label index:value ...` per line, indices from 1."""
    from scipy.sparse import csr_matrix

    lines = [line for line in (line.split("#")[0] for line in text(path).splitlines()) if line.strip()]
    if not lines:
        raise InputError(f"{path} is empty")
    for number, line in enumerate(lines):
        if not _LIBSVM_LINE.fullmatch(line):
            raise InputError(f'{path} record {number} is "{line[:60]}"; "label index:value ..." is needed')
    counts = np.array([line.count(":") for line in lines])
    try:
        tokens = np.array(" ".join(lines).replace(":", " ").split(), dtype=np.float64)
    except ValueError as error:
        raise InputError(f"{path} is not in LIBSVM format ({error})") from None
    starts = np.concatenate([[0], np.cumsum(1 + 2 * counts)[:-1]])
    pairs = np.delete(tokens, starts).reshape(-1, 2)
    indices = pairs[:, 0].astype(np.int64) - 1
    if np.any(indices < 0):
        raise InputError(f"{path} has a feature number 0; they are counted from 1")
    highest = int(indices.max(initial=-1)) + 1
    if highest > np.iinfo(np.int32).max:
        raise InputError(f"{path} has the feature number {highest}, which is too large; is it a LIBSVM file?")
    width = features or highest
    if highest > width:
        raise InputError(f"data.features: {path} has feature {highest}, but only {width} are expected; set data.features")
    X = csr_matrix((pairs[:, 1], indices, np.concatenate([[0], np.cumsum(counts)])), shape=(len(lines), width))
    return Records(y=tokens[starts], X=_in_the_right_storage(X))


def _in_the_right_storage(X: Any) -> Any:
    X.sum_duplicates()
    return X.toarray() if X.nnz > DENSE_SHARE * X.shape[0] * X.shape[1] else X


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True
