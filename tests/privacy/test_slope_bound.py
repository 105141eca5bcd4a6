"""A loss twice as steep costs twice the privacy: `slope_bound` reaches every account of every family."""

from typing import ClassVar

import numpy as np
import pytest
from curated_cases import curated_config
from support import PRIVATE, MakeConfig, Raw, by_name, planned

from dpadmm_mpi.problems.losses import Loss, losses, wrong_constants
from dpadmm_mpi.types import Array


@losses.register("steep-of-the-tests")
class Steep(Loss):
    """4 log(1 + exp(-z/2)): the curvature bound of the logistic loss, and twice its slope."""

    slope_bound: ClassVar[float] = 2.0
    curvature_bound: ClassVar[float] = 0.25

    def value(self, z: Array) -> Array:
        return np.asarray(4.0 * np.logaddexp(0.0, -z / 2.0))

    def first(self, z: Array) -> Array:
        return np.asarray(-2.0 / (1.0 + np.exp(z / 2.0)))

    def second(self, z: Array) -> Array:
        p = 1.0 / (1.0 + np.exp(-z / 2.0))
        return np.asarray(p * (1.0 - p))


@losses.register("plain-of-the-tests")
class Plain(Loss):
    """The logistic loss, without a claim beyond its bounds."""

    slope_bound: ClassVar[float] = 1.0
    curvature_bound: ClassVar[float] = 0.25

    def value(self, z: Array) -> Array:
        return np.asarray(np.logaddexp(0.0, -z))

    def first(self, z: Array) -> Array:
        return np.asarray(-1.0 / (1.0 + np.exp(z)))

    def second(self, z: Array) -> Array:
        p = 1.0 / (1.0 + np.exp(-z))
        return np.asarray(p * (1.0 - p))


STEEP = {"loss": "steep-of-the-tests"}
PLAIN = {"loss": "plain-of-the-tests"}


def totals(raw: Raw) -> dict[str, Array]:
    plan, _ = planned(raw)
    return {name: account.node_values for name, account in by_name(plan.accounts).items()}


def test_the_constants_are_right() -> None:
    assert wrong_constants(Steep()) == []


@pytest.mark.parametrize("perturbation", PRIVATE)
def test_networks(config: MakeConfig, perturbation: str) -> None:
    """Twice the slope is as good as twice the alpha, in `bound`, `tight` and `epsilon`: the determinant terms stay."""
    steep = totals(config("r-admm", perturbation, problem=STEEP))
    logistic = totals(config("r-admm", perturbation, problem=PLAIN, privacy={"alpha": 10.0}))
    assert steep.keys() == {"bound", "tight", "epsilon"}
    for name, values in steep.items():
        np.testing.assert_allclose(values, logistic[name], rtol=1e-9, err_msg=name)
    assert (steep["bound"][1:] > 1.1 * totals(config("r-admm", perturbation))["bound"][1:]).all()


@pytest.mark.parametrize("method", ["ps-admm", "dp-admm", "dp-acc-admm"])
def test_gradients(method: str) -> None:
    """Twice the slope, the G of [S] and the c of [C], is as good as half the noise."""
    algorithm: Raw = {"method": method} | ({"inner_steps": 10} if method == "ps-admm" else {})
    raw = curated_config(method, 5) | {"problem": {}, "algorithm": algorithm}
    steep = totals(raw | {"problem": STEEP, "privacy": {"noise_std": 0.6}})
    logistic = totals(raw | {"privacy": {"noise_std": 0.3}})
    assert steep.keys() == {"epsilon_paper", "epsilon_sound"}
    for name, values in steep.items():
        np.testing.assert_allclose(values, logistic[name], rtol=1e-9, err_msg=name)
