"""What the audit says about noise vectors: sound ones pass, each way of being wrong is named."""

from collections.abc import Callable

import numpy as np
import pytest
from scipy import stats

from dpadmm_mpi.methods.auditing import kolmogorov_smirnov, noise_findings
from dpadmm_mpi.types import Array

SHAPE = (3, 150, 6)  # nodes, runs, steps


def gamma_noise(rng: np.random.Generator, features: int) -> Array:
    direction = rng.standard_normal((*SHAPE, features))
    return rng.gamma(features, size=(*SHAPE, 1)) * direction / np.linalg.norm(direction, axis=-1, keepdims=True)


def findings(noise: Array) -> list[str]:
    return noise_findings(noise, stats.gamma(noise.shape[-1]).cdf(np.linalg.norm(noise, axis=-1)))


@pytest.mark.parametrize("features", [1, 2, 5, 40])
def test_sound_noise_passes(features: int) -> None:
    for seed in range(5):
        assert findings(gamma_noise(np.random.default_rng(seed), features)) == []


def same_direction_in_two_steps(noise: Array, rng: np.random.Generator) -> Array:
    """Fresh lengths, so that no vector occurs twice."""
    changed = noise.copy()
    lengths = np.linalg.norm(noise, axis=-1, keepdims=True)
    changed[:, :, 1] = lengths[:, :, 1] * changed[:, :, 0] / lengths[:, :, 0]
    return changed


def same_vector_in_all_nodes(noise: Array, rng: np.random.Generator) -> Array:
    return np.broadcast_to(noise[:1], noise.shape)


def one_sided(noise: Array, rng: np.random.Generator) -> Array:
    changed = noise.copy()
    changed[..., 0] = np.abs(changed[..., 0])
    return changed


def a_fifth_too_short(noise: Array, rng: np.random.Generator) -> Array:
    return 0.8 * noise


FAULTS: dict[Callable[[Array, np.random.Generator], Array], str] = {
    same_direction_in_two_steps: "not fresh",
    same_vector_in_all_nodes: "used again",
    one_sided: "prefers a direction",
    a_fifth_too_short: "not of the claimed size",
}


@pytest.mark.parametrize("features", [1, 2, 5])
@pytest.mark.parametrize("fault", FAULTS)
def test_faults_are_named(fault: Callable[[Array, np.random.Generator], Array], features: int) -> None:
    rng = np.random.default_rng(features)
    found = findings(fault(gamma_noise(rng, features), rng))
    assert any(FAULTS[fault] in finding for finding in found), found


@pytest.mark.parametrize("n", [5, 60, 3000])
def test_the_p_value_is_scipys(n: int) -> None:
    """Never below the exact one, and at most twice it where it matters."""
    for seed, power in ((1, 1.0), (2, 1.15), (3, 1.6)):
        uniform = np.random.default_rng(seed).random(n) ** power
        exact = stats.kstest(uniform, "uniform", method="exact").pvalue
        assert exact * (1 - 1e-6) <= kolmogorov_smirnov(uniform) <= max(2.0 * exact * (1 + 1e-6), 1e-300) or exact > 0.4
