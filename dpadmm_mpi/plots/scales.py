"""The ends of axes and colour scales, which outliers do not decide."""

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from dpadmm_mpi.types import Array

SPAN = 10  # from this ratio of the largest to the smallest number on, a logarithmic axis shows more
FEW = 4  # curves; among fewer, none is an outlier
MOST = 0.8  # of the curves are no outliers,
FAR = 3  # nor is what goes beyond them by no more than so many times their own range
SHORT = 0.95  # of its iterations decide what a curve needs: a peak may leave the picture

Range = tuple[Array, Array]  # the smallest and the largest number of a curve in each row


def spans(values: Any) -> bool:
    """Whether numbers, all positive, lie so far apart that a linear axis would hide the small ones."""
    return len(values) > 0 and min(values) > 0 and max(values) > SPAN * min(values)


def typical(lows: Sequence[float], highs: Sequence[float]) -> tuple[float, float]:
    """The ends that show most of some ranges well: those few that lie far beyond the others have no part in it."""
    if len(lows) < FEW:
        return min(lows), max(highs)
    low = float(np.quantile(lows, 1 - MOST, method="higher"))
    high = float(np.quantile(highs, MOST, method="lower"))
    room = FAR * abs(high - low)
    return min(each for each in lows if each >= low - room), max(each for each in highs if each <= high + room)


def ends(ranges: Sequence[Range]) -> tuple[float, float] | None:
    """Where a linear axis should end so that neither the start nor outliers take more than half of it; None: nothing does.

    The start is a point that no record has gone into. Curves come in from above, and short peaks go out there.
    """
    rest = [(low[1:], high[1:]) if len(low) > 1 else (low, high) for low, high in ranges]
    usual = [float(np.quantile(high, SHORT, method="higher")) for _, high in rest]
    bottom, top = typical([float(low.min()) for low, _ in ranges], usual)
    lowest, highest = min(float(low.min()) for low, _ in ranges), max(float(high.max()) for _, high in ranges)
    for reach in (highest, max(float(high.max()) for _, high in rest)):
        if reach - bottom <= 2 * (top - bottom):  # there is room for it
            top = reach
            break
    return None if top <= bottom or (bottom, top) == (lowest, highest) else (bottom, top)


def fit(axis: Any, ranges: Sequence[Range]) -> None:
    """Set these ends, and say how many curves are not seen."""
    found = ends(ranges)
    if found is None:
        return
    room = found[1] - found[0]
    bottom, top = found[0] - 0.05 * room, found[1] + 0.08 * room
    axis.set_ylim(bottom, top)
    above = sum(float(low[1:].min(initial=low[-1])) > top for low, _ in ranges)
    below = sum(float(high[1:].max(initial=high[-1])) < bottom for _, high in ranges)
    for count, side in ((above, "above"), (below, "below")):
        if count:
            note(axis, f"{count} of {len(ranges)} {side} the axis")


def note(axis: Any, text: str, place: Literal["upper right", "lower right"] = "upper right") -> None:
    """Inside, in a corner."""
    y, side = (0.98, "top") if place == "upper right" else (0.02, "bottom")
    axis.text(
        0.99, y, text, transform=axis.transAxes, ha="right", va=side, fontsize="small", color="0.3", zorder=4,
        bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 1.0},
    )  # fmt: skip


def widened(low: float, high: float) -> tuple[float, float]:
    """The ends of a scale; numbers within 1 % of each other, which are as good as equal, do not fill it."""
    if high - low >= 0.01 * max(abs(low), abs(high)) > 0:
        return low, high
    return low - 0.05 * abs(low) - 1e-9, high + 0.05 * abs(high) + 1e-9
