"""The audit of PS-ADMM: sound runs pass, the loss is the one worked out by hand, planted faults are caught."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from oracles.star import Provider, inner_path
from scipy import stats
from support import Raw, command, dense, planned, result_of, shard_of, star_plan

from dpadmm_mpi.audit import audit
from dpadmm_mpi.methods.star import accounts as theory
from dpadmm_mpi.methods.star import algorithm as algorithm
from dpadmm_mpi.methods.star import plan as family
from dpadmm_mpi.rng import Generator, Purpose, generator
from dpadmm_mpi.types import Array


def small(runs: int = 200, features: int = 1, noise_std: float = 6.0, **sections: Any) -> Raw:
    """Two providers with few records, so that one of them matters. The smoothed hinge has the full slope on both sides."""
    raw: Raw = {
        "name": "audited",
        "seed": 8,
        "runs": runs,
        "iterations": 3,
        "data": {"split": "sizes", "sizes": [1, 5], "records": 20, "features": features},
        "network": {"nodes": 2},
        "problem": {"loss": "huber"},
        "algorithm": {"method": "ps-admm", "inner_steps": 6, "rho": 1.0},
        "privacy": {"noise_std": noise_std},
        "record": {"trajectory": True},
    }
    return raw | {name: raw[name] | table for name, table in sections.items()}


@pytest.mark.parametrize(("averaging", "features"), [("uniform", 1), ("extrapolated", 6)])
def test_two_hundred_sound_runs_pass(tmp_path: Path, averaging: str, features: int) -> None:
    """No finding; and the losses are real: some run loses more than a tenth of the sound epsilon at delta = 0.1."""
    result_of(small(features=features, algorithm={"averaging": averaging}), tmp_path / "o.h5")
    report = audit(tmp_path / "o.h5", candidates=3)
    assert report.findings == []
    plan, _ = star_plan(tmp_path / "o.h5")
    assert (report.worst / theory.sound_epsilon(plan.releases, 0.1)[-1]).max() > 0.1


def test_loss_by_hand(tmp_path: Path) -> None:
    """Every inner step of a run by an implementation of its own: each density a sum over the records, written out."""
    raw = small(runs=2, features=2, noise_std=1.5, problem={"loss": "logistic"})
    result = result_of(raw, tmp_path / "o.h5")
    report = audit(tmp_path / "o.h5", node=1, record=3)
    shard = shard_of(planned(raw)[1], 1)
    X = dense(shard.X)
    own = Provider(X, shard.y)
    flipped, stretched = X.copy(), X.copy()
    flipped[3] *= -1
    stretched[3] *= -1 / np.linalg.norm(X[3])
    rho, eta = 1.0, 1 / (4 * 1.25)

    def log_density(provider: Provider, o: Array, v: Array, start: Array) -> float:
        u = provider.gradient(start)
        means = [provider.record_gradient(m, v) - provider.record_gradient(m, start) + u for m in range(5)]
        return float(np.log(np.mean([stats.norm(mean, 1.5).pdf(o).prod() for mean in means])))

    for run in range(2):
        lam = np.zeros(2)
        expected = np.zeros(2)
        for t in range(1, 4):
            x, z = result["trajectory"][run, t - 1, 1], result["server_trajectory"][run, t - 1]
            m = generator(8, Purpose.SAMPLES, run, 1, t).integers(5, size=6)
            noise = 1.5 * generator(8, Purpose.INNER_NOISE, run, 1, t).standard_normal((6, 2))
            vs = inner_path(own, x, lam, z, rho=rho, eta=eta, samples=m, noise=noise)
            for s in range(6):
                o = own.record_gradient(m[s], vs[s]) - own.record_gradient(m[s], x) + own.gradient(x) + noise[s]
                for pair, changed in enumerate((flipped, stretched)):
                    expected[pair] += log_density(own, o, vs[s], x) - log_density(Provider(changed, shard.y), o, vs[s], x)
            assert np.allclose(report.losses[0, run, t - 1], expected, rtol=1e-8, atol=1e-10)
            lam = lam + rho * (result["trajectory"][run, t, 1] - result["server_trajectory"][run, t])


def planted(monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    if fault == "half the noise":
        inner = family._inner

        def quieter(options: Any, rho: float, config: Any, releases: Any) -> Any:
            return inner(options, rho, config, replace(releases, noise_std=0.5 * releases.noise_std))

        monkeypatch.setattr(family, "_inner", quieter)
    else:

        def reusing(seed: int, purpose: Purpose, run: int = 0, node: int = 0, iteration: int = 0) -> Generator:
            return generator(seed, purpose, run, node, min(iteration, 2) if purpose == Purpose.INNER_NOISE else iteration)

        monkeypatch.setattr(algorithm, "generator", reusing)
        monkeypatch.setattr("dpadmm_mpi.methods.star.audit.generator", reusing)


FAULTS = {"half the noise": "not of the claimed size", "noise reused in two iterations": "noise is used again"}


@pytest.mark.parametrize("fault", FAULTS)
def test_planted_faults_are_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    """By what the noise is, where the program that audits has the fault too; otherwise the record does not fit the replay."""
    planted(monkeypatch, fault)
    result_of(small(runs=40, features=3), tmp_path / "o.h5")
    findings = audit(tmp_path / "o.h5", candidates=2).findings
    assert any(FAULTS[fault] in finding for finding in findings), findings
    monkeypatch.undo()
    findings = audit(tmp_path / "o.h5", candidates=2).findings
    assert any("not those of this configuration's own noise" in finding for finding in findings), findings


def test_an_account_that_is_far_too_small_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Too many runs lie above it. The sound one is about six times the worst loss here; this one is thirty times smaller."""
    result_of(small(), tmp_path / "o.h5")
    account = theory.sound_epsilon
    monkeypatch.setattr(theory, "sound_epsilon", lambda r, delta: account(r, delta) / 30)
    assert any("incompatible" in finding for finding in audit(tmp_path / "o.h5", candidates=3).findings)


def test_audit_command(tmp_path: Path) -> None:
    result_of(small(runs=10), tmp_path / "o.h5")
    process = command("audit", tmp_path / "o.h5", "--candidates", 2)
    assert process.returncode == 0, process.stderr
    assert "epsilon sound" in process.stdout
    assert "nothing found against the accounts" in process.stdout
    plain = small(runs=1) | {"privacy": {"perturbation": "none"}}
    result_of(plain, tmp_path / "plain.h5")
    assert "nothing to audit" in command("audit", tmp_path / "plain.h5").stderr
