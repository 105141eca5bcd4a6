"""PS-ADMM's accounts against dp-accounting, numerical integration and closed forms; calibration; conditions of [S]."""

import math
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal, localcontext
from itertools import pairwise
from typing import Any, TypeAlias

import dp_accounting
import numpy as np
import pytest
from dp_accounting.rdp import rdp_privacy_accountant as rdp
from scipy.integrate import quad
from support import ledger

from dpadmm_mpi.methods.star import accounts as star
from dpadmm_mpi.methods.star import theory
from dpadmm_mpi.privacy import gaussian_noise
from dpadmm_mpi.privacy.account import calibrate
from dpadmm_mpi.privacy.releases import StarReleases

DELTA = 1e-3

Density: TypeAlias = Callable[[float], float]


def releases(M: Any = 800.0, K: int = 6, S: int = 20, noise_std: float = 3.0, nodes: int = 2, **fixed: Any) -> StarReleases:
    sizes = np.full(nodes, float(M)) if isinstance(M, int | float) else np.asarray(M, dtype=float)
    values: dict[str, Any] = {"iterations": K, "inner_steps": S, "M": sizes, "noise_std": noise_std, "features": 7}
    return StarReleases(**(values | fixed))


def by_events(r: StarReleases, M: int, share: float, k: int, delta: float) -> float:
    """k outer iterations in dp-accounting's own words."""
    s1, s2 = r.noise_std * math.sqrt(1 - share), r.noise_std * math.sqrt(share)
    difference = dp_accounting.SampledWithoutReplacementDpEvent(
        source_dataset_size=int(M), sample_size=1, event=dp_accounting.GaussianDpEvent(s1 / 4)
    )
    full = dp_accounting.GaussianDpEvent(s2 / (2 / M))
    accountant = rdp.RdpAccountant(neighboring_relation=dp_accounting.NeighboringRelation.REPLACE_ONE)
    accountant.compose(dp_accounting.SelfComposedDpEvent(dp_accounting.ComposedDpEvent([difference, full]), k * r.inner_steps))
    return float(accountant.get_epsilon(delta))


def divergence(P: Density, Q: Density, alpha: float, centre: float) -> float:
    """Renyi divergence of two densities on the line, by integration, piece by piece."""
    edges = np.linspace(-60, 60 + centre, 41)
    pieces = [quad(lambda x: Q(x) * (P(x) / Q(x)) ** alpha if P(x) > 0 else 0.0, a, b)[0] for a, b in pairwise(edges)]
    return math.log(sum(pieces)) / (alpha - 1)


def normal(x: float, mean: float, std: float) -> float:
    return math.exp(-0.5 * ((x - mean) / std) ** 2) / (std * math.sqrt(2 * math.pi))


def test_the_orders_are_dp_accountings() -> None:
    assert np.array_equal(gaussian_noise.ORDERS, rdp.DEFAULT_RDP_ORDERS)


@pytest.mark.parametrize("rate", [1.0, 1 / 40, 1 / 300, 1 / 8000])
@pytest.mark.parametrize("z", [0.1, 0.6, 0.97, 1.03, 1.45, 2.4, 6.0])
def test_the_sampled_curve_is_dp_accountings(rate: float, z: float) -> None:
    """Also on both sides of z = 1, where the even moments begin to count."""
    theirs = rdp._compute_rdp_sample_wor_gaussian(rate, z, rdp.DEFAULT_RDP_ORDERS)
    assert gaussian_noise.sampled_gaussian(rate, z) == pytest.approx(theirs, rel=1e-12)


