"""Noise that neighbours share: its covariance, what it is worth against whom, accounts, audit, and the same bits everywhere."""

import itertools
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
import tomli_w
from scipy.stats import multivariate_normal, norm
from support import PROGRAMS, Raw, command, network_plan, planned, result_of

from dpadmm_mpi.audit import audit
from dpadmm_mpi.errors import InputError
from dpadmm_mpi.methods.decentralised import algorithm
from dpadmm_mpi.methods.decentralised import plan as planning
from dpadmm_mpi.methods.decentralised.algorithm import DataNode
from dpadmm_mpi.methods.decentralised.audit import read_transcript
from dpadmm_mpi.methods.decentralised.audited_steps import Pairs
from dpadmm_mpi.privacy import correlated_noise
from dpadmm_mpi.privacy.correlated_noise import worth
from dpadmm_mpi.privacy.noises import CorrelatedGaussian
from dpadmm_mpi.privacy.perturbations import Objective
from dpadmm_mpi.problems.local_problems import LocalProblems
from dpadmm_mpi.storage.compare import compare
from dpadmm_mpi.types import Array, Ints

GRAPHS = {
    "path": nx.path_graph(4),
    "star": nx.star_graph(4),
    "house": nx.house_graph(),
    "barbell": nx.barbell_graph(3, 1),
    "complete": nx.complete_graph(5),
}


def neighbours_of(graph: Any) -> list[list[int]]:
    return [sorted(graph[i]) for i in range(len(graph))]


def drawn(graph: Any, ratio: float, address: tuple[int, range, Ints, int], std: Array) -> Array:
    """What nodes of this graph add, as a data step of theirs draws it."""
    seed, runs, nodes, t = address
    noise, neighbours = CorrelatedGaussian(noise_std=1.0, edge_ratio=ratio), tuple(map(tuple, neighbours_of(graph)))
    plan, _ = network_plan(configuration(noise_std=1.0))
    settings = replace(
        plan.settings, perturbation=Objective(noise=noise), parameter=np.tile(std, (t + 1, 1)), neighbours=neighbours, seed=seed
    )
    settings = replace(settings, degree=np.array([len(nb) for nb in neighbours]))
    return DataNode(settings, nodes, LocalProblems([]), runs).noise(t)


def conditional_std(graph: Any, ratio: float, node: int, colluders: tuple[int, ...]) -> float:
    """By the joint covariance of all nodes' noise and of the colluders' edges, and the formula of the conditional variance."""
    incidence = nx.incidence_matrix(graph, nodelist=range(len(graph)), oriented=True).toarray()
    known = [k for k, edge in enumerate(graph.edges) if set(edge) & set(colluders)]
    joint = np.vstack([np.hstack([np.eye(len(graph)), ratio * incidence]), np.eye(len(graph) + len(graph.edges))[len(graph) :]])
    joint = joint[[*range(len(graph)), *(len(graph) + k for k in known)]]
    C = joint @ joint.T
    rest = [k for k in range(len(C)) if k != node]
    return float(np.sqrt(C[node, node] - C[node, rest] @ np.linalg.pinv(C[np.ix_(rest, rest)], rcond=1e-12) @ C[rest, node]))


@pytest.mark.parametrize("name", GRAPHS)
def test_the_covariance_is_that_of_the_laplacian_and_the_shared_parts_cancel(name: str) -> None:
    """20,000 draws: within five standard errors of s^2 (I + r^2 L); the sum over the nodes is that of their own parts."""
    graph, count, std, ratio = GRAPHS[name], 5000, 0.5, 1.5
    nodes = np.arange(len(graph))
    address, parameter = (7, range(count), nodes, 3), np.full(len(graph), std)
    noise, own = (drawn(graph, r, address, parameter) for r in (ratio, 0.0))
    np.testing.assert_allclose(noise.sum(axis=1), own.sum(axis=1), atol=1e-12)
    samples = noise.transpose(0, 2, 1).reshape(-1, len(graph))
    expected = std**2 * (np.eye(len(graph)) + ratio**2 * nx.laplacian_matrix(graph, range(len(graph))).toarray())
    error = np.sqrt((np.outer(np.diag(expected), np.diag(expected)) + expected**2) / len(samples))
    assert (np.abs(samples.T @ samples / len(samples) - expected) < 5 * error).all()
    between = np.mean(noise[:-1] * noise[1:], axis=(0, 2)), np.mean(noise[..., :-1] * noise[..., 1:], axis=(0, 2))
    assert (np.abs(between) < 5 * np.diag(expected) / np.sqrt(3 * count)).all()  # runs and features have noise of their own


