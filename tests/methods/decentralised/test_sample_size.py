"""[R] section VI and Appendix E: the noise's tail and cost, noise that is kept, and records enough for a classifier."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from oracles.network import Node
from scipy.optimize import minimize
from support import Raw, command, dense, network_plan, result_of, shard_of

from dpadmm_mpi.methods.decentralised import sample_size
from dpadmm_mpi.privacy.noises import Gamma, draw
from dpadmm_mpi.types import Array

KEPT = '''
import numpy as np
import dpadmm_mpi as dp
from dpadmm_mpi.privacy.noises import Gamma


@dp.noise("kept")
class Kept(Gamma):
    """The same vector in every iteration, as [R] VI.B has it from one iteration on."""

    def samples(self, rngs, count, features):
        drawn = np.empty((count, features))
        for k, rng in enumerate(rngs):
            drawn[k] = np.cos(np.arange(features) + k)
        return drawn
'''


@pytest.mark.parametrize(("features", "alpha"), [(1, 2.0), (4, 0.5), (20, 3.0)])
def test_the_norm_of_the_noise_and_what_it_costs(features: int, alpha: float) -> None:
    """Lemmas E.3, E.2 and E.1 over 20,000 and 40 draws of the package's noise; the minima are scipy's."""
    beta, ridge = 0.05, 0.3
    drawn = draw(Gamma(alpha=alpha), 3, range(20_000), np.array([0]), 1, np.array([alpha]), features)[:, 0]
    bound = sample_size.noise_norm(features, alpha, beta)
    norms = np.linalg.norm(drawn, axis=1)
    error = np.sqrt(beta * (1 - beta) / len(norms))  # with one feature the bound is the quantile itself
    assert np.mean(norms > bound) <= beta + 4 * error
    assert norms.mean() == pytest.approx(features / alpha, abs=4 * norms.std() / np.sqrt(len(norms)))  # the same alpha
    rng = np.random.default_rng(8)
    X = rng.normal(size=(30, features)) / np.sqrt(features)
    node = Node(X, np.sign(rng.normal(size=30)), 2.0, ridge * 5, 5)
    plain = _minimum(node, np.zeros(features))
    for noise in drawn[:40]:
        moved = _minimum(node, noise)
        norm = float(np.linalg.norm(noise))
        assert np.linalg.norm(moved - plain) <= norm / ridge * (1 + 1e-6)
        assert node.objective(moved) - node.objective(plain) <= sample_size.noise_cost(norm, ridge) * (1 + 1e-6)


def _minimum(node: Node, linear: Array) -> Array:
    def value(f: Array) -> float:
        return node.objective(f) + float(linear @ f)

    start = np.zeros(len(linear))
    found = minimize(value, start, jac=lambda f: node.gradient(f) + linear, method="BFGS", options={"gtol": 1e-10})
    return np.asarray(found.x)


def configuration(records: int, algorithm: Raw, iterations: int, seed: int = 0, **sections: Raw) -> Raw:
    return {
        "iterations": iterations,
        "seed": seed,
        "data": {"records": records, "features": 3, "train": 1.0},
        "network": {"graph": "complete", "nodes": 3},
        "problem": {"C": 2.0, "rho": 0.6},
        "algorithm": algorithm,
    } | sections


def test_noise_that_is_kept_leads_to_the_minimum_with_it(tmp_path: Path) -> None:
    """[R] VI.B: with e_i in every data step the nodes agree at argmin sum_i O_i + e_i.f, to 1e-6, and Delta falls to 0."""
    (tmp_path / "kept.py").write_text(KEPT)
    raw = configuration(90, {"method": "r-admm", "eta": 0.5, "gamma": 0.5}, 400)
    raw |= {
        "extensions": [str(tmp_path / "kept.py")],
        "privacy": {"perturbation": "objective", "noise": "kept", "alpha": [4.0, 5.0, 8.0], "allow_unproven": True},
    }
    result = result_of(raw)
    _, dataset = network_plan(raw)
    shards = [shard_of(dataset, i) for i in range(3)]
    nodes = [Node(dense(shard.X), shard.y, 2.0, 0.6, 3) for shard in shards]
    noise = np.array([np.cos(np.arange(3) + i) / alpha for i, alpha in enumerate((4.0, 5.0, 8.0))])

    def total(f: Array) -> float:
        return sum(node.objective(f) for node in nodes) + float(noise.sum(axis=0) @ f)

    def gradient(f: Array) -> Array:
        return np.asarray(sum(node.gradient(f) for node in nodes) + noise.sum(axis=0))

    expected = minimize(total, np.zeros(3), jac=gradient, method="BFGS", options={"gtol": 1e-10}).x
    assert np.abs(result["final/primal"][0] - expected).max() < 1e-6
    gap = np.abs(result["node_loss"][0, 1::2] - result["node_loss"][0, -1]).max(axis=1)  # Delta_i(k), the worst node's
    assert gap[-1] < 1e-6 < gap[0]


def test_delta_enters_the_sample_sizes(tmp_path: Path) -> None:
    """A measured Delta asks for more records, one above tau for more than there can be; `check --gap` says both."""
    free = result_of(configuration(90, {"method": "r-admm", "eta": 0.5}, 101))
    gap = float((free["node_loss"][0, 5] - free["node_loss"][0, -1]).max())
    assert gap > 0.0

    def plain(g: float) -> float:
        return sample_size.without_noise(1.0, 0.1, 0.05, g)

    def noisy(g: float) -> float:
        return sample_size.with_noise(1.0, 0.1, 0.05, 1e6, 3, 2.0, 3, gap=g)

    for size in (plain, noisy):
        assert size(0.05) == pytest.approx(4 * size(0.0))
        assert size(0.1) == np.inf
    assert plain(min(gap, 0.05)) > plain(0.0)
    path = tmp_path / "c.toml"
    path.write_text('[algorithm]\nmethod = "r-admm"\n[privacy]\nperturbation = "objective"\nalpha = 1.0\n')
    said = command("check", path, "--gap", "0.05").stdout
    assert f"Delta = 0.05, probability 0.95: w * {np.log(20) / 0.0025:.4g} without noise" in said
    assert "([R] Lemmas E.3 and E.1)" in said
    assert "no number is enough without noise" in command("check", path, "--gap", "0.2").stdout


def test_so_many_records_suffice_for_a_reference_classifier() -> None:
    """[R] Theorem VI.1 with w = 1: 40 draws of B records; the expected loss exceeds that of f_ref by more than tau in at most
    beta of them, with rho as in the proof. Too few records do exceed a small tau: the statement is not empty."""
    rng = np.random.default_rng(11)
    reference, beta = np.array([2.0, -1.0, 1.0, 0.5]), 0.05
    f_ref = float(np.linalg.norm(reference))
    big, labels = _records(rng, 100_000, reference)
    expected = np.mean(np.logaddexp(0.0, -labels * (big @ reference)))

    def excesses(B: int, tau: float) -> Iterator[float]:
        for _ in range(40):
            X, y = _records(rng, B, reference)
            node = Node(X, y, 1.0, tau / f_ref**2, 1)  # C = N = 1: rho = N C tau / ||f_ref||^2
            f = _minimum(node, np.zeros(4))
            yield float(np.mean(np.logaddexp(0.0, -labels * (big @ f))) - expected)

    tau = 0.3
    B = int(np.ceil(sample_size.without_noise(f_ref, tau, beta)))
    assert np.mean([excess > tau for excess in excesses(B, tau)]) <= beta
    assert np.mean([excess > 0.02 for excess in excesses(10, 0.02)]) > beta


def _records(rng: np.random.Generator, count: int, reference: Array) -> tuple[Array, Array]:
    X = rng.normal(size=(count, 4))
    X /= np.maximum(1.0, np.linalg.norm(X, axis=1, keepdims=True))
    y = np.where(rng.uniform(size=count) < 1.0 / (1.0 + np.exp(-X @ reference)), 1.0, -1.0)
    return X, y
