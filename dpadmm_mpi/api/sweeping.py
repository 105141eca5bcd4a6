"""`sweep`, as Python programs call it."""

import itertools
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from msgspec.structs import replace
from numpy.typing import NDArray

from dpadmm_mpi.api.lending import at_hand, inventory_of
from dpadmm_mpi.api.results import Results
from dpadmm_mpi.api.running import ConfigLike, changes_of, checked_config
from dpadmm_mpi.config.files import Setting, dotted, in_a_name, nested, plain, slug
from dpadmm_mpi.config.reading import Table
from dpadmm_mpi.data import arrays
from dpadmm_mpi.data.arrays import Brought, Inventory
from dpadmm_mpi.engine.loop import Manner, execute
from dpadmm_mpi.errors import InputError
from dpadmm_mpi.methods import Config
from dpadmm_mpi.methods.base import as_table, make_plan
from dpadmm_mpi.parallel.collective import agree, guard, on_root
from dpadmm_mpi.parallel.launcher import refuse_copies
from dpadmm_mpi.parallel.mpi import Mpi
from dpadmm_mpi.parallel.serial import Serial
from dpadmm_mpi.parallel.transport import Transport
from dpadmm_mpi.parallel.watch import watching
from dpadmm_mpi.storage.atomic_file import refuse_existing
from dpadmm_mpi.storage.experiments import load as load_experiment
from dpadmm_mpi.storage.experiments import source_of
from dpadmm_mpi.storage.infeasible import Infeasible, remove_note, write_note
from dpadmm_mpi.storage.result import Result as Stored


class Point(NamedTuple):
    """A configuration of a sweep, or why there is none."""

    name: str
    config: Config | None
    table: Table
    reason: str = ""


def sweep(
    config: ConfigLike = None,
    output: str | Path | None = None,
    *,
    over: Mapping[str, Sequence[Any] | NDArray[Any]] | None = None,
    data: Any = None,
    test: Any = None,
    shards: Any = None,
    graph: Any = None,
    overrides: str | Sequence[str] = (),
    only: str | None = None,
    force: bool = False,
    resume: bool = False,
    extensions: str | Sequence[str] = (),
    comm: Any = None,
    **settings: Any,
) -> Results | None:
    """Run a configuration at every combination of some settings, or all variants of a file, and return their results.

    A configuration that cannot run, for a privacy target that no noise meets for example, does not stop the others.

    Parameters
    ----------
    config : as in `run`; with variants or a sweep of its own, all of them are run
    output : a folder for the HDF5 files, one for each configuration; without it the results stay in memory
    over : lists of values by the name of a setting, as in {"epsilon": [0.5, 1.0, 2.0], "method": ["admm", "r-admm"]}; names are
        those of keywords, or dotted keys, as in "privacy.alpha"; None for epsilon means without noise
    data, test, shards, graph, overrides, only, force, resume, extensions, comm, **settings : as in `run`

    Returns
    -------
    The results as a list and a table: `.table()`, `.to_pandas()`, `.plot()`, `.infeasible`; None on the other ranks of `comm`.

    Raises
    ------
    InputError
        No configuration can run: the text says why the first one cannot. Or a file exists, or a key is wrong for all.
    RunError
        Something failed while running; with `output`, resume=True goes on from there.

    Examples
    --------
    >>> import dpadmm_mpi as dp
    >>> small = {"iterations": 2, "data": {"records": 400, "features": 3}}
    >>> results = dp.sweep(small, over={"epsilon": [1e-9, 1.0, 4.0]}, method="r-admm")
    >>> [round(float(result["privacy/epsilon"][-1]), 2) for result in results], len(results.infeasible)
    ([1.0, 4.0], 1)
    """
    if comm is None and output is not None:
        refuse_copies()
    transport: Transport = Serial() if comm is None else Mpi(comm)
    advice = "run it again" if output is None else f"go on with sweep(..., {str(output)!r}, resume=True)"
    with watching(transport, advice) as watch, guard(transport, traceback.print_exception):
        brought = agree(transport, lambda: arrays.bring(data, test if transport.rank == 0 else None, shards))
        inventory = inventory_of(transport, brought)
        files = [extensions] if isinstance(extensions, str) else extensions
        listed = [overrides] if isinstance(overrides, str) else overrides

        def changes_at(place: list[Setting]) -> list[Setting]:
            words = settings | {key: value for key, value in place if "." not in key}
            return [*changes_of(config, graph, words, inventory), *((key, value) for key, value in place if "." in key)]

        def points() -> list[Point]:
            return [
                point
                for place in _places(over)
                for point in _configured(config, place, changes_at(place), only=only, overrides=listed, files=files)
            ]

        wanted = agree(transport, points)
        outputs = [None if output is None else Path(output) / f"{slug(point.name)}.h5" for point in wanted]
        agree(transport, lambda: _refuse(wanted, outputs, force or resume))
        watch.set_patience([point.config.record.patience for point in wanted if point.config is not None])
        rows: list[Stored | Infeasible] = []
        for point, path in zip(wanted, outputs, strict=True):
            row = _run(transport, point, path, Manner(force, resume), brought, inventory)
            rows += [] if row is None else [row]
        agree(transport, lambda: _refuse_nothing(rows) if transport.rank == 0 else None)
    return Results(rows) if transport.rank == 0 else None


