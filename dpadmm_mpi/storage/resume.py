"""What there is to go on from: a finished log, a checkpoint, or nothing. On rank 0.

A run may go on with its own configuration, or with more iterations and everything else the same.
"""

import hashlib
import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from dpadmm_mpi.data.dataset import Dataset
from dpadmm_mpi.errors import InputError
from dpadmm_mpi.files import exists
from dpadmm_mpi.hdf5 import reading, values_of
from dpadmm_mpi.methods.base import Config, Plan, as_table, make_plan, to_toml
from dpadmm_mpi.privacy.perturbations import Calibrated
from dpadmm_mpi.storage import recorder
from dpadmm_mpi.storage.atomic_file import refuse_existing
from dpadmm_mpi.storage.checkpoint import Found, Restart, find, restart_folder
from dpadmm_mpi.storage.experiments import read_again
from dpadmm_mpi.storage.journal import Entry, pack
from dpadmm_mpi.storage.layout import Shapes, layout
from dpadmm_mpi.storage.recorder import Recorder
from dpadmm_mpi.storage.result import open_file, read_attributes
from dpadmm_mpi.storage.survey import survey
from dpadmm_mpi.types import Array

LOGGER = logging.getLogger(__name__)

WITHOUT_EFFECT = ("record.patience",)  # on what is computed and recorded: whoever goes on may set it anew


class Opening(NamedTuple):
    """What a log is opened with."""

    plan: Plan[Any]
    dataset: Dataset[Any]
    shapes: Shapes
    final: Callable[[Mapping[str, Array]], dict[str, Array]]  # what is kept of a last state
    describe: Callable[[Recorder], None]


def is_finished(path: Path, config: Config) -> bool:
    """Whether nothing is left to do; a file of another configuration is refused, one to extend is not finished."""
    log, found = _config_of_log(path), find(path)
    if log is not None and log[1] and not _changes(path, log[0], config):
        if found is None or not _changes(path, found.config, config):
            _tidy(path)
        return True
    if found is not None:
        _refuse_other(path, found.config, config)
    elif log is not None:
        _refuse_other(path, log[0], config)
    elif exists(path) and not exists(restart_folder(path)):
        raise InputError(f"{path} is not a result file that could be gone on with; choose another place with -o")
    return False


def _tidy(path: Path) -> None:
    """Remove what a job has left that was killed between finishing the log and clearing up."""
    if exists(restart_folder(path)):
        with suppress(InputError):  # it is clearing up just now
            leftover = Restart(path)
            leftover.remove()
            leftover.close()


def open_log(path: Path, opening: Opening, *, force: bool, resume: bool) -> Recorder:
    """The log to write to: a new one, or one written again up to the last checkpoint."""
    if not resume:
        refuse_existing(path, force)
    plan, restart = opening.plan, Restart(path)
    record: Recorder | None = None
    try:
        found = _found(path, plan, opening.dataset, restart) if resume else None
        if found is None:
            restart.forget()
            restart.begin(to_toml(plan.config), _identity_of(plan, opening.dataset))
        else:
            restart.resume(found)
        record = recorder.create(plan, opening.shapes, restart)
        opening.describe(record)
        if found is not None:
            record.replay(found.entries(), found.checkpoint.seconds, opening.final)
        record.publish(force or resume)
        return record
    except BaseException:
        if record is not None:
            record.discard()
        restart.remove_unless_begun()
        restart.close()
        raise


def _found(path: Path, plan: Plan[Any], dataset: Dataset[Any], restart: Restart) -> Found | None:
    """The checkpoint to go on from; one of fewer iterations, or a finished log, is made one of this configuration first."""
    identity = _identity_of(plan, dataset)
    found, log = find(path), _config_of_log(path)
    for note in found.notes if found is not None else ():
        LOGGER.warning(note)
    if found is None and (log is None or not log[1]):
        if exists(restart.folder / "checkpoint"):
            LOGGER.warning("%s is damaged; the run begins anew", restart.folder)
        return None
    earlier = found.config if found is not None else log[0] if log is not None else ""
    if (found.identity if found is not None else _identity_of_log(path)) != identity:
        raise InputError(
            f"{path}: its data, graph or map file has changed, or a file of network.faults, since it was begun; restore it, "
            "or begin anew with --force"
        )
    if found is not None and not _changes(path, earlier, plan.config):
        return found
    _refuse_other(path, earlier, plan.config)
    iterations = _refuse_incompatible(path, plan, read_again(earlier, path).iterations)
    restart.begin(to_toml(plan.config), identity)
    for entry in _entries_of_log(path, iterations, plan) if found is None else _without_consensus(found.entries(), iterations):
        restart.add(entry)
    seconds = _seconds_of_log(path) if found is None else found.checkpoint.seconds
    restart.save(0, iterations, {}, seconds)
    restart.forget_others()
    restart.close_journal()
    return find(path)


def _changes(path: Path, earlier: str, config: Config) -> dict[str, tuple[Any, Any]]:
    """The keys in which two configurations differ, with both values; what has a default since then has it in both."""
    before, after = _flat(as_table(read_again(earlier, path))), _flat(as_table(config))
    keys = [key for key in dict.fromkeys([*before, *after]) if key not in WITHOUT_EFFECT]
    return {key: (before.get(key), after.get(key)) for key in keys if before.get(key) != after.get(key)}


