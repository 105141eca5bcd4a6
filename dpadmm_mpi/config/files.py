"""From a table with variants, a sweep and `--set` to a list of configurations.

What a configuration consists of is not known here: a `Grammar` says it.
"""

import hashlib
import itertools
import math
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

from dpadmm_mpi.config import extensions
from dpadmm_mpi.config.extensions import Extension
from dpadmm_mpi.config.options import Choice, Kind, Options, fields_of
from dpadmm_mpi.config.ranges import in_section
from dpadmm_mpi.config.reading import Ruling, Table, is_section, keys_of, refuse_unfit
from dpadmm_mpi.errors import InputError, advice_on, reason_of
from dpadmm_mpi.files import read_text, refuse_special, resolved, size_of

R = TypeVar("R", bound=Options)
Setting = tuple[str, Any]  # a dotted key and its value

LARGEST = 16 << 20  # bytes of a configuration file
MOST = 10_000  # variants and points of a sweep
LONGEST_NAME = 200  # letters of a file's name; file systems have 255, of which some are for what lies beside it
_DEVICES = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\..*)?", re.IGNORECASE)


@dataclass(frozen=True)
class Grammar(Generic[R]):
    """What a configuration is made of."""

    root: type[R]
    parse: Callable[[Table, tuple[Extension, ...]], R]  # with the extensions that were loaded for it
    ruling: Callable[[Table], Ruling | None]  # what the method of a table decides about the others; None: it has none
    inherit: Callable[[Table, Table], Table]  # the first table as the second one inherits it; refuses what must be said
    leaves_behind: Mapping[tuple[str, str], tuple[str, ...]]  # naming a key leaves these inherited ones of its section behind

    @property
    def sections(self) -> dict[str, type[Options]]:
        return {f.name: f.type for f in fields_of(self.root) if is_section(f.type)}


class Refused(NamedTuple):
    """A variant or point of a sweep that is no configuration."""

    number: int  # among all configurations, from 0
    name: str
    table: Table
    reason: str


class Experiment(NamedTuple, Generic[R]):
    name: str
    configs: list[R]
    collection: bool  # has variants or a sweep: its results are a folder
    refused: list[Refused]  # only where they are asked for: otherwise one is an error


class RawConfig(NamedTuple):
    """A table, and where it comes from."""

    raw: Table
    folder: Path
    stem: str


def read_table(path: Path, text: str | None = None) -> RawConfig:
    """A TOML file; or `text`, where the file is not one itself but holds one."""
    where = str(path) if text is None else f"the configuration in {path}"
    if text is None:
        try:
            refuse_special(path)
            if (size := size_of(path)) > LARGEST:
                raise InputError(f"{path}: {size >> 20} MB, and a configuration has at most {LARGEST >> 20}; is it one?")
            text = read_text(path, "utf-8-sig")
        except FileNotFoundError:
            raise InputError(f"{path}: no such configuration file") from None
        except OSError as error:
            raise InputError(f"{path}: cannot be read ({reason_of(error)}); {advice_on(error)}") from None
        except UnicodeDecodeError as error:
            raise InputError(f"{path}: cannot be read as a configuration: byte {error.start} is no text in UTF-8") from None
        except ValueError as error:  # of the path
            raise InputError(f"{path}: cannot be read as a configuration ({error})") from None
    try:
        raw = _from_toml(text)
    except ValueError as error:
        raise InputError(f"{where}: not valid TOML: {error}") from None
    return RawConfig(raw, resolved(path).parent, path.stem.encode(errors="backslashreplace").decode())


def _from_toml(text: str) -> Table:
    """ValueError where it is none: tomllib has that for what is not TOML, and for numbers and dates that do not exist."""
    try:
        raw = tomllib.loads(text)
    except RecursionError:
        raise ValueError("lists or tables are nested too deeply") from None
    refuse_unfit(raw)
    return raw


def from_python(table: Mapping[str, Any]) -> RawConfig:
    """A dictionary from Python as TOML would have it: numpy's numbers, paths and tuples are welcome."""
    raw = plain(table)
    refuse_unfit(raw)
    return RawConfig(raw, Path.cwd(), "run")


