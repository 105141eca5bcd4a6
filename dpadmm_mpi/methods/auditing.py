"""What the audits of all families share: what is examined, which records are replaced, and what is a finding."""

import math
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
MANY, ORDINARY = 1000, 0.01  # numbers, and a p-value of so many that needs no more than its bound
SAME = 1e-7  # relative distance of two noise vectors that are one; they are recovered to about 1e-9
SEVERAL_AXES = 8  # of the features, along which the directions of the noise are examined
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
    adversaries: int = 2  # of these records, those whose worst replacement is searched for


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


def refuse_other_losses(plan: Plan[Any], source: str) -> None:
    """Where records are examined as signed rows y x."""
    if plan.loss.predicts != "binary":
        name = losses.name_of(type(plan.loss))
        raise InputError(
            f'{source}: this is for losses of the margin, such as "logistic", and "{name}" is none; methods '
            "on a network (admm, m-admm, r-admm, mr-admm) are audited and attacked with every loss"
        )


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


def kolmogorov_smirnov(uniform: Array) -> float:
    """A p-value, at most twice too large, of the hypothesis that numbers are drawn evenly from [0, 1]."""
    from scipy.special import smirnov

    n = uniform.size
    ordered, steps = np.sort(uniform, axis=None), np.arange(n + 1) / n
    distance = max(float((steps[1:] - ordered).max()), float((ordered - steps[:-1]).max()))
    # Massart 1990; of many numbers it is close to the exact sum, which has as many terms as there are numbers.
    at_most = math.exp(-2.0 * n * distance**2)
    return min(1.0, 2.0 * (at_most if n >= MANY and at_most > ORDINARY else float(smirnov(n, distance))))


def chi_cdf(scaled: Array) -> Array:
    """The probability of a shorter vector, where the numbers of each, along the last axis, are standard normal."""
    from scipy.special import gammainc

    return np.asarray(gammainc(0.5 * scaled.shape[-1], 0.5 * np.sum(scaled**2, axis=-1)))


def noise_findings(noise: Array, shorter: Array) -> list[str]:
    """Noise vectors (..., d) are what the accounts assume: of the claimed size, without a preferred direction, and fresh.

    `shorter` is the claimed probability of a shorter vector than each. Neighbours along every axis but the last are different
    draws, so the cosine between them has the law of a cosine with a fixed direction.
    """
    findings = []
    if (p := kolmogorov_smirnov(shorter)) < SIGNIFICANCE:
        findings.append(
            f"the noise is not of the claimed size (p = {p:.1e}): half of its vectors are shorter than the claimed "
            f"{np.median(shorter):.2g} quantile"
        )
    units = noise / np.maximum(np.linalg.norm(noise, axis=-1, keepdims=True), 1e-300)
    axes = np.vstack([np.eye(units.shape[-1])[:SEVERAL_AXES], np.full(units.shape[-1], units.shape[-1] ** -0.5)])
    if (p := len(axes) * min(_cosine_p_value(units @ axis, units.shape[-1]) for axis in axes)) < SIGNIFICANCE:
        findings.append(f"the noise prefers a direction (p = {p:.1e})")
    for axis in range(noise.ndim - 1):
        if units.shape[axis] > 1:
            before, after = (np.moveaxis(units, axis, 0)[part] for part in (slice(None, -1), slice(1, None)))
            if (p := _cosine_p_value(np.vecdot(before, after), units.shape[-1])) < SIGNIFICANCE:
                findings.append(f"noise is not fresh: the directions of noise vectors depend on each other (p = {p:.1e})")
    # Of one size, whatever the parameter of their steps, so that a vector that is used again is seen at any scale.
    alike = units * shorter[..., None]
    return findings + repetition_findings(alike.reshape(-1, noise.shape[-1]))


def _cosine_p_value(cosines: Array, features: int) -> float:
    """Of the hypothesis that they belong to directions drawn evenly from the sphere: (1 + c)/2 ~ Beta((d-1)/2, (d-1)/2)."""
    from scipy.special import bdtr, betainc

    if features == 1:
        positive = int((cosines > 0).sum())
        return min(1.0, 2.0 * float(bdtr(min(positive, cosines.size - positive), cosines.size, 0.5)))
    half = 0.5 * (features - 1)
    return kolmogorov_smirnov(betainc(half, half, np.clip(0.5 + 0.5 * cosines, 0.0, 1.0)))


def repetition_findings(noise: Array) -> list[str]:
    """Every noise vector, a row, is fresh; numbers, if there is one feature, may come close by chance."""
    from scipy.special import pdtrc

    order = np.lexsort(noise.T)
    close = np.linalg.norm(np.diff(noise[order], axis=0), axis=1) < SAME * np.linalg.norm(noise[order][1:], axis=1)
    by_chance = 0.25 * SAME * len(noise) ** 2 if noise.shape[1] == 1 else 0.0
    if not close.any() or pdtrc(close.sum() - 1, by_chance) >= SIGNIFICANCE:
        return []
    return [f"noise is used again: {close.sum()} of {len(noise)} noise vectors occur more than once"]


def distribution_findings(losses: Array, epsilon_at: Callable[[float], Array]) -> list[str]:
    """The losses at the end, (nodes, runs, pairs), against the (epsilon, delta) account at several delta."""
    from scipy.special import bdtrc

    nodes, runs, pairs = losses.shape
    findings = []
    for delta in DELTAS:
        # delta >= E[(1 - exp(epsilon - L))_+] allows L >= epsilon + ln 2 with probability 2 delta at most.
        above = (losses >= (epsilon_at(delta) + np.log(2.0))[:, None, None]).sum(axis=1)
        p = bdtrc(above.max() - 1, runs, 2.0 * delta) if above.max() > 0 else 1.0
        if p < SIGNIFICANCE / (nodes * pairs):
            findings.append(
                f"{above.max()} of {runs} runs lose more than epsilon + ln 2 at delta = {delta:g}, which is incompatible with "
                f"a probability of {2 * delta:g}"
            )
    return findings
