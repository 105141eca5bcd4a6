"""The commands. Thin: each imports what it needs when it runs."""

import sys
from pathlib import Path
from typing import NoReturn

import click

from dpadmm_mpi.cli.data import data
from dpadmm_mpi.cli.jobs import status, submit, watch
from dpadmm_mpi.cli.options import config_argument, debug_option, only_option, quickstart, set_option, speak
from dpadmm_mpi.cli.privacy import attack, audit
from dpadmm_mpi.cli.reproduce import reproduce
from dpadmm_mpi.cli.results import diff, plot, report, show
from dpadmm_mpi.cli.run import run
from dpadmm_mpi.errors import DpadmmError
from dpadmm_mpi.parallel.launcher import announced_rank

INTERRUPTED = 130


def entry() -> NoReturn:
    """Run the command line; every error is one sentence on standard error and an exit code."""
    if announced_rank() != 0 and (sys.argv[1:2] != ["run"] or "--serial" in sys.argv):
        sys.exit(0)  # only `run` is for several processes; one of them does everything else
    speaker = announced_rank() == 0
    try:
        code = cli.main(prog_name="dpadmm", standalone_mode=False) or 0
    except (click.exceptions.Abort, KeyboardInterrupt):
        speak(KeyboardInterrupt())
        code = INTERRUPTED
    except click.ClickException as error:
        if speaker:
            error.show()
        code = error.exit_code if speaker else 0  # a launcher that sees a code would end rank 0 before it has spoken
    except DpadmmError as error:
        if speaker:
            speak(error)
        code = error.exit_code if speaker else 0
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
    dpadmm report quickstart.h5          all of it on one page
    """


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
    """Validate CONFIG and say what it means: network, layout, cost, privacy of every node, conditions of the theorems.

    \b
    dpadmm check configs/quickstart.toml --ranks 5
    """
    from dpadmm_mpi.config.files import load
    from dpadmm_mpi.engine.cost import cost, in_words, look_at
    from dpadmm_mpi.engine.machine import measure
    from dpadmm_mpi.methods.base import make_plan
    from dpadmm_mpi.parallel.collective import assign_owners
    from dpadmm_mpi.parallel.launcher import usable_cores
    from dpadmm_mpi.reports.tables import plan_report

    cores = len(usable_cores())
    for number, job in enumerate(load(config or quickstart(), overrides, only).configs):
        plan, dataset = make_plan(job)
        if number:
            print()
        owner, fewer = (assign_owners(plan.sizes, n, plan.graph.has_hub) for n in (ranks, min(ranks, cores)))
        rows = look_at(dataset)
        one_per_core = (cores, cost(plan, fewer, rows, measure)) if ranks > cores else None
        predicted = in_words(plan, owner, cost(plan, owner, rows, measure), one_per_core)
        print(plan_report(plan, owner, plan.conditions(reference_norm, tau, beta), predicted))
    return 0


for command in (run, show, plot, report, diff, data, audit, attack, submit, status, watch, reproduce):
    cli.add_command(command)
