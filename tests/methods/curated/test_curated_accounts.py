"""DP-ADMM's accounts against dp-accounting and closed forms; calibration; the bound and the conditions of [C]."""

import math
from dataclasses import replace
from typing import Any

import dp_accounting
import numpy as np
import pytest
from dp_accounting.rdp import RdpAccountant
from scipy.optimize import brentq
from support import Raw, ledger

from dpadmm_mpi.methods.curated import theory
from dpadmm_mpi.privacy import gaussian_noise
from dpadmm_mpi.privacy.account import calibrate
from dpadmm_mpi.privacy.perturbations import GradientPerturbation
from dpadmm_mpi.privacy.releases import CuratedReleases

DELTA = 1e-3


def releases(T: int = 40, n: int = 5000, noise_std: float = 0.002, nodes: int = 3, **fixed: Any) -> CuratedReleases:
    values: dict[str, Any] = {"iterations": T, "records": n, "shards": nodes, "noise_std": noise_std, "features": 9}
    return CuratedReleases(**(values | fixed))


def printed_variance(epsilon: float, T: int, n: int, delta: float, c: float = 1.0, mu: float = 0.5) -> float:
    """(8) of [C]."""
    a = math.log(1 / delta) / ((1 - mu) * epsilon) + 1
    return c**2 * a * T / (2 * n**2 * epsilon * mu)


@pytest.mark.parametrize("delta", [1e-2, 1e-5])
@pytest.mark.parametrize("noise_std", [2e-4, 2e-3, 0.05])
def test_the_sound_account_is_dp_accountings(noise_std: float, delta: float) -> None:
    r = releases(noise_std=noise_std, c=1.5)
    found = ledger(r, delta)["epsilon_sound"].node_values
    for t in (1, 17, 40):
        accountant = RdpAccountant(neighboring_relation=dp_accounting.NeighboringRelation.REPLACE_ONE)
        accountant.compose(dp_accounting.GaussianDpEvent(noise_std / (2 * 1.5 / 5000)), t)
        assert found[t] == pytest.approx(np.full(3, accountant.get_epsilon(delta)), rel=1e-9, abs=1e-15)
    assert np.array_equal(found[0], np.zeros(3))


@pytest.mark.parametrize("mu", [0.2, 0.5])
def test_the_papers_account_is_equation_8(mu: float) -> None:
    """Solved for epsilon by root finding instead of by formula."""
    r = releases(mu=mu, c=1.5)
    found = ledger(r, DELTA)["epsilon_paper"].node_values
    for t in (1, 17, 40):
        root = brentq(lambda e, t=t: printed_variance(e, t, 5000, DELTA, 1.5, mu) - 0.002**2, 1e-9, 1e6, xtol=1e-14, rtol=1e-14)
        assert found[t] == pytest.approx(np.full(3, root), rel=1e-9)
    calibrated = calibrate(r, 0.3, "paper", DELTA)
    assert calibrated.noise_std**2 == pytest.approx(printed_variance(0.3, 40, 5000, DELTA, 1.5, mu), rel=1e-12)
    assert ledger(calibrated, DELTA)["epsilon_paper"].values[-1] == pytest.approx(0.3, rel=1e-12)


@pytest.mark.parametrize("fixed", [{"noise_std": 0.0}, {"u0_as_printed": True}])
def test_without_noise_or_with_u0_as_printed_nothing_is_private(fixed: Raw) -> None:
    found = ledger(releases(**fixed), DELTA)
    assert np.isinf(found["epsilon_paper"].node_values).all()
    assert np.isinf(found["epsilon_sound"].node_values).all()
    assert found["epsilon_sound"].node_values.shape == (41, 3)


def test_u0_as_printed_is_called_not_private() -> None:
    found = ledger(releases(u0_as_printed=True), DELTA)
    assert "not private" in found["epsilon_paper"].theorem
    assert "not private" in found["epsilon_sound"].theorem
    assert found["epsilon_paper"].proven  # that it is at most inf
    assert found["epsilon_sound"].proven


def test_epsilon_grows_with_iterations_and_falls_with_noise() -> None:
    last = None
    for noise_std in (2e-4, 1e-3, 4e-3):
        found = ledger(releases(noise_std=noise_std), DELTA)
        both = np.stack([found["epsilon_paper"].values, found["epsilon_sound"].values])
        assert np.all(np.diff(both, axis=1) > 0)
        assert last is None or np.all(both[:, 1:] < last[:, 1:])
        last = both


@pytest.mark.parametrize("target", [0.008, 0.03, 0.1, 1.0, 10.0])
@pytest.mark.parametrize("delta", [1e-2, 1e-3, 1e-6])
@pytest.mark.parametrize(("T", "n"), [(1, 50), (100, 32561)])
def test_sound_noise_meets_the_target_and_is_never_below_the_papers(target: float, delta: float, T: int, n: int) -> None:
    r = releases(T=T, n=n)
    found = calibrate(r, target, "sound", delta)
    paper = calibrate(r, target, "paper", delta)
    total = ledger(found, delta)["epsilon_sound"].values[-1]
    assert found.noise_std >= paper.noise_std
    assert total <= target
    assert total >= target * (1 - 1e-4) or found.noise_std == paper.noise_std


