"""dpadmm_mpi: a multiprocess simulator for differentially private, decentralised ADMM machine learning.

>>> import dpadmm_mpi
>>> result = dpadmm_mpi.run("configs/quickstart.toml")
>>> result["loss"].mean(axis=0)[-1], result["privacy/bound"][-1]
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpadmm_mpi.errors import DpadmmError, InputError, RunError

if TYPE_CHECKING:
    from dpadmm_mpi.storage.result import Result

__all__ = ["DpadmmError", "InputError", "RunError", "load", "run"]


def run(
    config: str | Path | dict[str, Any],
    output: str | Path | None = None,
    *,
    overrides: str | Sequence[str] = (),
    only: str | None = None,
    force: bool = False,
    resume: bool = False,
    comm: Any = None,
) -> "Result | None":
    """Run one configuration, from a TOML file or a dictionary, and return its results.

    `output` names the HDF5 file; without it the results stay in memory. `overrides` are like --set, "privacy.alpha=2";
    `only` picks one variant; `resume` goes on from an earlier part in the file, unfinished or with fewer iterations. With an
    mpi4py communicator as `comm` all its ranks must call; rank 0 gets the result, the others None.
    """
    import traceback

    from dpadmm_mpi.config.files import load as load_configuration
    from dpadmm_mpi.engine.loop import Silent, execute
    from dpadmm_mpi.parallel.collective import guard
    from dpadmm_mpi.parallel.launcher import refuse_copies
    from dpadmm_mpi.parallel.mpi import Mpi, Transport
    from dpadmm_mpi.parallel.serial import Serial

    if comm is None and output is not None:
        refuse_copies()
    experiment = load_configuration(config, [overrides] if isinstance(overrides, str) else overrides, only)
    if len(experiment.configs) > 1:
        names = ", ".join(f'"{c.name}"' for c in experiment.configs)
        raise InputError(f"only: the file holds several configurations; choose one of {names}")
    transport: Transport = Serial() if comm is None else Mpi(comm)
    path = None if output is None else Path(output)
    with guard(transport, traceback.print_exception):
        return execute(experiment.configs[0], transport, path, Silent(), force, resume=resume)


def load(path: str | Path) -> "Result":
    """The results in an HDF5 file, complete or not."""
    from dpadmm_mpi.storage.result import load as load_result

    return load_result(path)
