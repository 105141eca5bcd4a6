"""The noise in a recorded run is the noise of the papers: recovered through (KKT), tested with Kolmogorov and Smirnov."""

import numpy as np
import pytest
from conftest import EDGES, METHODS, shard_of
from reference import Node
from scipy import stats
from scipy.optimize import root

import dpadmm_mpi
from dpadmm_mpi import rng as streams
from dpadmm_mpi.config.options import files as configfile
from dpadmm_mpi.methods.base import make_plan

NEIGHBOURS = [sorted({j for edge in EDGES for j in edge if i in edge and j != i}) for i in range(6)]
LEVEL = 1e-4  # of each test, with a fixed seed: a false alarm now is a false alarm always


def recovered_noise(raw):
    """e_i(t) of all data steps, runs and nodes, as an eavesdropper who knows the records computes them."""
    result = dpadmm_mpi.run(raw)
    _, dataset = make_plan(configfile.load(raw).configs[0])
    nodes = [Node(s.X, s.y, raw["problem"]["C"], raw["problem"]["rho"], 6) for s in (shard_of(dataset, i) for i in range(6))]
    perturbation, recycles = raw["privacy"]["perturbation"], raw["algorithm"]["method"] in ("r-admm", "mr-admm")
    found = []
    for f in result["trajectory"]:
        lam = np.zeros(f.shape[1:])
        for t in range(1, len(f)):
            if recycles and t % 2 == 0:
                continue
            eta, theta = result["algorithm/eta"][t], result["algorithm/theta"][t]
            for i, nb in enumerate(NEIGHBOURS):

                def kkt(x, i=i, nb=nb, t=t, f=f, lam=lam, eta=eta):
                    pull = eta[i] * sum(2 * x - f[t - 1, i] - f[t - 1, j] for j in nb)
                    return nodes[i].gradient(x) + 2 * lam[i] + pull

                n = -kkt(f[t, i])
                if perturbation in ("dual", "penalty"):
                    n = n / (2 * eta[i] * len(nb))
                elif perturbation == "primal":
                    n = f[t, i] - root(kkt, f[t, i], tol=1e-13).x
                found.append(n * result["privacy/alpha"][t, i])
            lam = lam + np.array([theta[i] / 2 * sum(f[t, i] - f[t, j] for j in nb) for i, nb in enumerate(NEIGHBOURS)])
    return np.array(found)


@pytest.mark.parametrize("perturbation", ["dual", "penalty", "objective", "primal"])
@pytest.mark.parametrize("method", METHODS)
def test_recovered_noise_has_gamma_norm_and_uniform_direction(config, method, perturbation):
    """The noise times the recorded alpha, which differs between nodes and steps, or was found by calibration."""
    d = 3
    privacy = {"alpha": [{"first": 4.0 + i, "ratio": 0.95} for i in range(6)]}
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


def test_unit_noise_in_many_dimensions():
    from dpadmm_mpi.privacy.releases import noise

    e = noise(3, range(1), np.arange(3000), 0, np.ones(3000), 40)[0]
    norm = np.linalg.norm(e, axis=1)
    assert stats.kstest(norm, stats.gamma(40).cdf).pvalue > LEVEL
    # The square of a coordinate of a uniform direction is Beta(1/2, (d-1)/2).
    assert stats.kstest((e[:, 7] / norm) ** 2, stats.beta(0.5, 19.5).cdf).pvalue > LEVEL
    assert np.linalg.norm(np.mean(e / norm[:, None], axis=0)) < 3 / np.sqrt(len(e))


def test_addresses_are_streams_of_their_own():
    """Equal addresses give equal numbers; an address that differs in one place gives others, uncorrelated."""
    base = {"seed": 5, "purpose": streams.Purpose.NOISE, "run": 1, "node": 2, "iteration": 3}

    def draw(**changed):
        return streams.generator(**(base | changed)).standard_normal(1000)

    assert np.array_equal(draw(), draw())
    others = [draw(seed=6), draw(purpose=streams.Purpose.INIT), draw(run=2), draw(node=1), draw(iteration=2)]
    others.append(draw(run=2, node=1))  # the same digits elsewhere
    for other in others:
        assert abs(np.corrcoef(draw(), other)[0, 1]) < 5 / np.sqrt(1000)


def test_synthetic_labels_follow_the_known_classifier():
    """y = +1 with the stated probability: the sum of the errors is within four standard errors, in ten bins of w.x."""
    from dpadmm_mpi.data import synthetic

    shard = synthetic.records(9, 105, 20_000, node=0)
    score = shard.X @ synthetic.classifier(9, 105)
    p = 1 / (1 + np.exp(-(synthetic.SHARPNESS * score + synthetic.OFFSET)))
    for chunk in np.array_split(np.argsort(score), 10):
        surplus = np.sum((shard.y[chunk] > 0) - p[chunk])
        assert abs(surplus) < 4 * np.sqrt(np.sum(p[chunk] * (1 - p[chunk])))
    assert 0.1 < np.mean(shard.y > 0) < 0.5
