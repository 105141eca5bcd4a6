"""Which rank hosts which place."""

import numpy as np

from dpadmm_mpi.errors import InputError
from dpadmm_mpi.types import Ints


def assign_owners(sizes: Ints, ranks: int, has_hub: bool = False, spare: bool = False) -> Ints:
    """place -> rank: nodes in contiguous blocks balanced by records, no rank without a place; a hub, the last place, on 0.

    With `spare`, ranks beyond the places have none.
    """
    if spare:
        ranks = min(ranks, len(sizes) + has_hub)
    nodes, most = len(sizes), len(sizes) + has_hub
    if ranks > most:
        hub = " and a hub" if has_hub else ""
        raise InputError(f"started on {ranks} ranks, but the network has {nodes} nodes{hub}; use at most {most} ranks")
    if has_hub:
        alone = ranks == most  # then rank 0 is the hub and nothing else
        return np.append(1 + assign_owners(sizes, ranks - 1) if alone and ranks > 1 else assign_owners(sizes, ranks), 0)
    middle = np.cumsum(sizes) - sizes / 2.0
    owner = np.minimum((middle * ranks / sizes.sum()).astype(np.int64), ranks - 1)
    # Every rank gets at least one node: rank r begins at node r at the latest, and leaves one for each rank after it.
    starts = np.searchsorted(owner, np.arange(ranks))
    for r in range(1, ranks):
        starts[r] = min(max(starts[r], starts[r - 1] + 1), nodes - ranks + r)
    return np.searchsorted(starts, np.arange(nodes), side="right") - 1


def owners_of_records(holders: Ints, ranks: int, has_hub: bool = False) -> Ints:
    """place -> rank, where a node is where its records are; a hub, the last place, on 0."""
    owner = np.append(holders, 0) if has_hub else holders
    idle = sorted(set(range(ranks)) - set(owner.tolist()))
    if idle:
        raise InputError(f"rank {idle[0]} has brought no records; every rank must bring some, or rank 0 all of them")
    return np.asarray(owner, dtype=np.int64)
