"""Options and arguments that several commands share."""

from pathlib import Path

import click

_debug = False


def is_debugging() -> bool:
    return _debug


def _set_debug(_context: click.Context, _option: click.Parameter, value: bool) -> None:
    global _debug
    _debug = _debug or value


debug_option = click.option(
    "--debug", is_flag=True, expose_value=False, callback=_set_debug, help="Show the traceback of an error."
)
set_option = click.option(
    "--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Override a key, as in --set privacy.alpha=2."
)
only_option = click.option("--only", metavar="NAME", help="One variant of the file, by its name.")
config_argument = click.argument("config", required=False, type=click.Path(path_type=Path))
result_files = click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="FILE...")
