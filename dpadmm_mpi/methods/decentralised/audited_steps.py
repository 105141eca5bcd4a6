"""One data step of one node in several runs, as the audit sees it: the noise behind what was released, and exact losses.

A neighbouring data set replaces a signed row o = y x by another one, n; where numbers or several classes are predicted, a row x
and its target. It moves the noise from e to e + v, and

    loss = ln p(e) - ln p(e + v) + ln det H_D - ln det H_D^,     the determinants where the noise is in the objective.

Glossary: w = C/B the weight of a record, mu = rho/N + 2 eta V the strong convexity of what the step minimises, G the bound on
the slope of the loss; arrays are (runs, pairs of data sets, features).
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from dpadmm_mpi.privacy.noises import Noise
from dpadmm_mpi.problems.batched import Tilted
from dpadmm_mpi.problems.local_problems import LocalProblems
from dpadmm_mpi.problems.losses import Loss
from dpadmm_mpi.problems.newton import TOLERANCE, norms
from dpadmm_mpi.problems.objective import NodeProblem
from dpadmm_mpi.problems.strategies import is_small
from dpadmm_mpi.types import Array, Ints

STACK = 1 << 20  # numbers of records that are worked on together
STEPPED = 1 << 16  # margins of neighbours whose argmins are found together
STEPS, PACE = 8, 0.1  # to an argmin nearby, and the least by which the residual falls in each of them
ROUNDING = 1e-15  # of a vector that is a multiple of another one, relative
LARGE = 32  # features from which half an inverse costs less than the call that makes it
MARGINS = np.unique(np.concatenate([np.linspace(-40.0, 40.0, 4001), np.linspace(-3.0, 3.0, 6001)]))


class Pairs(NamedTuple):
    """Neighbouring data sets of one node: each has the row `new` in the place of row number `replaced`."""

    replaced: Ints  # (P,)
    new: Array  # (P, d)
    targets: Array | None = None  # (P,), of the new rows; None for margins

    def at(self, part: slice | Ints) -> "Pairs":
        return Pairs(self.replaced[part], self.new[part], None if self.targets is None else self.targets[part])


def joined(pairs: list[Pairs]) -> Pairs:
    """All of them in one; with targets, or without."""
    targets = [p.targets for p in pairs if p.targets is not None]
    replaced, new = np.concatenate([p.replaced for p in pairs]), np.concatenate([p.new for p in pairs])
    return Pairs(replaced, new, np.concatenate(targets) if targets else None)


CORNERS = 3  # replacements of a record that are always looked at


def corners(rows: Array, targets: Array | None, loss: Loss, chosen: Ints) -> Pairs:
    """Each chosen record with the opposite label, which for a margin loss is also the antipodal record with its own label,
    as long as it is and at norm 1, and without features, which has no curvature.

    Other losses: with another target (the far end of the range, the next class), and the other two with its own.
    """
    old = rows[chosen]
    units = old / np.maximum(np.linalg.norm(old, axis=1, keepdims=True), 1e-300)
    replaced = np.tile(chosen, CORNERS)
    if targets is None:
        return Pairs(replaced, np.concatenate([-old, -units, np.zeros_like(old)]))
    y = targets[chosen]
    other = (y + 1.0) % loss.outputs if loss.predicts == "classes" else np.where(y > 0.0, -1.0, 1.0)
    return Pairs(replaced, np.concatenate([old, -units, np.zeros_like(old)]), np.concatenate([other, y, y]))


class SomeRecords(NamedTuple):
    """The losses of some records, each by itself, at the points of all runs."""

    problem: NodeProblem
    rows: Array  # (P, d)
    targets: Array | None

    def margins(self, f: Array) -> Array:
        """(R, P); one output."""
        return f @ self.rows.T if self.targets is None else f @ self.rows.T - self.targets

    def gradients(self, f: Array) -> Array:
        """(R, P, features of f)"""
        loss, k = self.problem.loss, self.problem.outputs
        if k == 1:
            return loss.first(self.margins(f))[..., None] * self.rows
        return np.einsum("rpk,pd->rpkd", self.slopes(f), self.rows).reshape(len(f), len(self.rows), -1)

    def gradients_at(self, points: Array) -> Array:
        """Each at points of its own, (R, P, features of f)"""
        if self.problem.outputs == 1:
            margins = np.vecdot(points, self.rows)
            slopes = self.problem.loss.first(margins if self.targets is None else margins - self.targets)
            return np.asarray(slopes[..., None] * self.rows)
        each = (self._replace(rows=self.rows[p : p + 1], targets=self.targets[p : p + 1]) for p in range(len(self.rows)))  # type: ignore[index]
        return np.concatenate([one.gradients(points[:, p]) for p, one in enumerate(each)], axis=1)

    def slopes(self, f: Array) -> Array:
        """First derivatives by the outputs, (R, P, k); several outputs."""
        records = self.problem.with_records(self.rows, self.targets)
        return np.asarray(records.slopes(records.margins(f)).reshape(len(f), self.problem.outputs, -1).swapaxes(1, 2))

    def curvatures(self, f: Array) -> Array:
        """Second derivatives by the outputs, (R, P, k, k)."""
        if self.problem.outputs == 1:
            return self.problem.loss.second(self.margins(f))[..., None, None]
        records = self.problem.with_records(self.rows, self.targets)
        return records.curvatures(records.margins(f))


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

    def old(self, replaced: Ints) -> "SomeRecords":
        targets = self.problem.targets
        return SomeRecords(self.problem, self.rows[replaced], None if targets is None else targets[replaced])

    @cached_property
    def _known(self) -> dict[tuple[str, bytes], Array]:
        return {}

    def of_old(self, name: str, replaced: Ints, of_records: Callable[[Ints], Array]) -> Array:
        """(R, P, ...), worked out once for each record; kept, for a search asks for the same in each of its iterations."""
        key = name, replaced.tobytes()
        if key not in self._known:
            records, place = np.unique(replaced, return_inverse=True)
            self._known[key] = of_records(records)[:, place]
        return self._known[key]

    def new(self, pairs: Pairs) -> "SomeRecords":
        return SomeRecords(self.problem, pairs.new, pairs.targets)

    @property
    def mu(self) -> float:
        return self.problem.ridge + self.quadratic

    @cached_property
    def inverse(self) -> Array:
        """Of the Hessian at f, (R, d, d)."""
        H, diagonal = self.problem.hessians(self.margins), np.arange(self.f.shape[1])
        H[:, diagonal, diagonal] += self.mu + self.problem.rest_curvature(self.f)
        return _inverse(H)

    @cached_property
    def margins(self) -> Array:
        """Of all records."""
        return self.problem.margins(self.f)

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
        return self.losses_at(pairs, self.shifts(pairs))

    def losses_at(self, pairs: Pairs, shifts: Array) -> Array:
        return self.losses_by(shifts) + self.log_determinants(pairs)

    def losses_by(self, shifts: Array) -> Array:
        """ln p(e) - ln p(e + v)"""
        noise = self.noise[:, None]
        return self.kind.log_ratio(noise, noise + shifts, self.parameter)

    def ascent(self, pairs: Pairs, shifts: Array, weights: Array) -> Array:
        """The gradient by n of the weighted sum, (R, P), of the noise's losses, to first order, at their shifts; (P, d)."""
        u = self.kind.score(self.noise[:, None] + shifts, self.parameter)
        u = self.transposed_shift(u) * weights[..., None]
        if self.problem.outputs > 1:
            return -self._along_rows(pairs, u)
        margins = self.new(pairs).margins(self.f)
        along = self.loss.second(margins) * np.vecdot(u, pairs.new)
        return -np.einsum("rp,rpd->pd", self.loss.first(margins), u) - along.T @ self.f

    def _along_rows(self, pairs: Pairs, u: Array) -> Array:
        """The gradient by n of u . (p - e_y) n', summed over the runs: (p - e_y) U + (U n) L'' F, (P, d)."""
        k, d = self.problem.outputs, pairs.new.shape[1]
        new, U, F = self.new(pairs), u.reshape(*u.shape[:2], k, d), self.f.reshape(-1, k, d)
        along = np.einsum("rpkl,rpl->rpk", new.curvatures(self.f), np.einsum("rpkd,pd->rpk", U, pairs.new))
        return np.asarray(np.einsum("rpk,rpkd->pd", new.slopes(self.f), U) + np.einsum("rpk,rkd->pd", along, F))

    def gradient_changes(self, pairs: Pairs) -> Array:
        """L'(n.f) n - L'(o.f) o"""
        return self.new(pairs).gradients(self.f) - self.of_old(
            "gradients", pairs.replaced, lambda records: self.old(records).gradients(self.f)
        )


