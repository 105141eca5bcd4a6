"""The methods on a network in one general form (docs/mathematics.md, section 2): ADMM, M-ADMM, R-ADMM, MR-ADMM.

The data step, the dual step and the recycled step are one function each; a method says which iterations are which. A class from
outside defines some of the steps anew. Arrays are (runs side by side, nodes of this rank, features), so that formulas read as
for one node.

Glossary (paper -> here): f_i -> primal, lambda_i -> dual, sum_{j in nb(i)} f_j -> neighbour_sum, V_i -> degree,
grad O_i(f_i(2k-1)) + n_i(2k-1) -> gradient.
"""

from collections import namedtuple
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import ClassVar, Literal, NamedTuple, cast

import numpy as np

from dpadmm_mpi.config.schedules import Schedule, refuse_lacking_first
from dpadmm_mpi.errors import InputError
from dpadmm_mpi.methods.base import Method
from dpadmm_mpi.methods.nodes import Phase, refuse_inexact, starting_points
from dpadmm_mpi.networks.timeline import Mixing, NetworkFaults
from dpadmm_mpi.privacy.correlated_noise import Neighbours, shared_noise
from dpadmm_mpi.privacy.noises import draw
from dpadmm_mpi.privacy.perturbations import DataStepPerturbation, NoPerturbation, Perturbation
from dpadmm_mpi.problems.local_problems import LocalProblems
from dpadmm_mpi.problems.newton import TOLERANCE
from dpadmm_mpi.problems.objective import NodeProblem
from dpadmm_mpi.registry import is_inside, place_of
from dpadmm_mpi.rng import Purpose, generators
from dpadmm_mpi.types import Array, Bools, Ints


class State(NamedTuple):
    """What the nodes carry from one iteration to the next."""

    primal: Array  # f_i(t), as released
    dual: Array  # lambda_i(t)
    neighbour_sum: Array  # sum_j f_j(t)
    gradient: Array  # g~ of the last data step, from released values
    # Largest relative (KKT) residual, or with a tolerance norm of a gradient, since it was last recorded, (.., 1); nan if none
    residual: Array


@cache
def state_type(extra: tuple[str, ...]) -> type[State]:
    """State, with further fields."""
    return State if not extra else cast(type[State], namedtuple("State", (*State._fields, *extra)))


@dataclass(frozen=True)
class Settings:
    """What a configuration says about the method; eta, theta, gamma and the noise's parameter are (T+1, N)."""

    method: "NetworkSteps"
    perturbation: Perturbation
    eta: Array
    theta: Array
    gamma: Array  # nan without recycled steps
    parameter: Array
    resting: Bools  # (1 or R, T+1, N): a data step of a node that leaves its records alone: its privacy budget is spent
    tolerance: float | None  # norm of the gradient at which a solve ends; None: it is exact
    release_std: float  # of the Gaussian noise on what is released, which hides where it ends; 0: none
    degree: Ints  # (N,)
    seed: int
    features: int
    own_weight: Array = field(default_factory=lambda: np.zeros(0))  # (N,): W_ii, where what arrives is weighted
    omega: tuple[float, ...] = ()  # Chebyshev's weights of the mixing steps
    neighbours: Neighbours = ()  # of all nodes; for noise that they share
    faults: NetworkFaults | None = None  # what goes wrong on the network

    def takes_part(self, t: int, runs: range) -> Bools:
        """Who takes a step in iteration t, (runs, N); where nothing goes wrong, everybody, (1, N)."""
        if self.faults is None:
            return np.ones((1, len(self.degree)), dtype=bool)
        timeline = self.faults.timeline(runs)
        return (timeline.joined if self.method.counts_heard else timeline.present)[:, t]

    def rests(self, t: int, runs: range) -> Bools:
        """Who leaves the records alone in a data step, (runs or 1, N)."""
        spent = self.resting[:, t] if len(self.resting) == 1 else self.resting[runs.start : runs.stop, t]
        return spent if self.faults is None else spent | ~self.takes_part(t, runs)


