"""What can go wrong, as one sentence each, with the exit code that the command line returns for it."""

from dpadmm_mpi.showing import sentence


class DpadmmError(Exception):
    """Base of every error that a user is meant to read; the text is one sentence with the fix."""

    exit_code = 1
    everywhere = False  # raised on every rank alike: rank 0 speaks for all, and nobody has to be stopped
    told = False  # another rank has failed before and says why

    def __str__(self) -> str:
        """Whatever names, files or paths have brought into it: one line, printable, not long."""
        return sentence(super().__str__())


class InputError(DpadmmError):
    """A bad command, configuration or input file: nothing was run."""

    exit_code = 2


class RunError(DpadmmError):
    """Something failed while running: a solve, a write, a rank."""


class Stopped(DpadmmError):
    """A signal or the walltime ended the run after some iteration, with a checkpoint to go on from."""

    exit_code = 75
    everywhere = True
