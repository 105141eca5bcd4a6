"""The loop where mathematics and messages meet: one loop for every layout."""

import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Generic, Protocol, TypeVar

import numpy as np

from dpadmm_mpi.engine.exchange import Exchange
from dpadmm_mpi.engine.node_queries import find_optimum
from dpadmm_mpi.engine.row_gather import Observer, RowGather, by_place, by_run
from dpadmm_mpi.engine.stopping import Meetings
from dpadmm_mpi.errors import InputError, Stopped
from dpadmm_mpi.methods.base import CLASSIFIERS, Plan, final_name
from dpadmm_mpi.methods.metrics import Optimum
from dpadmm_mpi.methods.nodes import Nodes, Phase, State, extended, replaced
from dpadmm_mpi.methods.release import AVERAGED, CONSENSUS
from dpadmm_mpi.networks.metropolis import metropolis
from dpadmm_mpi.networks.timeline import HELD, LATE, Inbox
from dpadmm_mpi.parallel.transport import Transport
from dpadmm_mpi.problems.objective import NodeProblem
from dpadmm_mpi.registry import place_of
from dpadmm_mpi.storage.timing import BYTES, COMPUTE, WAIT
from dpadmm_mpi.types import Array, Ints

S = TypeVar("S", bound=State)

PATIENCE = 0.05  # seconds of an iteration, from which on its row is written down before the next one begins


class Log(Protocol):
    """The recorder, on rank 0: what an earlier part has left, and where everything goes."""

    sought: bool  # whether the optimum was searched for
    found: Optimum | None

    @property
    def reached(self) -> Mapping[int, tuple[int, dict[str, Array]]]:
        """run -> iteration and state, of an earlier part."""
        ...

    def state_of(self, runs: range) -> dict[str, Array]: ...

    def optimum(self, found: Optimum | None) -> None: ...

    def row(self, runs: range, row: int, iteration: int, values: dict[str, Array]) -> None: ...

    def consensus_row(self, runs: range, row: int, values: dict[str, Array]) -> None: ...

    def checkpoint(self, runs: range, iteration: int, state: dict[str, Array], seconds: float) -> None: ...

    def end_of_runs(self, runs: range, final: dict[str, Array], state: dict[str, Array]) -> None: ...


