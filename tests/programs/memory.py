"""dpadmm, and at the end the peak memory of each rank in MB, one file per rank: memory.py FOLDER ARGUMENTS..."""

import atexit
import resource
import sys
from pathlib import Path

from dpadmm_mpi.cli.main import entry
from dpadmm_mpi.parallel.launcher import announced_rank

folder = Path(sys.argv[1])
sys.argv[1:] = sys.argv[2:]


def report() -> None:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    (folder / f"rank-{announced_rank()}").write_text(str(peak))


atexit.register(report)
entry()
