"""A transport whose ranks are threads of one process, one of which works at a time: the layouts of MPI, without a launcher.

What travels is copied, so that no rank sees the memory of another, and written down, so that it can be looked at.
"""

import threading
from collections import deque
from collections.abc import Callable
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np

from dpadmm_mpi.errors import DpadmmError, RunError
from dpadmm_mpi.networks.topology import Channel
from dpadmm_mpi.parallel.transport import Gathering, Links, Transport
from dpadmm_mpi.types import Array, Ints

T = TypeVar("T")

PATIENCE = 20.0  # seconds that a rank waits for the others, none of which is at work then


class Abandoned(RunError):
    """Another rank has failed, and this one cannot go on."""


class Message(NamedTuple):
    """What one rank has given to one channel at a time."""

    tag: int  # of the channel
    values: Array  # a row for each of its places


class World:
    """What the ranks share. The lock belongs to the rank that works; whoever waits lends it to the others."""

    def __init__(self, size: int, patience: float = PATIENCE) -> None:
        self.size, self.patience = size, patience
        self.turn = threading.Condition()
        self.broken = False
        self.meetings: dict[tuple[str, int], dict[int, Any]] = {}  # group and number of a meeting -> rank -> what it brings
        self.boxes: dict[tuple[str, int, int, int], deque[Array]] = {}  # group, number of the links, from, to

    def wait(self, condition: Callable[[], bool]) -> None:
        there = self.turn.wait_for(lambda: self.broken or condition(), self.patience)
        if self.broken:
            raise Abandoned("another rank has failed")
        if not there:
            raise RunError(f"a rank has waited {self.patience:g} seconds for the others; all ranks must do the same in turn")

    def tell(self) -> None:
        self.turn.notify_all()

    def fail(self) -> None:
        self.broken = True
        self.tell()


class Threads:
    """One rank of a world of threads, which `on_ranks` makes; the methods are those of every transport.

    `rank` and `size` say who it is, `sent` has all that it has given to the channels.

    Examples
    --------
    >>> from dpadmm_mpi.testing import on_ranks
    >>> on_ranks(2, lambda rank: rank.gather_objects(f"rank {rank.rank} of {rank.size}"))[0]
    ['rank 0 of 2', 'rank 1 of 2']
    """

    library = "threads"

    def __init__(self, world: World, rank: int, members: tuple[int, ...] | None = None, group: str = "") -> None:
        self.world, self._members, self._group = world, members or tuple(range(world.size)), group
        self.rank, self.size = self._members.index(rank), len(self._members)
        self.sent: list[Message] = []
        self._meetings = self._links = 0

    def _bring(self, value: Any) -> tuple[str, int]:
        """Bring something to the next meeting of all ranks; its key."""
        self._meetings += 1
        key = (self._group, self._meetings)
        self.world.meetings.setdefault(key, {})[self.rank] = value
        self.world.tell()
        return key

    def _has_met(self, key: tuple[str, int]) -> bool:
        return len(self.world.meetings[key]) == self.size

    def _meet(self, value: T) -> list[T]:
        """What all ranks have brought, in their order."""
        key = self._bring(value)
        self.world.wait(lambda: self._has_met(key))
        brought = self.world.meetings[key]
        return [brought[rank] for rank in range(self.size)]

    def broadcast(self, value: Any) -> Any:
        return self._meet(value)[0]

    def deal(self, owner: Ints, make: Callable[[int], T]) -> list[T]:
        hands = [
            [make(int(node)) for node in np.flatnonzero(owner == rank)] for rank in range(self.size if self.rank == 0 else 0)
        ]
        return self._meet(hands)[0][self.rank]

    def start_gather(self, rows: Array, owner: Ints) -> Gathering:
        return _Gathering(self, self._bring(np.array(rows)), owner)

    def gather_objects(self, value: T) -> list[T]:
        return self._meet(value)

    def highest(self, values: list[int]) -> list[int]:
        return [max(column) for column in zip(*self._meet(values), strict=True)]

    def split(self, group: int) -> Transport:
        groups = self._meet(group)
        mine = tuple(self._members[rank] for rank in range(self.size) if groups[rank] == group)
        return Threads(self.world, self._members[self.rank], mine, f"{self._group}/{self._meetings}:{group}")

    def links(self, channel: Channel, owner: Ints, width: int, tag: int = 0) -> Links:
        self._links += 1
        return _Links(self, channel, owner, self._links, tag)

    def abort(self, code: int) -> None:
        self.world.fail()

    def box(self, number: int, sender: int, receiver: int) -> deque[Array]:
        return self.world.boxes.setdefault((self._group, number, sender, receiver), deque())