class Simulation(Generic[S]):
    """The places of this rank and their links, through all runs."""

    def __init__(self, transport: Transport, plan: Plan[S], owner: Ints, problems: Sequence[NodeProblem]) -> None:
        places = np.flatnonzero(owner == transport.rank)
        self.transport = transport
        self.plan = plan
        self.owner = owner
        self.problems = problems
        self.nodes: Nodes[S] = plan.make_nodes(places, problems)
        self.measures = plan.measures(problems)
        self.measures.forget()  # where the last configuration's solves ended, if the problems are its
        records = plan.sizes[places[: len(problems)]]
        self._share = records / max(1, records.sum())  # of this rank's seconds, for each of its nodes
        self._worked = 0.0
        if plan.consensus_steps:
            self._own_weights = metropolis(plan.topology).own[places][:, None]
        averaged = (AVERAGED,) if self.measures.iterate in self.nodes.hub_fields else ()
        self._hub_fields = (*self.nodes.hub_fields, *averaged)
        self._places = places
        self.inbox: Inbox | None = None  # where messages get lost: what has come in before
        self._held = {} if plan.faults is None else plan.faults.held(self._sent_along_edges())
        self._arc_fields = (*self.nodes.arc_fields, *self._held)
        self._arc_owner = owner[plan.topology.arcs[:, 0]] if self._arc_fields else owner[:0]

    def _sent_along_edges(self) -> list[str]:
        phases = [phase for t in range(min(4, self.plan.iterations) + 1) for phase in self.nodes.phases(t)]
        return list(dict.fromkeys(phase.field for phase in phases if phase.channel == "edges"))

    def _begin(self, runs: range) -> S:
        """The state before the first iteration, with fields for what is free and for what has been received."""
        state = self.plan.free.begin(self.nodes.initial(runs))
        arcs = int(np.count_nonzero(self._arc_owner == self.transport.rank))
        return extended(
            state, {name: np.zeros((len(runs), arcs, self.plan.features * width)) for name, width in self._held.items()}
        )

    def refuse_unreleased(self) -> None:
        """A method may only send what it says that it releases, and what its state has."""
        state = self.nodes.initial(range(1))
        for t in range(min(4, self.plan.iterations) + 1):
            for phase in self.nodes.phases(t):
                if phase.field not in self.nodes.released or phase.field not in state._fields:
                    cls = type(self.plan.config.method)
                    raise InputError(
                        f'{place_of(cls)}: {cls.__name__} sends "{phase.field}" in iteration {t}, which is not among the '
                        f"fields that it releases ({', '.join(self.nodes.released)}) and carries ({', '.join(state._fields)})"
                    )

    def simulate(self, recorder: Log | None, observer: Observer, meetings: Meetings | None) -> None:
        """All runs, or what is left of them; `recorder` and `observer` matter on rank 0 only."""
        self._began = time.perf_counter()
        sought, reached = self.transport.broadcast(
            None if recorder is None else (recorder.sought, {run: t for run, (t, _) in recorder.reached.items()})
        )
        if self.plan.seeks_optimum:
            search, owner = self.plan.optimum_search(), self.owner[: self.plan.nodes]
            found = None if sought else find_optimum(search, self.transport, self.problems, owner)
            if recorder is not None:
                if not sought:
                    recorder.optimum(found)
                self.measures.optimum = recorder.found
        for runs in self.plan.groups_of_runs:
            if reached.get(runs[0]) == self.plan.rounds:
                continue
            first, state = 0, self._begin(runs)
            if runs[0] in reached:
                first = reached[runs[0]] + 1
                state = self._deal_state(state, None if recorder is None else recorder.state_of(runs))
            arcs = bool(self.nodes.arc_fields)
            self.exchange = Exchange(self.transport, self.plan.topology, self.owner, self.plan.features, len(runs), arcs)
            if self.plan.faults is not None:
                known = self.exchange.links["edges"].known
                self.inbox = Inbox(self.plan.faults, runs, self._places, known)
            self._some_runs(runs, first, state, recorder=recorder, observer=observer, meetings=meetings)
            self.exchange.close()

    def _some_runs(
        self, runs: range, first: int, state: S, *, recorder: Log | None, observer: Observer, meetings: Meetings | None
    ) -> None:
        """Runs that go side by side, from iteration `first` on; behind the last iteration come the consensus steps."""
        last = self.plan.rounds
        self.rows = RowGather(self.transport, self.plan, self.owner, self.measures, runs, writer=recorder, observer=observer)
        for t in range(first, last + 1):
            begin = time.perf_counter()
            if t > self.plan.iterations:
                state = self._consensus(state, t - self.plan.iterations)
            else:
                state = self._iterate(state, t, runs)
                if self.rows.wants(t):
                    self.rows.send(t, state, self._timing())
                    state = self.nodes.recorded(state)
            if t == last or recorder is not None:
                self.rows.catch_up(wait=t == last or time.perf_counter() - begin > PATIENCE)
            if t == last:
                gathered = self.gather_state(state)
                if recorder is not None and gathered is not None:
                    recorder.end_of_runs(runs, self.final(gathered), gathered)
            if meetings is not None and (t, runs.stop) != (last, self.plan.config.runs):
                self._meet(meetings, runs, t, None if t == last else state, recorder)

    def _meet(self, meetings: Meetings, runs: range, t: int, state: S | None, recorder: Log | None) -> None:
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
            over = t - self.plan.iterations
            where = f"iteration {t}" if over <= 0 else f"consensus step {over}"
            raise Stopped(f"stopped by {decision.stop} after {where} of {in_words(runs)}; go on with --resume")

    def _iterate(self, state: S, t: int, runs: range) -> S:
        """Each phase: work, exchange of one released field, receiving."""
        for number, phase in enumerate(self.nodes.phases(t)):
            begin = time.perf_counter()
            state = self.nodes.work(state, t, runs, number)
            if number == 0 and self.measures.of_released:
                state = self.plan.free.averaged(state, t)
            self._worked += time.perf_counter() - begin
            self.exchange.start(phase.channel, getattr(state, phase.field))
            self.rows.while_messages_travel(t, state)
            state, incoming = self._incoming(state, phase, t)
            begin = time.perf_counter()
            state = self.nodes.receive(state, t, runs, number, incoming)
            self._worked += time.perf_counter() - begin
        return state if self.measures.of_released else self.plan.free.averaged(state, t)

    def _incoming(self, state: S, phase: Phase, t: int) -> tuple[S, Array]:
        """What has come in, summed up; where messages get lost, of what each neighbour has got through last."""
        if self.inbox is None or phase.channel != "edges":
            return state, self.exchange.finish(phase.channel, phase.weighted)
        held, late = f"{HELD}{phase.field}", f"{LATE}{phase.field}"
        before, on_the_way = getattr(state, held), getattr(state, late, None)
        now, on_the_way = self.inbox.receive(t, before, on_the_way, self.exchange.arrived(phase.channel))
        state = replaced(state, {held: now} | ({} if on_the_way is None else {late: on_the_way}))
        return state, self.inbox.sums(t, now, phase.weighted)

    def _consensus(self, state: S, step: int) -> S:
        """A step of plain averaging over the edges, of vectors that are made of released ones alone."""
        free = self.plan.free
        if step == 1:
            state = free.begin_consensus(state)
            self.exchange.reset()
        self.exchange.start("edges", getattr(state, CONSENSUS))
        incoming = self.exchange.finish("edges", weighted=True)
        state = free.consensus_step(state, step, self._own_weights, incoming)
        if self.rows.wants_consensus(step):
            self.rows.send_consensus(step, state, self._timing())
        return state

    def _timing(self) -> dict[str, Array]:
        """(runs, nodes of this rank, 1) of each, since it was asked for last."""
        runs, own = self.exchange.runs, len(self.problems)
        per_node = {
            COMPUTE: self._worked * self._share / runs,
            WAIT: np.full(own, self.exchange.waited / runs),
            BYTES: self.exchange.bytes_sent[:own],
        }
        self._worked = 0.0
        timing = {name: np.repeat(values[None, :, None], runs, axis=0) for name, values in per_node.items()}
        self.exchange.reset()
        return timing

    def _owner_of(self, field: str) -> Ints:
        """The rank of every place, or of every arc."""
        return self._arc_owner if field in self._arc_fields else self.owner

    def _gather(self, field: str, values: Array) -> Array | None:
        """(runs, places, width) of all places, or arcs, in their order, on rank 0."""
        gathered = self.transport.start_gather(by_place(values), self._owner_of(field)).finish()
        return None if gathered is None else by_run(gathered, len(values))

    def gather_state(self, state: S) -> dict[str, Array] | None:
        """Every field with all places, on rank 0; what the hub alone has is there already."""
        gathered: dict[str, Array] = {}
        for name, values in state._asdict().items():
            everywhere = values if name in self._hub_fields else self._gather(name, values)
            if everywhere is not None:
                gathered[name] = everywhere
        return gathered if self.transport.rank == 0 else None

    def final(self, gathered: Mapping[str, Array]) -> dict[str, Array]:
        """What is kept of a last state, on rank 0."""
        kept = self.measures.final(gathered)
        for place, state in self.plan.free.finals(gathered).items():
            there = self.measures.final(state)
            kept |= {final_name(place, name): there[name] for name in CLASSIFIERS if name in there}
        return kept

    def state_shapes(self) -> dict[str, tuple[int, ...]]:
        """Of what gather_state gives for one run."""
        state = self._begin(range(1))
        return {
            name: values.shape[1:] if name in self._hub_fields else (len(self._owner_of(name)), *values.shape[2:])
            for name, values in state._asdict().items()
        }

    def _deal_state(self, blank: S, gathered: dict[str, Array] | None) -> S:
        """The opposite of gather_state: each rank what belongs to its own places, in the stead of a blank state's."""
        whole = gathered or {}
        on_arcs = [name for name in blank._fields if name in self._arc_fields]
        shared = [name for name in blank._fields if name not in (*self._hub_fields, *on_arcs)]
        fields = {name: whole[name] for name in self._hub_fields if name in whole}
        for owner, names in ((self.owner, shared), (self._arc_owner, on_arcs)):
            if names:
                dealt = self.transport.deal(owner, partial(_at, whole, names))
                fields |= {name: np.stack([values[k] for values in dealt], axis=1) for k, name in enumerate(names) if dealt}
        return replaced(blank, fields)


def _at(whole: Mapping[str, Array], names: Sequence[str], place: int) -> list[Array]:
    """What a place, or an arc, has of these fields, (runs, width) each."""
    return [whole[name][:, place] for name in names]


def in_words(runs: range) -> str:
    return f"run {runs[0] + 1}" if len(runs) == 1 else f"runs {runs[0] + 1} to {runs[-1] + 1}"
