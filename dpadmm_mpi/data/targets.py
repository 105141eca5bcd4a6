"""What the labels of a file are: two classes, several classes, or numbers; found from them, unless somebody says so."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpadmm_mpi.data.readers import with_signs
from dpadmm_mpi.data.records import Records, Target
from dpadmm_mpi.errors import InputError

FEW_NUMBERS = 20  # different whole numbers, up to which labels are taken for classes
MOST_CLASSES = 100


def with_target(
    records: Records, kind: str | None, positive: str | int | float | None, span: Sequence[float] | None, where: str
) -> Records:
    """Labels as numbers, and what they are; `span` is the range of numbers, where it is given."""
    kind = kind or kind_of(records.y, positive, span)
    if kind != "number" and span is not None:
        raise InputError('data.target_range: is the range of numbers; set data.target = "number", or remove it')
    if kind != "binary" and positive is not None:
        raise InputError(f'data.positive: has no meaning with data.target = "{kind}"; remove one of them')
    if kind == "number":
        return _numbers(records, span, where)
    if kind == "classes":
        return _classes(records, where)
    signed = with_signs(records, positive, where)
    both = (_names(records.y[signed.y < 0.0]), _names(records.y[signed.y > 0.0]))
    return replace(signed, target=Target("binary", tuple(name for names in both for name in names)))


def kind_of(labels: NDArray[Any], positive: str | int | float | None = None, span: Sequence[float] | None = None) -> str:
    """Whole numbers are classes if there are few of them; two labels are what they always were."""
    if span is not None:
        return "number"
    distinct = np.unique(labels)
    if positive is not None or len(distinct) <= 2:
        return "binary"
    numbers = _as_numbers(distinct)
    if numbers is None:
        return "classes"
    return "classes" if len(distinct) <= FEW_NUMBERS and np.all(numbers == np.rint(numbers)) else "number"


def _as_numbers(labels: NDArray[Any]) -> NDArray[np.float64] | None:
    try:
        return np.asarray(labels, dtype=np.float64)
    except ValueError:
        return None


def _numbers(records: Records, span: Sequence[float] | None, where: str) -> Records:
    values = _as_numbers(records.y)
    if values is None or not np.isfinite(values).all():
        odd = next(str(label) for label in records.y.tolist() if not _is_finite(label))
        raise InputError(f'{where}: the target "{odd}" is no finite number; remove the record, or set data.target = "classes"')
    low, high = (float(values.min()), float(values.max())) if span is None else (float(span[0]), float(span[1]))
    if not low < high:
        raise InputError(f"{where}: the targets are all {low:g}; data.target_range = [LOW, HIGH] needs LOW < HIGH")
    centre, scale = (low + high) / 2.0, (high - low) / 2.0
    target = Target("number", (), centre, scale, range_from_records=span is None)
    return replace(records, y=np.clip((values - centre) / scale, -1.0, 1.0), target=target)


def _is_finite(label: Any) -> bool:
    try:
        return bool(np.isfinite(float(label)))
    except ValueError:
        return False


def _classes(records: Records, where: str) -> Records:
    distinct, labels = np.unique(records.y, return_inverse=True)
    if not 2 <= len(distinct) <= MOST_CLASSES:
        raise InputError(
            f"{where}: found {len(distinct)} different labels, but 2 to {MOST_CLASSES} classes can be told apart; is "
            "data.label right?"
        )
    return replace(records, y=labels.astype(np.float64), target=Target("classes", _names(distinct)))


def _names(labels: NDArray[Any]) -> tuple[str, ...]:
    return tuple(str(value) if labels.dtype.kind == "U" else f"{value:g}" for value in np.unique(labels).tolist())
