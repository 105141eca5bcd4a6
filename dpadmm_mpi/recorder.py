"""The HDF5 file of one configuration, written by rank 0 while the run goes on.

Every dataset has its final shape and its disk space from the beginning: a full disk is found before the first iteration,
and a kill leaves a readable file in which the rows not reached are nan and `complete` is false.
"""

import errno
import os
import platform
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from dpadmm_mpi.config import fingerprint, to_toml
from dpadmm_mpi.data.dataset import Dataset
from dpadmm_mpi.errors import InputError, RunError
from dpadmm_mpi.plan import Plan
from dpadmm_mpi.results import Result, read
from dpadmm_mpi.theory import privacy

Array = NDArray[np.float64]

FORMAT_VERSION = 1
FLUSH_SECONDS = 1.0  # a killed run loses less than this
_OVERHEAD = 200_000  # bytes for names, attributes and HDF5's own tables
_DEPENDENCIES = ("numpy", "scipy", "h5py", "networkx")

PER_RUN = {  # name -> (what follows (run, iteration), description)
    "loss": ((), "L(t): mean over nodes of the node's mean loss at its own f_i(t)"),
    "node_loss": (("node",), "mean loss of each node at its own f_i(t)"),
    "objective": ((), "sum_i O_i(f_i(t))"),
    "consensus_error": ((), "(1/N) sum_i ||f_i(t) - fbar(t)||"),
    "test_error": ((), "share of test records that the mean classifier gets wrong; nan without test records"),
    "kkt_residual": (("node",), "relative residual of (KKT) in the data step, the largest since the row before; nan if none"),
    "timing/compute_seconds": (("node",), "solving the node's data steps, since the row before"),
    "timing/wait_seconds": (("node",), "waiting for neighbours of the node's rank, since the row before"),
    "timing/bytes_sent": (("node",), "bytes of the node's vectors to other ranks, since the row before"),
}
OPTIMUM = {"distance_to_optimum": ((), "(1/N) sum_i ||f_i(t) - f*|| / ||f*||, f* the centralised optimum")}
LARGE = ("trajectory", "final/primal", "final/dual", "data/node_of_record", "data/record")
TRAJECTORY = {"trajectory": (("node", "feature"), "f_i(t) as released: what an eavesdropper sees")}


