"""`dpadmm submit`, `dpadmm status` and `dpadmm watch`: long jobs, from the batch script to the last iteration."""

import os
import re
import sys
import time
from collections import Counter
from collections.abc import Callable
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dpadmm_mpi.cli.options import OutputPath, config_argument, debug_option, extension_option, quickstart, say, set_option
from dpadmm_mpi.cli.schedulers import LAUNCHER, SCHEDULERS, BatchJob, hand_in, script
from dpadmm_mpi.errors import InputError
from dpadmm_mpi.showing import brief

if TYPE_CHECKING:
    from dpadmm_mpi.methods.base import Config

REFRESH = 2.0  # seconds between two looks
MEMORY_MARGIN = 2.0  # the estimate is right to a factor of two
MEGABYTES = 100  # to which it is rounded up
STATES = ("done", "running", "stopped", "failed", "infeasible", "missing", "changed", "unreadable")

output_option = click.option("-o", "--output", type=OutputPath(), help="As given to `dpadmm run`.")


def _seconds(_context: click.Context, _option: click.Parameter, value: str) -> int:
    if not (match := re.fullmatch(r"(\d+):([0-5]\d):([0-5]\d)", value)):
        raise InputError(f"--time {value}: write hours, minutes and seconds, as in 12:00:00")
    hours, minutes, seconds = map(int, match.groups())
    return 3600 * hours + 60 * minutes + seconds


def _word(what: str, allowed: str = r"[A-Za-z0-9_][A-Za-z0-9_.,@:/+-]*") -> Callable[..., str | None]:
    """A value that goes into the header as it is."""

    def check(_context: click.Context, option: click.Parameter, value: str | None) -> str | None:
        if value is not None and not re.fullmatch(allowed, value):
            raise InputError(f'{option.opts[-1]} "{value}": not {what}')
        return value

    return check


def _modules(_context: click.Context, _option: click.Parameter, values: tuple[str, ...]) -> tuple[str, ...]:
    for value in values:
        if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.@:/+-]*", value):
            raise InputError(f'--module "{value}": not the name of a module')
    return values


def _lines(_context: click.Context, _option: click.Parameter, values: tuple[str, ...]) -> tuple[str, ...]:
    if any("\n" in value for value in values):
        raise InputError("--line: one line each; give the option again for another")
    return values


def _megabytes(_context: click.Context, _option: click.Parameter, value: str) -> int | str:
    if value in ("estimate", "none"):
        return value
    if not (match := re.fullmatch(r"([1-9]\d*)([MG])", value.upper().removesuffix("B"))):
        raise InputError(f"--memory {value}: write megabytes or gigabytes, as in 800M or 4G, or none, or estimate")
    return int(match[1]) * (1000 if match[2] == "G" else 1)


