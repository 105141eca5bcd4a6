"""Large tables, piece by piece: csv through pandas, Parquet through pyarrow. Both are extras, loaded here alone.

A csv file gives the same records to the bit as `readers.read_csv`, without a Python object for each cell.
"""

import io
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from dpadmm_mpi.data import readers
from dpadmm_mpi.data.bounded import refuse_expansion
from dpadmm_mpi.data.records import Column, Records, Wanted
from dpadmm_mpi.errors import InputError
from dpadmm_mpi.files import refuse_special, size_of
from dpadmm_mpi.types import Bools

LARGE = 8 << 20  # bytes of a csv file from which on it is worth while to load pandas
BLOCK = 16 << 20  # bytes at a time


class _IsText(Exception):
    """A column that looked like numbers so far holds something else."""


def read_any_csv(path: Path, wanted: Wanted, separator: str | None = None) -> Records:
    """A large file through pandas, where it is installed; otherwise by `readers.read_csv`, with the same result."""
    if size_of(path) > LARGE and find_spec("pandas") is not None:
        return read_large_csv(path, wanted, separator or readers.detected_separator(path))
    return readers.read_csv(path, wanted, separator)


def read_large_csv(path: Path, wanted: Wanted, separator: str) -> Records:
    """See readers.read_csv."""
    as_text = {wanted.label, *wanted.categorical}
    while True:
        try:
            return _read_csv(path, wanted, separator, as_text)
        except _IsText as found:
            as_text.update(found.args)


def _read_csv(path: Path, wanted: Wanted, separator: str, as_text: set[str]) -> Records:
    """Columns that are not in `as_text` must be numbers: _IsText with those that are not."""
    parts: dict[str, list[NDArray[Any]]] = {}
    header: list[str] = []
    line = 1
    with readers.open_bytes(path) as file:
        for block in _blocks(file):
            if not header:
                block = block.removeprefix(b"\xef\xbb\xbf")
                header, block, line = _take_header(block, wanted, separator, path)
                parts = {name: [] for name in [wanted.label, *wanted.features(header)]}
            if b"\0" in block:
                raise InputError(f"{path} is not text (it has NUL bytes); is data.source right?")
            line += _refuse_ragged(block, separator, len(header), line, path)
            for name, values in _columns_of(block, header, list(parts), as_text, separator, path).items():
                parts[name].append(values)
    if not any(len(part) for part in next(iter(parts.values()), [])):
        raise InputError(f"{path} has a header but no records" if header else f"{path} is empty")
    labels = np.concatenate(parts.pop(wanted.label))
    if np.isin(labels, readers.MISSING).any():
        raise InputError(f'{path} has records without a label in column "{wanted.label}"; remove them')
    columns = []
    for name in list(parts):
        values = np.concatenate(parts.pop(name))
        if values.dtype.kind == "U":  # perhaps numbers in a form that only Python's float knows
            columns.append(readers.column(name, values.tolist(), None, name in wanted.categorical))
        else:
            columns.append(Column(name, values))
    return Records(y=labels, columns=tuple(columns))


def _blocks(file: BinaryIO) -> Iterator[bytes]:
    """About BLOCK bytes each, up to the end of a line that is not inside quotes."""
    rest = b""
    while piece := file.read(BLOCK):
        rest += piece
        end = rest.rfind(b"\n") + 1
        while end and rest.count(b'"', 0, end) % 2:
            end = rest.rfind(b"\n", 0, end - 1) + 1
        if end:
            yield rest[:end]
            rest = rest[end:]
    if rest:
        yield rest


def _take_header(block: bytes, wanted: Wanted, separator: str, path: Path) -> tuple[list[str], bytes, int]:
    """The names of the columns, what follows them, and the number of the line at which that begins."""
    block = block.lstrip(b"\r\n")
    first, _, rest = block.partition(b"\n")
    try:
        cells = next(readers.csv_rows([first.decode()], separator, path), [])
    except UnicodeDecodeError:
        raise InputError(f"{path} is not text; is data.source right?") from None
    header, has_header = readers.header_of(cells, wanted.label)
    if len(header) > readers.MOST_COLUMNS:
        raise InputError(f"{path} has {len(header):,} columns; a table has at most {readers.MOST_COLUMNS:,}")
    wanted.check(header, str(path))
    return (header, rest, 2) if has_header else (header, block, 1)


