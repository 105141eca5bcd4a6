"""From a configuration to a run of a method on a network: schedules, calibration, conditions, what is released.

Every rank loads this module, for the plan that it is given. What rank 0 alone asks for (accounts, theorems) is imported there.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, get_args

import numpy as np

from dpadmm_mpi.config import schedules
from dpadmm_mpi.config.options import Choice, Positive, fields_of
from dpadmm_mpi.config.ranges import Between, OneOf, Space, Whole
from dpadmm_mpi.config.schedules import Geometric, NonNegativeSchedule, Schedule
from dpadmm_mpi.data.dataset import Dataset, target_of
from dpadmm_mpi.data.shard import Shard
from dpadmm_mpi.errors import InputError
from dpadmm_mpi.methods import faulty_runs, shared_noise
from dpadmm_mpi.methods.base import (
    NO_NOISE,
    Assumptions,
    Config,
    Known,
    OptimumSearch,
    Plan,
    Schedules,
    Terms,
    fitted_loss,
    perturbation_name,
    target_notes,
)
from dpadmm_mpi.methods.decentralised.algorithm import NetworkNodes, NetworkSteps, Node, Settings, State, kept, state_type
from dpadmm_mpi.methods.decentralised.convergence import LARGEST_NETWORK, GraphMatrices
from dpadmm_mpi.methods.decentralised.measures import NetworkMeasures, ZNorm
from dpadmm_mpi.methods.measures import Layout
from dpadmm_mpi.networks.metropolis import acceleration, metropolis, second_eigenvalue
from dpadmm_mpi.networks.timeline import Inbox, NetworkFaults, Timeline, faults_on, groups
from dpadmm_mpi.networks.topology import IncomingSum, Topology, WeightedSum
from dpadmm_mpi.networks.virtual_time import Leg
from dpadmm_mpi.privacy.account import Account, calibrate
from dpadmm_mpi.privacy.correlated_noise import Worth
from dpadmm_mpi.privacy.noises import CorrelatedGaussian, Noise
from dpadmm_mpi.privacy.perturbations import DataStepPerturbation, ObjectivePerturbation, Perturbation, perturbations
from dpadmm_mpi.privacy.releases import InRuns, NetworkReleases
from dpadmm_mpi.problems.local_problems import LocalProblems
from dpadmm_mpi.problems.losses import Loss, claims
from dpadmm_mpi.problems.objective import NodeProblem
from dpadmm_mpi.problems.regularisers import Ridge, SmoothRegulariser, smooth_regularisers
from dpadmm_mpi.problems.softmax import node_problem
from dpadmm_mpi.types import Array, Bools, Ints, Matrix

NOT_EXAMINED = "-      convergence: not proven for a network with faults; the theorems are about one that loses nothing"
PER_RECORD = "problem.C/records"  # the weight of a record in the objective of the smallest node


class ConsensusTerms(Terms):
    """sum_i (C/B_i) sum_n L(y_n f.x_n) + (rho/N) R(f) over the nodes i with B_i records each; R is the ridge, or another."""

    C: Positive = 1.0  # weight of the loss, at most the records of the smallest node
    rho: Positive = 0.01  # weight of the regulariser
    regulariser: Annotated[SmoothRegulariser, Choice(smooth_regularisers)] = Ridge()  # R, smooth


class NetworkMethod(NetworkSteps):
    """The steps of a method with what its penalties may be."""

    terms: ClassVar[type[Terms]] = ConsensusTerms
    own_penalties: ClassVar[bool] = True  # each node its own eta, which may grow; otherwise one number for all
    general_form: ClassVar[str] = "m-admm"  # the member that takes penalties of each node's own
    decoupled: ClassVar[bool] = False  # the dual step theta is a choice of its own; otherwise it is eta

    @property
    def dual_schedule(self) -> Schedule | None:
        """theta, where the configuration sets it."""
        return None

    tolerance: Positive | None = None  # norm of the gradient at which a solve may end, with privacy.release_std; None: exact

    @property
    def runs_unproven(self) -> bool:
        """Also where penalties fall or theta exceeds eta, which no theorem covers."""
        return False

    @property
    def recycling_gamma(self) -> NonNegativeSchedule | None:
        """gamma of recycled steps; None: there are none."""
        return None

    @classmethod
    def tuned(cls) -> Space:
        """Few data steps, small penalties. C is left alone: to multiply C, rho, eta and gamma by a number changes nothing.

        What a data step costs beside its noise depends on eta B/C, so that is what is searched.
        """
        eta = Between(0.1, 30.0, log=True, start=0.4, times=PER_RECORD)
        first = cls.tuned_eta()
        growth: Space = {
            "algorithm.eta.ratio": Between(1.0, 1.6, start=1.2),
            "algorithm.eta.limit": Between(1.0, 10.0, log=True, start=5.0, times=first),
        }
        return {
            "iterations": Whole(1, 12, log=True, start=3),
            first: eta,
            **(growth if first.endswith(".first") else {}),
            "problem.rho": Between(0.1, 50.0, log=True, start=2.0, times=PER_RECORD),
            "privacy.noise": OneOf(("gaussian", "gamma")),
            "privacy.alpha.ratio": Between(0.8, 1.4, start=1.0, when=("privacy.noise", "gamma")),
            "privacy.noise_std.ratio": Between(0.7, 1.25, start=1.0, when=("privacy.noise", "gaussian")),
            **cls.tuned_release(),
        }

    @classmethod
    def tuned_eta(cls) -> str:
        """The key of the penalty, or of its first value where it may grow."""
        grows = any(field.name == "eta" and Geometric in get_args(field.type) for field in fields_of(cls))
        return "algorithm.eta.first" if grows and cls.own_penalties else "algorithm.eta"


@dataclass(frozen=True)
class NetworkPlan(Plan[State]):
    settings: Settings
    releases: NetworkReleases

    @property
    def method(self) -> NetworkMethod:
        assert isinstance(self.settings.method, NetworkMethod)
        return self.settings.method

    @property
    def ridge(self) -> float:
        return self.releases.rho / self.nodes

    @property
    def regulariser(self) -> SmoothRegulariser:
        terms = self.config.problem.terms
        assert isinstance(terms, ConsensusTerms)
        return terms.regulariser

    @property
    def seeks_optimum(self) -> bool:
        """On request, and whenever the method does not end at the optimum: then the distance is recorded."""
        return self.config.record.optimum or not schedules.is_common(self.releases.theta)

    @property
    def work_in_words(self) -> str:
        return f"{self.iterations} iterations with {len(self.releases.data_steps)} data steps"

    @property
    def data_step_share(self) -> float:
        return len(self.releases.data_steps) / self.iterations

    @property
    def schedules(self) -> Mapping[str, Schedules]:
        noise = self.releases.noise
        name, words = ("alpha", Noise.words) if noise is None else (noise.parameter, noise.words)
        return {
            f"privacy/{name}": Schedules(self.settings.parameter, words),
            "algorithm/eta": Schedules(self.settings.eta, "penalty eta_i(t)"),
            "algorithm/theta": Schedules(self.settings.theta, "dual step theta_i(t); nan if none"),
        } | self._gamma

    @property
    def scales(self) -> Mapping[str, int]:
        return {**super().scales} | ({"privacy/observer": self.nodes} if self._examines_pairs else {})

    @property
    def known_before(self) -> Mapping[str, Known]:
        return {**faulty_runs.recorded(self), **super().known_before, **self._pairs, **self._correlation}

    @property
    def _pairs(self) -> dict[str, Known]:
        if not self._examines_pairs:
            return {}
        from dpadmm_mpi.methods.decentralised.observers import pair_epsilon

        epsilon = next(account for account in self.accounts if account.name == "epsilon")
        if self.faults is not None and epsilon.run_values is not None:
            return self._pairs_by_run(epsilon)
        text = f"{epsilon.title} of a node against another one, which sees the messages of its neighbours alone; nan: itself"
        pairs = pair_epsilon(epsilon.node_values, self.topology, self.consensus_steps)
        return {"privacy/pair_epsilon": Known(pairs, ("node", "privacy/observer"), text)}

    def _pairs_by_run(self, epsilon: Account) -> dict[str, Known]:
        """By what has really arrived: the worst run of each pair."""
        text = f"{epsilon.title} of a node against another one, which sees what arrives at it alone; nan: itself; the worst run"
        return {"privacy/pair_epsilon": Known(faulty_runs.pairs_by_run(self, epsilon), ("node", "privacy/observer"), text)}

    def takes_part(self, timeline: Timeline) -> Bools:
        return timeline.joined if self.method.counts_heard else timeline.present

    @property
    def takes_part_in_words(self) -> str:
        return "it is there, and has heard a neighbour" if self.method.counts_heard else super().takes_part_in_words

    @property
    def _examines_pairs(self) -> bool:
        """Only where a matrix over the nodes is small, and there is an epsilon that holds against every single node."""
        noise = self.releases.noise
        every = not isinstance(noise, CorrelatedGaussian) or shared_noise.holds_against_every_node(noise)
        return every and 1 < self.nodes <= LARGEST_NETWORK and any(account.name == "epsilon" for account in self.accounts)

    @property
    def _correlation(self) -> dict[str, Known]:
        """Of noise that neighbours share."""
        r = self.releases
        if not isinstance(r.noise, CorrelatedGaussian) or r.worth is None:
            return {}
        from dpadmm_mpi.methods.decentralised import accounts

        delta = self.config.privacy.delta
        against = lambda worth: accounts.epsilon(replace(r, worth=worth), delta)[-1]  # noqa: E731
        return shared_noise.recorded(r.noise, r.worth, self.topology, against, delta)

    @property
    def _gamma(self) -> dict[str, Schedules]:
        """Of recycled steps, where it changes."""
        if np.isnan(self.settings.gamma).all():
            return {}
        return {"algorithm/gamma": Schedules(self.settings.gamma, "gamma_i(t) of a recycled step; nan if none")}

    @property
    def privacy_in_words(self) -> str:
        perturbation = self.releases.perturbation
        if not perturbation.private:
            return NO_NOISE
        from dpadmm_mpi.methods.decentralised import accounts

        name = perturbation_name(self.config)
        words = self.releases.unaccounted or accounts.theorem(self.releases)
        return f"{name} perturbation ({perturbation.source}): {words}; neighbours: {accounts.NEIGHBOURS}"

    def improvements(self) -> list[str]:
        r = self.releases
        if not r.perturbation.private:
            return []
        if getattr(r.perturbation, "target", None) is not None:  # whatever else changes, the noise is set to meet it
            return ["a smaller privacy.target"]
        worst = int(self.accounts[-1].node_values[-1].argmax())
        ways = []
        if r.B[worst] < r.B.max():
            ways.append(f"more records at node {worst} (it has {r.B[worst]:.0f}, others up to {r.B.max():.0f})")
        if r.V[worst] < r.V.max():
            ways.append(f"more neighbours for node {worst} (it has {r.V[worst]:.0f}, others up to {r.V.max():.0f})")
        more = "a smaller alpha" if r.noise is None or r.noise.exponent >= 0 else f"a larger {r.noise.parameter}"
        return [*ways, more, "fewer iterations", "a smaller problem.C"]

    def conditions(self, assumed: Assumptions) -> list[str]:
        if own := self.method.own_step():
            return [f"-      nothing is known of its convergence: {own}"]
        from dpadmm_mpi.methods.decentralised.curvature import curvature_of
        from dpadmm_mpi.methods.decentralised.theory import Theorems, privacy_conditions, sample_sizes

        samples = sample_sizes(self.releases, assumed.f_ref, assumed.tau, assumed.beta, assumed.gap)
        if self.faults is not None:
            return [*privacy_conditions(self.releases), NOT_EXAMINED, *samples]
        unbounded = schedules.grows_without_bound(self.method.eta)
        curvature = curvature_of(self.releases, self.ridge, assumed.dataset)
        theorems = Theorems(self.topology, self.releases, self.ridge, curvature, unbounded)
        gamma = self.settings.gamma[~np.isnan(self.settings.gamma).all(axis=1)]
        recycled = self.config.release.free.recycled()
        recycles = self.method.recycling_gamma is not None and recycled != 0
        lines = theorems.conditions(gamma if recycles else None, not self.method.own_penalties, recycled or 1)
        return lines + samples

    def problem(self, signed: Matrix, targets: Array | None = None) -> NodeProblem:
        terms = self.releases.C, self.ridge, self.regulariser
        return node_problem(signed, self.loss, *terms, targets=targets, tolerance=self.method.tolerance)

    def problems(self, shards: Iterable[Shard]) -> LocalProblems:
        return LocalProblems(self.each_problem(shards))

    @property
    def problem_terms(self) -> tuple[Any, ...]:
        return type(self), self.loss, self.releases.C, self.ridge, self.regulariser, self.method.tolerance

    @property
    def solves_exactly(self) -> bool:
        return True

    def make_nodes(self, places: Ints, problems: Sequence[NodeProblem]) -> NetworkNodes:
        return NetworkNodes(self.settings, places, problems)

    def replayed(self, node: Node, released: Array) -> list[State]:
        """What all nodes held after every iteration, from what they released, (R, T+1, N, d): by the method's own steps that
        do not see records, for the audit.
        """
        method, everyone = self.method, node.nodes
        if self.faults is not None:
            return self._replayed_with(self.faults, node, released)
        about = self.topology.channels["edges"], everyone, everyone
        incoming = WeightedSum(*about, metropolis(self.topology).of_neighbours) if method.mixes else IncomingSum(*about)
        states: list[State] = []
        shape = released[:, 0].swapaxes(0, 1).shape
        blank = dict.fromkeys((*State._fields, *method.extra_state), np.zeros_like(released[:, 0]))
        state = state_type(method.extra_state)(**blank)
        for t in range(released.shape[1]):
            primal = released[:, t]
            sums = incoming(primal.swapaxes(0, 1).reshape(shape[0], -1)).reshape(shape).swapaxes(0, 1)
            state = state._replace(primal=primal, neighbour_sum=sums)
            if t > 0 and method.is_data_step(t):
                state = method.dual_step(node, state, t)
            states.append(state)
        return states

    def _replayed_with(self, faults: NetworkFaults, node: Node, released: Array) -> list[State]:
        """The same from what has arrived, and with the steps that the nodes have taken."""
        method, everyone, runs, settings = self.method, node.nodes, range(len(released)), node.settings
        inbox = Inbox(faults, runs, everyone, everyone)
        shape = len(released), len(faults.arcs), released.shape[-1]
        held, late = np.zeros(shape), np.zeros((*shape[:2], faults.longest_delay * shape[2])) if faults.longest_delay else None
        blank = dict.fromkeys((*State._fields, *method.extra_state), np.zeros_like(released[:, 0]))
        state, states = state_type(method.extra_state)(**blank), []
        for t in range(released.shape[1]):
            before, primal = state, released[:, t]
            if t > 0 and method.is_data_step(t):
                gradient = method.gradient_behind(Node(settings, everyone, runs, t - 1), before, primal, t)
                state = kept(before, before._replace(gradient=gradient), settings.rests(t, runs))
            elif t > 0:
                after = method.recycled_step(Node(settings, everyone, runs, t - 1), before, t)
                state = kept(before, after, ~settings.takes_part(t, runs))
            held, late = inbox.receive(t, held, late, primal)
            state = state._replace(primal=primal, neighbour_sum=inbox.sums(t, held, method.mixes))
            if t > 0 and method.is_data_step(t):
                after = method.dual_step(Node(settings, everyone, runs, t), state, t)
                state = kept(state, after, ~settings.takes_part(t, runs))
            states.append(state)
        return states

    @property
    def measures_class(self) -> type[NetworkMeasures]:
        return NetworkMeasures

    def measures(self, problems: Sequence[NodeProblem]) -> NetworkMeasures:
        return NetworkMeasures(self.features, self.sizes, self.metrics, problems, self._z_norm())

    @property
    def layout(self) -> Layout:
        exact = self.method.tolerance is None
        left_out = {"solve_residual" if exact else "kkt_residual"} | (set() if self._has_z_norm else {"z_distance"})
        made = {name: quantity for name, quantity in super().layout.items() if name not in left_out}
        if not exact:
            about = made["solve_residual"]
            made["solve_residual"] = about._replace(attributes={**about.attributes, "tolerance": self.method.tolerance})
        return made

    @property
    def _has_z_norm(self) -> bool:
        """Only where the optimum was asked for, all nodes have one penalty, and matrices over the nodes are small."""
        r = self.releases
        common = schedules.is_common(r.eta) and schedules.is_common(r.theta)
        return self.config.record.optimum and common and 1 < self.nodes <= LARGEST_NETWORK and self.faults is None

    def _z_norm(self) -> ZNorm | None:
        if not self._has_z_norm:
            return None
        network = GraphMatrices.of(self.topology.neighbours)
        return ZNorm(network.laplacian, network.signless, self.settings.eta[:, 0], self.settings.theta[:, 0])

    def legs(self, passes_per_solve: float, runs: range) -> list[Leg]:
        """Recycled steps leave the records alone, and so do nodes that rest."""
        touches = np.zeros((1, self.iterations + 1, self.nodes))
        touches[:, self.releases.data_steps] = passes_per_solve
        at_work = np.stack([~self.settings.rests(t, runs) for t in range(self.iterations + 1)], axis=1)
        others = self.method.sends[1:]
        return [self._leg("edges", touches * at_work), *(self._leg("edges", 0.0) for _ in others)]

    def optimum_search(self) -> OptimumSearch:
        from dpadmm_mpi.methods.centralised_optimum import CentralisedOptimum

        return CentralisedOptimum(self.features, self.ridge, self.config.record.optimum, self.regulariser)


def make_plan(
    method: NetworkMethod,
    config: Config,
    topology: Topology,
    dataset: Dataset[Any],
    kind: type[NetworkPlan] = NetworkPlan,
) -> NetworkPlan:
    from dpadmm_mpi.methods.budget import within_budget
    from dpadmm_mpi.methods.decentralised import accounts

    terms = config.problem.terms
    assert isinstance(terms, ConsensusTerms)
    check_sizes(terms.C, dataset.sizes)
    loss = fitted_loss(config, dataset)
    releases = _releases(method, config, topology, dataset, loss)
    notes = []
    perturbation, delta = config.privacy.perturbation, config.privacy.delta
    if failure := accounts.condition_failure(releases):
        _refuse_unproven(perturbation, failure)
        notes.append(
            f"the paper's privacy bound is not proven: {failure}; the tighter bound and epsilon need no such condition"
        )
    if isinstance(perturbation, DataStepPerturbation):
        if releases.unaccounted:
            notes.append(f"the privacy loss is infinite, {releases.unaccounted}")
        elif why := accounts.unaccounted(releases):
            notes.append(f"the privacy loss is infinite, not proven: {why}")
        if perturbation.target is not None:
            releases = calibrate(releases, perturbation.target, str(perturbation.target_account), delta)
    kept = within_budget(method, config, releases)
    releases = kept.releases
    notes += kept.notes
    notes += [f"{sentence}; no theorem covers that" for sentence in uncovered(releases.eta, releases.theta)]
    notes += _ambiguities(method, releases, topology.nodes)
    notes += _recycled_more(config.release.free.recycled() or 0)
    if schedules.grows_without_bound(method.eta):
        notes.append(
            "the penalties grow without bound, so the sum of 1/eta(t) is finite and the nodes agree where they are stopped, "
            "short of the optimum; a limit, as in algorithm.eta = { first = 1.0, ratio = 1.05, limit = 3.0 }, lets them go on"
        )
    if not schedules.is_common(releases.theta):
        weights = "at argmin sum_i O_i / theta_i, " if schedules.is_constant(releases.theta) else ""
        notes.append(
            f"the dual steps differ between the nodes, so the nodes agree in the end, but not at the optimum: {weights}for the "
            f"duals do not add up to zero; one algorithm.theta for all, for example {releases.eta[0].min():g}, leads there"
        )
    if isinstance(releases.noise, CorrelatedGaussian) and releases.worth is not None:
        notes.append(shared_noise.in_words(releases.noise, releases.worth, topology))
    settings = _settings(method, config, topology, releases)
    if topology.nodes == 1 and (settings.gamma == 0.0).any():
        raise InputError("algorithm.gamma: must be above 0 on a single node, where the recycled step divides by it")
    return kind(
        config=config,
        topology=topology,
        sizes=dataset.sizes,
        total_records=len(dataset.node_of_record()),
        loss=loss,
        target=target_of(dataset),
        features=settings.features,
        settings=settings,
        releases=releases,
        notes=(*notes, *target_notes(config, dataset)),
        budget_steps=kept.steps,
    )


def _refuse_unproven(perturbation: Perturbation, failure: str) -> None:
    """Refuse a run whose `bound` is not proven, unless who asks for it relies on another account."""
    assert isinstance(perturbation, ObjectivePerturbation)
    if not perturbation.allow_unproven and (perturbation.target is None or perturbation.target_account == "bound"):
        raise InputError(
            f"privacy: the paper's bound is not proven for this configuration: {failure}; raise algorithm.eta (or theta) or "
            'problem.rho, lower problem.C, rely on another account by privacy.target_account = "tight" or "epsilon", or set '
            "privacy.allow_unproven = true: tight and epsilon are proven all the same"
        )


def _ambiguities(method: NetworkMethod, releases: NetworkReleases, nodes: int) -> list[str]:
    noise = releases.noise
    given = [("algorithm.eta", method.eta), ("algorithm.theta", method.dual_schedule)]
    if noise is not None:
        given.append((f"privacy.{noise.parameter}", noise.schedule))
    return [
        f"{key}: its {nodes} numbers are read as one per node, not as one per data step"
        for key, schedule in given
        if schedules.is_ambiguous(schedule, len(releases.data_steps), nodes)
    ]


def _recycled_more(recycled: int) -> list[str]:
    if recycled <= 1:
        return []
    return [
        f"release.recycle: [R] proves convergence with one recycled step after each data step; of {recycled} nothing is proven "
        "but their privacy, which costs nothing more"
    ]


def check_sizes(C: float, sizes: Ints) -> None:
    """A record weighs C/B, which must not exceed 1."""
    smallest = int(np.argmin(sizes))
    if sizes[smallest] < C:
        raise InputError(
            f"problem.C: found {C:g}, but node {smallest} has only {sizes[smallest]} records; C must be at "
            "most the smallest shard"
        )


def data_steps(method: NetworkSteps, iterations: int) -> Ints:
    """The iterations that touch the records."""
    return np.array([t for t in range(1, iterations + 1) if method.is_data_step(t)], dtype=np.int64)


def _releases(method: NetworkMethod, config: Config, topology: Topology, dataset: Dataset[Any], loss: Loss) -> NetworkReleases:
    nodes, terms, perturbation = topology.nodes, config.problem.terms, config.privacy.perturbation
    assert isinstance(terms, ConsensusTerms)
    steps = data_steps(method, config.iterations)
    decreasing, tie = claims(loss)
    eta = schedules.expand(method.eta, len(steps), nodes, "algorithm.eta")
    theta = _dual_steps(method, eta, nodes)
    _check_penalties(method, config.method_name, eta, theta)
    noise, parameter, worth = None, np.full(eta.shape, np.nan), None
    if isinstance(perturbation, DataStepPerturbation):
        noise = perturbation.noise
        shape = 1.0 if noise.schedule is None else noise.schedule
        parameter = schedules.expand(shape, len(steps), nodes, f"privacy.{noise.parameter}")
        _check_perturbation(perturbation, eta, nodes)
        worth = _worth(noise, parameter, topology)
    return NetworkReleases(
        perturbation=perturbation,
        noise=noise,
        iterations=config.iterations,
        data_steps=steps,
        eta=eta,
        theta=theta,
        parameter=parameter,
        V=np.ones(nodes) if method.mixes else topology.degree.astype(np.float64),
        B=dataset.sizes.astype(np.float64),
        C=terms.C,
        rho=_rho_of(terms.rho, nodes, config.network.graph.size),
        G=loss.slope_bound,
        c1=loss.curvature_bound,
        features=dataset.features * loss.outputs,
        decreasing=decreasing,
        tie=tie,
        tolerance=method.tolerance or 0.0 if noise is not None else 0.0,
        release_std=_release_std(method, perturbation),
        subspace=loss.span,
        worth=None if worth is None else worth.factor,
        unaccounted=method.unaccounted() if perturbation.private else "",
        in_runs=_in_runs(method, config, topology, steps),
    )


def _in_runs(method: NetworkMethod, config: Config, topology: Topology, steps: Ints) -> InRuns | None:
    """Which data steps the nodes take in each run, and with how many neighbours; None where nothing goes wrong.

    Faults are drawn without a look at the records and known to everybody, so that accounts may be about what has happened.
    """
    if (faults := faults_on(topology)) is None:
        return None
    taken = np.empty((config.runs, len(steps), topology.nodes), dtype=bool)
    V = np.ones(taken.shape) if method.mixes else np.broadcast_to(topology.degree.astype(np.float64), taken.shape).copy()
    for runs in groups(config.runs):
        timeline, some = faults.timeline(runs), slice(runs.start, runs.stop)
        taken[some] = (timeline.joined if method.counts_heard else timeline.present)[:, steps]
        if method.counts_heard and not method.mixes:
            V[some] = timeline.degree[:, steps - 1]
    return InRuns(taken, V)


def _rho_of(rho: float, places: int, nodes: int) -> float:
    """Of which every place has its share rho/N, also where the records of N nodes are in one place."""
    return rho if places == nodes else rho * places / nodes


def _worth(noise: Noise, parameter: Array, topology: Topology) -> Worth | None:
    """Of noise that neighbours share."""
    if isinstance(noise, CorrelatedGaussian):
        if not schedules.is_common(parameter):
            raise InputError(
                'privacy.noise_std: noise = "correlated-gaussian" has one for all nodes, as what neighbours share must cancel; '
                "give one number, or one per data step"
            )
        return shared_noise.worth_of(noise, topology)
    return noise.worth(topology.neighbours)


def _release_std(method: NetworkMethod, perturbation: Perturbation) -> float:
    """Of the noise that hides where inexact solves end; 0: they are exact, or nothing is hidden at all."""
    if not isinstance(perturbation, DataStepPerturbation):
        return 0.0
    if (perturbation.release_std is None) != (method.tolerance is None):
        raise InputError(
            "algorithm.tolerance and privacy.release_std: solves that end at a tolerance are accounted for together with the "
            "noise that hides where they end; give both, or none of them"
        )
    return perturbation.release_std or 0.0


def _dual_steps(method: NetworkMethod, eta: Array, nodes: int) -> Array:
    """theta_i(r): as configured; eta_i(r) where the two are one; otherwise the smallest first penalty, for all nodes."""
    if method.dual_schedule is not None:
        return schedules.expand(method.dual_schedule, len(eta), nodes, "algorithm.theta")
    if method.decoupled:
        return np.full_like(eta, eta[0].min())
    return eta


def _check_penalties(method: NetworkMethod, name: str, eta: Array, theta: Array) -> None:
    if not method.own_penalties and not (schedules.is_constant(eta) and schedules.is_common(eta)):
        other = method.general_form
        raise InputError(f"algorithm.eta: {name} has one fixed penalty for all nodes; give one number, or use {other}")
    for sentence in uncovered(eta, theta):
        if not method.runs_unproven:
            raise InputError(f"{sentence}; no theorem covers that: change it, or set algorithm.allow_unproven = true")


def uncovered(eta: Array, theta: Array) -> list[str]:
    """What the theorems on convergence, which are sufficient only, do not cover."""
    found = []
    decreasing = np.argwhere(np.diff(eta, axis=0) < 0)
    if len(decreasing):
        k, i = decreasing[0]
        found.append(f"algorithm.eta: falls from {eta[k, i]:g} to {eta[k + 1, i]:g} at node {i}, data step {k + 2}")
    exceeded = np.argwhere(theta > eta)
    if len(exceeded):
        k, i = exceeded[0]
        found.append(f"algorithm.theta: found {theta[k, i]:g} at node {i}, data step {k + 1}, above the penalty {eta[k, i]:g}")
    return found


def _check_perturbation(perturbation: DataStepPerturbation, eta: Array, nodes: int) -> None:
    name = perturbations.name_of(type(perturbation))
    if perturbation.fixed_penalty and not schedules.is_constant(eta):
        raise InputError(
            f'privacy.perturbation: "{name}" is defined for a fixed penalty, but algorithm.eta changes over the iterations; '
            'use "penalty", which follows it'
        )
    if perturbation.with_neighbours and nodes == 1:
        raise InputError(
            f'privacy.perturbation: "{name}" scales the noise with the number of neighbours, and a single node has '
            'none; use "objective" or "primal"'
        )


def _recycling(method: NetworkMethod, releases: NetworkReleases) -> Array:
    """gamma_i(t), (T+1, N), at the recycled steps; nan elsewhere."""
    spread = np.full((releases.iterations + 1, releases.nodes), np.nan)
    recycled = np.setdiff1d(np.arange(1, releases.iterations + 1), releases.data_steps)
    if method.recycling_gamma is not None and len(recycled):
        spread[recycled] = schedules.expand(method.recycling_gamma, len(recycled), releases.nodes, "algorithm.gamma")
    return spread


def _settings(method: NetworkMethod, config: Config, topology: Topology, releases: NetworkReleases) -> Settings:
    plain = Settings(
        method=method,
        perturbation=releases.perturbation,
        eta=_every_iteration(releases.eta, releases),
        theta=_data_iterations(releases.theta, releases),
        gamma=_recycling(method, releases),
        parameter=_data_iterations(np.where(releases.active, releases.parameter, np.nan), releases),
        resting=_resting(releases),
        tolerance=method.tolerance,
        release_std=releases.release_std,
        degree=topology.degree,
        seed=config.seed,
        features=releases.features,
        neighbours=topology.neighbours,
        faults=faults_on(topology),
    )
    if not method.mixes:
        return plain
    omega = acceleration(second_eigenvalue(topology), releases.iterations)
    return replace(plain, own_weight=metropolis(topology).own, omega=omega)


def _resting(releases: NetworkReleases) -> Bools:
    """(1 or R, T+1, N): the data steps of nodes whose budget is spent; or, where runs differ, that they do not take."""
    active = releases.active[None] if releases.in_runs is None else releases.in_runs.taken
    resting = np.zeros((len(active), releases.iterations + 1, releases.nodes), dtype=bool)
    resting[:, releases.data_steps] = ~active
    return resting


def _data_iterations(values: Array, releases: NetworkReleases) -> Array:
    """(T+1, N): a schedule at the iterations that touch the records, nan elsewhere."""
    spread = np.full((releases.iterations + 1, releases.nodes), np.nan)
    spread[releases.data_steps] = values
    return spread


def _every_iteration(values: Array, releases: NetworkReleases) -> Array:
    """(T+1, N): a recycled step keeps the penalty of the data step before it; row 0 is nan."""
    spread = _data_iterations(values, releases)
    for t in range(2, len(spread)):
        spread[t] = np.where(np.isnan(spread[t]), spread[t - 1], spread[t])
    return spread
