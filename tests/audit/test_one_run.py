"""The audit of one run by canaries: its bound is the theorem's, sound runs pass, and noise that is far too small is seen."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats
from support import Raw, WriteToml, command

from dpadmm_mpi.audit import audit_one_run
from dpadmm_mpi.audit.one_run import Guesses, lower_bound, p_value
from dpadmm_mpi.methods.decentralised import algorithm
from dpadmm_mpi.privacy.noises import draw


def many_features(**privacy: Any) -> Raw:
    """One node and one data step, in 160 dimensions: as many canaries, which do not meet."""
    return {
        "seed": 3,
        "iterations": 1,
        "data": {"records": 330, "train": 320, "features": 160},
        "network": {"graph": "complete", "nodes": 1},
        "problem": {"C": 20.0, "rho": 1.0, "loss": "huber"},
        "algorithm": {"method": "admm", "init": "zero"},
        "privacy": {"perturbation": "objective", "target": 1.0, "target_account": "epsilon"} | privacy,
    }


@pytest.mark.parametrize(("m", "r", "v"), [(50, 50, 45), (100, 20, 20), (30, 10, 5), (7, 3, 0)])
@pytest.mark.parametrize(("epsilon", "delta"), [(0.0, 0.0), (1.0, 1e-5), (2.5, 1e-2)])
def test_the_p_value_is_the_theorems(m: int, r: int, v: int, epsilon: float, delta: float) -> None:
    """Term by term, as the theorem has it: P(W >= v) + 2 m delta max_i P(v - i <= W < v) / i."""
    W = stats.binom(r, np.exp(epsilon) / (1 + np.exp(epsilon)))
    nearly = [sum(W.pmf(k) for k in range(max(v - i, 0), v)) / i for i in range(1, m + 1)]
    assert p_value(Guesses(m, r, v), epsilon, delta) == pytest.approx(W.sf(v - 1) + 2 * m * delta * max(nearly), rel=1e-9)


def test_the_lower_bound_covers() -> None:
    """Randomised response on m bits is epsilon-private and best guessed by its answers: the bound fails in 5 % at most."""
    rng, epsilon, m = np.random.default_rng(1), 1.3, 40
    right = rng.binomial(m, np.exp(epsilon) / (1 + np.exp(epsilon)), size=2000)
    bounds = {k: lower_bound(Guesses(m, m, k), 0.0, 0.05) for k in np.unique(right).tolist()}
    wrong = np.mean([bounds[k] > epsilon for k in right.tolist()])
    assert wrong < 0.05 + 4 * np.sqrt(0.05 * 0.95 / 2000)
    assert np.mean([bounds[k] for k in right.tolist()]) > 0.4 * epsilon


def test_noise_ten_times_too_small_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same run with the noise that it claims to have shows less than its epsilon."""
    sound = audit_one_run(many_features())
    assert sound.findings == []
    assert sound.everything.canaries == 80  # a quarter of the records
    monkeypatch.setattr(algorithm, "draw", lambda k, s, r, n, t, alpha, d: draw(k, s, r, n, t, 10 * alpha, d))
    faulty = audit_one_run(many_features(), canaries=160)
    assert any(finding.endswith("of the account epsilon") for finding in faulty.findings), faulty


@pytest.mark.parametrize("method", ["ps-admm", "dp-admm"])
def test_other_families(method: str) -> None:
    """Their sound accounts are what is compared; not one of adding or removing a record, and none that is not proven."""
    raw = {"iterations": 3, "data": {"records": 200, "features": 8}, "algorithm": {"method": method}}
    report = audit_one_run(raw | {"privacy": {"noise_std": 0.5}})
    assert [verdict.account.name for verdict in report.verdicts] == ["epsilon_sound"]
    assert report.findings == []


def test_one_run_command(tmp_path: Path, write_toml: WriteToml) -> None:
    path = write_toml(many_features())
    process = command("audit", path, "--one-run", "--canaries", 20, "--set", "data.features=30")
    assert process.returncode == 0, process.stderr
    assert "20 canaries" in process.stdout
    for arguments, sentence in (
        (("--one-run", "--canaries", 321), "no more of them than records"),
        (("--one-run", "--set", "privacy.perturbation=none"), "nothing to audit"),
        (("--canaries", 4), "with --one-run only"),
    ):
        refused = command("audit", path, *arguments)
        assert (refused.returncode, sentence in refused.stderr) == (2, True), refused.stderr
