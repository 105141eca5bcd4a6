"""From plain tables to classes of options; whatever is wrong is one sentence with the key and the fix."""

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, NoReturn, TypeVar, get_args

import msgspec

from dpadmm_mpi.config.options import Choice, Choices, Field, Kind, Options, Part, fields_of
from dpadmm_mpi.errors import InputError
from dpadmm_mpi.registry import Registry, did_you_mean

O = TypeVar("O", bound=Options)
Table = dict[str, Any]


@dataclass(frozen=True)
class Ruling:
    """What one choice, the method, decides about the choices of all sections."""

    key: str = ""  # its own, as in algorithm.method
    name: str = ""
    takes: Mapping[str, tuple[type, ...]] = field(default_factory=dict)  # of a choice, by its dotted key: only these classes
    defaults: Mapping[str, str] = field(default_factory=dict)  # of a choice: where nothing is said
    parts: Mapping[str, type[Options]] = field(default_factory=dict)
    synonyms: Mapping[str, Mapping[str, str]] = field(default_factory=dict)  # of a choice: other words for it


NO_RULING = Ruling()
HUGE = 1e100  # a number: squares and products of several are numbers too
DEEPEST = 16  # levels of tables and lists inside each other
_NO_TEXT = re.compile("[\0\ud800-\udfff]")
LONG, LONG_TEXT = 60, 300  # letters of a value, or of a text, which may be a path, that an error repeats


@dataclass(frozen=True)
class _Shape:
    """A class of options as it is meant here: its plain fields, and the shapes of what was chosen."""

    cls: type[Options]
    plain: tuple[Field, ...]
    inner: dict[str, "_Shape"]  # by the name of the field
    chosen: dict[str, str]  # choice -> name
    selector: str = ""  # the dotted key and the name that led here, for errors
    choice: str = ""

    def walk(self) -> Iterator["_Shape"]:
        yield self
        for shape in self.inner.values():
            yield from shape.walk()

    @property
    def keys(self) -> list[str]:
        """What may stand in the section."""
        return [name for shape in self.walk() for name in (*(f.name for f in shape.plain), *shape.chosen)]


def read_root(cls: type[O], raw: Table, first: str, decide: Callable[[Options], Ruling]) -> O:
    """A whole configuration: the section `first` is read before the others and decides about them."""
    sections = {f.name: f.type for f in fields_of(cls) if is_section(f.type)}
    for key in raw:
        if key not in [f.name for f in fields_of(cls)]:
            _refuse_unknown(key, "", [f.name for f in fields_of(cls)], sections)
    refuse_non_finite(raw, "")
    leading = read_section(sections[first], first, raw.get(first, {}))
    ruling = decide(leading)
    values: dict[str, Any] = {}
    for f in fields_of(cls):
        if f.name == first:
            values[f.name] = leading
        elif f.name in sections:
            values[f.name] = read_section(sections[f.name], f.name, raw.get(f.name, {}), ruling, sections)
        elif f.name in raw:
            values[f.name] = convert(raw[f.name], f, f.name)
    made = cls(**values)
    for options in (*(values[name] for name in sections), made):
        options.check()
    return made


def is_section(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Options)


def read_section(
    cls: type[O], section: str, table: Any, ruling: Ruling = NO_RULING, sections: Mapping[str, type[Options]] | None = None
) -> O:
    """One section, with the keys of everything that it chooses."""
    if not isinstance(table, dict):
        raise InputError(f"{section}: found {show(table)}; expected a table")
    shape = _shape_of(cls, section, table, ruling)
    known = shape.keys
    for key in table:
        if key not in known:
            _refuse_key(key, section, shape, ruling, sections or {})
    made = _make(shape, section, table)
    assert isinstance(made, cls)
    return made


def keys_of(cls: type[Options], section: str, table: Table, ruling: Ruling) -> list[str] | None:
    """The keys that may stand in a section with these choices; None where a choice is not one."""
    try:
        return _shape_of(cls, section, table, ruling).keys
    except InputError:
        return None


