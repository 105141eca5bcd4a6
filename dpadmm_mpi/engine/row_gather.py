"""Rows of the record on their way from the nodes to rank 0, which the ranks do not wait for."""

from collections import deque
from collections.abc import Mapping
from typing import Generic, NamedTuple, Protocol, TypeVar

import numpy as np

from dpadmm_mpi.methods.base import Plan
from dpadmm_mpi.methods.measures import Columns, Measures
from dpadmm_mpi.methods.nodes import State
from dpadmm_mpi.methods.release import AVERAGED, CONSENSUS
from dpadmm_mpi.parallel.transport import Gathering, Transport
from dpadmm_mpi.storage.timing import BYTES, CONSENSUS_BYTES, TIMING
from dpadmm_mpi.types import Array, Ints

S = TypeVar("S", bound=State)

TIMING_COLUMNS = Columns(dict.fromkeys(TIMING, 1))


class Observer(Protocol):
    """Whoever watches a run on rank 0: a progress bar, a log."""

    def begin(self, plan: Plan[State]) -> None: ...

    def row(self, runs: range, iteration: int, values: Mapping[str, Array]) -> None: ...

    def end(self, seconds: float) -> None: ...


class RowWriter(Protocol):
    """Whoever writes rows down, on rank 0."""

    def row(self, runs: range, row: int, iteration: int, values: dict[str, Array]) -> None: ...

    def consensus_row(self, runs: range, row: int, values: dict[str, Array]) -> None: ...


class _Row(NamedTuple, Generic[S]):
    at: int  # iteration, or consensus step
    is_consensus: bool
    state: S | None  # on rank 0, which writes it down
    gathering: Gathering


class RowGather(Generic[S]):
    """The rows of runs that go side by side. Several are on their way where ranks are some iterations ahead of others."""

    def __init__(
        self,
        transport: Transport,
        plan: Plan[S],
        owner: Ints,
        measures: Measures[S],
        runs: range,
        *,
        writer: RowWriter | None,
        observer: Observer,
    ) -> None:
        self._transport, self._has_hub, self._owner = transport, plan.topology.has_hub, owner[: plan.nodes]
        self._measures, self._runs, self._writer, self._observer = measures, runs, writer, observer
        self._free, self._iterations = plan.free, plan.iterations
        self._number = {int(t): row for row, t in enumerate(plan.recorded)}
        self._consensus_number = {int(k): row for row, k in enumerate(plan.consensus_recorded)}
        self._measured: Array | None = None
        self._under_way = deque[_Row[S]]()

    def wants(self, t: int) -> bool:
        return t in self._number

    def while_messages_travel(self, t: int, state: S) -> None:
        """Rows that have arrived are written down, and what the messages do not change is measured."""
        self.catch_up(wait=False)
        if self.wants(t) and self._measures.of_released:
            self._measured = self._rows(state)
        self._measures.forget()

    def _rows(self, state: S) -> Array:
        """What is measured of a state, and behind it the same at the averages.

        Those go first: where the iterates are measured last, the solve after them finds the same as without averages.
        """
        if self._free.first is None:
            return self._rows_at(state)
        averaged = self._rows_at(self._free.at(state, AVERAGED))
        return join(self._rows_at(state), averaged)

    def _rows_at(self, state: S) -> Array:
        if self._measures.of_released:
            return self._measures.rows(state, None)
        shared = self._measures.shared(state)
        return self._measures.rows(state, self._transport.broadcast(shared) if self._has_hub else shared)

    def send(self, t: int, state: S, timing: Mapping[str, Array]) -> None:
        """The row of iteration t, with the timing of this rank's nodes, (runs, nodes, 1) each."""
        measured = self._rows(state) if self._measured is None else self._measured
        self._send(t, False, state, timing, measured)
        self._measured = None

    def wants_consensus(self, step: int) -> bool:
        return step in self._consensus_number

    def send_consensus(self, step: int, state: S, timing: Mapping[str, Array]) -> None:
        """The row of a consensus step."""
        self._send(step, True, state, timing, self._rows_at(self._free.at(state, CONSENSUS)))

    def _send(self, at: int, is_consensus: bool, state: S, timing: Mapping[str, Array], measured: Array) -> None:
        content = join(TIMING_COLUMNS.pack(timing), measured)
        gathering = self._transport.start_gather(by_place(content), self._owner)
        self._under_way.append(_Row(at, is_consensus, None if self._writer is None else state, gathering))

    def catch_up(self, wait: bool = True) -> None:
        """Write down the rows that are on their way; without `wait`, those that have arrived."""
        while self._under_way and (wait or self._under_way[0].gathering.has_arrived()):
            row = self._under_way.popleft()
            gathered = row.gathering.finish()
            if gathered is not None and row.state is not None and self._writer is not None:
                timing, measured = split(by_run(gathered, len(self._runs)), len(TIMING))
                write = self._write_consensus if row.is_consensus else self._write_down
                write(row.at, row.state, TIMING_COLUMNS.unpack(timing), measured, self._writer)

    def _write_down(self, t: int, state: S, timing: dict[str, Array], measured: Array, writer: RowWriter) -> None:
        own, averaged = split(measured, self._measures.columns.width)
        values = self._measures.values(own, state, t) | timing
        if self._free.first is not None:
            there = self._measures.values(averaged, self._free.at(state, AVERAGED), t)
            values |= {f"{name}_{AVERAGED}": numbers for name, numbers in there.items()}
        writer.row(self._runs, self._number[t], t, values)
        self._observer.row(self._runs, t, values)

    def _write_consensus(self, step: int, state: S, timing: dict[str, Array], measured: Array, writer: RowWriter) -> None:
        there = self._measures.values(measured, self._free.at(state, CONSENSUS), self._iterations)
        values = {f"{CONSENSUS}/{name}": numbers for name, numbers in there.items()}
        writer.consensus_row(self._runs, self._consensus_number[step], values | {CONSENSUS_BYTES: timing[BYTES]})


def join(first: Array, second: Array) -> Array:
    """Two parts of a row."""
    return np.concatenate([first, second], axis=-1)


def split(content: Array, at: int) -> tuple[Array, Array]:
    """The opposite of join."""
    return content[..., :at], content[..., at:]


def by_place(values: Array) -> Array:
    """(runs, places, width) as (places, runs * width): what belongs to a place in one row."""
    runs, places, width = values.shape
    return values.swapaxes(0, 1).reshape(places, runs * width)


def by_run(rows: Array, runs: int) -> Array:
    """The opposite of by_place."""
    return np.ascontiguousarray(rows.reshape(len(rows), runs, rows.shape[1] // runs).swapaxes(0, 1))
