"""The audit of the gradient methods and of the single solves: sound runs pass, losses by hand, planted faults are caught."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from audit_cases import small
from scipy.stats import norm
from support import Raw, planned, result_of, rows_of, shard_of

from dpadmm_mpi import InputError, load
from dpadmm_mpi.audit import Audit, audit
from dpadmm_mpi.methods.gradient import accounts, algorithm
from dpadmm_mpi.methods.gradient.plan import GradientPlan
from dpadmm_mpi.types import Array

GRADIENT = ("dp-dgd", "gossip", "dp-gradient-tracking")


def audited(method: str, runs: int = 300, **sections: Any) -> Raw:
    """Two nodes with few records and the smoothed hinge, which has its full slope on both sides: the sensitivity is used up."""
    raw = small("admm", "objective", runs=runs, features=2, **sections)
    raw["algorithm"] = {"method": method} | ({"mixing_steps": 2} if method == "gossip" else {})
    raw["privacy"] = {"perturbation": "gaussian", "noise_std": 2.0}
    return raw


@pytest.mark.parametrize("method", GRADIENT)
def test_three_hundred_runs_pass_the_audit(tmp_path: Path, method: str) -> None:
    """No finding, and losses of the size that the account allows for: more than half of epsilon at delta = 1/300."""
    raw = audited(method)
    result_of(raw, tmp_path / "o.h5")
    report = audit(tmp_path / "o.h5", candidates=3)
    assert report.findings == []
    plan, _ = planned(raw)
    assert isinstance(plan, GradientPlan)
    assert report.losses.shape == (2, 300, plan.releases.touches, 9)
    assert report.worst.max() > 0.5 * accounts.epsilon(plan.releases, 1 / 300)[-1].max()
    assert report.against == "epsilon_sound"


def test_a_loss_by_hand(tmp_path: Path) -> None:
    """The densities of all noisy gradients of one node, written out: with its records and with one of them replaced."""
    raw = audited("dp-dgd", runs=2, problem={"loss": "logistic"})
    raw["algorithm"] |= {"step": 0.3, "momentum": 0.5}
    result = result_of(raw, tmp_path / "o.h5")
    report = audit(tmp_path / "o.h5", node=0, record=2)
    _, dataset = planned(raw)
    X, y = rows_of(dataset, 0), shard_of(dataset, 0).y
    other = y.copy()
    other[2] = -y[2]
    psi = result["trajectory"][1]
    x = 0.5 * psi.sum(axis=1)  # two nodes: both weights are 1/2

    def gradient(labels: Array, f: Array) -> Array:
        slopes = -1.0 / (1.0 + np.exp(labels * (X @ f)))
        return np.asarray(2.0 * np.mean((slopes * labels)[:, None] * X, axis=0) + 0.5 * f)

    loss, before = 0.0, np.zeros(2)
    for t in range(1, 5):
        direction = (x[t - 1] - psi[t, 0]) / 0.3
        noisy, before = direction - 0.5 * before, direction
        likely = [norm.logpdf(noisy, gradient(labels, x[t - 1]), 2.0).sum() for labels in (y, other)]
        loss += likely[0] - likely[1]
    assert report.losses[0, 1, -1, 0] == pytest.approx(loss, abs=1e-9)


Plant = Callable[[Callable[..., Array]], Callable[..., Array]]
FAULTS: dict[str, tuple[Plant, str]] = {
    "half of the noise": (lambda draw: lambda *about: 0.5 * draw(*about), "not of the claimed size"),
    "the noise of the first gradient again": (lambda draw: lambda s, runs, nodes, t: draw(s, runs, nodes, 1), "used again"),
    "one direction": (lambda draw: lambda *about: np.abs(draw(*about)), "prefers a direction"),
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("method", GRADIENT)
def test_faults_of_the_noise_are_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str, fault: str) -> None:
    plant, words = FAULTS[fault]
    monkeypatch.setattr(algorithm, "noise", plant(algorithm.noise))
    result_of(audited(method, runs=60), tmp_path / "o.h5")
    assert any(words in finding for finding in audit(tmp_path / "o.h5", candidates=2).findings)


def test_an_account_that_is_too_small_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Noise for the half of the gradients: too many runs lose too much."""
    result_of(audited("dp-dgd", runs=400), tmp_path / "o.h5")
    honest = accounts.epsilon
    monkeypatch.setattr(accounts, "epsilon", lambda r, delta: 0.2 * honest(r, delta))
    assert any("incompatible" in finding for finding in audit(tmp_path / "o.h5", candidates=3).findings)


