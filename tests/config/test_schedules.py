"""Schedules by hand; every named graph; what is refused."""

import networkx as nx
import numpy as np
import pytest

import dpadmm_mpi
from dpadmm_mpi.config.options import Geometric, schedules
from dpadmm_mpi.config.reading import parse
from dpadmm_mpi.errors import InputError
from dpadmm_mpi.networks import graphs
from dpadmm_mpi.parallel.collective import assign_owners


def expand(value, steps=3, nodes=2):
    return schedules.expand(value, steps, nodes, "algorithm.eta").tolist()


def test_schedules_by_hand():
    assert expand(2.0) == [[2, 2], [2, 2], [2, 2]]
    assert expand(Geometric(first=1.0, ratio=2.0)) == [[1, 1], [2, 2], [4, 4]]
    assert expand([1.0, 2.0, 3.0]) == [[1, 1], [2, 2], [3, 3]]  # over data steps
    assert expand([1.0, 5.0]) == [[1, 5], [1, 5], [1, 5]]  # over nodes
    assert expand([1.0, 5.0], steps=2) == [[1, 5], [1, 5]]  # as many as nodes: over nodes
    assert expand([Geometric(first=1.0, ratio=3.0), [4.0, 5.0, 6.0]]) == [[1, 4], [3, 5], [9, 6]]


def test_an_ambiguous_list_is_said():
    """As many numbers as nodes and as data steps: one per node, and a note that it is so."""
    common = {"data": {"records": 60, "features": 3}, "network": {"nodes": 3}}
    for iterations, expected in ((3, True), (4, False)):
        raw = {**common, "iterations": iterations, "algorithm": {"method": "m-admm", "eta": [1.0, 1.1, 1.2]}}
        result = dpadmm_mpi.run(raw)
        assert result["algorithm/eta"][1].tolist() == [1.0, 1.1, 1.2]
        assert ("read as one per node" in result.attributes["/"]["notes"]) == expected


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        ([1.0, 2.0, 3.0, 4.0], r"found a list of 4; one entry per node \(2\) or one per data step \(3\)"),
        ([Geometric(first=1.0, ratio=1.0)], r"found a list of 1; one entry per node \(2\) is needed"),
        ([1.0, [1.0, 2.0]], r"algorithm.eta\[1\]: found a list of 2 values; one per data step is needed, 3"),
        (Geometric(first=1.0, ratio=1e200), "leaves the range of numbers"),
    ],
)
def test_schedules_that_do_not_fit(value, sentence):
    with pytest.raises(InputError, match=sentence):
        expand(value)


@pytest.mark.parametrize(
    ("algorithm", "sentence"),
    [
        ({"method": "admm", "eta": [1.0, 1.0, 1.0, 1.0, 2.0]}, "admm has one fixed penalty .* use m-admm"),
        ({"method": "r-admm", "eta": {"first": 1.0, "ratio": 1.1}}, "r-admm has one fixed penalty .* use mr-admm"),
        ({"method": "mr-admm", "eta": {"first": 1.0, "ratio": 0.9}}, r"falls from 1 to 0.9 at node 0, data step 2"),
        ({"method": "m-admm", "eta": [1.0, 1.0, 0.9, 1.0]}, "falls from 1 to 0.9 at node 0, data step 3"),
        ({"method": "m-admm", "eta": 1.0, "theta": 2.0}, "found 2 at node 0, data step 1, above the penalty 1"),
        ({"method": "mr-admm", "eta": 1.0, "theta": [1.0, 1.0, 1.5, 1.0, 1.0]}, "found 1.5 at node 2, data step 1"),
    ],
)
def test_penalties_that_a_method_does_not_take(algorithm, sentence):
    with pytest.raises(InputError, match=sentence):
        dpadmm_mpi.run({"iterations": 4, "algorithm": algorithm})


def test_dual_perturbation_needs_a_fixed_penalty_and_neighbours():
    for method in ("m-admm", "mr-admm"):
        growing = {"method": method, "eta": {"first": 1.0, "ratio": 1.1}}
        with pytest.raises(InputError, match=r'"dual" is defined for a fixed penalty.*use "penalty"'):
            dpadmm_mpi.run({"algorithm": growing, "privacy": {"perturbation": "dual", "alpha": 1.0}})
    for perturbation in ("dual", "penalty"):
        with pytest.raises(InputError, match="a single node has none"):
            dpadmm_mpi.run({"network": {"nodes": 1}, "privacy": {"perturbation": perturbation, "alpha": 1.0}})


