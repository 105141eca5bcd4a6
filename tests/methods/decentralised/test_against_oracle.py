"""Every method with every perturbation against a plain implementation that shares no code with the package."""

from collections.abc import Callable
from typing import cast

import numpy as np
import pytest
from oracles.network import LOGISTIC, Node, centralised_optimum, huber, trajectory
from support import (
    NEIGHBOURS,
    NETWORK_METHODS,
    PERTURBATIONS,
    MakeConfig,
    Raw,
    dense,
    network_plan,
    planned,
    records_for_testing,
    result_of,
    shard_of,
)

from dpadmm_mpi.config import reading
from dpadmm_mpi.errors import RunError
from dpadmm_mpi.methods import centralised_optimum as centralised
from dpadmm_mpi.methods.decentralised.plan import NetworkPlan
from dpadmm_mpi.privacy.noises import Gamma, draw
from dpadmm_mpi.problems import batched as batch
from dpadmm_mpi.problems.local_problems import LocalProblems
from dpadmm_mpi.types import Array, Bools


def reference_nodes(raw: Raw) -> tuple[NetworkPlan, list[Node]]:
    """The records of every node, as the package deals them, in plain arrays."""
    plan, dataset = network_plan(raw)
    shards = [shard_of(dataset, i) for i in range(6)]
    C, rho = raw["problem"]["C"], raw["problem"]["rho"]
    loss = huber(raw["problem"]["width"]) if raw["problem"].get("loss") == "huber" else LOGISTIC
    return plan, [Node(dense(shard.X), shard.y, C, rho, 6, loss) for shard in shards]


def schedule(raw: Raw, key: str) -> Callable[[int, int], float]:
    """(t, i) -> value, written out again from the configuration."""
    value, recycles = raw["algorithm"][key], raw["algorithm"]["method"] in ("r-admm", "mr-admm")

    def at(t: int, i: int) -> float:
        step = (t + 1) // 2 if recycles else t
        v = value[i] if isinstance(value, list) else value
        return float(v["first"] * v["ratio"] ** (step - 1) if isinstance(v, dict) else v)

    return at


def one_noise(seed: int, run: int, node: int, t: int, alpha: float, features: int) -> Array:
    drawn = draw(Gamma(alpha=alpha), seed, range(run, run + 1), np.array([node]), t, np.array([alpha]), features)
    return np.asarray(drawn[0, 0])


@pytest.mark.parametrize("problem", [{}, {"loss": "huber", "width": 0.3}], ids=["logistic", "huber"])
@pytest.mark.parametrize("perturbation", PERTURBATIONS)
@pytest.mark.parametrize("method", NETWORK_METHODS)
def test_trajectory_equals_the_plain_implementation(config: MakeConfig, method: str, perturbation: str, problem: Raw) -> None:
    """Noise included, another alpha at every node: 1e-8 over 7 iterations, so that both kinds of last step occur."""
    alphas = [4.0, 5.0, 6.0, 4.5, 5.5, 6.5]
    sections: Raw = {"problem": problem}
    if perturbation != "none":
        sections["privacy"] = {"alpha": [{"first": alpha, "ratio": 1.0} for alpha in alphas]}
    if method in ("r-admm", "mr-admm"):
        sections["algorithm"] = {"gamma": 0.8}
    raw = config(method, perturbation, iterations=7, runs=2, **sections)
    result = result_of(raw)
    plan, nodes = reference_nodes(raw)
    eta = schedule(raw, "eta")
    smallest_first = min(eta(1, i) for i in range(6))
    theta: Callable[[int, int], float] = (lambda t, i: smallest_first) if method == "m-admm" else eta
    for run in range(2):

        def noise(t: int, i: int, run: int = run) -> Array:
            return one_noise(11, run, i, t, alphas[i], plan.features)

        expected = trajectory(
            nodes,
            NEIGHBOURS,
            start=result["trajectory"][run, 0],
            iterations=7,
            recycles=method in ("r-admm", "mr-admm"),
            eta=eta,
            theta=theta,
            gamma=0.8,
            perturbation=perturbation,
            noise=noise,
        )
        assert np.max(np.abs(result["trajectory"][run] - expected)) < 1e-8
    assert np.array_equal(result["final/primal"], result["trajectory"][:, -1])