def test_targets_below_the_accounts_resolution() -> None:
    """At delta = 1e-6 the largest order alone costs 0.0058: smaller targets are met at epsilon = 0.

    The smaller the target, the more noise; and 0 is right: the total variation distance of the releases is below delta.
    """

    def notes(target: float, account: str) -> list[str]:
        return gaussian_noise.notes(GradientPerturbation(target=target, target_account=account), delta)

    delta, targets = 1e-6, [0.02, 0.0059, 0.0057, 0.001, 1e-6, 1e-12]
    assert gaussian_noise.resolution(delta) == pytest.approx(0.0058, abs=1e-4)
    found = [calibrate(releases(), target, "sound", delta) for target in targets]
    totals = [ledger(r, delta)["epsilon_sound"].values[-1] for r in found]
    assert all(total <= target for total, target in zip(totals, targets, strict=True))
    assert totals[2:] == [0.0] * 4
    noises = [r.noise_std for r in found]
    assert noises == sorted(noises)
    assert ledger(replace(found[2], noise_std=noises[2] * (1 - 1e-6)), delta)["epsilon_sound"].values[-1] > 0.0057
    shift = math.sqrt(40) * 2 / 5000 / noises[2]
    assert math.erf(shift / math.sqrt(8)) <= delta
    assert notes(0.001, "sound") != []
    assert notes(0.02, "sound") == notes(0.001, "paper") == []


def test_the_constant_of_18_from_the_matrices() -> None:
    """Against norms of the matrices themselves."""
    A = np.random.default_rng(3).normal(size=(6, 9))
    eta, gamma, rho, L_f = 0.4, 9.0, 0.7, 0.25
    G = gamma * np.eye(9) - eta * rho * A.T @ A
    plus = np.linalg.pinv(A)
    expected = (
        np.linalg.norm(G, 2) / (2 * eta)
        + rho * np.linalg.norm(A.T @ A, 2) / 2
        + L_f * np.linalg.norm(plus @ plus.T, 2) / (2 * rho)
    )
    singular_values = np.sqrt(np.maximum(np.linalg.eigvalsh(A.T @ A), 0.0))
    singular_values[singular_values < 1e-6] = 0.0
    assert theory.start_constant(eta, gamma, rho, L_f, singular_values) == pytest.approx(expected, rel=1e-9)
    assert theory.gamma_needed(eta, rho, singular_values.max()) == pytest.approx(
        eta * rho * np.linalg.norm(A.T @ A, 2) + 1, rel=1e-12
    )


def test_the_bound_is_smallest_at_19() -> None:
    """(18) written out, over all T."""
    c_1, distance, eta, epsilon = 12.0, 4.0, 0.5, 0.4

    def printed(T: int) -> float:
        return c_1 / T * distance**2 + eta * 9 * printed_variance(epsilon, T, 5000, DELTA)

    r = calibrate(releases(), epsilon, "paper", DELTA)
    assert theory.utility_bound(c_1, distance, eta, 9, r.noise_std, 40) == pytest.approx(printed(40), rel=1e-12)
    best = min(range(1, 20_000), key=printed)
    assert 1 < best < 19_999
    assert abs(theory.best_iterations(c_1, distance, eta, 9, r.noise_std**2 / 40) - best) <= 1


def in_words(r: CuratedReleases, *, eta: float = 0.5, gamma: float = 14.0, rows: int = 9, **other: Any) -> list[str]:
    values: dict[str, Any] = {"singular_values": np.linspace(1, 5, 9), "accelerated": False} | other
    return theory.conditions(r, eta=eta, gamma=gamma, rho=1.0, L_f=0.25, rows=rows, distance=2.0, **values)


def test_conditions_in_words() -> None:
    r = releases()
    held = in_words(r)
    assert "of the mean of the iterates" in held[3]
    assert "not proven here" in held[3]  # u_0 is zero, [C]'s is not
    as_printed = replace(r, u0_as_printed=True)
    assert "not proven" not in in_words(as_printed)[4]
    accelerated = in_words(r, accelerated=True)
    assert accelerated[:3] == held[:3]
    assert ["no bound is known" in line for line in accelerated[3:]] == [True]
    deficient = in_words(r, singular_values=np.array([5.0, 1, 1, 1, 1, 1, 1, 1, 0]))
    assert deficient[2].startswith("FAILS  convergence: A has full row rank; of its 9 rows 8 are independent")
    assert [line[:7] for line in held] == ["holds  "] * 3 + ["-      "] * 2
    assert "margin 0.5" in held[1]
    printed = in_words(as_printed, eta=5.0, gamma=1.0, rows=20)
    assert [line[:7] for line in printed] == ["FAILS  "] * 4 + ["-      "] * 2
    assert "not private" in printed[0]
    assert "not proven here" in printed[4]
