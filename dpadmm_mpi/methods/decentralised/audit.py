"""The exact privacy loss of a recorded run against neighbouring data sets, for the methods on a network.

Given the past, f_i(t) and the noise e_i(t) determine each other through (KKT). So the released values of a run tell, for its
own records D and for a neighbour D^ (record n of node i replaced), how likely each was:

    loss = sum over data steps of ln p(e) - ln p(e^) + ln det(H_D + mu I) - ln det(H_D^ + mu I)

with p the density of the noise, exp(-alpha ||e||) up to a constant for gamma noise, and mu = rho/N + 2 eta V; with noise on the
release e^ - e is the distance of the two argmins, and there is no determinant.
"""

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from dpadmm_mpi.data.dataset import Dataset
from dpadmm_mpi.data.shard import Shard
from dpadmm_mpi.errors import InputError
from dpadmm_mpi.methods.auditing import (
    SIGNIFICANCE,
    AuditRequest,
    Examined,
    Recording,
    distribution_findings,
    examine,
    nodes_to_audit,
    records_to_replace,
    repetition_findings,
)
from dpadmm_mpi.methods.base import as_loss_takes
from dpadmm_mpi.methods.decentralised import accounts
from dpadmm_mpi.methods.decentralised.algorithm import NetworkSteps, Node, Settings, State, kkt_gradient, state_type
from dpadmm_mpi.methods.decentralised.plan import NetworkPlan
from dpadmm_mpi.networks.topology import IncomingSum
from dpadmm_mpi.privacy.perturbations import DataStepPerturbation
from dpadmm_mpi.problems.objective import DENSE_HESSIAN, NodeProblem
from dpadmm_mpi.registry import is_inside, place_of
from dpadmm_mpi.types import Array, Ints


@examine.register
def _(plan: NetworkPlan, recording: Recording, dataset: Dataset[Any], request: AuditRequest) -> Examined:
    """One record of one node, or `candidates` records of every node (or of one)."""
    nodes = nodes_to_audit(plan, recording, request)
    transcript = read_transcript(plan, recording, dataset)
    refuse_other_steps(plan, recording)
    candidates = min(request.candidates, int(plan.sizes[nodes].min()))
    losses, noises = [], []
    for i in nodes:
        view = transcript.view(i)
        loss, noise = view.losses(records_to_replace(view.rows, i, request.record, candidates))
        losses.append(loss)
        noises.append(noise)
    stacked = np.cumsum(np.stack(losses), axis=2)
    findings = [*_noise_findings(plan, nodes, np.stack(noises)), *_recycling_findings(transcript)]
    findings += _loss_findings(transcript, nodes, stacked)
    pure = np.isfinite(recording["privacy/bound"][-1])
    return Examined(nodes, stacked, plan.releases.data_steps, findings, against="bound" if pure else "epsilon")


def refuse_other_steps(plan: NetworkPlan, recording: Recording) -> None:
    """A data step of somebody's own must say how to undo what it does to the argmin."""
    order = type(plan.method).__mro__
    for cls in order[: order.index(NetworkSteps)]:
        if "data_step" in vars(cls) and not is_inside(cls) and "argmin_behind" not in vars(cls):
            raise InputError(
                f"{recording.source}: {place_of(cls)} has a data_step of its own; define argmin_behind too, so that it can be "
                "audited"
            )


@dataclass(frozen=True)
class Transcript:
    """A recorded run with everything that was released, and the records that it came from."""

    recording: Recording
    plan: NetworkPlan
    dataset: Dataset[Any]
    node: Node  # all of them, with the penalties that were recorded
    history: list[list[State]]  # run -> what all nodes held after every iteration, rebuilt from the released values

    @property
    def runs(self) -> int:
        return len(self.history)

    def view(self, node: int) -> "NodeView":
        shard = self.dataset.loader.shard(self.dataset.address(node))
        X = shard.X.copy() if isinstance(shard.X, np.ndarray) else shard.X.toarray()
        rows, targets = as_loss_takes(self.plan.loss, Shard(X, shard.y))
        assert isinstance(rows, np.ndarray)
        return NodeView(self, node, rows, targets)

    def states(self, run: int, t: int) -> State:
        """What all nodes held after iteration t."""
        return self.history[run][t]


def read_transcript(plan: NetworkPlan, recording: Recording, dataset: Dataset[Any]) -> Transcript:
    if plan.features > DENSE_HESSIAN:
        raise InputError(
            f"{recording.source}: {plan.features} features are too many for this; up to {DENSE_HESSIAN} are possible"
        )
    everyone = np.arange(plan.nodes)
    noise = plan.releases.noise
    settings: Settings = replace(
        plan.settings,
        eta=recording["algorithm/eta"],
        theta=recording["algorithm/theta"],
        parameter=recording[f"privacy/{'alpha' if noise is None else noise.parameter}"],
    )
    node = Node(settings, everyone)
    neighbour_sum = IncomingSum(plan.topology.channels["edges"], everyone, everyone)
    history = [_replayed(plan.method, node, run, neighbour_sum) for run in recording["trajectory"]]
    return Transcript(recording, plan, dataset, node, history)


