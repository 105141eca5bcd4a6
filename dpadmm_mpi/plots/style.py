"""One look for all figures, whatever they show: fonts, sizes, panels, axes, legends, files; the only matplotlib."""

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import numpy as np

from dpadmm_mpi.errors import InputError, advice_on, reason_of
from dpadmm_mpi.files import write_bytes
from dpadmm_mpi.plots.words import in_lines, power_of_ten, typeset
from dpadmm_mpi.privacy.account import accounts as KINDS
from dpadmm_mpi.showing import paragraph, shortened
from dpadmm_mpi.storage.result import Result
from dpadmm_mpi.types import Ints

WIDTHS: dict[str, float] = {"one-column": 3.5, "two-column": 7.16}  # inches, as journals of two columns have them
SCREEN, PRINT = 160, 300  # dots per inch
PLAIN = (0.99e-3, 1.01e4)  # a logarithmic axis within these has plain numbers, beyond powers of ten
LONGEST = 600  # characters of a text in a figure
FORMATS = ("png", "svg", "pdf")
MARKS = 8  # markers or bars on each curve
LEGEND_LINE = 0.17  # inches
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
    "figure.titlesize": 10,
    "pdf.fonttype": 42,  # TrueType, which journals ask for; in SVG, letters are outlines
    "svg.hashsalt": "dpadmm",
    "text.parse_math": False,  # a name may have dollars; `drawable` turns it on for formulas of ours
    "text.usetex": False,
}
PRINTED: dict[Any, Any] = {  # in a journal's width
    "font.size": 8,
    "axes.titlesize": 8,
    "figure.titlesize": 8,
    "legend.fontsize": 7,
    "lines.linewidth": 1.2,
    "lines.markersize": 3.5,
}


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
    for axis in axes[:count]:
        linear(axis, "x")
        linear(axis, "y")
    return figure, axes[:count]


def logarithmic(axis: Any, direction: str = "y") -> None:
    """A logarithmic axis, with numbers also between the powers of ten if there are few of those."""
    from matplotlib.ticker import FuncFormatter

    def number(value: float) -> str:
        low, high = scale.get_view_interval()
        return f"{value:g}" if PLAIN[0] < low and high < PLAIN[1] else power_of_ten(value)

    def between(value: float, _: int) -> str:
        low, high = scale.get_view_interval()
        return number(value) if high < (50 if f"{value:e}"[0] in "235" else 4) * low else ""

    scale, set_scale = (axis.yaxis, axis.set_yscale) if direction == "y" else (axis.xaxis, axis.set_xscale)
    set_scale("log", nonpositive="mask")  # zero has no place and is left out
    scale.set_major_formatter(FuncFormatter(lambda value, _: number(value)))
    scale.set_minor_formatter(FuncFormatter(between))


def linear(axis: Any, direction: str = "y") -> None:
    """A linear axis, with a power of ten at its end where the numbers are very large or small."""
    from matplotlib.ticker import ScalarFormatter

    class Plain(ScalarFormatter):
        def get_offset(self) -> str:
            return f"×{power_of_ten(float(super().get_offset()))}" if super().get_offset() else ""

    scale, set_scale = (axis.yaxis, axis.set_yscale) if direction == "y" else (axis.xaxis, axis.set_xscale)
    set_scale("linear")
    scale.set_major_formatter(Plain(useOffset=False, useMathText=False))


def rescale(axis: Any, direction: str, is_log: bool) -> None:
    """Another scale than the numbers' own, for an axis with curves on it, whose ends then fit it."""
    if (axis.get_xscale() if direction == "x" else axis.get_yscale()) == ("log" if is_log else "linear"):
        return
    least = axis.dataLim.minposx if direction == "x" else axis.dataLim.minposy
    if is_log and not np.isfinite(least):
        label = axis.get_xlabel() if direction == "x" else axis.get_ylabel()
        raise InputError(f'log: "{label}" has no positive number; leave {direction} out')
    axis.relim()
    axis.autoscale(axis=direction)
    (logarithmic if is_log else linear)(axis, direction)


def draw_level(axis: Any, value: float, look: dict[str, Any]) -> None:
    """A line from side to side, with its markers on it."""
    x = np.linspace(0.0, 1.0, 9)
    axis.plot(x, np.full(len(x), value), transform=axis.get_yaxis_transform(), markevery=(1, 2), **look)


def moved(axis: Any, points: float) -> Any:
    """The axis's coordinates, so many points to the right."""
    from matplotlib.transforms import ScaledTranslation

    return axis.transData + ScaledTranslation(points / 72, 0, axis.get_figure().dpi_scale_trans)


def is_finite(result: Result, account: str) -> bool:
    return bool(np.isfinite(result[f"privacy/{account}"]).all())


