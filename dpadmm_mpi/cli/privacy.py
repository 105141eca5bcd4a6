"""`dpadmm audit` and `dpadmm attack`: trying to prove the accounts wrong, and showing what the noise is for."""

from pathlib import Path

import click

from dpadmm_mpi.cli.options import OutputPath, debug_option, extension_option, in_folder, result_files, say, set_option
from dpadmm_mpi.errors import InputError

output_option = click.option("-o", "--output", type=OutputPath(), help="A picture too: PNG, SVG or PDF.")


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--candidates", type=click.IntRange(min=1), default=20, help="Records to replace at each node. Default: 20.")
@click.option(
    "--adversaries",
    type=click.IntRange(min=0),
    default=2,
    help="Of these, the records whose worst replacement is searched for, in methods on a network. Default: 2.",
)
@click.option("--node", type=int, help="One node only.")
@click.option("--record", type=int, help="One record of that node only.")
@click.option("--one-run", is_flag=True, help="FILE is a configuration: run it once with canaries; see below.")
@click.option("--canaries", type=click.IntRange(min=1), help="Of --one-run. Default: as many as there are features.")
@click.option("--confidence", type=click.FloatRange(0.5, 1.0, max_open=True), default=0.95, help="Of --one-run. Default: 0.95.")
@set_option
@extension_option
@output_option
@debug_option
def audit(
    file: Path,
    *,
    candidates: int,
    adversaries: int,
    node: int | None,
    record: int | None,
    one_run: bool,
    canaries: int | None,
    confidence: float,
    overrides: tuple[str, ...],
    extensions: tuple[str, ...],
    output: Path | None,
) -> int:
    """The exact privacy loss of a recorded run against neighbouring data sets, beside every account.

    Exit code 1 if it is too large.

    FILE needs record.trajectory = true. Each candidate record is replaced by its worst corner cases: the opposite label, the
    antipodal direction; for some the worst record is searched for. Every data step, the totals, the noise itself and the
    recycled steps are examined; of PS-ADMM every inner step, which is computed again.

    With --one-run FILE is a configuration. It is run once, with canaries among its records, and they are guessed from the final
    models alone: a lower bound on epsilon, which is far weaker.

    \b
    dpadmm run my.toml --set record.trajectory=true --set runs=50 -o my.h5
    dpadmm audit my.h5 -o audit.png
    dpadmm audit my.toml --one-run
    """
    if one_run:
        return _one_run(file, canaries, confidence, overrides, extensions)
    if overrides or extensions or canaries is not None:
        raise InputError("--set, --extension, --canaries: have a meaning with --one-run only, where FILE is a configuration")
    return _exact(file, output, candidates, node, record, adversaries)


def _one_run(
    file: Path, canaries: int | None, confidence: float, overrides: tuple[str, ...], extensions: tuple[str, ...]
) -> int:
    from dpadmm_mpi.audit.one_run import audit_one_run
    from dpadmm_mpi.reports.columns import number
    from dpadmm_mpi.reports.tables import aligned

    report = audit_one_run(file, canaries, confidence, overrides=overrides, extensions=extensions)
    rows = [
        [
            v.account.name,
            number(v.account.delta or 0.0),
            number(v.epsilon),
            number(v.shown),
            f"{v.guesses.right} of {v.guesses.guessed}",
        ]
        for v in report.verdicts
    ]
    say(aligned(["account", "delta", "its epsilon", "lower bound", "right guesses"], rows))
    say(f"{report.everything.canaries} canaries, {report.everything.right} guessed rightly; confidence {confidence:g}")
    return _conclusion(report.findings)


def _conclusion(findings: list[str]) -> int:
    for finding in findings:
        say(f"finding: {finding}")
    say("the accounts do not hold" if findings else "nothing found against the accounts")
    return 1 if findings else 0


def _exact(file: Path, output: Path | None, candidates: int, node: int | None, record: int | None, adversaries: int) -> int:
    from dpadmm_mpi.audit.exact import audit as examine
    from dpadmm_mpi.reports.columns import number
    from dpadmm_mpi.reports.tables import aligned
    from dpadmm_mpi.storage.probe import probe
    from dpadmm_mpi.storage.result import account_column, accounts

    probe([file])
    report = examine(file, candidates, node, record, adversaries)
    names = {name: account_column(report.result, name) for name, _ in accounts(report.result)}
    rows = []
    for k, i in enumerate(report.nodes):
        totals = {name: report.result[f"privacy/node_{name}"][-1, i] for name in names}
        typical = report.losses[k, :, -1].max(axis=1).mean()
        allowed = totals[report.against]
        share = f"{report.worst[k] / allowed:.0%}" if allowed > 0.0 else "-"
        rows.append([str(i), *map(number, (report.worst[k], typical, *totals.values())), share])
    say(aligned(["node", "worst loss", "mean over runs", *names.values(), f"worst / {names[report.against]}"], rows))
    runs, pairs = report.losses.shape[1], report.losses.shape[3]
    say(f"{runs} runs, {pairs} neighbouring data sets per node")
    if output is not None:
        output = in_folder(output, Path(f"{file.stem}-audit.png"))
        from dpadmm_mpi.plots import audit_figure

        audit_figure(report, output)
        say(f"written: {output}")
    return _conclusion(report.findings)


@click.command()
@result_files
@click.option("--node", type=int, default=0, help="The node attacked. Default: 0.")
@click.option("--record", type=int, default=0, help="Its record that the attacker does not know. Default: 0.")
@click.option("--unknown-eta", is_flag=True, help="The attacker knows neither penalties nor dual steps.")
@output_option
@debug_option
def attack(files: tuple[Path, ...], node: int, record: int, unknown_eta: bool, output: Path | None) -> int:
    """Rebuild a record of a node from what was released, as one who knows all its other records could ([M] 6.2, [S] 2.4).

    FILE... need record.trajectory = true. Without noise and with exact solves it succeeds to machine precision; the picture
    shows what noise does. Of stochastic methods the average of the inner steps is all that is seen. With --unknown-eta it
    succeeds too: a secret penalty does not protect the record, and the picture shows both.

    \b
    dpadmm attack plain.h5 private.h5 -o attack.png
    dpadmm attack plain.h5 private.h5 --unknown-eta -o secret-penalties.png
    """
    from dpadmm_mpi.audit.attack import attack as rebuild
    from dpadmm_mpi.audit.unknown_penalty import attack_without_penalties
    from dpadmm_mpi.reports.columns import mean_and, number
    from dpadmm_mpi.reports.tables import aligned
    from dpadmm_mpi.storage.probe import probe

    probe(files)
    known = [rebuild(path, node, record) for path in files]
    attacks = [attack_without_penalties(path, node, record) for path in files] if unknown_eta else known
    rows = [
        [a.name, number(a.bound[-1]), mean_and(a.errors[:, -1], "half-range"), f"{a.ranks.mean():.3g} of {a.candidates}"]
        for a in attacks
    ]
    say(aligned(["name", "privacy loss", "error of the record", "mean rank of the true record"], rows))
    if any(len(a.errors) > 1 for a in attacks):
        say("± half the range over the runs")
    if output is not None:
        output = in_folder(output, Path(f"{files[0].stem}-attack.png"))
        from dpadmm_mpi.plots import attack_figure
        from dpadmm_mpi.plots.secrecy import secrecy_figure

        if unknown_eta:
            secrecy_figure(known, attacks, output)
        else:
            attack_figure(attacks, output)
        say(f"written: {output}")
    return 0
