"""From a configuration to a run of a curated method: the linear map, step sizes, noise, accounts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, NamedTuple

import numpy as np

from dpadmm_mpi.config.options import Choice, FilePath, NonNegative
from dpadmm_mpi.config.schedules import Geometric, expand
from dpadmm_mpi.data.dataset import Dataset, target_of
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
from dpadmm_mpi.methods.curated import accounts, safeguarded, theory
from dpadmm_mpi.methods.curated.algorithm import CuratedNodes, State
from dpadmm_mpi.methods.curated.exact import ExactNodes
from dpadmm_mpi.methods.curated.linear_maps import LARGEST, Identity, LinearMap, MapKind, maps
from dpadmm_mpi.methods.curated.measures import CuratedMeasures, GivenMeasures
from dpadmm_mpi.methods.curated.optimum import CuratedOptimum
from dpadmm_mpi.methods.curated.regularisers import L1, Regulariser, regularisers
from dpadmm_mpi.methods.curated.splitting import Given, splitting_of
from dpadmm_mpi.methods.curated.steps import Settings
from dpadmm_mpi.methods.metrics import OfMeans
from dpadmm_mpi.networks.topology import Topology
from dpadmm_mpi.networks.virtual_time import Leg
from dpadmm_mpi.privacy import gaussian_noise
from dpadmm_mpi.privacy.account import calibrate
from dpadmm_mpi.privacy.perturbations import GradientPerturbation, Perturbation
from dpadmm_mpi.privacy.releases import CuratedReleases
from dpadmm_mpi.problems.objective import NodeProblem
from dpadmm_mpi.problems.softmax import node_problem
from dpadmm_mpi.types import Array, Ints, Matrix


class CuratedTerms(Terms):
    """mean loss + lambda1 h(A f)"""

    lambda1: NonNegative = 1e-5  # weight of g
    regulariser: Annotated[Regulariser, Choice(regularisers)] = L1()  # g
    map: Annotated[MapKind, Choice(maps)] = Identity()  # A, of g(A x)
    map_B: FilePath | list[list[float]] | None = (
        None  # of A x + B w = c: rows, or a file as for map_path; None: -I, so w = A x - c
    )
    map_c: FilePath | list[float] | None = None  # None: 0


class StepOptions(NamedTuple):
    """What a configuration says about the curator's steps."""

    rho: float | str  # or "auto"
    init: str
    eta: float | str = "auto"
    gamma: float | str = "auto"
    u0: str = "zero"
    batch: float | None = None  # records, or their share if it is below 1
    accelerated: bool = False
    restart: bool | str = False
    exact: bool = False


