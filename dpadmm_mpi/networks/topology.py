"""A network as the ranks need it: who is whose neighbour, who sends to whom, and sums of what arrives."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dpadmm_mpi.types import Array, Ints

FEW_PLACES = 4  # of a rank, up to which vectors are added up one by one faster than by index


@dataclass(frozen=True)
class Channel:
    """Who sends to whom in one exchange; places are numbered 0..P-1."""

    receivers: tuple[tuple[int, ...], ...]  # of each place, ascending

    @cached_property
    def senders(self) -> tuple[tuple[int, ...], ...]:
        incoming: list[list[int]] = [[] for _ in self.receivers]
        for sender, receivers in enumerate(self.receivers):
            for receiver in receivers:
                incoming[receiver].append(sender)
        return tuple(map(tuple, incoming))


@dataclass(frozen=True)
class Topology:
    """A connected undirected graph on nodes 0..N-1, or N nodes around a hub; without networkx.

    The hub (a server, a curator) has no records. It is place N, behind the nodes.
    """

    neighbours: tuple[tuple[int, ...], ...]  # of each place, ascending
    has_hub: bool = False

    @property
    def nodes(self) -> int:
        return len(self.neighbours) - self.has_hub

    @property
    def places(self) -> int:
        """Nodes, and the hub if there is one."""
        return len(self.neighbours)

    @property
    def degree(self) -> Ints:
        return np.array([len(nb) for nb in self.neighbours[: self.nodes]], dtype=np.int64)

    @property
    def edges(self) -> Ints:
        """Each edge once, (E, 2), i < j, in order."""
        pairs = [(i, j) for i, nb in enumerate(self.neighbours) for j in nb if i < j]
        return np.array(pairs, dtype=np.int64).reshape(-1, 2)

    @cached_property
    def arcs(self) -> Ints:
        """(receiver, sender) of every message that an exchange along the edges has, (A, 2), ascending."""
        pairs = [(i, j) for i, nb in enumerate(self.neighbours) for j in nb]
        return np.array(pairs, dtype=np.int64).reshape(-1, 2)

    @property
    def arc_channel(self) -> Channel:
        """From arc to arc: what a node has for a neighbour, in the place of the arc that comes from there, goes to the arc
        that leads there. So every neighbour may get something else.
        """
        number = {(i, j): arc for arc, (i, j) in enumerate(self.arcs.tolist())}
        return Channel(tuple((number[j, i],) for i, j in self.arcs.tolist()))

    @property
    def channels(self) -> dict[str, Channel]:
        """Along all edges both ways; or up to the hub, and down from it."""
        if not self.has_hub:
            return {"edges": Channel(self.neighbours)}
        hub = self.nodes
        return {
            "up": Channel((*(((hub,),) * hub), ())),
            "down": Channel((*(((),) * hub), tuple(range(hub)))),
        }


def of_edges(edges: Ints, nodes: int) -> Topology:
    """From pairs of nodes, in any order, repeated or not."""
    neighbours: list[set[int]] = [set() for _ in range(nodes)]
    for i, j in edges.tolist():
        neighbours[i].add(j)
        neighbours[j].add(i)
    return Topology(tuple(tuple(sorted(nb)) for nb in neighbours))


def components(topology: Topology) -> list[list[int]]:
    """The connected parts, each in ascending order, by their smallest nodes."""
    parts, seen = [], [False] * topology.places
    for start in range(topology.places):
        if seen[start]:
            continue
        part, waiting = [], [start]
        seen[start] = True
        while waiting:
            node = waiting.pop()
            part.append(node)
            for neighbour in topology.neighbours[node]:
                if not seen[neighbour]:
                    seen[neighbour] = True
                    waiting.append(neighbour)
        parts.append(sorted(part))
    return parts


def distances(topology: Topology) -> Ints:
    """Edges on the shortest way between two nodes, (N, N); as many as there are places where there is no way."""
    found = np.full((topology.places, topology.places), topology.places, dtype=np.int64)
    for start in range(topology.places):
        frontier, length = [start], 0
        while frontier:
            found[start, frontier] = length
            length += 1
            frontier = [j for j in {j for i in frontier for j in topology.neighbours[i]} if found[start, j] > length]
    return found[: topology.nodes, : topology.nodes]


class IncomingSum:
    """Sum of what the places of one rank receive over a channel, always in ascending order of the senders."""

    def __init__(self, channel: Channel, places: Ints, known: Ints) -> None:
        senders = channel.senders
        position = np.full(len(senders), -1, dtype=np.int64)
        position[known] = np.arange(len(known))
        self._places = len(places)
        self._few = [[int(position[j]) for j in senders[i]] for i in places] if len(places) <= FEW_PLACES else None
        if self._few is not None:
            return
        # The k-th senders of all places that have one: a pass over k adds them up without a loop over places.
        self._passes = []
        for k in range(max(len(senders[i]) for i in places)):
            rows = np.array([row for row, i in enumerate(places) if len(senders[i]) > k], dtype=np.int64)
            self._passes.append((rows, position[[senders[places[row]][k] for row in rows]]))

    def __call__(self, values: Array) -> Array:
        total = np.zeros((self._places, values.shape[1]))
        if self._few is not None:
            for row, senders in zip(total, self._few, strict=True):
                for sender in senders:
                    row += values[sender]
            return total
        for rows, sources in self._passes:
            total[rows] += values[sources]
        return total


class ArcsInto:
    """The arcs that end at some of the nodes, in the order of `Topology.arcs`."""

    def __init__(self, neighbours: Sequence[Sequence[int]], nodes: Ints) -> None:
        self._degree = np.array([len(neighbours[i]) for i in nodes], dtype=np.int64)
        self._first = np.cumsum(self._degree) - self._degree
        self.ends = np.repeat(np.arange(len(nodes)), self._degree)  # of every arc: which of these nodes

    def sums(self, values: Array) -> Array:
        """(runs, nodes, features) of (runs, arcs, features): over each node's arcs, in ascending order of the senders."""
        total = np.zeros((len(values), len(self._degree), values.shape[2]))
        for k in range(self._degree.max(initial=0)):
            rows = np.flatnonzero(self._degree > k)
            total[:, rows] += values[:, self._first[rows] + k]
        return total


class WeightedSum(IncomingSum):
    """The same with a weight for each sender of every place, in the order of `channel.senders`."""

    def __init__(self, channel: Channel, places: Ints, known: Ints, weights: tuple[tuple[float, ...], ...]) -> None:
        super().__init__(channel, places, known)
        self._weights = [weights[i] for i in places]

    def __call__(self, values: Array) -> Array:
        total = np.zeros((self._places, values.shape[1]))
        if self._few is not None:
            for row, senders, weights in zip(total, self._few, self._weights, strict=True):
                for sender, weight in zip(senders, weights, strict=True):
                    row += weight * values[sender]
            return total
        for k, (rows, sources) in enumerate(self._passes):
            total[rows] += np.array([self._weights[row][k] for row in rows])[:, None] * values[sources]
        return total
