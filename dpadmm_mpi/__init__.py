"""dpadmm_mpi: a multiprocess simulator for differentially private, decentralised ADMM machine learning.

>>> import dpadmm_mpi as dp
>>> result = dp.run({"iterations": 4, "data": {"records": 500, "features": 6}})
>>> result["loss"].shape
(1, 5)

`run` and `load` are all that most people need, `sweep` and `load_all` for many configurations at once and a table of their
results, and `tune`, which finds the best settings for a privacy budget;
`run(data=(X, y), graph=...)` takes arrays and graphs as they are in memory, and `PrivateConsensusClassifier` and
`PrivateConsensusRegressor` are the same as scikit-learn estimators. The decorators enter classes of your own:
`@dp.method("NAME")` above a subclass of `dp.methods.Decentralised`, and likewise `loss`, `graph`, `fault`, `source`,
`partition`, `step`, `perturbation`, `noise`, `metric`, `account`, `regulariser`, `linear_map` and `plot`;
`dpadmm new method NAME` writes a first one. `dp.testing` has the laws that such a class must keep.
"""

import importlib
import logging
from typing import TYPE_CHECKING, Any

from dpadmm_mpi.errors import DpadmmError, InputError, RunError

if TYPE_CHECKING:
    from dpadmm_mpi import data, methods, networks, plots, privacy, problems, testing
    from dpadmm_mpi.api.estimators import PrivateConsensusClassifier, PrivateConsensusRegressor
    from dpadmm_mpi.api.result import Result
    from dpadmm_mpi.api.results import Results, load_all
    from dpadmm_mpi.api.running import load, run
    from dpadmm_mpi.api.sweeping import sweep
    from dpadmm_mpi.api.tuning import tune
    from dpadmm_mpi.methods.curated.linear_maps import maps
    from dpadmm_mpi.methods.curated.regularisers import regularisers

    account = privacy.accounts.register
    fault = networks.faults.register
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
    "fault": ("dpadmm_mpi.networks.faults", "faults.register"),
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
    **{name: ("dpadmm_mpi.api.estimators", name) for name in ("PrivateConsensusClassifier", "PrivateConsensusRegressor")},
    "Result": ("dpadmm_mpi.api.result", "Result"),
    **{name: ("dpadmm_mpi.api.results", name) for name in ("Results", "load_all")},
    "sweep": ("dpadmm_mpi.api.sweeping", "sweep"),
    **{name: ("dpadmm_mpi.api.running", name) for name in ("load", "run")},
    "tune": ("dpadmm_mpi.api.tuning", "tune"),
    **{name: (f"dpadmm_mpi.{name}", "") for name in ("data", "methods", "networks", "plots", "privacy", "problems", "testing")},
}

__all__ = [
    "DpadmmError",
    "InputError",
    "PrivateConsensusClassifier",
    "PrivateConsensusRegressor",
    "Result",
    "Results",
    "RunError",
    "account",
    "data",
    "fault",
    "graph",
    "linear_map",
    "load",
    "load_all",
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
    "sweep",
    "testing",
    "tune",
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
