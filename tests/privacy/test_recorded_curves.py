"""Curves of delta over epsilon: against closed forms, dp-accounting and sums by hand; they are never below the truth."""

import math

import numpy as np
import pytest
from dp_accounting import dp_event
from dp_accounting.pld import pld_privacy_accountant
from dp_accounting.pld import privacy_loss_distribution as pld
from scipy.stats import binom, norm

from dpadmm_mpi.methods.star.accounts import StarProfile, conditioned_mixture
from dpadmm_mpi.privacy.gaussian_noise import ORDERS
from dpadmm_mpi.privacy.recorded_curves import (
    GaussianProfile,
    RecordedCurve,
    RenyiProfile,
    compose,
    curve_of,
    epsilon_of,
    gaussian_curve,
    mean_tries,
    selection,
)
from dpadmm_mpi.privacy.releases import StarReleases
from dpadmm_mpi.types import Array

EPSILONS = np.linspace(0.0, 6.0, 25)


def exact_delta(epsilon: Array, mu: Array | float) -> Array:
    """Of a Gaussian mechanism, by the textbook's formula."""
    return norm.cdf(mu / 2 - epsilon / mu) - np.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu)


@pytest.mark.parametrize("mu", [0.1, 1.0, 3.0])
def test_what_a_gaussian_curve_says_about_an_attacker(mu: float) -> None:
    """Trade-off, advantage and summary are those of two normal distributions mu apart; the bound is above and near."""
    curve = gaussian_curve(mu)
    rates = np.array([1e-4, 1e-3, 1e-2, 0.1, 0.5])
    exact = norm.cdf(norm.ppf(rates) + mu)
    bound = curve.true_positive_rate(rates)
    assert np.all(bound >= exact * (1 - 1e-12))
    assert np.all(bound <= exact * 1.002)
    assert curve.advantage == pytest.approx(2 * norm.cdf(mu / 2) - 1, rel=1e-12)
    assert curve.gaussian_mu == pytest.approx(mu, rel=1e-4)
    assert curve.gaussian_mu >= mu * (1 - 1e-8)


@pytest.mark.parametrize("delta", [1e-3, 1e-5, 1e-9])
def test_epsilon_at_delta_is_that_of_dp_accounting(delta: float) -> None:
    accountant = pld_privacy_accountant.PLDAccountant(value_discretization_interval=1e-4)
    accountant.compose(dp_event.GaussianDpEvent(1.25))
    theirs = accountant.get_epsilon(delta)
    ours = gaussian_curve(1 / 1.25).epsilon_at(delta)
    assert ours == pytest.approx(theirs, rel=2e-3)


def test_the_attacker_is_that_of_riskcal() -> None:
    """Figures of riskcal 1.5.1 for the loss distribution of a Gaussian mechanism, noise 1.25: get_beta_from_pld at false
    positive rates of 0.001 and 0.1, get_advantage_from_pld."""
    curve = gaussian_curve(1 / 1.25)
    assert 1 - curve.true_positive_rate(np.array([0.001, 0.1])) == pytest.approx([0.988996187, 0.684937758], rel=1e-5)
    assert curve.advantage == pytest.approx(0.310843483, rel=1e-8)


@pytest.mark.parametrize("mus", [(1.0, 1.0), (0.3, 0.5, 0.2), (3.0, 0.1), (0.05,) * 12])
def test_gaussian_curves_compose_to_the_gaussian_curve(mus: tuple[float, ...]) -> None:
    """mu^2 adds up. The composed curve is never below the exact one, and its epsilon within half a percent."""
    total = compose([gaussian_curve(mu) for mu in mus])
    mu = math.sqrt(sum(each**2 for each in mus))
    assert np.all(total.delta_at(EPSILONS) >= exact_delta(EPSILONS, mu) * (1 - 1e-9))
    for delta in (1e-3, 1e-6):
        exact = gaussian_curve(mu).epsilon_at(delta)
        assert total.epsilon_at(delta) == pytest.approx(exact, rel=5e-3)


def test_curves_of_other_shape_compose_as_in_dp_accounting() -> None:
    """Laplace and Gaussian noise: two mechanisms whose curves have different shapes."""
    laplace = pld.from_laplace_mechanism(2.0, value_discretization_interval=1e-4)
    gaussian = pld.from_gaussian_mechanism(1.5, value_discretization_interval=1e-4)

    class Theirs:
        def __init__(self, distribution: pld.PrivacyLossDistribution) -> None:
            self.distribution = distribution

        def delta(self, epsilon: Array) -> Array:
            return np.array([self.distribution.get_delta_for_epsilon(each) for each in epsilon])

        def renyi(self, orders: Array) -> Array:
            return np.full(len(orders), np.inf)

    ours = compose([curve_of(Theirs(laplace)), curve_of(Theirs(gaussian))])
    theirs = laplace.compose(gaussian)
    for delta in (1e-2, 1e-4, 1e-6):
        assert ours.epsilon_at(delta) == pytest.approx(theirs.get_epsilon_for_delta(delta), rel=5e-3)
        assert ours.epsilon_at(delta) >= theirs.get_epsilon_for_delta(delta) * (1 - 1e-3)


