"""The exact privacy loss of a recorded run of DP-ADMM or DP-AccADMM against neighbouring data sets.

Given the past, x_t and the noise P_t determine each other through the closed form of [C] (7). So the published x_1, ..., x_T
tell, for the records D and for a neighbour D^ (one record replaced), how likely each was:

    loss = sum_t ( ||P_t - shift_t||^2 - ||P_t||^2 ) / (2 sigma^2),   shift_t = grad f^(xhat_{t-1}) - grad f(xhat_{t-1})

It must fit the sound account, and the noise must be what the account assumes.

With sampled gradients the density of x_t is a mixture over all samples, with too many parts. The samples do not depend on the
records, so the adversary may have them too: the same formula holds, with a shift of 0 where the record was not sampled, and
the losses are compared with the account that is conditioned on the sampling.
"""

from typing import Any

import numpy as np

from dpadmm_mpi.data.dataset import Dataset
from dpadmm_mpi.data.shard import row_norms
from dpadmm_mpi.errors import InputError
from dpadmm_mpi.methods.auditing import (
    AuditRequest,
    Examined,
    Recording,
    chi_cdf,
    distribution_findings,
    examine,
    nodes_to_audit,
    noise_findings,
    refuse_other_losses,
)
from dpadmm_mpi.methods.curated import accounts
from dpadmm_mpi.methods.curated.algorithm import follow, sampled_records, start
from dpadmm_mpi.methods.curated.plan import CuratedPlan
from dpadmm_mpi.methods.curated.steps import Settings, noisy_gradient_of, primal_step, splitting_step
from dpadmm_mpi.problems.losses import Loss
from dpadmm_mpi.types import Array, Ints, Matrix


@examine.register
def _(plan: CuratedPlan, recording: Recording, dataset: Dataset[Any], request: AuditRequest) -> Examined:
    """One record of one node, or `candidates` records of every node (or of one)."""
    nodes = nodes_to_audit(plan, recording, request)
    if plan.releases.u0_as_printed:
        words = f'{accounts.NOT_PRIVATE}; there is nothing to audit; run with algorithm.u0 = "zero"'
        raise InputError(f"{recording.source}: {words}")
    refuse_other_losses(plan, recording.source)
    shards = [dataset.loader.shard(dataset.address(i)).into_signed() for i in range(plan.nodes)]
    trajectory = recording["server_trajectory"]
    against = _against(trajectory[0], shards, plan.loss, plan.settings)
    queries, noises = _replay(trajectory, shards, plan.loss, plan.settings)
    candidates = min(request.candidates, int(plan.sizes[nodes].min()))
    losses = []
    for i in nodes:
        rows, record = shards[i], request.record
        if record is not None and not 0 <= record < rows.shape[0]:
            raise InputError(f"--record {record}: node {i} has the records 0 to {rows.shape[0] - 1}")
        chosen = np.array([record]) if record is not None else _longest(rows, candidates)
        hits = _hits(plan.settings, i, chosen, noises.shape[:2])
        losses.append(_losses(_dense(rows[chosen]), against, queries, noises, plan.loss, plan.settings, hits=hits))
    grown = np.cumsum(np.stack(losses), axis=2)
    scaled = noises / _deviations(plan.settings, noises.shape[1])
    findings = noise_findings(scaled, chi_cdf(scaled))
    account = accounts.sound_epsilon if plan.settings.batch is None else accounts.conditioned_epsilon
    findings += distribution_findings(grown[:, :, -1], lambda delta: account(plan.releases, delta)[-1, nodes])
    return Examined(nodes, grown, np.arange(1, plan.iterations + 1), findings, against="epsilon_sound")