class Node:
    """The nodes of a rank without their records: their numbers, degrees and penalties, each (nodes, 1).

    Where messages get lost, degrees and weights are those of the neighbours that were heard by the end of exchange
    `exchange`, and differ between the runs: (runs, nodes, 1).
    """

    def __init__(self, settings: Settings, nodes: Ints, runs: range = range(1), exchange: int = 0) -> None:
        self.settings = settings
        self.nodes = nodes
        self.runs = runs
        self._exchange = exchange
        self.degree = settings.degree[nodes].astype(np.float64)[:, None]
        if settings.faults is not None and settings.method.counts_heard:
            heard = settings.faults.timeline(runs).degree[:, exchange]
            self.degree = heard[:, nodes].astype(np.float64)[..., None]

    @property
    def own_weight(self) -> Array:
        """W_ii, where what arrives is weighted."""
        if self.settings.faults is None:
            return self.settings.own_weight[self.nodes][:, None]
        mixing = Mixing.of(self.settings.faults.timeline(self.runs), self._exchange)
        return mixing.own[:, self.nodes][..., None]

    def eta(self, t: int) -> Array:
        """eta_i(t)"""
        return self.settings.eta[t, self.nodes][:, None]

    def theta(self, t: int) -> Array:
        """theta_i(t)"""
        return self.settings.theta[t, self.nodes][:, None]

    def gamma(self, t: int) -> Array:
        """gamma_i(t) of a recycled step"""
        return self.settings.gamma[t, self.nodes][:, None]


class DataNode(Node):
    """The same with their records, in some runs that go side by side; what only a data step may see."""

    def __init__(self, settings: Settings, nodes: Ints, problems: LocalProblems, runs: range, exchange: int = 0) -> None:
        super().__init__(settings, nodes, runs, exchange)
        self.problems = problems

    def noise(self, t: int) -> Array:
        """e_i(t) of every run; zeros without noise."""
        s = self.settings
        if not isinstance(s.perturbation, DataStepPerturbation):
            return np.zeros((len(self.runs), len(self.nodes), s.features))
        noise, parameter = s.perturbation.noise, s.parameter[t, self.nodes]
        own = draw(noise, s.seed, self.runs, self.nodes, t, parameter, s.features)
        if (edge_std := noise.edge_std(parameter)) is None:
            return own
        return own + edge_std[:, None] * shared_noise(s.seed, self.runs, self.nodes, t, s.neighbours, s.features)

    def released(self, primal: Array, t: int) -> Array:
        """With the Gaussian noise that hides where an inexact solve has ended."""
        s = self.settings
        if not s.release_std:
            return primal
        rngs = generators(s.seed, Purpose.RELEASE, self.runs, self.nodes, t)
        unit = np.stack([rng.standard_normal(s.features) for rng in rngs])
        return primal + s.release_std * unit.reshape(primal.shape)

    def argmin(self, linear: Array, quadratic: Array, start: Array, t: int) -> tuple[Array, Array]:
        """argmin_f O_i(f) + linear_i.f + (quadratic_i/2) ||f||^2 and its relative residual, (runs, nodes); or an error.

        With a tolerance a point near to it, and the norm of the gradient there. The start and nan for a resting node, whose
        records are left alone.
        """
        active = np.broadcast_to(~self.settings.rests(t, self.runs)[:, self.nodes], start.shape[:2])
        found, residuals = self.problems.argmins(linear, quadratic, start, active)
        tolerance = self.settings.tolerance
        refuse_inexact(np.where(active, residuals, 0.0), self.runs, self.nodes, t, tolerance)
        return found, residuals if tolerance is None else residuals * (tolerance / TOLERANCE)


