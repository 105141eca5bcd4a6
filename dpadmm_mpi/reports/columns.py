"""The columns of tables of results: what each is called, and what it says of a result, as a cell and as numbers.

A row is a result, or a configuration that could not run. Terminal, CSV, JSON, LaTeX and the page take their columns from here.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dpadmm_mpi.config.files import in_a_name
from dpadmm_mpi.errors import InputError
from dpadmm_mpi.methods.metrics import metrics
from dpadmm_mpi.methods.release import AVERAGED
from dpadmm_mpi.registry import did_you_mean
from dpadmm_mpi.showing import brief, shortened
from dpadmm_mpi.storage.infeasible import Infeasible
from dpadmm_mpi.storage.result import Result, account_column, accounts, is_proven, last_row, measurements, words_for
from dpadmm_mpi.types import Array

Row = Result | Infeasible
NOTHING = "-"
LONGEST_VALUE = 24  # letters of a setting
LEVEL = 0.95  # of intervals
SAID_ELSEWHERE = ("name", "extensions", "runs", "algorithm.method")  # settings that are no columns, or columns of another name
FEW = 3  # settings that differ by more than a sweep, and are shown nevertheless


class Uncertainty(NamedTuple):
    """What stands behind ±."""

    words: str
    half: Callable[[Array], float] | None  # of two or more values, one per run


def standard_error(values: Array) -> float:
    """Of the mean of several values."""
    if np.ptp(values) == 0.0:
        return 0.0  # not what rounding leaves
    return float(values.std(ddof=1) / np.sqrt(len(values)))


def interval(values: Array) -> float:
    """Half of the 95 % confidence interval of the mean, by Student's t."""
    from scipy.special import stdtrit

    return float(stdtrit(len(values) - 1, 0.5 + LEVEL / 2)) * standard_error(values)


def half_range(values: Array) -> float:
    return float(np.ptp(values) / 2)


UNCERTAINTIES = {
    "standard-error": Uncertainty("standard error of the mean over the runs", standard_error),
    "interval": Uncertainty("half of the 95 % confidence interval of the mean over the runs (Student's t)", interval),
    "half-range": Uncertainty("half the range over the runs, the largest less the smallest", half_range),
    "none": Uncertainty("", None),
}


def number(value: float) -> str:
    return NOTHING if np.isnan(value) else f"{value:.4g}"


def mean_and(values: Array, uncertainty: str = "standard-error") -> str:
    """The mean, and behind ± how far it can be relied on, where there are several values."""
    values, half = values[~np.isnan(values)], UNCERTAINTIES[uncertainty].half
    if not len(values):
        return NOTHING
    return f"{values.mean():.4g}" + (f" ±{half(values):.2g}" if half is not None and len(values) > 1 else "")


class Column(ABC):
    """One column."""

    key: str  # as --columns, --sort and the exports call it
    title: str  # its heading
    group: str = ""  # the part of a JSON object that it belongs to
    is_text: bool = False
    usual: bool = True  # shown unless other columns are asked for

    @abstractmethod
    def value(self, row: Row) -> Any:
        """By which rows are sorted: a number or a text; None where there is nothing."""

    def cell(self, row: Row, uncertainty: str) -> str:
        """As a person reads it."""
        return in_words(self.value(row))

    def record(self, row: Row) -> Any:
        """As a program reads it: a value, or several by name."""
        return self.value(row)

    def flat_key(self, part: str = "") -> str:
        """The name of a CSV column, of one of several by its part."""
        return f"{self.key}_{part}" if part else self.key


@dataclass(frozen=True, eq=False)
class About(Column):
    """Something that every row has."""

    key: str
    title: str
    of: Callable[[Row], Any]
    is_text: bool = False
    usual: bool = True

    def value(self, row: Row) -> Any:
        return self.of(row)


@dataclass(frozen=True, eq=False)
class Named(Column):
    """The name of a row, in tables without what its settings say."""

    names: Mapping[int, str]  # by the id of the row
    shown: Mapping[int, str]
    key: str = "name"
    title: str = "name"
    is_text: bool = True

    def value(self, row: Row) -> str:
        return self.names[id(row)]

    def cell(self, row: Row, uncertainty: str) -> str:
        return brief(self.shown[id(row)])


@dataclass(frozen=True, eq=False)
class Setting(Column):
    """A key of the configuration."""

    key: str
    title: str
    in_names: Mapping[int, Any]  # what the names of the points of a sweep say, by the id of the row
    usual: bool = True
    group: str = "settings"

    @property
    def swept(self) -> bool:
        return bool(self.in_names)

    def value(self, row: Row) -> Any:
        """A configuration leaves out what [release] and [network.faults] have anyway, but a sweep names it."""
        return row.settings.get(self.key, self.in_names.get(id(row)))

    def cell(self, row: Row, uncertainty: str) -> str:
        return shortened(brief(in_words(self.value(row))), LONGEST_VALUE)


