"""The curated family in one general form (docs/mathematics.md, section 9): ADMM, AccADMM, with noise DP-ADMM, DP-AccADMM.

[C] Algorithms 2 and 3.

The shards send the sums of their gradients; the curator, the hub, adds the noise and takes all steps. It works from
extrapolated xhat, uhat; without acceleration these are x, u themselves. It never sees a record.

Arrays of a state are (runs side by side, places of this rank, ...).

Glossary ([C] -> here): x_t -> x, xhat_t -> the hub's place in query, y_t -> w, u_t -> u, uhat_t -> u_hat, P_t -> noise,
sigma -> noise_std; B = -I, c = 0.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from dpadmm_mpi.errors import RunError
from dpadmm_mpi.methods.curated.linear_maps import LinearMap
from dpadmm_mpi.methods.curated.regularisers import Regulariser
from dpadmm_mpi.methods.nodes import DIVERGED, Phase, starting_points
from dpadmm_mpi.problems.objective import NodeProblem
from dpadmm_mpi.rng import Purpose, generator
from dpadmm_mpi.types import Array, Ints

RESTART = 0.999  # the combined residual must fall by this factor, or the momentum starts again (Goldstein et al. 2014)


@dataclass(frozen=True)
class Settings:
    """What a configuration says about the method."""

    accelerated: bool
    A: LinearMap
    lambda1: float
    regulariser: Regulariser
    rho: float
    eta: float
    gamma: float
    noise_std: float  # 0: none
    u0: str
    restart: bool
    init: str
    records: int  # n
    nodes: int
    seed: int
    features: int

    def penalty(self, z: Array) -> float:
        """g(z)"""
        return self.regulariser.value(z, self.lambda1)


class Curator(NamedTuple):
    """What the curator carries from one iteration to the next."""

    x: Array
    x_hat: Array
    w: Array
    u: Array
    u_hat: Array
    theta: float  # theta_{t+1}; stays 1 without acceleration
    combined: float  # residual of the last iteration, for the restart


def splitting_step(c: Curator, s: Settings) -> Array:
    """w_t, [C] step 2."""
    return s.regulariser.prox(s.A(c.x_hat) + c.u_hat, s.lambda1 / s.rho)


def pull(c: Curator, w: Array, s: Settings) -> Array:
    """rho A'(A xhat - w + uhat), what the constraint adds to the gradient in [C] step 3."""
    return s.rho * s.A.transposed(s.A(c.x_hat) - w + c.u_hat)


def primal_step(c: Curator, w: Array, noisy_gradient: Array, s: Settings) -> Array:
    """x_t, the closed form of [C] (7)."""
    return c.x_hat - (s.eta / s.gamma) * (noisy_gradient + pull(c, w, s))


def noisy_gradient_of(c: Curator, x: Array, s: Settings) -> Array:
    """The noisy gradient that primal_step made x of: given the past, the two determine each other."""
    return (s.gamma / s.eta) * (c.x_hat - x) - pull(c, splitting_step(c, s), s)


def follow(c: Curator, x: Array, s: Settings) -> Curator:
    """Everything else of iteration t from x_t: w_t, u_t, theta_{t+1} and the extrapolation, [C] steps 2 and 4 to 7."""
    w = splitting_step(c, s)
    u = c.u_hat + s.A(x) - w
    combined = c.combined
    if s.restart:
        combined = s.rho * float(np.sum((u - c.u_hat) ** 2)) + s.gamma / s.eta * float(np.sum((x - c.x_hat) ** 2))
        if combined >= RESTART * c.combined:
            return Curator(x, x_hat=c.x, w=w, u=u, u_hat=c.u, theta=1.0, combined=c.combined / RESTART)
    theta = 0.5 * (1.0 + np.sqrt(1.0 + 4.0 * c.theta**2)) if s.accelerated else 1.0
    momentum = (c.theta - 1.0) / theta
    return Curator(x, x + momentum * (x - c.x), w, u, u + momentum * (u - c.u), theta, combined)


def start(x: Array, u: Array, s: Settings) -> Curator:
    return Curator(x, x_hat=x, w=s.A(x), u=u, u_hat=u, theta=1.0, combined=np.inf)


def gaussian_noise(seed: int, run: int, hub: int, iteration: int, noise_std: float, features: int) -> Array:
    """P_t ~ N(0, noise_std^2 I), from its own address."""
    return noise_std * generator(seed, Purpose.NOISE, run, hub, iteration).standard_normal(features)


