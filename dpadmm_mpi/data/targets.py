"""What the labels of a file are: two classes, several classes, or numbers; found from them, unless somebody says so."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpadmm_mpi.data.readers import with_signs
from dpadmm_mpi.data.records import Records, Target
from dpadmm_mpi.errors import InputError

Label = str | int | float

FEW_NUMBERS = 20  # different whole numbers, up to which labels are taken for classes
MOST_CLASSES = 100


def with_target(
    records: Records, kind: str | None, positive: Label | None, span: Sequence[float] | None, where: str
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


def kind_of(labels: NDArray[Any], positive: Label | None = None, span: Sequence[float] | None = None) -> str:
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
    target = target_over(range_of(records.y, where) if span is None else span, span is None, where)
    return scaled_into(records, target, where)


def range_of(labels: NDArray[Any], where: str) -> tuple[float, float]:
    """The smallest and the largest target."""
    values = _finite(labels, where)
    return float(values.min()), float(values.max())


def target_over(span: Sequence[float], found: bool, where: str) -> Target:
    """Numbers of a range; `found`: it was taken from the records."""
    low, high = float(span[0]), float(span[1])
    if not low < high:
        raise InputError(f"{where}: the targets are all {low:g}; data.target_range = [LOW, HIGH] needs LOW < HIGH")
    return Target("number", (), (low + high) / 2.0, (high - low) / 2.0, range_from_records=found)


def scaled_into(records: Records, target: Target, where: str) -> Records:
    """Targets in [-1, 1]; those outside the range count as its ends, and are counted."""
    values = _finite(records.y, where)
    low, high = target.centre - target.scale, target.centre + target.scale
    outside = 0 if target.range_from_records else int(np.count_nonzero((values < low) | (values > high)))
    scaled = np.clip((values - target.centre) / target.scale, -1.0, 1.0)
    return replace(records, y=scaled, target=target._replace(clipped=outside))


def _finite(labels: NDArray[Any], where: str) -> NDArray[np.float64]:
    values = _as_numbers(labels)
    if values is None or not np.isfinite(values).all():
        odd = next(str(label) for label in labels.tolist() if not _is_finite(label))
        raise InputError(f'{where}: the target "{odd}" is no finite number; remove the record, or set data.target = "classes"')
    return values


def check_range(span: Sequence[float]) -> None:
    """Refuse a data.target_range that is no range."""
    if len(span) != 2 or not span[0] < span[1]:
        raise InputError(f"data.target_range: found {list(span)}; two numbers are needed, the smaller one first")


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
