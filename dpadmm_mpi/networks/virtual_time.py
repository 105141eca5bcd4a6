"""Virtual time (docs/networks.md): how long a run would take on machines and links of given speeds, and what it sends.

Rounds are synchronous: an exchange begins when all nodes have ended the one before, and ends when every node that is there has
done its own work and has got, or given up, every message that it waits for. Everything follows from the configuration and
from what goes wrong on the network, so it is known before the first iteration and costs the run nothing.
"""

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import Annotated, Literal, NamedTuple

import numpy as np
from scipy.special import ndtri

from dpadmm_mpi.config.options import Kind, NonNegative, Options, Positive
from dpadmm_mpi.errors import InputError
from dpadmm_mpi.networks.topology import Topology
from dpadmm_mpi.registry import Registry
from dpadmm_mpi.rng import Purpose, generators
from dpadmm_mpi.types import Array, Bools, Ints

CHUNK = 1 << 21  # numbers of messages that are looked at together
PASSES = 10.0  # over the records, of an exact solve, unless it is said
SMALLEST = 2.0**-54  # in the place of a 0 that is drawn, of which a law may make infinity

laws = Registry["LinkLaw"]("link law", "link laws")


@laws.base
class LinkLaw(Options):
    """A latency in seconds, or a bandwidth in bytes per second."""

    @abstractmethod
    def of(self, uniform: Array) -> Array:
        """From numbers that are uniform between 0 and 1, as many."""


@laws.register("constant")
class Constant(LinkLaw):
    """The same for every message."""

    value: Positive

    def of(self, uniform: Array) -> Array:
        return np.full_like(uniform, self.value)


class DrawnLaw(LinkLaw):
    """A law that numbers are drawn from."""

    each: Literal["message", "edge"] = "message"  # drawn anew for each message, or once for an edge, both ways and all runs


@laws.register("uniform")
class UniformLaw(DrawnLaw):
    """Between two numbers, all alike."""

    low: NonNegative
    high: Positive

    def check(self) -> None:
        if self.low > self.high:
            raise InputError(f"network.time: a uniform law from low = {self.low:g} to high = {self.high:g}; exchange them")

    def of(self, uniform: Array) -> Array:
        return self.low + (self.high - self.low) * uniform


@laws.register("exponential")
class ExponentialLaw(DrawnLaw):
    """At least `least`, and on top of it an exponential number with the mean `mean`."""

    mean: Positive
    least: NonNegative = 0.0

    def of(self, uniform: Array) -> Array:
        return np.asarray(self.least - self.mean * np.log1p(-uniform))


@laws.register("lognormal")
class LognormalLaw(DrawnLaw):
    """exp of a normal number: half of them below `median`, a long tail above it."""

    median: Positive
    sigma: Positive = 1.0  # standard deviation of the logarithm

    def of(self, uniform: Array) -> Array:
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


def elapsed(time: VirtualTime, topology: Topology, legs: Sequence[Leg], sizes: Ints, vector_bytes: int, seed: int, runs: range) -> Elapsed:
    """When every iteration ends, and how many bytes all nodes have sent by then."""
    shape = len(runs), len(legs[0].happens)
    seconds, sent = np.zeros(shape), np.zeros(shape)
    for number, leg in enumerate(legs):
        arcs = _arcs_of(topology, leg.channel)
        messages = _Messages(topology, arcs, runs, vector_bytes)
        work = messages.present * leg.passes * (time.seconds_per_record or 0.0) * sizes
        end = np.broadcast_to(work.max(axis=2, initial=0.0), shape).copy()
        if topology.has_hub:
            work = np.concatenate([work, np.zeros_like(work[..., :1])], axis=2)
        for some in _chunks(len(arcs), shape[0] * shape[1]):
            receiver, sender = arcs[some].T
            size, came, awaited = messages.size(some), messages.came(some), messages.awaited(some)
            travel = _drawn(time.latency, Purpose.LATENCY, seed, runs, arcs[some], topology.places, shape[1], number)
            speed = _drawn(time.bandwidth, Purpose.BANDWIDTH, seed, runs, arcs[some], topology.places, shape[1], number)
            arrival = work[..., sender] + travel + (0.0 if time.bandwidth is None else size / speed)
            given_up = work[..., receiver] + (time.timeout or 0.0)
            end = np.maximum(end, np.where(awaited, np.where(came, arrival, given_up), 0.0).max(axis=2, initial=0.0))
            sent += np.where(leg.happens, size.sum(axis=2), 0.0)
        seconds += np.where(leg.happens, end, 0.0)
    return Elapsed(np.cumsum(seconds, axis=1), np.cumsum(sent, axis=1))


def _arcs_of(topology: Topology, channel: str) -> Ints:
    """(receiver, sender) of the messages of a channel."""
    if channel == "edges":
        return topology.arcs
    return topology.arcs[topology.arcs[:, 0 if channel == "up" else 1] == topology.nodes]


def _chunks(count: int, numbers_each: int) -> Iterator[slice]:
    size = max(1, CHUNK // numbers_each)
    return (slice(first, first + size) for first in range(0, count, size))


class _Messages:
    """What becomes of the messages of a channel, (1 or runs, 1 or T+1, messages) each."""

    def __init__(self, topology: Topology, arcs: Ints, runs: range, vector_bytes: int) -> None:
        self._arcs, self._bytes = arcs, vector_bytes
        faults = topology.faults
        self._timeline = None if faults is None else faults.timeline(runs)
        self._sizes = None if faults is None or self._timeline is None else faults.message_bytes(self._timeline, vector_bytes // 8)

    @property
    def present(self) -> Bools:
        return np.ones((1, 1, 1), dtype=bool) if self._timeline is None else self._timeline.present

    def _all(self, some: slice) -> Bools:
        return np.ones((1, 1, len(self._arcs[some])), dtype=bool)

    def size(self, some: slice) -> Array:
        """Bytes; 0 where nothing is sent."""
        return self._bytes * self._all(some).astype(np.float64) if self._sizes is None else self._sizes[..., some].astype(np.float64)

    def came(self, some: slice) -> Bools:
        """In the iteration in which they were sent."""
        return self._all(some) if self._timeline is None else np.asarray(self._timeline.fresh[..., some] == 0)

    def awaited(self, some: slice) -> Bools:
        """The receiver is there, and so is the edge."""
        if self._timeline is None:
            return self._all(some)
        there = self._timeline.present[..., self._arcs[some, 0]]
        return there if self._timeline.edges_on is None else there & self._timeline.edges_on[..., some]


def _drawn(
    law: LinkLaw | None, purpose: Purpose, seed: int, runs: range, arcs: Ints, places: int, length: int, leg: int
) -> Array:
    """(runs or 1, T+1 or 1, messages); every exchange of an iteration is a stream of its own."""
    if law is None or not isinstance(law, DrawnLaw):
        u = np.full((1, 1, 1), 0.5)
        return np.zeros_like(u) if law is None else law.of(u)
    if law.each == "edge":
        edges = arcs.min(axis=1) * places + arcs.max(axis=1)
        numbers = [rng.random() for rng in generators(seed, purpose, range(1), edges, 0)]
        return law.of(np.maximum(numbers, SMALLEST)[None, None, :])
    address = arcs[:, 0] * places + arcs[:, 1]
    drawn = np.empty((len(runs) * len(arcs), length))
    for row, rng in zip(drawn, generators(seed, purpose, runs, address, leg + 1), strict=True):
        rng.random(out=row)
    return law.of(np.maximum(np.swapaxes(drawn.reshape(len(runs), len(arcs), length), 1, 2), SMALLEST))