def _shape_of(cls: type[Options], section: str, table: Table, ruling: Ruling, selector: str = "", choice: str = "") -> _Shape:
    plain, inner, chosen = [], {}, {}
    for f in fields_of(cls):
        path = f"{section}.{f.name}"
        if isinstance(f.role, Choice):
            name = _choose(f.role.registry, f, path, table, ruling)
            chosen[f.name] = name
            inner[f.name] = _shape_of(f.role.registry[name], section, table, ruling, path, name)
        elif isinstance(f.role, Part):
            inner[f.name] = _shape_of(ruling.parts.get(path, type(f.default)), section, table, ruling, ruling.key, ruling.name)
        else:
            plain.append(f)
    return _Shape(cls, tuple(plain), inner, chosen, selector, choice)


def _choose(registry: Registry[Any], f: Field, path: str, table: Table, ruling: Ruling) -> str:
    given = table.get(f.name)
    takes = ruling.takes.get(path)
    if given is None:
        return ruling.defaults.get(path) or registry.name_of(type(f.default))
    if not isinstance(given, str):
        raise InputError(f"{path}: found {show(given)}; expected a text")
    name = ruling.synonyms.get(path, {}).get(given.casefold(), given)
    found = registry.find(name)
    if found is None:
        allowed = sorted(registry)
        raise InputError(f'{path}: found "{given}"; allowed: {", ".join(allowed)}{did_you_mean(given, allowed)}')
    if takes is not None and not issubclass(found, takes):
        fitting = [n for n, c in registry.items() if issubclass(c, takes)]
        raise InputError(f'{path}: "{given}" does not go with {ruling.name}, which takes {one_of(fitting)}')
    return registry.name_of(found)


def _make(shape: _Shape, section: str, table: Table) -> Options:
    values: dict[str, Any] = {name: _make(inner, section, table) for name, inner in shape.inner.items()}
    for f in shape.plain:
        path = f"{section}.{f.name}"
        if f.name not in table:
            if f.required:
                needs = f'{shape.selector} = "{shape.choice}"' if shape.selector else section
                raise InputError(f"{path}: missing; {needs} needs it")
        elif isinstance(f.role, Choices):
            values[f.name] = _read_list(table[f.name], f.role, path)
        elif isinstance(f.role, Kind):
            values[f.name] = _read_kind(table[f.name], f.role, path)
        elif is_section(f.type):
            values[f.name] = read_section(f.type, path, table[f.name])
        else:
            values[f.name] = convert(table[f.name], f, path)
    return shape.cls(**values)


def _read_list(value: Any, among: Choices, path: str) -> list[Options]:
    if not isinstance(value, list):
        raise InputError(f"{path}: found {show(value)}; expected a list")
    made = []
    for k, entry in enumerate(value):
        where = f"{path}[{k}]"
        table = dict(entry) if isinstance(entry, dict) else {among.key: entry}
        name = table.pop(among.key, None)
        if not isinstance(name, str):
            raise InputError(f'{where}: found {show(entry)}; expected a name, or a table with {among.key} = "NAME"')
        cls = among.registry.find(name)
        if cls is None:
            allowed = list(among.registry)
            raise InputError(f'{where}: found "{name}"; allowed: {", ".join(allowed)}{did_you_mean(name, allowed)}')
        made.append(read_section(cls, where, table))
    return made


def _read_kind(value: Any, among: Kind, path: str) -> Options | None:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return read_section(among.registry[among.usual], path, {among.number: value}) if value else None
    table = dict(value) if isinstance(value, dict) else {"kind": value}
    name, allowed = table.pop("kind", None), among.names
    if not isinstance(name, str):
        raise InputError(f'{path}: found {show(value)}; expected a number, or a table with kind = "NAME": {one_of(allowed)}')
    cls = among.registry.find(name)
    if cls is None or not issubclass(cls, among.role):
        raise InputError(f'{path}.kind: found "{name}"; allowed: {", ".join(allowed)}{did_you_mean(name, allowed)}')
    return read_section(cls, path, table)