def test_a_larger_record_than_the_account_knows_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A weight of C/B that the account takes for less."""
    result_of(audited("dp-dgd", runs=3), tmp_path / "o.h5")
    monkeypatch.setattr("dpadmm_mpi.privacy.releases.GradientReleases.sensitivity", property(lambda r: 1.0 * r.G * r.C / r.B))
    assert any("more than the sensitivity" in finding for finding in audit(tmp_path / "o.h5", candidates=3).findings)


def _without_own_noise(step: Callable[..., Array]) -> Callable[..., Array]:
    """The tracker's difference from a gradient without noise."""
    return lambda tracked, noisy, before: step(tracked, noisy, 0.9 * before)


def test_what_does_not_follow_from_released_values_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Mixing and points of tracking are computed again; a tracker that keeps something of the gradient before is seen in the
    noise, which then is not fresh."""
    for method, words in (
        ("gossip", "does not follow by mixing"),
        ("dp-gradient-tracking", "does not follow from the trackers"),
    ):
        name = tmp_path / f"{method}.h5"
        result = result_of(audited(method, runs=2), name)
        changed = result["trajectory"].copy()
        changed[1, 2, 0, 0] += 1e-3
        forged = _Forged(load(name), {"trajectory": changed})
        assert any(words in finding for finding in audit(forged, candidates=2).findings)
    monkeypatch.setattr(algorithm, "tracking_step", _without_own_noise(algorithm.tracking_step))
    raw = audited("dp-gradient-tracking", runs=300)
    raw["iterations"] = 8
    result_of(raw, tmp_path / "kept.h5")
    assert audit(tmp_path / "kept.h5", candidates=2).findings


class _Forged:
    """A result with other values of some arrays."""

    def __new__(cls, result: Any, arrays: dict[str, Array]) -> Any:
        kind = type("Forged", (type(result),), {"__getitem__": lambda self, name: arrays.get(name, result[name])})
        other: Any = object.__new__(kind)
        other.__dict__.update(result.__dict__)
        return other


@pytest.mark.parametrize("method", ["one-shot", "central-objective"])
def test_single_solves_pass_the_audit_and_mixing_is_checked(tmp_path: Path, method: str) -> None:
    """By the audit of the data steps that they share; the averaging is computed again."""
    raw = small(method, "objective", runs=100, features=2)
    raw["algorithm"] = {"method": method, "eta": 0.5}
    raw["privacy"]["allow_unproven"] = True
    name = tmp_path / "o.h5"
    result = result_of(raw, name)
    report: Audit = audit(name, candidates=3)
    assert report.findings == []
    assert report.worst.max() > 0.5 * float(result["privacy/tight"][-1])
    if method == "one-shot":
        changed = result["trajectory"].copy()
        changed[5, 3, 1, 0] += 1e-3
        forged = _Forged(load(name), {"trajectory": changed})
        assert any("is not the recycled step" in finding for finding in audit(forged, candidates=2).findings)


def test_a_run_without_noise_is_refused(tmp_path: Path) -> None:
    raw = audited("dp-dgd", runs=1)
    raw["privacy"] = {"perturbation": "none"}
    result_of(raw, tmp_path / "o.h5")
    with pytest.raises(InputError, match="a run without noise"):
        audit(tmp_path / "o.h5")
