"""From a configuration to a run of a star method: step size, noise, accounts and conditions of the server and its providers."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from dpadmm_mpi.config.options import NonNegative
from dpadmm_mpi.config.schedules import Geometric, expand
from dpadmm_mpi.data.dataset import Dataset, target_of
from dpadmm_mpi.data.shard import Shard
from dpadmm_mpi.errors import InputError
from dpadmm_mpi.methods.base import (
    NO_NOISE,
    Assumptions,
    Config,
    Method,
    OptimumSearch,
    Plan,
    Schedules,
    Terms,
    fitted_loss,
    target_notes,
)
from dpadmm_mpi.methods.budget import within_budget
from dpadmm_mpi.methods.centralised_optimum import CentralisedOptimum
from dpadmm_mpi.methods.metrics import ErgodicCriterion
from dpadmm_mpi.methods.star import accounts, theory
from dpadmm_mpi.methods.star.algorithm import Settings, StarNodes, State
from dpadmm_mpi.methods.star.measures import StarMeasures
from dpadmm_mpi.methods.star.optimum import BallOptimum, SparseOptimum
from dpadmm_mpi.methods.star.svrg import Inner
from dpadmm_mpi.networks.topology import Topology
from dpadmm_mpi.networks.virtual_time import Leg
from dpadmm_mpi.privacy import gaussian_noise
from dpadmm_mpi.privacy.account import calibrate
from dpadmm_mpi.privacy.perturbations import GradientPerturbation
from dpadmm_mpi.privacy.releases import StarReleases
from dpadmm_mpi.problems.local_problems import LocalProblems
from dpadmm_mpi.problems.losses import Loss
from dpadmm_mpi.problems.objective import NodeProblem
from dpadmm_mpi.problems.softmax import node_problem
from dpadmm_mpi.types import Array, Ints, Matrix


class StarTerms(Terms):
    """sum_i ( mean loss of provider i + (local_ridge/2) ||x_i||^2 ) + g(z)"""

    reg: NonNegative = 1e-4  # weight of the regulariser
    regulariser: Literal["l2", "l1"] = "l2"  # g: reg ||z||^2, or reg ||z||_1
    local_ridge: NonNegative = 0.0  # mu_f: makes every f_i strongly convex, as [S] Theorems 3 and 4 need; costs no privacy


class InnerOptions(NamedTuple):
    """What a configuration says about the inner steps."""

    inner_steps: int  # S
    eta: float | str  # or "auto"
    averaging: str
    batch_size: int
    radius: float | None


class StarOptions(NamedTuple):
    """What a configuration says about the method."""

    rho: float | str  # or "auto"
    init: str
    inner: InnerOptions | None  # None: exact solves
    paper_constant: float  # c of [S] Theorem 2


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
        """The same for every provider, and but for the noise in every iteration; nan at t = 0, where nothing is done."""
        inner = self.settings.inner
        used: dict[str, tuple[float | Array, str]] = {
            "algorithm/rho": (self.settings.rho, "penalty rho"),
            "privacy/noise_std": (self.releases.sigma[:, None], "standard deviation of the noise on a gradient; 0: none"),
        }
        if inner is not None:
            used["algorithm/eta"] = (inner.eta, "step size eta of the inner steps")
        nothing, spread = np.full((1, self.nodes), np.nan), np.ones((self.iterations, self.nodes))
        return {name: Schedules(np.concatenate([nothing, value * spread]), text) for name, (value, text) in used.items()}

    @property
    def privacy_in_words(self) -> str:
        if not self.is_private:
            return NO_NOISE
        sigma = self.releases.sigma
        size = f"{sigma[0]:.4g}" + (f" (at first) to {sigma[-1]:.4g}" if len(self.releases.growth) else "")
        words = f"noise of standard deviation {size} on every inner gradient ({self.source})"
        return f"{words}; neighbours: {accounts.NEIGHBOURS}"

    def improvements(self) -> list[str]:
        if not self.is_private:
            return []
        worst, M = int(self.sizes.argmin()), self.sizes
        more = f"more records at node {worst} (it has {M[worst]}" + (f", others up to {M.max()})" if M.max() > M.min() else ")")
        return [more, "a larger privacy.noise_std or a smaller privacy.target", "fewer inner steps", "fewer iterations"]

    def conditions(self, assumed: Assumptions) -> list[str]:
        s, inner, v_f = self.settings, self.settings.inner, self.loss.curvature_bound + self.settings.local_ridge
        if inner is None:
            return [f"holds  convergence: convex losses and rho > 0 ({self.source}), margin {s.rho:.4g}"]
        delta = self.config.privacy.delta
        return theory.conditions(
            self.releases, delta, rho=s.rho, eta=inner.eta, v_L=inner.v_L, v_f=v_f, mu_f=s.local_ridge, distance=assumed.f_ref
        )

    def problem(self, signed: Matrix, targets: Array | None = None) -> NodeProblem:
        """f_i: the regulariser g is the server's."""
        return node_problem(signed, self.loss, C=1.0, ridge=self.settings.local_ridge, targets=targets)

    def problems(self, shards: Iterable[Shard]) -> Sequence[NodeProblem]:
        """For exact solves with what those keep; inner steps take records as they are stored."""
        return LocalProblems(self.each_problem(shards)) if self.settings.inner is None else super().problems(shards)

    def legs(self, passes_per_solve: float, runs: range) -> list[Leg]:
        """SVRG: the full gradient, and two gradients of every sampled record."""
        inner, passes = self.settings.inner, np.full(self.nodes, passes_per_solve)
        if inner is not None:
            passes = 1.0 + 2.0 * inner.steps * inner.batch_size / self.sizes
        return [self._leg("up", passes, first=1), self._leg("down", 0.0)]

    @property
    def solves_exactly(self) -> bool:
        return self.settings.inner is None

    def make_nodes(self, places: Ints, problems: Sequence[NodeProblem]) -> StarNodes:
        return StarNodes(self.settings, places, problems)

    @property
    def measures_class(self) -> type[StarMeasures]:
        return StarMeasures

    def measures(self, problems: Sequence[NodeProblem]) -> StarMeasures:
        return StarMeasures(self.features, self.sizes, self.metrics, problems, self.settings)

    def optimum_search(self) -> OptimumSearch:
        """argmin_z sum_i f_i(z) + g(z), in the ball if there is one"""
        s = self.settings
        search: CentralisedOptimum | SparseOptimum = SparseOptimum(self.features, s.local_ridge, s.reg)
        if s.regulariser != "l1":
            ridge = 2.0 * s.reg / self.nodes + s.local_ridge
            search = CentralisedOptimum(self.features, ridge, self.config.record.optimum)
        radius = None if s.inner is None else s.inner.radius
        return search if radius is None else BallOptimum(search, radius)


