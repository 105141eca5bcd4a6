"""dpadmm_mpi.run under mpiexec with arrays: own_shards.py MODE OUT LOG, with the records of LOG's folder.

MODE is "own" (each rank brings the records of one node), "pairs" (each rank brings those of two), "root" (rank 0 brings
all), or "same" (every rank brings the very same). Every pickled message of this rank goes into LOG-RANK.bin.
"""

import pickle
import sys
from pathlib import Path
from typing import Any

import numpy as np
from mpi4py import MPI

import dpadmm_mpi
from dpadmm_mpi.parallel import mpi

mode, out, log = sys.argv[1], sys.argv[2], Path(sys.argv[3])
world = MPI.COMM_WORLD
rank = world.Get_rank()
messages: list[bytes] = []


class Witness:
    """pickle, as the module of messages uses it."""

    loads = staticmethod(pickle.loads)

    @staticmethod
    def dumps(value: Any) -> bytes:
        messages.append(pickle.dumps(value))
        return messages[-1]


mpi.pickle = Witness  # type: ignore[attr-defined,assignment]
given = np.load(log.parent / "records.npz")
shards = [(given[f"X{k}"], given[f"y{k}"]) for k in range(int(given["nodes"]))]
brought: dict[str, Any] = {}
keys: dict[str, Any] = {"loss": str(given["loss"])} if "loss" in given else {}
if mode == "own":
    brought = {"data": shards[rank]}
elif mode == "pairs":
    brought = {"shards": shards[2 * rank : 2 * rank + 2]}
elif mode == "root":
    brought = {"shards": shards} if rank == 0 else {}
elif mode == "same":
    brought = {"data": shards[0]}
try:
    dpadmm_mpi.run(
        output=out,
        test=(given["X_test"], given["y_test"]),
        graph=given["edges"],
        comm=world,
        method="mr-admm",
        epsilon=20.0,
        iterations=6,
        preprocess=["scale-rows"],
        trajectory=True,
        **keys,
        **brought,
    )
except dpadmm_mpi.InputError as error:
    if rank == 0:
        print(error)
    sys.exit(2)
Path(f"{log}-{rank}.bin").write_bytes(b"".join(messages))
