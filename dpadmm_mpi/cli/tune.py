"""`dpadmm tune` and `dpadmm advise`: the best settings for a privacy budget, and what a configuration wastes."""

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dpadmm_mpi.cli.options import (
    OutputPath,
    config_argument,
    debug_option,
    extension_option,
    in_folder,
    only_option,
    quickstart,
    say,
    set_option,
    speak,
)
from dpadmm_mpi.errors import InputError
from dpadmm_mpi.showing import sentence

if TYPE_CHECKING:
    from dpadmm_mpi.parallel.transport import Transport
    from dpadmm_mpi.tuning.private_selection import Price
    from dpadmm_mpi.tuning.study import Study, Trial
    from dpadmm_mpi.tuning.task import Request, Task, Wish

TRIALS = 16  # of each method, if nothing is said
LINE_SECONDS = 10.0  # between plain lines, where there is no terminal

positive = click.FloatRange(min=0.0, min_open=True)
open_fraction = click.FloatRange(min=0.0, max=1.0, min_open=True, max_open=True)
epsilon_option = click.option("--budget-epsilon", "epsilon", type=positive, help="The budget; privacy.target, if not given.")
delta_option = click.option("--delta", type=open_fraction, help="Of the budget. Default: privacy.delta.")


class Progress:
    """Watches the trials: a bar on a terminal, plain lines in a batch log."""

    def __init__(self, metric: str, lower_is_better: bool) -> None:
        self._metric, self._sign = metric, 1.0 if lower_is_better else -1.0
        self._best: float | None = None
        self._bar: Any = None
        self._done, self._last_line = 0, time.monotonic()

    def begin(self, total: int) -> None:
        self._total = total
        if sys.stderr.isatty():
            from tqdm import tqdm

            self._bar = tqdm(total=total, desc="tune", unit="trial", leave=False, dynamic_ncols=True)

    def trial(self, trial: "Trial") -> None:
        self._done += 1
        if trial.value is not None and (self._best is None or self._sign * trial.value < self._sign * self._best):
            self._best = trial.value
        best = "-" if self._best is None else f"{self._best:.4g}"
        if self._bar is not None:
            self._bar.set_postfix_str(f"{trial.method}, best {self._metric} {best}", refresh=False)
            self._bar.update(1)
        elif time.monotonic() - self._last_line > LINE_SECONDS:
            self._last_line = time.monotonic()
            words = f"tune: trial {self._done} of {self._total}, {trial.method}, best {self._metric} {best}"
            print(sentence(words), file=sys.stderr, flush=True)

    def end(self) -> None:
        if self._bar is not None:
            self._bar.close()


@click.command()
@config_argument
@set_option
@only_option
@epsilon_option
@delta_option
@click.option("--method", "methods", multiple=True, metavar="NAME", help="To tune; several may be given. Default: CONFIG's.")
@click.option("--trials", type=click.IntRange(min=1), default=TRIALS, show_default=True, help="Of each method.")
@click.option("--runs", type=click.IntRange(min=1), default=4, show_default=True, help="Whose mean a trial is judged by.")
@click.option(
    "--on", metavar="WHAT", default="synthetic", show_default=True,
    help="Records to try on: synthetic, a source, a data file, or a configuration whose [data] is meant.",
)  # fmt: skip
@click.option("--private-selection", is_flag=True, help="Choose by the records themselves, and count what that costs.")
@click.option("--tuner", metavar="NAME", default="tpe", show_default=True, help="tpe (by optuna), random or grid.")
@click.option("--metric", default="", help="What is to be good at the end. Default: test_error.")
@click.option("--space", "spaces", multiple=True, metavar="KEY=RANGE", help="As in --space problem.rho=0.01:10:log.")
@click.option(
    "--study", type=click.Path(path_type=Path), help="The journal, which a later call goes on with. Default: beside -o."
)
@click.option("-o", "--output", type=OutputPath(), help="The configuration to write. Default: NAME-tuned.toml.")
@click.option("--plot", type=click.Path(path_type=Path), help="A figure of what matters: png, svg or pdf.")
@click.option("--force", is_flag=True, help="Replace a configuration that exists.")
@click.option("--serial", is_flag=True, help="One process, whatever the launcher says.")
@extension_option
@debug_option
def tune(
    config: Path | None,
    *,
    overrides: tuple[str, ...],
    only: str | None,
    extensions: tuple[str, ...],
    output: Path | None,
    study: Path | None,
    plot: Path | None,
    force: bool,
    serial: bool,
    trials: int,
    tuner: str,
    private_selection: bool,
    **wish: Any,
) -> int:
    """Find the best settings of CONFIG for a privacy budget; every trial is calibrated to the budget by a proven account.

    Trials run on synthetic records of the same sizes, which costs no privacy. Killed, the same command goes on with the study.
    Under mpiexec the trials are dealt to the ranks, and the study is the same.

    \b
    dpadmm tune my.toml --budget-epsilon 1 --delta 1e-5 -o best.toml && dpadmm run best.toml
    dpadmm tune my.toml --method mr-admm --method ps-admm --trials 100 --plot what-matters.png
    dpadmm tune my.toml --on a9a --space iterations=1:4 --space problem.rho=0.1:10:log
    mpiexec -n 4 dpadmm tune my.toml --trials 200
    dpadmm tune my.toml --budget-epsilon 1 --private-selection --trials 10
    """
    from dpadmm_mpi.parallel.collective import guard
    from dpadmm_mpi.parallel.mpi import connect
    from dpadmm_mpi.tuning.report import draw, notes, refuse_other, table, toml
    from dpadmm_mpi.tuning.task import RECORDS, Request

    request = Request(config or quickstart(), overrides, only, extensions)
    wanted = _wish(wish, RECORDS if private_selection else wish["on"])
    transport = connect(serial)
    with guard(transport, lambda error: speak(error, f"dpadmm: rank {transport.rank}")):
        task = _settled(transport, request, wanted)
        output = in_folder(output, Path(f"{_slug(task.base.name)}-tuned.toml"))
        study = study or output.with_suffix(".study.jsonl")
        if transport.rank == 0:
            refuse_other(output, force)
        found, task, price = _searched(transport, task, (tuner, trials, study), private_selection)
        if transport.rank == 0:
            output.write_text(toml(found, task, price), encoding="utf-8")
            for note in notes(found, task):
                click.echo(f"dpadmm: note: {note}", err=True)
            say(table(found, task.metric, most=1 if private_selection else 5))
            if price is not None:
                say(
                    f"each try costs epsilon {price.each:.4g}; the best of {price.tries_words}: {price.total:.4g} at delta = "
                    f"{task.budget.delta:g}; publish nothing of {study} but this"
                )
            if plot is not None:
                draw(found, task, found.best().method, plot)
                say(f"written: {plot}")
            say(f"written: {output}")
    return 0


