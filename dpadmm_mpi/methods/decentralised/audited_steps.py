"""One data step of one node in several runs, as the audit sees it: the noise behind what was released, and exact losses.

A neighbouring data set replaces a signed row o = y x by another one, n. It moves the noise from e to e + v, and

    loss = ln p(e) - ln p(e + v) + ln det H_D - ln det H_D^,     the determinants where the noise is in the objective.

Glossary: w = C/B the weight of a record, mu = rho/N + 2 eta V the strong convexity of what the step minimises, G the bound on
the slope of the loss; arrays are (runs, pairs of data sets, features).
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from dpadmm_mpi.privacy.noises import Noise
from dpadmm_mpi.problems.batched import Tilted
from dpadmm_mpi.problems.local_problems import LocalProblems
from dpadmm_mpi.problems.losses import Loss
from dpadmm_mpi.problems.objective import NodeProblem
from dpadmm_mpi.problems.strategies import is_small
from dpadmm_mpi.types import Array, Ints

STACK = 1 << 20  # numbers of records that are worked on together
FEW_NUMBERS = 1 << 12  # of a node's records, up to which a call of numpy costs more than the arithmetic
MARGINS = np.unique(np.concatenate([np.linspace(-40.0, 40.0, 4001), np.linspace(-3.0, 3.0, 6001)]))


class Pairs(NamedTuple):
    """Neighbouring data sets of one node: each has the row `new` in the place of row number `replaced`."""

    replaced: Ints  # (P,)
    new: Array  # (P, d)

    def at(self, part: slice) -> "Pairs":
        return Pairs(self.replaced[part], self.new[part])


def joined(pairs: list[Pairs]) -> Pairs:
    return Pairs(np.concatenate([p.replaced for p in pairs]), np.concatenate([p.new for p in pairs]))


@dataclass(frozen=True)
class AuditedStep(ABC):
    """What all places of the noise have in common."""

    problem: NodeProblem
    kind: Noise
    parameter: float
    quadratic: float  # 2 eta V
    f: Array  # (R, d): the argmin
    noise: Array  # (R, d): e

    @property
    def rows(self) -> Array:
        return np.asarray(self.problem.signed)

    @property
    def loss(self) -> Loss:
        return self.problem.loss

    @property
    def mu(self) -> float:
        return self.problem.ridge + self.quadratic

    @cached_property
    def inverse(self) -> Array:
        """Of the Hessian at f, (R, d, d)."""
        return np.asarray(np.linalg.inv(_hessians(self.problem, self.f, self.mu)), dtype=np.float64)

    @abstractmethod
    def shifts(self, pairs: Pairs) -> Array:
        """v, (R, P, d)."""

    @abstractmethod
    def first_order_shifts(self, pairs: Pairs) -> Array:
        """The same, to first order in the change of the gradient: quick, and good enough to search by."""

    @abstractmethod
    def transposed_shift(self, u: Array) -> Array:
        """M'u, where v = M (L'(n.f) n - L'(o.f) o) to first order."""

    @abstractmethod
    def log_determinants(self, pairs: Pairs) -> Array:
        """ln det H_D - ln det H_D^, (R, P)."""

    @abstractmethod
    def supremum(self) -> float:
        """What no loss of this step exceeds, whatever the noise and the two records; inf: there is no such number."""

    @abstractmethod
    def limits(self, pairs: Pairs) -> Array:
        """What the proof of the accounts allows each pair at the noise that was drawn, (R, P)."""

    def losses(self, pairs: Pairs) -> Array:
        return self.losses_by(self.shifts(pairs)) + self.log_determinants(pairs)

    def first_order_losses(self, pairs: Pairs) -> Array:
        return self.losses_by(self.first_order_shifts(pairs)) + self.log_determinants(pairs)

    def losses_by(self, shifts: Array) -> Array:
        """ln p(e) - ln p(e + v)"""
        noise = self.noise[:, None]
        return self.kind.log_ratio(noise, noise + shifts, self.parameter)

    def ascent(self, pairs: Pairs, weights: Array) -> Array:
        """The gradient by n of the weighted sum, (R, P), of the noise's losses, to first order; (P, d)."""
        u = self.kind.score(self.noise[:, None] + self.first_order_shifts(pairs), self.parameter)
        u = self.transposed_shift(u) * weights[..., None]
        margins = self.f @ pairs.new.T
        along = self.loss.second(margins) * np.vecdot(u, pairs.new)
        return -np.einsum("rp,rpd->pd", self.loss.first(margins), u) - along.T @ self.f

    def gradient_changes(self, pairs: Pairs) -> Array:
        """L'(n.f) n - L'(o.f) o"""
        old, new, slope = self.rows[pairs.replaced], pairs.new, self.loss.first
        return slope(self.f @ new.T)[..., None] * new - slope(self.f @ old.T)[..., None] * old


