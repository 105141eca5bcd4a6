"""The loop where mathematics and messages meet: one loop for every layout."""

import platform
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dpadmm_mpi.agreement import agree, assign_owners, on_root
from dpadmm_mpi.config import Config
from dpadmm_mpi.data.dataset import Dataset, Loader
from dpadmm_mpi.errors import DpadmmError, Stopped
from dpadmm_mpi.fate import noting_failure
from dpadmm_mpi.graphs import Graph, IncomingSum
from dpadmm_mpi.plan import Plan, make_plan
from dpadmm_mpi.problem import NodeProblem
from dpadmm_mpi.stopping import Meetings, Stopper
from dpadmm_mpi.transport import Links, Transport

if TYPE_CHECKING:
    from dpadmm_mpi.recorder import Recorder
    from dpadmm_mpi.results import Result

Array = NDArray[np.float64]
Ints = NDArray[np.int64]


class Observer(Protocol):
    """Whoever watches a run on rank 0: a progress bar, a log."""

    def begin(self, plan: Plan) -> None: ...

    def row(self, run: int, iteration: int, values: dict[str, Any]) -> None: ...

    def end(self, seconds: float) -> None: ...


class Silent:
    def begin(self, plan: Plan) -> None:
        pass

    def row(self, run: int, iteration: int, values: dict[str, Any]) -> None:
        pass

    def end(self, seconds: float) -> None:
        pass


def execute(
    config: Config,
    transport: Transport,
    output: Path | None,
    observer: Observer,
    force: bool = False,
    threads: int = 1,
    brief: bool = False,
    resume: bool = False,
    stopper: Stopper | None = None,
) -> "Result | None":
    """Run one configuration on all ranks; rank 0 returns the result (if `brief`, what a table needs), the others None.

    `resume`: go on from an earlier part, if there is one. `stopper` may end the run early, by Stopped on all ranks.
    """
    from threadpoolctl import threadpool_limits

    begin = time.perf_counter()
    dataset: Dataset | None = None
    output, resume = transport.broadcast((output, resume))
    if output is not None and resume and on_root(transport, lambda: _is_finished(output, config)):
        return _load(output) if transport.rank == 0 else None

    def settle() -> tuple[Plan, Loader, Ints]:
        nonlocal dataset
        plan, dataset = make_plan(config)
        return plan, dataset.loader, assign_owners(plan.sizes, transport.size, plan.graph.has_hub)

    def address(node: int) -> Any:
        assert dataset is not None  # asked on rank 0 only
        return dataset.address(node)

    with threadpool_limits(limits=threads):
        plan, loader, owner = on_root(transport, settle)
        addresses = transport.deal(owner[: plan.nodes], address)
        problems = agree(transport, lambda: _load_problems(plan, loader, addresses))
        hosts = transport.gather_objects(platform.node())
        simulation = Simulation(transport, plan, owner, problems)
        recorder = agree(transport, lambda: _open_log(output, simulation, dataset, hosts, force, resume))
        meetings = None if output is None else Meetings(transport, config.record.checkpoint, stopper)
        if recorder is None or dataset is None:
            with noting_failure(output):
                simulation.simulate(None, Silent(), meetings)
            simulation.close()
            return None
        try:
            with noting_failure(output):
                observer.begin(plan)
                simulation.measures.test = dataset.test()
                simulation.simulate(recorder, observer, meetings)
                recorder.finish(time.perf_counter() - begin)
            simulation.close()
            result = recorder.result(brief)
        except BaseException:
            with suppress(DpadmmError):  # what has gone wrong first is what is said
                recorder.close()
            raise
        finally:
            observer.end(time.perf_counter() - begin)
        recorder.close()
        return result


def _is_finished(output: Path, config: Config) -> bool:
    from dpadmm_mpi.resuming import is_finished

    return is_finished(output, config)


def _load(output: Path) -> "Result":
    from dpadmm_mpi.results import load

    return load(output)


def _load_problems(plan: Plan, loader: Loader, addresses: list[Any]) -> Sequence[NodeProblem]:
    """The problems of this rank's nodes; the rank makes or reads its own records, and no others."""
    return plan.problems(loader.shard(address).into_signed() for address in addresses)