def make_plan(method: Method, options: StarOptions, config: Config, topology: Topology, dataset: Dataset[Any]) -> StarPlan:
    terms, inner = config.problem.terms, options.inner
    assert isinstance(terms, StarTerms)
    loss = fitted_loss(config, dataset)
    kept = within_budget(method, config, _releases(method, options, config, dataset, loss))
    releases, given = kept.releases, options.rho
    rho = float(given) if isinstance(given, int | float) else automatic_rho(loss, terms, topology.nodes)
    settings = Settings(
        rho=rho,
        reg=terms.reg,
        local_ridge=terms.local_ridge,
        regulariser=terms.regulariser,
        inner=None if inner is None else _inner(inner, rho, config, releases),
        growth=releases.growth,
        ergodic=any(isinstance(metric, ErgodicCriterion) for metric in config.record.metrics or ()),
        init=options.init,
        nodes=topology.nodes,
        seed=config.seed,
        features=releases.features,
    )
    return StarPlan(
        config=config,
        topology=topology,
        sizes=dataset.sizes,
        total_records=len(dataset.node_of_record()),
        loss=loss,
        target=target_of(dataset),
        features=settings.features,
        settings=settings,
        releases=releases,
        notes=(*_notes(config, settings, releases), *kept.notes, *target_notes(config, dataset)),
        budget_steps=kept.steps,
    )


