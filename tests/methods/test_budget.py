"""privacy.budget: no run spends more, on any layout, through kills and extensions; what is spent is what happened."""

import signal
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tomli_w
from hypothesis import given
from hypothesis import strategies as st
from support import (
    NETWORK_METHODS,
    PRIVATE,
    PROGRAMS,
    MakeConfig,
    Raw,
    around_a_hub,
    by_name,
    command,
    network_plan,
    planned,
    result_of,
    sentences,
)

from dpadmm_mpi import load
from dpadmm_mpi.errors import InputError
from dpadmm_mpi.methods.budget import affordable
from dpadmm_mpi.problems.local_problems import LocalProblems
from dpadmm_mpi.storage.compare import compare
from dpadmm_mpi.types import Bools, Ints

MORTAL = PROGRAMS / "mortal.py"


def share_of_total(raw: Raw, share: float, account: str = "epsilon") -> float:
    """A part of what the worst node would spend without a budget."""
    return share * float(by_name(planned(raw)[0].accounts)[account].values[-1])


def limited(raw: Raw, epsilon: float, **budget: Any) -> Raw:
    return raw | {"privacy": raw["privacy"] | {"budget": {"epsilon": epsilon, **budget}}}


@pytest.mark.parametrize("method", NETWORK_METHODS)
@pytest.mark.parametrize("perturbation", PRIVATE)
def test_a_run_stops_before_the_data_step_that_would_exceed_the_budget(
    config: MakeConfig, method: str, perturbation: str
) -> None:
    """One data step more exceeds it; up to the stop every released bit is that of the run without a budget."""
    raw = config(method, perturbation, iterations=10)
    epsilon = share_of_total(raw, 0.6)
    result, whole = result_of(limited(raw, epsilon)), result_of(raw)
    last = int(result.iteration[-1])
    assert result.complete
    assert 0 < last < 10
    assert result["privacy/epsilon"].max() <= epsilon
    step = last + 1
    assert step in network_plan(raw)[0].releases.data_steps
    longer = result_of(raw | {"iterations": step})
    assert longer["privacy/epsilon"][-1] > epsilon
    assert f"stops after iteration {last} of 10" in result.attributes["/"]["notes"]
    for name in ("trajectory", "loss", "objective", "privacy/alpha"):
        part = whole[name][:, : last + 1] if name != "privacy/alpha" else whole[name][: last + 1]
        np.testing.assert_array_equal(result[name], part)


def test_resting_nodes_spend_nothing_more(config: MakeConfig) -> None:
    """Noise on the release, delta = 0: the sum of alpha (2C/B)/mu, by hand, says when each node rests."""
    raw = config("m-admm", "primal", iterations=9)
    plan, _ = network_plan(raw)
    r = plan.releases
    step = 5.0 * 2.0 * 3.0 / r.B / (0.5 / 6 + 2.0 * r.eta * r.V)  # alpha = 5, C = 3, rho = 0.5
    totals = np.cumsum(step, axis=0)
    epsilon = float(np.median(totals[-1])) * 0.7
    expected = (totals <= epsilon).sum(axis=0)
    assert len(set(expected.tolist())) >= 3
    assert expected.max() == 9
    result = result_of(limited(raw, epsilon, delta=0.0, when_spent="rest"))
    np.testing.assert_array_equal(result["privacy/budget_steps"], expected)
    assert int(result.iteration[-1]) == 9
    spent = np.vstack([np.zeros(6), totals])[np.minimum(np.arange(10)[:, None], expected), np.arange(6)]
    np.testing.assert_allclose(result["privacy/node_tight"], spent, rtol=1e-12)
    np.testing.assert_allclose(result["privacy/node_bound"], spent, rtol=1e-12)
    assert (result["privacy/node_epsilon"] <= spent * (1 + 1e-12)).all()
    resting = np.arange(1, 10)[:, None] > expected
    np.testing.assert_array_equal(np.isnan(result["privacy/alpha"][1:]), resting)
    np.testing.assert_array_equal(np.isnan(result["kkt_residual"][0, 1:]), resting)
    # Without recycled steps a resting node sends its last value again; the others are as without a budget until one rests.
    f, whole = result["trajectory"][0], result_of(raw)["trajectory"][0]
    for t in range(1, 10):
        np.testing.assert_array_equal((f[t] == f[t - 1]).all(axis=1), resting[t - 1])
    np.testing.assert_array_equal(f[: expected.min() + 1], whole[: expected.min() + 1])
    assert (f[expected.min() + 2 :] != whole[expected.min() + 2 :]).any()


