"""The preprocessing steps that users name: Records -> Records, with what was done in words, which are kept with the results.

A step that learns from the records (a mean, a largest value) releases what it learned through every classifier, and no privacy
account counts that: `learned` says so, and `dpadmm check`, the run and the result file repeat it.
"""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from dpadmm_mpi.config.options import Options, Positive
from dpadmm_mpi.data.columns import doubts
from dpadmm_mpi.data.records import Column, Records, as_matrix, checked, looks_like_dates
from dpadmm_mpi.data.shard import row_norms
from dpadmm_mpi.errors import InputError
from dpadmm_mpi.registry import Registry, place_of
from dpadmm_mpi.types import Array

steps = Registry["Step"]("preprocessing step", "steps")


@steps.base
class Step(Options):
    """Something that is done to all records, training and test alike, before they are spread."""

    by_record: ClassVar[bool] = False  # does to a record what it would do to it alone: shards may be prepared apart

    @abstractmethod
    def apply(self, records: Records) -> tuple[Records, str]:
        """The records afterwards, and what was done, in words."""

    def learned(self, records: Records) -> str:
        """What the step takes from these records, and privacy accounts do not count, in words; "": nothing."""
        return ""


@steps.register("drop-missing")
class DropMissing(Step):
    """Remove every record that lacks a value."""

    by_record: ClassVar[bool] = True

    def apply(self, records: Records) -> tuple[Records, str]:
        if records.X is None:
            missing = np.any([column.missing for column in records.columns], axis=0)
        elif isinstance(records.X, np.ndarray):
            missing = np.isnan(records.X).any(axis=1)
        else:
            missing = np.zeros(len(records), dtype=bool)
            rows = np.repeat(np.arange(len(records)), np.diff(records.X.indptr))
            missing[rows[np.isnan(records.X.data)]] = True
        kept = records.keep(~missing)
        if not len(kept):
            raise InputError("no record is left after drop-missing; look at the columns with missing values")
        return kept, f"{missing.sum()} of {len(records)} records dropped for missing values"


@steps.register("one-hot")
class OneHot(Step):
    """Replace each text column by one 0/1 column per category, named attribute=category, in its place.

    The categories are those that occur, or those of `categories`.
    """

    categories: dict[str, list[str]] | None = None  # of some columns, where they are publicly known
    unseen: Literal["zeros"] | None = None  # zeros: a category that is unknown, or in the test file alone, has no 1

    def _known(self, column: Column, records: Records) -> tuple[str, ...]:
        given = (self.categories or {}).get(column.name)
        if given is not None:
            return tuple(given)
        values = column.values[records.learned_from()] if self.unseen else column.values
        return column.categories or tuple(np.unique(values).tolist())

    def learned(self, records: Records) -> str:
        given = self.categories or {}
        names = [c.name for c in records.columns if c.is_text and c.categories is None and c.name not in given]
        return f"the categories of {_some(names)}; one-hot takes public ones by its option categories" if names else ""

    def apply(self, records: Records) -> tuple[Records, str]:
        parts: list[Array] = []
        names: list[str] = []
        expanded = 0
        for column in records.columns:
            if not column.is_text:
                parts.append(column.values[:, None])
                names.append(column.name)
                continue
            if column.missing.any():
                raise InputError(f'column "{column.name}" has missing values; put drop-missing or impute before one-hot')
            categories = self._known(column, records)
            unknown = sorted(set(column.values.tolist()) - set(categories))
            if unknown and self.unseen is None:
                raise InputError(
                    f'column "{column.name}" has the unknown category "{unknown[0]}"; known: {", ".join(categories)}; zeros '
                    'for all others: { step = "one-hot", unseen = "zeros" }'
                )
            parts.append((column.values[:, None] == np.array(categories)).astype(np.float64))
            names += [f"{column.name}={category}" for category in categories]
            expanded += 1
        if not records.columns:
            return records, "no text columns to expand"
        return (
            replace(records, X=np.hstack(parts), columns=(), names=tuple(names)),
            f"{expanded} text columns expanded, {len(names)} features in all",
        )


@steps.register("scale-columns")
class ScaleColumns(Step):
    """Divide each column by its largest absolute value over all records; a column of zeros stays."""

    def learned(self, records: Records) -> str:
        return "the largest absolute value of each column; standardise takes public ranges instead"

    def apply(self, records: Records) -> tuple[Records, str]:
        records = as_matrix(records)
        largest = abs(records.X).max(axis=0)  # type: ignore[arg-type]  # scipy's matrices have it too
        largest = largest if isinstance(largest, np.ndarray) else largest.toarray().ravel()
        zeros = int((largest == 0).sum())
        factor = 1.0 / np.where(largest > 0, largest, 1.0)
        return _times(records, factor[None, :]), f"columns divided by their largest absolute value, {zeros} of them zero"


