"""Whether an HDF5 file is laid out as a result file is (docs/architecture.md), and what is wrong with which object if not.

Attributes and shapes are looked at, never the values: a file with millions of rows takes no longer than a small one. Whoever
reads values after that can rely on names, types and sizes.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import h5py
import numpy as np
from numpy.typing import NDArray

from dpadmm_mpi.config.files import read_table
from dpadmm_mpi.errors import InputError
from dpadmm_mpi.hdf5 import own_item, reading
from dpadmm_mpi.methods.base import Plan
from dpadmm_mpi.methods.metrics import metrics as METRICS
from dpadmm_mpi.storage.layout import FORMAT_VERSION, OVER, layout, over_nodes
from dpadmm_mpi.storage.timing import TIMING

FORMAT = "dpadmm_mpi"
MOST_OBJECTS = 2_000  # in a file
LONGEST_LIST = 100_000  # entries of an attribute
SCALE_ATTRIBUTES = {"CLASS", "NAME", "DIMENSION_LIST", "REFERENCE_LIST"}  # HDF5's own bookkeeping of dimension scales

NUMBERS, COUNTS, TRUTHS = "numbers (float64)", "whole numbers", "truth values"
KINDS = {NUMBERS: "f", COUNTS: "i", TRUTHS: "b"}  # as numpy calls them
TIMES = ("run", "iteration")

Shape = tuple[tuple[str, ...], str]  # dimensions, and what they hold

# What every file has: dimensions and what they hold.
REQUIRED: dict[str, Shape] = {
    "run": (("run",), COUNTS),
    "iteration": (("iteration",), COUNTS),
    "node": (("node",), COUNTS),
    "feature": (("feature",), COUNTS),
    "loss": (TIMES, NUMBERS),
    "timing/owner": (("node",), COUNTS),
    "graph/edges": (("graph/edge", "graph/end"), COUNTS),
    "data/node_of_record": (("data/record",), COUNTS),
    "data/sizes": (("node",), COUNTS),
    "restart/state": (("run", "restart/number"), NUMBERS),
}
# What is there too, of every node; or, without record.nodes, mean and maximum over the nodes.
OF_NODES: dict[str, Shape] = dict.fromkeys(TIMING, ((*TIMES, "node"), NUMBERS))
OVER_NODES: dict[str, Shape] = {kept: (TIMES, NUMBERS) for name, entry in TIMING.items() for kept in over_nodes(name, entry)}
# What is there or not.
OPTIONAL: dict[str, Shape] = {
    "trajectory": ((*TIMES, "node", "feature"), NUMBERS),
    "server_trajectory": ((*TIMES, "feature"), NUMBERS),
    "final/primal": (("run", "node", "feature"), NUMBERS),
    "final/server": (("run", "feature"), NUMBERS),
    "optimum/primal": (("feature",), NUMBERS),
    "optimum/gradients": (("node", "feature"), NUMBERS),
    "privacy/curve": (("privacy/curve_epsilon",), NUMBERS),
    "privacy/curve_epsilon": (("privacy/curve_epsilon",), NUMBERS),
    "privacy/renyi": (("privacy/renyi_order",), NUMBERS),
    "privacy/renyi_order": (("privacy/renyi_order",), NUMBERS),
    "privacy/pair_epsilon": (("node", "privacy/observer"), NUMBERS),
    "network/arcs": (("arc", "graph/end"), COUNTS),
    "network/delivered": ((*TIMES, "arc"), TRUTHS),
    "network/active": ((*TIMES, "node"), TRUTHS),
    "network/edges": ((*TIMES, "graph/edge"), TRUTHS),
    "network/node_bytes": ((*TIMES, "node"), COUNTS),
    "network/bytes": (TIMES, NUMBERS),
    "problem/map": (("constraint", "feature"), NUMBERS),
    "data/label": (("data/label",), NUMBERS),
    "data/label_counts": (("node", "data/label"), COUNTS),
    "data/label_distance": (("node",), NUMBERS),
    "data/mean_distance": (("node",), NUMBERS),
}
TOGETHER = (  # one of them needs the others
    ("privacy/curve", "privacy/curve_epsilon", "privacy/renyi", "privacy/renyi_order"),
    ("data/label", "data/label_counts", "data/label_distance"),
    ("network/arcs", "network/delivered", "network/active", "network/node_bytes"),
)


class Kind(NamedTuple):
    """What an attribute holds, in words, and how to tell."""

    words: str
    fits: Callable[[Any], bool]


TEXT = Kind("a text", lambda value: isinstance(value, str))
TEXTS = Kind(
    "a list of texts",
    lambda value: isinstance(value, np.ndarray) and value.ndim == 1 and all(isinstance(v, str) for v in value),
)
TRUTH = Kind("true or false", lambda value: isinstance(value, bool | np.bool_))
NUMBER = Kind("a number", lambda value: isinstance(value, int | float | np.integer | np.floating))
COUNT = Kind("a whole number above 0", lambda value: isinstance(value, int | np.integer) and bool(value > 0))
PROBABILITY = Kind("a number between 0 and 1", lambda value: NUMBER.fits(value) and 0.0 <= value <= 1.0)
AXIS = Kind('"linear" or "log"', lambda value: value in ("linear", "log") if isinstance(value, str) else False)

# Wherever it stands, an attribute of this name holds this.
MEANINGS = {
    **dict.fromkeys(("format", "name", "config", "config_sha256", "notes", "date"), TEXT),
    **dict.fromkeys(("software", "softwareVersion", "softwareDependencies"), TEXT),
    **dict.fromkeys(("long_name", "references", "Conventions"), TEXT),
    **dict.fromkeys(("title", "column", "units", "description", "theorem", "neighbouring_relation", "proof"), TEXT),
    **dict.fromkeys(("source", "mpi", "map_sha256", "files_sha256", "fields", "target"), TEXT),
    **dict.fromkeys(("complete", "proven", "lower_is_better"), TRUTH),
    **dict.fromkeys(("seconds", "objective", "target_centre", "target_scale"), NUMBER),
    **dict.fromkeys(("format_version", "ranks"), COUNT),
    **dict.fromkeys(("hosts",), TEXTS),
    "delta": PROBABILITY,
    "scale": AXIS,
}
REQUIRED_ATTRIBUTES: dict[str, tuple[str, ...]] = {
    "/": ("format", "format_version", "name", "config", "config_sha256", "complete"),
    "timing": ("ranks", "hosts"),
    "data": ("source",),
    "restart/state": ("fields",),
}
OF_ACCOUNTS = ("theorem", "neighbouring_relation", "proven")


class Contents(NamedTuple):
    """What there is in a file, by name without the first slash; the file itself is "/" among the attributes."""

    datasets: dict[str, h5py.Dataset]
    dims: dict[str, tuple[str, ...]]
    attributes: dict[str, dict[str, Any]]


def refuse_foreign(file: h5py.File, path: Path | str) -> dict[str, Any]:
    """The attributes of a result file itself; InputError for another file, or one of a version to come."""
    with reading(path):
        kind, version = file.attrs.get("format"), file.attrs.get("format_version")
    if not isinstance(kind, str) or kind != FORMAT:
        raise InputError(f"{path}: an HDF5 file, but not one of dpadmm_mpi's results")
    if COUNT.fits(version) and version > FORMAT_VERSION:
        raise InputError(
            f"{path}: written by a newer version (format {version}, and this one reads up to {FORMAT_VERSION}); install it"
        )
    return _attributes(file, "/", path)


def survey(file: h5py.File, path: Path | str) -> Contents:
    """All of a result file but its values; InputError with the object that is not as it must be."""
    found = Contents({}, {}, {"/": refuse_foreign(file, path)})
    with reading(path):
        _walk(file, "", found, {h5py.h5o.get_info(file.id).addr: "/"}, path)
        for name, dataset in found.datasets.items():
            found.dims[name] = _dims(dataset, name, found, path)
    _refuse_missing(found, path)
    return found


def _walk(group: h5py.Group, prefix: str, found: Contents, seen: dict[int, str], path: Path | str) -> None:
    for key in sorted(group):
        name = f"{prefix}{key}"
        item = own_item(group, key, path)
        address = h5py.h5o.get_info(item.id).addr
        if address in seen:
            raise InputError(f"{path}: /{name} is {seen[address]} under another name; every object of a result file has one")
        seen[address] = f"/{name}"
        if len(seen) > MOST_OBJECTS:
            raise InputError(f"{path}: more than {MOST_OBJECTS} objects; a result file has about a hundred")
        if not isinstance(item, h5py.Dataset | h5py.Group):
            raise InputError(f"{path}: /{name} is neither a group nor a dataset; remove it")
        found.attributes[name] = _attributes(item, f"/{name}", path)
        if isinstance(item, h5py.Dataset):
            _refuse_type(item, name, path)
            found.datasets[name] = item
        else:
            _walk(item, f"{name}/", found, seen, path)


def _refuse_type(dataset: h5py.Dataset, name: str, path: Path | str) -> None:
    kind = dataset.dtype
    text = h5py.check_string_dtype(kind) is not None
    whole = kind.kind == "i" and kind.subdtype is None
    if not (text or whole or kind in (np.float64, np.bool_)):
        raise InputError(f"{path}: /{name} holds {_short(kind)}; {NUMBERS}, {COUNTS}, {TRUTHS} or text are needed")
    if not dataset.ndim:
        raise InputError(f"{path}: /{name} has no dimension; at least one is needed")


def _dims(dataset: h5py.Dataset, name: str, found: Contents, path: Path | str) -> tuple[str, ...]:
    """The names of all axes: those of the scales attached to them, or the dataset's own if it is a scale."""
    dims = []
    for axis, length in enumerate(dataset.shape):
        scales = dataset.dims[axis].values()
        dim = str(scales[0].name if scales else dataset.name).strip("/")
        if dim not in found.datasets or found.datasets[dim].shape != (length,):
            raise InputError(f"{path}: /{name} has {length} entries along /{dim}, which has not; the file is damaged")
        dims.append(dim)
    return tuple(dims)


