"""The HDF5 file of one configuration before the first iteration: what is known by then, and room for the rest.

Every dataset has its final shape and its disk space from the beginning: a full disk is found before the first iteration,
and a kill leaves a readable file in which the rows not reached are nan and `complete` is false.
"""

import json
import math
import os
import platform
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib import metadata
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from dpadmm_mpi.data.dataset import Dataset, statistics_of
from dpadmm_mpi.data.statistics import Statistics
from dpadmm_mpi.errors import RunError, advice_on
from dpadmm_mpi.files import uninterrupted
from dpadmm_mpi.hdf5 import reason
from dpadmm_mpi.methods.base import Plan, fingerprint, to_toml
from dpadmm_mpi.methods.measures import Layout, Quantity
from dpadmm_mpi.methods.references import cited
from dpadmm_mpi.privacy.account import kinds_for
from dpadmm_mpi.privacy.gaussian_noise import ORDERS
from dpadmm_mpi.privacy.recorded_curves import RecordedCurve
from dpadmm_mpi.storage.descriptions import CONVENTIONS, COORDINATES, GROUPS, NO_UNIT, UNITS, long_name, references
from dpadmm_mpi.storage.timing import CONSENSUS_TIMING, TIMING
from dpadmm_mpi.types import Array, Ints

Shapes = dict[str, tuple[int, ...]]  # of the fields of a state, all places

# 2: title, units, scale, column, lower_is_better of measurements; title, column of accounts; extensions
# 3: pair_epsilon, observer and budget_steps under /privacy; solve_residual; iterations may end where a budget does
# 4: units, long_name, references of everything, title of groups; whole numbers in as few bytes as they need, compressed;
#    with record.nodes = false mean and maximum in the place of what every node has
FORMAT_VERSION = 4
_OVERHEAD = 200_000  # bytes for names, attributes and HDF5's own tables
_PER_RECORD = 4  # bytes of its number, which compression takes to almost none, and of its node
LARGE = 4096  # bytes, from which on a dataset that is known before the run is compressed
COMPRESSED = {"compression": "gzip", "compression_opts": 4, "shuffle": True}
OF_NODES = ("iteration", "node")
# What is recorded without record.nodes in the place of what every node has, and in words.
OVER = {"mean": "mean over the nodes", "max": "the largest of the nodes"}
_DEPENDENCIES = ("numpy", "scipy", "h5py", "networkx")


