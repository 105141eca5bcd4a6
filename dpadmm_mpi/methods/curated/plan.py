"""The curated family: the linear map, step sizes, noise, accounts (SPEC 4)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dpadmm_mpi.config.options import Config
from dpadmm_mpi.data.dataset import Dataset
from dpadmm_mpi.errors import InputError
from dpadmm_mpi.methods.base import Plan, loss_of
from dpadmm_mpi.methods.curated import accounts as theory
from dpadmm_mpi.methods.curated.algorithm import METHODS, Curated, Settings
from dpadmm_mpi.methods.curated.linear_maps import LARGEST, LinearMap, make_map
from dpadmm_mpi.methods.curated.measures import CuratedMeasures
from dpadmm_mpi.methods.measures import Optimum
from dpadmm_mpi.networks.graphs import Graph
from dpadmm_mpi.privacy import gaussian_noise
from dpadmm_mpi.privacy.account import Account
from dpadmm_mpi.privacy.gaussian_noise import GaussianLedger
from dpadmm_mpi.privacy.releases import CuratedReleases
from dpadmm_mpi.problems.objective import NodeProblem

if TYPE_CHECKING:
    from dpadmm_mpi.parallel.mpi import Transport

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

NO_NOISE = "none: the exact values are released"
GIVEN_MAP = "for a given A; this one is estimated from the records without noise, which is not accounted for"


@dataclass(frozen=True)
class CuratedPlan(Plan):
    settings: Settings
    releases: CuratedReleases

    @cached_property
    def ledger(self) -> GaussianLedger:
        return theory.ledger(self.releases, self.config.privacy.delta)

    @property
    def is_private(self) -> bool:
        return self.releases.noise_std > 0.0 and not self.releases.u0_as_printed

    @property
    def smoothness(self) -> float:
        """L_f <= c1, for rows of norm at most 1; a closer one would be a statistic of the records."""
        return self.loss.c1

    @property
    def scales(self) -> Mapping[str, int]:
        return {"constraint": self.settings.A.rows}

    @property
    def source(self) -> str:
        return METHODS[self.settings.method].source

    @property
    def accounts(self) -> Sequence[Account]:
        l, at = self.ledger, f"at delta = {self.ledger.delta:g}"
        given = f"; {GIVEN_MAP}" if self.settings.A.from_records else ""
        paper, sound = (NO_NOISE, NO_NOISE) if self.releases.noise_std == 0.0 else (l.paper + given, l.sound + given)
        proven = not (self.settings.A.from_records and self.is_private)
        return (
            Account(
                "epsilon_paper",
                f"the paper's epsilon {at}",
                l.node_epsilon_paper,
                paper,
                l.proven_paper and proven,
                l.neighbours_paper,
                l.delta,
            ),
            Account(
                "epsilon_sound",
                f"sound epsilon {at}",
                l.node_epsilon_sound,
                sound,
                l.proven_sound and proven,
                l.neighbours_sound,
                l.delta,
            ),
        )

    @property
    def map_sha256(self) -> str:
        return self.settings.A.sha256

    @property
    def map_for_the_record(self) -> Array | None:
        return self.settings.A.small

    @property
    def schedules(self) -> Mapping[str, tuple[Array, str]]:
        s = self.settings

        def constant(value: float) -> Array:
            values = np.full((self.config.iterations + 1, self.nodes), value)
            values[0] = np.nan
            return values

        return {
            "algorithm/eta": (constant(s.eta), "step size eta"),
            "algorithm/gamma": (constant(s.gamma), "gamma, which divides the step size"),
            "algorithm/rho": (constant(s.rho), "penalty rho"),
            "privacy/noise_std": (constant(s.noise_std), "standard deviation of the noise on the mean gradient; 0: none"),
        }

    @property
    def privacy_in_words(self) -> str:
        if self.releases.noise_std == 0.0:
            return NO_NOISE
        if self.releases.u0_as_printed:
            return theory.NOT_PRIVATE
        l = self.ledger
        return (
            f"Gaussian noise of standard deviation {self.releases.noise_std:.6g} on the mean gradient; paper: {l.paper} "
            f"({l.neighbours_paper}); sound: {l.sound} ({l.neighbours_sound}); against everybody but the curator, who sees the "
            "exact gradients"
        )

    def improvements(self) -> list[str]:
        if not self.is_private:
            return []
        return ["more records", "a larger privacy.noise_std or a smaller privacy.target", "fewer iterations"]

    def conditions(self, f_ref: float, tau: float, beta: float) -> list[str]:
        s, accelerated = self.settings, METHODS[self.settings.method].accelerated
        lines = [f"FAILS  privacy: A does not depend on the records; the accounts hold {GIVEN_MAP}"] if s.A.from_records else []
        if s.A.singular_values is None:
            return [*lines, f"-      convergence: not examined for more than {LARGEST} features"]
        return lines + theory.conditions(
            self.releases, s.eta, s.gamma, s.rho, self.smoothness, s.A.singular_values, s.A.rows, f_ref, accelerated
        )

    def problem(self, signed: Any) -> NodeProblem:
        return NodeProblem(signed, self.loss, C=1.0, ridge=0.0)

    def algorithm(self, places: Ints, problems: Sequence[NodeProblem]) -> Curated:
        return Curated(self.settings, places, problems)

    @property
    def measures_class(self) -> type[CuratedMeasures]:
        return CuratedMeasures

    def optimum(self, transport: "Transport", problems: Sequence[NodeProblem], owner: Ints) -> Optimum | None:
        from dpadmm_mpi.methods.curated.optimum import curated_optimum

        return curated_optimum(transport, problems, owner, self.sizes, self.settings)


def make_plan(config: Config, graph: Graph, dataset: Dataset) -> CuratedPlan:
    if config.record.optimum and dataset.features > LARGEST:
        raise InputError(f"record.optimum: found for up to {LARGEST} features, and there are {dataset.features}; remove it")
    A = make_map(config, dataset)
    releases = _releases(config, graph, dataset)
    settings = _settings(config, graph, dataset, A, releases.noise_std)
    return CuratedPlan(
        config=config,
        graph=graph,
        sizes=dataset.sizes,
        total_records=len(dataset.node_of_record()),
        features=dataset.features,
        notes=tuple(_notes(config, settings)),
        settings=settings,
        releases=releases,
    )


def _releases(config: Config, graph: Graph, dataset: Dataset) -> CuratedReleases:
    privacy = config.privacy
    releases = CuratedReleases(
        iterations=config.iterations,
        records=int(dataset.sizes.sum()),
        nodes=graph.nodes,
        noise_std=float(privacy.noise_std or 0.0),
        features=dataset.features,
        c=loss_of(config).slope_bound,
        u0_as_printed=config.algorithm.u0 == "as-printed",
    )
    if privacy.target is None:
        return releases
    return theory.calibrate(replace(releases, noise_std=1.0), privacy.target, str(privacy.target_account), privacy.delta)


def _settings(config: Config, graph: Graph, dataset: Dataset, A: LinearMap, noise_std: float) -> Settings:
    algorithm, problem = config.algorithm, config.problem
    rho = float(algorithm.rho or 0.0)
    eta = 1.0 / loss_of(config).c1 if algorithm.eta == "auto" else _number(algorithm.eta)
    gamma = theory.gamma_needed(eta, rho, A.norm) if algorithm.gamma == "auto" else _number(algorithm.gamma)
    if gamma == 0.0:
        raise InputError('algorithm.gamma: must be above 0, for the step divides by it; give a number or "auto"')
    return Settings(
        method=algorithm.method,
        A=A,
        lambda1=float(problem.lambda1 or 0.0),
        regulariser=str(problem.regulariser),
        rho=rho,
        eta=eta,
        gamma=gamma,
        noise_std=noise_std,
        u0=str(algorithm.u0),
        restart=bool(algorithm.restart),
        init=str(algorithm.init),
        records=int(dataset.sizes.sum()),
        nodes=graph.nodes,
        seed=config.seed,
        features=dataset.features,
    )


def _number(value: Any) -> float:
    return float(value or 0.0)


def _notes(config: Config, s: Settings) -> list[str]:
    notes = []
    if s.u0 == "as-printed":
        notes.append('u_0 comes from the records without noise: the run is not private; algorithm.u0 = "zero" does without')
    if s.A.from_records:
        notes.append(f"the privacy accounts hold {GIVEN_MAP}")
    largest = 1.0 / loss_of(config).c1
    if s.eta > largest * (1.0 + 1e-9):
        notes.append(f'algorithm.eta: {s.eta:g} is above the 1/L_f = {largest:.4g} of [C] Lemma 5; "auto" takes that')
    needed = theory.gamma_needed(s.eta, s.rho, s.A.norm)
    if s.gamma < needed * (1.0 - 1e-9):
        notes.append(f'algorithm.gamma: {s.gamma:g} is below the {needed:.4g} of [C] (7); "auto" takes that')
    privacy = config.privacy
    return notes + gaussian_noise.notes(privacy.target, privacy.target_account, privacy.delta)
