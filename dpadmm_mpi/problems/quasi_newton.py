"""The exact argmin at a node with many records, in a dozen evaluations and without a Hessian of its own.

A node keeps one factorised Hessian, that of O_i near its own minimum: a function of its records alone, so that a solve
depends on its arguments and on nothing that went before, on every layout and after every restart. Q diag(lambda) Q' makes any
quadratic term free, and a factor too: (c H + mu I)^-1 g takes two products with Q. BFGS pairs correct for the distance between
the two points. As long as a solve is far from its end, gradients are in single precision, for records that are in the cache
twice: BFGS takes as many steps, and the last ones, in double precision, decide where it ends.

A reference costs as much as a solve. One of O_i alone from zero, which may be the only one, does without it: BFGS begins with
the diagonal at zero, and a Hessian on the way replaces that where it pays.

Solves go side by side, one in each row: several runs of one node, or one run of several nodes (`Objectives`). The first serves
all runs by one pass over the records, the second all nodes by one call of numpy wherever the records are not concerned. A row's
numbers do not depend on the nodes beside it: records are multiplied node by node, the rest row by row.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from dpadmm_mpi.problems.newton import TOLERANCE, minimise, norms
from dpadmm_mpi.problems.objective import Evaluation, NodeProblem, Tilted
from dpadmm_mpi.types import Array, Bools, Ints

Product = Callable[[Array, Ints], Array]  # of the inverse Hessians of some solves with one vector each

EVALUATIONS = 60  # more than this, and the damped Newton method takes over
HESSIAN_COST = 20  # evaluations that a Hessian at the current point costs, roughly, and about what is left after it
_ROUGH_EVALUATIONS = 4  # a Hessian near the minimum is as good as one at it
_LOOK_BACK = 4  # steps over which the rate of convergence is measured
_FLAT = 0.5  # a step along a direction is long enough when the slope has fallen to this share: BFGS asks for no more
_TRIALS = 30
_FAR = 1e-4  # residual above which the next evaluation is in single precision: half as much to fetch, twice as fast an exp
_COARSE = 1e-6  # residual up to which single precision sees little but its own round-off
_SINGLES = 10  # steps by which a solve has come that far, unless its gradient is a small rest of large numbers
_BENDS = 1e-3, 1e3  # at most so much less or more than at the reference: a smoothed hinge may not bend at all
_CROWDED = 0.7  # share of a node's solves under way, up to which those at their end leave


class Points(NamedTuple):
    """Where the solves are."""

    f: Array  # (rows, d)
    margins: Array  # (rows, B)
    gradient: Array
    residual: Array  # (rows,): the gradients relative to their terms; nan where numbers have overflowed

    def at(self, which: Ints) -> "Points":
        return Points(self.f[which], self.margins[which], self.gradient[which], self.residual[which])

    def put(self, which: Ints, points: "Points") -> "Points":
        """With others in these places; in double precision, if any are."""
        both = [all_.astype(np.result_type(all_, some), copy=False) for all_, some in zip(self, points, strict=True)]
        for all_, some in zip(both, points, strict=True):
            all_[which] = some
        return Points(*both)


@dataclass(frozen=True)
class Objectives:
    """O_i(f) + linear.f and a quadratic term, which `ridge` holds together with that of O_i."""

    problems: Sequence[NodeProblem]  # one for all rows; or one for each, with as many records as the others, and in the cache
    linear: Array  # (rows, d)
    ridge: Array  # (1,) or (rows,), as are:
    weight: Array  # of a record
    scales: Array  # (2, 1) or (2, rows)
    norm_of_linear: Array  # (rows,)
    begins_in_single: bool
    row_by_row: bool

    @classmethod
    def tilted(cls, problems: Sequence[NodeProblem], linear: Array, ridge: Array) -> "Objectives":
        weight, scales = np.array([problem.weight for problem in problems]), np.array([problem.scales for problem in problems])
        in_cache = all(problem.stays_in_cache for problem in problems)
        row_by_row = len(problems) > 1 or (len(linear) == 1 and in_cache and problems[0].outputs == 1)
        # Records that are fetched from memory are there once, not twice; a tolerance may ask for more from the beginning; and
        # where the Hessian is exact, the first step leads to the end.
        exact = problems[0].loss.curvature_is_constant
        in_single = in_cache and not exact and all(problem.tolerance is None for problem in problems)
        return cls(problems, linear, ridge, weight, scales.T, norms(linear), in_single, row_by_row)

    @property
    def of_several_nodes(self) -> bool:
        return len(self.problems) > 1

    @property
    def hessian_cost(self) -> float:
        """In evaluations, of which each has two products for every class, where a Hessian has one for every pair of them."""
        return HESSIAN_COST * max(1.0, (self.problems[0].outputs - 1) / 2)

    def of(self, which: Ints) -> "Objectives":
        """Of some rows alone."""
        linear, norm = self.linear[which], self.norm_of_linear[which]
        if not self.of_several_nodes:
            return replace(self, linear=linear, norm_of_linear=norm)
        some = [self.problems[k] for k in which.tolist()]
        return replace(
            self, problems=some, linear=linear, ridge=self.ridge[which],
            weight=self.weight[which], scales=self.scales[:, which], norm_of_linear=norm,
        )  # fmt: skip

    def at(self, f: Array, far: Bools) -> Points:
        """Where a solve is far from its end, in single precision; runs of one node are so together."""
        far = far & self.begins_in_single
        in_single = far if self.row_by_row else np.full(len(f), far.all())
        points = self.points(f, self._evaluations(f, in_single))
        coarse = np.flatnonzero(in_single & ~((points.residual > _COARSE) & (points.residual < np.inf)))
        if len(coarse):  # what is left, or how large the numbers are, can be seen in double precision alone
            again, there = self.of(coarse), f[coarse]
            points = points.put(coarse, again.points(there, again._evaluations(there, np.zeros(len(coarse), dtype=bool))))
        return points

    def _evaluations(self, f: Array, in_single: Bools) -> Evaluation:
        first = self.problems[0]
        if not self.row_by_row:
            return first.in_single.at(f.astype(np.float32)) if in_single.any() else first.at(f)
        found = Evaluation(np.empty((len(f), first.records)), np.empty_like(f))
        for k, problem in enumerate(self.problems):  # both passes over one's records while they are in the cache
            chosen, point = (problem.in_single, f[k].astype(np.float32)) if in_single[k] else (problem, f[k])
            margins = chosen.from_products(chosen.rows.product(point))
            found.margins[k], found.sums[k] = margins, chosen.rows.weighted_sum(chosen.slopes(margins))
        return found

    def slopes(self, margins: Array) -> Array:
        """L' of every record; the loss does not depend on the node, unless there is but one."""
        return self.problems[0].slopes(margins)

    def points(self, f: Array, found: Evaluation) -> Points:
        """Gradients and their norms relative to those of their terms."""
        terms = np.empty((3, *f.shape))  # in one array, so that their norms take one call of numpy
        data, pull, gradient = terms
        np.multiply(self.weight[:, None], found.sums, out=data)
        np.multiply(self.ridge[:, None], f, out=pull)
        np.add(data, pull, out=gradient)
        gradient += self.linear
        of_data, of_pull, of_gradient = norms(terms)
        scale = np.minimum(np.maximum(of_data + of_pull + self.norm_of_linear, self.scales[0]), self.scales[1])
        return Points(f, found.margins, gradient, np.where(scale < np.inf, of_gradient / scale, np.nan))

    def hessian(self, row: int, margins: Array) -> Array:
        k = row if self.of_several_nodes else 0
        return self.problems[k].hessian(margins, float(self.ridge[k]))


