"""What a search may try: ranges of configuration keys, in Python, on the command line, or in the table [tune.space].

What can be written:
    "0.05:5:log"     numbers between, evenly on a logarithmic scale; without :log evenly as they are
    "1:12"           whole numbers, where both ends are written as such and the key takes no others
    "gamma,gaussian" one of these; a list in TOML, and a lone value is the only one
"""

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np

from dpadmm_mpi.config.reading import Table, show
from dpadmm_mpi.errors import InputError
from dpadmm_mpi.registry import did_you_mean

Point: TypeAlias = dict[str, Any]  # a drawn value for each key of a space


@dataclass(frozen=True)
class Range:
    """The values of one key.

    `times` names another key that what is drawn is multiplied by, so that a range may be in units of problem.C, of
    1/problem.C, or of problem.C/records, where records stands for those of the smallest node; `when` is another key with the
    value that it must have for this one to have a meaning.
    """

    @abstractmethod
    def at(self, share: float) -> Any:
        """The value at a share of the way through, in [0, 1)."""

    @property
    @abstractmethod
    def first(self) -> Any:
        """What a search tries first."""

    @property
    @abstractmethod
    def words(self) -> str:
        """As it would be written in a configuration."""


@dataclass(frozen=True)
class Between(Range):
    """Numbers from `low` to `high`.

    >>> round(Between(0.1, 10.0, log=True).at(0.5), 6)
    1.0
    """

    low: float
    high: float
    log: bool = False
    start: float | None = None
    times: str = ""
    when: tuple[str, Any] | None = None

    def at(self, share: float) -> float:
        if self.log:
            return float(np.exp(np.log(self.low) + share * (np.log(self.high) - np.log(self.low))))
        return self.low + share * (self.high - self.low)

    @property
    def first(self) -> float:
        return self.at(0.5) if self.start is None else self.start

    @property
    def words(self) -> str:
        return f"{self.low:g}:{self.high:g}{':log' if self.log else ''}" + (f" times {self.times}" if self.times else "")


@dataclass(frozen=True)
class Whole(Range):
    """Whole numbers from `low` to `high`, both included."""

    low: int
    high: int
    log: bool = False
    start: int | None = None
    when: tuple[str, Any] | None = None
    times: str = ""

    def at(self, share: float) -> int:
        if self.log:
            low, high = np.log(self.low - 0.5), np.log(self.high + 0.5)
            return int(np.clip(round(float(np.exp(low + share * (high - low)))), self.low, self.high))
        return self.low + int(share * (self.high - self.low + 1))

    @property
    def first(self) -> int:
        return self.at(0.5) if self.start is None else self.start

    @property
    def words(self) -> str:
        return f"{self.low}:{self.high}{':log' if self.log else ''}"


@dataclass(frozen=True)
class OneOf(Range):
    """One of these values, whatever they are."""

    values: tuple[Any, ...]
    when: tuple[str, Any] | None = None
    times: str = ""

    def at(self, share: float) -> Any:
        return self.values[int(share * len(self.values))]

    @property
    def first(self) -> Any:
        return self.values[0]

    @property
    def words(self) -> str:
        return ",".join(str(value) for value in self.values)


Space: TypeAlias = Mapping[str, Between | Whole | OneOf]


def read_range(key: str, given: Any, usual: Between | Whole | OneOf | None = None) -> Between | Whole | OneOf:
    """A range as it is written; `usual` is the one that it takes the place of, and decides whether numbers are whole."""
    if isinstance(given, list):
        if not given:
            raise InputError(f"{key}: found an empty list; give the values to try")
        return OneOf(tuple(given))
    if not isinstance(given, str):
        return OneOf((given,))
    parts = given.split(":")
    if len(parts) == 1:
        return OneOf(tuple(_value(part.strip()) for part in given.split(",")))
    log = parts[-1].strip() == "log"
    ends = [_value(part.strip()) for part in (parts[:-1] if log else parts)]
    if len(ends) != 2 or not all(isinstance(end, int | float) and not isinstance(end, bool) for end in ends):
        raise InputError(f'{key}: found {show(given)}; write LOW:HIGH, LOW:HIGH:log, or the values with commas, as in "1,2,4"')
    low, high = ends
    if not low < high or (log and low <= 0):
        above = ", and above 0 on a logarithmic scale" if log else ""
        raise InputError(f"{key}: found {show(given)}; the lower end must be below the upper one{above}")
    if isinstance(usual, Whole) or (usual is None and all(isinstance(end, int) for end in ends)):
        return Whole(int(low), int(high), log)
    return Between(float(low), float(high), log)


