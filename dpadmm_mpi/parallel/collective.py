"""What all ranks settle together: results of rank 0, errors, and who hosts which place."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from dpadmm_mpi.errors import DpadmmError, InputError
from dpadmm_mpi.parallel.mpi import INTERRUPTED, Transport

Ints = NDArray[np.int64]
T = TypeVar("T")


def on_root(transport: Transport, make: Callable[[], T]) -> T:
    """make() on rank 0, its result on every rank; if it fails, every rank raises the same error."""
    outcome: tuple[bool, Any]
    if transport.rank == 0:
        try:
            outcome = (True, make())
        except DpadmmError as error:
            outcome = (False, error)
    else:
        outcome = (False, None)
    succeeded, value = transport.broadcast(outcome)
    if not succeeded:
        raise _everywhere(value)
    return value


def agree(transport: Transport, make: Callable[[], T]) -> T:
    """make() on every rank; if it fails on some, every rank raises the first of their errors."""
    value, error = None, None
    try:
        value = make()
    except DpadmmError as caught:
        error = caught
    for failure in transport.gather_objects(error):
        if failure is not None:
            raise _everywhere(failure)
    return value  # type: ignore[return-value]


@contextmanager
def guard(transport: Transport, speak: Callable[[BaseException], None]) -> Iterator[None]:
    """Whatever stops this rank alone must stop the others too, who would wait for it forever."""
    try:
        yield
    except BaseException as error:
        alone = not (isinstance(error, DpadmmError) and error.everywhere)
        if transport.size > 1 and alone:
            speak(error)
            interrupted = isinstance(error, KeyboardInterrupt)
            transport.abort(error.exit_code if isinstance(error, DpadmmError) else INTERRUPTED if interrupted else 1)
        raise


def _everywhere(error: DpadmmError) -> DpadmmError:
    error.everywhere = True
    return error


def assign_owners(sizes: Ints, ranks: int, has_hub: bool = False) -> Ints:
    """place -> rank: nodes in contiguous blocks balanced by records, no rank without a place; a hub, the last place, on 0."""
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