def build(seed=1, **network):
    return graphs.build(parse({"network": network}).network, seed)


def as_networkx(graph):
    made = nx.empty_graph(graph.nodes)
    made.add_edges_from(graph.edges.tolist())
    return made


NAMED = [
    ({"graph": "ring", "nodes": 7}, lambda: nx.cycle_graph(7)),
    ({"graph": "path", "nodes": 4}, lambda: nx.path_graph(4)),
    ({"graph": "complete", "nodes": 5}, lambda: nx.complete_graph(5)),
    ({"graph": "star", "nodes": 6}, lambda: nx.star_graph(5)),
    ({"graph": "grid", "nodes": 12}, lambda: nx.grid_2d_graph(3, 4)),
    ({"graph": "ring", "nodes": 2}, lambda: nx.path_graph(2)),
    ({"graph": "complete", "nodes": 1}, lambda: nx.empty_graph(1)),
]


@pytest.mark.parametrize(("network", "expected"), NAMED)
def test_named_graphs(network, expected):
    assert nx.is_isomorphic(as_networkx(build(**network)), expected())


def test_random_graphs_have_their_parameters_and_are_connected():
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
def test_impossible_graphs(network, sentence):
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
def test_bad_edge_files(tmp_path, text, nodes, sentence):
    path = tmp_path / "edges"
    path.write_text(text)
    with pytest.raises(InputError, match=sentence):
        build(graph="edges", path=str(path), **({"nodes": nodes} if nodes else {}))


def test_edge_file_with_comments_and_repeats(tmp_path):
    path = tmp_path / "edges"
    path.write_text("# a triangle\n0 1\n1 0\n\n1 2  # twice above\n0 2\n")
    assert build(graph="edges", path=str(path)).neighbours == ((1, 2), (0, 2), (0, 1))
    with pytest.raises(InputError, match="cannot be read: No such file"):
        build(graph="edges", path=str(tmp_path / "nowhere"))


def test_neighbour_sum_is_the_adjacency_product(rng):
    """And its bits do not depend on where the known rows lie."""
    graph = build(graph="scale-free", nodes=15, degree=3)
    values = rng.standard_normal((15, 4))
    nodes = np.array([2, 3, 11])
    total = graphs.IncomingSum(graph.channels["edges"], nodes, np.arange(15))(values)
    assert np.allclose(total, nx.to_numpy_array(as_networkx(graph), nodelist=range(15))[nodes] @ values)
    shuffled = rng.permutation(15)
    assert np.array_equal(graphs.IncomingSum(graph.channels["edges"], nodes, shuffled)(values[shuffled]), total)


@pytest.mark.parametrize("ranks", [1, 2, 3, 7, 10])
def test_owners_are_contiguous_balanced_and_nobody_is_idle(ranks, rng):
    for sizes in (np.full(10, 8), rng.integers(1, 500, 10), np.array([10_000, *[1] * 9]), np.array([*[1] * 9, 10_000])):
        owner = assign_owners(sizes, ranks)
        assert np.array_equal(np.unique(owner), np.arange(ranks))
        assert (np.diff(owner) >= 0).all()
    even = assign_owners(np.full(10, 8), ranks)
    assert np.ptp(np.bincount(even)) <= 1


def test_generators_of_many_addresses_are_those_of_each(rng):
    """Whatever was drawn from the one before."""
    from dpadmm_mpi.rng import Purpose, generator, generators

    nodes, runs = np.array([3, 0, 12]), range(2, 4)
    addresses = [(run, int(node)) for run in runs for node in nodes]
    for (run, node), moved in zip(addresses, generators(5, Purpose.NOISE, runs, nodes, 7), strict=True):
        fresh = generator(5, Purpose.NOISE, run, node, 7)
        assert np.array_equal(moved.standard_normal(5), fresh.standard_normal(5))
        assert moved.integers(1000, dtype=np.uint32) == fresh.integers(1000, dtype=np.uint32)  # half a word is left over
        assert moved.standard_gamma(3) == fresh.standard_gamma(3)
