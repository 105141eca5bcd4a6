"""The exact privacy loss of a recorded run against neighbouring data sets, for the methods on a network.

Given the past, f_i(t) and the noise e_i(t) determine each other through (KKT). So the released values of a run tell, for its
own records D and for a neighbour D^ (record n of node i replaced), how likely each was (audited_steps.py). The noise, every
data step, the totals and their distribution over the runs are compared with what the accounts say.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
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
    kept,
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
from dpadmm_mpi.privacy.account import accounts_of_parts
from dpadmm_mpi.privacy.noises import CorrelatedGaussian, lacking_for_audit
from dpadmm_mpi.privacy.perturbations import DataStepPerturbation
from dpadmm_mpi.problems.objective import DENSE_HESSIAN, NodeProblem
from dpadmm_mpi.registry import is_inside, place_of
from dpadmm_mpi.types import Array, Ints

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
    findings += _idle_findings(transcript)
    findings += [finding for check in checks for finding in check.findings]
    findings += _total_findings(transcript, nodes, losses)
    # A neighbour that was searched for in some runs tells about the distribution in the others only.
    chosen = candidates if request.record is None else 1
    fixed, fresh = losses[:, :, -1, : CORNERS * chosen], losses[:, transcript.searched :, -1, CORNERS * chosen :]
    epsilon = cache(lambda delta: _last_epsilon(plan, delta)[nodes])
    for some in (fixed, fresh):
        if some.size:
            findings += distribution_findings(some, epsilon)
    pure = np.isfinite(recording["privacy/node_bound"]).all()
    return Examined(nodes, losses, plan.releases.data_steps, findings, against="bound" if pure else "epsilon")


def _last_epsilon(plan: NetworkPlan, delta: float) -> Array:
    """Of each node at the end, (N,), in the worst run."""
    if plan.releases.in_runs is None:
        return accounts.Epsilon().spent(plan.releases, delta)
    (account,) = accounts_of_parts(plan.releases, lambda part: (accounts.Epsilon().compute(part, delta),))
    return np.asarray(account.node_values[-1])


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
    if plan.faults is not None and plan.faults.compression is not None:
        raise InputError(f"{recording.source}: what was released is compressed, which hides the noise; it cannot be audited")
    if plan.faults is not None and isinstance(plan.releases.noise, CorrelatedGaussian):
        raise InputError(
            f"{recording.source}: neighbours share noise on a network with faults, which the audit does not follow"
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

    @property
    def everything(self) -> range:
        """All runs."""
        return range(self.runs)

    def node_before(self, t: int) -> Node:
        """All nodes as they begin iteration t: with the neighbours that they have heard by then."""
        settings = self.node.settings
        return self.node if self.plan.faults is None else Node(settings, self.node.nodes, self.everything, t - 1)

    def step(self, t: int) -> tuple[Array, Array, Array]:
        """Of all nodes: linear and quadratic term of the penalty in iteration t, and the argmin behind what was released."""
        if t not in self._steps:
            method, node, before = self.plan.method, self.node_before(t), self.history[t - 1]
            terms = penalty_of(method, node, before, t, np.zeros_like(before.primal))
            self._steps[t] = *terms, argmin_behind(method, node, before, self.history[t].primal, t)
        return self._steps[t]

    @cached_property
    def _steps(self) -> dict[int, tuple[Array, Array, Array]]:
        return {}

    def alike(self, node: int, t: int, runs: slice) -> list[Ints]:
        """Those of some runs in which a node takes the data step of iteration t, in groups with equally many neighbours."""
        some = np.arange(self.runs)[runs]
        if self.plan.faults is None:
            return [some]
        taken = ~self.node.settings.rests(t, self.everything)[some, node]
        degree = np.broadcast_to(self.node_before(t).degree, (self.runs, self.plan.nodes, 1))[some, node, 0]
        return [some[taken & (degree == count)] for count in np.unique(degree[taken])]

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

    @cached_property
    def problem(self) -> NodeProblem:
        return self.transcript.plan.problem(self.rows, self.targets)

    def examined(self, request: AuditRequest, candidates: int, checks: "list[StepCheck]") -> tuple[Array, Array]:
        """(losses of every run, data step and neighbour; noise of every run and data step).

        The neighbours: corners, and the worst that a search finds in the place of some records.
        """
        transcript, steps = self.transcript, self.transcript.plan.releases.data_steps
        chosen = records_to_replace(self.rows, self.node, request.record, candidates)
        pairs = corners(self.rows, self.targets, transcript.plan.loss, chosen)
        if transcript.plan.faults is None and len(searched := chosen[: request.adversaries]):  # all runs must share the steps
            known = [self.step(t, slice(0, transcript.searched)) for t in steps]
            pairs = joined([pairs, worst_replacements(known, searched)])
        losses = np.zeros((transcript.runs, len(steps), len(pairs.replaced)))  # of steps that are not taken: nothing
        noise = np.full((transcript.runs, len(steps), transcript.plan.features), np.nan)
        for first in range(0, transcript.runs, self._together(len(pairs.replaced))):
            some = slice(first, first + self._together(len(pairs.replaced)))
            for k, t in enumerate(steps):
                for runs in transcript.alike(self.node, t, some):
                    step = self.step(t, runs)
                    losses[runs, k], noise[runs, k] = step.losses(pairs), step.noise
                    for check in checks:
                        check.see(losses[runs, k], check.limit(step, pairs, self.node, k, runs), (self.node, t), runs)
        return losses, noise

    def _together(self, pairs: int) -> int:
        """Runs that are worked on at a time."""
        d = self.transcript.plan.features
        return max(1, TOGETHER // max(d * d, pairs * d, len(self.rows)))

    def step(self, t: int, runs: slice | Ints) -> AuditedStep:
        """Iteration t in some runs; of noise that neighbours share, given all that is known of it."""
        step, shared = self.step_as_drawn(t, runs), self.transcript.shared
        if shared is None:
            return step
        e, deviation = shared.given_the_others(self.node, t)
        return replace(step, noise=e[runs], parameter=deviation)

    def step_as_drawn(self, t: int, runs: slice | Ints) -> AuditedStep:
        """The same with the noise as the node has drawn it. In all of these runs it has equally many neighbours."""
        transcript, i = self.transcript, self.node
        plan, node, perturbation = transcript.plan, transcript.node_before(t), transcript.plan.releases.perturbation
        assert isinstance(perturbation, DataStepPerturbation)
        assert plan.releases.noise is not None
        before = transcript.history[t - 1]
        problem = self.problem
        linear, quadratic, f = transcript.step(t)
        linear, penalty = linear[runs, i], _common(quadratic, runs, i)
        f = f[runs, i]
        about = problem, plan.releases.noise, float(node.settings.parameter[t, i]), penalty
        if perturbation.on_release:
            unchanged = Pairs(np.zeros(1, dtype=np.int64), self.rows[:1], None if self.targets is None else self.targets[:1])
            argmin = argmins(problem, unchanged, linear, penalty, before.primal[runs, i])[:, 0]
            return OnRelease(*about, argmin, f - argmin, linear)
        factor = _common(perturbation.objective_factor(node.eta(t), node.degree)[..., 0], runs, i)
        slopes = problem.slopes(problem.margins(f))
        gradient = problem.weight * problem.weighted_sums(slopes) + problem.ridge * f + problem.rest_gradient(f)
        return InObjective(*about, f, -(gradient + linear + penalty * f) / factor, factor)


def _common(values: Array, runs: slice | Ints, node: int) -> float:
    """Of a node in runs that share it; (nodes,), or (runs, nodes) where some do not."""
    return float(values[node] if values.ndim == 1 else values[runs, node][0])


@dataclass
class StepCheck:
    """Every loss of a single data step against a limit; the worst excess is kept."""

    words: str
    limit: Callable[[AuditedStep, Pairs, int, int, Ints], Any]  # of a step, pairs, a node, the number of the step, and runs
    worst: float = 0.0
    findings: list[str] = field(default_factory=list)

    def see(self, losses: Array, limit: Any, where: tuple[int, int], runs: Ints) -> None:
        """`where`: node and iteration."""
        limits = np.broadcast_to(limit, losses.shape)
        excess = losses - limits - SLACK * (1.0 + np.abs(limits))
        if excess.max() > self.worst:
            self.worst = float(excess.max())
            run, pair = np.unravel_index(excess.argmax(), excess.shape)
            node, t = where
            self.findings = [
                f"node {node} lost {losses[run, pair]:.6g} in iteration {t} of run {runs[run]} alone, more than "
                f"{self.words} {limits[run, pair]:.6g}"
            ]


def _step_checks(transcript: Transcript) -> list[StepCheck]:
    """The supremum of a step, what the proofs allow at the noise that was drawn, and what the pure accounts charge for it."""
    releases = transcript.plan.releases
    checks = [
        StepCheck("the largest loss that a data step can have,", lambda step, pairs, node, k, runs: step.supremum()),
        StepCheck("the proof of epsilon allows at its noise,", lambda step, pairs, node, k, runs: step.limits(pairs)),
    ]
    for name, words in _pure_accounts(transcript).items():
        charged = np.diff(_charged(transcript, name)[:, releases.data_steps], axis=1, prepend=0.0)
        checks.append(StepCheck(f"the {words} charges for it,", _charges(charged)))
    return checks


def _charged(transcript: Transcript, name: str) -> Array:
    """What an account says of each run, (runs, T+1, N); where all are alike, what it says of all."""
    recorded = transcript.recording[f"privacy/node_{name}"][None]
    if transcript.plan.faults is None:
        return np.broadcast_to(recorded, (transcript.runs, *recorded.shape[1:]))
    return transcript.recording[f"privacy/run_{name}"]


def _charges(charged: Array) -> Callable[[AuditedStep, Pairs, int, int, Ints], Any]:
    return lambda step, pairs, node, k, runs: charged[runs, k, node][:, None]


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
    shorter = kind.norm_cdf(np.linalg.norm(noise, axis=-1), parameter, plan.features)
    drawn = ~np.isnan(shorter)  # by those who have taken the step
    return noise_findings(noise, shorter) if drawn.all() else noise_findings(noise[drawn], shorter[drawn])


def _recycling_findings(transcript: Transcript) -> list[str]:
    """Recycled steps follow from released values alone."""
    plan, node = transcript.plan, transcript.node
    recycled = np.setdiff1d(np.arange(1, plan.iterations + 1), plan.releases.data_steps)
    gradient = np.zeros_like(transcript.history[0].primal)
    for t in recycled:
        if plan.faults is None:
            after = plan.method.recycled_again(node, transcript.history, t, gradient)
        else:
            before = transcript.history[t - 1]
            after = plan.method.recycled_step(transcript.node_before(t), before, t)
            after = kept(before, after, ~node.settings.takes_part(t, transcript.everything))
        expected, gradient = after.primal, after.gradient
        gaps = np.abs(expected - transcript.history[t].primal).max(axis=(1, 2))
        allowed = 1e-8 * np.maximum(1.0, np.abs(expected).max(axis=(1, 2)))
        if (gaps > allowed).any():
            run = int((gaps / allowed).argmax())
            return [f"iteration {t} of run {run} is not the recycled step of what was released before: off by {gaps[run]:.1e}"]
    return []


def _idle_findings(transcript: Transcript) -> list[str]:
    """Nobody has anything new who takes no step, and so spends nothing."""
    plan, settings, runs = transcript.plan, transcript.node.settings, transcript.everything
    if plan.faults is None:
        return []
    for t in range(1, plan.iterations + 1):
        idle = settings.rests(t, runs) if plan.method.is_data_step(t) else ~settings.takes_part(t, runs)
        new = (transcript.history[t].primal != transcript.history[t - 1].primal).any(axis=2)
        if (idle & new).any():
            run, node = np.argwhere(idle & new)[0]
            return [
                f"node {node} has released something new in iteration {t} of run {run}, in which it is said to take no step"
            ]
    return []


def _total_findings(transcript: Transcript, nodes: list[int], losses: Array) -> list[str]:
    """No realised loss above a pure bound, and no node better off than in one of the runs."""
    recording, plan = transcript.recording, transcript.plan
    steps = plan.releases.data_steps
    findings = []
    for name, words in _pure_accounts(transcript).items():
        charged = _charged(transcript, name)
        if (charged.max(axis=0) > recording[f"privacy/node_{name}"] * (1.0 + SLACK)).any():
            findings.append(f"the {words} of a node is below that of one of its runs")
        allowed = charged[:, steps][:, :, nodes].transpose(2, 0, 1)[..., None]
        excess = losses - allowed * (1.0 + SLACK) - SLACK
        if excess.max() > 0:
            k, run, step, _ = np.unravel_index(excess.argmax(), excess.shape)
            findings.append(
                f"node {nodes[int(k)]} lost {losses[k, run, step].max():.4g} by iteration {steps[step]} of run {run}, more "
                f"than the {words} {allowed[k, run, step, 0]:.4g}"
            )
    return findings