def margins_at(problems: Sequence[NodeProblem], f: Array) -> Array:
    """Of all records of one node, or of the row's own."""
    if len(problems) == 1:
        return problems[0].margins(f)
    return np.stack([problem.from_products(problem.rows.product(f[k])) for k, problem in enumerate(problems)])


class Solutions(NamedTuple):
    """Where the solves ended."""

    f: Array  # (solves, d)
    residual: Array  # (solves,): the gradients relative to their terms
    margins: Array  # (solves, B)


class Reference(NamedTuple):
    """The Hessian of O_i's mean loss near O_i's minimum, Q diag(curvatures) Q'."""

    Q: Array
    curvatures: Array
    bend: float  # the mean of L'' there


def references(problems: Sequence[NodeProblem]) -> list[Reference]:
    """The Hessians at the ends of short descents from zero, which start with the diagonals there."""
    zero = np.zeros((len(problems), problems[0].features))
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        ridge = np.array([problem.ridge for problem in problems])
        objectives = Objectives.tilted(problems, zero, ridge)
        first = objectives.at(zero, np.ones(len(zero), dtype=bool))
        near = _descend(objectives, _diagonal_inverse(problems, ridge), first, roughly=True)
        kept = []
        for k, problem in enumerate(problems):
            margins = near.margins[k] if near.residual[k] < np.inf else problem.zero_margins()
            curvatures, Q = np.linalg.eigh(problem.hessian(margins, 0.0))
            kept.append(Reference(Q, np.maximum(curvatures, 0.0), float(problem.bends(margins[None])[0])))
    return kept


