"""The members of the curated family: a class each, with its algorithm's number and its options."""

from typing import Any, ClassVar, Literal

from dpadmm_mpi.config.options import Auto, Count, NonNegative, OpenFraction, Positive
from dpadmm_mpi.config.ranges import Between, Space, Whole
from dpadmm_mpi.data.dataset import Dataset
from dpadmm_mpi.methods.base import Config, Method, Plan, Terms, methods
from dpadmm_mpi.methods.curated.algorithm import State
from dpadmm_mpi.methods.curated.plan import CuratedTerms, StepOptions, make_plan
from dpadmm_mpi.methods.gaussian import needs_target_or_size, tuned_noise
from dpadmm_mpi.methods.release import FreeAccuracy
from dpadmm_mpi.networks.topology import Topology
from dpadmm_mpi.privacy.perturbations import GradientPerturbation, NoPerturbation, Perturbation


class Curated(Method):
    """A curator takes all steps from the gradients that the shards send."""

    hub: ClassVar[bool] = True
    release: ClassVar[type[FreeAccuracy]] = FreeAccuracy
    terms: ClassVar[type[Terms]] = CuratedTerms
    predicts: ClassVar[tuple[str, ...]] = ("binary", "number")

    rho: Positive | Auto = 1.0  # the penalty; auto: lambda1 sqrt(rows of A) / ||A|| for l1, lambda1 for l2
    init: Literal["random", "zero"] = "zero"  # the first values; they never depend on the records

    @property
    def step_options(self) -> StepOptions:
        return StepOptions(rho=self.rho, init=self.init)

    @classmethod
    def tuned(cls) -> Space:
        return {
            "iterations": Whole(1, 60, log=True, start=15),
            "algorithm.rho": Between(1e-4, 1.0, log=True, start=0.01),
            "problem.lambda1": Between(1e-7, 1e-3, log=True, start=1e-5),
            **tuned_noise(cls),
            **cls.tuned_release(),
        }

    def plan(self, config: Config, topology: Topology, dataset: Dataset[Any]) -> Plan[State]:
        return make_plan(self, self.step_options, config, topology, dataset)

    def check_privacy(self, perturbation: Perturbation) -> None:
        needs_target_or_size(self, perturbation)


class Linearised(Curated):
    """f is replaced by its linear approximation in the x step."""

    formulas: ClassVar[tuple[str, ...]] = (
        r"w_t = \prox ( A \hat x + \hat u, \lambda_1 / \rho )",
        r"x_t = \hat x - \frac{\eta}{\gamma} ( \nabla f(\hat x) + n_t + \rho A^T (A \hat x - w_t + \hat u) )",
        r"u_t = \hat u + A x_t - w_t \text{   (w = A x)}",
    )

    eta: Positive | Auto = "auto"  # the step size; auto: 1/L_f
    gamma: NonNegative | Auto = "auto"  # auto: what [C]'s condition needs
    u0: Literal["zero", "as-printed"] = "zero"  # as printed it comes from the records without noise
    batch: Count | OpenFraction | None = None  # records, or their share, that a gradient is taken of; None: all

    @classmethod
    def tuned(cls) -> Space:
        return {**super().tuned(), "algorithm.eta": Between(0.5, 50.0, log=True, start=8.0)}

    @property
    def step_options(self) -> StepOptions:
        return super().step_options._replace(eta=self.eta, gamma=self.gamma, u0=self.u0, batch=self.batch)


class Accelerated(Linearised):
    """With Nesterov's momentum.

    restart = false is [C] Algorithm 3 as printed: no convergence is proven, and for a small rho there is none. true starts the
    momentum again when the residual grows (Goldstein et al. 2014, Algorithm 8): it converges, at the pace of the plain method.
    "safeguarded" has a quadratic model of the loss, made of the published gradients, in the place of the momentum, and falls
    back on plain steps: without noise it is proven to converge where eta <= 1/L_f and gamma >= eta rho ||A||^2 + 1, and it is
    the fastest of the three wherever it was tried.
    """

    restart: bool | Literal["safeguarded"] = False  # of the momentum, when the residual grows; or a model in its place

    @property
    def step_options(self) -> StepOptions:
        return super().step_options._replace(accelerated=True, restart=self.restart)


@methods.register("gl-admm")
class GLAdmm(Linearised):
    """Linearised ADMM for generalised ERM with a linear map, without noise."""

    source: ClassVar[str] = "[C] Algorithm 2 without noise"


@methods.register("gl-acc-admm")
class GLAccAdmm(Accelerated):
    """Accelerated ADMM for generalised ERM, without noise."""

    source: ClassVar[str] = "[C] Algorithm 3 without noise"


@methods.register("dp-admm")
class DPAdmm(Linearised):
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


@methods.register("gl-exact-admm")
class GLExactAdmm(Curated):
    """ADMM for generalised ERM with the x step solved exactly, without noise."""

    source: ClassVar[str] = "[C] (3)-(5)"
    formulas: ClassVar[tuple[str, ...]] = (
        r"w_t = \prox ( A x_{t-1} + u_{t-1}, \lambda_1 / \rho )",
        r"x_t = \argmin_x f(x) + \frac{\rho}{2} \lVert A x - w_t + u_{t-1} \rVert^2",
        r"u_t = u_{t-1} + A x_t - w_t \text{   (w = A x)}",
    )

    @property
    def step_options(self) -> StepOptions:
        return super().step_options._replace(exact=True)
