"""Keywords of `run` as dotted keys of a configuration: eta=1.0 becomes algorithm.eta, graph=... the network's pairs."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dpadmm_mpi.config.files import Setting
from dpadmm_mpi.config.options import Options, fields_of
from dpadmm_mpi.config.reading import Table, is_section, keys_of, possible_keys
from dpadmm_mpi.errors import InputError
from dpadmm_mpi.methods import Config, Method, methods
from dpadmm_mpi.methods.experiment import DEFAULT_METHOD
from dpadmm_mpi.privacy.perturbations import DataStepPerturbation
from dpadmm_mpi.registry import did_you_mean

SECTIONS: dict[str, type[Options]] = {f.name: f.type for f in fields_of(Config) if is_section(f.type)}
TOP = [f.name for f in fields_of(Config) if f.name not in SECTIONS]
SHORT = ("epsilon",)  # words of `run` that are no keys


def changes(settings: Mapping[str, Any], base: Table, before: Sequence[Setting] = ()) -> list[Setting]:
    """Keyword settings as dotted keys, on top of a configuration and of settings before; what is None is not set."""
    given = {key: value for key, value in settings.items() if value is not None}
    epsilon = given.pop("epsilon", None)
    found: list[Setting] = []
    loose: dict[str, Any] = {}
    for key, value in given.items():
        if key in TOP:
            found.append((key, value))
        elif key in SECTIONS:
            if not isinstance(value, Mapping):
                raise InputError(f"{key}: a section of the configuration; give a dictionary of its keys")
            found += [(f"{key}.{name}", item) for name, item in value.items()]
        else:
            loose[key] = value
    tables = _tables(base, [*before, *found])
    tables["algorithm"] |= {key: value for key, value in loose.items() if key == "method"}
    for key, value in loose.items():
        words = {name: item for name, item in loose.items() if isinstance(item, str)}
        section = "data" if key == "target" and key in words else _home(key, tables, words)
        found.append((f"{section}.{key}", value))
    return found if epsilon is None else [*found, *_private(epsilon, _tables(base, [*before, *found]))]


def _tables(base: Table, settings: Sequence[Setting]) -> dict[str, Table]:
    """The sections as far as they are known."""
    tables = {name: dict(base[name]) if isinstance(base.get(name), Mapping) else {} for name in SECTIONS}
    for key, value in settings:
        section, _, name = key.partition(".")
        if name and section in tables:
            tables[section][name] = value
    return tables


def says(base: Table, settings: Sequence[Setting], section: str, key: str) -> bool:
    """Whether a key has a value already."""
    return key in _tables(base, settings)[section]


def _home(key: str, tables: dict[str, Table], words: Mapping[str, str]) -> str:
    """The section of a key; of several, the one in which it has a meaning for what was chosen."""
    homes = [name for name, cls in SECTIONS.items() if key in possible_keys(cls)]
    if not homes:
        known = [*TOP, *SECTIONS, *SHORT, *(name for cls in SECTIONS.values() for name in possible_keys(cls))]
        hint = did_you_mean(key, known)
        raise InputError(f"{key}: unknown setting{hint or '; docs/configuration.md lists the keys of a configuration'}")
    if len(homes) > 1:
        ruling = _method(tables).ruling()
        chosen = {name: tables[name] | {k: v for k, v in words.items() if k in possible_keys(SECTIONS[name])} for name in homes}
        homes = [name for name in homes if key in (keys_of(SECTIONS[name], name, chosen[name], ruling) or ())] or homes
    if len(homes) > 1:  # nodes=5 is about the network, not about what is recorded
        homes = [name for name in homes if name != "record"] or homes
    if len(homes) > 1:
        raise InputError(f'{key}: a key of {" and of ".join(homes)}; say which, as in {homes[0]}={{"{key}": ...}}')
    return homes[0]


def _method(tables: dict[str, Table]) -> type[Method]:
    name = tables["algorithm"].get("method", DEFAULT_METHOD)
    return methods[str(name)]


def _private(epsilon: Any, tables: dict[str, Table]) -> list[Setting]:
    """epsilon=1.0: noise that is calibrated to a total of so much at `delta`, by an account of the method."""
    method, privacy = _method(tables), tables["privacy"]
    settings: list[Setting] = [("privacy.target", epsilon)]
    on_network = any(issubclass(kind, DataStepPerturbation) for kind in method.perturbations)
    if on_network and "target_account" not in privacy:
        settings.append(("privacy.target_account", "epsilon"))
    if method.default_perturbation == "none" and "perturbation" not in privacy:
        settings.append(("privacy.perturbation", "objective"))
    return settings


def network(graph: Any) -> list[Setting]:
    """A graph by its name, as a networkx graph, or as an array of pairs of node numbers, (edges, 2)."""
    if isinstance(graph, str):
        return [("network.graph", graph)]
    if hasattr(graph, "edges") and hasattr(graph, "nodes"):
        pairs, nodes = _pairs_of(graph)
        return [("network.graph", "pairs"), ("network.pairs", pairs), ("network.nodes", nodes)]
    try:
        edges = np.asarray(graph)
    except ValueError:
        edges = np.empty(0)
    if edges.ndim != 2 or edges.shape[1] != 2 or edges.dtype.kind not in "iu":
        found = f"an array of the shape {edges.shape} and the type {edges.dtype.name}"
        raise InputError(
            f"graph: found {found}; give a networkx graph, the name of one, or pairs of node numbers, (edges, 2) whole numbers"
        )
    return [("network.graph", "pairs"), ("network.pairs", edges.tolist())]


def _pairs_of(graph: Any) -> tuple[list[tuple[int, int]], int]:
    """Node numbers stand for themselves; any other names are numbered in the order of the graph."""
    if graph.is_directed():
        raise InputError("graph: a directed graph; neighbours talk both ways, pass graph.to_undirected()")
    names = list(graph.nodes)
    if not names:
        raise InputError("graph: has no nodes")
    numbered = all(type(name) is int for name in names) and sorted(names) == list(range(len(names)))
    number = {name: name if numbered else place for place, name in enumerate(names)}
    loops = [edge[0] for edge in graph.edges if edge[0] == edge[1]]
    if loops:
        raise InputError(f"graph: node {loops[0]!r} is joined to itself; remove the edge")
    return sorted({(min(pair), max(pair)) for pair in ((number[e[0]], number[e[1]]) for e in graph.edges)}), len(names)
