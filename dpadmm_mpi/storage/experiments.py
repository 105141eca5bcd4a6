"""Configurations from wherever they are: a TOML file, a dictionary, or a result file, whose configuration can be run again."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from dpadmm_mpi.config.extensions import Extension, is_loaded, paths_in
from dpadmm_mpi.config.files import Experiment, RawConfig, Setting, from_python, load_extensions, read_table
from dpadmm_mpi.config.places import with_place
from dpadmm_mpi.errors import InputError
from dpadmm_mpi.methods.base import Config, fingerprint
from dpadmm_mpi.methods.experiment import experiment


def source_of(source: str | Path | Mapping[str, Any]) -> RawConfig:
    """The table of a file or a dictionary."""
    if isinstance(source, Mapping):
        return from_python(source)
    path = Path(source)
    if path.suffix in (".h5", ".hdf5"):
        from dpadmm_mpi.storage.result import read_attributes

        if "config" not in (root := read_attributes(path)):
            raise InputError(f"{path}: the file has no attribute config; it is damaged")
        return read_table(path, str(root["config"]))
    return read_table(path)


def load(
    source: str | Path | Mapping[str, Any],
    overrides: Iterable[str | Setting] = (),
    only: str | None = None,
    extensions: Iterable[str] = (),
    tolerant: bool = False,
) -> Experiment[Config]:
    """One configuration, or one per variant and point of the sweep; `tolerant` lists those of several that cannot be."""
    table, settings = source_of(source), tuple(overrides)
    try:
        return experiment(table, settings, only, extensions, tolerant)
    except InputError as error:
        if isinstance(source, Mapping):
            raise
        said = tuple(each.partition("=")[0].strip() if isinstance(each, str) else each[0] for each in settings)
        raise with_place(error, Path(source), said) from None


def extensions_of(source: str | Path | Mapping[str, Any], more: Iterable[str] = ()) -> tuple[Extension, ...]:
    """Load the extensions of a configuration, and no more."""
    return load_extensions(source_of(source), more)


def read_again(text: str, path: Path) -> Config:
    """The configuration that a result file or a journal at `path` holds, with the defaults that have come since."""
    return experiment(read_table(path, text)).configs[0]


def stored_fingerprint(text: str, recorded: str, path: Path) -> str:
    """The fingerprint that a stored configuration has today; as it was recorded, where it cannot be read any more.

    Looking at a file executes nothing: extensions that are not loaded already stay so, and the recorded one counts.
    """
    try:
        raw = read_table(path, text)
        if not all(is_loaded(extension) for extension in paths_in(raw.raw.get("extensions", []), raw.folder)):
            return recorded
        return fingerprint(experiment(raw).configs[0])
    except InputError:
        return recorded
