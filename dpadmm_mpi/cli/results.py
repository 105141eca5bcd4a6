"""`dpadmm show`, `plot`, `report` and `diff`: what result files say."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dpadmm_mpi.cli import completion
from dpadmm_mpi.cli.options import OutputPath, debug_option, extension_option, in_folder, load_extensions, result_files, say
from dpadmm_mpi.errors import InputError, advice_on, reason_of
from dpadmm_mpi.files import is_folder, write_text
from dpadmm_mpi.showing import brief, sentence

if TYPE_CHECKING:
    from dpadmm_mpi.storage.result import Result


def _nodes(_context: click.Context, _option: click.Parameter, text: str | None) -> tuple[int, ...]:
    """Node numbers from a list with commas."""
    try:
        return tuple(int(word) for word in text.split(",")) if text else ()
    except ValueError:
        raise click.BadParameter("write it as numbers of nodes with commas between them, as in 0,3") from None


def _limits(_context: click.Context, option: click.Parameter, text: str | None) -> tuple[float | None, float | None] | None:
    """The ends of an axis from two numbers with a comma; an end that is not there is left to the figure."""
    if text is None:
        return None
    try:
        low, high = (float(word) if word.strip() else None for word in text.split(","))
    except ValueError:
        raise InputError(f'{option.name}: found "{text}"; write two numbers with a comma, as in 0,50 or 0,') from None
    return low, high


def _words(_context: click.Context, _option: click.Parameter, text: str | None) -> tuple[str, ...]:
    """Names of columns from a list with commas."""
    return tuple(word.strip() for word in text.split(",") if word.strip()) if text else ()


DIFFERENCES = 25  # objects that `diff` names
UNCERTAINTIES = ("standard-error", "interval", "half-range", "none")


@click.command()
@result_files
@click.option("--columns", callback=_words, metavar="NAMES", help="These columns, as in name,alpha,loss; or all, settings.")
@click.option(
    "--sort", callback=_words, metavar="NAMES", help="By these columns; from the largest on with a minus, as in -loss."
)
@click.option("--pivot", callback=_words, metavar="[ROWS,]KEY", help="A column for each value of KEY, as in --pivot alpha,eta.")
@click.option(
    "--uncertainty",
    type=click.Choice(UNCERTAINTIES),
    default="standard-error",
    help="What stands behind ±: the mean's standard error (default), 95 % interval, or half the range.",
)
@click.option("--csv", "form", flag_value="csv", help="A line of comma-separated values for each file.")
@click.option("--json", "form", flag_value="json", help='JSON; infinity is "inf", what is not there is null.')
@click.option("--latex", "form", flag_value="latex", help="A LaTeX table, which needs the package booktabs.")
@click.option("--caption", default="", metavar="TEXT", help="Of the LaTeX table. Default: what the numbers are.")
@click.option("--label", default="", metavar="TEXT", help="Of the LaTeX table. Default: tab:results.")
@click.option("--against", callback=_nodes, metavar="NODES", help="Each node's epsilon against these together, as in 0,3.")
@debug_option
def show(
    files: tuple[Path, ...],
    *,
    columns: tuple[str, ...],
    sort: tuple[str, ...],
    pivot: tuple[str, ...],
    uncertainty: str,
    form: str | None,
    caption: str,
    label: str,
    against: tuple[int, ...],
) -> int:
    """A table of the last recorded values in FILE... (or folders of them): loss, test error, privacy.

    Settings of which two files have different values are columns, so a sweep is a table of its values. Over several runs the
    mean is given, and behind ± its standard error, or what --uncertainty says. Privacy is the total of the worst node, and
    delta that of its epsilon. Configurations that could not run are rows, with their reason below the table.

    The table fits the terminal (80 columns where there is none, or what COLUMNS says); what is left out is said. Columns go by
    their heading, their dotted key or their name in the file: name, file, status, method, iteration, runs, delta, every
    setting, measurement and privacy account.

    \b
    dpadmm show results/*.h5
    dpadmm show sweep/ --columns alpha,eta,test-error,epsilon,delta --sort test-error
    dpadmm show sweep/ --pivot alpha,eta --columns loss --uncertainty interval
    dpadmm show sweep/ --latex --caption "Test error on Adult" --label tab:adult > table.tex
    dpadmm show results/ --csv > results.csv
    dpadmm show my.h5 --against 0,3
    """
    from dpadmm_mpi.reports import exports
    from dpadmm_mpi.reports.meaning import choice_in_words, in_words, is_without_noise
    from dpadmm_mpi.reports.result_tables import Wish, everything_of, table_of, text_of, wrapped
    from dpadmm_mpi.reports.tables import against_table
    from dpadmm_mpi.storage.infeasible import load_rows
    from dpadmm_mpi.storage.probe import probe
    from dpadmm_mpi.storage.result import Result

    if (caption or label) and form != "latex":
        raise InputError("--caption and --label: of a LaTeX table; add --latex")
    probe(files)
    rows = load_rows(files)
    wish = Wish(columns, sort, pivot, uncertainty)
    if form == "latex":
        say(exports.to_latex(table_of(rows, wish), caption, label))
        return 0
    if form is not None:
        say({"csv": exports.to_csv, "json": exports.to_json}[form](everything_of(rows, wish)))
        return 0
    say(text_of(table_of(rows, wish)))
    results = [row for row in rows if isinstance(row, Result)]
    lines = []
    if len(results) == 1 and (curve := results[0].curve) is not None:
        lines += [f"privacy: {words}" for words in in_words(curve)]
    if plain := [brief(result.name) for result in results if is_without_noise(result)]:
        lines.append(f"privacy: without noise, so that nothing protects the records: {'; '.join(plain)}")
    if (choice := choice_in_words(results)) is not None:
        lines.append(f"privacy: {choice}")
    lines += notes_of(results)
    for line in lines:
        say("\n".join(wrapped(line)))
    for result in results if against else ():
        who = ", ".join(map(str, against))
        say(f"\n{brief(result.name)}, against {'node' if len(against) == 1 else 'nodes'} {who}:")
        say(against_table(result, against))
    return 0


@click.command()
@result_files
@click.option("-o", "--output", type=OutputPath(), help="PNG, SVG or PDF. Default: beside FILE, PNG.")
@click.option(
    "--kind",
    default="overview",
    metavar="KIND",
    shell_complete=completion.among(completion.plot_kinds),
    help="What to draw. Default: overview.",
)
@click.option("--account", metavar="NAME", help="One privacy account, as in --account epsilon. Default: all, or the first.")
@click.option("--bars", is_flag=True, help="The range over the runs as bars, not as a band.")
@click.option("--log", metavar="AXES", help="Logarithmic axes: x, y, xy or none. Default: where numbers lie far apart.")
@click.option("--xlim", callback=_limits, metavar="LOW,HIGH", help="Ends of the x axis, as in 0,50; one may be left out.")
@click.option("--ylim", callback=_limits, metavar="LOW,HIGH", help="Ends of the y axis, as in 0.2,0.5; one may be left out.")
@click.option("--size", metavar="SIZE", help="A journal's width: one-column (89 mm) or two-column (182 mm), at 300 dpi.")
@click.option("--title", metavar="TEXT", help='Above the figure, as in --title "Adult, 5 nodes"; "" for none.')
@click.option("--grey", is_flag=True, help="No colours: markers, line styles and shades of grey.")
@click.option(
    "--x", default="iteration", metavar="AXIS", help="Draw over iteration, or with [network.time] over seconds or bytes."
)
@extension_option
@debug_option
def plot(
    files: tuple[Path, ...],
    output: Path | None,
    kind: str,
    account: str | None,
    bars: bool,
    x: str,
    extensions: tuple[str, ...],
    **layout: Any,
) -> int:
    """Draw FILE... (or folders of them); several files are compared. The mean over the runs is a line, their range a band.

    \b
    Kinds:
      overview        loss, test error and privacy over the iterations
      loss, test-error, objective, objective-gap, consensus, optimum
                      one of them; the last one is the distance to the optimum
      privacy         the total privacy loss, all accounts
      loss-privacy, error-privacy
                      loss or test error against the privacy that was spent
      tradeoff        loss and test error at the end against privacy, a point per file
      attacker        what epsilon means: whom an attacker can find at most
      nodes           how far the nodes are apart, loss and privacy of each
      partition       how the records are spread: labels of each node, distances
      network         the network with each node's loss, or with --account its privacy
      observers       who learns what: epsilon of every node against every other one
      faults          messages that arrive, nodes that take a step, bytes sent, where [network.faults] is set
      NAME            any measurement in the files, by its name; kinds of your own come with --extension

    \b
    dpadmm plot quickstart.h5
    dpadmm plot fig5/*.h5 --kind loss-privacy --account epsilon -o fig5.svg
    dpadmm plot fig5/ --kind loss --size one-column --grey --log y --xlim 0,50 --title "" -o fig5.pdf
    dpadmm plot network.h5 star.h5 --kind test-error --x seconds
    """
    from dpadmm_mpi.plots import draw
    from dpadmm_mpi.storage.probe import probe
    from dpadmm_mpi.storage.result import load_all

    load_extensions(extensions)
    target = in_folder(output, _beside(files[0], ".png" if kind == "overview" else f"-{kind}.png"))
    probe(files)
    draw(load_all(files), target, kind, account, bars, x, **layout)
    say(f"written: {target}")
    return 0


@click.command()
@result_files
@click.option("-o", "--output", type=OutputPath(), help="The page. Default: FILE with .html.")
@debug_option
def report(files: tuple[Path, ...], output: Path | None) -> int:
    """One page about FILE... (or folders of them) for a browser or a printer.

    Table, curves, of a sweep the trade-off and what differs, formulas, privacy, network, timing, configuration, environment and
    references, in one file that needs nothing else.

    \b
    dpadmm report quickstart.h5
    dpadmm report fig5/*.h5 -o fig5.html
    """
    from dpadmm_mpi.reports.html import page
    from dpadmm_mpi.storage.infeasible import load_rows
    from dpadmm_mpi.storage.probe import probe
    from dpadmm_mpi.storage.result import Result

    target = in_folder(output, _beside(files[0], ".html"))
    if target.suffix.lower() not in (".html", ".htm"):
        raise InputError(f'{target}: found the ending "{target.suffix}"; it must be .html')
    probe(files)
    rows = load_rows(files)
    if not any(isinstance(row, Result) for row in rows):
        raise InputError(f"{files[0]}: none of these configurations has run; dpadmm show says why")
    text = page(rows)
    try:
        write_text(target, text)
    except OSError as error:
        raise InputError(f"{target} cannot be written: {reason_of(error)}; {advice_on(error)}") from None
    say(f"written: {target}")
    return 0


def notes_of(results: "Sequence[Result]") -> list[str]:
    """The notes of all files, each once, with the names of those that have it."""
    names: dict[str, list[str]] = {}
    for result in results:
        for words in filter(None, str(result.attributes["/"].get("notes", "")).split("\n")):
            names.setdefault(words, []).append(brief(result.name))
    return [
        f"note, {who[0] if len(who) == 1 else 'all' if len(who) == len(results) else f'{len(who)} of {len(results)} files'}: "
        f"{sentence(words)}"
        for words, who in names.items()
    ]


def _beside(file: Path, ending: str) -> Path:
    """A name for what is made of a file or folder."""
    path = file.resolve() if file.name in ("", "..") else file
    return path.with_name((path.name if is_folder(path) else path.stem) + ending)


@click.command()
@click.argument("a", type=click.Path(path_type=Path))
@click.argument("b", type=click.Path(path_type=Path))
@debug_option
def diff(a: Path, b: Path) -> int:
    """Compare two result files to the bit, all but /timing and the date: exit code 0 and "identical", or 1.

    \b
    dpadmm diff serial.h5 ranks.h5
    """
    from dpadmm_mpi.storage.compare import compare
    from dpadmm_mpi.storage.probe import probe

    probe([a, b])
    differences = list(compare(a, b))
    if not differences:
        say("identical")
        return 0
    for line in differences[:DIFFERENCES]:
        say(sentence(line))
    if len(differences) > DIFFERENCES:
        say(f"... and {len(differences) - DIFFERENCES} more objects")
    return 1
