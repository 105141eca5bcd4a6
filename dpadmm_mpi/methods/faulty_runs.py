"""What is recorded of runs on a network with faults: known before the first iteration, as all faults are."""

from typing import Any

import numpy as np

from dpadmm_mpi.methods.base import Known, Plan
from dpadmm_mpi.networks.timeline import NetworkFaults, Timeline, groups
from dpadmm_mpi.privacy.account import Account
from dpadmm_mpi.types import Array, Bools, Ints

TIMES = ("run", "iteration")


def recorded(plan: Plan[Any]) -> dict[str, Known]:
    """By their HDF5 names; at the recorded iterations, bytes between them. Nothing where nothing goes wrong."""
    if (faults := plan.faults) is None:
        return {}
    rows, timelines = plan.recorded, [faults.timeline(runs) for runs in groups(plan.config.runs)]
    active = np.concatenate([plan.takes_part(timeline)[:, rows] for timeline in timelines])
    sent = np.concatenate([_bytes(plan, faults, timeline) for timeline in timelines])
    arrives = "whether what the sender sends in the iteration arrives, then or later"
    found = {
        "network/arcs": Known(plan.topology.arcs, ("arc", "graph/end"), "each way of each edge: receiver and sender"),
        "network/delivered": Known(_all(timelines, "delivered", rows), (*TIMES, "arc"), arrives),
        "network/active": Known(
            active, (*TIMES, "node"), f"whether the node takes a step in the iteration: {plan.takes_part_in_words}"
        ),
        "network/node_bytes": Known(
            np.diff(sent, axis=1, prepend=0),
            (*TIMES, "node"),
            "bytes that the node has sent to its neighbours since the row before, lost ones included",
        ),
        "network/bytes": Known(
            sent.sum(axis=2).astype(np.float64), TIMES, "bytes that all nodes have sent since the start, lost ones included"
        ),
    }
    if faults.change is not None:
        once = plan.topology.arcs[:, 0] < plan.topology.arcs[:, 1]  # of the two ways of an edge, in the order of the edges
        edges = np.concatenate([_edges(timeline, rows)[..., once] for timeline in timelines])
        found["network/edges"] = Known(edges, (*TIMES, "graph/edge"), "whether there is the edge in the iteration")
    for account in plan.accounts:
        if account.run_values is not None:
            text = f"{account.title} of each node in each run"
            found[f"privacy/run_{account.name}"] = Known(account.run_values[:, rows], (*TIMES, "node"), text)
    return found


def _all(timelines: list[Timeline], name: str, rows: Ints) -> Bools:
    return np.concatenate([getattr(timeline, name)[:, rows] for timeline in timelines])


def _edges(timeline: Timeline, rows: Ints) -> Bools:
    """Of each way of an edge, (runs, rows, arcs)."""
    assert timeline.edges_on is not None
    return np.broadcast_to(timeline.edges_on, timeline.sent.shape)[:, rows]


def _bytes(plan: Plan[Any], faults: NetworkFaults, timeline: Timeline) -> Ints:
    """Since the start, (runs, rows, nodes)."""
    exchanges = sum(leg.happens.astype(np.int64) for leg in plan.legs(1.0, range(1)))
    sent = timeline.per_sender(faults.message_bytes(timeline, plan.features))[:, : plan.iterations + 1]
    return np.cumsum(sent * np.reshape(exchanges, (-1, 1)), axis=1)[:, plan.recorded]


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


def pairs_by_run(plan: Plan[Any], account: Account, exchanges: int = 1) -> Array:
    """Of each node against each other one, (N, N), the largest over the runs; nan: itself."""
    assert account.run_values is not None and plan.faults is not None
    found, node = np.zeros((plan.nodes, plan.nodes)), np.arange(plan.nodes)[None, :, None]
    for runs in groups(plan.config.runs):
        heard, values = last_heard(plan.faults.timeline(runs), plan.iterations, exchanges), account.run_values
        found = np.maximum(found, values[np.array(runs)[:, None, None], heard, node].max(axis=0))
    np.fill_diagonal(found, np.nan)
    return found
