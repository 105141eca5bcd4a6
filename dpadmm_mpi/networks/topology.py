"""A network as the ranks need it: who is whose neighbour, who sends to whom, and sums of what arrives."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import overload

import numpy as np

from dpadmm_mpi.types import Array, Ints

FEW_PLACES = 4  # of a rank, up to which vectors are added up one by one faster than by index


class Lists(Sequence[tuple[int, ...]]):
    """A list of numbers for every place, all of them in two arrays: those of place i are numbers[starts[i] : starts[i + 1]]."""

    def __init__(self, starts: Ints, numbers: Ints) -> None:
        self.starts, self.numbers = starts, numbers

    @classmethod
    def of(cls, lists: Iterable[Sequence[int]]) -> "Lists":
        if isinstance(lists, Lists):
            return lists
        lists = list(lists)
        starts = np.concatenate([[0], np.cumsum([len(each) for each in lists], dtype=np.int64)])
        return cls(starts, np.array([number for each in lists for number in each], dtype=np.int64))

    @property
    def lengths(self) -> Ints:
        return np.diff(self.starts)

    @property
    def places(self) -> Ints:
        """Of each number, the place that has it."""
        return np.repeat(np.arange(len(self)), self.lengths)

    def transposed(self) -> "Lists":
        """Of each place, those that have its number, ascending."""
        counts = np.bincount(self.numbers, minlength=len(self))
        order = np.argsort(self.numbers, kind="stable")
        return Lists(np.concatenate([[0], np.cumsum(counts)]), self.places[order])

    def __len__(self) -> int:
        return len(self.starts) - 1

    @overload
    def __getitem__(self, index: int) -> tuple[int, ...]: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[tuple[int, ...], ...]: ...

    def __getitem__(self, index: int | slice) -> tuple[int, ...] | tuple[tuple[int, ...], ...]:
        if isinstance(index, slice):
            return tuple(self[i] for i in range(len(self))[index])
        place = range(len(self))[index]
        return tuple(self.numbers[self.starts[place] : self.starts[place + 1]].tolist())

    def __iter__(self) -> Iterator[tuple[int, ...]]:
        numbers = self.numbers.tolist()
        return (tuple(numbers[first:last]) for first, last in pairwise(self.starts.tolist()))

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Lists):
            return np.array_equal(self.starts, other.starts) and np.array_equal(self.numbers, other.numbers)
        return tuple(self) == other

    def __hash__(self) -> int:
        return hash((self.starts.tobytes(), self.numbers.tobytes()))


@dataclass(frozen=True)
class Channel:
    """Who sends to whom in one exchange; places are numbered 0..P-1."""

    receivers: Sequence[Sequence[int]]  # of each place, ascending

    @cached_property
    def senders(self) -> Lists:
        return Lists.of(self.receivers).transposed()


@dataclass(frozen=True)
class Topology:
    """A connected undirected graph on nodes 0..N-1, or N nodes around a hub; without networkx.

    The hub (a server, a curator) has no records. It is place N, behind the nodes.
    """

    neighbours: Lists  # of each place, ascending
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
        return self.neighbours.lengths[: self.nodes]

    @property
    def edges(self) -> Ints:
        """Each edge once, (E, 2), i < j, in order."""
        return self.arcs[self.arcs[:, 0] < self.arcs[:, 1]]

    @cached_property
    def arcs(self) -> Ints:
        """(receiver, sender) of every message that an exchange along the edges has, (A, 2), ascending."""
        return np.column_stack([self.neighbours.places, self.neighbours.numbers])

    @property
    def arc_channel(self) -> Channel:
        """From arc to arc: what a node has for a neighbour, in the place of the arc that comes from there, goes to the arc
        that leads there. So every neighbour may get something else.
        """
        # Sorted by the sender and then by the receiver, the arcs are in the order of their opposites.
        opposite = np.lexsort((self.arcs[:, 0], self.arcs[:, 1]))
        return Channel(Lists(np.arange(len(opposite) + 1), opposite))

    @property
    def channels(self) -> dict[str, Channel]:
        """Along all edges both ways; or up to the hub, and down from it."""
        if not self.has_hub:
            return {"edges": Channel(self.neighbours)}
        hub, everyone = self.nodes, np.arange(self.nodes)
        return {
            "up": Channel(Lists(np.append(np.arange(hub + 1), hub), np.full(hub, hub))),
            "down": Channel(Lists(np.append(np.zeros(hub + 1, dtype=np.int64), hub), everyone)),
        }


def around_hub(nodes: int) -> Topology:
    """Every node is the neighbour of the hub alone."""
    return Topology(Lists(np.append(np.arange(nodes + 1), 2 * nodes), np.append(np.full(nodes, nodes), np.arange(nodes))), True)


def alone() -> Topology:
    """A single node."""
    return Topology(Lists.of([()]))


def of_edges(edges: Ints, nodes: int) -> Topology:
    """From pairs of nodes, in any order, repeated or not."""
    i, j = edges.T
    arcs = np.unique(np.concatenate([i * nodes + j, j * nodes + i]))
    counts = np.bincount(arcs // nodes, minlength=nodes)
    return Topology(Lists(np.concatenate([[0], np.cumsum(counts)]), arcs % nodes))


def components(topology: Topology) -> list[list[int]]:
    """The connected parts, each in ascending order, by their smallest nodes."""
    smallest = np.arange(topology.places)  # known so far, in the part of every place; itself at the smallest
    receiver, sender = topology.arcs.T
    while True:
        here, there = smallest[receiver], smallest[sender]
        apart = here > there
        if not apart.any():
            break
        np.minimum.at(smallest, here[apart], there[apart])
        while not np.array_equal(further := smallest[smallest], smallest):
            smallest = further
    order = np.argsort(smallest, kind="stable")
    return [part.tolist() for part in np.split(order, np.flatnonzero(np.diff(smallest[order])) + 1)]


def distances(topology: Topology) -> Ints:
    """Edges on the shortest way between two nodes, (N, N); as many as there are places where there is no way."""
    neighbours = list(topology.neighbours)
    found = np.full((topology.places, topology.places), topology.places, dtype=np.int64)
    for start in range(topology.places):
        frontier, length = [start], 0
        while frontier:
            found[start, frontier] = length
            length += 1
            frontier = [j for j in {j for i in frontier for j in neighbours[i]} if found[start, j] > length]
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
        for rows, those in passes_over(senders, places):
            self._passes.append((rows, position[senders.numbers[those]]))

    def __call__(self, values: Array) -> Array:
        total = np.zeros((self._places, values.shape[1]))
        if self._few is not None:
            for row, senders in zip(total, self._few, strict=True):
                for sender in senders:
                    row += values[sender]
            return total
        for rows, sources in self._passes:
            if len(rows) == self._places:  # all of them: their sums need no copy
                total += values[sources]
            else:
                total[rows] += values[sources]
        return total


def passes_over(lists: Lists, places: Ints) -> Iterator[tuple[Ints, Ints]]:
    """For k = 0, 1, ...: the rows of those of the places that have a k-th number, and where it is among the numbers."""
    lengths, starts = lists.lengths[places], lists.starts[places]
    for k in range(int(lengths.max(initial=0))):
        rows = np.flatnonzero(lengths > k)
        yield rows, starts[rows] + k


class ArcsInto:
    """The arcs that end at some of the nodes, in the order of `Topology.arcs`."""

    def __init__(self, neighbours: Sequence[Sequence[int]], nodes: Ints) -> None:
        self._degree = Lists.of(neighbours).lengths[nodes]
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
        if self._few is None:
            self._weights_of = [np.array([self._weights[row][k] for row in rows]) for k, (rows, _) in enumerate(self._passes)]

    def __call__(self, values: Array) -> Array:
        total = np.zeros((self._places, values.shape[1]))
        if self._few is not None:
            for row, senders, weights in zip(total, self._few, self._weights, strict=True):
                for sender, weight in zip(senders, weights, strict=True):
                    row += weight * values[sender]
            return total
        for (rows, sources), weights_of in zip(self._passes, self._weights_of, strict=True):
            total[rows] += weights_of[:, None] * values[sources]
        return total
