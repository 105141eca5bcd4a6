"""dpadmm_mpi: a multiprocess simulator for differentially private, decentralised ADMM machine learning.

>>> import dpadmm_mpi as dp
>>> result = dp.run({"iterations": 4, "data": {"records": 500, "features": 6}})
>>> result["loss"].shape
(1, 5)

`run` and `load` are all that most people need. The decorators enter classes of your own: `@dp.method("NAME")` above a subclass
of `dp.methods.Decentralised`, and likewise `loss`, `graph`, `source`, `partition`, `step`, `perturbation`, `noise`, `metric`,
`account`, `regulariser`, `linear_map` and `plot`; `dpadmm new method NAME` writes a first one. `dp.testing` has the laws that
such a class must keep.
"""

import importlib
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpadmm_mpi.errors import DpadmmError, InputError, RunError

if TYPE_CHECKING:
    from dpadmm_mpi import data, methods, networks, plots, privacy, problems, testing
    from dpadmm_mpi.methods.curated.linear_maps import maps
    from dpadmm_mpi.methods.curated.regularisers import regularisers
    from dpadmm_mpi.storage.result import Result

    account = privacy.accounts.register
    graph = networks.graphs.register
    linear_map = maps.register
    loss = problems.losses.register
    method = methods.methods.register
    metric = methods.metrics.register
    noise = privacy.noises.register
    partition = data.partitions.register
    perturbation = privacy.perturbations.register
    plot = plots.plots.register
    regulariser = regularisers.register
    source = data.sources.register
    step = data.steps.register

logging.getLogger(__name__).addHandler(logging.NullHandler())

# What is loaded when somebody asks for it: name -> module and attribute there; an attribute of "" means the module itself.
_LAZY = {
    "account": ("dpadmm_mpi.privacy.account", "accounts.register"),
    "graph": ("dpadmm_mpi.networks.graphs", "graphs.register"),
    "linear_map": ("dpadmm_mpi.methods.curated.linear_maps", "maps.register"),
    "loss": ("dpadmm_mpi.problems.losses", "losses.register"),
    "method": ("dpadmm_mpi.methods", "methods.register"),
    "metric": ("dpadmm_mpi.methods.metrics", "metrics.register"),
    "noise": ("dpadmm_mpi.privacy.noises", "noises.register"),
    "partition": ("dpadmm_mpi.data.partitions", "partitions.register"),
    "perturbation": ("dpadmm_mpi.privacy.perturbations", "perturbations.register"),
    "plot": ("dpadmm_mpi.plots.kinds", "plots.register"),
    "regulariser": ("dpadmm_mpi.methods.curated.regularisers", "regularisers.register"),
    "source": ("dpadmm_mpi.data.sources", "sources.register"),
    "step": ("dpadmm_mpi.data.steps", "steps.register"),
    "Result": ("dpadmm_mpi.storage.result", "Result"),
    **{name: (f"dpadmm_mpi.{name}", "") for name in ("data", "methods", "networks", "plots", "privacy", "problems", "testing")},
}

__all__ = [
    "DpadmmError",
    "InputError",
    "Result",
    "RunError",
    "account",
    "data",
    "graph",
    "linear_map",
    "load",
    "loss",
    "method",
    "methods",
    "metric",
    "networks",
    "noise",
    "partition",
    "perturbation",
    "plot",
    "plots",
    "privacy",
    "problems",
    "regulariser",
    "run",
    "source",
    "step",
    "testing",
]


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, path = _LAZY[name]
    found: Any = importlib.import_module(module)
    for part in filter(None, path.split(".")):
        found = getattr(found, part)
    return found


def __dir__() -> list[str]:
    return __all__


def run(
    config: str | Path | Mapping[str, Any],
    output: str | Path | None = None,
    *,
    overrides: str | Sequence[str] = (),
    only: str | None = None,
    force: bool = False,
    resume: bool = False,
    extensions: str | Sequence[str] = (),
    comm: Any = None,
) -> "Result | None":
    """Run one configuration, from a TOML file or a dictionary, and return its results.

    Parameters
    ----------
    config : a TOML file, a result file (which is run again), or a dictionary with the same keys
    output : the HDF5 file; without it the results stay in memory
    overrides : like --set, "privacy.alpha=2" or a list of these
    only : one variant, by its name
    force : replace a file that exists
    resume : go on from an earlier part in the file, unfinished or with fewer iterations
    extensions : Python files with classes of your own; importing them before is as good
    comm : an mpi4py communicator, all whose ranks must call; rank 0 gets the result, the others None

    Returns
    -------
    The results; None on the other ranks of `comm`.

    Raises
    ------
    InputError
        Nothing was run: the text says which key or file is wrong, and what to do.
    RunError
        Something failed while running; what was recorded before is still there.

    Examples
    --------
    >>> import dpadmm_mpi as dp
    >>> private = {"privacy": {"perturbation": "objective", "alpha": 1.0}, "data": {"records": 500, "features": 6}}
    >>> result = dp.run(private, overrides="iterations=4")
    >>> bool(result["privacy/bound"][-1] > 0)
    True
    """
    import traceback

    from dpadmm_mpi.engine.loop import Manner, execute
    from dpadmm_mpi.parallel.collective import guard
    from dpadmm_mpi.parallel.launcher import refuse_copies
    from dpadmm_mpi.parallel.mpi import Mpi
    from dpadmm_mpi.parallel.serial import Serial
    from dpadmm_mpi.parallel.transport import Transport
    from dpadmm_mpi.storage.experiments import load as load_experiment

    if comm is None and output is not None:
        refuse_copies()
    files = [extensions] if isinstance(extensions, str) else extensions
    experiment = load_experiment(config, [overrides] if isinstance(overrides, str) else overrides, only, files)
    if len(experiment.configs) > 1:
        names = ", ".join(f'"{c.name}"' for c in experiment.configs)
        raise InputError(f"only: the file holds several configurations; choose one of {names}")
    transport: Transport = Serial() if comm is None else Mpi(comm)
    path = None if output is None else Path(output)
    with guard(transport, traceback.print_exception):
        return execute(experiment.configs[0], transport, path, manner=Manner(force, resume))


def load(path: str | Path) -> "Result":
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
    """
    from dpadmm_mpi.storage.result import load as load_result

    return load_result(path)