def _refuse_other(path: Path, earlier: str, config: Config) -> None:
    """Only the number of iterations may have changed, and only grown."""
    changed = _changes(path, earlier, config)
    if not changed or (list(changed) == ["iterations"] and changed["iterations"][1] > changed["iterations"][0]):
        return
    words = [f"{key} ({_show(before)} there, {_show(after)} here)" for key, (before, after) in changed.items()]
    raise InputError(
        f"{path} was begun with another configuration: {', '.join(words)}; only iterations may grow; restore it, or choose "
        "another place with -o"
    )


def _refuse_incompatible(path: Path, plan: Plan[Any], asked: int) -> int:
    """More iterations than were asked for must not change the first ones; how many there are, within the privacy budget."""
    config = plan.config
    where = f"{path} cannot be extended from {asked} to {config.iterations} iterations: "
    noise = config.privacy.perturbation
    if isinstance(noise, Calibrated) and noise.target is not None:
        raise InputError(f"{where}privacy.target is spread over all iterations, so the first ones had more privacy to spend")
    before, _ = make_plan(msgspec.structs.replace(config, iterations=asked))
    iterations = before.iterations
    if before.free.first != plan.free.first:
        raise InputError(
            f"{where}release.average is over the second half of all iterations, so other ones would be averaged; "
            f"begin with release.average = {{ from = {plan.free.first} }}"
        )
    if iterations % config.record.every and plan.iterations > iterations:
        raise InputError(f"{where}its last row is not a multiple of record.every = {config.record.every}")
    if layout(before).keys() != layout(plan).keys():
        raise InputError(f"{where}something else would be recorded")
    for name, used in before.schedules.items():
        if not np.array_equal(used.values, plan.schedules[name].values[: iterations + 1], equal_nan=True):
            raise InputError(f"{where}{name} of the first ones would change")
    taken, now = before.releases.by_run(), plan.releases.by_run()
    if taken is not None and now is not None and not np.array_equal(taken.steps, now.steps[:, : iterations + 1]):
        raise InputError(f"{where}the nodes' budgets, which are spent in each run, would last for other data steps")
    return iterations


def _without_consensus(entries: Iterable[Entry], iterations: int) -> Iterator[Entry]:
    """What was recorded of the iterations alone: more of them lead to other consensus steps behind the last."""
    for entry in entries:
        if not any(name.startswith("consensus/") for name in entry.arrays):
            yield msgspec.structs.replace(entry, at=min(entry.at, iterations)) if entry.kind == "state" else entry


def _entries_of_log(path: Path, iterations: int, plan: Plan[Any]) -> Iterator[Entry]:
    """A finished log as the journal that it was written with; what is known before a run is written anew."""
    with open_file(path) as file, reading(path):
        dims_of = survey(file, path).dims
        if "optimum" in file:
            objective = np.array(file["optimum"].attrs["objective"])
            found = {"f": file["optimum/primal"][...], "objective": objective}
            for name in ("gradients", "dual"):  # not in files of version 1
                if f"optimum/{name}" in file:
                    found[name] = file[f"optimum/{name}"][...]
            yield Entry("optimum", arrays=pack(found))
        elif "distance_to_optimum" in file:
            yield Entry("optimum")
        shapes = json.loads(file["restart/state"].attrs["fields"])
        rows = [name for name in layout(plan) if name in dims_of]
        for run in range(len(file["run"])):
            yield Entry("rows", run, 0, pack({name: file[name][run : run + 1] for name in rows}))
            parts = np.split(file["restart/state"][run], np.cumsum([int(np.prod(shape)) for shape in shapes.values()])[:-1])
            state = {name: part.reshape(1, *shapes[name]) for name, part in zip(shapes, parts, strict=True)}
            yield Entry("state", run, iterations, pack(state))


def _config_of_log(path: Path) -> tuple[str, bool] | None:
    """The configuration in a log and whether the log is complete; None if it cannot be read."""
    try:
        root = read_attributes(path)
    except InputError:
        return None
    return (str(root["config"]), bool(root["complete"])) if {"config", "complete"} <= root.keys() else None


def _seconds_of_log(path: Path) -> float:
    with open_file(path) as file:
        return float(survey(file, path).attributes["timing"].get("seconds", 0.0))


def _identity_of(plan: Plan[Any], dataset: Dataset[Any]) -> str:
    named = plan.map_sha256 + ("" if plan.faults is None else plan.faults.files_sha256)
    return _identity(plan.topology.edges, dataset.node_of_record(), dataset.description().get("files", ()), named)


def _identity_of_log(path: Path) -> str:
    with open_file(path) as file, reading(path):
        survey(file, path)
        named = str(file["problem"].attrs["map_sha256"]) if "problem" in file else ""
        named += str(file["network"].attrs.get("files_sha256", "")) if "network" in file else ""
        files = file["data"].attrs.get("files", ())
        return _identity(values_of(file["graph/edges"]), values_of(file["data/node_of_record"]), files, named)


def _identity(edges: NDArray[Any], node_of_record: NDArray[Any], files: Any, named: str) -> str:
    """Of what a configuration names but does not hold; `named` are digests of files beside the data."""
    digest = hashlib.sha256(("\n".join(map(str, files)) + named).encode())
    for array in (edges, node_of_record):
        digest.update(np.ascontiguousarray(array, dtype=np.int64).tobytes())
    return digest.hexdigest()


def _flat(table: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in table.items():
        flat |= _flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return flat


def _show(value: Any) -> str:
    return "nothing" if value is None else f'"{value}"' if isinstance(value, str) else str(value)
