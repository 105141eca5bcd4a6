"""`dpadmm run`: one configuration or many, on all ranks or on groups of them, from the beginning or from a checkpoint."""

import re
import shlex
import sys
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from dpadmm_mpi.cli.options import (
    OutputPath,
    config_argument,
    debug_option,
    extension_option,
    note,
    only_option,
    quickstart,
    say,
    set_option,
    speak,
)
from dpadmm_mpi.errors import DpadmmError, InputError, Stopped

if TYPE_CHECKING:
    from dpadmm_mpi.config.extensions import Extension
    from dpadmm_mpi.config.files import Experiment, Refused
    from dpadmm_mpi.engine.loop import Manner
    from dpadmm_mpi.engine.several import Job
    from dpadmm_mpi.methods.base import Config
    from dpadmm_mpi.parallel.transport import Transport
    from dpadmm_mpi.storage.infeasible import Infeasible
    from dpadmm_mpi.storage.result import Result

BUSY = 0.9  # share of their time that ranks have to do, from which nothing else need be advised
TRACKERS = ("tensorboard",)
AS_MANY_AS_THERE_ARE = 0  # groups of ranks, of --pack without a number


def _walltime(_context: click.Context, _option: click.Parameter, text: str | None) -> float | None:
    """Seconds from HH:MM:SS or MM:SS."""
    if text is None:
        return None
    if not re.fullmatch(r"(\d+:)?\d+:\d\d", text):
        raise click.BadParameter("write it as HH:MM:SS or MM:SS, as in 3:55:00")
    seconds = 0
    for part in text.split(":"):
        seconds = 60 * seconds + int(part)
    return float(seconds)


@click.command()
@config_argument
@click.option("-o", "--output", type=OutputPath(), help="The HDF5 file, or the folder of several variants.")
@set_option
@only_option
@click.option("--index", type=click.IntRange(min=0), help="One variant by its number, from 0: for array jobs.")
@click.option("--resume", is_flag=True, help="Go on from the last checkpoint; leave alone what is finished.")
@click.option("--force", is_flag=True, help="Replace results that exist.")
@click.option("--walltime", callback=_walltime, metavar="HH:MM:SS", help="Stop in time with a checkpoint, exit code 75.")
@click.option(
    "--lost",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Name the host in FILE if one of several is lost, for batch scripts: the exit code is the launcher's.",
)
@click.option(
    "--pack",
    type=click.IntRange(min=0),
    is_flag=False,
    flag_value=AS_MANY_AS_THERE_ARE,
    metavar="[G]",
    help="Run G variants at a time, each on a group of the ranks. Default: as many as ranks.",
)
@click.option("--selftest", is_flag=True, help="Only check that the ranks reach each other and hold the same things.")
@click.option("--serial", is_flag=True, help="One process without MPI, whatever the launcher says.")
@click.option(
    "--track",
    type=click.Choice(TRACKERS, case_sensitive=False),
    help="Write event files for TensorBoard too, into FILE.events beside the result.",
)
@click.option("--threads", type=click.IntRange(min=1), default=1, help="BLAS threads per rank. Default: 1.")
@extension_option
@debug_option
def run(
    config: Path | None,
    *,
    output: Path | None,
    overrides: tuple[str, ...],
    only: str | None,
    index: int | None,
    resume: bool,
    force: bool,
    walltime: float | None,
    lost: Path | None,
    pack: int | None,
    selftest: bool,
    serial: bool,
    track: str | None,
    threads: int,
    extensions: tuple[str, ...],
) -> int:
    """Run CONFIG, a TOML file (or a result file, again); without CONFIG, the quickstart.

    SIGTERM, SIGUSR1 and SIGINT stop it with a checkpoint and exit code 75; `--resume` goes on from there, or from the last
    checkpoint of a killed run, on any number of ranks. A second SIGINT ends it at once.

    Of several configurations, one that fails does not stop the others, and neither does one that cannot run at all: it is said
    at the beginning, is a row of the table at the end, and the exit code is 2.

    \b
    dpadmm run configs/quickstart.toml -o demo.h5
    mpiexec -n 5 dpadmm run configs/quickstart.toml --set privacy.alpha=2
    mpiexec -n 5 dpadmm run my.toml --resume --walltime 3:55:00
    dpadmm run my.toml --track tensorboard
    """
    from dpadmm_mpi.cli.progress import Progress, log_header
    from dpadmm_mpi.cli.tracking import observing, refuse_missing
    from dpadmm_mpi.engine.loop import Manner
    from dpadmm_mpi.engine.several import Crew
    from dpadmm_mpi.engine.stopping import Stopper
    from dpadmm_mpi.parallel.collective import guard, on_root
    from dpadmm_mpi.parallel.mpi import connect
    from dpadmm_mpi.parallel.serial import Serial
    from dpadmm_mpi.parallel.watch import watching

    if force and resume:
        raise InputError("--force and --resume: one replaces what there is, the other goes on with it; choose one")
    refuse_missing(track)
    stopper = Stopper(walltime)
    if not selftest:
        stopper.install()
    transport = connect(serial)
    with (
        watching(transport, f"go on with: {resuming(sys.argv)}", until_the_end=True, lost=lost) as watch,
        guard(transport, lambda error: speak(error, f"dpadmm: rank {transport.rank}")),
    ):
        wanted = Wanted(config or quickstart(), output, overrides, only, index, extensions)
        look_into = partial(_probe, forks=isinstance(transport, Serial))
        on_root(transport, lambda: look_into([wanted.source]))
        load_everywhere(transport, wanted)
        if selftest:
            from dpadmm_mpi.engine.selftest import examine

            examine(transport, wanted.configs, say)
            return 0
        manner = Manner(force, resume, threads)
        jobs, infeasible = on_root(transport, lambda: _jobs(wanted, manner, look_into))
        results: list[Result] = []
        ended: DpadmmError | None = None
        if jobs:
            header = log_header(transport, shlex.join(["dpadmm", *sys.argv[1:]]))
            watch.set_patience([job.config.record.patience for job in jobs])
            groups = min(1 if pack is None else pack or transport.size, transport.size, len(jobs))
            if pack is None and transport.rank == 0 and (advice := advice_to_pack(jobs, transport.size)):
                note(advice)
            observers = partial(observing, lambda: Progress(header), track, resume)
            results, ended = Crew(transport, manner, stopper, observers).run_all(jobs, groups, spare=pack is not None)
        if results and transport.rank == 0:
            _conclude(results, infeasible)
        _raise(ended, infeasible, bool(jobs), transport.size)
    return 0


