"""The members of the gradient family: a class each, with its source and its options."""

from typing import Annotated, Any, ClassVar, Literal

from msgspec import Meta

from dpadmm_mpi.config.options import Auto, Count, Positive
from dpadmm_mpi.config.ranges import Between, OneOf, Space, Whole
from dpadmm_mpi.config.schedules import Geometric
from dpadmm_mpi.data.dataset import Dataset
from dpadmm_mpi.methods.base import Config, Method, Plan, Terms, methods
from dpadmm_mpi.methods.decentralised.algorithm import State
from dpadmm_mpi.methods.decentralised.plan import PER_RECORD, ConsensusTerms
from dpadmm_mpi.methods.gaussian import needs_target_or_size, refuse_mu, tuned_noise
from dpadmm_mpi.methods.gradient.plan import GradientOptions, make_plan
from dpadmm_mpi.networks.topology import Topology
from dpadmm_mpi.privacy.perturbations import CorrelatedGradients, GradientPerturbation, NoPerturbation, Perturbation

Momentum = Annotated[float, Meta(ge=0, lt=1)]
TUNED_MOMENTUM = Between(0.0, 0.95, start=0.8)


class Gradient(Method):
    """A node moves along noisy gradients of its own objective and mixes what its neighbours send, by Metropolis weights."""

    terms: ClassVar[type[Terms]] = ConsensusTerms
    perturbations: ClassVar[tuple[type[Perturbation], ...]] = (NoPerturbation, GradientPerturbation, CorrelatedGradients)
    default_perturbation: ClassVar[str] = "gaussian"
    stands_faults: ClassVar[bool] = True
    steps: ClassVar[tuple[str, ...]] = ("gradient_options",)
    formulas: ClassVar[tuple[str, ...]] = (
        r"x_i(t-1) = \sum_j W_{ij} \psi_j(t-1)",
        r"m_i(t) = \beta m_i(t-1) + \nabla O_i(x_i(t-1)) + n_i(t)",
        r"\psi_i(t) = x_i(t-1) - a(t) m_i(t)",
    )

    # The step size: a number, { first, ratio, limit }, one for each gradient; auto: 1/L, L = C c1 + rho/N, also as `first`
    step: Positive | Geometric | list[Positive] | Auto = "auto"
    init: Literal["random", "zero"] = "zero"  # the first values; they never depend on the records

    @classmethod
    def tuned(cls) -> Space:
        """Many quiet gradients are as good as few loud ones, so the step and its momentum matter; 1/L is about 4/C."""
        return {
            "iterations": Whole(5, 200, log=True, start=50),
            "algorithm.step": Between(0.5, 20.0, log=True, start=4.0, times="1/problem.C"),
            "problem.rho": Between(0.1, 50.0, log=True, start=2.0, times=PER_RECORD),
            **tuned_noise(cls),
            **cls.tuned_release(),
        }

    @property
    def gradient_options(self) -> GradientOptions:
        return GradientOptions(self.step, self.init)

    def data_steps_in(self, iterations: int) -> int:
        return -(-iterations // self.gradient_options.mixing_steps)

    def plan(self, config: Config, topology: Topology, dataset: Dataset[Any]) -> Plan[State]:
        return make_plan(self, self.gradient_options, config, topology, dataset)

    def check_privacy(self, perturbation: Perturbation) -> None:
        needs_target_or_size(self, perturbation)
        refuse_mu(self, perturbation)


@methods.register("dp-dgd")
class DpDgd(Gradient):
    """Private decentralised gradient descent with momentum: a noisy gradient step, then one mixing step."""

    source: ClassVar[str] = "Nedic, Ozdaglar 2009; mixing and step in the order of Chen, Sayed 2012"

    momentum: Momentum = 0.8  # of heavy-ball steps, from noisy gradients alone

    @classmethod
    def tuned(cls) -> Space:
        return {**super().tuned(), "algorithm.momentum": TUNED_MOMENTUM}

    @property
    def gradient_options(self) -> GradientOptions:
        return super().gradient_options._replace(momentum=self.momentum)


@methods.register("gossip")
class Gossip(Gradient):
    """Muffliato: a noisy gradient step, then several Chebyshev-accelerated mixing steps of one iteration each."""

    source: ClassVar[str] = "Cyffers, Even, Bellet, Massoulie 2022, Algorithms 1 and 3"

    momentum: Momentum = 0.8  # of heavy-ball steps, from noisy gradients alone; 0: as printed
    mixing_steps: Count = 3  # iterations of a gradient, each with one exchange; the first of them has the gradient
    accelerated: bool = True  # Chebyshev's weights, or plain mixing

    @classmethod
    def tuned(cls) -> Space:
        own: Space = {"algorithm.momentum": TUNED_MOMENTUM, "algorithm.mixing_steps": OneOf((3, 1, 2, 5))}
        return {**super().tuned(), **own}

    @property
    def gradient_options(self) -> GradientOptions:
        about = super().gradient_options
        return about._replace(momentum=self.momentum, mixing_steps=self.mixing_steps, accelerated=self.accelerated)


@methods.register("dp-gradient-tracking")
class DpGradientTracking(Gradient):
    """Private gradient tracking: the nodes also track the mean of their noisy gradients, so a constant step is enough."""

    source: ClassVar[str] = "Xu, Zhu, Soh, Xie 2015 (adapt-then-combine gradient tracking), noisy gradients"
    formulas: ClassVar[tuple[str, ...]] = (
        r"y_i(t) = \sum_j W_{ij} ( y_j(t-1) + \tilde g_j(t) - \tilde g_j(t-1) )",
        r"x_i(t) = \sum_j W_{ij} ( x_j(t-1) - a(t) y_j(t) ) \text{,   }  \tilde g_i(t) = \nabla O_i(x_i(t-1)) + n_i(t)",
    )

    @property
    def gradient_options(self) -> GradientOptions:
        return super().gradient_options._replace(tracks=True)
