"""One look for all figures; the only matplotlib.

Colours are told apart without colour vision. In grey, line styles and markers tell the files apart: a file keeps its colour
and marker in every panel; where a file has several lines, one for each account, the line style says which account.
"""

import io
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dpadmm_mpi.errors import InputError, advice_on, reason_of
from dpadmm_mpi.files import write_bytes
from dpadmm_mpi.methods.metrics import metrics
from dpadmm_mpi.privacy.account import accounts as KINDS
from dpadmm_mpi.showing import brief, paragraph, shortened
from dpadmm_mpi.storage.result import Result, accounts, is_proven, labels
from dpadmm_mpi.types import Array, Ints

# Okabe and Ito's palette, without its yellow, which is too pale for lines.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
STYLES: tuple[Any, ...] = ("-", (0, (5, 1.5)), (0, (5, 1.5, 1, 1.5)))
MARKERS = ("o", "s", "^", "D", "v")  # 7, 3 and 5: the first 105 files all look different
FORMATS = ("png", "svg", "pdf")
AXES = {"iteration": "iteration t", "seconds": "virtual time [s]", "bytes": "sent by all nodes [B]"}
MAP = "cividis"  # from dark to light in grey too
MARKS = 8  # markers or bars on each curve
LONGEST = 600  # characters of a text in a figure
LEGEND_LINE = 0.17  # inches
SPAN = 10  # from this ratio of the largest to the smallest number on, a logarithmic axis shows more
SETTINGS: dict[Any, Any] = {
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.formatter.useoffset": False,  # whole numbers at the axis, not "+1.999" above it
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
    places: tuple[int, ...] = ()  # of the results among those of a page, whose looks they keep; empty: 0, 1, 2, ...
    x: str = "iteration"  # what curves are drawn over: one of AXES

    def __iter__(self) -> Iterator[tuple[Result, dict[str, Any]]]:
        """Each result with its look; a lone one needs no marker."""
        places = self.places or range(len(self.results))
        for place, result, label in zip(places, self.results, self.labels, strict=True):
            marker = MARKERS[place % len(MARKERS)] if len(self.results) > 1 else None
            look = {"color": COLOURS[place % len(COLOURS)], "linestyle": STYLES[place % len(STYLES)], "marker": marker}
            yield result, {**look, "label": label}

    def along(self, result: Result) -> Array:
        """Where its rows stand on the horizontal axis; of what differs between the runs, the mean."""
        return result.iteration if self.x == "iteration" else np.asarray(result[f"network/{self.x}"].mean(axis=0))

    @property
    def shade(self) -> float:
        """How dark bands are: lighter where many lie on top of each other."""
        return 0.18 if len(self.results) <= 3 else 0.1

    @property
    def labels(self) -> list[str]:
        """In short lines; a space before an underscore, without which matplotlib keeps a label to itself."""
        names = [
            brief(name) if result.complete else f"{brief(name)} (incomplete)"
            for result, name in zip(self.results, labels(self.results), strict=True)
        ]
        return [in_lines(f" {name}" if name.startswith("_") else name) or " " for name in names]

    def needs(self, name: str, numbers: bool = True) -> None:
        """Refuse files without the dataset, or without a number in it."""
        for result in self.results:
            if name not in result:
                hint = f"; {metrics[name].hint}" if name in metrics and metrics[name].hint else ""
                if name == "test_error" and "mean_squared_error" in result:
                    hint = "; numbers are predicted in it, so draw mean-squared-error or loss-privacy"
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


def account_line(name: str) -> Any:
    """The line style of an account."""
    return KINDS[name].line if name in KINDS else ":"


def panels(count: int, width: float, height: float, columns: int = 3) -> tuple[Any, list[Any]]:
    """A figure with some axes beside and below each other.

    Parameters
    ----------
    count : the number of axes
    width, height : of one panel, in inches
    columns : how many stand beside each other at most

    Returns
    -------
    The figure, and its axes.

    Examples
    --------
    >>> import dpadmm_mpi as dp
    >>> figure, axes = dp.plots.panels(4, 3.0, 2.0)
    >>> len(axes), figure.get_size_inches().tolist()
    (4, [9.0, 4.0])
    """
    from matplotlib.figure import Figure  # without pyplot: a notebook's own figures are left alone

    across = min(count, columns)
    down = -(-count // across)
    figure = Figure(figsize=(width * across, height * down), layout="constrained")
    axes = list(figure.subplots(down, across, squeeze=False).ravel())
    for unused in axes[count:]:
        unused.set_axis_off()
    return figure, axes[:count]


def is_finite(result: Result, account: str) -> bool:
    return bool(np.isfinite(result[f"privacy/{account}"]).all())


def spots(length: int, index: int, count: int) -> Ints:
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
    """One legend below all panels; the figure grows with its lines, so that the panels do not shrink."""
    names = [handle.get_label() for handle in handles]
    room = figure.get_figwidth() * 14  # letters of the legend that fit beside each other
    longest = max(len(line) for name in names for line in name.split("\n")) + 8
    rows = -(-len(names) // max(1, int(room // longest)))
    lines = rows * max(name.count("\n") + 1 for name in names)
    figure.set_figheight(figure.get_figheight() + LEGEND_LINE * (lines - 1))
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


def spans(values: Any) -> bool:
    """Whether numbers, all positive, lie so far apart that a linear axis would hide the small ones."""
    return len(values) > 0 and min(values) > 0 and max(values) > SPAN * min(values)


def leave_out_the_start(axis: Any, ranges: Sequence[tuple[Array, Array]]) -> None:
    """Where the first row of the curves, (low, high) each, takes more than half of the height, they come in from above.

    It is the starting point, which no record has gone into; beside it, nothing else would be seen.
    """
    bottom = min(low.min() for low, _ in ranges)
    top, rest = max(high.max() for _, high in ranges), max(high[1:].max(initial=bottom) for _, high in ranges)
    if rest > bottom and top - bottom > 2 * (rest - bottom):
        axis.set_ylim(bottom - 0.05 * (rest - bottom), rest + 0.08 * (rest - bottom))


def widened(low: float, high: float) -> tuple[float, float]:
    """The ends of a scale; numbers within 1 % of each other, which are as good as equal, do not fill it."""
    if high - low >= 0.01 * max(abs(low), abs(high)) > 0:
        return low, high
    return low - 0.05 * abs(low) - 1e-9, high + 0.05 * abs(high) + 1e-9


def caption(axis: Any, text: str, x: str = "iteration t") -> None:
    """What a panel shows.

    Parameters
    ----------
    axis : of matplotlib
    text : its title
    x : of the horizontal axis

    Examples
    --------
    >>> import dpadmm_mpi as dp
    >>> _, [axis] = dp.plots.panels(1, 3.0, 2.0)
    >>> dp.plots.caption(axis, "loss")
    >>> axis.get_title(), axis.get_xlabel()
    ('loss', 'iteration t')
    """
    axis.set_xlabel(textwrap.fill(x, 62))
    axis.set_title(text)
    axis.margins(x=0.02)


def in_lines(text: str, width: int = 60) -> str:
    """Short lines, whatever lines it had before."""
    return textwrap.fill(text.replace("\n", " "), width)


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


def drawable(figure: Any) -> Any:
    """The figure with every text in it as the font can draw it: what it has no sign for is written out."""
    from matplotlib.font_manager import FontProperties, findfont, get_font
    from matplotlib.text import Text

    known = get_font(findfont(FontProperties())).get_charmap()
    for text in figure.findobj(Text):
        words = text.get_text()
        if not words.isascii() or not words.isprintable() or len(words) > LONGEST:
            lines = paragraph(shortened(words, LONGEST))
            text.set_text("".join(c if c == "\n" or ord(c) in known else _by_number(c) for c in lines))
    return figure


def _by_number(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def save(figure: Any, target: Path) -> None:
    dates = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}  # the same picture is the same file
    content = io.BytesIO()  # written when it is whole
    with style():
        drawable(figure).savefig(content, format=target.suffix.lstrip("."), dpi=160, metadata=dates.get(target.suffix.lower()))
    try:
        write_bytes(target, content.getbuffer())
    except OSError as error:
        raise InputError(f"{target} cannot be written: {reason_of(error)}; {advice_on(error)}") from None