@pytest.mark.parametrize(("rate", "z"), [("0.5", 30), ("0.125", 6), ("0.02", 100), ("0.01", 4)])
def test_the_sampled_curve_keeps_its_digits_where_the_noise_is_large(rate: str, z: int) -> None:
    """Theorem 27 of Wang et al. as printed, from differences, with 400 digits: floating point would lose them all."""
    alpha = 128
    with localcontext() as context:
        context.prec = 400
        q, power = Decimal(rate), 1 / Decimal(z) ** 2
        growth = [(power * j * (j - 1) / 2).exp() for j in range(alpha + 1)]

        def moment(n: int) -> Decimal:
            return Decimal(sum((-1) ** (n - j) * math.comb(n, j) * growth[j] for j in range(n + 1)))

        even = {n: moment(n) for n in range(2, alpha + 1, 2)}
        total = 1 + math.comb(alpha, 2) * q**2 * min(4 * (power.exp() - 1), 2 * power.exp())
        for i in range(3, alpha + 1):
            low, high = 2 * (i // 2), 2 * ((i + 1) // 2)
            smaller = min(4 * (even[low] * even[high]).sqrt(), 2 * growth[i])
            total += math.comb(alpha, i) * q**i * smaller
        expected = float(total.ln() / (alpha - 1))
    place = list(gaussian_noise.ORDERS).index(alpha)
    assert gaussian_noise.sampled_gaussian(float(rate), z)[place] == pytest.approx(expected, rel=1e-11)


@pytest.mark.parametrize("delta", [0.3, 1e-3, 1e-9])
@pytest.mark.parametrize("slope", [1e-9, 1e-5, 1e-2, 3.0])
def test_the_conversion_is_dp_accountings(delta: float, slope: float) -> None:
    curve = slope * gaussian_noise.ORDERS**1.3
    steps = np.array([0.0, 1.0, 40.0])
    theirs = [rdp.compute_epsilon(rdp.DEFAULT_RDP_ORDERS, k * curve, delta)[0] for k in steps]
    assert gaussian_noise.epsilon(curve, steps, delta) == pytest.approx(theirs, rel=1e-12, abs=1e-15)


@pytest.mark.parametrize(("M", "noise_std"), [(4, 5.0), (10, 3.0), (50, 8.0)])
@pytest.mark.parametrize("share", [0.05, 0.2, 0.6])
def test_the_curve_of_an_inner_step_exceeds_the_true_divergence(M: int, noise_std: float, share: float) -> None:
    """One feature, one step as it is: the replaced record moves its own difference from -2G to 2G and u by 2G/M."""
    r = releases(M, noise_std=noise_std)
    curve = star.split_curve(r, M, share)
    for others in (0.0, -2.0, 2.0):

        def before(x: float, others: float = others) -> float:
            return (1 - 1 / M) * normal(x, others, noise_std) + normal(x, -2.0, noise_std) / M

        def after(x: float, others: float = others) -> float:
            return (1 - 1 / M) * normal(x, others + 2 / M, noise_std) + normal(x, 2.0 + 2 / M, noise_std) / M

        for alpha in (1.5, 2.0, 4.0, 9.0):
            bound = curve[np.argmin(np.abs(gaussian_noise.ORDERS - alpha))]
            assert 0 < divergence(after, before, alpha, 4 * alpha) <= bound
            assert 0 < divergence(before, after, alpha, 4 * alpha) <= bound


@pytest.mark.parametrize("share", [0.001, 0.1, 0.5])
def test_a_split_costs_what_dp_accounting_says(share: float) -> None:
    r = releases(M=800, K=6, noise_std=2.5)
    curve = star.split_curve(r, 800.0, share)
    for k in (1, 6):
        ours = gaussian_noise.epsilon(curve, np.array([20.0 * k]), DELTA)[0]
        assert ours == pytest.approx(by_events(r, 800, share, k, DELTA), rel=1e-9)


@pytest.mark.parametrize("noise_std", [1.0, 2.5, 40.0])
def test_the_split_is_the_best(noise_std: float) -> None:
    """Against a fine grid of splits, after the last iteration to 1e-4 and before it to 2 %."""
    r = releases(M=300, K=4, noise_std=noise_std, nodes=1)
    steps = np.array([20.0, 40.0, 60.0, 80.0])
    grid = [gaussian_noise.epsilon(star.split_curve(r, 300.0, w), steps, DELTA) for w in np.geomspace(1e-5, 0.8, 250)]
    found = star.sound_epsilon(r, DELTA)[1:, 0]
    assert found[-1] <= np.min(grid, axis=0)[-1] * (1 + 1e-4)
    assert np.all(found <= np.min(grid, axis=0) * 1.02)


def test_the_papers_account_is_theorem_2() -> None:
    r = releases(M=[500, 900, 700], K=5, S=20, noise_std=0.3, G=2.0)
    found = ledger(r, DELTA)["epsilon_paper"].node_values
    for k in range(6):
        for i, M in enumerate((500, 900, 700)):
            assert found[k, i] == pytest.approx(math.sqrt(4.0 * k * 20 * math.log(1000) / (M**2 * 0.3**2)), rel=1e-12)
    calibrated = calibrate(r, 0.7, "paper", DELTA)
    assert calibrated.noise_std == pytest.approx(math.sqrt(4.0 * 5 * 20 * math.log(1000) / (500**2 * 0.7**2)), rel=1e-12)
    assert ledger(calibrated, DELTA)["epsilon_paper"].values[-1] == pytest.approx(0.7, rel=1e-12)
    assert star.paper_margin(r, DELTA) == pytest.approx([100 / M**2 - found[5, i] for i, M in enumerate((500, 900, 700))])


def test_G_only_sets_the_unit_of_the_noise() -> None:
    one, three = releases(noise_std=2.0, G=1.0), releases(noise_std=6.0, G=3.0)
    assert star.sound_epsilon(three, DELTA) == pytest.approx(star.sound_epsilon(one, DELTA), rel=1e-12)
    assert star.paper_epsilon(three, DELTA) == pytest.approx(star.paper_epsilon(one, DELTA), rel=1e-12)


def test_without_noise_nothing_is_private() -> None:
    totals = ledger(releases(noise_std=0.0), DELTA)
    assert np.isinf(totals["epsilon_paper"].node_values).all()
    assert np.isinf(totals["epsilon_sound"].node_values).all()
    assert totals["epsilon_sound"].node_values.shape == (7, 2)


def test_epsilon_grows_with_iterations_and_falls_with_noise_and_records() -> None:
    last = None
    for noise_std in (1.0, 2.0, 4.0, 8.0, 30.0):
        found = star.sound_epsilon(releases(M=[200, 400, 800], noise_std=noise_std), DELTA)
        assert found[0] == pytest.approx(0.0)
        assert np.all(np.diff(found, axis=0) > 0)
        assert np.all(np.diff(found[1:], axis=1) < 0)
        assert last is None or np.all(found[1:] < last[1:])
        last = found


def test_many_sizes_are_rounded_down() -> None:
    """Twenty sizes, out of order: never below the account of the size itself, and equal for the smallest."""
    sizes = 300.0 + 7.0 * np.random.default_rng(1).permutation(20)
    r = releases(M=sizes, K=2)
    found = star.sound_epsilon(r, DELTA)
    assert len(np.unique(found[-1])) == star.GROUPS
    for i, M in enumerate(sizes):
        alone = star.sound_epsilon(releases(M=M, K=2, nodes=1), DELTA)[:, 0]
        assert np.all(found[:, i] >= alone)
        if sizes.min() == M:
            assert np.array_equal(found[:, i], alone)
    totals = ledger(r, DELTA)
    assert np.array_equal(totals["epsilon_sound"].values, found[:, sizes.argmin()])


@pytest.mark.parametrize("target", [0.05, 1.0, 20.0])
@pytest.mark.parametrize(
    ("M", "K", "S", "delta"), [(100, 10, 50, 1e-5), (8000, 50, 100, 1e-3), (3, 2, 2, 0.1), (100, 10, 50, 0.3)]
)
def test_sound_noise_meets_the_target_and_is_never_below_the_papers(
    target: float, M: int, K: int, S: int, delta: float
) -> None:
    r = releases(M=[2 * M, M], K=K, S=S)
    found = calibrate(r, target, "sound", delta)
    paper = calibrate(r, target, "paper", delta)
    total = ledger(found, delta)["epsilon_sound"].values[-1]
    assert found.noise_std >= paper.noise_std
    assert total <= target
    assert total >= target * (1 - 1e-4) or found.noise_std == paper.noise_std


def test_the_papers_scale() -> None:
    """M = 8000, S = 100, K = 50, delta = 1e-3: what Theorem 2 asks for epsilon = 1 is a hundredth of what it takes."""
    r = releases(M=8000, K=50, S=100, nodes=1)
    assert calibrate(r, 1.0, "sound", DELTA).noise_std == pytest.approx(2.34, abs=0.01)
    assert calibrate(r, 1.0, "paper", DELTA).noise_std == pytest.approx(0.0232, abs=1e-4)


def test_step_conditions_are_theorem_3s() -> None:
    rho, eta, S, v_L, mu_f = 0.3, 0.02, 500, 0.8, 0.4
    xi = 4 * eta / (1 - 2 * eta * v_L)
    mu_L = mu_f + rho
    left = 1 - rho * xi / 2 - mu_f * xi / 4 + 4 * eta**2 * v_L**2 * S / (1 - 2 * eta * v_L)
    expected = (
        1 / (2 * v_L) - eta,
        (4 * mu_L - 4 * rho - 3 * mu_f) / (8 * v_L**2 + 2 * mu_f * v_L) - eta,
        S * eta * mu_f / 2 - left,
    )
    assert theory.step_margins(rho, eta, S, v_L, mu_f) == pytest.approx(expected, rel=1e-12)
    assert min(expected) > 0, "strongly convex and many inner steps: they can hold"


def test_step_conditions_cannot_hold_without_strong_convexity() -> None:
    rng = np.random.default_rng(2)
    for _ in range(500):
        rho = 10 ** rng.uniform(-3, 3)
        v_L = rho + 10 ** rng.uniform(-6, 1)
        eta = rng.uniform(0, 1) / (2 * v_L)
        _, second, third = theory.step_margins(rho, eta, int(rng.integers(1, 300)), v_L, 0.0)
        assert second < 0
        assert third < 0


def test_the_bound_is_smallest_at_the_best_number_of_iterations() -> None:
    """(10) written out with Theorem 2's sigma, over all K."""
    rho, eta, v_L, mu_f, distance, tau = 0.5, 0.1, 0.75, 0.05, 3.0, 1.5
    p, S, M, epsilon, N = 7, 20, 5000.0, 1.0, 5

    def printed(K: int) -> float:
        start = mu_f / (4 * K) * distance**2 + rho / (2 * K) * distance**2 + tau**2 / (2 * rho * K)
        return N * start + N * 2 * eta / (1 - 2 * eta * v_L) * p * K * S * math.log(1 / DELTA) / (M**2 * epsilon**2)

    r = calibrate(releases(M=M, K=30, S=S, nodes=N), epsilon, "paper", DELTA)
    A, noise = theory.start_cost(rho, mu_f, distance, tau), theory.noise_cost(eta, v_L, p, r.noise_std)
    assert theory.suboptimality_bound(A, noise, N, 30) == pytest.approx(printed(30), rel=1e-12)
    best = min(range(1, 20_000), key=printed)
    assert 1 < best < 19_999
    assert abs(theory.best_iterations(A, noise, 30) - best) <= 1


def test_theorem_4_in_numbers() -> None:
    expected = 8000 * 0.5 / 2.0 * math.sqrt(0.01 / (0.25 * 105 * math.log(1000)))
    assert theory.theorem_4_iterations(8000, 2.0, 0.5, DELTA, 0.01, 0.25, 105) == pytest.approx(expected, rel=1e-12)


def test_conditions_in_words() -> None:
    r = releases(M=[8000, 4000], K=50, S=100)
    lines = theory.conditions(r, DELTA, rho=0.1, eta=0.5, v_L=0.35, v_f=0.25, mu_f=0.0, distance=5.0, tau=1.0)
    assert all(line.startswith(("holds  ", "FAILS  ", "-      ")) for line in lines)
    assert lines[0].startswith("FAILS  privacy")
    assert "at node 1" in lines[0]
    assert [line[:5] for line in lines[1:4]] == ["holds", "FAILS", "FAILS"]
    assert any("mu_f = 0" in line for line in lines)
    assert any("not proven here" in line for line in lines)
    assert any("[S] Theorem 4, the best number of outer iterations, does not apply" in line for line in lines)
    noisy = theory.conditions(
        replace(r, noise_std=1e6), DELTA, rho=0.3, eta=0.02, v_L=0.8, v_f=0.5, mu_f=0.4, distance=5.0, tau=1.0
    )
    assert [line.split(": ")[1].split(" (")[0] for line in noisy if "outer iterations" in line] == ["1", "1"]
    strong = theory.conditions(
        replace(r, noise_std=0.0, inner_steps=500), DELTA, rho=0.3, eta=0.02, v_L=0.8, v_f=0.5, mu_f=0.4, distance=5.0, tau=1.0
    )
    assert not [line for line in strong if "privacy" in line or "minimise" in line or "not proven" in line]
    too_long = theory.conditions(r, DELTA, rho=0.1, eta=2.0, v_L=0.35, v_f=0.25, mu_f=0.0, distance=5.0, tau=1.0)
    assert not [line for line in too_long if "(10)" in line]
