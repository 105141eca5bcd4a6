"""Why a secret penalty does not protect: the error of a rebuilt record with and without knowing it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dpadmm_mpi.audit.attack import Attack
from dpadmm_mpi.plots.looks import look
from dpadmm_mpi.plots.style import (
    caption,
    logarithmic,
    panels,
    refuse_ending,
    save,
    share_legend,
    style,
)

EXACT = 1e-17  # of an error of zero, which a logarithmic axis cannot show


def secrecy_figure(known: Sequence[Attack], unknown: Sequence[Attack], target: Path) -> None:
    """Error over the data steps that the attacker has seen, mean and range over the runs; one panel with, one without eta."""
    refuse_ending(target)
    with style():
        figure, axes = panels(2, 4.4, 3.4)
        titles = ("the attacker knows η and θ", "the attacker knows neither η nor θ")
        handles: list[Any] = []
        for axis, attacks, title, first in zip(axes, (known, unknown), titles, (1, 2), strict=True):
            drawn = [_draw(axis, attack, index, first) for index, attack in enumerate(attacks)]
            handles = handles or drawn
            logarithmic(axis)
            axis.axhline(1.0, color="0.6", linewidth=0.8)
            caption(axis, "error of the rebuilt record (norm at most 1)", "data steps seen", title)
            axis.xaxis.get_major_locator().set_params(integer=True)
        low = min(axis.get_ylim()[0] for axis in axes)
        for axis in axes:
            axis.set_ylim(low, 10.0)
        share_legend(figure, handles)
        figure.suptitle("Two data steps give the record away, whether the penalties are known or not; noise protects it")
    save(figure, target)


def _draw(axis: Any, attack: Attack, index: int, first: int) -> Any:
    errors = np.maximum(attack.errors, EXACT)
    # With eta after 1, 2, 4, ... data steps, and all of them; without it from the second on.
    steps = 2 ** np.arange(errors.shape[1]) if first == 1 else np.arange(first, first + errors.shape[1])
    each = look(index)
    name = attack.name.removesuffix(", penalties unknown")
    axis.fill_between(steps, errors.min(axis=0), errors.max(axis=0), color=each["color"], alpha=0.18, lw=0)
    return axis.plot(steps, errors.mean(axis=0), label=name, **each)[0]
