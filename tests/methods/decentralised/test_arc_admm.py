"""Relaxed arc-based ADMM: against a plain implementation, the centralised optimum, conventional ADMM, and the laws."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from oracles.arc import trajectory
from oracles.network import Node, centralised_optimum
from support import (
    NEIGHBOURS,
    PERTURBATIONS,
    MakeConfig,
    Raw,
    dense,
    network_plan,
    parsed,
    planned,
    result_of,
    shard_of,
)  # fmt: skip

from dpadmm_mpi.audit import audit
from dpadmm_mpi.engine.loop import execute
from dpadmm_mpi.errors import InputError
from dpadmm_mpi.methods import methods
from dpadmm_mpi.methods.base import Assumptions
from dpadmm_mpi.methods.decentralised import algorithm, arc_admm
from dpadmm_mpi.privacy.noises import Gamma, draw
from dpadmm_mpi.storage.compare import compare
from dpadmm_mpi.testing import check_method, on_ranks
from dpadmm_mpi.types import Array


def arc(make: MakeConfig, perturbation: str = "none", relaxation: float = 0.7, **sections: Any) -> Raw:
    raw = make("admm", perturbation, **sections)
    return raw | {"algorithm": raw["algorithm"] | {"method": "arc-admm", "relaxation": relaxation}}


def reference_nodes(raw: Raw) -> list[Node]:
    dataset = network_plan(raw)[1]
    shards = [shard_of(dataset, i) for i in range(6)]
    return [Node(dense(shard.X), shard.y, raw["problem"]["C"], raw["problem"]["rho"], 6) for shard in shards]


def noise_of(raw: Raw, run: int, t: int, i: int) -> Array:
    alpha = raw["privacy"].get("alpha", 1.0)
    return np.asarray(draw(Gamma(alpha=alpha), raw["seed"], range(run, run + 1), np.array([i]), t, np.array([alpha]), 4)[0, 0])


@pytest.mark.parametrize("perturbation", PERTURBATIONS)
def test_trajectory_equals_the_plain_implementation(config: MakeConfig, perturbation: str) -> None:
    raw = arc(config, perturbation, iterations=6, runs=2)
    result = result_of(raw)
    for run in range(2):

        def noise(t: int, i: int, run: int = run) -> Array:
            return noise_of(raw, run, t, i)

        expected = trajectory(
            reference_nodes(raw),
            NEIGHBOURS,
            start=result["trajectory"][run, 0],
            iterations=6,
            eta=0.7,
            relaxation=0.7,
            perturbation=perturbation,
            noise=noise,
        )
        assert np.max(np.abs(result["trajectory"][run] - expected)) < 1e-8


@pytest.mark.parametrize("relaxation", [0.3, 0.9])
def test_without_noise_it_ends_at_the_centralised_optimum(config: MakeConfig, relaxation: float) -> None:
    raw = arc(config, relaxation=relaxation, iterations=400, problem={"rho": 5.0}, record={"every": 400, "trajectory": False})
    optimum = centralised_optimum(reference_nodes(raw), 4)
    assert np.max(np.abs(result_of(raw)["final/primal"][0] - optimum)) < 1e-9


def test_half_relaxed_it_is_conventional_admm(config: MakeConfig) -> None:
    """With the same eta, start and noise: z_ij = eta (f_i + f_j) - 2 lam_ij carries the duals of the arcs."""
    plain = result_of(config("admm", "objective", iterations=30))
    same = result_of(arc(config, "objective", 0.5, iterations=30))
    assert np.max(np.abs(plain["trajectory"] - same["trajectory"])) < 1e-8
    assert np.array_equal(plain["privacy/node_epsilon"], same["privacy/node_epsilon"])


GRAPHS: list[Raw] = [
    {"graph": "ring", "nodes": 6},
    {"graph": "random", "nodes": 6, "probability": 0.5},
    {"graph": "star", "nodes": 5},
    {"graph": "complete", "nodes": 5},
    {"graph": "grid", "nodes": 6},
]
FAULTS: Raw = {"loss": 0.3, "absence": {"kind": "asynchronous", "activation": 0.5}}


@pytest.mark.parametrize("graph", GRAPHS, ids=lambda graph: str(graph["graph"]))
def test_it_converges_where_messages_are_lost_and_nodes_sleep(config: MakeConfig, graph: Raw) -> None:
    """30 % of the messages lost and every second node asleep: 1e-6 from the optimum; conventional ADMM stops far from it."""
    raw = arc(config, relaxation=0.8, iterations=400, problem={"rho": 2.0}, record={"every": 400, "optimum": True})
    raw |= {"network": graph | {"faults": FAULTS}}
    raw["record"].pop("trajectory")
    assert result_of(raw)["distance_to_optimum"][0, -1] < 1e-6
    plain = raw | {"algorithm": {"method": "admm", "eta": raw["algorithm"]["eta"]}, "iterations": 200}
    assert result_of(plain)["distance_to_optimum"][0, -1] > 0.05


@pytest.mark.parametrize("more", [{}, {"delay": {"kind": "geometric", "mean": 0.7, "limit": 3}}], ids=["in time", "late"])
def test_what_arrives_is_what_the_plain_implementation_takes(config: MakeConfig, more: Raw) -> None:
    """Lost and late messages, sleeping nodes: every step as the network's record of what arrived has it."""
    raw = arc(config, iterations=12, runs=2)
    raw["network"]["faults"] = FAULTS | more
    result, plan = result_of(raw), network_plan(raw)[0]
    assert plan.faults is not None
    seen = plan.faults.timeline(range(2))
    number = {(i, j): k for k, (i, j) in enumerate((i, j) for i in range(6) for j in NEIGHBOURS[i])}
    for run in range(2):

        def age(t: int, i: int, j: int, run: int = run) -> int:
            return int(seen.fresh[run, t, number[i, j]])

        def active(t: int, i: int, run: int = run) -> bool:
            return bool(seen.present[run, t, i])

        expected = trajectory(
            reference_nodes(raw),
            NEIGHBOURS,
            start=result["trajectory"][run, 0],
            iterations=12,
            eta=0.7,
            relaxation=0.7,
            perturbation="none",
            noise=lambda t, i: np.zeros(4),
            active=active,
            age=age,
        )
        assert np.max(np.abs(result["trajectory"][run] - expected)) < 1e-8
    assert not seen.present[:, 1:].all() and (seen.fresh[:, 1:] < 0).any()
    assert bool(more) == bool((seen.fresh > 0).any())


