"""`dpadmm run` on next to nothing, against an interpreter that imports numpy, scipy.linalg and h5py; wall clock."""

import subprocess
import sys
import tempfile
import time
from pathlib import Path

from common import Row, medians

TINY = """
iterations = 2
data = { source = "synthetic", records = 100, features = 5 }
network = { graph = "ring", nodes = 4 }
problem = { C = 10.0, rho = 0.22 }
algorithm = { method = "r-admm", eta = 1.0, gamma = 0.5 }
privacy = { perturbation = "objective", alpha = 1.0 }
"""


def seconds(*words: str) -> float:
    begin = time.perf_counter()
    subprocess.run([sys.executable, *words], check=True, capture_output=True)
    return time.perf_counter() - begin


def rows(rounds: int) -> list[Row]:
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "tiny.toml"
        config.write_text(TINY)
        wall = medians({
            "run": lambda: seconds("-m", "dpadmm_mpi", "run", str(config), "-o", f"{folder}/tiny.h5", "--force"),
            "imports": lambda: seconds("-c", "import numpy, scipy.linalg, h5py"),
        }, 3 * rounds)  # fmt: skip
    figure = "seconds more than numpy, scipy.linalg and h5py"
    return [Row("start-up", figure, wall["run"] - wall["imports"], at_most=0.6, is_ratio=False)]
