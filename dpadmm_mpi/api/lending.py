"""Arrays of a Python program, at hand for a run or an audit: the ranks find out what they have together."""

from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial

import numpy as np

from dpadmm_mpi.data import arrays
from dpadmm_mpi.data.arrays import Arrays, Brought, Inventory, Lent, Summary
from dpadmm_mpi.errors import InputError
from dpadmm_mpi.methods import Config
from dpadmm_mpi.parallel.collective import agree
from dpadmm_mpi.parallel.transport import Transport


def inventory_of(transport: Transport, brought: Brought) -> Inventory | None:
    """What all ranks have brought; None if nobody has brought anything."""
    summaries = transport.gather_objects(Summary.of(brought))
    if not any(summary.digests for summary in summaries):
        if any(summary.test for summary in summaries):
            raise _for_all(InputError("test: has no meaning without data or shards; give the training records too"))
        return None
    try:
        return arrays.take_stock(summaries)
    except InputError as error:
        raise _for_all(error) from None


def _for_all(error: InputError) -> InputError:
    """Every rank comes to it by the same summaries."""
    error.everywhere = True
    return error


def at_hand(
    transport: Transport, config: Config, brought: Brought, inventory: Inventory | None
) -> AbstractContextManager[None]:
    """The records at hand, prepared where they lie if the ranks have brought them node by node."""
    source = config.data.source
    if inventory is None or not isinstance(source, Arrays):
        return arrays.lent(None)
    if agree(transport, partial(source.needs_range, inventory)):
        spans = transport.gather_objects(agree(transport, brought.span))
        lows, highs = zip(*(span for span in spans if span is not None), strict=True)
        inventory = replace(inventory, span=(min(lows), max(highs)))
    if not inventory.shards:
        return arrays.lent(Lent(inventory, brought))
    prepared = agree(transport, lambda: source.prepare(brought, inventory))
    everywhere = transport.gather_objects([(shard.records, shard.features, clipped) for shard, clipped in prepared])
    known = [counts for rank in everywhere for counts in rank]
    first = sum(len(rank) for rank in everywhere[: transport.rank])
    here = {first + k: shard for k, (shard, _) in enumerate(prepared)}
    sizes = np.array([records for records, *_ in known], dtype=np.int64)
    clipped = sum(count for *_, count in known)
    return arrays.lent(Lent(inventory, brought, here, sizes, known[0][1], clipped))
