"""Mean and range over the runs, against the iterations or against the privacy that they cost."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from dpadmm_mpi.config.files import in_a_name
from dpadmm_mpi.errors import InputError
from dpadmm_mpi.plots.request import AXES, Request
from dpadmm_mpi.plots.scales import Range, ends, fit, note, spans
from dpadmm_mpi.plots.style import (
    LEGEND_LINE,
    account_line,
    caption,
    draw_level,
    is_finite,
    logarithmic,
    moved,
    name_files,
    share_legend,
    spots,
)
from dpadmm_mpi.plots.words import in_lines, listed
from dpadmm_mpi.storage.result import Result, is_proven, last_row, words_for
from dpadmm_mpi.types import Array, Bools

WIDE = 50  # from this ratio on, accounts that stand beside each other get a logarithmic axis
STEEP = 3  # the same where much privacy costs so many times the loss of little
DODGE = 3.0  # points between marks of methods that would hide each other
TOTAL = "total privacy loss"


def overview(request: Request) -> Any:
    """Loss, test error where there is one, and privacy: of a lone file every account, of several the one to compare by."""
    has_test = any(has_numbers(result, "test_error") for result in request.results)
    several = len(request.results) > 1
    figure, axes = request.panels(3 if has_test else 2, 3.8, 3.3 if several else 3.3 + _legend_height(request))
    draw_measure(request, axes[0], "loss")
    if has_test:
        draw_measure(request, axes[1], "test_error")
    chosen = request.one_account() if several and all(map(request.accounts, request.results)) else []
    if several:
        draw_one_account(request, axes[-1], chosen)
    else:
        draw_accounts(request, axes[-1])
    name_files(figure, _files(request, axes[0], chosen))
    return figure


def over_iterations(request: Request, measure: str) -> Any:
    request.needs(measure)
    figure, [axis] = request.panels(1, 5.2, 3.7)
    draw_measure(request, axis, measure)
    name_files(figure, axis.get_legend_handles_labels()[0])
    return figure


def privacy(request: Request) -> Any:
    """Every account: of a lone file in one panel, where the line style says which; of several in a panel each."""
    if len(request.results) == 1:
        figure, [axis] = request.panels(1, 5.2, 3.7)
        draw_accounts(request, axis)
        name_files(figure, _files(request, axis))
        return figure
    titles: dict[str, list[str]] = {}
    for result in request.results:
        for name, title in request.accounts(result):
            titles.setdefault(name, []).append(title + ("" if is_proven(result, name) else ", not proven"))
    if not titles:
        raise InputError(f'{request.results[0].source} has no privacy account, which the kind "{request.kind}" draws')
    figure, axes = request.panels(len(titles), 3.8, 3.3)
    for axis, (name, words) in zip(axes, titles.items(), strict=True):
        _draw_account(request, axis, [name if f"privacy/{name}" in result else None for result in request.results])
        caption(axis, TOTAL, AXES[request.x], listed(words))
    name_files(figure, _files(request, axes[0]))
    return figure


def over_privacy(request: Request, measure: str) -> Any:
    """What each privacy buys; of iterations that cost the same, recycled ones for example, the last counts."""
    request.needs(measure)
    figure, [axis] = request.panels(1, 5.2, 3.7)
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
            end = float(np.nanmean(result[measure][:, last_row(result)[0]]))
            ranges.append((np.array([end, end]),) * 2)  # a level, which has no start
            draw_level(axis, end, {**look, "label": in_lines(f"{look['label']} (not private)")})
    if spans(totals):
        logarithmic(axis, "x")
    fit(axis, ranges)
    caption(axis, title_of(request, measure), f"{TOTAL}: {listed([title for _, title in chosen]) if shared else 'epsilon'}")
    name_files(figure, axis.get_legend_handles_labels()[0])
    return figure


def tradeoff(request: Request) -> Any:
    """Where each file ends: a point per file, those that differ in privacy alone joined. For sweeps over the noise."""
    has_test = all(has_numbers(result, "test_error") for result in request.results)
    measures = ["loss", "test_error"] if has_test else ["loss"]
    figure, axes = request.panels(len(measures), 4.4, 3.5)
    joined = _joined(request.results)
    names = list(dict.fromkeys(joined))
    chosen = request.finite_account()
    looks = [look for _, look in request]
    for axis, measure in zip(axes, measures, strict=True):
        totals: list[float] = []
        ranges: list[Range] = []
        for index, method in enumerate(names):
            points = []
            for result, (account, _), name in zip(request.results, chosen, joined, strict=True):
                end = last_row(result)[0]
                if name == method:
                    values = result[measure][:, end]
                    points.append((result[f"privacy/{account}"][end], np.nanmean(values), np.nanmin(values), np.nanmax(values)))
            x, mean, low, high = np.array(sorted(points)).T
            look = {**looks[index], "marker": looks[index]["marker"] or "o", "label": method}
            private = np.isfinite(x)
            for level in mean[~private]:
                draw_level(axis, level, {**look, "linestyle": ":", "label": f"{method} (not private)"})
            totals += x[private].tolist()
            ranges += [(np.array([a]), np.array([b])) for a, b in zip(low, high, strict=True)]
            if private.any():
                errors = np.maximum([(mean - low)[private], (high - mean)[private]], 0.0)  # rounding may put the mean outside
                beside = moved(axis, DODGE * (index - (len(names) - 1) / 2))
                axis.errorbar(x[private], mean[private], errors, capsize=2.5, transform=beside, **look)
                axis.update_datalim(np.column_stack([np.tile(x, 2), np.append(low, high)])[np.tile(private, 2)])
        caption(axis, f"{title_of(request, measure)}, at the end", f"{TOTAL}: {listed([title for _, title in chosen])}")
        if spans(totals):
            logarithmic(axis, "x")
        least, most = min(float(low[0]) for low, _ in ranges), max(float(high[0]) for _, high in ranges)
        if ends(ranges) is not None and most > STEEP * least > 0:
            logarithmic(axis)  # much privacy may cost much, and none of it is left out
        axis.margins(x=0.06)
        axis.autoscale_view()
    handles, labels = axes[0].get_legend_handles_labels()
    share_legend(figure, list(dict(zip(labels, handles, strict=True)).values()))
    return figure


def _joined(results: Sequence[Result]) -> list[str]:
    """Of each file, what those that it is joined with have in common: the method, and where the files of a method are a sweep
    over something beside privacy, its values. Where that leaves every file alone, the method.
    """
    methods = [str(result.settings.get("algorithm.method", "?")) for result in results]
    found = []
    for method, result in zip(methods, results, strict=True):
        others = [other.settings for name, other in zip(methods, results, strict=True) if name == method]
        keys = [key for key in result.settings if key != "name" and key.split(".")[0] != "privacy"]
        differ = [key for key in keys if any(settings.get(key) != result.settings[key] for settings in others)]
        found.append(", ".join([method, *(f"{key.split('.')[-1]}={in_a_name(result.settings[key])}" for key in differ)]))
    return found if len(set(found)) < len(found) else methods


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
        fit(axis, ranges)
    caption(axis, title_of(request, measure), AXES[request.x])


def title_of(request: Request, measure: str) -> str:
    """With its unit, from a file that has it."""
    there = next((result for result in request.results if measure in result), request.results[0])
    return words_for(there, measure).axis


def _wants_logarithm(request: Request, measure: str, ranges: Sequence[Range]) -> bool:
    if any(measure in result and words_for(result, measure).scale == "log" for result in request.results):
        numbers = np.concatenate([end for pair in ranges for end in pair])
        return spans(numbers[numbers > 0])
    # The objectives of different families are sums of different length: thousands beside parts of one.
    return measure == "objective" and spans([low[-1] for low, _ in ranges])


def band(axis: Any, x: Array, values: Array, look: dict[str, Any], index: int, request: Request) -> Range:
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
    """Every account of a lone file, as far as some run got: its line style says which; an infinite one is named, not drawn."""
    [(result, look)] = request
    rows = reached(result, "loss")
    found = request.accounts(result)
    handles, totals = [], []
    for name, title in found:
        title += "" if is_proven(result, name) else ", not proven"
        line = {**look, "linestyle": account_line(name), "drawstyle": "steps-post"}
        if is_finite(result, name):
            values = result[f"privacy/{name}"][rows]
            handles += axis.plot(request.along(result)[rows], values, **{**line, "label": title})
            totals.append(values[-1])
        else:
            handles += axis.plot([], [], **{**line, "label": f"{title}: infinite"})
    caption(axis, TOTAL, AXES[request.x])
    if not totals:
        _say_not_private(axis)
        return
    axis.legend(handles=handles, loc="upper left")
    legend = 0.04 + 0.08 * len(handles)  # its share of the height, above the curves
    room = legend / (1 - legend)
    if min(totals) > 0 and max(totals) > WIDE * min(totals):
        logarithmic(axis)
        axis.set_ylim(top=max(totals) * (max(totals) / axis.get_ylim()[0]) ** room)
    else:
        axis.set_ylim(0, max(1e-9, max(totals)) * (1.03 + room))


def draw_one_account(request: Request, axis: Any, chosen: Sequence[tuple[str, str]]) -> None:
    """One account of each of several files, with the looks of their other curves."""
    names = [name for name, _ in chosen]
    _draw_account(request, axis, names)
    shared = f": {listed([title for _, title in chosen])}" if len(set(names)) == 1 else ""
    caption(axis, f"{TOTAL}{shared}", AXES[request.x])


def _draw_account(request: Request, axis: Any, names: Sequence[str | None]) -> None:
    """Steps: what is released in an iteration costs from then on."""
    totals, infinite = [], 0
    for index, ((result, look), name) in enumerate(zip(request, names, strict=False)):
        if name is None:
            continue
        if not is_finite(result, name):
            infinite += 1
            continue
        rows = reached(result, "loss")
        values, at = result[f"privacy/{name}"][rows], spots(int(rows.sum()), index, len(request.results)).tolist()
        axis.plot(request.along(result)[rows], values, markevery=at, drawstyle="steps-post", **look)
        totals.append(values[-1])
    if not totals:
        _say_not_private(axis)
        return
    if min(totals) > 0 and max(totals) > WIDE * min(totals):
        logarithmic(axis)
    else:
        axis.set_ylim(0, max(1e-9, max(totals)) * (1.15 if infinite else 1.05))
    if infinite:
        note(axis, f"{infinite} of {len(request.results)} not private: infinite")


def _say_not_private(axis: Any) -> None:
    axis.text(0.5, 0.5, "not private:\nevery account is infinite", ha="center", va="center", transform=axis.transAxes)
    axis.set_xticks([])
    axis.set_yticks([])


def _files(request: Request, axis: Any, chosen: Sequence[tuple[str, str]] = ()) -> list[Any]:
    """What the legend shows of each file; with its account, where the files have different ones."""
    handles = [axis.plot([], [], **look)[0] for _, look in request]
    if len({name for name, _ in chosen}) > 1:
        for handle, (_, title) in zip(handles, chosen, strict=True):
            handle.set_label(in_lines(f"{handle.get_label()} (privacy: {title})"))
    return handles


def _legend_height(request: Request) -> float:
    """For more accounts than the usual three."""
    return LEGEND_LINE * max(0, len(request.accounts(request.results[0])) - 3)


def has_numbers(result: Result, name: str) -> bool:
    return name in result and bool(np.isfinite(result[name]).any())


def reached(result: Result, name: str) -> Bools:
    """The rows with a number from some run."""
    rows: Bools = np.isfinite(result[name]).any(axis=0)
    return rows