class LogFile:
    """An open file with its plan, and the shapes of the state that it keeps at the end of a run."""

    def __init__(self, file: h5py.File, plan: Plan[Any], name: str, shapes: Shapes) -> None:
        self.file = file
        self.name = name
        self._plan = plan
        self._shapes = shapes
        self._layout = layout(plan)
        self._consensus_layout = consensus_layout(plan)
        self._references = references(plan.config)

    def describe(self, dataset: Dataset[Any], owner: Ints, hosts: list[str], mpi: str) -> None:
        """Everything that is known before the first iteration, and room for the rest."""
        with self._writing():
            self._attributes()
            self._scales()
            self._known_before(owner, hosts, mpi)
            self._describe_data(dataset)
            for name, entry in self._layout.items():
                self._reserve(name, ("run", "iteration", *entry.dims), entry.description, entry.attributes)
            for name, entry in self._consensus_layout.items():
                self._reserve(name, ("run", "consensus/step", *entry.dims), entry.description, entry.attributes)
            for name, entry in self._plan.finals.items():
                self._reserve(name, ("run", *entry.dims), entry.description)
            self._reserve("restart/state", ("run", "restart/number"), "the last state, field by field: to go on from here")
            self.file["restart/state"].attrs["fields"] = json.dumps(self._shapes)
            for name, item in self.file.items():
                if isinstance(item, h5py.Group):
                    self._describe_group(name)
            self._to_disk()

    def _describe_group(self, name: str) -> None:
        self.file[name].attrs.update({"title": GROUPS.get(name, name.replace("_", " ")), "references": self._references})

    def _to_disk(self) -> None:
        uninterrupted(self.file.flush)
        if self.file.driver != "core":
            os.fsync(self.file.id.get_vfd_handle())

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except (OSError, RuntimeError) as error:  # what h5py raises when the disk does not take the bytes
            advice = advice_on(error) if isinstance(error, OSError) and error.errno else "make room"
            raise RunError(
                f"{self.name} cannot be written ({reason(error)}); {advice} and go on with --resume, or choose another place "
                "with -o; what was written before is still there"
            ) from error

    def _attributes(self) -> None:
        plan = self._plan
        versions = []
        for package in _DEPENDENCIES:
            try:
                versions.append(f"{package} {metadata.version(package)}")
            except metadata.PackageNotFoundError:
                continue
        self.file.attrs.update(
            {
                "format": "dpadmm_mpi",
                "format_version": FORMAT_VERSION,
                "software": "dpadmm-mpi",
                "softwareVersion": metadata.version("dpadmm-mpi"),
                "softwareDependencies": ", ".join([f"Python {platform.python_version()}", *versions]),
                "date": datetime.now(UTC).isoformat(timespec="seconds"),
                "name": plan.config.name,
                "title": f"{plan.config.name}: {plan.config.method_name} on {plan.nodes} nodes",
                "references": self._references,
                "Conventions": CONVENTIONS,
                "config": to_toml(plan.config),
                "config_sha256": fingerprint(plan.config),
                "notes": "\n".join(plan.notes),
                "extensions": [f"{extension.path} sha256 {extension.sha256}" for extension in plan.config.extensions],
                "complete": False,
            }
        )

    def _scales(self) -> None:
        plan = self._plan
        scales = {
            "run": np.arange(plan.config.runs),
            "iteration": plan.recorded,
            "node": np.arange(plan.nodes),
            "feature": np.arange(plan.features),
            "graph/edge": np.arange(len(plan.topology.edges)),
            "graph/end": np.arange(2),
            "data/record": np.arange(plan.total_records),
            "restart/number": np.arange(_numbers(self._shapes)),
        }
        if plan.consensus_steps:
            scales["consensus/step"] = plan.consensus_recorded
        scales |= {name: np.arange(length) for name, length in plan.scales.items() if _is_kept(plan, (name,))}
        for name, values in scales.items():
            self._scale(name, values)

    def _scale(self, name: str, values: NDArray[Any]) -> None:
        """A coordinate; datasets are attached to it."""
        text = COORDINATES.get(name) or f"{name.split('/')[-1].replace('_', ' ')}, a coordinate"
        self._write(name, values).make_scale(name.split("/")[-1])
        self._attach(self.file[name], (), text)

    def _describe_data(self, dataset: Dataset[Any]) -> None:
        """Where each record went, where the records come from and what was done to them."""
        text = "node that has the record; -1: test"
        self._dataset("data/node_of_record", dataset.node_of_record(), ("data/record",), text)
        self._dataset("data/sizes", self._plan.sizes, ("node",), "training records of each node")
        self.file["data"].attrs.update(dataset.description())
        if (statistics := statistics_of(dataset)) is not None:
            self._describe_nodes(statistics)
        if (names := self._plan.names_of(dataset.feature_names())) is not None:
            self.file.create_dataset("data/feature_names", data=names, dtype=h5py.string_dtype())
            self._attach(self.file["data/feature_names"], ("feature",), "names of the features")

    def _describe_nodes(self, statistics: Statistics) -> None:
        """How the nodes' records differ."""
        self._scale("data/label", np.asarray(statistics.labels, dtype=np.float64))
        self._dataset("data/label_counts", statistics.counts, ("node", "data/label"), "training records of each node and label")
        self._dataset("data/label_distance", statistics.label_distance, ("node",), statistics.LABEL_DISTANCE)
        if statistics.mean_distance is not None:
            self._dataset("data/mean_distance", statistics.mean_distance, ("node",), statistics.MEAN_DISTANCE)

    def _known_before(self, owner: Ints, hosts: list[str], mpi: str) -> None:
        plan, rows = self._plan, self._plan.recorded
        self._accounts()
        for name, known in plan.known_before.items():
            if _is_kept(plan, known.dims):
                self._dataset(name, *known)
        if plan.curve is not None:
            self._curve(plan.curve)
        for name, used in plan.schedules.items() if _is_kept(plan, OF_NODES) else ():
            self._dataset(name, used.values[rows], OF_NODES, used.description)
        self._dataset("graph/edges", plan.topology.edges, ("graph/edge", "graph/end"), "each edge once")
        if plan.faults is not None and plan.faults.files_sha256:
            self.file.require_group("network").attrs["files_sha256"] = plan.faults.files_sha256
        if plan.map_sha256:
            self.file.create_group("problem").attrs["map_sha256"] = plan.map_sha256
        if plan.map_for_the_record is not None:
            self._dataset("problem/map", plan.map_for_the_record, ("constraint", "feature"), "A, of g(A x)")
        self._dataset("timing/owner", owner[: plan.nodes], ("node",), "rank that hosted the node")
        self.file["timing"].attrs.update({"ranks": len(hosts), "hosts": hosts, "mpi": mpi})

    def _accounts(self) -> None:
        plan, rows = self._plan, self._plan.recorded
        kinds = kinds_for(plan.releases)
        for account in plan.accounts:
            names, details = [account.name], {**account.details, **account.summary()}
            self._dataset(f"privacy/{account.name}", account.values[rows], ("iteration",), f"{account.title}, max over nodes")
            if _is_kept(plan, OF_NODES):
                names.append(f"node_{account.name}")
                self._dataset(f"privacy/{names[1]}", account.node_values[rows], OF_NODES, f"{account.title} of each node")
            for name in names:
                attributes = self.file[f"privacy/{name}"].attrs
                attributes.update(
                    {"theorem": account.theorem, "neighbouring_relation": account.neighbours, "proven": account.proven}
                )
                attributes.update(details)
                if account.delta is not None:
                    attributes["delta"] = account.delta
                kind = kinds.get(account.name)
                attributes["title"] = account.label or (account.title if kind is None else kind.label)
                attributes["references"] = "\n".join(
                    [account.theorem, *(f"{key} {paper}" for key, paper in cited(account.theorem).items())]
                )
                attributes["column"] = account.column or (account.name if kind is None else kind.column)

    def _curve(self, curve: RecordedCurve) -> None:
        for name, values, values_of, text in (
            (
                "curve",
                curve.delta,
                ("curve_epsilon", curve.epsilon),
                "delta over epsilon of the worst node after the last iteration",
            ),
            ("renyi", curve.renyi, ("renyi_order", ORDERS), "Renyi divergences of the worst node after the last iteration"),
        ):
            scale = f"privacy/{values_of[0]}"
            self._scale(scale, np.asarray(values_of[1], dtype=np.float64))
            self._dataset(f"privacy/{name}", values, (scale,), text)

    def _dataset(self, name: str, values: NDArray[Any], dims: tuple[str, ...], text: str) -> None:
        self._attach(self._write(name, values), dims, text, {"units": UNITS.get(name, NO_UNIT)})

    def _write(self, name: str, values: NDArray[Any]) -> h5py.Dataset:
        """Whole numbers in as few bytes as they need; what is large, compressed. The values stay what they are."""
        if np.issubdtype(values.dtype, np.integer):
            values = small_integers(values)
        elif values.dtype != np.bool_:
            values = values.astype(np.float64)
        return self.file.create_dataset(name, data=values, **(COMPRESSED if values.nbytes >= LARGE else {}))

    def _reserve(self, name: str, dims: tuple[str, ...], text: str, about: Mapping[str, Any] | None = None) -> None:
        """A dataset of nan, its space taken from the disk now."""
        shape = tuple(len(self.file[dim]) for dim in dims)
        properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        properties.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
        dataset = self.file.create_dataset(name, shape=shape, dtype=np.float64, fillvalue=np.nan, dcpl=properties)
        self._attach(dataset, dims, text, about)

    def _attach(self, dataset: h5py.Dataset, dims: tuple[str, ...], text: str, about: Mapping[str, Any] | None = None) -> None:
        """The dimensions of a dataset, and what it says of itself."""
        for axis, dim in enumerate(dims):
            dataset.dims[axis].attach_scale(self.file[dim])
        about = about or {}
        own = {"description": text, "long_name": about.get("title") or long_name(text), "references": self._references}
        attributes = own | {"units": NO_UNIT} | {key: value for key, value in about.items() if (key, value) != ("units", "")}
        if dataset.dtype.kind not in "if":  # text and truth values have no unit
            del attributes["units"]
        dataset.attrs.update(attributes)
        dataset.flush()  # now: what fails when the dataset is forgotten is lost without a word


