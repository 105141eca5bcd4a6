"""The preprocessing steps that users name: Records -> Records, with what was done in words, which are kept with the results."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

import numpy as np

from dpadmm_mpi.config.options import Options
from dpadmm_mpi.data.records import Records, as_matrix, checked
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
    """Replace each text column by one 0/1 column per category, named attribute=category, in its place."""

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
                raise InputError(f'column "{column.name}" has missing values; put drop-missing before one-hot')
            categories = column.categories or tuple(np.unique(column.values).tolist())
            unknown = sorted(set(column.values.tolist()) - set(categories))
            if unknown:
                known = ", ".join(categories)
                raise InputError(f'column "{column.name}" has the unknown category "{unknown[0]}"; known: {known}')
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


def preprocess(records: Records, wanted: Sequence[Step]) -> tuple[Records, list[str]]:
    """The steps in the given order, then a matrix; with what each did."""
    done = []
    for step in wanted:
        applied = step.apply(records)
        if not isinstance(applied, tuple) or len(applied) != 2:
            raise InputError(f"{place_of(type(step))}: apply must return two things: the records, and what was done, in words")
        records, words = checked(applied[0], type(step), "apply"), applied[1]
        done.append(f"{steps.name_of(type(step))}: {words}")
    return as_matrix(records), done


def _times(records: Records, factor: Array) -> Records:
    if isinstance(records.X, np.ndarray):
        return replace(records, X=records.X * factor)
    return replace(records, X=records.matrix.multiply(factor).tocsr())  # type: ignore[union-attr]