@dataclass(frozen=True)
class CuratedPlan(Plan[State]):
    settings: Settings
    releases: CuratedReleases

    @property
    def is_private(self) -> bool:
        return self.releases.noise_std > 0.0 and not self.releases.u0_as_printed

    @property
    def smoothness(self) -> float:
        """L_f <= c1, for rows of norm at most 1; a closer one would be a statistic of the records."""
        return self.loss.curvature_bound

    @property
    def scales(self) -> Mapping[str, int]:
        given = isinstance(self.settings.splitting, Given)
        return {**super().scales, "constraint": self.settings.A.rows} | ({"splitting": self.settings.columns} if given else {})

    @property
    def map_sha256(self) -> str:
        return self.settings.splitting.sha256(self.settings.A.sha256)

    @property
    def map_for_the_record(self) -> Array | None:
        return self.settings.A.small

    @property
    def schedules(self) -> Mapping[str, Schedules]:
        s = self.settings

        def constant(value: float) -> Array:
            values = np.full((self.iterations + 1, self.nodes), value)
            values[0] = np.nan
            return values

        noise = constant(s.noise_std)
        if s.noise_shape is not None:
            noise[1:] = (s.noise_std * s.noise_shape)[:, None]

        linearised = {
            "algorithm/eta": Schedules(constant(s.eta), "step size eta"),
            "algorithm/gamma": Schedules(constant(s.gamma), "gamma, which divides the step size"),
        }
        return ({} if s.exact else linearised) | {
            "algorithm/rho": Schedules(constant(s.rho), "penalty rho"),
            "privacy/noise_std": Schedules(noise, "standard deviation of the noise on the mean gradient; 0: none"),
        }

    @property
    def privacy_in_words(self) -> str:
        if self.releases.noise_std == 0.0:
            return NO_NOISE
        if self.releases.u0_as_printed:
            return accounts.NOT_PRIVATE
        r = self.releases
        paper, sound = (accounts.PAPER, accounts.SOUND) if r.batch is None else (accounts.PAPER_SAMPLED, accounts.SOUND_SAMPLED)
        first = "" if r.noise_shape is None else " in the first iteration"
        return (
            f"Gaussian noise of standard deviation {r.noise_std:.6g}{first} on the mean gradient; paper: {paper} "
            f"({accounts.NEIGHBOURS_PAPER}); sound: {sound} ({accounts.NEIGHBOURS_SOUND}); against everybody but the "
            "curator, who sees the exact gradients"
        )

    def improvements(self) -> list[str]:
        if not self.is_private:
            return []
        return ["more records", "a larger privacy.noise_std or a smaller privacy.target", "fewer iterations"]

    def conditions(self, assumed: Assumptions) -> list[str]:
        s = self.settings
        lines = (
            [f"FAILS  privacy: A does not depend on the records; the accounts hold {accounts.GIVEN_MAP}"]
            if s.A.from_records
            else []
        )
        if s.exact:
            return [*lines, f"holds  convergence: a convex loss and rho > 0 ({self.source}), margin {s.rho:.4g}"]
        complexity = theory.gradient_complexity(self.releases)
        if s.A.singular_values is None:
            return [*lines, complexity, f"-      convergence: not examined for more than {LARGEST} features"]
        lines += theory.conditions(
            self.releases,
            eta=s.eta,
            gamma=s.gamma,
            rho=s.rho,
            L_f=self.smoothness,
            singular_values=s.A.singular_values,
            rows=s.A.rows,
            distance=assumed.f_ref,
            accelerated=s.accelerated,
        )
        return [*lines, complexity]

    def problem(self, signed: Matrix, targets: Array | None = None) -> NodeProblem:
        return node_problem(signed, self.loss, C=1.0, ridge=0.0, targets=targets)

    def make_nodes(self, places: Ints, problems: Sequence[NodeProblem]) -> CuratedNodes:
        return (ExactNodes if self.settings.exact else CuratedNodes)(self.settings, places, problems)

    def legs(self, passes_per_solve: float, runs: range) -> list[Leg]:
        """The query goes down, its gradient comes up; an exact x step asks as often as a solve passes over the records."""
        s, first = self.settings, 0 if self.settings.u0 == "as-printed" else 1
        if s.exact:
            return [self._leg(*leg, first=1) for _ in range(round(passes_per_solve)) for leg in (("down", 0.0), ("up", 1.0))]
        share = 1.0 if s.batch is None else s.batch / s.records
        up = self._leg("up", share, first)
        return [self._leg("down", 0.0, first), up._replace(passes=np.full_like(up.passes, share))]

    @property
    def measures_class(self) -> type[CuratedMeasures]:
        return GivenMeasures if isinstance(self.settings.splitting, Given) else CuratedMeasures

    def measures(self, problems: Sequence[NodeProblem]) -> CuratedMeasures:
        return self.measures_class(
            self.features, self.sizes, self.metrics, problems, settings=self.settings, smoothness=self.smoothness
        )

    def optimum_search(self) -> OptimumSearch:
        return CuratedOptimum(self.settings, self.sizes)


def make_plan(method: Method, steps: StepOptions, config: Config, topology: Topology, dataset: Dataset[Any]) -> CuratedPlan:
    if config.record.optimum and dataset.features > LARGEST:
        raise InputError(f"record.optimum: found for up to {LARGEST} features, and there are {dataset.features}; remove it")
    terms, loss = config.problem.terms, fitted_loss(config, dataset)
    assert isinstance(terms, CuratedTerms)
    A = terms.map.make(dataset)
    splitting = splitting_of(terms.map_B, terms.map_c, A.rows)
    _refuse_unmeasurable(config, steps, dataset.features)
    kept = within_budget(method, config, _releases(method, steps, config, dataset, A.from_records))
    releases = kept.releases
    settings = replace(_settings(steps, config, A, releases), splitting=splitting, sizes=dataset.sizes)
    return CuratedPlan(
        config=config,
        topology=topology,
        sizes=dataset.sizes,
        total_records=len(dataset.node_of_record()),
        loss=loss,
        target=target_of(dataset),
        features=dataset.features,
        notes=(*_notes(config, settings), *kept.notes, *target_notes(config, dataset)),
        budget_steps=kept.steps,
        settings=settings,
        releases=releases,
    )


def _refuse_unmeasurable(config: Config, steps: StepOptions, features: int) -> None:
    if _wants_criterion(config) and not config.record.optimum:
        raise InputError("record.metrics: the criterion of [C] Theorem 2 needs the optimum; set record.optimum = true")
    if steps.restart == safeguarded.NAME and features > LARGEST:
        raise InputError(
            f'algorithm.restart: "{safeguarded.NAME}" is for up to {LARGEST} features, and there are {features}; set it to true'
        )
    if steps.exact and features > LARGEST:
        raise InputError(
            f"algorithm.method: the x step is solved for up to {LARGEST} features, and there are {features}; use gl-admm"
        )