def possible_keys(cls: type[Options]) -> list[str]:
    """All keys that a section can have, whatever is chosen."""
    found: dict[str, None] = {}
    for f in fields_of(cls):
        found[f.name] = None
        for _, inner in _alternatives(f):
            found |= dict.fromkeys(possible_keys(inner))
        if isinstance(f.role, Part):
            del found[f.name]
    return list(found)


def _alternatives(f: Field) -> list[tuple[str, type[Options]]]:
    if isinstance(f.role, Choice):
        return f.role.registry.items()
    return list(f.role.candidates()) if isinstance(f.role, Part) else []


def _refuse_key(key: str, section: str, shape: _Shape, ruling: Ruling, sections: Mapping[str, type[Options]]) -> NoReturn:
    """A key without meaning here says for what it would have one; a key that nothing has is unknown."""
    path = f"{section}.{key}"
    for part in shape.walk():
        for f in fields_of(part.cls):
            takers = [name for name, inner in _alternatives(f) if key in possible_keys(inner)]
            if isinstance(f.role, Choice):
                takes = ruling.takes.get(f"{section}.{f.name}")
                takers = [name for name in takers if takes is None or issubclass(f.role.registry[name], takes)]
            if not takers:
                continue
            where, name = (
                (ruling.key, ruling.name) if isinstance(f.role, Part) else (f"{section}.{f.name}", part.chosen[f.name])
            )
            if name in takers:
                continue  # what was chosen takes it by a choice of its own, which comes later
            raise InputError(f'{path}: has no meaning for {where} = "{name}"; remove it or choose {one_of(takers)}')
    if key in possible_keys(shape.cls):
        raise InputError(f'{path}: has no meaning for {ruling.key} = "{ruling.name}"; remove it')
    _refuse_unknown(key, f"{section}.", possible_keys(shape.cls), sections)


def _refuse_unknown(key: str, prefix: str, known: list[str], sections: Mapping[str, type[Options]]) -> NoReturn:
    if close := get_close_matches(str(key), known, n=1):
        hint = f'did you mean "{prefix}{close[0]}"?'
    else:
        homes = [name for name, cls in sections.items() if key in possible_keys(cls)]
        hint = f'did you mean "{homes[0]}.{key}"?' if homes else f"known here: {', '.join(known)}"
    raise InputError(f"{prefix}{key}: unknown key; {hint}")


def refuse_unfit(table: Any) -> None:
    """Before anything else looks at it: what is nested without end, whole numbers without end, text that no file can hold."""
    waiting: list[tuple[str, Any, int]] = [("", table, 0)]
    while waiting:  # not by recursion, which has an end itself
        path, value, depth = waiting.pop()
        if depth > DEEPEST:
            raise InputError(f"{path}: nested deeper than {DEEPEST} levels, which no key needs")
        if isinstance(value, dict):
            waiting += [(f"{path}.{key}" if path else str(key), item, depth + 1) for key, item in value.items()]
        elif isinstance(value, list):
            waiting += [(f"{path}[{index}]", item, depth + 1) for index, item in enumerate(value)]
        elif isinstance(value, int) and not -(1 << 63) <= value < 1 << 64:
            raise InputError(f"{path}: found a whole number of {value.bit_length()} bits; at most 64 are possible")
        elif isinstance(value, str) and _NO_TEXT.search(value):
            raise InputError(
                f"{path}: found {show(value)}, which has a sign that is none in UTF-8, or the sign NUL; write another"
            )


