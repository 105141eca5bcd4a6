"""What can go wrong, as one sentence each, with the exit code that the command line returns for it."""

import errno
import os

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
    command = ""  # that goes on, whole, where a command was stopped


_ADVICE = {
    errno.ENOENT: "check the name",
    errno.ENOTDIR: "check the name",
    errno.EISDIR: "name an ordinary file",
    errno.EACCES: "check the permissions",
    errno.EPERM: "check the permissions",
    errno.EROFS: "make the file system writable or choose another place",
    errno.ENOSPC: "make room",
    errno.EDQUOT: "make room within the quota",
    errno.EFBIG: "make room: a limit of the size of files is in the way",
    errno.EIO: "check the disk",
    errno.EINTR: "a signal came in between: try again",
    errno.ESTALE: "check the network file system",
    errno.EMFILE: "raise the limit of open files with ulimit -n",
    errno.ENFILE: "end programs that hold many files open",
    errno.ELOOP: "remove the symbolic link that leads back to itself",
    errno.ENAMETOOLONG: "choose a shorter name",
}


def reason_of(error: OSError) -> str:
    """What the operating system says, in its own words."""
    return os.strerror(error.errno) if error.errno else str(error).split("\n")[0]


def advice_on(error: OSError) -> str:
    """What to do about it before the next attempt."""
    return _ADVICE.get(error.errno or 0, "find out what holds the file")


def system_sentence(error: OSError) -> str:
    """An error of the operating system for a user: the file, what happened, what to do."""
    return f"{file_in(error)}: {reason_of(error)}; {advice_on(error)}, and run the command again"


def file_in(error: OSError, otherwise: object = "a file") -> str:
    """The name of the file that an error is about."""
    name = error.filename
    return os.fsdecode(name) if isinstance(name, str | bytes | os.PathLike) else str(otherwise)


# What HDF5 could not write while h5py forgot an object, which raises nothing: `dpadmm` notes it here, and no log is finished
# with it.
unreported_writes: list[str] = []
