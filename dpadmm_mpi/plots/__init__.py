"""Figures from results. Every kind of `dpadmm plot` is a row of KINDS."""

import re
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Any

from dpadmm_mpi.errors import InputError
from dpadmm_mpi.plots import curves, network
from dpadmm_mpi.plots.examined import attack_figure, audit_figure
from dpadmm_mpi.plots.style import Request, refuse_ending, save, style
from dpadmm_mpi.storage.result import Result

__all__ = ["KINDS", "attack_figure", "audit_figure", "comparison", "draw", "figure", "svg"]

KINDS: dict[str, Callable[[Request], Any]] = {
    "overview": curves.overview,
    **{kind: partial(curves.over_iterations, measure=measure) for kind, measure in curves.OVER_ITERATIONS.items()},
    "privacy": curves.privacy,
    **{kind: partial(curves.over_privacy, measure=measure) for kind, measure in curves.OVER_PRIVACY.items()},
    "tradeoff": curves.tradeoff,
    "nodes": network.nodes,
    "network": network.network,
}


def figure(
    results: Sequence[Result],
    kind: str = "overview",
    account: str | None = None,
    bars: bool = False,
    places: Sequence[int] = (),
) -> Any:
    """A matplotlib Figure of some kind; `account` names the privacy account, `bars` draws ranges as bars, not as bands.

    Results are told apart by colour, line and marker: the first, second, ... look, or those of `places`, counted from 0.
    """
    if kind not in KINDS:
        near = get_close_matches(kind, KINDS, 1)
        hint = f'; did you mean "{near[0]}"?' if near else ""
        raise InputError(f'kind: found "{kind}"; it must be one of {", ".join(KINDS)}{hint}')
    request = Request(tuple(results), kind, account, bars, tuple(places))
    request.needs("loss")
    with style():
        return KINDS[kind](request)


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