def _diagonal_inverse(problems: Sequence[NodeProblem], ridge: Array) -> Product:
    """The diagonals of the Hessians at zero, a problem for each row."""
    diagonals = np.stack([_diagonal(problem, float(its)) for problem, its in zip(problems, ridge, strict=True)])
    return lambda g, here: g / diagonals[here]


def _diagonal(problem: NodeProblem, ridge: float) -> Array:
    diagonal = problem.hessian_diagonal(problem.zero_margins(), ridge)
    if diagonal.all():
        return diagonal
    # Without a ridge: a column of zeros, which nothing moves, or a loss that is straight at zero.
    steepest = problem.curvature_bounds() + ridge
    return np.where(steepest > 0.0, steepest, 1.0)


def _kept_inverse(kept: Sequence[Reference], ridge: Array, bends: Array) -> Product:
    """For one node in all rows, or another one in each; `bends`, of every row: the mean of L'' where it starts.

    Noise takes the margins of all records away from 0, where losses bend most: a Hessian that is kept is off by a factor more
    than by anything else, and the factor is known.
    """
    at_reference = np.array([reference.bend for reference in kept])
    factors = np.where(at_reference > 0.0, np.clip(bends / at_reference, *_BENDS), 1.0)[:, None]
    scales = 1.0 / (factors * np.stack([reference.curvatures for reference in kept]) + ridge[:, None])

    def of_one(g: Array, here: Ints) -> Array:
        return np.asarray(((g @ kept[0].Q) * scales[here]) @ kept[0].Q.T)

    def of_each(g: Array, here: Ints) -> Array:
        Qs, product = [kept[k].Q for k in here.tolist()], np.empty_like(g)
        for k, Q in enumerate(Qs):
            product[k] = g[k] @ Q
        product *= scales[here]
        for k, Q in enumerate(Qs):
            product[k] = Q @ product[k]
        return product

    return of_each if len(kept) == len(factors) else of_one


