"""Named graphs: a class each, whose options are its parameters and whose `edges` draws it.

networkx is imported only where it draws, on the rank that builds the graph: it loads slowly.
"""

import random
from abc import abstractmethod
from collections.abc import Collection
from itertools import chain, combinations
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from dpadmm_mpi.config.options import Count, FilePath, Fraction, Options, Place, Probability
from dpadmm_mpi.errors import InputError
from dpadmm_mpi.files import read_text
from dpadmm_mpi.networks.graph_files import edge_in_line
from dpadmm_mpi.networks.topology import Topology, alone, around_hub, components, of_edges
from dpadmm_mpi.registry import Registry, is_inside, place_of
from dpadmm_mpi.rng import Generator, Purpose, generator
from dpadmm_mpi.types import Ints

DRAWS = 1000  # of a random graph, before giving up on a connected one
MOST_NODES = 1_000_000

graphs = Registry["Graph"]("graph", "graphs")


@graphs.base
class Graph(Options):
    """A way to join nodes by edges."""

    random: ClassVar[str] = ""  # the option that makes a drawn graph denser; "": the graph is not drawn

    @property
    @abstractmethod
    def size(self) -> int:
        """The number of nodes."""

    @abstractmethod
    def edges(self, rng: Generator) -> Ints:
        """Pairs of nodes, (E, 2); a single node is not asked. A drawn graph takes all its randomness from `rng`."""


class NamedGraph(Graph):
    """A graph on a given number of nodes."""

    nodes: Count = 5  # how many there are

    @property
    def size(self) -> int:
        return self.nodes


def _pairs(edges: Collection[tuple[int, int]]) -> Ints:
    """As an array, (E, 2)."""
    return np.fromiter(chain.from_iterable(edges), dtype=np.int64, count=2 * len(edges)).reshape(-1, 2)


@graphs.register("ring")
class Ring(NamedGraph):
    """Every node has two neighbours."""

    def edges(self, rng: Generator) -> Ints:
        first = np.arange(self.nodes if self.nodes > 2 else self.nodes - 1)
        return np.column_stack([first, (first + 1) % self.nodes])


@graphs.register("path")
class LineGraph(NamedGraph):
    """The nodes in a line."""

    def edges(self, rng: Generator) -> Ints:
        first = np.arange(self.nodes - 1)
        return np.column_stack([first, first + 1])


@graphs.register("complete")
class Complete(NamedGraph):
    """Everybody is everybody's neighbour."""

    def edges(self, rng: Generator) -> Ints:
        return np.column_stack(np.triu_indices(self.nodes, k=1))


@graphs.register("star")
class StarGraph(NamedGraph):
    """Node 0 in the middle is the neighbour of all others; it has records like everybody else."""

    def edges(self, rng: Generator) -> Ints:
        others = np.arange(1, self.nodes)
        return np.column_stack([np.zeros_like(others), others])


@graphs.register("grid")
class Grid(NamedGraph):
    """A rectangle, as near to a square as the number of nodes allows."""

    def edges(self, rng: Generator) -> Ints:
        n = self.nodes
        rows = max(r for r in range(1, int(n**0.5) + 1) if n % r == 0)
        if rows == 1 and n > 2:
            raise InputError(f"network.nodes: {n} nodes make no grid but a path; choose a number with two factors")
        places = np.arange(n).reshape(rows, -1)
        down, right = (places[:-1], places[1:]), (places[:, :-1], places[:, 1:])
        return np.concatenate([np.stack(pair, axis=-1).reshape(-1, 2) for pair in (down, right)])


def _draw(rng: Generator) -> int:
    """A seed for another generator."""
    return int(rng.integers(2**31))