def _open_log(
    output: Path | None, simulation: "Simulation", dataset: Dataset | None, hosts: list[str], force: bool, resume: bool
) -> "Recorder | None":
    """The recorder on rank 0, which has the data set; None elsewhere."""
    if dataset is None:
        return None
    from dpadmm_mpi import recorder, resuming

    plan, shapes, data = simulation.plan, simulation.state_shapes(), dataset

    def describe(record: "Recorder") -> None:
        record.describe(data, simulation.owner, hosts, simulation.transport.library)

    if output is None:
        record = recorder.create(plan, shapes, None)
        describe(record)
        return record
    return resuming.open_log(output, plan, data, shapes, simulation.measures.final, describe, force, resume)


class Exchange:
    """The channels between this rank's places and all others; counts what it sends and how long it waits."""

    def __init__(self, transport: Transport, graph: Graph, owner: Ints, places: Ints, width: int) -> None:
        self.links: dict[str, Links] = {}
        self.sums: dict[str, IncomingSum] = {}
        for tag, (name, channel) in enumerate(graph.channels.items()):
            self.links[name] = transport.links(channel, owner, width, tag)
            self.sums[name] = IncomingSum(channel, places, self.links[name].known)
        self.places, self.vector_bytes = len(places), 8 * width
        self.reset()

    def reset(self) -> None:
        self.waited = 0.0
        self.bytes_sent = np.zeros(self.places)

    def __call__(self, channel: str, values: Array) -> Array:
        """The sum of what each place received."""
        begin = time.perf_counter()
        known = self.links[channel].exchange(values)
        self.waited += time.perf_counter() - begin
        self.bytes_sent += self.vector_bytes * self.links[channel].vectors_sent
        return self.sums[channel](known)

    def close(self) -> None:
        for links in self.links.values():
            links.close()


