"""The threat of [M] 6.2 and [S] 2.4: who knows all records of a node but one, and sees everything released, rebuilds it.

Every data step tells what the unknown record z = y x adds to the gradient, plus an error; on a network (KKT) does,

    v(t) = (C/B) L'(z.f(t)) z + n(t)

and around a server methods/star/attack.py. Without noise one exact step fixes the direction of z and its length; several steps
are fitted together. With noise the fit is to v(t), and the error of it is what the noise buys. A margin loss shows y x only:
label and features come as one signed vector. Of a number y to predict v(t) has L'(x.f(t) - y) x, so that y is one more unknown,
and (x, y) cannot be told from (-x, -y) where L is even; of classes the outer product (p(t) - e_y) x', p the probabilities that
f(t) gives: the class is the one that fits best.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dpadmm_mpi.audit.exact import read_run
from dpadmm_mpi.config.reading import one_of
from dpadmm_mpi.data.dataset import Dataset
from dpadmm_mpi.errors import InputError
from dpadmm_mpi.methods.auditing import refuse_other_losses
from dpadmm_mpi.methods.base import Plan, methods
from dpadmm_mpi.methods.decentralised.algorithm import penalty_of
from dpadmm_mpi.methods.decentralised.audit import NodeView, Transcript, read_transcript
from dpadmm_mpi.methods.decentralised.plan import NetworkMethod, NetworkPlan
from dpadmm_mpi.methods.star.attack import evidence as star_evidence
from dpadmm_mpi.methods.star.method import Star
from dpadmm_mpi.methods.star.plan import StarPlan
from dpadmm_mpi.privacy.noises import Gaussian
from dpadmm_mpi.problems.losses import Loss
from dpadmm_mpi.storage.result import Result
from dpadmm_mpi.types import Array, Ints

CANDIDATES = 100  # among which the attacker looks for the true record

Evidence = tuple[Array, Array, Array]  # v(t) and f(t) of every data step, and how strongly each counts


@dataclass(frozen=True)
class Attack:
    """Reconstructions of one record after 1, 2, 4, ... data steps."""

    name: str
    errors: Array  # (runs, steps): ||z^ - z||, of a number to predict together with the error of it
    ranks: Ints  # (runs,): place of the true record among the candidates, 1 is the likeliest
    candidates: int
    bound: Array  # (steps,): P_i(t), or epsilon_i(t) by the sound account


@dataclass(frozen=True)
class Seen:
    """What is known of one node, in every family."""

    rows: Array  # all its records as signed rows, or as rows
    targets: Array | None  # of the rows; None where they are signed
    weight: float  # of one record in its objective
    data_steps: Ints
    account: str  # what the total is shown by
    evidence: Callable[[Ints, int], Evidence]  # from the known records, in a run
    power: float  # of the error in the likelihood: 1 for gamma noise, 2 for Gaussian


def _network_view(plan: NetworkPlan, result: Result, dataset: Dataset[Any], node: int) -> Seen:
    if plan.faults is not None:
        raise InputError(f"{result.source}: the attack does not follow a network with faults; run it without network.faults")
    transcript = read_transcript(plan, result, dataset)
    view = transcript.view(node)

    def seen(known: Ints, run: int) -> Evidence:
        return _evidence(transcript, view, known, run)

    account, power = ("epsilon", 2.0) if isinstance(plan.releases.noise, Gaussian) else ("bound", 1.0)
    return Seen(view.rows, view.targets, view.weight, plan.releases.steps_of(node), account, seen, power)


def _star_view(plan: StarPlan, result: Result, dataset: Dataset[Any], node: int) -> Seen:
    shard = dataset.loader.shard(dataset.address(node))
    X = shard.X if isinstance(shard.X, np.ndarray) else shard.X.toarray()

    rows = X * shard.y[:, None]

    def seen(known: Ints, run: int) -> Evidence:
        found = star_evidence(plan, result, rows[known], run, node)
        return found.v, found.f, found.scale

    steps = np.arange(1, plan.iterations + 1)
    return Seen(rows, None, 1.0 / len(X), steps, "epsilon_sound", seen, power=2.0)


def attack(path: Path, node: int = 0, record: int = 0) -> Attack:
    def refuse(plan: Plan[Any]) -> None:
        if not isinstance(plan, NetworkPlan | StarPlan):
            names = one_of(name for name, cls in methods.items() if issubclass(cls, NetworkMethod | Star))
            raise InputError(
                f"{path}: a run of {plan.config.method_name}, but this is for methods on a network or around a server: {names}"
            )

    result, plan, dataset = read_run(path, refuse)
    if not 0 <= node < plan.nodes:
        raise InputError(f"--node {node}: there are the nodes 0 to {plan.nodes - 1}")
    if isinstance(plan, NetworkPlan):
        view = _network_view(plan, result, dataset, node)
    else:
        assert isinstance(plan, StarPlan)
        refuse_other_losses(plan, result.source)
        view = _star_view(plan, result, dataset, node)
    if not 0 <= record < len(view.rows):
        raise InputError(f"--record {record}: node {node} has the records 0 to {len(view.rows) - 1}")
    truth = _suspect(view, record)
    others = np.delete(np.arange(len(view.rows)), record)
    # Candidates that the attacker cannot tell from the true one beforehand: other records, as if they were unknown.
    pool = [truth, *(_suspect(view, n) for n in others[: CANDIDATES - 1])]
    # After 1, 2, 4, ... data steps, and all of them.
    steps = np.unique(np.append(2 ** np.arange(int(np.log2(len(view.data_steps))) + 1), len(view.data_steps)))
    errors, ranks = [], []
    for run in range(len(result["run"])):
        v, f, scale = view.evidence(others, run)
        guesses = [_reconstruct(v[:k], f[:k], scale[:k], plan.loss, view.weight) for k in steps]
        errors.append([_distance(guess, truth, plan.loss) for guess in guesses])
        fit = [_misfit(candidate, (v, f, scale), plan.loss, view) for candidate in pool]
        ranks.append(1 + int(np.sum(np.array(fit[1:]) < fit[0])))
    bound = result[f"privacy/node_{view.account}"][view.data_steps[steps - 1], node]
    return Attack(result.name, np.array(errors), np.array(ranks), len(pool), bound)


class Suspect(NamedTuple):
    """A record as it may have been: a signed row, or a row with its target."""

    row: Array
    target: float | None


def _suspect(view: Seen, record: int) -> Suspect:
    return Suspect(view.rows[record], None if view.targets is None else float(view.targets[record]))


def _distance(guess: Suspect, truth: Suspect, loss: Loss) -> float:
    rest = 0.0 if guess.target is None or truth.target is None else guess.target - truth.target
    if loss.predicts == "classes" and rest:
        return float(np.linalg.norm([*guess.row, *truth.row]))  # as features of two classes, which have nothing in common
    distances = [np.linalg.norm([*(guess.row - truth.row), rest])]
    if loss.predicts == "number":  # L'(x.f - y) x is the same for -x and -y: features and target have one sign in common
        assert guess.target is not None and truth.target is not None
        distances.append(np.linalg.norm([*(guess.row + truth.row), guess.target + truth.target]))
    return float(min(distances))


def _evidence(transcript: Transcript, view: NodeView, known: Ints, run: int) -> Evidence:
    """v(t) and f(t) of every data step, and how strongly each counts: the noise's own scale."""
    plan, recording, node = transcript.plan, transcript.recording, view.node
    targets = None if view.targets is None else view.targets[known]
    weight = view.weight  # C/B, of one record
    rest = plan.problem(view.rows[known], targets)
    node_view = transcript.node
    vs, fs, scales = [], [], []
    for t in plan.releases.steps_of(node):
        released = recording["trajectory"][run, t]
        before = transcript.states(run, t - 1)
        linear, quadratic = penalty_of(plan.method, node_view, before, t, np.zeros_like(released))
        total = -(linear + quadratic[:, None] * released)[node]
        f = released[node]
        slopes = rest.slopes(rest.margins(f[None]))
        vs.append(total - plan.ridge * f - rest.rest_gradient(f) - weight * rest.weighted_sums(slopes)[0])
        fs.append(f)
        alpha = node_view.settings.parameter[t, node]
        scales.append(1.0 if np.isnan(alpha) else float(alpha))
    return np.array(vs), np.array(fs), np.array(scales)