class Recorder:
    """Buffers rows and writes them; one for each file."""

    def __init__(self, file: h5py.File, plan: Plan, path: Path | None) -> None:
        self.file = file
        self.path = path
        self.name = "the result" if path is None else str(path)
        self._plan = plan
        self._layout = PER_RUN | (OPTIMUM if plan.seeks_optimum else {})
        if plan.config.record.trajectory:
            self._layout = self._layout | TRAJECTORY
        self._pending: list[dict[str, Any]] = []
        self._next = (0, 0)  # run and row of the first pending entry
        self._flushed = time.monotonic()
        self._flushed_iteration = 0

    def describe(self, dataset: Dataset, owner: NDArray[np.int64], hosts: list[str], mpi: str) -> None:
        """Everything that is known before the first iteration, and room for the rest."""
        with self._writing():
            self._attributes()
            self._scales()
            self._known_before(owner, hosts, mpi)
            self._describe_data(dataset)
            for name, (dims, text) in self._layout.items():
                self._reserve(name, ("run", "iteration", *dims), text)
            for name, text in (("final/primal", "f_i(T)"), ("final/dual", "lambda_i(T)")):
                self._reserve(name, ("run", "node", "feature"), text)
            self._to_disk()

    def optimum(self, f: Array, objective: float) -> None:
        with self._writing():
            self._dataset("optimum/primal", f, ("feature",), "f*, the centralised optimum")
            self.file["optimum"].attrs["objective"] = objective
            self._to_disk()

    def row(self, run: int, row: int, iteration: int, values: dict[str, Any]) -> None:
        """The measurements of one recorded iteration; `values` has an entry for every name in the layout."""
        if not self._pending:
            self._next = (run, row)
        self._pending.append(values)
        due = iteration - self._flushed_iteration >= self._plan.config.record.checkpoint
        if due or time.monotonic() - self._flushed > FLUSH_SECONDS:
            with self._writing():
                self._write_pending()
                self.file.flush()
            self._flushed_iteration = iteration

    def end_of_run(self, run: int, primal: Array, dual: Array) -> None:
        with self._writing():
            self._write_pending()
            self.file["final/primal"][run] = primal
            self.file["final/dual"][run] = dual
            self.file.flush()
        self._flushed_iteration = 0

    def finish(self, seconds: float) -> None:
        """The data first, safely; only then the mark that the file is complete."""
        with self._writing():
            self.file["timing"].attrs["seconds"] = seconds
            self._to_disk()
            self.file.attrs["complete"] = True
            self._to_disk()

    def result(self, brief: bool = False) -> Result:
        return read(self.file, self.name, skip=LARGE if brief else ())

    def close(self) -> None:
        with self._writing():
            self.file.close()

    def discard(self) -> None:
        """Remove a file that holds nothing yet."""
        with suppress(OSError, RuntimeError):  # h5py cannot close what it could not write
            self.file.close()
        if self.path is not None:
            self.path.unlink(missing_ok=True)

    def _write_pending(self) -> None:
        if self._pending:
            run, row = self._next
            for name in self._layout:
                block = np.array([values[name] for values in self._pending], dtype=np.float64)
                self.file[name][run, row : row + len(block)] = block
        self._pending = []
        self._flushed = time.monotonic()

    def _to_disk(self) -> None:
        self.file.flush()
        if self.file.driver != "core":
            os.fsync(self.file.id.get_vfd_handle())

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except (OSError, RuntimeError) as error:  # what h5py raises when the disk does not take the bytes
            raise RunError(
                f"{self.name} cannot be written ({error}); make room or choose another place with -o; what was "
                "written before is still there"
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
                "config": to_toml(plan.config),
                "config_sha256": fingerprint(plan.config),
                "notes": "\n".join(plan.notes),
                "complete": False,
            }
        )

    def _scales(self) -> None:
        plan = self._plan
        scales = {
            "run": np.arange(plan.config.runs),
            "iteration": plan.recorded,
            "node": np.arange(plan.graph.nodes),
            "feature": np.arange(plan.features),
            "graph/edge": np.arange(len(plan.graph.edges)),
            "graph/end": np.arange(2),
            "data/record": np.arange(plan.total_records),
        }
        for name, values in scales.items():
            self.file.create_dataset(name, data=values, dtype=np.int64).make_scale(name.split("/")[-1])

    def _describe_data(self, dataset: Dataset) -> None:
        """Where each record went, where the records come from and what was done to them."""
        text = "node that has the record; -1: test"
        self._dataset("data/node_of_record", dataset.node_of_record(), ("data/record",), text)
        self._dataset("data/sizes", self._plan.sizes, ("node",), "training records of each node")
        self.file["data"].attrs.update(dataset.description())
        if (names := dataset.feature_names()) is not None:
            self.file.create_dataset("data/feature_names", data=names, dtype=h5py.string_dtype())
            self._attach(self.file["data/feature_names"], ("feature",), "names of the features")

    def _known_before(self, owner: NDArray[np.int64], hosts: list[str], mpi: str) -> None:
        plan, ledger, rows = self._plan, self._plan.ledger, self._plan.recorded
        over_nodes = ("iteration", "node")
        self._dataset("privacy/bound", ledger.bound[rows], ("iteration",), "P(t) = max_i P_i(t), the paper's bound")
        self._dataset("privacy/node_bound", ledger.node_bound[rows], over_nodes, "P_i(t), the paper's bound")
        self._dataset("privacy/tight", ledger.tight[rows], ("iteration",), "the tighter pure bound, max over nodes")
        self._dataset("privacy/node_tight", ledger.node_tight[rows], over_nodes, "the tighter pure bound of each node")
        delta = f"epsilon at delta = {ledger.delta:g}"
        self._dataset("privacy/epsilon", ledger.epsilon[rows], ("iteration",), f"{delta}, max over nodes")
        self._dataset("privacy/node_epsilon", ledger.node_epsilon[rows], over_nodes, f"{delta} of each node")
        perturbation = plan.config.privacy.perturbation
        theorems = {
            "bound": (ledger.theorem, ledger.proven),
            "tight": (f"{ledger.theorem}; {privacy.TIGHT}", True),
            "epsilon": (privacy.EPSILON.get(perturbation, privacy.EPSILON_OBJECTIVE), True),
        }
        for account, (theorem, proven) in theorems.items():
            for name in (account, f"node_{account}"):
                attributes = self.file[f"privacy/{name}"].attrs
                attributes.update({"theorem": theorem, "neighbouring_relation": privacy.NEIGHBOURS, "proven": proven})
        for name in ("epsilon", "node_epsilon"):
            self.file[f"privacy/{name}"].attrs["delta"] = ledger.delta
        settings = plan.settings
        self._dataset("privacy/alpha", settings.alpha[rows], over_nodes, "noise parameter of the data step; nan if none")
        self._dataset("algorithm/eta", settings.eta[rows], over_nodes, "penalty eta_i(t)")
        self._dataset("algorithm/theta", settings.theta[rows], over_nodes, "dual step theta_i(t); nan if none")
        self._dataset("graph/edges", plan.graph.edges, ("graph/edge", "graph/end"), "each edge once")
        self._dataset("timing/owner", owner, ("node",), "rank that hosted the node")
        self.file["timing"].attrs.update({"ranks": len(hosts), "hosts": hosts, "mpi": mpi})

    def _dataset(self, name: str, values: NDArray[Any], dims: tuple[str, ...], text: str) -> None:
        dtype = np.int64 if np.issubdtype(values.dtype, np.integer) else np.float64
        self._attach(self.file.create_dataset(name, data=values, dtype=dtype), dims, text)

    def _reserve(self, name: str, dims: tuple[str, ...], text: str) -> None:
        """A dataset of nan, its space taken from the disk now."""
        shape = tuple(len(self.file[dim]) for dim in dims)
        properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        properties.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
        dataset = self.file.create_dataset(name, shape=shape, dtype=np.float64, fillvalue=np.nan, dcpl=properties)
        self._attach(dataset, dims, text)

    def _attach(self, dataset: h5py.Dataset, dims: tuple[str, ...], text: str) -> None:
        for axis, dim in enumerate(dims):
            dataset.dims[axis].attach_scale(self.file[dim])
        dataset.attrs["description"] = text


