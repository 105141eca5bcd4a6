"""Named graph or edge file -> sorted neighbours. networkx is imported on the rank that builds the graph, only."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpadmm_mpi.config.options import Network
from dpadmm_mpi.errors import InputError
from dpadmm_mpi.rng import Purpose, generator

Ints = NDArray[np.int64]

FEW_PLACES = 4  # of a rank, up to which vectors are added up one by one faster than by index
DRAWS = 1000  # of a random graph, before giving up on a connected one


@dataclass(frozen=True)
class Channel:
    """Who sends to whom in one exchange; places are numbered 0..P-1."""

    receivers: tuple[tuple[int, ...], ...]  # of each place, ascending

    @property
    def senders(self) -> tuple[tuple[int, ...], ...]:
        incoming: list[list[int]] = [[] for _ in self.receivers]
        for sender, receivers in enumerate(self.receivers):
            for receiver in receivers:
                incoming[receiver].append(sender)
        return tuple(map(tuple, incoming))


@dataclass(frozen=True)
class Graph:
    """A connected undirected graph on nodes 0..N-1, or N nodes around a hub; what a rank needs of it, without networkx.

    The hub (a server, a curator) has no records. It is place N, behind the nodes.
    """

    neighbours: tuple[tuple[int, ...], ...]  # of each place, ascending
    has_hub: bool = False

    @property
    def nodes(self) -> int:
        return len(self.neighbours) - self.has_hub

    @property
    def degree(self) -> Ints:
        return np.array([len(nb) for nb in self.neighbours[: self.nodes]], dtype=np.int64)

    @property
    def edges(self) -> Ints:
        """Each edge once, (E, 2), i < j, in order."""
        pairs = [(i, j) for i, nb in enumerate(self.neighbours) for j in nb if i < j]
        return np.array(pairs, dtype=np.int64).reshape(-1, 2)

    @property
    def channels(self) -> dict[str, Channel]:
        """Along all edges both ways; or up to the hub, and down from it."""
        if not self.has_hub:
            return {"edges": Channel(self.neighbours)}
        hub = self.nodes
        return {
            "up": Channel((*(((hub,),) * hub), ())),
            "down": Channel((*(((),) * hub), tuple(range(hub)))),
        }


def star_with_hub(nodes: int) -> Graph:
    return Graph((*(((nodes,),) * nodes), tuple(range(nodes))), has_hub=True)


def build(network: Network, seed: int) -> Graph:
    """The graph of a configuration; a disconnected one is refused with its components. Without a name, a star with a hub."""
    if network.graph is None:
        return star_with_hub(int(network.nodes or 0))
    import networkx as nx

    if network.graph == "edges":
        drawn = _read_edges(Path(str(network.path)), network.nodes)
    elif network.nodes == 1:
        drawn = nx.empty_graph(1)
    elif network.graph in ("random", "regular", "small-world", "scale-free"):
        return _draw_connected(network, seed)
    else:
        drawn = _fixed(str(network.graph), int(network.nodes or 0))
    if not nx.is_connected(drawn):
        raise InputError(f"network: the graph is not connected; its components are {_components(drawn)}")
    return _freeze(drawn)


def _fixed(name: str, n: int) -> Any:
    import networkx as nx

    if name == "grid":
        rows = max(r for r in range(1, int(n**0.5) + 1) if n % r == 0)
        if rows == 1 and n > 2:
            raise InputError(f"network.nodes: {n} nodes make no grid but a path; choose a number with two factors")
        return nx.convert_node_labels_to_integers(nx.grid_2d_graph(rows, n // rows), ordering="sorted")
    if name == "ring":
        return nx.cycle_graph(n) if n > 2 else nx.path_graph(n)
    makers = {"path": nx.path_graph, "complete": nx.complete_graph, "star": lambda n: nx.star_graph(n - 1)}
    return makers[name](n)


def _draw_connected(network: Network, seed: int) -> Graph:
    import networkx as nx

    n, degree = int(network.nodes or 0), int(network.degree or 0)
    if network.graph != "random" and degree >= n:
        raise InputError(f"network.degree: found {degree}; it must be below the number of nodes, {n}")
    if network.graph == "regular" and n * degree % 2:
        raise InputError(f"network.degree: no graph has {n} nodes of degree {degree}; one of the two must be even")
    if network.graph == "small-world" and degree % 2:
        raise InputError(f"network.degree: found {degree}; a small world needs an even number of neighbours")
    makers = {
        "random": lambda s: nx.gnp_random_graph(n, network.probability, seed=s),
        "regular": lambda s: nx.random_regular_graph(degree, n, seed=s),
        "small-world": lambda s: nx.watts_strogatz_graph(n, degree, network.rewiring, seed=s),
        "scale-free": lambda s: nx.barabasi_albert_graph(n, degree, seed=s),
    }
    for attempt in range(DRAWS):
        draw = int(generator(seed, Purpose.GRAPH, iteration=attempt).integers(2**31))
        drawn = makers[str(network.graph)](draw)
        if nx.is_connected(drawn):
            return _freeze(drawn)
    knob = "probability" if network.graph == "random" else "degree"
    raise InputError(f"network.{knob}: none of {DRAWS} drawn graphs on {n} nodes was connected; increase it")


def _read_edges(path: Path, nodes: int | None) -> Any:
    import networkx as nx

    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        raise InputError(f"network.path: {path} cannot be read: {reason}") from None
    pairs: list[tuple[int, int]] = []
    for number, line in enumerate(lines, 1):
        words = line.split("#")[0].split()
        if not words:
            continue
        if len(words) != 2 or not all(word.isdecimal() for word in words):
            raise InputError(f'network.path: {path} line {number} is "{line.strip()}"; two node numbers are needed')
        i, j = int(words[0]), int(words[1])
        if i == j:
            raise InputError(f"network.path: {path} line {number} joins node {i} to itself; remove it")
        pairs.append((i, j))
    highest = max((max(pair) for pair in pairs), default=0)
    if nodes is not None and highest >= nodes:
        raise InputError(f"network.nodes: found {nodes}, but {path} names node {highest} (numbered from 0)")
    graph = nx.empty_graph(nodes if nodes is not None else highest + 1)
    graph.add_edges_from(pairs)
    return graph


def _components(graph: Any) -> str:
    import networkx as nx

    parts = sorted(sorted(part) for part in nx.connected_components(graph))
    shown = ["{" + ", ".join(map(str, part[:8])) + (", ..." if len(part) > 8 else "") + "}" for part in parts[:5]]
    return " ".join(shown) + (f" and {len(parts) - 5} more" if len(parts) > 5 else "")


def _freeze(graph: Any) -> Graph:
    return Graph(tuple(tuple(sorted(int(j) for j in graph.neighbors(i))) for i in range(graph.number_of_nodes())))


class IncomingSum:
    """Sum of what the places of one rank receive over a channel, always in ascending order of the senders."""

    def __init__(self, channel: Channel, places: Ints, known: Ints) -> None:
        senders = channel.senders
        position = np.full(len(senders), -1, dtype=np.int64)
        position[known] = np.arange(len(known))
        self._places = len(places)
        self._few = [[int(position[j]) for j in senders[i]] for i in places] if len(places) <= FEW_PLACES else None
        if self._few is not None:
            return
        # The k-th senders of all places that have one: a pass over k adds them up without a loop over places.
        self._passes = []
        for k in range(max(len(senders[i]) for i in places)):
            rows = np.array([row for row, i in enumerate(places) if len(senders[i]) > k], dtype=np.int64)
            self._passes.append((rows, position[[senders[places[row]][k] for row in rows]]))

    def __call__(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        total = np.zeros((self._places, values.shape[1]))
        if self._few is not None:
            for row, senders in zip(total, self._few, strict=True):
                for sender in senders:
                    row += values[sender]
            return total
        for rows, sources in self._passes:
            total[rows] += values[sources]
        return total