def _attributes(item: Any, place: str, path: Path | str) -> dict[str, Any]:
    found = {}
    with reading(f"{path}: an attribute of {place}"):
        for key in item.attrs:
            if key in SCALE_ATTRIBUTES:
                continue
            about = item.attrs.get_id(key)
            kind, shape = about.dtype, about.shape  # made anew whenever h5py is asked
            numeric = kind.kind in "iufb" and kind.subdtype is None
            if not numeric and h5py.check_string_dtype(kind) is None:
                raise InputError(f"{path}: attribute {_short(key)} of {place} holds {_short(kind)}, neither numbers nor text")
            if len(shape) > 1 or math.prod(shape) > LONGEST_LIST:
                raise InputError(f"{path}: attribute {_short(key)} of {place} has the shape {shape}, which is too much")
            found[key] = _readable(item.attrs[key], key, place, path)
    return found


def _readable(value: Any, key: str, place: str, path: Path | str) -> Any:
    """A value that is what its name says, and can be printed."""
    texts = [value] if isinstance(value, str) else value if isinstance(value, np.ndarray) and value.dtype.kind == "O" else []
    if isinstance(value, bytes | h5py.Empty) or not all(map(_is_utf8, texts)):
        raise InputError(f"{path}: attribute {_short(key)} of {place} is not text in UTF-8; write it again")
    meaning = MEANINGS.get(key)
    if meaning is not None and not meaning.fits(value):
        raise InputError(f"{path}: attribute {_short(key)} of {place} is {_short(value)}; it must be {meaning.words}")
    return value


