"""The loop where mathematics and messages meet: one loop for every layout."""

import platform
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dpadmm_mpi.config.options import Config
from dpadmm_mpi.data.dataset import Dataset, Loader
from dpadmm_mpi.engine.row_gather import TIMING, Observer, Rows, by_place, by_run
from dpadmm_mpi.engine.stopping import Meetings, Stopper
from dpadmm_mpi.errors import DpadmmError, Stopped
from dpadmm_mpi.methods.base import Plan, make_plan
from dpadmm_mpi.networks.graphs import Graph, IncomingSum
from dpadmm_mpi.parallel.collective import agree, assign_owners, on_root
from dpadmm_mpi.parallel.mpi import Links, Transport
from dpadmm_mpi.problems.objective import NodeProblem
from dpadmm_mpi.storage.run_status import noting_failure

if TYPE_CHECKING:
    from dpadmm_mpi.storage.recorder import Recorder
    from dpadmm_mpi.storage.result import Result

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

PATIENCE = 0.05  # seconds of an iteration, from which on its row is written down before the next one begins


class Silent:
    def begin(self, plan: Plan) -> None:
        pass

    def row(self, runs: range, iteration: int, values: dict[str, Array]) -> None:
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
            return None
        try:
            with noting_failure(output):
                observer.begin(plan)
                simulation.measures.test = dataset.test()
                simulation.simulate(recorder, observer, meetings)
                recorder.finish(time.perf_counter() - begin)
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
    from dpadmm_mpi.storage.resume import is_finished

    return is_finished(output, config)


def _load(output: Path) -> "Result":
    from dpadmm_mpi.storage.result import load

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
    from dpadmm_mpi.storage import recorder
    from dpadmm_mpi.storage import resume as resuming

    plan, shapes, data = simulation.plan, simulation.state_shapes(), dataset

    def describe(record: "Recorder") -> None:
        record.describe(data, simulation.owner, hosts, simulation.transport.library)

    if output is None:
        record = recorder.create(plan, shapes, None)
        describe(record)
        return record
    return resuming.open_log(output, plan, data, shapes, simulation.measures.final, describe, force, resume)


