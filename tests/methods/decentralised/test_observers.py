"""Who learns what: what a node has seen at the end depends on another one's steps as far as the distance lets it."""

from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
from support import EDGES, NEIGHBOURS, MakeConfig, around_a_hub, command, network_plan, result_of

from dpadmm_mpi.errors import InputError
from dpadmm_mpi.methods.decentralised.algorithm import DataNode
from dpadmm_mpi.networks.topology import distances, of_edges
from dpadmm_mpi.types import Array

DISTANCE = np.array([[nx.shortest_path_length(nx.Graph(EDGES), i, j) for j in range(6)] for i in range(6)])

SOURCES = (0, 3, 5)  # nodes whose steps are changed


def views(trajectory: Array) -> list[Array]:
    """What each node has seen at the end: everything that its neighbours sent."""
    return [trajectory[:, :, NEIGHBOURS[j]] for j in range(6)]


@pytest.mark.parametrize(("method", "iterations"), [("admm", 1), ("admm", 3), ("r-admm", 4), ("mr-admm", 5)])
def test_dependence_spreads_one_edge_per_iteration(
    config: MakeConfig, monkeypatch: pytest.MonkeyPatch, method: str, iterations: int
) -> None:
    """Brute force: the noise of one node in one data step is changed, and everybody's messages are compared.

    They differ for node j exactly where the step is not later than T - r + 1; the steps of the account that counts are those.
    """
    raw = config(method, "objective", iterations=iterations)
    before = result_of(raw)
    steps = network_plan(raw)[0].releases.data_steps.tolist()
    original = DataNode.noise
    last_seen = np.zeros((6, 6), dtype=int)  # the last data step of i that j's view depends on
    for i in SOURCES:
        for step in steps:

            def other(self: DataNode, t: int, i: int = i, step: int = step) -> Array:
                return original(self, t) + (0.1 * (self.nodes == i)[:, None] if t == step else 0.0)

            monkeypatch.setattr(DataNode, "noise", other)
            after = result_of(raw)
            monkeypatch.setattr(DataNode, "noise", original)
            pairs = zip(views(before["trajectory"]), views(after["trajectory"]), strict=True)
            seen = np.array([not np.array_equal(mine, theirs) for mine, theirs in pairs])
            others = np.arange(6) != i
            np.testing.assert_array_equal(seen[others], (step <= iterations - DISTANCE[i] + 1)[others])
            last_seen[i, seen] = step
    pairs_recorded, node_epsilon = before["privacy/pair_epsilon"], before["privacy/node_epsilon"]
    for i in SOURCES:
        for j in range(6):
            expected = np.nan if i == j else node_epsilon[last_seen[i, j], i]
            np.testing.assert_equal(pairs_recorded[i, j], expected)


def test_distances() -> None:
    plan_graphs: list[Any] = [nx.path_graph(7), nx.cycle_graph(8), nx.karate_club_graph(), nx.complete_graph(4)]
    for graph in plan_graphs:
        topology = of_edges(np.array(graph.edges()), len(graph))
        expected = nx.floyd_warshall_numpy(graph, nodelist=range(len(graph)), weight=None)
        np.testing.assert_array_equal(distances(topology), expected)


def test_a_coalition_is_as_near_as_its_nearest_member(config: MakeConfig, tmp_path: Path) -> None:
    result = result_of(config("m-admm", "penalty", iterations=3), tmp_path / "out.h5")
    nearest = DISTANCE[:, [0, 5]].min(axis=1)
    expected = [np.nan if r == 0 else result["privacy/node_epsilon"][3 - r + 1, i] for i, r in enumerate(nearest)]
    np.testing.assert_array_equal(result.epsilon_against(0, 5), expected)
    process = command("show", tmp_path / "out.h5", "--against", "0,5")
    assert process.returncode == 0
    lines = process.stdout.split("against nodes 0, 5:\n")[1].splitlines()[1:]
    words = ["one of them" if np.isnan(value) else f"{value:.4g}" for value in expected]
    assert [line.split(None, 1) for line in lines] == [[str(i), word] for i, word in enumerate(words)]
    with pytest.raises(InputError, match="there are the nodes 0 to 5"):
        result.epsilon_against(6)


def test_without_noise_what_has_not_arrived_is_still_hidden(config: MakeConfig) -> None:
    pairs = result_of(config("admm", iterations=2))["privacy/pair_epsilon"]
    np.testing.assert_array_equal(np.isinf(pairs), (DISTANCE > 0) & (DISTANCE <= 2))
    np.testing.assert_array_equal(pairs == 0.0, DISTANCE > 2)


def test_a_hub_sees_everything(config: MakeConfig) -> None:
    result = result_of(around_a_hub(config, "dp-admm", noise_std=0.5))
    assert "privacy/pair_epsilon" not in result
    with pytest.raises(InputError, match="it is of methods on a network"):
        result.epsilon_against(0)
