"""When all ranks look up from their work together: to write a checkpoint, or to stop after the same iteration.

A signal may arrive at any rank, and only rank 0 looks at the clock. Meeting in every iteration would cost too much with
many ranks, so each meeting settles after how many iterations the next one is. A meeting is one small reduction; it
changes no result.
"""

import signal
import time
from collections.abc import Callable
from types import FrameType
from typing import NamedTuple

from dpadmm_mpi.parallel.transport import Transport

SIGNALS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT)
WALLTIME = 1000  # as a reason to stop, above every signal's number

MEETING_SECONDS = 0.25  # between meetings, about
CHECKPOINT_SECONDS = 5.0  # a checkpoint is due after so long, or after record.checkpoint iterations
SHARE = 0.01  # of the time that checkpoints may cost
FIRST_GUESS = 0.01  # seconds of a checkpoint, before one was written


class Stopper:
    """What may end a run early: signals, if installed, and the walltime."""

    def __init__(self, walltime: float | None = None) -> None:
        self.signal = 0
        self.reason = 0  # what has stopped a run, wherever it arrived
        self.hear: Callable[[], int] = lambda: 0  # of other groups of ranks, whether they have stopped, and why
        self.deadline = None if walltime is None else time.monotonic() + walltime

    def install(self) -> None:
        for number in SIGNALS:
            signal.signal(number, self._note)

    def _note(self, number: int, _frame: FrameType | None) -> None:
        if number == self.signal == signal.SIGINT:
            raise KeyboardInterrupt
        self.signal = number


class Decision(NamedTuple):
    checkpoint: bool
    stop: str | None  # what stops the run, in words


class Meetings:
    """Called by every rank after every iteration; all get the same answer."""

    def __init__(self, transport: Transport, every: int, stopper: Stopper | None) -> None:
        self._transport = transport
        self._every = every  # record.checkpoint
        self._stopper = stopper or Stopper()
        self._iterations = 0  # since the last meeting
        self._gap = 1
        self._met = self._saved = time.monotonic()
        self._unsaved = 0  # iterations
        self._cost = FIRST_GUESS

    def after_iteration(self) -> Decision | None:
        """What was decided, if this is an iteration to meet after."""
        self._iterations += 1
        if self._iterations < self._gap:
            return None
        proposal = self._proposal()
        heard = self._stopper.signal or self._stopper.hear()
        reason, checkpoint, self._gap = self._transport.highest([heard, *proposal])
        self._iterations = 0
        self._stopper.reason = reason
        name = None if not reason else "--walltime" if reason == WALLTIME else signal.Signals(reason).name
        return Decision(bool(checkpoint) or name is not None, name)

    def saved(self, seconds: float) -> None:
        self._cost, self._saved, self._unsaved = seconds, time.monotonic(), 0

    def _proposal(self) -> tuple[int, int]:
        """Rank 0's: whether a checkpoint is due, and the iterations until the next meeting."""
        if self._transport.rank != 0:
            return 0, 0
        now = time.monotonic()
        iteration = (now - self._met) / self._iterations
        self._met = now
        self._unsaved += self._iterations
        since = now - self._saved
        due = self._unsaved >= self._every or since > CHECKPOINT_SECONDS
        deadline = self._stopper.deadline
        if deadline is not None and now + 2.0 * (self._cost + max(MEETING_SECONDS, iteration)) > deadline:
            self._stopper.signal = WALLTIME
        return int(due and since * SHARE >= self._cost), max(1, min(2 * self._gap, int(MEETING_SECONDS / max(iteration, 1e-9))))