def small_integers(values: NDArray[Any]) -> NDArray[Any]:
    """In the smallest signed type that holds them all."""
    fits = (kind for kind in (np.int8, np.int16, np.int32) if (values == values.astype(kind)).all())
    return values.astype(next(fits, np.int64))


def layout(plan: Plan[Any]) -> Layout:
    """Every dataset with a value per run and recorded iteration."""
    return _kept(plan, plan.layout | plan.averaged_layout | TIMING)


def consensus_layout(plan: Plan[Any]) -> Layout:
    """Every dataset with a value per run and recorded consensus step."""
    return _kept(plan, plan.consensus_layout | CONSENSUS_TIMING if plan.consensus_steps else {})


def _is_kept(plan: Plan[Any], dims: tuple[str, ...]) -> bool:
    """Whether this is recorded: without record.nodes, nothing that every node or arc has in each row."""
    return plan.config.record.nodes or not ("arc" in dims or ("iteration" in dims and {"node", "graph/edge"} & set(dims)))


def _kept(plan: Plan[Any], whole: Layout) -> Layout:
    """What is recorded of all that is measured: without record.nodes mean and maximum in the place of every node's own."""
    if plan.config.record.nodes:
        return whole
    made: Layout = {}
    for name, entry in whole.items():
        made |= over_nodes(name, entry) if entry.dims == ("node",) else {name: entry}
    return made


