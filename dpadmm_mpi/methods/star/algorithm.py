"""The star family (docs/mathematics.md, section 8): consensus ADMM with a server, and stochastic ADMM without and with noise.

The providers send x_i up, the server sends z down; the duals are known on both sides and never travel. Arrays are (runs side by
side, places of this rank, features): its providers, and behind them the server if it is here.

Glossary ([S] -> here): x_i -> primal, lambda_i -> dual, z^k -> server. In the server's own place the primal is z and the
dual the sum of all lambda_i.
"""

from collections.abc import Sequence
from dataclasses import dataclass
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


def server_step(sum_x: Array, sum_dual: Array, N: int, rho: float, reg: float) -> Array:
    """argmin_z reg ||z||^2 + sum_i ( -z.lambda_i + (rho/2) ||x_i - z||^2 ): [S] (5), line 17"""
    return (sum_dual + rho * sum_x) / (N * rho + 2.0 * reg)


def dual_step(dual: Array, primal: Array, server: Array, rho: float) -> Array:
    """lambda_i^{k+1} = lambda_i^k + rho (x_i^{k+1} - z^{k+1}): [S] (6), line 18"""
    return dual + rho * (primal - server)


@dataclass(frozen=True)
class Settings:
    """What a configuration says about the method."""

    rho: float
    reg: float
    inner: Inner | None  # None: the exact argmin
    init: str
    nodes: int  # N
    seed: int
    features: int


def samples(seed: int, run: int, node: int, t: int, records: int, steps: int) -> Ints:
    """m_s of the inner steps of one provider and iteration."""
    return generator(seed, Purpose.SAMPLES, run, node, t).integers(records, size=steps)


class StarNodes:
    """The providers of one rank, and on one rank the server."""

    released: ClassVar[tuple[str, ...]] = ("primal",)  # x_i to the server, z to the providers, and nothing else
    hub_fields: ClassVar[tuple[str, ...]] = ()

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
        return State(primal, dual=zero, server=zero, residual=np.full((*primal.shape[:2], 1), np.nan))

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
                    primal[r, k] = self._stochastic(self.settings.inner, state, t, r, run, k)
        return state._replace(primal=primal, residual=residual)

    def receive(self, state: State, t: int, runs: range, phase: int, incoming: Array) -> State:
        """The server has all x_i: its step. Or the providers have z: the dual step."""
        s, own = self.settings, self.providers
        primal, dual, server = state.primal.copy(), state.dual.copy(), state.server.copy()
        if t > 0 and phase == 0:
            if self.has_server:
                z = server_step(incoming[:, -1], dual[:, -1], s.nodes, s.rho, s.reg)
                primal[:, -1] = z
                dual[:, -1] += s.rho * (incoming[:, -1] - s.nodes * z)
        else:
            server[:, :own] = incoming[:, :own]
            if t > 0:
                dual[:, :own] = dual_step(dual[:, :own], primal[:, :own], server[:, :own], s.rho)
        return state._replace(primal=primal, dual=dual, server=server)

    def recorded(self, state: State) -> State:
        return state._replace(residual=np.full_like(state.residual, np.nan))

    def _exact(self, state: State) -> tuple[Array, Array]:
        """argmin_x f_i(x) + lambda_i.x + (rho/2) ||x - z||^2: [S] (4)"""
        assert isinstance(self.problems, LocalProblems)
        rho, own = self.settings.rho, self.providers
        linear = state.dual[:, :own] - rho * state.server[:, :own]
        return self.problems.argmins(linear, np.full(own, rho), start=state.primal[:, :own])

    def _stochastic(self, inner: Inner, state: State, t: int, r: int, run: int, k: int) -> Array:
        s, node, problem = self.settings, int(self.places[k]), self.problems[k]
        chosen = samples(s.seed, run, node, t, problem.signed.shape[0], inner.steps)
        noise = generator(s.seed, Purpose.INNER_NOISE, run, node, t)
        x = inner_loop(inner, problem, state.primal[r, k], state.dual[r, k], state.server[r, k], chosen, noise)
        if not np.abs(x).max() < DIVERGED:
            raise RunError(f"run {run + 1}, node {node}, iteration {t}: the inner steps diverged; lower algorithm.eta")
        return x
