"""What an attacker can find at most: the trade-off between true and false accusations."""

from typing import Any

import numpy as np

from dpadmm_mpi.plots.request import Request
from dpadmm_mpi.plots.scales import note
from dpadmm_mpi.plots.style import caption, share_legend
from dpadmm_mpi.storage.result import curve_needed

RATES = np.geomspace(1e-4, 1.0, 400)  # share of the innocent that is accused
WORDS = {1e-4: "1 in 10,000", 1e-3: "1 in 1,000", 1e-2: "1 in 100", 1e-1: "1 in 10", 1.0: "all"}
SHOWN = 0.001  # where the sentence is


def attacker(request: Request) -> Any:
    """The largest share of the guilty that is found, over the share of the innocent that is accused, both logarithmic."""
    figure, axes = request.panels(1, 5.6, 4.2)
    axis = axes[0]
    lines = [axis.plot(RATES, RATES, color="0.5", linewidth=1.0, linestyle=":", label="guessing")[0]]
    if not any(result.curve for result in request.results):
        curve_needed(request.results[0])  # says what it lacks
    for result, look in request:
        if (curve := result.curve) is None:
            continue
        shares = curve.true_positive_rate(RATES)
        lines.append(axis.plot(RATES, shares, **{**look, "markevery": 50})[0])
        found = float(curve.true_positive_rate(SHOWN))
        if len(request.results) == 1:
            axis.plot([SHOWN], [found], marker="o", color=look["color"], linestyle="none")
            axis.annotate(
                f"accuses 1 in 1,000 innocent:\nfinds at most {1000 * found:.3g} in 1,000 guilty",
                (SHOWN, found), xytext=(12, -28), textcoords="offset points", fontsize=8,
                arrowprops={"arrowstyle": "-", "color": "0.4", "lw": 0.7},
            )  # fmt: skip
    if without := sum(result.curve is None for result in request.results):
        note(axis, f"{without} of {len(request.results)} without a proven account", "lower right")
    axis.set(xscale="log", yscale="log")
    for direction in (axis.xaxis, axis.yaxis):
        shown = {rate: words for rate, words in WORDS.items() if request.size is None or rate in (1e-4, 1e-2, 1.0)}
        direction.set_ticks(list(shown), list(shown.values()))
    axis.set_xlim(RATES[0], 1.0)
    axis.set_ylim(RATES[0], 1.2)
    title = "an attacker who sees all that one run releases"
    caption(axis, "guilty records that are found, at most", "innocent records that are accused", title)
    share_legend(figure, lines)
    return figure