@graphs.register("random")
class Random(NamedGraph):
    """Each pair of nodes is joined with `probability` (Erdos and Renyi)."""

    random: ClassVar[str] = "probability"

    probability: Fraction = 0.5  # of each edge

    def edges(self, rng: Generator) -> Ints:
        coin = random.Random(_draw(rng))  # a coin for each pair in order, as networkx.gnp_random_graph throws them
        return _pairs([pair for pair in combinations(range(self.nodes), 2) if coin.random() < self.probability])


class DegreeGraph(NamedGraph):
    """A drawn graph with a degree."""

    random: ClassVar[str] = "degree"

    degree: Count = 4  # neighbours of a node

    def _refuse(self) -> None:
        if self.degree >= self.nodes:
            raise InputError(f"network.degree: found {self.degree}; it must be below the number of nodes, {self.nodes}")


@graphs.register("regular")
class Regular(DegreeGraph):
    """Drawn among the graphs in which every node has `degree` neighbours."""

    def edges(self, rng: Generator) -> Ints:
        import networkx as nx

        class EdgesAlone(nx.Graph):  # type: ignore[misc]
            """What is drawn, without the dictionaries of a graph: they take most of the time and the memory."""

            drawn: Collection[tuple[int, int]] = ()

            def add_nodes_from(self, nodes: object, **_: object) -> None:
                pass

            def add_edges_from(self, edges: Collection[tuple[int, int]], **_: object) -> None:
                self.drawn = edges

        self._refuse()
        if self.nodes * self.degree % 2:
            raise InputError(
                f"network.degree: no graph has {self.nodes} nodes of degree {self.degree}; one of the two must be even"
            )
        graph = EdgesAlone()
        nx.random_regular_graph(self.degree, self.nodes, seed=_draw(rng), create_using=graph)
        return _pairs(graph.drawn)


@graphs.register("small-world")
class SmallWorld(DegreeGraph):
    """A ring of `degree` neighbours, each edge rewired with probability `rewiring` (Watts and Strogatz)."""

    rewiring: Probability = 0.1  # probability that an edge is moved

    def edges(self, rng: Generator) -> Ints:
        import networkx as nx

        self._refuse()
        if self.degree % 2:
            raise InputError(f"network.degree: found {self.degree}; a small world needs an even number of neighbours")
        return _pairs(nx.watts_strogatz_graph(self.nodes, self.degree, self.rewiring, seed=_draw(rng)).edges)


@graphs.register("scale-free")
class ScaleFree(DegreeGraph):
    """Every new node links to `degree` others, rather to those with many links (Barabasi and Albert)."""

    degree: Count = 2  # edges that a new node brings

    def edges(self, rng: Generator) -> Ints:
        import networkx as nx

        self._refuse()
        return _pairs(nx.barabasi_albert_graph(self.nodes, self.degree, seed=_draw(rng)).edges)


@graphs.register("edges")
class EdgeFile(Graph):
    """From the file `path`: two node numbers per line, counted from 0; `nodes`, unless the largest number tells."""

    path: FilePath  # a file with two node numbers per line, counted from 0
    nodes: Count | None = None  # how many there are

    @property
    def size(self) -> int:
        pairs = self._read()
        highest = max((max(pair) for pair in pairs), default=0)
        if self.nodes is not None and highest >= self.nodes:
            raise InputError(f"network.nodes: found {self.nodes}, but {self.path} names node {highest} (numbered from 0)")
        return self.nodes if self.nodes is not None else highest + 1

    def edges(self, rng: Generator) -> Ints:
        return np.array(self._read(), dtype=np.int64).reshape(-1, 2)

    def _read(self) -> list[tuple[int, int]]:
        try:
            lines = read_text(Path(self.path), "utf-8-sig").splitlines()
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or "it is not text"
            raise InputError(f"network.path: {self.path} cannot be read: {reason}") from None
        pairs: list[tuple[int, int]] = []
        for number, line in enumerate(lines, 1):
            if words := line.split("#")[0].strip():
                pairs.append(edge_in_line(words, f"network.path: {self.path} line {number}"))
        return pairs


