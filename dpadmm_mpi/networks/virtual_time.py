"""Virtual time (docs/networks.md): how long a run would take on machines and links of given speeds, and what it sends.

Rounds are synchronous: an exchange begins when all nodes have ended the one before, and ends when every node that is there has
done its own work and has got, or given up, every message that it waits for. Everything follows from the configuration and
from what goes wrong on the network, so it is known before the first iteration and costs the run nothing.
"""

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, NamedTuple

import numpy as np

from dpadmm_mpi.config.options import Kind, NonNegative, Options, Positive
from dpadmm_mpi.errors import InputError
from dpadmm_mpi.networks.timeline import faults_on
from dpadmm_mpi.networks.topology import Topology
from dpadmm_mpi.registry import Registry
from dpadmm_mpi.rng import Purpose, generators
from dpadmm_mpi.types import Array, Bools, Ints

CHUNK = 1 << 21  # numbers of messages that are looked at together
PASSES = 10.0  # over the records, of an exact solve, unless it is said
SMALLEST = 2.0**-54  # in the place of a 0 that is drawn, of which a law may make infinity

laws = Registry["LinkLaw"]("link law", "link_laws")


@laws.base
class LinkLaw(Options):
    """A latency in seconds, or a bandwidth in bytes per second."""

    @abstractmethod
    def of(self, uniform: Array) -> Array:
        """From numbers that are uniform between 0 and 1, as many."""


@laws.register("constant")
class Constant(LinkLaw):
    """The same for every message."""

    value: Positive  # seconds, or bytes per second

    def of(self, uniform: Array) -> Array:
        return np.full_like(uniform, self.value)


class DrawnLaw(LinkLaw, kw_only=True):
    """A law that numbers are drawn from."""

    each: Literal["message", "edge"] = "message"  # drawn anew for each message, or once for an edge, both ways and all runs


@laws.register("uniform")
class UniformLaw(DrawnLaw, kw_only=True):
    """Between two numbers, all alike."""

    low: NonNegative  # the smallest
    high: Positive  # the largest

    def check(self) -> None:
        if self.low > self.high:
            raise InputError(f"network.time: a uniform law from low = {self.low:g} to high = {self.high:g}; exchange them")

    def of(self, uniform: Array) -> Array:
        return self.low + (self.high - self.low) * uniform


@laws.register("exponential")
class ExponentialLaw(DrawnLaw, kw_only=True):
    """At least `least`, and on top of it an exponential number with the mean `mean`."""

    mean: Positive  # of what comes on top
    least: NonNegative = 0.0  # the smallest

    def of(self, uniform: Array) -> Array:
        return np.asarray(self.least - self.mean * np.log1p(-uniform))


@laws.register("lognormal")
class LognormalLaw(DrawnLaw, kw_only=True):
    """exp of a normal number: half of them below `median`, a long tail above it."""

    median: Positive  # half are below it
    sigma: Positive = 1.0  # standard deviation of the logarithm

    def of(self, uniform: Array) -> Array:
        from scipy.special import ndtri  # on the rank that asks

        return np.asarray(self.median * np.exp(self.sigma * ndtri(uniform)))


class VirtualTime(Options):
    """How fast machines and links are; what is not given takes no time."""

    seconds_per_record: NonNegative | None = None  # of a pass over the records, for each of them: its loss and slope at a point
    passes_per_solve: Positive | None = None  # over the records, of an exact data step, 10 unless given; a gradient takes one
    # From sending to receiving, in seconds: a number, or a table with a kind
    latency: Annotated[LinkLaw | None, Kind(laws, LinkLaw, "constant", "value")] = None
    # Bytes per second of each way of an edge: a number, or a table with a kind; none: no limit
    bandwidth: Annotated[LinkLaw | None, Kind(laws, LinkLaw, "constant", "value")] = None
    # Seconds that a node waits, from the end of its own work, for a message that does not come; none: it is told at once
    timeout: NonNegative | None = None

    @property
    def is_given(self) -> bool:
        return self != VirtualTime()

    def check(self) -> None:
        for law in (self.latency, self.bandwidth):
            if law is not None:
                law.check()

    @property
    def passes(self) -> float:
        return PASSES if self.passes_per_solve is None else self.passes_per_solve


class Leg(NamedTuple):
    """An exchange of every iteration: the channel, and what the nodes do before they send."""

    channel: str
    passes: Array  # over their records, (1 or runs, T+1, N)
    happens: Bools  # (T+1,): in which iterations


class Elapsed(NamedTuple):
    """Since the start, (runs, T+1)."""

    seconds: Array
    bytes_sent: Array


