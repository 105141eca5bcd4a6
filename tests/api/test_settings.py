"""Keywords and graphs of run: the configuration that they mean, or one sentence."""

from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
from support import Raw, WriteToml, parsed, result_of

import dpadmm_mpi as dp
from dpadmm_mpi.api.settings import changes, network
from dpadmm_mpi.methods import to_toml
from dpadmm_mpi.storage.experiments import load

EQUAL: list[tuple[dict[str, Any], Raw]] = [
    ({"seed": 4, "runs": 2, "name": "a"}, {"seed": 4, "runs": 2, "name": "a"}),
    ({"method": "m-admm", "eta": 2.0}, {"algorithm": {"method": "m-admm", "eta": 2.0}}),
    ({"rho": 0.5}, {"problem": {"rho": 0.5}}),  # a key of two sections: for admm one of the problem,
    ({"method": "ps-admm", "rho": 0.5, "noise_std": 1.0},
     {"algorithm": {"method": "ps-admm", "rho": 0.5}, "privacy": {"noise_std": 1.0}}),
    ({"graph": "small-world", "nodes": 8, "rewiring": 0.3}, {"network": {"graph": "small-world", "nodes": 8, "rewiring": 0.3}}),
    ({"privacy": {"perturbation": "dual", "alpha": 2.0}}, {"privacy": {"perturbation": "dual", "alpha": 2.0}}),
    ({"epsilon": 2.0, "delta": 1e-6},
     {"privacy": {"perturbation": "objective", "target": 2.0, "target_account": "epsilon", "delta": 1e-6}}),
    ({"epsilon": 2.0, "perturbation": "primal"},
     {"privacy": {"perturbation": "primal", "target": 2.0, "target_account": "epsilon"}}),
    ({"epsilon": 2.0, "method": "dp-admm"}, {"algorithm": {"method": "dp-admm"}, "privacy": {"target": 2.0}}),
    ({"eta": None, "split": "uneven"}, {"data": {"split": "uneven"}}),
    ({"eta": np.array([1.0, 2.0, 3.0, 4.0, 5.0])}, {"algorithm": {"eta": [1.0, 2.0, 3.0, 4.0, 5.0]}}),
]  # fmt: skip


@pytest.mark.parametrize(("keywords", "raw"), EQUAL)
def test_keywords_mean_the_keys_of_a_configuration(keywords: dict[str, Any], raw: Raw) -> None:
    (config,) = load({}, changes(keywords, {})).configs
    assert to_toml(config) == to_toml(parsed({"name": "run"} | raw))


def test_keywords_go_on_top_of_a_file_as_set_does(write_toml: WriteToml) -> None:
    path = write_toml(
        {"iterations": 3, "algorithm": {"method": "r-admm", "gamma": 0.3}, "data": {"records": 200, "features": 3}}
    )
    by_keyword = result_of(path, method="admm", eta=0.5)
    by_text = result_of(path, overrides=["algorithm.method=admm", "algorithm.eta=0.5"])
    assert by_keyword.config_text == by_text.config_text and "gamma" not in by_keyword.config_text


@pytest.mark.parametrize(
    ("keywords", "words"),
    [
        ({"itertions": 4}, 'itertions: unknown setting; did you mean "iterations"?'),
        ({"epsilom": 4}, 'epsilom: unknown setting; did you mean "epsilon"?'),
        ({"zzz": 4}, "zzz: unknown setting; docs/configuration.md lists"),
        ({"privacy": 3}, "privacy: a section of the configuration"),
        ({"method": "star-admm", "epsilon": 1.0}, "does not go with star-admm"),
        ({"test": (np.zeros((2, 2)), [0, 1])}, "test: has no meaning without data or shards"),
        ({"alpha": 1.0, "epsilon": 1.0}, "privacy.alpha and privacy.target: give one of them"),
    ],
)
def test_what_cannot_be_meant_is_one_sentence(keywords: dict[str, Any], words: str) -> None:
    with pytest.raises(dp.InputError) as caught:
        dp.run(**keywords)
    assert words in str(caught.value)


def test_graphs_as_they_are_in_memory(tmp_path: Path) -> None:
    """networkx, an array and an edge file of the same edges give the same bits; the graph is in the configuration."""
    graph = nx.star_graph(3)
    np.savetxt(tmp_path / "edges.txt", np.array(graph.edges), fmt="%d")
    base: Raw = {"iterations": 3, "data": {"records": 200, "features": 3}}
    by_file = result_of(base | {"network": {"graph": "edges", "path": str(tmp_path / "edges.txt")}})
    out = tmp_path / "a.h5"
    for given in (graph, np.array(graph.edges), [(0, 1), (2, 0), (0, 3)], nx.MultiGraph([*graph.edges, (0, 1)])):
        found = result_of(base, out, graph=given, force=True)
        assert np.array_equal(found["final/primal"], by_file["final/primal"])
    assert np.array_equal(result_of(out)["final/primal"], by_file["final/primal"])


def test_other_node_names_are_numbered_in_the_order_of_the_graph() -> None:
    graph = nx.Graph([("Oslo", "Rome"), ("Rome", "Bonn")])
    assert dict(network(graph)) == {"network.graph": "pairs", "network.pairs": [(0, 1), (1, 2)], "network.nodes": 3}
    late = nx.Graph()
    late.add_nodes_from([2, 0, 1])
    late.add_edges_from([(2, 0), (0, 1)])
    assert dict(network(late))["network.pairs"] == [(0, 1), (0, 2)]


@pytest.mark.parametrize(
    ("graph", "words"),
    [
        (nx.DiGraph([(0, 1)]), "a directed graph"),
        (nx.Graph([(0, 1), (1, 1)]), "node 1 is joined to itself"),
        (nx.Graph(), "has no nodes"),
        (nx.Graph([(0, 1), (2, 3)]), "not connected"),
        (np.eye(4), "found an array of the shape (4, 4)"),
        (np.array([[0, 1], [1, 1]]), "node 1 is joined to itself"),
        (np.array([[0.0, 1.0]]), "(edges, 2) whole numbers"),
        (np.array([[0, -1]]), "network.pairs[0][1]: found -1"),
        ("rnig", 'did you mean "ring"?'),
    ],
)
def test_what_is_no_graph_is_one_sentence(graph: Any, words: str) -> None:
    with pytest.raises(dp.InputError) as caught:
        dp.run(graph=graph)
    assert words in str(caught.value)
