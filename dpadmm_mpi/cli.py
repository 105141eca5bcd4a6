"""The commands. Thin: each imports what it needs when it runs."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from dpadmm_mpi.datacommands import data
from dpadmm_mpi.errors import DpadmmError, InputError
from dpadmm_mpi.launch import announced_rank
from dpadmm_mpi.options import config_argument, debug_option, only_option, result_files, set_option, speak
from dpadmm_mpi.privacycommands import attack, audit

if TYPE_CHECKING:
    from dpadmm_mpi.config import Config
    from dpadmm_mpi.configfile import Experiment
    from dpadmm_mpi.results import Result

INTERRUPTED = 130


def entry() -> NoReturn:
    """Run the command line; every error is one sentence on standard error and an exit code."""
    if announced_rank() != 0 and (sys.argv[1:2] != ["run"] or "--serial" in sys.argv):
        sys.exit(0)  # only `run` is for several processes; one of them does everything else
    try:
        code = cli.main(prog_name="dpadmm", standalone_mode=False) or 0
    except (click.exceptions.Abort, KeyboardInterrupt):
        speak(KeyboardInterrupt())
        code = INTERRUPTED
    except click.ClickException as error:
        if announced_rank() == 0:
            error.show()
        code = 2
    except DpadmmError as error:
        if announced_rank() == 0:
            speak(error)
        code = error.exit_code
    except BrokenPipeError:
        sys.stderr.close()  # the reader of our output has left; nothing to say
        code = 1
    except Exception as error:
        speak(error)
        code = 1
    sys.exit(code)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="dpadmm-mpi", prog_name="dpadmm")
def cli() -> None:
    """Simulate differentially private, decentralised ADMM machine learning.

    \b
    dpadmm run                           the quickstart, in one process
    mpiexec -n 5 dpadmm run              the same, a process per node
    dpadmm run my.toml --set runs=10     your own configuration
    dpadmm plot quickstart.h5            a picture of what came out
    """


@cli.command()
@config_argument
@click.option("-o", "--output", type=click.Path(path_type=Path), help="The HDF5 file, or the folder of several variants.")
@set_option
@only_option
@click.option("--force", is_flag=True, help="Replace results that exist.")
@click.option("--serial", is_flag=True, help="One process without MPI, whatever the launcher says.")
@click.option("--threads", type=click.IntRange(min=1), default=1, help="BLAS threads per rank. Default: 1.")
@debug_option
def run(
    config: Path | None,
    output: Path | None,
    overrides: tuple[str, ...],
    only: str | None,
    force: bool,
    serial: bool,
    threads: int,
) -> int:
    """Run CONFIG, a TOML file (or a result file, again); without CONFIG, the quickstart.

    \b
    dpadmm run configs/quickstart.toml -o demo.h5
    mpiexec -n 5 dpadmm run configs/quickstart.toml --set privacy.alpha=2
    """
    from dpadmm_mpi.engine import execute
    from dpadmm_mpi.transport import connect, guard, on_root

    transport = connect(serial)
    with guard(transport, lambda error: speak(error, f"dpadmm: rank {transport.rank}")):
        jobs = on_root(transport, lambda: _jobs(config or _quickstart(), output, overrides, only, force))
        results: list[Result] = []
        for job, path in jobs:
            result = execute(job, transport, path, _observer(transport.rank), force, threads, brief=True)
            if result is not None:
                results.append(result)
        if results:
            _conclude(results)
    return 0


def _observer(rank: int) -> Any:
    from dpadmm_mpi.engine import Silent
    from dpadmm_mpi.progress import Progress

    return Progress() if rank == 0 else Silent()


def _quickstart() -> Path:
    """The packaged experiment; in a source tree, the one beside the package."""
    here = Path(__file__).parent
    for folder in (here / "configs", here.parent / "configs"):
        if (path := folder / "quickstart.toml").exists():
            return path
    raise InputError("the quickstart configuration is missing from this installation; install dpadmm-mpi again")


def _jobs(
    source: Path, output: Path | None, overrides: tuple[str, ...], only: str | None, force: bool
) -> list[tuple["Config", Path]]:
    """Each configuration with the file that it is going to write; an existing one is found before any work is done."""
    from dpadmm_mpi.configfile import load
    from dpadmm_mpi.plan import make_plan
    from dpadmm_mpi.recorder import refuse_existing

    experiment = load(source, overrides, only)
    jobs = _targets(experiment, output)
    for _, path in jobs:
        refuse_existing(path, force)
        if path.exists() and path.samefile(source):
            raise InputError(f"-o {path}: this is the configuration itself; choose another place")
    if len(jobs) > 1:  # a variant that cannot work is found before the first one runs
        for config, _ in jobs:
            try:
                make_plan(config)
            except InputError as error:
                raise InputError(f'variant "{config.name}": {error}') from None
    return jobs


def _targets(experiment: "Experiment", output: Path | None) -> list[tuple["Config", Path]]:
    from dpadmm_mpi.configfile import slug

    one_file = output is not None and output.suffix in (".h5", ".hdf5")
    if one_file and len(experiment.configs) > 1:
        raise InputError(
            f"-o {output}: there are {len(experiment.configs)} configurations; name a folder, or choose one with --only"
        )
    if experiment.collection and not one_file:
        folder = output or Path(slug(experiment.name))
        return [(config, folder / f"{slug(config.name)}.h5") for config in experiment.configs]
    config = experiment.configs[0]
    if output is None or output.is_dir():
        return [(config, (output or Path()) / f"{slug(config.name)}.h5")]
    return [(config, output)]


def _conclude(results: list["Result"]) -> None:
    from dpadmm_mpi.tables import results_table

    print(results_table(results))
    for result in results:
        print(f"written: {result.source}")


@cli.command()
@config_argument
@set_option
@only_option
@click.option("--ranks", type=click.IntRange(min=1), default=1, help="Show the layout on so many ranks.")
@click.option("--reference-norm", type=float, default=1.0, help="||f_ref|| of the sample sizes. Default: 1.")
@click.option("--tau", type=float, default=0.1, help="Excess loss of the sample sizes. Default: 0.1.")
@click.option("--beta", type=float, default=0.05, help="Failure probability of the sample sizes. Default: 0.05.")
@debug_option
def check(
    config: Path | None,
    overrides: tuple[str, ...],
    only: str | None,
    ranks: int,
    reference_norm: float,
    tau: float,
    beta: float,
) -> int:
    """Validate CONFIG and say what it means: network, layout, privacy of every node, conditions of the theorems.

    \b
    dpadmm check configs/quickstart.toml --ranks 5
    """
    from dpadmm_mpi.conditions import conditions
    from dpadmm_mpi.configfile import load
    from dpadmm_mpi.plan import make_plan
    from dpadmm_mpi.tables import plan_report
    from dpadmm_mpi.transport import assign_owners

    for number, job in enumerate(load(config or _quickstart(), overrides, only).configs):
        plan, _ = make_plan(job)
        if number:
            print()
        print(plan_report(plan, assign_owners(plan.sizes, ranks), conditions(plan, reference_norm, tau, beta)))
    return 0


@cli.command()
@result_files
@debug_option
def show(files: tuple[Path, ...]) -> int:
    """A table of the last recorded values in FILE... (or folders of them): loss, test error, privacy.

    Over several runs the mean is given, with half the range (the largest less the smallest) behind the sign ±.

    \b
    dpadmm show results/*.h5
    """
    from dpadmm_mpi.results import load_all
    from dpadmm_mpi.tables import results_table

    results = load_all(files)
    print(results_table(results))
    for result in results:
        for note in filter(None, str(result.attributes["/"].get("notes", "")).split("\n")):
            print(f"note, {result.name}: {note}")
    return 0


@cli.command()
@result_files
@click.option("-o", "--output", type=click.Path(path_type=Path), help="PNG, SVG or PDF. Default: FILE with .png.")
@debug_option
def plot(files: tuple[Path, ...], output: Path | None) -> int:
    """Draw loss, test error and privacy over the iterations; several files are compared.

    \b
    dpadmm plot quickstart.h5
    dpadmm plot fig5/*.h5 -o fig5.svg
    """
    from dpadmm_mpi.plots import comparison
    from dpadmm_mpi.results import load_all

    target = output or files[0].with_suffix(".png")
    comparison(load_all(files), target)
    print(f"written: {target}")
    return 0


@cli.command()
@click.argument("a", type=click.Path(path_type=Path))
@click.argument("b", type=click.Path(path_type=Path))
@debug_option
def diff(a: Path, b: Path) -> int:
    """Compare two result files to the bit, all but /timing and the date: exit code 0 and "identical", or 1.

    \b
    dpadmm diff serial.h5 ranks.h5
    """
    from dpadmm_mpi.results import compare

    differences = list(compare(a, b))
    if not differences:
        print("identical")
        return 0
    for line in differences[:10]:
        print(line)
    if len(differences) > 10:
        print(f"... and {len(differences) - 10} more objects")
    return 1


for command in (data, audit, attack):
    cli.add_command(command)
