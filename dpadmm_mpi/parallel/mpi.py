"""MPI: the only module that imports mpi4py."""

import os
import pickle
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from dpadmm_mpi.errors import RunError
from dpadmm_mpi.networks.topology import Channel, Lists
from dpadmm_mpi.parallel.launcher import (
    end_with_the_launcher,
    is_under_launcher,
    prefer_shared_memory,
    refuse_lonely_copies,
    refuse_strangers,
    usable_cores,
)
from dpadmm_mpi.parallel.serial import Serial
from dpadmm_mpi.parallel.transport import Gathering, Links, Transport
from dpadmm_mpi.types import Array, Ints

T = TypeVar("T")

_ALARM = 1  # tag of its messages
_SPINS = 2000  # tests with a yield in between before a waiting rank begins to sleep
_NAP_SHARE = 0.5  # of the time waited so far, that a rank sleeps between two tests: what comes is noticed little later
_SHORTEST_NAP, _LONGEST_NAP = 2e-4, 2e-3  # seconds
_LAST_WORDS = 0.5  # seconds in which the launcher forwards what was said, before it speaks itself


class Mpi:
    """One rank of an MPI communicator, which hosts one or more nodes."""

    def __init__(self, comm: Any, spins: int | None = None) -> None:
        self.spins = _spins(comm) if spins is None else spins
        self.edges = comm.Dup()
        self.service = comm.Dup()
        self.rank: int = comm.Get_rank()
        self.size: int = comm.Get_size()
        self.library = _library()

    def broadcast(self, value: Any) -> Any:
        content = pickle.dumps(value) if self.rank == 0 else b""
        length = np.array([len(content)])
        _wait([self.service.Ibcast(length, root=0)], self.spins)
        buffer = bytearray(content) if self.rank == 0 else bytearray(int(length[0]))
        _wait([self.service.Ibcast(buffer, root=0)], self.spins)
        return value if self.rank == 0 else pickle.loads(buffer)

    def deal(self, owner: Ints, make: Callable[[int], T]) -> list[T]:
        if self.rank != 0:
            length = np.zeros(1, dtype=np.int64)
            _wait([self.service.Irecv(length, 0)], self.spins)
            buffer = bytearray(int(length[0]))
            _wait([self.service.Irecv(buffer, 0)], self.spins)
            received: list[T] = pickle.loads(buffer)
            return received
        for rank in range(1, self.size):
            content = pickle.dumps([make(int(node)) for node in np.flatnonzero(owner == rank)])
            _wait([self.service.Isend(np.array([len(content)]), rank), self.service.Isend(content, rank)], self.spins)
        return [make(int(node)) for node in np.flatnonzero(owner == 0)]

    def start_gather(self, rows: Array, owner: Ints) -> Gathering:
        return MpiGathering(self.service, rows, owner, self.spins)

    def gather_objects(self, value: T) -> list[T]:
        content = np.frombuffer(pickle.dumps(value), dtype=np.uint8)
        lengths = np.empty(self.size, dtype=np.int64)
        _wait([self.service.Iallgather(np.array([len(content)]), lengths)], self.spins)
        gathered = np.empty(lengths.sum(), dtype=np.uint8)
        _wait([self.service.Iallgatherv(content, (gathered, lengths))], self.spins)
        return [pickle.loads(part.tobytes()) for part in np.split(gathered, np.cumsum(lengths)[:-1])]

    def highest(self, values: list[int]) -> list[int]:
        from mpi4py import MPI

        largest = np.empty(len(values), dtype=np.int64)
        _wait([self.service.Iallreduce(np.array(values, dtype=np.int64), largest, op=MPI.MAX)], self.spins)
        return [int(value) for value in largest]

    def split(self, group: int) -> Transport:
        return Mpi(self.service.Split(group, self.rank), self.spins)

    def links(self, channel: Channel, owner: Ints, width: int, tag: int = 0) -> Links:
        return MpiLinks(self.edges, channel, owner, width, tag, self.spins)

    def abort(self, code: int) -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        time.sleep(_LAST_WORDS)
        self.service.Abort(code)


