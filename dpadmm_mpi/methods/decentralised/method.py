"""The members of the decentralised family: a class each, with its equation numbers and its options."""

from typing import Any, ClassVar

from dpadmm_mpi.config.ranges import Between, Space
from dpadmm_mpi.config.schedules import NonNegativeSchedule, Schedule, refuse_lacking_first
from dpadmm_mpi.data.dataset import Dataset
from dpadmm_mpi.methods.base import Config, Plan, methods
from dpadmm_mpi.methods.decentralised.algorithm import Node, State, recycled_step
from dpadmm_mpi.methods.decentralised.plan import NetworkMethod, make_plan
from dpadmm_mpi.networks.topology import Topology


class Decentralised(NetworkMethod):
    """A method on a network without a server: every node solves, releases its primal variable, and hears its neighbours.

    Derive from it, or from one of its members, for a method of your own.
    """

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

    gamma: NonNegativeSchedule = 0.5  # a schedule over the recycled steps, like eta

    @property
    def recycling_gamma(self) -> NonNegativeSchedule | None:
        return self.gamma

    def check(self) -> None:
        super().check()
        refuse_lacking_first(self.gamma, "algorithm.gamma")

    @classmethod
    def tuned(cls) -> Space:
        return {**super().tuned(), "algorithm.gamma": Between(0.1, 30.0, log=True, start=3.0, times=cls.tuned_eta())}

    def is_data_step(self, t: int) -> bool:
        return t % 2 == 1

    def recycled_step(self, node: Node, state: State, t: int) -> State:
        return state._replace(primal=recycled_step(state, node.eta(t), node.degree, node.gamma(t)))


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
