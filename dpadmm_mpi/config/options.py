"""Options: a frozen class whose fields are the keys of a section, with type, default and limits.

A field may itself be a choice among registered classes; the keys of what was chosen lie in the same section, beside it:

    class Network(Options):
        graph: Annotated[Graph, Choice(graphs)] = Ring()

reads `[network] graph = "small-world", nodes = 20, rewiring = 0.2`.
"""

from abc import ABCMeta
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import Annotated, Any, Literal, dataclass_transform, get_args, get_origin

import msgspec
from msgspec import Meta, Struct, StructMeta

from dpadmm_mpi.registry import Registry

Positive = Annotated[float, Meta(gt=0)]
Moderate = Annotated[float, Meta(ge=1e-30, le=1e30)]  # its squares and what is made of them stay numbers
NonNegative = Annotated[float, Meta(ge=0)]
Fraction = Annotated[float, Meta(gt=0, le=1)]
OpenFraction = Annotated[float, Meta(gt=0, lt=1)]
Probability = Annotated[float, Meta(ge=0, le=1)]
Delta = Annotated[float, Meta(ge=1e-30, lt=1)]
Count = Annotated[int, Meta(ge=1)]
Place = Annotated[int, Meta(ge=0)]  # the number of a node
Seed = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Name = Annotated[str, Meta(min_length=1)]
Auto = Literal["auto"]


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(msgspec.field,))
class OptionsMeta(StructMeta, ABCMeta):
    """Every subclass is frozen and takes keywords only, without saying so again."""

    def __new__(mcls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **settings: Any) -> "OptionsMeta":
        settings = {"frozen": True, "kw_only": True, "forbid_unknown_fields": True, **settings}
        return super().__new__(mcls, name, bases, namespace, **settings)


class Options(Struct, metaclass=OptionsMeta):
    """Base of everything that a configuration can choose or set."""

    def check(self) -> None:
        """Refuse values that do not go together, by InputError with the key; called once all are known."""


class Choice(Struct, frozen=True):
    """Marks a field that names one of the registered classes; its options lie beside it, in the same section."""

    registry: Registry[Any]


class Choices(Struct, frozen=True):
    """Marks a field that lists registered classes, each by its name or as a table with the name under `key`."""

    registry: Registry[Any]
    key: str


class Part(Struct, frozen=True):
    """Marks a field whose options lie in the same section and whose class a choice of another section decides on."""

    candidates: Callable[[], Iterable[tuple[str, "type[Options]"]]]  # that choice's names, and the class with each


class Kind(Struct, frozen=True):
    """Marks a field that names one of the registered classes in a table of its own, or by a number; or None.

    { kind = "NAME", ... } holds the options of what was chosen; a number alone is short for the option `number` of the class
    `usual`, and 0 for nothing at all.
    """

    registry: Registry[Any]
    role: type["Options"]  # what a class must derive from to stand here
    usual: str
    number: str

    @property
    def names(self) -> list[str]:
        return [name for name, cls in self.registry.items() if issubclass(cls, self.role)]


class File(Struct, frozen=True):
    """Marks a key that names a file, meant from the configuration's folder."""


class NoKey(Struct, frozen=True):
    """Marks a field that no key sets: another section decides on it."""


FilePath = Annotated[str, File()]


class Field(Struct, frozen=True):
    """One key of a section."""

    name: str
    type: Any
    default: Any  # msgspec.NODEFAULT: it is needed
    role: Choice | Choices | Kind | Part | None  # None: a plain value
    is_path: bool

    @property
    def required(self) -> bool:
        return self.default is msgspec.NODEFAULT


@cache
def fields_of(cls: type[Options]) -> tuple[Field, ...]:
    """The keys of a class of options, in their order."""
    found = []
    for field in msgspec.structs.fields(cls):
        default = field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()
        marks = list(_marks(field.type))
        if any(isinstance(mark, NoKey) for mark in marks):
            continue
        role = next((mark for mark in marks if isinstance(mark, Choice | Choices | Kind | Part)), None)
        found.append(Field(field.name, field.type, default, role, any(isinstance(mark, File) for mark in marks)))
    return tuple(found)


def _marks(kind: Any) -> Iterator[object]:
    """What Annotated says of a type, or of the parts of a union."""
    if get_origin(kind) is Annotated:
        yield from kind.__metadata__
        kind = get_args(kind)[0]
    if get_args(kind) and get_origin(kind) is not list:
        for part in get_args(kind):
            yield from _marks(part)


def names_in(options: Options) -> Iterator[tuple[str, Options, Registry[Any]]]:
    """Every choice that was made: its key, what was chosen, and among what."""
    for field in fields_of(type(options)):
        value = getattr(options, field.name)
        if isinstance(field.role, Choice):
            yield field.name, value, field.role.registry
            yield from names_in(value)
        elif isinstance(field.role, Choices):
            for each in value or ():
                yield field.name, each, field.role.registry
        elif isinstance(field.role, Kind):
            if value is not None:
                yield field.name, value, field.role.registry
        elif isinstance(value, Options):
            yield from names_in(value)


def to_table(options: Options) -> dict[str, Any]:
    """The section as a plain table, from which the same options can be read; what is None, or empty, is left out."""
    table: dict[str, Any] = {}
    for field in fields_of(type(options)):
        value = getattr(options, field.name)
        if isinstance(field.role, Choice):
            table[field.name] = field.role.registry.name_of(type(value))
        if isinstance(field.role, Choice | Part):
            table |= to_table(value)
        elif value is not None and (written := _written(value, field)) != {}:
            table[field.name] = written
    return table


def _written(value: Any, field: Field) -> Any:
    if isinstance(field.role, Choices):
        return [_entry(each, field.role) for each in value]
    if isinstance(field.role, Kind):
        return {"kind": field.role.registry.name_of(type(value))} | to_table(value)
    return to_table(value) if isinstance(value, Options) else without_none(msgspec.to_builtins(value))


def _entry(options: Options, among: Choices) -> Any:
    name, table = among.registry.name_of(type(options)), to_table(options)
    return {among.key: name} | table if table else name


def without_none(value: Any) -> Any:
    """TOML has no word for nothing."""
    if isinstance(value, dict):
        return {key: without_none(item) for key, item in value.items() if item is not None}
    return [without_none(item) for item in value] if isinstance(value, list) else value