@dataclass(frozen=True)
class InObjective(AuditedStep):
    """Noise in the objective's linear term, times `factor`."""

    factor: float

    @property
    def scale(self) -> float:
        """w over the factor: v = scale (a' o - b' n) with the slopes a', b'."""
        return self.problem.weight / self.factor

    def shifts(self, pairs: Pairs) -> Array:
        return -self.scale * self.gradient_changes(pairs)

    def first_order_shifts(self, pairs: Pairs) -> Array:
        return self.shifts(pairs)

    def transposed_shift(self, u: Array) -> Array:
        return -self.scale * u

    def log_determinants(self, pairs: Pairs) -> Array:
        """det(I + S U' H^-1 U) of the rank-two change H_D^ - H_D = a nn' + b oo', written out."""
        old, new, w = self.rows[pairs.replaced], pairs.new, self.problem.weight
        a, b = w * self.loss.second(self.f @ new.T), -w * self.loss.second(self.f @ old.T)
        from_old, from_new = old @ self.inverse, new @ self.inverse
        nn, oo, no = np.vecdot(from_new, new), np.vecdot(from_old, old), np.vecdot(from_new, old)
        return np.asarray(-np.log((1.0 + a * nn) * (1.0 + b * oo) - a * b * no**2))

    def supremum(self) -> float:
        """max over z of ln p(e) - ln p(e + v), ||v|| = (w/factor) (G + |L'(z)|), plus ln(1 + (w/mu) L''(z)).

        Between two margins |L'| lies between its values there, for the loss is convex.
        """
        slope, curvature = np.abs(self.loss.first(MARGINS)), self.loss.second(MARGINS)
        slope, curvature = (np.maximum(values[1:], values[:-1]) for values in (slope, curvature))
        shift = self.scale * (self.loss.slope_bound + slope)
        noise = self.kind.pure_loss(shift, np.full_like(shift, self.parameter))
        return float((noise + np.log1p(self.problem.weight / self.mu * curvature)).max())

    def limits(self, pairs: Pairs) -> Array:
        """l(a p + b q) <= max(0, l(2p))/2 + max(0, l(2q))/2 for a, b in [0, 1], p = -(w/factor) G o, q = (w/factor) G n.

        Where the slope may have both signs: the worst v of length 2 (w/factor) G in the plane of o and n. The determinants are
        at most 1 + (w/mu) L''(o.f) ||o||^2.
        """
        old, reach = self.rows[pairs.replaced], self.scale * self.loss.slope_bound
        squares = np.sum(old**2, axis=1)
        determinants = np.log1p(self.problem.weight / self.mu * self.loss.second(self.f @ old.T) * squares)
        if self.loss.decreasing:
            by_old, by_new = (self.losses_by(2.0 * reach * rows[None]) for rows in (-old, pairs.new))
            return 0.5 * np.maximum(by_old, 0.0) + 0.5 * np.maximum(by_new, 0.0) + determinants
        plane, _ = np.linalg.qr(np.stack([old, pairs.new], axis=-1))
        inside = np.einsum("pdk,pek,re->rpd", plane, plane, self.noise)
        return self.losses_by(2.0 * reach * _units(inside)) + determinants


