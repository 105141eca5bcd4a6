"""Noise that is calibrated to a target: the account, as it is recorded, is never above it, and not far below."""

from typing import Any

import pytest

from dpadmm_mpi.methods import make_plan, parse
from dpadmm_mpi.privacy.account import accounts

NETWORK: dict[str, Any] = {"network": {"graph": "random", "nodes": 5}, "problem": {"C": 20.0, "rho": 0.22}}
GROWING = {"first": 1.0, "ratio": 1.1}
# Method, its options, noise, account; target, iterations, records. A search that looks at the last step alone ends above the
# target in those with a star.
CASES: list[tuple[str, dict[str, Any], dict[str, str], str, float, int, int]] = [
    ("admm", {"eta": 1.0}, {"perturbation": "dual"}, "bound", 3.0, 10, 1000),
    ("admm", {"eta": 1.0}, {"perturbation": "dual"}, "tight", 3.0, 10, 1000),
    ("admm", {"eta": 1.0}, {"perturbation": "dual", "noise": "gamma"}, "epsilon", 0.1, 10, 4000),  # *
    ("admm", {"eta": 1.0}, {"perturbation": "dual", "noise": "gaussian"}, "epsilon", 0.5, 3, 1000),  # *
    ("r-admm", {"eta": 1.0}, {"perturbation": "objective", "noise": "gaussian"}, "epsilon", 0.1, 10, 1000),  # *
    ("mr-admm", {"eta": GROWING}, {"perturbation": "primal", "noise": "gaussian"}, "epsilon", 1.0, 10, 1000),
    ("one-shot", {"eta": 1.0}, {"perturbation": "objective", "noise": "gaussian"}, "epsilon", 1.0, 5, 1000),
    ("dp-dgd", {}, {"perturbation": "gaussian"}, "sound", 0.1, 121, 40_000),
    ("gossip", {}, {"perturbation": "correlated-gaussian"}, "sound", 2.0, 50, 1000),
    ("ps-admm", {}, {"perturbation": "gaussian"}, "paper", 0.5, 10, 1000),
    ("ps-admm", {}, {"perturbation": "gaussian"}, "sound", 1.0, 3, 1000),
    ("dp-acc-admm", {}, {"perturbation": "gaussian"}, "paper", 0.5, 10, 1000),
    ("dp-admm", {}, {"perturbation": "gaussian"}, "sound", 1.0, 10, 1000),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join([case[0], *case[2].values(), case[3]]))
def test_the_recorded_account_is_not_above_the_target(case: Any) -> None:
    """To the last bit."""
    method, options, noise, account, target, iterations, records = case
    hub = method in ("ps-admm", "dp-acc-admm", "dp-admm")
    raw = {
        **({"network": {"nodes": 5}} if hub else NETWORK),
        "iterations": iterations,
        "data": {"records": records, "features": 10},
        "algorithm": {"method": method, **options},
        "privacy": {**noise, "target": target, "target_account": account},
    }
    plan, _ = make_plan(parse(raw))
    (spent,) = (float(each.values[-1]) for each in plan.accounts if accounts[each.name].target == account)
    assert 0.98 * target < spent <= target
