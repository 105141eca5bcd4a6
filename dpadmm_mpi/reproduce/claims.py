"""A paper's claims as predicates on results: each says whether it holds, with the numbers.

A predicate is made by naming the curves that it is about; it takes the results of a figure by the name of their variant.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from dpadmm_mpi.storage.result import Result

Array = NDArray[np.float64]
Results = Mapping[str, Result]


@dataclass(frozen=True)
class Verdict:
    holds: bool
    numbers: str


@dataclass(frozen=True)
class Claim:
    text: str
    test: Callable[[Results], Verdict]


def last(result: Result, measure: str) -> float:
    """The value at the last iteration: the mean over the runs, or a privacy account's."""
    values = result[measure][..., -1]
    return float(np.mean(values))


def standard_error(result: Result, measure: str) -> float:
    """Of the mean over the runs; 0 for an account."""
    values = np.atleast_1d(result[measure][..., -1])
    return float(np.std(values, ddof=1) / np.sqrt(len(values))) if len(values) > 1 else 0.0


def in_order(names: Sequence[str], measure: str, slack: float = 0.0) -> Callable[[Results], Verdict]:
    """Each is below the next at the last iteration, by more than -slack."""

    def test(results: Results) -> Verdict:
        values = [last(results[name], measure) for name in names]
        holds = all(a < b + slack for a, b in pairwise(values))
        return Verdict(holds, _listed(names, values))

    return test


def below_all(name: str, others: Sequence[str], measure: str) -> Callable[[Results], Verdict]:
    """`name` is below every other at the last iteration."""

    def test(results: Results) -> Verdict:
        values = [last(results[key], measure) for key in (name, *others)]
        return Verdict(values[0] < min(values[1:]), _listed((name, *others), values))

    return test


def better_in_both(name: str, other: str, measures: tuple[str, str]) -> Callable[[Results], Verdict]:
    """`name` is below `other` in both measures, for example loss and privacy."""

    def test(results: Results) -> Verdict:
        pairs = [(last(results[name], m), last(results[other], m)) for m in measures]
        text = ", ".join(f"{m} {a:.4g} and {b:.4g}" for m, (a, b) in zip(measures, pairs, strict=True))
        return Verdict(all(a < b for a, b in pairs), text)

    return test


def alike(names: Sequence[str], measure: str, tolerance: float) -> Callable[[Results], Verdict]:
    """The largest is at most `tolerance` (relative) above the smallest at the last iteration."""

    def test(results: Results) -> Verdict:
        values = [last(results[name], measure) for name in names]
        spread = max(values) / min(values) - 1.0
        return Verdict(spread <= tolerance, f"spread {spread:.2%}: {_listed(names, values)}")

    return test


def close(name: str, other: str, measure: str, tolerance: float) -> Callable[[Results], Verdict]:
    """`name` is at most `tolerance` (relative) above `other` at the last iteration."""

    def test(results: Results) -> Verdict:
        a, b = last(results[name], measure), last(results[other], measure)
        return Verdict(a <= b * (1.0 + tolerance), _listed((name, other), (a, b)))

    return test


def at_most(names: Sequence[str], measure: str, limit: float) -> Callable[[Results], Verdict]:
    def test(results: Results) -> Verdict:
        values = [last(results[name], measure) for name in names]
        return Verdict(max(values) <= limit, _listed(names, values))

    return test


def at_least(names: Sequence[str], measure: str, limit: float) -> Callable[[Results], Verdict]:
    def test(results: Results) -> Verdict:
        values = [last(results[name], measure) for name in names]
        return Verdict(min(values) >= limit, _listed(names, values))

    return test


def first_below(result: Result, measure: str, level: float) -> float:
    """The first recorded iteration from which on the mean over the runs stays below the level; inf if none."""
    above = np.flatnonzero(result[measure].mean(axis=0) >= level)
    if not len(above):
        return float(result.iteration[0])
    return float(result.iteration[above[-1] + 1]) if above[-1] + 1 < len(result.iteration) else np.inf


def at_most_times(
    names: Sequence[str], reference: str, measure: str, level: float, factor: float
) -> Callable[[Results], Verdict]:
    """Each stays below the level after at most `factor` times the iterations that the reference needs for it."""

    def test(results: Results) -> Verdict:
        steps = [first_below(results[name], measure, level) for name in (reference, *names)]
        holds = bool(np.isfinite(steps[0])) and max(steps[1:]) <= factor * steps[0]
        return Verdict(holds, f"iterations to {measure} below {level:g}: {_listed((reference, *names), steps)}")

    return test


def smallest_near(names: Sequence[str], measure: str, best: Sequence[str]) -> Callable[[Results], Verdict]:
    """One of the `best` has the smallest value; it may share it."""

    def test(results: Results) -> Verdict:
        values = {name: last(results[name], measure) for name in names}
        return Verdict(min(values[name] for name in best) <= min(values.values()), _listed(names, list(values.values())))

    return test


def near_smallest(name: str, names: Sequence[str], measure: str, tolerance: float) -> Callable[[Results], Verdict]:
    """`name` is at most `tolerance` (relative) above the smallest of `names`."""

    def test(results: Results) -> Verdict:
        here, smallest = last(results[name], measure), min(last(results[key], measure) for key in names)
        return Verdict(here <= (1.0 + tolerance) * smallest, f"{here:.4g}, the smallest is {smallest:.4g}")

    return test


def trades(pairs: Sequence[tuple[str, str]], worse: str, better: str) -> Callable[[Results], Verdict]:
    """The first of each pair is above the second in the measure `worse`, and below it in the measure `better`."""

    def test(results: Results) -> Verdict:
        holds, words = True, []
        for a, b in pairs:
            up = last(results[a], worse), last(results[b], worse)
            down = last(results[a], better), last(results[b], better)
            holds = holds and up[0] > up[1] and down[0] < down[1]
            words.append(f"{a} and {b}: {worse} {up[0]:.4g} and {up[1]:.4g}, {better} {down[0]:.4g} and {down[1]:.4g}")
        return Verdict(holds, "; ".join(words))

    return test


def gap_grows(pairs: Sequence[tuple[str, str]], measure: str) -> Callable[[Results], Verdict]:
    """The difference first - second grows from pair to pair."""

    def test(results: Results) -> Verdict:
        gaps = [last(results[a], measure) - last(results[b], measure) for a, b in pairs]
        holds = all(x < y for x, y in pairwise(gaps))
        return Verdict(holds, _listed([f"{a} less {b}" for a, b in pairs], gaps))

    return test


def crosses(pairs: Sequence[tuple[str, str]], measure: str) -> Callable[[Results], Verdict]:
    """The first of each pair is above the second in the first pair, and below it in the last one."""

    def test(results: Results) -> Verdict:
        gaps = [last(results[a], measure) - last(results[b], measure) for a, b in pairs]
        return Verdict(gaps[0] > 0 > gaps[-1], _listed([f"{a} less {b}" for a, b in pairs], gaps))

    return test


def _listed(names: Sequence[str], values: Sequence[float]) -> str:
    return "; ".join(f"{name}: {value:.4g}" for name, value in zip(names, values, strict=True))
