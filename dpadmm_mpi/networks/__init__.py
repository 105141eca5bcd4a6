"""Graphs by name, and the network that a rank knows: neighbours, channels, sums of what arrives."""

from dpadmm_mpi.networks.graphs import Graph, NamedGraph, Network, build, graphs
from dpadmm_mpi.networks.topology import Channel, IncomingSum, Topology

__all__ = ["Channel", "Graph", "IncomingSum", "NamedGraph", "Network", "Topology", "build", "graphs"]