class State(NamedTuple):
    """Query and gradient are of all places; the rest is the curator's, a place where the hub is and none elsewhere."""

    query: Array  # where gradients are wanted; the hub's is xhat
    gradient: Array  # sum over the shard's records at the query
    x: Array
    w: Array
    u: Array
    u_hat: Array
    theta: Array
    combined: Array


class CuratedNodes:
    """The shards of one rank, and on one rank the curator."""

    released: ClassVar[tuple[str, ...]] = ("query", "gradient")
    hub_fields: ClassVar[tuple[str, ...]] = ("x", "w", "u", "u_hat", "theta", "combined")

    def __init__(self, settings: Settings, places: Ints, problems: Sequence[NodeProblem]) -> None:
        self.settings = settings
        self.places = places
        self.problems = problems
        self.hubs = len(places) - len(problems)  # 1 or 0; the hub is the last place

    def phases(self, t: int) -> tuple[Phase, ...]:
        if t == 0 and self.settings.u0 == "zero":
            return ()
        return Phase("query", "down"), Phase("gradient", "up")

    def initial(self, runs: range) -> State:
        """x_0, zero or standard normal whatever the records; u_0 = 0, until the first gradient if it is as printed."""
        s = self.settings
        zero = np.zeros((len(runs), len(self.places), s.features))
        widths = (s.features, s.A.rows, s.A.rows, s.A.rows, 1, 1)
        empty = State(zero, zero, *(np.zeros((len(runs), 0, width)) for width in widths))
        if not self.hubs:
            return empty
        points = starting_points(s.init, s.seed, runs, np.array([s.nodes]), s.features)
        return _with_curators(empty, [start(x[0], np.zeros(s.A.rows), s) for x in points])

    def work(self, state: State, t: int, runs: range, phase: int) -> State:
        """Before the gradients go up: their sums, at the query."""
        if phase == 0:
            return state
        gradient = state.gradient.copy()
        for k, problem in enumerate(self.problems):
            gradient[:, k] = problem.at(state.query[:, k]).sums
        return state._replace(gradient=gradient)

    def receive(self, state: State, t: int, runs: range, phase: int, incoming: Array) -> State:
        if phase == 0:
            query, own = state.query.copy(), len(self.problems)
            query[:, :own] = incoming[:, :own]
            return state._replace(query=query)
        if not self.hubs:
            return state
        gradients = incoming[:, -1] / self.settings.records
        curators = [self._curate(_curator(state, r), gradients[r], t, run) for r, run in enumerate(runs)]
        return _with_curators(state, curators)

    def recorded(self, state: State) -> State:
        return state

    def _curate(self, c: Curator, gradient: Array, t: int, run: int) -> Curator:
        """The curator's iteration, from the mean gradient at xhat."""
        s = self.settings
        if t == 0:
            return start(c.x, s.A.transposed_pseudo_inverse(gradient) / -s.rho, s)
        if s.noise_std > 0.0:
            gradient = gradient + gaussian_noise(s.seed, run, s.nodes, t, s.noise_std, s.features)
        c = follow(c, primal_step(c, splitting_step(c, s), gradient, s), s)
        if not np.abs(c.x).max() < DIVERGED:
            raise RunError(
                f'run {run + 1}, iteration {t}: x grows without bound; lower algorithm.eta or set algorithm.gamma = "auto"'
            )
        return c


def _curator(state: State, r: int) -> Curator:
    """Of the r-th of the runs that go side by side."""
    return Curator(
        x=state.x[r, 0],
        x_hat=state.query[r, -1],
        w=state.w[r, 0],
        u=state.u[r, 0],
        u_hat=state.u_hat[r, 0],
        theta=float(state.theta[r, 0, 0]),
        combined=float(state.combined[r, 0, 0]),
    )


def _with_curators(state: State, curators: Sequence[Curator]) -> State:
    """One for each run."""
    query = state.query.copy()
    query[:, -1] = [c.x_hat for c in curators]
    return State(
        query=query,
        gradient=state.gradient,
        x=np.array([[c.x] for c in curators]),
        w=np.array([[c.w] for c in curators]),
        u=np.array([[c.u] for c in curators]),
        u_hat=np.array([[c.u_hat] for c in curators]),
        theta=np.array([[[c.theta]] for c in curators]),
        combined=np.array([[[c.combined]] for c in curators]),
    )
