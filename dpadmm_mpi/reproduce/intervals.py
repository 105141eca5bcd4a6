"""95 % intervals of a mean over runs, and what an interval says about a claim.

Runs of the same number have the same start and the same records, so that two curves are compared run by run: the interval is
that of the mean of the differences (Student's t). A privacy account has no runs: it is known exactly.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from dpadmm_mpi.errors import InputError

Array = NDArray[np.float64]

LEVEL = 0.95
SAME = 1e-4  # relative: two accounts that are closer than this are the same; calibrated ones meet their target within it


class Outcome(Enum):
    YES = "yes"
    NO = "no"
    OPEN = "open"


@dataclass(frozen=True)
class Interval:
    """The mean of numbers, one per run, and its 95 % interval; both infinite ends if a single run does not tell."""

    mean: float
    low: float
    high: float
    runs: int  # 0: known exactly

    def above(self, limit: float = 0.0) -> Outcome:
        """Whether the mean is above the limit."""
        if self.low > limit:
            return Outcome.YES
        return Outcome.NO if self.high < limit else Outcome.OPEN


def interval(values: Array) -> Interval:
    """Of the numbers of the runs, a vector; of an exactly known one, a scalar."""
    mean = float(np.mean(values))
    if values.ndim == 0:
        return Interval(mean, mean, mean, 0)
    runs = len(values)
    if runs == 1 or not np.isfinite(values).all():
        return Interval(mean, -np.inf, np.inf, runs)
    half = float(stats.t.ppf(0.5 + LEVEL / 2.0, runs - 1) * np.std(values, ddof=1) / np.sqrt(runs))
    return Interval(mean, mean - half, mean + half, runs)


def chance_above(values: Array, limit: float) -> float:
    """The p-value of "the mean is above the limit": Student's one-sided t test over the runs."""
    if len(values) == 1 or not np.isfinite(values).all():
        return 1.0
    above, spread = float(np.mean(values)) - limit, float(np.std(values, ddof=1))
    if spread == 0.0:
        return 0.0 if above > 0.0 else 1.0
    return float(stats.t.sf(above / (spread / np.sqrt(len(values))), len(values) - 1))


def significant(chances: Sequence[float]) -> list[bool]:
    """Which of several p-values are, by Holm's step-down correction for their number: in 5 % of all cases at most any is that
    should not be."""
    found = [False] * len(chances)
    for rank, k in enumerate(np.argsort(chances, kind="stable").tolist()):
        if chances[k] * (len(chances) - rank) > 1.0 - LEVEL:
            break
        found[k] = True
    return found


def contrast(high: Array, low: Array, by: float = 0.0) -> Interval:
    """high - (1 + by) low, run by run."""
    if np.shape(high) != np.shape(low):
        raise InputError(f"{np.size(high)} and {np.size(low)} runs are not pairs; give both curves the same number of runs")
    difference = np.asarray(high - (1.0 + by) * low)
    if difference.ndim == 0 and abs(difference) <= SAME * max(abs(float(high)), abs(float(low))):
        difference = np.zeros(())
    return interval(difference)


def together(outcomes: list[Outcome]) -> Outcome:
    """Of several statements, all of which are claimed."""
    if all(outcome is Outcome.YES for outcome in outcomes):
        return Outcome.YES
    return Outcome.NO if Outcome.NO in outcomes else Outcome.OPEN
