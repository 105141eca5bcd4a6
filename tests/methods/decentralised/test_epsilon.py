"""The (epsilon, delta) account: against Monte Carlo of the same random variable, known cases, other accountants, laws."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.random import Generator
from scipy import integrate, stats
from support import PRIVATE, MakeConfig, ledger, network_releases, result_of

from dpadmm_mpi.errors import InputError
from dpadmm_mpi.methods.decentralised import accounts as privacy
from dpadmm_mpi.privacy import composition
from dpadmm_mpi.privacy.account import calibrate
from dpadmm_mpi.privacy.gamma_noise import GammaLoss, survival
from dpadmm_mpi.privacy.releases import NetworkReleases
from dpadmm_mpi.types import Array


def releases(perturbation: str = "objective", *, K: int = 25, N: int = 1, d: int = 105, **other: Any) -> NetworkReleases:
    values = {"alpha": 1.0, "B": 8000.0, "V": 2.0, "eta": 1.0, "C": 1750.0} | other
    shape = (K, N)
    return network_releases(
        perturbation,
        iterations=K,
        data_steps=np.arange(1, K + 1),
        eta=np.full(shape, values["eta"]),
        theta=np.full(shape, values["eta"]),
        alpha=np.full(shape, values["alpha"]),
        V=np.full(N, values["V"]),
        B=np.full(N, values["B"]),
        C=values["C"],
        rho=0.22 / 5 * N,
        features=d,
    )


def plain(d: int, on_release: bool) -> GammaLoss:
    """The random loss of a fixed shift, or the largest one in a plane."""
    return GammaLoss(d, 0 if on_release else 2)


def moments(c: Array, d: int, on_release: bool, delta: float) -> Array:
    law = plain(d, on_release)
    return composition.moment_epsilon(composition.table(law, c), c, np.zeros_like(c), delta)


def sample(rng: Generator, c: float, d: int, n: int, on_release: bool) -> Array:
    """The random variable of SPEC 2, as it is written there, by plain simulation of noise vectors' radius and projection."""
    u = rng.gamma(d, 1.0, n)
    if on_release:
        normal = rng.standard_normal(n)
        b = normal / np.sqrt(normal**2 + rng.chisquare(d - 1, n)) if d > 1 else np.sign(normal)
    else:
        b = np.sqrt(rng.beta(1.0, (d - 2) / 2, n)) if d > 2 else np.ones(n)
    return np.sqrt(u**2 + 2 * u * c * b + c**2) - u


@pytest.mark.parametrize("on_release", [False, True])
@pytest.mark.parametrize(("d", "c", "K"), [(105, 0.4375, 25), (10, 0.8, 10), (3, 0.5, 6), (2, 0.3, 4)])
def test_against_monte_carlo(rng: Generator, d: int, c: float, K: int, on_release: bool) -> None:
    """1e6 samples of the sum: delta(epsilon) agrees within four standard errors, up to the known rounding of the grid."""
    if d < 3 and not on_release:
        return  # no randomness left: see test_small_dimension
    total = sum(sample(rng, c, d, 1_000_000, on_release) for _ in range(K))
    steps = np.full(K, c)
    rounding = K * c / composition.bins(steps)
    for delta in (1e-2, 1e-3):
        epsilon = composition.composed_epsilon(plain(d, on_release), steps, delta, every_step=False)[0]
        loss = np.maximum(1 - np.exp(epsilon - total), 0)
        error = 4 * loss.std() / 1000
        assert loss.mean() <= delta + error  # it is an upper bound
        looser = np.maximum(1 - np.exp(epsilon - rounding - total), 0)
        assert looser.mean() >= delta - error - 0.02 * delta  # and not a loose one


def test_one_step_against_integration() -> None:
    """P(L > l) of one step against adaptive integration over the radius."""
    for d, c in ((105, 0.4), (5, 1.3)):
        for loss in (0.05 * c, 0.3 * c, 0.8 * c):

            def integrand(u: float, loss: float = loss, c: float = c, d: int = d) -> float:
                x = np.clip((2 * u * loss + loss**2 - c**2) / (2 * u * c), 0, 1)
                return float(stats.gamma(d).pdf(u) * (1 - x**2) ** ((d - 2) / 2))

            exact, _ = integrate.quad(integrand, 0, 6 * d + 60, limit=400, epsabs=1e-12)
            found = survival(np.array([loss]), c, d, 2)[0]
            assert exact <= found * (1 + 1e-9)
            assert found <= exact * 1.01 + 1e-9


def test_figures_of_the_specification() -> None:
    """N=5, V=2, B=8000, C=1750, rho=0.22, eta=1, alpha=1, 25 data steps, d=105: 11.88, 10.94 and 1.1."""
    totals = ledger(replace(releases(N=5), rho=0.22))
    assert [
        round(totals["bound"].values[-1], 2),
        round(totals["tight"].values[-1], 2),
        round(totals["epsilon"].values[-1], 1),
    ] == [11.88, 10.94, 1.1]


