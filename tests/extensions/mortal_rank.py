"""mortal_rank.py RANK ITERATION ARGUMENTS...: dpadmm with a checkpoint after every iteration, whose rank kills itself."""

import os
import signal
import sys
from typing import Any

from dpadmm_mpi.cli.main import entry
from dpadmm_mpi.engine import stopping
from dpadmm_mpi.engine.simulation import Simulation
from dpadmm_mpi.parallel.launcher import announced_rank

stopping.SHARE, stopping.MEETING_SECONDS = float("inf"), 0.0
rank, iteration = int(sys.argv[1]), int(sys.argv[2])
iterate = Simulation._iterate


def mortal(simulation: "Simulation[Any]", state: Any, t: int, runs: range) -> Any:
    if t == iteration and announced_rank() == rank:
        os.kill(os.getpid(), signal.SIGKILL)
    return iterate(simulation, state, t, runs)


Simulation._iterate = mortal  # type: ignore[method-assign, assignment]
sys.argv[1:] = sys.argv[3:]
entry()
