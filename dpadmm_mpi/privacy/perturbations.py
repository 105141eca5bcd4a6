"""Where noise enters a data step, and the papers' cost of that (docs/mathematics.md, section 3)."""

from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from msgspec import Meta
from msgspec.structs import force_setattr

from dpadmm_mpi.config.options import Choice, Delta, Moderate, NonNegative, OpenFraction, Options
from dpadmm_mpi.config.schedules import Geometric, has_size, lacks_first
from dpadmm_mpi.errors import InputError
from dpadmm_mpi.privacy.data_steps import DataSteps, StepCost
from dpadmm_mpi.privacy.noises import Colluders, CorrelatedGaussian, Gamma, Noise, noises
from dpadmm_mpi.registry import Registry
from dpadmm_mpi.types import Array

perturbations = Registry["Perturbation"]("perturbation", "perturbations")


@perturbations.base
class Perturbation(Options):
    """A place where noise is added; or none."""

    source: ClassVar[str] = "-"  # where it is written down
    formulas: ClassVar[tuple[str, ...]] = ()  # what the paper says that it costs, in LaTeX, for the report
    private: ClassVar[bool] = True


class Budget(Options):
    """What the worst node may spend at most; the data step that would exceed it is not taken."""

    epsilon: Moderate
    delta: Annotated[float, Meta(ge=0, lt=1)] | None = None  # None: privacy.delta; 0: by the tighter pure bound
    # stop: the run ends when the first node has spent its budget; rest: such a node leaves its records alone from then on
    when_spent: Literal["stop", "rest"] = "stop"


class Calibrated(Perturbation):
    """Noise whose size may be found from a target."""

    target: Moderate | None = None  # total privacy of the worst node, which the noise is calibrated to
    target_account: str | None = None  # what the target is a value of
    budget: Budget | None = None  # what may be spent at most

    def __post_init__(self) -> None:
        if self.target is not None and self.target_account is None:
            force_setattr(self, "target_account", self.usual_account)

    @property
    def usual_account(self) -> str:
        """What a target is a value of, if nothing is said."""
        raise NotImplementedError

    def check(self) -> None:
        if self.target is None and self.target_account is not None:
            raise InputError("privacy.target_account: has no meaning without privacy.target; give a target or remove it")


@perturbations.register("none")
class NoPerturbation(Perturbation):
    """No noise: the exact values are released, and the privacy loss is infinite."""

    private: ClassVar[bool] = False


class DataStepPerturbation(Calibrated):
    """Noise in a data step of a method on a network; `noise` says which.

    A class from outside says where the noise enters, by `objective_factor` or `on_release`; without a `paper_cost` of its own,
    its runs have an infinite privacy loss.
    """

    on_release: ClassVar[bool] = False  # e_i is added to the argmin before it is released
    with_neighbours: ClassVar[bool] = False  # the noise is scaled with the number of neighbours: a single node has none
    fixed_penalty: ClassVar[bool] = False  # defined for a penalty that does not change
    theorem: ClassVar[str] = ""  # of `paper_cost`

    noise: Annotated[Noise, Choice(noises)] = Gamma()  # what is drawn
    # Standard deviation of Gaussian noise on what is released, beside the other, where solves end at algorithm.tolerance
    release_std: Moderate | None = None

    @property
    def usual_account(self) -> str:
        return self.noise.default_account

    def objective_factor(self, eta: Array, degree: Array) -> Array:
        """n_i / e_i: the multiple of the noise that is added to the objective's linear term."""
        return np.zeros_like(eta)

    def paper_cost(self, r: DataSteps) -> StepCost:
        """The papers' cost of a data step: a number, and the largest shift of the noise by one record; inf: there is none."""
        return StepCost(np.full_like(r.eta, np.inf), np.zeros_like(r.eta))

    def reference_penalty(self, r: DataSteps) -> Array | None:
        """The penalty in the condition 2 c1 < (B/C)(rho/N + 2 . V) of `theorem`; None: it has no condition."""
        return None

    def condition_words(self) -> str:
        return ""

    def check(self) -> None:
        name, key = perturbations.name_of(type(self)), self.noise.parameter
        schedule = self.noise.schedule
        if self.target is None and (schedule is None or lacks_first(schedule)):
            raise InputError(
                f'privacy.{key}: missing; perturbation = "{name}" needs {key} with its first value, or privacy.target'
            )
        if self.target is not None and has_size(schedule):
            raise InputError(
                f"privacy.{key} and privacy.target: give one of them; with a target, {key} may only say how it grows, "
                "as { ratio = 1.01 }"
            )
        super().check()


class ObjectivePerturbation(DataStepPerturbation):
    """Noise in the objective: the density of the released argmin has a determinant, which the theorems bound."""

    allow_unproven: bool = False  # run although the theorem's condition fails; the bound is then marked not proven


class TimesPenalty(ObjectivePerturbation):
    """n_i = 2 eta_i V_i e_i: the noise sits inside the penalty term."""

    with_neighbours: ClassVar[bool] = True
    theorem: ClassVar[str] = "[M] Theorem 4.1, (26)"
    formulas: ClassVar[tuple[str, ...]] = (r"P_i(t) = \sum_{r \le t} \frac{C (1.4 c_1 + \alpha_i(r))}{\eta_i(r) V_i B_i}",)

    def objective_factor(self, eta: Array, degree: Array) -> Array:
        return 2.0 * eta * degree

    def paper_cost(self, r: DataSteps) -> StepCost:
        """[M] (26): C (1.4 c1 + alpha) / (eta V B), for losses with |L'| <= G: G alpha"""
        share = r.C / (r.eta * r.V * r.B)
        return StepCost(1.4 * r.c1 * share, r.G * share)

    def reference_penalty(self, r: DataSteps) -> Array | None:
        return np.asarray(r.theta.min(axis=0))

    def condition_words(self) -> str:
        return "(B/C)(rho/N + 2 theta V)"


