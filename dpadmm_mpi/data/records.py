"""Records on their way to numbers: columns and labels."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpadmm_mpi.errors import InputError
from dpadmm_mpi.registry import is_inside, place_of
from dpadmm_mpi.types import Bools, Ints, Matrix

LOOKED_AT = 1000  # values of a column from which it is judged whether they are dates
# 2021-03-04, 2021-03-04 05:06:07, 04.03.2021, 3/4/2021
_DATE = re.compile(r"(\d{4}-\d{1,2}-\d{1,2}([T ]\d{1,2}:\d{2}(:\d{2}(\.\d+)?)?Z?)?|\d{1,2}([./])\d{1,2}\5\d{4})")


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
    clipped: int = 0  # targets outside the given range, which count as its ends

    @property
    def words(self) -> str:
        if self.kind == "number":
            low, high = self.centre - self.scale, self.centre + self.scale
            return f"numbers from {low:g} to {high:g}, scaled into [-1, 1]"
        return f"{len(self.classes)} classes: {', '.join(self.classes)}"


SIGNS = Target()


@dataclass(frozen=True)
class Wanted:
    """Which columns of a table are read, and as what."""

    label: str
    categorical: tuple[str, ...] = ()  # text although they look like numbers
    drop: tuple[str, ...] = ()
    keep: tuple[str, ...] | None = None  # None: all but those of drop

    def check(self, header: Sequence[str], where: str) -> None:
        """Refuse a header with the same name twice, or without a column that is asked for."""
        duplicates = sorted(name for name, count in Counter(header).items() if count > 1)
        if duplicates:
            raise InputError(f'{where} has more than one column "{duplicates[0]}"; rename one')
        shown = ", ".join(header[:12]) + (", ..." if len(header) > 12 else "")
        for key, names in (("categorical", self.categorical), ("drop", self.drop), ("keep", self.keep or ())):
            for name in names:
                if name not in header:
                    raise InputError(f'data.{key}: {where} has no column "{name}"; its columns are {shown}')
        if self.label not in header:
            raise InputError(f'data.label: {where} has no column "{self.label}"; its columns are {shown}')
        if not self.features(header):
            raise InputError(f'{where} has no feature beside the label "{self.label}"; look at data.drop and data.keep')

    def features(self, header: Sequence[str]) -> list[str]:
        """The columns that are features, in the order of the file."""
        kept = header if self.keep is None else [name for name in header if name in self.keep]
        return [name for name in kept if name != self.label and name not in self.drop]


@dataclass(frozen=True)
class Records:
    """Either `columns`, while some may be text, or the matrix `X`, dense or CSR."""

    y: NDArray[Any]  # labels: as they are in the file, later as `target` says
    X: Matrix | None = None
    columns: tuple[Column, ...] = ()
    names: tuple[str, ...] | None = None  # of the features, where known
    training: int | None = None  # the first so many are the training file's, the rest a given test file's
    rows: Ints | None = None  # numbers of the records in their files, counted from 0; None: all, in their order
    groups: Ints | None = None  # of each record, which a partition may make nodes of; -1: none
    group_names: tuple[str, ...] = ()
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
            rows=np.flatnonzero(rows) if self.rows is None else self.rows[rows],
            groups=None if self.groups is None else self.groups[rows],
        )

    def learned_from(self) -> slice:
        """The records that a step may learn from: not those of a test file."""
        return slice(self.training)

    def grouped_by(self, name: str) -> "Records":
        """One group for each value of a column, which is then no feature."""
        found = next((column for column in self.columns if column.name == name), None)
        if found is None:
            known = ", ".join(column.name for column in self.columns[:12]) or "none with a name"
            raise InputError(f'data.column: there is no column "{name}" (data.keep must list it); the columns are {known}')
        if found.missing.any():
            first = int(np.argmax(found.missing))
            raise InputError(f'data.column: record {first} has no value in column "{name}"; add it, or remove the record')
        values, groups = np.unique(found.values, return_inverse=True)
        names = tuple(str(value) if found.is_text else f"{value:g}" for value in values)
        rest = tuple(column for column in self.columns if column is not found)
        if not rest:
            raise InputError(f'data.column: no feature is left beside the column "{name}"')
        return replace(self, columns=rest, groups=groups.astype(np.int64), group_names=names)


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
            raise InputError(_about_text(column))
        if column.missing.any():
            first = int(np.argmax(column.missing))
            raise InputError(
                f'column "{column.name}" has missing values, the first in record {first}; add "drop-missing" or '
                '"impute" to data.preprocess'
            )
    return replace(
        records,
        X=np.column_stack([column.values for column in records.columns]),
        columns=(),
        names=tuple(column.name for column in records.columns),
    )


def _about_text(column: Column) -> str:
    sample = next((value for value in column.values.tolist() if value), "")
    way = 'add "one-hot" to data.preprocess, or drop it with'
    if looks_like_dates(column):
        return (
            f'column "{column.name}" holds dates, for example "{sample}"; drop it with data.drop = ["{column.name}"], or add '
            '"dates" to data.preprocess, which makes numbers of them'
        )
    return f'column "{column.name}" holds text, for example "{sample}"; {way} data.drop = ["{column.name}"]'


def looks_like_dates(column: Column) -> bool:
    """Whether a text column has nothing but dates, judged by its first values."""
    present = [value for value in column.values[:LOOKED_AT].tolist() if value] if column.is_text else []
    return bool(present) and all(_DATE.fullmatch(value) for value in present)


def stack(parts: Sequence[Records], names: Sequence[str]) -> Records:
    """Files with the same columns, one after the other; each is a group."""
    whole = parts[0]
    for name, part in zip(names[1:], parts[1:], strict=True):
        whole = concatenate(whole, part, f"{name} has", f"{names[0]} has")
    groups = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
    return replace(whole, training=None, groups=groups, group_names=tuple(names))


def concatenate(
    training: Records, test: Records, this: str = "the test file has", that: str = "the training file has"
) -> Records:
    """A training file and its test file, which then go through the same steps."""
    groups = None if training.groups is None else np.append(training.groups, np.full(len(test), -1))
    training = replace(training, groups=groups)
    if training.X is None:
        ours, theirs = [c.name for c in training.columns], [c.name for c in test.columns]
        if ours != theirs:
            odd = sorted(set(ours) ^ set(theirs)) or ["their order"]
            raise InputError(f"{this} other columns than {that.removesuffix(' has')}: {', '.join(odd[:5])}")
        pairs = zip(training.columns, test.columns, strict=True)
        columns = tuple(replace(a, values=_join_values(a, b)) for a, b in pairs)
        return replace(training, y=np.append(training.y, test.y), columns=columns, training=len(training))
    if training.X.shape[1] != test.matrix.shape[1]:
        raise InputError(
            f"{this} {test.matrix.shape[1]} features, but {that} {training.X.shape[1]}; both files must have the same columns"
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
