"""The exact privacy loss of a recorded run against neighbouring data sets, for the methods on a network.

Given the past, f_i(t) and the noise e_i(t) determine each other through (KKT). So the released values of a run tell, for its
own records D and for a neighbour D^ (record n of node i replaced), how likely each was (audited_steps.py). The noise, every
data step, the totals and their distribution over the runs are compared with what the accounts say.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache
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
    distribution_findings,
    examine,
    nodes_to_audit,
    noise_findings,
    records_to_replace,
)
from dpadmm_mpi.methods.base import as_loss_takes
from dpadmm_mpi.methods.decentralised import accounts
from dpadmm_mpi.methods.decentralised.adversary import worst_replacements
from dpadmm_mpi.methods.decentralised.algorithm import (
    NetworkSteps,
    Node,
    Settings,
    State,
    argmin_behind,
    penalty_of,
)
from dpadmm_mpi.methods.decentralised.audited_steps import (
    CORNERS,
    AuditedStep,
    InObjective,
    OnRelease,
    Pairs,
    argmins,
    corners,
    joined,
)
from dpadmm_mpi.methods.decentralised.plan import NetworkPlan
from dpadmm_mpi.privacy.noises import CorrelatedGaussian, lacking_for_audit
from dpadmm_mpi.privacy.perturbations import DataStepPerturbation
from dpadmm_mpi.problems.objective import DENSE_HESSIAN
from dpadmm_mpi.registry import is_inside, place_of
from dpadmm_mpi.types import Array

SLACK = 1e-6  # of a loss, relative and absolute: more than the solver leaves open
SEARCHED_RUNS = 16  # in which the worst neighbours are searched for
TOGETHER = 1 << 21  # numbers of several runs that are worked on at a time


@examine.register
def _(plan: NetworkPlan, recording: Recording, dataset: Dataset[Any], request: AuditRequest) -> Examined:
    """One record of one node, or `candidates` records of every node (or of one)."""
    nodes = nodes_to_audit(plan, recording, request)
    transcript = read_transcript(plan, recording, dataset)
    refuse_other_steps(plan, recording)
    candidates = min(request.candidates, int(plan.sizes[nodes].min()))
    checks = _step_checks(transcript)
    seen = [transcript.view(i).examined(request, candidates, checks) for i in nodes]
    losses, noise = np.cumsum(np.stack([loss for loss, _ in seen]), axis=2), np.stack([noise for _, noise in seen])
    findings = [*_noise_findings(plan, nodes, noise)] if transcript.shared is None else transcript.shared.findings(nodes)
    findings += _recycling_findings(transcript)
    findings += [finding for check in checks for finding in check.findings]
    findings += _total_findings(transcript, nodes, losses)
    # A neighbour that was searched for in some runs tells about the distribution in the others only.
    chosen = candidates if request.record is None else 1
    fixed, fresh = losses[:, :, -1, : CORNERS * chosen], losses[:, transcript.searched :, -1, CORNERS * chosen :]
    for some in (fixed, fresh):
        if some.size:
            findings += distribution_findings(some, lambda delta: accounts.epsilon(plan.releases, delta)[-1, nodes])
    pure = np.isfinite(recording["privacy/node_bound"]).all()
    return Examined(nodes, losses, plan.releases.data_steps, findings, against="bound" if pure else "epsilon")


def refuse_other_steps(plan: NetworkPlan, recording: Recording) -> None:
    """A data step of somebody's own must say how to undo what it does to the argmin."""
    order = type(plan.method).__mro__
    for cls in order[: order.index(NetworkSteps)]:
        if "data_step" in vars(cls) and not is_inside(cls) and "argmin_behind" not in vars(cls):
            raise InputError(
                f"{recording.source}: {place_of(cls)} has a data_step of its own; define argmin_behind too, so that it can be "
                "audited"
            )
    if plan.releases.own_steps is not None:
        raise InputError(
            f"{recording.source}: nodes rest in it, since their privacy budget is spent; the audit does not follow that"
        )
    if plan.releases.release_std:
        raise InputError(
            f"{recording.source}: with privacy.release_std the noise cannot be recovered from what was released, so the run "
            "cannot be audited"
        )
    assert plan.releases.noise is not None
    noise = type(plan.releases.noise)
    if lacking := lacking_for_audit(noise):
        raise InputError(
            f"{recording.source}: {place_of(noise)} has no {lacking[0]} of its own; an audit needs log_ratio, score and "
            "norm_cdf: define them"
        )


