"""What the benchmarks share: runs in processes of their own, interleaved medians, the machine, and a row of the table."""

import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

WORKER = Path(__file__).parent / "worker.py"
PACKAGES = ("dpadmm-mpi", "numpy", "scipy", "h5py", "mpi4py", "scikit-learn")


@dataclass(frozen=True)
class Row:
    """One figure of the table: a ratio, mostly, and what it should be; without a target, for comparison."""

    benchmark: str
    figure: str
    value: float
    at_least: float | None = None
    at_most: float | None = None
    is_ratio: bool = True  # of things measured in the same minutes, so that the speed of the machine is not in it

    @property
    def target(self) -> str:
        if self.at_least is not None:
            return f">= {self.at_least:,.4g}"
        return "" if self.at_most is None else f"<= {self.at_most:,.4g}"

    @property
    def verdict(self) -> str:
        if not self.target:
            return ""
        above = self.at_least is None or self.value >= self.at_least
        below = self.at_most is None or self.value <= self.at_most
        return "met" if above and below else "missed"


def run(config: Mapping[str, Any], ranks: int = 1, to_file: bool = False) -> dict[str, float]:
    """What worker.py measures of one run; with `to_file`, recorded in an HDF5 file with its journal."""
    with tempfile.TemporaryDirectory() as folder:
        given, answer = Path(folder) / "config.json", Path(folder) / "answer.json"
        given.write_text(json.dumps(config))
        launcher = ["mpiexec", "-n", str(ranks)] if ranks > 1 else []
        words = [*launcher, sys.executable, str(WORKER), str(given), str(answer)]
        process = subprocess.run(
            words + ([str(Path(folder) / "out.h5")] if to_file else []), capture_output=True, text=True, check=False
        )
        if not answer.exists():
            raise RuntimeError(f"{' '.join(words)}: {process.stderr[-2000:]}")
        return json.loads(answer.read_text())


def medians(contenders: Mapping[str, Callable[[], float]], rounds: int) -> dict[str, float]:
    """The median of each contender's figure; every round asks all of them after each other."""
    figures: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(rounds):
        for name, measure in contenders.items():
            figures[name].append(measure())
    return {name: float(np.median(values)) for name, values in figures.items()}


def machine() -> dict[str, Any]:
    def installed(package: str) -> str | None:
        try:
            return version(package)
        except PackageNotFoundError:
            return None

    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    models = [line.split(":")[1].strip() for line in lines if line.startswith("model name")]
    return {
        "cpu": models[0] if models else platform.processor() or "unknown",
        "cores": os.cpu_count(),
        "load_average": os.getloadavg()[0],
        "system": platform.platform(),
        "python": platform.python_version(),
        **{package: installed(package) for package in PACKAGES},
    }
