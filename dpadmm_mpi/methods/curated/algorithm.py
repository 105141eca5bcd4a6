"""The curated family in one general form (docs/mathematics.md, section 9): ADMM, AccADMM, with noise DP-ADMM, DP-AccADMM.

What solves the x step exactly is in `exact.py`.

[C] Algorithms 2 and 3.

The shards send the sums of their gradients; the curator, the hub, adds the noise and takes all steps. It works from
extrapolated xhat, uhat; without acceleration these are x, u themselves. It never sees a record.

Arrays of a state are (runs side by side, places of this rank, ...).

Glossary ([C] -> here): x_t -> x, xhat_t -> the hub's place in query, y_t -> w, u_t -> u, uhat_t -> u_hat, P_t -> noise,
sigma -> noise_std; B and c -> splitting, which is -I and 0 unless they are given.
"""

from collections.abc import Iterable, Sequence
from typing import ClassVar, NamedTuple

import numpy as np

from dpadmm_mpi.errors import RunError
from dpadmm_mpi.methods.curated import safeguarded
from dpadmm_mpi.methods.curated.steps import NOTHING, Curator, Settings, primal_step, splitting_step
from dpadmm_mpi.methods.nodes import DIVERGED, Phase, replaced, starting_points
from dpadmm_mpi.problems.objective import NodeProblem
from dpadmm_mpi.rng import Purpose, generator
from dpadmm_mpi.types import Array, Ints

RESTART = 0.999  # the combined residual must fall by this factor, or the momentum starts again (Goldstein et al. 2014)


def follow(c: Curator, x: Array, s: Settings) -> Curator:
    """Everything else of iteration t from x_t: w_t, u_t, theta_{t+1} and the extrapolation, [C] steps 2 and 4 to 7."""
    w = splitting_step(c, s)
    c = c._replace(totals=with_iterate(c.totals, x, w))
    u = s.splitting.residual(c.u_hat + s.A(x), w)
    if s.restart == safeguarded.NAME:
        return safeguarded.follow(c, x, w, u, s)
    combined = c.combined
    if s.restart:
        combined = s.rho * float(np.sum((u - c.u_hat) ** 2)) + s.gamma / s.eta * float(np.sum((x - c.x_hat) ** 2))
        if combined >= RESTART * c.combined:
            return c._replace(x=x, x_hat=c.x, w=w, u=u, u_hat=c.u, theta=1.0, combined=c.combined / RESTART)
    theta = 0.5 * (1.0 + np.sqrt(1.0 + 4.0 * c.theta**2)) if s.accelerated else 1.0
    momentum = (c.theta - 1.0) / theta
    x_hat, u_hat = x + momentum * (x - c.x), u + momentum * (u - c.u)
    return c._replace(x=x, x_hat=x_hat, w=w, u=u, u_hat=u_hat, theta=theta, combined=combined)


def with_iterate(totals: Array, x: Array, w: Array) -> Array:
    """The sums with one more iterate in them, where they are kept."""
    return totals + np.concatenate([x, w, [1.0], np.zeros_like(x)]) if len(totals) else totals


def start(x: Array, u: Array, s: Settings) -> Curator:
    return Curator(
        x=x,
        x_hat=x,
        w=s.splitting.settled(s.A(x)),
        u=u,
        u_hat=u,
        theta=1.0,
        combined=np.inf,
        memory=np.zeros(safeguarded.numbers(s)),
        totals=np.concatenate([np.zeros(s.features + s.columns + 1), x]) if s.keeps_means else NOTHING,
    )


def gaussian_noise(seed: int, run: int, hub: int, iteration: int, noise_std: float, features: int) -> Array:
    """P_t ~ N(0, noise_std^2 I), from its own address."""
    return noise_std * generator(seed, Purpose.NOISE, run, hub, iteration).standard_normal(features)


def sampled_records(s: Settings, run: int, t: int) -> list[Ints]:
    """Of each shard, its records in the batch of iteration t: drawn of all without replacement, from an address."""
    assert s.batch is not None
    drawn = np.sort(generator(s.seed, Purpose.SAMPLES, run, s.nodes, t).choice(s.records, s.batch, replace=False))
    ends = np.cumsum(s.sizes)
    parts = np.split(drawn, np.searchsorted(drawn, ends)[:-1])
    return [part - (end - size) for part, end, size in zip(parts, ends, s.sizes, strict=True)]


def sampled_sum(problem: NodeProblem, chosen: Ints, x: Array) -> Array:
    """Sum of the gradients of some records."""
    rows = problem.signed[chosen]
    margins = np.asarray(rows @ x)
    if problem.targets is not None:
        margins = margins - problem.targets[chosen]
    return np.asarray(rows.T @ problem.loss.first(margins))


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
    memory: Array  # of the safeguarded and the exact method; no numbers for the others
    totals: Array  # for the means; no numbers where nobody asks for them