def _value(text: str) -> Any:
    """A value as TOML has it; a word without quotes is a word."""
    import tomllib  # here alone: ranks that run a configuration have no use for it

    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def in_section(raw: Table) -> dict[str, Any]:
    """Dotted keys and what [tune.space] of a configuration says of them; InputError where [tune] has anything else."""
    table = raw.get("tune", {})
    if not isinstance(table, dict):
        raise InputError("tune: found something other than a table; write [tune.space] with lines like iterations = '1:8'")
    for key in table:
        if key != "space":
            raise InputError(f"tune.{key}: unknown key; there is tune.space{did_you_mean(key, ['space'])}")
    space = table.get("space", {})
    if not isinstance(space, dict):
        raise InputError("tune.space: found something other than a table; write lines like iterations = '1:8'")
    found = dict(_flat(space))
    for key, given in found.items():
        read_range(f"tune.space.{key}", given)
    return found


def _flat(table: Table, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Keys with dots, quoted or not."""
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def changed(space: Space, given: Mapping[str, Any], where: str) -> Space:
    """A space in which what is `given` takes the place of the usual ranges; new keys are added."""
    made = dict(space)
    for key, value in given.items():
        usual = space.get(key)
        if usual is None and (inner := [known for known in space if known.startswith(f"{key}.")]):
            for known in inner:  # a schedule as a whole, in the place of its parts
                del made[known]
        new = read_range(f"{where}{key}", value, usual)
        made[key] = new if usual is None else replace(new, when=usual.when)
    return made


def settings(space: Space, point: Mapping[str, Any], table: Table) -> list[tuple[str, Any]]:
    """What a point says, as dotted keys of a configuration whose other values are those of `table`.

    A key of three parts is an entry of a schedule: algorithm.eta.first and algorithm.eta.ratio make one algorithm.eta.
    """
    values: Point = {}
    waiting = [key for key in space if key in point]
    for key in sorted(waiting, key=lambda each: len(_behind(space, each))):  # what others are multiplied by comes first
        times = space[key].times
        values[key] = _rounded(point[key] * float(_look(times, values, table)) if times else point[key])
    made: dict[str, Any] = {}
    for key in waiting:
        condition = space[key].when
        if condition is not None and _look(condition[0], values, table) != condition[1]:
            continue
        section, _, rest = key.partition(".")
        name, _, part = rest.partition(".")
        if part:
            made.setdefault(f"{section}.{name}", {})[part] = values[key]
        else:
            made[key] = values[key]
    return list(made.items())


def _rounded(value: Any) -> Any:
    """To what a person would write."""
    return float(f"{value:.4g}") if isinstance(value, float) else value


def _behind(space: Space, key: str) -> list[str]:
    """The keys of the space that a key is multiplied by, one after the other."""
    times = space[key].times
    found = next((each for each in (times, times.removesuffix(".first")) if each in space), None)
    return [] if found is None else [found, *_behind(space, found)]


def _look(key: str, values: Mapping[str, Any], table: Table) -> Any:
    """The value of a key, from a point or from the rest of the configuration; of one key over another, their ratio."""
    if "/" in key:
        above, below = key.split("/")
        return (1.0 if above == "1" else float(_look(above, values, table))) / float(_look(below, values, table))
    if key in values:
        return values[key]
    whole = key.removesuffix(".first")
    if isinstance(values.get(whole), int | float):  # a schedule that is one number
        return values[whole]
    found: Any = table
    for part in key.split("."):
        if isinstance(found, int | float) and part == "first":
            return found
        if not isinstance(found, dict) or part not in found:
            raise InputError(f"{key}: a range is in units of it, or depends on it, and the configuration has no such key")
        found = found[part]
    return found