def over_nodes(name: str, entry: Quantity) -> Layout:
    """Mean and maximum in the place of what every node has."""
    title = entry.attributes.get("title")
    about = {key: value for key, value in entry.attributes.items() if key != "column"}
    return {
        f"{name}_{how}": Quantity((), f"{entry.description}; {text}", about | ({"title": f"{title}, {text}"} if title else {}))
        for how, text in OVER.items()
    }


def recorded_value(name: str, measured: Mapping[str, Array]) -> Array:
    """A dataset's part of a row, (runs, ...), from all that is measured, in which every node has its own."""
    if name in measured:
        return measured[name]
    of_nodes, how = name.rsplit("_", 1)
    values = measured[of_nodes]
    return np.asarray(np.mean(values, axis=-1) if how == "mean" else np.fmax.reduce(values, axis=-1))


def _numbers(shapes: Shapes) -> int:
    return sum(math.prod(shape) for shape in shapes.values())


def bytes_needed(plan: Plan[Any], shapes: Shapes) -> int:
    sizes = {"run": plan.config.runs, "iteration": len(plan.recorded), "node": plan.nodes, "feature": plan.features}
    sizes |= {**plan.scales, "consensus/step": len(plan.consensus_recorded)}
    of_nodes = sizes["iteration"] * sizes["node"] if plan.config.record.nodes else 0

    def numbers(*dims: str) -> int:
        return math.prod(sizes[dim] for dim in dims)

    total = sum(numbers("run", "iteration", *dims) for dims, *_ in layout(plan).values())
    total += sum(numbers("run", "consensus/step", *dims) for dims, *_ in consensus_layout(plan).values())
    total += sum(numbers("run", *dims) for dims, *_ in plan.finals.values())
    accounts = len(kinds_for(plan.releases))
    total += sum(known.values.size for known in plan.known_before.values() if _is_kept(plan, known.dims))
    total += (len(plan.schedules) + 1 + accounts) * of_nodes + accounts * numbers("iteration")
    total += (plan.config.runs + 1) * _numbers(shapes)
    total += 2 * len(plan.topology.edges) + 2 * plan.features + 8 * plan.nodes
    total += 0 if plan.map_for_the_record is None else plan.map_for_the_record.size
    return 8 * total + _PER_RECORD * plan.total_records + _OVERHEAD
