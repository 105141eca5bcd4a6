"""The gradient methods and the single solves on any number of ranks: identical to the last bit, noise on."""

from pathlib import Path

import numpy as np
import pytest
import tomli_w
from support import EDGES, command

from dpadmm_mpi.storage.compare import compare

ONCE = {"perturbation": "primal", "noise": "gaussian", "noise_std": 0.3}
DENSE = {"source": "synthetic", "records": 90, "features": 70, "split": "uneven"}
VARIANTS = [
    {"name": "descent", "algorithm": {"method": "dp-dgd", "step": {"ratio": 0.9}}, "data": DENSE},
    {"name": "gossip", "algorithm": {"method": "gossip", "mixing_steps": 3}},
    {"name": "tracking", "algorithm": {"method": "dp-gradient-tracking", "step": 0.2}},
    {"name": "one-shot", "algorithm": {"method": "one-shot", "eta": 0.5}, "privacy": ONCE},
    {"name": "floor", "algorithm": {"method": "central-objective"}, "privacy": ONCE},
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every method as a variant on sparse or on wide shards, and the folder that a serial run wrote."""
    folder = tmp_path_factory.mktemp("gradient")
    rng = np.random.default_rng(4)
    X = rng.standard_normal((90, 6)) * (rng.random((90, 6)) < 0.3)
    X /= np.maximum(np.linalg.norm(X, axis=1, keepdims=True), 1.0)
    y = np.where(rng.random(90) < 0.4, 1, -1)
    lines = [f"{c:+d} " + " ".join(f"{j + 1}:{float(v)!r}" for j, v in enumerate(x) if v) for x, c in zip(X, y, strict=True)]
    (folder / "records.svm").write_text("\n".join(lines))
    (folder / "edges.txt").write_text("".join(f"{i} {j}\n" for i, j in EDGES))
    sparse = {"source": "libsvm", "path": "records.svm", "features": 6, "split": "uneven", "train": 0.8}
    raw = {
        "name": "gradient",
        "seed": 5,
        "runs": 2,
        "iterations": 5,
        "data": sparse,
        "network": {"graph": "edges", "path": "edges.txt"},
        "problem": {"C": 2.0, "rho": 2.0},
        "algorithm": {"init": "random"},
        "privacy": {"perturbation": "gaussian", "noise_std": 0.3},
        "record": {"trajectory": True, "optimum": True},
        "variant": VARIANTS,
    }
    (folder / "gradient.toml").write_text(tomli_w.dumps(raw))
    process = command("run", folder / "gradient.toml", "-o", folder / "serial")
    assert process.returncode == 0, process.stderr
    return folder


@pytest.mark.parametrize("ranks", [2, 6])
def test_any_number_of_ranks_writes_the_same_file(folder: Path, ranks: int) -> None:
    """Also where all records are in one place, and the other ranks have none."""
    process = command("run", folder / "gradient.toml", "-o", folder / f"ranks-{ranks}", ranks=ranks)
    assert process.returncode == 0, process.stderr
    files = sorted((folder / "serial").iterdir())
    assert len(files) == 5
    for serial in files:
        assert list(compare(serial, folder / f"ranks-{ranks}" / serial.name)) == [], serial.name
