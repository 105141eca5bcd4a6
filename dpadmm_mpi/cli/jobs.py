"""`dpadmm submit`, `dpadmm status` and `dpadmm watch`: long jobs, from the batch script to the last iteration."""

import re
import sys
import time
from collections import Counter
from pathlib import Path

import click

from dpadmm_mpi.cli.options import config_argument, debug_option, extension_option, quickstart, say, set_option
from dpadmm_mpi.cli.schedulers import SCHEDULERS, BatchJob, hand_in, script
from dpadmm_mpi.errors import InputError
from dpadmm_mpi.showing import brief

REFRESH = 2.0  # seconds between two looks
STATES = ("done", "running", "stopped", "failed", "infeasible", "missing", "changed", "unreadable")

output_option = click.option("-o", "--output", type=click.Path(path_type=Path), help="As given to `dpadmm run`.")


def _seconds(_context: click.Context, _option: click.Parameter, value: str) -> int:
    if not (match := re.fullmatch(r"(\d+):([0-5]\d):([0-5]\d)", value)):
        raise InputError(f"--time {value}: write hours, minutes and seconds, as in 12:00:00")
    hours, minutes, seconds = map(int, match.groups())
    return 3600 * hours + 60 * minutes + seconds


def _queue(_context: click.Context, _option: click.Parameter, value: str | None) -> str | None:
    if value is not None and not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.,@:-]*", value):
        raise InputError(f'--queue "{value}": not the name of a queue or partition')
    return value


@click.command()
@config_argument
@click.option("--scheduler", required=True, type=click.Choice(tuple(SCHEDULERS)), help="Whose script to write.")
@click.option("--ranks", type=click.IntRange(min=1), help="At most so many. Default: one for each node of the network.")
@click.option("--time", "seconds", default="1:00:00", callback=_seconds, metavar="H:MM:SS", help="Limit. Default: 1:00:00.")
@click.option("--partition", "--queue", "queue", callback=_queue, help="Where to run. Default: the scheduler's own choice.")
@output_option
@set_option
@click.option("--now", is_flag=True, help="Submit the script instead of printing it.")
@extension_option
@debug_option
def submit(
    config: Path | None,
    *,
    scheduler: str,
    ranks: int | None,
    seconds: int,
    queue: str | None,
    output: Path | None,
    overrides: tuple[str, ...],
    now: bool,
    extensions: tuple[str, ...],
) -> int:
    """Print a batch script that runs CONFIG, each variant as a job of an array, and goes on after every time limit.

    \b
    dpadmm submit my.toml --scheduler slurm --time 4:00:00 > job.sbatch
    dpadmm submit my.toml --scheduler slurm --ranks 20 --now
    """
    from dpadmm_mpi.cli.run import targets
    from dpadmm_mpi.networks.graphs import build
    from dpadmm_mpi.storage.experiments import load

    experiment = load(config or quickstart(), overrides, extensions=extensions)
    targets(experiment, output)  # refuses one file for all
    nodes = min(build(job.network.graph, job.seed).nodes for job in experiment.configs)
    arguments = [] if config is None else [f"./{config}" if str(config).startswith("-") else str(config)]
    if output is not None:
        arguments += ["-o", str(output)]
    for override in overrides:
        arguments += ["--set", override]
    for extension in extensions:
        arguments += ["--extension", extension]
    job = BatchJob(
        name=experiment.name,
        arguments=tuple(arguments),
        ranks=min(nodes, ranks or nodes),
        seconds=seconds,
        tasks=len(experiment.configs),
        queue=queue,
        # An environment of its own comes first; the system's folder is left where the site has put it.
        programs=Path(sys.executable).parent if sys.prefix != sys.base_prefix else None,
    )
    text = script(scheduler, job)
    say(hand_in(scheduler, text) if now else text, end="\n" if now else "")
    return 0


