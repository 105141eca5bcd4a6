"""The generated part of the reference: keys from the option classes, commands from click, the result file from runs.

    ```{generated} configuration
    ```

stands for the Markdown that the function of that name below makes.
"""

import ast
import inspect
import io
import tokenize
from collections.abc import Iterator
from typing import Any, ClassVar, NamedTuple

import click
import msgspec
from docutils import nodes
from sphinx.util.docutils import SphinxDirective

import dpadmm_mpi
from dpadmm_mpi.cli.main import cli
from dpadmm_mpi.config.options import Choice, Choices, Field, Kind, Options, Part, fields_of
from dpadmm_mpi.config.reading import is_section
from dpadmm_mpi.config.schema import _property as schema_of
from dpadmm_mpi.methods.base import Config
from dpadmm_mpi.registry import REGISTRIES, first_line, load_all

ROOMS = ("data", "methods", "networks", "plots", "privacy", "problems")


def table(header: tuple[str, ...], rows: list[tuple[str, ...]]) -> list[str]:
    made = [f"| {' | '.join(cells)} |" for cells in (header, ("---",) * len(header), *(map(_cell, row) for row in rows))]
    return ["", *made, ""]


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ").strip() or " "


def code(text: str) -> str:
    return f"`{text}`" if text else ""


# Configuration


def comments(cls: type) -> dict[str, str]:
    """What the comment behind a field, or above it, says; fields of the classes above included."""
    found: dict[str, str] = {}
    for ancestor in reversed(cls.__mro__):
        if not ancestor.__module__.startswith("dpadmm_mpi."):
            continue
        lines, _ = inspect.getsourcelines(ancestor)
        text = inspect.cleandoc("".join(lines)) if lines[0].startswith(" ") else "".join(lines)
        said = {
            token.start[0]: token.string.lstrip("# ").strip()
            for token in tokenize.generate_tokens(io.StringIO(text).readline)
            if token.type == tokenize.COMMENT
        }
        alone = {place for place in said if text.splitlines()[place - 1].lstrip().startswith("#")}
        for node in ast.parse(text).body[0].body:  # type: ignore[attr-defined]
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                inside = [said[place] for place in range(node.lineno, (node.end_lineno or node.lineno) + 1) if place in said]
                above, place = [], node.lineno - 1
                while place in alone:
                    above.insert(0, said[place])
                    place -= 1
                if inside or above:
                    found[node.target.id] = " ".join([*above, *inside])
    return found


def values(part: dict[str, Any]) -> str:
    """A JSON schema in a few words."""
    if "anyOf" in part:
        return " or ".join(dict.fromkeys(words for each in part["anyOf"] if (words := values(each))))
    if "enum" in part:
        return ", ".join(code(str(name)) for name in part["enum"] if name is not None)
    kind = part.get("type")
    if kind == "array":
        return f"list of {values(part['items'])}" if part.get("items") else "list"
    if kind == "object":
        return f"table with {', '.join(map(code, part.get('properties', {})))}"
    words = {"integer": "whole number", "number": "number", "string": "text", "boolean": "`true` or `false`"}.get(str(kind), "")
    signs = {"exclusiveMinimum": ">", "minimum": ">=", "exclusiveMaximum": "<", "maximum": "<="}
    limits = [f"{sign} {part[name]:g}" for name, sign in signs.items() if name in part and abs(part[name]) < 2**62]
    return f"{words} {' and '.join(limits)}".strip()


class Key(NamedTuple):
    name: str
    values: str
    default: str
    words: str


def key_of(field: Field, words: str) -> Key:
    if isinstance(field.role, Choice):
        names = ", ".join(map(code, field.role.registry))
        return Key(field.name, f"one of {names}", code(_usual(field)), words)
    if isinstance(field.role, Choices):
        return Key(field.name, f"list of names, or of tables with `{field.role.key}`", "unset", words)
    if isinstance(field.role, Kind):
        return Key(field.name, f"a number, or a table with `kind`: {', '.join(map(code, field.role.names))}", "unset", words)
    if is_section(field.type) and isinstance(field.default, Options):
        return Key(field.name, "a section of its own", "unset", words)
    return Key(field.name, values(schema_of(field)), _default(field), words)


def _usual(field: Field) -> str:
    return "" if field.required else field.role.registry.name_of(type(field.default))  # type: ignore[union-attr]


def _default(field: Field) -> str:
    if field.required:
        return "needed"
    if field.default is None:
        return "unset"
    value = msgspec.to_builtins(field.default)
    return code(str(value).lower() if isinstance(value, bool) else str(value))


def keys(cls: type[Options]) -> Iterator[Key]:
    said = comments(cls)
    for field in fields_of(cls):
        if not isinstance(field.role, Part):
            yield key_of(field, said.get(field.name, ""))


