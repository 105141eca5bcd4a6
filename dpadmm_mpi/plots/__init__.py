"""Figures from results. Every kind of `dpadmm plot` is a class in kinds.py; matplotlib is in style.py alone."""

import re
from collections.abc import Sequence
from io import StringIO
from pathlib import Path
from typing import Any, Unpack

from dpadmm_mpi.errors import InputError
from dpadmm_mpi.plots import curves
from dpadmm_mpi.plots.examined import attack_figure, audit_figure
from dpadmm_mpi.plots.kinds import PlotKind, plots
from dpadmm_mpi.plots.request import AXES, Layout, Request
from dpadmm_mpi.plots.style import PRINT, SCREEN, caption, drawable, panels, refuse_ending, save, style
from dpadmm_mpi.registry import did_you_mean
from dpadmm_mpi.storage.result import Result, measurements

__all__ = [
    "PlotKind",
    "Request",
    "attack_figure",
    "audit_figure",
    "caption",
    "comparison",
    "draw",
    "figure",
    "panels",
    "plots",
    "svg",
]


def figure(
    results: Sequence[Result],
    kind: str = "overview",
    account: str | None = None,
    bars: bool = False,
    places: Sequence[int] = (),
    x: str = "iteration",
    **layout: Unpack[Layout],
) -> Any:
    """A matplotlib Figure of some kind, or of a measurement by its name.

    Results are told apart by colour, line and marker.

    Parameters
    ----------
    results : what is to be shown
    kind : a kind of `dpadmm plot`, or a measurement by its name
    account : the privacy account; none: the first that fits
    bars : ranges as bars, not as bands
    places : which looks the results have, counted from 0; the first, second, ..., if they are not given
    x : what curves are drawn over: "iteration", or with [network.time] "seconds" or "bytes"
    **layout : log, "x", "y", "xy" or "none"; xlim and ylim, two numbers each, None for an end that suits the numbers; size,
        "one-column" or "two-column"; title, "" for none; grey, True for a print without colours

    Returns
    -------
    A matplotlib Figure.

    Raises
    ------
    InputError
        There is no such kind, the results lack what it shows, or matplotlib is not installed.

    Examples
    --------
    >>> import dpadmm_mpi as dp
    >>> result = dp.run({"data": {"records": 200, "features": 3}}, epsilon=1.0, iterations=2)
    >>> [axis] = dp.plots.figure([result], "loss", ylim=(0.0, 1.0), size="one-column").axes
    >>> axis.get_ylabel(), axis.get_xlabel(), float(axis.figure.get_figwidth())
    ('mean loss', 'iteration $t$', 3.5)
    """
    request = Request(tuple(results), kind, account, bars, tuple(places), x, **layout)
    found, measure = plots.find(kind), kind.replace("-", "_")
    if found is None and not any(measure in measurements(result) for result in results):
        raise InputError(f'kind: found "{kind}"; it must be one of {", ".join(plots)}{did_you_mean(kind, list(plots))}')
    request.needs("loss")
    _check_axis(request, found is None or found.has_axis)
    with style(printed=request.size is not None):
        drawn = curves.over_iterations(request, measure) if found is None else found().draw(request)
        return drawable(request.finish(drawn))


def _check_axis(request: Request, has_axis: bool) -> None:
    """Refuse what no figure of this kind, or of these results, can be drawn over."""
    if request.x not in AXES:
        raise InputError(f'x: found "{request.x}"; it must be one of {", ".join(AXES)}')
    if request.x == "iteration":
        return
    if not has_axis:
        raise InputError(f'x: the kind "{request.kind}" is not drawn over the iterations, nor over {request.x}; remove it')
    for result in request.results:
        if f"network/{request.x}" not in result:
            raise InputError(f"{result.source} has no /network/{request.x}; give [network.time] in its configuration")


def draw(
    results: Sequence[Result],
    target: Path,
    kind: str = "overview",
    account: str | None = None,
    bars: bool = False,
    x: str = "iteration",
    **layout: Unpack[Layout],
) -> None:
    """A figure as a file: PNG, SVG or PDF, by the target's ending.

    Parameters
    ----------
    results : what is to be shown
    target : the file
    kind, account, bars, x, **layout : as in `figure`

    Raises
    ------
    InputError
        As in `figure`; or the file has another ending, or cannot be written.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import dpadmm_mpi as dp
    >>> result = dp.run({"data": {"records": 200, "features": 3}}, epsilon=1.0, iterations=2)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     dp.plots.draw([result], Path(folder) / "loss.svg", kind="loss")
    ...     sorted(path.name for path in Path(folder).iterdir())
    ['loss.svg']
    """
    refuse_ending(target)
    save(figure(results, kind, account, bars, x=x, **layout), target, PRINT if layout.get("size") else SCREEN)


def comparison(results: Sequence[Result], target: Path) -> None:
    """Loss and test error with mean and range over runs, and privacy, over the iterations, as a file.

    Parameters
    ----------
    results : what is to be shown
    target : the file: PNG, SVG or PDF, by its ending

    Raises
    ------
    InputError
        As in `draw`.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import dpadmm_mpi as dp
    >>> result = dp.run({"data": {"records": 200, "features": 3}}, epsilon=1.0, iterations=2)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     dp.plots.comparison([result], Path(folder) / "all.png")
    ...     (Path(folder) / "all.png").read_bytes()[1:4]
    b'PNG'
    """
    draw(results, target)


def svg(results: Sequence[Result], kind: str, places: Sequence[int] = (), prefix: str = "f") -> str:
    """A figure as an <svg> element for a page.

    Parameters
    ----------
    results : what is to be shown
    kind, places : as in `figure`
    prefix : keeps its ids apart from those of the page's other figures

    Returns
    -------
    The element as text.

    Raises
    ------
    InputError
        As in `figure`.

    Examples
    --------
    >>> import dpadmm_mpi as dp
    >>> result = dp.run({"data": {"records": 200, "features": 3}}, epsilon=1.0, iterations=2)
    >>> dp.plots.svg([result], "loss")[:4]
    '<svg'
    """
    text = StringIO()
    with style():
        drawn = figure(results, kind, places=places)
        drawn.savefig(text, format="svg", metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")))
    element = text.getvalue()[text.getvalue().index("<svg") :]
    return re.sub(r'(\bid="|href="#|url\(#)', rf"\1{prefix}-", element)
