"""`dpadmm reproduce`: the papers' figures, redone."""

from pathlib import Path

import click

from dpadmm_mpi.cli import completion
from dpadmm_mpi.cli.options import debug_option, say
from dpadmm_mpi.errors import InputError


@click.command()
@click.argument("names", nargs=-1, metavar="NAME...", shell_complete=completion.among(completion.figures))
@click.option("--quick", is_flag=True, help="Fewer runs and records: the shape of the figure in seconds.")
@click.option("--vary", is_flag=True, help="Also vary what the paper leaves open, and judge again.")
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), default=Path("reproduced"), help="Folder. Default: reproduced."
)
@debug_option
def reproduce(names: tuple[str, ...], quick: bool, vary: bool, output: Path) -> int:
    """Redo the figures NAME... of the papers, or `all`: get the data, run what is missing, draw, and judge the claims.

    Without a name, the figures that there are. What was interrupted goes on where it was. Pictures, tables, verdicts and a
    page README.md go into the folder, the HDF5 files into its subfolder data/.

    \b
    dpadmm reproduce recycled-fig5
    dpadmm reproduce all --quick
    """
    from dpadmm_mpi.reports.tables import aligned
    from dpadmm_mpi.reproduce.catalogue import CATALOGUE
    from dpadmm_mpi.reproduce.making import make, verdict_lines
    from dpadmm_mpi.reproduce.page import write_page

    if not names:
        say(aligned(["name", "what"], [[name, figure.title] for name, figure in CATALOGUE.items()], left=(0, 1)))
        return 0
    names = tuple(map(str.casefold, names))
    unknown = [name for name in names if name not in CATALOGUE and name != "all"]
    if unknown:
        raise InputError(f'"{unknown[0]}" is not a figure; there are {", ".join(CATALOGUE)} and all')
    for name in CATALOGUE if "all" in names else names:
        report = make(CATALOGUE[name], output, quick, vary)
        say("\n".join(verdict_lines(report)))
    write_page(output)
    say(f"written: {output / 'README.md'}")
    return 0