@dataclass(frozen=True)
class InObjective(AuditedStep):
    """Noise in the objective's linear term, times `factor`."""

    factor: float | Array  # (R, 1, 1), where it is not that of all

    @property
    def scale(self) -> Any:
        """w over the factor: v = scale (a' o - b' n) with the slopes a', b'."""
        return self.problem.weight / self.factor

    def shifts(self, pairs: Pairs) -> Array:
        return -self.scale * self.gradient_changes(pairs)

    def first_order_shifts(self, pairs: Pairs) -> Array:
        return self.shifts(pairs)

    def transposed_shift(self, u: Array) -> Array:
        return -self.scale * u

    def log_determinants(self, pairs: Pairs) -> Array:
        """det(I + S U' H^-1 U) of the rank-two change H_D^ - H_D = a nn' + b oo', written out; with k outputs of rank 2k."""
        old, new, w = self.rows[pairs.replaced], pairs.new, self.problem.weight
        A, B = w * self.new(pairs).curvatures(self.f), -w * self.old(pairs.replaced).curvatures(self.f)
        if (k := self.problem.outputs) > 1:
            return _log_determinants(
                A, B, np.stack([new, old], axis=1), self.inverse.reshape(-1, k, old.shape[1], k, old.shape[1])
            )
        a, b = A[..., 0, 0], B[..., 0, 0]
        nn, oo, no = self._forms(pairs)
        return np.asarray(-np.log((1.0 + a * nn) * (1.0 + b * oo) - a * b * no**2))

    def _forms(self, pairs: Pairs) -> tuple[Array, Array, Array]:
        """n' H^-1 n, o' H^-1 o and n' H^-1 o, each (R, P); most n are multiples of their o, which is in many pairs."""
        rows, old, new = self.rows, self.rows[pairs.replaced], pairs.new
        oo = self.of_old("forms", pairs.replaced, lambda some: np.vecdot(rows[some] @ self.inverse, rows[some]))
        factor = np.vecdot(new, old) / np.maximum(np.vecdot(old, old), 1e-300)
        others = norms(new - factor[:, None] * old) > ROUNDING * norms(new)
        if others.all():
            from_new = new @ self.inverse
            return np.vecdot(from_new, new), oo, np.vecdot(from_new, old)
        nn, no = factor**2 * oo, factor * oo
        if others.any():
            from_new = new[others] @ self.inverse
            nn[:, others], no[:, others] = np.vecdot(from_new, new[others]), np.vecdot(from_new, old[others])
        return nn, oo, no

    def supremum(self) -> float:
        """max over z of ln p(e) - ln p(e + v), ||v|| = (w/factor) (G + |L'(z)|), plus ln(1 + (w/mu) L''(z)).

        Between two margins |L'| lies between its values there, for the loss is convex. With several outputs ||v|| is at most
        2 (w/factor) G, and the determinant has the bound of the accounts.
        """
        if (k := self.problem.outputs) > 1:
            shift = np.array([2.0 * self.scale * self.loss.slope_bound])
            determinant = (k - 1) * np.log1p(self.problem.weight / (self.mu * k))
            return float(self.kind.pure_loss(shift, np.array([self.parameter]))[0] + determinant)
        slope, curvature = np.abs(self.loss.first(MARGINS)), self.loss.second(MARGINS)
        slope, curvature = (np.maximum(values[1:], values[:-1]) for values in (slope, curvature))
        shift = self.scale * (self.loss.slope_bound + slope)
        noise = self.kind.pure_loss(shift, np.full_like(shift, self.parameter))
        return float((noise + np.log1p(self.problem.weight / self.mu * curvature)).max())

    def limits(self, pairs: Pairs) -> Array:
        """l(a p + b q) <= max(0, l(2p))/2 + max(0, l(2q))/2 for a, b in [0, 1], p = -(w/factor) G o, q = (w/factor) G n.

        Where the slope may have both signs: the worst v of length 2 (w/factor) G in the plane of o and n, for each output. The
        determinants are at most 1 + (w/mu) L''(o.f) ||o||^2; with k outputs the trace of L'' counts, shared by k - 1 factors.
        """
        old, reach = self.rows[pairs.replaced], self.scale * self.loss.slope_bound
        k, squares = self.problem.outputs, np.sum(old**2, axis=1)
        factors, traces = max(1, k - 1), np.trace(self.old(pairs.replaced).curvatures(self.f), axis1=-2, axis2=-1)
        determinants = factors * np.log1p(self.problem.weight / self.mu * traces * squares / factors)
        if self.loss.decreasing:
            by_old = self.of_old("limits", pairs.replaced, lambda some: self.losses_by(-2.0 * reach * self.rows[some][None]))
            by_new = self.losses_by(2.0 * reach * pairs.new[None])
            return 0.5 * np.maximum(by_old, 0.0) + 0.5 * np.maximum(by_new, 0.0) + determinants
        plane, _ = np.linalg.qr(np.stack([old, pairs.new], axis=-1))
        along = np.einsum("pek,rce->rpck", plane, self.noise.reshape(len(self.noise), k, -1))
        inside = np.einsum("pdk,rpck->rpcd", plane, along).reshape(*along.shape[:2], -1)
        return self.losses_by(2.0 * reach * _units(inside)) + determinants


