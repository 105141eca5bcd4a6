"""Records on their way to numbers: columns and labels."""

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpadmm_mpi.errors import InputError
from dpadmm_mpi.registry import is_inside, place_of
from dpadmm_mpi.types import Bools, Matrix


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


class Target(NamedTuple):
    """What the labels are: two classes, -1 and +1; several, counted from 0; or numbers, (label - centre) / scale in [-1, 1]."""

    kind: str = "binary"  # or "classes", "number"
    classes: tuple[str, ...] = ("-1", "+1")  # the labels in the file, in order; none of numbers
    centre: float = 0.0
    scale: float = 1.0
    range_from_records: bool = False  # the range of numbers was found, and not given

    @property
    def words(self) -> str:
        if self.kind == "number":
            low, high = self.centre - self.scale, self.centre + self.scale
            return f"numbers from {low:g} to {high:g}, scaled into [-1, 1]"
        return f"{len(self.classes)} classes: {', '.join(self.classes)}"


SIGNS = Target()


@dataclass(frozen=True)
class Records:
    """Either `columns`, while some may be text, or the matrix `X`, dense or CSR."""

    y: NDArray[Any]  # labels: as they are in the file, later as `target` says
    X: Matrix | None = None
    columns: tuple[Column, ...] = ()
    names: tuple[str, ...] | None = None  # of the features, where known
    training: int | None = None  # the first so many are the training file's, the rest a given test file's
    target: Target = SIGNS

    @property
    def matrix(self) -> Matrix:
        """X, where the columns have become one."""
        assert self.X is not None
        return self.X

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


def checked(records: Any, cls: type[object], function: str) -> Records:
    """What a class from outside calls records; InputError with its place where they are none."""
    if is_inside(cls):
        assert isinstance(records, Records)
        return records
    wrong = _wrong_with(records)
    if wrong:
        raise InputError(f"{place_of(cls)}: {function} must return Records(y=labels, X=matrix), but {wrong}")
    found: Records = records
    return found if found.X is None else replace(found, X=found.X.astype(np.float64))  # type: ignore[union-attr]  # CSR has it


def _wrong_with(records: Any) -> str:
    if not isinstance(records, Records):
        return f"it returns {type(records).__name__}"
    if not isinstance(records.y, np.ndarray) or records.y.ndim != 1 or not len(records.y):
        return "y is not an array of labels, one for each record"
    if records.X is None:
        lengths = sorted({len(column.values) for column in records.columns})
        return "" if lengths == [len(records.y)] else f"there are {len(records.y)} labels, and columns of {lengths} values"
    shape, dtype = getattr(records.X, "shape", None), getattr(records.X, "dtype", None)
    if shape is None or dtype is None or len(shape) != 2 or dtype.kind not in "fiub":
        return "X is not a matrix of numbers, (records, features), dense or scipy CSR"
    if not isinstance(records.X, np.ndarray) and getattr(records.X, "format", "") != "csr":
        return "X is neither a numpy array nor a scipy matrix in CSR format"
    return "" if shape[0] == len(records.y) and shape[1] else f"X has the shape {shape}, and y {len(records.y)} labels"


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
    if training.X.shape[1] != test.matrix.shape[1]:
        raise InputError(
            f"the test file has {test.matrix.shape[1]} features, but the training file has {training.X.shape[1]}; both files "
            "must have the same columns"
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
