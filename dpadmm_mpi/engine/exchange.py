"""The channels between this rank's places and all others; counts what is sent and how long it takes."""

import time

import numpy as np

from dpadmm_mpi.engine.row_gather import by_place, by_run
from dpadmm_mpi.networks.metropolis import metropolis
from dpadmm_mpi.networks.topology import IncomingSum, Topology, WeightedSum
from dpadmm_mpi.parallel.transport import Links, Transport
from dpadmm_mpi.types import Array, Ints


class Exchange:
    """The channels between this rank's places and all others; counts what it sends and how long it waits.

    What a place sends in all runs that go side by side travels together. The channel "arcs" is there on request: on it the
    arcs are the places, each at the rank of its receiver.
    """

    def __init__(
        self, transport: Transport, topology: Topology, owner: Ints, features: int, runs: int, arcs: bool = False
    ) -> None:
        places = np.flatnonzero(owner == transport.rank)
        self._topology, self._places = topology, places
        self._weighted: dict[str, WeightedSum] = {}  # made for the first exchange that asks for it
        self.links: dict[str, Links] = {}
        self.sums: dict[str, IncomingSum] = {}
        self._senders: dict[str, Ints] = {}  # of the vectors of a channel, as numbers of this rank's places
        channels = {name: (channel, owner) for name, channel in topology.channels.items()}
        if arcs:
            channels["arcs"] = topology.arc_channel, owner[topology.arcs[:, 0]]
        for tag, (name, (channel, owners)) in enumerate(channels.items()):
            own = np.flatnonzero(owners == transport.rank)
            self.links[name] = transport.links(channel, owners, runs * features, tag)
            self.sums[name] = IncomingSum(channel, own, self.links[name].known)
            self._senders[name] = np.searchsorted(places, topology.arcs[own, 0] if name == "arcs" else own)
        self.runs, self.places, self.vector_bytes = runs, len(places), 8 * features
        self.reset()

    def reset(self) -> None:
        self.waited = 0.0
        self.bytes_sent = np.zeros(self.places)  # per run

    def start(self, channel: str, values: Array) -> None:
        """Send what each place releases, (runs, places, features); or what each arc does."""
        self.links[channel].start(by_place(values))
        vectors = np.bincount(self._senders[channel], self.links[channel].vectors_sent, minlength=self.places)
        self.bytes_sent += self.vector_bytes * vectors

    def finish(self, channel: str, weighted: bool = False) -> Array:
        """The sum of what each place received, (runs, places, features), with Metropolis weights if `weighted`.

        Of an arc, the one vector that came along it.
        """
        known = self._received(channel)
        return by_run((self._weighted_sum(channel) if weighted else self.sums[channel])(known), self.runs)

    def arrived(self, channel: str) -> Array:
        """What has come in, one by one, (runs, known places of the links, features)."""
        return by_run(self._received(channel), self.runs)

    def _received(self, channel: str) -> Array:
        begin = time.perf_counter()
        known = self.links[channel].finish()
        self.waited += time.perf_counter() - begin
        return known

    def _weighted_sum(self, channel: str) -> WeightedSum:
        if channel not in self._weighted:
            weights = metropolis(self._topology).of_neighbours
            known = self.links[channel].known
            self._weighted[channel] = WeightedSum(self._topology.channels[channel], self._places, known, weights)
        return self._weighted[channel]

    def close(self) -> None:
        for links in self.links.values():
            links.close()
