"""Files -> Records: csv, npz, HDF5 and LIBSVM, plain or compressed (gz, bz2, xz)."""

import csv
import io
import itertools
import re
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpadmm_mpi.data.bounded import content, names_in, open_bytes, read_arrays, refuse_expansion, refuse_width, text
from dpadmm_mpi.data.records import Column, Records, Wanted
from dpadmm_mpi.errors import InputError
from dpadmm_mpi.files import size_of

# Above this share of non-zeros a sparse matrix is kept dense: less memory per entry, and BLAS.
DENSE_SHARE = 1 / 3
MISSING = ("", "?", "NA", "nan", "NaN")

SEPARATORS = (",", ";", "\t", "|")
SEPARATOR_LINES = 20  # that they are detected from
LONGEST_LINE = 16 << 20  # bytes of a line that is looked at before the file is read
MOST_COLUMNS = 100_000  # of a table; wider data are matrices, in npz, HDF5 or LIBSVM files
MATRIX, SPARSE = ("X", "y"), ("data", "indices", "indptr", "shape")
ARRAYS = (*MATRIX, *SPARSE, *(f"X_{part}" for part in SPARSE))  # that npz and HDF5 files may hold

__all__ = ["content", "open_bytes", "text"]  # of bounded.py, for those who read files in other ways

_LIBSVM_LINE = re.compile(r"\s*[^\s:]+(\s+\d+:[^\s:]+)*\s*")


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
    rows = list(csv_rows(io.StringIO(text(path)), separator, path))
    if not rows:
        raise InputError(f"{path} is empty")
    header, has_header = header_of(rows[0], wanted.label)
    rows = rows[1:] if has_header else rows
    if not rows:
        raise InputError(f"{path} has a header but no records")
    return table(rows, header, wanted, path, first_line=2 if has_header else 1)


def csv_rows(lines: Iterable[str], separator: str, path: Path) -> Iterator[list[str]]:
    """The rows that are not empty; one sentence where csv gives up."""
    reader = csv.reader(lines, delimiter=separator, skipinitialspace=True)
    try:
        yield from (row for row in reader if row)
    except csv.Error as error:
        limit = csv.field_size_limit()
        reason = (
            f"a cell has more than {limit:,} characters; is a quotation mark not closed?"
            if "limit" in str(error)
            else "a carriage return stands alone; end every line with a newline"
            if "new-line" in str(error)
            else str(error)
        )
        raise InputError(f"{path} line {reader.line_num} cannot be read as csv: {reason}") from None


def csv_header(path: Path, separator: str) -> list[str]:
    """The names of the columns of a csv file; "label" for the last one, if the file does not say."""
    lines = [line.decode("utf-8-sig", errors="replace") for line in first_lines(path, 1)]
    first = next(csv_rows(lines, separator, path), None)
    if first is None:
        raise InputError(f"{path} is empty")
    return header_of(first, "label")[0]


def first_lines(path: Path, count: int) -> list[bytes]:
    """Of those that are not empty."""
    with open_bytes(path) as file:
        filled = (line for line in iter(lambda: file.readline(LONGEST_LINE), b"") if line.strip())
        return list(itertools.islice(filled, count))


def header_of(first: Sequence[str], label: str) -> tuple[list[str], bool]:
    """The names of the columns, and whether the first line has them."""
    names = [cell.strip() for cell in first]
    if all(_is_number(cell) for cell in names):
        return [*map(str, range(len(names) - 1)), label], False
    return names, True


def detected_separator(path: Path) -> str:
    """The comma, unless another separator divides the first lines into equal numbers of columns, and the comma does not."""
    lines = [line.decode(errors="replace") for line in first_lines(path, SEPARATOR_LINES)]
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


def table(
    rows: list[list[str]],
    header: list[str],
    wanted: Wanted,
    path: Path,
    categories: dict[str, tuple[str, ...]] | None = None,
    first_line: int = 1,
) -> Records:
    """Cells -> typed columns and labels. `categories` fixes the categories, and so the kind, of named columns."""
    if len(header) > MOST_COLUMNS:
        raise InputError(f"{path} has {len(header):,} columns; a table has at most {MOST_COLUMNS:,}; use npz, HDF5 or LIBSVM")
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
        return _from_arrays(read_arrays(path, ARRAYS), names_in(path), path)
    except (ValueError, OSError, EOFError, TypeError, AttributeError, zipfile.BadZipFile, zlib.error, KeyError, RuntimeError):
        # RuntimeError: zipfile's, of a password, or of a way to compress that it does not know
        raise InputError(f"{path} is not a readable npz file of plain arrays; is data.source right?") from None


def read_hdf5(path: Path) -> Records:
    """Datasets as in npz."""
    import h5py

    from dpadmm_mpi.hdf5 import open_to_read, own_item, reading

    with open_to_read(path) as file, reading(path):
        found = {name: own_item(file, name, path) for name in ARRAYS if name in file}
        datasets = {name: item for name, item in found.items() if isinstance(item, h5py.Dataset)}
        refuse_expansion(path, sum(item.nbytes for item in datasets.values()), size_of(path))
        arrays, names = {name: item[...] for name, item in datasets.items()}, list(file)
    return _from_arrays(arrays, names, path)


def _from_arrays(arrays: dict[str, Any], names: list[str], path: Path) -> Records:
    """`names`: of all arrays in the file, for errors."""
    if "y" not in arrays:
        raise InputError(f"{path} has no array y; found {', '.join(names[:12]) or 'nothing'}")
    if any(np.iscomplexobj(values) for values in arrays.values()):
        raise InputError(f"{path} holds complex numbers; real ones are needed")
    X: Any
    try:
        with np.errstate(all="ignore"):  # numbers beyond float64 become inf, which is refused later
            X = np.ascontiguousarray(arrays["X"], dtype=np.float64) if "X" in arrays else _csr_of_parts(arrays, names, path)
            y = np.asarray(arrays["y"], dtype=np.float64).ravel()
    except (TypeError, ValueError, OverflowError, IndexError) as error:
        raise InputError(f"{path} holds something other than numbers ({error})") from None
    if X.ndim != 2 or X.shape[0] != len(y):
        raise InputError(f"{path}: X has the shape {X.shape} and y {len(y)} labels; X needs a row per label")
    if not X.size:
        raise InputError(f"{path}: X has the shape {X.shape}; at least one record and one feature are needed")
    return Records(y=y, X=X)


def _csr_of_parts(arrays: dict[str, Any], names: list[str], path: Path) -> Any:
    from scipy.sparse import csr_matrix

    for prefix in ("", "X_"):
        parts = [f"{prefix}{part}" for part in SPARSE]
        if all(name in arrays for name in parts):
            values, indices, indptr, shape = (arrays[name] for name in parts)
            X = csr_matrix((values.astype(np.float64), indices, indptr), shape=tuple(np.ravel(shape).tolist()))
            refuse_width(path, X.shape[-1], values.nbytes)
            X.check_format(full_check=True)
            return _in_the_right_storage(X)
    raise InputError(f"{path} has neither X nor the CSR parts data, indices, indptr and shape; found {', '.join(names[:12])}")


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
    largest = pairs[:, 0].max(initial=0.0)
    refuse_width(path, largest, sum(map(len, lines)))
    indices = pairs[:, 0].astype(np.int64) - 1
    if np.any(indices < 0):
        raise InputError(f"{path} has a feature number 0; they are counted from 1")
    highest = int(largest)
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