@perturbations.register("dual")
class Dual(TimesPenalty):
    """Dual variable perturbation (DVP): n_i = 2 eta_i V_i e_i in every data step, with a fixed penalty."""

    source: ClassVar[str] = "[M] 2.4(i), note 3"
    fixed_penalty: ClassVar[bool] = True


@perturbations.register("penalty")
class Penalty(TimesPenalty):
    """Penalty perturbation (PP): n_i = 2 eta_i(t) V_i e_i(t), inside the penalty term."""

    source: ClassVar[str] = "[M] (24)-(25)"


@perturbations.register("objective")
class Objective(ObjectivePerturbation):
    """n_i = e_i in the objective's linear term."""

    source: ClassVar[str] = "[R] (18)"
    formulas: ClassVar[tuple[str, ...]] = (
        r"P_i(t) = \sum_{r \le t} \frac{2 C}{B_i} ( \frac{1.4 c_1}{\rho/N + 2 \eta_i(r) V_i} + \alpha_i(r) )",
    )
    theorem: ClassVar[str] = "[R] Theorem V.1, (32), summed over the data steps"

    def objective_factor(self, eta: Array, degree: Array) -> Array:
        return np.ones_like(eta)

    def paper_cost(self, r: DataSteps) -> StepCost:
        """[R] (32): (2C/B) (1.4 c1 / (rho/N + 2 eta V) + alpha), for losses with |L'| <= G: G alpha"""
        share = np.broadcast_to(2.0 * r.C / r.B, r.eta.shape)
        return StepCost(share * 1.4 * r.c1 / r.curvature, r.G * share)

    def reference_penalty(self, r: DataSteps) -> Array | None:
        return np.asarray(r.eta.min(axis=0))  # the first, where penalties do not fall

    def condition_words(self) -> str:
        return "(B/C)(rho/N + 2 eta(1) V)"


@perturbations.register("primal")
class Primal(DataStepPerturbation):
    """Output perturbation (PVP): the exact argmin plus e_i is released, and the node goes on from there."""

    source: ClassVar[str] = "[M] 2.4(ii)"
    formulas: ClassVar[tuple[str, ...]] = (r"P_i(t) = \sum_{r \le t} \frac{2 C \alpha_i(r)}{B_i (\rho/N + 2 \eta_i(r) V_i)}",)
    on_release: ClassVar[bool] = True
    theorem: ClassVar[str] = "noise on the argmin: its sensitivity is that of the gradient over the strong convexity"

    def paper_cost(self, r: DataSteps) -> StepCost:
        """Sensitivity of the argmin, (2 G C/B) / (rho/N + 2 eta V)"""
        return StepCost(np.zeros_like(r.eta), 2.0 * r.G * r.C / (r.B * r.curvature))


class NoisyGradients(Calibrated):
    """Gaussian noise on every gradient, of standard deviation `noise_std` or calibrated to a target."""

    # Standard deviation of the noise on a gradient: one, one per iteration, or a first one and a ratio
    noise_std: Moderate | Geometric | list[Moderate] | None = None

    @property
    def usual_account(self) -> str:
        return "sound"


@perturbations.register("gaussian")
class GradientPerturbation(NoisyGradients):
    """Gaussian noise on every gradient, of standard deviation `noise_std` or calibrated to a target.

    `noise_std` is a number, a geometric law or a list over the iterations; with a target it may only say how it grows, as
    { ratio = 0.98 }.
    """

    mu: OpenFraction | None = None  # share of epsilon that [C] Theorem 1 gives to the Renyi divergence; None: 0.5, curated only


@perturbations.register("correlated-gaussian")
class CorrelatedGradients(NoisyGradients):
    """Gaussian noise on every gradient of a method on a network, with a part that neighbours share and that cancels in the sum.

    As the noise of that name in data steps: neighbours agree on a secret seed, the shared part of an edge is N(0, (edge_ratio
    noise_std)^2 I), added by one end and taken away by the other. The accounts hold against an eavesdropper together with
    `colluders` nodes.
    """

    edge_ratio: NonNegative = 1.0  # standard deviation of the noise on an edge : noise_std
    colluders: Colluders = 1  # how many nodes pool what they know, at most, or which ones

    @property
    def shared(self) -> CorrelatedGaussian:
        return CorrelatedGaussian(edge_ratio=self.edge_ratio, colluders=self.colluders)


class Privacy(Options):
    """Where noise enters, of which kind and size."""

    perturbation: Annotated[Perturbation, Choice(perturbations)] = NoPerturbation()  # where noise enters; none: no privacy
    delta: Delta = 1e-5  # of the (epsilon, delta) accounts

    def check(self) -> None:
        self.perturbation.check()


# Naming one of these leaves an inherited other behind.
LEAVES_BEHIND = {
    ("privacy", "alpha"): ("target", "target_account"),
    ("privacy", "noise_std"): ("target", "target_account"),
    ("privacy", "target"): ("alpha", "noise_std"),
}
NOISE_KEYS = (
    "perturbation", "noise", "alpha", "noise_std", "edge_ratio", "colluders", "mu", "target", "target_account",
)  # fmt: skip


def size_of(schedule: Any) -> Any:
    """The schedule of a noise whose size calibration finds: its shape, or 1."""
    return 1.0 if schedule is None else schedule
