"""`dpadmm run`: one configuration or many, on all ranks or on groups of them, from the beginning or from a checkpoint."""

import re
import shlex
import sys
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from dpadmm_mpi.cli.options import (
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
from dpadmm_mpi.errors import InputError, Stopped

if TYPE_CHECKING:
    from dpadmm_mpi.config.extensions import Extension
    from dpadmm_mpi.config.files import Experiment
    from dpadmm_mpi.engine.loop import Manner
    from dpadmm_mpi.engine.several import Job
    from dpadmm_mpi.methods.base import Config
    from dpadmm_mpi.parallel.transport import Transport
    from dpadmm_mpi.storage.result import Result

BUSY = 0.9  # share of their time that ranks have to do, from which nothing else need be advised
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
@click.option("-o", "--output", type=click.Path(path_type=Path), help="The HDF5 file, or the folder of several variants.")
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
    threads: int,
    extensions: tuple[str, ...],
) -> int:
    """Run CONFIG, a TOML file (or a result file, again); without CONFIG, the quickstart.

    SIGTERM, SIGUSR1 and SIGINT stop it with a checkpoint and exit code 75; `--resume` goes on from there, or from the last
    checkpoint of a killed run, on any number of ranks. A second SIGINT ends it at once. Of several configurations, one that
    fails does not stop the others.

    \b
    dpadmm run configs/quickstart.toml -o demo.h5
    mpiexec -n 5 dpadmm run configs/quickstart.toml --set privacy.alpha=2
    mpiexec -n 5 dpadmm run my.toml --resume --walltime 3:55:00
    """
    from dpadmm_mpi.cli.progress import Progress, log_header
    from dpadmm_mpi.engine.loop import Manner
    from dpadmm_mpi.engine.several import Crew
    from dpadmm_mpi.engine.stopping import Stopper
    from dpadmm_mpi.parallel.collective import guard, on_root
    from dpadmm_mpi.parallel.launcher import launcher_words
    from dpadmm_mpi.parallel.mpi import connect
    from dpadmm_mpi.parallel.serial import Serial
    from dpadmm_mpi.parallel.watch import watching

    if force and resume:
        raise InputError("--force and --resume: one replaces what there is, the other goes on with it; choose one")
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
        jobs = on_root(transport, lambda: _jobs(wanted, manner, look_into))
        if jobs:
            header = log_header(transport, shlex.join(["dpadmm", *sys.argv[1:]]))
            watch.set_patience([job.config.record.patience for job in jobs])
            groups = min(1 if pack is None else pack or transport.size, transport.size, len(jobs))
            if pack is None and transport.rank == 0 and (advice := advice_to_pack(jobs, transport.size)):
                note(advice)
            results, ended = Crew(transport, manner, stopper, lambda: Progress(header)).run_all(
                jobs, groups, spare=pack is not None
            )
            if results and transport.rank == 0:
                _conclude(results)
            if isinstance(ended, Stopped):
                ended.command = f"{launcher_words(transport.size)}{resuming(sys.argv)}"
            if ended is not None:
                raise ended
    return 0


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

        return load(self.source, self.overrides, self.only, self.extensions)

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


def _jobs(wanted: Wanted, manner: "Manner", look_into: Callable[[list[Path]], None]) -> "list[Job]":
    """What is left to do; what cannot be done is found before any work is."""
    from dpadmm_mpi.files import exists, uninterrupted
    from dpadmm_mpi.methods.base import make_plan
    from dpadmm_mpi.storage.atomic_file import refuse_existing
    from dpadmm_mpi.storage.resume import is_finished

    jobs = targets(wanted.experiment(), wanted.output, wanted.number)
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
    if len(jobs) > 1:  # a variant that cannot work is found before the first one runs
        for config, _ in jobs:
            try:
                make_plan(config)
            except InputError as error:
                raise InputError(f'variant "{config.name}": {error}') from None
    return jobs


def targets(experiment: "Experiment[Config]", output: Path | None, index: int | None = None) -> "list[Job]":
    """The configurations, or one of them by its number, each with the file that it writes."""
    from dpadmm_mpi.config.files import slug
    from dpadmm_mpi.engine.several import Job
    from dpadmm_mpi.files import is_folder

    configs = experiment.configs
    one_file = output is not None and output.suffix in (".h5", ".hdf5")
    if one_file and len(configs) > 1:
        raise InputError(f"-o {output}: there are {len(configs)} configurations; name a folder, or choose one with --only")
    if index is not None:
        if index >= len(configs):
            raise InputError(f"--index {index}: there are {len(configs)} configurations, numbered from 0 to {len(configs) - 1}")
        configs = [configs[index]]
    if experiment.collection and not one_file:
        folder = output or Path(slug(experiment.name))
        return [Job(config, folder / f"{slug(config.name)}.h5") for config in configs]
    if output is None or is_folder(output):
        return [Job(configs[0], (output or Path()) / f"{slug(configs[0].name)}.h5")]
    return [Job(configs[0], output)]


def advice_to_pack(jobs: "list[Job]", ranks: int) -> str | None:
    """Where ranks with fewer nodes would wait for those with more, and there are enough variants to keep all busy."""
    nodes = max(job.config.network.graph.size for job in jobs)
    most = -(-nodes // ranks)
    if not 1 < ranks <= min(len(jobs), nodes) or nodes > BUSY * ranks * most:
        return None
    return f"some of the {ranks} ranks have {most} of {nodes} nodes, others fewer; with --pack, {ranks} variants go at a time"


def _conclude(results: list["Result"]) -> None:
    from dpadmm_mpi.reports.tables import results_table

    say(results_table(results))
    for result in results:
        say(f"written: {result.source}")
