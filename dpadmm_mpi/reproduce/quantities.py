"""Numbers of a curve that claims are about: one per run, or a single one where there are no runs (a privacy account)."""

from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase

import numpy as np
from numpy.typing import NDArray

from dpadmm_mpi.errors import InputError
from dpadmm_mpi.storage.result import Result
from dpadmm_mpi.storage.timing import COMPUTE

Array = NDArray[np.float64]
Results = Mapping[str, Result]
Quantity = Callable[[Result, str, float], Array]


def end(result: Result, measure: str, level: float) -> Array:
    """The value at the last iteration."""
    return np.asarray(result[measure][..., -1], dtype=np.float64)


def deviation(result: Result, measure: str, level: float) -> Array:
    """The distance of a run's last value from the median over the runs: the spread as Brown and Forsythe test it."""
    values = end(result, measure, level)
    return np.abs(values - np.median(values))


def steps(result: Result, measure: str, level: float) -> Array:
    """The first recorded iteration from which on the value stays below the level; one past the last if there is none."""
    return _steps(result.iteration, result[measure], level)


def odd_steps(result: Result, measure: str, level: float) -> Array:
    """The same of the odd iterations alone."""
    odd = result.iteration % 2 == 1
    return _steps(result.iteration[odd], result[measure][..., odd], level)


def _steps(iteration: Array, values: Array, level: float) -> Array:
    after = np.append(iteration, iteration[-1] + 1)
    return np.asarray(after[_row_below(values, level)], dtype=np.float64)


def _row_below(values: Array, level: float) -> NDArray[np.int64]:
    """The first row from which on the value stays below the level; one past the last if there is none."""
    above = values >= level
    count = values.shape[-1]
    return np.where(above.any(axis=-1), count - np.argmax(above[..., ::-1], axis=-1), 0)


def virtual_seconds(result: Result, measure: str, level: float) -> Array:
    """The virtual time from which on the value stays below the level; a round after the last if there is none."""
    return _until(result["network/seconds"], result[measure], level)


def bytes_sent(result: Result, measure: str, level: float) -> Array:
    """The bytes that all nodes have sent when the value begins to stay below the level; a round's more if it never does."""
    return _until(result["network/bytes"], result[measure], level)


def _until(clock: Array, values: Array, level: float) -> Array:
    after = np.concatenate([clock, 2.0 * clock[:, -1:] - clock[:, -2:-1]], axis=1)
    return np.take_along_axis(after, _row_below(values, level)[:, None], axis=1)[:, 0]


def rises(result: Result, measure: str, level: float) -> Array:
    """The share of the iterations at which the value grows."""
    return np.asarray((np.diff(result[measure], axis=-1) > 0).mean(axis=-1), dtype=np.float64)


def even_rises(result: Result, measure: str, level: float) -> Array:
    """The share of the even iterations 2k, the linearised ones, at which the value grows."""
    before, even, _ = _around_even(result, measure)
    return np.asarray((even > before).mean(axis=-1), dtype=np.float64)


def oscillation(result: Result, measure: str, level: float) -> Array:
    """The mean distance of the value at an even iteration, from `level` on, from the mean of the odd ones beside it."""
    before, even, after = _around_even(result, measure, level)
    return np.asarray(np.abs(even - (before + after) / 2.0).mean(axis=-1), dtype=np.float64)


def compensated(result: Result, measure: str, level: float) -> Array:
    """Of the even iterations at which the value grows, the share after which the next odd one is below the odd one before."""
    before, even, after = _around_even(result, measure)
    grown = even > before
    made_up = (grown & (after < before)).sum(axis=-1)
    return np.asarray(np.where(grown.any(axis=-1), made_up / np.maximum(grown.sum(axis=-1), 1), 1.0), dtype=np.float64)


def _around_even(result: Result, measure: str, first: float = 0.0) -> tuple[Array, Array, Array]:
    """The values at 2k-1, 2k and 2k+1, from `first` on; every iteration is recorded."""
    values = result[measure]
    even = np.arange(2, values.shape[-1] - 1, 2)
    even = even[even >= first]
    return values[..., even - 1], values[..., even], values[..., even + 1]


def update(result: Result, measure: str, level: float) -> Array:
    """How far a node moves in an iteration from `level` on: the mean of ||f_i(t) - f_i(t-1)||; needs record.trajectory."""
    moved = np.linalg.norm(np.diff(result["trajectory"], axis=1), axis=-1)  # (runs, iterations, nodes)
    return np.asarray(moved[:, max(int(level) - 1, 0) :].mean(axis=(1, 2)), dtype=np.float64)


def record_passes(result: Result, measure: str, level: float) -> Array:
    """The recorded iterations that read the records: those with an exact local solve."""
    return np.asarray(np.isfinite(result["kkt_residual"]).any(axis=-1).sum(axis=-1), dtype=np.float64)


def seconds(result: Result, measure: str, level: float) -> Array:
    """Seconds of computing, all nodes and iterations."""
    return np.asarray(result[COMPUTE].sum(axis=(-2, -1)), dtype=np.float64)


QUANTITIES: dict[str, Quantity] = {
    "end": end,
    "deviation": deviation,
    "steps": steps,
    "odd steps": odd_steps,
    "rises": rises,
    "even rises": even_rises,
    "oscillation": oscillation,
    "compensated": compensated,
    "update": update,
    "record passes": record_passes,
    "seconds": seconds,
    "virtual seconds": virtual_seconds,
    "bytes": bytes_sent,
}


def values(results: Results, name: str, measure: str, of: str = "end", level: float = 0.0) -> Array:
    """Of a variant, or of all variants whose name fits a pattern with a star, one after the other."""
    if "*" not in name:
        return QUANTITIES[of](results[name], measure, level)
    fitting = [result for key, result in results.items() if fnmatchcase(key, name)]
    if not fitting:
        raise InputError(f'"{name}" fits the name of no variant')
    return np.concatenate([np.atleast_1d(QUANTITIES[of](result, measure, level)) for result in fitting])