def argmin(
    problems: Sequence[NodeProblem],
    kept: Sequence[Reference] | None,
    linear: Array,
    quadratic: Array,
    start: Array,
) -> Solutions:
    """argmin_f O_i(f) + linear.f + (quadratic_i/2) ||f||^2 for every row of `linear`, from that row of `start`.

    One node (problem, reference, quadratic term) for all rows, or one for each; always one for each without references.
    """
    ridge = np.array([problem.ridge for problem in problems]) + quadratic
    # Overflow ends in the damped method, and there in a residual; a solve at its end may have a residual of 0.
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        objectives = Objectives.tilted(problems, linear, ridge)
        first = objectives.at(start.copy(), np.ones(len(start), dtype=bool))
        inverse = (
            _diagonal_inverse(problems, ridge) if kept is None else _kept_inverse(kept, ridge, problems[0].bends(first.margins))
        )
        found = _descend(objectives, inverse, first)
    for k in np.flatnonzero(~(found.residual <= TOLERANCE)).tolist():
        node = k if len(problems) > 1 else 0
        objective = Tilted(problems[node], linear[k], float(ridge[node]))
        point = minimise(objective, found.f[k] if found.residual[k] < np.inf else start[k])
        found.f[k], found.residual[k], found.margins[k] = point.f, point.residual, point.margins
    return found


def _descend(objectives: Objectives, inverse: Product, start: Points, roughly: bool = False) -> Solutions:
    """BFGS from inverse Hessians; where it pays, and a rough solution will not do, one at the current point replaces them.

    A solve that has come to its end leaves. Runs of one node, which others pay little for, stay until enough of them can leave.
    """
    found: Solutions | None = None
    now, here = start, np.arange(len(start.f))  # the solves that have not left
    hessian = _Inverse(inverse, start.f.shape)
    history: list[Array] = []  # residuals; nan before a solve has taken its present Hessian
    before, direction = now, np.zeros_like(now.f)
    for step in range(_ROUGH_EVALUATIONS if roughly else EVALUATIONS):
        under_way = now.residual > TOLERANCE  # neither found nor no longer a number
        left = np.count_nonzero(under_way)
        if not left:
            break
        ascent = hessian.times(now.gradient)
        if history:
            ascent = hessian.learn(now.f - before.f, now.gradient - before.gradient, ascent + direction, now.gradient, ascent)
        history.append(now.residual)
        if left < len(here) and (objectives.of_several_nodes or left <= _CROWDED * len(here)):
            found = _put(found, here, now)
            stay = np.flatnonzero(under_way)
            here, under_way, now, ascent = here[stay], under_way[stay], now.at(stay), ascent[stay]
            history = [residuals[stay] for residuals in history]
            objectives = objectives.of(stay)
            hessian.keep(stay)
        if not roughly and len(history) > _LOOK_BACK:
            for k in np.flatnonzero(under_way & _are_slow(history, objectives.hessian_cost)).tolist():
                ascent[k] = hessian.replace(k, objectives.hessian(k, now.margins[k])) @ now.gradient[k]
                for residuals in history[:-1]:
                    residuals[k] = np.nan
        direction = -ascent
        direction[~under_way] = 0.0
        before, now = now, _search(objectives, now, direction, (now.residual > _FAR) & (step < _SINGLES))
    return _put(found, here, now)


def _put(found: Solutions | None, here: Ints, now: Points) -> Solutions:
    """The solves that are here have come so far."""
    if found is None:  # all of them
        return Solutions(now.f, now.residual, np.asarray(now.margins, dtype=np.float64))
    for all_, some in zip(found, (now.f, now.residual, now.margins), strict=True):
        all_[here] = some
    return found


