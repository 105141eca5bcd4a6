"""What a search has found, for people: a table, a configuration to run, a figure."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dpadmm_mpi.config.ranges import Between, Space, Whole
from dpadmm_mpi.errors import InputError
from dpadmm_mpi.files import exists, is_file
from dpadmm_mpi.methods.base import to_toml
from dpadmm_mpi.methods.metrics import metrics as METRICS
from dpadmm_mpi.plots.style import caption, logarithmic, panels, refuse_ending, save, style
from dpadmm_mpi.reports.tables import aligned
from dpadmm_mpi.tuning.private_selection import Price
from dpadmm_mpi.tuning.study import Study, Trial
from dpadmm_mpi.tuning.task import Task

FIRST_LINE = "# Found by dpadmm tune"
SHOWN = 5  # trials of a table


def brief(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{key} = {brief(item)}" for key, item in value.items()) + " }"
    return str(value)


def settings_in_words(trial: Trial) -> str:
    """What the search has set, by the last part of each key."""
    searched = {key: trial.settings[key] for key in trial.settings if any(each.startswith(key) for each in trial.point)}
    return ", ".join(f"{key.rpartition('.')[2]} = {brief(value)}" for key, value in searched.items())


def _value(trial: Trial) -> str:
    assert trial.value is not None
    return f"{trial.value:.5g}" + (f" ± {trial.error:.2g}" if trial.error is not None else "")


def table(study: Study, metric: str, most: int = SHOWN) -> str:
    """The best trials of one method; of several methods, the best of each, and the best first."""
    if len(study.methods) > 1:
        ranked = sorted(study.methods, key=lambda name: _place(study, name))
        rows = []
        for name in ranked:
            best = study.ranked(name)[:1]
            cells = [_value(best[0]), settings_in_words(best[0])] if best else ["-", "none of the trials could be run"]
            rows.append([name, str(sum(trial.feasible for trial in study.of(name))), *cells])
        return aligned(["method", "trials", metric, "best settings"], rows, left=(0, 3))
    rows = [[str(trial.number), _value(trial), settings_in_words(trial)] for trial in study.ranked()[:most]]
    return aligned(["trial", metric, "settings"], rows, left=(2,))


def _place(study: Study, method: str) -> float:
    best = study.ranked(method)[:1]
    if not best or best[0].value is None:
        return np.inf
    return best[0].value if study.lower_is_better else -best[0].value


def summary(study: Study) -> list[str]:
    """How many trials could not be run, and why."""
    failed = [trial for trial in study.trials if not trial.feasible]
    if not failed:
        return []
    return [
        f"{len(failed)} of {len(study.trials)} trials could not be run within the budget; the last one: {failed[-1].sentence}"
    ]


def toml(study: Study, task: Task, price: Price | None = None) -> str:
    """The configuration with the best settings, as `dpadmm run` takes it, and where it comes from."""
    best = study.best()
    if price is None:
        lines = [
            f"{FIRST_LINE} for {task.budget.words}, method {best.method}.",
            f"# Tried on {task.stand_in.words}.",
            f"# The best of {len(study.trials)} trials ({study.about['tuner']}), each the mean of {task.runs} runs: "
            f"{task.metric} {_value(best)} there.",
            "# The choice costs no privacy: the records had no part in it.",
        ]
    else:
        lines = [
            f"{FIRST_LINE} for {task.budget.words}, method {best.method}, chosen by the records themselves.",
            f"# The best of {price.tries_words}, each of epsilon = {price.each:.4g}: with the choice,",
            f"# epsilon = {price.total:.4g} at delta = {task.budget.delta:g} (Papernot and Steinke 2022, Theorem 2). Its "
            f"{task.metric} with noise of standard deviation {price.score_std:.2g}: {_value(best)}.",
            "# To run it gives the very model that was chosen and costs nothing more; another seed makes it a further release.",
        ]
    return "\n".join(lines) + "\n" + to_toml(task.tuned_config(best))


def refuse_other(path: Path, force: bool) -> None:
    """A configuration that a search has written may be written again; anything else is somebody's own."""
    if force or not exists(path):
        return
    try:
        ours = is_file(path) and path.read_text(encoding="utf-8").startswith(FIRST_LINE)
    except (OSError, UnicodeDecodeError):
        ours = False
    if not ours:
        raise InputError(f"{path} exists and is not of dpadmm tune; choose another place with -o, or replace it with --force")


def importance(study: Study, method: str, space: Space) -> dict[str, float]:
    """Of each key, the share of the ranks' variance that a parabola in it explains; the most important first.

    Rough: keys that matter only together are missed, and what a search avoids seems to matter less.
    """
    trials = study.ranked(method)
    values = np.array([trial.value for trial in trials], dtype=np.float64)
    ranks = np.array([np.mean(values < value) + np.mean(values <= value) for value in values])  # equal values, equal ranks
    shares = {}
    for key, each in space.items():
        x = np.array([places(each, trial.point[key]) for trial in trials])
        if len(trials) < 4 or np.ptp(x) == 0 or np.ptp(ranks) == 0:
            shares[key] = 0.0
            continue
        degree = min(2, len(np.unique(x)) - 1)
        left = ranks - np.polyval(np.polyfit(x - x.mean(), ranks, degree), x - x.mean())
        shares[key] = float(max(0.0, 1.0 - left.var() / ranks.var()))
    return dict(sorted(shares.items(), key=lambda item: -item[1]))


def places(each: Any, value: Any) -> float:
    """Where a value lies on the axis of its range."""
    if isinstance(each, Between | Whole):
        return float(np.log(value)) if each.log else float(value)
    return float(each.values.index(value))


def draw(study: Study, task: Task, method: str, target: Path) -> None:
    """A slice for each key, the most important first: every trial that could be run, later ones darker, the best one marked."""
    refuse_ending(target)
    space, trials, best = task.method(method).space, study.of(method), study.best(method)
    shown = [trial for trial in trials if trial.feasible]
    with style():
        shares = importance(study, method, space)
        figure, axes = panels(len(shares), 3.4, 2.9, columns=4)
        for axis, (key, share) in zip(axes, shares.items(), strict=True):
            each, x = space[key], [trial.point[key] for trial in shown]
            if not isinstance(each, Between | Whole):
                axis.set_xticks(range(len(each.values)), [str(value) for value in each.values])
                x = [each.values.index(value) for value in x]
            elif each.log:
                logarithmic(axis, "x")
            axis.scatter(
                x,
                [trial.value for trial in shown],
                c=[trial.number for trial in shown],
                cmap="Blues",
                vmin=-len(trials) / 2,
                s=16,
            )
            k = shown.index(best)
            axis.scatter([x[k]], [best.value], marker="*", s=110, color="tab:red", zorder=3)
            units = f" (times {each.times})" if each.times else ""
            caption(axis, METRICS[task.metric].title, f"{key}{units}", f"explains {100 * share:.0f} %")
            axis.margins(x=0.06)  # the points at the ends stay clear of the frame
        figure.suptitle(f"{method}, {task.budget.words}: {len(shown)} trials, the best one with a star")
        save(figure, target)


def notes(study: Study, task: Task) -> Sequence[str]:
    return [f"tried on {task.stand_in.words}", *summary(study), *study.notes]
