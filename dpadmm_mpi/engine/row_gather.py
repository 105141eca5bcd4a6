"""Rows of the record on their way from the nodes to rank 0, which the ranks do not wait for."""

from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from dpadmm_mpi.methods.base import Plan
from dpadmm_mpi.methods.measures import Measures
from dpadmm_mpi.parallel.mpi import Gathering, Transport

if TYPE_CHECKING:
    from dpadmm_mpi.storage.recorder import Recorder

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

TIMING = ("timing/compute_seconds", "timing/wait_seconds", "timing/bytes_sent")


class Observer(Protocol):
    """Whoever watches a run on rank 0: a progress bar, a log."""

    def begin(self, plan: Plan) -> None: ...

    def row(self, runs: range, iteration: int, values: dict[str, Array]) -> None: ...

    def end(self, seconds: float) -> None: ...


class _Row(NamedTuple):
    iteration: int
    state: Any  # on rank 0, which writes it down
    gathering: Gathering


class Rows:
    """Those of runs that go side by side. Several are on their way where ranks are some iterations ahead of others."""

    def __init__(
        self,
        transport: Transport,
        plan: Plan,
        owner: Ints,
        measures: Measures,
        runs: range,
        recorder: "Recorder | None",
        observer: Observer,
    ) -> None:
        self._transport, self._has_hub, self._owner = transport, plan.graph.has_hub, owner[: plan.nodes]
        self._measures, self._runs, self._recorder, self._observer = measures, runs, recorder, observer
        self._number = {int(t): row for row, t in enumerate(plan.recorded)}
        self._measured: Array | None = None
        self._under_way = deque[_Row]()

    def wants(self, t: int) -> bool:
        return t in self._number

    def while_messages_travel(self, t: int, state: Any) -> None:
        """Rows that have arrived are written down, and what the messages do not change is measured."""
        self.catch_up(wait=False)
        if self.wants(t) and self._measures.of_released:
            self._measured = self._measures.rows(state, None)
        self._measures.forget()

    def send(self, t: int, state: Any, timing: Array) -> None:
        """The row of iteration t, with (runs, nodes of this rank, TIMING)."""
        if self._measured is None:
            shared = self._measures.shared(state)
            self._measured = self._measures.rows(state, self._transport.broadcast(shared) if self._has_hub else shared)
        content = np.concatenate([timing, self._measured], axis=-1)
        gathering = self._transport.start_gather(by_place(content), self._owner)
        self._under_way.append(_Row(t, None if self._recorder is None else state, gathering))
        self._measured = None

    def catch_up(self, wait: bool = True) -> None:
        """Write down the rows that are on their way; without `wait`, those that have arrived."""
        while self._under_way and (wait or self._under_way[0].gathering.has_arrived()):
            t, state, gathering = self._under_way.popleft()
            gathered = gathering.finish()
            if gathered is not None and self._recorder is not None:
                self._write_down(t, state, by_run(gathered, len(self._runs)), self._recorder)

    def _write_down(self, t: int, state: Any, content: Array, recorder: "Recorder") -> None:
        values = self._measures.values(content[..., len(TIMING) :], state)
        values |= {name: content[..., k] for k, name in enumerate(TIMING)}
        recorder.row(self._runs, self._number[t], t, values)
        self._observer.row(self._runs, t, values)


def by_place(values: Array) -> Array:
    """(runs, places, width) as (places, runs * width): what belongs to a place in one row."""
    runs, places, width = values.shape
    return values.swapaxes(0, 1).reshape(places, runs * width)


def by_run(rows: Array, runs: int) -> Array:
    """The opposite of by_place."""
    return np.ascontiguousarray(rows.reshape(len(rows), runs, -1).swapaxes(0, 1))