def spots(length: int, index: int, count: int) -> Ints:
    """Where the markers or bars of curve `index` of `count` stand: not above those of the others."""
    step = max(1, length // MARKS)
    return np.arange((index * step) // count % max(1, length), length, step)


def name_files(figure: Any, handles: Sequence[Any]) -> None:
    """A lone result is named above; several share one legend below, clear of the curves."""
    if len(handles) == 1:
        figure.suptitle(handles[0].get_label())
    else:
        share_legend(figure, handles)


def share_legend(figure: Any, handles: Sequence[Any]) -> None:
    """One legend below all panels; the figure grows with its lines, so that the panels do not shrink."""
    names = [handle.get_label() for handle in handles]
    longest = max(len(line) for name in names for line in name.split("\n")) + 8
    rows = -(-len(names) // max(1, width_in_letters(figure) // longest))
    lines = rows * max(name.count("\n") + 1 for name in names)
    figure.set_figheight(figure.get_figheight() + LEGEND_LINE * (lines - 1))
    figure.legend(handles=handles, loc="outside lower center", ncols=-(-len(names) // rows))


def width_in_letters(figure: Any) -> int:
    """How many small letters fit beside each other."""
    from matplotlib import rcParams

    return int(figure.get_figwidth() * 112 / rcParams["legend.fontsize"])


def letters(axis: Any, side: Literal["width", "height"] = "width") -> int:
    """How many letters fit beside a panel."""
    from matplotlib import rcParams

    grid, figure = axis.get_subplotspec().get_gridspec(), axis.get_figure()
    inches = figure.get_figwidth() / grid.ncols if side == "width" else figure.get_figheight() / grid.nrows
    return int(inches * 100 / rcParams["font.size"])


def caption(axis: Any, y: str, x: str = "iteration t", title: str = "") -> None:
    """Say what a panel shows: quantities, with their units, at the axes.

    Parameters
    ----------
    axis : of matplotlib
    y, x : of the vertical and the horizontal axis
    title : above the panel

    Examples
    --------
    >>> import dpadmm_mpi as dp
    >>> _, [axis] = dp.plots.panels(1, 3.0, 2.0)
    >>> dp.plots.caption(axis, "mean loss")
    >>> axis.get_ylabel(), axis.get_xlabel()
    ('mean loss', 'iteration t')
    """
    axis.set_ylabel(in_lines(y, letters(axis, "height")))
    axis.set_xlabel(in_lines(x, letters(axis)))
    axis.set_title(in_lines(title, letters(axis)))
    axis.margins(x=0.02)
    if x.startswith("iteration") and axis.get_xscale() == "linear" and len(axis.get_xticks()):
        axis.xaxis.get_major_locator().set_params(integer=True)


def refuse_ending(target: Path) -> None:
    if target.suffix.lstrip(".").lower() not in FORMATS:
        raise InputError(f'{target}: found the ending "{target.suffix}"; it must be one of .{", .".join(FORMATS)}')


@contextmanager
def style(printed: bool = False) -> Iterator[None]:
    """The settings of matplotlib for figures of ours, on a screen or in a journal."""
    try:
        import matplotlib
    except ImportError:
        raise InputError("plots need matplotlib; install it with: pip install matplotlib") from None
    with matplotlib.rc_context(SETTINGS | PRINTED if printed else SETTINGS):
        yield


def drawable(figure: Any) -> Any:
    """The figure with every text as the font can draw it: formulas set, and what it has no sign for written out."""
    from matplotlib.font_manager import FontProperties, findfont, get_font
    from matplotlib.text import Text

    known = get_font(findfont(FontProperties())).get_charmap()
    for text in set(figure.findobj(Text)) - _ticks(figure):
        if text.get_parse_math():
            continue  # has been here before
        words = text.get_text()
        if not words.isascii() or not words.isprintable() or len(words) > LONGEST:
            lines = paragraph(shortened(words, LONGEST))
            words = "".join(c if c == "\n" or ord(c) in known else _by_number(c) for c in lines)
            text.set_text(words)
        if (formulas := typeset(words)) is not None:
            text.set_text(formulas)
            text.set_parse_math(True)
    return figure


def _ticks(figure: Any) -> set[Any]:
    """The numbers at the axes, which every drawing writes anew."""
    scales = [scale for axis in figure.axes for scale in (axis.xaxis, axis.yaxis)]
    return {label for scale in scales for which in ("major", "minor") for label in scale.get_ticklabels(which=which)}


def _by_number(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def save(figure: Any, target: Path, dots_per_inch: int = SCREEN) -> None:
    dates = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}  # the same picture is the same file
    content = io.BytesIO()  # written when it is whole
    with style():
        about = dates.get(target.suffix.lower())
        drawable(figure).savefig(content, format=target.suffix.lstrip("."), dpi=dots_per_inch, metadata=about)
    try:
        write_bytes(target, content.getbuffer())
    except OSError as error:
        raise InputError(f"{target} cannot be written: {reason_of(error)}; {advice_on(error)}") from None
