"""Losses against finite differences, and the constants that they promise."""

import numpy as np
import pytest

from dpadmm_mpi.problems.losses import HuberHinge, Logistic, Loss, losses

LOGISTIC = Logistic()
LOSSES: list[Loss] = [LOGISTIC, HuberHinge(width=0.5), HuberHinge(width=0.05)]


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: f"{losses.name_of(type(loss))} {loss.curvature_bound}")
def test_derivatives_and_constants(loss: Loss) -> None:
    z = np.linspace(-4, 4, 1601) + 1e-4  # off the kinks of L''
    h = 1e-6
    assert np.allclose((loss.value(z + h) - loss.value(z - h)) / (2 * h), loss.first(z), atol=1e-8)
    assert np.allclose((loss.first(z + h) - loss.first(z - h)) / (2 * h), loss.second(z), atol=1e-7)
    assert (np.abs(loss.first(z)) <= loss.slope_bound).all()
    assert (loss.second(z) <= loss.curvature_bound).all()
    assert loss.second(z).max() == pytest.approx(loss.curvature_bound, rel=1e-3)  # c1 is reached, not only a bound


def test_logistic_does_not_overflow() -> None:
    z = np.array([-1e4, -800.0, 0.0, 800.0, 1e4])
    with np.errstate(all="raise", under="ignore"):
        assert np.array_equal(LOGISTIC.value(z), [1e4, 800.0, np.log(2), 0.0, 0.0])
        assert np.array_equal(LOGISTIC.first(z), [-1.0, -1.0, -0.5, 0.0, 0.0])
        assert (LOGISTIC.second(z) >= 0).all()