class CuratedNodes:
    """The shards of one rank, and on one rank the curator."""

    released: ClassVar[tuple[str, ...]] = ("query", "gradient")
    hub_fields: ClassVar[tuple[str, ...]] = ("x", "w", "u", "u_hat", "theta", "combined", "memory", "totals")
    arc_fields: ClassVar[tuple[str, ...]] = ()

    def __init__(self, settings: Settings, places: Ints, problems: Sequence[NodeProblem]) -> None:
        self.settings = settings
        self.places = places
        self.problems = problems
        self.hubs = len(places) - len(problems)  # 1 or 0; the hub is the last place

    def phases(self, t: int) -> Iterable[Phase]:
        if t == 0 and self.settings.u0 == "zero":
            return ()
        return Phase("query", "down"), Phase("gradient", "up")

    def initial(self, runs: range) -> State:
        """x_0, zero or standard normal whatever the records; u_0 = 0, until the first gradient if it is as printed."""
        s = self.settings
        zero = np.zeros((len(runs), len(self.places), s.features))
        points = starting_points(s.init, s.seed, runs, np.array([s.nodes]), s.features)
        first = State(zero, zero, *(np.zeros(0) for _ in self.hub_fields))
        begun = with_curators(first, [self.begin(x[0]) for x in points])
        if self.hubs:
            return begun
        return replaced(begun, {"query": zero} | {name: getattr(begun, name)[:, :0] for name in self.hub_fields})

    def begin(self, x: Array) -> Curator:
        return start(x, np.zeros(self.settings.A.rows), self.settings)

    def work(self, state: State, t: int, runs: range, phase: int) -> State:
        """Before the gradients go up: their sums, at the query."""
        if phase == 0:
            return state
        gradient = state.gradient.copy()
        for k, problem in enumerate(self.problems):
            if self.settings.batch is None or t == 0:
                gradient[:, k] = problem.at(state.query[:, k]).sums
            else:
                for r, run in enumerate(runs):
                    chosen = sampled_records(self.settings, run, t)[int(self.places[k])]
                    gradient[r, k] = sampled_sum(problem, chosen, state.query[r, k])
        return state._replace(gradient=gradient)

    def receive(self, state: State, t: int, runs: range, phase: int, incoming: Array) -> State:
        if phase == 0:
            query, own = state.query.copy(), len(self.problems)
            query[:, :own] = incoming[:, :own]
            return state._replace(query=query)
        if not self.hubs:
            return state
        s = self.settings
        gradients = incoming[:, -1] / (s.records if t == 0 else s.averaged)
        curators = [self._curate(curator_of(state, r), gradients[r], t, run) for r, run in enumerate(runs)]
        return with_curators(state, curators)

    def recorded(self, state: State) -> State:
        return state

    def _curate(self, c: Curator, gradient: Array, t: int, run: int) -> Curator:
        """The curator's iteration, from the mean gradient at xhat."""
        s = self.settings
        if t == 0:
            return start(c.x, s.A.transposed_pseudo_inverse(gradient) / -s.rho, s)
        if s.noise_std > 0.0:
            gradient = gradient + gaussian_noise(s.seed, run, s.nodes, t, s.noise_at(t), s.features)
        c = follow(c, primal_step(c, splitting_step(c, s), gradient, s), s)
        if not np.abs(c.x).max() < DIVERGED:
            raise RunError(
                f'run {run + 1}, iteration {t}: x grows without bound; lower algorithm.eta or set algorithm.gamma = "auto"'
            )
        return c


def curator_of(state: State, r: int) -> Curator:
    """Of the r-th of the runs that go side by side."""
    return Curator(
        x=state.x[r, 0],
        x_hat=state.query[r, -1],
        w=state.w[r, 0],
        u=state.u[r, 0],
        u_hat=state.u_hat[r, 0],
        theta=float(state.theta[r, 0, 0]),
        combined=float(state.combined[r, 0, 0]),
        memory=state.memory[r, 0],
        totals=state.totals[r, 0],
    )


def with_curators(state: State, curators: Sequence[Curator]) -> State:
    """One for each run."""
    query = state.query.copy()
    query[:, -1] = [c.x_hat for c in curators]
    return state._replace(
        query=query,
        x=np.array([[c.x] for c in curators]),
        w=np.array([[c.w] for c in curators]),
        u=np.array([[c.u] for c in curators]),
        u_hat=np.array([[c.u_hat] for c in curators]),
        theta=np.array([[[c.theta]] for c in curators]),
        combined=np.array([[[c.combined]] for c in curators]),
        memory=np.array([[c.memory] for c in curators]),
        totals=np.array([[c.totals] for c in curators]),
    )
