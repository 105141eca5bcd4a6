"""What goes wrong on a network (docs/networks.md): messages are lost or late, nodes are absent, graphs change, vectors are cut.

A class for each kind, entered in one registry; which key of [network.faults] it can stand at is what it derives from:
`MessageLoss`, `MessageDelay`, `NodeAbsence`, `EdgeChange` or `Compression`. Whatever is drawn has an address: the seed, what it
is for, the run, the message's two nodes (or the edge's, or the node), and in its stream the iteration. So every rank knows
what becomes of every message before the first iteration, the same on every layout, after every restart, and in the first part
of a run that is extended. None of it depends on the records.

What it means for a run is in timeline.py.
"""

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar, NamedTuple, Self

import numpy as np
from msgspec import Meta
from msgspec.structs import replace

from dpadmm_mpi.config.options import (
    Count,
    FilePath,
    Fraction,
    Kind,
    NoKey,
    OpenFraction,
    Options,
    Place,
    Positive,
    Probability,
)
from dpadmm_mpi.errors import InputError
from dpadmm_mpi.files import read_text
from dpadmm_mpi.networks.graph_files import edge_in_line
from dpadmm_mpi.networks.graphs import Graph
from dpadmm_mpi.networks.topology import Topology, of_edges
from dpadmm_mpi.registry import Registry
from dpadmm_mpi.rng import Purpose, generator, generators
from dpadmm_mpi.showing import brief
from dpadmm_mpi.types import Array, Bools, Ints

faults = Registry["Fault"]("fault", "faults")

Pair = tuple[int, int]


@dataclass(frozen=True)
class Draws:
    """What a kind may draw: numbers for some items, messages between two nodes, edges or nodes, in some runs."""

    seed: int
    purpose: Purpose
    runs: range
    iterations: int  # of the run; its exchanges are numbered 0, ..., iterations
    ends: Ints  # (items, 2): receiver and sender of a message, both ends of an edge, or a node twice
    nodes: int

    def uniform(self, stream: int = 0) -> Array:
        """Numbers in [0, 1), (runs, items, iterations + 1); every stream has others."""
        address = self.ends[:, 0] * self.nodes + self.ends[:, 1]
        drawn = np.empty((len(self.runs) * len(address), self.iterations + 1))
        for row, rng in zip(drawn, generators(self.seed, self.purpose, self.runs, address, stream), strict=True):
            rng.random(out=row)
        return drawn.reshape(len(self.runs), len(address), -1)


@faults.base
class Fault(Options):
    """Something that goes wrong."""

    @property
    def never(self) -> bool:
        """Whether it does nothing at all, as it is set."""
        return False

    @property
    def contents(self) -> str:
        """What it has read from a file; "": nothing. A run goes on with the same alone."""
        return ""


class Failing(Fault):
    """What fails is decided for each item by itself, whatever the others do."""

    @abstractmethod
    def fails(self, draws: Draws) -> Bools:
        """Which items fail when, (runs, items, iterations + 1), or what can be broadcast to it."""


class MessageLoss(Failing):
    """Messages that are sent and do not arrive; an item is a message, by its receiver and sender."""

    def always(self, ends: Ints) -> Bools:
        """Whether all that is sent between these receivers and senders, (items, 2), is lost."""
        return np.zeros(len(ends), dtype=bool)


class MessageDelay(Fault):
    """Messages that arrive some iterations after they were sent."""

    @property
    @abstractmethod
    def longest(self) -> int:
        """The longest delay, in iterations."""

    @abstractmethod
    def delays(self, draws: Draws) -> Ints:
        """Of each message in iterations, (runs, items, iterations + 1), or what can be broadcast to it."""

    @property
    def never(self) -> bool:
        return self.longest == 0


class NodeAbsence(Failing):
    """Nodes that are away in some iterations: they take no step and send nothing; an item is a node."""

    receives: ClassVar[bool] = False  # what is sent to a node meanwhile waits for it; otherwise it is lost

    def read(self, nodes: int) -> Self:
        """With what it reads from a file."""
        return self


