"""What is recorded of runs on a network with faults: known before the first iteration, as all faults are."""

from typing import Any

import numpy as np

from dpadmm_mpi.methods.base import Known, Plan
from dpadmm_mpi.networks.timeline import NetworkFaults, Timeline, groups
from dpadmm_mpi.types import Array, Bools, Ints

TIMES = ("run", "iteration")


def recorded(plan: Plan[Any], faults: NetworkFaults) -> dict[str, Known]:
    """By their HDF5 names; at the recorded iterations, bytes between them."""
    rows, timelines = plan.recorded, [faults.timeline(runs) for runs in groups(plan.config.runs)]
    active = np.concatenate([plan.takes_part(timeline)[:, rows] for timeline in timelines])
    text = "whether what the sender sends in the iteration arrives, then or later"
    found = {
        "network/arcs": Known(plan.topology.arcs, ("arc", "graph/end"), "each way of each edge: receiver and sender"),
        "network/delivered": Known(_all(timelines, "delivered", rows), (*TIMES, "arc"), text),
        "network/active": Known(active, (*TIMES, "node"), plan.active_in_words),
        "network/bytes": Known(
            np.concatenate([_bytes(plan, faults, timeline) for timeline in timelines]),
            (*TIMES, "node"),
            "bytes that the node has sent to its neighbours since the row before, those of lost messages included",
        ),
    }
    if faults.change is not None:
        once = plan.topology.arcs[:, 0] < plan.topology.arcs[:, 1]  # of the two ways of an edge, in the order of the edges
        edges = _all(timelines, "edges_on", rows)[..., once]
        edges = np.broadcast_to(edges, (plan.config.runs, *edges.shape[1:])) if len(edges) < plan.config.runs else edges
        found["network/edges"] = Known(edges, (*TIMES, "graph/edge"), "whether there is the edge in the iteration")
    for account in plan.accounts:
        if account.run_values is not None:
            text = f"{account.title} of each node in each run"
            found[f"privacy/run_{account.name}"] = Known(account.run_values[:, rows], (*TIMES, "node"), text)
    return found


def _all(timelines: list[Timeline], name: str, rows: Ints) -> Bools:
    return np.concatenate([getattr(timeline, name)[:, rows] for timeline in timelines])


def _bytes(plan: Plan[Any], faults: NetworkFaults, timeline: Timeline) -> Ints:
    """(runs, rows, nodes)"""
    sent = timeline.per_sender(faults.message_bytes(timeline, plan.features))[:, : plan.iterations + 1]
    exchanges = plan.exchanges
    total = np.cumsum(sent * exchanges[:, None], axis=1)[:, plan.recorded]
    return np.diff(total, axis=1, prepend=0)


def last_heard(timeline: Timeline, iterations: int, exchanges: int = 1) -> Ints:
    """The last iteration of node i of which anything has come to node j by the end, (runs, N, N), row i and column j.

    What j sends in an iteration may depend on all that it had received before. Messages count as received when they are sent,
    also those that come late or that nobody uses: so no number is too small.
    """
    runs, nodes = len(timeline.present), timeline.nodes
    receiver, sender = timeline.arcs.T
    known = np.zeros((runs, nodes, nodes), dtype=np.int64)  # of node j, row j
    starts = np.searchsorted(receiver, np.arange(nodes))
    everyone = np.arange(nodes)
    for t in range(iterations + 1):
        for _ in range(exchanges):
            known[:, everyone, everyone] = t
            coming = np.where(timeline.delivered[:, t, :, None], known[:, sender], 0)
            known = np.maximum(known, np.maximum.reduceat(coming, starts, axis=1))
    return known.swapaxes(1, 2)


def against_others(run_values: Array, heard: Ints) -> Array:
    """Of each node against each other one, (N, N), the largest over the runs, from values (runs, T+1, N); nan: itself."""
    runs, nodes = heard.shape[0], heard.shape[1]
    found = run_values[np.arange(runs)[:, None, None], heard, np.arange(nodes)[None, :, None]].max(axis=0)
    np.fill_diagonal(found, np.nan)
    return np.asarray(found)
