"""Where in a TOML file a key stands, for errors that name it."""

import re
from pathlib import Path

from dpadmm_mpi.errors import InputError
from dpadmm_mpi.files import read_text

_HEADER = re.compile(r"\s*\[{1,2}\s*([^\[\]]+?)\s*\]{1,2}\s*(#.*)?$")
_KEY = re.compile(r"""\s*((?:[\w.-]|"[^"]*"|'[^']*')+)\s*=\s*(.*)""")
_ERROR = re.compile(r'(?:variant "(?P<variant>.*?)": )?(?P<key>[A-Za-z_][\w-]*(?:\[\d+\])?(?:\.[\w-]+(?:\[\d+\])?)*): ')
_PLACED = re.compile(r"\(.*, lines? [\d, ]+\)$")
MANY = 3  # lines that are still of help


def with_place(error: InputError, path: Path, said_elsewhere: tuple[str, ...] = ()) -> InputError:
    """The error with the file and the line of the key that it begins with; as it is, where there is none.

    `said_elsewhere`: keys that the command line has set, in the file's place.
    """
    found = _ERROR.match(str(error))
    if path.suffix != ".toml" or found is None or _PLACED.search(str(error)):
        return error
    key = re.sub(r"\[\d+\]", "", found["key"])
    try:
        lines = [] if key in said_elsewhere else lines_of(read_text(path, "utf-8-sig"), key)
    except (OSError, ValueError):
        return error
    if not 0 < len(lines) <= MANY:
        return error
    placed = type(error)(f"{error} ({path}, {'line' if len(lines) == 1 else 'lines'} {', '.join(map(str, lines))})")
    placed.everywhere, placed.told = error.everywhere, error.told
    return placed


def lines_of(text: str, key: str) -> list[int]:
    """The lines that give a dotted key its value, in variants and sweeps too; if none does, those that begin its section.

    >>> lines_of('[privacy]\\nalpha = 1\\n\\n[[variant]]\\nname = "b"\\nprivacy = { alpha = 2 }', "privacy.alpha")
    [2, 6]
    >>> lines_of("[privacy]", "privacy.alpha")
    [1]
    """
    section, exact, around = "", [], []
    for number, line in enumerate(text.splitlines(), start=1):
        if header := _HEADER.match(line):
            section = _bare(header[1])
            if section == key:
                exact.append(number)
            elif key.startswith(f"{section}.") and section:
                around.append(number)
        elif entry := _KEY.match(line):
            name = _bare(f"{section}.{entry[1]}" if section else entry[1])
            inline = key.startswith(f"{name}.") and re.search(rf"\b{re.escape(key.split('.')[-1])}\b\s*=", entry[2])
            if name == key or inline:
                exact.append(number)
    return exact or around


def _bare(name: str) -> str:
    """A dotted name without quotes, as it is after variants and sweeps are laid over the rest."""
    plain = re.sub(r"[\"'\s]", "", name)
    return re.sub(r"^(variant|sweep)(\.|$)", "", plain)