def _slopes(suspect: Suspect, f: Array, loss: Loss) -> tuple[Array, Array]:
    """First and second derivatives of the record's loss by its outputs, at every f: (T, k) and (T, k, k)."""
    outputs = f.reshape(len(f), loss.outputs, -1) @ suspect.row
    if loss.outputs == 1:
        z = outputs if suspect.target is None else outputs - suspect.target
        return loss.first(z), loss.second(z)[..., None]
    assert suspect.target is not None
    p = loss.first(outputs[..., None])[..., 0]
    return p - np.eye(loss.outputs)[int(suspect.target)], p[:, :, None] * np.eye(loss.outputs) - p[:, :, None] * p[:, None, :]


def _gradients(suspect: Suspect, f: Array, loss: Loss) -> Array:
    """Of the record's loss at every f, (T, features of f)."""
    return np.einsum("tk,d->tkd", _slopes(suspect, f, loss)[0], suspect.row).reshape(len(f), -1)


def _misfit(suspect: Suspect, evidence: Evidence, loss: Loss, view: Seen) -> float:
    """How unlikely the released values are if this is the record, up to a constant: sum_t alpha ||n(t)||, or of the squares."""
    v, f, scale = evidence
    errors = scale * np.linalg.norm(v - view.weight * _gradients(suspect, f, loss), axis=1)
    return float(np.sum(errors**view.power))


