"""The configuration as a JSON schema, for editors that complete and check TOML; and every choice as a table of options."""

from typing import Any

import msgspec

from dpadmm_mpi.config.options import Choice, Choices, Field, Kind, Options, Part, fields_of, without_none
from dpadmm_mpi.config.reading import is_section
from dpadmm_mpi.registry import Registry, first_line

DRAFT = "https://json-schema.org/draft/2020-12/schema"


def schema(root: type[Options], title: str) -> dict[str, Any]:
    """Of a whole configuration; a section takes the keys of everything that it can choose."""
    properties = {field.name: _property(field) for field in fields_of(root)}
    extra = {"type": "array", "items": {"type": "object"}, "description": "Variants: tables that change some keys."}
    properties["variant"] = {**extra}
    properties["sweep"] = {"type": "object", "description": "Dotted keys, each with a list of values."}
    properties["tune"] = {"type": "object", "description": "space: what dpadmm tune searches; dotted keys, each with a range."}
    properties["extensions"] = {
        "type": "array",
        "items": {"type": ["string", "object"]},
        "description": "Python files with classes of your own, meant from the configuration's folder.",
    }
    return {"$schema": DRAFT, "title": title, "type": "object", "properties": properties, "additionalProperties": False}


def _property(field: Field) -> dict[str, Any]:
    if is_section(field.type):
        return _section(field.type)
    if isinstance(field.role, Choices):
        names = list(field.role.registry)
        return {"type": "array", "items": {"anyOf": [{"enum": names}, {"type": "object", "required": [field.role.key]}]}}
    if isinstance(field.role, Kind):
        return _kind(field.role)
    found, definitions = msgspec.json.schema_components([field.type], ref_template="#/$defs/{name}")
    made = _inlined(found[0], definitions)
    if not field.required and field.default is not None:
        made["default"] = without_none(msgspec.to_builtins(field.default))
    return made


def _kind(among: Kind) -> dict[str, Any]:
    """A number, a name, or a table with the options of what it names."""
    names = among.names
    words = "; ".join(f"{name}: {first_line(among.registry[name])}" for name in names)
    properties: dict[str, Any] = {"kind": {"enum": names, "description": words}}
    for name in names:
        _collect(among.registry[name], properties)
    table = {"type": "object", "properties": properties, "required": ["kind"], "additionalProperties": False}
    return {"anyOf": [{"type": "number", "minimum": 0}, {"enum": names}, table]}


def _inlined(part: Any, definitions: dict[str, Any]) -> Any:
    """Without references, so that a section can be read by itself."""
    if isinstance(part, dict):
        if "$ref" in part:
            return _inlined(definitions[part["$ref"].rsplit("/", 1)[1]], definitions)
        return {key: _inlined(value, definitions) for key, value in part.items()}
    return [_inlined(value, definitions) for value in part] if isinstance(part, list) else part


def _section(cls: type[Options]) -> dict[str, Any]:
    properties: dict[str, Any] = {}
    _collect(cls, properties)
    return {"type": "object", "description": first_line(cls), "properties": properties, "additionalProperties": False}


def _collect(cls: type[Options], properties: dict[str, Any]) -> None:
    for field in fields_of(cls):
        if isinstance(field.role, Choice):
            registry = field.role.registry
            words = "; ".join(f"{name}: {first_line(each)}" for name, each in registry.items())
            properties[field.name] = {"enum": list(registry), "description": words}
            for _, each in registry.items():
                _collect(each, properties)
        elif isinstance(field.role, Part):
            for _, each in field.role.candidates():
                _collect(each, properties)
        else:
            _add(properties, field.name, _property(field))


def _add(properties: dict[str, Any], name: str, new: dict[str, Any]) -> None:
    """A key that several choices have takes what any of them takes."""
    before = properties.get(name)
    if before is None or before == new:
        properties[name] = new
        return
    kinds = before["anyOf"] if set(before) == {"anyOf"} else [before]
    properties[name] = {"anyOf": kinds if new in kinds else [*kinds, new]}


class Described(msgspec.Struct, frozen=True):
    """One class of a registry, for people."""

    name: str
    words: str
    options: list[str]  # key = default, or the key and what it needs


def described(registry: Registry[Any]) -> list[Described]:
    """What there is to choose from, with options and defaults."""
    return [Described(name, first_line(cls), _options(cls)) for name, cls in registry.items()]


def _options(cls: type[Options]) -> list[str]:
    lines = []
    for field in fields_of(cls):
        if isinstance(field.role, Choice):
            lines.append(f"{field.name} = {field.role.registry.name_of(type(field.default))}")
        elif field.required:
            lines.append(f"{field.name} (needed)")
        elif field.default is None:
            lines.append(f"{field.name} (unset)")
        else:
            value = msgspec.to_builtins(field.default)
            lines.append(f"{field.name} = {str(value).lower() if isinstance(value, bool) else value}")
    return lines
