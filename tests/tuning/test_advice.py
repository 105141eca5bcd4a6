"""Advice: waste that was put in is found, and the noise that the changes are tried with is that of the real sizes."""

from typing import Any

import numpy as np
import pytest

import dpadmm_mpi as dp
from dpadmm_mpi.data.store import Store
from dpadmm_mpi.methods.base import make_plan
from dpadmm_mpi.storage.experiments import load
from dpadmm_mpi.tuning import advice
from dpadmm_mpi.tuning.advice import advise
from dpadmm_mpi.tuning.task import Request

WASTEFUL: dict[str, Any] = {
    "seed": 3,
    "iterations": 30,
    "data": {"records": 10_000, "features": 30},
    "network": {"nodes": 4},
    "problem": {"C": 400.0, "rho": 0.1},
    "algorithm": {"method": "mr-admm", "eta": {"first": 1.04, "ratio": 1.04}},
    "privacy": {"perturbation": "objective", "target": 0.5, "target_account": "epsilon"},
}


def test_too_many_data_steps_are_found_and_the_change_helps_on_the_records() -> None:
    """30 iterations at a small epsilon. The change, run at the real size with the same budget, gains in earnest."""
    found = advise(Request(WASTEFUL))
    assert found.findings and "iterations" in found.findings[0].change.what
    assert found.settings["iterations"] < 30 and found.predicted < found.now
    assert "--set 'iterations=" in found.words
    changed = {**dict(found.settings), "runs": 4}
    before, after = (dp.run(WASTEFUL, overrides=list(more.items())) for more in ({"runs": 4}, changed))  # type: ignore[arg-type]
    assert before is not None and after is not None
    assert after["test_error"][:, -1].mean() < before["test_error"][:, -1].mean()
    assert after["privacy/epsilon"][-1] <= 0.5


@pytest.mark.parametrize(
    ("method", "more"),
    [("admm", {"perturbation": "primal"}), ("ps-admm", {}), ("dp-admm", {"noise_std": {"ratio": 0.9}})],
)
def test_few_records_get_the_noise_of_all(method: str, more: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """The small run's noise is that which the target needs at the real sizes, in every iteration."""
    account = "epsilon" if method == "admm" else "sound"
    raw = {**WASTEFUL, "iterations": 3, "problem": {}, "algorithm": {"method": method},
           "privacy": {"target": 2.0, "target_account": account, **more}}  # fmt: skip
    real, _ = make_plan(load(raw).configs[0])
    used = []
    monkeypatch.setattr(advice, "execute", lambda config, _: used.append(config))
    monkeypatch.setattr(advice, "RECORDS", 500)
    with pytest.raises(AssertionError):
        advise(Request(raw))
    small, _ = make_plan(used[0])
    assert small.sizes.max() == 500 < real.sizes.min()
    key = next(key for key in real.schedules if key.startswith("privacy/"))
    assert np.allclose(small.schedules[key].values, real.schedules[key].values, rtol=1e-12, equal_nan=True)


def test_no_record_is_read(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(5)
    X = rng.uniform(-0.5, 0.5, (900, 3))
    np.savez(tmp_path / "x.npz", X=X, y=np.where(X[:, 0] > 0, 1.0, -1.0))
    raw = {**WASTEFUL, "data": {"source": "npz", "path": str(tmp_path / "x.npz")}, "iterations": 2, "problem": {"C": 20.0},
           "privacy": {"perturbation": "objective", "alpha": 1.0}}  # fmt: skip
    load(raw).configs[0].data.dataset(4, 3)  # prepares the file

    def refuse(*_: object) -> None:
        raise AssertionError("a record was read")

    monkeypatch.setattr(Store, "read", refuse)
    assert advise(Request(raw)).tried > 3


def test_a_run_without_noise_wastes_nothing() -> None:
    with pytest.raises(dp.InputError, match="no noise, so no budget is spent"):
        advise(Request({**WASTEFUL, "privacy": {"perturbation": "none"}}))


def test_a_configuration_that_cannot_meet_its_budget_is_told_how() -> None:
    """With so small a penalty the determinants of 30 iterations alone cost more than the target."""
    raw = {**WASTEFUL, "algorithm": {"method": "mr-admm", "eta": 0.05}}
    with pytest.raises(dp.InputError, match="cannot be met"):
        make_plan(load(raw).configs[0])
    found = advise(Request(raw))
    assert "not within budget" in found.words
    make_plan(load(raw, list(found.settings.items())).configs[0])