COMMON: dict[str, float | Raw] = {"admm": 0.7, "r-admm": 0.7, "m-admm": 0.7, "mr-admm": {"first": 0.7, "ratio": 1.001}}
UNEQUAL = [0.5, 0.6, 0.55, 0.7, 0.65, 0.6]


@pytest.mark.parametrize(
    ("method", "algorithm"),
    [(method, {"eta": eta}) for method, eta in COMMON.items()]
    + [(method, {"eta": UNEQUAL, "theta": 0.5}) for method in ("m-admm", "mr-admm")]
    + [("mr-admm", {"eta": [{"first": e, "ratio": 1.001} for e in UNEQUAL], "theta": 0.5})],
)
@pytest.mark.parametrize("init", ["zero", "random"])
def test_without_noise_every_method_ends_at_the_centralised_optimum(
    config: MakeConfig, method: str, algorithm: Raw, init: str
) -> None:
    """Common penalties, or unequal ones with one theta: within 1e-7 of the optimum of an independent solver."""
    raw = config(method, iterations=900, algorithm=algorithm | {"init": init}, record={"every": 900, "trajectory": False})
    result = result_of(raw)
    _, nodes = reference_nodes(raw)
    optimum = centralised_optimum(nodes, 4)
    assert np.max(np.abs(result["final/primal"][0] - optimum)) < 1e-7


def test_unequal_penalties_as_printed_agree_elsewhere_and_the_run_says_so(config: MakeConfig) -> None:
    """SPEC 8.7: consensus, but percents away from the optimum; a note and the recorded distance say it."""
    raw = config(
        "mr-admm", iterations=900, algorithm={"eta": UNEQUAL, "theta": None}, record={"every": 900, "trajectory": False}
    )
    result = result_of(raw)
    _, nodes = reference_nodes(raw)
    optimum = centralised_optimum(nodes, 4)
    final = result["final/primal"][0]
    assert result["consensus_error"][0, -1] < 1e-8
    distance = np.linalg.norm(final.mean(axis=0) - optimum) / np.linalg.norm(optimum)
    assert distance > 1e-3
    assert result["distance_to_optimum"][0, -1] == pytest.approx(distance, rel=1e-6)
    assert "not at the optimum" in result.attributes["/"]["notes"]


def test_recorded_optimum_is_the_independent_one(config: MakeConfig) -> None:
    raw = config(iterations=1, record={"optimum": True})
    result = result_of(raw)
    _, nodes = reference_nodes(raw)
    optimum = centralised_optimum(nodes, 4)
    assert np.max(np.abs(result["optimum/primal"] - optimum)) < 1e-9
    assert result.attributes["optimum"]["objective"] == pytest.approx(sum(n.objective(optimum) for n in nodes), rel=1e-12)


def test_measurements_are_what_the_spec_says(config: MakeConfig) -> None:
    """L(t), objective, consensus error and test error of the recorded trajectory, computed again from the records."""
    raw = config("mr-admm", "objective", runs=2)
    result = result_of(raw)
    _, nodes = reference_nodes(raw)
    _, dataset = planned(raw)
    test = records_for_testing(dataset)
    for run in range(2):
        for t in range(7):
            f = result["trajectory"][run, t]
            losses = [np.mean(np.logaddexp(0, -node.y * (node.X @ f[i]))) for i, node in enumerate(nodes)]
            assert np.allclose(result["node_loss"][run, t], losses, rtol=1e-12)
            assert result["loss"][run, t] == pytest.approx(np.mean(losses), rel=1e-12)
            assert result["objective"][run, t] == pytest.approx(sum(n.objective(f[i]) for i, n in enumerate(nodes)), rel=1e-12)
            mean = f.mean(axis=0)
            assert result["consensus_error"][run, t] == pytest.approx(np.mean([np.linalg.norm(fi - mean) for fi in f]))
            wrong = np.mean([(1 if x @ mean >= 0 else -1) != y for x, y in zip(dense(test.X), test.y, strict=True)])
            assert result["test_error"][run, t] == wrong