def test_small_dimension() -> None:
    """d < 3: the plane of the two gradients is everything, so without the sign epsilon is the pure bound."""
    for d in (1, 2):
        plane = ledger(replace(releases(d=d), decreasing=False))
        assert plane["epsilon"].values[-1] == pytest.approx(plane["tight"].values[-1], rel=1e-3)
        assert ledger(releases(d=d))["epsilon"].values[-1] < 0.95 * plane["tight"].values[-1]


@pytest.mark.parametrize("perturbation", PRIVATE)
def test_laws(perturbation: str) -> None:
    """Never above the tighter pure bound; monotone in t, alpha, T, 1/B and 1/delta."""
    base = releases(perturbation, K=12, d=20)
    totals = ledger(base)
    assert (totals["epsilon"].node_values <= totals["tight"].node_values * (1 + 1e-12)).all()
    assert (np.diff(totals["epsilon"].values) >= 0).all()

    def end(r: NetworkReleases, delta: float = 1e-5) -> float:
        return float(privacy.epsilon(r, delta)[-1, 0])

    assert end(base) < end(replace(base, parameter=1.3 * base.parameter))
    assert end(base) < end(releases(perturbation, K=14, d=20))
    assert end(base) < end(replace(base, B=0.9 * base.B))
    assert end(base) < end(base, delta=1e-7)
    assert end(releases(perturbation, K=12, d=200)) < end(base)


def test_limits_of_alpha() -> None:
    """alpha to 0: only the determinant term is left. alpha to infinity: the loss is nearly sure, no gain over pure."""
    tiny = releases(alpha=1e-9)
    fixed = privacy.determinant(tiny).sum()
    assert privacy.epsilon(tiny, 1e-5)[-1, 0] == pytest.approx(fixed, rel=1e-3)
    huge = releases(alpha=1e4, K=3)
    assert privacy.epsilon(huge, 1e-5)[-1, 0] <= ledger(huge)["tight"].values[-1]
    assert privacy.epsilon(huge, 1e-5)[-1, 0] > 0.5 * ledger(huge)["tight"].values[-1]


@pytest.mark.parametrize("on_release", [False, True])
@pytest.mark.parametrize(("c", "d"), [(np.full(25, 0.4375), 105), (np.geomspace(0.2, 0.6, 12), 50), (np.full(4, 30.0), 3)])
def test_the_composition_is_dp_accountings(c: Array, d: int, on_release: bool) -> None:
    """After every step, and after the last one alone."""
    from dp_accounting.pld.pld_pmf import DensePLDPmf
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

    spacing = c.mean() / composition.bins(c)
    total, theirs = None, []
    for value in c.tolist():
        first, probability, _ = composition.loss_grid(plain(d, on_release), value, spacing)
        step = PrivacyLossDistribution(DensePLDPmf(spacing, first, probability, 0.0, pessimistic_estimate=True))
        total = step if total is None else total.compose(step)
        theirs.append(total.get_epsilon_for_delta(1e-5))
    assert np.allclose(composition.composed_epsilon(plain(d, on_release), c, 1e-5, every_step=True), theirs, rtol=1e-6)
    assert np.allclose(composition.composed_epsilon(plain(d, on_release), c, 1e-5, every_step=False), theirs[-1], rtol=1e-6)


@pytest.mark.parametrize(("c", "d"), [(0.4, 105), (2000.0, 105), (1e-6, 105), (0.3, 2), (5.0, 1)])
@pytest.mark.parametrize("delta", [0.3, 1e-3, 1e-8])
def test_epsilon_solves_its_equation(c: float, d: int, delta: float) -> None:
    """For one step: E[(1 - exp(epsilon - L))_+] is delta, or below it at epsilon = 0; also for losses of thousands."""
    for on_release in (False, True):
        epsilon = composition.composed_epsilon(plain(d, on_release), np.array([c]), delta, every_step=False)[0]
        first, probability, _ = composition.loss_grid(plain(d, on_release), c, c / composition.bins(np.array([c])))
        loss = c / composition.bins(np.array([c])) * (first + np.arange(len(probability)))
        expected = np.sum(probability * -np.expm1(np.minimum(epsilon - loss, 0.0)))
        assert expected <= delta * (1 + 1e-9) + 1e-13
        assert epsilon == 0.0 or expected >= delta * (1 - 1e-6) - 1e-11


def test_moments_are_an_upper_bound_and_a_few_percent_loose() -> None:
    """The cheap account is never below the composition, and agrees with dp-accounting's own conversion of moments."""
    from dp_accounting.rdp import rdp_privacy_accountant

    c = np.geomspace(0.2, 0.6, 20)
    for on_release in (False, True):
        composed = composition.composed_epsilon(plain(50, on_release), c, 1e-5, every_step=True)
        cheap = moments(c[:, None], 50, on_release, 1e-5)[:, 0]
        assert (cheap >= composed).all()
        assert cheap[-1] <= 1.15 * composed[-1]
    spent = np.cumsum([composition.log_moments(plain(50, False), float(v)) for v in c], axis=0)[-1]
    orders = 1 + composition.ORDERS
    theirs = rdp_privacy_accountant.compute_epsilon(orders, spent / composition.ORDERS, 1e-5)[0]
    ours = moments(c[:, None], 50, False, 1e-5)[-1, 0]
    assert ours == pytest.approx(theirs, rel=5e-3)


