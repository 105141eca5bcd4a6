"""The same threat without the penalties: a secret eta_i(t) does not protect the record ([M] 6.2 says that it does).

In data step t, (KKT) reads, with the unknown record z = y x, known vectors g(t), s(t), p(r) and unknown numbers:

    (C/B) L'(z.f(t)) z + g(t) + eta(t) s(t) + sum_{r < t} theta(r) p(r) = 0

g(t) is the gradient of all other records and the ridge at f(t), s(t) = sum_j (2 f_i(t) - f_i(t-1) - f_j(t-1)) and
p(r) = sum_j (f_i(r) - f_j(r)). So z lies in the span of g(t), s(t) and p(r): a plane in the first data step, three dimensions
in the second, one more in each. In enough dimensions two of these meet in a line, which is the direction of z; its length is
the one number with which the slopes L' fit. Neither eta nor theta has to be known.
"""

from pathlib import Path
from typing import NamedTuple

import numpy as np

from dpadmm_mpi.audit.attack import CANDIDATES, Attack
from dpadmm_mpi.audit.exact import read_run
from dpadmm_mpi.config.reading import one_of
from dpadmm_mpi.errors import InputError
from dpadmm_mpi.methods.auditing import refuse_other_losses
from dpadmm_mpi.methods.base import methods
from dpadmm_mpi.methods.decentralised.audit import Transcript, read_transcript
from dpadmm_mpi.methods.decentralised.method import Decentralised
from dpadmm_mpi.methods.decentralised.plan import NetworkPlan
from dpadmm_mpi.problems.losses import Loss
from dpadmm_mpi.problems.objective import NodeProblem
from dpadmm_mpi.types import Array

MOST_STEPS = 6  # data steps that are used: later ones have more unknown numbers and add little
LENGTHS = np.linspace(0.02, 1.0, 50)  # of the record, to begin the search for it with


class SeenStep(NamedTuple):
    """What one data step tells."""

    f: Array  # f_i(t)
    known: Array  # g(t)
    free: Array  # rows s(t), p(1), ..., p(t-1), each with an unknown factor


def attack_without_penalties(path: Path, node: int = 0, record: int = 0) -> Attack:
    """Rebuild a record of a node as one who knows neither eta nor theta."""
    result, plan, dataset = read_run(path)
    if not (isinstance(plan, NetworkPlan) and isinstance(plan.method, Decentralised)):
        names = one_of(name for name, cls in methods.items() if issubclass(cls, Decentralised))
        raise InputError(f"{path}: a run of {plan.config.method_name}, but this is about the penalties of {names}")
    refuse_other_losses(plan, result.source)
    if plan.faults is not None:
        raise InputError(f"{path}: the attack does not follow a network with faults; run it without network.faults")
    transcript = read_transcript(plan, result, dataset)
    if not 0 <= node < plan.nodes:
        raise InputError(f"--node {node}: there are the nodes 0 to {plan.nodes - 1}")
    view = transcript.view(node)
    if not 0 <= record < len(view.rows):
        raise InputError(f"--record {record}: node {node} has the records 0 to {len(view.rows) - 1}")
    most = min(MOST_STEPS, len(plan.releases.data_steps), plan.features - 2)
    if most < 2:
        raise InputError(f"{path}: two data steps and four features are needed, so that two spans meet in a line")
    z, others = view.rows[record], np.delete(np.arange(len(view.rows)), record)
    pool = np.vstack([z, view.rows[others[: CANDIDATES - 1]]])
    used = np.arange(2, most + 1)
    errors, ranks = [], []
    for run in range(transcript.runs):
        steps = _steps(transcript, view.rows[others], run, node, most)
        guesses = [reconstruct(steps[:k], plan.loss, view.weight) for k in used]
        errors.append([float(np.linalg.norm(guess - z)) for guess in guesses])
        fit = [_misfit(candidate, steps, plan.loss, view.weight) for candidate in pool]
        ranks.append(1 + int(np.sum(np.array(fit[1:]) < fit[0])))
    bound = result["privacy/node_bound"][plan.releases.data_steps[used - 1], node]
    name = f"{result.name}, penalties unknown"
    return Attack(name, np.array(errors), np.array(ranks), len(pool), bound)


def _steps(transcript: Transcript, others: Array, run: int, node: int, most: int) -> list[SeenStep]:
    plan, degree = transcript.plan, transcript.node.degree
    rest = NodeProblem(others, plan.loss, plan.releases.C * len(others) / plan.releases.B[node], plan.ridge, plan.regulariser)
    found: list[SeenStep] = []
    disagreements: list[Array] = []
    for t in plan.releases.data_steps[:most]:
        before, now = transcript.states(run, t - 1), transcript.states(run, t)
        f = now.primal[node]
        pull = (2.0 * degree * now.primal - degree * before.primal - before.neighbour_sum)[node]
        gradient = rest.data_gradient(rest.signed @ f) + plan.ridge * f + rest.rest_gradient(f)
        found.append(SeenStep(f, gradient, np.array([pull, *disagreements])))
        disagreements.append((degree * now.primal - now.neighbour_sum)[node])
    return found


def reconstruct(steps: list[SeenStep], loss: Loss, weight: float) -> Array:
    """The direction that lies nearest to all spans, and the length with which the slopes fit best."""
    from scipy.optimize import minimize_scalar

    outside = np.zeros((len(steps[0].f),) * 2)
    for step in steps:
        basis = _orthonormal(np.vstack([step.known, step.free]))
        outside += np.eye(len(step.f)) - basis @ basis.T
    direction = np.linalg.eigh(outside)[1][:, 0]

    def misfit(length: float) -> float:
        return _misfit(length * direction, steps, loss, weight)

    lengths = np.concatenate([-LENGTHS, LENGTHS])
    best = float(lengths[int(np.argmin([misfit(length) for length in lengths]))])
    near = sorted((best * 0.5, best * 1.5))
    found = minimize_scalar(misfit, bounds=near, method="bounded", options={"xatol": 1e-14})
    z = float(found.x) * direction
    return np.asarray(z / max(1.0, float(np.linalg.norm(z))))


def _misfit(z: Array, steps: list[SeenStep], loss: Loss, weight: float) -> float:
    """What is left of (KKT) with the best unknown numbers, relative to the record's own part, summed over the steps."""
    total = 0.0
    for step in steps:
        part = weight * float(loss.first(np.array([z @ step.f]))[0]) * z
        basis = _orthonormal(step.free)
        left = part + step.known
        left = left - basis @ (basis.T @ left)
        total += float(left @ left)
    return total


def _orthonormal(rows: Array) -> Array:
    """A basis of what the rows span, (d, rank)."""
    scaled = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-300)
    u, s, _ = np.linalg.svd(scaled.T, full_matrices=False)
    return np.asarray(u[:, s > 1e-12 * s[0]])
