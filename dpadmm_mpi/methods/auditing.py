"""What the audits of all families share: what is examined, which records are replaced, and what is a finding."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import singledispatch
from typing import Any, Protocol

import numpy as np

from dpadmm_mpi.data.dataset import Dataset
from dpadmm_mpi.errors import InputError
from dpadmm_mpi.methods.base import Plan
from dpadmm_mpi.problems.losses import losses
from dpadmm_mpi.types import Array, Ints

SIGNIFICANCE = 1e-6  # of a statistical finding; a sound run gives a false alarm this rarely
DELTAS = (0.1, 0.03, 0.01)  # at which the distribution of the loss over runs is compared with the account


class Recording(Protocol):
    """What a run has recorded: arrays by their HDF5 names."""

    @property
    def source(self) -> str: ...

    def __getitem__(self, name: str) -> Any: ...

    def __contains__(self, name: str) -> bool: ...


@dataclass(frozen=True)
class AuditRequest:
    """What is to be audited."""

    candidates: int = 20  # records to replace at each node
    node: int | None = None  # one node only
    record: int | None = None  # one record of that node only


@dataclass(frozen=True)
class Examined:
    """Realised losses, and what they and the noise say against the accounts."""

    nodes: list[int]
    losses: Array  # (nodes, runs, steps, pairs): growing over the data steps
    data_steps: Ints
    findings: list[str]  # what is wrong; empty for a sound run
    against: str  # the account that the worst loss is shown as a share of

    @property
    def worst(self) -> Array:
        """Largest realised loss of each node over runs and neighbours, at the end."""
        return np.asarray(self.losses[:, :, -1].max(axis=(1, 2)))


@singledispatch
def examine(plan: Plan[Any], recording: Recording, dataset: Dataset[Any], request: AuditRequest) -> Examined:
    """The exact privacy loss of a recorded run against neighbouring data sets, in the family of the plan."""
    raise InputError(f"{recording.source}: {plan.config.method_name} has no audit of its own")


def refuse_unexaminable(recording: Recording, trajectory: str, complete: bool) -> None:
    if trajectory not in recording:
        raise InputError(f"{recording.source}: holds no trajectory; run again with record.trajectory = true")
    if not complete:
        raise InputError(f"{recording.source}: the run is not complete")


def refuse_other_losses(plan: Plan[Any], recording: Recording) -> None:
    """Where records are examined as signed rows y x."""
    if plan.loss.predicts != "binary":
        name = losses.name_of(type(plan.loss))
        raise InputError(f'{recording.source}: this is for losses of the margin, such as "logistic", and not for "{name}"')


def nodes_to_audit(plan: Plan[Any], recording: Recording, request: AuditRequest) -> list[int]:
    node, record = request.node, request.record
    if not plan.config.is_noisy:
        raise InputError(f"{recording.source}: a run without noise has an infinite privacy loss; there is nothing to audit")
    if record is not None and node is None:
        raise InputError("--record: say the node that has it, with --node")
    if node is not None and not 0 <= node < plan.nodes:
        raise InputError(f"--node {node}: there are the nodes 0 to {plan.nodes - 1}")
    return list(range(plan.nodes)) if node is None else [node]


def records_to_replace(rows: Array, node: int, record: int | None, candidates: int) -> Ints:
    """The one asked for, or those with the largest norms, which can shift the most."""
    if record is None:
        return np.argsort(-np.linalg.norm(rows, axis=1), kind="stable")[:candidates]
    if not 0 <= record < len(rows):
        raise InputError(f"--record {record}: node {node} has the records 0 to {len(rows) - 1}")
    return np.array([record])


def repetition_findings(noise: Array) -> list[str]:
    """Every noise vector, a row, is fresh."""
    order = np.lexsort(noise.T)
    close = np.linalg.norm(np.diff(noise[order], axis=0), axis=1) < 1e-7 * np.linalg.norm(noise[order][1:], axis=1)
    if not close.any():
        return []
    return [f"noise is used again: {close.sum()} of {len(noise)} noise vectors occur more than once"]


def distribution_findings(losses: Array, epsilon_at: Callable[[float], Array]) -> list[str]:
    """The losses at the end, (nodes, runs, pairs), against the (epsilon, delta) account at several delta."""
    from scipy import stats

    nodes, runs, pairs = losses.shape
    findings = []
    for delta in DELTAS:
        # delta >= E[(1 - exp(epsilon - L))_+] allows L >= epsilon + ln 2 with probability 2 delta at most.
        above = (losses >= (epsilon_at(delta) + np.log(2.0))[:, None, None]).sum(axis=1)
        p = stats.binom.sf(above.max() - 1, runs, 2.0 * delta)
        if above.max() > 0 and p < SIGNIFICANCE / (nodes * pairs):
            findings.append(
                f"{above.max()} of {runs} runs lose more than epsilon + ln 2 at delta = {delta:g}, which is incompatible with "
                f"a probability of {2 * delta:g}"
            )
    return findings
