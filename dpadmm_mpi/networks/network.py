"""The section [network] of a configuration: who is joined to whom, and what goes wrong."""

from typing import Annotated

from dpadmm_mpi.config.options import Choice, Options
from dpadmm_mpi.networks import timeline
from dpadmm_mpi.networks.faults import Faults
from dpadmm_mpi.networks.graphs import Graph, Ring, build, graphs
from dpadmm_mpi.networks.topology import Topology
from dpadmm_mpi.networks.virtual_time import VirtualTime


class Network(Options):
    """Who is joined to whom."""

    graph: Annotated[Graph, Choice(graphs)] = Ring()  # how the nodes are joined
    faults: Faults = Faults()  # what goes wrong
    time: VirtualTime = VirtualTime()  # how fast machines and links are

    def check(self) -> None:
        self.graph.check()
        self.faults.check()
        self.time.check()

    def build(self, seed: int, iterations: int) -> Topology:
        """The graph, with what goes wrong on it."""
        return timeline.settle(self.faults, self.graph, build(self.graph, seed), seed, iterations)
