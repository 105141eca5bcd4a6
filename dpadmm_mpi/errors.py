"""What can go wrong, as one sentence each, with the exit code that the command line returns for it."""


class DpadmmError(Exception):
    """Base of every error that a user is meant to read; the text is one sentence with the fix."""

    exit_code = 1
    everywhere = False  # raised on every rank alike: rank 0 speaks for all, and nobody has to be stopped
    told = False  # another rank has failed before and says why


class InputError(DpadmmError):
    """A bad command, configuration or input file: nothing was run."""

    exit_code = 2


class RunError(DpadmmError):
    """Something failed while running: a solve, a write, a rank."""


class Stopped(DpadmmError):
    """A signal or the walltime ended the run after some iteration, with a checkpoint to go on from."""

    exit_code = 75
    everywhere = True