def create(path: Path | None, plan: Plan, force: bool = False) -> Recorder:
    """A recorder for a new file, or, without a path, for one in memory. An existing file is only replaced by force."""
    if path is None:
        return Recorder(h5py.File("result", "x", driver="core", backing_store=False), plan, None)
    refuse_existing(path, force)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _claim(path, _bytes_needed(plan), force)
        # No lock: readers may look at a running job. The file is ours, whatever else is going on.
        return Recorder(h5py.File(path, "w", locking=False), plan, path)
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise RunError(f"{path} does not fit on the disk ({reason}); make room or choose another place with -o") from None
        raise InputError(f"{path} cannot be created ({reason}); choose another place with -o") from None


def _bytes_needed(plan: Plan) -> int:
    runs, rows, nodes, features = plan.config.runs, len(plan.recorded), plan.graph.nodes, plan.features
    numbers = runs * rows * (5 * nodes + 8) + 2 * runs * nodes * features + rows * (7 * nodes + 2)
    numbers += 2 * len(plan.graph.edges) + 2 * plan.total_records + features
    if plan.config.record.trajectory:
        numbers += runs * rows * nodes * features
    return 8 * numbers + _OVERHEAD


def _claim(path: Path, size: int, force: bool) -> None:
    """Make `path` an empty file of ours, if the disk has room for all of it; an old one is kept until that is known.

    HDF5 does not survive a full disk well, so it never meets one: its file takes all its space at the beginning.
    """
    claim = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with claim.open("xb") as file:
            _allocate(file.fileno(), size, path.parent)
        if force:
            claim.replace(path)
        else:
            os.link(claim, path)  # of two writers, the second one fails
    finally:
        claim.unlink(missing_ok=True)


def _allocate(file: int, size: int, folder: Path) -> None:
    try:
        os.posix_fallocate(file, 0, size)
    except (AttributeError, OSError) as error:  # not every system and file system can; then ask how much is free
        if getattr(error, "errno", errno.EINVAL) not in (errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS):
            raise
        if shutil.disk_usage(folder).free < size:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)) from None


def refuse_existing(path: Path, force: bool) -> None:
    if path.exists() and not path.is_file():
        raise InputError(f"{path} is not an ordinary file; choose another place with -o")
    if path.exists() and not force:
        raise InputError(f"{path} exists; choose another place with -o, or replace it with --force")
