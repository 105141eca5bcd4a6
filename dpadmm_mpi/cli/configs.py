"""`dpadmm config` and `dpadmm init`: the configurations that come with the package."""

import re
from pathlib import Path

import click

from dpadmm_mpi.cli import completion
from dpadmm_mpi.cli.options import OutputPath, debug_option, in_folder, packaged, say
from dpadmm_mpi.errors import InputError, advice_on, reason_of
from dpadmm_mpi.files import exists, write_text
from dpadmm_mpi.registry import did_you_mean


@click.group()
def config() -> None:
    """The configurations that come with the package; every command takes their names in the place of a file.

    \b
    dpadmm config list
    dpadmm config show recycled-fig5
    dpadmm run recycled-fig5 --set runs=2
    """


@config.command("list")
@debug_option
def list_configs() -> int:
    """Their names, and the first sentence of each.

    \b
    dpadmm config list
    """
    from dpadmm_mpi.reports.tables import aligned

    rows = [[name, _first_sentence(path.read_text(encoding="utf-8"))] for name, path in packaged().items()]
    say(aligned(["name", "what"], rows, left=(0, 1)))
    return 0


@config.command("show")
@click.argument("name", shell_complete=completion.among(packaged))
@debug_option
def show_config(name: str) -> int:
    """The text of one of them, with its comments.

    \b
    dpadmm config show quickstart
    dpadmm config show quickstart > my.toml
    """
    say(_text(name), end="")
    return 0


@click.command()
@click.argument("file", type=OutputPath(), default="my.toml")
@click.option(
    "--like",
    "name",
    metavar="NAME",
    default="quickstart",
    shell_complete=completion.among(packaged),
    help="Which of `dpadmm config list`. Default: quickstart.",
)
@debug_option
def init(file: Path, name: str) -> int:
    """Write a commented configuration to begin with into FILE (my.toml).

    \b
    dpadmm init
    dpadmm init trial.toml --like recycled-fig5
    """
    text, file = _text(name), in_folder(file, Path("my.toml"))
    if exists(file):
        raise InputError(f"{file} exists; choose another name, as in dpadmm init other.toml")
    try:
        write_text(file, text)
    except OSError as error:
        raise InputError(f"{file} cannot be written: {reason_of(error)}; {advice_on(error)}") from None
    say(f"written: {file}")
    say(f"next: edit it, then dpadmm check {file}, and dpadmm run {file}; dpadmm list says what there is to choose from")
    return 0


def _text(name: str) -> str:
    known, name = packaged(), name.casefold()
    if name not in known:
        raise InputError(
            f'"{name}" is not a packaged configuration; there are {", ".join(known)}{did_you_mean(name, list(known))}'
        )
    return known[name].read_text(encoding="utf-8")


def _first_sentence(text: str) -> str:
    """Of the comment at the top."""
    lines = text.splitlines()
    last = next(place for place, line in enumerate([*lines, ""]) if not line.startswith("#"))
    words = " ".join(line.lstrip("# ") for line in lines[:last])
    return re.split(r"(?<!Fig)(?<!Figs)\. ", words)[0].rstrip(".")