@dataclass(frozen=True)
class OnRelease(AuditedStep):
    """Noise on the argmin before it is released; no determinant."""

    linear: Array  # (R, d), beside O_i

    def shifts(self, pairs: Pairs) -> Array:
        return self.f[:, None] - argmins(self.problem, pairs, self.linear, self.quadratic, self.f)

    def first_order_shifts(self, pairs: Pairs) -> Array:
        return self.problem.weight * (self.gradient_changes(pairs) @ self.inverse)

    def transposed_shift(self, u: Array) -> Array:
        return self.problem.weight * (u @ self.inverse)

    def log_determinants(self, pairs: Pairs) -> Array:
        return np.zeros((len(self.f), len(pairs.replaced)))

    def supremum(self) -> float:
        """A shift by the argmin's sensitivity, 2 w G / mu."""
        shift = np.array([2.0 * self.problem.weight * self.loss.slope_bound / self.mu])
        return float(self.kind.pure_loss(shift, np.array([self.parameter]))[0])

    def limits(self, pairs: Pairs) -> Array:
        """The worst v of the length w ||L'(n.f) n - L'(o.f) o|| / mu: the change of the gradient over the strong convexity."""
        length = self.problem.weight / self.mu * np.linalg.norm(self.gradient_changes(pairs), axis=-1, keepdims=True)
        return self.losses_by(length * _units(self.noise)[:, None])


def argmins(problem: NodeProblem, pairs: Pairs, linear: Array, quadratic: float, start: Array) -> Array:
    """argmin of every run with every pair's second data set, (R, P, d)."""
    rows, runs, solved = np.asarray(problem.signed), len(linear), []
    count = max(1, STACK // (runs * rows.size))
    stacked = problem.regulariser is None and is_small(*rows.shape)
    for part in _parts(len(pairs.replaced), count if stacked else 1):
        some = pairs.at(part)
        changed = np.repeat(rows[None], len(some.replaced), axis=0)
        changed[np.arange(len(changed)), some.replaced] = some.new
        if stacked:
            repeated, points = np.repeat(changed, runs, axis=0), len(changed) * runs
            stack = Tilted(
                problem.loss,
                repeated,
                np.zeros((points, 1)),
                np.full(repeated.shape[:2], problem.weight),
                np.tile(problem.scales, (points, 1)),
                np.tile(linear, (len(changed), 1)),
                np.full(points, problem.ridge + quadratic),
            )
            found = stack.argmins(np.tile(start, (len(changed), 1)))[0].reshape(len(changed), *start.shape)
        else:
            other = NodeProblem(changed[0], problem.loss, problem.C, problem.ridge, problem.regulariser)
            found = LocalProblems([other]).argmins(linear[:, None], np.array([quadratic]), start[:, None])[0].swapaxes(0, 1)
        solved.append(found)
    return np.concatenate(solved).swapaxes(0, 1)


def _hessians(problem: NodeProblem, f: Array, ridge: float) -> Array:
    """At every row of f, (R, d, d)."""
    rows = np.asarray(problem.signed)
    margins = f @ rows.T
    if rows.size > FEW_NUMBERS:
        H = np.stack([problem.hessian(some, 0.0) for some in margins])
    else:
        weights = problem.weight * problem.loss.second(margins)
        H = np.concatenate([rows.T @ (weights[part, :, None] * rows) for part in _parts(len(f), STACK // rows.size)])
    diagonal = np.arange(f.shape[1])
    H[:, diagonal, diagonal] += ridge + problem.rest_curvature(f)
    return H


def _parts(count: int, size: int) -> Iterator[slice]:
    size = max(1, size)
    return (slice(first, min(first + size, count)) for first in range(0, count, size))


def _units(vectors: Array) -> Array:
    return np.asarray(vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), 1e-300))