def _replayed(method: NetworkSteps, node: Node, released: Array, neighbour_sum: IncomingSum) -> list[State]:
    """The states behind released vectors, (T+1, N, d), by the method's own steps that do not see records."""
    states: list[State] = []
    zero = np.zeros_like(released[0])
    blank = dict.fromkeys((*State._fields, *method.extra_state), zero)
    state = state_type(method.extra_state)(**blank)
    for t, primal in enumerate(released):
        state = state._replace(primal=primal, neighbour_sum=neighbour_sum(primal))
        if t > 0 and method.is_data_step(t):
            state = method.dual_step(node, state, t)
        states.append(state)
    return states


class Replacing(NamedTuple):
    """What records are replaced by."""

    rows: Array
    targets: Array | None


@dataclass(frozen=True)
class NodeView:
    """One node's part of the transcript, and its records: signed rows y x for a loss of the margin, or rows and targets."""

    transcript: Transcript
    node: int
    rows: Array
    targets: Array | None

    @property
    def weight(self) -> float:
        """C/B, of one record."""
        return self.transcript.plan.releases.C / len(self.rows)

    def losses(self, chosen: Ints) -> tuple[Array, Array]:
        """(losses of every run, data step and neighbour; noise of every run and data step)."""
        plan, recording = self.transcript.plan, self.transcript.recording
        replaced, replacing = self._neighbours(chosen)
        problem = plan.problem(self.rows, self.targets)
        node, perturbation, drawn = self.transcript.node, plan.releases.perturbation, plan.releases.noise
        assert isinstance(perturbation, DataStepPerturbation)
        assert drawn is not None
        losses, noises = [], []
        for run in range(self.transcript.runs):
            for t in plan.releases.data_steps:
                eta, parameter = node.eta(t), float(node.settings.parameter[t, self.node])
                before = self.transcript.states(run, t - 1)
                f = plan.method.argmin_behind(node, before, recording["trajectory"][run, t], t)
                if perturbation.on_release:
                    noise, shifts = self._released(problem, before, f[self.node], t, replaced, replacing)
                    determinants = np.zeros(len(replaced))
                else:
                    factor = float(perturbation.objective_factor(eta, node.degree)[self.node, 0])
                    linear, quadratic = self._terms(before, t)
                    margins = problem.margins(f[self.node][None])[0]
                    gradient = problem.data_gradient(margins) + plan.ridge * f[self.node] + problem.rest_gradient(f[self.node])
                    noise = -(gradient + linear + quadratic * f[self.node]) / factor
                    shifts, determinants = self._argmin(problem, f[self.node], quadratic, replaced, replacing)
                    shifts = shifts / factor
                losses.append(drawn.log_ratio(noise, noise[None, :] - shifts, parameter) + determinants)
                noises.append(noise)
        shape = (self.transcript.runs, len(plan.releases.data_steps), -1)
        return np.array(losses).reshape(shape), np.array(noises).reshape(shape)

    def _neighbours(self, chosen: Ints) -> "tuple[Ints, Replacing]":
        """Which record is replaced, and by what: each chosen record twice.

        Loss of the margin: the opposite label, which is also the antipodal record with its own label, as long as the record is
        and at norm 1. Other losses: another target (the far end of the range, the next class), and the antipodal record of
        norm 1 with its own.
        """
        rows = self.rows[chosen]
        norms = np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-300)
        replaced = np.concatenate([chosen, chosen])
        if self.targets is None:
            return replaced, Replacing(np.concatenate([-rows, -rows / norms]), None)
        y, loss = self.targets[chosen], self.transcript.plan.loss
        other = (y + 1.0) % loss.outputs if loss.predicts == "classes" else np.where(y > 0.0, -1.0, 1.0)
        return replaced, Replacing(np.concatenate([rows, -rows / norms]), np.concatenate([other, y]))

    def _terms(self, before: State, t: int) -> tuple[Array, float]:
        """What the data step added to O_i, without noise: the linear and the quadratic term of this node."""
        transcript = self.transcript
        linear, quadratic = transcript.plan.method.penalty(transcript.node, before, t, np.zeros_like(before.primal))
        return linear[self.node], float(quadratic[self.node])

    def _argmin(
        self, problem: NodeProblem, f: Array, quadratic: float, replaced: Ints, replacing: Replacing
    ) -> tuple[Array, Array]:
        """Noise in the objective: how each neighbour shifts the gradient at f, and the logarithm of the determinants' ratio."""
        targets = None if self.targets is None else self.targets[replaced]
        old, new = problem.with_records(self.rows[replaced], targets), problem.with_records(*replacing)
        w, ridge = problem.weight, problem.ridge + quadratic
        shifts = w * (_gradients(new, f) - _gradients(old, f))
        H = problem.hessian(problem.margins(f[None])[0], ridge) + np.diag(problem.rest_curvature(f))
        # det(I + S U' H^-1 U) of a change by U S U', U the records with each of their outputs, the new ones first.
        U = np.concatenate([_by_output(new), _by_output(old)], axis=1)
        solved = np.linalg.solve(H, U.reshape(-1, len(f)).T).T.reshape(U.shape)
        k = problem.outputs
        S = np.zeros((len(U), 2 * k, 2 * k))
        S[:, :k, :k], S[:, k:, k:] = w * new.curvatures(new.margins(f[None])[0]), -w * old.curvatures(old.margins(f[None])[0])
        change = np.eye(2 * k) + S @ (U @ solved.swapaxes(1, 2))
        return shifts, -np.linalg.slogdet(change)[1]

    def _released(
        self, problem: NodeProblem, before: State, f: Array, t: int, replaced: Ints, replacing: Replacing
    ) -> tuple[Array, Array]:
        """Noise on the release: the noise, and the distance between the argmins of each neighbour and of the records."""
        linear, quadratic = self._terms(before, t)
        argmin = problem.argmin(linear, quadratic, before.primal[self.node]).f
        shifts = []
        for k, n in enumerate(replaced):
            rows, targets = self.rows.copy(), None if self.targets is None else self.targets.copy()
            rows[n] = replacing.rows[k]
            if targets is not None and replacing.targets is not None:
                targets[n] = replacing.targets[k]
            other = problem.with_records(rows, targets)
            shifts.append(other.argmin(linear, quadratic, argmin).f - argmin)
        return f - argmin, np.array(shifts)