def _refuse_ragged(block: bytes, separator: str, width: int, line: int, path: Path) -> int:
    """The number of records; InputError if one has more or fewer cells than the header."""
    if b'"' in block:
        text = io.StringIO(block.decode(errors="replace"), newline="")
        widths = np.array([len(row) for row in readers.csv_rows(text, separator, path)])
    else:
        characters = np.frombuffer(block if block.endswith(b"\n") else block + b"\n", dtype=np.uint8)
        ends = np.flatnonzero(characters == ord("\n"))
        starts = np.concatenate([[0], ends[:-1] + 1])
        before = np.searchsorted(np.flatnonzero(characters == ord(separator)), np.append(starts, len(characters)))
        filled = (ends - starts) - (characters[ends - 1] == ord("\r")) > 0
        widths = 1 + np.diff(before)[filled]
    wrong = np.flatnonzero(widths != width)
    if len(wrong):
        found = widths[wrong[0]]
        raise InputError(f"{path} line {line + wrong[0]} has {found} columns, but {width} are expected")
    return len(widths)


def _exact(version: str) -> dict[str, Any]:
    """Numbers as Python reads them: since pandas 3.1 they always are, and the option that asked for it is going away."""
    major, minor = (int(part) for part in version.split(".")[:2])
    return {} if (major, minor) >= (3, 1) else {"float_precision": "round_trip"}


def _columns_of(
    block: bytes, header: list[str], names: list[str], as_text: set[str], separator: str, path: Path
) -> dict[str, NDArray[Any]]:
    import pandas as pd

    numbers = [name for name in names if name not in as_text]
    if not block.strip():
        return {}
    try:
        frame = pd.read_csv(
            io.BytesIO(block), sep=separator, header=None, names=header, usecols=names, index_col=False, skipinitialspace=True,
            dtype={name: object for name in names if name in as_text}, keep_default_na=False,
            na_values={name: list(readers.MISSING) for name in numbers}, low_memory=False, **_exact(pd.__version__),
        )  # fmt: skip
    except UnicodeDecodeError:
        raise InputError(f"{path} is not text; is data.source right?") from None
    except (pd.errors.ParserError, pd.errors.EmptyDataError, ValueError, OverflowError) as error:
        raise InputError(f"{path} cannot be read as csv: {error}") from None
    other = [name for name in numbers if frame[name].dtype.kind not in "iuf"]
    if other:
        raise _IsText(*other)
    found: dict[str, NDArray[Any]] = {name: frame[name].to_numpy(dtype=np.float64) for name in numbers}
    for name in names:
        if name in as_text:
            found[name] = np.char.strip(frame[name].to_numpy(dtype=str))
    return found


@contextmanager
def _open_parquet(path: Path) -> Iterator[Any]:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise InputError('Parquet files need pyarrow; install it with: pip install "dpadmm-mpi[tables]"') from None
    refuse_special(path)
    try:
        with pq.ParquetFile(path) as file:
            yield file
    except (OSError, pa.ArrowException, ValueError, UnicodeDecodeError, OverflowError, KeyError) as error:
        raise InputError(f"{path} is not a readable Parquet file ({error}); is data.source right?") from None


def parquet_header(path: Path) -> list[str]:
    """The names of the columns."""
    with _open_parquet(path) as file:
        return list(file.schema_arrow.names)


def read_parquet(path: Path, wanted: Wanted) -> Records:
    """Numbers and truth values are numbers, everything else is text; what is null is missing."""
    with _open_parquet(path) as file:
        header = list(file.schema_arrow.names)
        wanted.check(header, str(path))
        declared = 8 * file.metadata.num_rows * len(header)
        refuse_expansion(path, declared, size_of(path))
        names = [wanted.label, *wanted.features(header)]
        parts: dict[str, list[NDArray[Any]]] = {name: [] for name in names}
        for batch in file.iter_batches(columns=names):
            for name in names:
                parts[name].append(_values_of(batch.column(name), name in wanted.categorical))
    whole = {name: np.concatenate(parts.pop(name)) if parts[name] else np.empty(0) for name in names}
    labels = whole.pop(wanted.label)
    if not len(labels):
        raise InputError(f"{path} has no records")
    if _missing(labels).any():
        raise InputError(f'{path} has records without a label in column "{wanted.label}"; remove them')
    return Records(y=labels, columns=tuple(Column(name, values) for name, values in whole.items()))


def _missing(values: NDArray[Any]) -> Bools:
    return values == "" if values.dtype.kind == "U" else np.isnan(values)


def _values_of(array: Any, categorical: bool) -> NDArray[Any]:
    import pyarrow as pa

    kind = array.type
    is_number = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    if pa.types.is_boolean(kind):
        array, is_number = array.cast(pa.int8()), True
    if is_number and not categorical:
        return np.asarray(array.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False), dtype=np.float64)
    text = array.cast(pa.string()).to_pylist()
    return np.array(["" if value is None or value in readers.MISSING else value for value in text], dtype=str)
