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

# name: module, function, and a line of `dpadmm --help`, in its order
COMMANDS = {
    "run": ("run", "run", "Run a configuration: one, its variants, a sweep"),
    "check": ("check", "check", "What a configuration means and costs, before it runs"),
    "show": ("results", "show", "A table of the last values of results"),
    "plot": ("results", "plot", "Draw results, and compare them"),
    "report": ("results", "report", "One page about results, for a browser or a printer"),
    "diff": ("results", "diff", "Whether two results are the same to the bit"),
    "data": ("data", "data", "Data sets: fetch them, look at them, spread them"),
    "audit": ("privacy", "audit", "Try to prove the privacy accounts of a run wrong"),
    "attack": ("privacy", "attack", "Rebuild a record from what a run released"),
    "compose": ("compose", "compose", "What several runs on the same records cost together"),
    "tune": ("tune", "tune", "Find the best settings for a privacy budget"),
    "advise": ("tune", "advise", "Which settings waste privacy budget"),
    "submit": ("jobs", "submit", "A batch script for a cluster, which goes on by itself"),
    "status": ("jobs", "status", "How far the runs of a configuration are"),
    "watch": ("jobs", "watch", "Follow a run that is under way"),
    "reproduce": ("reproduce", "reproduce", "Redo a figure of the papers, and judge its claims"),
    "list": ("choices", "list_choices", "What there is to choose from"),
    "schema": ("choices", "schema", "The JSON schema of a configuration, for editors"),
    "config": ("configs", "config", "The configurations that come with the package"),
    "init": ("configs", "init", "Write a commented configuration to begin with"),
    "new": ("new", "new", "Begin a method, loss, metric or source of your own"),
}


class Commands(click.Group):
    """Loads the one command that is asked for; a hundred ranks that start together would load all of them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, function, _ = COMMANDS[cmd_name]
        command: click.Command = getattr(import_module(f"dpadmm_mpi.cli.{module}"), function)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Without loading them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, _, line) in COMMANDS.items()])


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

    \b
    Tab completes commands, options, names and keys after
    eval "$(_DPADMM_COMPLETE=bash_source dpadmm)"
    """
