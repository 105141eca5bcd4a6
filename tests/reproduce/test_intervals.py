"""Intervals are those of the textbook, and decide only what they exclude."""

import numpy as np
import pytest
from scipy import stats

from dpadmm_mpi.errors import InputError
from dpadmm_mpi.reproduce.intervals import Interval, Outcome, chance_above, contrast, interval, significant, together

YES, NO, OPEN = Outcome.YES, Outcome.NO, Outcome.OPEN


def test_the_interval_is_that_of_the_paired_t_test() -> None:
    rng = np.random.default_rng(3)
    a, b = rng.normal(1.0, 1.0, 12), rng.normal(0.0, 1.0, 12)
    expected = stats.ttest_rel(a, b).confidence_interval(0.95)
    found = contrast(a, b)
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high), rel=1e-12)
    assert found.runs == 12


def test_the_interval_holds_the_mean_in_95_of_100_samples() -> None:
    rng = np.random.default_rng(4)
    held = [(here := interval(rng.normal(2.0, 3.0, 10))).low < 2.0 < here.high for _ in range(4000)]
    assert np.mean(held) == pytest.approx(0.95, abs=0.012)


def test_pairing_takes_out_what_the_runs_share() -> None:
    start = np.array([1.0, 5.0, 9.0, 20.0])
    assert contrast(start + 0.1 + np.array([0.0, 0.01, -0.01, 0.0]), start).above() is YES
    assert contrast(start[::-1] + 0.1, start).above() is OPEN


def test_one_run_decides_nothing_and_an_account_decides_exactly() -> None:
    assert interval(np.array([5.0])).above() is OPEN
    assert interval(np.array([5.0, np.nan])).above() is OPEN
    exact = contrast(np.array(2.0), np.array(1.0))
    assert (exact.low, exact.high, exact.runs) == (1.0, 1.0, 0)
    assert exact.above() is YES
    assert contrast(np.array(1.0), np.array(2.0)).above() is NO
    assert contrast(np.array(2.0), np.array(2.0001)).above() is OPEN  # calibrated to be the same


def test_chances_are_those_of_the_t_test_and_corrected_as_holm_does_it() -> None:
    values = np.random.default_rng(5).normal(0.3, 1.0, 10)
    assert chance_above(values, 0.1) == pytest.approx(stats.ttest_1samp(values, 0.1, alternative="greater").pvalue, rel=1e-12)
    assert [chance_above(np.full(3, above), 0.0) for above in (-1.0, 0.0, 1.0)] == [1.0, 1.0, 0.0]
    assert significant([0.01, 0.04, 0.03, 0.005]) == [True, False, False, True]  # 4 x 0.005, 3 x 0.01, not 2 x 0.03
    assert significant([0.03, 0.02]) == [True, True]
    assert significant([0.03, 0.03]) == [False, False]


def test_different_numbers_of_runs_are_no_pairs() -> None:
    with pytest.raises(InputError, match="4 and 1 runs are not pairs"):
        contrast(np.arange(4.0), np.ones(1))


def test_a_size_is_part_of_the_difference() -> None:
    low, high = np.array([1.0, 1.0, 1.01]), np.array([1.2, 1.21, 1.2])
    assert [contrast(high, low, by).above() for by in (0.1, 0.195, 0.3, -0.1)] == [YES, OPEN, NO, YES]


def test_outcomes_together() -> None:
    assert together([YES, YES]) is YES
    assert together([YES, OPEN]) is OPEN
    assert together([YES, OPEN, NO]) is NO
    assert Interval(1.0, 0.5, 1.5, 3).above(2.0) is NO
