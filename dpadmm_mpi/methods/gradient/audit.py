"""The exact privacy loss of a recorded run of a gradient method against neighbouring data sets.

What the nodes send tells every noisy gradient: given the past, psi_i(t) or the tracker and g~_i(t) determine each other. So
the released values of a run tell, for its own records D and for a neighbour D^ (record n of node i replaced), how likely each
was:

    loss = sum_k ( ||e_k - v_k||^2 - ||e_k||^2 ) / (2 sigma_k^2),   v_k = grad O^_i(x_i) - grad O_i(x_i),   e_k the noise

All else that was sent must follow from that: it is computed again, and compared. Where neighbours share noise, e_k is what is
left of it given the noise of all other nodes and the seeds of the colluders, and sigma_k its deviation.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from dpadmm_mpi.data.dataset import Dataset
from dpadmm_mpi.data.shard import Shard
from dpadmm_mpi.errors import InputError
from dpadmm_mpi.methods.audited_shared_noise import SharedNoise
from dpadmm_mpi.methods.auditing import (
    AuditRequest,
    Examined,
    Recording,
    chi_cdf,
    distribution_findings,
    examine,
    nodes_to_audit,
    noise_findings,
    records_to_replace,
)
from dpadmm_mpi.methods.base import as_loss_takes
from dpadmm_mpi.methods.decentralised.audited_steps import Pairs, SomeRecords, corners
from dpadmm_mpi.methods.gradient import accounts
from dpadmm_mpi.methods.gradient.plan import GradientPlan
from dpadmm_mpi.networks.metropolis import accelerated, metropolis
from dpadmm_mpi.networks.timeline import Inbox
from dpadmm_mpi.networks.topology import WeightedSum
from dpadmm_mpi.problems.local_problems import LocalProblems
from dpadmm_mpi.types import Array

FOLLOWS = 1e-8  # how well what is computed again must fit the record, relative to its size
SLACK = 1e-9  # of a sensitivity, relative


@examine.register
def _(plan: GradientPlan, recording: Recording, dataset: Dataset[Any], request: AuditRequest) -> Examined:
    """One record of one node, or `candidates` records of every node (or of one)."""
    nodes = nodes_to_audit(plan, recording, request)
    if own := plan.config.method.own_step():
        raise InputError(f"{recording.source}: {own}, which the audit does not know")
    if plan.faults is not None and (plan.faults.compression is not None or plan.shared is not None):
        raise InputError(
            f"{recording.source}: vectors are compressed or neighbours share noise, on a network with faults; the audit does "
            "not follow that"
        )
    transcript = (_tracking if plan.options.tracks else _descent)(plan, recording)
    candidates = min(request.candidates, int(plan.sizes[nodes].min()))
    sigma = recording["privacy/noise_std"][plan.releases.data_steps]  # (K, N)
    losses, noises, findings = [], [], list(transcript.findings)
    shared = _shared_noise(plan, recording, dataset, transcript)
    for i in nodes:
        view = _view(plan, dataset, transcript, i)
        pairs = corners(view.rows, view.targets, plan.loss, records_to_replace(view.rows, i, request.record, candidates))
        shifts = view.shifts(pairs)
        findings += _sensitivity_findings(plan, i, shifts)
        if shared is None:
            taken = ~np.isnan(view.noise).any(axis=-1, keepdims=True)  # who is absent loses nothing
            losses.append(np.where(taken, _losses(view.noise, shifts, sigma[:, i]), 0.0))
            noises.append(view.noise / sigma[:, i, None])
        else:
            steps = [shared.given_the_others(i, t) for t in plan.releases.data_steps.tolist()]
            losses.append(_losses(np.stack([e for e, _ in steps], axis=1), shifts, np.array([std for _, std in steps])))
    grown = np.cumsum(np.stack(losses), axis=2)
    if shared is None:
        scaled = np.stack(noises)
        drawn = ~np.isnan(scaled).any(axis=-1)
        scaled = scaled if drawn.all() else scaled[drawn]
        findings += noise_findings(scaled, chi_cdf(scaled))
    else:
        findings += shared.findings(nodes)
    findings += distribution_findings(grown[:, :, -1], lambda delta: accounts.epsilon(plan.releases, delta)[-1, nodes])
    return Examined(nodes, grown, plan.releases.data_steps, findings, against="epsilon_sound")


def _shared_noise(
    plan: GradientPlan, recording: Recording, dataset: Dataset[Any], transcript: "Transcript"
) -> SharedNoise | None:
    if plan.shared is None or plan.releases.worth is None:
        return None
    noise = np.stack([_view(plan, dataset, transcript, i).noise for i in range(plan.nodes)], axis=2)  # (R, K, N, d)
    steps = plan.releases.data_steps
    drawn = dict(zip(steps.tolist(), noise.swapaxes(0, 1), strict=True))
    std = recording["privacy/noise_std"][:, 0]
    return SharedNoise(plan.topology, plan.shared, plan.settings.seed, std, steps, plan.releases.worth, drawn.__getitem__)


@dataclass(frozen=True)
class Transcript:
    """What the released values of a run tell."""

    points: Array  # (R, K, N, d): x_i, at which the gradients were taken
    noisy: Array  # (R, K, N, d): g~_i
    findings: list[str]  # what does not follow from released values


def _descent(plan: GradientPlan, recording: Recording) -> Transcript:
    """m_i(t) = (x_i(t-1) - psi_i(t)) / a(t), and g~_i(t) is what the momentum has not kept of it."""
    s, sent, mix = plan.settings, recording["trajectory"], _Mixing(plan, len(recording["trajectory"]))
    step = recording["algorithm/step"][:, 0]
    before_last, direction = np.zeros_like(sent[:, 0]), np.zeros_like(sent[:, 0])
    points, noisy, findings = [], [], []
    for t in range(1, sent.shape[1]):
        absent = s.absent(t, mix.runs, mix.nodes)[..., None]
        x = accelerated(mix(sent[:, t - 1], t - 1), before_last, s.omega_before(t))
        before_last = np.where(absent, before_last, sent[:, t - 1])
        if not s.is_data_step(t):
            expected = np.where(absent, sent[:, t - 1], x)
            findings += _gap_findings(
                f"iteration {t} does not follow by mixing from what was sent before", expected, sent[:, t]
            )
            continue
        last, direction = direction, np.where(absent, direction, (x - sent[:, t]) / step[t])
        points.append(x)
        noisy.append(np.where(absent, np.nan, direction - s.momentum * last))
    return Transcript(np.stack(points, axis=1), np.stack(noisy, axis=1), findings[:1])


def _tracking(plan: GradientPlan, recording: Recording) -> Transcript:
    """g~_i(t) = g~_i(t-1) + what was sent - y_i(t-1); the points must follow from the trackers."""
    sent, trackers = recording["trajectory"], recording["tracker_trajectory"]
    mix = _Mixing(plan, len(sent))
    step = recording["algorithm/step"][:, 0]
    tracked, gradient = np.zeros_like(sent[:, 0]), np.zeros_like(sent[:, 0])
    points, noisy, findings = [], [], []
    mix_trackers = _Mixing(plan, len(sent))
    for t in range(1, sent.shape[1]):
        absent = plan.settings.absent(t, mix.runs, mix.nodes)[..., None]
        x = mix(sent[:, t - 1], t - 1)
        gradient = np.where(absent, gradient, gradient + trackers[:, t] - tracked)
        tracked = mix_trackers(trackers[:, t], t)
        follows = f"iteration {t} does not follow from the trackers that were sent"
        expected = np.where(absent, sent[:, t - 1], x - step[t] * tracked)
        findings += _gap_findings(follows, expected, sent[:, t])
        points.append(x)
        noisy.append(np.where(absent, np.nan, gradient))
    return Transcript(np.stack(points, axis=1), np.stack(noisy, axis=1), findings[:1])


class _Mixing:
    """W times the vectors of all nodes, (R, N, d), exchange by exchange; where messages get lost, of what has arrived."""

    def __init__(self, plan: GradientPlan, runs: int) -> None:
        self.nodes, self.runs = np.arange(plan.nodes), range(runs)
        weights = metropolis(plan.topology).of_neighbours
        self._incoming = WeightedSum(plan.topology.channels["edges"], self.nodes, self.nodes, weights)
        self._settings = plan.settings
        self._own = plan.settings.own_weight[:, None]
        if plan.faults is not None:
            self._inbox = Inbox(plan.faults, self.runs, self.nodes, self.nodes)
            shape = runs, len(plan.faults.arcs), plan.features
            longest = plan.faults.longest_delay
            self._held: Array = np.zeros(shape)
            self._late = np.zeros((*shape[:2], longest * shape[2])) if longest else None

    def __call__(self, values: Array, exchange: int) -> Array:
        if self._settings.faults is not None:
            self._held, self._late = self._inbox.receive(exchange, self._held, self._late, values)
            own = self._settings.own_weight_after(exchange, self.runs, self.nodes)
            return np.asarray(own * values + self._inbox.sums(exchange, self._held, weighted=True))
        runs, nodes, d = values.shape
        sums = self._incoming(values.swapaxes(0, 1).reshape(nodes, runs * d))
        return np.asarray(self._own * values + sums.reshape(nodes, runs, d).swapaxes(0, 1))


def _gap_findings(words: str, expected: Array, found: Array) -> list[str]:
    gap = float(np.abs(expected - found).max())
    return [f"{words}: off by {gap:.1e}"] if gap > FOLLOWS * max(1.0, float(np.abs(expected).max())) else []


@dataclass(frozen=True)
class _View:
    """One node's part of it."""

    plan: GradientPlan
    rows: Array
    targets: Array | None
    points: Array  # (R, K, d)
    noise: Array  # (R, K, d)

    def shifts(self, pairs: Pairs) -> Array:
        """v_k of every run, gradient and neighbour, (R, K, P, d)."""
        problem = self.plan.problem(self.rows, self.targets)
        old = SomeRecords(problem, self.rows[pairs.replaced], None if self.targets is None else self.targets[pairs.replaced])
        new = SomeRecords(problem, pairs.new, pairs.targets)
        flat = self.points.reshape(-1, self.points.shape[-1])
        moved = problem.weight * (new.gradients(flat) - old.gradients(flat))
        return np.asarray(moved.reshape(*self.points.shape[:2], *moved.shape[1:]))


