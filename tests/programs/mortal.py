"""dpadmm whose process kills itself, by a real SIGKILL, with checkpoints after every iteration.

mortal.py RANK COUNT ARGUMENTS...     that rank dies at its COUNT-th step; 0: it lives
mortal.py full BYTES ARGUMENTS...       a disk on which no file but the log can grow beyond BYTES
mortal.py chain SEED KILLS ARGUMENTS... dies and resumes, KILLS times in all, one process after the other, then to the end

A step is a write, a sync, a renaming or a removal of a file (before, after, or in the middle of it), or an iteration.
"""

import errno
import os
import pickle
import random
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from dpadmm_mpi.cli.main import entry
from dpadmm_mpi.engine import stopping
from dpadmm_mpi.engine.simulation import Simulation
from dpadmm_mpi.methods import base
from dpadmm_mpi.parallel.launcher import announced_rank
from dpadmm_mpi.privacy.account import Account, accounts_of
from dpadmm_mpi.storage import recorder as _loaded_before_any_fork  # noqa: F401
from dpadmm_mpi.storage.experiments import load

stopping.SHARE, stopping.MEETING_SECONDS = float("inf"), 0.0
steps = deadly = 0


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def mortal(function: Callable[..., Any]) -> Callable[..., Any]:
    def step(*arguments: Any, **keywords: Any) -> Any:
        global steps
        steps += 1
        if steps == deadly:
            if function is os_write:  # a torn write
                os_write(arguments[0], arguments[1][: len(arguments[1]) // 2])
            elif steps % 2:
                function(*arguments, **keywords)
            die()
        return function(*arguments, **keywords)

    return step


os_write = os.write
os.write, os.fsync = mortal(os.write), mortal(os.fsync)
Path.replace, Path.unlink = mortal(Path.replace), mortal(Path.unlink)  # type: ignore[method-assign]
Simulation._iterate = mortal(Simulation._iterate)  # type: ignore[method-assign]
Simulation._consensus = mortal(Simulation._consensus)  # type: ignore[method-assign]


def compute_accounts_once(config: str) -> None:
    """In the parent of all lives: what depends on the configuration only, and takes longer than a life."""
    known: dict[bytes, Sequence[Account]] = {}

    def remembered(*arguments: Any) -> Sequence[Account]:
        key = pickle.dumps(arguments)
        if key not in known:
            known[key] = accounts_of(*arguments)
        return known[key]

    base.accounts_of = remembered  # type: ignore[assignment, attr-defined]
    assert base.make_plan(load(config).configs[0])[0].accounts
    assert known


def life(arguments: list[str], kill_at: int = 0, kill_after: float | None = None) -> int:
    """One process; its exit code, negative for a signal."""
    global deadly
    child = os.fork()
    if child == 0:
        deadly = kill_at
        sys.argv[1:] = arguments
        entry()
    if kill_after is not None:
        time.sleep(kill_after)
        os.kill(child, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def full_disk(size: int) -> None:
    """The log has its space from the beginning; the journal meets the limit."""

    def write(file: int, content: bytes) -> int:
        if os.fstat(file).st_size + len(content) > size:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return os_write(file, content)

    os.write = write  # type: ignore[assignment]


def chain(seed: int, kills: int, arguments: list[str]) -> None:
    """Until it has died so often; each time that it comes to its end alive, the result is put aside and it begins anew."""
    rng = random.Random(seed)
    out = Path(arguments[arguments.index("-o") + 1])
    died = finished = lives = code = 0
    while died < kills or code != 0:
        lives += 1
        if died == kills:
            code = life(arguments)
        elif lives % 4 == 0:  # wherever it is, inside the HDF5 library too
            code = life(arguments, kill_after=rng.uniform(0.005, 0.15))
        else:
            code = life(arguments, kill_at=rng.randrange(1, 70))
        died += code == -signal.SIGKILL
        if code == 0:
            finished += 1
            out.rename(out.with_name(f"finished-{finished}.h5"))
        elif code != -signal.SIGKILL:
            sys.exit(f"ended with {code}")
    print(died)


if __name__ == "__main__":
    if sys.argv[1] == "chain":
        compute_accounts_once(sys.argv[5])
        chain(int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:])
    elif sys.argv[1] == "full":
        full_disk(int(sys.argv[2]))
        sys.argv[1:] = sys.argv[3:]
        entry()
    else:
        deadly = int(sys.argv[2]) if announced_rank() == int(sys.argv[1]) else 0
        sys.argv[1:] = sys.argv[3:]
        entry()