def choices(cls: type[Options]) -> Iterator[tuple[str, str, list[tuple[str, type[Options]]]]]:
    """Every choice of a section, those of what is chosen included: key, words, and the classes by their names."""
    for field in fields_of(cls):
        if isinstance(field.role, Choice | Choices):
            classes = [(str(name), each) for name, each in field.role.registry.items()]
        elif isinstance(field.role, Part):
            classes = [(name, each) for name, each in field.role.candidates()]
        else:
            continue
        yield field.name, "by method" if isinstance(field.role, Part) else "", classes
        inner = dict.fromkeys(found for _, each in classes for found in _inner(each))
        for name, among in inner:
            yield name, "", list(among)


def _inner(cls: type[Options]) -> list[tuple[str, tuple[tuple[str, type[Options]], ...]]]:
    return [(name, tuple(classes)) for name, _, classes in choices(cls)]


HEADER = ("key", "values", "default", "what")


def keys_table(found: Iterator[Key] | list[Key]) -> list[str]:
    return table(HEADER, [(code(key.name), key.values, key.default, key.words) for key in found])


def configuration() -> str:
    """Every section, and every key of everything that can be chosen in it."""
    load_all()
    sections = [field for field in fields_of(Config) if is_section(field.type)]
    names = {field.name for field in sections}
    lines = ["## Before the first section", *keys_table([key for key in keys(Config) if key.name not in names])]
    for section in sections:
        lines += [f"## `[{section.name}]`", "", first_line(section.type), *keys_table(keys(section.type))]
        seen = set()
        for key, by, classes in choices(section.type):
            if key in seen:
                continue
            seen.add(key)
            lines += _choice(section.name, key, by, classes)
        for inner in fields_of(section.type):
            if is_section(inner.type):
                lines += _inner_section(f"{section.name}.{inner.name}", inner.type)
    return "\n".join(lines)


def _inner_section(name: str, cls: type[Options]) -> list[str]:
    """A section inside another one; what its keys name has its options in tables of their own."""
    lines = [f"### `[{name}]`", "", first_line(cls), *keys_table(keys(cls))]
    shown: dict[tuple[str, ...], str] = {}  # the key that has shown these kinds
    for field in fields_of(cls):
        if not isinstance(field.role, Kind):
            continue
        if (kinds := tuple(field.role.names)) in shown:
            lines += ["", f"#### `{name}.{field.name}`", "", f"The kinds of `{shown[kinds]}`."]
            continue
        shown[kinds] = f"{name}.{field.name}"
        classes = [(kind, field.role.registry[kind]) for kind in kinds]
        words = f"A number is short for `{field.role.number}` of `{field.role.usual}`."
        lines += ["", *_choice(name, field.name, "", classes, level="####", keys_are="Its keys, beside `kind`:"), "", words]
    return lines


def _choice(
    section: str,
    key: str,
    by: str,
    classes: list[tuple[str, type[Options]]],
    level: str = "###",
    keys_are: str = "Keys beside it, in the same section:",
) -> list[str]:
    if by:
        lines = [f"### More keys of `[{section}]`, by method"]
    else:
        lines = [
            f"{level} `{section}.{key}`",
            *table(("name", "what it is"), [(code(name), first_line(c)) for name, c in classes]),
        ]
    owners: dict[Key, list[str]] = {}
    for name, cls in classes:
        for found in keys(cls):
            owners.setdefault(found, []).append(name)
    if not owners:
        return lines
    rows = [
        (code(found.name), "all" if len(names) == len(classes) else ", ".join(dict.fromkeys(names)), *found[1:])
        for found, names in owners.items()
    ]
    return [*lines, "", keys_are, *table(("key", "of", *HEADER[1:]), rows)]


# Commands


def commands() -> str:
    """Every command with its options."""
    lines: list[str] = []
    context = click.Context(cli, info_name="dpadmm")
    for name in cli.list_commands(context):
        command = cli.get_command(context, name)
        assert command is not None
        lines += _command(command, click.Context(command, info_name=name, parent=context), 2)
    return "\n".join(lines)


def _command(command: click.Command, context: click.Context, level: int) -> list[str]:
    usage = command.get_usage(context).removeprefix("Usage: ")
    lines = [
        f"{'#' * level} `{context.command_path}`",
        "",
        "```text",
        " ".join(usage.split()),
        "```",
        "",
        *_help(command.help or ""),
    ]
    rows = [_option(option, context) for option in command.params if isinstance(option, click.Option)]
    lines += table(("option", "what"), rows)
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            if inner is not None:
                lines += _command(inner, click.Context(inner, info_name=name, parent=context), level + 1)
    return lines


def _help(text: str) -> list[str]:
    """Paragraphs; what stands behind a \\b is printed as it is."""
    lines = []
    for paragraph in inspect.cleandoc(text).split("\n\n"):
        if paragraph.startswith("\b\n"):
            printed = paragraph.splitlines()[1:]
            lines += ["```sh" if printed[0].startswith(("dpadmm", "mpiexec")) else "```text", *printed, "```", ""]
        else:
            lines += [paragraph.replace("<", "\\<").replace("*", "\\*"), ""]
    return lines


def _option(option: click.Option, context: click.Context) -> tuple[str, str]:
    names, words = option.get_help_record(context) or (", ".join(option.opts), option.help or "")
    return code(names.replace("`", "'")), words