@pytest.mark.parametrize("ratio", [0.0, 0.7, 5.0])
@pytest.mark.parametrize("name", GRAPHS)
def test_worth_against_dense_matrices(name: str, ratio: float) -> None:
    """Named coalitions exactly, any k as the worst of all; never below noise_std, nor below the bound for many nodes."""
    graph = GRAPHS[name]
    for k in range(len(graph)):
        sets = list(itertools.combinations(range(len(graph)), k))
        least = [min(conditional_std(graph, ratio, i, s) for s in sets if i not in s) for i in range(len(graph))]
        found = worth(neighbours_of(graph), ratio, k)
        np.testing.assert_allclose(found.factor, least, rtol=1e-8)
        assert (found.factor >= 1.0 - 1e-12).all()
        bound = correlated_noise._by_own_edges(neighbours_of(graph), ratio, [tuple(nb[:k]) for nb in neighbours_of(graph)])
        assert (bound.factor <= found.factor * (1 + 1e-9)).all()
        if name == "star":
            assert bound.factor[0] == pytest.approx(found.factor[0])
    for together in ((0,), (1, 3), (0, 1, 2)):
        found = worth(neighbours_of(graph), ratio, together)
        expected = [conditional_std(graph, ratio, i, tuple(j for j in together if j != i)) for i in range(len(graph))]
        np.testing.assert_allclose(found.factor, expected, rtol=1e-8)


def test_many_nodes_have_the_bound_of_their_own_edges() -> None:
    ring = [sorted(((i - 1) % 2000, (i + 1) % 2000)) for i in range(2000)]
    for colluders, left in ((0, 2), (1, 1), (2, 0)):
        found = worth(ring, 1.0, colluders)
        assert not found.exact
        np.testing.assert_allclose(found.factor, np.sqrt(1 + left / 2))
    assert worth(ring, 1.0, [3]).factor[[2, 3, 4, 9]] == pytest.approx(np.sqrt([1.5, 2.0, 1.5, 2.0]))


def configuration(perturbation: str = "objective", **privacy: Any) -> Raw:
    return {
        "seed": 2, "runs": 6, "iterations": 4,
        "data": {"records": 300, "features": 4, "train": 240},
        "network": {"graph": "ring", "nodes": 6},
        "problem": {"C": 5.0, "rho": 0.1},
        "algorithm": {"method": "m-admm", "eta": 0.5},
        "privacy": {"perturbation": perturbation, "noise": "correlated-gaussian", "edge_ratio": 2.0} | privacy,
        "record": {"trajectory": True},
    }  # fmt: skip


def test_without_shared_parts_it_is_the_gaussian_noise_to_the_bit() -> None:
    plain = result_of(
        configuration(noise="gaussian", noise_std=0.3)
        | {"privacy": {"perturbation": "objective", "noise": "gaussian", "noise_std": 0.3}}
    )
    shared = result_of(configuration(noise_std=0.3, edge_ratio=0.0))
    for name in ("trajectory", "loss", "privacy/node_epsilon", "privacy/noise_std"):
        assert np.array_equal(plain[name], shared[name], equal_nan=True), name
    assert "privacy/worth" in shared and "privacy/worth" not in plain