def test_moments_between_the_tabulated_values_are_rounded_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """The straight line between two knots lies above the convex logarithm of the moments."""
    c = np.geomspace(0.1, 1.0, 400)[:, None]
    fine = moments(c, 30, False, 1e-5)
    monkeypatch.setattr(composition, "TABLE", 6)
    coarse = moments(c, 30, False, 1e-5)
    assert (coarse >= fine * (1 - 1e-9)).all()
    assert coarse[-1] <= 1.1 * fine[-1]


def test_a_node_with_a_large_determinant_does_not_spoil_the_others() -> None:
    """x > 1 at one node: finite and large there, and the others' epsilon is their own."""
    r = releases(N=3, K=4, C=1.0, eta=0.001)
    broken = replace(r, B=np.array([8000.0, 1.0, 8000.0]), rho=0.01)
    found = privacy.epsilon(broken, 1e-5)[-1]
    alone = privacy.epsilon(replace(broken, B=np.full(3, 8000.0)), 1e-5)[-1]
    assert np.isfinite(found[1])
    assert found[1] > 1.0
    assert np.array_equal(found[[0, 2]], alone[[0, 2]])


def test_equal_nodes_are_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    original = composition.means_of_sums

    def counted(*arguments: Any) -> Any:
        calls.append(1)
        return original(*arguments)

    monkeypatch.setattr(composition, "means_of_sums", counted)
    epsilon = privacy.epsilon(releases(N=50, K=5), 1e-5)
    assert len(calls) == 1
    assert np.ptp(epsilon[-1]) == 0


def test_many_nodes_with_schedules_of_their_own() -> None:
    """1,000 iterations and 100 different nodes: the moments step in, and stay a bound below the pure one."""
    K, N = 1000, 100
    r = releases("penalty", K=K, N=N, d=30)
    r = replace(r, parameter=np.geomspace(0.1, 0.2, K)[:, None] * np.linspace(1, 3, N), rho=0.22)
    totals = ledger(r)
    assert (totals["epsilon"].node_values[1:] <= totals["tight"].node_values[1:]).all()
    assert (np.diff(totals["epsilon"].node_values, axis=0) >= -1e-12).all()
    steps = privacy.loss_steps(r)
    assert steps is not None
    exact = float(steps.curve(0).epsilon(np.array([1e-5]))[0])  # by convolution
    assert exact * (1 - 1e-3) <= totals["epsilon"].node_values[-1, 0] <= 1.1 * exact


@pytest.mark.parametrize("account", ["bound", "tight", "epsilon"])
@pytest.mark.parametrize("perturbation", ["dual", "objective", "primal"])
def test_calibration_to_every_account(perturbation: str, account: str) -> None:
    r = releases(perturbation, K=10, d=20)
    calibrated = calibrate(r, 3.0, account, 1e-5)
    total = ledger(calibrated)[account].values[-1]
    assert 3.0 * (1 - 1e-3) <= total <= 3.0 * (1 + 1e-9)


def test_a_run_records_the_accounts_side_by_side(config: MakeConfig) -> None:
    raw = config("r-admm", "objective", iterations=5, features=6)
    raw["privacy"] |= {"target": 1.5, "target_account": "epsilon", "delta": 1e-4}
    del raw["privacy"]["alpha"]
    result = result_of(raw)
    epsilon = result["privacy/epsilon"]
    assert 1.5 * 0.999 <= epsilon[-1] <= 1.5
    assert np.array_equal(epsilon, result["privacy/node_epsilon"].max(axis=1))
    assert (epsilon[1:] < result.tight[1:]).all()
    assert epsilon[2] == epsilon[1] > epsilon[0] == 0  # recycled steps add nothing
    assert result.attributes["privacy/epsilon"]["delta"] == 1e-4
    assert "at most the mean of two" in result.attributes["privacy/epsilon"]["theorem"]
    assert np.isinf(result_of(config("r-admm"))["privacy/epsilon"]).all()


def test_target_account_needs_a_target(config: MakeConfig) -> None:
    with pytest.raises(InputError, match="target_account: has no meaning without"):
        result_of(config("r-admm", "objective", privacy={"target_account": "tight"}))


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("c", [1e3, 1e6, 1e8, 1e30])
@pytest.mark.parametrize("on_release", [False, True])
def test_next_to_no_noise_costs_nearly_the_largest_loss(c: float, on_release: bool) -> None:
    """L is at least c - 2 u, and u, of mean 5, is below 100 but for a probability of 1e-30: epsilon is about K c, never 0."""
    found = composition.composed_epsilon(plain(5, on_release), np.full(3, c), 1e-5, every_step=False)[0]
    assert 3 * (c - 200) <= found <= 3 * c * (1 + 1e-9)