@dataclass(frozen=True)
class OnRelease(AuditedStep):
    """Noise on the argmin before it is released; no determinant."""

    linear: Array  # (R, d), beside O_i

    def shifts(self, pairs: Pairs) -> Array:
        count = STEPPED // (len(self.f) * len(self.rows) * self.problem.outputs)
        moved = [self._argmins_nearby(pairs.at(part)) for part in _parts(len(pairs.replaced), count)]
        return self.f[:, None] - np.concatenate(moved, axis=1)

    def _argmins_nearby(self, pairs: Pairs) -> Array:
        """argmin of every run with every pair's second data set, (R, P, d), by a few steps from f with the Hessian at f.

        All of them share it, but for two records, and all other records; so there is no need to write out any data set.
        """
        problem, old, new = self.problem, self.old(pairs.replaced), self.new(pairs)
        linear, constant = self.linear[:, None], norms(self.linear)[:, None]
        data_gradient = problem.weight * problem.at(self.f).sums[:, None] + problem.weight * self.gradient_changes(pairs)
        points, solved_by = self.f[:, None], self._newton_steps(pairs)
        before = np.inf
        with np.errstate(over="ignore", invalid="ignore"):  # overflow ends in a residual that is no number
            for _ in range(STEPS):
                gradient = data_gradient + linear + self.mu * points + problem.rest_gradient(points)
                points = points - solved_by(gradient)
                sums = problem.at(points.reshape(-1, points.shape[-1])).sums.reshape(points.shape)
                data_gradient = problem.weight * (sums + new.gradients_at(points) - old.gradients_at(points))
                parts = data_gradient, self.mu * points, problem.rest_gradient(points)
                scale = np.clip(constant + sum(norms(part) for part in parts), *problem.scales)
                residual = norms(linear + sum(parts)) / scale
                if (worst := residual.max()) <= TOLERANCE:
                    return points
                if not worst < PACE * before:
                    break
                before = worst
        left = np.flatnonzero(~(residual.max(axis=0) <= TOLERANCE))
        points[:, left] = argmins(problem, pairs.at(left), self.linear, self.quadratic, self.f)
        return points

    def _newton_steps(self, pairs: Pairs) -> Callable[[Array], Array]:
        """H_D^^-1 q for q of (R, P, d), by the rank-two change a nn' + b oo' of H_D; of several outputs H_D^-1 q."""
        if self.problem.outputs > 1:
            return lambda q: q @ self.inverse
        old, new, w = self.rows[pairs.replaced], pairs.new, self.problem.weight
        a, b = w * self.new(pairs).curvatures(self.f)[..., 0, 0], -w * self.old(pairs.replaced).curvatures(self.f)[..., 0, 0]
        from_old, from_new = old @ self.inverse, new @ self.inverse
        nn, oo, no = np.vecdot(from_new, new), np.vecdot(from_old, old), np.vecdot(from_new, old)
        determinant = (1.0 + a * nn) * (1.0 + b * oo) - a * b * no**2

        def solved(q: Array) -> Array:
            by_new, by_old = a * np.vecdot(q, from_new), b * np.vecdot(q, from_old)
            of_new = ((1.0 + b * oo) * by_new - a * no * by_old) / determinant
            of_old = ((1.0 + a * nn) * by_old - b * no * by_new) / determinant
            return np.asarray((q - of_new[..., None] * new - of_old[..., None] * old) @ self.inverse)

        return solved

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
        length = self.problem.weight / self.mu * norms(self.gradient_changes(pairs))[..., None]
        return self.losses_by(length * _units(self.noise)[:, None])


