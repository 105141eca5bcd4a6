"""What is free: averages of released iterates, more recycling, consensus; beside the method's own iterates, at no cost."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar, cast

import h5py
import numpy as np
import pytest
from numpy.polynomial import chebyshev
from oracles.network import LOGISTIC, Node, trajectory
from support import (
    EDGES,
    NEIGHBOURS,
    PROGRAMS,
    MakeConfig,
    Raw,
    WriteToml,
    around_a_hub,
    command,
    network_plan,
    parsed,
    records_for_testing,
    result_of,
    rows_of,
    sentences,
    shard_of,
)

from dpadmm_mpi.api.result import Result
from dpadmm_mpi.audit.exact import audit
from dpadmm_mpi.errors import InputError
from dpadmm_mpi.methods import fingerprint, metrics, to_toml
from dpadmm_mpi.methods.metrics import NodeMetric
from dpadmm_mpi.networks.metropolis import acceleration, second_eigenvalue, steps_until
from dpadmm_mpi.networks.topology import of_edges
from dpadmm_mpi.problems.local_problems import LocalProblems
from dpadmm_mpi.problems.objective import NodeProblem
from dpadmm_mpi.storage.checkpoint import find
from dpadmm_mpi.storage.compare import compare
from dpadmm_mpi.types import Array

ITERATIONS, STEPS = 7, 4
FREE = {"average": {"from": 3}, "consensus": STEPS, "recycle": 2}


def asked(make: MakeConfig, release: Raw, method: str = "mr-admm", perturbation: str = "objective", **sections: Any) -> Raw:
    raw = make(method, perturbation, iterations=ITERATIONS, runs=2, record={"trajectory": True, "optimum": True}, **sections)
    return raw | {"release": release}


@pytest.fixture(scope="module")
def free(shared_config: MakeConfig) -> Result:
    return result_of(asked(shared_config, FREE))


@pytest.fixture(scope="module")
def plain(shared_config: MakeConfig) -> Result:
    """The same run with its method's own steps alone."""
    return result_of(asked(shared_config, {"recycle": 2}))


def dense_weights() -> Array:
    """W by its definition."""
    degree = [len(nb) for nb in NEIGHBOURS]
    W = np.zeros((6, 6))
    for i, j in EDGES:
        W[i, j] = W[j, i] = 1.0 / (1 + max(degree[i], degree[j]))
    return W + np.diag(1.0 - W.sum(axis=1))


def after_consensus(start: Array, steps: int) -> Array:
    """T_k(W / lambda) / T_k(1 / lambda) times the start, (..., nodes, d), by the eigenvectors of W."""
    values, vectors = np.linalg.eigh(dense_weights())
    largest = np.abs(values[:-1]).max()
    factor = [0.0] * steps + [1.0]
    share = chebyshev.chebval(values / largest, factor) / chebyshev.chebval(1.0 / largest, factor)
    return np.asarray((vectors * share) @ vectors.T @ start)


# Averages


@pytest.mark.parametrize(
    ("average", "first"), [("all", 1), ("half", 4), ({"from": 5}, 5), ({"from": ITERATIONS}, ITERATIONS)], ids=str
)
def test_the_average_is_the_mean_of_the_released_iterates(shared_config: MakeConfig, average: Any, first: int) -> None:
    result = result_of(asked(shared_config, {"average": average}, "m-admm"))
    released = result["trajectory"]
    assert np.allclose(result["final/averaged"], released[:, first:].mean(axis=1), rtol=0, atol=1e-14)
    means = np.stack(
        [released[:, first : t + 1].mean(axis=1) if t >= first else released[:, t] for t in range(ITERATIONS + 1)], axis=1
    )
    spread = np.linalg.norm(means - means.mean(axis=2, keepdims=True), axis=-1).mean(axis=-1)
    assert np.allclose(result["consensus_error_averaged"], spread, rtol=0, atol=1e-13)
    best = result["optimum/primal"]
    distance = np.linalg.norm(means - best, axis=-1).mean(axis=-1) / np.linalg.norm(best)
    assert np.allclose(result["distance_to_optimum_averaged"], distance, rtol=1e-12)