class MpiLinks:
    """One packed float64 message per direction and pair of ranks that a channel joins, by persistent requests.

    A message holds one vector for each place of the sender that has a receiver at the other rank, in ascending order of
    the places: no header, no pickle. Both sides derive the same lists from channel and owner.

    A send is over when its receiver has looked at it, which may be asleep. Nobody waits for that: messages leave from two sets
    of buffers in turn, and whoever has sent the next message has received the one before.
    """

    def __init__(self, comm: Any, channel: Channel, owner: Ints, width: int, tag: int, spins: int) -> None:
        from mpi4py import MPI

        rank = comm.Get_rank()
        mine = np.flatnonzero(owner == rank)
        incoming, outgoing = _places_by_peer(channel.senders, owner, rank)
        self.known = np.concatenate([mine, *incoming.values()])
        self.vectors_sent = np.bincount(
            np.searchsorted(mine, np.concatenate([mine[:0], *outgoing.values()])), minlength=len(mine)
        )
        self._own = len(mine)
        self._values = np.empty((len(self.known), width))
        self._receives, start = [], len(mine)
        for peer, nodes in incoming.items():
            stop = start + len(nodes)
            self._receives.append(comm.Recv_init(self._values[start:stop], source=peer, tag=tag))
            start = stop
        receivers: dict[bytes, list[int]] = {}  # of the same message
        for peer, nodes in outgoing.items():
            receivers.setdefault(nodes.tobytes(), []).append(peer)
        messages = [(np.searchsorted(mine, outgoing[peers[0]]), peers) for peers in receivers.values()]
        self._outboxes = [_Outbox(comm, messages, width, tag) for _ in range(2)]
        self._start_all = MPI.Prequest.Startall
        self._spins = spins

    def start(self, values: Array) -> None:
        outbox = self._outboxes[0]
        _wait(outbox.sends, self._spins)
        self._outboxes.reverse()
        self._values[: self._own] = values
        for rows, buffer in outbox.messages:
            buffer[...] = values[rows]
        self._start_all(self._receives + outbox.sends)

    def finish(self) -> Array:
        _wait(self._receives, self._spins)
        return self._values

    def close(self) -> None:
        sends = [send for outbox in self._outboxes for send in outbox.sends]
        _wait(sends, self._spins)
        for request in self._receives + sends:
            request.Free()


class _Outbox:
    def __init__(self, comm: Any, messages: list[tuple[Ints, list[int]]], width: int, tag: int) -> None:
        """The rows of a message, and who gets it."""
        self.messages = [(rows, np.empty((len(rows), width))) for rows, _ in messages]
        self.sends = [
            comm.Send_init(buffer, dest=peer, tag=tag)
            for (_, peers), (_, buffer) in zip(messages, self.messages, strict=True)
            for peer in peers
        ]


def _places_by_peer(senders: Lists, owner: Ints, rank: int) -> tuple[dict[int, Ints], dict[int, Ints]]:
    """Places of each other rank that this one hears, and places of this rank that each other one hears, ascending."""
    receiver, sender = senders.places, senders.numbers
    heard = (owner[receiver] == rank) & (owner[sender] != rank)
    hears = (owner[receiver] != rank) & (owner[sender] == rank)
    return _grouped(owner[sender[heard]], sender[heard]), _grouped(owner[receiver[hears]], sender[hears])


def _grouped(peers: Ints, places: Ints) -> dict[int, Ints]:
    """Each place once."""
    return {int(peer): np.flatnonzero(np.bincount(places[peers == peer])) for peer in np.flatnonzero(np.bincount(peers))}


