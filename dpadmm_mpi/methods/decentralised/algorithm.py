"""The decentralised family in one general form (SPEC 2): ADMM, M-ADMM, R-ADMM, MR-ADMM.

A method is a row of METHODS: which iterations touch the records, and which penalties it may take. The data step, the
dual step and the recycled step are one function each. Arrays are (runs side by side, nodes of this rank, features).

Glossary (paper -> here): f_i -> primal, lambda_i -> dual, sum_{j in nb(i)} f_j -> neighbour_sum, V_i -> degree,
grad O_i(f_i(2k-1)) + n_i(2k-1) -> gradient.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpadmm_mpi.methods.algorithm import Phase, refuse_inexact, starting_points
from dpadmm_mpi.privacy.releases import PERTURBATIONS, noise
from dpadmm_mpi.problems.local_problems import Problems

Array = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Method:
    source: str
    recycles: bool  # even iterations recycle the step before instead of touching the records
    own_penalties: bool  # each node its own non-decreasing eta; otherwise one number for all
    decoupled: bool = False  # the dual step theta is a choice of its own; otherwise it is eta


METHODS = {
    "admm": Method("[M] (8)-(9)", recycles=False, own_penalties=False),
    "m-admm": Method("[M] (10)-(11)", recycles=False, own_penalties=True, decoupled=True),
    "r-admm": Method("[R] (10)-(13), Algorithm 1", recycles=True, own_penalties=False),
    "mr-admm": Method("[R] (14)-(17), Algorithm 2", recycles=True, own_penalties=True),
}


def data_steps(method: str, iterations: int) -> Ints:
    """The iterations that touch the records: every one, or the odd ones."""
    return np.arange(1, iterations + 1, 2 if METHODS[method].recycles else 1)


class State(NamedTuple):
    """What the nodes carry from one iteration to the next."""

    primal: Array  # f_i(t), as released
    dual: Array  # lambda_i(t)
    neighbour_sum: Array  # sum_j f_j(t)
    gradient: Array  # g~ of the last data step, from released values
    residual: Array  # largest relative (KKT) residual since it was last recorded, (.., 1); nan if none


def data_step(problems: Problems, state: State, eta: Array, degree: Array, objective_noise: Array) -> tuple[Array, Array]:
    """argmin_f O_i(f) + (2 lam_i + n_i).f + eta_i sum_j ||(f_i + f_j)/2 - f||^2, and its relative (KKT) residual.

    The penalty is eta V ||f||^2 - eta (V f_i + sum_j f_j).f and a constant. [M] (10), (25); [R] (14), (18).
    """
    linear = 2.0 * state.dual + objective_noise - eta * (degree * state.primal + state.neighbour_sum)
    quadratic = 2.0 * eta * degree
    return problems.argmins(linear, quadratic[:, 0], start=state.primal)


def kkt_gradient(before: State, primal: Array, eta: Array, degree: Array) -> Array:
    """g~, what grad O_i(f_i(t)) + n_i(t) is worth at the exact argmin by (KKT); from released values only."""
    return -2.0 * before.dual - eta * (2.0 * degree * primal - degree * before.primal - before.neighbour_sum)


def recycled_step(state: State, eta: Array, degree: Array, gamma: float) -> Array:
    """f_i(2k) from f(2k-1), lam(2k-1) and g~: [R] (16), (19). It has no access to the records."""
    disagreement = degree * state.primal - state.neighbour_sum
    step = state.gradient + 2.0 * state.dual + eta * disagreement
    return state.primal - step / (2.0 * eta * degree + gamma)


def dual_step(dual: Array, primal: Array, neighbour_sum: Array, theta: Array, degree: Array) -> Array:
    """lam_i(t) = lam_i(t-1) + (theta_i/2) sum_j (f_i(t) - f_j(t)): [M] (11), [R] (15)."""
    return dual + 0.5 * theta * (degree * primal - neighbour_sum)


@dataclass(frozen=True)
class Settings:
    """What a configuration says about the method; eta, theta and alpha per iteration and node, (T+1, N)."""

    method: str
    perturbation: str
    eta: Array
    theta: Array
    alpha: Array
    gamma: float
    init: str
    degree: Ints  # (N,)
    seed: int
    features: int

    def is_data_step(self, t: int) -> bool:
        return t % 2 == 1 or not METHODS[self.method].recycles


class Decentralised:
    """The nodes of one rank: local step, then what the neighbours released comes in, then the receiving step."""

    released: tuple[str, ...] = ("primal",)  # all that ever travels between nodes
    hub_fields: tuple[str, ...] = ()

    def __init__(self, settings: Settings, nodes: Ints, problems: Problems) -> None:
        self.settings = settings
        self.nodes = nodes
        self.problems = problems
        self.degree = settings.degree[nodes].astype(np.float64)[:, None]

    def phases(self, t: int) -> tuple[Phase, ...]:
        return (Phase("primal", "edges"),)

    def initial(self, runs: range) -> State:
        """f_i(0), zero or standard normal whatever the records; lam_i(0) = 0."""
        s = self.settings
        primal = starting_points(s.init, s.seed, runs, self.nodes, s.features)
        zero = np.zeros_like(primal)
        return State(primal, dual=zero, neighbour_sum=zero, gradient=zero, residual=np.full((*primal.shape[:2], 1), np.nan))

    def work(self, state: State, t: int, runs: range, phase: int) -> State:
        """f_i(t) of every node."""
        if t == 0:
            return state
        eta = self._at(self.settings.eta, t)
        if not self.settings.is_data_step(t):
            return state._replace(primal=recycled_step(state, eta, self.degree, self.settings.gamma))
        primal, residuals = self._perturbed_data_step(state, eta, t, runs)
        return state._replace(
            primal=primal,
            gradient=kkt_gradient(state, primal, eta, self.degree),
            residual=np.fmax(state.residual, residuals[..., None]),
        )

    def receive(self, state: State, t: int, runs: range, phase: int, incoming: Array) -> State:
        """The neighbours' f_j(t) have come in; the dual step follows where the records were touched."""
        dual = state.dual
        if t > 0 and self.settings.is_data_step(t):
            dual = dual_step(dual, state.primal, incoming, self._at(self.settings.theta, t), self.degree)
        return state._replace(dual=dual, neighbour_sum=incoming)

    def _perturbed_data_step(self, state: State, eta: Array, t: int, runs: range) -> tuple[Array, Array]:
        s = self.settings
        perturbation = PERTURBATIONS[s.perturbation]
        e = np.zeros_like(state.primal)
        if s.perturbation != "none":
            e = noise(s.seed, runs, self.nodes, t, s.alpha[t, self.nodes], s.features)
        factor = perturbation.objective_factor(eta, self.degree)
        argmin, residuals = data_step(self.problems, state, eta, self.degree, factor * e)
        refuse_inexact(residuals, runs, self.nodes, t)
        return (argmin + e if perturbation.on_release else argmin), residuals

    def _at(self, schedule: Array, t: int) -> Array:
        return schedule[t, self.nodes][:, None]