@click.command()
@config_argument
@click.option("--scheduler", required=True, type=click.Choice(tuple(SCHEDULERS), case_sensitive=False), help="Whose script.")
@click.option("--ranks", type=click.IntRange(min=1), help="At most so many. Default: one for each node of the network.")
@click.option("--time", "seconds", default="1:00:00", callback=_seconds, metavar="H:MM:SS", help="Limit. Default: 1:00:00.")
@click.option(
    "--partition",
    "--queue",
    "queue",
    callback=_word("the name of a queue or partition"),
    metavar="NAME",
    help="Where to run. Default: the scheduler's own choice.",
)
@click.option(
    "--account", callback=_word("the name of an account or project"), metavar="NAME", help="Who pays: account or project."
)
@click.option(
    "--memory",
    default="estimate",
    callback=_megabytes,
    metavar="SIZE",
    help="Of a rank, as in 4G; none: what the site gives. Default: twice what dpadmm check estimates.",
)
@click.option(
    "--module", "modules", multiple=True, callback=_modules, metavar="NAME", help="A module to load; may be repeated."
)
@click.option(
    "--mail",
    callback=_word("an address", r"[A-Za-z0-9_.+-]+@[A-Za-z0-9.-]+"),
    metavar="ADDRESS",
    help="Where to write to when a job ends or fails.",
)
@click.option(
    "--line",
    "lines",
    multiple=True,
    callback=_lines,
    help='A line more, as in "#SBATCH --exclusive" or "ulimit -n 4096"; may be repeated.',
)
@click.option(
    "--launcher",
    default=LAUNCHER,
    metavar="COMMAND",
    help='What starts the ranks, as in "srun --mpi=pmix". Default: "mpiexec -n {ranks}".',
)
@click.option(
    "--pack", "groups", type=click.IntRange(min=1), metavar="G", help="One job for all, G variants at a time; no array."
)
@click.option(
    "--pe",
    "parallel_environment",
    default="mpi",
    callback=_word("the name of a parallel environment"),
    metavar="NAME",
    help="SGE: the parallel environment. Default: mpi.",
)
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
    account: str | None,
    memory: int | str,
    modules: tuple[str, ...],
    mail: str | None,
    lines: tuple[str, ...],
    launcher: str,
    groups: int | None,
    parallel_environment: str,
    output: Path | None,
    overrides: tuple[str, ...],
    now: bool,
    extensions: tuple[str, ...],
) -> int:
    """Print a batch script that runs CONFIG, each variant as a job of an array, and goes on after every time limit.

    DPADMM_DATA is handed on to the job, if it is set here.

    \b
    dpadmm submit my.toml --scheduler slurm --time 4:00:00 > job.sbatch
    dpadmm submit my.toml --scheduler slurm --ranks 20 --account physics --module openmpi/5 --now
    dpadmm submit my.toml --scheduler slurm --launcher "srun --mpi=pmix" --line "#SBATCH --exclusive"
    dpadmm submit sweep.toml --scheduler pbs --pack 4 --ranks 20 --mail me@example.org
    """
    from dpadmm_mpi.cli.run import targets
    from dpadmm_mpi.networks.graphs import build
    from dpadmm_mpi.storage.experiments import load

    experiment = load(config or quickstart(), overrides, extensions=extensions, tolerant=True)
    targets(experiment, output)  # refuses one file for all
    at_a_time = min(groups or 1, len(experiment.configs))
    most = at_a_time * min(build(job.network.graph, job.seed).nodes for job in experiment.configs)
    ranks = min(most, ranks or most)
    arguments = [] if config is None else [f"./{config}" if str(config).startswith("-") else str(config)]
    if output is not None:
        arguments += ["-o", str(output)]
    for override in overrides:
        arguments += ["--set", override]
    for extension in extensions:
        arguments += ["--extension", extension]
    if memory == "estimate":
        memory = estimated_megabytes(experiment.configs, max(1, ranks // at_a_time))
    job = BatchJob(
        name=experiment.name,
        arguments=tuple(arguments),
        ranks=ranks,
        seconds=seconds,
        tasks=len(experiment.configs) + len(experiment.refused),  # the job of one that cannot run says so
        queue=queue,
        # An environment of its own comes first; the system's folder is left where the site has put it.
        programs=Path(sys.executable).parent if sys.prefix != sys.base_prefix else None,
        account=account,
        megabytes=memory if isinstance(memory, int) else None,
        modules=modules,
        mail=mail,
        lines=lines,
        launcher=launcher,
        groups=groups if len(experiment.configs) > 1 else None,
        data=str(Path(folder).absolute()) if (folder := os.environ.get("DPADMM_DATA")) else None,
        parallel_environment=parallel_environment,
    )
    text = script(scheduler, job)
    say(hand_in(scheduler, text) if now else text, end="\n" if now else "")
    return 0


def estimated_megabytes(configs: "list[Config]", ranks: int) -> int:
    """What the largest rank of the largest configuration needs, with a margin.

    Configurations that differ in what costs no memory, such as the noise, are looked at once; one that cannot work is left out,
    unless all are: its job says so when its turn comes.
    """
    from dpadmm_mpi.engine.cost import cost, look_at
    from dpadmm_mpi.engine.machine import measure
    from dpadmm_mpi.methods.base import make_plan
    from dpadmm_mpi.parallel.owners import assign_owners

    alike = {str((c.data, c.network, c.problem, type(c.method), c.record, c.release, c.runs, c.iterations)): c for c in configs}
    needed, refused = 0.0, None
    for config in alike.values():
        try:
            plan, dataset = make_plan(config)
        except InputError as error:
            refused = error
            continue
        owner = assign_owners(plan.sizes, min(ranks, plan.nodes), plan.topology.has_hub, plan.is_central)
        needed = max(needed, cost(plan, owner, look_at(dataset), measure).memory)
    if not needed and refused is not None:
        raise refused
    return ceil(MEMORY_MARGIN * needed / 1e6 / MEGABYTES) * MEGABYTES


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
    from dpadmm_mpi.files import exists
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
        if exists(path):
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
    from dpadmm_mpi.files import is_folder, names_in
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
            paths = names_in(file, "*.h5") if is_folder(file) else [file]
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
