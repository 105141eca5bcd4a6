"""The audit of the curated family: sound runs pass, losses by hand, planted faults are caught."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pytest
from curated_cases import curated_config
from support import Raw, all_records, command, curated_plan, result_of

import dpadmm_mpi
from dpadmm_mpi import InputError
from dpadmm_mpi.audit import audit
from dpadmm_mpi.methods.curated import accounts as theory
from dpadmm_mpi.methods.curated import algorithm as curated
from dpadmm_mpi.types import Array


def test_the_map_is_in_the_file_and_the_audit_compares_it(tmp_path: Path) -> None:
    A = np.array([[1.0, -1.0], [0.0, 2.0]])
    np.save(tmp_path / "A.npy", A)
    config = audited("dp-admm", runs=2)
    config["problem"] |= {"map": "file", "map_path": str(tmp_path / "A.npy")}
    result = result_of(config, tmp_path / "o.h5")
    stored = dpadmm_mpi.load(tmp_path / "o.h5")
    np.testing.assert_array_equal(stored["problem/map"], A)
    assert stored.dims["problem/map"] == ("constraint", "feature")
    assert result.attributes["problem"]["map_sha256"] == stored.attributes["problem"]["map_sha256"]
    audit(tmp_path / "o.h5")
    np.save(tmp_path / "A.npy", A[::-1])
    with pytest.raises(InputError, match="its linear map has changed"):
        audit(tmp_path / "o.h5")


def audited(method: str, runs: int = 300, **sections: Any) -> Raw:
    """Few records and the smoothed hinge, which has its full slope on both sides: the sensitivity is nearly used up."""
    data: Raw = {"records": 20, "features": 2, "train": 1.0}
    problem: Raw = {"loss": "huber", "lambda1": 1e-3}
    config = curated_config(method, 4, runs=runs, problem=problem, data=data, **sections)
    config["network"], config["data"]["split"] = {"nodes": 2}, "even"
    config["data"].pop("concentration")
    config["privacy"] = {"noise_std": 0.1}
    return config


@pytest.mark.parametrize(
    ("method", "algorithm"), [("dp-admm", {}), ("dp-acc-admm", {}), ("dp-acc-admm", {"restart": True, "init": "random"})]
)
def test_three_hundred_runs_pass_the_audit(tmp_path: Path, method: str, algorithm: Raw) -> None:
    """No finding, and losses of the size that the account allows for: more than half of epsilon."""
    result_of(audited(method, algorithm=algorithm), tmp_path / "o.h5")
    report = audit(tmp_path / "o.h5", candidates=3)
    assert report.findings == []
    assert report.losses.shape == (2, 300, 4, 9)
    delta = 1 / 300
    plan, _ = curated_plan(audited(method))
    assert report.worst.max() > 0.5 * theory.sound_epsilon(plan.releases, delta)[-1, 0]


def test_sampled_gradients_are_audited_with_their_samples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """5 of 20 records at a time: no finding, losses of the account's size, 0 until the record is sampled; planted faults are
    found, and so is an account that is too small."""
    config = audited("dp-acc-admm", runs=300, algorithm={"batch": 5})
    result_of(config, tmp_path / "o.h5")
    report = audit(tmp_path / "o.h5", candidates=3)
    assert report.findings == []
    assert report.losses.shape == (2, 300, 4, 9)
    plan, _ = curated_plan(config)
    epsilon = theory.conditioned_epsilon(plan.releases, 1 / 300)[-1, 0]
    assert 0.3 * epsilon < report.worst.max() < 1.5 * epsilon
    first = report.losses[:, :, 0, 0]
    assert np.mean(first == 0.0) == pytest.approx(0.75, abs=5 * np.sqrt(0.75 * 0.25 / first.size))
    monkeypatch.setattr(theory, "conditioned_epsilon", lambda r, delta: np.zeros((5, 2)))
    assert any("incompatible" in finding for finding in audit(tmp_path / "o.h5", candidates=3).findings)
    monkeypatch.undo()
    original = curated.gaussian_noise
    monkeypatch.setattr(curated, "gaussian_noise", lambda *arguments: half(original, *arguments))
    result_of(config | {"runs": 50}, tmp_path / "half.h5")
    monkeypatch.undo()
    assert any(FAULTS[half] in finding for finding in audit(tmp_path / "half.h5", candidates=2).findings)


def test_the_account_with_the_samples_is_a_mean_over_them() -> None:
    """Four iterations, 5 of 20 records, by hand: sum over J of Binomial(4, 1/4) of the Gaussian mechanism's delta."""
    from scipy.stats import binom, norm

    plan, _ = curated_plan(audited("dp-admm", runs=1, algorithm={"batch": 5}))
    epsilon = float(theory.conditioned_epsilon(plan.releases, 1e-2)[-1, 0])
    delta = 0.0
    for hits in range(1, 5):
        mu = np.sqrt(hits) * (2 / 5) / 0.1
        delta += binom.pmf(hits, 4, 0.25) * (
            norm.cdf(mu / 2 - epsilon / mu) - np.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu)
        )
    assert delta == pytest.approx(1e-2, rel=1e-6)


