"""What several commands share: options, arguments, and how an error is said."""

import logging
import sys
import traceback
import warnings
from pathlib import Path
from typing import Any

import click

from dpadmm_mpi.cli import completion
from dpadmm_mpi.cli.completion import among
from dpadmm_mpi.errors import DpadmmError, InputError, Stopped, advice_on, reason_of, system_sentence
from dpadmm_mpi.registry import blamed
from dpadmm_mpi.showing import paragraph, printable, sentence

_debug = False
_config: Path | None = None  # the file that a command was given


def _set_debug(_context: click.Context, _option: click.Parameter, value: bool) -> None:
    global _debug
    _debug = _debug or value


debug_option = click.option(
    "--debug", is_flag=True, expose_value=False, callback=_set_debug, help="Show the traceback of an error."
)
set_option = click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="KEY=VALUE",
    shell_complete=among(completion.keys),
    help="Override a key, as in --set privacy.alpha=2.",
)
extension_option = click.option(
    "--extension", "extensions", multiple=True, metavar="FILE", help="A Python file with classes of your own, as in mine.py."
)
only_option = click.option("--only", metavar="NAME", help="One variant of the file, by its name.")


class ConfigPath(click.Path):
    """A file, or the name of a configuration that comes with the package; a file of that name goes first."""

    def __init__(self) -> None:
        super().__init__(path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        global _config
        from dpadmm_mpi.files import exists

        path = Path(str(super().convert(value, param, ctx)))
        _config = path if exists(path) else packaged().get(str(value).casefold(), path)
        return _config


class OutputPath(click.Path):
    """A file, or a folder for it: one that exists, or a name that ends in /, which is made."""

    def __init__(self) -> None:
        super().__init__(path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        from dpadmm_mpi.files import make_folder

        path = Path(str(super().convert(value, param, ctx)))
        if str(value).endswith("/"):
            try:
                make_folder(path)
            except OSError as error:
                raise InputError(f"-o {value}: cannot be made: {reason_of(error)}; {advice_on(error)}") from None
        return path


def in_folder(output: Path | None, usual: Path) -> Path:
    """What -o means, beside the name that a command would choose: a folder gets a file of that name."""
    from dpadmm_mpi.files import is_folder

    return usual if output is None else output / usual.name if is_folder(output) else output


config_argument = click.argument(
    "config", required=False, type=ConfigPath(), shell_complete=among(lambda: packaged(), files=True)
)
result_files = click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="FILE...")


def say(text: object = "", end: str = "\n") -> None:
    """The commands' answers, on standard output: everything that they print goes through here."""
    print(paragraph(text), end=end, flush=True)


def note(text: object) -> None:
    print(f"dpadmm: note: {sentence(text)}", file=sys.stderr, flush=True)


class _Notes(logging.Handler):
    """What the library logs, as notes on standard error."""

    def emit(self, record: logging.LogRecord) -> None:
        note(record.getMessage())


def _note_of_warning(message: Warning | str, category: type[Warning], *_: object, **__: object) -> None:
    note(f"{category.__name__}: {message}")


def log_to_stderr() -> None:
    """What the library logs, and what others warn of, as notes."""
    warnings.showwarning = _note_of_warning
    logger = logging.getLogger("dpadmm_mpi")
    logger.setLevel(logging.INFO)
    logger.handlers = [_Notes()]


def load_extensions(files: tuple[str, ...]) -> None:
    """Of --extension, meant from the current folder."""
    from dpadmm_mpi.config.extensions import load, paths_in

    load(paths_in(list(files), Path.cwd()))


def speak(error: BaseException, who: str = "dpadmm") -> None:
    if _debug:
        traceback.print_exception(error)
    if isinstance(error, InputError):
        text = str(_with_place(error))
    elif isinstance(error, DpadmmError):
        text = str(error)
    elif isinstance(error, KeyboardInterrupt):
        text = "interrupted; what was recorded so far is in the file"
    elif isinstance(error, MemoryError):
        text = "out of memory; use fewer ranks on this machine, or fewer records"
    elif (where := blamed(error)) is not None:
        text = where
    elif isinstance(error, OSError):
        text = system_sentence(error)
    else:
        text = f"internal error, {type(error).__name__}: {error}; run again with --debug for the traceback"
    print(f"{who}: {sentence(text)}", file=sys.stderr, flush=True)
    if isinstance(error, Stopped) and error.command:
        print(f"  {printable(error.command)}", file=sys.stderr, flush=True)


def _with_place(error: InputError) -> InputError:
    """With file and line, where it is about a key of the configuration; what is found after it was read has none yet."""
    from dpadmm_mpi.config.places import with_place

    said = tuple(word.removeprefix("--set=").partition("=")[0] for word in sys.argv)
    return error if _config is None else with_place(error, _config, said)


def packaged() -> dict[str, Path]:
    """The configurations that come with the package, by name; in a source tree, those beside the package."""
    from dpadmm_mpi.files import exists, names_in

    here = Path(__file__).parents[1]
    for folder in (here / "configs", here.parent / "configs"):
        if exists(folder / "quickstart.toml"):
            return {path.stem: path for path in sorted(names_in(folder, "*.toml"), key=lambda path: path.stem)}
    raise InputError("the quickstart configuration is missing from this installation; install dpadmm-mpi again")


def quickstart() -> Path:
    """What `dpadmm run` runs without a file."""
    return packaged()["quickstart"]
