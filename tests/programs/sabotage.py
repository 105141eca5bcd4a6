"""dpadmm with a planted fault on one rank: sabotage.py FAULT RANK ARGUMENTS..."""

import os
import resource
import signal
import sys
from typing import Any

from dpadmm_mpi.cli.main import main as cli
from dpadmm_mpi.methods.decentralised import algorithm as decentralised
from dpadmm_mpi.parallel import launcher as launch
from dpadmm_mpi.storage import recorder

fault, rank = sys.argv[1], int(sys.argv[2])
sys.argv[1:] = sys.argv[3:]
AT = 3  # iteration

if launch.announced_rank() == rank:
    original = decentralised.Decentralised.work

    def work(self, state, t: int, runs: int, phase):
        if t == AT:
            if fault == "raise":
                raise ZeroDivisionError("planted")
            if fault == "exit":
                sys.exit(0)
            if fault == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
        return original(self, state, t, runs, phase)

    decentralised.Decentralised.work = work
    if fault == "full-disk":
        create = recorder.create

        def create_on_a_full_disk(*arguments: Any):
            resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
            return create(*arguments)

        recorder.create = create_on_a_full_disk

cli.entry()