def test_accounts_are_those_of_the_conditional_deviation() -> None:
    """Noise on the release: sqrt(T) Delta / (s worth) Gaussian privacy, by the exact formula; more colluders cost more."""
    ring, spent = nx.cycle_graph(6), []
    for colluders in (0, 1, 2):
        result = result_of(configuration("primal", noise_std=0.05, colluders=colluders))
        std = 0.05 * conditional_std(ring, 2.0, 0, ((), (1,), (1, 5))[colluders])
        mu = 2.0 * (2.0 * 5.0 / 40) / (0.1 / 6 + 2 * 0.5 * 2) / std  # sqrt(T) times the sensitivity 2 C/B over the curvature
        epsilon = float(result["privacy/epsilon"][-1])
        delta = norm.cdf(mu / 2 - epsilon / mu) - np.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu)
        assert delta == pytest.approx(1e-5, rel=1e-3)
        spent.append(epsilon)
        assert result["privacy/worth"] == pytest.approx(np.full(6, std / 0.05))
        assert result["privacy/eavesdropper_epsilon"].max() == pytest.approx(spent[0])
        assert ("privacy/pair_epsilon" in result) == (colluders > 0)  # a neighbour knows seeds, whom 0 colluders leave out
        assert any("secret seeds" in note for note in result.attributes["/"]["notes"].splitlines())
        if colluders:
            assert np.nanmax(result.epsilon_against(*range(colluders))) <= spent[-1]
            with pytest.raises(InputError, match=f"hold against {colluders} of them who pool their seeds"):
                result.epsilon_against(*range(colluders + 1))
    assert spent[0] < spent[1] < spent[2]
    plain = {"perturbation": "primal", "noise": "gaussian", "noise_std": 0.05}
    assert spent[2] == pytest.approx(result_of(configuration() | {"privacy": plain})["privacy/epsilon"][-1])


@pytest.mark.parametrize("perturbation", ["objective", "penalty", "primal"])
def test_a_target_is_met_with_less_noise_of_ones_own(perturbation: str) -> None:
    plain = {"perturbation": perturbation, "noise": "gaussian", "target": 8.0}
    alone, _ = network_plan(configuration() | {"privacy": plain})
    shared, _ = network_plan(configuration(perturbation, target=8.0))
    for plan in (alone, shared):
        assert 7.98 < plan.accounts[-1].values[-1] <= 8.0
    ratio = alone.releases.parameter[0, 0] / shared.releases.parameter[0, 0]
    assert ratio == pytest.approx(conditional_std(nx.cycle_graph(6), 2.0, 0, (1,)), rel=3e-4)


@pytest.mark.parametrize("colluders", [0, 1, [1, 2]], ids=str)
@pytest.mark.parametrize("perturbation", ["objective", "dual", "primal"])
def test_the_audit_has_the_loss_of_the_joint_density(tmp_path: Path, perturbation: str, colluders: Any) -> None:
    """Finds nothing; and its exact loss of a step is the ratio of the joint densities of all honest nodes' noise."""
    path = tmp_path / "run.h5"
    result = result_of(configuration(perturbation, noise_std=0.3, colluders=colluders), path)
    assert audit(path, candidates=4).findings == []
    plan, dataset = network_plan(configuration(perturbation, noise_std=0.3, colluders=colluders))
    transcript = read_transcript(plan, result, dataset)
    assert transcript.shared is not None
    node, t, runs = 4, 2, slice(0, 3)
    view = transcript.view(node)
    pairs = Pairs(np.array([0, 3]), np.random.default_rng(1).uniform(-0.5, 0.5, (2, 4)))
    step = view.step(t, runs)
    shifts, found = view.step_as_drawn(t, runs).shifts(pairs), step.losses(pairs) - step.log_determinants(pairs)
    together = transcript.shared.colluders[node]
    honest = [i for i in range(6) if i not in together]
    laplacian = nx.laplacian_matrix(nx.cycle_graph(6).subgraph(honest), honest).toarray()
    law = multivariate_normal(np.zeros(len(honest)), 0.09 * (np.eye(len(honest)) + 4.0 * laplacian))
    own = noise_of(result, t, runs) - shared_with(together, result, t, runs)
    assert np.abs(transcript.drawn(t)[runs] - noise_of(result, t, runs)).max() < 1e-7
    for run, pair in itertools.product(range(3), range(2)):
        moved = own[run].copy()
        moved[node] += shifts[run, pair]
        densities = [law.logpdf(x[honest].T).sum() for x in (own[run], moved)]
        assert found[run, pair] == pytest.approx(densities[0] - densities[1], abs=1e-5)


