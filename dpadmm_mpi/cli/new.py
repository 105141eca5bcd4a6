"""`dpadmm new`: a first class of your own, documented and tested."""

import re
from pathlib import Path

import click

from dpadmm_mpi.cli.options import debug_option, say
from dpadmm_mpi.errors import InputError, advice_on, file_in, reason_of
from dpadmm_mpi.files import exists, make_folder, write_text

TEMPLATES = Path(__file__).with_name("templates")
KINDS = ("method", "loss", "metric", "source")


@click.command()
@click.argument("kind", type=click.Choice(KINDS, case_sensitive=False))
@click.argument("name")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="The folder. Default: the current one.")
@debug_option
def new(kind: str, name: str, output: Path | None) -> int:
    """Write a working, documented file with a KIND called NAME, a test of it, and a configuration that uses it.

    \b
    dpadmm new method momentum-admm
    dpadmm run momentum_admm.toml
    pytest test_momentum_admm.py
    """
    if not re.fullmatch(r"[a-z][a-z0-9]*([-_][a-z0-9]+)*", name):
        raise InputError(f'"{name}": use lower-case letters, digits and hyphens, as in momentum-admm')
    folder, module = output or Path(), name.replace("-", "_")
    words = {
        "NAME": name,
        "MODULE": module,
        "CLASS": "".join(part.capitalize() for part in module.split("_")),
    }
    targets = {
        f"{module}.py": f"{kind}.py.txt",
        f"test_{module}.py": f"test_{kind}.py.txt",
        f"{module}.toml": f"{kind}.toml.txt",
    }
    for file in targets:
        if exists(folder / file):
            raise InputError(f"{folder / file} exists; choose another name, or another folder with -o")
    try:
        make_folder(folder)
        for file, template in targets.items():
            text = (TEMPLATES / template).read_text(encoding="utf-8")
            for word, value in words.items():
                text = text.replace(f"@{word}@", value)
            write_text(folder / file, text)
    except OSError as error:
        raise InputError(f"{file_in(error, folder)} cannot be written: {reason_of(error)}; {advice_on(error)}") from None
    for file in targets:
        say(f"written: {folder / file}")
    say(f"next: dpadmm run {folder / (module + '.toml')}, and pytest {folder / ('test_' + module + '.py')}")
    return 0
