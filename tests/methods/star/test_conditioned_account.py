"""PS-ADMM's account conditioned on the sampling, against plain sums over the number of hits and against integration."""

import math
import time
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import optimize, stats

from dpadmm_mpi.methods.gaussian import paper_noise, sound_account, sound_noise
from dpadmm_mpi.methods.star import accounts, theory
from dpadmm_mpi.privacy import gaussian_noise
from dpadmm_mpi.privacy.releases import StarReleases

DELTA = 1e-3


def releases(M: Any = 800.0, K: int = 6, S: int = 20, noise_std: float = 3.0, **more: Any) -> StarReleases:
    return StarReleases(
        iterations=K, inner_steps=S, M=np.atleast_1d(np.asarray(M, float)), noise_std=noise_std, features=7, **more
    )


def mean_delta(epsilon: float, chances: Any, mu: Any) -> float:
    """E[delta of a Gaussian mechanism], as written."""
    gaussian = stats.norm.cdf(mu / 2 - epsilon / mu) - np.exp(epsilon + stats.norm.logcdf(-mu / 2 - epsilon / mu))
    return float(np.sum(chances * gaussian))


def solved(chances: Any, mu: Any, delta: float) -> float:
    if mean_delta(0.0, chances, mu) <= delta:
        return 0.0
    return float(optimize.brentq(lambda e: mean_delta(e, chances, mu) / delta - 1, 0, 1e6, xtol=1e-13, rtol=1e-13))


def brute_force(M: float, K: int, S: int, sigma: float, delta: float, b: int = 1, G: float = 1.0) -> float:
    n = K * S
    J = np.arange(n + 1)
    mu = np.sqrt(J * (4 * G / b + 2 * G / M) ** 2 + (n - J) * (2 * G / M) ** 2) / sigma
    return solved(stats.binom.pmf(J, n, b / M), mu, delta)


@pytest.mark.parametrize("delta", [0.1, 1e-3, 1e-6])
@pytest.mark.parametrize(
    ("M", "K", "S", "sigma", "b"),
    [(800, 6, 20, 3.0, 1), (800, 6, 20, 0.3, 1), (5, 2, 3, 1.0, 1), (40, 4, 20, 30.0, 1), (60, 5, 12, 0.9, 7),
     (6330, 50, 500, 3.15, 1), (9, 3, 4, 2.0, 9), (1, 3, 4, 5.0, 1)],
)  # fmt: skip
def test_it_is_the_mixture_over_the_hits(M: int, K: int, S: int, sigma: float, b: int, delta: float) -> None:
    """A direct sum over every J ~ Binomial(K S, b/M), to 1e-9, after the last iteration and after the first; never below."""
    _, found = accounts.sound_epsilons(releases(M, K, S, sigma, batch_size=b), delta)
    for k in (1, K):
        plain = brute_force(M, k, S, sigma, delta, b)
        assert found[k, 0] == pytest.approx(plain, rel=1e-9, abs=1e-12)
        assert found[k, 0] >= plain * (1 - 1e-13)
    assert found[0, 0] == 0.0


def test_the_first_iterations_do_not_depend_on_how_many_follow() -> None:
    """Bins are each row's own: with 600 iterations, where hits are taken together, the first is the plain sum to 1e-9."""
    found = accounts.conditioned_mixture(releases(50, 600, 80), 50.0, np.arange(1.0, 601.0), DELTA).epsilon(0.3, DELTA)
    assert found[0] == pytest.approx(brute_force(50, 1, 80, 0.3, DELTA), rel=1e-9)
    assert found[-1] >= brute_force(50, 600, 80, 0.3, DELTA)


def test_where_hits_are_taken_together_epsilon_is_a_little_larger() -> None:
    """More numbers of hits than bins: above the plain sum, by less than 0.1 %."""
    _, found = accounts.sound_epsilons(releases(20, 20, 200, 60.0), DELTA)
    plain = brute_force(20, 20, 200, 60.0, DELTA)
    assert plain <= found[-1, 0] <= 1.001 * plain


@pytest.mark.parametrize("sigmas", [(2.0, 1.0), (1.0, 4.0)])
def test_noise_that_changes_adds_up_over_the_iterations(sigmas: tuple[float, float]) -> None:
    """Two iterations with noise of their own: the sum over both numbers of hits, never below and 1 % above at most."""
    M, S = 30.0, 10
    r = releases(M, 2, S, sigmas[0], growth=np.array(sigmas) / sigmas[0])
    _, found = accounts.sound_epsilons(r, DELTA)
    J1, J2 = np.meshgrid(np.arange(S + 1), np.arange(S + 1))
    chances = stats.binom.pmf(J1, S, 1 / M) * stats.binom.pmf(J2, S, 1 / M)
    squares = [(J * (4 + 2 / M) ** 2 + (S - J) * (2 / M) ** 2) / s**2 for J, s in zip((J1, J2), sigmas, strict=True)]
    plain = solved(chances.ravel(), np.sqrt(squares[0] + squares[1]).ravel(), DELTA)
    assert plain <= found[2, 0] <= 1.01 * plain
    assert found[1, 0] == pytest.approx(brute_force(M, 1, S, sigmas[0], DELTA), rel=1e-2)