def _places(over: Mapping[str, Sequence[Any] | NDArray[Any]] | None) -> list[list[Setting]]:
    """Every combination of the values."""
    for key, values in (over or {}).items():
        if isinstance(values, str) or not hasattr(values, "__len__") or not len(values):
            raise InputError(f"over: {key} has {values!r}; give a list with at least one value")
    axes = {key: list(plain(values)) for key, values in (over or {}).items()}
    return [list(zip(axes, point, strict=True)) for point in itertools.product(*axes.values())]


def _configured(
    config: ConfigLike,
    place: list[Setting],
    changed: list[Setting],
    *,
    overrides: Sequence[str],
    only: str | None,
    files: Sequence[str],
) -> list[Point]:
    """The configuration at one place, or one for each variant of a file."""
    behind = "".join(f", {key.split('.')[-1]}={in_a_name(value)}" for key, value in place)
    try:
        found = load_experiment(checked_config(config), [*changed, *overrides], only, files, tolerant=True)
    except InputError as error:
        if not place:
            raise
        base = source_of(checked_config(config))
        name = str(dict(changed).get("name", base.raw.get("name", base.stem))) + behind
        return [Point(name, None, nested(changed) | {"name": name}, str(error))]
    points = [Point(each.name + behind, replace(each, name=each.name + behind), {}) for each in found.configs]
    for each in found.refused:
        name = each.name + behind
        points.insert(each.number, Point(name, None, each.table | {"name": name}, each.reason))
    return points


def _refuse(points: Sequence[Point], outputs: Sequence[Path | None], may_exist: bool) -> None:
    """What is wrong before anything runs."""
    if all(point.config is None for point in points):
        raise InputError(f'"{points[0].name}": {points[0].reason}')
    for point, path in zip(points, outputs, strict=True):
        if outputs.count(path) > 1 and path is not None:
            raise InputError(f'over: another configuration has the file name of "{point.name}", {path.name}; rename one')
        if path is not None:
            refuse_existing(path, may_exist)


def _refuse_nothing(rows: Sequence[Stored | Infeasible]) -> None:
    """A sweep without a single result is an error."""
    if all(isinstance(row, Infeasible) for row in rows):
        raise InputError(f'"{rows[0].name}": {getattr(rows[0], "reason", "")}')


def _run(
    transport: Transport,
    point: Point,
    path: Path | None,
    manner: Manner,
    brought: Brought,
    inventory: Inventory | None,
) -> Stored | Infeasible | None:
    """The result of a configuration, or why there is none, on rank 0."""
    config, reason, table = point.config, point.reason, point.table
    if config is not None:
        with at_hand(transport, config, brought, inventory):
            reason, table = on_root(transport, lambda: _why_not(config)), as_table(config)
            if not reason:
                if path is not None:
                    on_root(transport, lambda: remove_note(path))
                holders = None if inventory is None else inventory.holders
                return execute(config, transport, path, manner=manner, holders=holders)
    if transport.rank != 0:
        return None
    return Infeasible(point.name, "", dotted(table), reason) if path is None else write_note(path, table, reason)


def _why_not(config: Config) -> str:
    """Why a configuration cannot run; "" if it can."""
    try:
        make_plan(config)
    except InputError as error:
        return str(error)
    return ""
