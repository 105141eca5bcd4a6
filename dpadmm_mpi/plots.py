"""Figures from results; the only matplotlib. Colours are told apart without colour vision, and line styles in grey."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dpadmm_mpi.attack import Attack
from dpadmm_mpi.audit import Audit
from dpadmm_mpi.errors import InputError
from dpadmm_mpi.results import Result, labels

# Okabe and Ito's palette, without its yellow, which is too pale for lines.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
STYLES = ("-", "--", "-.")
TIGHT = {"linewidth": 0.9, "linestyle": (0, (1, 1.5))}  # dotted, which no curve of its own is
EPSILON = {"linewidth": 0.9, "linestyle": (0, (5, 1.5, 1, 1.5))}
FORMATS = ("png", "svg", "pdf")


def audit_figure(audit: Audit, target: Path) -> None:
    """Realised loss of the worst neighbour in every run over the iterations, and its distribution, against the accounts."""
    plt = _start(target)
    figure, (growth, spread) = plt.subplots(1, 2, figsize=(8.4, 3.4), layout="constrained")
    result = audit.result
    k = int(audit.worst.argmax())
    t, node = np.append(0, audit.data_steps), audit.nodes[k]
    per_run = audit.losses[k].max(axis=2)
    for run in per_run:
        growth.step(t, np.append(0, run), where="post", color=COLOURS[0], linewidth=0.6, alpha=0.35)
    for account, label, style in (
        ("bound", "P(t), the paper's", {}),
        ("tight", "tighter pure bound", TIGHT),
        ("epsilon", "epsilon", EPSILON),
    ):
        values = result[f"privacy/node_{account}"][:, node]
        growth.plot(result.iteration, values, **{"color": COLOURS[1], **style}, label=label)
        spread.axvline(values[-1], **{"color": COLOURS[1], **style})
    growth.plot([], [], color=COLOURS[0], label="realised, one line per run")
    growth.legend(frameon=False, fontsize=8, loc="upper left")
    _label(growth, f"privacy loss of node {node}, worst neighbour of each run")
    spread.hist(per_run[:, -1], bins=min(40, max(5, len(per_run) // 5)), color=COLOURS[0], alpha=0.75)
    spread.set_title(f"at the end, {len(per_run)} runs", fontsize=9)
    spread.set_xlabel("realised privacy loss")
    _save(plt, figure, target)


def attack_figure(attacks: Sequence[Attack], target: Path) -> None:
    """Error of the reconstruction against the total privacy loss so far, mean and range over the runs."""
    plt = _start(target)
    figure, axis = plt.subplots(figsize=(5.6, 3.8), layout="constrained")
    for index, attack in enumerate(attacks):
        look = {"color": COLOURS[index % len(COLOURS)], "linestyle": STYLES[index % len(STYLES)]}
        errors = np.maximum(attack.errors, 1e-17)
        if np.isfinite(attack.bound).all():
            axis.plot(attack.bound, errors.mean(axis=0), label=attack.name, marker="o", markersize=3, **look)
            axis.fill_between(attack.bound, errors.min(axis=0), errors.max(axis=0), color=look["color"], alpha=0.18, lw=0)
        else:
            axis.axhline(errors[:, -1].mean(), label=f"{attack.name}: not private", **look)
    axis.set_yscale("log")
    if any(np.isfinite(attack.bound).all() for attack in attacks):
        axis.set_xscale("log")
    axis.set_xlabel("total privacy loss P(t) of the node so far")
    axis.set_title("error of the reconstructed record (its norm is at most 1)", fontsize=9)
    axis.legend(frameon=False, fontsize=8)
    _save(plt, figure, target)


def comparison(results: Sequence[Result], target: Path) -> None:
    """Loss and test error with mean and range over runs, and privacy, over the iterations."""
    plt = _start(target)
    has_test = any(np.isfinite(result.test_error).any() for result in results)
    panels = 3 if has_test else 2
    # A lone result is named in the title; several share one legend below, clear of the curves.
    figure, axes = plt.subplots(1, panels, figsize=(3.6 * panels, 3.3), layout="constrained")
    for index, (result, label) in enumerate(zip(results, labels(results), strict=True)):
        if not result.complete:
            label += " (incomplete)"
        look = {"color": COLOURS[index % len(COLOURS)], "linestyle": STYLES[index % len(STYLES)], "label": label}
        _band(axes[0], result, "loss", look)
        if has_test:
            _band(axes[1], result, "test_error", look)
        _privacy(axes[-1], result, look)
    _label(axes[0], "mean loss")
    if has_test:
        _label(axes[1], "test error of the mean classifier")
    _label(axes[-1], "total privacy loss, bound")
    _finish_privacy(axes[-1], results)
    if len(results) == 1:
        figure.suptitle(axes[0].get_lines()[0].get_label(), fontsize=11)
    else:
        figure.legend(
            *axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=min(len(results), 4), frameon=False
        )
    _save(plt, figure, target)


def _save(plt: Any, figure: Any, target: Path) -> None:
    try:
        figure.savefig(target, dpi=160)
    except OSError as error:
        raise InputError(f"{target} cannot be written: {error.strerror}") from None
    finally:
        plt.close(figure)


def _start(target: Path) -> Any:
    """pyplot, in our style, if the target can be drawn."""
    if target.suffix.lstrip(".").lower() not in FORMATS:
        raise InputError(f'{target}: found the ending "{target.suffix}"; it must be one of .{", .".join(FORMATS)}')
    try:
        import matplotlib
    except ImportError:
        raise InputError("plots need matplotlib; install it with: pip install matplotlib") from None
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    plt.rcParams.update({"font.size": 9, "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True})
    plt.rcParams.update({"grid.alpha": 0.25, "lines.linewidth": 1.6, "svg.hashsalt": "dpadmm"})
    return plt


def _band(axis: Any, result: Result, name: str, look: dict[str, Any]) -> None:
    """Mean over the runs as a line, range as a band; rows that no run has reached are left out."""
    values = result[name]
    reached = np.isfinite(values).any(axis=0)
    t, values = result.iteration[reached], values[:, reached]
    axis.plot(t, np.nanmean(values, axis=0), **look)
    if len(values) > 1:
        axis.fill_between(t, np.nanmin(values, axis=0), np.nanmax(values, axis=0), color=look["color"], alpha=0.18, lw=0)


def _privacy(axis: Any, result: Result, look: dict[str, Any]) -> None:
    """As far as some run got; an infinite bound is not drawn."""
    reached = np.isfinite(result.loss).any(axis=0)
    t = result.iteration[reached]
    if np.isfinite(result.bound).all():
        axis.plot(t, result.bound[reached], **look)
    if np.isfinite(result.tight).all():
        axis.plot(t, result.tight[reached], color=look["color"], **TIGHT)
        axis.plot(t, result["privacy/epsilon"][reached], color=look["color"], **EPSILON)


def _finish_privacy(axis: Any, results: Sequence[Result]) -> None:
    """Say what the lines are, what is not proven, and who is not there because the bound is infinite."""
    private = [result for result in results if np.isfinite(result.bound).all()]
    if not private:
        axis.text(0.5, 0.5, "not private:\nthe bound is infinite", ha="center", va="center", transform=axis.transAxes)
        axis.set_xticks([])
        axis.set_yticks([])
        return
    proven = all(result.attributes["privacy/bound"]["proven"] for result in private)
    handles = axis.plot([], [], color="0.3", label="P(t), the paper's" + ("" if proven else ", partly not proven"))
    if any(np.isfinite(result.tight).all() for result in private):
        handles += axis.plot([], [], color="0.3", label="tighter pure bound", **TIGHT)
        deltas = {f"{result.attributes['privacy/epsilon']['delta']:g}" for result in private}
        handles += axis.plot([], [], color="0.3", label=f"epsilon at delta = {', '.join(sorted(deltas))}", **EPSILON)
    infinite = len(results) - len(private)
    title = f"{infinite} of {len(results)} not private: infinite" if infinite else None
    axis.legend(handles=handles, loc="upper left", frameon=False, fontsize=8, title=title, title_fontsize=8, alignment="left")
    axis.set_ylim(bottom=0)


def _label(axis: Any, text: str) -> None:
    axis.set_xlabel("iteration t")
    axis.set_title(text, fontsize=9)
    axis.margins(x=0.02)
