"""The decentralised family: schedules, calibration, conditions, accounts (SPEC 2)."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dpadmm_mpi.config.options import Config, schedules
from dpadmm_mpi.data.dataset import Dataset
from dpadmm_mpi.errors import InputError
from dpadmm_mpi.methods.base import Plan, loss_of
from dpadmm_mpi.methods.decentralised import accounts as privacy
from dpadmm_mpi.methods.decentralised.accounts import Ledger
from dpadmm_mpi.methods.decentralised.algorithm import METHODS, Decentralised, Settings, data_steps
from dpadmm_mpi.methods.measures import DecentralisedMeasures, Optimum
from dpadmm_mpi.networks.graphs import Graph
from dpadmm_mpi.privacy.account import Account
from dpadmm_mpi.privacy.releases import PERTURBATIONS, Releases
from dpadmm_mpi.problems.local_problems import Problems
from dpadmm_mpi.problems.objective import NodeProblem

if TYPE_CHECKING:
    from dpadmm_mpi.parallel.mpi import Transport

Array = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class DecentralisedPlan(Plan):
    settings: Settings
    releases: Releases

    @cached_property
    def ledger(self) -> Ledger:
        return privacy.ledger(self.releases, self.config.privacy.delta)

    @property
    def ridge(self) -> float:
        return float(self.config.problem.rho or 0.0) / self.nodes

    @property
    def seeks_optimum(self) -> bool:
        """On request, and whenever the method does not end at the optimum: then the distance is recorded."""
        return self.config.record.optimum or not schedules.is_common(self.releases.theta)

    @property
    def source(self) -> str:
        return METHODS[self.settings.method].source

    @property
    def work_in_words(self) -> str:
        return f"{self.config.iterations} iterations with {len(self.releases.data_steps)} data steps"

    @property
    def accounts(self) -> Sequence[Account]:
        return privacy.accounts(self.ledger, self.releases.perturbation)

    @property
    def schedules(self) -> Mapping[str, tuple[Array, str]]:
        return {
            "privacy/alpha": (self.settings.alpha, "noise parameter of the data step; nan if none"),
            "algorithm/eta": (self.settings.eta, "penalty eta_i(t)"),
            "algorithm/theta": (self.settings.theta, "dual step theta_i(t); nan if none"),
        }

    @property
    def privacy_in_words(self) -> str:
        perturbation = self.releases.perturbation
        if perturbation == "none":
            return "none: the exact values are released"
        source = PERTURBATIONS[perturbation].source
        return f"{perturbation} perturbation ({source}): {self.ledger.theorem}; neighbours: {privacy.NEIGHBOURS}"

    def improvements(self) -> list[str]:
        r = self.releases
        if r.perturbation == "none":
            return []
        worst = int(self.ledger.node_bound[-1].argmax())
        ways = []
        if r.B[worst] < r.B.max():
            ways.append(f"more records at node {worst} (it has {r.B[worst]:.0f}, others up to {r.B.max():.0f})")
        if r.V[worst] < r.V.max():
            ways.append(f"more neighbours for node {worst} (it has {r.V[worst]:.0f}, others up to {r.V.max():.0f})")
        return [*ways, "a smaller alpha", "fewer iterations", "a smaller problem.C"]

    def conditions(self, f_ref: float, tau: float, beta: float) -> list[str]:
        from dpadmm_mpi.methods.decentralised.theory import conditions

        return conditions(self, f_ref, tau, beta)

    def problem(self, signed: Any) -> NodeProblem:
        return NodeProblem(signed, self.loss, self.releases.C, self.ridge)

    def problems(self, shards: Iterable[Any]) -> Problems:
        return Problems(self.problem(signed) for signed in shards)

    def algorithm(self, places: Ints, problems: Problems) -> Decentralised:
        return Decentralised(self.settings, places, problems)

    @property
    def measures_class(self) -> type[DecentralisedMeasures]:
        return DecentralisedMeasures

    def optimum(self, transport: "Transport", problems: Sequence[NodeProblem], owner: Ints) -> Optimum | None:
        from dpadmm_mpi.methods.centralised_optimum import centralised_optimum

        required = self.config.record.optimum
        return centralised_optimum(transport, problems, owner, self.features, self.ridge, required)


def make_plan(config: Config, graph: Graph, dataset: Dataset) -> DecentralisedPlan:
    _check_sizes(config, dataset.sizes)
    releases = _releases(config, graph, dataset)
    notes = []
    if failure := privacy.condition_failure(releases):
        if not config.privacy.allow_unproven:
            raise InputError(
                f"privacy: the bound is not proven for this configuration: {failure}; raise algorithm.eta (or theta) or "
                "problem.rho, lower problem.C, or set privacy.allow_unproven = true to go on without a proof"
            )
        notes.append(f"the privacy bound is not proven: {failure}")
    if config.privacy.target is not None:
        account, delta = config.privacy.target_account or "bound", config.privacy.delta
        releases = privacy.calibrate(releases, config.privacy.target, account, delta)
    for key, schedule in (
        ("algorithm.eta", config.algorithm.eta),
        ("algorithm.theta", config.algorithm.theta),
        ("privacy.alpha", config.privacy.alpha),
    ):
        if schedules.is_ambiguous(schedule, len(releases.data_steps), graph.nodes):
            notes.append(f"{key}: its {graph.nodes} numbers are read as one per node, not as one per data step")
    if not schedules.is_common(releases.theta):
        notes.append(
            "the dual steps differ between the nodes, so the nodes agree in the end, but not at the optimum; one "
            f"algorithm.theta for all, for example {releases.eta[0].min():g}, leads there"
        )
    return DecentralisedPlan(
        config=config,
        graph=graph,
        sizes=dataset.sizes,
        total_records=len(dataset.node_of_record()),
        features=dataset.features,
        settings=_settings(config, graph, dataset, releases),
        releases=releases,
        notes=tuple(notes),
    )


def _check_sizes(config: Config, sizes: Ints) -> None:
    smallest, C = int(np.argmin(sizes)), float(config.problem.C or 0.0)
    if sizes[smallest] < C:
        raise InputError(
            f"problem.C: found {C:g}, but node {smallest} has only {sizes[smallest]} records; C must be at "
            "most the smallest shard"
        )


def _releases(config: Config, graph: Graph, dataset: Dataset) -> Releases:
    algorithm, nodes = config.algorithm, graph.nodes
    steps = data_steps(algorithm.method, config.iterations)
    eta = schedules.expand(algorithm.eta, len(steps), nodes, "algorithm.eta")
    theta = _dual_steps(config, eta, nodes)
    _check_penalties(config, eta, theta)
    alpha = np.full(eta.shape, np.nan)
    if config.privacy.perturbation != "none":
        shape = 1.0 if config.privacy.alpha is None else config.privacy.alpha
        alpha = schedules.expand(shape, len(steps), nodes, "privacy.alpha")
        _check_perturbation(config, eta, graph)
    return Releases(
        perturbation=str(config.privacy.perturbation),
        iterations=config.iterations,
        data_steps=steps,
        eta=eta,
        theta=theta,
        alpha=alpha,
        V=graph.degree.astype(np.float64),
        B=dataset.sizes.astype(np.float64),
        C=float(config.problem.C or 0.0),
        rho=float(config.problem.rho or 0.0),
        c1=loss_of(config).c1,
        features=dataset.features,
    )


def _dual_steps(config: Config, eta: Array, nodes: int) -> Array:
    """theta_i(r): as configured; eta_i(r) where the two are one; otherwise the smallest first penalty, for all nodes."""
    if config.algorithm.theta is not None:
        return schedules.expand(config.algorithm.theta, len(eta), nodes, "algorithm.theta")
    if METHODS[config.algorithm.method].decoupled:
        return np.full_like(eta, eta[0].min())
    return eta


def _check_penalties(config: Config, eta: Array, theta: Array) -> None:
    method = config.algorithm.method
    if not METHODS[method].own_penalties and not (schedules.is_constant(eta) and schedules.is_common(eta)):
        other = "mr-admm" if METHODS[method].recycles else "m-admm"
        raise InputError(f"algorithm.eta: {method} has one fixed penalty for all nodes; give one number, or use {other}")
    decreasing = np.argwhere(np.diff(eta, axis=0) < 0)
    if len(decreasing):
        k, i = decreasing[0]
        raise InputError(
            f"algorithm.eta: falls from {eta[k, i]:g} to {eta[k + 1, i]:g} at node {i}, data step {k + 2}; "
            "penalties must not decrease"
        )
    exceeded = np.argwhere(theta > eta)
    if len(exceeded):
        k, i = exceeded[0]
        raise InputError(
            f"algorithm.theta: found {theta[k, i]:g} at node {i}, data step {k + 1}, above the penalty {eta[k, i]:g}; "
            "theta must be at most eta"
        )


def _check_perturbation(config: Config, eta: Array, graph: Graph) -> None:
    perturbation = config.privacy.perturbation
    if perturbation == "dual" and not schedules.is_constant(eta):
        raise InputError(
            'privacy.perturbation: "dual" is defined for a fixed penalty, but algorithm.eta changes over the iterations; '
            'use "penalty", which follows it'
        )
    if perturbation in ("dual", "penalty") and graph.nodes == 1:
        raise InputError(
            f'privacy.perturbation: "{perturbation}" scales the noise with the number of neighbours, and a single node has '
            'none; use "objective" or "primal"'
        )


def _settings(config: Config, graph: Graph, dataset: Dataset, releases: Releases) -> Settings:
    gamma = float(config.algorithm.gamma or 0.0)
    if METHODS[config.algorithm.method].recycles and graph.nodes == 1 and gamma == 0.0:
        raise InputError("algorithm.gamma: must be above 0 on a single node, where the recycled step divides by it")
    return Settings(
        method=config.algorithm.method,
        perturbation=str(config.privacy.perturbation),
        eta=_every_iteration(releases.eta, releases),
        theta=_data_iterations(releases.theta, releases),
        alpha=_data_iterations(releases.alpha, releases),
        gamma=gamma,
        init=str(config.algorithm.init),
        degree=graph.degree,
        seed=config.seed,
        features=dataset.features,
    )


def _data_iterations(values: Array, releases: Releases) -> Array:
    """(T+1, N): a schedule at the iterations that touch the records, nan elsewhere."""
    spread = np.full((releases.iterations + 1, releases.nodes), np.nan)
    spread[releases.data_steps] = values
    return spread


def _every_iteration(values: Array, releases: Releases) -> Array:
    """(T+1, N): a recycled step keeps the penalty of the data step before it; row 0 is nan."""
    spread = _data_iterations(values, releases)
    for t in range(2, len(spread)):
        spread[t] = np.where(np.isnan(spread[t]), spread[t - 1], spread[t])
    return spread
