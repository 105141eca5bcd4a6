"""The noise in a recorded run is the noise of the papers: recovered through (KKT), tested with Kolmogorov and Smirnov."""

import numpy as np
import pytest
from oracles.network import Node
from scipy import stats
from scipy.optimize import root
from support import NEIGHBOURS, NETWORK_METHODS, PRIVATE, MakeConfig, Raw, dense, planned, result_of, shard_of

from dpadmm_mpi.privacy.noises import Gamma, draw
from dpadmm_mpi.types import Array

LEVEL = 1e-4  # of each test, with a fixed seed: a false alarm now is a false alarm always


def recovered_noise(raw: Raw) -> Array:
    """e_i(t) of all data steps, runs and nodes, as an eavesdropper who knows the records computes them."""
    result = result_of(raw)
    _, dataset = planned(raw)
    nodes = [
        Node(dense(s.X), s.y, raw["problem"]["C"], raw["problem"]["rho"], 6) for s in (shard_of(dataset, i) for i in range(6))
    ]
    perturbation, recycles = raw["privacy"]["perturbation"], raw["algorithm"]["method"] in ("r-admm", "mr-admm")
    found = []
    for f in result["trajectory"]:
        lam = np.zeros(f.shape[1:])
        for t in range(1, len(f)):
            if recycles and t % 2 == 0:
                continue
            eta, theta = result["algorithm/eta"][t], result["algorithm/theta"][t]
            for i, nb in enumerate(NEIGHBOURS):

                def kkt(x: Array, i: int = i, t: int = t, f: Array = f, lam: Array = lam, eta: Array = eta) -> Array:
                    pull = eta[i] * sum(2 * x - f[t - 1, i] - f[t - 1, j] for j in NEIGHBOURS[i])
                    return np.asarray(nodes[i].gradient(x) + 2 * lam[i] + pull)

                n = -kkt(f[t, i])
                if perturbation in ("dual", "penalty"):
                    n = n / (2 * eta[i] * len(nb))
                elif perturbation == "primal":
                    n = f[t, i] - root(kkt, f[t, i], tol=1e-13).x
                found.append(n * result["privacy/alpha"][t, i])
            lam = lam + np.array([theta[i] / 2 * sum(f[t, i] - f[t, j] for j in nb) for i, nb in enumerate(NEIGHBOURS)])
    return np.array(found)


@pytest.mark.parametrize("perturbation", PRIVATE)
@pytest.mark.parametrize("method", NETWORK_METHODS)
def test_recovered_noise_has_gamma_norm_and_uniform_direction(config: MakeConfig, method: str, perturbation: str) -> None:
    """The noise times the recorded alpha, which differs between nodes and steps, or was found by calibration."""
    d = 3
    privacy: Raw = {"alpha": [{"first": 4.0 + i, "ratio": 0.95} for i in range(6)]}
    if method == "r-admm":
        privacy = {"alpha": {"ratio": 0.9}, "target": 30.0}
    e = recovered_noise(config(method, perturbation, iterations=12, runs=8, features=d, privacy=privacy))
    assert len(e) == 8 * 6 * (6 if method in ("r-admm", "mr-admm") else 12)
    norm = np.linalg.norm(e, axis=1)
    assert stats.kstest(norm, stats.gamma(d).cdf).pvalue > LEVEL
    # In three dimensions a coordinate of a uniform direction is uniform on [-1, 1] (Archimedes).
    for axis in range(d):
        assert stats.kstest(e[:, axis] / norm, stats.uniform(-1, 2).cdf).pvalue > LEVEL
    # Noise of different nodes, iterations and runs is unrelated: neighbouring vectors have no correlation.
    assert abs(np.mean(np.sum(e[1:] * e[:-1], axis=1) / (norm[1:] * norm[:-1]))) < 4 / np.sqrt(3 * len(e))


def test_unit_noise_in_many_dimensions() -> None:
    e = draw(Gamma(alpha=1.0), 3, range(1), np.arange(3000), 0, np.ones(3000), 40)[0]
    norm = np.linalg.norm(e, axis=1)
    assert stats.kstest(norm, stats.gamma(40).cdf).pvalue > LEVEL
    # The square of a coordinate of a uniform direction is Beta(1/2, (d-1)/2).
    assert stats.kstest((e[:, 7] / norm) ** 2, stats.beta(0.5, 19.5).cdf).pvalue > LEVEL
    assert np.linalg.norm(np.mean(e / norm[:, None], axis=0)) < 3 / np.sqrt(len(e))