class EdgeChange(Fault):
    """Graphs that change."""

    def settled(self, graph: Graph, topology: Topology, seed: int, iterations: int) -> tuple[Topology, Self]:
        """The graph of all edges that there ever are, from the first graph, and with what it draws or reads for all runs."""
        return topology, self

    @abstractmethod
    def off(self, draws: Draws) -> Bools:
        """Which edges are not there, (runs, edges, iterations + 1), or what can be broadcast to it."""


class Compression(Fault):
    """What a node releases is made smaller, after its noise; the node itself goes on from what the others get."""

    only_changes: ClassVar[bool] = False  # a message has what is new since the last one; after a lost one it has everything
    random: ClassVar[bool] = True

    @abstractmethod
    def compressed(self, values: Array, before: Array, coins: Array) -> Array:
        """What is sent of `values`, from what was sent `before`; with uniform coins, (..., features) all of them."""

    @abstractmethod
    def message_bytes(self, features: int) -> int:
        """The size of a message, unless it has to have everything."""


class Chain(NamedTuple):
    """A Markov chain of two states for each item, from its stationary law: works or not."""

    fail: float  # probability that what works fails next
    recover: float  # ... and that what has failed works next

    def failed(self, coins: Array) -> Bools:
        """(..., iterations + 1), from coins of the same shape."""
        states = np.zeros(coins.shape, dtype=bool)
        states[..., 0] = coins[..., 0] * (self.fail + self.recover) < self.fail
        for t in range(1, coins.shape[-1]):
            u, before = coins[..., t], states[..., t - 1]
            states[..., t] = np.where(before, u >= self.recover, u < self.fail)
        return states


@faults.register("uniform")
class Uniform(MessageLoss, NodeAbsence):
    """Each message is lost, or each node absent, with one probability, whatever happened before."""

    probability: Probability  # that a message is lost, or that a node is absent in an iteration

    @property
    def never(self) -> bool:
        return self.probability == 0.0

    def fails(self, draws: Draws) -> Bools:
        return np.asarray(draws.uniform() < self.probability)

    def always(self, ends: Ints) -> Bools:
        return np.full(len(ends), self.probability == 1.0)


@faults.register("bursts")
class Bursts(MessageLoss):
    """Messages are lost in bursts, each way of an edge by itself: good and bad times take turns (Gilbert, Elliott)."""

    begin: Probability = 0.1  # probability that a burst begins in an iteration
    end: Fraction = 0.4  # ... and that it ends
    loss_in_burst: Probability = 1.0  # probability that a message is lost in a burst
    loss_between: Probability = 0.0  # ... and between two

    @property
    def never(self) -> bool:
        return self.loss_between == 0.0 and (self.begin == 0.0 or self.loss_in_burst == 0.0)

    def fails(self, draws: Draws) -> Bools:
        burst = Chain(self.begin, self.end).failed(draws.uniform())
        return np.asarray(draws.uniform(stream=1) < np.where(burst, self.loss_in_burst, self.loss_between))


@faults.register("edges")
class EdgeLoss(MessageLoss):
    """Each edge has a loss rate of its own, both ways."""

    rates: list[tuple[Place, Place, Probability]]  # node, node, and the probability that a message between them is lost
    otherwise: Probability = 0.0  # of all other edges

    @property
    def never(self) -> bool:
        return self.otherwise == 0.0 and all(rate == 0.0 for _, _, rate in self.rates)

    def check(self) -> None:
        for i, j, _ in self.rates:
            if i == j:
                raise InputError(f"network.faults.loss.rates: node {i} is joined to itself; name two nodes")

    def fails(self, draws: Draws) -> Bools:
        return np.asarray(draws.uniform() < self._rates(draws.ends)[:, None])

    def always(self, ends: Ints) -> Bools:
        return np.asarray(self._rates(ends) == 1.0)

    def _rates(self, ends: Ints) -> Array:
        known = {(min(i, j), max(i, j)): rate for i, j, rate in self.rates}
        return np.array([known.get((min(i, j), max(i, j)), self.otherwise) for i, j in ends.tolist()])


