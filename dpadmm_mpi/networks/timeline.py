"""What becomes of every message in a run, known before its first iteration; and what the nodes have received.

Arcs are numbered as in `Topology.arcs`, by (receiver, sender) ascending. For methods and the engine:

    faults = faults_on(topology)       # plan.faults; None: nothing goes wrong, and nothing of this is used
    timeline = faults.timeline(runs)   # of the runs that go side by side; arrays are (runs, iterations + 1, ...)
    timeline.present[:, t]             # (runs, nodes): takes part in iteration t
    timeline.delivered[:, t]           # (runs, arcs): what is sent in iteration t arrives, now or later
    timeline.fresh[:, t]               # (runs, arcs): age of what is new to the receiver after exchange t; -1: nothing
    timeline.neighbours[:, t]          # (runs, arcs): the sender counts as a neighbour: it was heard, and there is an edge
    timeline.degree[:, t]              # (runs, nodes): how many of them a node has

Exchange 0, before the first iteration, has the starting points: everybody is there, but messages may be lost.
"""

import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dpadmm_mpi.errors import InputError
from dpadmm_mpi.networks.faults import (
    Compression,
    Draws,
    EdgeChange,
    Failing,
    Faults,
    MessageDelay,
    MessageLoss,
    NodeAbsence,
)
from dpadmm_mpi.networks.graphs import Graph, in_words
from dpadmm_mpi.networks.topology import Topology, components, of_edges
from dpadmm_mpi.rng import Purpose, generators
from dpadmm_mpi.types import Array, Bools, Ints

TOGETHER = 16  # runs whose timelines are kept at a time
CHUNK = 1 << 22  # numbers that are drawn at a time
HELD, LATE = "held_", "late_"  # further fields of a state: what an arc has brought last, and what is on its way


