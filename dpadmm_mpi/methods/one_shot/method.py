"""Methods with a single data step (docs/baselines.md): its privacy is that of a data step of the methods on a network."""

from collections.abc import Sequence
from typing import Any, ClassVar, Literal

from dpadmm_mpi.config.options import NonNegative
from dpadmm_mpi.config.ranges import Space
from dpadmm_mpi.data.dataset import Dataset
from dpadmm_mpi.data.merged import MergedDataset
from dpadmm_mpi.methods.base import Config, Plan, methods
from dpadmm_mpi.methods.decentralised.algorithm import Node, State
from dpadmm_mpi.methods.decentralised.plan import NetworkMethod, make_plan
from dpadmm_mpi.methods.nodes import replaced
from dpadmm_mpi.methods.one_shot.plan import OneShotPlan
from dpadmm_mpi.networks.metropolis import accelerated
from dpadmm_mpi.networks.topology import Topology, alone
from dpadmm_mpi.privacy.perturbations import NoPerturbation, Objective, Perturbation, Primal
from dpadmm_mpi.types import Array


class SingleSolve(NetworkMethod):
    """One private solve, in the first iteration; then what was released is averaged over the network."""

    perturbations: ClassVar[tuple[type[Perturbation], ...]] = (NoPerturbation, Objective, Primal)
    default_perturbation: ClassVar[str] = "objective"
    mixes: ClassVar[bool] = True
    counts_heard: ClassVar[bool] = False
    extra_state: ClassVar[tuple[str, ...]] = ("previous",)  # what was sent in the iteration before, for Chebyshev's step

    # Of eta ||f||^2 beside the objective, which makes the argmin less sensitive: mu = rho/N + 2 eta; 0: the objective alone
    eta: NonNegative = 0.0
    init: Literal["random", "zero"] = "zero"  # what nodes have before the first iteration; no result depends on it

    @classmethod
    def tuned(cls) -> Space:
        """Of the methods on a network, what concerns a single data step."""
        kept = ("algorithm.eta", "problem.rho", "privacy.noise")
        return {key: each for key, each in super().tuned().items() if key in kept}

    def is_data_step(self, t: int) -> bool:
        return t == 1

    def penalty(self, node: Node, state: State, t: int, noise: Array) -> tuple[Array, Array]:
        """n_i.f + eta ||f||^2"""
        return noise, 2.0 * node.eta(t)[:, 0]

    def recycled_step(self, node: Node, state: State, t: int) -> State:
        """A mixing step of what was released."""
        mixed = node.own_weight * state.primal + state.neighbour_sum
        primal = accelerated(mixed, state._asdict()["previous"], node.settings.omega[t - 2])
        return replaced(state, {"primal": primal, "previous": state.primal})

    def recycled_again(self, node: Node, history: Sequence[State], t: int, gradient: Array) -> State:
        return self.recycled_step(node, replaced(history[t - 1], {"previous": history[t - 2].primal}), t)

    def dual_step(self, node: Node, state: State, t: int) -> State:
        """There are no duals."""
        return state

    def plan(self, config: Config, topology: Topology, dataset: Dataset[Any]) -> Plan[State]:
        return make_plan(self, config, topology, dataset, kind=OneShotPlan)


@methods.register("one-shot")
class OneShot(SingleSolve):
    """Every node solves its own problem once, with the whole budget; then Chebyshev-accelerated averaging over the network."""

    source: ClassVar[str] = "Chaudhuri, Monteleoni, Sarwate 2011, Algorithm 2, at every node; averaging: Golub, Varga 1961"
    formulas: ClassVar[tuple[str, ...]] = (
        r"f_i(1) = \argmin_f O_i(f) + n_i \cdot f + \eta \lVert f \rVert^2",
        r"f_i(t) = \omega_t \sum_j W_{ij} f_j(t-1) + (1 - \omega_t) f_i(t-2)",
    )


@methods.register("central-objective")
class CentralObjective(SingleSolve):
    """The floor: a trusted curator has the records of all nodes and solves once, with noise in the objective."""

    source: ClassVar[str] = "Chaudhuri, Monteleoni, Sarwate 2011, Algorithm 2"
    formulas: ClassVar[tuple[str, ...]] = (
        r"f = \argmin_f \frac{C}{B} \sum_n L_n(f) + \frac{\rho}{N} R(f) + n \cdot f + \eta \lVert f \rVert^2",
    )
    stands_faults: ClassVar[bool] = False

    def arranged(self, topology: Topology, dataset: Dataset[Any]) -> tuple[Topology, Dataset[Any]]:
        return alone(), MergedDataset(dataset)
