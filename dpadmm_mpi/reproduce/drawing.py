"""The papers' figures: panels of curves, mean and range over the runs."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dpadmm_mpi.plots.looks import look
from dpadmm_mpi.plots.style import (
    caption,
    logarithmic,
    panels,
    refuse_ending,
    save,
    share_legend,
    spots,
    style,
)  # fmt: skip
from dpadmm_mpi.reproduce.figures import Figure
from dpadmm_mpi.reproduce.pictures import Curve, Panel, lines
from dpadmm_mpi.reproduce.quantities import Results

REFERENCES = ("black", "0.5")
START = 5  # iterations after which a loss must be in the picture


def draw(figure: Figure, results: Results, target: Path) -> None:
    """One legend for all panels: a label has the same look in each of them."""
    refuse_ending(target)
    labels = list(dict.fromkeys(label for panel in figure.panels for _, label in panel.curves))
    with style():
        picture, axes = panels(len(figure.panels), 3.7, 2.9, figure.columns)
        handles: dict[str, Any] = {}
        for panel, axis in zip(figure.panels, axes, strict=True):
            handles |= _draw_panel(panel, axis, results, labels)
        share_legend(picture, [handles[label] for label in labels if label in handles])
        picture.suptitle(figure.title)
    save(picture, target)


def _draw_panel(panel: Panel, axis: Any, results: Results, labels: Sequence[str]) -> dict[str, Any]:
    handles = {}
    if panel.log_y:
        logarithmic(axis)
    if panel.log_x:
        logarithmic(axis, "x")
    drawn = list(lines(panel, results))
    plain = [label for label in labels if label not in panel.references]
    for line in drawn:
        if line.label in panel.references:
            handles[line.label] = _draw_reference(line, axis, panel.references.index(line.label))
        else:
            handles[line.label] = _draw_line(line, axis, plain.index(line.label), len(plain), panel)
    if panel.measure == "loss" and panel.x is None and not panel.log_y and panel.over == "iteration":
        _leave_out_the_start(axis, drawn)
    if panel.y_range is not None:
        axis.set_ylim(panel.y_range)
    x_title, y_title = panel.axes
    caption(axis, y_title, x_title, panel.title)
    if panel.x is not None:
        axis.margins(x=0.05)  # the points at the ends stay clear of the frame
    return handles


def _leave_out_the_start(axis: Any, drawn: Sequence[Curve]) -> None:
    """The first steps from a random start are so large that nothing else would be seen."""
    top = max(line.high[line.x >= START].max() for line in drawn)
    bottom = min(line.low.min() for line in drawn)
    axis.set_ylim(bottom - 0.04 * (top - bottom), top + 0.08 * (top - bottom))


def _draw_reference(line: Curve, axis: Any, index: int) -> Any:
    return axis.plot(line.x, line.mean, color=REFERENCES[index], linestyle=":", lw=1.8, label=line.label)[0]


def _draw_line(line: Curve, axis: Any, index: int, count: int, panel: Panel) -> Any:
    """A band over the iterations, privacy in steps; bars where every point is a variant of its own."""
    each = {**look(index), "label": line.label}
    if panel.x is not None:
        spread = np.maximum([line.mean - line.low, line.high - line.mean], 0.0)  # a mean of equal numbers may be off by a bit
        return axis.errorbar(line.x, line.mean, yerr=spread, capsize=2, **each)
    axis.fill_between(line.x, line.low, line.high, color=each["color"], alpha=0.18, lw=0)
    if panel.measure.startswith("privacy/"):
        each["drawstyle"] = "steps-post"
    return axis.plot(line.x, line.mean, markevery=spots(len(line.x), index, count).tolist(), **each)[0]