def _view(plan: GradientPlan, dataset: Dataset[Any], transcript: Transcript, node: int) -> _View:
    shard = dataset.loader.shard(dataset.address(node))
    X = shard.X.copy() if isinstance(shard.X, np.ndarray) else shard.X.toarray()
    rows, targets = as_loss_takes(plan.loss, Shard(X, shard.y))
    assert isinstance(rows, np.ndarray)
    points = np.ascontiguousarray(transcript.points[:, :, node])
    flat = points.reshape(-1, 1, points.shape[-1])
    gradients = LocalProblems([plan.problem(rows.copy(), targets)]).gradients(flat).reshape(points.shape)
    return _View(plan, rows, targets, points, transcript.noisy[:, :, node] - gradients)


def _losses(noise: Array, shifts: Array, sigma: Array) -> Array:
    """(R, K, P)"""
    along = np.einsum("rkpd,rkd->rkp", shifts, noise)
    return np.asarray((np.sum(shifts**2, axis=-1) - 2.0 * along) / (2.0 * sigma[:, None] ** 2))


def _sensitivity_findings(plan: GradientPlan, node: int, shifts: Array) -> list[str]:
    """No record moves a gradient further than the account says."""
    largest, allowed = float(np.linalg.norm(shifts, axis=-1).max()), float(plan.releases.sensitivity[node])
    if largest <= allowed * (1.0 + SLACK):
        return []
    return [f"a record of node {node} moves its gradient by {largest:.6g}, more than the sensitivity {allowed:.6g}"]