@pytest.mark.parametrize(("features", "records"), [(4, 240), (70, 1500)])  # small nodes in batches; kept factorisations
def test_a_resting_node_leaves_its_records_alone(
    config: MakeConfig, monkeypatch: pytest.MonkeyPatch, features: int, records: int
) -> None:
    """Its solver is given nothing but nan in the place of its records; the released values do not notice."""
    raw = config("admm", "objective", iterations=6, data={"features": features, "records": records, "train": records - 40})
    raw = limited(raw, share_of_total(raw, 0.5), when_spent="rest")
    undisturbed = result_of(raw)
    steps = undisturbed["privacy/budget_steps"]
    assert 0 < steps.min() < steps.max()
    solve = LocalProblems.argmins

    def spoilt(self: LocalProblems, linear: Any, quadratic: Any, start: Any, active: Bools) -> Any:
        rows_of = [np.asarray(problem.signed) for problem in self]
        kept = [rows.copy() for rows in rows_of]
        for rows, touched in zip(rows_of, np.asarray(active.any(axis=0)).tolist(), strict=True):
            rows[...] = rows if touched else np.nan
        found = solve(self, linear, quadratic, start, active)
        for rows, before in zip(rows_of, kept, strict=True):
            rows[...] = before
        return found

    monkeypatch.setattr(LocalProblems, "argmins", spoilt)
    np.testing.assert_array_equal(result_of(raw)["trajectory"], undisturbed["trajectory"])


HUBS: dict[str, Raw] = {"ps-admm": {"inner_steps": 10}, "dp-admm": {}, "dp-acc-admm": {}}


def around(config: MakeConfig, method: str) -> Raw:
    raw = around_a_hub(config, method, HUBS[method], noise_std=0.4) | {"iterations": 12}
    raw["privacy"]["noise_std"] = {"first": 0.4, "ratio": 0.95}
    return raw


