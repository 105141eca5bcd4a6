"""Classes and numbers: the same bits on three ranks, and after a kill."""

import signal
from pathlib import Path

import numpy as np
import pytest
import tomli_w
from support import PROGRAMS, Raw, command

from dpadmm_mpi.storage.compare import compare


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Softmax, with small and with kept solves, and regression, with every place of the noise; a serial run of each."""
    folder, rng = tmp_path_factory.mktemp("targets"), np.random.default_rng(3)
    X = rng.standard_normal((700, 6)) * (rng.random((700, 6)) < 0.4)
    X /= np.maximum(np.linalg.norm(X, axis=1, keepdims=True), 1.0)
    np.savez(folder / "classes.npz", X=X, y=rng.integers(3, size=len(X)))
    np.savez(folder / "numbers.npz", X=X, y=X @ rng.standard_normal(6) + 0.1 * rng.standard_normal(len(X)))
    variants: list[Raw] = [
        {
            "name": f"{loss} {perturbation}",
            "data": {"source": "npz", "path": "classes.npz" if loss == "softmax" else "numbers.npz", "train": 0.9},
            "problem": {"loss": loss, "C": 2.0, "rho": 0.4},
            "algorithm": {"method": "mr-admm", "eta": 0.7},
            "privacy": {"perturbation": perturbation} | ({} if perturbation == "none" else {"alpha": 4.0}),
        }
        for loss, perturbation in (
            ("softmax", "none"), ("softmax", "objective"), ("softmax", "primal"), ("huber-regression", "penalty"),
            ("huber-regression", "primal"), ("least-squares", "none"),
        )
    ]  # fmt: skip
    variants[1]["problem"] |= {"regulariser": "pseudo-huber"}
    raw = {"seed": 5, "runs": 2, "iterations": 5, "network": {"graph": "ring", "nodes": 5}, "variant": variants}
    raw["record"] = {"trajectory": True, "optimum": True, "checkpoint": 1}
    (folder / "all.toml").write_text(tomli_w.dumps(raw))
    process = command("run", folder / "all.toml", "-o", folder / "serial")
    assert process.returncode == 0, process.stderr
    assert len(list((folder / "serial").iterdir())) == len(variants)
    return folder


def test_on_three_ranks(everything: Path) -> None:
    process = command("run", everything / "all.toml", "-o", everything / "ranks", ranks=3)
    assert process.returncode == 0, process.stderr
    for serial in sorted((everything / "serial").iterdir()):
        assert list(compare(serial, everything / "ranks" / serial.name)) == [], serial.name


@pytest.mark.parametrize("name", ["softmax primal", "huber-regression penalty"])
def test_killed_and_resumed(everything: Path, tmp_path: Path, name: str) -> None:
    (serial,) = [path for path in (everything / "serial").iterdir() if path.stem.replace("-", " ") == name.replace("-", " ")]
    job = ("run", everything / "all.toml", "--only", name, "-o", tmp_path / "out.h5", "--resume")
    process = command(0, 40, *job, program=PROGRAMS / "mortal.py")
    assert process.returncode == -signal.SIGKILL, process.stderr
    process = command(*job)
    assert process.returncode == 0, process.stderr
    assert list(compare(serial, tmp_path / "out.h5")) == []