def _replay(trajectory: Array, shards: list[Matrix], loss: Loss, s: Settings) -> tuple[Array, Array]:
    """xhat_{t-1} and P_t of every run and iteration, each (R, T, d), from the published values and the records."""
    queries, noises = [], []
    for r, run in enumerate(trajectory):
        c = start(run[0], np.zeros(s.A.rows), s)
        for t, x in enumerate(run[1:], 1):
            queries.append(c.x_hat)
            noises.append(noisy_gradient_of(c, x, s) - _gradient(c.x_hat, shards, loss, s, r, t))
            c = follow(c, x, s)
    shape = (len(trajectory), -1, s.features)
    return np.array(queries).reshape(shape), np.array(noises).reshape(shape)


def _gradient(x: Array, shards: list[Matrix], loss: Loss, s: Settings, run: int, t: int) -> Array:
    """The mean over the records of iteration t."""
    if s.batch is None:
        return _mean_gradient(x, shards, loss, s)
    taken = [rows[chosen] for rows, chosen in zip(shards, sampled_records(s, run, t), strict=True)]
    return np.asarray(sum(rows.T @ loss.first(np.asarray(rows @ x)) for rows in taken)) / s.batch


def _hits(s: Settings, node: int, chosen: Ints, shape: tuple[int, ...]) -> Array:
    """1 where these records of a node are in the gradient of an iteration, (R, T, records)."""
    if s.batch is None:
        return np.ones((*shape, len(chosen)))
    runs, iterations = shape
    seen = [[np.isin(chosen, sampled_records(s, r, t)[node]) for t in range(1, iterations + 1)] for r in range(runs)]
    return np.array(seen, dtype=np.float64)


def _against(trajectory: Array, shards: list[Matrix], loss: Loss, s: Settings) -> Array:
    """-xhat_T / ||xhat_T|| of the path without noise: a record there has nearly the steepest loss.

    Noise must not choose the neighbour, or the losses of the runs would not be those of one pair of data sets.
    """
    c = start(trajectory[0], np.zeros(s.A.rows), s)
    for _ in trajectory[1:]:
        c = follow(c, primal_step(c, splitting_step(c, s), _mean_gradient(c.x_hat, shards, loss, s), s), s)
    return -c.x_hat / max(float(np.linalg.norm(c.x_hat)), 1e-300)


def _mean_gradient(x: Array, shards: list[Matrix], loss: Loss, s: Settings) -> Array:
    return np.asarray(sum(rows.T @ loss.first(np.asarray(rows @ x)) for rows in shards)) / s.records


def _losses(old: Array, against: Array, queries: Array, noises: Array, loss: Loss, s: Settings, *, hits: Array) -> Array:
    """Of every run, iteration and neighbour, (R, T, pairs).

    The neighbours: each record with the opposite label, which for a margin loss is also the antipodal record with its own
    label, as long as it is and at norm 1; and `against` in its place.
    """
    norms = np.maximum(np.linalg.norm(old, axis=1, keepdims=True), 1e-300)
    pairs = []
    variances = _deviations(s, queries.shape[1])[:, 0] ** 2
    replacing = np.concatenate([-old, -old / norms, np.tile(against, (len(old), 1))])
    for k, (before, after) in enumerate(zip(np.tile(old, (3, 1)), replacing, strict=True)):
        slopes = loss.first(queries @ after)[..., None] * after - loss.first(queries @ before)[..., None] * before
        shift = hits[:, :, k % len(old), None] * slopes / s.averaged
        pairs.append((np.sum(shift**2, axis=2) - 2.0 * np.sum(shift * noises, axis=2)) / (2.0 * variances))
    return np.stack(pairs, axis=2)


def _deviations(s: Settings, iterations: int) -> Array:
    """sigma_t of every iteration, (T, 1)."""
    return np.array([[s.noise_at(t)] for t in range(1, iterations + 1)])


def _longest(rows: Matrix, count: int) -> Ints:
    """The records with the largest norms, which can shift the most."""
    return np.argsort(-row_norms(rows), kind="stable")[:count]


def _dense(rows: Matrix) -> Array:
    return rows if isinstance(rows, np.ndarray) else np.asarray(rows.toarray())
