"""A job on several hosts ends when one of them is lost, instead of waiting for the launcher to notice, which takes minutes.

Each rank starts a process (`heartbeat.py`) that hears from the other hosts. On one host there is nothing to watch: the launcher
sees its own processes end.
"""

import ctypes
import json
import os
import platform
import secrets
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from dpadmm_mpi.errors import RunError
from dpadmm_mpi.parallel import heartbeat
from dpadmm_mpi.parallel.launcher import launcher_pid
from dpadmm_mpi.parallel.transport import Transport

PATIENCE = 20.0  # seconds that a host may stand still, unless record.patience says otherwise
NOBODY: dict[str, Any] = {"addresses": [], "port": None}  # the introduction of a heartbeat that could not be started


class Watch:
    """What a rank can tell its heartbeat; without one, nothing happens."""

    def __init__(self, process: "subprocess.Popen[bytes] | None" = None) -> None:
        self._process = process

    def set_patience(self, seconds: Iterable[float | None]) -> None:
        """As record.patience has it, of one configuration or of several, of which the most patient one counts."""
        known = [PATIENCE if value is None else value for value in seconds]
        self.tell({"patience": max(known) if min(known) > 0.0 else 0.0})

    def tell(self, words: dict[str, Any]) -> None:
        if self._process is not None and self._process.stdin is not None:
            with suppress(OSError):  # it was killed
                self._process.stdin.write(json.dumps(words).encode() + b"\n")

    def end(self) -> None:
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
            try:
                self._process.wait(heartbeat.GRACE)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()


_UNTIL_THE_END: list[Watch] = []


@contextmanager
def watching(transport: Transport, advice: str, until_the_end: bool = False, lost: Path | None = None) -> Iterator[Watch]:
    """Whatever all ranks do meanwhile, a lost host or link ends them; `advice` says how to go on.

    `until_the_end`: of the process, because leaving MPI is a thing that all ranks do together too. `lost`: a file for the
    sentence, because the launcher's exit code does not tell a lost host from another failure.
    """
    watch = _begin(transport, advice, lost)
    try:
        yield watch
    finally:
        watch.tell({"done": True})  # the end of the heartbeat is no failure any more
        if until_the_end:
            _UNTIL_THE_END.append(watch)
        else:
            watch.end()


def _begin(transport: Transport, advice: str, lost: Path | None) -> Watch:
    hosts = transport.gather_objects(platform.node()) if transport.size > 1 else []
    if len(set(hosts)) < 2:
        return Watch()
    process = _start()
    introduction = NOBODY if process is None else _introduction(process)
    members = transport.gather_objects(heartbeat.Member(platform.node(), **introduction))
    secret = transport.broadcast(secrets.token_hex(16) if transport.rank == 0 else None)
    watch = Watch(process)
    words = {"members": members, "rank": transport.rank, "secret": secret, "patience": PATIENCE, "advice": advice}
    watch.tell(words | {"lost": None if lost is None else str(lost)})
    if process is not None:
        threading.Thread(target=_obey, args=(process,), daemon=True).start()
    return watch


def _start() -> "subprocess.Popen[bytes] | None":
    """With the fewest imports, and in a session of its own, so that signals to the rank's group pass it by."""
    words = [sys.executable, "-I", "-S", str(Path(heartbeat.__file__)), str(launcher_pid() or 0)]
    try:
        return subprocess.Popen(words, bufsize=0, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
    except OSError:
        return None


def _introduction(process: "subprocess.Popen[bytes]") -> dict[str, Any]:
    assert process.stdout is not None
    line = process.stdout.readline()
    return json.loads(line) if line else NOBODY


def _obey(process: "subprocess.Popen[bytes]") -> None:
    """In a thread: leave when the heartbeat says so. Not by MPI, which would wait for those that are lost.

    Before, stand still without letting go of the interpreter: a rank that sees others leave would complain in the name of MPI.
    """
    assert process.stdout is not None
    hold = ctypes.PyDLL(None).usleep
    if os.read(process.stdout.fileno(), len(heartbeat.EXIT)) == heartbeat.EXIT:
        hold(int(1e6 * heartbeat.HALT))
        os._exit(RunError.exit_code)