@pytest.fixture(scope="module")
def several(shared_config: MakeConfig, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One file with variants that all spend their budgets: both ways, small nodes in batches, nodes alike that are solved
    together, and a method around a hub.
    """
    small = shared_config("mr-admm", "objective", runs=2)
    data = {"features": 70, "records": 1240, "train": 1200, "split": "even", "concentration": None}
    large = shared_config("m-admm", "penalty", data=data)
    variants = []
    for size, raw in (("small", small), ("large", large)):
        raw["iterations"] = 12
        delta, account = (1e-5, "epsilon") if size == "small" else (0.0, "tight")
        limit = {"epsilon": share_of_total(raw, 0.45, account), "delta": delta}
        variants += [limited(raw, **limit, when_spent=how) | {"name": f"{size}-{how}"} for how in ("stop", "rest")]
    raw = around(shared_config, "dp-acc-admm")
    variants.append(limited(raw, share_of_total(raw, 0.7, "epsilon_sound")))
    for raw in variants:
        raw["record"] = raw["record"] | {"checkpoint": 1}
    path = tmp_path_factory.mktemp("budgets") / "several.toml"
    path.write_text(tomli_w.dumps({"name": "several", "variant": variants}))
    return path


@pytest.fixture(scope="module")
def undisturbed(several: Path) -> Path:
    """What a serial run wrote, of 12 iterations."""
    process = command("run", several, "-o", several.parent / "serial")
    assert process.returncode == 0, process.stderr
    assert sum("the privacy budget" in line and "lasts for" in line for line in sentences(process)) == 5
    return several.parent / "serial"


def assert_same(a: Path, b: Path) -> None:
    names = sorted(path.name for path in a.glob("*.h5"))
    assert len(names) == 5
    for name in names:
        assert list(compare(a / name, b / name)) == []


@pytest.mark.parametrize("ranks", [2, 3])
def test_same_bits_on_every_layout(several: Path, undisturbed: Path, tmp_path: Path, ranks: int) -> None:
    assert command("run", several, "-o", tmp_path, ranks=ranks).returncode == 0
    assert_same(undisturbed, tmp_path)
    for size in ("small", "large"):
        steps = load(tmp_path / f"{size}-rest.h5")["privacy/budget_steps"]
        assert 0 < steps.min() < steps.max()


def test_killed_resumed_and_extended(several: Path, undisturbed: Path, tmp_path: Path) -> None:
    """Begun with few iterations, killed, finished, extended to 12, and to 16 when the budgets are long spent."""
    few = ("--set", "iterations=4")
    process = command(0, 60, "run", several, "-o", tmp_path, *few, program=MORTAL)
    assert process.returncode == -signal.SIGKILL
    for more, ranks in ((few, None), ((), 2)):
        process = command("run", several, "-o", tmp_path, "--resume", *more, ranks=ranks)
        assert process.returncode == 0, process.stderr
    assert_same(undisturbed, tmp_path)
    process = command("run", several, "-o", tmp_path, "--resume", "--set", "iterations=16")
    assert process.returncode == 0, process.stderr
    for path in tmp_path.glob("*.h5"):
        result, before = load(path), load(undisturbed / path.name)
        budget = tomllib.loads(result.config_text)["privacy"]["budget"]
        account = "epsilon_sound" if "privacy/epsilon_sound" in result else "epsilon" if budget.get("delta") else "tight"
        assert result[f"privacy/{account}"].max() <= budget["epsilon"]
        if budget["when_spent"] == "stop":
            np.testing.assert_array_equal(result.iteration, before.iteration)
            assert result.iteration[-1] < 12
        else:
            np.testing.assert_array_equal(result["privacy/alpha"][:13], before["privacy/alpha"])
            assert result.iteration[-1] == 16
        np.testing.assert_array_equal(result.loss[:, : len(before.iteration)], before.loss)


@pytest.mark.parametrize("method", HUBS)
def test_around_a_hub(config: MakeConfig, method: str) -> None:
    raw = around(config, method)
    epsilon = share_of_total(raw, 0.7, "epsilon_sound")
    whole, result = result_of(raw), result_of(limited(raw, epsilon))
    last = int(result.iteration[-1])
    assert 0 < last < 12
    assert result["privacy/epsilon_sound"].max() <= epsilon < whole["privacy/epsilon_sound"][last + 1] * 1.001
    np.testing.assert_array_equal(result["server_trajectory"], whole["server_trajectory"][:, : last + 1])
    with pytest.raises(InputError, match=r"rest.*is for methods on a network"):
        planned(limited(raw, epsilon, when_spent="rest"))
    with pytest.raises(InputError, match="give a delta above 0"):
        planned(limited(raw, epsilon, delta=0.0))


def test_what_cannot_be_kept_is_refused(config: MakeConfig) -> None:
    private = config("admm", "objective")
    with pytest.raises(InputError, match="the first data step costs"):
        planned(limited(private, 1e-6))
    with pytest.raises(InputError, match=r"privacy.budget: has no meaning for privacy.perturbation = \"none\""):
        planned(limited(config("admm"), 1.0))
    with pytest.raises(InputError, match=r"privacy.budget"):
        planned(limited(private, -1.0))
    with pytest.raises(InputError, match=r"when_spent"):
        planned(limited(private, 1.0, when_spent="never"))


def test_a_budget_that_lasts_is_said_and_changes_nothing(config: MakeConfig) -> None:
    raw = config("mr-admm", "penalty")
    result, whole = result_of(limited(raw, 1e4)), result_of(raw)
    assert "lasts for 3 of 3 data steps" in result.attributes["/"]["notes"]
    np.testing.assert_array_equal(result["trajectory"], whole["trajectory"])
    np.testing.assert_array_equal(result["privacy/node_epsilon"], whole["privacy/node_epsilon"])


@given(st.lists(st.integers(0, 40), min_size=1, max_size=5), st.integers(0, 30), st.integers(0, 30))
def test_the_search_finds_what_fits_whatever_the_number_of_steps(limits: list[int], steps: int, more: int) -> None:
    """By brute force; and the answer for fewer steps is that for more of them, cut off."""

    def fits(nodes: Ints, k: int) -> Bools:
        return np.array(limits)[nodes] >= k

    found = affordable(len(limits), steps, fits)
    assert found.tolist() == [min(limit, steps) for limit in limits]
    later = affordable(len(limits), steps + more, fits)
    assert np.minimum(later, steps).tolist() == found.tolist()