@click.command()
@config_argument
@output_option
@set_option
@extension_option
@debug_option
def status(config: Path | None, output: Path | None, overrides: tuple[str, ...], extensions: tuple[str, ...]) -> int:
    """How far each configuration of CONFIG is: done, running, stopped, failed, infeasible, missing.

    It looks at the files only. "running": a process of this host is writing, or, on another host, the files have changed
    within the last minute, or three rows' worth of time; "stopped": nothing of that, and not complete; "failed": it ended
    with an error, which `dpadmm watch FILE` shows; "infeasible": it cannot run, and why is said below; "changed": it comes from
    another configuration than CONFIG has now.

    \b
    dpadmm status my.toml
    """
    from dpadmm_mpi.cli.run import place_of, targets
    from dpadmm_mpi.config.files import dotted
    from dpadmm_mpi.methods.base import as_table, fingerprint
    from dpadmm_mpi.reports.live import duration, look
    from dpadmm_mpi.reports.result_tables import wrapped
    from dpadmm_mpi.reports.tables import aligned
    from dpadmm_mpi.storage.experiments import load
    from dpadmm_mpi.storage.infeasible import find_note
    from dpadmm_mpi.storage.probe import probe

    experiment = load(config or quickstart(), overrides, extensions=extensions, tolerant=True)
    rows, states = [], []
    reasons = {refused.name: refused.reason for refused in experiment.refused}
    for job, path in targets(experiment, output):
        state, run, iteration, left = "missing", "-", "-", "-"
        if path.exists():
            try:
                probe([path])
                seen = look(path)
                state = seen.state if seen.fingerprint == fingerprint(job) else "changed"
                run = f"{seen.which} of {seen.runs}"
                iteration = f"{max(seen.iteration, 0)} of {seen.iterations}"
                left = duration(seen.left) if state == "running" else "-"
            except InputError:
                state = "unreadable"
        elif (found := find_note(path)) is not None and found.settings == dotted(as_table(job)):
            state, reasons[job.name] = "infeasible", found.reason
        states.append(state)
        rows.append([brief(job.name), state, run, iteration, left, str(path)])
    for refused in experiment.refused:
        states.insert(refused.number, "infeasible")
        path = place_of(experiment, output, refused.name)
        rows.insert(refused.number, [brief(refused.name), "infeasible", "-", "-", "-", str(path)])
    say(aligned(["name", "status", "run", "iteration", "time left", "file"], rows, left=(0, 1, 5)))
    counts = Counter(states)
    say(", ".join(f"{counts[state]} {state}" for state in STATES if counts[state]))
    for name, reason in reasons.items():
        say("\n".join(wrapped(f"infeasible, {brief(name)}: {reason}")))
    return 0


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--once", is_flag=True, help="Look once, do not wait.")
@debug_option
def watch(file: Path, once: bool) -> int:
    """Follow the run that is writing FILE (or all in a folder), until it has ended. Ctrl-C ends the watching, not the run.

    \b
    dpadmm watch quickstart.h5
    """
    from dpadmm_mpi.reports.live import frame, look
    from dpadmm_mpi.storage.probe import probe

    def see(path: Path) -> tuple[str, bool]:
        """What there is to say of a file, and whether there will be more."""
        try:
            seen = look(path)
        except InputError as error:
            if path == file:
                raise
            return str(error), False
        return frame(seen), seen.state == "running"

    height = 0
    probe([file])
    try:
        while True:
            paths = sorted(file.glob("*.h5")) if file.is_dir() else [file]
            if not paths:
                raise InputError(f"{file}: a folder without result files")
            texts, running = zip(*map(see, paths), strict=True)
            text = "\n".join(texts)
            back = f"\033[{height}F\033[J" if height and sys.stdout.isatty() else ""
            print(back, end="")
            say(text)
            height = text.count("\n") + 1
            if once or not any(running):
                return 0
            time.sleep(REFRESH)
    except KeyboardInterrupt:
        return 0