class _Inverse:
    """The inverse Hessians H of the solves: a first one, corrected by every pair (s, y) of step and change of the gradient.

    BFGS, in its symmetric form: with u = H y before the correction, H becomes H - (p z' + z p'), where
        p = s / sqrt(s.y),  z = u / sqrt(s.y) - (1 + y.u / s.y) p / 2.
    """

    def __init__(self, first: Product, shape: tuple[int, ...]) -> None:
        solves, d = shape
        self._first, self._here = first, np.arange(solves)
        self._own: dict[int, Array] = {}  # of the solves that have taken a Hessian of their own
        self._pairs = np.empty((solves, 2 * EVALUATIONS, d))  # p, z, p, z, ...; zeros: no correction
        self._count = 0

    def times(self, v: Array) -> Array:
        product = self._first(v, self._here)
        for k, H in self._own.items():
            product[k] = H @ v[k]
        return product - corrections(self._pairs[:, : self._count], v) if self._count else product

    def learn(self, s: Array, y: Array, u: Array, v: Array, product: Array) -> Array:
        """One more pair, with u = H y; what H v then is, from the product before."""
        sy = np.vecdot(s, y)
        weight = np.where(sy > 0.0, 1.0 / sy, 0.0)  # 0: round-off, or the solve has come to its end
        new = self._pairs[:, self._count : self._count + 2]
        root = np.sqrt(weight)[:, None]
        new[:, 0] = root * s
        new[:, 1] = root * u - (0.5 * (1.0 + weight * np.vecdot(y, u)))[:, None] * new[:, 0]
        self._count += 2
        return product - corrections(new, v)

    def replace(self, k: int, H: Array) -> Array:
        """Begin again with the inverse of this Hessian of solve k."""
        self._own[k] = np.asarray(np.linalg.inv(H), dtype=np.float64)
        self._pairs[k] = 0.0
        return self._own[k]

    def keep(self, which: Ints) -> None:
        """Of these solves alone."""
        pairs = np.empty((len(which), *self._pairs.shape[1:]))
        pairs[:, : self._count] = self._pairs[which, : self._count]
        self._pairs, self._here = pairs, self._here[which]
        self._own = {new: self._own[old] for new, old in enumerate(which.tolist()) if old in self._own}


def corrections(pairs: Array, v: Array) -> Array:
    """The sum of p (z.v) + z (p.v)."""
    along = (pairs @ v[:, :, None]).reshape(len(v), -1, 2)[:, :, ::-1]
    return np.asarray((along.reshape(len(v), 1, -1) @ pairs)[:, 0])


def _are_slow(history: list[Array], hessian_cost: float) -> Bools:
    """Whether a Hessian here costs less than the evaluations that are left at the present rate."""
    fall_per_step = np.log(history[-1 - _LOOK_BACK] / history[-1]) / _LOOK_BACK
    return np.log(history[-1] / TOLERANCE) > hessian_cost * fall_per_step


def _search(objectives: Objectives, now: Points, direction: Array, are_far: Bools) -> Points:
    """To where the slopes along the directions have nearly vanished. A whole step is nearly always right.

    The slope along p is (C/B) sum_n L'_n (X p)_n + (ridge f + linear).p + t ridge p.p. The objective is convex: the slope
    rises along the line and has one zero, which secants close in on.
    """
    after = objectives.at(now.f + direction, are_far)
    low, slope_low, here = np.zeros(len(direction)), np.vecdot(now.gradient, direction), np.vecdot(after.gradient, direction)
    enough = -_FLAT * slope_low
    steep = np.abs(here) > enough  # neither flat enough nor not a number, which the caller sees
    if not steep.any():
        return after
    moved = np.flatnonzero(steep)
    along, ridge = after.margins - now.margins, objectives.ridge
    tilt = np.vecdot(ridge[:, None] * now.f + objectives.linear, direction)
    bend = ridge * np.vecdot(direction, direction)
    high, slope_high = np.full(len(low), np.inf), np.full(len(low), np.inf)
    length = np.ones(len(low))
    for _ in range(_TRIALS):
        short, far = steep & (here < 0.0), steep & (here > 0.0)
        low[short], slope_low[short] = length[short], here[short]
        high[far], slope_high[far] = length[far], here[far]
        share = np.clip(slope_low / (slope_low - slope_high), 0.1, 0.9)
        closer = np.where(high < np.inf, low + share * (high - low), 3.0 * length)
        length = np.where(steep, closer, length)
        slopes = objectives.slopes(now.margins + length[:, None] * along)
        here = objectives.weight * np.vecdot(slopes, along) + tilt + length * bend
        steep &= np.abs(here) > enough
        if not steep.any():
            break
    nearer = objectives.of(moved).at(now.f[moved] + length[moved, None] * direction[moved], are_far[moved])
    return after.put(moved, nearer)
