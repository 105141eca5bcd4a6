"""The exact privacy loss of a recorded run against neighbouring data sets, and other ways to prove an account wrong (SPEC 2).

Given the past, f_i(t) and the noise e_i(t) determine each other through (KKT). So the released values of a run tell, for its
own records D and for a neighbour D^ (record n of node i replaced), how likely each was:

    loss = sum over data steps of alpha (||e^|| - ||e||) + ln det(H_D + mu I) - ln det(H_D^ + mu I)

with mu = rho/N + 2 eta V; with noise on the release e^ - e is the distance of the two argmins, and there is no determinant.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpadmm_mpi.config.options import DECENTRALISED
from dpadmm_mpi.config.options import files as configfile
from dpadmm_mpi.errors import InputError
from dpadmm_mpi.methods.base import Plan, make_plan
from dpadmm_mpi.methods.decentralised import accounts as privacy
from dpadmm_mpi.methods.decentralised.algorithm import State, kkt_gradient, recycled_step
from dpadmm_mpi.methods.decentralised.plan import DecentralisedPlan
from dpadmm_mpi.networks.graphs import IncomingSum
from dpadmm_mpi.privacy.releases import PERTURBATIONS
from dpadmm_mpi.problems.objective import DENSE_HESSIAN, NodeProblem
from dpadmm_mpi.storage.result import Result, load

Array = NDArray[np.float64]

SIGNIFICANCE = 1e-6  # of a statistical finding; a sound run gives a false alarm this rarely
ACCOUNTS = {"bound": "P_i(T)", "tight": "tight", "epsilon": "epsilon"}
AGAINST = "bound"  # what the worst loss is shown as a share of
DELTAS = (0.1, 0.03, 0.01)  # at which the distribution of the loss over runs is compared with the account


@dataclass(frozen=True)
class Audit:
    """Realised losses, and what they and the noise say against the accounts."""

    result: Result
    nodes: list[int]
    losses: Array  # (nodes, runs, steps, pairs): growing over the data steps
    data_steps: NDArray[np.int64]
    findings: list[str]  # what is wrong; empty for a sound run

    @property
    def worst(self) -> Array:
        """Largest realised loss of each node over runs and neighbours, at the end."""
        return self.losses[:, :, -1].max(axis=(1, 2))


def audit(path: Path, candidates: int = 20, node: int | None = None, record: int | None = None) -> Audit:
    """Audit a file with a trajectory: one record of one node, or `candidates` records of every node (or of `node`)."""
    transcript = read_transcript(path)
    plan, result = transcript.plan, transcript.result
    nodes = nodes_to_audit(plan, path, node, record)
    candidates = min(candidates, int(plan.sizes[nodes].min()))
    losses, noises = [], []
    for i in nodes:
        view = transcript.view(i)
        loss, noise = view.losses(records_to_replace(view.rows, i, record, candidates))
        losses.append(loss)
        noises.append(noise)
    stacked = np.cumsum(np.stack(losses), axis=2)
    findings = [*_noise_findings(plan, nodes, np.stack(noises)), *_recycling_findings(transcript)]
    findings += _loss_findings(transcript, nodes, stacked)
    return Audit(result, nodes, stacked, plan.releases.data_steps, findings)


def nodes_to_audit(plan: Plan, path: Path, node: int | None, record: int | None) -> list[int]:
    if plan.config.privacy.perturbation == "none":
        raise InputError(f"{path}: a run without noise has an infinite privacy loss; there is nothing to audit")
    if record is not None and node is None:
        raise InputError("--record: say the node that has it, with --node")
    if node is not None and not 0 <= node < plan.nodes:
        raise InputError(f"--node {node}: there are the nodes 0 to {plan.nodes - 1}")
    return list(range(plan.nodes)) if node is None else [node]


def records_to_replace(rows: Array, node: int, record: int | None, candidates: int) -> NDArray[np.int64]:
    """The one asked for, or those with the largest norms, which can shift the most."""
    if record is None:
        return np.argsort(-np.linalg.norm(rows, axis=1), kind="stable")[:candidates]
    if not 0 <= record < len(rows):
        raise InputError(f"--record {record}: node {node} has the records 0 to {len(rows) - 1}")
    return np.array([record])


@dataclass(frozen=True)
class Transcript:
    """A recorded run with everything that was released, and the records that it came from."""

    result: Result
    plan: DecentralisedPlan
    dataset: Any
    neighbour_sums: Array  # (R, T+1, N, d)
    duals: Array  # (R, T+1, N, d), rebuilt from the released values

    def view(self, node: int) -> "NodeView":
        shard = self.dataset.loader.shard(self.dataset.address(node))
        X = shard.X if isinstance(shard.X, np.ndarray) else shard.X.toarray()
        return NodeView(self, node, X * shard.y[:, None])

    def states(self, run: int, t: int) -> State:
        """What all nodes held after iteration t."""
        primal = self.result["trajectory"][run, t]
        unused = np.zeros_like(primal)
        return State(primal, self.duals[run, t], self.neighbour_sums[run, t], gradient=unused, residual=unused)


def read_transcript(path: Path) -> Transcript:
    result, config = load(path), configfile.load(path).configs[0]
    if config.algorithm.method not in DECENTRALISED:
        methods = ", ".join(DECENTRALISED)
        raise InputError(f"{path}: a run of {config.algorithm.method}, but this is for the decentralised methods: {methods}")
    if "trajectory" not in result:
        raise InputError(f"{path}: holds no trajectory; run again with record.trajectory = true")
    if not result.complete:
        raise InputError(f"{path}: the run is not complete")
    plan, dataset = make_plan(config)
    assert isinstance(plan, DecentralisedPlan)
    if plan.features > DENSE_HESSIAN:
        raise InputError(f"{path}: {plan.features} features are too many for this; up to {DENSE_HESSIAN} are possible")
    f = result["trajectory"]
    everyone = np.arange(plan.nodes)
    neighbour_sum = IncomingSum(plan.graph.channels["edges"], everyone, everyone)
    sums = np.stack([[neighbour_sum(step) for step in run] for run in f])
    duals = np.zeros_like(f)
    degree = plan.graph.degree[:, None].astype(np.float64)
    for t in range(1, f.shape[1]):
        theta = np.nan_to_num(result["algorithm/theta"][t])[:, None]  # nan where the dual stays
        duals[:, t] = duals[:, t - 1] + 0.5 * theta * (degree * f[:, t] - sums[:, t])
    return Transcript(result, plan, dataset, sums, duals)


@dataclass(frozen=True)
class NodeView:
    """One node's part of the transcript, and its records as signed rows y x."""

    transcript: Transcript
    node: int
    rows: Array

    @property
    def weight(self) -> float:
        """C/B, of one record."""
        return self.transcript.plan.releases.C / len(self.rows)

    def losses(self, chosen: NDArray[np.int64]) -> tuple[Array, Array]:
        """(losses of every run, data step and neighbour; noise of every run and data step).

        The neighbours: each chosen record with the opposite label, which for a margin loss is also the antipodal record with
        its own label, as long as it is and at norm 1.
        """
        plan, result = self.transcript.plan, self.transcript.result
        rows = self.rows[chosen]
        norms = np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-300)
        replaced, replacing = np.concatenate([chosen, chosen]), np.concatenate([-rows, -rows / norms])
        problem = NodeProblem(self.rows, plan.loss, plan.releases.C, plan.ridge)
        degrees = plan.graph.degree[:, None].astype(np.float64)
        degree = float(degrees[self.node, 0])
        perturbation = PERTURBATIONS[plan.releases.perturbation]
        losses, noises = [], []
        for run in range(len(result["run"])):
            for t in plan.releases.data_steps:
                eta, alpha = result["algorithm/eta"][t, self.node], result["privacy/alpha"][t, self.node]
                before, f = self.transcript.states(run, t - 1), result["trajectory"][run, t]
                pull = -kkt_gradient(before, f, result["algorithm/eta"][t][:, None], degrees)[self.node]
                if perturbation.on_release:
                    noise, shifts = self._released(problem, before, f[self.node], eta, degree, replaced, replacing)
                    determinants = np.zeros(len(replaced))
                else:
                    factor = float(perturbation.objective_factor(np.array([eta]), np.array([degree]))[0])
                    margins = problem.signed @ f[self.node]
                    gradient = problem.data_gradient(margins) + plan.ridge * f[self.node]
                    noise = -(gradient + pull) / factor
                    shifts, determinants = self._argmin(problem, f[self.node], eta, degree, replaced, replacing)
                    shifts = shifts / factor
                growth = np.linalg.norm(noise[None, :] - shifts, axis=1) - np.linalg.norm(noise)
                losses.append(alpha * growth + determinants)
                noises.append(noise)
        shape = (len(result["run"]), len(plan.releases.data_steps), -1)
        return np.array(losses).reshape(shape), np.array(noises).reshape(shape)

    def _argmin(
        self, problem: NodeProblem, f: Array, eta: float, degree: float, replaced: Any, replacing: Array
    ) -> tuple[Array, Array]:
        """Noise in the objective: how each neighbour shifts the gradient at f, and the logarithm of the determinants' ratio."""
        old, new = self.rows[replaced], replacing
        m_old, m_new, w, loss = old @ f, new @ f, problem.weight, problem.loss
        shifts = w * (loss.first(m_new)[:, None] * new - loss.first(m_old)[:, None] * old)
        H = problem.hessian(problem.signed @ f, problem.ridge + 2.0 * eta * degree)
        solved_old, solved_new = np.linalg.solve(H, old.T).T, np.linalg.solve(H, new.T).T
        a, b = w * loss.second(m_new), -w * loss.second(m_old)
        # det(I + S U' H^-1 U) of the rank-two change, written out.
        nn, oo, no = (np.sum(p * q, axis=1) for p, q in ((new, solved_new), (old, solved_old), (new, solved_old)))
        ratio = (1.0 + a * nn) * (1.0 + b * oo) - a * b * no**2
        return shifts, -np.log(ratio)

    def _released(
        self, problem: NodeProblem, before: State, f: Array, eta: float, degree: float, replaced: Any, replacing: Array
    ) -> tuple[Array, Array]:
        """Noise on the release: the noise, and the distance between the argmins of each neighbour and of the records."""
        i = self.node
        linear = 2.0 * before.dual[i] - eta * (degree * before.primal[i] + before.neighbour_sum[i])
        quadratic = 2.0 * eta * degree
        argmin = problem.argmin(linear, quadratic, before.primal[i]).f
        shifts = []
        for n, row in zip(replaced, replacing, strict=True):
            neighbour = problem.signed.copy()
            neighbour[n] = row
            other = NodeProblem(neighbour, problem.loss, problem.C, problem.ridge)
            shifts.append(other.argmin(linear, quadratic, argmin).f - argmin)
        return f - argmin, np.array(shifts)


