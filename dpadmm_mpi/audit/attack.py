"""The threat of [M] 6.2 and [S] 2.4: who knows all records of a node but one, and sees everything released, rebuilds it.

Every data step tells what the unknown record z = y x adds to the gradient, plus an error; on a network (KKT) does,

    v(t) = (C/B) L'(z.f(t)) z + n(t)

and around a server methods/star/attack.py. Without noise one exact step fixes the direction of z and its length; several steps
are fitted together. With noise the fit is to v(t), and the error of it is what the noise buys. A margin loss shows y x only:
label and features come as one signed vector.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dpadmm_mpi.audit.exact import read_run
from dpadmm_mpi.config.reading import one_of
from dpadmm_mpi.data.dataset import Dataset
from dpadmm_mpi.errors import InputError
from dpadmm_mpi.methods.auditing import refuse_other_losses
from dpadmm_mpi.methods.base import Plan, methods
from dpadmm_mpi.methods.decentralised.algorithm import kkt_gradient
from dpadmm_mpi.methods.decentralised.audit import Transcript, read_transcript
from dpadmm_mpi.methods.decentralised.plan import NetworkMethod, NetworkPlan
from dpadmm_mpi.methods.star.attack import evidence as star_evidence
from dpadmm_mpi.methods.star.method import Star
from dpadmm_mpi.methods.star.plan import StarPlan
from dpadmm_mpi.privacy.noises import Gaussian
from dpadmm_mpi.problems.losses import Loss
from dpadmm_mpi.problems.objective import NodeProblem
from dpadmm_mpi.storage.result import Result
from dpadmm_mpi.types import Array, Ints

CANDIDATES = 100  # among which the attacker looks for the true record

Evidence = tuple[Array, Array, Array]  # v(t) and f(t) of every data step, and how strongly each counts


@dataclass(frozen=True)
class Attack:
    """Reconstructions of one record after 1, 2, 4, ... data steps."""

    name: str
    errors: Array  # (runs, steps): ||z^ - z||
    ranks: Ints  # (runs,): place of the true record among the candidates, 1 is the likeliest
    candidates: int
    bound: Array  # (steps,): P_i(t), or epsilon_i(t) by the sound account


@dataclass(frozen=True)
class Seen:
    """What is known of one node, in every family."""

    rows: Array  # all its records as signed rows
    weight: float  # of one record in its objective
    data_steps: Ints
    account: str  # what the total is shown by
    evidence: Callable[[Array, int], Evidence]  # from the known rows, in a run
    power: float  # of the error in the likelihood: 1 for gamma noise, 2 for Gaussian


def _network_view(plan: NetworkPlan, result: Result, dataset: Dataset[Any], node: int) -> Seen:
    transcript = read_transcript(plan, result, dataset)
    view = transcript.view(node)

    def seen(known: Array, run: int) -> Evidence:
        return _evidence(transcript, known, run, node)

    account, power = ("epsilon", 2.0) if isinstance(plan.releases.noise, Gaussian) else ("bound", 1.0)
    return Seen(view.rows, view.weight, plan.releases.steps_of(node), account, seen, power)


def _star_view(plan: StarPlan, result: Result, dataset: Dataset[Any], node: int) -> Seen:
    shard = dataset.loader.shard(dataset.address(node))
    X = shard.X if isinstance(shard.X, np.ndarray) else shard.X.toarray()

    def seen(known: Array, run: int) -> Evidence:
        found = star_evidence(plan, result, known, run, node)
        return found.v, found.f, found.scale

    steps = np.arange(1, plan.iterations + 1)
    return Seen(X * shard.y[:, None], 1.0 / len(X), steps, "epsilon_sound", seen, power=2.0)


def attack(path: Path, node: int = 0, record: int = 0) -> Attack:
    def refuse(plan: Plan[Any]) -> None:
        if not isinstance(plan, NetworkPlan | StarPlan):
            names = one_of(name for name, cls in methods.items() if issubclass(cls, NetworkMethod | Star))
            raise InputError(
                f"{path}: a run of {plan.config.method_name}, but this is for methods on a network or around a server: {names}"
            )

    result, plan, dataset = read_run(path, refuse)
    refuse_other_losses(plan, result.source)
    if not 0 <= node < plan.nodes:
        raise InputError(f"--node {node}: there are the nodes 0 to {plan.nodes - 1}")
    if isinstance(plan, NetworkPlan):
        view = _network_view(plan, result, dataset, node)
    else:
        assert isinstance(plan, StarPlan)
        view = _star_view(plan, result, dataset, node)
    if not 0 <= record < len(view.rows):
        raise InputError(f"--record {record}: node {node} has the records 0 to {len(view.rows) - 1}")
    z = view.rows[record]
    others = np.delete(np.arange(len(view.rows)), record)
    # Candidates that the attacker cannot tell from the true one beforehand: other records, as if they were unknown.
    pool = np.vstack([z, view.rows[others[: CANDIDATES - 1]]])
    # After 1, 2, 4, ... data steps, and all of them.
    steps = np.unique(np.append(2 ** np.arange(int(np.log2(len(view.data_steps))) + 1), len(view.data_steps)))
    errors, ranks = [], []
    for run in range(len(result["run"])):
        v, f, scale = view.evidence(view.rows[others], run)
        guesses = [_reconstruct(v[:k], f[:k], scale[:k], plan.loss, view.weight) for k in steps]
        errors.append([float(np.linalg.norm(guess - z)) for guess in guesses])
        fit = [_misfit(candidate, (v, f, scale), plan.loss, view) for candidate in pool]
        ranks.append(1 + int(np.sum(np.array(fit[1:]) < fit[0])))
    bound = result[f"privacy/node_{view.account}"][view.data_steps[steps - 1], node]
    return Attack(result.name, np.array(errors), np.array(ranks), len(pool), bound)


def _evidence(transcript: Transcript, known: Array, run: int, node: int) -> tuple[Array, Array, Array]:
    """v(t) and f(t) of every data step, and how strongly each counts: the noise's own scale."""
    plan, recording = transcript.plan, transcript.recording
    B = plan.releases.B[node]
    rest = NodeProblem(
        known, plan.loss, plan.releases.C * len(known) / B, plan.ridge, plan.regulariser
    )  # the same weight C/B per record
    node_view = transcript.node
    vs, fs, scales = [], [], []
    for t in plan.releases.steps_of(node):
        released = recording["trajectory"][run, t]
        before = transcript.states(run, t - 1)
        total = kkt_gradient(before, released, node_view.eta(t), node_view.degree)[node]
        f = released[node]
        vs.append(total - plan.ridge * f - rest.rest_gradient(f) - rest.data_gradient(rest.signed @ f))
        fs.append(f)
        alpha = node_view.settings.parameter[t, node]
        scales.append(1.0 if np.isnan(alpha) else float(alpha))
    return np.array(vs), np.array(fs), np.array(scales)