def _wish(given: dict[str, Any], on: str) -> "Wish":
    from dpadmm_mpi.tuning.task import Wish

    spaces = {}
    for text in given.pop("spaces"):
        key, equals, value = text.partition("=")
        if not equals or not key.strip() or not value.strip():
            raise InputError(f"--space {text}: write --space KEY=LOW:HIGH, KEY=LOW:HIGH:log or KEY=VALUE,VALUE")
        spaces[key.strip()] = value.strip()
    return Wish(**{**given, "on": on}, space=spaces)


def _settled(transport: "Transport", request: "Request", wish: "Wish") -> "Task":
    """On rank 0 first, which prepares the records; then on all."""
    from dpadmm_mpi.parallel.collective import agree, on_root
    from dpadmm_mpi.tuning.task import make_task

    on_root(transport, lambda: make_task(request, wish) and None)
    return agree(transport, lambda: make_task(request, wish))


def _searched(
    transport: "Transport", task: "Task", wanted: tuple[str, int, Path], private: bool
) -> "tuple[Study, Task, Price | None]":
    from dpadmm_mpi.parallel.collective import agree, on_root
    from dpadmm_mpi.tuning.private_selection import select
    from dpadmm_mpi.tuning.search import Unwatched, search
    from dpadmm_mpi.tuning.tuners import tuners

    name, trials, study = wanted
    progress = Progress(task.metric, task.lower_is_better) if transport.rank == 0 else Unwatched()
    if private:
        return on_root(transport, lambda: select(task, trials, study, study.with_suffix(".nodes.csv"), progress))
    tuner = tuners[name]()
    agree(transport, tuner.check_installed)
    return search(task, tuner, trials, transport, study, watcher=progress), task, None


def _slug(name: str) -> str:
    from dpadmm_mpi.config.files import slug

    return slug(name)


@click.command()
@config_argument
@set_option
@only_option
@epsilon_option
@delta_option
@extension_option
@debug_option
def advise(
    config: Path | None,
    *,
    overrides: tuple[str, ...],
    only: str | None,
    epsilon: float | None,
    delta: float | None,
    extensions: tuple[str, ...],
) -> int:
    """Say which settings of CONFIG waste its privacy budget, and what a change would gain; no record is read for it.

    A handful of changes, each at the same budget, is tried on small synthetic records, in seconds.

    \b
    dpadmm advise my.toml
    dpadmm advise my.toml --budget-epsilon 1 --delta 1e-5
    """
    from dpadmm_mpi.tuning.advice import advise as examine
    from dpadmm_mpi.tuning.task import Request

    say(examine(Request(config or quickstart(), overrides, only, extensions), epsilon, delta).words)
    return 0
