"""Mean and range over the runs, against the iterations or against the privacy that they cost."""

import tomllib
from collections.abc import Sequence
from typing import Any

import numpy as np

from dpadmm_mpi.plots.style import (
    AXES,
    LEGEND_LINE,
    Request,
    account_line,
    caption,
    in_lines,
    is_finite,
    leave_out_the_start,
    listed,
    logarithmic,
    name_files,
    panels,
    share_legend,
    spans,
    spots,
)
from dpadmm_mpi.storage.result import Result, is_proven, last_row, words_for
from dpadmm_mpi.types import Array, Bools

WIDE = 50  # from this ratio on, accounts that stand beside each other get a logarithmic axis


def overview(request: Request) -> Any:
    """Loss, test error where there is one, and privacy."""
    has_test = any(has_numbers(result, "test_error") for result in request.results)
    kinds_of_privacy = {name for result in request.results for name, _ in request.accounts(result)}
    figure, axes = panels(3 if has_test else 2, 3.6, 3.3 + LEGEND_LINE * max(0, len(kinds_of_privacy) - 3))
    draw_measure(request, axes[0], "loss")
    if has_test:
        draw_measure(request, axes[1], "test_error")
    draw_accounts(request, axes[-1])
    name_files(request, figure, axes[0].get_legend_handles_labels()[0])
    return figure


def over_iterations(request: Request, measure: str) -> Any:
    request.needs(measure)
    figure, [axis] = panels(1, 5.2, 3.7)
    draw_measure(request, axis, measure)
    name_files(request, figure, axis.get_legend_handles_labels()[0])
    return figure


def privacy(request: Request) -> Any:
    figure, [axis] = panels(1, 5.2, 3.7)
    draw_accounts(request, axis)
    # Here the line style says which account it is; colour and marker say which file.
    name_files(request, figure, [axis.plot([], [], **{**look, "linestyle": "none"})[0] for _, look in request])
    return figure


def over_privacy(request: Request, measure: str) -> Any:
    """What each privacy buys; of iterations that cost the same, recycled ones for example, the last counts."""
    request.needs(measure)
    figure, [axis] = panels(1, 5.2, 3.7)
    chosen = request.finite_account()
    shared = len({name for name, _ in chosen}) == 1
    ranges, totals = [], []
    for index, ((result, look), (account, title)) in enumerate(zip(request, chosen, strict=True)):
        cost = result[f"privacy/{account}"]
        if is_finite(result, account):
            if not shared:
                look["label"] = in_lines(f"{look['label']}: {title}")
            rows = np.flatnonzero(reached(result, measure) & np.append(np.diff(cost) != 0, True))
            ranges.append(band(axis, cost[rows], result[measure][:, rows], look, index, request))
            totals.append(cost[rows][-1])
        else:
            end = np.nanmean(result[measure][:, last_row(result)[0]])
            ranges.append((np.array([end, end]),) * 2)  # a level, which has no start
            axis.axhline(end, **{**look, "label": in_lines(f"{look['label']} (not private; at the end)")})
    if spans(totals):
        logarithmic(axis, "x")
    leave_out_the_start(axis, ranges)
    caption(
        axis,
        title_of(request, measure),
        f"total privacy loss: {listed([title for _, title in chosen])}" if shared else "epsilon",
    )
    name_files(request, figure, axis.get_legend_handles_labels()[0])
    return figure


def tradeoff(request: Request) -> Any:
    """Where each file ends: a point per file, those of one method joined. For sweeps over the noise."""
    has_test = all(has_numbers(result, "test_error") for result in request.results)
    measures = ["loss", "test_error"] if has_test else ["loss"]
    figure, axes = panels(len(measures), 4.4, 3.5)
    methods = [str(tomllib.loads(result.config_text).get("algorithm", {}).get("method", "?")) for result in request.results]
    chosen = request.finite_account()
    looks = [look for _, look in request]
    for axis, measure in zip(axes, measures, strict=True):
        totals: list[float] = []
        for index, method in enumerate(dict.fromkeys(methods)):
            points = []
            for result, (account, _), name in zip(request.results, chosen, methods, strict=True):
                end = last_row(result)[0]
                if name == method:
                    values = result[measure][:, end]
                    points.append((result[f"privacy/{account}"][end], np.nanmean(values), np.nanmin(values), np.nanmax(values)))
            x, mean, low, high = np.array(sorted(points)).T
            look = {**looks[index], "marker": looks[index]["marker"] or "o", "label": method}
            private = np.isfinite(x)
            for level in mean[~private]:
                axis.axhline(level, **{**look, "linestyle": ":", "label": f"{method} (not private)"})
            totals += x[private].tolist()
            if private.any():
                errors = np.maximum([(mean - low)[private], (high - mean)[private]], 0.0)  # rounding may put the mean outside
                axis.errorbar(x[private], mean[private], errors, capsize=2.5, **look)
        caption(
            axis, f"{title_of(request, measure)}, at the end", f"total privacy loss: {listed([title for _, title in chosen])}"
        )
        if spans(totals):
            logarithmic(axis, "x")
        axis.margins(x=0.06)
    handles, names = axes[0].get_legend_handles_labels()
    share_legend(figure, list(dict(zip(names, handles, strict=True)).values()))
    return figure