def load_extensions(source: RawConfig, more: Iterable[str] = ()) -> tuple[Extension, ...]:
    """Import the extensions that a table names, and `more`, meant from the current folder."""
    named = extensions.paths_in(source.raw.get("extensions", []), source.folder)
    return extensions.load([*named, *extensions.paths_in(list(more), Path.cwd())])


def configurations(
    source: RawConfig,
    grammar: Grammar[R],
    overrides: Iterable[str | Setting] = (),
    only: str | None = None,
    loaded: tuple[Extension, ...] = (),
    tolerant: bool = False,
) -> Experiment[R]:
    """One configuration, or one per variant and point of the sweep.

    `tolerant`: as long as some of several can be, those that cannot are listed, not raised.
    """
    raw = {"name": source.stem} | {key: value for key, value in source.raw.items() if key != "extensions"}
    in_section({"tune": raw.pop("tune", {})})  # what `dpadmm tune` searches: checked here, used there
    variants, sweep = _variants_and_sweep(raw)
    changes = [_parse_override(each) if isinstance(each, str) else (each[0], plain(each[1])) for each in overrides]
    axes = {key: values for key, values in _sweep_axes(sweep).items() if key not in {key for key, _ in changes}}
    _refuse_too_many(len(variants or ({},)) * math.prod(map(len, axes.values())))
    names: dict[str, str] = {}  # by the file's name, in small letters: some file systems do not tell them apart
    configs: list[R] = []
    refused: list[Refused] = []
    for index, variant, settings in _points(variants, axes):
        if variants and "name" not in variant:
            raise InputError(f"variant[{index}].name: missing; every [[variant]] needs a name of its own")
        # What one place says must agree with itself; only what it inherits is left behind.
        tables = (variant, nested(settings), nested(changes))
        name = _name_of(tables, str(raw["name"]), settings)
        label = f'variant "{name}": ' if variants or axes else ""
        if (file := slug(name).lower()) in names:
            raise InputError(f'{label}another variant has this name or the same file name "{slug(name)}"; rename one')
        names[file] = name
        # One by its name, or all points of a variant. The others need not take what --set says of these.
        if only is not None and only not in (name, variant.get("name")):
            continue
        merged = raw
        try:
            for table in tables:
                merged = _overlay(merged, table, grammar)
            configs.append(grammar.parse(_with_absolute_paths(merged | {"name": name}, source.folder, grammar), loaded))
        except InputError as error:
            if not tolerant:
                raise InputError(f"{label}{error}") from None
            refused.append(Refused(len(configs) + len(refused), name, merged | {"name": name}, str(error)))
    if refused and not configs:
        raise InputError(f'variant "{refused[0].name}": {refused[0].reason}' if variants or axes else refused[0].reason)
    if only is not None and not configs:
        quoted = ", ".join(f'"{name}"' for name in names.values())
        raise InputError(f'--only "{only}": no such variant; there are {quoted}')
    return Experiment(str(raw["name"]), configs, bool(variants or axes), refused)


def _name_of(tables: tuple[Table, Table, Table], name: str, settings: list[Setting]) -> str:
    """The last name that is given; behind it the point of a sweep, unless --set gives it."""
    variant, point, changed = tables
    if "name" in changed:
        return str(changed["name"])
    name = str(point.get("name", variant.get("name", name)))
    return name + "".join(f", {key.split('.')[-1]}={in_a_name(value)}" for key, value in settings)


def _points(variants: list[Table] | None, axes: dict[str, list[Any]]) -> Iterator[tuple[int, Table, list[Setting]]]:
    """Every variant at every point of the sweep: its number, its table, and the settings of the point."""
    for index, variant in enumerate(variants or ({},)):
        for point in itertools.product(*axes.values()):
            yield index, variant, list(zip(axes, point, strict=True))


def _variants_and_sweep(raw: Table) -> tuple[list[Table] | None, Table]:
    variants: Any = raw.pop("variant", None)
    sweep: Any = raw.pop("sweep", {})
    if variants is not None and not (isinstance(variants, list) and variants and all(isinstance(v, dict) for v in variants)):
        raise InputError("variant: found something other than [[variant]] tables; write each as [[variant]]")
    if not isinstance(sweep, dict):
        raise InputError('sweep: found something other than a table; write [sweep] with lines like "privacy.alpha" = [1, 2]')
    return variants, sweep


