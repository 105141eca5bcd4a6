"""`dpadmm run --track`: what is recorded, also as event files for a tool that draws while the run goes on."""

import math
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from dpadmm_mpi.engine.row_gather import Observer
from dpadmm_mpi.errors import InputError
from dpadmm_mpi.files import exists, names_in, remove
from dpadmm_mpi.methods.base import Plan


def refuse_missing(tracker: str | None) -> None:
    """Before anything runs."""
    if tracker == "tensorboard" and find_spec("tensorboardX") is None:
        raise InputError("--track tensorboard: tensorboardX is not installed; install it with: pip install tensorboardX")


def events_folder(result: Path) -> Path:
    """Beside the result file: my.events of my.h5."""
    return result.with_suffix(".events")


class TensorBoard:
    """Writes every number of a run and iteration, and the privacy spent so far, as scalars; a folder for each run.

    tensorboardX writes files and needs no server. A run that goes on adds a file to the folder; one that begins anew takes the
    place of the files there. What is not a finite number has no point; an infinite privacy loss is said in a text.
    """

    def __init__(self, result: Path, resume: bool) -> None:
        self._folder, self._resume = events_folder(result), resume
        self._writers: dict[int, Any] = {}
        self._plan: Plan[Any] | None = None

    def begin(self, plan: Plan[Any]) -> None:
        self._plan = plan

    def row(self, runs: range, iteration: int, values: Mapping[str, Any]) -> None:
        assert self._plan is not None
        spent = {f"privacy/{account.name}": account.values[iteration] for account in self._plan.accounts}
        for place, run in enumerate(runs):
            measured = {name: each[place] for name, each in values.items() if each.ndim == 1}
            writer = self._writer(run)
            for name, value in (measured | spent).items():
                if math.isfinite(value):
                    writer.add_scalar(name, float(value), iteration)

    def _writer(self, run: int) -> Any:
        if run in self._writers:
            return self._writers[run]
        from tensorboardX import SummaryWriter

        assert self._plan is not None
        folder = self._folder / f"run-{run}"
        if exists(folder) and not self._resume:
            for path in names_in(folder, "events.out.tfevents.*"):
                remove(path)
        self._writers[run] = SummaryWriter(str(folder))
        for account in self._plan.accounts:
            if math.isinf(account.values[-1]):
                self._writers[run].add_text(f"privacy/{account.name}", "infinite: the run is not private by this account")
        return self._writers[run]

    def end(self, seconds: float) -> None:
        for writer in self._writers.values():
            writer.close()


def observing(progress: Callable[[], Observer], tracker: str | None, resume: bool, result: Path) -> Observer:
    """Whoever watches the run that writes `result`."""
    return progress() if tracker is None else Together(progress(), TensorBoard(result, resume))


class Together:
    """Several observers as one."""

    def __init__(self, *observers: Observer) -> None:
        self._observers = observers

    def begin(self, plan: Plan[Any]) -> None:
        for observer in self._observers:
            observer.begin(plan)

    def row(self, runs: range, iteration: int, values: Mapping[str, Any]) -> None:
        for observer in self._observers:
            observer.row(runs, iteration, values)

    def end(self, seconds: float) -> None:
        for observer in self._observers:
            observer.end(seconds)
