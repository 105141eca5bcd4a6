"""From raw files to a store in the cache: read, preprocess, check, write, once for each file and way of preprocessing.

Large files are prepared in a process of their own, so that rank 0 never holds more than its share.
"""

import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from dpadmm_mpi.data.cache import cache_folder
from dpadmm_mpi.data.records import Records, checked
from dpadmm_mpi.data.steps import Step, preprocess
from dpadmm_mpi.data.store import Store, open_store, write_store
from dpadmm_mpi.errors import InputError, RunError
from dpadmm_mpi.files import naming, open_to_read, size_of

VERSION = 4  # of the store and of what the steps do: a new one makes old stores unused
HUGE = 1e150  # of a feature: the largest whose square is a number, with room for sums of them
SMALL = 8 << 20  # bytes of raw files that are prepared in this process


class Preparable(Protocol):
    """A source of records in files."""

    @property
    def preprocessing(self) -> list[Step]: ...

    def files(self) -> dict[str, Path]: ...

    def read(self, files: dict[str, Path]) -> Records: ...

    def store_key(self, files: dict[str, Path], version: int) -> str:
        """A name for the store: changes with the files and with everything that shapes the records."""
        ...

    def request(self) -> dict[str, Any]:
        """From which another process makes the same source; plain tables."""
        ...


def ensure_store(source: Preparable, group_column: str | None = None) -> Store:
    """The prepared records of a source; grouped by a column, if one is named."""
    files = source.files()
    suffix = "" if group_column is None else f"-by-{hashlib.sha256(group_column.encode()).hexdigest()[:8]}"
    folder = cache_folder() / "prepared" / (source.store_key(files, VERSION) + suffix)
    if (store := open_store(folder)) is not None:
        return store
    if sum(size_of(path) for path in files.values()) <= SMALL:
        return prepare(source, files, folder, group_column)
    child = subprocess.run(
        [sys.executable, "-m", "dpadmm_mpi.data.preparing"],
        input=json.dumps({**source.request(), "folder": str(folder), "group_column": group_column}),
        capture_output=True,
        text=True,
        check=False,
    )
    if (store := open_store(folder)) is None:
        lines = child.stderr.strip().splitlines() or ["no reason given"]
        error = InputError if child.returncode == InputError.exit_code else RunError
        raise error(lines[-1])
    return store


def prepare(source: Preparable, files: dict[str, Path], folder: Path, group_column: str | None = None) -> Store:
    # No name for the records as they were read: they would be kept in memory beside what the steps make of them.
    with np.errstate(invalid="ignore"):  # of infinity, which is refused below
        prepared = preprocess(_read(source, files, group_column), source.preprocessing)
    _refuse_non_finite(prepared.records, files)
    digests = {name: _digest(path) for name, path in files.items()}
    return write_store(folder, prepared.records, prepared.done, digests, warnings=prepared.doubts, learned=prepared.learned)


def _read(source: Preparable, files: dict[str, Path], group_column: str | None) -> Records:
    records = checked(source.read(files), type(source), "read")
    _refuse_huge(records, files)
    return records if group_column is None else records.grouped_by(group_column)


def _refuse_huge(records: Records, files: dict[str, Path]) -> None:
    """Numbers whose squares are none any more: steps would make something else of them without a word."""
    X = records.X
    parts = [column.values for column in records.columns if not column.is_text]
    if X is not None:
        parts.append(X if isinstance(X, np.ndarray) else X.data)
    for values in parts:
        flat = values.ravel()
        largest = max(np.fmax.reduce(flat, initial=0.0), -np.fmin.reduce(flat, initial=0.0))
        if HUGE < largest < np.inf:  # infinity is refused later, with its record
            raise InputError(f"{' and '.join(files)}: found the number {largest:g}; at most {HUGE:g} is possible; scale it")


def _digest(path: Path) -> str:
    with naming(path), open_to_read(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _refuse_non_finite(records: Records, files: dict[str, Path]) -> None:
    X = records.matrix
    values = X if isinstance(X, np.ndarray) else X.data
    if np.isfinite(values).all():
        return
    if isinstance(X, np.ndarray):
        row = int(np.argmax(~np.isfinite(X).all(axis=1)))
    else:
        row = int(np.searchsorted(X.indptr, np.argmax(~np.isfinite(values)), side="right")) - 1
    raise InputError(
        f"{' and '.join(files)}: record {row} has a feature that is not a finite number; remove the record, or add "
        '"drop-missing" or "impute" to data.preprocess'
    )