def _gradients(records: NodeProblem, f: Array) -> Array:
    """Of the loss of each record, (records, features of f)."""
    slopes = records.slopes(records.margins(f[None])).reshape(records.outputs, records.records)
    return np.asarray(np.einsum("kn,nd->nkd", slopes, np.asarray(records.signed)).reshape(records.records, -1))


def _by_output(records: NodeProblem) -> Array:
    """(records, outputs, features of f): each record as the vector that an output is the product of f with."""
    k, X = records.outputs, np.asarray(records.signed)
    return np.asarray(np.einsum("ab,nd->nabd", np.eye(k), X).reshape(len(X), k, -1))


def _noise_findings(plan: NetworkPlan, nodes: list[int], noise: Array) -> list[str]:
    """The noise is what the accounts assume: the norm has its law, and every vector is fresh in step, node and run."""
    from scipy import stats

    drawn = plan.releases.noise
    assert drawn is not None
    parameter = plan.releases.parameter[:, nodes].T[:, None, :, None]
    scaled = (noise * parameter ** float(drawn.exponent)).reshape(-1, plan.features)
    norms, law = np.linalg.norm(scaled, axis=1), drawn.norm_law(plan.features)
    findings = []
    p = stats.kstest(norms, law.cdf).pvalue
    if p < SIGNIFICANCE:
        findings.append(
            f"the norm of the noise does not have the law of {drawn.norm_words} (p = {p:.1e}): its mean in units of "
            f"{drawn.parameter} is {norms.mean():.4g}, but {law.mean():.4g} is claimed"
        )
    return [*findings, *repetition_findings(scaled)]


def _recycling_findings(transcript: Transcript) -> list[str]:
    """Recycled steps follow from released values alone."""
    plan, node = transcript.plan, transcript.node
    recycled = np.setdiff1d(np.arange(1, plan.config.iterations + 1), plan.releases.data_steps)
    for run in range(transcript.runs):
        for t in recycled:
            primal = transcript.states(run, t - 1).primal
            gradient = kkt_gradient(transcript.states(run, t - 2), primal, node.eta(t), node.degree)
            expected = plan.method.recycled_step(node, transcript.states(run, t - 1)._replace(gradient=gradient), t).primal
            gap = np.abs(expected - transcript.states(run, t).primal).max()
            if gap > 1e-8 * max(1.0, np.abs(expected).max()):
                return [f"iteration {t} of run {run} is not the recycled step of what was released before: off by {gap:.1e}"]
    return []


def _loss_findings(transcript: Transcript, nodes: list[int], losses: Array) -> list[str]:
    """No realised loss above a pure bound, and a distribution over the runs that fits the (epsilon, delta) account."""
    recording, plan = transcript.recording, transcript.plan
    steps = plan.releases.data_steps
    findings = []
    for name in ("bound", "tight"):
        allowed = recording[f"privacy/node_{name}"][steps][:, nodes].T[:, None, :, None]
        excess = losses - allowed * (1.0 + 1e-6) - 1e-6
        if excess.max() > 0:
            k, run, step, _ = np.unravel_index(excess.argmax(), excess.shape)
            findings.append(
                f"node {nodes[int(k)]} lost {losses[k, run, step].max():.4g} by iteration {steps[step]} of run {run}, more "
                f"than the {'paper' if name == 'bound' else 'tighter'} bound {allowed[k, 0, step, 0]:.4g}"
            )
    return findings + distribution_findings(losses[:, :, -1], lambda delta: accounts.epsilon(plan.releases, delta)[-1, nodes])
