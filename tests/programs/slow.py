"""dpadmm whose data steps take their time: slow.py SECONDS run ...; or slow.py SECONDS RANK HOLD run ...

In the second form RANK, in its tenth iteration, holds the interpreter for HOLD seconds: no other thread of it can run.
"""

import ctypes
import sys
import time
from pathlib import Path

from dpadmm_mpi.cli.main import entry
from dpadmm_mpi.methods.decentralised.algorithm import NetworkNodes, State
from dpadmm_mpi.parallel.launcher import announced_rank

end = sys.argv.index("run")
seconds, *hold = map(float, sys.argv[1:end])
sys.argv[1:] = sys.argv[end:]
output = Path(sys.argv[sys.argv.index("-o") + 1])
quick = NetworkNodes.work


def work(self: NetworkNodes, state: State, t: int, runs: range, phase: int) -> State:
    time.sleep(seconds)
    if hold and t == 10 and announced_rank() == hold[0]:
        output.with_name(f"{output.name}.held").touch()
        ctypes.PyDLL(None).usleep(int(1e6 * hold[1]))
    return quick(self, state, t, runs, phase)


NetworkNodes.work = work  # type: ignore[method-assign]
entry()