@dataclass(frozen=True, eq=False)
class Measured(Column):
    """A measurement after the last recorded iteration, over the runs."""

    key: str
    title: str
    usual: bool
    group: str = "measurements"

    def _values(self, row: Row) -> Array:
        if not isinstance(row, Result) or self.key not in row:
            return np.empty(0)
        values = row[self.key][:, last_row(row)[0]]
        return np.asarray(values[~np.isnan(values)])

    def value(self, row: Row) -> float | None:
        values = self._values(row)
        return float(values.mean()) if len(values) else None

    def cell(self, row: Row, uncertainty: str) -> str:
        return mean_and(self._values(row), uncertainty)

    def record(self, row: Row) -> dict[str, float] | None:
        if not isinstance(row, Result) or self.key not in row:
            return None
        values = self._values(row)
        if not len(values):
            return dict.fromkeys(("mean", "smallest", "largest", "standard_error", "interval"), math.nan)
        several = len(values) > 1
        return {
            "mean": float(values.mean()),
            "smallest": float(values.min()),
            "largest": float(values.max()),
            "standard_error": standard_error(values) if several else math.nan,
            "interval": interval(values) if several else math.nan,
        }


@dataclass(frozen=True, eq=False)
class Total(Column):
    """A privacy account: the total of everything released until the last recorded iteration, of the worst node."""

    key: str
    title: str
    group: str = "privacy"

    def value(self, row: Row) -> float | None:
        if not isinstance(row, Result) or self.key not in dict(accounts(row)):
            return None
        return float(row[f"privacy/{self.key}"][last_row(row)[0]])

    def cell(self, row: Row, uncertainty: str) -> str:
        if not isinstance(row, Result) or (value := self.value(row)) is None:
            return NOTHING
        return number(value) + ("" if is_proven(row, self.key) else " not proven")

    def record(self, row: Row) -> dict[str, Any] | None:
        if not isinstance(row, Result) or (value := self.value(row)) is None:
            return None
        delta = float(row.attributes[f"privacy/{self.key}"].get("delta", 0.0))
        return {"total": value, "proven": is_proven(row, self.key), "delta": delta}

    def flat_key(self, part: str = "") -> str:
        return f"privacy_{self.key}_{part}"


def delta_of(row: Row) -> float | str | None:
    """The delta at which the epsilons of a row hold; several are written with a stroke between them."""
    if not isinstance(row, Result):
        return None
    found = {float(about["delta"]) for name, _ in accounts(row) if "delta" in (about := row.attributes[f"privacy/{name}"])}
    return next(iter(found)) if len(found) == 1 else "/".join(f"{delta:g}" for delta in sorted(found)) or None


def in_words(value: Any) -> str:
    """A value in a cell."""
    if value is None:
        return NOTHING
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return number(value)
    return in_a_name(value) if isinstance(value, list | dict) else str(value)


def status(row: Row) -> str:
    if isinstance(row, Infeasible):
        return "infeasible"
    return "complete" if row.complete else "incomplete"


def _iteration(row: Row) -> int | None:
    return int(row.iteration[last_row(row)[0]]) if isinstance(row, Result) else None


def _runs(row: Row) -> int | str | None:
    if not isinstance(row, Result):
        return None
    done, all_runs = last_row(row)[1], len(row["run"])
    return done if done == all_runs else f"{done} of {all_runs}"


def columns_of(rows: Sequence[Row]) -> list[Column]:
    """All columns that there are for these rows, in their order."""
    names, differing = _labels(rows), differing_settings(rows)
    said = {row: _said(name) for row, name in names.items()}
    everywhere = set.intersection(*map(set, said.values())) if said else set()
    keys = _keys_of(everywhere, rows)
    shown = {id(row): _stripped(names[id(row)], row.settings, keys) for row in rows}
    swept: dict[str, dict[int, Any]] = {}  # by key, what the names say
    for row, (_, parts) in shown.items():
        for key, value in parts.items():
            swept.setdefault(key, {})[row] = value
    swept = {key: values for key, values in swept.items() if key in differing or len(set(values.values())) > 1}
    differing = list(dict.fromkeys([*differing, *swept]))
    others = [key for key in differing if key not in swept and not any(word.startswith(f"{key}.") for word in swept)]
    methods = {row.settings.get("algorithm.method") for row in rows} - {None}
    measured = {
        name: brief(words_for(row, name).column) for row in rows if isinstance(row, Result) for name in measurements(row)
    }
    counted = {name: brief(account_column(row, name)) for row in rows if isinstance(row, Result) for name, _ in accounts(row)}
    taken = [
        "name",
        "file",
        "status",
        "method",
        "t",
        "runs",
        "delta",
        *measured,
        *measured.values(),
        *counted,
        *counted.values(),
    ]
    return [
        Named(names, {key: name for key, (name, _) in shown.items()}),
        About("file", "file", lambda row: row.source, is_text=True, usual=False),
        About("status", "status", status, is_text=True),
        About("method", "method", lambda row: row.settings.get("algorithm.method"), is_text=True, usual=len(methods) > 1),
        About("iteration", "t", _iteration),
        About("runs", "runs", _runs),
        *(Setting(key, _short(key, differing, taken), values) for key, values in swept.items()),
        *(Setting(key, _short(key, differing, taken), {}, usual=len(others) <= FEW) for key in others),
        *(
            Measured(name, title or name.replace("_", " "), bool(title))
            for name, title in sorted(measured.items(), key=_familiar)
        ),
        *(Total(name, title) for name, title in counted.items()),
        About("delta", "delta", delta_of),
        *([About("reason", "reason", _reason, is_text=True, usual=False)] if any(map(_reason, rows)) else []),
    ]


