"""`dpadmm list` and `dpadmm schema`: what a configuration can choose from, extensions included."""

import json

import click

from dpadmm_mpi.cli import completion
from dpadmm_mpi.cli.options import debug_option, extension_option, load_extensions, say
from dpadmm_mpi.errors import InputError


def _load(extensions: tuple[str, ...]) -> None:
    """All registries, with what extensions bring."""
    from dpadmm_mpi.registry import load_entry_points

    completion.load_choices()
    load_extensions(extensions)
    load_entry_points()


@click.command("list")
@click.argument("kind", required=False, metavar="[KIND]", shell_complete=completion.among(completion.kinds))
@extension_option
@debug_option
def list_choices(kind: str | None, extensions: tuple[str, ...]) -> int:
    """What there is of KIND (methods, losses, graphs, ...): names, options with defaults, one line each.

    Without KIND, the kinds.

    \b
    dpadmm list
    dpadmm list methods
    dpadmm list metrics --extension mine.py
    """
    from dpadmm_mpi.config.schema import described
    from dpadmm_mpi.registry import REGISTRIES, did_you_mean
    from dpadmm_mpi.reports.tables import aligned

    _load(extensions)
    if kind is None:
        rows = [[plural, ", ".join(registry)] for plural, registry in REGISTRIES.items()]
        say(aligned(["kind", "names"], rows, left=(0, 1)))
        return 0
    kind = kind.casefold()
    if kind not in REGISTRIES:
        raise InputError(f'"{kind}" is not a kind; there are {", ".join(REGISTRIES)}{did_you_mean(kind, list(REGISTRIES))}')
    rows = [[each.name, ", ".join(each.options) or "-", each.words] for each in described(REGISTRIES[kind])]
    say(aligned(["name", "options", "what"], rows, left=(0, 1, 2)))
    return 0


@click.command()
@extension_option
@debug_option
def schema(extensions: tuple[str, ...]) -> int:
    """The JSON schema of the configuration, for editors that complete and check TOML.

    \b
    dpadmm schema > dpadmm.schema.json
    """
    from dpadmm_mpi.config.schema import schema as make_schema
    from dpadmm_mpi.methods.base import Config

    _load(extensions)
    say(json.dumps(make_schema(Config, "dpadmm_mpi configuration"), indent=1))
    return 0
