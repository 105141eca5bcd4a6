"""Configurations that cannot run: a note in the place of the result, so that tables and `dpadmm status` know them."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpadmm_mpi.config.files import dotted, read_table
from dpadmm_mpi.config.reading import Table
from dpadmm_mpi.errors import InputError, advice_on, reason_of
from dpadmm_mpi.files import exists, is_folder, make_folder, names_in, remove, write_text
from dpadmm_mpi.storage.result import Result, load

ENDING = ".infeasible.toml"


@dataclass(frozen=True)
class Infeasible:
    """A configuration that cannot run, and why."""

    name: str
    source: str  # the note
    settings: dict[str, Any]  # of the configuration, by dotted key
    reason: str


def note_of(output: Path) -> Path:
    """Where the note stands that there is no result."""
    return output.with_name(output.stem + ENDING)


def write_note(output: Path, config: Table, reason: str) -> Infeasible:
    """Say why there is no result; `config` is the configuration as far as it was resolved."""
    import tomli_w

    path = note_of(output)
    try:
        make_folder(path.parent)
        write_text(path, tomli_w.dumps({"reason": reason, "config": config}))
    except OSError as error:
        raise InputError(f"{path} cannot be written: {reason_of(error)}; {advice_on(error)}") from None
    return Infeasible(str(config.get("name", output.stem)), str(path), dotted(config), reason)


def remove_note(output: Path) -> None:
    """There will be a result."""
    remove(note_of(output))


def read_note(path: Path) -> Infeasible:
    """The note in a file; one sentence if it is none."""
    raw = read_table(path).raw
    reason, config = raw.get("reason"), raw.get("config")
    if not isinstance(reason, str) or not isinstance(config, dict):
        raise InputError(f"{path}: not a note about a configuration that cannot run: reason or config is missing; remove it")
    return Infeasible(str(config.get("name", path.name.removesuffix(ENDING))), str(path), dotted(config), reason)


def load_rows(paths: Iterable[Path]) -> list[Result | Infeasible]:
    """The results in files and folders, and, in its place, what could not run of those of a folder."""
    rows: list[Result | Infeasible] = []
    for path in paths:
        if path.name.endswith(ENDING):
            rows.append(read_note(path))
            continue
        inside = [*names_in(path, "*.h5"), *names_in(path, f"*{ENDING}")] if is_folder(path) else [path]
        if not inside:
            raise InputError(f"{path}: a folder without result files")
        inside.sort(key=_in_order)
        rows += [read_note(file) if file.name.endswith(ENDING) else load(file) for file in inside]
    return rows


def _in_order(path: Path) -> list[tuple[bool, float, str]]:
    """Names as people count: alpha=2 before alpha=10."""
    name = path.name.removesuffix(ENDING).removesuffix(".h5")
    parts = re.findall(r"\d+(?:\.\d+)?(?:e[+-]?\d+)?|\D+?(?=\d|$)", name)
    return [(part[0].isdecimal(), float(part), "") if part[0].isdecimal() else (False, 0.0, part) for part in parts]


def find_note(output: Path) -> Infeasible | None:
    """Why there is no result, if that is known."""
    return read_note(note_of(output)) if exists(note_of(output)) else None