def test_a_curve_that_is_known_by_renyi_divergences_alone() -> None:
    """Solved for epsilon again, it is what the conversion gives."""
    divergences = GaussianProfile(0.7).renyi(ORDERS)
    profile = RenyiProfile(divergences)
    for delta in (1e-3, 1e-6):
        epsilon = epsilon_of(divergences, delta)
        assert profile.delta(np.array([epsilon]))[0] == pytest.approx(delta, rel=1e-9)


def test_points_that_are_too_high_do_no_harm() -> None:
    """One loose point between good ones does not spoil the composition: the truth is convex."""
    good = gaussian_curve(0.8)
    loose = good.delta.copy()
    loose[150] = loose[149]
    spoilt = RecordedCurve(good.epsilon, loose, np.full(len(ORDERS), np.inf))
    before = compose([RecordedCurve(good.epsilon, good.delta, spoilt.renyi)] * 2).epsilon_at(1e-5)
    assert compose([spoilt, spoilt]).epsilon_at(1e-5) == pytest.approx(before, rel=1e-3)


@pytest.mark.parametrize("shape", [0.0, 0.5, 1.0])
def test_the_mean_number_of_tries(shape: float) -> None:
    """Against the sum over the distribution: P(K = k) proportional to (1 - gamma)^k Gamma(k + shape) / k!."""
    gamma = 0.05
    k = np.arange(1, 4000)
    weights = np.array([math.exp(n * math.log(1 - gamma) + math.lgamma(n + shape) - math.lgamma(n + 1)) for n in k])
    assert mean_tries(shape, gamma) == pytest.approx(float(k @ weights / weights.sum()), rel=1e-9)


def test_what_a_choice_costs() -> None:
    """Papernot and Steinke's Theorem 2 written out for a Gaussian mechanism, at the law of tries that was chosen; the
    geometric one, whose gamma is 1 / mean, is not better."""
    mu, tries = 0.4, 30.0
    base = np.array([a * mu**2 / 2 for a in ORDERS])
    divergences, shape = selection(base, tries)

    def by_hand(eta: float) -> list[float]:
        low, high = 1e-9, 1.0 - 1e-9  # of gamma; the mean falls with it
        for _ in range(200):
            middle = math.sqrt(low * high)
            low, high = (middle, high) if mean_tries(eta, middle) > tries else (low, middle)
        again = min((1 + eta) * ((1 - 1 / m) * e + math.log(1 / low) / m) for m, e in zip(ORDERS, base, strict=True))
        return [e + again + math.log(tries) / (a - 1) for a, e in zip(ORDERS, base, strict=True)]

    assert divergences == pytest.approx(by_hand(shape), rel=1e-6)
    assert mean_tries(1.0, 1 / tries) == pytest.approx(tries)
    assert epsilon_of(divergences, 1e-6) <= epsilon_of(np.array(by_hand(1.0)), 1e-6) * (1 + 1e-6)
    one, _ = selection(base, 1.0)
    assert np.array_equal(one, base)


def test_the_star_profile_against_the_sum_over_the_sampling() -> None:
    """Renyi divergences conditioned on the number of hits J, summed over J by hand; delta likewise."""
    r = StarReleases(iterations=3, features=2, inner_steps=4, M=np.array([25]), noise_std=3.0)
    profile = StarProfile(r, 25.0)
    missed = 2 / 25
    hit = 4 + missed
    J = np.arange(13)
    p = binom.pmf(J, 12, 1 / 25)
    mu2 = (J * hit**2 + (12 - J) * missed**2) / 9.0
    orders = ORDERS[:40]
    renyi = [np.log(np.sum(p * np.exp(a * (a - 1) * mu2 / 2))) / (a - 1) for a in orders]
    ours = profile.renyi(ORDERS)[:40]
    assert np.all(ours <= np.array(renyi) * (1 + 1e-9))
    epsilon = np.array([0.5, 2.0, 5.0])
    by_hand = np.array([np.sum(p * exact_delta(each, np.sqrt(mu2))) for each in epsilon])
    mixture = conditioned_mixture(r, 25.0, np.array([3.0]), 1e-14)
    assert mixture.delta(r.noise_std, epsilon) == pytest.approx(by_hand, rel=1e-9)
    assert np.all(profile.delta(epsilon) <= by_hand * (1 + 1e-9))  # the split account may be better
