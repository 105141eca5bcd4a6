"""Who learns what of a noisy gradient: the privacy of each node against each other node, which sees its neighbours alone.

Node v receives what its neighbours send. Of one noisy gradient of every node, these are linear maps of the vectors x~_u that
the nodes have begun to mix, x~_u = x_u - a g~_u, with independent noise of one size on each. So what v sees of one record of
node u is a Gaussian mechanism, exactly: with M_v the rows of the polynomials in W that v has received, and its own row, its
mu^2 is that of the local account times e_u' P_v e_u, P_v the projection on the rows of M_v (docs/baselines.md).
"""

from collections.abc import Sequence

import numpy as np

from dpadmm_mpi.networks.topology import Topology, distances
from dpadmm_mpi.types import Array

NOTHING_NEW = 1e-10  # norm of what a unit vector adds to a subspace, below which it adds nothing


def shares_seen(W: Array, topology: Topology, exchanges: int) -> Array:
    """e_u' P_v e_u, (N, N), row u and column v, after so many exchanges of mixing steps; 1 on the diagonal.

    The polynomials of degree 0, ..., exchanges - 1 in W, whatever their coefficients, span what the powers of W span; also
    those of consensus steps behind the last iteration, and of averages to begin these with. So the basis grows by W times what
    was new, which keeps it well-conditioned where powers of W are nearly parallel.
    """
    N = topology.nodes
    found = np.zeros((N, N))
    for v in range(N):
        basis = np.zeros((N, 0))
        own = np.eye(N)[:, v]
        new = _orthogonal(np.eye(N)[:, list(topology.neighbours[v])], basis)
        for _ in range(exchanges):
            if not new.shape[1]:
                break
            basis = np.concatenate([basis, new], axis=1)
            new = _orthogonal(W @ new, basis)
        whole = np.concatenate([basis, _orthogonal(own[:, None], basis)], axis=1)
        found[:, v] = np.sum(whole**2, axis=1)
    return np.minimum(found, 1.0)


def _orthogonal(vectors: Array, basis: Array) -> Array:
    """What vectors of norm at most 1 add to the span of an orthonormal basis, orthonormal; each is cleaned twice."""
    kept = np.zeros((len(vectors), 0))
    for vector in vectors.T:
        whole = np.concatenate([basis, kept], axis=1)
        rest = vector - whole @ (whole.T @ vector)
        if np.linalg.norm(rest) <= NOTHING_NEW:
            continue
        rest = rest / np.linalg.norm(rest)
        rest -= whole @ (whole.T @ rest)
        kept = np.concatenate([kept, (rest / np.linalg.norm(rest))[:, None]], axis=1)
    return kept


def pair_mu(local: Array, before_last: Array, shares: Array) -> Array:
    """mu_{u -> v}, (N, N), from the local mu_u with and without the last gradient, (N,) each; nan on the diagonal.

    Whoever has everything that was sent before the last gradient knows more than v. Given that, the last one is a Gaussian
    mechanism of which v sees the share: mu^2 = before^2 + share (mu^2 - before^2).
    """
    squares = before_last[:, None] ** 2 + shares * (local**2 - before_last**2)[:, None]
    return _without_diagonal(np.sqrt(squares))


def delayed_mu(local: Array, topology: Topology, hops: int, consensus_steps: int = 0) -> Array:
    """mu_{u -> v} from mu_u(t), (T+1, N), where what depends on a gradient goes `hops` edges further in each iteration.

    What depends on the gradient of iteration t comes to distance r at the end of iteration t + ceil(r / hops) - 1; a consensus
    step behind the last iteration carries it one edge further.
    """
    T, nodes = len(local) - 1, np.arange(topology.nodes)
    last_seen = T + 1 - -(-np.maximum(distances(topology) - consensus_steps, 1) // hops)
    seen = np.where(last_seen >= 1, local[np.clip(last_seen, 0, T), nodes[:, None]], 0.0)
    return _without_diagonal(seen)


def printed_shares(W: Array, topology: Topology, omega: Sequence[float], exchanges: int) -> Array:
    """sum over exchanges t and neighbours w of v of (P_t)_uw^2 / ||(P_t)_w||^2, (N, N), P_t the polynomial of step t in W.

    Cyffers, Even, Bellet, Massoulie: Muffliato, NeurIPS 2022, Theorem 1. It adds up what each message tells by itself. The
    noise in them is the same, so that two messages together tell more than their sum: it is recorded, and not proven.
    """
    N = topology.nodes
    A = np.zeros((N, N))
    for i, neighbours in enumerate(topology.neighbours):
        A[i, list(neighbours)] = 1.0
    total, before_last, last = np.zeros((N, N)), np.zeros((N, N)), np.eye(N)
    for k in range(exchanges):
        total += (last**2 / np.sum(last**2, axis=0)) @ A
        before_last, last = last, omega[k] * W @ last + (1.0 - omega[k]) * before_last
    return total


def _without_diagonal(values: Array) -> Array:
    """Nothing hides the records of a node from itself."""
    values = values.copy()
    np.fill_diagonal(values, np.nan)
    return values
