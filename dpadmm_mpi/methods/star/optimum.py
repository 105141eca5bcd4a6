"""The optimum of a star problem whose g is reg ||z||_1, or whose z lies in a ball; rank 0 drives.

l1: Newton steps within an orthant (Andrew, Gao: Scalable Training of L1-Regularized Log-Linear Models, 2007, with the exact
Hessian of the coordinates that move). The ball: if the optimum lies outside, there is a multiplier nu > 0 for which the
optimum of the problem with (nu/2) ||z||^2 beside it has the norm R; the norm falls with nu, and 1/norm is nearly a line.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dpadmm_mpi.errors import RunError
from dpadmm_mpi.methods.base import Ask, Question
from dpadmm_mpi.methods.centralised_optimum import CentralisedOptimum
from dpadmm_mpi.methods.metrics import Optimum
from dpadmm_mpi.problems.newton import TOLERANCE
from dpadmm_mpi.problems.objective import SCALE_FLOOR, NodeProblem
from dpadmm_mpi.types import Array

STEPS = 300
HALVINGS = 60
ENOUGH = 1e-4  # of the decrease that the slope promises
ROUND_OFF = 1e-14  # of the objective
SMALLEST = 1e-300  # norm that is divided by


class _Point(NamedTuple):
    z: Array
    value: float
    slope: Array  # steepest descent is against it; 0 where a coordinate stays at 0
    scale: float


class BallOptimum:
    """argmin_z of what `search` minimises, over ||z|| <= radius."""

    def __init__(self, search: "CentralisedOptimum | SparseOptimum", radius: float) -> None:
        self.search, self.radius = search, radius
        self.questions: Sequence[Question] = search.questions

    def find(self, ask: Ask) -> Optimum | None:
        from scipy.optimize import brentq

        free = self.search.find(ask)
        if free is None or np.linalg.norm(free.f) <= self.radius:
            return free

        def missed(nu: float) -> float:
            return 1.0 / max(float(np.linalg.norm(self._with(nu, ask).f)), SMALLEST) - 1.0 / self.radius

        high = 1.0
        while missed(high) < 0.0:
            high *= 4.0
        found = self._with(float(brentq(missed, 0.0, high, xtol=1e-300, rtol=1e-14)), ask)
        return found._replace(objective=found.objective - 0.5 * self.search.extra * float(found.f @ found.f), gradients=None)

    def _with(self, nu: float, ask: Ask) -> Optimum:
        """The optimum with (nu/2) ||z||^2 in the objective."""
        self.search.extra = nu
        found = self.search.find(ask)
        if found is None:
            raise RunError("the optimum within the ball of algorithm.radius was not found; set record.optimum = false")
        return found


class SparseOptimum:
    """argmin_z sum_i f_i(z) + reg ||z||_1, every f_i with (ridge/2) ||z||^2."""

    def __init__(self, features: int, ridge: float, reg: float) -> None:
        self.features, self.ridge, self.reg = features, ridge, reg
        self.extra = 0.0  # of (extra/2) ||z||^2 beside all of this, which rank 0 alone may set and adds
        self.evaluation = Question(1 + features, _loss_and_gradient, moves=True)
        self.hessian = Question(features**2, lambda problem, margins, _: problem.hessian(margins, ridge).ravel())
        self.questions: Sequence[Question] = (self.evaluation, self.hessian)

    def find(self, ask: Ask) -> Optimum | None:
        at = self._evaluate(ask, np.zeros(self.features))
        for _ in range(STEPS):
            if np.linalg.norm(at.slope) <= TOLERANCE * at.scale:
                return Optimum(at.z, at.value)
            better = self._step(ask, at)
            if better is None:
                break
            at = better
        raise RunError(
            f"the optimum was found to a relative residual of {np.linalg.norm(at.slope) / at.scale:.1e} only, above "
            f"{TOLERANCE:.0e}; raise problem.reg or problem.local_ridge, or set record.optimum = false"
        )

    def _evaluate(self, ask: Ask, z: Array) -> _Point:
        rows = ask(self.evaluation, z)
        ridge = self.ridge * len(rows) + self.extra
        data = rows[:, 1:].sum(axis=0)
        gradient = data + ridge * z
        towards = np.where(z == 0.0, -np.sign(gradient), np.sign(z))
        slope = np.where((z == 0.0) & (np.abs(gradient) <= self.reg), 0.0, gradient + self.reg * towards)
        scale = float(np.linalg.norm(data)) + ridge * float(np.linalg.norm(z)) + self.reg * np.sqrt(len(z))
        value = float(rows[:, 0].sum()) + 0.5 * ridge * float(z @ z) + self.reg * float(np.abs(z).sum())
        return _Point(z, value, slope, max(scale, SCALE_FLOOR * len(rows)))

    def _step(self, ask: Ask, at: _Point) -> _Point | None:
        """A Newton step of the coordinates that move, as far as they keep their signs; halved until it is better."""
        d = self.features
        H = ask(self.hessian, at.z).sum(axis=0).reshape(d, d)
        moving = (at.z != 0.0) | (at.slope != 0.0)
        orthant = np.where(at.z == 0.0, -np.sign(at.slope), np.sign(at.z))
        some = H[np.ix_(moving, moving)]
        some.flat[:: len(some) + 1] += (
            self.extra + 1e-14 * some.diagonal().max()
        )  # the last for directions that the records do not see
        direction = np.zeros(d)
        direction[moving] = np.linalg.solve(some, -at.slope[moving])
        length = 1.0
        for _ in range(HALVINGS):
            z = at.z + length * direction
            z = np.where(np.sign(z) == orthant, z, 0.0)
            there = self._evaluate(ask, z)
            promised = float(at.slope @ (z - at.z))
            if there.value <= at.value + min(ENOUGH * promised, 0.0) + ROUND_OFF * abs(at.value):
                return there
            length *= 0.5
        return None


def _loss_and_gradient(problem: NodeProblem, margins: Array, z: Array) -> Array:
    return np.append(problem.C * np.mean(problem.losses(margins)), problem.data_gradient(margins))
