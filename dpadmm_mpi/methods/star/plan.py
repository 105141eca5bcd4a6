"""From a configuration to a run of a star method: step size, noise, accounts and conditions of the server and its providers."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from dpadmm_mpi.config.options import NonNegative
from dpadmm_mpi.data.dataset import Dataset
from dpadmm_mpi.errors import InputError
from dpadmm_mpi.methods.base import NO_NOISE, Assumptions, Config, Method, OptimumSearch, Plan, Schedules, Terms
from dpadmm_mpi.methods.centralised_optimum import CentralisedOptimum
from dpadmm_mpi.methods.star import accounts, theory
from dpadmm_mpi.methods.star.algorithm import Settings, StarNodes, State
from dpadmm_mpi.methods.star.measures import StarMeasures
from dpadmm_mpi.methods.star.svrg import Inner
from dpadmm_mpi.networks.topology import Topology
from dpadmm_mpi.privacy import gaussian_noise
from dpadmm_mpi.privacy.account import calibrate
from dpadmm_mpi.privacy.perturbations import GradientPerturbation
from dpadmm_mpi.privacy.releases import StarReleases
from dpadmm_mpi.problems.local_problems import LocalProblems
from dpadmm_mpi.problems.losses import Loss
from dpadmm_mpi.problems.objective import NodeProblem
from dpadmm_mpi.types import Ints, Matrix


class StarTerms(Terms):
    """sum_i (mean loss of provider i) + reg ||z||^2"""

    reg: NonNegative = 1e-4


class InnerOptions(NamedTuple):
    """What a configuration says about the inner steps."""

    inner_steps: int  # S
    eta: float | str  # or "auto"
    averaging: str


UNEVEN = 1.05  # largest over smallest provider, from which on the difference is more than rounding


@dataclass(frozen=True)
class StarPlan(Plan[State]):
    settings: Settings
    releases: StarReleases

    @property
    def is_private(self) -> bool:
        return self.releases.noise_std > 0.0

    @property
    def work_in_words(self) -> str:
        inner = self.settings.inner
        return super().work_in_words + ("" if inner is None else f" of {inner.steps} inner steps")

    @property
    def schedules(self) -> Mapping[str, Schedules]:
        """The same in every iteration and for every provider; nan at t = 0, where nothing is done."""
        inner = self.settings.inner
        used = {
            "algorithm/rho": (self.settings.rho, "penalty rho"),
            "privacy/noise_std": (self.releases.noise_std, "standard deviation of the noise on a gradient; 0: none"),
        }
        if inner is not None:
            used["algorithm/eta"] = (inner.eta, "step size eta of the inner steps")
        spread = np.ones((self.config.iterations + 1, self.nodes))
        spread[0] = np.nan
        return {name: Schedules(value * spread, text) for name, (value, text) in used.items()}

    @property
    def privacy_in_words(self) -> str:
        if not self.is_private:
            return NO_NOISE
        words = f"noise of standard deviation {self.releases.noise_std:.4g} on every inner gradient ({self.source})"
        return f"{words}; neighbours: {accounts.NEIGHBOURS}"

    def improvements(self) -> list[str]:
        if not self.is_private:
            return []
        worst, M = int(self.sizes.argmin()), self.sizes
        more = f"more records at node {worst} (it has {M[worst]}" + (f", others up to {M.max()})" if M.max() > M.min() else ")")
        return [more, "a larger privacy.noise_std or a smaller privacy.target", "fewer inner steps", "fewer iterations"]

    def conditions(self, assumed: Assumptions) -> list[str]:
        s, inner, v_f = self.settings, self.settings.inner, self.loss.curvature_bound
        if inner is None:
            return [f"holds  convergence: convex losses and rho > 0 ({self.source}), margin {s.rho:.4g}"]
        delta = self.config.privacy.delta
        return theory.conditions(
            self.releases, delta, rho=s.rho, eta=inner.eta, v_L=inner.v_L, v_f=v_f, mu_f=0.0, distance=assumed.f_ref
        )

    def problem(self, signed: Matrix) -> NodeProblem:
        """f_i: the regulariser is the server's."""
        return NodeProblem(signed, self.loss, C=1.0, ridge=0.0)

    def problems(self, shards: Iterable[Matrix]) -> Sequence[NodeProblem]:
        """For exact solves with what those keep; inner steps take records as they are stored."""
        problems = super().problems(shards)
        return LocalProblems(problems) if self.settings.inner is None else problems

    @property
    def solves_exactly(self) -> bool:
        return self.settings.inner is None

    def make_nodes(self, places: Ints, problems: Sequence[NodeProblem]) -> StarNodes:
        return StarNodes(self.settings, places, problems)

    @property
    def measures_class(self) -> type[StarMeasures]:
        return StarMeasures

    def measures(self, problems: Sequence[NodeProblem]) -> StarMeasures:
        return StarMeasures(self.features, self.sizes, self.extra_metrics, problems, self.settings.reg)

    def optimum_search(self) -> OptimumSearch:
        """argmin_z sum_i f_i(z) + reg ||z||^2"""
        ridge = 2.0 * self.settings.reg / self.nodes
        return CentralisedOptimum(self.features, ridge, self.config.record.optimum)


