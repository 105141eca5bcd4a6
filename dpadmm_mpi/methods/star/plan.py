"""The star family: step size, noise, accounts and conditions of the server and its providers (SPEC 3)."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dpadmm_mpi.config.options import Config
from dpadmm_mpi.data.dataset import Dataset
from dpadmm_mpi.errors import InputError
from dpadmm_mpi.methods.base import Plan, loss_of
from dpadmm_mpi.methods.measures import Optimum, StarMeasures
from dpadmm_mpi.methods.star import accounts as star
from dpadmm_mpi.methods.star.algorithm import SOURCES, Settings, Star
from dpadmm_mpi.methods.star.svrg import Inner
from dpadmm_mpi.networks.graphs import Graph
from dpadmm_mpi.privacy import gaussian_noise
from dpadmm_mpi.privacy.account import Account
from dpadmm_mpi.privacy.gaussian_noise import GaussianLedger
from dpadmm_mpi.privacy.releases import StarReleases
from dpadmm_mpi.problems.local_problems import Problems
from dpadmm_mpi.problems.objective import NodeProblem

if TYPE_CHECKING:
    from dpadmm_mpi.parallel.mpi import Transport

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

NOT_PRIVATE = "none: the exact values are released"
UNEVEN = 1.05  # largest over smallest provider, from which on the difference is more than rounding


@dataclass(frozen=True)
class StarPlan(Plan):
    settings: Settings
    releases: StarReleases

    @cached_property
    def ledger(self) -> GaussianLedger:
        return star.ledger(self.releases, self.config.privacy.delta)

    @property
    def is_private(self) -> bool:
        return self.releases.noise_std > 0.0

    @property
    def source(self) -> str:
        return SOURCES[self.settings.method]

    @property
    def work_in_words(self) -> str:
        inner = self.settings.inner
        return super().work_in_words + ("" if inner is None else f" of {inner.steps} inner steps")

    @property
    def accounts(self) -> Sequence[Account]:
        l = self.ledger
        at = f"epsilon at delta = {l.delta:g}"
        paper, sound, proven = l.paper, l.sound, l.proven_paper
        if not self.is_private:
            paper, sound, proven = NOT_PRIVATE, NOT_PRIVATE, True
        return (
            Account("epsilon_paper", f"{at}, paper's", l.node_epsilon_paper, paper, proven, l.neighbours_paper, l.delta),
            Account("epsilon_sound", f"{at}, sound", l.node_epsilon_sound, sound, l.proven_sound, l.neighbours_sound, l.delta),
        )

    @property
    def schedules(self) -> Mapping[str, tuple[Array, str]]:
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
        return {name: (value * spread, text) for name, (value, text) in used.items()}

    @property
    def privacy_in_words(self) -> str:
        if not self.is_private:
            return NOT_PRIVATE
        words = f"noise of standard deviation {self.releases.noise_std:.4g} on every inner gradient ({self.source})"
        return f"{words}; neighbours: {star.NEIGHBOURS}"

    def improvements(self) -> list[str]:
        if not self.is_private:
            return []
        worst, M = int(self.sizes.argmin()), self.sizes
        more = f"more records at node {worst} (it has {M[worst]}" + (f", others up to {M.max()})" if M.max() > M.min() else ")")
        return [more, "a larger privacy.noise_std or a smaller privacy.target", "fewer inner steps", "fewer iterations"]

    def conditions(self, f_ref: float, tau: float, beta: float) -> list[str]:
        s, inner, v_f = self.settings, self.settings.inner, self.loss.c1
        if inner is None:
            return [f"holds  convergence: convex losses and rho > 0 ({self.source}), margin {s.rho:.4g}"]
        delta = self.config.privacy.delta
        return star.conditions(self.releases, delta, s.rho, inner.eta, inner.v_L, v_f, mu_f=0.0, distance=f_ref)

    def problem(self, signed: Any) -> NodeProblem:
        """f_i: the regulariser is the server's."""
        return NodeProblem(signed, self.loss, C=1.0, ridge=0.0)

    def problems(self, shards: Iterable[Any]) -> Sequence[NodeProblem]:
        """For exact solves with what those keep; inner steps take records as they are stored."""
        problems = super().problems(shards)
        return Problems(problems) if self.settings.inner is None else problems

    def algorithm(self, places: Ints, problems: Sequence[NodeProblem]) -> Star:
        return Star(self.settings, places, problems)

    @property
    def measures_class(self) -> type[StarMeasures]:
        return StarMeasures

    def optimum(self, transport: "Transport", problems: Sequence[NodeProblem], owner: Ints) -> Optimum | None:
        """argmin_z sum_i f_i(z) + reg ||z||^2"""
        from dpadmm_mpi.methods.centralised_optimum import centralised_optimum

        ridge = 2.0 * self.settings.reg / self.nodes
        return centralised_optimum(transport, problems, owner, self.features, ridge, self.config.record.optimum)


