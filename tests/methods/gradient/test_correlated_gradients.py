"""Noise on gradients that neighbours share: draws, accounts with and without colluders, audit."""

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
import tomli_w
from scipy.stats import multivariate_normal, norm
from support import Raw, command, planned, result_of

from dpadmm_mpi.audit import audit
from dpadmm_mpi.errors import InputError
from dpadmm_mpi.methods import shared_noise
from dpadmm_mpi.methods.gradient import algorithm
from dpadmm_mpi.methods.gradient.plan import GradientPlan
from dpadmm_mpi.privacy import correlated_noise
from dpadmm_mpi.storage.compare import compare
from dpadmm_mpi.types import Array

METHODS = ("dp-dgd", "gossip", "dp-gradient-tracking")
RING, RATIO, STD = nx.cycle_graph(6), 2.0, 0.4
CORRELATED: Raw = {"perturbation": "correlated-gaussian", "edge_ratio": RATIO}


def configuration(method: str = "dp-dgd", **privacy: Any) -> Raw:
    return {
        "seed": 3, "runs": 20, "iterations": 6,
        "data": {"records": 300, "features": 4, "train": 240},
        "network": {"graph": "ring", "nodes": 6},
        "problem": {"C": 5.0, "rho": 0.1},
        "algorithm": {"method": method, "step": 0.1},
        "privacy": {"noise_std": STD, **({} if "perturbation" in privacy else CORRELATED), **privacy},
        "record": {"trajectory": True, "optimum": False},
    }  # fmt: skip


def plan_of(raw: Raw) -> GradientPlan:
    plan, _ = planned(raw)
    assert isinstance(plan, GradientPlan)
    return plan


def precision(node: int, colluders: tuple[int, ...]) -> float:
    """[Sigma^-1]_ii at noise_std = 1: by all that is drawn, of which the colluders' edges are known."""
    incidence = nx.incidence_matrix(RING, nodelist=range(6), oriented=True).toarray()
    known = [k for k, edge in enumerate(RING.edges) if set(edge) & set(colluders)]
    unknown = np.hstack([np.eye(6), RATIO * np.delete(incidence, known, axis=1)])
    return float(np.linalg.inv(unknown @ unknown.T)[node, node])


def delta_at(epsilon: float, mu: float) -> float:
    return float(norm.cdf(mu / 2 - epsilon / mu) - np.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu))


@pytest.mark.parametrize("method", METHODS)
def test_without_shared_parts_it_is_independent_noise_to_the_bit(method: str) -> None:
    plain = result_of(configuration(method, perturbation="gaussian"))
    shared = result_of(configuration(method, edge_ratio=0.0))
    for name in ("trajectory", "loss", "privacy/node_epsilon_sound", "privacy/noise_std"):
        assert np.array_equal(plain[name], shared[name], equal_nan=True), name
    assert "privacy/worth" in shared and "privacy/worth" not in plain


def test_the_shared_parts_cancel_in_the_sum_and_the_covariance_is_that_of_the_laplacian() -> None:
    """5,000 draws of 4 features: within five standard errors of s^2 (I + r^2 L)."""
    settings, nodes = plan_of(configuration()).settings, np.arange(6)
    noise, own = (algorithm.noise(replace(settings, edge_ratio=r), range(5000), nodes, 3) for r in (RATIO, None))
    np.testing.assert_allclose(noise.sum(axis=1), own.sum(axis=1), atol=1e-12)
    samples = noise.transpose(0, 2, 1).reshape(-1, 6)
    expected = STD**2 * (np.eye(6) + RATIO**2 * nx.laplacian_matrix(RING).toarray())
    error = np.sqrt((np.outer(np.diag(expected), np.diag(expected)) + expected**2) / len(samples))
    assert (np.abs(samples.T @ samples / len(samples) - expected) < 5 * error).all()


@pytest.mark.parametrize(("colluders", "worst"), [(0, ()), (1, (1,)), (2, (1, 5)), ([2, 3], (2, 3))], ids=str)
@pytest.mark.parametrize("method", METHODS)
def test_the_account_is_that_of_the_joint_covariance(method: str, colluders: Any, worst: tuple[int, ...]) -> None:
    """mu^2 = sum over the gradients of Delta^2 [Sigma^-1]_ii, of node 0; any k are the worst k, and named ones themselves."""
    raw = configuration(method, colluders=colluders) | {"runs": 1, "iterations": 4}
    plan = plan_of(raw)
    if isinstance(colluders, int):
        sets = itertools.combinations(range(1, 6), colluders)
        assert precision(0, worst) == pytest.approx(max(precision(0, together) for together in sets), rel=1e-12)
    mu = 2.0 * 5.0 / 40 / STD * np.sqrt(plan.releases.touches * precision(0, worst))
    epsilon = float(plan.accounts[0].node_values[-1, 0])
    assert plan.accounts[0].proven and delta_at(epsilon, mu) == pytest.approx(1e-5, rel=1e-6)
    known = plan.known_before
    outside = 2.0 * 5.0 / 40 / STD * np.sqrt(plan.releases.touches * precision(0, ()))
    assert delta_at(float(known["privacy/eavesdropper_epsilon"].values[0]), outside) == pytest.approx(1e-5, rel=1e-6)
    assert ("privacy/pair_epsilon" in known) == (colluders in (1, 2))  # a node knows seeds, whom 0 colluders leave out
    assert "privacy/pair_epsilon_printed" not in known
    if colluders in (1, 2):
        assert np.nanmax(known["privacy/pair_epsilon"].values[0]) == pytest.approx(epsilon)
    assert any("secret seeds" in note for note in plan.notes)


