"""A process that makes many lives of dpadmm, each a fork of itself, and judges what they leave behind.

Everything is loaded once, and the shim is between all lives and the C library.
"""

import ctypes
import errno
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

SHIM = Path(__file__).with_name("shim.c")
PATIENCE = 60.0  # seconds after which a life counts as hanging
HOWS = {"": 0, "error": 1, "always": 2, "before": 3, "after": 4, "torn": 5}  # as in shim.c


def build(folder: Path) -> Path:
    """The shim, compiled."""
    library = folder / "shim.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-O1", "-o", library, SHIM, "-ldl"], check=True, capture_output=True)
    return library


class Fault(NamedTuple):
    """What happens at one call to the C library, the `when`-th of its name, from 1."""

    call: str = "*"
    when: int = 0
    how: str = ""
    error: int = 0

    def __str__(self) -> str:
        what = f" {errno.errorcode.get(self.error, self.error)}" if self.error else ""
        return f"{self.call} {self.when} {self.how}{what}"

    def environment(self, under: Path) -> dict[str, str]:
        """For a process that is started with the shim."""
        words = {"UNDER": under, "CALL": self.call, "WHEN": self.when, "HOW": self.how, "ERRNO": self.error}
        return {f"FAULT_{key}": str(value) for key, value in words.items()}


NONE = Fault()


class Life(NamedTuple):
    code: int  # negative for a signal
    output: str
    errors: str
    calls: int  # that concerned the files and had the name of the fault's call

    @property
    def sentences(self) -> list[str]:
        """What dpadmm itself said, without its notes."""
        lines = [line[line.index("dpadmm:") :] for line in self.errors.splitlines() if "dpadmm:" in line]
        return [line for line in lines if not line.startswith("dpadmm: note:")]


def hung(life: Life) -> bool:
    return life.code == -signal.SIGALRM


def complaint(life: Life, mercy: bool = False) -> str | None:
    """What is wrong with the way in which a life has ended; with `mercy`, it must not have noticed the fault at all."""
    if hung(life):
        return "it hangs"
    if mercy and life.code != 0:
        return f"it ended with {life.code}: {life.errors[-300:]}"
    if life.code not in (0, 1, 2):
        return f"it ended with {life.code}: {life.errors[-300:]}"
    if "internal error" in life.errors or "Traceback" in life.errors:
        return f"no sentence: {life.errors[-400:]}"
    if life.code and (len(life.sentences) != 1 or len(life.sentences[0]) > 600):
        return f"not one sentence: {life.errors[-400:]}"
    return None


class Machine:
    """Forks lives. The process itself must have been started with the shim (`restarted_with_shim`)."""

    def __init__(self) -> None:
        self._shim = ctypes.CDLL(None)
        self._counter = Path(tempfile.mkdtemp(prefix="faults-")) / "calls"

    def live(self, words: Sequence[object], under: Path, fault: Fault = NONE, record: Path | None = None) -> Life:
        """One process: `dpadmm WORDS`, with a fault at the files whose path has `under` in it."""
        with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
            child = os.fork()
            if child == 0:
                self._be(words, under, fault, record, (output.fileno(), errors.fileno()))
            code = _wait(child)
            texts = []
            for file in (output, errors):
                file.seek(0)
                texts.append(file.read().decode(errors="replace"))
        calls = int(self._counter.read_text()) if self._counter.exists() else 0
        self._counter.unlink(missing_ok=True)
        return Life(code, texts[0], texts[1], calls)

    def _be(self, words: Sequence[object], under: Path, fault: Fault, record: Path | None, files: tuple[int, int]) -> None:
        """The child: never returns."""
        code = 70
        try:
            os.setpgid(0, 0)
            for number, file in enumerate(files, 1):
                os.dup2(file, number)
            sys.argv = ["dpadmm", *map(str, words)]
            from dpadmm_mpi.cli.main import entry

            if record is not None:
                self._shim.fault_record(str(record).encode())
            self._shim.fault_arm(str(under).encode(), fault.call.encode(), fault.when, HOWS[fault.how], fault.error)
            try:
                entry()
            except SystemExit as end:
                code = int(end.code or 0)
            seen = self._shim.fault_seen()
            self._shim.fault_arm(b"", b"", 0, 0, 0)
            self._counter.write_text(str(seen))
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            os._exit(code)


def _wait(child: int) -> int:
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.002)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return -signal.SIGALRM


def restart_with_shim() -> None:
    """Begin this program again with the shim before everything else, unless it is there."""
    if "shim.so" in os.environ.get("LD_PRELOAD", ""):
        return
    library = build(Path(tempfile.mkdtemp(prefix="faults-")))
    # By its name alone: LD_PRELOAD is divided at spaces, which the path of a temporary folder may have.
    folders = f"{library.parent}:{os.environ.get('LD_LIBRARY_PATH', '')}".rstrip(":")
    os.environ |= {"LD_PRELOAD": library.name, "LD_LIBRARY_PATH": folders, "OPENBLAS_NUM_THREADS": "1"}
    os.execv(sys.executable, sys.orig_argv)


def remember_accounts() -> None:
    """Accounts depend on the configuration only and take longer than a life: the parent of all lives computes them once."""
    from dpadmm_mpi.engine import stopping
    from dpadmm_mpi.methods import base

    stopping.SHARE, stopping.MEETING_SECONDS = float("inf"), 0.0  # checkpoints as often as the configuration says
    known: dict[bytes, Any] = {}
    accounts_of = base.accounts_of  # type: ignore[attr-defined]

    def remembered(*arguments: Any) -> Any:
        key = pickle.dumps(arguments)
        if key not in known:
            known[key] = accounts_of(*arguments)
        return known[key]

    base.accounts_of = remembered  # type: ignore[attr-defined, assignment]