@graphs.register("pairs")
class Pairs(Graph):
    """From the configuration itself: `pairs` of node numbers, counted from 0; `nodes`, unless the largest number tells."""

    pairs: list[tuple[Place, Place]]  # pairs of node numbers, counted from 0
    nodes: Count | None = None  # how many there are

    def check(self) -> None:
        for i, j in self.pairs:
            if i == j:
                raise InputError(f"network.pairs: node {i} is joined to itself; remove the pair")
        highest = max((max(pair) for pair in self.pairs), default=0)
        if self.nodes is not None and highest >= self.nodes:
            raise InputError(f"network.nodes: found {self.nodes}, but network.pairs names node {highest} (numbered from 0)")

    @property
    def size(self) -> int:
        return self.nodes if self.nodes is not None else max((max(pair) for pair in self.pairs), default=0) + 1

    def edges(self, rng: Generator) -> Ints:
        return np.array(self.pairs, dtype=np.int64).reshape(-1, 2)


@graphs.register("hub")
class Hub(NamedGraph):
    """A server or curator without records in the middle, which the nodes talk to; of star and curated methods."""

    def edges(self, rng: Generator) -> Ints:
        everyone = np.arange(self.nodes)
        return np.column_stack([everyone, np.full_like(everyone, self.nodes)])


MOST_NODES_OF: dict[type[Graph], int] = {Complete: 10_000, Random: 10_000}  # every pair of nodes is looked at


def build(graph: Graph, seed: int) -> Topology:
    """The graph of a configuration.

    Parameters
    ----------
    graph : a graph with its options
    seed : of what is drawn; a drawn graph is drawn again until it is connected

    Returns
    -------
    Neighbours of every node, and what follows from them.

    Raises
    ------
    InputError
        The graph is not connected; the sentence has its components.

    Examples
    --------
    >>> import dpadmm_mpi as dp
    >>> dp.networks.build(dp.networks.graphs["path"](nodes=3), seed=1).edges.tolist()
    [[0, 1], [1, 2]]
    """
    nodes = graph.size
    if nodes > (most := MOST_NODES_OF.get(type(graph), MOST_NODES)):
        raise InputError(f"network: {nodes:,} nodes, numbered from 0; at most {most:,} are possible here")
    if isinstance(graph, Hub):
        return around_hub(nodes)
    if nodes == 1:
        return alone()
    for attempt in range(DRAWS if graph.random else 1):
        edges = _checked(graph, graph.edges(generator(seed, Purpose.GRAPH, iteration=attempt)), nodes)
        topology = of_edges(edges, nodes)
        parts = components(topology)
        if len(parts) == 1:
            return topology
    if not graph.random:
        raise InputError(f"network: the graph is not connected; its components are {in_words(parts)}")
    raise InputError(f"network.{graph.random}: none of {DRAWS} drawn graphs on {nodes} nodes was connected; increase it")


def _checked(graph: Graph, edges: Any, nodes: int) -> Ints:
    """What a graph from outside calls its edges."""
    if is_inside(type(graph)):
        return np.asarray(edges, dtype=np.int64)
    found = np.asarray(edges)
    if found.ndim != 2 or found.shape[1] != 2 or found.dtype.kind not in "iu":
        raise InputError(f"{place_of(type(graph))}: edges must return pairs of node numbers, an array (E, 2) of integers")
    if len(found) and (found.min() < 0 or found.max() >= nodes or (found[:, 0] == found[:, 1]).any()):
        raise InputError(f"{place_of(type(graph))}: edges must join two of the nodes 0 to {nodes - 1}")
    return found.astype(np.int64)


def in_words(parts: list[list[int]]) -> str:
    """The connected parts of a graph, the first ones of many."""
    shown = ["{" + ", ".join(map(str, part[:8])) + (", ..." if len(part) > 8 else "") + "}" for part in parts[:5]]
    return " ".join(shown) + (f" and {len(parts) - 5} more" if len(parts) > 5 else "")
