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

    What a place sends in all runs that go side by side travels together.
    """

    def __init__(self, transport: Transport, topology: Topology, owner: Ints, features: int, runs: int) -> None:
        places = np.flatnonzero(owner == transport.rank)
        self._topology, self._places = topology, places
        self._weighted: dict[str, WeightedSum] = {}  # made for the first exchange that asks for it
        self.links: dict[str, Links] = {}
        self.sums: dict[str, IncomingSum] = {}
        for tag, (name, channel) in enumerate(topology.channels.items()):
            self.links[name] = transport.links(channel, owner, runs * features, tag)
            self.sums[name] = IncomingSum(channel, places, self.links[name].known)
        self.runs, self.places, self.vector_bytes = runs, len(places), 8 * features
        self.reset()

    def reset(self) -> None:
        self.waited = 0.0
        self.bytes_sent = np.zeros(self.places)  # per run

    def start(self, channel: str, values: Array) -> None:
        """Send what each place releases, (runs, places, features)."""
        self.links[channel].start(by_place(values))
        self.bytes_sent += self.vector_bytes * self.links[channel].vectors_sent

    def finish(self, channel: str, weighted: bool = False) -> Array:
        """The sum of what each place received, (runs, places, features), with Metropolis weights if `weighted`."""
        begin = time.perf_counter()
        known = self.links[channel].finish()
        self.waited += time.perf_counter() - begin
        return by_run((self._weighted_sum(channel) if weighted else self.sums[channel])(known), self.runs)

    def _weighted_sum(self, channel: str) -> WeightedSum:
        if channel not in self._weighted:
            weights = metropolis(self._topology).of_neighbours
            known = self.links[channel].known
            self._weighted[channel] = WeightedSum(self._topology.channels[channel], self._places, known, weights)
        return self._weighted[channel]

    def close(self) -> None:
        for links in self.links.values():
            links.close()
