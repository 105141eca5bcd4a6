"""Gradient methods on a network (docs/baselines.md): descent with one or several mixing steps, and gradient tracking.

A node adds noise to the gradient of its own objective, once, and computes all else from noisy gradients and from what has
arrived: so everything that travels is post-processing of the noisy gradients. Arrays are (runs side by side, nodes of this
rank, features), so that formulas read as for one node.

Glossary: x_i -> what mixing gives, before the step; primal -> what a node sends; W -> own weights and those of the network's
channel; g~_i = grad O_i + noise; m_i -> `gradient` in descent, the momentum's mean of the g~_i; y_i -> the tracker.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dpadmm_mpi.errors import RunError
from dpadmm_mpi.methods.decentralised.algorithm import State, kept, state_type
from dpadmm_mpi.methods.nodes import DIVERGED, Phase, replaced, starting_points
from dpadmm_mpi.networks.metropolis import accelerated
from dpadmm_mpi.networks.timeline import Mixing, NetworkFaults
from dpadmm_mpi.privacy.correlated_noise import Neighbours, shared_noise
from dpadmm_mpi.privacy.noises import Gaussian, draw
from dpadmm_mpi.problems.local_problems import LocalProblems
from dpadmm_mpi.problems.objective import NodeProblem
from dpadmm_mpi.types import Array, Bools, Ints


@dataclass(frozen=True)
class Settings:
    """What a configuration says about the method."""

    step: Array  # (T+1,): a(t); nan in iterations that do not touch the records
    noise_std: Array  # (T+1,): sigma(t), likewise; 0: no noise
    momentum: float
    own_weight: Array  # (N,): W_ii
    omega: tuple[float, ...]  # of every mixing step of a gradient: Chebyshev's weights, or 1
    init: str
    seed: int
    features: int
    edge_ratio: float | None = None  # deviation of what neighbours share of their noise, over sigma; None: nothing
    neighbours: Neighbours = ()
    faults: NetworkFaults | None = None  # what goes wrong on the network

    def own_weight_after(self, exchange: int, runs: range, nodes: Ints) -> Array:
        """W_ii, (nodes, 1); where messages get lost, of the neighbours heard by the end of an exchange, (runs, nodes, 1)."""
        if self.faults is None:
            return self.own_weight[nodes][:, None]
        return Mixing.of(self.faults.timeline(runs), exchange).own[:, nodes][..., None]

    def absent(self, t: int, runs: range, nodes: Ints) -> Bools:
        """Who does nothing in iteration t, (runs or 1, nodes)."""
        if self.faults is None:
            return np.zeros((1, len(nodes)), dtype=bool)
        return ~self.faults.timeline(runs).present[:, t][:, nodes]

    @property
    def mixing_steps(self) -> int:
        return len(self.omega)

    def is_data_step(self, t: int) -> bool:
        return not np.isnan(self.step[t])

    def omega_before(self, t: int) -> float:
        """The weight of the mixing step between what was sent in iteration t - 1 and what is done in t."""
        return 1.0 if t == 1 else self.omega[(t - 2) % self.mixing_steps]


def noise(s: Settings, runs: range, nodes: Ints, t: int) -> Array:
    """N(0, sigma(t)^2 I) of every run and node, each from its own address, and what neighbours share; zeros without noise."""
    if s.noise_std[t] == 0.0:
        return np.zeros((len(runs), len(nodes), s.features))
    own = draw(Gaussian(), s.seed, runs, nodes, t, np.full(len(nodes), s.noise_std[t]), s.features)
    if s.edge_ratio is None:
        return own
    return own + s.edge_ratio * s.noise_std[t] * shared_noise(s.seed, runs, nodes, t, s.neighbours, s.features)


def mixed(state: State, s: Settings, runs: range, nodes: Ints, t: int) -> Array:
    """x_i(t - 1): the mixing step of what was sent in iteration t - 1, by all nodes."""
    whole = s.own_weight_after(t - 1, runs, nodes) * state.primal + state.neighbour_sum
    omega = s.omega_before(t)
    return whole if omega == 1.0 else accelerated(whole, state._asdict()["previous"], omega)


def descent_step(x: Array, direction: Array, noisy_gradient: Array, step: float, momentum: float) -> tuple[Array, Array]:
    """x - a m with m <- momentum m + g~, and m."""
    direction = momentum * direction + noisy_gradient
    return x - step * direction, direction


def tracking_step(tracked: Array, noisy_gradient: Array, before: Array) -> Array:
    """y + g~(t) - g~(t-1): of gradients that were noisy already, so the difference is post-processing."""
    return tracked + noisy_gradient - before


class GradientNodes(ABC):
    """The nodes of one rank."""

    hub_fields: ClassVar[tuple[str, ...]] = ()
    arc_fields: ClassVar[tuple[str, ...]] = ()
    released: ClassVar[tuple[str, ...]] = ("primal",)
    extra_state: ClassVar[tuple[str, ...]] = ()

    def __init__(self, settings: Settings, nodes: Ints, problems: Sequence[NodeProblem]) -> None:
        assert isinstance(problems, LocalProblems)
        self.settings, self.nodes, self.problems = settings, nodes, problems

    def initial(self, runs: range) -> State:
        """x_i(0), zero or standard normal whatever the records."""
        s = self.settings
        primal = starting_points(s.init, s.seed, runs, self.nodes, s.features)
        zero = np.zeros_like(primal)
        fields = dict.fromkeys(("neighbour_sum", "gradient", *self.extra_state), zero)
        residual = np.full((*primal.shape[:2], 1), np.nan)  # nothing is solved
        return state_type(self.extra_state)(primal=primal, dual=zero[..., :0], residual=residual, **fields)

    @abstractmethod
    def phases(self, t: int) -> tuple[Phase, ...]: ...

    @abstractmethod
    def work(self, state: State, t: int, runs: range, phase: int) -> State: ...

    @abstractmethod
    def receive(self, state: State, t: int, runs: range, phase: int, incoming: Array) -> State: ...

    def noisy_gradients(self, x: Array, t: int, runs: range) -> Array:
        """g~_i(t) = grad O_i(x_i) + noise: the only place where records are seen."""
        return self.problems.gradients(x) + noise(self.settings, runs, self.nodes, t)

    def recorded(self, state: State) -> State:
        return state

    def _sent(self, state: State, after: State, t: int, runs: range) -> State:
        """The state after a step: what is sent may be compressed, and who is absent keeps what he has."""
        s = self.settings
        if s.faults is None:
            return after
        if s.faults.compression is not None:
            for number, field in enumerate(self.released):
                if (values := getattr(after, field)) is not (before := getattr(state, field)):
                    after = replaced(after, {field: s.faults.compressed(values, before, runs, self.nodes, t, number)})
        return kept(state, after, s.absent(t, runs, self.nodes))

    def _refuse_diverged(self, primal: Array, runs: range, t: int) -> None:
        far: Bools = ~(np.abs(primal).max(axis=2, initial=0.0) < DIVERGED)
        if far.any():
            r, k = np.argwhere(far)[0]
            raise RunError(f"run {runs[r] + 1}, node {self.nodes[k]}, iteration {t}: the steps diverged; lower algorithm.step")


class DescentNodes(GradientNodes):
    """Sent: psi_i(t) = x_i(t-1) - a(t) m_i(t) in a data step, x_i(t-1) otherwise; mixed to x_i(t)."""

    extra_state: ClassVar[tuple[str, ...]] = ("previous",)  # what was sent in the iteration before, for Chebyshev's step

    def phases(self, t: int) -> tuple[Phase, ...]:
        return (Phase("primal", "edges", weighted=True),)

    def work(self, state: State, t: int, runs: range, phase: int) -> State:
        if t == 0:
            return state
        s = self.settings
        x, sent = mixed(state, s, runs, self.nodes, t), state.primal
        if not s.is_data_step(t):
            return self._sent(state, replaced(state, {"primal": x, "previous": sent}), t, runs)
        noisy = self.noisy_gradients(x, t, runs)
        primal, direction = descent_step(x, state.gradient, noisy, float(s.step[t]), s.momentum)
        self._refuse_diverged(primal, runs, t)
        return self._sent(state, replaced(state, {"primal": primal, "gradient": direction, "previous": sent}), t, runs)

    def receive(self, state: State, t: int, runs: range, phase: int, incoming: Array) -> State:
        return state._replace(neighbour_sum=incoming)


class TrackingNodes(GradientNodes):
    """Two exchanges: y_i(t-1) + g~_i(t) - g~_i(t-1) is sent and mixed to y_i(t); then x_i(t-1) - a y_i(t), mixed to x_i(t)."""

    released: ClassVar[tuple[str, ...]] = ("tracker", "primal")
    extra_state: ClassVar[tuple[str, ...]] = ("tracker", "tracker_sum")

    def phases(self, t: int) -> tuple[Phase, ...]:
        return tuple(Phase(field, "edges", weighted=True) for field in (self.released if t else ("primal",)))

    def work(self, state: State, t: int, runs: range, phase: int) -> State:
        if t == 0:
            return state
        s = self.settings
        x, y = mixed(state, s, runs, self.nodes, t), self._tracked(state, runs, t - 1 + phase)
        if phase == 0:
            noisy = self.noisy_gradients(x, t, runs)
            after = replaced(state, {"gradient": noisy, "tracker": tracking_step(y, noisy, state.gradient)})
            return self._sent(state, after, t, runs)
        primal = x - float(s.step[t]) * y
        self._refuse_diverged(primal, runs, t)
        return self._sent(state, state._replace(primal=primal), t, runs)

    def _tracked(self, state: State, runs: range, exchange: int) -> Array:
        """y_i: the mixing step of what was sent last."""
        fields, own = state._asdict(), self.settings.own_weight_after(exchange, runs, self.nodes)
        return np.asarray(own * fields["tracker"] + fields["tracker_sum"])

    def receive(self, state: State, t: int, runs: range, phase: int, incoming: Array) -> State:
        if t and phase == 0:
            return replaced(state, {"tracker_sum": incoming})
        return state._replace(neighbour_sum=incoming)
