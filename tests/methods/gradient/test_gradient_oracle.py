"""Every baseline against a plain implementation that shares no code with the package, without noise at the optimum, and on a
complete graph against its centralised form."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from oracles import gradient as oracle
from oracles.network import Node, centralised_optimum
from support import NEIGHBOURS, MakeConfig, Raw, dense, planned, result_of, shard_of

from dpadmm_mpi.errors import InputError, RunError
from dpadmm_mpi.methods import Plan, parse
from dpadmm_mpi.privacy.noises import Gamma, Gaussian, draw
from dpadmm_mpi.types import Array

SIGMA = 0.3


def baseline(make: MakeConfig, method: str, *, noise: Raw | None = None, algorithm: Raw | None = None, **sections: Any) -> Raw:
    """Six nodes with degrees 1 to 4 and uneven shards; without noise unless it is given."""
    return make("admm", **sections) | {
        "name": method,
        "algorithm": {"method": method, "init": "random"} | (algorithm or {}),
        "privacy": {"perturbation": "none"} if noise is None else noise,
    }


def plain_nodes(raw: Raw) -> tuple[Plan[Any], list[Node]]:
    plan, dataset = planned(raw)
    shards = [shard_of(dataset, i) for i in range(plan.nodes)]
    C, rho = raw["problem"]["C"], raw["problem"]["rho"]
    return plan, [Node(dense(shard.X), shard.y, C, rho, plan.nodes) for shard in shards]


def gaussian(run: int, features: int = 4, sigma: Callable[[int], float] = lambda t: SIGMA) -> Callable[[int, int], Array]:
    """(t, i) -> the noise of one run, node by node."""

    def at(t: int, i: int) -> Array:
        drawn = draw(Gaussian(), 11, range(run, run + 1), np.array([i]), t, np.array([sigma(t)]), features)
        return np.asarray(drawn[0, 0])

    return at


@pytest.mark.parametrize(
    ("method", "options", "mixing"),
    [
        ("dp-dgd", {"momentum": 0.6, "step": {"first": 0.4, "ratio": 0.9}}, 1),
        ("dp-dgd", {"momentum": 0.0, "step": 0.5}, 1),
        ("gossip", {"mixing_steps": 3, "momentum": 0.0, "step": [0.5, 0.4, 0.3]}, 3),
        ("gossip", {"mixing_steps": 4, "momentum": 0.5, "step": 0.2}, 4),
    ],
)
def test_descent(config: MakeConfig, method: str, options: Raw, mixing: int) -> None:
    """All that is sent, noise included, in both runs; seven to nine iterations, so that the last mixing may be cut off."""
    iterations = {1: 7, 3: 9, 4: 7}[mixing]
    noise = {"perturbation": "gaussian", "noise_std": {"first": SIGMA, "ratio": 1.1}}
    raw = baseline(config, method, noise=noise, iterations=iterations, runs=2, algorithm=options)
    found = result_of(raw)["trajectory"]
    _, nodes = plain_nodes(raw)
    count, step = -(-iterations // mixing), options["step"]
    if isinstance(step, dict):
        step = [step["first"] * step["ratio"] ** k for k in range(count)]
    steps = step if isinstance(step, list) else [step] * count
    for run in range(2):
        expected = oracle.descent(
            lambda i, x: nodes[i].gradient(x),
            found[run, 0],
            oracle.metropolis(NEIGHBOURS),
            steps=steps,
            momentum=options.get("momentum", 0.0),
            mixing=mixing,
            noise=gaussian(run, sigma=lambda t: SIGMA * 1.1 ** ((t - 1) // mixing)),
        )
        np.testing.assert_allclose(found[run], expected[: iterations + 1], atol=1e-11)


def test_tracking(config: MakeConfig) -> None:
    raw = baseline(
        config,
        "dp-gradient-tracking",
        noise={"perturbation": "gaussian", "noise_std": SIGMA},
        iterations=8,
        runs=2,
        algorithm={"step": 0.2},
    )
    found = result_of(raw)
    _, nodes = plain_nodes(raw)
    for run in range(2):
        start, W = found["trajectory"][run, 0], oracle.metropolis(NEIGHBOURS)
        points, trackers = oracle.tracking(lambda i, x: nodes[i].gradient(x), start, W, [0.2] * 8, gaussian(run))
        np.testing.assert_allclose(found["trajectory"][run], points, atol=1e-11)
        np.testing.assert_allclose(found["tracker_trajectory"][run], trackers, atol=1e-11)


@pytest.mark.parametrize("perturbation", ["none", "objective", "primal"])
def test_one_shot(config: MakeConfig, perturbation: str) -> None:
    """Each node's own solution, with noise in its objective or on it, then Chebyshev's polynomials of W."""
    noise = {"perturbation": perturbation} | ({} if perturbation == "none" else {"alpha": 5.0, "allow_unproven": True})
    if perturbation == "primal":
        del noise["allow_unproven"]
    raw = baseline(config, "one-shot", noise=noise, iterations=6, algorithm={"eta": 0.3})
    found = result_of(raw)["trajectory"][0]
    _, nodes = plain_nodes(raw)
    solutions = np.empty((6, 4))
    for i, node in enumerate(nodes):
        e = draw(Gamma(), 11, range(1), np.array([i]), 1, np.array([5.0]), 4)[0, 0]
        inside, outside = (e if perturbation == kind else np.zeros(4) for kind in ("objective", "primal"))
        solutions[i] = oracle.solved(node, inside, 0.3) + outside
    np.testing.assert_allclose(found[1], solutions, atol=1e-8)
    for k in range(1, 6):
        mixed = oracle.gossip_matrix(oracle.metropolis(NEIGHBOURS), k) @ solutions
        np.testing.assert_allclose(found[1 + k], mixed, atol=1e-8)


def test_the_floor_solves_for_all_records_at_once(config: MakeConfig) -> None:
    """C times the mean over all records and rho/N of the ridge, whoever had the records; noise once."""
    noise = {"perturbation": "objective", "alpha": 5.0}
    raw = baseline(config, "central-objective", noise=noise, iterations=3, algorithm={"eta": 0.1})
    found = result_of(raw)["trajectory"][0]
    plan, dataset = planned(raw | {"algorithm": {"method": "admm"}, "privacy": {}})
    shards = [shard_of(dataset, i) for i in range(plan.nodes)]
    X, y = np.concatenate([dense(s.X) for s in shards]), np.concatenate([s.y for s in shards])
    e = draw(Gamma(), 11, range(1), np.array([0]), 1, np.array([5.0]), 4)[0, 0]
    expected = oracle.solved(Node(X, y, 3.0, 0.5, 6), e, 0.1)
    for t in (1, 2, 3):
        np.testing.assert_allclose(found[t, 0], expected, atol=1e-8)


# Without noise


WELL_CONDITIONED: Raw = {
    "problem": {"C": 1.0, "rho": 10.0},
    "record": {"trajectory": False, "optimum": True, "every": 5000},
}
DENSE: Raw = {"graph": "pairs", "pairs": [[i, j] for i in range(6) for j in range(i) if (i, j) != (5, 0)]}


@pytest.mark.parametrize(
    ("method", "iterations", "options"),
    [
        ("dp-dgd", 2600, {"step": {"ratio": 0.993}, "momentum": 0.5}),
        ("gossip", 1200, {"step": 0.5, "momentum": 0.0, "mixing_steps": 40}),
        ("dp-gradient-tracking", 500, {"step": 0.1}),
        ("central-objective", 1, {}),
    ],
)
def test_without_noise_at_the_optimum(config: MakeConfig, method: str, iterations: int, options: Raw) -> None:
    """Descent with a step that decays, on a dense graph, or with much mixing; tracking with a constant step, the floor at once:
    1e-6 of the optimum's norm. Where the step ends to decay, descent is as far away as the nodes' objectives differ."""
    raw = baseline(config, method, iterations=iterations, algorithm=options, **WELL_CONDITIONED)
    if method == "dp-dgd":
        raw["network"] = DENSE
        raw["data"] |= {"records": 3000, "train": 2800}
    assert result_of(raw)["distance_to_optimum"][0, -1] < 1e-6


def test_a_constant_step_does_not_end_at_the_optimum(config: MakeConfig) -> None:
    """The gap is of the order of the step: half of it with half the step."""
    gaps = []
    for step in (0.1, 0.05):
        raw = baseline(config, "dp-dgd", iterations=300, algorithm={"step": step, "momentum": 0.0}, **WELL_CONDITIONED)
        raw["network"] = DENSE
        gaps.append(float(result_of(raw)["distance_to_optimum"][0, -1]))
    assert gaps[0] > 1e-3
    assert gaps[1] == pytest.approx(0.5 * gaps[0], rel=0.15)


def test_the_floors_optimum_is_everybodys_where_the_shards_are_equal(config: MakeConfig) -> None:
    data = {"split": "even", "concentration": None, "train": 192}
    raw = baseline(config, "central-objective", iterations=1, data=data)
    everybody = raw | {"algorithm": {"method": "admm"}}
    _, nodes = plain_nodes(everybody)
    np.testing.assert_allclose(result_of(raw)["final/primal"][0, 0], centralised_optimum(nodes, 4), atol=1e-8)


@pytest.mark.parametrize(
    ("target", "problem"),
    [
        ("number", {"loss": "huber-regression"}),
        ("classes", {"loss": "softmax"}),
        ("binary", {"regulariser": "pseudo-huber", "strength": 0.5}),
    ],
)
def test_other_losses_and_regularisers(tmp_path: Any, config: MakeConfig, target: str, problem: Raw) -> None:
    """Numbers, three classes, another regulariser: tracking and the floor end at the optimum of the package's own search, and a
    private run of each method is accounted for."""
    rng = np.random.default_rng(5)
    X = rng.standard_normal((90, 3))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    y = {
        "number": X @ np.array([0.5, -0.3, 0.2]) + 0.1 * rng.standard_normal(90),
        "classes": rng.integers(0, 3, 90).astype(np.float64),
        "binary": np.where(X[:, 0] > 0.1, 1.0, -1.0),
    }[target]
    np.savez(tmp_path / "records.npz", X=X, y=y)
    data = {"source": "npz", "path": str(tmp_path / "records.npz"), "train": 0.8, "split": "uneven", "concentration": 5.0}
    if target != "binary":
        data["target"] = target
    terms = {"C": 1.0, "rho": 5.0} | problem
    for method, iterations in (("dp-gradient-tracking", 500), ("central-objective", 1)):
        options: Raw = {"step": 0.1} if method == "dp-gradient-tracking" else {}
        record = {"optimum": True, "trajectory": False, "every": 500}
        raw = baseline(config, method, iterations=iterations, record=record, algorithm=options)
        raw |= {"data": data, "problem": terms}
        assert result_of(raw)["distance_to_optimum"][0, -1] < 1e-6
    for method in ("dp-dgd", "gossip", "dp-gradient-tracking"):
        noise = {"perturbation": "gaussian", "target": 2.0}
        raw = baseline(config, method, noise=noise, iterations=4) | {"data": data, "problem": terms}
        result = result_of(raw)
        assert result["privacy/epsilon_sound"][-1] == pytest.approx(2.0, rel=1e-9)


# On a complete graph


@pytest.mark.parametrize("method", ["dp-dgd", "gossip", "dp-gradient-tracking"])
def test_on_a_complete_graph_the_mean_is_centralised(config: MakeConfig, method: str) -> None:
    """One machine with all gradients, averaged with their noise, and the same steps: to 1e-12."""
    options: Raw = {"step": 0.4} | ({"momentum": 0.7} if method != "dp-gradient-tracking" else {})
    mixing = 2 if method == "gossip" else 1
    options |= {"mixing_steps": mixing} if method == "gossip" else {}
    noise = {"perturbation": "gaussian", "noise_std": SIGMA}
    raw = baseline(config, method, noise=noise, iterations=8, algorithm=options)
    raw["network"] = {"graph": "complete", "nodes": 6}
    found = result_of(raw)["trajectory"][0]
    _, nodes = plain_nodes(raw)
    x, m, draws = found[0].mean(axis=0), np.zeros(4), gaussian(0)
    for t in range(1, 9):
        if (t - 1) % mixing == 0:
            m = options.get("momentum", 0.0) * m + np.mean([nodes[i].gradient(x) + draws(t, i) for i in range(6)], axis=0)
            x = x - 0.4 * m
        np.testing.assert_allclose(found[t].mean(axis=0), x, atol=1e-12)
        if (t - 1) % mixing:  # a pure mixing step: everybody agrees
            np.testing.assert_allclose(found[t], np.tile(x, (6, 1)), atol=1e-12)


def test_on_a_complete_graph_one_shot_is_the_plain_average(config: MakeConfig) -> None:
    raw = baseline(config, "one-shot", noise={"perturbation": "primal", "alpha": 5.0}, iterations=4)
    raw["network"] = {"graph": "complete", "nodes": 6}
    found = result_of(raw)["trajectory"][0]
    for t in (2, 3, 4):
        np.testing.assert_allclose(found[t], np.tile(found[1].mean(axis=0), (6, 1)), atol=1e-12)


# What is refused


def test_what_does_not_fit_is_refused(config: MakeConfig) -> None:
    def run(method: str, noise: Raw | None = None, **algorithm: Any) -> None:
        result_of(baseline(config, method, noise=noise, algorithm=algorithm))

    with pytest.raises(RunError, match=r"the steps diverged; lower algorithm.step"):
        result_of(baseline(config, "dp-dgd", iterations=400, algorithm={"step": 50.0}, problem={"C": 3.0, "rho": 5.0}))
    with pytest.raises(InputError, match=r"algorithm.step: found a list of 2; one for each gradient is needed, 6"):
        run("dp-dgd", step=[0.1, 0.2])
    with pytest.raises(InputError, match=r"privacy.target: dp-dgd needs one of privacy.target"):
        run("dp-dgd", noise={"perturbation": "gaussian"})
    with pytest.raises(InputError, match=r"privacy.mu: is of the curated methods"):
        run("gossip", noise={"perturbation": "gaussian", "noise_std": 1.0, "mu": 0.5})
    with pytest.raises(InputError, match="does not go with one-shot, which takes none, objective or primal"):
        parse(baseline(config, "one-shot", noise={"perturbation": "dual", "alpha": 1.0}))