def test_losses_and_test_error_are_those_of_the_averages(shared_config: MakeConfig) -> None:
    """By plain formulas from the records, and where nothing is averaged yet the method's own numbers to the bit."""
    raw = asked(shared_config, FREE)
    plan, dataset = network_plan(raw)
    result, N = result_of(raw), plan.nodes
    last = result["final/averaged"][0]
    nodes = [Node(rows_of(dataset, i), shard_of(dataset, i).y, C=3.0, rho=0.5, N=N, loss=LOGISTIC) for i in range(N)]
    losses = [np.mean(node.loss(node.y * (node.X @ f))) for node, f in zip(nodes, last, strict=True)]
    assert np.allclose(result["node_loss_averaged"][0, -1], losses, rtol=1e-12)
    assert result["loss_averaged"][0, -1] == pytest.approx(np.mean(losses), rel=1e-12)
    objective = sum(node.objective(f) for node, f in zip(nodes, last, strict=True))
    assert result["objective_averaged"][0, -1] == pytest.approx(objective, rel=1e-12)
    block = records_for_testing(dataset)
    wrong = (np.asarray(block.X @ last.mean(axis=0)) >= 0.0) != (block.y > 0.0)
    assert result["test_error_averaged"][0, -1] == wrong.mean()
    for name in ("loss", "test_error", "objective", "node_loss"):
        assert np.array_equal(result[f"{name}_averaged"][:, :4], result[name][:, :4], equal_nan=True)
        assert not np.array_equal(result[f"{name}_averaged"], result[name]) or name == "test_error"


@pytest.mark.parametrize("method", ["star-admm", "gl-admm"])
def test_around_a_hub_its_iterates_are_averaged(shared_config: MakeConfig, method: str) -> None:
    result = result_of(around_a_hub(shared_config, method) | {"release": {"average": "half"}})
    served = result["server_trajectory"][:, 4:].mean(axis=1)
    kept = result["final/averaged_server"] if method == "star-admm" else result["final/averaged"][:, 0]
    assert np.allclose(kept, served, rtol=0, atol=1e-14)
    assert np.array_equal(result.classifier(), kept[0])
    assert ("consensus_error_averaged" in result) == (method == "star-admm")  # ||A x - w|| is not about x alone


class FirstWeight(NodeMetric):
    """The first number of the node's point"""

    title: ClassVar[str] = "first weight"

    def at_node(self, problem: NodeProblem, points: Array) -> Array:
        return points[:, 0]


@pytest.fixture
def first_weight() -> Iterator[None]:
    before = metrics.items()
    metrics.register("first_weight")(FirstWeight)
    yield
    metrics.replace_all(before)


def test_a_metric_from_outside_is_measured_at_the_averages_too(shared_config: MakeConfig, first_weight: None) -> None:
    result = result_of(asked(shared_config, FREE) | {"record": {"metrics": ["first_weight", "log_loss"]}})
    assert np.allclose(result["first_weight_averaged"][:, -1], result["final/averaged"][..., 0].mean(axis=1), rtol=1e-14)
    assert np.allclose(result["consensus/first_weight"][:, -1], result["final/consensus"][..., 0].mean(axis=1), rtol=1e-14)
    assert np.isfinite(result["log_loss_averaged"]).all()
    assert result.attributes["log_loss_averaged"]["column"] == "log loss, averaged"


def test_what_is_about_the_steps_is_not_measured_elsewhere(free: Result) -> None:
    assert {"kkt_residual", "trajectory"} <= set(free.arrays)
    assert not {"kkt_residual_averaged", "z_distance_averaged", "trajectory_averaged", "consensus/kkt_residual"} & set(
        free.arrays
    )


# Consensus


def test_consensus_is_chebyshevs_polynomial_of_the_metropolis_matrix(free: Result) -> None:
    start = free["final/averaged"]
    assert np.abs(free["final/consensus"] - after_consensus(start, STEPS)).max() < 1e-12
    for k in range(1, STEPS + 1):
        x = after_consensus(start, k)
        spread = np.linalg.norm(x - x.mean(axis=1, keepdims=True), axis=-1).mean(axis=-1)
        assert np.allclose(free["consensus/consensus_error"][:, k - 1], spread, rtol=0, atol=1e-12)
    assert np.allclose(free["final/consensus"].mean(axis=1), start.mean(axis=1), rtol=0, atol=1e-13)
    assert list(free["consensus/step"]) == [1, 2, 3, 4]
    assert free["consensus/loss"].shape == (2, STEPS)