# The result file

_SMALL = {"records": 120, "features": 3}
_EXAMPLES: dict[str, dict[str, Any]] = {
    "network": {
        "algorithm": {"method": "mr-admm"},
        "privacy": {"perturbation": "objective", "target": 2.0, "target_account": "epsilon"},
        "release": {"average": "half", "consensus": 2},
    },
    "star": {"algorithm": {"method": "ps-admm", "inner_steps": 5}, "privacy": {"perturbation": "gaussian", "target": 2.0}},
    "curated": {"algorithm": {"method": "dp-admm"}, "privacy": {"perturbation": "gaussian", "target": 2.0}},
}


def result_file() -> str:
    """Every object of small runs of the three families: its dimensions, and what it says of itself."""
    objects: dict[str, tuple[str, str, list[str]]] = {}
    attributes: dict[str, list[str]] = {}
    for family, config in _EXAMPLES.items():
        record = {"trajectory": True, "optimum": True}
        result = dpadmm_mpi.run({"iterations": 4, "data": _SMALL, "record": record, **config})
        for name in sorted(result.arrays):
            about = result.attributes.get(name, {})
            said = str(about.get("long_name") or about.get("description") or _scale(name, result.dims[name]))
            objects.setdefault(name, (", ".join(result.dims[name]), said, []))[2].append(family)
        for name, value in sorted(result.attributes["/"].items()):
            attributes.setdefault(name, []).append(str(value).splitlines()[0][:60] if str(value) else "")
    lines = ["## Datasets", *table(("dataset", "dimensions", "what", "families"), [_object(n, *o) for n, o in objects.items()])]
    lines += [
        "## Attributes of the file",
        *table(("attribute", "example"), [(code(n), code(v[0])) for n, v in attributes.items()]),
    ]
    return "\n".join(lines)


def _scale(name: str, dims: tuple[str, ...]) -> str:
    return "dimension scale" if dims == (name,) else ""


def _object(name: str, dims: str, words: str, families: list[str]) -> tuple[str, ...]:
    return code(f"/{name}"), dims, words, "all" if len(families) == len(_EXAMPLES) else ", ".join(families)


# The programming interface


def functions() -> str:
    """Those at the front door."""
    found = [name for name in dpadmm_mpi.__all__ if inspect.isfunction(getattr(dpadmm_mpi, name))]
    return "\n".join(["```{eval-rst}", *(f".. autofunction:: dpadmm_mpi.{name}" for name in sorted(found, key=_fame)), "```"])


def _fame(name: str) -> tuple[bool, str]:
    return name != "run", name


def estimators() -> str:
    """Without what they have from scikit-learn."""
    lines = ["```{eval-rst}"]
    for name in dpadmm_mpi.__all__:
        found = getattr(dpadmm_mpi, name)
        if getattr(found, "__module__", "") == "dpadmm_mpi.api.estimators":
            own = [
                each for each, member in inspect.getmembers(found, inspect.isfunction) if member.__module__ == found.__module__
            ]
            shown = ", ".join(each for each in own if not each.startswith("_"))
            lines += [f".. autoclass:: dpadmm_mpi.{name}", f"   :members: {shown}", ""]
    return "\n".join([*lines, "```"])


def decorators() -> str:
    """What each of them registers, and what the class must derive from."""
    load_all()
    by_registrar = {registry: plural for plural, registry in REGISTRIES.items()}
    rows = []
    for name in dpadmm_mpi.__all__:
        registry = getattr(getattr(dpadmm_mpi, name), "__self__", None)
        if registry in by_registrar:
            base = registry._base
            rows.append(
                (code(f'@dp.{name}("NAME")'), code(f"{base.__module__}.{base.__qualname__}"), ", ".join(map(code, registry)))
            )
    return "\n".join(table(("decorator", "the class derives from", "those of the package"), rows))


def rooms() -> str:
    """The public names of the rooms: functions with their docstrings, classes in a table."""
    lines: list[str] = []
    for room in ROOMS:
        module = getattr(dpadmm_mpi, room)
        public = {name: getattr(module, name) for name in module.__all__}
        lines += [f"## `dpadmm_mpi.{room}`", "", first_line(module), ""]
        classes = [(code(name), first_line(found)) for name, found in public.items() if inspect.isclass(found)]
        lines += table(("class", "what"), classes)
        for name, found in public.items():
            if inspect.isfunction(found):
                lines += ["```{eval-rst}", f".. autofunction:: dpadmm_mpi.{room}.{name}", "```", ""]
    return "\n".join(lines)


class Generated(SphinxDirective):
    required_arguments = 1
    makers: ClassVar = {
        maker.__name__: maker for maker in (configuration, commands, result_file, functions, estimators, decorators, rooms)
    }

    def run(self) -> list[nodes.Node]:
        self.env.note_reread()  # what it is made from is not a file of the site
        return self.parse_text_to_nodes(self.makers[self.arguments[0]](), allow_section_headings=True)


def setup(app: Any) -> dict[str, bool]:
    app.add_directive("generated", Generated)
    return {"parallel_read_safe": True}
