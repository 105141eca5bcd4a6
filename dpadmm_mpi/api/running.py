"""`run` and `load`, as Python programs call them."""

import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dpadmm_mpi.api import settings as keywords
from dpadmm_mpi.api.lending import at_hand, inventory_of
from dpadmm_mpi.api.result import Result
from dpadmm_mpi.config.files import Setting
from dpadmm_mpi.data import arrays
from dpadmm_mpi.data.arrays import Inventory
from dpadmm_mpi.engine.loop import Manner, execute
from dpadmm_mpi.errors import InputError
from dpadmm_mpi.methods import Config
from dpadmm_mpi.parallel.collective import agree, guard
from dpadmm_mpi.parallel.launcher import refuse_copies
from dpadmm_mpi.parallel.mpi import Mpi
from dpadmm_mpi.parallel.serial import Serial
from dpadmm_mpi.parallel.transport import Transport
from dpadmm_mpi.parallel.watch import watching
from dpadmm_mpi.storage.experiments import load as load_experiment
from dpadmm_mpi.storage.experiments import source_of
from dpadmm_mpi.storage.result import load as load_result

ConfigLike = str | Path | Mapping[str, Any] | None


def run(
    config: ConfigLike = None,
    output: str | Path | None = None,
    *,
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
) -> Result | None:
    """Run one configuration, from a TOML file, a dictionary or keywords, and return its results.

    Parameters
    ----------
    config : a TOML file, a result file (which is run again), or a dictionary with the same keys; none: keywords and defaults
    output : the HDF5 file; without it the results stay in memory
    data : records (X, y) that are spread over the nodes: numpy arrays, a pandas frame whose categories become 0/1 columns, a
        scipy sparse matrix; y has two different labels. With `comm`, on rank 0 alone; or on every rank the records of one node
    test : test records (X, y), on rank 0; without them a fifth of `data` is kept for testing (`train=1.0`: none)
    shards : instead of `data`, a list with the records (X, y) of each node. With `comm`, on rank 0 alone; or on every rank
        those of its own nodes, which are numbered rank after rank and do not travel
    graph : a networkx graph, an array of pairs of node numbers, or the name of a graph
    overrides : like --set, "privacy.alpha=2" or a list of these
    only : one variant, by its name
    force : replace a file that exists
    resume : go on from an earlier part in the file, unfinished or with fewer iterations
    extensions : Python files with classes of your own; importing them before is as good
    comm : an mpi4py communicator, all whose ranks must call; rank 0 gets the result, the others None
    **settings : keys of the configuration, as in method="mr-admm", eta=1.0, seed=2; a section, as in privacy={"alpha": 1.0};
        epsilon=1.0: noise that is calibrated to this total at `delta`

    Returns
    -------
    The results; None on the other ranks of `comm`.

    Raises
    ------
    InputError
        Nothing was run: the text says which key, array or file is wrong, and what to do.
    RunError
        Something failed while running; what was recorded before is still there.

    Examples
    --------
    >>> import dpadmm_mpi as dp
    >>> import numpy as np
    >>> X = 0.5 * np.sin(np.arange(1200.0)).reshape(400, 3)
    >>> result = dp.run(data=(X, X[:, 0] > 0), graph=[[0, 1], [1, 2]], epsilon=1.0, iterations=4)
    >>> bool(0.99 < result["privacy/epsilon"][-1] <= 1.0), result.predict(X[:2]).shape
    (True, (2,))
    """
    if comm is None and output is not None:
        refuse_copies()
    transport: Transport = Serial() if comm is None else Mpi(comm)
    advice = "run it again" if output is None else f"go on with run(..., {str(output)!r}, resume=True)"
    with watching(transport, advice) as watch, guard(transport, traceback.print_exception):
        brought = agree(transport, lambda: arrays.bring(data, test if transport.rank == 0 else None, shards))
        inventory = inventory_of(transport, brought)

        def configured() -> Config:
            changed = changes_of(config, graph, settings, inventory)
            files = [extensions] if isinstance(extensions, str) else extensions
            return _one(config, [*changed, *([overrides] if isinstance(overrides, str) else overrides)], only, files)

        chosen = agree(transport, configured)
        watch.set_patience([chosen.record.patience])
        with at_hand(transport, chosen, brought, inventory):
            path = None if output is None else Path(output)
            holders = None if inventory is None else inventory.holders
            found = execute(chosen, transport, path, manner=Manner(force, resume), holders=holders)
    return None if found is None else Result.of(found)


def load(path: str | Path) -> Result:
    """The results in an HDF5 file, complete or not.

    Parameters
    ----------
    path : a file that `dpadmm run` or `run` has written, or is writing

    Returns
    -------
    Arrays by their HDF5 names, as in result["loss"]; attributes by object name.

    Raises
    ------
    InputError
        The file is not there, not a result, or damaged.

    Examples
    --------
    >>> import tempfile
    >>> import dpadmm_mpi as dp
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     ran = dp.run({"iterations": 3, "data": {"records": 200, "features": 3}}, f"{folder}/my.h5")
    ...     result = dp.load(f"{folder}/my.h5")
    >>> result.complete, result.dims["loss"], bool((result["loss"] == ran["loss"]).all())
    (True, ('run', 'iteration'), True)
    """
    return Result.of(load_result(path))


def _one(config: ConfigLike, changed: Sequence[str | Setting], only: str | None, files: Sequence[str]) -> Config:
    experiment = load_experiment(checked_config(config), changed, only, files)
    if len(experiment.configs) > 1:
        names = ", ".join(f'"{c.name}"' for c in experiment.configs)
        raise InputError(f"only: the file holds several configurations; choose one of {names}")
    return experiment.configs[0]


def checked_config(config: ConfigLike) -> str | Path | Mapping[str, Any]:
    if config is None:
        return {}
    if isinstance(config, str | Path | Mapping):
        return config
    raise InputError(
        f"config: found {type(config).__name__}; give a TOML file or a dictionary, and records as data=(X, y)"
    )  # fmt: skip


def changes_of(config: ConfigLike, graph: Any, settings: Mapping[str, Any], inventory: Inventory | None) -> list[Setting]:
    """What the keywords and what was brought say, as dotted keys."""
    changed: list[Setting] = []
    if inventory is not None:
        changed += [("data.source", "arrays"), ("data.sha256", inventory.sha256)]
    changed += keywords.network(graph) if graph is not None else []
    base = source_of(checked_config(config)).raw
    changed += keywords.changes(settings, base, changed)
    if inventory is not None and inventory.shards and not keywords.says(base, changed, "network", "nodes"):
        changed.append(("network.nodes", inventory.shards))
    return changed