def noise_of(result: Any, t: int, runs: slice) -> Array:
    """Drawn again from the addresses."""
    return drawn(nx.cycle_graph(6), 2.0, (2, range(6)[runs], np.arange(6), t), np.full(6, 0.3))


def shared_with(colluders: tuple[int, ...], result: Any, t: int, runs: slice) -> Array:
    """The noise of a ring of which only the colluders' edges are left, without the nodes' own."""
    edges = nx.Graph([edge for edge in nx.cycle_graph(6).edges if set(edge) & set(colluders)])
    edges.add_nodes_from(range(6))
    sums = correlated_noise.shared_noise(2, range(6)[runs], np.arange(6), t, neighbours_of(edges), 4)
    return 0.6 * sums


def test_the_audit_catches_an_account_that_ignores_the_colluders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "run.h5"
    monkeypatch.setattr(planning, "_worth", lambda noise, parameter, topology: worth(topology.neighbours, noise.edge_ratio, 0))
    result_of(configuration(noise_std=0.3), path)
    found = audit(path, candidates=2).findings
    assert len([finding for finding in found if "the accounts take the noise of node" in finding]) == 6


def test_the_audit_catches_shared_parts_that_do_not_cancel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ends add what they share, and no end does: the covariance is not the claimed one."""
    honest = correlated_noise.shared_noise
    signs = np.array([1.0, -1.0] * 3)  # on this ring a node's neighbours are of the other sign, so both ends now agree
    for name, planted in (("added", lambda *a: signs[a[2], None] * honest(*a)), ("none", lambda *a: 0.0 * honest(*a))):
        monkeypatch.setattr(algorithm, "shared_noise", planted)
        raw = configuration(noise_std=0.3) | {"runs": 20}
        path = tmp_path / f"{name}.h5"
        result_of(raw, path)
        assert any("noise" in finding and "p =" in finding for finding in audit(path, candidates=2).findings), name


@pytest.mark.parametrize(
    ("privacy", "words"),
    [
        ({"noise_std": [0.1, 0.2, 0.1, 0.1, 0.1, 0.1]}, 'noise = "correlated-gaussian" has one for all nodes'),
        ({"noise_std": 0.1, "colluders": [7]}, r"privacy.colluders: found \[7\]; there are the nodes 0 to 5"),
        ({"noise_std": 0.1, "colluders": [1, 1]}, "each once"),
        ({"noise_std": 0.1, "edge_ratio": -1.0}, "privacy.edge_ratio"),
        ({"noise_std": 0.1, "edge_std": 1.0}, "edge_std"),
    ],
    ids=str,
)
def test_what_does_not_fit_is_a_sentence(privacy: Raw, words: str) -> None:
    with pytest.raises(InputError, match=words):
        planned(configuration(**privacy))


@pytest.fixture(scope="module")
def serial(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("correlated")
    raw = configuration("penalty", noise_std=0.3) | {"runs": 2, "iterations": 5}
    raw["network"] = {"graph": "random", "nodes": 7, "probability": 0.5}
    raw["record"] = {"trajectory": True, "checkpoint": 1}
    (folder / "c.toml").write_text(tomli_w.dumps(raw))
    process = command("run", folder / "c.toml", "-o", folder / "serial.h5")
    assert process.returncode == 0, process.stderr
    return folder


@pytest.mark.parametrize("ranks", [3, 6])
def test_same_bits_on_several_ranks(serial: Path, ranks: int) -> None:
    process = command("run", serial / "c.toml", "-o", serial / f"{ranks}.h5", ranks=ranks)
    assert process.returncode == 0, process.stderr
    assert list(compare(serial / "serial.h5", serial / f"{ranks}.h5")) == []


def test_same_bits_after_a_kill(serial: Path) -> None:
    job = ("run", serial / "c.toml", "-o", serial / "killed.h5", "--resume")
    assert command(0, 12, *job, program=PROGRAMS / "mortal.py").returncode == -signal.SIGKILL
    process = command(*job)
    assert process.returncode == 0, process.stderr
    assert list(compare(serial / "serial.h5", serial / "killed.h5")) == []
