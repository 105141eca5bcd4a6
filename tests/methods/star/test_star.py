"""The star family: against a plain implementation, at the centralised optimum, measurements, refusals, the compiled loop."""

from typing import Any

import numpy as np
import pytest
from oracles.star import LOGISTIC, Inner, Provider, huber, optimum, trajectory
from support import Raw, dense, records_for_testing, result_of, shard_of, star_plan

from dpadmm_mpi.errors import InputError, RunError
from dpadmm_mpi.methods.base import make_plan
from dpadmm_mpi.methods.star import accounts as theory
from dpadmm_mpi.methods.star.plan import StarPlan
from dpadmm_mpi.rng import Purpose, generator
from dpadmm_mpi.types import Array, Ints

STOCHASTIC = [("s-admm", "uniform"), ("s-admm", "extrapolated"), ("ps-admm", "uniform"), ("ps-admm", "extrapolated")]


def configuration(method: str, averaging: str | None = None, **sections: Any) -> Raw:
    """Five providers of unequal sizes, quick."""
    raw: Raw = {
        "name": method,
        "seed": 12,
        "iterations": 4,
        "data": {"records": 150, "features": 4, "train": 120, "split": "uneven", "concentration": 5.0},
        "network": {"nodes": 5},
        "problem": {"reg": 0.05},
        "algorithm": {"method": method, "rho": 0.8, "init": "random"},
        "privacy": {},
        "record": {"trajectory": True},
    }
    if averaging:
        raw["algorithm"] |= {"averaging": averaging, "inner_steps": 15}
    if method == "ps-admm":
        raw["privacy"] = {"noise_std": 0.7}
    for name, table in sections.items():
        raw[name] = {**raw[name], **table} if isinstance(table, dict) else table
    return raw


def plain_providers(raw: Raw) -> tuple[StarPlan, list[Provider]]:
    plan, dataset = star_plan(raw)
    loss = huber(raw["problem"]["width"]) if raw["problem"].get("loss") == "huber" else LOGISTIC
    shards = [shard_of(dataset, i) for i in range(plan.nodes)]
    return plan, [Provider(dense(shard.X), shard.y, loss) for shard in shards]


