"""dpadmm with a planted fault on one rank: sabotage.py FAULT RANK ARGUMENTS..."""

import os
import resource
import signal
import sys
from typing import Any

from dpadmm_mpi.cli.main import entry
from dpadmm_mpi.methods.decentralised.algorithm import NetworkNodes, State
from dpadmm_mpi.parallel.launcher import announced_rank
from dpadmm_mpi.storage import recorder
from dpadmm_mpi.storage.recorder import Recorder

fault, rank = sys.argv[1], int(sys.argv[2])
sys.argv[1:] = sys.argv[3:]
AT = 3  # iteration

if announced_rank() == rank:
    original, create = NetworkNodes.work, recorder.create

    def work(self: NetworkNodes, state: State, t: int, runs: range, phase: int) -> State:
        if t == AT:
            if fault == "raise":
                raise ZeroDivisionError("planted")
            if fault == "exit":
                sys.exit(0)
            if fault == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
        return original(self, state, t, runs, phase)

    def create_on_a_full_disk(*arguments: Any) -> Recorder:
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
        return create(*arguments)

    NetworkNodes.work = work  # type: ignore[method-assign]
    if fault == "full-disk":
        recorder.create = create_on_a_full_disk  # type: ignore[assignment]

entry()