def kkt_gradient(before: State, primal: Array, eta: Array, degree: Array) -> Array:
    """g~, what grad O_i(f_i(t)) + n_i(t) is worth at the exact argmin by (KKT); from released values only."""
    return -2.0 * before.dual - eta * (2.0 * degree * primal - degree * before.primal - before.neighbour_sum)


def recycled_step(state: State, eta: Array, degree: Array, gamma: Array) -> Array:
    """f_i(2k) from f(2k-1), lam(2k-1) and g~: [R] (16), (19). It has no access to the records."""
    disagreement = degree * state.primal - state.neighbour_sum
    step = state.gradient + 2.0 * state.dual + eta * disagreement
    return state.primal - step / (2.0 * eta * degree + gamma)


def dual_step(dual: Array, primal: Array, neighbour_sum: Array, theta: Array, degree: Array) -> Array:
    """lam_i(t) = lam_i(t-1) + (theta_i/2) sum_j (f_i(t) - f_j(t)): [M] (11), [R] (15)."""
    return dual + 0.5 * theta * (degree * primal - neighbour_sum)


def penalty_of(method: "NetworkSteps", node: Node, state: State, t: int, noise: Array) -> tuple[Array, Array]:
    """What `penalty` says, which may be somebody else's: a term of the shape of the primals, and a number for each node."""
    terms, cls, wanted = method.penalty(node, state, t, noise), type(method), (state.primal.shape, node.degree.shape[:-1])
    if is_inside(cls):
        return terms
    shapes = tuple(map(np.shape, terms)) if isinstance(terms, tuple) else ()
    if shapes != wanted:
        found = f"a {type(terms).__name__}" + (f" of {len(shapes)} with the shapes {shapes}" if shapes else "")
        raise InputError(
            f"{place_of(cls)}: penalty must return the linear and the quadratic term, of the shapes {wanted[0]} and "
            f"{wanted[1]}; found {found}"
        )
    return terms


def argmin_behind(method: "NetworkSteps", node: Node, before: State, primal: Array, t: int) -> Array:
    """What `argmin_behind` says, which may be somebody else's: as many vectors as were released."""
    found, cls = method.argmin_behind(node, before, primal, t), type(method)
    if not is_inside(cls) and np.shape(found) != primal.shape:
        raise InputError(
            f"{place_of(cls)}: argmin_behind must return the argmins, of the shape {primal.shape}; found {np.shape(found)}"
        )
    return found


