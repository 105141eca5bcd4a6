"""What the shell offers after the tab key; what it takes is loaded then, and not before."""

from collections.abc import Callable, Iterable

import click
from click.shell_completion import CompletionItem

Completer = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def among(names: Callable[[], Iterable[str]], files: bool = False) -> Completer:
    """Completes one of these names, whatever their case; or, where none begins so, a file."""

    def complete(_context: click.Context, _parameter: click.Parameter, begun: str) -> list[CompletionItem]:
        found = [CompletionItem(name) for name in names() if name.casefold().startswith(begun.casefold())]
        return [*found, CompletionItem(begun, type="file")] if files else found

    return complete


def kinds() -> list[str]:
    """Of `dpadmm list`."""
    from dpadmm_mpi.registry import REGISTRIES

    load_choices()
    return list(REGISTRIES)


def load_choices() -> None:
    """All registries."""
    import importlib

    from dpadmm_mpi.registry import load_all

    for room in ("methods", "plots", "tuning"):
        importlib.import_module(f"dpadmm_mpi.{room}")
    load_all()


def plot_kinds() -> list[str]:
    from dpadmm_mpi.registry import REGISTRIES

    load_choices()
    return list(REGISTRIES["plots"])


def figures() -> list[str]:
    from dpadmm_mpi.reproduce.catalogue import CATALOGUE

    return [*CATALOGUE, "all"]


def data_sets() -> list[str]:
    from dpadmm_mpi.data.catalogue import public_datasets

    return list(public_datasets())


def keys() -> list[str]:
    """Every key of a configuration, as --set takes it."""
    from dpadmm_mpi.config.options import fields_of
    from dpadmm_mpi.config.reading import is_section, possible_keys
    from dpadmm_mpi.methods.base import Config

    load_choices()
    found = []
    for field in fields_of(Config):
        if is_section(field.type):
            found += [f"{field.name}.{key}=" for key in possible_keys(field.type)]
        elif field.name != "extensions":
            found.append(f"{field.name}=")
    return found