def _releases(method: Method, options: StarOptions, config: Config, dataset: Dataset[Any], loss: Loss) -> StarReleases:
    """What the providers release; with a target, at the noise that meets it."""
    noise, inner = config.privacy.perturbation, options.inner
    noise_std = noise.noise_std if isinstance(noise, GradientPerturbation) else None
    sigma = np.zeros(1) if noise_std is None else _noise(noise_std, config.iterations)
    batch_size, fewest = 1 if inner is None else inner.batch_size, int(dataset.sizes.min())
    if batch_size > fewest:
        raise InputError(f"algorithm.batch_size: found {batch_size}, but node {dataset.sizes.argmin()} has {fewest} records")
    releases = StarReleases(
        iterations=config.iterations,
        inner_steps=1 if inner is None else inner.inner_steps,
        M=dataset.sizes.astype(np.float64),
        noise_std=float(sigma[0]),
        growth=np.zeros(0) if np.all(sigma == sigma[0]) else sigma / sigma[0],
        batch_size=batch_size,
        c=options.paper_constant,
        features=dataset.features * loss.outputs,
        G=loss.slope_bound,
        unaccounted=method.unaccounted() if noise.private else "",
    )
    if not isinstance(noise, GradientPerturbation) or noise.target is None:
        return releases
    return calibrate(releases, noise.target, str(noise.target_account), config.privacy.delta)


def _noise(noise_std: float | Geometric | list[float], iterations: int) -> Array:
    """sigma of every outer iteration; a geometric law whose first value is left to calibration begins at 1."""
    if isinstance(noise_std, list) and len(noise_std) != iterations:
        raise InputError(f"privacy.noise_std: found a list of {len(noise_std)}; one for each iteration is needed, {iterations}")
    return expand([noise_std], iterations, 1, "privacy.noise_std")[:, 0]


def automatic_rho(loss: Loss, terms: StarTerms, nodes: int) -> float:
    """sqrt(c1 mu) with mu = local_ridge + 2 reg / N, each provider's share of the strong convexity.

    This is the best penalty for a quadratic f_i with curvatures between mu and c1 (Ghadimi, Teixeira, Shames, Johansson 2015).
    It depends on the problem's constants and not on the records, so it costs no privacy. For l1, which has no strong
    convexity, reg stands for it all the same.
    """
    mu = terms.local_ridge + 2.0 * terms.reg / nodes
    if mu == 0.0:
        raise InputError('algorithm.rho: "auto" needs problem.reg or problem.local_ridge above 0; give a number')
    return float(np.sqrt(loss.curvature_bound * mu))


def _inner(options: InnerOptions, rho: float, config: Config, releases: StarReleases) -> Inner:
    terms = config.problem.terms
    assert isinstance(terms, StarTerms)
    v_L = config.problem.loss.curvature_bound + rho + terms.local_ridge
    extrapolated = options.averaging == "extrapolated"
    # Half of the largest step that [S] allows: beyond it xi and zeta, which grow like 1/(1 - 2 eta v_L), magnify the noise.
    eta = float(options.eta) if isinstance(options.eta, int | float) else 1.0 / (4.0 * v_L)
    largest, words = (0.5 / v_L, "1/(2 v_L)") if extrapolated else (2.0 / v_L, "2/v_L")
    if eta >= largest:
        raise InputError(
            f'algorithm.eta: found {eta:g}, but the inner steps with averaging = "{options.averaging}" need it below '
            f"{words} = {largest:.4g} (v_L = c1 + rho{' + local_ridge' if terms.local_ridge else ''} = {v_L:g}); lower it, "
            'or use "auto"'
        )
    return Inner(
        steps=options.inner_steps,
        eta=eta,
        rho=rho,
        v_L=v_L,
        extrapolated=extrapolated,
        noise_std=releases.noise_std,
        batch_size=options.batch_size,
        radius=options.radius,
    )


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
            "([S] Theorem 2), which costs most of what it lacks in noise; the sound account does not depend on it"
        )
    return notes + gaussian_noise.notes(config.privacy.perturbation, config.privacy.delta)
