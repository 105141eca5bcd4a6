"""From a configuration to everything that is settled before the first iteration, on rank 0.

Graph, shard sizes, schedules, calibration, privacy: whatever cannot work is refused here, before a record is solved for.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dpadmm_mpi import graphs, schedules
from dpadmm_mpi.algorithms.decentralised import METHODS, Settings, data_steps
from dpadmm_mpi.config import Config
from dpadmm_mpi.data.dataset import Dataset, prepare
from dpadmm_mpi.errors import InputError
from dpadmm_mpi.graphs import Graph
from dpadmm_mpi.losses import LOGISTIC, Loss, huber
from dpadmm_mpi.mechanisms import Releases
from dpadmm_mpi.theory import privacy
from dpadmm_mpi.theory.privacy import Ledger

Array = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Plan:
    """What every rank knows; small, and free of records."""

    config: Config
    graph: Graph
    sizes: Ints
    total_records: int  # training and test
    features: int
    settings: Settings
    releases: Releases
    notes: tuple[str, ...]  # what the user should know about this configuration

    @cached_property
    def ledger(self) -> Ledger:
        """The accounts, when somebody asks: rank 0 for the record, nobody else."""
        return privacy.ledger(self.releases, self.config.privacy.delta)

    @property
    def ridge(self) -> float:
        return self.config.problem.rho / self.graph.nodes

    @property
    def loss(self) -> Loss:
        return loss_of(self.config)

    @property
    def seeks_optimum(self) -> bool:
        """The distance to the centralised optimum is recorded on request, and whenever the method does not end there."""
        return self.config.record.optimum or not schedules.is_common(self.releases.theta)

    @property
    def recorded(self) -> Ints:
        """The iterations that get a row: 0, every `record.every`-th, and the last."""
        every, last = self.config.record.every, self.config.iterations
        return np.unique(np.append(np.arange(0, last + 1, every), last))


def loss_of(config: Config) -> Loss:
    width = config.problem.width
    return LOGISTIC if width is None else huber(width)


def make_plan(config: Config) -> tuple[Plan, Dataset]:
    graph = graphs.build(config.network, config.seed)
    dataset = prepare(config.data, graph.nodes, config.seed)
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
    plan = Plan(
        config=config,
        graph=graph,
        sizes=dataset.sizes,
        total_records=len(dataset.node_of_record()),
        features=dataset.features,
        settings=_settings(config, graph, dataset, releases),
        releases=releases,
        notes=tuple(notes),
    )
    return plan, dataset


def _check_sizes(config: Config, sizes: Ints) -> None:
    smallest = int(np.argmin(sizes))
    if sizes[smallest] < config.problem.C:
        raise InputError(
            f"problem.C: found {config.problem.C:g}, but node {smallest} has only {sizes[smallest]} records; C must be at "
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
        perturbation=config.privacy.perturbation,
        iterations=config.iterations,
        data_steps=steps,
        eta=eta,
        theta=theta,
        alpha=alpha,
        V=graph.degree.astype(np.float64),
        B=dataset.sizes.astype(np.float64),
        C=config.problem.C,
        rho=config.problem.rho,
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
    gamma = config.algorithm.gamma or 0.0
    if METHODS[config.algorithm.method].recycles and graph.nodes == 1 and gamma == 0.0:
        raise InputError("algorithm.gamma: must be above 0 on a single node, where the recycled step divides by it")
    return Settings(
        method=config.algorithm.method,
        perturbation=config.privacy.perturbation,
        eta=_every_iteration(releases.eta, releases),
        theta=_data_iterations(releases.theta, releases),
        alpha=_data_iterations(releases.alpha, releases),
        gamma=gamma,
        init=config.algorithm.init,
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
