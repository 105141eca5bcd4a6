"""Every named graph, edge files, sums over neighbours, and what is refused."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
from numpy.random import Generator
from support import Raw

from dpadmm_mpi.errors import InputError
from dpadmm_mpi.methods import parse
from dpadmm_mpi.networks import IncomingSum, Topology, graphs
from dpadmm_mpi.networks import build as build_graph


def build(seed: int = 1, **network: Any) -> Topology:
    return build_graph(parse({"network": network}).network.graph, seed)


def as_networkx(graph: Topology) -> Any:
    made = nx.empty_graph(graph.nodes)
    made.add_edges_from(graph.edges.tolist())
    return made


NAMED: list[tuple[Raw, Callable[[], Any]]] = [
    ({"graph": "ring", "nodes": 7}, lambda: nx.cycle_graph(7)),
    ({"graph": "path", "nodes": 4}, lambda: nx.path_graph(4)),
    ({"graph": "complete", "nodes": 5}, lambda: nx.complete_graph(5)),
    ({"graph": "star", "nodes": 6}, lambda: nx.star_graph(5)),
    ({"graph": "grid", "nodes": 12}, lambda: nx.grid_2d_graph(3, 4)),
    ({"graph": "ring", "nodes": 2}, lambda: nx.path_graph(2)),
    ({"graph": "complete", "nodes": 1}, lambda: nx.empty_graph(1)),
]


@pytest.mark.parametrize(("network", "expected"), NAMED)
def test_named_graphs(network: Raw, expected: Callable[[], Any]) -> None:
    assert nx.is_isomorphic(as_networkx(build(**network)), expected())


def test_random_graphs_have_their_parameters_and_are_connected() -> None:
    for seed in range(20):
        assert set(build(seed, graph="regular", nodes=10, degree=3).degree) == {3}
        lattice = build(seed, graph="small-world", nodes=20, degree=4, rewiring=0.0)
        assert nx.is_isomorphic(as_networkx(lattice), nx.circulant_graph(20, [1, 2]))
        world = build(seed, graph="small-world", nodes=20, degree=4, rewiring=0.3)
        assert not np.array_equal(world.edges, lattice.edges)
        assert len(world.edges) == 40
        free = build(seed, graph="scale-free", nodes=30, degree=2)
        assert len(free.edges) == 2 * 28
        sparse = build(seed, graph="random", nodes=12, probability=0.2)
        for graph in (world, free, sparse):
            assert nx.is_connected(as_networkx(graph))
    assert np.array_equal(build(3, graph="random", nodes=9).edges, build(3, graph="random", nodes=9).edges)
    drawn = {tuple(map(tuple, build(seed, graph="random", nodes=9).edges.tolist())) for seed in range(5)}
    assert len(drawn) == 5


@pytest.mark.parametrize(
    ("network", "sentence"),
    [
        ({"graph": "random", "nodes": 50, "probability": 0.001}, "network.probability: none of 1000 drawn graphs"),
        ({"graph": "regular", "nodes": 5, "degree": 3}, "no graph has 5 nodes of degree 3"),
        ({"graph": "regular", "nodes": 4, "degree": 4}, "must be below the number of nodes, 4"),
        ({"graph": "small-world", "nodes": 9, "degree": 3}, "even number of neighbours"),
        ({"graph": "grid", "nodes": 7}, "7 nodes make no grid"),
    ],
)
def test_impossible_graphs(network: Raw, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        build(**network)


@pytest.mark.parametrize(
    ("text", "nodes", "sentence"),
    [
        ("0 1\n2 3\n3 4\n", None, r"not connected; its components are \{0, 1\} \{2, 3, 4\}"),
        ("0 1\n", 3, r"components are \{0, 1\} \{2\}"),
        ("0 1\n1 5\n", 3, "found 3, but .* names node 5"),
        ("0 1 2\n", None, 'line 1 is "0 1 2"; two node numbers are needed'),
        ("0 1\n1 x\n", None, "line 2"),
        ("1 1\n", None, "joins node 1 to itself"),
    ],
)
def test_bad_edge_files(tmp_path: Path, text: str, nodes: int | None, sentence: str) -> None:
    path = tmp_path / "edges"
    path.write_text(text)
    with pytest.raises(InputError, match=sentence):
        build(graph="edges", path=str(path), **({"nodes": nodes} if nodes else {}))


def test_edge_file_with_comments_and_repeats(tmp_path: Path) -> None:
    path = tmp_path / "edges"
    path.write_text("# a triangle\n0 1\n1 0\n\n1 2  # twice above\n0 2\n")
    assert build(graph="edges", path=str(path)).neighbours == ((1, 2), (0, 2), (0, 1))
    with pytest.raises(InputError, match="cannot be read: No such file"):
        build(graph="edges", path=str(tmp_path / "nowhere"))


def test_neighbour_sum_is_the_adjacency_product(rng: Generator) -> None:
    """And its bits do not depend on where the known rows lie."""
    graph = build(graph="scale-free", nodes=15, degree=3)
    values = rng.standard_normal((15, 4))
    nodes = np.array([2, 3, 11])
    total = IncomingSum(graph.channels["edges"], nodes, np.arange(15))(values)
    assert np.allclose(total, nx.to_numpy_array(as_networkx(graph), nodelist=range(15))[nodes] @ values)
    shuffled = rng.permutation(15)
    assert np.array_equal(IncomingSum(graph.channels["edges"], nodes, shuffled)(values[shuffled]), total)


@pytest.mark.parametrize("seed", range(5))
def test_random_graphs_are_those_of_networkx(seed: int) -> None:
    """Drawn without networkx, which loads slowly, but with the same coins: graphs of earlier versions stay what they were."""
    nodes, probability = 9, 0.6
    edges = graphs["random"](nodes=nodes, probability=probability).edges(np.random.default_rng(seed))
    coins = int(np.random.default_rng(seed).integers(2**31))
    assert sorted(map(tuple, edges)) == sorted(nx.gnp_random_graph(nodes, probability, seed=coins).edges())
