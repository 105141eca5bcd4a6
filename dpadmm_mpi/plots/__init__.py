"""Figures from results. Every kind of `dpadmm plot` is a class in kinds.py; matplotlib is in style.py alone."""

import re
from collections.abc import Sequence
from io import StringIO
from pathlib import Path
from typing import Any

from dpadmm_mpi.errors import InputError
from dpadmm_mpi.plots import curves
from dpadmm_mpi.plots.examined import attack_figure, audit_figure
from dpadmm_mpi.plots.kinds import PlotKind, plots
from dpadmm_mpi.plots.style import Request, caption, drawable, panels, refuse_ending, save, style
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
) -> Any:
    """A matplotlib Figure of some kind, or of a measurement by its name.

    `account` names the privacy account, `bars` draws ranges as bars, not as bands. Results are told apart by colour, line and
    marker: the first, second, ... look, or those of `places`, counted from 0.
    """
    request = Request(tuple(results), kind, account, bars, tuple(places))
    found, measure = plots.find(kind), kind.replace("-", "_")
    if found is None and not any(measure in measurements(result) for result in results):
        raise InputError(f'kind: found "{kind}"; it must be one of {", ".join(plots)}{did_you_mean(kind, list(plots))}')
    request.needs("loss")
    with style():
        return drawable(curves.over_iterations(request, measure) if found is None else found().draw(request))


def draw(
    results: Sequence[Result], target: Path, kind: str = "overview", account: str | None = None, bars: bool = False
) -> None:
    """A figure as a file: PNG, SVG or PDF, by the target's ending."""
    refuse_ending(target)
    save(figure(results, kind, account, bars), target)


def comparison(results: Sequence[Result], target: Path) -> None:
    """Loss and test error with mean and range over runs, and privacy, over the iterations."""
    draw(results, target)


def svg(results: Sequence[Result], kind: str, places: Sequence[int] = (), prefix: str = "f") -> str:
    """A figure as an <svg> element for a page; `prefix` keeps its ids apart from those of the page's other figures."""
    text = StringIO()
    with style():
        drawn = figure(results, kind, places=places)
        drawn.savefig(text, format="svg", metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")))
    element = text.getvalue()[text.getvalue().index("<svg") :]
    return re.sub(r'(\bid="|href="#|url\(#)', rf"\1{prefix}-", element)
