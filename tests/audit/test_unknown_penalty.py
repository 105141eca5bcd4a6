"""A secret penalty does not protect the record ([M] 6.2 says that it does); noise does."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import command

import dpadmm_mpi
from dpadmm_mpi.audit.unknown_penalty import attack_without_penalties

METHODS: dict[str, dict[str, Any]] = {
    "admm": {"eta": 1.3},
    "m-admm": {"theta": 0.4},
    "mr-admm": {"eta": [{"first": 0.5 + 0.1 * i, "ratio": 1.05} for i in range(6)]},
}


def run(path: Path, method: str, **privacy: Any) -> Path:
    algorithm = {"method": method} | METHODS[method]
    if method == "m-admm":  # random penalties, of which nobody but the node knows anything
        rng = np.random.default_rng(4)
        algorithm["eta"] = [np.sort(rng.uniform(0.5, 3.0, 8)).tolist() for _ in range(6)]
    config = {
        "iterations": 8,
        "data": {"records": 300, "features": 12},
        "network": {"graph": "random", "nodes": 6},
        "problem": {"C": 10.0, "rho": 0.5},
        "algorithm": algorithm,
        "privacy": privacy,
        "record": {"trajectory": True},
    }
    dpadmm_mpi.run(config, path)
    return path


@pytest.mark.parametrize("method", list(METHODS))
def test_without_noise_two_data_steps_give_the_record_away(method: str, tmp_path: Path) -> None:
    """Direction and length to 1e-6, neither eta nor theta known, and the true record is the likeliest candidate."""
    found = attack_without_penalties(run(tmp_path / "a.h5", method), node=2, record=5)
    assert found.errors.max() < 1e-6
    assert (found.ranks == 1).all()


def test_with_noise_it_fails(tmp_path: Path) -> None:
    found = attack_without_penalties(run(tmp_path / "a.h5", "mr-admm", perturbation="objective", alpha=1.0))
    assert found.errors.min() > 0.3


def test_the_command_says_and_draws_it(tmp_path: Path) -> None:
    plain, private = run(tmp_path / "a.h5", "admm"), run(tmp_path / "b.h5", "admm", perturbation="dual", alpha=1.0)
    process = command("attack", plain, private, "--unknown-eta", "-o", tmp_path / "secret.png")
    assert process.returncode == 0, process.stderr
    assert process.stdout.count("penalties unknown") == 2
    assert (tmp_path / "secret.png").stat().st_size > 10_000
