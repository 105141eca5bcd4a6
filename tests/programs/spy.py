"""dpadmm with a witness on the channel of the edges: spy.py FOLDER ARGUMENTS...

Every call on that communicator is noted, and every buffer that it sends is copied when the sending starts.
"""

import sys
from pathlib import Path
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from dpadmm_mpi.cli.main import entry
from dpadmm_mpi.parallel import mpi

folder = Path(sys.argv[1])
sys.argv[1:] = sys.argv[2:]
calls: list[str] = []
prepared: dict[int, tuple[int, Any]] = {}  # request -> receiver and buffer
messages: dict[int, list[NDArray[np.uint8]]] = {}


class Witness:
    def __init__(self, comm: Any) -> None:
        self.comm = comm

    def __getattr__(self, name: str) -> Any:
        calls.append(name)
        if name != "Send_init":
            return getattr(self.comm, name)

        def send_init(buffer: Any, dest: int, tag: int) -> Any:
            request = self.comm.Send_init(buffer, dest=dest, tag=tag)
            prepared[id(request)] = dest, buffer
            return request

        return send_init


class WatchedLinks(mpi.MpiLinks):
    def __init__(self, comm: Any, *arguments: Any, **options: Any) -> None:
        super().__init__(Witness(comm), *arguments, **options)
        start_all = self._start_all

        def note_and_start(requests: list[Any]) -> None:
            for dest, buffer in (prepared[id(request)] for request in requests if id(request) in prepared):
                messages.setdefault(dest, []).append(np.frombuffer(bytes(memoryview(buffer).cast("B")), dtype=np.uint8))
            start_all(requests)

        self._start_all = note_and_start


mpi.MpiLinks = WatchedLinks  # type: ignore[misc]
try:
    entry()
finally:
    record: dict[str, Any] = {f"to-{dest}": np.stack(sent) for dest, sent in messages.items()}
    np.savez(folder / f"rank-{MPI.COMM_WORLD.Get_rank()}.npz", calls=np.array(calls), **record)