def _raise(ended: DpadmmError | None, infeasible: "list[Infeasible]", some_ran: bool, ranks: int) -> None:
    """What went wrong, if anything: a failure or a stop first, then what could not run at all."""
    from dpadmm_mpi.parallel.launcher import launcher_words

    if isinstance(ended, Stopped):
        ended.command = f"{launcher_words(ranks)}{resuming(sys.argv)}"
    if ended is None and infeasible:
        ended = _refusal(infeasible, "; the others are done" if some_ran else "")
    if ended is not None:
        raise ended


def _probe(paths: list[Path], forks: bool) -> None:
    """The results among them, before they are read."""
    if results := [path for path in paths if path.suffix in (".h5", ".hdf5")]:
        from dpadmm_mpi.storage.probe import probe

        probe(results, forks)


def resuming(words: list[str]) -> str:
    """The command that goes on with what this one has begun, alone or under a launcher."""
    kept = [
        word
        for before, word in pairwise(words)
        if word not in ("--force", "--resume", "--lost") and before != "--lost" and not word.startswith("--lost=")
    ]
    return shlex.join(["dpadmm", *kept, "--resume"])


class Wanted(NamedTuple):
    """What the command line asks for."""

    source: Path
    output: Path | None
    overrides: tuple[str, ...]
    only: str | None
    number: int | None  # of one variant
    extensions: tuple[str, ...]

    def experiment(self) -> "Experiment[Config]":
        from dpadmm_mpi.storage.experiments import load

        return load(self.source, self.overrides, self.only, self.extensions, tolerant=True)

    def extension_files(self) -> "tuple[Extension, ...]":
        from dpadmm_mpi.storage.experiments import extensions_of

        return extensions_of(self.source, self.extensions)

    def configs(self) -> "list[Config]":
        return self.experiment().configs


def load_everywhere(transport: "Transport", wanted: Wanted) -> None:
    """Every rank imports the extensions, which must be the same files: configurations travel as objects of their classes."""
    from dpadmm_mpi.parallel.collective import agree, on_root

    if loaded := on_root(transport, wanted.extension_files):
        from dpadmm_mpi.config.extensions import load

        agree(transport, lambda: load(loaded))