def _is_utf8(text: Any) -> bool:
    try:
        text.encode("utf-8")
    except (UnicodeEncodeError, AttributeError):
        return False
    return True


def _refuse_missing(found: Contents, path: Path | str) -> None:
    damaged = "the file is damaged"
    with_nodes = _has_nodes(found, path)
    required = {*REQUIRED, *(OF_NODES if with_nodes else OVER_NODES), *_totals(_accounts(found), with_nodes)}
    for name, (dims, holds) in _expected(found).items():
        if name in found.datasets:
            _refuse_shape(found, name, dims, holds, path)
        elif name in required:
            raise InputError(f"{path}: /{name} is missing; {damaged}")
    for names in TOGETHER:
        there = [name for name in names if name in found.datasets]
        if absent := [name for name in names if there and name not in there]:
            raise InputError(f"{path}: /{absent[0]} is missing, but /{there[0]} is there; {damaged}")
    accounts = {f"privacy/{name}": OF_ACCOUNTS for name in _accounts(found)}
    for name, key in [(name, key) for name, keys in (REQUIRED_ATTRIBUTES | accounts).items() for key in keys]:
        if key not in found.attributes[name]:
            raise InputError(f"{path}: {'the file' if name == '/' else f'/{name}'} has no attribute {key}; {damaged}")
    if empty := [name for name in ("run", "iteration", "node", "feature") if not found.datasets[name].shape[0]]:
        raise InputError(f"{path}: /{empty[0]} has no entries; at least one is needed")
    if not len(found.attributes["timing"]["hosts"]) or found.datasets["graph/end"].shape != (2,):
        raise InputError(f"{path}: /timing names no host, or /graph/end has not two entries; {damaged}")