def _refuse_too_many(count: int) -> None:
    if count > MOST:
        raise InputError(f"sweep: there would be {count:,} configurations; at most {MOST:,} are possible")


def slug(name: str) -> str:
    """A file name for a configuration's name, which stays in its folder whatever the name is.

    >>> slug("../../etc/passwd"), slug("alpha = 1"), slug("con"), slug("..")
    ('etc-passwd', 'alpha-=-1', 'con-', 'run')
    """
    plain = re.sub(r"[^A-Za-z0-9._=+-]+", "-", name).strip("-.") or "run"
    if len(plain) > LONGEST_NAME:
        digest = hashlib.sha256(name.encode(errors="surrogatepass")).hexdigest()[:12]
        plain = f"{plain[: LONGEST_NAME - len(digest) - 1]}-{digest}"
    return f"{plain}-" if _DEVICES.fullmatch(plain) else plain  # names that mean a device elsewhere


def plain(value: Any) -> Any:
    """A value from Python as TOML would have it."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, Path):
        return str(value)
    return value.tolist() if hasattr(value, "tolist") else value


def _parse_override(text: str) -> tuple[str, Any]:
    key, equals, value = text.partition("=")
    key = key.strip()
    if not equals or not key:
        raise InputError(f'--set {text}: found no "="; write --set section.key=value')
    try:
        return key, _from_toml(f"value = {value}")["value"]
    except ValueError:
        refuse_unfit({key: value})
        return key, value.strip()  # a word without quotes


def _sweep_axes(sweep: Table, prefix: str = "") -> dict[str, list[Any]]:
    """Dotted keys, quoted or not, to their lists."""
    axes: dict[str, list[Any]] = {}
    for key, value in sweep.items():
        if isinstance(value, dict):
            axes |= _sweep_axes(value, f"{prefix}{key}.")
        elif isinstance(value, list) and value:
            axes[f"{prefix}{key}"] = value
        else:
            raise InputError(f"sweep.{prefix}{key}: found {value}; a list with at least one value is needed")
    return axes


def nested(settings: list[tuple[str, Any]]) -> Table:
    """Dotted keys as tables; of two settings of one key the later one counts."""
    tables: Table = {}
    for key, value in settings:
        *sections, name = key.split(".")
        inner = tables
        for section in sections:
            inner = inner.setdefault(section, {})
            if not isinstance(inner, dict):
                raise InputError(f"{key}: {section} is set as a whole already; set one or the other")
        inner[name] = value
    return tables


def _overlay(base: Table, extra: Table, grammar: Grammar[R]) -> Table:
    """`extra` on top of `base`, key by key within a section.

    An inherited key that a new choice gives no meaning to is left behind: a variant with method = "admm" does not
    inherit the gamma of "r-admm", and one with method = "ps-admm" neither the graph nor another kind of noise.
    """
    base = grammar.inherit(base, extra)
    merged = dict(base)
    for name in dict.fromkeys([*base, *extra]):
        table, inherited = extra.get(name, {}), base.get(name)
        if isinstance(table, dict) and isinstance(inherited, dict):
            merged[name] = _joined(grammar.sections.get(name), _without_alternatives(name, inherited, table, grammar), table)
        elif name in extra:
            merged[name] = table
    before, after = grammar.ruling(base), grammar.ruling(merged)
    for name, cls in grammar.sections.items():
        if before is not None and after is not None and isinstance(merged.get(name), dict) and isinstance(base.get(name), dict):
            said = extra.get(name) if isinstance(extra.get(name), dict) else {}
            merged[name] = _with_meaning(name, cls, (base[name], before), (merged[name], after), said or {})
    return merged


def _joined(cls: type[Options] | None, inherited: Table, table: Table) -> Table:
    """Key by key, also in sections inside this one; any other table takes the place of what was there."""
    inner = {} if cls is None else {f.name: f.type for f in fields_of(cls) if is_section(f.type)}
    deeper = {
        name: _joined(kind, inherited[name], table[name])
        for name, kind in inner.items()
        if isinstance(inherited.get(name), dict) and isinstance(table.get(name), dict)
    }
    return inherited | table | deeper


def _without_alternatives(section: str, inherited: Table, table: Table, grammar: Grammar[R]) -> Table:
    """Of two ways to say the same thing, naming one leaves an inherited other behind."""
    left = {
        key
        for new, value in table.items()
        for key in grammar.leaves_behind.get((section, new), ())
        if key in inherited and not _is_shape_only(value) and not _is_shape_only(inherited[key])
    }
    return {key: value for key, value in inherited.items() if key not in left}


def _is_shape_only(value: Any) -> bool:
    """A schedule that says how it grows and leaves its size to a target, { ratio = 1.01 }."""
    return isinstance(value, dict) and "first" not in value


def _with_meaning(
    section: str, cls: type[Options], before: tuple[Table, Ruling], after: tuple[Table, Ruling], said: Table
) -> Table:
    """The section without inherited keys that had a meaning before, and have none any more."""
    table = dict(after[0])
    for f in fields_of(cls):
        taken, takes = (ruling.takes.get(f"{section}.{f.name}", (Options,)) for ruling in (before[1], after[1]))
        if isinstance(f.role, Choice) and f.name in table and f.name not in said:
            chosen = f.role.registry.find(table[f.name]) if isinstance(table[f.name], str) else None
            if chosen is not None and issubclass(chosen, taken) and not issubclass(chosen, takes):
                del table[f.name]
    known_before, known = keys_of(cls, section, *before), keys_of(cls, section, table, after[1])
    if known is None:
        return table
    had_meaning = list(before[0]) if known_before is None else known_before
    return {key: value for key, value in table.items() if key in said or key in known or key not in had_meaning}


def _with_absolute_paths(raw: Table, folder: Path, grammar: Grammar[R]) -> Table:
    """Relative paths are meant from the configuration's folder; absolute, they can be run again from anywhere."""
    raw = dict(raw)
    for section, cls in grammar.sections.items():
        table = raw.get(section)
        if not isinstance(table, dict):
            continue
        raw[section] = _with_paths_from(folder, cls, table)
    return raw