def _reconstruct(v: Array, f: Array, scale: Array, loss: Loss, weight: float) -> Suspect:
    """The record of norm at most 1 that fits best: from the mean direction and a few lengths, by least squares."""
    fits = [_fitted(start, v / weight, f, scale, loss) for start in _starts(v, scale, loss)]
    row, target = min(fits, key=lambda fit: fit[1])[0]
    if target is not None and loss.outputs == 1:
        target = min(max(target, -1.0), 1.0)
    return Suspect(np.asarray(row / max(1.0, float(np.linalg.norm(row)))), target)


def _starts(v: Array, scale: Array, loss: Loss) -> list[Suspect]:
    """A few lengths along the mean direction of what each output's slope, of which the sign is known, is multiplied by."""
    mean = -np.sum(scale[:, None] * v, axis=0).reshape(loss.outputs, -1)
    lengths = (0.25, 0.5, 1.0)
    if loss.predicts == "binary":
        ways: list[tuple[Array, float | None]] = [(mean[0], None)]  # L' is negative
    elif loss.outputs == 1:
        ways = [(sign * mean[0], target) for sign, targets in ((1.0, (0.0, 1.0)), (-1.0, (0.0, -1.0))) for target in targets]
    else:
        ways = [(mean[c], float(c)) for c in range(loss.outputs)]  # the slope of the own class, p - 1, is negative
    return [
        Suspect(length * way / max(float(np.linalg.norm(way)), 1e-300), target) for way, target in ways for length in lengths
    ]


def _fitted(start: Suspect, v: Array, f: Array, scale: Array, loss: Loss) -> tuple[Suspect, float]:
    """The best near a start, and what is left of v; a target that is a number is fitted too, a class is kept."""
    from scipy.optimize import least_squares

    d, k = len(start.row), loss.outputs
    with_target = start.target is not None and k == 1

    def suspect(z: Array) -> Suspect:
        return Suspect(z[:d], float(z[d]) if with_target else start.target)

    def residual(z: Array) -> Array:
        return (scale[:, None] * (v - _gradients(suspect(z), f, loss))).ravel()

    def jacobian(z: Array) -> Array:
        """Blocks a_c I + x (A F)_c' for each output c, with the derivatives a and A; by the target -A x."""
        a, A = _slopes(suspect(z), f, loss)
        through = A @ f.reshape(len(f), k, d)
        blocks = a[:, :, None, None] * np.eye(d) + z[None, None, :d, None] * through[:, :, None, :]
        if with_target:
            blocks = np.concatenate([blocks, -A[:, :, :, None] * z[None, None, :d, None]], axis=3)
        return np.asarray((-scale[:, None, None, None] * blocks).reshape(-1, len(z)))

    z = start.row if start.target is None or k > 1 else np.append(start.row, start.target)
    enough = len(f) * k * d >= len(z)
    fit = least_squares(
        residual, z, jac=jacobian, method="lm" if enough else "trf", xtol=1e-15, ftol=1e-15, gtol=1e-15, max_nfev=100
    )
    return suspect(fit.x), float(fit.cost)
