"""configs/claims/NAME.toml: the claims of a figure, their tests and sizes, written down before the runs.

[[claim]] tables with the fields of Claim. `each` makes several claims of one table by putting words in the place of {name} in
every text of it: a table of lists stands for all combinations of their words, a list of tables for one claim per table.
"""

import itertools
import tomllib
from pathlib import Path
from typing import Any

import msgspec

from dpadmm_mpi.errors import InputError
from dpadmm_mpi.reproduce.claims import Claim


def read_claims(path: Path) -> list[Claim]:
    """All claims in a file."""
    try:
        raw = tomllib.loads(path.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{path}: {error}") from None
    claims = []
    for index, table in enumerate(raw.get("claim", [])):
        for words in _combinations(table.pop("each", {})):
            try:
                claims.append(msgspec.convert(_filled(table, words), Claim, strict=False))
            except msgspec.ValidationError as error:
                raise InputError(f"{path}: claim[{index}]: {error}") from None
    if not claims or set(raw) != {"claim"}:
        raise InputError(f"{path}: needs [[claim]] tables and nothing else")
    return claims


def _combinations(each: dict[str, list[str]] | list[dict[str, str]]) -> list[dict[str, str]]:
    if isinstance(each, list):
        return each
    return [dict(zip(each, words, strict=True)) for words in itertools.product(*each.values())]


def _filled(value: Any, words: dict[str, str]) -> Any:
    if isinstance(value, str):
        for name, word in words.items():
            value = value.replace(f"{{{name}}}", word)
        return value
    if isinstance(value, list):
        return [_filled(item, words) for item in value]
    if isinstance(value, dict):
        return {key: _filled(item, words) for key, item in value.items()}
    return value
