"""The tests of claims on results; each is a table in a claims file, and knows how to say what it tests.

A test takes the results of a figure by the name of their variant and gives rows, each an interval with what it says. All rows
of a test are claimed: it says yes if all do, no if one says no, and is open otherwise.
"""

from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import combinations, pairwise

import msgspec

from dpadmm_mpi.errors import InputError
from dpadmm_mpi.reproduce.intervals import (
    Array,
    Interval,
    Outcome,
    chance_above,
    contrast,
    interval,
    significant,
    together,
)
from dpadmm_mpi.reproduce.quantities import QUANTITIES, Results, values

Series = str | list[str]  # a variant; or two, whose difference is meant


@dataclass(frozen=True)
class Row:
    """One comparison."""

    label: str
    interval: Interval
    outcome: Outcome
    means: tuple[float, ...] = ()  # of the curves that are compared


@dataclass(frozen=True)
class TestOutcome:
    outcome: Outcome
    rows: tuple[Row, ...]

    @property
    def runs(self) -> int:
        return min(row.interval.runs for row in self.rows)

    @property
    def deciding(self) -> Row:
        """The row that speaks most against the claim: of those with the worst outcome, the one with the lowest interval."""
        order = [Outcome.NO, Outcome.OPEN, Outcome.YES]
        return min(self.rows, key=lambda row: (order.index(row.outcome), row.interval.low))


class Predicate(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="is", kw_only=True):
    """What all tests have: the measure, and the number of its curve that is compared."""

    measure: str = "loss"  # an HDF5 name
    of: str = "end"  # one of QUANTITIES
    level: float = 0.0  # for the quantities that need one

    def __post_init__(self) -> None:
        if self.of not in QUANTITIES:
            raise ValueError(f'of: found "{self.of}"; allowed: {", ".join(QUANTITIES)}')

    @property
    def subject(self) -> str:
        """What is compared, in words."""
        name = self.measure.removeprefix("privacy/").replace("_", " ")
        level = (
            f" {self.level:g}" if self.of in {"steps", "odd steps", "oscillation", "update", "virtual seconds", "bytes"} else ""
        )
        alone = {"end": name, "record passes": "record passes", "seconds": "seconds", "update": f"update from{level} on"}
        return alone.get(self.of, f"{name}: {self.of}{level}")

    def numbers(self, results: Results, series: Series) -> Array:
        if isinstance(series, str):
            return values(results, series, self.measure, self.of, self.level)
        first, second = (values(results, name, self.measure, self.of, self.level) for name in series)
        return first - second

    def rows(self, results: Results) -> list[Row]:
        raise NotImplementedError

    def words(self) -> str:
        raise NotImplementedError

    def evidence(self, results: Results) -> TestOutcome:
        rows = self.rows(results)
        return TestOutcome(together([row.outcome for row in rows]), tuple(rows))


class Below(Predicate, frozen=True, tag="below"):
    """Each of `low` is below each of `high`, by at least the share `by` of it; a negative `by` is what it may be above."""

    low: list[Series]
    high: list[Series]
    by: float = 0.0
    high_measure: str = ""  # of `high`, if it is another

    def rows(self, results: Results) -> list[Row]:
        found = []
        other = msgspec.structs.replace(self, measure=self.high_measure) if self.high_measure else self
        for low in self.low:
            for high in self.high:
                a, b = self.numbers(results, low), other.numbers(results, high)
                here = contrast(b, a, self.by)
                found.append(Row(f"{called(low)} < {called(high)}", here, here.above(), (float(a.mean()), float(b.mean()))))
        return found

    def words(self) -> str:
        margin = f" high - {1.0 + self.by:g} low" if self.by else "high - low"
        against = f" against {self.high_measure.removeprefix('privacy/')}" if self.high_measure else ""
        return f"{self.subject}{against}: paired {margin.strip()} > 0"


class Rising(Predicate, frozen=True, tag="rising"):
    """Each is below the next."""

    order: list[Series]

    def rows(self, results: Results) -> list[Row]:
        found = []
        for low, high in pairwise(self.order):
            a, b = self.numbers(results, low), self.numbers(results, high)
            here = contrast(b, a)
            found.append(Row(f"{called(low)} < {called(high)}", here, here.above(), (float(a.mean()), float(b.mean()))))
        return found

    def words(self) -> str:
        return f"{self.subject}: every paired difference to the next in order > 0"


class Alike(Predicate, frozen=True, tag="alike"):
    """No two differ by more than the share `within`."""

    names: list[str]
    within: float

    def rows(self, results: Results) -> list[Row]:
        found = []
        for first, second in combinations(self.names, 2):
            a, b = self.numbers(results, first), self.numbers(results, second)
            size = abs(float(b.mean()))
            here = interval((a - b) / size) if size else interval(a - b)
            inside, outside = max(abs(here.low), abs(here.high)) <= self.within, here.above(self.within) is Outcome.YES
            outside = outside or here.above(-self.within) is Outcome.NO
            outcome = Outcome.YES if inside else Outcome.NO if outside else Outcome.OPEN
            found.append(Row(f"{first} = {second}", here, outcome, (float(a.mean()), float(b.mean()))))
        return found

    def words(self) -> str:
        return f"{self.subject}: relative paired difference of every two within {100 * self.within:g} %"


class Within(Predicate, frozen=True, tag="within"):
    """Each is at most, or at least, a number."""

    names: list[Series]
    at_most: float | None = None
    at_least: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.at_most is None) == (self.at_least is None):
            raise ValueError("within: needs one of at_most and at_least")

    def rows(self, results: Results) -> list[Row]:
        found = []
        for name in self.names:
            here = interval(self.numbers(results, name))
            if self.at_most is not None:
                label, outcome = f"{called(name)} <= {self.at_most:g}", _reverse(here, self.at_most)
            else:
                assert self.at_least is not None
                label, outcome = f"{called(name)} >= {self.at_least:g}", _forward(here, self.at_least)
            found.append(Row(label, here, outcome, (here.mean,)))
        return found

    def words(self) -> str:
        limit = f"at most {self.at_most:g}" if self.at_most is not None else f"at least {self.at_least:g}"
        return f"{self.subject}: mean {limit}"


class NoneAbove(Predicate, frozen=True, tag="none above"):
    """No mean is significantly above a number; `names` are patterns, and every variant that fits one is tested by itself."""

    names: list[str]
    limit: float

    def rows(self, results: Results) -> list[Row]:
        fitting = [name for name in results if any(fnmatchcase(name, pattern) for pattern in self.names)]
        if not fitting:
            raise InputError(f'"{self.names[0]}" fits the name of no variant')
        numbers = [self.numbers(results, name) for name in fitting]
        above = significant([chance_above(each, self.limit) for each in numbers])
        found = []
        for name, each, is_above in zip(fitting, numbers, above, strict=True):
            here = interval(each)
            found.append(Row(f"{name} <= {self.limit:g}", here, Outcome.NO if is_above else Outcome.YES, (here.mean,)))
        return found

    def words(self) -> str:
        return f"{self.subject}: no mean above {self.limit:g}, one-sided t tests at 5 % with Holm's correction for their number"


def _forward(here: Interval, limit: float) -> Outcome:
    """Meeting the limit exactly is enough."""
    return Outcome.YES if here.low >= limit else here.above(limit)


def _reverse(here: Interval, limit: float) -> Outcome:
    return _forward(Interval(-here.mean, -here.high, -here.low, here.runs), -limit)


def called(series: Series) -> str:
    return series if isinstance(series, str) else f"({series[0]}) - ({series[1]})"


AnyTest = Below | Rising | Alike | Within | NoneAbove