def _noise_findings(plan: DecentralisedPlan, nodes: list[int], noise: Array) -> list[str]:
    """The noise is what the accounts assume: norm Gamma(d, 1/alpha), fresh in every step, node and run."""
    from scipy import stats

    alpha = plan.releases.alpha[:, nodes].T[:, None, :, None]
    scaled = (noise * alpha).reshape(-1, plan.features)
    norms = np.linalg.norm(scaled, axis=1)
    findings = []
    p = stats.kstest(norms, stats.gamma(plan.features).cdf).pvalue
    if p < SIGNIFICANCE:
        findings.append(
            f"the noise is not Gamma({plan.features}, 1/alpha) in norm (p = {p:.1e}): its mean times alpha is "
            f"{norms.mean():.4g}, but {plan.features} is claimed"
        )
    return [*findings, *repetition_findings(scaled)]


def repetition_findings(noise: Array) -> list[str]:
    """Every noise vector, a row, is fresh."""
    order = np.lexsort(noise.T)
    close = np.linalg.norm(np.diff(noise[order], axis=0), axis=1) < 1e-7 * np.linalg.norm(noise[order][1:], axis=1)
    if not close.any():
        return []
    return [f"noise is used again: {close.sum()} of {len(noise)} noise vectors occur more than once"]


