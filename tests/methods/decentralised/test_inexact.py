"""Solves that end at a tolerance, hidden by Gaussian noise on the release: what they cost, and what is done."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from dp_accounting import pld
from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution
from support import MakeConfig, Raw, WriteToml, by_name, command, network_plan, network_releases, planned, result_of, rows_of

from dpadmm_mpi import load
from dpadmm_mpi.errors import InputError, RunError
from dpadmm_mpi.methods.decentralised.accounts import epsilon, loss_steps
from dpadmm_mpi.privacy.curves import LossSteps
from dpadmm_mpi.privacy.releases import NetworkReleases
from dpadmm_mpi.rng import Purpose, generator
from dpadmm_mpi.storage.compare import compare

DELTA = 1e-5
STEPS = 6
FINE = 1e-4  # of dp-accounting's grid


def releases(perturbation: str, alpha: float, features: int, tolerance: float, release_std: float) -> NetworkReleases:
    """Of one node with two neighbours; MU is its strong convexity rho/N + 2 eta V."""
    ones = np.ones((STEPS, 1))
    made = network_releases(
        perturbation, alpha=alpha * ones, iterations=STEPS, data_steps=np.arange(1, STEPS + 1), eta=0.7 * ones,
        theta=0.7 * ones, V=np.array([2.0]), B=np.array([50.0]), C=10.0, rho=0.1, features=features,
    )  # fmt: skip
    return replace(made, tolerance=tolerance, release_std=release_std)


MU = 0.1 + 2.0 * 0.7 * 2.0


def gaussian(tolerance: float, release_std: float) -> PrivacyLossDistribution:
    """What the solves of all data steps cost, by dp-accounting: sensitivity 2 tau/mu."""
    one: PrivacyLossDistribution = pld.privacy_loss_distribution.from_gaussian_mechanism(
        release_std, sensitivity=2.0 * tolerance / MU, value_discretization_interval=FINE
    )
    return one.self_compose(STEPS)


def steps_of(r: NetworkReleases) -> LossSteps:
    found = loss_steps(r)
    assert found is not None
    return found


@pytest.mark.parametrize("ratio", [0.02, 0.3, 2.0])
def test_solves_alone_cost_what_dp_accounting_says(ratio: float) -> None:
    """The noise in the objective is so large that its loss vanishes: the rest is a Gaussian mechanism."""
    r = releases("primal", 1e-7, 5, tolerance=0.5 * ratio * MU, release_std=1.0)
    found = float(epsilon(r, DELTA)[-1, 0])
    exact = gaussian(r.tolerance, 1.0).get_epsilon_for_delta(DELTA)
    assert exact * (1.0 - 1e-3) <= found <= exact * 1.01 + 1e-4


@pytest.mark.parametrize("ratio", [0.01, 0.2, 1.0])
@pytest.mark.parametrize("alpha", [1.0, 6.0])
def test_both_together_are_never_below_the_exact_composition(alpha: float, ratio: float) -> None:
    """One feature, noise on the release: Laplace and Gaussian mechanisms, which dp-accounting convolves."""
    r = releases("primal", alpha, 1, tolerance=0.5 * ratio * MU, release_std=1.0)
    laplace = pld.privacy_loss_distribution.from_laplace_mechanism(
        1.0 / alpha, sensitivity=2.0 * 10.0 / (50.0 * MU), value_discretization_interval=FINE
    ).self_compose(STEPS)
    exact = laplace.compose(gaussian(r.tolerance, 1.0)).get_epsilon_for_delta(DELTA)
    found = float(epsilon(r, DELTA)[-1, 0])
    assert exact * (1.0 - 2e-3) <= found <= exact * 1.25
    curve = steps_of(r).curve(0)
    assert exact * (1.0 - 2e-3) <= float(curve.epsilon(np.array([DELTA]))[0]) <= found * 1.01
    for at in (0.5 * exact, exact):
        delta = float(curve.delta(np.array([at]))[0])
        assert delta >= 0.99 * laplace.compose(gaussian(r.tolerance, 1.0)).get_delta_for_epsilon(at)


@pytest.mark.parametrize("perturbation", ["objective", "penalty", "primal"])
def test_with_endless_noise_on_the_release_the_solves_cost_nothing(perturbation: str) -> None:
    exact = releases(perturbation, 2.0, 8, tolerance=0.0, release_std=0.0)
    hidden = replace(exact, tolerance=1e-3, release_std=1e12)
    np.testing.assert_allclose(epsilon(hidden, DELTA), epsilon(exact, DELTA), rtol=1e-5)
    orders = np.array([1.5, 2.0, 10.0])
    np.testing.assert_allclose(steps_of(hidden).curve(0).renyi(orders), steps_of(exact).curve(0).renyi(orders), rtol=1e-9)
    looser = [epsilon(replace(exact, tolerance=tau, release_std=0.1), DELTA) for tau in (1e-6, 1e-4, 1e-2)]
    assert (epsilon(exact, DELTA)[1:] <= looser[0][1:]).all()
    assert (looser[0][1:] <= looser[1][1:]).all()
    assert (looser[1][1:] < looser[2][1:]).all()


@pytest.mark.parametrize(("features", "records"), [(4, 240), (70, 1240)])  # small nodes in batches; kept factorisations
@pytest.mark.parametrize("perturbation", ["objective", "primal"])
def test_what_is_released_is_near_the_argmin_and_hidden_by_its_own_noise(
    config: MakeConfig, perturbation: str, features: int, records: int
) -> None:
    """In the first data step the exact run starts from the same state: the difference is the noise and at most tau/mu."""
    data = {"features": features, "records": records, "train": records - 40}
    raw, tau, s = config("admm", perturbation, data=data), 0.02, 0.01
    loose = raw | {
        "algorithm": raw["algorithm"] | {"tolerance": tau}, "privacy": raw["privacy"] | {"release_std": s},
    }  # fmt: skip
    exact, result = result_of(raw), result_of(loose)
    plan, _ = network_plan(loose)
    noise = np.stack([generator(11, Purpose.RELEASE, 0, i, 1).standard_normal(features) for i in range(6)])
    gap = np.linalg.norm(result["trajectory"][0, 1] - s * noise - exact["trajectory"][0, 1], axis=1)
    assert (gap <= tau / plan.releases.curvature[0]).all()
    assert gap.max() > 1e-9  # it is not exact
    residual = result["solve_residual"][0, 1:]
    assert (residual <= tau).all()
    assert residual.max() > 1e-6
    assert result.attributes["solve_residual"]["tolerance"] == tau
    assert "kkt_residual" not in result
    assert np.isinf(result["privacy/tight"][-1])
    assert exact["privacy/epsilon"][-1] < result["privacy/epsilon"][-1] < np.inf
    assert result.attributes["privacy/epsilon"]["proven"]


def test_the_recorded_residual_is_the_norm_of_the_gradient(config: MakeConfig) -> None:
    """From the released value less its noise, by (KKT) written out again."""
    raw = config("admm", "objective", iterations=1, algorithm={"tolerance": 0.5, "init": "zero"}, privacy={"release_std": 0.01})
    result, (plan, dataset) = result_of(raw), network_plan(raw)
    for i in range(6):
        f = result["trajectory"][0, 1, i] - 0.01 * generator(11, Purpose.RELEASE, 0, i, 1).standard_normal(4)
        rng = generator(11, Purpose.NOISE, 0, i, 1)
        direction = rng.standard_normal(4)
        e = rng.standard_gamma(4) * direction / np.linalg.norm(direction) / 5.0
        X, y = rows_of(dataset, i), dataset.loader.shard(dataset.address(i)).y
        data = 3.0 / len(y) * (X.T @ (-y / (1.0 + np.exp(y * (X @ f)))))
        gradient = data + e + (0.5 / 6 + 2.0 * 0.7 * plan.topology.degree[i]) * f
        np.testing.assert_allclose(result["solve_residual"][0, 1, i], np.linalg.norm(gradient), rtol=1e-6)


def test_same_bits_on_every_layout(config: MakeConfig, write_toml: WriteToml, tmp_path: Path) -> None:
    path = write_toml(config("mr-admm", "objective", runs=2, algorithm={"tolerance": 1e-3}, privacy={"release_std": 0.01}))
    assert command("run", path, "-o", tmp_path / "serial.h5").returncode == 0
    assert command("run", path, "-o", tmp_path / "ranks.h5", ranks=3).returncode == 0
    assert list(compare(tmp_path / "serial.h5", tmp_path / "ranks.h5")) == []
    process = command("audit", tmp_path / "serial.h5")
    assert process.returncode == 2
    assert "with privacy.release_std the noise cannot be recovered" in process.stderr
    assert load(tmp_path / "serial.h5").complete


def test_what_does_not_go_together(config: MakeConfig) -> None:
    lone: tuple[Raw, ...] = ({"algorithm": {"tolerance": 1e-3}}, {"privacy": {"release_std": 0.1}})
    for sections in lone:
        with pytest.raises(InputError, match=r"algorithm.tolerance and privacy.release_std: .* give both, or none"):
            planned(config("admm", "objective", **sections))
    both: Raw = {"algorithm": {"tolerance": 1e-30}, "privacy": {"release_std": 0.1}}
    with pytest.raises(RunError, match=r"stopped at a gradient of norm .*, above algorithm.tolerance = 1e-30"):
        result_of(config("admm", "objective", **both))
    target: Raw = both | {"privacy": {"release_std": 0.1, "alpha": None, "target": 5.0, "target_account": "tight"}}
    with pytest.raises(InputError, match='there is no pure bound; choose "epsilon"'):
        planned(config("admm", "objective", **target))
    loose = result_of(config("admm", algorithm={"tolerance": 0.1}))  # without noise there is nothing to account for
    assert 1e-6 < np.nanmax(loose["solve_residual"]) <= 0.1


def test_a_target_is_met_with_the_solves_counted(config: MakeConfig) -> None:
    privacy = {"release_std": 0.01, "alpha": None, "target": 1.0, "target_account": "epsilon"}
    plan, _ = planned(config("admm", "objective", algorithm={"tolerance": 1e-4}, privacy=privacy))
    assert 0.99 < by_name(plan.accounts)["epsilon"].values[-1] <= 1.0
    with pytest.raises(InputError, match="the inexact solves alone cost as much"):
        planned(config("admm", "objective", algorithm={"tolerance": 0.1}, privacy=privacy))