def test_auto_leaves_a_millionth_and_not_more_steps_than_needed(shared_config: MakeConfig) -> None:
    """From the last iterates where nothing is averaged; at its end every node has the mean."""
    result = result_of(asked(shared_config, {"consensus": "auto"}, "admm"))
    last, agreed = result["final/primal"], result["final/consensus"]
    mean = last.mean(axis=1, keepdims=True)
    assert np.linalg.norm(agreed - mean) <= 1e-6 * np.linalg.norm(last - mean)
    steps = len(result["consensus/step"])
    largest = second_eigenvalue(of_edges(np.array(EDGES), 6))
    assert 1.0 / chebyshev.chebval(1.0 / largest, [0.0] * (steps - 1) + [1.0]) > 1e-6
    assert largest**steps > 1e-3  # so many plain steps would be far from it
    assert np.abs(result.classifier() - last[0].mean(axis=0)).max() < 1e-13


@pytest.mark.parametrize("nodes", [2, 7, 1200])
def test_the_eigenvalue_of_a_ring_has_a_closed_form(nodes: int) -> None:
    """(1 + 2 cos(2 pi / N)) / 3, also where the network is too large for all eigenvalues; a pair of nodes agrees at once."""
    edges = np.array([(i, (i + 1) % nodes) for i in range(nodes)])
    expected = 0.0 if nodes == 2 else max((1 + 2 * np.cos(2 * np.pi / nodes)) / 3, 1 / 3)
    assert second_eigenvalue(of_edges(edges, nodes)) == pytest.approx(expected, abs=1e-10)


def test_complete_graph_needs_one_step() -> None:
    pairs = np.array([(i, j) for i in range(5) for j in range(i)])
    assert second_eigenvalue(of_edges(pairs, 5)) == 0.0
    assert steps_until(0.0, 1e-6) == 1
    assert acceleration(0.0, 3) == (1.0, 1.0, 1.0)


# Recycling


@pytest.mark.parametrize("recycle", [1, 2, 3])
@pytest.mark.parametrize("perturbation", ["objective", "primal"])
def test_repeated_recycling_against_a_plain_implementation(shared_config: MakeConfig, recycle: int, perturbation: str) -> None:
    """Every released vector; the noise is taken from the run. Penalties grow with the data steps."""
    raw = asked(shared_config, {"recycle": recycle}, "mr-admm", perturbation)
    plan, dataset = network_plan(raw)
    result, s = result_of(raw), plan.settings
    nodes = [Node(rows_of(dataset, i), shard_of(dataset, i).y, C=3.0, rho=0.5, N=6) for i in range(6)]
    from dpadmm_mpi.privacy.noises import Gamma, draw

    def noise(t: int, i: int) -> Array:
        return draw(Gamma(alpha=5.0), s.seed, range(1), np.array([i]), t, np.array([5.0]), 4)[0, 0]

    expected = trajectory(
        nodes, NEIGHBOURS, start=result["trajectory"][0, 0], iterations=ITERATIONS, recycles=recycle, gamma=0.5,
        eta=lambda t, i: s.eta[t, i], theta=lambda t, i: s.theta[t, i], perturbation=perturbation, noise=noise,
    )  # fmt: skip
    assert np.abs(result["trajectory"][0] - expected).max() < 1e-9
    steps = np.arange(1, ITERATIONS + 1, recycle + 1)
    assert list(plan.releases.data_steps) == list(steps)
    assert list(np.flatnonzero(np.diff(result["privacy/epsilon"])) + 1) == list(steps)


def test_without_recycled_steps_it_is_m_admm_to_the_bit(shared_config: MakeConfig) -> None:
    eta = [0.5 + 0.1 * i for i in range(6)]
    never = asked(shared_config, {"recycle": 0}, "mr-admm", algorithm={"eta": eta, "theta": 0.5})
    modified = asked(shared_config, {}, "m-admm", algorithm={"eta": eta, "theta": 0.5})
    a, b = result_of(never), result_of(modified)
    for name in ("trajectory", "loss", "privacy/epsilon", "privacy/node_bound", "final/dual", "restart/state"):
        assert np.array_equal(a[name], b[name], equal_nan=True), name


def test_as_printed_is_one_recycled_step_and_the_same_configuration(shared_config: MakeConfig) -> None:
    without = parsed(asked(shared_config, {}))
    usual = parsed(asked(shared_config, {"recycle": 1, "average": "none", "consensus": 0}))
    assert fingerprint(usual) == fingerprint(without)
    assert "release" not in to_toml(usual)
    assert parsed(asked(shared_config, FREE)).release.free.recycled() == 2


