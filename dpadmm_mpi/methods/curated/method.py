"""The members of the curated family: a class each, with its algorithm's number and its options."""

from typing import Any, ClassVar, Literal

from dpadmm_mpi.config.options import Auto, NonNegative, Positive
from dpadmm_mpi.data.dataset import Dataset
from dpadmm_mpi.methods.base import Config, Method, Plan, Terms, methods
from dpadmm_mpi.methods.curated.algorithm import State
from dpadmm_mpi.methods.curated.plan import CuratedTerms, StepOptions, make_plan
from dpadmm_mpi.methods.gaussian import needs_target_or_size
from dpadmm_mpi.networks.topology import Topology
from dpadmm_mpi.privacy.perturbations import GradientPerturbation, NoPerturbation, Perturbation


class Curated(Method):
    """A curator takes all steps from the gradients that the shards send."""

    hub: ClassVar[bool] = True
    terms: ClassVar[type[Terms]] = CuratedTerms

    eta: Positive | Auto = "auto"  # the step size; auto: 1/L_f
    gamma: NonNegative | Auto = "auto"  # auto: what [C]'s condition needs
    rho: Positive = 1.0  # the penalty
    u0: Literal["zero", "as-printed"] = "zero"  # as printed it comes from the records without noise
    init: Literal["random", "zero"] = "zero"

    @property
    def step_options(self) -> StepOptions:
        return StepOptions(False, self.rho, self.eta, self.gamma, self.u0, False, self.init)

    def plan(self, config: Config, topology: Topology, dataset: Dataset[Any]) -> Plan[State]:
        return make_plan(self, self.step_options, config, topology, dataset)

    def check_privacy(self, perturbation: Perturbation) -> None:
        needs_target_or_size(self, perturbation)


class Accelerated(Curated):
    """With Nesterov's momentum."""

    restart: bool = False  # of the momentum, when the residual grows

    @property
    def step_options(self) -> StepOptions:
        return super().step_options._replace(accelerated=True, restart=self.restart)


@methods.register("gl-admm")
class GLAdmm(Curated):
    """Linearised ADMM for generalised ERM with a linear map, without noise."""

    source: ClassVar[str] = "[C] Algorithm 2 without noise"


@methods.register("gl-acc-admm")
class GLAccAdmm(Accelerated):
    """Accelerated ADMM for generalised ERM, without noise."""

    source: ClassVar[str] = "[C] Algorithm 3 without noise"


@methods.register("dp-admm")
class DPAdmm(Curated):
    """DP-ADMM: the curator adds Gaussian noise to every mean gradient."""

    source: ClassVar[str] = "[C] Algorithm 2"
    perturbations: ClassVar[tuple[type[Perturbation], ...]] = (NoPerturbation, GradientPerturbation)
    default_perturbation: ClassVar[str] = "gaussian"


@methods.register("dp-acc-admm")
class DPAccAdmm(Accelerated):
    """DP-AccADMM: accelerated, with Gaussian noise on every mean gradient."""

    source: ClassVar[str] = "[C] Algorithm 3"
    perturbations: ClassVar[tuple[type[Perturbation], ...]] = (NoPerturbation, GradientPerturbation)
    default_perturbation: ClassVar[str] = "gaussian"