class Simulation:
    """The places of this rank and their links, through all runs."""

    def __init__(self, transport: Transport, plan: Plan, owner: Ints, problems: Sequence[NodeProblem]) -> None:
        places = np.flatnonzero(owner == transport.rank)
        self.transport = transport
        self.plan = plan
        self.owner = owner
        self.problems = problems
        self.algorithm = plan.algorithm(places, problems)
        self.measures = plan.measures(problems)
        self.exchange = Exchange(transport, plan.graph, owner, places, plan.features)
        records = plan.sizes[places[: len(problems)]]
        self._share = records / max(1, records.sum())  # of this rank's seconds, for each of its nodes
        self._worked = 0.0

    def close(self) -> None:
        self.exchange.close()

    def simulate(self, recorder: "Recorder | None", observer: Observer, meetings: Meetings | None) -> None:
        """All runs, or what is left of them; `recorder` and `observer` matter on rank 0 only."""
        self._began = time.perf_counter()
        sought, reached = self.transport.broadcast(
            None if recorder is None else (recorder.sought, {run: t for run, (t, _) in recorder.reached.items()})
        )
        if self.plan.seeks_optimum:
            found = None if sought else self.plan.optimum(self.transport, self.problems, self.owner[: self.plan.nodes])
            if recorder is not None:
                if not sought:
                    recorder.optimum(found)
                self.measures.optimum = recorder.found
        for run in range(self.plan.config.runs):
            if reached.get(run) == self.plan.config.iterations:
                continue
            first, state = 0, self.algorithm.initial(run)
            if run in reached:
                first = reached[run] + 1
                state = self._deal_state(state, None if recorder is None else recorder.reached.pop(run)[1])
            self._one_run(run, first, state, recorder, observer, meetings)

    def _one_run(
        self, run: int, first: int, state: Any, recorder: "Recorder | None", observer: Observer, meetings: Meetings | None
    ) -> None:
        row_of = {int(t): row for row, t in enumerate(self.plan.recorded)}
        last = self.plan.config.iterations
        for t in range(first, last + 1):
            state = self._iterate(state, t, run)
            if t in row_of:
                values = self._measure(state)
                if recorder is not None and values is not None:
                    recorder.row(run, row_of[t], t, values)
                    observer.row(run, t, values)
                if "residual" in state._fields:
                    state = state._replace(residual=np.full_like(state.residual, np.nan))
            if t == last:
                gathered = self.gather_state(state)
                if recorder is not None and gathered is not None:
                    recorder.end_of_run(run, self.measures.final(gathered), gathered)
            if meetings is not None and (t, run + 1) != (last, self.plan.config.runs):
                self._meet(meetings, run, t, None if t == last else state, recorder)

    def _meet(self, meetings: Meetings, run: int, t: int, state: Any, recorder: "Recorder | None") -> None:
        """A checkpoint if all ranks find that one is due, and the end if something stops them; no state between runs."""
        decision = meetings.after_iteration()
        if decision is None:
            return
        if decision.checkpoint:
            begin = time.perf_counter()
            gathered = {} if state is None else self.gather_state(state)
            if recorder is not None and gathered is not None:
                recorder.checkpoint(run, t, gathered, begin - self._began)
            meetings.saved(time.perf_counter() - begin)
        if decision.stop is not None:
            raise Stopped(f"stopped by {decision.stop} after iteration {t} of run {run + 1}; go on with --resume")

    def _iterate(self, state: Any, t: int, run: int) -> Any:
        """Each phase: work, exchange of one released field, receiving."""
        for number, phase in enumerate(self.algorithm.phases(t)):
            begin = time.perf_counter()
            state = self.algorithm.work(state, t, run, number)
            self._worked += time.perf_counter() - begin
            assert phase.field in self.algorithm.released
            incoming = self.exchange(phase.channel, getattr(state, phase.field))
            begin = time.perf_counter()
            state = self.algorithm.receive(state, t, run, number, incoming)
            self._worked += time.perf_counter() - begin
        return state

    def gather_state(self, state: Any) -> dict[str, Array] | None:
        """Every field with the rows of all places, on rank 0; what the hub alone has is there already."""
        gathered: dict[str, Array] = {}
        for name, rows in state._asdict().items():
            everywhere = rows if name in self.algorithm.hub_fields else self.transport.gather(rows, self.owner)
            if everywhere is not None:
                gathered[name] = everywhere
        return gathered if self.transport.rank == 0 else None

    def state_shapes(self) -> dict[str, tuple[int, ...]]:
        """Of what gather_state gives."""
        state = self.algorithm.initial(0)
        return {
            name: rows.shape if name in self.algorithm.hub_fields else (len(self.owner), *rows.shape[1:])
            for name, rows in state._asdict().items()
        }

    def _deal_state(self, blank: Any, gathered: dict[str, Array] | None) -> Any:
        """The opposite of gather_state: each rank its own rows, in place of those of a blank state."""
        whole = gathered or {}
        shared = [name for name in blank._fields if name not in self.algorithm.hub_fields]
        rows = self.transport.deal(self.owner, lambda place: [whole[name][place] for name in shared])
        fields = {name: np.stack([row[k] for row in rows]) for k, name in enumerate(shared)}
        return blank._replace(**fields, **{name: whole[name] for name in self.algorithm.hub_fields if name in whole})

    def _measure(self, state: Any) -> dict[str, Any] | None:
        """One row of the record, on rank 0; sums over nodes happen there, in node order."""
        shared = self.measures.shared(state)
        if self.plan.graph.has_hub:
            shared = self.transport.broadcast(shared)
        own = len(self.problems)
        waited = np.full(own, self.exchange.waited)
        timing = np.stack([self._worked * self._share, waited, self.exchange.bytes_sent[:own]], axis=1)
        self._worked = 0.0
        self.exchange.reset()
        rows = np.hstack([timing, self.measures.rows(state, shared)])
        gathered = self.transport.gather(rows, self.owner[: self.plan.nodes])
        if gathered is None:
            return None
        names = ("timing/compute_seconds", "timing/wait_seconds", "timing/bytes_sent")
        return self.measures.values(gathered[:, 3:], state) | dict(zip(names, gathered[:, :3].T, strict=True))