@dataclass(frozen=True)
class _InTurn:
    """The noise of several steps, one after the other along the first axis, each with its own parameter."""

    kind: Noise
    parameters: tuple[float, ...]

    def log_ratio(self, noise: Array, shifted: Array, parameter: float) -> Array:
        parts = zip(*(np.split(each, len(self.parameters)) for each in (noise, shifted)), self.parameters, strict=True)
        return np.concatenate([self.kind.log_ratio(*part) for part in parts])

    def score(self, noise: Array, parameter: float) -> Array:
        parts = zip(np.split(noise, len(self.parameters)), self.parameters, strict=True)
        return np.concatenate([self.kind.score(*part) for part in parts])


def as_one(steps: Sequence[AuditedStep]) -> AuditedStep:
    """Steps of one node in the same runs as one step in as many runs more: for what is to first order."""
    first = steps[0]
    changed: dict[str, Any] = {name: np.concatenate([getattr(step, name) for step in steps]) for name in ("f", "noise")}
    if len(set(parameters := tuple(step.parameter for step in steps))) > 1:
        changed["kind"] = _InTurn(first.kind, parameters)
    if isinstance(first, InObjective):
        changed["factor"] = np.concatenate([np.full((len(step.f), 1, 1), step.factor) for step in steps])  # type: ignore[attr-defined]
    one = replace(first, **changed)
    one.__dict__["inverse"] = np.concatenate([step.inverse for step in steps])
    return one


