"""The attack that rebuilds a record from what was released: it works without noise, and noise hides the record."""

from pathlib import Path

import numpy as np
import pytest
from support import NETWORK_METHODS, Raw, command, result_of

from dpadmm_mpi import InputError
from dpadmm_mpi.audit.attack import attack


def target_of_attack(method: str, privacy: Raw, runs: int = 1, features: int = 6) -> Raw:
    return {
        "name": f"{method} {privacy['perturbation']}",
        "seed": 3,
        "runs": runs,
        "iterations": 12,
        "data": {"records": 600, "train": 500, "features": features},
        "network": {"graph": "complete", "nodes": 4},
        "problem": {"C": 20.0, "rho": 2.0},
        "algorithm": {"method": method, "eta": 1.0},
        "privacy": privacy,
        "record": {"trajectory": True},
    }


@pytest.mark.parametrize("method", NETWORK_METHODS)
def test_without_noise_the_attack_rebuilds_the_record(tmp_path: Path, method: str) -> None:
    result_of(target_of_attack(method, {"perturbation": "none"}), tmp_path / "o.h5")
    for node, record in ((0, 0), (2, 17)):
        found = attack(tmp_path / "o.h5", node, record)
        assert found.errors[0, -1] < 1e-6
        assert found.ranks[0] == 1


def test_with_noise_the_record_hides_among_others(tmp_path: Path) -> None:
    """At P <= 1 the true record's rank among 100 is like chance, and the rebuilt one is far off."""
    for method, perturbation in (("r-admm", "objective"), ("m-admm", "penalty")):
        raw = target_of_attack(method, {"perturbation": perturbation, "target": 1.0}, runs=20)
        result_of(raw, tmp_path / f"{method}.h5")
        ranks, errors = [], []
        for record in (0, 11, 40):
            found = attack(tmp_path / f"{method}.h5", 1, record)
            ranks.append(found.ranks.mean())
            errors.append(found.errors[:, -1].mean())
        # The mean of 60 uniform ranks has a standard error of 3.7; records differ in norm, so not each is a fair draw.
        assert 35 < np.mean(ranks) < 66
        assert min(errors) > 0.3


def test_attack_command(tmp_path: Path) -> None:
    for name, privacy_table in (("plain", {"perturbation": "none"}), ("private", {"perturbation": "objective", "target": 5.0})):
        result_of(target_of_attack("r-admm", privacy_table, runs=3), tmp_path / f"{name}.h5")
    process = command("attack", tmp_path / "plain.h5", tmp_path / "private.h5", "-o", tmp_path / "a.png")
    assert process.returncode == 0, process.stderr
    assert "1 of 100" in process.stdout
    assert (tmp_path / "a.png").stat().st_size > 10_000
    assert command("attack", tmp_path / "plain.h5", "--node", 9).returncode == 2


@pytest.mark.parametrize(("method", "trajectory"), [("dp-admm", True), ("gl-admm", False)])
def test_attack_is_not_for_curated_methods(tmp_path: Path, method: str, trajectory: bool) -> None:
    privacy_table = {} if method == "gl-admm" else {"noise_std": 1.0}
    table = {"algorithm": {"method": method}, "privacy": privacy_table, "record": {"trajectory": trajectory}}
    result_of({"iterations": 2, "data": {"records": 60, "features": 3}} | table, tmp_path / "o.h5")
    with pytest.raises(InputError, match=f"a run of {method}, but this is for methods on a network or around a server: admm, "):
        attack(tmp_path / "o.h5")


@pytest.mark.parametrize("loss", ["softmax", "huber-regression", "least-squares"])
def test_records_with_other_targets_are_rebuilt_without_noise_and_not_with_it(tmp_path: Path, loss: str) -> None:
    """Features and class, or features and number (up to a common sign, which an even loss does not show)."""
    rng = np.random.default_rng(2)
    X = rng.standard_normal((120, 4))
    X /= 1.2 * np.linalg.norm(X, axis=1, keepdims=True)
    y = np.argmax(X[:, :3], axis=1) if loss == "softmax" else X @ np.array([0.5, 0.2, -0.3, 0.1])
    np.savez(tmp_path / "records.npz", X=X, y=y)
    raw: Raw = {
        "iterations": 6, "runs": 2, "seed": 1,
        "data": {"source": "npz", "path": str(tmp_path / "records.npz"), "train": 1.0},
        "network": {"graph": "ring", "nodes": 3},
        "problem": {"loss": loss, "C": 5.0, "rho": 0.1},
        "algorithm": {"method": "m-admm", "eta": 0.5},
        "record": {"trajectory": True},
    }  # fmt: skip
    result_of(raw, tmp_path / "plain.h5")
    for record in (0, 7):
        found = attack(tmp_path / "plain.h5", node=1, record=record)
        assert found.errors[:, -1].max() < 1e-6
        assert (found.ranks == 1).all()
    if loss == "least-squares":
        return  # not private with any noise
    result_of(raw | {"privacy": {"perturbation": "objective", "alpha": 1.0}}, tmp_path / "private.h5")
    assert attack(tmp_path / "private.h5", node=1).errors[:, -1].min() > 0.1
