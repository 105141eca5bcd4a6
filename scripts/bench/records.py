"""More records: 10^4 to 10^6 of them with 100 features from an npz file, prepared into the store first, on 5 nodes.

Time: the loop, per record. Memory: the peak of the one process that hosts all nodes, over the bytes of the records.
"""

import os
import tempfile
from pathlib import Path

import numpy as np
from common import Row, medians, run

FEATURES = 100
RECORDS = (10_000, 100_000, 1_000_000)


def config(path: Path) -> dict:
    return {
        "iterations": 50,
        "data": {"source": "npz", "path": str(path), "train": 0.9},
        "network": {"graph": "complete", "nodes": 5},
        "problem": {"C": 50.0, "rho": 0.22},
        "algorithm": {"method": "r-admm", "eta": 1.0, "gamma": 0.5},
        "privacy": {"perturbation": "objective", "alpha": 1.0},
    }


def write(path: Path, records: int) -> None:
    rng = np.random.default_rng(records)
    X = rng.standard_normal((records, FEATURES))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    y = np.where(X @ rng.standard_normal(FEATURES) + 0.3 * rng.standard_normal(records) > 0, 1.0, -1.0)
    np.savez(path, X=X, y=y)


def rows(rounds: int) -> list[Row]:
    before = os.environ.get("DPADMM_DATA")
    with tempfile.TemporaryDirectory() as folder:
        os.environ["DPADMM_DATA"] = folder  # the store goes with the folder
        try:
            paths = {records: Path(folder) / f"{records}.npz" for records in RECORDS}
            for records, path in paths.items():
                write(path, records)
                run(config(path))  # prepares the store
            measured = medians({str(n): lambda n=n: run(config(paths[n]))["loop_cpu"] / n for n in RECORDS}, rounds)
            peak = run(config(paths[RECORDS[-1]]))["peak_bytes"]
        finally:
            if before is None:
                del os.environ["DPADMM_DATA"]
            else:
                os.environ["DPADMM_DATA"] = before
    seconds = [measured[str(n)] for n in RECORDS]
    name = "10^4 to 10^6 records"
    return [
        Row(name, "time per record, slowest : fastest", max(seconds) / min(seconds), at_most=1.3),
        Row(name, "peak memory : records, 10^6", peak / (8 * FEATURES * RECORDS[-1]), at_most=1.5),
    ]
