"""Relaxed arc-based ADMM (docs/mathematics.md, section 2): what every node keeps of each neighbour stands lost messages.

Bastianello, Carli, Schenato, Todescato: Asynchronous Distributed Optimization over Lossy Networks via Relaxed ADMM: Stability
and Linear Convergence, IEEE TAC 2021. Its penalty rho is 2 eta here, so that a data step adds eta V_i ||x||^2 as in the other
methods on a network, and relaxation = 1/2 on a perfect network is conventional ADMM with the same eta.

Glossary (paper -> here): x_i -> primal, z_ij -> arcs, q_{i->j} -> messages, sum_j z_ij -> neighbour_sum, a -> relaxation. The
arc (i, j) comes from j and ends at i, which keeps z_ij; what i sends to j stands in the same place of `messages`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import NoneType
from typing import Annotated, Any, ClassVar

import numpy as np
from msgspec import Meta

from dpadmm_mpi.config.ranges import Between, Space
from dpadmm_mpi.data.dataset import Dataset
from dpadmm_mpi.errors import InputError
from dpadmm_mpi.methods.base import Assumptions, Config, Plan, Schedules, methods
from dpadmm_mpi.methods.decentralised.algorithm import NetworkNodes, Node, State, state_type
from dpadmm_mpi.methods.decentralised.measures import NetworkMeasures
from dpadmm_mpi.methods.decentralised.plan import NetworkMethod, NetworkPlan, make_plan
from dpadmm_mpi.methods.measures import Layout, Quantity
from dpadmm_mpi.methods.nodes import Phase, extended, replaced
from dpadmm_mpi.networks.faults import Asynchronous, EdgeLoss, Uniform
from dpadmm_mpi.networks.network import Network
from dpadmm_mpi.networks.timeline import NetworkFaults, renewed
from dpadmm_mpi.networks.topology import ArcsInto, Topology
from dpadmm_mpi.problems.objective import NodeProblem
from dpadmm_mpi.types import Array, Bools, Ints

LATE = "late_messages"  # a field of the state: what is on its way along each arc


def messages(primal: Array, arcs: Array, eta: Array) -> Array:
    """q_{i->j}(t) = 4 eta x_i(t) - z_ij(t-1) on every arc (i, j); `primal` and `eta` are those of its i."""
    return 4.0 * eta * primal - arcs


def relaxed_step(arcs: Array, arrived: Array, has_arrived: Bools, relaxation: float) -> Array:
    """z_ij(t) = (1 - a) z_ij(t-1) + a q_{j->i}(t) where that message has arrived, z_ij(t-1) where it has not."""
    return np.where(has_arrived[..., None], (1.0 - relaxation) * arcs + relaxation * arrived, arcs)


@methods.register("arc-admm")
class ArcAdmm(NetworkMethod):
    """Relaxed arc-based ADMM: a node keeps a vector for each neighbour, so that lost messages only slow it down."""

    source: ClassVar[str] = "Bastianello, Carli, Schenato, Todescato 2021"
    formulas: ClassVar[tuple[str, ...]] = (
        r"x_i(t) = \argmin_x O_i(x) + ( n_i(t) - \sum_j z_{ij}(t-1) ) \cdot x + \eta V_i \lVert x \rVert^2",
        r"q_{ij}(t) = 4 \eta x_i(t) - z_{ij}(t-1) \text{ is sent from i to j}",
        r"z_{ij}(t) = (1 - a) z_{ij}(t-1) + a q_{ji}(t) \text{ if that message arrives}",
    )
    own_penalties: ClassVar[bool] = False
    released: ClassVar[tuple[str, ...]] = ("messages",)
    sends: ClassVar[tuple[str, ...]] = ("messages",)
    extra_state: ClassVar[tuple[str, ...]] = ("arcs", "messages")
    counts_heard: ClassVar[bool] = False

    relaxation: Annotated[float, Meta(gt=0, le=1)] = 0.5  # a, the weight of what arrives; 0.5: conventional ADMM without faults

    @classmethod
    def tuned(cls) -> Space:
        return {**super().tuned(), "algorithm.relaxation": Between(0.3, 1.0, start=0.7)}

    def penalty(self, node: Node, state: State, t: int, noise: Array) -> tuple[Array, Array]:
        """(n_i - sum_j z_ij).x + eta V_i ||x||^2"""
        return noise - state.neighbour_sum, (2.0 * node.eta(t) * node.degree)[..., 0]

    def gradient_behind(self, node: Node, before: State, primal: Array, t: int) -> Array:
        """Nothing is recycled."""
        return before.gradient

    def check_faults(self, network: Network) -> None:
        super().check_faults(network)
        if "compression" in network.faults.kinds:
            raise InputError(
                "network.faults.compression: arc-admm sends each neighbour a message of its own, which cannot be made of a "
                "compressed vector; remove it, or choose another method"
            )

    def under_faults(self, faults: NetworkFaults) -> str:
        words = "network.faults: a message that does not come leaves what its receiver keeps for that neighbour as it is; "
        if self.is_proven(faults):
            return words + "without noise arc-admm converges almost surely all the same (Bastianello et al. 2021)"
        return words + f"no theorem says that arc-admm converges then: the one there is needs {self._needs}"

    _needs: ClassVar[str] = (
        "0 < relaxation < 1, no delays, and losses and absences that are drawn anew in every iteration and spare each way of "
        "each edge now and then"
    )

    def is_proven(self, faults: NetworkFaults | None) -> bool:
        """Whether the theorem is about these faults: every arc has its turn, whatever was before."""
        if faults is None:
            return self.relaxation < 1.0
        drawn_anew = all(
            isinstance(kind, NoneType | Uniform | EdgeLoss | Asynchronous) for kind in (faults.loss, faults.absence)
        )
        spares_all = faults.loss is None or not faults.loss.always(faults.arcs).any()
        return self.relaxation < 1.0 and drawn_anew and spares_all and faults.delay is None and faults.change is None

    def plan(self, config: Config, topology: Topology, dataset: Dataset[Any]) -> Plan[State]:
        return make_plan(self, config, topology, dataset, kind=ArcPlan)


class ArcNodes(NetworkNodes):
    """The nodes of one rank, with the arcs that end at them."""

    @property
    def arc_fields(self) -> tuple[str, ...]:  # type: ignore[override]
        return ("arcs", "messages", LATE) if self._delays else ("arcs", "messages")

    @property
    def _delays(self) -> int:
        """The longest one of a message, in iterations."""
        return 0 if self.settings.faults is None else self.settings.faults.longest_delay

    @cached_property
    def _into(self) -> ArcsInto:
        return ArcsInto(self.settings.neighbours, self.node.nodes)

    def phases(self, t: int) -> tuple[Phase, ...]:
        return (Phase("messages", "arcs"),)

    def initial(self, runs: range) -> State:
        state = super().initial(runs)
        return started(
            state._replace(dual=state.dual[..., :0], gradient=state.dual[..., :0]), self.node, self._into, self._delays
        )

    def work(self, state: State, t: int, runs: range, phase: int) -> State:
        return sending(super().work(state, t, runs, phase), self.node, self._into, t)

    def receive(self, state: State, t: int, runs: range, phase: int, incoming: Array) -> State:
        return received(state, incoming, t, self.node, runs, self._into)


def started(state: State, node: Node, into: ArcsInto, delays: int) -> State:
    """With z_ij = 2 eta x_i(0), before the exchange of the starting points."""
    arcs = (2.0 * node.eta(1) * state.primal)[:, into.ends]
    late = {LATE: np.zeros((*arcs.shape[:2], delays * arcs.shape[2]))} if delays else {}
    return extended(replaced(state, {"arcs": arcs, "messages": arcs}), late)


def sending(state: State, node: Node, into: ArcsInto, t: int) -> State:
    """The state with what the nodes send after the data step of iteration t, or at t = 0 of their starting points."""
    arcs, eta = state._asdict()["arcs"], node.eta(max(t, 1))
    return replaced(state, {"messages": messages(state.primal[:, into.ends], arcs, eta[into.ends])})


def received(state: State, incoming: Array, t: int, node: Node, runs: range, into: ArcsInto) -> State:
    """The state after exchange t, from what was sent along the arcs in it, (runs, arcs, features)."""
    settings, fields = node.settings, state._asdict()
    has_arrived, late = np.ones(incoming.shape[:2], dtype=bool), {}
    if settings.faults is not None:
        fresh = settings.faults.timeline(runs).fresh[:, t][:, np.isin(settings.faults.arcs[:, 0], node.nodes)]
        incoming, on_its_way = renewed(t, fresh, incoming, fields.get(LATE), incoming)
        has_arrived, late = fresh >= 0, {} if on_its_way is None else {LATE: on_its_way}
    assert isinstance(settings.method, ArcAdmm)
    arcs = relaxed_step(fields["arcs"], incoming, has_arrived, settings.method.relaxation)
    return replaced(state, {"arcs": arcs, "neighbour_sum": into.sums(arcs), **late})


class ArcMeasures(NetworkMeasures):
    """Every node at its own x_i(t); there are no duals."""

    descriptions: ClassVar[Mapping[str, str]] = {
        name: text.replace("f_i(t)", "x_i(t)").replace("(KKT)", "the optimality condition")
        for name, text in NetworkMeasures.descriptions.items()
    }
    trajectory_layout: ClassVar[Layout] = {
        "trajectory": Quantity(
            ("node", "feature"), "x_i(t) as its messages 4 eta x_i(t) - z_ij(t-1) tell an eavesdropper, who knows all z_ij(t-1)"
        )
    }
    finals: ClassVar[Layout] = {"final/primal": Quantity(("node", "feature"), "x_i(T)")}

    def final(self, state: Mapping[str, Array]) -> dict[str, Array]:
        return {"final/primal": state["primal"]}


@dataclass(frozen=True)
class ArcPlan(NetworkPlan):
    @property
    def arc_method(self) -> ArcAdmm:
        assert isinstance(self.method, ArcAdmm)
        return self.method

    @property
    def schedules(self) -> Mapping[str, Schedules]:
        return {name: values for name, values in super().schedules.items() if name != "algorithm/theta"}

    @property
    def _has_z_norm(self) -> bool:
        return False

    @property
    def measures_class(self) -> type[NetworkMeasures]:
        return ArcMeasures

    def measures(self, problems: Sequence[NodeProblem]) -> NetworkMeasures:
        return ArcMeasures(self.features, self.sizes, self.metrics, problems, None)

    def make_nodes(self, places: Ints, problems: Sequence[NodeProblem]) -> NetworkNodes:
        return ArcNodes(self.settings, places, problems)

    def conditions(self, assumed: Assumptions) -> list[str]:
        from dpadmm_mpi.methods.decentralised.theory import privacy_conditions, sample_sizes

        if own := self.method.own_step():
            return [f"-      nothing is known of its convergence: {own}"]
        lines, a = privacy_conditions(self.releases), self.arc_method.relaxation
        if self.nodes == 1:
            lines.append("-      convergence: a single node is at its optimum after one data step")
        elif self.arc_method.is_proven(self.faults):
            lines.append(f"holds  convergence: 0 < relaxation < 1 (Bastianello et al. 2021), margin {min(a, 1.0 - a):.4g}")
        elif self.faults is None:
            lines.append(
                "-      convergence: with relaxation = 1, the Peaceman-Rachford iteration, x_i converges on a perfect network "
                "for strongly convex O_i; where messages are lost nothing is proven: lower it"
            )
        else:
            lines.append(f"-      convergence: not proven for this network; it needs {self.arc_method._needs}")
        return lines + sample_sizes(self.releases, assumed.f_ref, assumed.tau, assumed.beta, assumed.gap)

    def replayed(self, node: Node, released: Array) -> list[State]:
        into, runs = ArcsInto(self.topology.neighbours, node.nodes), range(len(released))
        backwards = np.array(self.topology.arc_channel.receivers, dtype=np.int64).reshape(-1)
        blank = dict.fromkeys((*State._fields, *self.method.extra_state), released[:, 0, :, :0])
        state = state_type(self.method.extra_state)(**blank)._replace(primal=released[:, 0])
        state = started(state, node, into, 0 if self.faults is None else self.faults.longest_delay)
        states = []
        for t in range(released.shape[1]):
            state = sending(state._replace(primal=released[:, t]), node, into, t)
            state = received(state, state._asdict()["messages"][:, backwards], t, node, runs, into)
            states.append(state)
        return states
