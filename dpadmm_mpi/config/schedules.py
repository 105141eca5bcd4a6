"""Schedules of eta, theta, gamma and alpha: from what the configuration says to a value per data step and node.

What can be written:
    1.5                             the same for every node and step
    { first = 1.0, ratio = 1.04 }   first * ratio**(k-1) in data step k = 1, 2, ...; with limit = 3.0, up to (or down to) 3
    [0.8, 1.0, 1.1, 0.9, 1.2]       one value per node, if there are as many as nodes; otherwise one per data step
    [{ first = ... }, 2.0, [...]]   one of the above per node
"""

from typing import Any, TypeAlias

import numpy as np
from msgspec import Struct

from dpadmm_mpi.config.options import NonNegative, Positive
from dpadmm_mpi.errors import InputError
from dpadmm_mpi.types import Array


class Geometric(Struct, frozen=True, forbid_unknown_fields=True):
    """first * ratio**(k-1) in the k-th data step, no further than `limit`. `first` is left out where calibration finds it."""

    ratio: Positive
    first: Positive | None = None
    limit: Positive | None = None


# One value, a geometric law, a list over data steps, or a list over nodes of these.
Schedule: TypeAlias = Positive | Geometric | list[Positive | Geometric | list[Positive]]
# Likewise, where zero is a value too.
NonNegativeSchedule: TypeAlias = NonNegative | Geometric | list[NonNegative | Geometric | list[NonNegative]]
PartOfSchedule: TypeAlias = Schedule | NonNegativeSchedule | list[float]  # what a list over nodes has for one of them


def expand(schedule: Schedule | NonNegativeSchedule, steps: int, nodes: int, key: str) -> Array:
    """Values of shape (steps, nodes); `key` names the schedule in errors. A missing `first` counts as 1."""
    if not isinstance(schedule, list):
        return np.repeat(_over_steps(schedule, steps, key)[:, None], nodes, axis=1)
    numbers_only = all(isinstance(part, int | float) for part in schedule)
    if numbers_only and len(schedule) == steps != nodes:
        return np.repeat(np.asarray(schedule, dtype=np.float64)[:, None], nodes, axis=1)
    if len(schedule) != nodes:
        also = f" or one per data step ({steps})" if numbers_only else ""
        raise InputError(f"{key}: found a list of {len(schedule)}; one entry per node ({nodes}){also} is needed")
    return np.stack([_over_steps(part, steps, f"{key}[{i}]") for i, part in enumerate(schedule)], axis=1)


def is_ambiguous(schedule: Schedule | NonNegativeSchedule | None, steps: int, nodes: int) -> bool:
    """A list of numbers with as many entries as nodes and as data steps."""
    return isinstance(schedule, list) and len(schedule) == steps == nodes and all(isinstance(v, int | float) for v in schedule)


def is_constant(values: Array) -> bool:
    """Whether no node's value changes over the data steps."""
    return bool(np.all(values == values[:1]))


def is_common(values: Array) -> bool:
    """Whether all nodes have the same value in every data step."""
    return bool(np.all(values == values[:, :1]))


def has_size(schedule: PartOfSchedule | None) -> bool:
    """Whether some part says how large it is, and not only how it grows."""
    if isinstance(schedule, list):
        return any(has_size(part) for part in schedule)
    return schedule.first is not None if isinstance(schedule, Geometric) else schedule is not None


def lacks_first(schedule: PartOfSchedule | None) -> bool:
    """Whether some geometric part leaves its first value to calibration."""
    if isinstance(schedule, Geometric):
        return schedule.first is None
    return isinstance(schedule, list) and any(lacks_first(part) for part in schedule)


def grows_without_bound(schedule: PartOfSchedule | None) -> bool:
    """Whether it goes on growing by a factor for ever, so that the sum of its inverses is finite."""
    if isinstance(schedule, list):
        return any(grows_without_bound(part) for part in schedule)
    return isinstance(schedule, Geometric) and schedule.ratio > 1.0 and schedule.limit is None


def refuse_lacking_first(schedule: Schedule | NonNegativeSchedule | None, key: str) -> None:
    if lacks_first(schedule):
        raise InputError(f"{key}: the geometric schedule needs its first value, as {{ first = 1.0, ratio = 1.01 }}")


def _over_steps(schedule: Any, steps: int, key: str) -> Array:
    if isinstance(schedule, Geometric):
        with np.errstate(over="ignore"):
            values = (1.0 if schedule.first is None else schedule.first) * schedule.ratio ** np.arange(steps)
        if schedule.limit is not None:
            first = values[0]
            if (schedule.ratio > 1.0 and schedule.limit < first) or (schedule.ratio < 1.0 and schedule.limit > first):
                raise InputError(f"{key}: limit = {schedule.limit:g} lies on the wrong side of the first value {first:g}")
            values = np.minimum(values, schedule.limit) if schedule.ratio > 1.0 else np.maximum(values, schedule.limit)
        if not np.all(np.isfinite(values)) or not np.all(values > 0):
            raise InputError(f"{key}: ratio = {schedule.ratio} leaves the range of numbers within {steps} data steps")
        return np.asarray(values, dtype=np.float64)
    if isinstance(schedule, list):
        if len(schedule) != steps:
            raise InputError(f"{key}: found a list of {len(schedule)} values; one per data step is needed, {steps}")
        return np.asarray(schedule, dtype=np.float64)
    return np.full(steps, float(schedule))