@dataclass(frozen=True)
class Clock:
    """Virtual time of some runs on a network."""

    time: VirtualTime
    topology: Topology
    sizes: Ints  # records of every node
    vector_bytes: int  # of a message, unless it is compressed
    seed: int
    runs: range

    def elapsed(self, legs: Sequence[Leg]) -> Elapsed:
        """When every iteration ends, and how many bytes all nodes have sent by then."""
        shape = len(self.runs), len(legs[0].happens)
        seconds, sent = np.zeros(shape), np.zeros(shape)
        for number, leg in enumerate(legs):
            ends, sizes = self._exchange(leg, number, shape)
            seconds += np.where(leg.happens, ends, 0.0)
            sent += np.where(leg.happens, sizes, 0.0)
        return Elapsed(np.cumsum(seconds, axis=1), np.cumsum(sent, axis=1))

    def _exchange(self, leg: Leg, number: int, shape: tuple[int, int]) -> tuple[Array, Array]:
        """How long it takes in each iteration, and what is sent, (runs, T+1)."""
        arcs, time = self._arcs(leg.channel), self.time
        messages = _Messages(self.topology, arcs, self.runs, self.vector_bytes, shape[1])
        work = messages.present * leg.passes * self.sizes * (time.seconds_per_record or 0.0)
        if self.topology.has_hub:
            work = np.concatenate([work, np.zeros_like(work[..., :1])], axis=2)
        ends, sent = np.zeros(shape) + work.max(axis=2), np.zeros(shape)
        for some in _chunks(len(arcs), shape[0] * shape[1]):
            receiver, sender = arcs[some].T
            size, drawn = messages.size(some), (arcs[some], shape[1], number)
            arrives = work[..., sender] + self._drawn(time.latency, Purpose.LATENCY, *drawn)
            if time.bandwidth is not None:
                arrives = arrives + size / self._drawn(time.bandwidth, Purpose.BANDWIDTH, *drawn)
            given_up = work[..., receiver] + (time.timeout or 0.0)
            waited = np.where(messages.awaited(some), np.where(messages.came(some), arrives, given_up), 0.0)
            ends, sent = np.maximum(ends, waited.max(axis=2, initial=0.0)), sent + size.sum(axis=2)
        return ends, sent

    def _arcs(self, channel: str) -> Ints:
        """(receiver, sender) of the messages of a channel."""
        arcs = self.topology.arcs
        return arcs if channel == "edges" else arcs[arcs[:, 0 if channel == "up" else 1] == self.topology.nodes]

    def _drawn(self, law: LinkLaw | None, purpose: Purpose, arcs: Ints, length: int, exchange: int) -> Array:
        """(runs or 1, T+1 or 1, messages); every exchange of an iteration has a stream of its own."""
        places = self.topology.places
        if not isinstance(law, DrawnLaw):
            return np.zeros((1, 1, 1)) if law is None else law.of(np.ones((1, 1, 1)))
        if law.each == "edge":
            edges = arcs.min(axis=1) * places + arcs.max(axis=1)
            numbers = [rng.random() for rng in generators(self.seed, purpose, range(1), edges, 0)]
            return law.of(np.maximum(numbers, SMALLEST)[None, None, :])
        drawn = np.empty((len(self.runs) * len(arcs), length))
        address = arcs[:, 0] * places + arcs[:, 1]
        for row, rng in zip(drawn, generators(self.seed, purpose, self.runs, address, exchange + 1), strict=True):
            rng.random(out=row)
        return law.of(np.maximum(np.swapaxes(drawn.reshape(len(self.runs), len(arcs), length), 1, 2), SMALLEST))


def _chunks(count: int, numbers_each: int) -> Iterator[slice]:
    size = max(1, CHUNK // numbers_each)
    return (slice(first, first + size) for first in range(0, count, size))


class _Messages:
    """What becomes of the messages of a channel, (1 or runs, 1 or T+1, messages) each.

    `length` is T+1: faults are drawn for all iterations of the configuration, of which a budget may end a run earlier.
    """

    def __init__(self, topology: Topology, arcs: Ints, runs: range, vector_bytes: int, length: int) -> None:
        self._arcs, self._bytes, self._rows = arcs, vector_bytes, slice(length)
        self._timeline, self._sizes = None, None
        if (faults := faults_on(topology)) is not None:
            self._timeline = faults.timeline(runs)
            self._sizes = faults.message_bytes(self._timeline, vector_bytes // 8)

    @property
    def present(self) -> Bools:
        return np.ones((1, 1, 1), dtype=bool) if self._timeline is None else self._timeline.present[:, self._rows]

    def _all(self, some: slice) -> Bools:
        return np.ones((1, 1, len(self._arcs[some])), dtype=bool)

    def size(self, some: slice) -> Array:
        """Bytes; 0 where nothing is sent."""
        return (
            self._bytes * self._all(some).astype(np.float64)
            if self._sizes is None
            else self._sizes[:, self._rows, some].astype(np.float64)
        )

    def came(self, some: slice) -> Bools:
        """In the iteration in which they were sent."""
        return self._all(some) if self._timeline is None else self._timeline.fresh[:, self._rows, some] == 0

    def awaited(self, some: slice) -> Bools:
        """The receiver is there, and so is the edge."""
        if self._timeline is None:
            return self._all(some)
        there = self.present[..., self._arcs[some, 0]]
        return there if self._timeline.edges_on is None else there & self._timeline.edges_on[:, self._rows, some]