class Exchange:
    """The channels between this rank's places and all others; counts what it sends and how long it waits.

    What a place sends in all runs that go side by side travels together.
    """

    def __init__(self, transport: Transport, graph: Graph, owner: Ints, features: int, runs: int) -> None:
        places = np.flatnonzero(owner == transport.rank)
        self.links: dict[str, Links] = {}
        self.sums: dict[str, IncomingSum] = {}
        for tag, (name, channel) in enumerate(graph.channels.items()):
            self.links[name] = transport.links(channel, owner, runs * features, tag)
            self.sums[name] = IncomingSum(channel, places, self.links[name].known)
        self.runs, self.places, self.vector_bytes = runs, len(places), 8 * features
        self.reset()

    def reset(self) -> None:
        self.waited = 0.0
        self.bytes_sent = np.zeros(self.places)  # per run

    def start(self, channel: str, values: Array) -> None:
        """Send what each place releases, (runs, places, features)."""
        self.links[channel].start(by_place(values))
        self.bytes_sent += self.vector_bytes * self.links[channel].vectors_sent

    def finish(self, channel: str) -> Array:
        """The sum of what each place received, (runs, places, features)."""
        begin = time.perf_counter()
        known = self.links[channel].finish()
        self.waited += time.perf_counter() - begin
        return by_run(self.sums[channel](known), self.runs)

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
        records = plan.sizes[places[: len(problems)]]
        self._share = records / max(1, records.sum())  # of this rank's seconds, for each of its nodes
        self._worked = 0.0

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
        for runs in self.plan.groups_of_runs:
            if reached.get(runs[0]) == self.plan.config.iterations:
                continue
            first, state = 0, self.algorithm.initial(runs)
            if runs[0] in reached:
                first = reached[runs[0]] + 1
                state = self._deal_state(state, None if recorder is None else recorder.state_of(runs))
            self.exchange = Exchange(self.transport, self.plan.graph, self.owner, self.plan.features, len(runs))
            self._some_runs(runs, first, state, recorder, observer, meetings)
            self.exchange.close()

    def _some_runs(
        self, runs: range, first: int, state: Any, recorder: "Recorder | None", observer: Observer, meetings: Meetings | None
    ) -> None:
        """Runs that go side by side, from iteration `first` on."""
        last = self.plan.config.iterations
        self.rows = Rows(self.transport, self.plan, self.owner, self.measures, runs, recorder, observer)
        for t in range(first, last + 1):
            begin = time.perf_counter()
            state = self._iterate(state, t, runs)
            if self.rows.wants(t):
                self.rows.send(t, state, self._timing())
                if "residual" in state._fields:
                    state = state._replace(residual=np.full_like(state.residual, np.nan))
            if t == last or recorder is not None:
                self.rows.catch_up(wait=t == last or time.perf_counter() - begin > PATIENCE)
            if t == last:
                gathered = self.gather_state(state)
                if recorder is not None and gathered is not None:
                    recorder.end_of_runs(runs, self.measures.final(gathered), gathered)
            if meetings is not None and (t, runs.stop) != (last, self.plan.config.runs):
                self._meet(meetings, runs, t, None if t == last else state, recorder)

    def _meet(self, meetings: Meetings, runs: range, t: int, state: Any, recorder: "Recorder | None") -> None:
        """A checkpoint if all ranks find that one is due, and the end if something stops them; no state between groups."""
        decision = meetings.after_iteration()
        if decision is None:
            return
        self.rows.catch_up()
        if decision.checkpoint:
            begin = time.perf_counter()
            gathered = {} if state is None else self.gather_state(state)
            if recorder is not None and gathered is not None:
                recorder.checkpoint(runs, t, gathered, begin - self._began)
            meetings.saved(time.perf_counter() - begin)
        if decision.stop is not None:
            raise Stopped(f"stopped by {decision.stop} after iteration {t} of {in_words(runs)}; go on with --resume")

    def _iterate(self, state: Any, t: int, runs: range) -> Any:
        """Each phase: work, exchange of one released field, receiving."""
        for number, phase in enumerate(self.algorithm.phases(t)):
            begin = time.perf_counter()
            state = self.algorithm.work(state, t, runs, number)
            self._worked += time.perf_counter() - begin
            assert phase.field in self.algorithm.released
            self.exchange.start(phase.channel, getattr(state, phase.field))
            self.rows.while_messages_travel(t, state)
            incoming = self.exchange.finish(phase.channel)
            begin = time.perf_counter()
            state = self.algorithm.receive(state, t, runs, number, incoming)
            self._worked += time.perf_counter() - begin
        return state

    def _timing(self) -> Array:
        """(runs, nodes of this rank, TIMING) since it was asked for last."""
        runs, own = self.exchange.runs, len(self.problems)
        timing = np.empty((runs, own, len(TIMING)))
        timing[..., 0] = self._worked * self._share / runs
        timing[..., 1] = self.exchange.waited / runs
        timing[..., 2] = self.exchange.bytes_sent[:own]
        self._worked = 0.0
        self.exchange.reset()
        return timing

    def _gather(self, values: Array) -> Array | None:
        """(runs, places, width) of all places in their order, on rank 0."""
        gathered = self.transport.start_gather(by_place(values), self.owner).finish()
        return None if gathered is None else by_run(gathered, len(values))

    def gather_state(self, state: Any) -> dict[str, Array] | None:
        """Every field with all places, on rank 0; what the hub alone has is there already."""
        gathered: dict[str, Array] = {}
        for name, values in state._asdict().items():
            everywhere = values if name in self.algorithm.hub_fields else self._gather(values)
            if everywhere is not None:
                gathered[name] = everywhere
        return gathered if self.transport.rank == 0 else None

    def state_shapes(self) -> dict[str, tuple[int, ...]]:
        """Of what gather_state gives for one run."""
        state = self.algorithm.initial(range(1))
        return {
            name: values.shape[1:] if name in self.algorithm.hub_fields else (len(self.owner), *values.shape[2:])
            for name, values in state._asdict().items()
        }

    def _deal_state(self, blank: Any, gathered: dict[str, Array] | None) -> Any:
        """The opposite of gather_state: each rank what belongs to its own places, in the stead of a blank state's."""
        whole = gathered or {}
        shared = [name for name in blank._fields if name not in self.algorithm.hub_fields]
        dealt = self.transport.deal(self.owner, lambda place: [whole[name][:, place] for name in shared])
        fields = {name: np.stack([values[k] for values in dealt], axis=1) for k, name in enumerate(shared)}
        return blank._replace(**fields, **{name: whole[name] for name in self.algorithm.hub_fields if name in whole})


def in_words(runs: range) -> str:
    return f"run {runs[0] + 1}" if len(runs) == 1 else f"runs {runs[0] + 1} to {runs[-1] + 1}"
