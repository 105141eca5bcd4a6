"""One look for all figures; the only matplotlib.

Colours are told apart without colour vision. In grey, line styles and markers tell the files apart: a file keeps its colour
and marker in every panel; where a file has several lines, one for each account, the line style says which account.
"""

import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpadmm_mpi.errors import InputError
from dpadmm_mpi.results import Result, accounts, is_proven, labels

# Okabe and Ito's palette, without its yellow, which is too pale for lines.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
STYLES: tuple[Any, ...] = ("-", (0, (5, 1.5)), (0, (5, 1.5, 1, 1.5)))
MARKERS = ("o", "s", "^", "D", "v")  # 7, 3 and 5: the first 105 files all look different
ACCOUNT_STYLES: dict[str, Any] = {
    "bound": "-",
    "tight": (0, (1, 1.5)),
    "epsilon": (0, (5, 1.5, 1, 1.5)),
    "epsilon_paper": (0, (8, 2)),
    "epsilon_sound": (0, (3, 1.5)),
}
FORMATS = ("png", "svg", "pdf")
MAP = "cividis"  # from dark to light in grey too
MARKS = 8  # markers or bars on each curve
SETTINGS: dict[Any, Any] = {
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "legend.frameon": False,
    "legend.fontsize": 8,
    "legend.handlelength": 3,
    "lines.linewidth": 1.5,
    "lines.markersize": 4,
    "svg.hashsalt": "dpadmm",
    "text.parse_math": False,  # a name may have dollars
}


@dataclass(frozen=True)
class Request:
    """What is to be drawn."""

    results: tuple[Result, ...]
    kind: str
    account: str | None = None
    bars: bool = False

    def __iter__(self) -> Iterator[tuple[Result, dict[str, Any]]]:
        """Each result with its look; a lone one needs no marker."""
        for index, (result, label) in enumerate(zip(self.results, self.labels, strict=True)):
            marker = MARKERS[index % len(MARKERS)] if len(self.results) > 1 else None
            look = {"color": COLOURS[index % len(COLOURS)], "linestyle": STYLES[index % len(STYLES)], "marker": marker}
            yield result, {**look, "label": label}

    @property
    def labels(self) -> list[str]:
        """In short lines; a space before an underscore, without which matplotlib keeps a label to itself."""
        names = [
            name if result.complete else f"{name} (incomplete)"
            for result, name in zip(self.results, labels(self.results), strict=True)
        ]
        return ["\n".join(textwrap.wrap(f" {name}" if name.startswith("_") else name, 60)) or " " for name in names]

    def needs(self, name: str, numbers: bool = True) -> None:
        """Refuse files without the dataset, or without a number in it."""
        for result in self.results:
            if name not in result:
                hint = "; run it again with record.optimum = true" if "opt" in name or "gap" in name else ""
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
        """One account of each file: the one asked for; one that all have, rather proven, rather sound; or each file's last."""
        choices = [dict(self.accounts(result)) for result in self.results]
        for result, choice in zip(self.results, choices, strict=True):
            if not choice:
                raise InputError(f'{result.source} has no privacy account, which the kind "{self.kind}" draws')
        shared = [name for name in choices[0] if all(name in choice for choice in choices)]
        shared.sort(key=lambda name: name != "epsilon_sound")  # before the paper's, where there is one
        proven = [name for name in shared if all(is_proven(result, name) for result in self.results)]
        chosen = []
        for result, choice in zip(self.results, choices, strict=True):
            name = [*proven, *shared, list(choice)[-1]][0]
            chosen.append((name, choice[name] + ("" if is_proven(result, name) else ", not proven")))
        return chosen


def panels(count: int, width: float, height: float, columns: int = 3) -> tuple[Any, list[Any]]:
    """A figure with `count` axes, at most `columns` beside each other; sizes in inches, of one panel."""
    from matplotlib.figure import Figure  # without pyplot: a notebook's own figures are left alone

    across = min(count, columns)
    down = -(-count // across)
    figure = Figure(figsize=(width * across, height * down), layout="constrained")
    axes = list(figure.subplots(down, across, squeeze=False).ravel())
    for unused in axes[count:]:
        unused.set_axis_off()
    return figure, axes[:count]


def spots(length: int, index: int, count: int) -> NDArray[np.int64]:
    """Where the markers or bars of curve `index` of `count` stand: not above those of the others."""
    step = max(1, length // MARKS)
    return np.arange((index * step) // count % max(1, length), length, step)


def name_files(request: Request, figure: Any, handles: Sequence[Any]) -> None:
    """A lone result is named above; several share one legend below, clear of the curves."""
    if len(request.results) == 1:
        figure.suptitle(handles[0].get_label(), fontsize=10)
    else:
        share_legend(figure, handles)


def share_legend(figure: Any, handles: Sequence[Any]) -> None:
    names = [handle.get_label() for handle in handles]
    room = figure.get_figwidth() * 14  # letters of the legend that fit beside each other
    longest = max(len(line) for name in names for line in name.split("\n")) + 8
    rows = -(-len(names) // max(1, int(room // longest)))
    figure.legend(handles=handles, loc="outside lower center", ncols=-(-len(names) // rows))


def logarithmic(axis: Any, direction: str = "y") -> None:
    """A logarithmic axis with plain numbers, also between the powers of ten if there are few of those."""
    from matplotlib.ticker import FuncFormatter

    def between(value: float, _: int) -> str:
        low, high = scale.get_view_interval()
        return f"{value:g}" if high < 50 * low and f"{value:e}"[0] in "235" else ""

    scale, set_scale = (axis.yaxis, axis.set_yscale) if direction == "y" else (axis.xaxis, axis.set_xscale)
    set_scale("log", nonpositive="mask")  # zero has no place and is left out
    scale.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    scale.set_minor_formatter(FuncFormatter(between))


def caption(axis: Any, text: str, x: str = "iteration t") -> None:
    axis.set_xlabel(textwrap.fill(x, 62))
    axis.set_title(text)
    axis.margins(x=0.02)


def listed(values: Sequence[str]) -> str:
    return "; ".join(dict.fromkeys(values))


def refuse_ending(target: Path) -> None:
    if target.suffix.lstrip(".").lower() not in FORMATS:
        raise InputError(f'{target}: found the ending "{target.suffix}"; it must be one of .{", .".join(FORMATS)}')


@contextmanager
def style() -> Iterator[None]:
    try:
        import matplotlib
    except ImportError:
        raise InputError("plots need matplotlib; install it with: pip install matplotlib") from None
    with matplotlib.rc_context(SETTINGS):
        yield


def save(figure: Any, target: Path) -> None:
    dates = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}  # the same picture is the same file
    try:
        with style():
            figure.savefig(target, dpi=160, metadata=dates.get(target.suffix.lower()))
    except OSError as error:
        raise InputError(f"{target} cannot be written: {error.strerror}") from None