def argmins(problem: NodeProblem, pairs: Pairs, linear: Array, quadratic: float, start: Array) -> Array:
    """argmin of every run with every pair's second data set, (R, P, d)."""
    rows, runs, solved = np.asarray(problem.signed), len(linear), []
    count = max(1, STACK // (runs * rows.size))
    stacked = problem.regulariser is None and problem.outputs == 1 and is_small(*rows.shape)
    for part in _parts(len(pairs.replaced), count if stacked else 1):
        some = pairs.at(part)
        changed = np.repeat(rows[None], len(some.replaced), axis=0)
        changed[np.arange(len(changed)), some.replaced] = some.new
        targets = np.zeros((len(changed), 1))
        if problem.targets is not None:
            targets = np.repeat(problem.targets[None], len(changed), axis=0)
            targets[np.arange(len(changed)), some.replaced] = some.targets
        if stacked:
            repeated, points = np.repeat(changed, runs, axis=0), len(changed) * runs
            stack = Tilted(
                problem.loss,
                repeated,
                np.repeat(targets, runs, axis=0),
                np.full(repeated.shape[:2], problem.weight),
                np.tile(problem.scales, (points, 1)),
                np.tile(linear, (len(changed), 1)),
                np.full(points, problem.ridge + quadratic),
            )
            found = stack.argmins(np.tile(start, (len(changed), 1)))[0].reshape(len(changed), *start.shape)
        else:
            other = problem.with_records(changed[0], None if problem.targets is None else targets[0])
            found = LocalProblems([other]).argmins(linear[:, None], np.array([quadratic]), start[:, None])[0].swapaxes(0, 1)
        solved.append(found)
    return np.concatenate(solved).swapaxes(0, 1)


def _inverse(H: Array) -> Array:
    """Of symmetric, positive definite matrices, (R, d, d)."""
    if H.shape[1] < LARGE:
        return np.asarray(np.linalg.inv(H), dtype=np.float64)
    from scipy.linalg.lapack import dpotrf, dpotri

    for matrix in H:
        upper, _ = dpotri(dpotrf(matrix)[0])
        matrix[:] = np.triu(upper) + np.triu(upper, 1).T
    return H


def _log_determinants(A: Array, B: Array, pairs: Array, inverse: Array) -> Array:
    """-ln det(I + S U' H^-1 U): S has the blocks A and B, (R, P, k, k), and U the rows of pairs, (P, 2, d), for each output."""
    runs, count, k, _ = A.shape
    S = np.zeros((runs, count, 2 * k, 2 * k))
    S[..., :k, :k], S[..., k:, k:] = A, B
    half = np.einsum("radbe,pje->rpadjb", inverse, pairs, optimize=True)
    products = np.einsum("pid,rpadjb->rpiajb", pairs, half, optimize=True).reshape(runs, count, 2 * k, 2 * k)
    return np.asarray(-np.linalg.slogdet(np.eye(2 * k) + S @ products)[1])


def _parts(count: int, size: int) -> Iterator[slice]:
    size = max(1, size)
    return (slice(first, min(first + size, count)) for first in range(0, count, size))


def _units(vectors: Array) -> Array:
    return np.asarray(vectors / np.maximum(norms(vectors)[..., None], 1e-300))