def _with_paths_from(folder: Path, cls: type[Options], table: Table) -> Table:
    own = {f.name for f in fields_of(cls) if not f.is_path}
    texts = {key for key, value in table.items() if isinstance(value, str) and key not in own}
    made = dict(table)
    if texts:  # otherwise the classes that might have such a key need not be loaded
        made |= {key: str(resolved(folder / Path(table[key]).expanduser())) for key in texts & path_keys(cls)}
    for f in fields_of(cls):
        inner = table.get(f.name)
        if not isinstance(inner, dict):
            continue
        if is_section(f.type):
            made[f.name] = _with_paths_from(folder, f.type, inner)
        elif isinstance(f.role, Kind) and isinstance(name := inner.get("kind"), str):
            chosen = f.role.registry.find(name)
            made[f.name] = inner if chosen is None else _with_paths_from(folder, chosen, inner)
    return made


def path_keys(cls: type[Options]) -> set[str]:
    """The keys of a section that name files, whatever is chosen."""
    found = set()
    for f in fields_of(cls):
        if f.is_path:
            found.add(f.name)
        inner = f.role.registry.items() if isinstance(f.role, Choice) else getattr(f.role, "candidates", list)()
        for _, alternative in inner:
            found |= path_keys(alternative)
    return found


def dotted(table: Table) -> dict[str, Any]:
    """The settings of a configuration by dotted key.

    >>> dotted({"seed": 1, "privacy": {"alpha": 2.0}})
    {'seed': 1, 'privacy.alpha': 2.0}
    """
    flat: dict[str, Any] = {}
    for key, value in table.items():
        flat |= {f"{key}.{name}": item for name, item in value.items()} if isinstance(value, dict) else {key: value}
    return flat


def in_a_name(value: Any) -> str:
    """A value of a sweep as names of configurations have it."""
    return re.sub(r"[\s\"'{}\[\]]+", "", str(value)).replace(":", "=")