@dataclass(frozen=True)
class Transcript:
    """A recorded run with everything that was released, and the records that it came from."""

    recording: Recording
    plan: NetworkPlan
    dataset: Dataset[Any]
    node: Node  # all of them, with the penalties that were recorded
    history: list[State]  # what all nodes held after every iteration, (runs, N, d), rebuilt from the released values
    shared: "SharedNoise | None" = None  # where neighbours share noise

    @property
    def runs(self) -> int:
        return len(self.history[0].primal)

    @property
    def searched(self) -> int:
        """Runs in which the worst neighbours are searched for: at most half of them, but one."""
        return max(1, min(SEARCHED_RUNS, self.runs // 2))

    def drawn(self, t: int) -> Array:
        """e_i(t) of all nodes and runs, (runs, N, d), as recovered from what was released."""
        return np.stack([self.view(i).step_as_drawn(t, slice(None)).noise for i in range(self.plan.nodes)], axis=1)

    def view(self, node: int) -> "NodeView":
        shard = self.dataset.loader.shard(self.dataset.address(node))
        X = shard.X.copy() if isinstance(shard.X, np.ndarray) else shard.X.toarray()
        rows, targets = as_loss_takes(self.plan.loss, Shard(X, shard.y))
        assert isinstance(rows, np.ndarray)
        return NodeView(self, node, rows, targets)

    def states(self, run: int, t: int) -> State:
        """What all nodes held after iteration t of one run."""
        return self.history[t]._replace(**{name: values[run] for name, values in self.history[t]._asdict().items()})


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
        theta=recording["algorithm/theta"] if "algorithm/theta" in plan.schedules else plan.settings.theta,
        parameter=recording[f"privacy/{'alpha' if noise is None else noise.parameter}"],
    )
    node = Node(settings, everyone)
    history = plan.replayed(node, recording["trajectory"])
    transcript = Transcript(recording, plan, dataset, node, history)
    if not isinstance(noise, CorrelatedGaussian):
        return transcript
    assert plan.releases.worth is not None
    about = plan.topology, noise, settings.seed, settings.parameter[:, 0], plan.releases.data_steps, plan.releases.worth
    return replace(transcript, shared=SharedNoise(*about, cache(transcript.drawn)))


@dataclass(frozen=True)
class NodeView:
    """One node's part of the transcript, and its records as signed rows y x, or as rows x with their targets."""

    transcript: Transcript
    node: int
    rows: Array
    targets: Array | None

    @property
    def weight(self) -> float:
        """C/B, of one record."""
        return self.transcript.plan.releases.C / len(self.rows)

    def examined(self, request: AuditRequest, candidates: int, checks: "list[StepCheck]") -> tuple[Array, Array]:
        """(losses of every run, data step and neighbour; noise of every run and data step).

        The neighbours: corners, and the worst that a search finds in the place of some records.
        """
        transcript, steps = self.transcript, self.transcript.plan.releases.data_steps
        chosen = records_to_replace(self.rows, self.node, request.record, candidates)
        pairs = corners(self.rows, self.targets, transcript.plan.loss, chosen)
        if len(some := chosen[: request.adversaries]):
            known = [self.step(t, slice(0, transcript.searched)) for t in steps]
            pairs = joined([pairs, worst_replacements(known, some)])
        losses = np.empty((transcript.runs, len(steps), len(pairs.replaced)))
        noise = np.empty((transcript.runs, len(steps), transcript.plan.features))
        for first in range(0, transcript.runs, self._together(len(pairs.replaced))):
            runs = slice(first, first + self._together(len(pairs.replaced)))
            for k, t in enumerate(steps):
                step = self.step(t, runs)
                losses[runs, k], noise[runs, k] = step.losses(pairs), step.noise
                for check in checks:
                    check.see(losses[runs, k], check.limit(step, pairs, self.node, k), (self.node, t, first))
        return losses, noise

    def _together(self, pairs: int) -> int:
        """Runs that are worked on at a time."""
        d = self.transcript.plan.features
        return max(1, TOGETHER // max(d * d, pairs * d, len(self.rows)))

    def step(self, t: int, runs: slice) -> AuditedStep:
        """Iteration t in some runs; of noise that neighbours share, given all that is known of it."""
        step, shared = self.step_as_drawn(t, runs), self.transcript.shared
        if shared is None:
            return step
        e, deviation = shared.given_the_others(self.node, t)
        return replace(step, noise=e[runs], parameter=deviation)

    def step_as_drawn(self, t: int, runs: slice) -> AuditedStep:
        """The same with the noise as the node has drawn it."""
        transcript, i = self.transcript, self.node
        plan, node, perturbation = transcript.plan, transcript.node, transcript.plan.releases.perturbation
        assert isinstance(perturbation, DataStepPerturbation)
        assert plan.releases.noise is not None
        before = transcript.history[t - 1]
        before = before._replace(**{name: values[runs] for name, values in before._asdict().items()})
        problem = plan.problem(self.rows, self.targets)
        linear, quadratic = penalty_of(plan.method, node, before, t, np.zeros_like(before.primal))
        linear, penalty = linear[:, i], float(quadratic[i])
        f = argmin_behind(plan.method, node, before, transcript.history[t].primal[runs], t)[:, i]
        about = problem, plan.releases.noise, float(node.settings.parameter[t, i]), penalty
        if perturbation.on_release:
            unchanged = Pairs(np.zeros(1, dtype=np.int64), self.rows[:1], None if self.targets is None else self.targets[:1])
            argmin = argmins(problem, unchanged, linear, penalty, before.primal[:, i])[:, 0]
            return OnRelease(*about, argmin, f - argmin, linear)
        factor = float(perturbation.objective_factor(node.eta(t), node.degree)[i, 0])
        slopes = problem.slopes(problem.margins(f))
        gradient = problem.weight * problem.weighted_sums(slopes) + problem.ridge * f + problem.rest_gradient(f)
        return InObjective(*about, f, -(gradient + linear + penalty * f) / factor, factor)


@dataclass
class StepCheck:
    """Every loss of a single data step against a limit; the worst excess is kept."""

    words: str
    limit: Callable[[AuditedStep, Pairs, int, int], Any]  # of a step, pairs, a node and the number of the step
    worst: float = 0.0
    findings: list[str] = field(default_factory=list)

    def see(self, losses: Array, limit: Any, where: tuple[int, int, int]) -> None:
        """`where`: node, iteration and the first of these runs."""
        limits = np.broadcast_to(limit, losses.shape)
        excess = losses - limits - SLACK * (1.0 + np.abs(limits))
        if excess.max() > self.worst:
            self.worst = float(excess.max())
            run, pair = np.unravel_index(excess.argmax(), excess.shape)
            node, t, first = where
            self.findings = [
                f"node {node} lost {losses[run, pair]:.6g} in iteration {t} of run {first + int(run)} alone, more than "
                f"{self.words} {limits[run, pair]:.6g}"
            ]


def _step_checks(transcript: Transcript) -> list[StepCheck]:
    """The supremum of a step, what the proofs allow at the noise that was drawn, and what the pure accounts charge for it."""
    releases = transcript.plan.releases
    checks = [
        StepCheck("the largest loss that a data step can have,", lambda step, pairs, node, k: step.supremum()),
        StepCheck("the proof of epsilon allows at its noise,", lambda step, pairs, node, k: step.limits(pairs)),
    ]
    for name, words in _pure_accounts(transcript).items():
        charged = np.diff(transcript.recording[f"privacy/node_{name}"][releases.data_steps], axis=0, prepend=0.0)
        checks.append(StepCheck(f"the {words} charges for it,", _charges(charged)))
    return checks


def _charges(charged: Array) -> Callable[[AuditedStep, Pairs, int, int], Any]:
    return lambda step, pairs, node, k: charged[k, node]


def _pure_accounts(transcript: Transcript) -> dict[str, str]:
    """Those that are proven and finite, in words."""
    proven = {"bound": "paper bound"} if accounts.condition_failure(transcript.plan.releases) is None else {}
    named = proven | {"tight": "tighter bound"}
    recorded = transcript.recording
    return {name: words for name, words in named.items() if np.isfinite(recorded[f"privacy/node_{name}"]).all()}


def _noise_findings(plan: NetworkPlan, nodes: list[int], noise: Array) -> list[str]:
    """The noise is what the accounts assume, fresh in every step, node and run."""
    kind = plan.releases.noise
    assert kind is not None
    parameter = plan.releases.parameter[:, nodes].T[:, None, :]
    return noise_findings(noise, kind.norm_cdf(np.linalg.norm(noise, axis=-1), parameter, plan.features))


def _recycling_findings(transcript: Transcript) -> list[str]:
    """Recycled steps follow from released values alone."""
    plan, node = transcript.plan, transcript.node
    recycled = np.setdiff1d(np.arange(1, plan.iterations + 1), plan.releases.data_steps)
    gradient = np.zeros_like(transcript.history[0].primal)
    for t in recycled:
        after = plan.method.recycled_again(node, transcript.history, t, gradient)
        expected, gradient = after.primal, after.gradient
        gaps = np.abs(expected - transcript.history[t].primal).max(axis=(1, 2))
        allowed = 1e-8 * np.maximum(1.0, np.abs(expected).max(axis=(1, 2)))
        if (gaps > allowed).any():
            run = int((gaps / allowed).argmax())
            return [f"iteration {t} of run {run} is not the recycled step of what was released before: off by {gaps[run]:.1e}"]
    return []


def _total_findings(transcript: Transcript, nodes: list[int], losses: Array) -> list[str]:
    """No realised loss above a pure bound."""
    recording, plan = transcript.recording, transcript.plan
    steps = plan.releases.data_steps
    findings = []
    for name, words in _pure_accounts(transcript).items():
        allowed = recording[f"privacy/node_{name}"][steps][:, nodes].T[:, None, :, None]
        excess = losses - allowed * (1.0 + SLACK) - SLACK
        if excess.max() > 0:
            k, run, step, _ = np.unravel_index(excess.argmax(), excess.shape)
            findings.append(
                f"node {nodes[int(k)]} lost {losses[k, run, step].max():.4g} by iteration {steps[step]} of run {run}, more "
                f"than the {words} {allowed[k, 0, step, 0]:.4g}"
            )
    return findings