def _wants_criterion(config: Config) -> bool:
    return any(isinstance(metric, OfMeans) for metric in config.record.metrics or ())


def _batch(share_or_count: float | None, records: int) -> int | None:
    """Records of a gradient; None: all."""
    if share_or_count is None:
        return None
    count = share_or_count if isinstance(share_or_count, int) else max(1, round(share_or_count * records))
    if count > records:
        raise InputError(f"algorithm.batch: found {count}, but there are {records} training records; lower it, or remove it")
    return None if count == records else count


def _noise_shape(noise: Perturbation, iterations: int) -> tuple[float, Array | None]:
    """The first standard deviation, 0 for none, and all relative to it; None: they do not change. Calibration finds it."""
    sizes = noise.noise_std if isinstance(noise, GradientPerturbation) else None
    if sizes is None or isinstance(sizes, float):
        return sizes or 0.0, None
    if isinstance(sizes, Geometric):
        values = expand(sizes, iterations, 1, "privacy.noise_std")[:, 0]
    elif len(sizes) == iterations:
        values = np.asarray(sizes)
    else:
        raise InputError(f"privacy.noise_std: found a list of {len(sizes)} values; one per iteration is needed, {iterations}")
    return float(values[0]), values / values[0]


def _releases(
    method: Method, steps: StepOptions, config: Config, dataset: Dataset[Any], map_from_records: bool
) -> CuratedReleases:
    noise = config.privacy.perturbation
    noise_std, noise_shape = _noise_shape(noise, config.iterations)
    mu = noise.mu if isinstance(noise, GradientPerturbation) else None
    releases = CuratedReleases(
        iterations=config.iterations,
        records=int(dataset.sizes.sum()),
        shards=len(dataset.sizes),
        noise_std=noise_std,
        features=dataset.features,
        c=config.problem.loss.slope_bound,
        mu=0.5 if mu is None else mu,
        u0_as_printed=steps.u0 == "as-printed",
        map_from_records=map_from_records,
        noise_shape=noise_shape,
        batch=_batch(steps.batch, int(dataset.sizes.sum())),
        unaccounted=method.unaccounted() if noise.private else "",
    )
    if not isinstance(noise, GradientPerturbation) or noise.target is None:
        return releases
    return calibrate(replace(releases, noise_std=1.0), noise.target, str(noise.target_account), config.privacy.delta)


def _settings(steps: StepOptions, config: Config, A: LinearMap, releases: CuratedReleases) -> Settings:
    terms = config.problem.terms
    assert isinstance(terms, CuratedTerms)
    L_f = config.problem.loss.curvature_bound
    eta = 1.0 / L_f if isinstance(steps.eta, str) else float(steps.eta)
    balanced = theory.balanced_rho(terms.lambda1, A.norm, A.rows, L_f, terms.regulariser.smooth)
    rho = balanced if isinstance(steps.rho, str) else steps.rho
    gamma = theory.gamma_needed(eta, rho, A.norm) if isinstance(steps.gamma, str) else float(steps.gamma)
    if steps.exact:
        gamma = float("nan")
    if gamma == 0.0:
        raise InputError('algorithm.gamma: must be above 0, for the step divides by it; give a number or "auto"')
    return Settings(
        accelerated=steps.accelerated,
        A=A,
        lambda1=terms.lambda1,
        regulariser=terms.regulariser,
        rho=rho,
        eta=eta,
        gamma=gamma,
        noise_std=releases.noise_std,
        u0=steps.u0,
        restart=steps.restart,
        init=steps.init,
        records=releases.records,
        nodes=releases.shards,
        seed=config.seed,
        features=releases.features,
        noise_shape=releases.noise_shape,
        batch=releases.batch,
        keeps_means=_wants_criterion(config),
        exact=steps.exact,
    )


def _notes(config: Config, s: Settings) -> list[str]:
    notes = []
    if s.u0 == "as-printed":
        notes.append('u_0 comes from the records without noise: the run is not private; algorithm.u0 = "zero" does without')
    if s.A.from_records:
        notes.append(f"the privacy accounts hold {accounts.GIVEN_MAP}")
    largest = 1.0 / config.problem.loss.curvature_bound
    if s.eta > largest * (1.0 + 1e-9):
        notes.append(f'algorithm.eta: {s.eta:g} is above the 1/L_f = {largest:.4g} of [C] Lemma 5; "auto" takes that')
    needed = theory.gamma_needed(s.eta, s.rho, s.A.norm)
    if s.gamma < needed * (1.0 - 1e-9):
        notes.append(f'algorithm.gamma: {s.gamma:g} is below the {needed:.4g} of [C] (7); "auto" takes that')
    return notes + gaussian_noise.notes(config.privacy.perturbation, config.privacy.delta)