@steps.register("scale-rows")
class ScaleRows(Step):
    """Divide each row with a norm above 1 by its norm, which the privacy bounds need."""

    by_record: ClassVar[bool] = True

    def apply(self, records: Records) -> tuple[Records, str]:
        records = as_matrix(records)
        norms = row_norms(records.matrix)
        scaled = _times(records, 1.0 / np.maximum(norms, 1.0)[:, None])
        return scaled, f"{(norms > 1).sum()} of {len(records)} rows scaled to norm 1"


@steps.register("clip-rows")
class ClipRows(Step):
    """Shorten each row with a norm above `bound` to it, then divide all rows by it: norms are at most 1 and still differ."""

    by_record: ClassVar[bool] = True

    bound: Positive | None = None  # None: the square root of the number of features, a usual norm of standardised rows

    def apply(self, records: Records) -> tuple[Records, str]:
        records = as_matrix(records)
        norms = row_norms(records.matrix)
        bound = self.bound or float(np.sqrt(records.matrix.shape[1]))
        clipped = _times(records, 1.0 / np.maximum(norms, bound)[:, None])
        return clipped, f"{(norms > bound).sum()} of {len(records)} rows shortened to norm {bound:.6g}, all divided by it"


@steps.register("intercept")
class Intercept(Step):
    """Append a column of ones, and divide all rows by sqrt(2), so that norms of at most 1 stay so; the last step."""

    by_record: ClassVar[bool] = True

    def apply(self, records: Records) -> tuple[Records, str]:
        records = as_matrix(records)
        ones = np.ones((len(records), 1))
        if isinstance(records.X, np.ndarray):
            X: Any = np.hstack([records.X, ones])
            X *= np.sqrt(0.5)
        else:
            from scipy.sparse import hstack

            X = hstack([records.X, ones], format="csr") * np.sqrt(0.5)
        names = None if records.names is None else (*records.names, "intercept")
        return replace(records, X=X, names=names), "a constant feature appended, rows divided by sqrt(2)"


@steps.register("impute")
class Impute(Step):
    """Fill in what is missing: numbers with the column's median, mean or a given number, categories with `missing`.

    `values` has numbers or categories for some columns by their names.
    """

    numbers: Literal["median", "mean"] | float = "median"  # what stands for a missing number
    values: dict[str, float | str] | None = None  # by column, what stands for a missing value there

    def learned(self, records: Records) -> str:
        given = self.values or {}
        names = [c.name for c in _number_columns(records) if c.missing.any() and c.name not in given]
        if not names or not isinstance(self.numbers, str):
            return ""
        return f"the {self.numbers} of {_some(names)}; impute takes public ones by its option values"

    def apply(self, records: Records) -> tuple[Records, str]:
        names = {column.name for column in (*records.columns, *_number_columns(records))}
        for name in self.values or {}:
            if name not in names:
                raise InputError(f'impute: there is no column "{name}"; remove it from values')
        filled = [0, 0]  # columns, values

        def fill(column: Column) -> NDArray[Any]:
            missing = column.missing
            if not missing.any():
                return column.values
            filled[0], filled[1] = filled[0] + 1, filled[1] + int(missing.sum())
            return np.where(missing, self._value(column, records), column.values)

        records = _each_column(records, fill, texts=True)
        return records, f"{filled[1]} missing values filled in, in {filled[0]} columns"

    def _value(self, column: Column, records: Records) -> Any:
        given = (self.values or {}).get(column.name)
        if column.is_text:
            return "missing" if given is None else str(given)
        if isinstance(given, str):
            raise InputError(f'impute: column "{column.name}" holds numbers, but values has the text "{given}"; give a number')
        if given is not None or not isinstance(self.numbers, str):
            return self.numbers if given is None else given
        values = column.values[records.learned_from()]
        present = values[~np.isnan(values)]
        if not len(present):
            raise InputError(
                f'impute: column "{column.name}" has no value at all to learn from; drop it with data.drop = ["{column.name}"]'
            )
        return np.median(present) if self.numbers == "median" else present.mean()