def test_starting_points(config: MakeConfig) -> None:
    """Random: another one for every node and run, standard normal whatever the records; zero: zero."""
    start = result_of(config(runs=3, features=40))["trajectory"][:, 0].reshape(18, 40)
    assert len(np.unique(start[:, 0])) == 18
    assert abs(start.mean()) < 4 / np.sqrt(start.size)
    assert abs(start.std() - 1) < 4 / np.sqrt(2 * start.size)
    zero = result_of(config(algorithm={"init": "zero"}, data={"train": 100}))
    assert not zero["trajectory"][0, 0].any()
    assert zero["loss"][0, 0] == pytest.approx(np.log(2))


def test_a_prediction_of_zero_counts_as_plus_one(config: MakeConfig) -> None:
    """At the starting point zero everybody is predicted +1: the test error is the share of negative labels."""
    raw = config(algorithm={"init": "zero"})
    test = records_for_testing(planned(raw)[1])
    assert result_of(raw)["test_error"][0, 0] == np.mean(test.y < 0) > 0


def test_overflow_is_no_solution(config: MakeConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "HUGE", np.inf)  # a configuration with such a number is refused
    with pytest.raises(RunError, match="relative KKT residual of inf"):
        result_of(config(algorithm={"eta": 1e160}))


def test_an_optimum_that_nobody_asked_for_does_not_stop_the_run(config: MakeConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unequal dual steps ask for the distance to the optimum; if it cannot be found, it is nan."""
    monkeypatch.setattr(centralised, "TOLERANCE", -1.0)
    result = result_of(config("mr-admm"))
    assert np.isnan(result["distance_to_optimum"]).all()
    with pytest.raises(RunError, match="centralised optimum was found to a relative residual"):
        result_of(config("mr-admm", record={"optimum": True}))


def test_one_node_is_the_centralised_baseline(config: MakeConfig) -> None:
    """No edges: the first data step is the optimum itself, and recycled steps leave it there."""
    for method, eta in COMMON.items():
        raw = config(method, iterations=4, network={"graph": "ring", "nodes": 1, "path": None}, algorithm={"eta": eta},
                     record={"optimum": True})  # fmt: skip
        result = result_of(raw)
        assert result["distance_to_optimum"][0, 1:].max() < 1e-9


def test_recycled_step_never_touches_the_records(config: MakeConfig) -> None:
    """With the records gone after a data step, the recycled step still works and gives the same bits."""
    plan, dataset = network_plan(config("mr-admm", "objective"))
    algorithm = plan.make_nodes(np.arange(6), plan.problems(shard_of(dataset, i) for i in range(6)))
    state = algorithm.work(algorithm.initial(range(2)), 1, range(2), phase=0)
    adjacency = np.zeros((6, 6))
    for i, nb in enumerate(NEIGHBOURS):
        adjacency[i, nb] = 1
    state = algorithm.receive(state, 1, range(2), phase=0, incoming=adjacency @ state.primal)
    with_records = algorithm.work(state, 2, range(2), phase=0)
    algorithm.problems = cast(LocalProblems, None)
    without_records = algorithm.work(state, 2, range(2), phase=0)
    assert np.array_equal(with_records.primal, without_records.primal)
    assert np.array_equal(without_records.residual, state.residual)  # nothing was solved


def test_an_inexact_solve_stops_the_run_with_node_iteration_and_residual(
    config: MakeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = LocalProblems.argmins
    calls: list[int] = []

    def one_step_for_node_2_in_iteration_2(
        self: LocalProblems, linear: Array, quadratic: Array, start: Array, active: Bools
    ) -> tuple[Array, Array]:
        calls.append(1)
        found, residuals = original(self, linear, quadratic, start, active)
        if len(calls) == 2:
            monkeypatch.setattr(batch, "ITERATIONS", 1)
            hurried, left = original(self, linear, quadratic, start)
            found[:, 2], residuals[:, 2] = hurried[:, 2], left[:, 2]
        return found, residuals

    monkeypatch.setattr(LocalProblems, "argmins", one_step_for_node_2_in_iteration_2)
    with pytest.raises(RunError, match=r"run 1, node 2, iteration 2: .* relative KKT residual of \d\.\de-\d+, above 1e-10"):
        result_of(config())


def test_recorded_residuals_are_small_and_belong_to_data_steps(config: MakeConfig) -> None:
    result = result_of(config("r-admm", "objective", iterations=5))
    residual = result["kkt_residual"][0]
    assert np.isnan(residual[[0, 2, 4]]).all()
    assert (residual[[1, 3, 5]] <= 1e-10).all()
