"""Graphs by name, what goes wrong on them, and the network that a rank knows: neighbours, channels, sums of what arrives."""

from dpadmm_mpi.networks.faults import Compression, Draws, EdgeChange, MessageDelay, MessageLoss, NodeAbsence, faults
from dpadmm_mpi.networks.graphs import Graph, NamedGraph, build, graphs
from dpadmm_mpi.networks.network import Network
from dpadmm_mpi.networks.topology import Channel, IncomingSum, Topology

__all__ = [
    "Channel",
    "Compression",
    "Draws",
    "EdgeChange",
    "Graph",
    "IncomingSum",
    "MessageDelay",
    "MessageLoss",
    "NamedGraph",
    "Network",
    "NodeAbsence",
    "Topology",
    "build",
    "faults",
    "graphs",
]
