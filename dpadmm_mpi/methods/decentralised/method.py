"""The members of the decentralised family: a class each, with its equation numbers and its options."""

from typing import Annotated, Any, ClassVar, Self

from msgspec.structs import replace

from dpadmm_mpi.config.options import NoKey
from dpadmm_mpi.config.ranges import Between, Space
from dpadmm_mpi.config.schedules import NonNegativeSchedule, Schedule, refuse_lacking_first
from dpadmm_mpi.data.dataset import Dataset
from dpadmm_mpi.errors import InputError
from dpadmm_mpi.methods.base import Config, Plan, methods
from dpadmm_mpi.methods.decentralised.algorithm import Node, State, recycled_step
from dpadmm_mpi.methods.decentralised.plan import NetworkMethod, make_plan
from dpadmm_mpi.methods.release import FreeAccuracy, FreeWithRecycling
from dpadmm_mpi.networks.topology import Topology


class Decentralised(NetworkMethod):
    """A method on a network without a server: every node solves, releases its primal variable, and hears its neighbours.

    Derive from it, or from one of its members, for a method of your own.
    """

    formulas: ClassVar[tuple[str, ...]] = (
        r"f_i(t) = \argmin_f O_i(f) + (2 \lambda_i(t-1) + n_i(t)) \cdot f"
        r" + \eta_i(t) \sum_j \lVert \frac{f_i(t-1) + f_j(t-1)}{2} - f \rVert^2",
        r"\lambda_i(t) = \lambda_i(t-1) + \frac{\theta_i(t)}{2} \sum_j (f_i(t) - f_j(t))",
    )

    allow_unproven: bool = False  # run although penalties fall or theta exceeds eta, which no theorem covers

    @property
    def runs_unproven(self) -> bool:
        return self.allow_unproven

    def plan(self, config: Config, topology: Topology, dataset: Dataset[Any]) -> Plan[State]:
        return make_plan(self, config, topology, dataset)


@methods.register("admm")
class Admm(Decentralised):
    """Conventional decentralised ADMM: one fixed penalty, which is the dual step too."""

    source: ClassVar[str] = "[M] (8)-(9)"
    own_penalties: ClassVar[bool] = False


@methods.register("m-admm")
class MAdmm(Decentralised):
    """Modified ADMM: penalties of each node's own, which may grow, and a dual step of its own."""

    source: ClassVar[str] = "[M] (10)-(11)"
    decoupled: ClassVar[bool] = True

    theta: Schedule | None = None  # the dual step, a schedule like eta; the smallest first penalty, if it is not given

    @property
    def dual_schedule(self) -> Schedule | None:
        return self.theta

    def check(self) -> None:
        super().check()
        refuse_lacking_first(self.theta, "algorithm.theta")


class Recycling(Decentralised):
    """Even iterations recycle the step before instead of touching the records."""

    general_form: ClassVar[str] = "mr-admm"
    formulas: ClassVar[tuple[str, ...]] = (
        *Decentralised.formulas,
        r"\tilde g_i = -2 \lambda_i(2k-2) - \eta_i(2k-1) \sum_j (2 f_i(2k-1) - f_i(2k-2) - f_j(2k-2))",
        r"f_i(2k) = f_i(2k-1) - \frac{\tilde g_i + 2 \lambda_i(2k-1) + \eta_i(2k-1) \sum_j (f_i(2k-1) - f_j(2k-1))}"
        r"{2 \eta_i(2k-1) V_i + \gamma}",
    )

    release: ClassVar[type[FreeAccuracy]] = FreeWithRecycling

    gamma: NonNegativeSchedule = 0.5  # a schedule over the recycled steps, like eta
    recycled_steps: Annotated[int, NoKey()] = 1  # after each data step: release.recycle

    @property
    def recycling_gamma(self) -> NonNegativeSchedule | None:
        return self.gamma

    def check(self) -> None:
        super().check()
        refuse_lacking_first(self.gamma, "algorithm.gamma")

    def recycling(self, steps: int | None) -> Self:
        if steps in (None, self.recycled_steps):
            return self
        if type(self).is_data_step is not Recycling.is_data_step:
            raise InputError(f"release.recycle: {methods.name_of(type(self))} says itself which steps recycle; remove it")
        return replace(self, recycled_steps=steps)

    @classmethod
    def tuned(cls) -> Space:
        return {**super().tuned(), "algorithm.gamma": Between(0.1, 30.0, log=True, start=3.0, times=cls.tuned_eta())}

    def is_data_step(self, t: int) -> bool:
        return t % (self.recycled_steps + 1) == 1 % (self.recycled_steps + 1)

    def recycled_step(self, node: Node, state: State, t: int) -> State:
        """The steps after the first minimise the same model of O_i, whose gradient at the new point they leave behind."""
        gamma = node.gamma(t)
        primal = recycled_step(state, node.eta(t), node.degree, gamma)
        if self.is_data_step(t + 1):
            return state._replace(primal=primal)
        return state._replace(primal=primal, gradient=state.gradient + gamma * (primal - state.primal))


@methods.register("r-admm")
class RAdmm(Recycling):
    """Recycled ADMM: every second iteration reuses the step before and costs no privacy; one fixed penalty."""

    source: ClassVar[str] = "[R] (10)-(13), Algorithm 1"
    own_penalties: ClassVar[bool] = False


@methods.register("mr-admm")
class MRAdmm(Recycling):
    """Modified recycled ADMM: recycled steps, and penalties of each node's own, which may grow."""

    source: ClassVar[str] = "[R] (14)-(17), Algorithm 2"

    theta: Schedule | None = None  # the dual step; eta, as printed, which with unequal penalties does not end at the optimum

    @property
    def dual_schedule(self) -> Schedule | None:
        return self.theta

    def check(self) -> None:
        super().check()
        refuse_lacking_first(self.theta, "algorithm.theta")