def test_a_constant_schedule_costs_what_a_number_costs() -> None:
    """Almost the same noise in every iteration goes the other way through the code and ends at the same epsilon."""
    r = releases(100, 12, 30, 2.0)
    nearly = replace(r, growth=1.0 + 1e-9 * np.arange(12.0))
    for a, b in zip(accounts.sound_epsilons(r, DELTA), accounts.sound_epsilons(nearly, DELTA), strict=True):
        assert b[1:] == pytest.approx(a[1:], rel=2e-2)
        assert np.all(b >= a * (1 - 1e-6))
    assert accounts.paper_epsilon(nearly, DELTA) == pytest.approx(accounts.paper_epsilon(r, DELTA), rel=1e-7)


def test_noise_that_changes_lies_between_its_largest_and_its_smallest() -> None:
    growth = 0.9 ** np.arange(10)
    split, conditioned = accounts.sound_epsilons(releases(200, 10, 20, 5.0, growth=growth), DELTA)
    for found, name in ((split, 0), (conditioned, 1)):
        least = accounts.sound_epsilons(releases(200, 10, 20, 5.0), DELTA)[name][-1, 0]
        most = accounts.sound_epsilons(releases(200, 10, 20, 5.0 * growth[-1]), DELTA)[name][-1, 0]
        assert least < found[-1, 0] < most


@pytest.mark.parametrize(("M", "sigma"), [(4, 5.0), (4, 0.8), (10, 2.0)])
def test_the_true_step_of_one_feature_loses_less(M: int, sigma: float) -> None:
    """One inner step as it is, both ways round: the hockey-stick divergence at the account's epsilon is at most delta."""
    x = np.linspace(-60 * sigma, 60 * sigma, 400_001)
    for delta in (0.05, 1e-3):
        epsilon = accounts.sound_epsilon(releases(M, 1, 1, sigma), delta)[-1, 0]
        for others in (0.0, 2.0):
            p = (1 - 1 / M) * stats.norm.pdf(x, others, sigma) + stats.norm.pdf(x, -2, sigma) / M
            q = (1 - 1 / M) * stats.norm.pdf(x, others + 2 / M, sigma) + stats.norm.pdf(x, 2 + 2 / M, sigma) / M
            for one, other in ((p, q), (q, p)):
                assert np.trapezoid(np.maximum(one - math.exp(epsilon) * other, 0), x) <= delta * (1 + 1e-6)


def test_sound_is_the_smaller_of_the_two_and_says_which() -> None:
    """At every size and iteration; small noise: conditioned and far below the split; large noise: the split."""
    sizes = [200.0, 800.0]
    for noise_std, words in ((0.2, "conditioned on the sampling"), (40.0, "split: sigma^2")):
        r = releases(sizes, noise_std=noise_std)
        split, conditioned = accounts.sound_epsilons(r, DELTA)
        account = sound_account(r, DELTA)
        assert np.array_equal(account.node_values, np.minimum(split, conditioned))
        assert account.theorem.startswith(words)
        assert account.proven
    small = releases(sizes, noise_std=0.2)
    split, conditioned = accounts.sound_epsilons(small, DELTA)
    assert np.all(conditioned[1:] < 0.5 * split[1:])


def test_words_name_both_accounts_where_they_change_over() -> None:
    r = releases(8000.0, K=40, S=100, noise_std=1.15)
    split, conditioned = (values[1:, 0] for values in accounts.sound_epsilons(r, DELTA))
    smaller = conditioned < split
    assert 0 < smaller.sum() < len(smaller), "the example must have both"
    text = sound_account(r, DELTA).theorem
    assert "conditioned on the sampling" in text
    assert "split: sigma^2" in text
    assert f"in {np.sum(smaller != smaller[-1])} of 40 iterations before" in text


@pytest.mark.parametrize(
    ("epsilon", "sound", "paper", "model"), [(0.05, 9.99, 1.31, 6.13), (0.1, 6.31, 0.66, 4.26), (0.5, 3.15, 0.13, 2.31)]
)
def test_the_papers_sizes(epsilon: float, sound: float, paper: float, model: float) -> None:
    """K = 50, S = 500, M = 6330: the noise by the combined account, by Theorem 2, and by [S]'s model with an accountant."""
    r = releases(6330, 50, 500)
    found = sound_noise(r, epsilon, DELTA)
    assert found == pytest.approx(sound, abs=0.01)
    assert paper_noise(r, epsilon, DELTA) == pytest.approx(paper, abs=0.005)
    assert accounts.sampled_model_noise(r, epsilon, DELTA) == pytest.approx(model, abs=0.01)
    assert 7.6 < found / paper_noise(r, epsilon, DELTA) < 24
    assert 1.3 < found / accounts.sampled_model_noise(r, epsilon, DELTA) < 2


