"""Docstrings as this package has them: numpy's sections, in which `name : words` describes a parameter, not its type."""

import re
from collections.abc import Iterator
from typing import Any

FIELDS = {"Parameters": "param", "Attributes": "var", "Raises": "raises"}
ENTRY = re.compile(r"^(?P<names>[*\w]+(?:, [*\w]+)*)(?: : (?P<words>.*))?$")


def sections(lines: list[str]) -> Iterator[tuple[str, list[str]]]:
    """Title and lines of each section; the first has no title."""
    title, found = "", []
    for place, line in enumerate(lines):
        below = lines[place + 1] if place + 1 < len(lines) else ""
        if line and len(below) >= 3 and set(below) == {"-"}:
            yield title, found
            title, found = line.strip(), []
        elif not (line and set(line) == {"-"}):
            found.append(line)
    yield title, found


def entries(lines: list[str]) -> list[tuple[str, list[str]]]:
    """Names and words of each entry of a section; words that belong to no name have the name ""."""
    found: list[tuple[str, list[str]]] = []
    for line in lines:
        match = ENTRY.match(line) if line and not line.startswith(" ") else None
        if match and (match["words"] or not found or " " not in line):
            found.append((match["names"], [match["words"]] if match["words"] else []))
        elif line.strip():
            found = found or [("", [])]
            found[-1][1].append(line.strip())
    return found


def plain(text: str) -> str:
    """What reStructuredText would take for markup; code in backticks stays as it is."""
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(part if place % 2 else re.sub(r"([*|_\\])", r"\\\1", part) for place, part in enumerate(parts))


def as_rst(lines: list[str]) -> list[str]:
    made: list[str] = []
    for title, body in sections(lines):
        if title in FIELDS:
            for names, words in entries(body):
                made.append(f":{FIELDS[title]} {plain(names)}: {plain(' '.join(words))}")
            made.append("")
        elif title == "Returns":
            made += [f":returns: {plain(' '.join(line.strip() for line in body if line.strip()))}", ""]
        elif title:
            made += ["", f".. rubric:: {title}", "", *body, ""]
        else:
            made += [line if line.lstrip().startswith((">>>", "...")) else plain(line) for line in body]
    return made


def on_docstring(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    lines[:] = as_rst(list(lines))


def setup(app: Any) -> dict[str, bool]:
    app.connect("autodoc-process-docstring", on_docstring)
    return {"parallel_read_safe": True}
