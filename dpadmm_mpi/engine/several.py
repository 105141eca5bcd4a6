"""Several configurations in one job: one after the other, or several at a time, each on a group of the ranks."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from dpadmm_mpi.engine.loop import HandedOn, Manner, Silent, execute
from dpadmm_mpi.engine.row_gather import Observer
from dpadmm_mpi.engine.stopping import Stopper
from dpadmm_mpi.errors import DpadmmError, InputError, RunError, Stopped
from dpadmm_mpi.methods.base import Config
from dpadmm_mpi.networks.graphs import build
from dpadmm_mpi.parallel.collective import on_root
from dpadmm_mpi.parallel.mpi import Alarm, Counter
from dpadmm_mpi.parallel.transport import Transport

if TYPE_CHECKING:
    from dpadmm_mpi.storage.result import Result


class Job(NamedTuple):
    """A configuration, and the file that it writes."""

    config: Config
    path: Path


class Report(NamedTuple):
    """What became of a group's share, told by its first rank."""

    results: "list[Result]"
    failed: dict[str, DpadmmError]  # by the file that was not finished
    stopped: dict[str, DpadmmError]


class Crew:
    """The ranks of a job, and what they do alike for every configuration."""

    def __init__(
        self, world: Transport, manner: Manner, stopper: Stopper, make_observer: Callable[[Path], Observer] = lambda _: Silent()
    ) -> None:
        self.world, self.stopper, self.make_observer = world, stopper, make_observer
        self.manner = replace(manner, brief=True)

    def run_all(self, jobs: list[Job], groups: int, spare: bool) -> tuple[list["Result"], DpadmmError | None]:
        """Each group of ranks takes one job after the other. What was finished, and what to say of the others, on every rank.

        `spare`: ranks for which no network has a place idle; otherwise, more ranks than places are refused. A job that fails on
        all its ranks does not stop the others; a signal or the walltime does, whichever group it reaches.
        """
        world = self.world
        colours = on_root(world, lambda: _colours(world.size, groups, jobs)) if spare else [0] * world.size
        mine = colours[world.rank]
        if set(colours) == {0}:  # all ranks together, one job after the other
            report = self._take(jobs, world, named=len(jobs) > 1)
            return report.results, _summary(jobs, [report])
        group, counter = world.split(mine), Counter(world)
        report = Report([], {}, {})
        if mine < groups:
            leaders = [colours.index(colour) for colour in range(groups)]
            alarm = Alarm(world, leaders) if group.rank == 0 and groups > 1 else None
            if alarm is not None:
                self.stopper.hear = alarm.heard
            report = self._take(_in_turn(jobs, counter, group), group, named=len(jobs) > 1)
            if alarm is not None:
                alarm.tell_and_wait(self.stopper.reason if report.stopped else 0)
        reports = world.gather_objects(report if group.rank == 0 else Report([], {}, {}))
        counter.close()
        place = {str(job.path): number for number, job in enumerate(jobs)}
        results = [result for part in reports for result in part.results]
        return sorted(results, key=lambda result: place[result.source]), _summary(jobs, reports)

    def _take(self, jobs: Iterable[Job], group: Transport, named: bool) -> Report:
        """One job after the other, until the end or a stop."""
        report, handed_on = Report([], {}, {}), HandedOn()
        for job in jobs:
            try:
                observer = self.make_observer(job.path) if group.rank == 0 else Silent()
                result = execute(
                    job.config, group, job.path, observer, manner=self.manner, stopper=self.stopper, handed_on=handed_on
                )
            except DpadmmError as error:
                sentence = type(error)(f'variant "{job.config.name}": {error}' if named else str(error))
                sentence.__cause__, sentence.told = error, error.told
                if group.size > 1 and not error.everywhere:
                    raise sentence from error
                if isinstance(error, Stopped):
                    report.stopped[str(job.path)] = sentence
                    break
                report.failed[str(job.path)] = sentence
            else:
                report.results.extend([] if result is None else [result])
        return report


def _in_turn(jobs: list[Job], counter: Counter, group: Transport) -> Iterator[Job]:
    """The longest jobs first, each to the group that has nothing to do."""
    ordered = sorted(jobs, key=_work, reverse=True)
    while True:
        number = group.broadcast(counter.next() if group.rank == 0 else None)
        if number >= len(ordered):
            return
        yield ordered[number]


def _work(job: Job) -> float:
    """Roughly, and relative to other jobs; steps that touch no records cost next to nothing."""
    return job.config.runs * job.config.method.data_steps_in(job.config.iterations)


def _summary(jobs: list[Job], reports: list[Report]) -> DpadmmError | None:
    """One error for all, in the order of the jobs: failures before stops; a failure while running outweighs bad input."""
    paths = [str(job.path) for job in jobs]
    failed = [report.failed[path] for path in paths for report in reports if path in report.failed]
    stopped = [report.stopped[path] for path in paths for report in reports if path in report.stopped]
    if not failed and not stopped:
        return None
    kind: type[DpadmmError] = Stopped
    if failed:
        kind = InputError if all(isinstance(error, InputError) for error in failed) else RunError
    ended = kind("; ".join(map(str, [*failed, *stopped])))
    ended.__cause__ = [*failed, *stopped][0]
    ended.everywhere = True
    return ended


def _colours(ranks: int, groups: int, jobs: list[Job]) -> list[int]:
    """rank -> group. A group has no more ranks than the smallest network has places; ranks left over get the number behind."""
    places = min(build(job.config.network.graph, job.config.seed).places for job in jobs)
    colours: list[int] = []
    for rank in range(ranks):
        group = rank * groups // ranks
        colours.append(group if colours.count(group) < places else groups)
    return colours
