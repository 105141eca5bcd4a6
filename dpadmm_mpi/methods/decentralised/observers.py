"""Who learns what: the privacy of each node against each other node, which sees its own neighbours' messages alone.

f_i(t) reaches the neighbours of i in iteration t, and with every iteration what depends on it goes one edge further: f_j(t+1)
is computed from it, and so on. At the end of iteration T nothing that depends on f_i(t) for t > T - r + 1 has come to a node
at distance r, so that its view is post-processing of what node i released until then (docs/mathematics.md, section 3). Every
consensus step behind the last iteration carries it one edge further.
"""

import numpy as np

from dpadmm_mpi.networks.topology import Topology, distances
from dpadmm_mpi.types import Array


def pair_epsilon(node_epsilon: Array, topology: Topology, consensus_steps: int = 0) -> Array:
    """epsilon_{i -> j}(T) <= epsilon_i(min(T, T + K - r + 1)), (N, N), from epsilon_i(t), (T+1, N); 0 where nothing came.

    K is the number of consensus steps.

    nan on the diagonal: nothing hides the records of a node from itself.
    """
    T, nodes = len(node_epsilon) - 1, np.arange(topology.nodes)
    last_seen = T + consensus_steps + 1 - distances(topology)
    found = np.where(last_seen >= 1, node_epsilon[np.clip(last_seen, 0, T), nodes[:, None]], 0.0)
    found[nodes, nodes] = np.nan
    return np.asarray(found)