def _has_nodes(found: Contents, path: Path | str) -> bool:
    """Whether every node has something of its own in each row, by the configuration, which must be one."""
    record = read_table(Path(path), str(found.attributes["/"].get("config", ""))).raw.get("record")
    return not isinstance(record, dict) or record.get("nodes") is not False


def _totals(accounts: list[str], with_nodes: bool) -> list[str]:
    return [f"privacy/{prefix}{name}" for name in accounts for prefix in ("", *(("node_",) if with_nodes else ()))]


def _expected(found: Contents) -> dict[str, Shape]:
    measured: dict[str, Shape] = {name: (TIMES, NUMBERS) for name, metric in METRICS.items() if not metric.per_class}
    measured |= {name: ((*TIMES, "node"), NUMBERS) for name, metric in METRICS.items() if metric.per_node}
    measured |= {f"{name}_{how}": (TIMES, NUMBERS) for name, metric in METRICS.items() if metric.per_node for how in OVER}
    for name in _accounts(found):
        measured |= {f"privacy/{name}": (("iteration",), NUMBERS), f"privacy/node_{name}": (("iteration", "node"), NUMBERS)}
    return {**measured, **OPTIONAL, **OF_NODES, **OVER_NODES, **REQUIRED}


def _accounts(found: Contents) -> list[str]:
    """Totals over the nodes, which the tables show as privacy, and what there is of each node: one needs the other."""
    totals = [name for name, dims in found.dims.items() if dims == ("iteration",)]
    names = [name.removeprefix("privacy/") for name in totals if name.startswith("privacy/")]
    of_nodes = [name.removeprefix("privacy/node_") for name in found.datasets if name.startswith("privacy/node_")]
    return list(dict.fromkeys([*names, *of_nodes]))


def _refuse_shape(found: Contents, name: str, dims: tuple[str, ...], holds: str, path: Path | str) -> None:
    dataset = found.datasets[name]
    if found.dims[name] != dims:
        words = [", ".join(found.dims[name]), ", ".join(dims)]
        raise InputError(f"{path}: /{name} has the dimensions ({words[0]}); ({words[1]}) are needed; the file is damaged")
    if dataset.dtype.kind != KINDS[holds]:
        raise InputError(f"{path}: /{name} holds {_short(dataset.dtype)}; {holds} are needed; the file is damaged")


def refuse_impossible(arrays: Mapping[str, NDArray[Any]], path: Path | str) -> None:
    """Numbers that others count with: nodes that there are, iterations that grow."""
    nodes = len(arrays["node"])
    limits: Iterable[tuple[str, int, int]] = (
        ("run", 0, len(arrays["run"])),
        ("node", 0, nodes),
        ("graph/edges", 0, nodes + 1),  # the hub has the number behind the nodes
        ("network/arcs", 0, nodes),
        ("timing/owner", 0, np.iinfo(np.int32).max),
        ("data/node_of_record", -1, nodes),
        ("data/sizes", 0, np.iinfo(np.int64).max),
        ("data/label_counts", 0, np.iinfo(np.int64).max),
        ("iteration", 0, np.iinfo(np.int64).max),
    )
    for name, least, end in limits:
        values = arrays.get(name)
        if values is not None and values.size and not (least <= values.min() and values.max() < end):
            raise InputError(f"{path}: /{name} has {values.min()} to {values.max()}; {least} to {end - 1} are possible")
    if (np.diff(arrays["iteration"]) <= 0).any():
        raise InputError(f"{path}: /iteration does not grow from row to row; the file is damaged")


def refuse_other_plan(arrays: Mapping[str, NDArray[Any]], plan: Plan[Any], path: Path | str) -> None:
    """A file whose configuration would have made another one."""
    sizes = {
        "run": plan.config.runs,
        "iteration": len(plan.recorded),
        "node": plan.nodes,
        "feature": plan.features,
        "data/record": plan.total_records,
        "graph/edge": len(plan.topology.edges),
    }
    for name, size in sizes.items():
        if len(arrays[name]) != size:
            raise InputError(
                f"{path}: /{name} has {len(arrays[name])} entries, but its configuration makes {size}; it was changed"
            )
    for name in layout(plan):
        if name not in arrays:
            raise InputError(f"{path}: /{name} is missing, though the configuration in the file records it; it was changed")


def _short(value: Any) -> str:
    text = ascii(value) if isinstance(value, str) else str(value)
    return text if len(text) <= 60 else f"{text[:40]}...{text[-10:]}"
