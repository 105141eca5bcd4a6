"""ADMM with an exact x step, [C] (3)-(5): the curator minimises f(x) + (rho/2) ||A x + B w - c + u||^2 by asking for gradients.

A round is one question and one answer: a point goes to the shards, the sums of their gradients come back. The curator takes
quasi-Newton steps: H is the BFGS matrix of f, which begins at L_f I and is kept from one iteration to the next, and the
direction is -(H + rho A'A)^-1 times the gradient. The function is convex, so the slope along the direction tells whether a
step went too far; then a shorter one is tried, by the rule of the secant.

Once the step is solved, the curator asks about no point (nan), which tells every rank that the iteration has no more rounds.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from dpadmm_mpi.errors import RunError
from dpadmm_mpi.methods.curated.algorithm import CuratedNodes, State, curator_of, with_curators, with_iterate
from dpadmm_mpi.methods.curated.steps import Curator, Settings
from dpadmm_mpi.methods.nodes import Phase
from dpadmm_mpi.problems.newton import TOLERANCE
from dpadmm_mpi.problems.objective import SCALE_FLOOR, NodeProblem
from dpadmm_mpi.types import Array, Ints

ROUNDS = 1000  # of an iteration, at most
TOO_FAR = 0.5  # of the slope at the beginning: a step after which the function rises more steeply is shortened
SHORTEST, LONGEST = 0.1, 0.9  # of a step that went too far, what the next one may be
CURVED = 1e-14  # cosine between a step and the change of the gradient, from which the pair says something


class Search(NamedTuple):
    """What the curator remembers of the x step that it is solving, and H."""

    x: Array  # where the direction begins
    gradient: Array  # of f there
    direction: Array
    length: float  # of the step that is being tried
    H: Array


def _packed(search: Search) -> Array:
    return np.concatenate([search.x, search.gradient, search.direction, [search.length], search.H.ravel()])


def _unpacked(memory: Array, d: int) -> Search:
    return Search(memory[:d], memory[d : 2 * d], memory[2 * d : 3 * d], float(memory[3 * d]), memory[3 * d + 1 :].reshape(d, d))


class ExactNodes(CuratedNodes):
    """The shards of one rank, and on one rank the curator."""

    def __init__(self, settings: Settings, places: Ints, problems: Sequence[NodeProblem]) -> None:
        super().__init__(settings, places, problems)
        self._solved = False  # in this iteration, in all runs; the same on every rank, and of no use after it

    def phases(self, t: int) -> Iterator[Phase]:
        self._solved = False
        for _ in range(0 if t == 0 else ROUNDS + 1):
            yield Phase("query", "down")
            if self._solved:
                return
            yield Phase("gradient", "up")

    def begin(self, x: Array) -> Curator:
        nothing = np.zeros_like(x)
        H = np.eye(len(x)) / self.settings.eta
        return super().begin(x)._replace(memory=_packed(Search(nothing, nothing, nothing, 0.0, H)))

    def work(self, state: State, t: int, runs: range, phase: int) -> State:
        """Before the gradients go up: their sums, at the query, in the runs that are asked about one."""
        if phase % 2 == 0:
            return state
        asked = np.flatnonzero(~np.isnan(state.query[:, 0, 0]))
        gradient = state.gradient.copy()
        for k, problem in enumerate(self.problems):
            gradient[asked, k] = problem.at(np.ascontiguousarray(state.query[asked, k])).sums
        return state._replace(gradient=gradient)

    def receive(self, state: State, t: int, runs: range, phase: int, incoming: Array) -> State:
        if phase % 2 == 0:
            state = super().receive(state, t, runs, 0, incoming)
            self._solved = bool(np.isnan(state.query).all())
            if not (self._solved and self.hubs):
                return state
            return with_curators(state, [c._replace(x_hat=c.x) for c in (curator_of(state, r) for r in range(len(runs)))])
        if not self.hubs:
            return state
        mean_gradients, number = incoming[:, -1] / self.settings.records, phase // 2 + 1
        curators = []
        for r, run in enumerate(runs):
            c = curator_of(state, r)
            if not np.isnan(c.x_hat[0]):
                if number > ROUNDS:
                    raise RunError(
                        f"run {run + 1}, iteration {t}: the x step was not solved to a relative residual of {TOLERANCE:.0e} "
                        f"within {ROUNDS} gradients; raise algorithm.rho, scale the features, or use gl-admm"
                    )
                c = round_of(c, mean_gradients[r], self.settings, first=number == 1)
            curators.append(c)
        return with_curators(state, curators)


def round_of(c: Curator, gradient: Array, s: Settings, first: bool) -> Curator:
    """What the curator does with grad f at xhat: the next xhat, or, where the x step is solved, x_t and u_t."""
    if first:
        c = c._replace(w=s.split(s.A(c.x) + c.u, s.rho))  # [C] (3)
    search, x = _unpacked(c.memory, s.features), c.x_hat
    pull = _pull(x, c, s)
    whole = gradient + pull
    scale = max(float(np.linalg.norm(gradient) + np.linalg.norm(pull)), SCALE_FLOOR)
    if float(np.linalg.norm(whole)) <= TOLERANCE * scale:
        u = s.splitting.residual(c.u + s.A(x), c.w)  # [C] (5)
        totals = with_iterate(c.totals, x, c.w)
        return c._replace(x=x, u=u, u_hat=u, x_hat=np.full_like(x, np.nan), totals=totals)
    if not first:
        search = search._replace(H=_learned(search.H, x - search.x, gradient - search.gradient))
        begun = -float((search.gradient + _pull(search.x, c, s)) @ search.direction)
        slope = float(whole @ search.direction)
        if slope > TOO_FAR * begun:
            shorter = search.length * float(np.clip(begun / (begun + slope), SHORTEST, LONGEST))
            search = search._replace(length=shorter)
            return c._replace(x_hat=search.x + shorter * search.direction, memory=_packed(search))
    direction = np.asarray(np.linalg.solve(search.H + s.rho * s.A.square, -whole), dtype=np.float64)
    search = Search(x, gradient, direction, 1.0, search.H)
    return c._replace(x_hat=x + direction, memory=_packed(search))


def _pull(x: Array, c: Curator, s: Settings) -> Array:
    """rho A'(A x + B w - c + u)"""
    return s.rho * s.A.transposed(s.splitting.residual(s.A(x) + c.u, c.w))


def _learned(H: Array, step: Array, change: Array) -> Array:
    """BFGS."""
    product = float(step @ change)
    if not product > CURVED * float(np.linalg.norm(step) * np.linalg.norm(change)):
        return H
    Hs = H @ step
    return np.asarray(H + np.outer(change, change) / product - np.outer(Hs, Hs) / float(step @ Hs))
