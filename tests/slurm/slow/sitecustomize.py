"""On PYTHONPATH: ranks are slow until their job is requeued, then as quick as others; of an array, those of job 1 alone."""

import os
import time
from typing import Any

if os.environ.get("SLURM_ARRAY_TASK_ID", "1") == "1" and "SLURM_RESTART_COUNT" not in os.environ and "PMIX_RANK" in os.environ:
    from dpadmm_mpi.methods.decentralised.algorithm import NetworkNodes, State

    quick = NetworkNodes.work

    def slow(self: NetworkNodes, *arguments: Any) -> State:
        time.sleep(0.3)
        return quick(self, *arguments)

    NetworkNodes.work = slow  # type: ignore[assignment]
