"""The search: batches of trials, each proposed from what the batches before it have shown."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from dpadmm_mpi.config.ranges import Point
from dpadmm_mpi.parallel.collective import on_root
from dpadmm_mpi.parallel.transport import Transport
from dpadmm_mpi.tuning.study import Journal, Study, Trial, in_order
from dpadmm_mpi.tuning.task import MethodTask, Task
from dpadmm_mpi.tuning.tuners import Told, Tuner, first_point, tuners

BATCH = 4  # trials that are proposed at a time, whatever the number of ranks: the study does not depend on it

Judge = Callable[[MethodTask, int, Point], Trial]


class Watcher(Protocol):
    """Told of each trial on rank 0."""

    def begin(self, total: int) -> None: ...

    def trial(self, trial: Trial) -> None: ...

    def end(self) -> None: ...


class Unwatched:
    def begin(self, total: int) -> None:
        pass

    def trial(self, trial: Trial) -> None:
        pass

    def end(self) -> None:
        pass


def search(
    task: Task,
    tuner: Tuner,
    trials: int,
    transport: Transport,
    study: Path | None = None,
    *,
    watcher: Watcher | None = None,
    judge: Judge | None = None,
) -> Study:
    """Tune every method with so many trials; on every rank. Trials of a batch are dealt to the ranks."""
    watcher = watcher or Unwatched()
    about = {**task.about(), "tuner": _described(tuner), "seed": task.base.seed, "trials": trials}
    journal = on_root(transport, lambda: _Held(Journal(study, about))).journal
    try:
        watcher.begin(trials * len(task.methods))
        for method in task.methods:
            for first in range(0, trials, BATCH):
                numbers = range(first, min(first + BATCH, trials))
                _batch(task, tuner, method, numbers, transport, journal, watcher=watcher, judge=judge or task.judge)
    finally:
        watcher.end()
        if journal is not None:
            journal.close()
    found = transport.broadcast(None if journal is None else journal.trials)
    kept = [trial for trial in found if trial.number < trials]
    return Study(about, in_order(kept, [each.name for each in task.methods]), task.lower_is_better)


class _Held:
    """A journal stays on rank 0: it has an open file."""

    def __init__(self, journal: Journal) -> None:
        self.journal: Journal | None = journal

    def __getstate__(self) -> dict[str, None]:
        return {"journal": None}


def _described(tuner: Tuner) -> str:
    from dpadmm_mpi.config.options import to_table

    options = "".join(f", {key} = {value}" for key, value in to_table(tuner).items())
    return f"{tuners.name_of(type(tuner))}{options}"


def _batch(
    task: Task,
    tuner: Tuner,
    method: MethodTask,
    numbers: range,
    transport: Transport,
    journal: Journal | None,
    *,
    watcher: Watcher,
    judge: Judge,
) -> None:
    proposed = on_root(transport, lambda: _proposals(task, tuner, method, numbers, journal))
    if journal is not None:
        for trial in journal.trials:
            if trial.method == method.name and trial.number in numbers:
                watcher.trial(trial)
    if transport.size == 1:
        assert journal is not None
        for number, point in proposed:
            journal.add([judge(method, number, point)])
            watcher.trial(journal.trials[-1])
        return
    mine = [judge(method, number, point) for number, point in proposed[transport.rank :: transport.size]]
    everyone = [trial for part in transport.gather_objects(mine) for trial in part]
    if journal is not None:
        journal.add(sorted(everyone, key=lambda trial: trial.number))
        for trial in everyone:
            watcher.trial(trial)


def _proposals(
    task: Task, tuner: Tuner, method: MethodTask, numbers: range, journal: Journal | None
) -> Sequence[tuple[int, Point]]:
    """The points of a batch that are not in the journal yet, from what all earlier batches have shown."""
    assert journal is not None
    sign = 1.0 if task.lower_is_better else -1.0
    before = {trial.number: trial for trial in journal.trials if trial.method == method.name}
    told = [
        Told(trial.point, None if trial.value is None else sign * trial.value)
        for number, trial in sorted(before.items())
        if number < numbers[0]
    ]
    missing = [number for number in numbers if number not in before]
    return [
        (number, tuner.propose(method.space, told, number, task.base.seed) if number else first_point(method.space))
        for number in missing
    ]


def with_notes(study: Study, notes: Sequence[str]) -> Study:
    return replace(study, notes=(*study.notes, *notes))
