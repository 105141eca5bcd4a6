"""What `dpadmm audit` and `dpadmm attack` found."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dpadmm_mpi.audit.attack import Attack
from dpadmm_mpi.audit.exact import Audit
from dpadmm_mpi.plots.looks import COLOURS, look
from dpadmm_mpi.plots.style import (
    account_line,
    caption,
    draw_level,
    logarithmic,
    panels,
    refuse_ending,
    save,
    share_legend,
    style,
)
from dpadmm_mpi.storage.result import accounts


def audit_figure(audit: Audit, target: Path) -> None:
    """Realised loss of the worst neighbour in every run over the iterations, and its distribution, against the accounts.

    Parameters
    ----------
    audit : what `Result.audit` gives
    target : the file: PNG, SVG or PDF, by its ending

    Raises
    ------
    InputError
        The file has another ending, or cannot be written; or matplotlib is not installed.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import dpadmm_mpi as dp
    >>> small = {"data": {"records": 100, "features": 3}, "record": {"trajectory": True}}
    >>> result = dp.run(small, method="admm", iterations=2, perturbation="objective", alpha=1.0)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     dp.plots.audit_figure(result.audit(candidates=1), Path(folder) / "audit.png")
    ...     (Path(folder) / "audit.png").read_bytes()[1:4]
    b'PNG'
    """
    refuse_ending(target)
    with style():
        figure, (growth, spread) = panels(2, 4.2, 3.4)
        result = audit.result
        k = int(audit.worst.argmax())
        t, node = np.append(0, audit.data_steps), audit.nodes[k]
        per_run = audit.losses[k].max(axis=2)
        handles: list[Any] = []
        for run in per_run:
            growth.step(t, np.append(0, run), where="post", color=COLOURS[0], linewidth=0.6, alpha=0.35)
        for account, title in accounts(result):
            values = result[f"privacy/node_{account}"][:, node]
            line = {"color": COLOURS[1], "linestyle": account_line(account)}
            handles += growth.plot(result.iteration, values, label=title, drawstyle="steps-post", **line)
            if np.isfinite(values[-1]):
                spread.axvline(values[-1], **line)
        handles += growth.plot([], [], color=COLOURS[0], label="realised, one line per run")
        caption(growth, f"privacy loss of node {node}", title="worst neighbour of each run")
        spread.hist(per_run[:, -1], bins=min(40, max(5, len(per_run) // 5)), color=COLOURS[0], alpha=0.75)
        caption(spread, "number of runs", "realised privacy loss at the end", f"{len(per_run)} runs")
        spread.yaxis.get_major_locator().set_params(integer=True)
        share_legend(figure, handles)
    save(figure, target)


def attack_figure(attacks: Sequence[Attack], target: Path) -> None:
    """Error of the reconstruction against the total privacy loss so far, mean and range over the runs.

    Parameters
    ----------
    attacks : what the attack on each file has found
    target : the file: PNG, SVG or PDF, by its ending

    Raises
    ------
    InputError
        The file has another ending, or cannot be written; or matplotlib is not installed.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import dpadmm_mpi as dp
    >>> from dpadmm_mpi.audit.attack import attack
    >>> small = {"data": {"records": 100, "features": 3}, "record": {"trajectory": True}}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "run.h5"
    ...     _ = dp.run(small, file, method="admm", iterations=2, perturbation="objective", alpha=1.0)
    ...     dp.plots.attack_figure([attack(file)], Path(folder) / "attack.png")
    ...     (Path(folder) / "attack.png").read_bytes()[1:4]
    b'PNG'
    """
    refuse_ending(target)
    with style():
        figure, [axis] = panels(1, 5.6, 3.8)
        for index, attack in enumerate(attacks):
            each, errors = look(index), np.maximum(attack.errors, 1e-17)
            if np.isfinite(attack.bound).all():
                axis.plot(attack.bound, errors.mean(axis=0), label=attack.name, **each)
                axis.fill_between(attack.bound, errors.min(axis=0), errors.max(axis=0), color=each["color"], alpha=0.18, lw=0)
            else:
                draw_level(axis, errors[:, -1].mean(), {**each, "label": f"{attack.name}: not private"})
        logarithmic(axis)
        if any(np.isfinite(attack.bound).all() for attack in attacks):
            logarithmic(axis, "x")
        caption(axis, "error of the reconstructed record (its norm is at most 1)", "total privacy loss of the node so far")
        share_legend(figure, axis.get_legend_handles_labels()[0])
    save(figure, target)