def test_the_account_holds_for_what_is_drawn() -> None:
    """Monte Carlo: delta of the joint densities of all honest nodes' noise, a record of node 0 against node 1 as the colluder.

    20,000 draws of one gradient, shifted along a feature by the sensitivity; E max(0, 1 - exp(epsilon - loss)) is delta, within
    five standard errors, because the bound is attained.
    """
    raw = configuration(colluders=1) | {"iterations": 1}
    raw["privacy"]["delta"] = 0.05
    plan, nodes, runs = plan_of(raw), np.arange(6), range(20_000)
    epsilon = float(plan.accounts[0].node_values[-1, 0])
    noise = algorithm.noise(plan.settings, runs, nodes, 1)[..., 0]
    edges = [[j for j in RING[i] if 1 in (i, j)] for i in range(6)]
    known = RATIO * STD * correlated_noise.shared_noise(raw["seed"], runs, nodes, 1, edges, 4)[..., 0]
    honest = [0, 2, 3, 4, 5]
    laplacian = nx.laplacian_matrix(RING.subgraph(honest), honest).toarray()
    law = multivariate_normal(np.zeros(5), STD**2 * (np.eye(5) + RATIO**2 * laplacian))
    seen, shift = (noise - known)[:, honest], np.eye(5)[0] * 2.0 * 5.0 / 40
    excess = np.maximum(0.0, -np.expm1(epsilon - (law.logpdf(seen) - law.logpdf(seen + shift))))
    assert abs(excess.mean() - 0.05) < 5 * excess.std() / np.sqrt(len(excess))


def test_a_target_is_met_with_less_noise_of_ones_own() -> None:
    alone = plan_of(configuration(perturbation="gaussian", noise_std=None, target=2.0) | {"runs": 1})
    shared = plan_of(configuration(noise_std=None, target=2.0) | {"runs": 1})
    assert 1.999 < shared.accounts[0].values[-1] <= 2.0
    ratio = alone.releases.noise_std / shared.releases.noise_std
    assert ratio == pytest.approx(precision(0, (1,)) ** -0.5, rel=1e-9) and ratio > 1.3


@pytest.mark.parametrize(("method", "colluders"), [("dp-dgd", 0), ("gossip", 1), ("dp-gradient-tracking", [1, 2])], ids=str)
def test_the_audit_finds_nothing_in_an_honest_run(tmp_path: Path, method: str, colluders: Any) -> None:
    path = tmp_path / "run.h5"
    result_of(configuration(method, colluders=colluders), path)
    assert audit(path, candidates=4).findings == []


def test_same_bits_on_three_ranks(tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text(tomli_w.dumps(configuration("gossip") | {"runs": 2}))
    for ranks in (1, 3):
        process = command("run", tmp_path / "c.toml", "-o", tmp_path / f"{ranks}.h5", ranks=ranks)
        assert process.returncode == 0, process.stderr
    assert list(compare(tmp_path / "1.h5", tmp_path / "3.h5")) == []


def half(*address: Any) -> Array:
    """Of every edge the smaller end adds its part, and the larger one takes nothing away."""
    seed, runs, nodes, t, neighbours, features = address
    larger = [[j for j in nb if j > i] for i, nb in enumerate(neighbours)]
    return correlated_noise.shared_noise(seed, runs, nodes, t, larger, features)


@pytest.mark.parametrize("method", METHODS)
def test_the_audit_catches_a_half_kept_ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str) -> None:
    monkeypatch.setattr(algorithm, "shared_noise", half)
    path = tmp_path / "run.h5"
    result_of(configuration(method), path)
    assert any("noise" in finding and "p =" in finding for finding in audit(path, candidates=2).findings)


def test_the_audit_catches_an_account_that_ignores_the_colluders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    planted = lambda noise, topology: correlated_noise.worth(topology.neighbours, noise.edge_ratio, 0)  # noqa: E731
    monkeypatch.setattr(shared_noise, "worth_of", planted)
    path = tmp_path / "run.h5"
    result_of(configuration(), path)
    found = [finding for finding in audit(path, candidates=2).findings if "the accounts take the noise of node" in finding]
    assert len(found) == 6


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (configuration(colluders=[7]), r"privacy.colluders: found \[7\]; there are the nodes 0 to 5"),
        ({"algorithm": {"method": "ps-admm"}, "privacy": CORRELATED}, '"correlated-gaussian" does not go with ps-admm'),
        ({"algorithm": {"method": "dp-admm"}, "privacy": CORRELATED}, '"correlated-gaussian" does not go with dp-admm'),
        (configuration(mu=0.5), "privacy.mu"),
    ],
    ids=["colluders", "star", "curated", "mu"],
)
def test_what_does_not_fit_is_a_sentence(raw: Raw, words: str) -> None:
    with pytest.raises(InputError, match=words):
        planned(raw)
