"""The members of the star family: a class each, with its equation numbers and its options."""

from typing import Any, ClassVar, Literal

from dpadmm_mpi.config.options import Auto, Count, Positive
from dpadmm_mpi.data.dataset import Dataset
from dpadmm_mpi.methods.base import Config, Method, Plan, Terms, methods
from dpadmm_mpi.methods.gaussian import needs_constant_noise, needs_target_or_size
from dpadmm_mpi.methods.star.algorithm import State
from dpadmm_mpi.methods.star.plan import InnerOptions, StarTerms, make_plan
from dpadmm_mpi.networks.topology import Topology
from dpadmm_mpi.privacy.perturbations import GradientPerturbation, NoPerturbation, Perturbation


class Star(Method):
    """A server and N providers with their own records: consensus by exchanging x_i and z."""

    hub: ClassVar[bool] = True
    terms: ClassVar[type[Terms]] = StarTerms

    rho: Positive = 1.0  # the penalty
    init: Literal["random", "zero"] = "zero"

    @property
    def inner(self) -> InnerOptions | None:
        """What the options say about inner steps; None: exact solves."""
        return None

    def plan(self, config: Config, topology: Topology, dataset: Dataset[Any]) -> Plan[State]:
        return make_plan(self, self.inner, self.rho, self.init, config, topology, dataset)


@methods.register("star-admm")
class StarAdmm(Star):
    """Consensus ADMM with a server, every provider's problem solved exactly."""

    source: ClassVar[str] = "[S] (4)-(6)"


class Stochastic(Star):
    """Providers take stochastic inner steps (SVRG) instead of solving exactly."""

    eta: Positive | Auto = "auto"  # the step size; auto: from the smoothness
    inner_steps: Count = 100  # S
    averaging: Literal["uniform", "extrapolated"] = "uniform"  # of the inner iterates; the paper's is extrapolated

    @property
    def inner(self) -> InnerOptions | None:
        return InnerOptions(self.inner_steps, self.eta, self.averaging)


@methods.register("s-admm")
class SAdmm(Stochastic):
    """Stochastic ADMM: consensus with a server and SVRG inner steps, without noise."""

    source: ClassVar[str] = "[S] Algorithm 1"


@methods.register("ps-admm")
class PSAdmm(Stochastic):
    """Private stochastic ADMM: Gaussian noise on every inner gradient."""

    source: ClassVar[str] = "[S] Algorithm 2"
    perturbations: ClassVar[tuple[type[Perturbation], ...]] = (NoPerturbation, GradientPerturbation)
    default_perturbation: ClassVar[str] = "gaussian"

    def check_privacy(self, perturbation: Perturbation) -> None:
        needs_target_or_size(self, perturbation)
        needs_constant_noise(self, perturbation)