def make_plan(config: Config, graph: Graph, dataset: Dataset) -> StarPlan:
    releases = _releases(config, dataset)
    settings = Settings(
        method=config.algorithm.method,
        rho=float(config.algorithm.rho or 0.0),
        reg=float(config.problem.reg or 0.0),
        inner=_inner(config, releases.noise_std),
        init=str(config.algorithm.init),
        nodes=graph.nodes,
        seed=config.seed,
        features=dataset.features,
    )
    return StarPlan(
        config=config,
        graph=graph,
        sizes=dataset.sizes,
        total_records=len(dataset.node_of_record()),
        features=dataset.features,
        settings=settings,
        releases=releases,
        notes=tuple(_notes(config, releases)),
    )


def _releases(config: Config, dataset: Dataset) -> StarReleases:
    """What the providers release; with a target, at the noise that meets it."""
    privacy = config.privacy
    releases = StarReleases(
        iterations=config.iterations,
        inner_steps=config.algorithm.inner_steps or 1,
        M=dataset.sizes.astype(np.float64),
        noise_std=float(privacy.noise_std or 0.0),
        features=dataset.features,
        G=loss_of(config).slope_bound,
    )
    if privacy.target is None:
        return releases
    return star.calibrate(releases, privacy.target, str(privacy.target_account), privacy.delta)


def _inner(config: Config, noise_std: float) -> Inner | None:
    algorithm = config.algorithm
    if algorithm.inner_steps is None:
        return None
    rho = float(algorithm.rho or 0.0)
    v_L = loss_of(config).c1 + rho
    extrapolated = algorithm.averaging == "extrapolated"
    # Half of the largest step that [S] allows: beyond it xi and zeta, which grow like 1/(1 - 2 eta v_L), magnify the noise.
    eta = float(algorithm.eta) if isinstance(algorithm.eta, int | float) else 1.0 / (4.0 * v_L)
    largest, words = (0.5 / v_L, "1/(2 v_L)") if extrapolated else (2.0 / v_L, "2/v_L")
    if eta >= largest:
        raise InputError(
            f'algorithm.eta: found {eta:g}, but the inner steps with averaging = "{algorithm.averaging}" need it below '
            f'{words} = {largest:.4g} (v_L = c1 + rho = {v_L:g}); lower it, or use "auto"'
        )
    return Inner(
        steps=algorithm.inner_steps,
        eta=eta,
        rho=rho,
        v_L=v_L,
        extrapolated=extrapolated,
        width=float(config.problem.width or 0.0),
        noise_std=noise_std,
    )


def _notes(config: Config, releases: StarReleases) -> list[str]:
    notes, M = [], releases.M
    if M.max() > UNEVEN * M.min():
        notes.append(
            f"the providers have {M.min():.0f} to {M.max():.0f} records, but every provider's mean loss counts the same, so a "
            "record of a small provider weighs more"
        )
    if config.algorithm.averaging == "extrapolated":
        notes.append("the extrapolated average of [S] is no convex combination: its zeta is negative, and it magnifies noise")
    if releases.noise_std > 0.0 and star.paper_margin(releases, config.privacy.delta).min() < 0.0:
        notes.append(
            "the paper's account lies outside of its own theorem's range, epsilon <= c1 K S / M^2 with c1 = 1 "
            "([S] Theorem 2); the sound account does not depend on it"
        )
    privacy = config.privacy
    return notes + gaussian_noise.notes(privacy.target, privacy.target_account, privacy.delta)
