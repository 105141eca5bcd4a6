"""`dpadmm check`: what a configuration means, before it runs."""

from pathlib import Path

import click

from dpadmm_mpi.cli.options import config_argument, debug_option, extension_option, only_option, quickstart, say, set_option
from dpadmm_mpi.errors import InputError
from dpadmm_mpi.showing import brief

MANY_STEPS = 8  # data steps, from which on a budget may be spread too thinly


@click.command()
@config_argument
@set_option
@only_option
@click.option("--ranks", type=click.IntRange(min=1), default=1, help="Show the layout on so many ranks.")
@click.option("--reference-norm", type=float, default=1.0, help="||f_ref|| of the sample sizes. Default: 1.")
@click.option("--tau", type=float, default=0.1, help="Excess loss of the sample sizes. Default: 0.1.")
@click.option("--beta", type=float, default=0.05, help="Failure probability of the sample sizes. Default: 0.05.")
@click.option("--gap", type=float, default=0.0, help="Loss of an iteration above its limit, for the sample sizes. Default: 0.")
@extension_option
@debug_option
def check(
    config: Path | None,
    *,
    overrides: tuple[str, ...],
    only: str | None,
    ranks: int,
    reference_norm: float,
    tau: float,
    beta: float,
    gap: float,
    extensions: tuple[str, ...],
) -> int:
    """Validate CONFIG and say what it means: network, layout, cost, privacy of every node, conditions of the theorems.

    \b
    dpadmm check configs/quickstart.toml --ranks 5
    """
    from dpadmm_mpi.data.dataset import statistics_of
    from dpadmm_mpi.engine.cost import cost, in_words, look_at
    from dpadmm_mpi.engine.machine import measure
    from dpadmm_mpi.methods.base import Assumptions, make_plan
    from dpadmm_mpi.parallel.launcher import instead_of_sharing, usable_cores
    from dpadmm_mpi.parallel.owners import assign_owners
    from dpadmm_mpi.reports.tables import plan_report
    from dpadmm_mpi.storage.experiments import load

    cores = len(usable_cores())
    experiment = load(config or quickstart(), overrides, only, extensions, tolerant=True)
    infeasible = [(refused.name, refused.reason) for refused in experiment.refused]
    for number, job in enumerate(experiment.configs):
        if number:
            say()
        try:
            plan, dataset = make_plan(job)
        except InputError as error:
            if not experiment.collection:
                raise
            infeasible.append((job.name, str(error)))
            say(f"{brief(job.name)}: cannot run: {error}")
            continue
        owner, one_per_core = (
            assign_owners(plan.sizes, n, plan.topology.has_hub, plan.is_central) for n in (ranks, min(ranks, cores))
        )
        records = look_at(dataset)
        predicted = cost(plan, owner, records, measure)
        conditions = plan.conditions(Assumptions(reference_norm, tau, beta, dataset, gap))
        say(plan_report(plan, owner, conditions, in_words(plan, owner, predicted), statistics_of(dataset)))
        if ranks > cores:
            factor = predicted.seconds / cost(plan, one_per_core, records, measure).seconds
            say(f"advice     {instead_of_sharing(ranks, cores, factor)}")
        steps = job.method.data_steps_in(plan.iterations)
        if job.is_noisy and steps > MANY_STEPS:
            say(f"advice     {steps} data steps share one budget, and fewer are often better: dpadmm advise tries it")
    if infeasible:
        name, reason = infeasible[0]
        more = f"; {len(infeasible) - 1} more cannot run" if len(infeasible) > 1 else ""
        raise InputError(f'variant "{name}": {reason}{more}')
    return 0