def test_six_ranks_give_the_bits_of_one(config: MakeConfig, tmp_path: Path) -> None:
    """A rank for each node, with lost and late messages; fewer ranks and restarts are among the laws below."""
    raw = arc(config, "objective", iterations=8, runs=2)
    raw["network"]["faults"] = FAULTS | {"delay": {"kind": "fixed", "iterations": 2}}
    for ranks in (1, 6):
        on_ranks(ranks, lambda rank, ranks=ranks: execute(parsed(raw), rank, tmp_path / f"{ranks}.h5"))  # type: ignore[misc]
    assert not list(compare(tmp_path / "1.h5", tmp_path / "6.h5"))


def test_who_sleeps_spends_nothing_and_a_lost_message_counts(config: MakeConfig) -> None:
    """Every data step of a node costs the same, whoever was heard, so its account is that of as many steps as it took."""
    raw = arc(config, "objective", iterations=10, runs=3)
    whole = planned(raw)[0].accounts
    raw["network"]["faults"] = FAULTS
    result = result_of(raw)
    steps = np.cumsum(result["network/active"][:, 1:], axis=1)
    assert len(np.unique(steps[:, -1])) > 3
    node = np.arange(6)
    for account in whole:
        expected = account.node_values[steps, node]
        rounded = 1e-3 if account.name == "epsilon" else 1e-12  # up, to a grid that depends on how many steps there are
        assert np.allclose(result[f"privacy/run_{account.name}"][:, 1:], expected, rtol=rounded), account.name


@pytest.mark.parametrize(
    ("faults", "relaxation", "proven"),
    [
        (FAULTS, 0.5, True),
        ({"loss": {"kind": "edges", "rates": [[0, 1, 0.9]]}}, 0.5, True),
        (FAULTS, 1.0, False),
        ({"loss": {"kind": "bursts"}}, 0.5, False),
        ({"delay": 1}, 0.5, False),
        ({"change": {"kind": "markov"}}, 0.5, False),
        ({"absence": {"kind": "cyclic"}}, 0.5, False),
    ],
)
def test_a_run_and_its_check_say_what_is_proven(config: MakeConfig, faults: Raw, relaxation: float, proven: bool) -> None:
    raw = arc(config, relaxation=relaxation)
    raw["network"]["faults"] = faults
    plan = planned(raw)[0]
    (note,) = (note for note in plan.notes if note.startswith("network.faults"))
    (line,) = (line for line in plan.conditions(Assumptions()) if "convergence" in line)
    assert ("converges almost surely" in note, line.startswith("holds")) == (proven, proven)
    assert ("no theorem" in note, "not proven" in line) == (not proven, not proven)


def test_compressed_messages_are_refused(config: MakeConfig) -> None:
    raw = arc(config)
    raw["network"]["faults"] = {"compression": 8}
    with pytest.raises(InputError, match="arc-admm sends each neighbour a message of its own"):
        planned(raw)


def audited(raw: Raw, path: Path) -> list[str]:
    result_of(raw, path, force=True)
    return audit(path, candidates=2).findings


def test_the_audit_passes_and_finds_what_is_wrong(config: MakeConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Too little noise; a step on records of a node that is said to sleep; what was lost taken for what has arrived."""
    raw, path = arc(config, "objective", iterations=5, runs=8), tmp_path / "run.h5"
    raw["network"]["faults"] = FAULTS
    assert not audited(raw, path)
    draw_noise = algorithm.DataNode.noise
    with monkeypatch.context() as wrong:
        wrong.setattr(algorithm.DataNode, "noise", lambda node, t: 0.6 * draw_noise(node, t))
        assert any("not of the claimed size" in finding for finding in audited(raw, path))
    with monkeypatch.context() as wrong:
        wrong.setattr(algorithm.Settings, "rests", lambda settings, t, runs: np.zeros((len(runs), 6), dtype=bool))
        result_of(raw, path, force=True)
    assert any("said to take no step" in finding for finding in audit(path, candidates=2).findings)
    with monkeypatch.context() as wrong:  # in the run alone: the audit takes the true steps again
        step = arc_admm.relaxed_step
        wrong.setattr(arc_admm, "relaxed_step", lambda z, q, arrived, a: step(z, q, np.ones_like(arrived), a))
        result_of(raw, path, force=True)
    assert audit(path, candidates=2).findings


def test_laws_on_a_network_with_faults() -> None:
    """Bits and restarts on several ranks, the optimum, only messages travel, accounts and audit with every kind of noise."""
    check_method(methods["arc-admm"], eta=0.5, relaxation=0.8, iterations=250, config={"network": {"faults": FAULTS}})