@pytest.mark.parametrize(("method", "recycle"), [("r-admm", 2), ("r-admm", 5), ("mr-admm", 0), ("mr-admm", 2), ("mr-admm", 5)])
def test_without_noise_it_ends_at_the_centralised_optimum(shared_config: MakeConfig, method: str, recycle: int) -> None:
    raw = shared_config(method, iterations=(130 if recycle else 260) * (recycle + 1), algorithm={"eta": 0.4, "gamma": 0.8},
                        record={"trajectory": False, "optimum": True, "every": 10})  # fmt: skip
    result = result_of(raw | {"release": {"recycle": recycle, "consensus": "auto"}})
    assert result["distance_to_optimum"][0, -1] < 1e-6
    assert result["consensus/distance_to_optimum"][0, -1] < 1e-6


def test_repeated_recycling_never_touches_the_records(shared_config: MakeConfig) -> None:
    plan, dataset = network_plan(asked(shared_config, {"recycle": 3}))
    nodes = plan.make_nodes(np.arange(6), plan.problems(shard_of(dataset, i) for i in range(6)))
    adjacency = np.array([[float(j in nb) for j in range(6)] for nb in NEIGHBOURS])
    state = nodes.work(nodes.initial(range(1)), 1, range(1), phase=0)
    nodes.problems = cast(LocalProblems, None)
    for t in (1, 2, 3, 4):
        state = nodes.work(state, t, range(1), phase=0) if t > 1 else state
        state = nodes.receive(state, t, range(1), phase=0, incoming=adjacency @ state.primal)
    assert np.isfinite(state.primal).all()
    with pytest.raises(AttributeError):  # step 5 is a data step
        nodes.work(state, 5, range(1), phase=0)


def test_the_audit_follows_repeated_recycling(free: Result) -> None:
    """Sound as it is; a recycled step that is not what was released says so."""
    assert audit(free, 2).findings == []
    changed = free["trajectory"].copy()
    changed[0, 6] += 1e-3  # the second recycled step after the data step 4
    other = Result(free.source, {**free.arrays, "trajectory": changed}, free.dims, free.attributes)
    assert any("iteration 6 of run 0 is not the recycled step" in finding for finding in audit(other, 2).findings)


# What it costs, and what travels


def test_neither_accounts_nor_the_methods_own_numbers_change(free: Result, plain: Result) -> None:
    """To the bit, every array that the run without has, but for what tells how far messages have gone."""
    own = [name for name in plain.arrays if not name.startswith(("timing/", "restart/", "privacy/pair_epsilon"))]
    assert {"privacy/epsilon", "privacy/node_tight", "privacy/curve", "trajectory", "loss", "kkt_residual"} <= set(own)
    for name in own:
        assert np.array_equal(free[name], plain[name], equal_nan=True), name


def test_consensus_carries_what_was_released_to_distant_nodes(shared_config: MakeConfig, plain: Result, free: Result) -> None:
    """epsilon of i against j at distance r is that of iteration T + K - r + 1, at most T: in the end all have heard all."""
    total = plain["privacy/node_epsilon"]
    other = ~np.eye(6, dtype=bool)
    everything = np.broadcast_to(total[-1][:, None], (6, 6))
    assert np.array_equal(free["privacy/pair_epsilon"][other], everything[other])
    one = result_of(asked(shared_config, {"recycle": 2, "consensus": 1}))["privacy/pair_epsilon"]
    assert plain["privacy/pair_epsilon"][0, 4] == total[ITERATIONS - 1, 0]  # 0, 2, 4: two edges
    assert one[0, 4] == total[ITERATIONS, 0] > total[ITERATIONS - 1, 0]
    assert one[0, 5] == total[ITERATIONS - 1, 0]