class NetworkSteps(Method):
    """The steps of a method on a network, which a class from outside may define anew.

    State goes in, state comes out. Only `data_step` sees records: the others work with what was released, so that they are
    post-processing by construction.
    """

    steps: ClassVar[tuple[str, ...]] = (
        "is_data_step", "penalty", "data_step", "recycled_step", "dual_step", "start", "released", "sends",
    )  # fmt: skip
    perturbations: ClassVar[tuple[type[Perturbation], ...]] = (NoPerturbation, DataStepPerturbation)
    extra_state: ClassVar[tuple[str, ...]] = ()  # further vectors of every node, zero at the start
    released: ClassVar[tuple[str, ...]] = ("primal",)  # what a neighbour or an eavesdropper may see
    mixes: ClassVar[bool] = (
        False  # what arrives is summed with Metropolis weights, and the penalty is the same for every degree
    )
    sends: ClassVar[tuple[str, ...]] = ("primal",)  # in every iteration; the sum of a further field comes in as FIELD_sum
    stands_faults: ClassVar[bool] = True
    # The penalty counts the neighbours that were heard, and a node that has heard none takes no step; otherwise all there are
    counts_heard: ClassVar[bool] = True

    eta: Schedule = 1.0  # the penalty
    init: Literal["random", "zero"] = "random"  # the first values; they never depend on the records

    def check(self) -> None:
        refuse_lacking_first(self.eta, "algorithm.eta")

    def is_data_step(self, t: int) -> bool:
        """Whether iteration t touches the records; otherwise it recycles the one before."""
        return True

    def data_steps_in(self, iterations: int) -> int:
        return sum(self.is_data_step(t) for t in range(1, iterations + 1))

    def start(self, node: Node, state: State) -> State:
        """The state before the first iteration, with random or zero primals and zeros elsewhere."""
        return state

    def penalty(self, node: Node, state: State, t: int, noise: Array) -> tuple[Array, Array]:
        """The linear term and the quadratic term, as many as `node.degree`, that a data step adds to O_i; `noise` is n_i.

        (2 lam_i + n_i).f + eta_i sum_j ||(f_i + f_j)/2 - f||^2 is, up to a constant,
        eta V ||f||^2 + (2 lam_i + n_i - eta (V f_i + sum_j f_j)).f: [M] (10), (25); [R] (14), (18).
        """
        eta = node.eta(t)
        linear = 2.0 * state.dual + noise - eta * (node.degree * state.primal + state.neighbour_sum)
        return linear, (2.0 * eta * node.degree)[..., 0]

    def data_step(self, node: DataNode, state: State, t: int) -> State:
        """f_i(t), the argmin of O_i and the penalty; noise is in its linear term, or added to what is released."""
        eta, e, perturbation = node.eta(t), node.noise(t), node.settings.perturbation
        factor, on_release = np.zeros_like(eta), False
        if isinstance(perturbation, DataStepPerturbation):
            factor, on_release = perturbation.objective_factor(eta, node.degree), perturbation.on_release
        linear, quadratic = penalty_of(self, node, state, t, factor * e)
        primal, residuals = node.argmin(linear, quadratic, state.primal, t)
        primal = node.released(primal + e if on_release else primal, t)
        return state._replace(
            primal=primal,
            gradient=self.gradient_behind(node, state, primal, t),
            residual=np.fmax(state.residual, residuals[..., None]),
        )

    def gradient_behind(self, node: Node, before: State, primal: Array, t: int) -> Array:
        """g~ of the data step that released `primal`, for those that recycle it."""
        return kkt_gradient(before, primal, node.eta(t), node.degree)

    def argmin_behind(self, node: Node, before: State, primal: Array, t: int) -> Array:
        """What `node.argmin` gave in the data step that released `primal`, with its noise: the audit starts from it."""
        return primal

    def recycled_step(self, node: Node, state: State, t: int) -> State:
        """f_i(t) from what was released before, in an iteration that does not touch the records."""
        return state

    def recycled_again(self, node: Node, history: Sequence[State], t: int, gradient: Array) -> State:
        """What a recycled step makes of what all nodes have released before, for the audit; `gradient` is that of the one
        before, if it was a recycled step too.
        """
        before = history[t - 1]
        if self.is_data_step(t - 1):
            gradient = kkt_gradient(history[t - 2], before.primal, node.eta(t), node.degree)
        return self.recycled_step(node, before._replace(gradient=gradient), t)

    def dual_step(self, node: Node, state: State, t: int) -> State:
        """After a data step and its exchange: the sums over the neighbours have come in."""
        dual = dual_step(state.dual, state.primal, state.neighbour_sum, node.theta(t), node.degree)
        return state._replace(dual=dual)


def kept(before: State, after: State, keeps: Bools) -> State:
    """A node that takes no step keeps what it has, and sends its last value again; `keeps` is (runs or 1, nodes)."""
    if not keeps.any():
        return after
    changed = {name: (old, new) for name, old, new in zip(before._fields, before, after, strict=True) if old is not new}
    return after._replace(**{name: np.where(keeps[..., None], old, new) for name, (old, new) in changed.items()})


