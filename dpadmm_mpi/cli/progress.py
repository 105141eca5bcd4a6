"""How a run tells what it is doing: a bar on a terminal, plain lines in a batch log. Standard error only."""

import sys
import time
from collections.abc import Mapping
from typing import Any

from dpadmm_mpi.cli.options import note as say_note
from dpadmm_mpi.engine.simulation import in_words
from dpadmm_mpi.methods.base import Plan
from dpadmm_mpi.showing import brief

LINE_SECONDS = 10.0  # between plain lines


class Progress:
    """Watches one configuration on rank 0."""

    def __init__(self) -> None:
        self._plan: Plan[Any] | None = None
        self._bar: Any = None
        self._last_line = time.monotonic()

    def begin(self, plan: Plan[Any]) -> None:
        self._plan = plan
        account = plan.accounts[-1] if plan.topology.has_hub else plan.accounts[0]
        self._spent, self._unit = account.values, "P" if account.delta is None else "epsilon"
        for note in plan.notes:
            say_note(note)
        if sys.stderr.isatty():
            from tqdm import tqdm

            total = plan.config.runs * plan.iterations
            self._bar = tqdm(total=total, desc=brief(plan.config.name), unit="it", leave=False, dynamic_ncols=True)

    def row(self, runs: range, iteration: int, values: Mapping[str, Any]) -> None:
        assert self._plan is not None
        config = self._plan.config
        done = runs.start * self._plan.iterations + len(runs) * iteration
        spent, loss = self._spent[iteration], values["loss"].mean()
        which = f"{in_words(runs)} of {config.runs}"
        if self._bar is not None:
            self._bar.set_postfix_str(f"{which}, loss {loss:.4f}, {self._unit} {spent:.3g}", refresh=False)
            self._bar.update(done - self._bar.n)
        elif time.monotonic() - self._last_line > LINE_SECONDS:
            self._last_line = time.monotonic()
            print(
                f"{brief(config.name)}: {which}, iteration {iteration} of {self._plan.iterations}, loss {loss:.4f}, "
                f"{self._unit} {spent:.3g}",
                file=sys.stderr,
                flush=True,
            )

    def end(self, seconds: float) -> None:
        if self._bar is not None:
            self._bar.close()