@pytest.mark.parametrize("number", range(20))
def test_trajectory_equals_the_plain_implementation(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """20 random small problems, every method, both averages and losses, noise included: 1e-10 on x_i and z.

    The exact argmin is solved further than usual, so that both sides are known well beyond 1e-10.
    """
    monkeypatch.setattr("dpadmm_mpi.problems.batched.TOLERANCE", 1e-13)
    rng = np.random.default_rng(number)
    method, averaging = [("star-admm", None), *STOCHASTIC][number % 5]
    d, rho, reg, std, S = int(rng.integers(1, 7)), rng.uniform(0.3, 2), rng.uniform(0, 0.2), rng.uniform(0.2, 2), 12
    problem = {"reg": float(reg)} | ({"loss": "huber", "width": 0.4} if number % 2 else {})
    v_L = (1 / (2 * 0.4) if number % 2 else 0.25) + rho
    eta = rng.uniform(0.1, 0.45) / v_L
    algorithm = {"rho": float(rho)} | ({"eta": float(eta), "inner_steps": S} if averaging else {})
    raw = configuration(
        method,
        averaging,
        seed=number,
        runs=2,
        data={"features": d},
        problem=problem,
        algorithm=algorithm,
        privacy={"noise_std": float(std)} if method == "ps-admm" else {},
    )
    result = result_of(raw)
    _, providers = plain_providers(raw)
    for run in range(2):

        def samples(k: int, i: int, run: int = run) -> Ints:
            return generator(number, Purpose.SAMPLES, run, i, k).integers(len(providers[i].y), size=S)

        def noise(k: int, i: int, run: int = run) -> Array:
            draws = generator(number, Purpose.INNER_NOISE, run, i, k).standard_normal((S, d))
            return std * draws if method == "ps-admm" else np.zeros((S, d))

        inner = Inner(eta, v_L, averaging, samples, noise) if averaging else None
        start, server = result["trajectory"][run, 0], result["server_trajectory"][run, 0]
        x, z = trajectory(providers, start, server, 4, rho, reg, inner)
        assert np.max(np.abs(result["trajectory"][run] - x)) < 1e-10
        assert np.max(np.abs(result["server_trajectory"][run] - z)) < 1e-10
    assert np.array_equal(result["final/primal"], result["trajectory"][:, -1])
    assert np.array_equal(result["final/server"], result["server_trajectory"][:, -1])
    assert len(np.unique(result["trajectory"][:, 0])) == 2 * 5 * d  # random starting points, each its own


@pytest.mark.parametrize(("method", "averaging"), [("star-admm", None), ("s-admm", "uniform"), ("s-admm", "extrapolated")])
@pytest.mark.parametrize("init", ["zero", "random"])
def test_without_noise_every_method_ends_at_the_centralised_optimum(method: str, averaging: str | None, init: str) -> None:
    """Within 1e-6 of scipy's optimum; the recorded optimum, gap and distance agree with it."""
    algorithm = {"init": init, "rho": 0.3} | ({"inner_steps": 200} if averaging else {})
    raw = configuration(
        method,
        averaging,
        iterations=300,
        algorithm=algorithm,
        record={"every": 300, "trajectory": False, "optimum": True},
    )
    result = result_of(raw)
    _, providers = plain_providers(raw)
    best = optimum(providers, 0.05, 4)
    assert np.max(np.abs(result["final/primal"][0] - best)) < 1e-6
    assert np.max(np.abs(result["final/server"][0] - best)) < 1e-6
    assert np.max(np.abs(result["optimum/primal"] - best)) < 1e-9
    assert abs(result["objective_gap"][0, -1]) < 1e-10 < result["objective_gap"][0, 0]
    assert result["distance_to_optimum"][0, -1] < 1e-6
    # At the optimum the duals are minus the providers' gradients, and add up to the regulariser's.
    gradients = np.array([provider.gradient(best) for provider in providers])
    assert np.max(np.abs(result["final/dual"][0] + gradients)) < 1e-5


@pytest.mark.parametrize("averaging", ["uniform", "extrapolated"])
def test_without_noise_ps_admm_is_s_admm(averaging: str) -> None:
    """To the bit; and both record an infinite epsilon from the start."""
    plain = result_of(configuration("s-admm", averaging))
    private = result_of(configuration("ps-admm", averaging) | {"privacy": {"perturbation": "none"}})
    for name in ("trajectory", "server_trajectory", "final/dual", "loss"):
        assert np.array_equal(plain[name], private[name])
    for result in (plain, private):
        for account in ("epsilon_paper", "epsilon_sound"):
            assert np.isposinf(result[f"privacy/{account}"]).all()
            assert np.isposinf(result[f"privacy/node_{account}"]).all()
        assert not result["privacy/noise_std"][1:].any()


def test_measurements_are_what_the_spec_says() -> None:
    raw = configuration("ps-admm", "uniform", record={"optimum": True})
    result = result_of(raw)
    plan, providers = plain_providers(raw)
    test = records_for_testing(make_plan(plan.config)[1])
    best = optimum(providers, 0.05, 4)
    best_value = sum(p.value(best) for p in providers) + 0.05 * best @ best
    for t in range(5):
        x, z = result["trajectory"][0, t], result["server_trajectory"][0, t]
        losses = [p.value(x[i]) for i, p in enumerate(providers)]
        value = sum(p.value(z) for p in providers) + 0.05 * z @ z
        assert np.allclose(result["node_loss"][0, t], losses, rtol=1e-12)
        assert result["loss"][0, t] == pytest.approx(np.mean(losses), rel=1e-12)
        assert result["objective"][0, t] == pytest.approx(value, rel=1e-12)
        assert result["objective_gap"][0, t] == pytest.approx(value - best_value, rel=1e-9)
        assert result["consensus_error"][0, t] == pytest.approx(np.mean([np.linalg.norm(xi - z) for xi in x]), rel=1e-12)
        wrong = np.mean([(1 if row @ z >= 0 else -1) != y for row, y in zip(dense(test.X), test.y, strict=True)])
        assert result["test_error"][0, t] == wrong
    assert np.isnan(result["kkt_residual"]).all()
    assert "mean loss counts the same" in result.attributes["/"]["notes"]  # the providers' sizes differ
    exact = result_of(configuration("star-admm"))
    assert (exact["kkt_residual"][0, 1:] <= 1e-10).all()


def test_accounts_and_schedules_are_recorded() -> None:
    """Paper's and sound epsilon at the calibrated noise: the worst provider meets the target by the account asked for."""
    for account, name in (("sound", "epsilon_sound"), ("paper", "epsilon_paper")):
        privacy = {"target": 4.0, "target_account": account, "delta": 1e-3}
        raw = configuration("ps-admm", "uniform") | {"privacy": privacy, "data": {"records": 150, "features": 4}}
        result = result_of(raw)
        plan, _ = plain_providers(raw)
        assert result[f"privacy/{name}"][-1] == pytest.approx(4.0, rel=1e-3)
        assert result[f"privacy/{name}"][0] == 0.0
        assert result.attributes[f"privacy/{name}"]["delta"] == 1e-3
        assert np.array_equal(result["privacy/node_epsilon_sound"], theory.sound_epsilon(plan.releases, 1e-3))
        assert (result["privacy/noise_std"][1:] == plan.releases.noise_std).all()
        assert (result["algorithm/eta"][1:] == 1 / (4 * 1.05)).all()
        assert (result["algorithm/rho"][1:] == 0.8).all()
        assert not result.attributes["privacy/epsilon_paper"]["proven"]
        assert result.attributes["privacy/epsilon_sound"]["proven"]
        assert "outside of its own theorem's range" in result.attributes["/"]["notes"]


@pytest.mark.parametrize(
    ("averaging", "eta", "sentence"),
    [
        ("uniform", 2.0, r"algorithm.eta: found 2, .* below 2/v_L = 1.905"),
        ("extrapolated", 0.48, r"algorithm.eta: found 0.48, .* below 1/\(2 v_L\) = 0.4762"),
    ],
)
def test_too_large_a_step_is_refused(averaging: str, eta: float, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        result_of(configuration("s-admm", averaging, algorithm={"eta": eta}))
    result_of(configuration("s-admm", averaging, algorithm={"eta": 0.99 * eta if averaging == "extrapolated" else 0.5}))


@pytest.mark.filterwarnings("error")
def test_divergence_of_a_step_just_below_the_limit_is_one_sentence() -> None:
    """1 - 2 eta v_L is nearly 0, and the extrapolation nearly infinite: numbers whose squares overflow."""
    eta = 0.5 / (0.25 + 0.8) * (1 - 1e-9)
    with pytest.raises(RunError, match=r"node \d, iteration \d+: the inner steps diverged"):
        result_of(configuration("s-admm", "extrapolated", algorithm={"eta": eta}) | {"iterations": 30})


def test_providers_of_nearly_one_size_need_no_note() -> None:
    for sizes, noted in (([40, 41], False), ([40, 43], True)):
        raw = configuration("star-admm", "uniform") | {"data": {"records": 100, "sizes": sizes}, "network": {"nodes": 2}}
        raw["algorithm"] = {"method": "star-admm"}
        plan, _ = plain_providers(raw)
        assert any("small provider" in note for note in plan.notes) == noted


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("method", ["ps-admm", "dp-admm"])
@pytest.mark.parametrize("delta", [1e-30, 0.999])
@pytest.mark.parametrize("extreme", [1e-30, 1e30])
def test_the_ends_of_the_ranges(method: str, delta: float, extreme: float) -> None:
    """The smallest and the largest that a configuration may ask for: numbers, no warning, and a target that is met."""
    base = {"iterations": 2, "data": {"records": 50, "features": 3}, "algorithm": {"method": method}}
    for key in ("noise_std", "target"):
        result = result_of(base | {"privacy": {key: extreme, "delta": delta}})
        assert np.isfinite(result["loss"]).all()
        for account in ("epsilon_paper", "epsilon_sound"):
            assert np.isfinite(result[f"privacy/{account}"]).all()
        if key == "target":
            assert result["privacy/epsilon_sound"][-1] <= extreme


def test_divergence_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dpadmm_mpi.methods.star.algorithm.inner_loop", lambda inner, problem, start, *rest: start * np.inf)
    with pytest.raises(RunError, match="run 1, node 0, iteration 1: the inner steps diverged"):
        result_of(configuration("s-admm", "uniform"))