def refuse_non_finite(value: Any, path: str) -> None:
    if isinstance(value, dict):
        for key, item in value.items():
            refuse_non_finite(item, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            refuse_non_finite(item, f"{path}[{index}]")
    elif isinstance(value, float) and not math.isfinite(value):
        raise InputError(f"{path}: found {value}; a finite number is needed")
    elif isinstance(value, float) and abs(value) > HUGE:
        raise InputError(f"{path}: found {value}; at most {HUGE:g} is possible")


def convert(value: Any, f: Field, path: str) -> Any:
    """A plain value as the type of its field."""
    _refuse_unknown_in_tables(value, f.type, path)
    try:
        return msgspec.convert(_in_its_case(value, f.type), f.type)
    except msgspec.ValidationError as error:
        raise InputError(_explain(str(error), value, f.type, path)) from None


def _in_its_case(value: Any, kind: Any) -> Any:
    """A word that differs in its case alone from one that is allowed, as that one."""
    if not isinstance(value, str) or value in (allowed := _literals(msgspec.inspect.type_info(kind))):
        return value
    return next((word for word in allowed if word.casefold() == value.casefold()), value)


def _refuse_unknown_in_tables(value: Any, kind: Any, path: str) -> None:
    """Tables inside a value, of a schedule for example."""
    structs = list(_structs_in(kind))
    if isinstance(value, list):
        for index, part in enumerate(value):
            _refuse_unknown_in_tables(part, kind, f"{path}[{index}]")
    elif isinstance(value, dict) and structs:
        known = [f.encode_name for f in msgspec.structs.fields(structs[0])]
        for key in value:
            if key not in known:
                _refuse_unknown(key, f"{path}.", known, {})


def _structs_in(kind: Any) -> Iterator[type[msgspec.Struct]]:
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        yield kind
    for part in get_args(kind):
        yield from _structs_in(part)


_PLAIN = {
    "int": "a whole number", "float": "a number", "str": "a text", "bool": "true or false",
    "array": "a list", "object": "a table", "null": "nothing",
}  # fmt: skip

_PLAIN_KINDS: dict[Any, str] = {
    msgspec.inspect.FloatType: "a number",
    msgspec.inspect.StructType: "a table",
    msgspec.inspect.ListType: "a list",
}


def _explain(message: str, value: Any, kind: Any, path: str) -> str:
    """One sentence with the key's dotted path, what was found and what is allowed, from msgspec's message."""
    text, _, where = message.partition(" - at `$")
    inside = where.rstrip("`")
    found = value
    for name, index in re.findall(r"(\w+)|\[(\d+)\]", inside):
        found = found[int(index)] if index else found[name]
    path += inside
    if text.startswith("Invalid enum value") and (allowed := _literals(msgspec.inspect.type_info(kind))):
        others = [
            _PLAIN_KINDS[type(k)] for k in getattr(msgspec.inspect.type_info(kind), "types", ()) if type(k) in _PLAIN_KINDS
        ]
        return f"{path}: found {show(found)}; allowed: {', '.join([*others, *allowed])}{did_you_mean(found, allowed)}"
    if missing := re.match(r"Object missing required field `(\w+)`", text):
        return f"{path}.{missing[1]}: missing; {path} needs it"
    text = re.sub(r", got .*", "", text).removeprefix("Expected ")
    text = re.sub(r"`([^`]*)`", lambda m: " or ".join(_PLAIN.get(part, part) for part in m[1].split(" | ")), text)
    return f"{path}: found {show(found)}; expected {text.replace(' or nothing', '')}"


def _literals(kind: Any) -> list[str]:
    kinds = [getattr(k, "item_type", k) for k in getattr(kind, "types", (kind,))]
    return [str(value) for k in kinds for value in getattr(k, "values", ())]


def show(value: Any) -> str:
    """A value as a user would write it."""
    if isinstance(value, str):
        return f'"{value}"' if len(value) <= LONG_TEXT else f'"{value[:LONG_TEXT]}..."'
    if isinstance(value, bool):
        return str(value).lower()
    text = "a table" if isinstance(value, dict) else str(value)
    if len(text) <= LONG:
        return text
    return f"a list of {len(value)} parts" if isinstance(value, list) else f"{text[:LONG]}..."


def one_of(names: Iterable[str]) -> str:
    names = list(names)
    return ", ".join(names[:-1]) + " or " + names[-1] if len(names) > 1 else "".join(names)