@pytest.fixture(scope="module")
def on_disk(shared_config: MakeConfig, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The configuration as a file, and its result from one process."""
    import tomli_w

    folder = tmp_path_factory.mktemp("release")
    raw = asked(shared_config, FREE)
    raw["record"] = {**raw["record"], "checkpoint": 1}
    (folder / "free.toml").write_text(tomli_w.dumps(raw))
    result_of(folder / "free.toml", folder / "serial.h5")
    return folder / "free.toml", folder / "serial.h5"


def test_what_travels_is_released_or_made_of_it_and_the_bits_are_the_same(on_disk: tuple[Path, Path], tmp_path: Path) -> None:
    """Byte by byte on three ranks: f_i(t), then the averages of them, then what consensus makes of those."""
    config, serial = on_disk
    process = command(tmp_path, "run", config, "-o", tmp_path / "out.h5", ranks=3, program=PROGRAMS / "spy.py")
    assert process.returncode == 0, process.stderr
    assert list(compare(serial, tmp_path / "out.h5")) == []
    with h5py.File(tmp_path / "out.h5") as file:
        released, owner = file["trajectory"][...], file["timing/owner"][...]
        counted = file["timing/consensus_bytes_sent"][...].sum(axis=(0, 1))
        before = file["timing/bytes_sent"][...].sum(axis=(0, 1))
    averages = released[:, 3:].mean(axis=1)
    links = {(i, j) for i, j in EDGES} | {(j, i) for i, j in EDGES}
    for rank in range(3):
        log = np.load(tmp_path / f"rank-{rank}.npz")
        peers = [name for name in log if name.startswith("to-")]
        for name in peers:
            nodes = sorted({i for i, j in links if owner[i] == rank and owner[j] == int(name[3:])})
            sent = log[name].view(np.float64).reshape(-1, len(nodes), 2, 4).swapaxes(1, 2)  # (messages, runs, nodes, d)
            assert len(sent) == ITERATIONS + 1 + STEPS
            assert np.array_equal(sent[: ITERATIONS + 1], released[:, :, nodes].swapaxes(0, 1))
            for k in range(STEPS):
                expected = after_consensus(averages, k)[:, nodes]
                assert np.abs(sent[ITERATIONS + 1 + k] - expected).max() < 1e-12
        assert counted[owner == rank].sum() == sum(log[name][ITERATIONS + 1 :].size for name in peers)
        assert before[owner == rank].sum() == sum(log[name][: ITERATIONS + 1].size for name in peers)


def killed_in_consensus(config: Path, output: Path) -> None:
    """A rank of two dies in a consensus step."""
    process = command(1, ITERATIONS + 4, "run", config, "-o", output, ranks=2, program=PROGRAMS / "mortal.py")
    assert process.returncode != 0
    found = find(output)
    assert found is not None
    assert ITERATIONS < found.checkpoint.iteration < ITERATIONS + STEPS


def test_killed_in_the_middle_of_consensus(on_disk: tuple[Path, Path], tmp_path: Path) -> None:
    """Resumed in one process: the same bits. Resumed with more iterations: as if these had been asked for at once."""
    config, serial = on_disk
    killed_in_consensus(config, tmp_path / "out.h5")
    restart = tmp_path / "out.h5.restart"
    copy = tmp_path / "more.h5.restart"
    copy.mkdir()
    for file in restart.iterdir():
        (copy / file.name).write_bytes(file.read_bytes())
    (tmp_path / "more.h5").write_bytes((tmp_path / "out.h5").read_bytes())
    result_of(config, tmp_path / "out.h5", resume=True)
    assert list(compare(serial, tmp_path / "out.h5")) == []
    more: Raw = {"iterations": ITERATIONS + 3}
    result_of(config, tmp_path / "at-once.h5", **more)
    result_of(config, tmp_path / "more.h5", resume=True, **more)
    result_of(config, tmp_path / "out.h5", resume=True, **more)  # from the finished file
    for name in ("more.h5", "out.h5"):
        assert list(compare(tmp_path / "at-once.h5", tmp_path / name)) == [], name


def test_the_second_half_of_more_iterations_is_another_one(shared_config: MakeConfig, tmp_path: Path) -> None:
    raw = asked(shared_config, {"average": "half"}, "admm", "none")
    result_of(raw, tmp_path / "half.h5")
    with pytest.raises(InputError, match=r"release\.average is over the second half of all iterations.*from = 6"):
        result_of(raw | {"iterations": 10}, tmp_path / "half.h5", resume=True)


# Configurations


def test_a_sweep_over_release_and_the_file_again(shared_config: MakeConfig, write_toml: WriteToml, tmp_path: Path) -> None:
    raw = asked(shared_config, {"consensus": 2}) | {
        "sweep": {"release.average": ["all", {"from": 3}], "release.recycle": [1, 3]}
    }
    process = command("run", write_toml(raw), "-o", tmp_path / "sweep")
    assert process.returncode == 0, process.stderr
    files = sorted((tmp_path / "sweep").glob("*.h5"))
    assert len(files) == 4
    heading, *rows = command("show", *files, "--columns", "average,recycle,test_error_averaged").stdout.splitlines()
    assert re.split(r"\s{2,}", heading.strip()) == ["average", "recycle", "test error, averaged"]
    assert [row.split()[:2] for row in rows[:4]] == [["all", "1"], ["all", "3"], ["from=3", "1"], ["from=3", "3"]]
    result_of(files[0], tmp_path / "again.h5")
    assert list(compare(files[0], tmp_path / "again.h5")) == []


def test_check_says_what_is_free(on_disk: tuple[Path, Path]) -> None:
    said = command("check", on_disk[0]).stdout
    assert (
        "free       average of the released iterates from iteration 3 on; 2 recycled steps after each data step; 4 consensus "
        "steps from the averages" in said
    )
    assert "[R] Theorem IV.1 is about one recycled step after each data step, not 2" in said
    assert "[R] proves convergence with one recycled step after each data step; of 2 nothing is proven" in said


def test_a_variant_leaves_behind_what_its_method_does_not_have(shared_config: MakeConfig, write_toml: WriteToml) -> None:
    raw = asked(shared_config, FREE)
    raw["variant"] = [{"name": "other", "algorithm": {"method": "m-admm", "eta": 0.7}}]
    config = parsed(write_toml(raw), only="other")
    assert config.release.free.recycled() is None
    assert config.release.free.consensus_steps() == STEPS


@pytest.mark.parametrize(
    ("method", "release", "said"),
    [
        ("m-admm", {"recycle": 2}, r'release\.recycle: has no meaning for algorithm\.method = "m-admm"; .*r-admm or mr-admm'),
        ("star-admm", {"consensus": 3}, r'release\.consensus: has no meaning for algorithm\.method = "star-admm"'),
        ("mr-admm", {"average": {"from": 99}}, r"release\.average: from = 99 is behind the last iteration, 7; lower it"),
        ("mr-admm", {"average": {"form": 3}}, r'release\.average\.form: unknown key; did you mean "release\.average\.from"'),
        ("mr-admm", {"average": "haf"}, r'release\.average: found "haf"; .*half'),
        (
            "mr-admm",
            {"consensus": -1},
            r"release\.consensus: found -1; expected a whole number >= 0|release\.consensus: found -1",
        ),
        ("mr-admm", {"recycles": 1}, r'release\.recycles: unknown key; did you mean "release\.recycle"'),
    ],
    ids=str,
)
def test_what_makes_no_sense_is_refused(shared_config: MakeConfig, method: str, release: Raw, said: str) -> None:
    hub = method == "star-admm"
    raw = around_a_hub(shared_config, method) | {"release": release} if hub else asked(shared_config, release, method)
    with pytest.raises(InputError, match=said):
        network_plan(raw)


def test_predict_uses_the_best_that_was_asked_for_and_says_so(free: Result, plain: Result) -> None:
    assert np.array_equal(free.classifier(1), free["final/consensus"][1].mean(axis=0))
    assert "classifier: the mean over the nodes after consensus, /final/consensus" in free.summary()
    assert np.array_equal(plain.classifier(1), plain["final/primal"][1].mean(axis=0))
    X = np.eye(4)
    assert np.array_equal(free.decision_function(X, prepared=True), free.classifier())


def test_plots_draw_it_by_name(free: Result) -> None:
    axes = free.plot("loss-averaged").axes[0]
    assert "mean loss, averaged" in (axes.get_title(), axes.get_title("left"), axes.get_ylabel())


def test_a_single_node_agrees_with_itself(shared_config: MakeConfig) -> None:
    """Nobody to agree with: no steps, and nothing to record of them."""
    raw = asked(shared_config, {"consensus": "auto"}, "admm", "none", network={"graph": "ring", "nodes": 1, "path": None})
    assert "final/consensus" not in result_of(raw)


def test_sentences_of_the_command(shared_config: MakeConfig, write_toml: WriteToml) -> None:
    process = command("check", write_toml(asked(shared_config, {"recycle": 2}, "admm", "none")))
    assert process.returncode == 2
    assert sentences(process)[0].startswith("dpadmm: release.recycle: has no meaning for")