def _recycling_findings(transcript: Transcript) -> list[str]:
    """Recycled steps follow from released values alone."""
    plan, result = transcript.plan, transcript.result
    degree = plan.graph.degree[:, None].astype(np.float64)
    recycled = np.setdiff1d(np.arange(1, plan.config.iterations + 1), plan.releases.data_steps)
    for run in range(len(result["run"])):
        for t in recycled:
            eta = result["algorithm/eta"][t][:, None]
            primal = result["trajectory"][run, t - 1]
            gradient = kkt_gradient(transcript.states(run, t - 2), primal, eta, degree)
            expected = recycled_step(
                transcript.states(run, t - 1)._replace(gradient=gradient), eta, degree, plan.settings.gamma
            )
            gap = np.abs(expected - result["trajectory"][run, t]).max()
            if gap > 1e-8 * max(1.0, np.abs(expected).max()):
                return [f"iteration {t} of run {run} is not the recycled step of what was released before: off by {gap:.1e}"]
    return []


def _loss_findings(transcript: Transcript, nodes: list[int], losses: Array) -> list[str]:
    """No realised loss above a pure bound, and a distribution over the runs that fits the (epsilon, delta) account."""
    result, plan = transcript.result, transcript.plan
    steps = plan.releases.data_steps
    findings = []
    for name in ("bound", "tight"):
        allowed = result[f"privacy/node_{name}"][steps][:, nodes].T[:, None, :, None]
        excess = losses - allowed * (1.0 + 1e-6) - 1e-6
        if excess.max() > 0:
            k, run, step, _ = np.unravel_index(excess.argmax(), excess.shape)
            findings.append(
                f"node {nodes[int(k)]} lost {losses[k, run, step].max():.4g} by iteration {steps[step]} of run {run}, more "
                f"than the {'paper' if name == 'bound' else 'tighter'} bound {allowed[k, 0, step, 0]:.4g}"
            )
    return findings + distribution_findings(losses[:, :, -1], lambda delta: privacy.epsilon(plan.releases, delta)[-1, nodes])


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
