"""What is to be drawn, and how: the results with their looks and names, the accounts, the options of `dpadmm plot`."""

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, TypedDict, get_args

import numpy as np

from dpadmm_mpi.errors import InputError
from dpadmm_mpi.methods.metrics import metrics
from dpadmm_mpi.plots.looks import COLOURS, GREYS, look
from dpadmm_mpi.plots.style import WIDTHS, is_finite, panels, rescale, width_in_letters
from dpadmm_mpi.plots.words import in_lines, shared_beginning
from dpadmm_mpi.privacy.account import accounts as KINDS
from dpadmm_mpi.showing import brief
from dpadmm_mpi.storage.result import Result, accounts, is_proven, labels
from dpadmm_mpi.types import Array

Size = Literal["one-column", "two-column"]
Log = Literal["x", "y", "xy", "none"]
Limits = tuple[float | None, float | None]

AXES = {"iteration": "iteration t", "seconds": "virtual time [s]", "bytes": "sent by all nodes [B]"}
NARROWEST = 2.2  # inches of a panel with axes in a journal's width
MAP, GREY_MAP = "cividis", "gray"  # from dark to light, in grey too


class Layout(TypedDict, total=False):
    """How a figure is laid out; what is not given, suits the numbers."""

    log: Log | None  # which axes are logarithmic
    xlim: Limits | None  # the ends of the axes, None: as the numbers have it
    ylim: Limits | None
    size: Size | None  # a journal's width
    title: str | None  # "": none
    grey: bool  # no colours