@faults.register("fixed")
class FixedDelay(MessageDelay):
    """Every message is so many iterations late."""

    iterations: Annotated[int, Meta(ge=0, le=1000)]  # from sending to receiving; 0: within the iteration, as without

    @property
    def longest(self) -> int:
        return self.iterations

    def delays(self, draws: Draws) -> Ints:
        return np.full((1, 1, 1), self.iterations, dtype=np.int64)


@faults.register("geometric")
class GeometricDelay(MessageDelay):
    """Each message is late by a number of iterations that is drawn for it, P(k) = (1 - q) q^k with q = mean / (1 + mean)."""

    mean: Positive = 1.0  # iterations, before `limit` cuts the longest ones
    limit: Annotated[int, Meta(ge=1, le=1000)] = 20  # no message is later than that

    @property
    def longest(self) -> int:
        return self.limit

    def delays(self, draws: Draws) -> Ints:
        """k = floor(ln u / ln q) has this law for uniform u."""
        u = 1.0 - draws.uniform()
        late = np.floor(np.log(u) / np.log(self.mean / (1.0 + self.mean)))
        return np.minimum(late, self.limit).astype(np.int64)


@faults.register("markov")
class Markov(NodeAbsence, EdgeChange):
    """Nodes go and come back, or edges switch off and on, as Markov chains of their own."""

    fail: Probability = 0.1  # probability that a node leaves, or an edge is switched off, in an iteration
    recover: Fraction = 0.5  # ... and that one that is away comes back

    @property
    def never(self) -> bool:
        return self.fail == 0.0

    def fails(self, draws: Draws) -> Bools:
        return Chain(self.fail, self.recover).failed(draws.uniform())

    def off(self, draws: Draws) -> Bools:
        return self.fails(draws)


@faults.register("cyclic")
class Cyclic(NodeAbsence):
    """Nodes are absent in turn: in every `every` iterations for `away` of them, each node `shift` later than the one before."""

    every: Count = 10  # iterations of a turn
    away: Annotated[int, Meta(ge=0)] = 1  # of these, in which a node is absent
    shift: Annotated[int, Meta(ge=0)] = 1  # iterations between node i and node i + 1

    def check(self) -> None:
        if self.away >= self.every:
            raise InputError(f"network.faults.absence.away: found {self.away}; it must be below every = {self.every}")

    @property
    def never(self) -> bool:
        return self.away == 0

    def fails(self, draws: Draws) -> Bools:
        t = np.arange(draws.iterations + 1) - 1  # the first turn begins with iteration 1
        return np.asarray((t - self.shift * draws.ends[:, :1]) % self.every < self.away)[None]


@faults.register("trace")
class Trace(NodeAbsence):
    """From the file `path`: a line for each iteration, from 1 on, with 1 for each node that is there and 0 for one that is not.

    After the last line it begins again.
    """

    path: FilePath  # a file with a line for each iteration and a 0 or 1 for each node
    lines: Annotated[tuple[tuple[bool, ...], ...], NoKey()] = ()  # of the file: whether a node is there

    def read(self, nodes: int) -> Self:
        found = []
        for number, line in _lines(self.path, "network.faults.absence.path"):
            words = line.split()
            if len(words) != nodes or not set(words) <= {"0", "1"}:
                raise InputError(
                    f'network.faults.absence.path: {self.path} line {number} is "{brief(line)}"; a 0 or 1 for each of the '
                    f"{nodes} nodes is needed"
                )
            found.append(tuple(word == "1" for word in words))
        if not found:
            raise InputError(f"network.faults.absence.path: {self.path} has no line; one for each iteration is needed")
        return replace(self, lines=tuple(found))

    @property
    def contents(self) -> str:
        return repr(self.lines)

    def fails(self, draws: Draws) -> Bools:
        there = np.array(self.lines, dtype=bool)
        return ~there[(np.arange(draws.iterations + 1) - 1) % len(there)].T[None, draws.ends[:, 0]]