def _misfit(z: Array, evidence: Evidence, loss: Loss, view: Seen) -> float:
    """How unlikely the released values are if z is the record, up to a constant: sum_t alpha ||n(t)||, or of the squares."""
    v, f, scale = evidence
    slopes = loss.first(f @ z)
    errors = scale * np.linalg.norm(v - view.weight * slopes[:, None] * z, axis=1)
    return float(np.sum(errors**view.power))


def _reconstruct(v: Array, f: Array, scale: Array, loss: Loss, weight: float) -> Array:
    """The record of norm at most 1 that fits best: from the mean direction and a few lengths, by least squares."""
    from scipy.optimize import least_squares

    direction = -np.sum(scale[:, None] * v, axis=0)  # L' is negative
    direction = direction / max(float(np.linalg.norm(direction)), 1e-300)

    def residual(z: Array) -> Array:
        slopes = loss.first(f @ z)
        return (scale[:, None] * (v / weight - slopes[:, None] * z)).ravel()

    def jacobian(z: Array) -> Array:
        margins = f @ z
        slopes, curvatures = loss.first(margins), loss.second(margins)
        blocks = slopes[:, None, None] * np.eye(len(z)) + curvatures[:, None, None] * z[None, :, None] * f[:, None, :]
        return (-scale[:, None, None] * blocks).reshape(-1, len(z))

    starts = [length * direction for length in (0.25, 0.5, 1.0)]
    fits = [
        least_squares(residual, start, jac=jacobian, method="lm", xtol=1e-15, ftol=1e-15, gtol=1e-15, max_nfev=100)
        for start in starts
    ]
    z = min(fits, key=lambda fit: fit.cost).x
    return np.asarray(z / max(1.0, float(np.linalg.norm(z))))