def _jobs(wanted: Wanted, manner: "Manner", look_into: Callable[[list[Path]], None]) -> "tuple[list[Job], list[Infeasible]]":
    """What is left to do, and what cannot be done, which is found and noted before any work is."""
    from dpadmm_mpi.files import exists, uninterrupted
    from dpadmm_mpi.storage.atomic_file import refuse_existing
    from dpadmm_mpi.storage.infeasible import remove_note, write_note
    from dpadmm_mpi.storage.resume import is_finished

    experiment = wanted.experiment()
    jobs = targets(experiment, wanted.output, wanted.number)
    if manner.resume:
        look_into([job.path for job in jobs])
        finished = [job for job in jobs if is_finished(job.path, job.config)]
        for job in finished:
            say(f"finished before: {job.path}")
        jobs = [job for job in jobs if job not in finished]
    for _, path in jobs:
        if not manner.resume:
            refuse_existing(path, manner.force)
            if exists(path) and uninterrupted(path.samefile, wanted.source):
                raise InputError(f"-o {path}: this is the configuration itself; choose another place")
    infeasible = _infeasible(experiment, jobs, wanted) if experiment.collection else {}
    left = [job for job in jobs if job.path not in infeasible]
    if infeasible and not left and wanted.number is None:
        raise _refusal(list(infeasible.values()))
    noted = [write_note(path, row.table, row.reason) for path, row in infeasible.items()]
    if noted and left:
        note(_refusal(noted, "; the others run"))
    for job in left:
        remove_note(job.path)
    return left, noted


def _infeasible(experiment: "Experiment[Config]", jobs: "list[Job]", wanted: Wanted) -> "dict[Path, Refused]":
    """The variants that cannot run, by the files that they do not write."""
    from dpadmm_mpi.config.files import Refused
    from dpadmm_mpi.methods.base import as_table, make_plan

    refused = [each for each in experiment.refused if wanted.number in (None, each.number)]
    found = {place_of(experiment, wanted.output, each.name): each for each in refused}
    for number, (config, path) in enumerate(jobs):
        try:
            make_plan(config)
        except InputError as error:
            found[path] = Refused(number, config.name, as_table(config), str(error))
    return found


def _refusal(infeasible: "Sequence[Refused | Infeasible]", others: str = "") -> InputError:
    """What to say of variants that cannot run; the exit code is that of bad input."""
    more = f"; and {len(infeasible) - 1} more cannot run" if len(infeasible) > 1 else ""
    error = InputError(f'variant "{infeasible[0].name}": {infeasible[0].reason}{more}{others}')
    error.everywhere = True
    return error


def targets(experiment: "Experiment[Config]", output: Path | None, index: int | None = None) -> "list[Job]":
    """The configurations, or one of them by its number, each with the file that it writes."""
    from dpadmm_mpi.engine.several import Job

    configs, count = experiment.configs, len(experiment.configs) + len(experiment.refused)
    if _is_one_file(output) and count > 1:
        raise InputError(f"-o {output}: there are {count} configurations; name a folder, or choose one with --only")
    if index is not None:
        if index >= count:
            raise InputError(f"--index {index}: there are {count} configurations, numbered from 0 to {count - 1}")
        refused = {each.number for each in experiment.refused}
        numbers = [number for number in range(count) if number not in refused]
        configs = [config for number, config in zip(numbers, configs, strict=True) if number == index]
    return [Job(config, place_of(experiment, output, config.name)) for config in configs]


def place_of(experiment: "Experiment[Config]", output: Path | None, name: str) -> Path:
    """The file of a configuration."""
    from dpadmm_mpi.config.files import slug
    from dpadmm_mpi.files import is_folder

    if experiment.collection and not _is_one_file(output):
        return (output or Path(slug(experiment.name))) / f"{slug(name)}.h5"
    return output if output is not None and not is_folder(output) else (output or Path()) / f"{slug(name)}.h5"


def _is_one_file(output: Path | None) -> bool:
    return output is not None and output.suffix in (".h5", ".hdf5")


def advice_to_pack(jobs: "list[Job]", ranks: int) -> str | None:
    """Where ranks with fewer nodes would wait for those with more, and there are enough variants to keep all busy."""
    nodes = max(job.config.network.graph.size for job in jobs)
    most = -(-nodes // ranks)
    if not 1 < ranks <= min(len(jobs), nodes) or nodes > BUSY * ranks * most:
        return None
    return f"some of the {ranks} ranks have {most} of {nodes} nodes, others fewer; with --pack, {ranks} variants go at a time"


def _conclude(results: "list[Result]", infeasible: "list[Infeasible]") -> None:
    from dpadmm_mpi.reports.result_tables import results_table

    say(results_table([*results, *infeasible]))
    for result in results:
        say(f"written: {result.source}")