@pytest.mark.parametrize("target", [80.0, 200.0])
def test_calibration_meets_the_target_by_the_smaller_account(target: float) -> None:
    """Targets so large that the conditioned account decides: less noise than the split alone would ask for."""
    r = releases([50.0, 90.0], 10, 20)
    found = replace(r, noise_std=sound_noise(r, target, DELTA))
    split, conditioned = (values[-1].max() for values in accounts.sound_epsilons(found, DELTA))
    assert target * (1 - 1e-4) <= min(split, conditioned) <= target
    assert conditioned < split


def test_calibration_keeps_the_growth_of_the_noise() -> None:
    r = releases(200.0, 5, 20, 1.0, growth=0.8 ** np.arange(5))
    found = replace(r, noise_std=sound_noise(r, 5.0, DELTA))
    assert accounts.sound_epsilon(found, DELTA)[-1, 0] == pytest.approx(5.0, rel=1e-3)
    paper = replace(r, noise_std=paper_noise(r, 5.0, DELTA))
    assert accounts.paper_epsilon(paper, DELTA)[-1, 0] == pytest.approx(5.0, rel=1e-12)


def test_c_scales_the_papers_noise_and_epsilon() -> None:
    """c = 9: three times the noise for the same epsilon, three times the epsilon for the same noise; sound knows no c."""
    one, nine = releases(), releases(c=9.0)
    assert paper_noise(nine, 0.5, DELTA) == pytest.approx(3 * paper_noise(one, 0.5, DELTA), rel=1e-14)
    assert accounts.paper_epsilon(nine, DELTA) == pytest.approx(3 * accounts.paper_epsilon(one, DELTA), rel=1e-14)
    assert np.array_equal(accounts.sound_epsilon(nine, DELTA), accounts.sound_epsilon(one, DELTA))


def test_a_batch_of_all_records_is_a_plain_gaussian_mechanism() -> None:
    """b = M: every step sees all records, so mu = sqrt(K S) (4G/M + 2G/M) / sigma, exactly."""
    M, K, S, sigma = 50, 3, 4, 0.7
    mu = math.sqrt(K * S) * (6 / M) / sigma
    _, found = accounts.sound_epsilons(releases(M, K, S, sigma, batch_size=M), DELTA)
    assert found[-1, 0] == pytest.approx(solved(np.ones(1), np.array([mu]), DELTA), rel=1e-9)


def test_the_split_of_a_batch_is_the_sampled_mechanism_of_its_mean() -> None:
    """Twice the batch: twice the rate, half the sensitivity, in the words of dp-accounting."""
    import dp_accounting
    from dp_accounting.rdp import rdp_privacy_accountant as rdp

    r, share = releases(800.0, noise_std=1.1, batch_size=4), 0.1
    s1, s2 = 1.1 * math.sqrt(1 - share), 1.1 * math.sqrt(share)
    difference = dp_accounting.SampledWithoutReplacementDpEvent(800, 4, dp_accounting.GaussianDpEvent(s1 / (4 / 4)))
    both = dp_accounting.ComposedDpEvent([difference, dp_accounting.GaussianDpEvent(s2 / (2 / 800))])
    accountant = rdp.RdpAccountant(neighboring_relation=dp_accounting.NeighboringRelation.REPLACE_ONE)
    accountant.compose(dp_accounting.SelfComposedDpEvent(both, 120))
    ours = gaussian_noise.epsilon(accounts.split_curve(r, 800.0, share), np.array([120.0]), DELTA)[0]
    assert ours == pytest.approx(accountant.get_epsilon(DELTA), rel=1e-9)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("noise_std", [1e-30, 1e-8, 1e8, 1e30])
@pytest.mark.parametrize("delta", [1e-30, 0.999])
def test_the_ends_of_the_ranges_are_numbers(noise_std: float, delta: float) -> None:
    _, conditioned = accounts.sound_epsilons(releases([3.0, 8000.0], 3, 10, noise_std), delta)
    assert np.isfinite(conditioned).all()
    assert np.all(np.diff(conditioned, axis=0) >= 0)


def test_a_thousand_iterations_of_eight_sizes_take_about_a_second() -> None:
    r = releases(8000.0 - 100 * np.arange(8), 1000, 500)
    begin = time.process_time()
    accounts.sound_epsilon(r, DELTA)
    assert time.process_time() - begin < 5


def test_check_says_which_gap_of_the_theorem_costs_what() -> None:
    """At the paper's sizes: the theorem's range and c a factor of 6.5, the unsampled full gradient one of 1.5."""
    r = releases(6330, 50, 500)
    r = replace(r, noise_std=sound_noise(r, 0.1, DELTA))
    lines = theory.conditions(r, DELTA, rho=0.1, eta=0.5, v_L=0.35, v_f=0.25, mu_f=0.0, distance=5.0)
    [line] = [line for line in lines if "noise:" in line]
    assert "9.61 times what [S] Theorem 2 has with c = 1" in line
    assert "leaving the theorem's range and c cost a factor of 6.49" in line
    assert "the full gradient that nothing samples 1.48" in line
