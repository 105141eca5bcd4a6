"""One run of a configuration in a process (or ranks) of its own: what the loop took, without start-up and set-up.

    [mpiexec -n R] python scripts/bench/worker.py CONFIG.json ANSWER.json [OUTPUT.h5]

CONFIG.json holds dpadmm_mpi.run's dictionary. Rank 0 writes seconds of the loop (wall clock and processor), of the whole
run, and the peak memory in bytes.
"""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before numpy: one core

from dpadmm_mpi.engine.loop import Manner, execute
from dpadmm_mpi.engine.simulation import Simulation
from dpadmm_mpi.parallel.mpi import connect
from dpadmm_mpi.storage.experiments import load


def peak_bytes() -> int:
    """Of this process alone: ru_maxrss starts at the size of the process that started it."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024


def main() -> None:
    config, answer = json.loads(Path(sys.argv[1]).read_text()), Path(sys.argv[2])
    output = Path(sys.argv[3]) if len(sys.argv) > 3 else None
    loop = {"loop_wall": 0.0, "loop_cpu": 0.0}
    some_runs = Simulation._some_runs

    def timed(*arguments: Any, **named: Any) -> None:
        wall, cpu = time.perf_counter(), time.process_time()
        some_runs(*arguments, **named)
        loop["loop_wall"] += time.perf_counter() - wall
        loop["loop_cpu"] += time.process_time() - cpu

    Simulation._some_runs = timed  # type: ignore[method-assign]
    transport = connect()
    wall, cpu = time.perf_counter(), time.process_time()
    execute(load(config).configs[0], transport, output, manner=Manner(force=True))
    total = {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}
    if transport.rank == 0:
        answer.write_text(json.dumps({**loop, **total, "peak_bytes": peak_bytes()}))


if __name__ == "__main__":
    main()