@dataclass(frozen=True, eq=False)
class NetworkFaults:
    """What goes wrong on a graph: kinds with all that they need, the same on every rank."""

    topology: Topology  # of all edges that there ever are
    seed: int
    iterations: int
    loss: MessageLoss | None = None
    delay: MessageDelay | None = None
    absence: NodeAbsence | None = None
    change: EdgeChange | None = None
    compression: Compression | None = None

    @property
    def longest_delay(self) -> int:
        return 0 if self.delay is None else self.delay.longest

    @property
    def arcs(self) -> Ints:
        return self.topology.arcs

    @property
    def files_sha256(self) -> str:
        """Of what the kinds have read from files; "": nothing."""
        kinds = (self.loss, self.delay, self.absence, self.change, self.compression)
        read = "\n".join(kind.contents for kind in kinds if kind is not None and kind.contents)
        return hashlib.sha256(read.encode()).hexdigest() if read else ""

    def held(self, names: Sequence[str]) -> dict[str, int]:
        """Further fields of a state for what is sent under these names, and how many vectors each arc has in them."""
        late = {f"{LATE}{name}": self.longest_delay for name in names} if self.longest_delay else {}
        return {f"{HELD}{name}": 1 for name in names} | late

    def timeline(self, runs: range) -> "Timeline":
        """Of some runs; the last one that was asked for is kept."""
        return _timeline(self, runs.start, runs.stop)

    def draws(self, purpose: Purpose, runs: range, ends: Ints) -> Draws:
        return Draws(self.seed, purpose, runs, self.iterations, ends, self.topology.nodes)

    def failures(self, kind: Failing, purpose: Purpose, runs: range, ends: Ints) -> Bools:
        """(runs, iterations + 1, items)"""
        return self.over_chunks(purpose, runs, ends, kind.fails, np.bool_)

    def over_chunks(
        self, purpose: Purpose, runs: range, ends: Ints, draw: Callable[[Draws], NDArray[Any]], dtype: type
    ) -> NDArray[Any]:
        """What is drawn for each item, (runs, iterations + 1, items)."""
        found: NDArray[Any] = np.empty((len(runs), self.iterations + 1, len(ends)), dtype=dtype)
        size = max(1, CHUNK // (len(runs) * (self.iterations + 1)))
        for first in range(0, len(ends), size):
            some = slice(first, first + size)
            found[:, :, some] = np.swapaxes(draw(self.draws(purpose, runs, ends[some])), 1, 2)
        return found

    def compressed(self, values: Array, before: Array, runs: range, nodes: Ints, t: int, field: int = 0) -> Array:
        """What nodes send in iteration t of some runs, (runs, nodes, features); `field` counts what an iteration sends."""
        kind = self.compression
        if kind is None:
            return values
        coins = np.zeros(values.shape)
        if kind.random:
            rngs = generators(self.seed, Purpose.COMPRESSION, runs, nodes + field * self.topology.nodes, t)
            for row, rng in zip(coins.reshape(-1, values.shape[-1]), rngs, strict=True):
                rng.random(out=row)
        return kind.compressed(values, before, coins)

    def message_bytes(self, timeline: "Timeline", features: int) -> Ints:
        """The size of each message that is sent, (runs, iterations + 1, arcs); 0 where none is."""
        kind, whole = self.compression, 8 * features
        sent: Ints = timeline.sent.astype(np.int64)
        if kind is None:
            return sent * whole
        small = kind.message_bytes(features)
        if not kind.only_changes:
            sent[:, 0] *= whole  # starting points are sent as they are
            sent[:, 1:] *= small
            return sent
        # Whoever has got the last message of a node is sent the changes alone: receipts tell.
        spoke = timeline.present[:, :, self.arcs[:, 1]]
        last = np.maximum.accumulate(np.where(spoke, np.arange(spoke.shape[1])[:, None], -1), axis=1)
        before = np.concatenate([np.full_like(last[:, :1], -1), last[:, :-1]], axis=1)
        got = np.take_along_axis(timeline.delivered, np.maximum(before, 0), axis=1) & (before >= 0)
        return np.asarray(sent * np.where(got, min(small, whole), whole))


def groups(runs: int) -> list[range]:
    """All runs, some at a time, for those who look at one timeline after the other."""
    return [range(first, min(first + TOGETHER, runs)) for first in range(0, runs, TOGETHER)]


@lru_cache(maxsize=1)
def _timeline(faults: NetworkFaults, start: int, stop: int) -> "Timeline":
    return Timeline.of(faults, range(start, stop))


@dataclass(frozen=True, eq=False)
class Timeline:
    """Of some runs; (runs, iterations + 1, ...) each."""

    arcs: Ints
    nodes: int
    present: Bools
    edges_on: Bools | None  # (runs or 1, .., arcs): whether there is an edge; None: always
    sent: Bools
    delivered: Bools
    fresh: NDArray[np.int16]
    neighbours: Bools = field(init=False)
    degree: Ints = field(init=False)

    def __post_init__(self) -> None:
        heard = np.logical_or.accumulate(self.fresh >= 0, axis=1)
        object.__setattr__(self, "neighbours", heard if self.edges_on is None else heard & self.edges_on)
        object.__setattr__(self, "degree", self.per_receiver(self.neighbours))

    @classmethod
    def of(cls, faults: NetworkFaults, runs: range) -> Self:
        topology, arcs, T = faults.topology, faults.arcs, faults.iterations
        receiver, sender = arcs.T
        everyone = np.repeat(np.arange(topology.nodes)[:, None], 2, axis=1)
        present = np.ones((len(runs), T + 1, topology.nodes), dtype=bool)
        if faults.absence is not None:
            present = ~faults.failures(faults.absence, Purpose.ABSENCE, runs, everyone)
            present[:, 0] = True
        edges_on = None
        if faults.change is not None:
            off = np.swapaxes(faults.change.off(faults.draws(Purpose.CHANGE, runs, topology.edges)), 1, 2)
            number = {pair: edge for edge, pair in enumerate(map(tuple, topology.edges.tolist()))}
            edges_on = ~off[..., [number[min(i, j), max(i, j)] for i, j in arcs.tolist()]]
        sent = present[:, :, sender] if edges_on is None else present[:, :, sender] & edges_on
        through = sent
        if faults.loss is not None:
            through = sent & ~faults.failures(faults.loss, Purpose.LOSS, runs, arcs)
        away = faults.absence is not None and not faults.absence.receives
        reachable = present[:, :, receiver] if away else np.ones_like(sent)
        delivered, fresh = _arrivals(faults, runs, through, reachable)
        return cls(arcs, topology.nodes, present, edges_on, sent, delivered, fresh)

    def per_receiver(self, of_arcs: NDArray[np.bool_] | Ints) -> Ints:
        """Sums over the arcs that lead to each node."""
        return self._per_end(of_arcs, 0)

    def per_sender(self, of_arcs: NDArray[np.bool_] | Ints) -> Ints:
        """Sums over the arcs that leave each node."""
        return self._per_end(of_arcs, 1)

    def _per_end(self, of_arcs: NDArray[np.bool_] | Ints, end: int) -> Ints:
        order = np.argsort(self.arcs[:, end], kind="stable")
        sums = np.cumsum(of_arcs[..., order], axis=-1, dtype=np.int64)
        sums = np.concatenate([np.zeros_like(sums[..., :1]), sums], axis=-1)
        ends = np.searchsorted(self.arcs[order, end], np.arange(self.nodes + 1))
        return np.asarray(np.diff(sums[..., ends], axis=-1))

    @cached_property
    def joined(self) -> Bools:
        """Present, and with a neighbour since the exchange before, (runs, iterations + 1, nodes); a single node has none."""
        found = self.present.copy()
        if self.nodes > 1:
            found[:, 1:] &= self.degree[:, :-1] > 0
        return found


def _arrivals(faults: NetworkFaults, runs: range, through: Bools, reachable: Bools) -> tuple[Bools, NDArray[np.int16]]:
    """What is delivered, and the ages of what is new to the receivers.

    A message that a newer one has overtaken is not used; one that comes while its receiver is away is lost.
    """
    if faults.delay is None:
        delivered = through & reachable
        return delivered, np.where(delivered, 0, -1).astype(np.int16)
    kind = faults.delay
    late = faults.over_chunks(Purpose.DELAY, runs, faults.arcs, kind.delays, np.int16)
    length = through.shape[1]
    delivered, newest = np.zeros_like(through), np.full(through.shape, -1, dtype=np.int32)
    for k in range(kind.longest + 1):
        these = through & (late == k)
        in_time = max(0, length - k)  # what comes behind the last iteration is neither used nor lost
        these[:, :in_time] &= reachable[:, k : k + in_time]
        delivered |= these
        sent_at = np.where(these[:, :in_time], np.arange(in_time, dtype=np.int32)[:, None], -1)
        newest[:, length - in_time :] = np.maximum(newest[:, length - in_time :], sent_at)
    newest = np.maximum.accumulate(newest, axis=1)
    before = np.concatenate([np.full_like(newest[:, :1], -1), newest[:, :-1]], axis=1)
    age = np.arange(length, dtype=np.int32)[:, None] - newest
    return delivered, np.where(newest > before, age, -1).astype(np.int16)


def settle(faults: Faults, graph: Graph, topology: Topology, seed: int, iterations: int) -> Topology:
    """The graph of a configuration with what goes wrong on it: files are read, graphs drawn, on the rank that plans the run.

    An edge along which everything is lost, both ways, is no edge.
    """
    kinds = faults.kinds
    if not kinds:
        return topology
    change, absence, loss = faults.change, faults.absence, faults.loss
    if "change" in kinds and change is not None:
        topology, change = change.settled(graph, topology, seed, iterations)
    if "absence" in kinds and absence is not None:
        absence = absence.read(topology.nodes)
    if "loss" in kinds and loss is not None:
        _refuse_unknown_edges(loss, topology)
        both = loss.always(topology.edges) & loss.always(topology.edges[:, ::-1])
        topology = of_edges(topology.edges[~both], topology.nodes)
    if len(parts := components(topology)) > 1:
        raise InputError(
            f"network.faults: the nodes never hear of each other in the parts {in_words(parts)}; fewer losses or more edges "
            "are needed"
        )
    settled = {"loss": loss, "delay": faults.delay, "absence": absence, "change": change, "compression": faults.compression}
    found = NetworkFaults(topology, seed, iterations, **{key: settled[key] for key in kinds})  # type: ignore[arg-type]
    return FaultyTopology(topology.neighbours, faults=found)


@dataclass(frozen=True, kw_only=True)
class FaultyTopology(Topology):
    """A graph on which something goes wrong."""

    faults: NetworkFaults = field(compare=False)


def faults_on(topology: Topology) -> NetworkFaults | None:
    """What goes wrong on a graph; None: nothing."""
    return topology.faults if isinstance(topology, FaultyTopology) else None


def _refuse_unknown_edges(loss: MessageLoss, topology: Topology) -> None:
    known = set(map(tuple, topology.edges.tolist()))
    for i, j, *_ in getattr(loss, "rates", ()):
        if (min(i, j), max(i, j)) not in known:
            raise InputError(f"network.faults.loss.rates: the graph has no edge between the nodes {i} and {j}")


@dataclass(frozen=True)
class Mixing:
    """Metropolis weights of the neighbours that were heard, in one exchange."""

    own: Array  # (runs, nodes)
    of_arcs: Array  # (runs, arcs); 0 of those that do not count

    @classmethod
    def of(cls, timeline: Timeline, t: int) -> Self:
        receiver, sender = timeline.arcs.T
        degree, counts = timeline.degree[:, t], timeline.neighbours[:, t]
        weights = np.where(counts, 1.0 / (1 + np.maximum(degree[:, receiver], degree[:, sender])), 0.0)
        ends = np.searchsorted(receiver, np.arange(timeline.nodes + 1)).tolist()
        rows = [[1.0 - math.fsum(row[first:last]) for first, last in pairwise(ends)] for row in weights.tolist()]
        return cls(np.array(rows), weights)


def renewed(t: int, fresh: NDArray[np.int16], held: Array, late: Array | None, coming: Array) -> tuple[Array, Array | None]:
    """What arcs have brought last by the end of exchange t, and what is on its way; `coming` is sent in this exchange."""
    held = np.where((fresh == 0)[..., None], coming, held)
    if late is None:
        return held, None
    features = coming.shape[-1]
    late = late.reshape(*late.shape[:2], -1, features).copy()
    longest = late.shape[2]
    for k in range(1, longest + 1):
        if (now := fresh == k).any():
            held = np.where(now[..., None], late[:, :, (t - k) % longest], held)
    late[:, :, t % longest] = coming
    return held, late.reshape(*late.shape[:2], -1)


class Inbox:
    """What the nodes of a rank have received last along each arc, and sums over those that count."""

    def __init__(self, faults: NetworkFaults, runs: range, places: Ints, known: Ints) -> None:
        """`known` are the nodes whose vectors come in, in their order."""
        self.faults, self.timeline = faults, faults.timeline(runs)
        self._here = np.flatnonzero(np.isin(faults.arcs[:, 0], places))
        self._places = places
        position = np.full(faults.topology.nodes, -1, dtype=np.int64)
        position[known] = np.arange(len(known))
        self._senders = position[faults.arcs[self._here, 1]]
        rows = np.searchsorted(places, faults.arcs[self._here, 0])
        rank = np.arange(len(rows)) - np.searchsorted(rows, rows)  # of an arc among those of its receiver
        # The k-th senders of all places that have one: a pass over k adds them up without a loop over places.
        self._passes = [(rows[rank == k], np.flatnonzero(rank == k)) for k in range(int(rank.max(initial=-1)) + 1)]
        self._mixing: tuple[int, Mixing] | None = None

    def receive(self, t: int, held: Array, late: Array | None, values: Array) -> tuple[Array, Array | None]:
        """What is held after exchange t, and what is on its way, (runs, arcs here, ...); from (runs, known, features)."""
        return renewed(t, self.timeline.fresh[:, t][:, self._here], held, late, values[:, self._senders])

    def sums(self, t: int, held: Array, weighted: bool) -> Array:
        """Over the neighbours that were heard, in ascending order, (runs, places, features); by Metropolis weights if asked."""
        counts = self.timeline.neighbours[:, t][:, self._here]
        weights = self.mixing(t).of_arcs[:, self._here] if weighted else None
        total = np.zeros((held.shape[0], len(self._places), held.shape[2]))
        for rows, arcs in self._passes:
            values = held[:, arcs] if weights is None else weights[:, arcs, None] * held[:, arcs]
            total[:, rows] += np.where(counts[:, arcs, None], values, 0.0)
        return total

    def mixing(self, t: int) -> Mixing:
        """Metropolis weights after exchange t; they are made anew where other neighbours count."""
        known, now = self._mixing, self.timeline.neighbours
        if known is None or (known[0] != t and not np.array_equal(now[:, known[0]], now[:, t])):
            known = self._mixing = t, Mixing.of(self.timeline, t)
        return known[1]
