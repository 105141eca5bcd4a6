"""From plain dictionaries to a checked configuration; whatever is wrong is one sentence with the key and the fix."""

import math
import re
from difflib import get_close_matches
from typing import Any

import msgspec
from msgspec import Struct

from dpadmm_mpi.config.choices import check, resolve
from dpadmm_mpi.config.options import HUB, SCHEDULES, Config, Geometric
from dpadmm_mpi.errors import InputError


def parse(raw: dict[str, Any]) -> Config:
    """A checked configuration, every default filled in, from plain dictionaries; InputError with the key otherwise."""
    raw = _with_sizes_as_split(raw)
    _refuse_unknown_keys(raw, Config, "")
    _refuse_non_finite(raw, "")
    try:
        config = msgspec.convert(raw, Config)
    except msgspec.ValidationError as error:
        raise InputError(_explain(str(error), raw)) from None
    config = resolve(config)
    check(config)
    return config


def _with_sizes_as_split(raw: dict[str, Any]) -> dict[str, Any]:
    """`sizes = [...]` alone says which split is meant."""
    data = raw.get("data")
    if isinstance(data, dict) and "sizes" in data and "split" not in data:
        return {**raw, "data": {**data, "split": "sizes"}}
    return raw


def _section_types() -> dict[str, type[Struct]]:
    return {f.name: f.type for f in msgspec.structs.fields(Config) if isinstance(f.type, type) and issubclass(f.type, Struct)}


def _refuse_unknown_keys(raw: dict[str, Any], kind: type[Struct], prefix: str) -> None:
    known = [field.name for field in msgspec.structs.fields(kind)]
    for key, value in raw.items():
        if key not in known:
            raise InputError(f"{prefix}{key}: unknown key; {_nearest_key(key, known, prefix)}")
        inner = _section_types().get(key) if kind is Config else None
        if f"{prefix}{key}" in SCHEDULES:
            inner = Geometric
        if inner is not None:
            for index, part in _tables(value):
                _refuse_unknown_keys(part, inner, f"{prefix}{key}{index}.")


def _tables(value: Any, index: str = "") -> list[tuple[str, dict[str, Any]]]:
    """The tables in a value and its lists, with their places."""
    if isinstance(value, list):
        return [found for k, part in enumerate(value) for found in _tables(part, f"{index}[{k}]")]
    return [(index, value)] if isinstance(value, dict) else []


def _nearest_key(key: str, known: list[str], prefix: str) -> str:
    if close := get_close_matches(key, known, n=1):
        return f'did you mean "{prefix}{close[0]}"?'
    for section, kind in _section_types().items():
        if key in (field.name for field in msgspec.structs.fields(kind)):
            return f'did you mean "{section}.{key}"?'
    return f"known here: {', '.join(known)}"


def _refuse_non_finite(value: Any, path: str) -> None:
    if isinstance(value, dict):
        for key, item in value.items():
            _refuse_non_finite(item, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            _refuse_non_finite(item, f"{path}[{index}]")
    elif isinstance(value, float) and not math.isfinite(value):
        raise InputError(f"{path}: found {value}; a finite number is needed")


_PLAIN = {
    "int": "a whole number", "float": "a number", "str": "a text", "bool": "true or false",
    "array": "a list", "object": "a table", "null": "nothing",
}  # fmt: skip

_PLAIN_KINDS: dict[Any, str] = {
    msgspec.inspect.FloatType: "a number",
    msgspec.inspect.StructType: "a table",
    msgspec.inspect.ListType: "a list",
}


def _explain(message: str, raw: dict[str, Any]) -> str:
    """One sentence with the key's dotted path, what was found and what is allowed, from msgspec's message."""
    text, _, where = message.partition(" - at `$.")
    path = where.rstrip("`")
    found: Any = raw
    kind: Any = msgspec.inspect.type_info(Config)
    for name, index in re.findall(r"(\w+)|\[(\d+)\]", path):
        found = found[int(index)] if index else found[name]
        if not index:  # a list keeps the kind of its key: its entries' kinds are looked at in _allowed
            kind = next((f.type for f in getattr(kind, "fields", ()) if f.name == name), None)
    if text.startswith("Invalid enum value") and (allowed := _allowed(kind)):
        close = get_close_matches(str(found), allowed, n=1)
        hint = f'; did you mean "{close[0]}"?' if close else ""
        others = [_PLAIN_KINDS[type(k)] for k in getattr(kind, "types", ()) if type(k) in _PLAIN_KINDS]
        if path == "algorithm.eta" and raw["algorithm"].get("method") in HUB:
            others = ["a number"]  # one step size; tables and lists are for penalties
        return f"{path}: found {_show(found)}; allowed: {', '.join([*others, *allowed])}{hint}"
    if missing := re.match(r"Object missing required field `(\w+)`", text):
        return f"{path}.{missing[1]}: missing; {path} needs it"
    text = re.sub(r", got .*", "", text).removeprefix("Expected ")
    text = re.sub(r"`([^`]*)`", lambda m: " or ".join(_PLAIN.get(part, part) for part in m[1].split(" | ")), text)
    return f"{path}: found {_show(found)}; expected {text.replace(' or nothing', '')}"


def _allowed(kind: Any) -> list[str]:
    kinds = getattr(kind, "types", (kind,))
    kinds = [getattr(k, "item_type", k) for k in kinds]
    return [str(value) for k in kinds for value in getattr(k, "values", ())]


def _show(value: Any) -> str:
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, bool):
        return str(value).lower()
    return "a table" if isinstance(value, dict) else str(value)