@steps.register("standardise")
class Standardise(Step):
    """Bring number columns to [-1, 1] by public `ranges`; without, to mean 0 and standard deviation 1, which is not private.

    What is outside a range is taken as its end; number columns without a range stay as they are.
    """

    ranges: dict[str, Annotated[list[float], Meta(min_length=2, max_length=2)]] | None = None  # name -> [lowest, highest]

    def learned(self, records: Records) -> str:
        if self.ranges is not None:
            return ""
        return "mean and standard deviation of each column; standardise takes public ranges instead"

    def apply(self, records: Records) -> tuple[Records, str]:
        names = {column.name for column in _number_columns(records)}
        for name, (low, high) in (self.ranges or {}).items():
            if name not in names:
                raise InputError(f'standardise: there is no number column "{name}"; remove it from ranges')
            if not low < high:
                raise InputError(f'standardise: the range of "{name}" is [{low:g}, {high:g}]; the lower end comes first')
        if self.ranges is None:
            words = f"{len(names)} columns brought to mean 0 and standard deviation 1"
            return _each_column(records, lambda column: _standard(column, records)), words
        outside = 0

        def into_range(column: Column) -> NDArray[Any]:
            nonlocal outside
            if column.name not in self.ranges:  # type: ignore[operator]  # it is not None here
                return column.values
            low, high = self.ranges[column.name]  # type: ignore[index]
            outside += int(((column.values < low) | (column.values > high)).sum())
            return np.clip((2.0 * column.values - (low + high)) / (high - low), -1.0, 1.0)

        records = _each_column(records, into_range)
        return records, f"{len(self.ranges)} columns brought to [-1, 1] by given ranges, {outside} values were outside"


def _standard(column: Column, records: Records) -> NDArray[Any]:
    known = column.values[records.learned_from()]
    known = known[~np.isnan(known)]
    spread = known.std() if len(known) else 0.0
    return (column.values - (known.mean() if len(known) else 0.0)) / (spread if spread > 0 else 1.0)


@steps.register("dates")
class Dates(Step):
    """Make numbers of columns that hold dates: years since the beginning of 2000."""

    format: str | None = None  # as in "%d.%m.%Y"; None: 2021-03-04, with or without a time of day

    def apply(self, records: Records) -> tuple[Records, str]:
        dates = [column.name for column in records.columns if looks_like_dates(column)]
        columns = tuple(
            replace(column, values=self._years(column), categories=None) if column.name in dates else column
            for column in records.columns
        )
        return replace(records, columns=columns), f"{len(dates)} columns of dates made years since 2000"

    def _years(self, column: Column) -> NDArray[Any]:
        from datetime import datetime

        values = np.full(len(column.values), np.nan)
        for row, value in enumerate(column.values.tolist()):
            if value:
                try:
                    date = datetime.strptime(value, self.format) if self.format else datetime.fromisoformat(value)
                except ValueError:
                    raise InputError(
                        f'dates: record {row} has "{value}" in column "{column.name}"; say how dates are written, as in '
                        '{ step = "dates", format = "%d.%m.%Y" }'
                    ) from None
                values[row] = (date.replace(tzinfo=None) - datetime(2000, 1, 1)).total_seconds() / (365.25 * 86400)
        return values


class Prepared(NamedTuple):
    """Records as a matrix, and what was done to them, learned from them and strange about them, in words."""

    records: Records
    done: list[str]
    learned: list[str]
    doubts: list[str]


def preprocess(records: Records, wanted: Sequence[Step]) -> Prepared:
    """The steps in the given order, then a matrix."""
    done, learned, strange = [], [], doubts(records.columns)
    for step in wanted:
        if taken := step.learned(records):
            learned.append(f"{steps.name_of(type(step))}: {taken}")
        applied = step.apply(records)
        if not isinstance(applied, tuple) or len(applied) != 2:
            raise InputError(f"{place_of(type(step))}: apply must return two things: the records, and what was done, in words")
        records, words = checked(applied[0], type(step), "apply"), applied[1]
        done.append(f"{steps.name_of(type(step))}: {words}")
    return Prepared(as_matrix(records), done, learned, strange)


def _times(records: Records, factor: Array) -> Records:
    if isinstance(records.X, np.ndarray):
        return replace(records, X=records.X * factor)
    return replace(records, X=records.matrix.multiply(factor).tocsr())  # type: ignore[union-attr]


def _number_columns(records: Records) -> list[Column]:
    """The columns of numbers, of a table or of a dense matrix, where they are called 0, 1, ... if they have no names."""
    if records.X is None:
        return [column for column in records.columns if not column.is_text]
    if not isinstance(records.X, np.ndarray):
        raise InputError("this step needs a dense matrix, but the features are sparse; use scale-columns or scale-rows")
    names = records.names or tuple(str(k) for k in range(records.X.shape[1]))
    return [Column(name, records.X[:, k]) for k, name in enumerate(names)]


def _each_column(records: Records, change: Callable[[Column], NDArray[Any]], texts: bool = False) -> Records:
    """With each column of numbers, and of text if asked for, replaced by what `change` makes of it."""
    if records.X is None:
        changed = [replace(c, values=change(c)) if texts or not c.is_text else c for c in records.columns]
        return replace(records, columns=tuple(changed))
    return replace(records, X=np.column_stack([change(column) for column in _number_columns(records)]))


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more columns" if len(names) > 4 else "")
