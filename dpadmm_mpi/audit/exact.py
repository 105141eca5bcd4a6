"""`dpadmm audit`: the exact privacy loss of a recorded run; each family says how it is computed."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpadmm_mpi.data.dataset import Dataset
from dpadmm_mpi.errors import InputError
from dpadmm_mpi.methods.auditing import AuditRequest, Examined, examine, refuse_unexaminable
from dpadmm_mpi.methods.base import Plan, make_plan
from dpadmm_mpi.methods.curated import audit as _curated  # noqa: F401  (registers itself)
from dpadmm_mpi.methods.decentralised import audit as _decentralised  # noqa: F401
from dpadmm_mpi.methods.gradient import audit as _gradient  # noqa: F401
from dpadmm_mpi.methods.star import audit as _star  # noqa: F401
from dpadmm_mpi.storage.experiments import read_again
from dpadmm_mpi.storage.result import Result, load
from dpadmm_mpi.storage.survey import refuse_other_plan


@dataclass(frozen=True)
class Audit(Examined):
    """What was examined, with the result that it comes from."""

    result: Result


def read_run(run: Path | Result, refuse: Callable[[Plan[Any]], None] | None = None) -> tuple[Result, Plan[Any], Dataset[Any]]:
    """A complete run with its released vectors, its plan and its records; a file is read once.

    `refuse` says no to a run that would not do even if it had its released vectors.
    """
    result = run if isinstance(run, Result) else load(run)
    path = Path(result.source)
    plan, dataset = make_plan(read_again(result.config_text, path))
    if refuse is not None:
        refuse(plan)
    refuse_unexaminable(result, next(iter(plan.measures_class.trajectory_layout)), result.complete)
    refuse_other_plan(result.arrays, plan, path)
    if plan.map_sha256 and result.attributes.get("problem", {}).get("map_sha256") != plan.map_sha256:
        raise InputError(f"{path}: its linear map has changed since it was run; restore problem.map_path")
    files = "" if plan.faults is None else plan.faults.files_sha256
    if result.attributes.get("network", {}).get("files_sha256", "") != files:
        raise InputError(f"{path}: a file of network.faults has changed since it was run; restore it")
    return result, plan, dataset


def audit(
    run: Path | Result, candidates: int = 20, node: int | None = None, record: int | None = None, adversaries: int = 2
) -> Audit:
    """Audit a run with a trajectory: one record of one node, or `candidates` records of every node (or of `node`).

    For `adversaries` of them the worst replacement is searched for, too.
    """
    result, plan, dataset = read_run(run)
    seen = examine(plan, result, dataset, AuditRequest(candidates, node, record, adversaries))
    return Audit(seen.nodes, seen.losses, seen.data_steps, seen.findings, seen.against, result)