@dataclass(frozen=True)
class Request:
    """What is to be drawn."""

    results: tuple[Result, ...]
    kind: str
    account: str | None = None
    bars: bool = False
    places: tuple[int, ...] = ()  # of the results among those of a page, whose looks they keep; empty: 0, 1, 2, ...
    x: str = "iteration"  # what curves are drawn over: one of AXES
    log: Log | None = None
    xlim: Limits | None = None
    ylim: Limits | None = None
    size: Size | None = None
    title: str | None = None
    grey: bool = False

    def __post_init__(self) -> None:
        for name, found, allowed in (("log", self.log, get_args(Log)), ("size", self.size, get_args(Size))):
            if found is not None and found not in allowed:
                raise InputError(f'{name}: found "{found}"; it must be one of {", ".join(allowed)}')
        for name, ends in (("xlim", self.xlim), ("ylim", self.ylim)):
            if ends is not None and not (None in ends or ends[0] < ends[1]):  # type: ignore[operator]
                raise InputError(f"{name}: found {ends[0]:g},{ends[1]:g}; the first must be smaller than the second")

    def __iter__(self) -> Iterator[tuple[Result, dict[str, Any]]]:
        """Each result with its look; a lone one needs no marker."""
        places = self.places or range(len(self.results))
        for place, result, label in zip(places, self.results, self.labels, strict=True):
            alone = {"marker": None} if len(self.results) == 1 else {}
            yield result, {**look(place, self.grey), **alone, "label": label}

    def along(self, result: Result) -> Array:
        """Where its rows stand on the horizontal axis; of what differs between the runs, the mean."""
        return result.iteration if self.x == "iteration" else np.asarray(result[f"network/{self.x}"].mean(axis=0))

    @property
    def shade(self) -> float:
        """How dark bands are: lighter where many lie on top of each other."""
        return 0.18 if len(self.results) <= 3 else 0.1

    @property
    def colours(self) -> tuple[str, ...]:
        return GREYS if self.grey else COLOURS

    @property
    def map(self) -> str:
        """The colours of numbers."""
        return GREY_MAP if self.grey else MAP

    @property
    def shared_name(self) -> str:
        """What the names of several results begin with, as those of a sweep."""
        return shared_beginning(labels(self.results))

    @property
    def labels(self) -> list[str]:
        """In short lines, without what all share; a space before an underscore, without which matplotlib drops a label."""
        shared = f"{self.shared_name}, " if self.shared_name else ""
        names = [
            brief(name.removeprefix(shared)) + ("" if result.complete else " (incomplete)")
            for result, name in zip(self.results, labels(self.results), strict=True)
        ]
        return [in_lines(f" {name}" if name.startswith("_") else name) or " " for name in names]

    def panels(
        self, count: int, width: float, height: float, columns: int = 3, narrowest: float = NARROWEST
    ) -> tuple[Any, list[Any]]:
        """As `panels`, in the width that is asked for, where no panel is narrower than so many inches."""
        if self.size is not None:
            whole = WIDTHS[self.size]
            columns = min(count, columns, max(1, int(whole // narrowest)))
            width, height = whole / columns, min(height, max(height * whole / columns / width, 1.1 * narrowest))
        return panels(count, width, height, columns)

    def finish(self, figure: Any) -> Any:
        """Title, scales and ends as they are asked for, of which no kind has to know."""
        title = brief(self.shared_name) if self.title is None else self.title
        if self.title is not None or (title and not figure.get_suptitle()):
            figure.suptitle(in_lines(title, width_in_letters(figure)))
        plain = [axis for axis in figure.axes if axis.axison and axis.get_label() != "<colorbar>" and not axis.images]
        if self.log is not None:
            self._refuse_without("log", plain)
            for axis in plain:
                for direction in "xy":
                    rescale(axis, direction, is_log=direction in self.log)
        for direction, ends in (("x", self.xlim), ("y", self.ylim)):
            if ends is None:
                continue
            self._refuse_without(f"{direction}lim", plain)
            if len({getattr(axis, f"get_{direction}label")() for axis in plain}) > 1:
                raise InputError(
                    f'{direction}lim: the kind "{self.kind}" has panels with different quantities; draw one of them, as in '
                    "--kind loss"
                )
            for axis in plain:
                getattr(axis, f"set_{direction}lim")(*ends)
        if self.size is not None:
            figure.set_figwidth(WIDTHS[self.size])  # also of kinds that choose a width of their own
        return figure

    def _refuse_without(self, option: str, plain: list[Any]) -> None:
        if not plain:
            raise InputError(f'{option}: the kind "{self.kind}" has no axes with numbers; remove it')

    def needs(self, name: str, numbers: bool = True) -> None:
        """Refuse files without the dataset, or without a number in it."""
        for result in self.results:
            if name not in result:
                hint = f"; {metrics[name].hint}" if name in metrics and metrics[name].hint else ""
                if name == "data/label_counts":
                    hint = "; runs on records from files have it"
                if name == "test_error" and "mean_squared_error" in result:
                    hint = "; numbers are predicted in it, so draw mean-squared-error or loss-privacy"
                if result.settings.get("record.nodes") is False:
                    hint = "; it was recorded with record.nodes = false, so set it to true and run again"
                raise InputError(f'{result.source} has no /{name}, which the kind "{self.kind}" draws{hint}')
            if numbers and not np.isfinite(result[name]).any():
                why = "it has no test records" if name == "test_error" else "nothing was recorded"
                raise InputError(f'{result.source} has no number in /{name}, which the kind "{self.kind}" draws: {why}')

    def accounts(self, result: Result) -> list[tuple[str, str]]:
        """The accounts to draw: the one asked for, or all of the file."""
        there = accounts(result)
        if self.account is None:
            return there
        if self.account not in dict(there):
            names = ", ".join(dict(there)) or "none"
            raise InputError(f'account: {result.source} has no account "{self.account}"; it has {names}')
        return [(self.account, dict(there)[self.account])]

    def one_account(self) -> list[tuple[str, str]]:
        """One account of each file: the one asked for; one that all have, rather the one that the noise was set by, rather
        proven, rather sound; or each file's last."""
        choices = [dict(self.accounts(result)) for result in self.results]
        for result, choice in zip(self.results, choices, strict=True):
            if not choice:
                raise InputError(f'{result.source} has no privacy account, which the kind "{self.kind}" draws')
        shared = [name for name in choices[0] if all(name in choice for choice in choices)]
        shared.sort(key=lambda name: name != "epsilon_sound")  # before the paper's, where there is one
        proven = [name for name in shared if all(is_proven(result, name) for result in self.results)]
        wanted = {account for result in self.results if (account := calibrated(result))}
        met = [name for name in shared if {name} == wanted]
        chosen = []
        for result, choice in zip(self.results, choices, strict=True):
            name = [*met, *proven, *shared, list(choice)[-1]][0]
            chosen.append((name, choice[name] + ("" if is_proven(result, name) else ", not proven")))
        return chosen

    def has_finite_account(self) -> bool:
        """Whether there is a privacy loss to draw against."""
        return any(is_finite(result, name) for result, (name, _) in zip(self.results, self.one_account(), strict=True))

    def finite_account(self) -> list[tuple[str, str]]:
        """One account of each file, or a refusal if it is infinite in all of them."""
        chosen = self.one_account()
        if not self.has_finite_account():
            infinite = "; ".join(f"{result.source}: {title}" for result, (_, title) in zip(self.results, chosen, strict=True))
            raise InputError(f'{infinite} is infinite, and the kind "{self.kind}" draws against a finite privacy loss')
        return chosen


def calibrated(result: Result) -> str | None:
    """The account that the noise was set by, where privacy.target says so."""
    privacy = tomllib.loads(result.config_text).get("privacy", {})
    if "target" not in privacy:
        return None
    there = [name for name, _ in accounts(result) if name in KINDS and KINDS[name].target == privacy.get("target_account")]
    return there[0] if there else None