def draw_measure(request: Request, axis: Any, measure: str) -> None:
    """One curve for each file that has the measure."""
    ranges = []
    for index, (result, look) in enumerate(request):
        if has_numbers(result, measure):
            rows = reached(result, measure)
            ranges.append(band(axis, request.along(result)[rows], result[measure][:, rows], look, index, request))
    if _wants_logarithm(request, measure, ranges):
        logarithmic(axis)
    else:
        leave_out_the_start(axis, ranges)
    caption(axis, title_of(request, measure), AXES[request.x])


def title_of(request: Request, measure: str) -> str:
    """With its unit, from a file that has it."""
    there = next((result for result in request.results if measure in result), request.results[0])
    return words_for(there, measure).axis


def _wants_logarithm(request: Request, measure: str, ranges: Sequence[tuple[Array, Array]]) -> bool:
    if any(measure in result and words_for(result, measure).scale == "log" for result in request.results):
        numbers = np.concatenate([end for pair in ranges for end in pair])
        return spans(numbers[numbers > 0])
    # The objectives of different families are sums of different length: thousands beside parts of one.
    return measure == "objective" and spans([low[-1] for low, _ in ranges])


def band(axis: Any, x: Array, values: Array, look: dict[str, Any], index: int, request: Request) -> tuple[Array, Array]:
    """Mean over the runs as a line; their range, which is returned, as a band, or, as in the papers, as bars."""
    mean, low, high = np.nanmean(values, axis=0), np.nanmin(values, axis=0), np.nanmax(values, axis=0)
    at = spots(len(x), index, len(request.results))
    axis.plot(x, mean, markevery=at.tolist(), **look)
    if len(values) > 1 and request.bars:
        errors = np.maximum([(mean - low)[at], (high - mean)[at]], 0.0)  # rounding may put the mean outside
        axis.errorbar(x[at], mean[at], errors, fmt="none", ecolor=look["color"], elinewidth=0.9, capsize=2.5)
    elif len(values) > 1:
        axis.fill_between(x, low, high, color=look["color"], alpha=request.shade, lw=0)
    return low, high


def draw_accounts(request: Request, axis: Any) -> None:
    """Every account of every file, as far as some run got; an infinite one is not drawn, but counted in the legend."""
    seen: dict[str, list[tuple[Result, str]]] = {}
    ends = []
    for index, (result, look) in enumerate(request):
        rows = reached(result, "loss")
        for name, title in request.accounts(result):
            seen.setdefault(name, []).append((result, title))
            if not is_finite(result, name):
                continue
            values = result[f"privacy/{name}"]
            lines = {**look, "linestyle": account_line(name), "label": None}
            at = spots(int(rows.sum()), index, len(request.results)).tolist()
            axis.plot(request.along(result)[rows], values[rows], markevery=at, **lines)
            ends.append(values[rows][-1])
    caption(axis, "total privacy loss", AXES[request.x])
    if not ends:
        axis.text(0.5, 0.5, "not private:\nevery account is infinite", ha="center", va="center", transform=axis.transAxes)
        axis.set_xticks([])
        axis.set_yticks([])
        return
    lines_of_text = _explain(request, axis, seen)
    legend = 0.04 + 0.08 * lines_of_text  # its share of the height, above the curves
    room = legend / (1 - legend)
    if min(ends) > 0 and max(ends) > WIDE * min(ends):
        logarithmic(axis)
        axis.set_ylim(top=max(ends) * (max(ends) / axis.get_ylim()[0]) ** room)
    else:
        axis.set_ylim(0, max(1e-9, max(ends)) * (1.03 + room))


def _explain(request: Request, axis: Any, seen: dict[str, list[tuple[Result, str]]]) -> int:
    """Say which line is which account, what is not proven, and what is not there because it is infinite; in how many lines."""

    def private(result: Result) -> bool:
        return any(is_finite(result, name) for name, _ in request.accounts(result))

    handles = []
    for name, files in seen.items():
        label = listed([title for _, title in files])
        proven = [is_proven(result, name) for result, _ in files]
        if not all(proven):
            label += ", partly not proven" if any(proven) else ", not proven"
        infinite = [private(result) and not is_finite(result, name) for result, _ in files]
        if any(infinite):
            label += f", infinite: {sum(infinite)} of {len(files)}"
        handles += axis.plot([], [], color="0.3", linestyle=account_line(name), label=label)
    without = [result for result in request.results if request.accounts(result) and not private(result)]
    title = f"{len(without)} of {len(request.results)} not private: infinite" if without else None
    axis.legend(handles=handles, loc="upper left", title=title, title_fontsize=8, alignment="left")
    return len(handles) + (title is not None)


def has_numbers(result: Result, name: str) -> bool:
    return name in result and bool(np.isfinite(result[name]).any())


def reached(result: Result, name: str) -> Bools:
    """The rows with a number from some run."""
    rows: Bools = np.isfinite(result[name]).any(axis=0)
    return rows
