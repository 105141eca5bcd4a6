"""The transport protocol: messages along the edges of the graph, and to and from rank 0.

`Serial` and `Mpi` have these methods; the engine does not know which one it has. Two channels: the edges carry released values
and nothing else, the other one carries set-up and measurements.
"""

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from dpadmm_mpi.networks.topology import Channel
from dpadmm_mpi.types import Array, Ints

T = TypeVar("T")

INTERRUPTED = 130  # exit code


class Links(Protocol):
    """One channel between the places of this rank and all others."""

    known: Ints  # places whose values `finish` returns: this rank's own, then the senders on other ranks
    vectors_sent: Ints  # per own place: how many ranks its vector travels to

    def start(self, values: Array) -> None:
        """Send one row per own place to its receivers."""
        ...

    def finish(self) -> Array:
        """The rows of `known`, when all have come in."""
        ...

    def close(self) -> None: ...


class Gathering(Protocol):
    """Rows on their way to rank 0."""

    def has_arrived(self) -> bool: ...

    def finish(self) -> Array | None:
        """Rows of all nodes in node order on rank 0, None elsewhere."""
        ...


class Transport(Protocol):
    """One of several processes that work together, or a lone one."""

    rank: int
    size: int
    library: str  # MPI's own name for itself

    def broadcast(self, value: Any) -> Any:
        """Rank 0's value, on every rank."""
        ...

    def deal(self, owner: Ints, make: Callable[[int], T]) -> list[T]:
        """make(node) on rank 0 for every node, delivered to the node's owner, in node order; one message per rank."""
        ...

    def start_gather(self, rows: Array, owner: Ints) -> Gathering:
        """Send this rank's rows to rank 0, one for each node that it owns. Every rank has to see the gathering finished."""
        ...

    def gather_objects(self, value: T) -> list[T]:
        """One value per rank, on every rank; for set-up only."""
        ...

    def highest(self, values: list[int]) -> list[int]:
        """The largest of each of these numbers over all ranks, on every rank."""
        ...

    def split(self, group: int) -> "Transport":
        """The transport of the ranks that name the same group."""
        ...

    def links(self, channel: Channel, owner: Ints, width: int, tag: int = 0) -> Links:
        """A channel for rows of `width` numbers."""
        ...

    def abort(self, code: int) -> None:
        """End all ranks with this exit code."""
        ...
