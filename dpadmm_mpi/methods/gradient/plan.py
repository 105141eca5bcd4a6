"""From a configuration to a run of a gradient method: weights, steps, noise, accounts, who sees what, conditions."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from dpadmm_mpi.config.schedules import Geometric, expand
from dpadmm_mpi.data.dataset import Dataset, target_of
from dpadmm_mpi.data.shard import Shard
from dpadmm_mpi.errors import InputError
from dpadmm_mpi.methods import faulty_runs, shared_noise
from dpadmm_mpi.methods.base import (
    NO_NOISE,
    Assumptions,
    Config,
    Known,
    Method,
    OptimumSearch,
    Plan,
    Schedules,
    fitted_loss,
    target_notes,
)
from dpadmm_mpi.methods.budget import within_budget
from dpadmm_mpi.methods.centralised_optimum import CentralisedOptimum
from dpadmm_mpi.methods.decentralised.algorithm import State
from dpadmm_mpi.methods.decentralised.convergence import LARGEST_NETWORK
from dpadmm_mpi.methods.decentralised.plan import NOT_EXAMINED, ConsensusTerms, check_sizes
from dpadmm_mpi.methods.gradient import accounts, observers, theory
from dpadmm_mpi.methods.gradient.algorithm import DescentNodes, GradientNodes, Settings, TrackingNodes
from dpadmm_mpi.methods.gradient.measures import GradientMeasures, TrackingMeasures
from dpadmm_mpi.networks.metropolis import acceleration, matrix, metropolis, second_eigenvalue
from dpadmm_mpi.networks.timeline import faults_on, groups
from dpadmm_mpi.networks.topology import Topology
from dpadmm_mpi.networks.virtual_time import Leg
from dpadmm_mpi.privacy.account import calibrate
from dpadmm_mpi.privacy.noises import CorrelatedGaussian
from dpadmm_mpi.privacy.perturbations import CorrelatedGradients, NoisyGradients
from dpadmm_mpi.privacy.releases import GradientReleases
from dpadmm_mpi.problems.local_problems import LocalProblems
from dpadmm_mpi.problems.losses import Loss
from dpadmm_mpi.problems.objective import NodeProblem
from dpadmm_mpi.problems.regularisers import SmoothRegulariser
from dpadmm_mpi.problems.softmax import node_problem
from dpadmm_mpi.types import Array, Bools, Ints, Matrix

Steps = float | Geometric | list[float] | str  # a number, a law, one for each gradient, or "auto"

PAIR_PROOF_SHARED = "proven: whatever has come as far as the other node counts as seen"
PAIR_PROOF = (
    "proven: whatever was sent before the last gradient counts as seen, of the last one what the neighbours' messages tell"
)
PRINTED = (
    "as Cyffers et al. 2022, Theorem 1, has it for a single gradient, added up over the gradients; not proven: noise that is "
    "shared between messages cancels in their differences"
)


class GradientOptions(NamedTuple):
    """What a configuration says about the steps."""

    step: Steps
    init: str
    momentum: float = 0.0
    mixing_steps: int = 1  # for each gradient
    accelerated: bool = False  # whether these are Chebyshev's
    tracks: bool = False  # gradient tracking


@dataclass(frozen=True)
class GradientPlan(Plan[State]):
    settings: Settings
    releases: GradientReleases
    options: GradientOptions
    contraction: float  # of one mixing step

    @property
    def is_private(self) -> bool:
        return self.releases.noise_std > 0.0

    @property
    def shared(self) -> CorrelatedGaussian | None:
        """The noise, where neighbours share some."""
        return _shared(self.config)

    @property
    def terms(self) -> ConsensusTerms:
        terms = self.config.problem.terms
        assert isinstance(terms, ConsensusTerms)
        return terms

    @property
    def ridge(self) -> float:
        return self.terms.rho / self.nodes

    @property
    def steps(self) -> Array:
        """Of every gradient, (K,)."""
        return self.settings.step[self.releases.data_steps]

    @property
    def work_in_words(self) -> str:
        return f"{self.iterations} iterations with {self.releases.touches} gradients"

    @property
    def data_step_share(self) -> float:
        return self.releases.touches / self.iterations

    @property
    def schedules(self) -> Mapping[str, Schedules]:
        everyone = np.ones(self.nodes)
        return {
            "algorithm/step": Schedules(self.settings.step[:, None] * everyone, "step size a(t); nan if none"),
            "privacy/noise_std": Schedules(
                self.settings.noise_std[:, None] * everyone,
                "standard deviation of the noise on a gradient; 0: none, nan: no gradient",
            ),
        }

    @property
    def privacy_in_words(self) -> str:
        if not self.is_private:
            return NO_NOISE
        sigma = self.releases.sigma
        size = f"{sigma[0]:.4g}" + (f" (at first) to {sigma[-1]:.4g}" if sigma[-1] != sigma[0] else "")
        words = self.releases.unaccounted or accounts.words(self.releases)
        return f"noise of standard deviation {size} on every gradient: {words}; neighbours: {accounts.NEIGHBOURS}"

    def improvements(self) -> list[str]:
        if not self.is_private:
            return []
        worst, B = int(self.sizes.argmin()), self.sizes
        ways = [f"more records at node {worst} (it has {B[worst]}, others up to {B.max()})"] if B.max() > B.min() else []
        return [*ways, "a larger privacy.noise_std or a smaller privacy.target", "fewer iterations", "a smaller problem.C"]

    def conditions(self, assumed: Assumptions) -> list[str]:
        if own := self.config.method.own_step():
            return [f"-      nothing is known of its convergence: {own}"]
        L = smoothness(self.loss, self.terms, self.nodes)
        if self.faults is not None:
            lines = [NOT_EXAMINED]
        elif self.options.tracks:
            lines = theory.tracking(self.steps, L, self.ridge, self.contraction)
        else:
            lines = theory.descent(self.steps, self.settings.momentum, L, self._contraction_between())
        lines.append(f"-      L = C c1 + rho/N = {L:.6g}, for records of norm 1 (with a regulariser's own curvature at 0)")
        if self.is_private:
            lines.append(theory.noise_line(self.releases.sigma, self.features, self.nodes, L, assumed.f_ref))
        return lines

    def legs(self, passes_per_solve: float, runs: range) -> list[Leg]:
        """A gradient is one pass; trackers travel first, in an exchange of their own."""
        touches = np.zeros((self.iterations + 1, 1))
        touches[self.releases.data_steps] = 1.0
        if not self.options.tracks:
            return [self._leg("edges", touches)]
        return [self._leg("edges", touches, first=1), self._leg("edges", 0.0)]

    def _contraction_between(self) -> theory.Mixing:
        return theory.Mixing(self.contraction, self.settings.mixing_steps, self.options.accelerated)

    @property
    def _examines_pairs(self) -> bool:
        every = self.shared is None or shared_noise.holds_against_every_node(self.shared)
        return every and 1 < self.nodes <= LARGEST_NETWORK and self.is_private and not self.releases.unaccounted

    @property
    def scales(self) -> Mapping[str, int]:
        return {**super().scales} | ({"privacy/observer": self.nodes} if self._examines_pairs else {})

    @property
    def known_before(self) -> Mapping[str, Known]:
        return {**faulty_runs.recorded(self), **super().known_before, **self._pairs, **self._correlation}

    @property
    def _correlation(self) -> dict[str, Known]:
        """Of noise that neighbours share."""
        r, delta = self.releases, self.config.privacy.delta
        if self.shared is None or r.worth is None:
            return {}
        against = lambda worth: accounts.epsilon(replace(r, worth=worth), delta)[-1]  # noqa: E731
        return shared_noise.recorded(self.shared, r.worth, self.topology, against, delta)

    @property
    def _pairs(self) -> dict[str, Known]:
        if not self._examines_pairs:
            return {}
        delta, dims = self.config.privacy.delta, ("node", "privacy/observer")
        text = f"epsilon at delta = {delta:g} of a node against another one, which sees the messages of its neighbours alone"
        if self.faults is not None:
            (account,) = self.accounts
            words = f"{text}; nan: itself; by what has arrived in the worst run"
            pairs = faulty_runs.pairs_by_run(self, account, 2 if self.options.tracks else 1)
            return {"privacy/pair_epsilon": Known(pairs, dims, words)}
        proof = PAIR_PROOF if self.shared is None else PAIR_PROOF_SHARED
        found = {"privacy/pair_epsilon": Known(self.pair_epsilon(delta), dims, f"{text}; nan: itself; {proof}")}
        if self.settings.mixing_steps > 1 and not self.consensus_steps and self.shared is None:
            printed = Known(self.printed_pair_epsilon(delta), dims, f"{text}; nan: itself; {PRINTED}")
            found["privacy/pair_epsilon_printed"] = printed
        return found

    def pair_epsilon(self, delta: float) -> Array:
        """epsilon_{u -> v}, (N, N). What mixed messages hide is known for independent noise alone."""
        local = accounts.mu(self.releases)
        found = observers.delayed_mu(local, self.topology, 2 if self.options.tracks else 1, self.consensus_steps)
        if not self.options.tracks and self.shared is None:
            last = int(self.releases.data_steps[-1])
            shares = observers.shares_seen(matrix(self.topology), self.topology, self.rounds - last + 1)
            found = np.minimum(found, observers.pair_mu(local[-1], local[last - 1], shares))
        return _epsilon_of_pairs(found, delta)

    def printed_pair_epsilon(self, delta: float) -> Array:
        """Likewise, as printed."""
        r, W, omega = self.releases, matrix(self.topology), self.settings.omega
        ends = np.append(r.data_steps[1:], self.iterations + 1)
        shares = {n: observers.printed_shares(W, self.topology, omega, n) for n in np.unique(ends - r.data_steps).tolist()}
        steps = zip(r.sigma.tolist(), (ends - r.data_steps).tolist(), strict=True)
        squares = sum(shares[n] * (r.sensitivity[:, None] / sigma) ** 2 for sigma, n in steps)
        found = np.sqrt(squares)
        np.fill_diagonal(found, np.nan)
        return _epsilon_of_pairs(found, delta)

    def problem(self, signed: Matrix, targets: Array | None = None) -> NodeProblem:
        return node_problem(signed, self.loss, self.terms.C, self.ridge, self.terms.regulariser, targets=targets)

    def problems(self, shards: Iterable[Shard]) -> LocalProblems:
        return LocalProblems(self.each_problem(shards))

    def make_nodes(self, places: Ints, problems: Sequence[NodeProblem]) -> GradientNodes:
        return (TrackingNodes if self.options.tracks else DescentNodes)(self.settings, places, problems)

    @property
    def measures_class(self) -> type[GradientMeasures]:
        return TrackingMeasures if self.options.tracks else GradientMeasures

    def measures(self, problems: Sequence[NodeProblem]) -> GradientMeasures:
        about = self.features, self.sizes, self.metrics, problems
        return (
            TrackingMeasures(*about, keeps=self.config.record.trajectory) if self.options.tracks else GradientMeasures(*about)
        )

    def optimum_search(self) -> OptimumSearch:
        return CentralisedOptimum(self.features, self.ridge, self.config.record.optimum, self.terms.regulariser)


def _epsilon_of_pairs(mu: Array, delta: float) -> Array:
    found = accounts.epsilon_of(np.nan_to_num(mu), delta)
    return np.where(np.isnan(mu), np.nan, found)


def smoothness(loss: Loss, terms: ConsensusTerms, nodes: int) -> float:
    """L = C c1 + rho/N for records of norm at most 1, and of a regulariser beside the ridge its curvature at 0.

    A closer number would be a statistic of the records, and cost privacy.
    """
    rest = _rest_curvature(terms.regulariser)
    return terms.C * loss.curvature_bound + terms.rho / nodes * (1.0 + rest)


def _rest_curvature(regulariser: SmoothRegulariser) -> float:
    return float(regulariser.rest_curvature(np.zeros(1)).max())


def make_plan(
    method: Method, options: GradientOptions, config: Config, topology: Topology, dataset: Dataset[Any]
) -> GradientPlan:
    terms = config.problem.terms
    assert isinstance(terms, ConsensusTerms)
    check_sizes(terms.C, dataset.sizes)
    loss = fitted_loss(config, dataset)
    found = second_eigenvalue(topology)
    steps = np.arange(1, config.iterations + 1, options.mixing_steps)
    sizes = step_sizes(options.step, len(steps), 1.0 / smoothness(loss, terms, topology.nodes))
    kept = within_budget(method, config, _releases(method, config, topology, dataset, loss, steps))
    releases, shared = kept.releases, _shared(config)
    omega = acceleration(found if options.accelerated else 0.0, options.mixing_steps)
    settings = Settings(
        step=_at(releases, sizes[: releases.touches]),
        noise_std=_at(releases, releases.sigma),
        momentum=options.momentum,
        own_weight=metropolis(topology).own,
        omega=omega,
        init=options.init,
        seed=config.seed,
        features=releases.features,
        edge_ratio=None if shared is None else shared.edge_ratio,
        neighbours=topology.neighbours,
        faults=faults_on(topology),
    )
    notes = _notes(options, settings, releases, found)
    if shared is not None and releases.worth is not None:
        notes.append(shared_noise.in_words(shared, releases.worth, topology))
    return GradientPlan(
        config=config,
        topology=topology,
        sizes=dataset.sizes,
        total_records=len(dataset.node_of_record()),
        loss=loss,
        target=target_of(dataset),
        features=settings.features,
        notes=(*notes, *kept.notes, *target_notes(config, dataset)),
        budget_steps=kept.steps,
        settings=settings,
        releases=releases,
        options=options,
        contraction=found,
    )


def step_sizes(step: Steps, count: int, automatic: float) -> Array:
    """(K,): a law without its first value begins at the automatic one."""
    if isinstance(step, str):
        return np.full(count, automatic)
    if isinstance(step, list) and len(step) != count:
        raise InputError(f"algorithm.step: found a list of {len(step)}; one for each gradient is needed, {count}")
    if isinstance(step, Geometric) and step.first is None:
        step = Geometric(ratio=step.ratio, first=automatic, limit=step.limit)
    return expand([step], count, 1, "algorithm.step")[:, 0]


def _shared(config: Config) -> CorrelatedGaussian | None:
    noise = config.privacy.perturbation
    return noise.shared if isinstance(noise, CorrelatedGradients) else None


def _releases(
    method: Method, config: Config, topology: Topology, dataset: Dataset[Any], loss: Loss, steps: Ints
) -> GradientReleases:
    """What the nodes release; with a target, at the noise that meets it."""
    noise, terms = config.privacy.perturbation, config.problem.terms
    assert isinstance(terms, ConsensusTerms)
    private, shared = isinstance(noise, NoisyGradients), _shared(config)
    sizes = noise.noise_std if isinstance(noise, NoisyGradients) else None
    if isinstance(sizes, list) and len(sizes) != len(steps):
        raise InputError(f"privacy.noise_std: found a list of {len(sizes)}; one for each gradient is needed, {len(steps)}")
    sigma = expand([1.0 if sizes is None else sizes], len(steps), 1, "privacy.noise_std")[:, 0]
    releases = GradientReleases(
        iterations=config.iterations,
        features=dataset.features * loss.outputs,
        unaccounted=method.unaccounted() if noise.private else "",
        noise_std=float(sigma[0]) if private else 0.0,
        data_steps=steps,
        growth=sigma / sigma[0],
        B=dataset.sizes.astype(np.float64),
        C=terms.C,
        G=loss.slope_bound,
        taken=_taken(config, topology, steps),
        worth=None if shared is None else shared_noise.worth_of(shared, topology).factor,
    )
    if not isinstance(noise, NoisyGradients) or noise.target is None:
        return releases
    return calibrate(releases, noise.target, str(noise.target_account), config.privacy.delta)


def _taken(config: Config, topology: Topology, steps: Ints) -> Bools | None:
    """Which data steps the nodes take in each run, (runs, K, N); None where nothing goes wrong."""
    if (faults := faults_on(topology)) is None:
        return None
    return np.concatenate([faults.timeline(runs).present[:, steps] for runs in groups(config.runs)])


def _at(releases: GradientReleases, values: Array) -> Array:
    """(T+1,): a value of every gradient at its iteration, nan elsewhere."""
    spread = np.full(releases.iterations + 1, np.nan)
    spread[releases.data_steps] = values
    return spread


def _notes(options: GradientOptions, settings: Settings, releases: GradientReleases, contraction: float) -> list[str]:
    notes = []
    if releases.unaccounted:
        notes.append(f"the privacy loss is infinite, {releases.unaccounted}")
    steps = settings.step[releases.data_steps]
    if not options.tracks and contraction > 0.0 and np.all(steps == steps[0]):
        notes.append(
            "with a constant step the nodes end near to the optimum, not at it; a step that decays, as in algorithm.step = "
            "{ ratio = 0.98 }, or dp-gradient-tracking leads there"
        )
    return notes
