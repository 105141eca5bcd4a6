"""The members of the star family: a class each, with its equation numbers and its options."""

from typing import Any, ClassVar, Literal

from dpadmm_mpi.config.options import Auto, Count, Positive
from dpadmm_mpi.config.ranges import Between, Space, Whole
from dpadmm_mpi.data.dataset import Dataset
from dpadmm_mpi.methods.base import Config, Method, Plan, Terms, methods
from dpadmm_mpi.methods.gaussian import needs_target_or_size, refuse_mu, tuned_noise
from dpadmm_mpi.methods.release import FreeAccuracy
from dpadmm_mpi.methods.star.algorithm import State
from dpadmm_mpi.methods.star.plan import InnerOptions, StarOptions, StarTerms, make_plan
from dpadmm_mpi.networks.topology import Topology
from dpadmm_mpi.privacy.perturbations import GradientPerturbation, NoPerturbation, Perturbation


class Star(Method):
    """A server and N providers with their own records: consensus by exchanging x_i and z."""

    hub: ClassVar[bool] = True
    release: ClassVar[type[FreeAccuracy]] = FreeAccuracy
    terms: ClassVar[type[Terms]] = StarTerms
    formulas: ClassVar[tuple[str, ...]] = (
        r"x_i^{k+1} = \argmin_x f_i(x) + \lambda_i^k \cdot x + \frac{\rho}{2} \lVert x - z^k \rVert^2",
        r"z^{k+1} = \frac{\sum_i \lambda_i^k + \rho \sum_i x_i^{k+1}}{N \rho + 2 \text{reg}}",
        r"\lambda_i^{k+1} = \lambda_i^k + \rho (x_i^{k+1} - z^{k+1})",
    )

    rho: Positive | Auto = 1.0  # the penalty; auto: from the problem's constants
    init: Literal["random", "zero"] = "zero"  # the first values; they never depend on the records

    @property
    def inner(self) -> InnerOptions | None:
        """What the options say about inner steps; None: exact solves."""
        return None

    @property
    def paper_constant(self) -> float:
        """c of [S] Theorem 2."""
        return 1.0

    @property
    def options(self) -> StarOptions:
        return StarOptions(self.rho, self.init, self.inner, self.paper_constant)

    @classmethod
    def tuned(cls) -> Space:
        return {
            "iterations": Whole(1, 30, log=True, start=6),
            "algorithm.rho": Between(1e-3, 10.0, log=True, start=0.1),
            "problem.reg": Between(1e-6, 1e-2, log=True, start=1e-4),
            **tuned_noise(cls),
            **cls.tuned_release(),
        }

    def plan(self, config: Config, topology: Topology, dataset: Dataset[Any]) -> Plan[State]:
        return make_plan(self, self.options, config, topology, dataset)


@methods.register("star-admm")
class StarAdmm(Star):
    """Consensus ADMM with a server, every provider's problem solved exactly."""

    source: ClassVar[str] = "[S] (4)-(6)"


class Stochastic(Star):
    """Providers take stochastic inner steps (SVRG) instead of solving exactly."""

    predicts: ClassVar[tuple[str, ...]] = ("binary",)
    formulas: ClassVar[tuple[str, ...]] = (
        r"v^{s+1} = v^s - \eta ( \nabla \ell_m(v^s) - \nabla \ell_m(x_i^k) + \nabla f_i(x_i^k) + \lambda_i^k"
        r" + \rho (v^s - z^k) + n_i^s ) \text{,   }  x_i^{k+1} \text{ their average}",
        *Star.formulas[1:],
    )
    eta: Positive | Auto = "auto"  # the step size; auto: from the smoothness
    inner_steps: Count = 100  # S
    averaging: Literal["uniform", "extrapolated"] = "uniform"  # of the inner iterates; the paper's is extrapolated
    batch_size: Count = 1  # records of an inner step, drawn without repetition
    radius: Positive | None = None  # of the ball C that inner iterates, x_i and z are kept in

    @classmethod
    def tuned(cls) -> Space:
        return {
            **super().tuned(),
            "algorithm.eta": Between(0.01, 10.0, log=True, start=0.5),
            "algorithm.inner_steps": Whole(5, 500, log=True, start=50),
        }

    @property
    def inner(self) -> InnerOptions | None:
        return InnerOptions(self.inner_steps, self.eta, self.averaging, self.batch_size, self.radius)


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

    paper_c: Positive = 1.0  # c of [S] Theorem 2, which is not given there: scales the paper's noise and epsilon

    @property
    def paper_constant(self) -> float:
        return self.paper_c

    def check_privacy(self, perturbation: Perturbation) -> None:
        needs_target_or_size(self, perturbation)
        refuse_mu(self, perturbation)
