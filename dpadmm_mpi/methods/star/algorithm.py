"""The star family (docs/mathematics.md, section 8): consensus ADMM with a server, and stochastic ADMM without and with noise.

The providers send x_i up, the server sends z down; the duals are known on both sides and never travel. Arrays are (runs side by
side, places of this rank, features): its providers, and behind them the server if it is here.

Glossary ([S] -> here): x_i -> primal, lambda_i -> dual, z^k -> server. In the server's own place the primal is z and the
dual the sum of all lambda_i.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple

import numpy as np

from dpadmm_mpi.errors import RunError
from dpadmm_mpi.methods.nodes import DIVERGED, Phase, refuse_inexact, starting_points
from dpadmm_mpi.methods.star.svrg import Inner, inner_loop, steps_of
from dpadmm_mpi.problems.local_problems import LocalProblems
from dpadmm_mpi.problems.objective import NodeProblem
from dpadmm_mpi.rng import Purpose, generator
from dpadmm_mpi.types import Array, Ints


class State(NamedTuple):
    """What the places carry from one iteration to the next."""

    primal: Array  # x_i^k, as sent up; the server's: z^k, as sent down
    dual: Array  # lambda_i^k; the server's: their sum
    server: Array  # z^k as received
    residual: Array  # largest relative residual of an exact solve since it was last recorded, (.., 1); nan if none
    total: Array  # x_i^1 + ... + x_i^k, the server's: z^1 + ... + z^k, and k; without width where nobody asks for means


def ergodic_means(state: State) -> Array:
    """(1/k) sum of x_i^1, ..., x_i^k, and of z: [S] Theorem 3; before the first iteration x_i^0 and z^0"""
    return np.where(state.total[..., -1:] > 0.0, state.total[..., :-1] / np.maximum(state.total[..., -1:], 1.0), state.primal)


def server_step(sum_x: Array, sum_dual: Array, N: int, rho: float, reg: float) -> Array:
    """argmin_z reg ||z||^2 + sum_i ( -z.lambda_i + (rho/2) ||x_i - z||^2 ): [S] (5), line 17"""
    return (sum_dual + rho * sum_x) / (N * rho + 2.0 * reg)


def sparse_server_step(sum_x: Array, sum_dual: Array, N: int, rho: float, reg: float) -> Array:
    """argmin_z reg ||z||_1 + sum_i ( -z.lambda_i + (rho/2) ||x_i - z||^2 ): [S] (5) with another g, soft-thresholding"""
    centre = sum_dual + rho * sum_x
    return np.asarray(np.sign(centre) * np.maximum(np.abs(centre) - reg, 0.0) / (N * rho))


def dual_step(dual: Array, primal: Array, server: Array, rho: float) -> Array:
    """lambda_i^{k+1} = lambda_i^k + rho (x_i^{k+1} - z^{k+1}): [S] (6), line 18"""
    return dual + rho * (primal - server)


@dataclass(frozen=True)
class Settings:
    """What a configuration says about the method."""

    rho: float
    reg: float
    local_ridge: float  # mu_f
    regulariser: str  # g: "l2", reg ||z||^2, or "l1", reg ||z||_1
    inner: Inner | None  # None: the exact argmin
    growth: Array  # noise of every iteration over the first one's, which inner.noise_std is, (K,); empty: it stays
    ergodic: bool  # whether the means over the iterations are wanted
    init: str
    nodes: int  # N
    seed: int
    features: int

    def inner_at(self, t: int) -> Inner:
        """What iteration t does."""
        assert self.inner is not None
        return (
            replace(self.inner, noise_std=self.inner.noise_std * float(self.growth[t - 1])) if len(self.growth) else self.inner
        )

    def server_term(self, z: Array) -> Array:
        """g(z) of every row."""
        return np.asarray(self.reg * (np.abs(z).sum(axis=-1) if self.regulariser == "l1" else np.vecdot(z, z)))

    def ridge_term(self, x: Array) -> Array:
        """(mu_f/2) ||x||^2 of every row, which a provider's f_i has beside its mean loss."""
        return np.asarray(0.5 * self.local_ridge * np.vecdot(x, x))

    def server_step(self, sum_x: Array, sum_dual: Array) -> Array:
        """z of every row; the nearest point of the ball, if there is one: what is minimised is round, also with g = l1."""
        step = sparse_server_step if self.regulariser == "l1" else server_step
        z = step(sum_x, sum_dual, self.nodes, self.rho, self.reg)
        return z if self.inner is None else self.inner.projected(z)

    def samples(self, run: int, node: int, t: int, records: int) -> Ints:
        """m_s of the inner steps of one provider and iteration, (S,); with batches (S, batch size), each without repetition."""
        inner, random = self.inner, generator(self.seed, Purpose.SAMPLES, run, node, t)
        assert inner is not None
        if inner.batch_size == 1:
            return random.integers(records, size=inner.steps)
        return np.stack([random.choice(records, inner.batch_size, replace=False) for _ in range(inner.steps)])