def test_loss_of_one_step_by_hand(tmp_path: Path) -> None:
    """One iteration from zero, logistic, A = I: the density of x_1 under both data sets written out."""
    config = audited("dp-admm", runs=3) | {"iterations": 1}
    config["problem"] = {"lambda1": 1e-3}
    result_of(config, tmp_path / "o.h5")
    report = audit(tmp_path / "o.h5", node=1, record=2)
    X, y = all_records(curated_plan(config)[1])
    Z = y[:, None] * X
    n = 10 + 2  # node 1's third record
    for run in range(3):
        x = report.result["server_trajectory"][run, 1]

        def log_density(rows: Array, x: Array = x) -> float:
            mean = -(4.0 / 5.0) * (-0.5 * rows.mean(axis=0))  # eta = 4, gamma = 5, w_1 = u_0 = 0
            return float(-np.sum((x - mean) ** 2) / (2 * (0.8 * 0.1) ** 2))

        towards = -Z.mean(axis=0)  # without noise xhat_1 is a positive multiple of the mean record
        for pair, new in enumerate((-Z[n], -Z[n] / np.linalg.norm(Z[n]), towards / np.linalg.norm(towards))):
            changed = Z.copy()
            changed[n] = new
            assert report.losses[0, run, 0, pair] == pytest.approx(log_density(Z) - log_density(changed), abs=1e-9)


def test_a_neighbour_against_the_path_uses_more_of_the_sensitivity(tmp_path: Path) -> None:
    """Logistic: a record across the path and its opposite have half the slope each, one against the path has nearly all of it.

    The mean loss of a pair is its squared shift over 2 sigma^2; (2c/n)^2 is what the account pays for.
    """
    y = np.tile([1.0, -1.0], 10)
    signed = np.repeat([[0.2, 0.0], [0.2, 0.0], [0.0, 0.3], [0.0, -0.3]], 5, axis=0)
    np.savez(tmp_path / "r.npz", X=y[:, None] * signed, y=y)
    config = audited("dp-admm", runs=10) | {"iterations": 100, "problem": {"lambda1": 1e-5}}
    config["data"] = {"source": "npz", "path": str(tmp_path / "r.npz"), "train": 1.0}
    config["privacy"] = {"noise_std": 0.01}
    result_of(config, tmp_path / "o.h5")
    report = audit(tmp_path / "o.h5", candidates=1)
    assert report.findings == []
    last = (report.losses[:, :, -1] - report.losses[:, :, -2]).mean(axis=1)  # of the last iteration, (nodes, pairs)
    share = last / ((2 / 20) ** 2 / (2 * 0.01**2))
    assert share[:, :2].max() < 0.15  # (0.5 + 0.3 / 2)^2 / 4
    assert share[:, 2].min() > 0.2  # up to (1 + (0.3 / 2)^2) / 4


def test_the_audit_shows_no_share_of_an_epsilon_of_0(tmp_path: Path) -> None:
    config = audited("dp-admm", runs=2) | {"privacy": {"noise_std": 1e9}}
    result_of(config, tmp_path / "o.h5")
    process = command("audit", tmp_path / "o.h5", "--candidates", 3)
    assert process.returncode == 0
    assert process.stderr == ""
    assert [line.split()[-2:] for line in process.stdout.splitlines()[1:3]] == [["0", "-"]] * 2


Noise: TypeAlias = Callable[[int, int, int, int, float, int], Array]


def half(noise: Noise, seed: int, run: int, hub: int, t: int, noise_std: float, d: int) -> Array:
    return noise(seed, run, hub, t, noise_std / 2, d)


def reused(noise: Noise, seed: int, run: int, hub: int, t: int, noise_std: float, d: int) -> Array:
    return noise(seed, run, hub, min(t, 3), noise_std, d)


def same_in_every_run(noise: Noise, seed: int, run: int, hub: int, t: int, noise_std: float, d: int) -> Array:
    return noise(seed, 0, hub, t, noise_std, d)


FAULTS = {half: "not of the claimed size", reused: "noise is used again", same_in_every_run: "noise is used again"}


@pytest.mark.parametrize("fault", FAULTS)
def test_planted_faults_are_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: Callable[..., Array]) -> None:
    original = curated.gaussian_noise
    monkeypatch.setattr(curated, "gaussian_noise", lambda *arguments: fault(original, *arguments))
    result_of(audited("dp-acc-admm", runs=100), tmp_path / "o.h5")
    monkeypatch.undo()
    findings = audit(tmp_path / "o.h5", candidates=2).findings
    assert any(FAULTS[fault] in finding for finding in findings), findings


def test_an_account_that_is_too_small_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result_of(audited("dp-admm"), tmp_path / "o.h5")
    account = theory.sound_epsilon
    monkeypatch.setattr(theory, "sound_epsilon", lambda r, delta: account(r, delta) * 0.1 - 0.5)
    assert any("incompatible" in finding for finding in audit(tmp_path / "o.h5", candidates=3).findings)


def test_audit_command(tmp_path: Path) -> None:
    result_of(audited("dp-admm", runs=20), tmp_path / "o.h5")
    process = command("audit", tmp_path / "o.h5", "--candidates", 3)
    assert process.returncode == 0, process.stderr
    assert "nothing found against the accounts" in process.stdout
    for config, words in (
        (audited("dp-admm", runs=2, algorithm={"u0": "as-printed"}), "not private"),
        (audited("dp-admm", runs=2, record={"trajectory": False}), "holds no trajectory"),
        (curated_config("gl-admm"), "nothing to audit"),
    ):
        result_of(config, tmp_path / "n.h5", force=True)
        with pytest.raises(InputError, match=words):
            audit(tmp_path / "n.h5")
