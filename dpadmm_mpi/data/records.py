"""Records on their way to numbers: columns, labels, and the preprocessing steps that users name.

Every step is a function Records -> (Records, what it did in words); the words are kept with the results.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpadmm_mpi.data.shard import row_norms
from dpadmm_mpi.errors import InputError

Array = NDArray[np.float64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class Column:
    """One attribute of a table: numbers (nan: missing) or text ("": missing)."""

    name: str
    values: NDArray[Any]
    categories: tuple[str, ...] | None = None  # of text, in order; None: those that occur, sorted

    @property
    def is_text(self) -> bool:
        return self.values.dtype.kind == "U"

    @property
    def missing(self) -> Bools:
        return self.values == "" if self.is_text else np.isnan(self.values)


@dataclass(frozen=True)
class Records:
    """Either `columns`, while some may be text, or the matrix `X`, dense or CSR."""

    y: NDArray[Any]  # labels: as they are in the file, later -1 and +1
    X: Any = None
    columns: tuple[Column, ...] = ()
    names: tuple[str, ...] | None = None  # of the features, where known
    training: int | None = None  # the first so many are the training file's, the rest a given test file's

    def __len__(self) -> int:
        return len(self.y)

    def keep(self, rows: Bools) -> "Records":
        return replace(
            self,
            y=self.y[rows],
            X=None if self.X is None else self.X[rows],
            columns=tuple(replace(column, values=column.values[rows]) for column in self.columns),
            training=None if self.training is None else int(rows[: self.training].sum()),
        )


def drop_missing(records: Records) -> tuple[Records, str]:
    """Remove every record that lacks a value."""
    if records.X is None:
        missing = np.any([column.missing for column in records.columns], axis=0)
    elif isinstance(records.X, np.ndarray):
        missing = np.isnan(records.X).any(axis=1)
    else:
        missing = np.zeros(len(records), dtype=bool)
        missing[records.X.nonzero()[0][np.isnan(records.X.data)]] = True
    kept = records.keep(~missing)
    if not len(kept):
        raise InputError("no record is left after drop-missing; look at the columns with missing values")
    return kept, f"{missing.sum()} of {len(records)} records dropped for missing values"


def one_hot(records: Records) -> tuple[Records, str]:
    """Replace each text column by one 0/1 column per category, named attribute=category, in its place."""
    parts: list[Array] = []
    names: list[str] = []
    expanded = 0
    for column in records.columns:
        if not column.is_text:
            parts.append(column.values[:, None])
            names.append(column.name)
            continue
        if column.missing.any():
            raise InputError(f'column "{column.name}" has missing values; put drop-missing before one-hot')
        categories = column.categories or tuple(np.unique(column.values).tolist())
        unknown = sorted(set(column.values.tolist()) - set(categories))
        if unknown:
            raise InputError(f'column "{column.name}" has the unknown category "{unknown[0]}"; known: {", ".join(categories)}')
        parts.append((column.values[:, None] == np.array(categories)).astype(np.float64))
        names += [f"{column.name}={category}" for category in categories]
        expanded += 1
    if not records.columns:
        return records, "no text columns to expand"
    return (
        replace(records, X=np.hstack(parts), columns=(), names=tuple(names)),
        f"{expanded} text columns expanded, {len(names)} features in all",
    )


def scale_columns(records: Records) -> tuple[Records, str]:
    """Divide each column by its largest absolute value over all records; a column of zeros stays."""
    records = as_matrix(records)
    largest = abs(records.X).max(axis=0)
    largest = largest if isinstance(largest, np.ndarray) else largest.toarray().ravel()
    zeros = int((largest == 0).sum())
    factor = 1.0 / np.where(largest > 0, largest, 1.0)
    return _times(records, factor[None, :]), f"columns divided by their largest absolute value, {zeros} of them zero"


def scale_rows(records: Records) -> tuple[Records, str]:
    """Divide each row with a norm above 1 by its norm."""
    records = as_matrix(records)
    norms = row_norms(records.X)
    return _times(
        records, 1.0 / np.maximum(norms, 1.0)[:, None]
    ), f"{(norms > 1).sum()} of {len(records)} rows scaled to norm 1"


STEPS: dict[str, Callable[[Records], tuple[Records, str]]] = {
    "drop-missing": drop_missing,
    "one-hot": one_hot,
    "scale-columns": scale_columns,
    "scale-rows": scale_rows,
}


def preprocess(records: Records, steps: list[str]) -> tuple[Records, list[str]]:
    """The steps in the given order, then a matrix; with what each did."""
    done = []
    for step in steps:
        records, words = STEPS[step](records)
        done.append(f"{step}: {words}")
    return as_matrix(records), done


def as_matrix(records: Records) -> Records:
    """Columns, all of them numbers by now, side by side."""
    if records.X is not None:
        return records
    for column in records.columns:
        if column.is_text:
            sample = next((value for value in column.values.tolist() if value), "")
            raise InputError(
                f'column "{column.name}" holds text, for example "{sample}"; add "one-hot" to data.preprocess, or remove it'
            )
        if column.missing.any():
            first = int(np.argmax(column.missing))
            raise InputError(
                f'column "{column.name}" has missing values, the first in record {first}; add "drop-missing" to data.preprocess'
            )
    return replace(
        records,
        X=np.column_stack([column.values for column in records.columns]),
        columns=(),
        names=tuple(column.name for column in records.columns),
    )


def concatenate(training: Records, test: Records) -> Records:
    """A training file and its test file, which then go through the same steps."""
    if training.X is None:
        ours, theirs = [c.name for c in training.columns], [c.name for c in test.columns]
        if ours != theirs:
            odd = sorted(set(ours) ^ set(theirs)) or ["their order"]
            raise InputError(f"the test file has other columns than the training file: {', '.join(odd[:5])}")
        pairs = zip(training.columns, test.columns, strict=True)
        columns = tuple(replace(a, values=_join_values(a, b)) for a, b in pairs)
        return replace(training, y=np.append(training.y, test.y), columns=columns, training=len(training))
    if training.X.shape[1] != test.X.shape[1]:
        raise InputError(
            f"the test file has {test.X.shape[1]} features, but the training file has {training.X.shape[1]}; both files must "
            "have the same columns"
        )
    if isinstance(training.X, np.ndarray) and isinstance(test.X, np.ndarray):
        X: Any = np.vstack([training.X, test.X])
    else:
        from scipy.sparse import vstack

        X = vstack([training.X, test.X], format="csr")
    return replace(training, X=X, y=np.append(training.y, test.y), training=len(training))


def _join_values(a: Column, b: Column) -> NDArray[Any]:
    if a.is_text != b.is_text:
        raise InputError(f'column "{a.name}" holds numbers in one file and text in the other')
    return np.concatenate([a.values, b.values])


def _times(records: Records, factor: Array) -> Records:
    if isinstance(records.X, np.ndarray):
        return replace(records, X=records.X * factor)
    return replace(records, X=records.X.multiply(factor).tocsr())