class MpiGathering:
    def __init__(self, comm: Any, rows: Array, owner: Ints, spins: int) -> None:
        self._rows, self._owner, self._spins = np.ascontiguousarray(rows), owner, spins
        root = comm.Get_rank() == 0
        self._gathered = np.empty((len(owner), rows.shape[1])) if root else None
        target = (self._gathered, np.bincount(owner, minlength=comm.Get_size()) * rows.shape[1]) if root else None
        self._request = comm.Igatherv(self._rows, target, root=0)

    def has_arrived(self) -> bool:
        return bool(self._request.Test())

    def finish(self) -> Array | None:
        _wait([self._request], self._spins)
        if self._gathered is None:
            return None
        in_node_order = np.empty_like(self._gathered)
        in_node_order[np.argsort(self._owner, kind="stable")] = self._gathered
        return in_node_order


class Counter:
    """Numbers 0, 1, 2, ..., each handed out to one of the ranks that ask. All ranks make it, and close it."""

    def __init__(self, world: Transport) -> None:
        from mpi4py import MPI
        from mpi4py.util.sync import Counter as SharedCounter

        assert isinstance(world, Mpi)
        try:
            self._counter = SharedCounter(comm=world.service)
        except MPI.Exception as error:
            reason = f"groups of ranks need some shared memory, which MPI does not get ({error})"
            raise RunError(f"{reason}; make room in /dev/shm, or run without --pack") from None

    def next(self) -> int:
        return int(self._counter.next())

    def close(self) -> None:
        self._counter.free()


class Alarm:
    """Among the first ranks of groups that work apart: each tells each other one once, when it stops or is done."""

    def __init__(self, world: Transport, leaders: list[int]) -> None:
        assert isinstance(world, Mpi)
        self._comm, self._spins = world.service, world.spins
        self._others = [rank for rank in leaders if rank != world.rank]
        self._reasons = np.zeros((len(self._others), 1), dtype=np.int64)
        self._requests = [self._comm.Irecv(row, rank, _ALARM) for row, rank in zip(self._reasons, self._others, strict=True)]

    def heard(self) -> int:
        """Why another group has stopped; 0 if none has."""
        there = [request.Test() for request in self._requests]
        return int(self._reasons[there].max(initial=0))

    def tell_and_wait(self, reason: int) -> None:
        """Until all others have told theirs."""
        word = np.array([reason])
        _wait([*self._requests, *(self._comm.Isend(word, rank, _ALARM) for rank in self._others)], self._spins)


def _wait(requests: list[Any], spins: int) -> None:
    """Wait without keeping a core from ranks that compute: test and yield for a while, then test and sleep."""
    from mpi4py import MPI

    begin, tests = time.perf_counter(), 0
    while not MPI.Request.Testall(requests):
        tests += 1
        if tests < spins:
            os.sched_yield()
        else:
            waited = time.perf_counter() - begin
            time.sleep(min(max(_SHORTEST_NAP, _NAP_SHARE * waited), _LONGEST_NAP))


def _spins(comm: Any) -> int:
    """How often a waiting rank tests before it sleeps: not at all where the ranks of a host have to share its cores."""
    from mpi4py import MPI

    here = comm.Split_type(MPI.COMM_TYPE_SHARED)
    cores = set().union(*here.allgather(usable_cores()))
    ranks = here.Get_size()
    here.Free()
    return _SPINS if ranks <= len(cores) else 0


def _library() -> str:
    from mpi4py import MPI

    first = MPI.Get_library_version().splitlines()[0].split(",")[0]  # MPICH goes on with how it was compiled
    return " ".join(first.split())


def connect(serial: bool = False) -> Transport:
    """The transport of this process as it was launched."""
    if serial or not is_under_launcher():
        return Serial()
    prefer_shared_memory()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a launcher that mpi4py does not expect: refuse_strangers says it better
            from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        refuse_lonely_copies(str(error))
        return Serial()
    refuse_strangers(MPI.COMM_WORLD.Get_size(), _library())
    end_with_the_launcher()
    return Mpi(MPI.COMM_WORLD)