@faults.register("asynchronous")
class Asynchronous(NodeAbsence):
    """Each node wakes up with a probability in every iteration; while it sleeps, what is sent to it waits for it."""

    receives: ClassVar[bool] = True

    activation: Fraction = 0.5  # probability that a node is awake in an iteration

    @property
    def never(self) -> bool:
        return self.activation == 1.0

    def fails(self, draws: Draws) -> Bools:
        return np.asarray(draws.uniform() >= self.activation)


class SeveralGraphs(EdgeChange):
    """One graph after the other, the same ones in all runs."""

    every: Count = 10  # iterations of a graph
    graphs: Annotated[tuple[tuple[Pair, ...], ...], NoKey()] = ()  # edges of each

    def off(self, draws: Draws) -> Bools:
        number = {(i, j): edge for edge, (i, j) in enumerate(draws.ends.tolist())}
        on = np.zeros((len(self.graphs), len(number)), dtype=bool)
        for row, edges in zip(on, self.graphs, strict=True):
            row[[number[pair] for pair in edges if pair in number]] = True
        return ~on[np.arange(draws.iterations + 1) // self.every % len(on)].T[None]

    def _of(self, graphs: list[list[Pair]], nodes: int) -> tuple[Topology, Self]:
        ever = np.array(sorted({pair for edges in graphs for pair in edges}), dtype=np.int64).reshape(-1, 2)
        return of_edges(ever, nodes), replace(self, graphs=tuple(map(tuple, graphs)))


@faults.register("redrawn")
class Redrawn(SeveralGraphs):
    """The graph is drawn anew every so many iterations; a single one need not be connected."""

    def settled(self, graph: Graph, topology: Topology, seed: int, iterations: int) -> tuple[Topology, Self]:
        if not graph.random:
            raise InputError(
                'network.faults.change: network.graph is not a drawn one; choose a random graph, or kind = "markov"'
            )
        drawn = [_ordered(topology.edges)]
        for number in range(1, iterations // self.every + 1):
            drawn.append(_ordered(graph.edges(generator(seed, Purpose.CHANGE, iteration=number))))
        return self._of(drawn, topology.nodes)


@faults.register("graphs")
class GraphFile(SeveralGraphs):
    """From the file `path`: graphs one after the other, an edge in each line, an empty line between two; then from the first.

    They take the place of network.graph, which says how many nodes there are.
    """

    path: FilePath  # type: ignore[misc]  # a file with two node numbers per line, from 0, and empty lines between graphs

    def settled(self, graph: Graph, topology: Topology, seed: int, iterations: int) -> tuple[Topology, Self]:
        key = "network.faults.change.path"
        read: list[list[Pair]] = [[]]
        for number, line in _lines(self.path, key, empty=True):
            if not line:
                read += [[]] if read[-1] else []
                continue
            i, j = edge_in_line(line, f"{key}: {self.path} line {number}")
            if max(i, j) >= topology.nodes:
                raise InputError(
                    f"{key}: {self.path} line {number} names node {max(i, j)}; there are 0 to {topology.nodes - 1}"
                )
            read[-1].append((min(i, j), max(i, j)))
        read = [edges for edges in read if edges]
        if not read:
            raise InputError(f"{key}: {self.path} has no edges; two node numbers per line are needed")
        return self._of(read, topology.nodes)

    @property
    def contents(self) -> str:
        return repr(self.graphs)


def _ordered(edges: Ints) -> list[Pair]:
    return [(min(i, j), max(i, j)) for i, j in edges.tolist()]


def _lines(path: str, key: str, empty: bool = False) -> Iterator[tuple[int, str]]:
    """The lines of a text file with their numbers, without comments; empty ones if they mean something."""
    try:
        lines = read_text(Path(path), "utf-8-sig").splitlines()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        raise InputError(f"{key}: {path} cannot be read: {reason}") from None
    for number, line in enumerate(lines, 1):
        words = line.split("#")[0].strip()
        if words or (empty and not line.strip()):
            yield number, words


@faults.register("quantisation")
class Quantisation(Compression):
    """Every number is rounded to one of 2^bits values between minus and plus the largest one, up or down at random."""

    bits: Annotated[int, Meta(ge=1, le=32)] = 8  # of a number

    def compressed(self, values: Array, before: Array, coins: Array) -> Array:
        """Without bias: up with the probability of the distance to the value below."""
        largest = np.abs(values).max(axis=-1, keepdims=True)
        steps = float(2**self.bits - 1)
        width = np.where(largest > 0.0, 2.0 * largest / steps, 1.0)
        places = np.clip(np.floor((values + largest) / width + coins), 0.0, steps)
        return np.asarray(places * width - largest)

    def message_bytes(self, features: int) -> int:
        return -(-features * self.bits // 8) + 8  # and the largest number


class SomeEntries(Compression):
    """Of a vector, some entries are sent; the others stay what they were in the message before."""

    only_changes: ClassVar[bool] = True

    share: OpenFraction = 0.1  # of the entries, that are sent: at least one

    def entries(self, features: int) -> int:
        return max(1, round(self.share * features))

    @abstractmethod
    def ranking(self, values: Array, before: Array, coins: Array) -> Array:
        """The entries with the smallest of these numbers are sent."""

    def compressed(self, values: Array, before: Array, coins: Array) -> Array:
        order = np.argsort(self.ranking(values, before, coins), axis=-1, kind="stable")
        sent = order[..., : self.entries(values.shape[-1])]
        made = before.copy()
        np.put_along_axis(made, sent, np.take_along_axis(values, sent, axis=-1), axis=-1)
        return made


@faults.register("top-k")
class TopK(SomeEntries):
    """The entries that have changed most since the last message are sent, with their places."""

    random: ClassVar[bool] = False

    def ranking(self, values: Array, before: Array, coins: Array) -> Array:
        return -np.abs(values - before)

    def message_bytes(self, features: int) -> int:
        return 12 * self.entries(features)  # 8 of a number and 4 of its place


@faults.register("random-k")
class RandomK(SomeEntries):
    """Entries are drawn anew for each message, and sent with the seed that tells which."""

    def ranking(self, values: Array, before: Array, coins: Array) -> Array:
        return coins

    def message_bytes(self, features: int) -> int:
        return 8 * self.entries(features) + 8


class Faults(Options):
    """What goes wrong on the network; each key is a number, or a table with a kind and its options."""

    # Messages that do not arrive; a number is the probability of each
    loss: Annotated[MessageLoss | None, Kind(faults, MessageLoss, "uniform", "probability")] = None
    # Iterations from sending to receiving, of every message; what a node has received last is used
    delay: Annotated[MessageDelay | None, Kind(faults, MessageDelay, "fixed", "iterations")] = None
    # Nodes that take no step and send nothing; a number is the probability of each node in each iteration
    absence: Annotated[NodeAbsence | None, Kind(faults, NodeAbsence, "uniform", "probability")] = None
    # Graphs that change; a number is the iterations after which the graph is drawn anew
    change: Annotated[EdgeChange | None, Kind(faults, EdgeChange, "redrawn", "every")] = None
    # What is sent of a vector, after the noise; a number is the bits of each of its entries
    compression: Annotated[Compression | None, Kind(faults, Compression, "quantisation", "bits")] = None

    @property
    def kinds(self) -> dict[str, Fault]:
        """Those that do something, by their keys."""
        given = {"loss": self.loss, "delay": self.delay, "absence": self.absence, "change": self.change}
        found: dict[str, Fault | None] = {**given, "compression": self.compression}
        return {key: kind for key, kind in found.items() if kind is not None and not kind.never}

    def check(self) -> None:
        for kind in self.kinds.values():
            kind.check()