class NetworkNodes:
    """The nodes of one rank: local step, then what the neighbours released comes in, then the receiving step."""

    hub_fields: ClassVar[tuple[str, ...]] = ()
    arc_fields: ClassVar[tuple[str, ...]] = ()

    def __init__(self, settings: Settings, nodes: Ints, problems: Sequence[NodeProblem]) -> None:
        assert isinstance(problems, LocalProblems)
        self.settings = settings
        self.released = settings.method.released  # all that ever travels between nodes
        self.problems = problems
        self.node = Node(settings, nodes)

    def phases(self, t: int) -> tuple[Phase, ...]:
        method = self.settings.method
        return tuple(Phase(field, "edges", method.mixes) for field in method.sends)

    def initial(self, runs: range) -> State:
        """f_i(0), zero or standard normal whatever the records; lam_i(0) = 0."""
        s = self.settings
        primal = starting_points(s.method.init, s.seed, runs, self.node.nodes, s.features)
        zero = np.zeros_like(primal)
        vectors = dict.fromkeys((*State._fields[1:-1], *s.method.extra_state), zero)
        residual = np.full((*primal.shape[:2], 1), np.nan)
        state = state_type(s.method.extra_state)(primal=primal, residual=residual, **vectors)
        return self._checked("start", s.method.start(self.node, state), state)

    def work(self, state: State, t: int, runs: range, phase: int) -> State:
        """f_i(t) of every node."""
        if t == 0 or phase > 0:
            return state
        settings, nodes, method = self.settings, self.node.nodes, self.settings.method
        if not method.is_data_step(t):
            idle = ~settings.takes_part(t, runs)[:, nodes]
            node = self._after(t - 1, runs)
            after = self._checked("recycled_step", method.recycled_step(node, state, t), state)
            return kept(state, self._compressed(state, after, t, runs), idle)
        resting = settings.rests(t, runs)[:, nodes]
        if resting.all():
            return state
        data_node = DataNode(settings, nodes, self.problems, runs, t - 1)
        after = self._checked("data_step", method.data_step(data_node, state, t), state)
        if settings.faults is not None and settings.faults.compression is not None:
            after = self._compressed(state, after, t, runs)
            after = after._replace(gradient=method.gradient_behind(data_node, state, after.primal, t))
        return kept(state, after, resting)

    def _after(self, exchange: int, runs: range) -> Node:
        """The nodes by the end of an exchange."""
        return self.node if self.settings.faults is None else Node(self.settings, self.node.nodes, runs, exchange)

    def _compressed(self, before: State, after: State, t: int, runs: range) -> State:
        """With what is sent in the place of what was computed: the node goes on from there."""
        faults = self.settings.faults
        if faults is None or faults.compression is None:
            return after
        return after._replace(primal=faults.compressed(after.primal, before.primal, runs, self.node.nodes, t))

    def receive(self, state: State, t: int, runs: range, phase: int, incoming: Array) -> State:
        """The neighbours' f_j(t) have come in; the dual step follows where the records were touched."""
        method = self.settings.method
        field = method.sends[phase]
        state = state._replace(**{"neighbour_sum" if field == "primal" else f"{field}_sum": incoming})
        last = phase == len(method.sends) - 1
        if not (last and t > 0 and method.is_data_step(t)):
            return state
        after = self._checked("dual_step", method.dual_step(self._after(t, runs), state, t), state)
        return kept(state, after, ~self.settings.takes_part(t, runs)[:, self.node.nodes])

    def _checked(self, step: str, after: State, before: State) -> State:
        """What a step from outside has made of a state."""
        cls = type(self.settings.method)
        if is_inside(cls):
            return after
        if getattr(after, "_fields", None) != before._fields:
            raise InputError(f"{place_of(cls)}: {step} must return the state, with the fields {', '.join(before._fields)}")
        for name, values, known in zip(before._fields, after, before, strict=True):
            if np.shape(values) != known.shape:
                raise InputError(
                    f"{place_of(cls)}: {step} must leave the shape of {name} as it is, {known.shape}; found {np.shape(values)}"
                )
        return after

    def recorded(self, state: State) -> State:
        return state._replace(residual=np.full_like(state.residual, np.nan))