class _Gathering:
    def __init__(self, rank: Threads, key: tuple[str, int], owner: Ints) -> None:
        self._rank, self._key, self._owner = rank, key, owner

    def has_arrived(self) -> bool:
        return self._rank._has_met(self._key)

    def finish(self) -> Array | None:
        world = self._rank.world
        if self._rank.rank != 0:
            return None
        world.wait(self.has_arrived)
        brought = world.meetings[self._key]
        gathered = np.concatenate([brought[rank] for rank in range(self._rank.size)])
        in_node_order = np.empty_like(gathered)
        in_node_order[np.argsort(self._owner, kind="stable")] = gathered
        return in_node_order


class _Links:
    """One message per direction and pair of ranks that a channel joins, as with MPI."""

    def __init__(self, rank: Threads, channel: Channel, owner: Ints, number: int, tag: int) -> None:
        self._rank, self._number, self._tag = rank, number, tag
        mine, senders = np.flatnonzero(owner == rank.rank), channel.senders
        self._outgoing: dict[int, list[int]] = {}
        incoming: dict[int, set[int]] = {}
        for row, i in enumerate(mine.tolist()):
            for peer in sorted({int(owner[j]) for j in channel.receivers[i]} - {rank.rank}):
                self._outgoing.setdefault(peer, []).append(row)
            for j in senders[i]:
                if owner[j] != rank.rank:
                    incoming.setdefault(int(owner[j]), set()).add(j)
        self._peers = sorted(incoming)
        remote = [node for peer in self._peers for node in sorted(incoming[peer])]
        self.known = np.concatenate([mine, np.array(remote, dtype=np.int64)])
        self.vectors_sent = np.array(
            [sum(row in rows for rows in self._outgoing.values()) for row in range(len(mine))], dtype=np.int64
        )

    def start(self, values: Array) -> None:
        self._own = np.array(values)
        self._rank.sent.append(Message(self._tag, self._own))
        for peer, rows in self._outgoing.items():
            self._rank.box(self._number, self._rank.rank, peer).append(self._own[rows])
        self._rank.world.tell()

    def finish(self) -> Array:
        boxes = [self._rank.box(self._number, peer, self._rank.rank) for peer in self._peers]
        self._rank.world.wait(lambda: all(boxes))
        return np.concatenate([self._own, *(box.popleft() for box in boxes)])

    def close(self) -> None:
        return


class _Outcome(Generic[T]):
    """What became of one rank."""

    def __init__(self) -> None:
        self.value: T | None = None
        self.error: BaseException | None = None


def on_ranks(size: int, work: Callable[[Threads], T], patience: float = PATIENCE) -> list[T]:
    """Do the work of `size` ranks, each in a thread of its own.

    Parameters
    ----------
    size : the number of ranks
    work : called on every rank, with its transport
    patience : seconds that a rank waits for the others before it gives up

    Returns
    -------
    What each rank has returned, in their order.

    Raises
    ------
    Exception
        Whatever the first of the ranks to fail has raised; the others are stopped.

    Examples
    --------
    >>> from dpadmm_mpi.testing import on_ranks
    >>> on_ranks(3, lambda rank: rank.highest([rank.rank, -rank.rank]))
    [[2, 0], [2, 0], [2, 0]]
    """
    world = World(size, patience)
    outcomes = [_Outcome[T]() for _ in range(size)]

    def live(rank: int) -> None:
        with world.turn:
            try:
                outcomes[rank].value = work(Threads(world, rank))
            except BaseException as error:
                outcomes[rank].error = error
                if not (isinstance(error, DpadmmError) and error.everywhere):
                    world.fail()

    threads = [threading.Thread(target=live, args=(rank,), daemon=True) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    errors = [outcome.error for outcome in outcomes if outcome.error is not None]
    for error in sorted(errors, key=lambda error: isinstance(error, Abandoned)):
        raise error
    return [outcome.value for outcome in outcomes]  # type: ignore[misc]