def _reason(row: Row) -> str | None:
    return row.reason if isinstance(row, Infeasible) else None


def _familiar(item: tuple[str, str]) -> int:
    """The order of the columns: metrics as they are registered, each with its average, others behind them."""
    known = list(metrics)
    return next((k for k, name in enumerate(known) if item[0] in (name, f"{name}_{AVERAGED}")), len(known))


def differing_settings(rows: Sequence[Row], by_absence: bool = False) -> list[str]:
    """Keys of which two rows have different values; with `by_absence`, also those that only some of the rows have."""
    everything = [row.settings for row in rows]
    found = []
    for key in dict.fromkeys(key for settings in everything for key in settings if key not in SAID_ELSEWHERE):
        there = [settings[key] for settings in everything if key in settings]
        if any(value != there[0] for value in there) or (by_absence and len(there) < len(rows)):
            found.append(key)
    return found


def _short(key: str, keys: Sequence[str], taken: Sequence[str]) -> str:
    """The last part of a dotted key, where that is enough."""
    last = key.split(".")[-1]
    alone = [other for other in keys if other.split(".")[-1] == last] == [key]
    return brief(last if alone and last not in taken else key)


def _labels(rows: Sequence[Row]) -> dict[int, str]:
    """The configurations' names, or, where two are the same, the files'; by the id of the row."""
    unique = len({row.name for row in rows}) == len(rows)
    return {id(row): row.name if unique else Path(row.source).stem for row in rows}


def _said(name: str) -> dict[str, float | str]:
    """What the end of a name says of settings: {"eta": 0.5} of "mine, eta=0.5"."""
    found: dict[str, float | str] = {}
    for part in reversed(name.split(", ")[1:]):
        word, equals, value = part.partition("=")
        if not equals:
            break
        found[word] = _number_in(value)
    return found


def _keys_of(words: Iterable[str], rows: Sequence[Row]) -> dict[str, str]:
    """The settings that are meant by words which the names of all rows have: the last parts of their keys."""
    keys = {key.split(".")[-1]: key for row in rows for key in row.settings}
    inside = {
        word: f"{key}.{word}"
        for row in rows
        for key, value in row.settings.items()
        if isinstance(value, dict)
        for word in value
    }
    return {word: inside.get(word) or keys[word] for word in words if word in keys or word in inside}


def _stripped(name: str, settings: Mapping[str, Any], keys: Mapping[str, str]) -> tuple[str, dict[str, float | str]]:
    """The name of a point of a sweep without the settings behind it, which have columns of their own; and these."""
    said = {(key.split(".")[-1], _number_in(in_a_name(value))): key for key, value in settings.items()}
    said["epsilon", _number_in(in_a_name(settings.get("privacy.target")))] = "privacy.target"  # as `sweep` calls it
    found: dict[str, float | str] = {}
    while ", " in name:
        rest, _, part = name.rpartition(", ")
        word, _, text = part.partition("=")
        key = said.get((word, value := _number_in(text)))
        if key is None and word in keys and keys[word] not in settings:
            key = keys[word]
        if key is None:
            break
        name, found = rest, {key: value, **found}
    return name, found


def _number_in(text: str) -> float | str:
    """1 and 1.0 are the same."""
    try:
        return float(text)
    except ValueError:
        return text


def find_column(word: str, columns: Sequence[Column], rows: Sequence[Row], option: str) -> Column:
    """A column by its key, the end of its key or its heading; or a setting that is the same in all rows."""
    wanted = _plain(word)
    spelled = [[column.key, column.title, column.key.split(".")[-1]] for column in columns]
    for way in range(3):
        for column, words in zip(columns, spelled, strict=True):
            if _plain(words[way]) == wanted:
                return column
    for key in dict.fromkeys(key for row in rows for key in row.settings):
        if wanted in (_plain(key), _plain(key.split(".")[-1])):
            return Setting(key, brief(key.split(".")[-1]), {})
    there = [column.key for column in columns]
    raise InputError(f'{option}: no column "{word}"; there are {", ".join(there)}{did_you_mean(word, there)}')


def _plain(word: str) -> str:
    return word.strip().lower().replace("-", "_").replace(" ", "_")