def make_plan(
    method: Method, inner: InnerOptions | None, rho: float, init: str, config: Config, topology: Topology, dataset: Dataset[Any]
) -> StarPlan:
    """`inner`: what the configuration says about inner steps; None: exact solves."""
    terms = config.problem.terms
    assert isinstance(terms, StarTerms)
    releases = _releases(method, 1 if inner is None else inner.inner_steps, config, dataset)
    settings = Settings(
        rho=rho,
        reg=terms.reg,
        inner=None if inner is None else _inner(inner, rho, config.problem.loss, releases.noise_std),
        init=init,
        nodes=topology.nodes,
        seed=config.seed,
        features=dataset.features,
    )
    return StarPlan(
        config=config,
        topology=topology,
        sizes=dataset.sizes,
        total_records=len(dataset.node_of_record()),
        features=dataset.features,
        settings=settings,
        releases=releases,
        notes=tuple(_notes(config, settings, releases)),
    )


def _releases(method: Method, inner_steps: int, config: Config, dataset: Dataset[Any]) -> StarReleases:
    """What the providers release; with a target, at the noise that meets it."""
    noise = config.privacy.perturbation
    noise_std = noise.constant_std if isinstance(noise, GradientPerturbation) else 0.0
    releases = StarReleases(
        iterations=config.iterations,
        inner_steps=inner_steps,
        M=dataset.sizes.astype(np.float64),
        noise_std=noise_std,
        features=dataset.features,
        G=config.problem.loss.slope_bound,
        unaccounted=method.unaccounted() if noise.private else "",
    )
    if not isinstance(noise, GradientPerturbation) or noise.target is None:
        return releases
    return calibrate(releases, noise.target, str(noise.target_account), config.privacy.delta)


def _inner(options: InnerOptions, rho: float, loss: Loss, noise_std: float) -> Inner:
    v_L = loss.curvature_bound + rho
    extrapolated = options.averaging == "extrapolated"
    # Half of the largest step that [S] allows: beyond it xi and zeta, which grow like 1/(1 - 2 eta v_L), magnify the noise.
    eta = float(options.eta) if isinstance(options.eta, int | float) else 1.0 / (4.0 * v_L)
    largest, words = (0.5 / v_L, "1/(2 v_L)") if extrapolated else (2.0 / v_L, "2/v_L")
    if eta >= largest:
        raise InputError(
            f'algorithm.eta: found {eta:g}, but the inner steps with averaging = "{options.averaging}" need it below '
            f'{words} = {largest:.4g} (v_L = c1 + rho = {v_L:g}); lower it, or use "auto"'
        )
    return Inner(steps=options.inner_steps, eta=eta, rho=rho, v_L=v_L, extrapolated=extrapolated, noise_std=noise_std)


def _notes(config: Config, settings: Settings, releases: StarReleases) -> list[str]:
    notes, M = [], releases.M
    if M.max() > UNEVEN * M.min():
        notes.append(
            f"the providers have {M.min():.0f} to {M.max():.0f} records, but every provider's mean loss counts the same, so a "
            "record of a small provider weighs more"
        )
    if settings.inner is not None and settings.inner.extrapolated:
        notes.append("the extrapolated average of [S] is no convex combination: its zeta is negative, and it magnifies noise")
    if releases.noise_std > 0.0 and accounts.paper_margin(releases, config.privacy.delta).min() < 0.0:
        notes.append(
            "the paper's account lies outside of its own theorem's range, epsilon <= c1 K S / M^2 with c1 = 1 "
            "([S] Theorem 2); the sound account does not depend on it"
        )
    return notes + gaussian_noise.notes(config.privacy.perturbation, config.privacy.delta)
