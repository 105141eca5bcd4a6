"""The commands. Thin: each is imported when it is asked for, and imports what it needs when it runs."""

import sys
import traceback
from importlib import import_module
from io import TextIOWrapper
from typing import TYPE_CHECKING, NoReturn

import click

from dpadmm_mpi.cli.options import log_to_stderr, speak
from dpadmm_mpi.errors import DpadmmError, InputError, unreported_writes
from dpadmm_mpi.parallel.launcher import announced_rank

if TYPE_CHECKING:
    from types import TracebackType

INTERRUPTED = 130

# name: module and function, in the order in which `dpadmm --help` lists them
COMMANDS = {
    "run": ("run", "run"),
    "check": ("check", "check"),
    "show": ("results", "show"),
    "plot": ("results", "plot"),
    "report": ("results", "report"),
    "diff": ("results", "diff"),
    "data": ("data", "data"),
    "audit": ("privacy", "audit"),
    "attack": ("privacy", "attack"),
    "compose": ("compose", "compose"),
    "tune": ("tune", "tune"),
    "advise": ("tune", "advise"),
    "submit": ("jobs", "submit"),
    "status": ("jobs", "status"),
    "watch": ("jobs", "watch"),
    "reproduce": ("reproduce", "reproduce"),
    "list": ("choices", "list_choices"),
    "schema": ("choices", "schema"),
    "config": ("configs", "config"),
    "init": ("configs", "init"),
    "new": ("new", "new"),
}


class Commands(click.Group):
    """Loads the one command that is asked for; a hundred ranks that start together would load all of them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, function = COMMANDS[cmd_name]
        command: click.Command = getattr(import_module(f"dpadmm_mpi.cli.{module}"), function)
        return command


def entry() -> NoReturn:
    """Run the command line; every error is one sentence on standard error and an exit code."""
    if announced_rank() != 0 and (sys.argv[1:2] not in (["run"], ["tune"]) or "--serial" in sys.argv):
        sys.exit(0)  # only `run` and `tune` are for several processes; one of them does everything else
    speaker = announced_rank() == 0
    log_to_stderr()
    _take_any_terminal()
    sys.excepthook, sys.unraisablehook = _except_hook, _unraisable_hook  # h5py calls both
    try:
        code = cli.main(prog_name="dpadmm", standalone_mode=False) or 0
    except (click.exceptions.Abort, KeyboardInterrupt):
        speak(KeyboardInterrupt())
        code = INTERRUPTED
    except click.ClickException as error:
        if speaker:
            _speak_of_command(error)
        code = error.exit_code if speaker else 0  # a launcher that sees a code would end rank 0 before it has spoken
    except DpadmmError as error:
        if speaker:
            speak(error)
        code = error.exit_code if speaker else 0
    except BrokenPipeError:
        sys.stderr.close()  # the reader of our output has left; nothing to say
        code = 1
    except Exception as error:
        speak(error)
        code = 1
    sys.exit(code)


def _take_any_terminal() -> None:
    """One that knows ASCII alone gets the numbers of other signs, and not an error."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _speak_of_command(error: click.ClickException) -> None:
    """One sentence, where click has four lines; a command line without a command gets the help."""
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        error.show()
    else:
        context: click.Context | None = getattr(error, "ctx", None)
        command = "dpadmm" if context is None else context.command_path
        speak(InputError(f"{error.format_message().rstrip('.')}; see {command} --help"))


def _is_unreported_write(error: BaseException | None) -> bool:
    """What h5py cannot write while it forgets an object: noted for the recorder, which fails in its place, with a sentence."""
    frames = traceback.extract_tb(None if error is None else error.__traceback__)
    found = isinstance(error, OSError | RuntimeError) and bool(frames) and frames[-1].filename.startswith("h5py")
    if found:
        unreported_writes.append(str(error))
    return found


def _except_hook(kind: type[BaseException], error: BaseException, where: "TracebackType | None") -> None:
    if not _is_unreported_write(error):
        sys.__excepthook__(kind, error, where)


def _unraisable_hook(problem: "sys.UnraisableHookArgs") -> None:
    if not _is_unreported_write(problem.exc_value):
        sys.__unraisablehook__(problem)


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="dpadmm-mpi", prog_name="dpadmm")
def cli() -> None:
    """Simulate differentially private, decentralised ADMM machine learning.

    \b
    dpadmm run                           the quickstart, in one process
    mpiexec -n 5 dpadmm run              the same, a process per node
    dpadmm run my.toml --set runs=10     your own configuration
    dpadmm plot quickstart.h5            a picture of what came out
    dpadmm report quickstart.h5          all of it on one page
    dpadmm list methods                  what there is to choose from
    """