class StarNodes:
    """The providers of one rank, and on one rank the server."""

    released: ClassVar[tuple[str, ...]] = ("primal",)  # x_i to the server, z to the providers, and nothing else
    hub_fields: ClassVar[tuple[str, ...]] = ()
    arc_fields: ClassVar[tuple[str, ...]] = ()

    def __init__(self, settings: Settings, places: Ints, problems: Sequence[NodeProblem]) -> None:
        self.settings = settings
        self.places = places
        self.problems = problems
        self.providers = len(problems)  # on this rank, which may have none
        self.has_server = len(places) > len(problems)
        if settings.inner is not None and problems:
            steps_of(problems[0].loss)  # now, and not on the clock of the first iteration

    def phases(self, t: int) -> tuple[Phase, ...]:
        down = Phase("primal", "down")
        return (down,) if t == 0 else (Phase("primal", "up"), down)

    def initial(self, runs: range) -> State:
        """x_i^0 and z^0, zero or standard normal whatever the records; lambda_i^0 = 0."""
        s = self.settings
        primal = starting_points(s.init, s.seed, runs, self.places, s.features)
        zero = np.zeros_like(primal)
        total = np.zeros((*primal.shape[:2], s.features + 1 if s.ergodic else 0))
        return State(primal, dual=zero, server=zero, residual=np.full((*primal.shape[:2], 1), np.nan), total=total)

    def work(self, state: State, t: int, runs: range, phase: int) -> State:
        """x_i^{k+1} of every provider, before it goes up."""
        if t == 0 or phase == 1:
            return state
        primal, residual, own = state.primal.copy(), state.residual.copy(), self.providers
        if self.settings.inner is None:
            primal[:, :own], residuals = self._exact(state)
            refuse_inexact(residuals, runs, self.places, t)
            residual[:, :own, 0] = np.fmax(residual[:, :own, 0], residuals)
        else:
            for r, run in enumerate(runs):
                for k in range(own):
                    primal[r, k] = self._stochastic(state, t, r, run, k)
        return state._replace(primal=primal, residual=residual)

    def receive(self, state: State, t: int, runs: range, phase: int, incoming: Array) -> State:
        """The server has all x_i: its step. Or the providers have z: the dual step."""
        s, own, total = self.settings, self.providers, state.total
        primal, dual, server = state.primal.copy(), state.dual.copy(), state.server.copy()
        if t > 0 and phase == 0:
            if self.has_server:
                z = s.server_step(incoming[:, -1], dual[:, -1])
                primal[:, -1] = z
                dual[:, -1] += s.rho * (incoming[:, -1] - s.nodes * z)
        else:
            server[:, :own] = incoming[:, :own]
            if t > 0:
                dual[:, :own] = dual_step(dual[:, :own], primal[:, :own], server[:, :own], s.rho)
                if s.ergodic:
                    total = total + np.concatenate([primal, np.ones_like(primal[..., :1])], axis=-1)
        return state._replace(primal=primal, dual=dual, server=server, total=total)

    def recorded(self, state: State) -> State:
        return state._replace(residual=np.full_like(state.residual, np.nan))

    def _exact(self, state: State) -> tuple[Array, Array]:
        """argmin_x f_i(x) + lambda_i.x + (rho/2) ||x - z||^2: [S] (4)"""
        assert isinstance(self.problems, LocalProblems)
        rho, own = self.settings.rho, self.providers
        linear = state.dual[:, :own] - rho * state.server[:, :own]
        return self.problems.argmins(linear, np.full(own, rho), start=state.primal[:, :own])

    def _stochastic(self, state: State, t: int, r: int, run: int, k: int) -> Array:
        s, node, problem = self.settings, int(self.places[k]), self.problems[k]
        inner, chosen = s.inner_at(t), s.samples(run, node, t, problem.records)
        noise = generator(s.seed, Purpose.INNER_NOISE, run, node, t)
        x = inner_loop(inner, problem, state.primal[r, k], state.dual[r, k], state.server[r, k], chosen, noise)
        if not np.abs(x).max() < DIVERGED:
            raise RunError(f"run {run + 1}, node {node}, iteration {t}: the inner steps diverged; lower algorithm.eta")
        return x
