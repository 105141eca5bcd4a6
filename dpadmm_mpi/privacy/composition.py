"""From the random losses of the data steps of a node to its total: sums of independent losses, and what they are worth.

Three ways, each an upper bound (docs/mathematics.md, section 3); all rounding is upwards.

- `composed`: the loss of a step is a random number L (of a fixed shift, or the worst one in a subspace). The laws are rounded
  up onto a grid and convolved; delta(epsilon) = E[(1 - exp(epsilon - sum L))_+].
- `means_of_sums`: the loss of a step is at most (X' + Y)/2, where nobody knows how X' and Y hang together. For every convex g
  above (1 - exp(epsilon - x))_+ the mean of g at the two sums is a bound, and the best convex g is a hinge.
- `moment_epsilon`: E exp(lambda L), which is cheap where many nodes have many different steps, and gives the Renyi curve.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from functools import lru_cache
from itertools import product
from typing import NamedTuple, Protocol

import numpy as np

from dpadmm_mpi.types import Array, Bools, Ints

ORDERS = np.concatenate([np.geomspace(0.05, 1.0, 12)[:-1], np.geomspace(1.0, 500.0, 50)])  # lambda of the moments
TRIFLE = 1e-9  # share of delta that losses may have which are not looked at one by one
TABLE = 48  # sizes at which the moments are tabulated
DETERMINANTS = 4  # and determinant terms
LEFT_OUT = 1e-20  # probability of sums that a transform has no room for
FINE = 200  # cells of one step's law for its standard deviation; it is rounded up onto these
COARSE = 16  # cells of the sums for the standard deviation of a step; mass is split between two of them
LARGEST_GRID = 1 << 18  # points of a sum
TILTS = np.geomspace(1e-4, 4.0, 40)  # of Chernoff's bound, in cells
NEGLIGIBLE = -700.0  # exponent below which exponentials are slow, and rounded up
SLOPES = np.geomspace(1e-2, 1e7, 400)  # lambda of the hinges that are tried


class RandomLoss(Protocol):
    """The loss ln p(e) - ln p(e + v) of one step, for a shift v of the size c in units of the noise."""

    def __hash__(self) -> int: ...

    def tail(self, loss: Array, c: float) -> Array:
        """P(L > loss), rounded up; it falls."""

    def quick_tail(self, loss: Array, c: float) -> Array:
        """The same, perhaps rounded up further."""

    def largest(self, c: float) -> float:
        """No loss is above it, but for a probability that does not matter, which `tail` gives."""

    def deviation(self, c: float) -> float:
        """About the standard deviation of the loss."""

    @property
    def signed(self) -> bool:
        """Whether losses can be negative, down to -largest(c)."""

    def cell(self, c: float) -> float:
        """How finely the loss is looked at for its moments."""

    def log_tail_moments(self, orders: Array, c: float) -> Array:
        """ln E[exp(order L); L > largest(c)]; -inf where there is none."""

    def growth(self, c: float) -> tuple[float, float]:
        """(slope, rest): the moments of max(0, L) give a Renyi divergence of at most slope order + rest from order 2 on."""

    def as_one(self, c: Array) -> float:
        """The size of the one step whose loss has the law of the sum of these; nan: there is none."""


class Grid(NamedTuple):
    """P(L rounded up = (first + k) * spacing) = probability[k], and P(L is more) = beyond."""

    first: int
    probability: Array
    beyond: float


def loss_grid(law: RandomLoss, c: float, spacing: float) -> Grid:
    """The law of one step, rounded up."""
    top = int(np.ceil(law.largest(c) / spacing * (1.0 - 1e-12)))
    first = -top if law.signed else 0
    points = np.append(spacing * np.arange(first, top, dtype=np.float64), max(spacing * top, law.largest(c)))
    tail = np.minimum(law.tail(points, c), 1.0)
    return Grid(first, np.diff(np.concatenate([[1.0], tail])) * -1.0, float(tail[-1]))


def bins(c: Array) -> float:
    """Cells of the grid for the mean c of a node: rounding up costs half a cell per step on average, at most 0.1 %."""
    if len(c) <= 100 and len(np.unique(c)) <= 4:
        return 4000.0  # a fine grid costs nothing here
    return float(np.clip(10_000 / np.sqrt(len(c)), 500, 1000))


# ---- one random loss in every step


class Composed(NamedTuple):
    """The law of a sum: P(L = (first + k) * spacing) = probability[k], and P(L is more) = beyond."""

    first: int
    spacing: float
    probability: Array
    beyond: float

    def epsilon(self, delta: float) -> float:
        left = delta - self.beyond
        return _epsilon_of(self.probability, self.first, self.spacing, left) if left > 0.0 else np.inf

    def delta(self, epsilon: Array) -> Array:
        """E[(1 - exp(epsilon - L))_+]"""
        loss = self.spacing * (self.first + np.arange(float(len(self.probability))))
        above = np.searchsorted(loss, epsilon, side="right")
        mass = np.append(np.cumsum(self.probability[::-1])[::-1], 0.0)[above]
        nearest = np.append(loss, loss[-1])[above]
        tilted = np.append(tilted_tails(self.probability, self.spacing), 0.0)[above]
        expected = mass - np.exp(np.minimum(epsilon - nearest, 0.0)) * tilted
        round_off = 8.0 * np.finfo(np.float64).eps * mass * np.sqrt(len(loss))
        return np.minimum(np.maximum(expected, 0.0) + round_off + self.beyond, 1.0)


def tilted_tails(probability: Array, spacing: float) -> Array:
    """For each k the sum over j >= k of probability[j] exp(-(j - k) spacing): twice as many terms in every round."""
    total, terms = probability.copy(), 1
    while terms < len(total) and terms * spacing < 800.0:
        total[:-terms] += np.exp(-terms * spacing) * total[terms:]
        terms *= 2
    return total


def composed(law: RandomLoss, c: Array, every_step: bool) -> Iterator[Composed]:
    """The sum after each of the K steps of one node, or, if not `every_step`, after the last.

    The laws of the steps are convolved on a common grid by one Fourier transform of each. The last sum is made of powers: it is
    the same with and without those before.
    """
    spacing = float(np.mean([law.largest(value) for value in c.tolist()])) / bins(c)
    grids = {value: loss_grid(law, value, spacing) for value in np.unique(c).tolist()}
    steps = [grids[value] for value in c.tolist()]
    lengths = 1 + np.cumsum([len(grid.probability) - 1 for grid in steps])
    firsts = np.cumsum([grid.first for grid in steps])
    # What rounding may take from a tail: each of the transforms errs by a few units of the last place of its largest value.
    round_off = _size(int(lengths[-1])) * len(c) * np.finfo(np.float64).eps * 1e-3
    beyond = np.cumsum([grid.beyond for grid in steps]) + round_off
    size = 0
    for k in range(len(c)) if every_step else (len(c) - 1,):
        grows = lengths[k] > size  # after few steps a short transform is enough
        if grows:
            size = _size(int(lengths[k]))
            transforms = {value: np.fft.rfft(grid.probability, size) for value, grid in grids.items()}
        if grows or k == len(c) - 1:
            values, counts = np.unique(c[: k + 1], return_counts=True)
            total = np.prod([transforms[value] ** count for value, count in zip(values.tolist(), counts, strict=True)], axis=0)
        else:
            total = total * transforms[float(c[k])]
        probability = np.maximum(np.fft.irfft(total, size)[: lengths[k]], 0.0)
        yield Composed(int(firsts[k]), spacing, probability, float(beyond[k]))


def composed_epsilon(law: RandomLoss, c: Array, delta: float, every_step: bool) -> Array:
    """Epsilon after each of the K steps of one node, or, if not `every_step`, after the last."""
    return np.array([total.epsilon(delta) for total in composed(law, c, every_step)])


def _size(length: int) -> int:
    """The power of two that holds so many points."""
    return 1 << (length - 1).bit_length()


def _epsilon_of(probability: Array, first: int, spacing: float, delta: float) -> float:
    """The smallest epsilon >= 0 with E[(1 - exp(epsilon - L))_+] <= delta, for P(L = (first + k) spacing) = probability[k].

    Between two points of the grid the expectation is mass - exp(epsilon) * tilted, over the losses above.
    """
    mass = np.cumsum(probability[::-1])[::-1]  # of this loss and all above; it falls
    highest = _first_below(mass, delta)  # epsilon is at most this loss
    # The expectation is at least half of the mass one unit of loss higher up, so epsilon is at most that far below the loss
    # with a mass of two delta; on a grid coarser than that it comes out larger, never smaller. What lies above all but a
    # trifle of the mass counts in full: rounded up.
    lowest = max(0, _first_below(mass, 2.0 * delta) - int(1.0 / spacing) - 1)
    top = _first_below(mass, TRIFLE * delta)
    probability, mass, first, highest = probability[lowest:top], mass[lowest:top], first + lowest, highest - lowest
    loss = spacing * (np.arange(len(probability)) - highest)  # from there: no exponential overflows where it matters
    growth = np.exp(np.clip(loss, -600.0, 600.0))
    tilted = np.cumsum((probability / growth)[::-1])[::-1]
    # The expectation at each point of the grid; rounded up to the mass where the exponentials are cut off.
    at_points = np.where(loss > -600.0, mass - growth * tilted, mass)
    k = int(np.argmax(np.append(at_points, 0.0) <= delta))  # epsilon lies between the points k - 1 and k
    if k == 0:
        return max(0.0, first * spacing)
    epsilon = float(np.log((mass[k] - delta) / tilted[k])) if k < len(mass) and mass[k] > delta else spacing * (k - 1 - highest)
    return max(0.0, epsilon + spacing * (first + highest))


def _first_below(falling: Array, level: float) -> int:
    """The first place where it is at most the level; its length if nowhere."""
    return int(np.searchsorted(-falling, -level))


# ---- the mean of two random losses in every step


class Step(NamedTuple):
    """What the halves of a step are made of."""

    c: float  # size of the largest shift by the old record alone, or by the new one, times two
    weight: float  # K = C/(B mu)


Tie = Callable[[Array, Array], Array]  # (c, K) -> max over margins z of c |L'(z)|/G + ln(1 + K L''(z))


class Atoms(NamedTuple):
    """A law of one step as numbers with their probabilities; `beyond` is that of more."""

    values: Array
    probability: Array
    beyond: float

    def mapped(self, values: Array) -> "Atoms":
        return self._replace(values=values)


@lru_cache(maxsize=128)
def fine_law(law: RandomLoss, c: float, cells: int = FINE) -> Atoms:
    """L on a grid that is fine for its bulk. What lies outside of it is rounded up to its lower end, or to the largest."""
    spacing = law.deviation(c) / cells
    largest, low = law.largest(c), -6.0 * law.deviation(c)
    points = np.append(np.arange(max(low, -largest), min(largest, 13.0 * law.deviation(c) + c * c), spacing), largest)
    tail = np.minimum(law.quick_tail(points, c), 1.0)
    return Atoms(points, -np.diff(np.concatenate([[1.0], tail])), float(tail[-1]))


class Halves(NamedTuple):
    """X' and Y of a step, whose mean its loss does not exceed: docs/mathematics.md, section 3."""

    old: Atoms  # X' = 2 max over z of |L'(z)|/G l/2 + ln(1 + K L''(z)), slope and curvature of the old record
    new: Atoms  # Y = max(0, l)

    @classmethod
    def of(cls, law: RandomLoss, step: Step, tie: Tie, cells: int = FINE) -> "Halves":
        fixed = fine_law(law, step.c, cells)
        together = 2.0 * tie(fixed.values / 2.0, np.full_like(fixed.values, step.weight))
        return cls(fixed.mapped(np.maximum(together, 0.0)), fixed.mapped(np.maximum(fixed.values, 0.0)))


class MeanOfSums(NamedTuple):
    """Bounds on E[g] for convex g of the mean of two sums, from the mean of their stop-loss transforms.

    stop_loss[j, k] = ( E(sum X' - s - t)_+ + E(sum Y + s - t)_+ ) / 2 at t = (first + k) * spacing, for some s: each holds. For
    u >= 0 the hinge exp(-u) (x - epsilon + a)_+ with a = exp(u) - 1 - u touches (1 - exp(epsilon - x))_+ from above at
    x = epsilon + u, so

        delta(epsilon) <= min over u of exp(-u) stop_loss(epsilon - a)
    """

    first: int
    spacing: float
    stop_loss: Array
    beyond: float

    @property
    def points(self) -> Array:
        return self.spacing * (self.first + np.arange(float(self.stop_loss.shape[1])))

    def epsilon(self, delta: float) -> float:
        left = delta - self.beyond
        if left <= 0.0:
            return np.inf
        level = left * (1.0 + 1.0 / SLOPES)  # exp(u) = 1 + 1/lambda
        found = np.inf
        for falling in self.stop_loss:
            at = np.interp(level, falling[::-1], self.points[::-1])
            at -= np.maximum(level - falling[0], 0.0)  # to the left it is a line of slope -1
            found = min(found, float(np.min(at + _offset())))
        return max(0.0, found)

    def delta(self, epsilon: Array) -> Array:
        at = np.asarray(epsilon)[:, None] - _offset()
        found = np.ones(len(at))
        for falling in self.stop_loss:
            value = np.interp(at, self.points, falling) + np.maximum(self.points[0] - at, 0.0)
            found = np.minimum(found, np.min(value / (1.0 + 1.0 / SLOPES), axis=1) + self.beyond)
        return found


def _offset() -> Array:
    """a = exp(u) - 1 - u with exp(u) = 1 + 1/lambda"""
    inverse = 1.0 / SLOPES
    return np.where(inverse > 1e-4, inverse - np.log1p(inverse), inverse**2 / 2.0)


class Sums(NamedTuple):
    """The law of a sum of independent steps, split onto a grid: P(sum = (first + k) * spacing) = probability[k]."""

    first: int
    probability: Array


def means_of_sums(law: RandomLoss, steps: list[Step], tie: Tie, every_step: bool) -> Iterator[MeanOfSums]:
    """After each of the steps of one node, or, if not `every_step`, after the last."""
    halves = {step: Halves.of(law, step, tie) for step in dict.fromkeys(steps)}
    spacing = _spacing(halves, steps)
    olds = _sums(steps, {step: half.old for step, half in halves.items()}, spacing, every_step)
    news = _sums(steps, {step: half.new for step, half in halves.items()}, spacing, every_step)
    beyond = np.cumsum([halves[step].new.beyond for step in steps])
    for (k, old), (_, new) in zip(olds, news, strict=True):
        yield _mean(old, new, spacing, float(beyond[k]), k + 1)


def _spacing(halves: dict[Step, Halves], steps: list[Step]) -> float:
    """A share of the root mean square deviation of a step, but not more points than LARGEST_GRID."""
    variance, width = 0.0, 0.0
    for step in steps:
        atoms = halves[step].old
        mean = np.sum(atoms.probability * atoms.values)
        variance += float(np.sum(atoms.probability * (atoms.values - mean) ** 2))
        variance += float(np.sum(atoms.probability * halves[step].new.values ** 2))
        width += float(max(np.ptp(atoms.values), np.ptp(halves[step].new.values)))
    return float(max(np.sqrt(variance / (2.0 * len(steps))) / COARSE, width / LARGEST_GRID, 1e-300))


def _split(atoms: Atoms, spacing: float) -> Sums:
    """Each mass is split between the two points of the grid around it, so that the mean stays: every convex g grows."""
    place = atoms.values / spacing
    below = np.floor(place).astype(np.int64)
    share, first = place - below, int(below.min())
    length = int(below.max()) - first + 2
    lower = np.bincount(below - first, atoms.probability * (1.0 - share), length)
    upper = np.bincount(below - first + 1, atoms.probability * share, length)
    return Sums(first, np.asarray(lower + upper, dtype=np.float64))


def _sums(steps: list[Step], atoms: dict[Step, Atoms], spacing: float, every_step: bool) -> Iterator[tuple[int, Sums]]:
    laws = {step: _split(each, spacing) for step, each in atoms.items()}
    firsts = np.cumsum([laws[step].first for step in steps])
    size = _size(_room([(laws[step], count) for step, count in Counter(steps).items()]))
    transforms = {step: np.fft.rfft(law.probability, size) for step, law in laws.items()}
    total = np.ones(size // 2 + 1, dtype=np.complex128)
    for k, step in enumerate(steps[:-1] if every_step else ()):
        total = total * transforms[step]
        yield k, Sums(int(firsts[k]), np.maximum(np.fft.irfft(total, size), 0.0))
    total = np.prod(
        [transforms[step] ** count for step, count in Counter(steps).items()], axis=0
    )  # the same without the others
    yield len(steps) - 1, Sums(int(firsts[-1]), np.maximum(np.fft.irfft(total, size), 0.0))


def _room(laws: list[tuple[Sums, int]]) -> int:
    """Points above which a sum of so many steps of each law has at most LEFT_OUT of its probability: Chernoff's bound."""
    full = 1 + sum(count * (len(law.probability) - 1) for law, count in laws)
    spent = sum(
        (count * _log_sum(TILTS, np.arange(float(len(law.probability))), law.probability) for law, count in laws), 0.0 * TILTS
    )
    room = np.min((spent - np.log(LEFT_OUT)) / TILTS) + 1.0
    longest = max(len(law.probability) for law, _ in laws)
    return int(max(np.ceil(min(room, full)), longest))


def _mean(old: Sums, new: Sums, spacing: float, beyond: float, steps: int) -> MeanOfSums:
    """The mean of the two stop-loss transforms, one moved against the other so that their means are alike, or their moments."""
    moves = _moves(old, new)
    length = max(len(old.probability), len(new.probability))
    first = min(min(old.first - move, new.first + move) for move in moves)
    end = max(max(old.first - move, new.first + move) for move in moves) + length
    transforms = _stop_loss(old.probability), _stop_loss(new.probability)
    total = np.zeros((len(moves), end - first))
    for row, move in zip(total, moves, strict=True):
        for start, transform in zip((old.first - move, new.first + move), transforms, strict=True):
            places = np.arange(first, end) - start
            row += 0.5 * (transform[np.clip(places, 0, len(transform) - 1)] + np.maximum(-places, 0))
    # Round-off of the transforms, by the inequality of Cauchy and Schwarz, relative to the size of the law.
    norm = max(float(np.sqrt(np.sum(law.probability**2))) for law in (old, new))
    error = np.finfo(np.float64).eps * steps * norm * float(length) ** 1.5
    # What lies beyond the ends of the transforms, and by how much at most in the mean.
    beyond += 2.0 * LEFT_OUT * (1.0 + spacing * (length + 1.0 / TILTS[0]))
    return MeanOfSums(first, spacing, spacing * (total + error), beyond)


def _moves(old: Sums, new: Sums) -> list[int]:
    """s in cells, half of what the two sums differ by: in their means, and in ln E exp(tilt k) / tilt for some tilts."""
    cells = np.arange(float(max(len(old.probability), len(new.probability))))
    means, deviation = [], 0.0
    for law in (old, new):
        k = cells[: len(law.probability)]
        means.append(float(np.sum(law.probability * k)) + law.first)
        deviation += float(np.sqrt(np.sum(law.probability * (k + law.first - means[-1]) ** 2)))
    tilts = np.array([1.5, 3.0, 4.5, 7.0]) / max(deviation / 2.0, 1.0)
    logs = [_log_sum(tilts, cells[: len(law.probability)], law.probability) / tilts + law.first for law in (old, new)]
    return sorted({round((means[0] - means[1]) / 2.0), *(round(s) for s in ((logs[0] - logs[1]) / 2.0).tolist())})


def _stop_loss(probability: Array) -> Array:
    """E(k - t)_+ at t = 0, 1, ..."""
    above = np.append(np.cumsum(probability[::-1])[::-1][1:], 0.0)
    return np.asarray(np.cumsum(above[::-1])[::-1])


# ---- moments


def log_moments(law: RandomLoss, c: float, orders: Array = ORDERS) -> Array:
    """ln E exp(order L), rounded up."""
    if not np.isnan(c_one := law.as_one(np.array([c]))):
        return orders * (orders + 1.0) * c_one**2 / 2.0
    spacing = law.cell(c)
    grid = loss_grid(law, c, spacing)
    loss = spacing * (grid.first + np.arange(float(len(grid.probability))))
    return np.logaddexp(_log_sum(orders, loss, grid.probability), law.log_tail_moments(orders, c))


def log_moments_of_halves(law: RandomLoss, step: Step, tie: Tie, orders: Array = ORDERS) -> Array:
    """(ln E exp(order X') + ln E exp(order Y)) / 2: not below ln E exp(order (X' + Y)/2), by Cauchy and Schwarz."""
    halves = Halves.of(law, step, tie, FINE // 2)
    return 0.5 * (_half(law, step.c, halves.old, orders) + _half(law, step.c, halves.new, orders))


def _half(law: RandomLoss, c: float, atoms: Atoms, orders: Array) -> Array:
    """ln E exp(order X') or the same of Y. Above the largest l that is looked at, X' - l is at most what it is there, for
    |L'|/G <= 1.
    """
    excess = max(float(atoms.values[-1]) - law.largest(c), 0.0)
    looked_at = _log_sum(orders, atoms.values, atoms.probability)
    return np.logaddexp(looked_at, law.log_tail_moments(orders, c) + orders * excess)


def _log_sum(orders: Array, values: Array, probability: Array) -> Array:
    """For orders above 0. In one place: fresh memory costs more than the exponentials."""
    largest = orders * values.max()
    terms = np.multiply.outer(orders, values)
    terms -= largest[:, None]
    np.maximum(terms, NEGLIGIBLE, out=terms)
    return np.asarray(np.log(np.exp(terms, out=terms) @ probability) + largest)


def epsilon_of_moments(spent: Array, orders: Array, delta: float) -> Array:
    """Epsilon at delta from sums of log moments, (..., orders), at the best order.

    (1 - exp(-x))_+ <= exp(lambda x) lambda^lambda / (1 + lambda)^(1 + lambda).
    """
    return np.maximum(np.min((spent - np.log(delta) + _price(orders)) / orders, axis=-1), 0.0)


def delta_of_moments(spent: Array, orders: Array, epsilon: Array) -> Array:
    """The same for delta, (epsilons,); `spent` is (orders,)."""
    logs = spent - orders * epsilon[:, None] + _price(orders)
    return np.exp(np.minimum(logs.min(axis=1), 0.0))


def _price(orders: Array) -> Array:
    return orders * np.log(orders) - (1.0 + orders) * np.log1p(orders)


def moment_epsilon(tables: "Tables", c: Array, determinant: Array, delta: float, gaussian: Array | float = 0.0) -> Array:
    """Epsilon after each step of each node, (K, N): valid, cheap, a few percent loose.

    `gaussian`: sensitivity over deviation of a Gaussian mechanism that each step is besides.
    """
    best = np.full(c.shape, np.inf)
    for order, logs in zip(ORDERS, tables.at(c, determinant), strict=True):
        spent = np.cumsum(logs + order * (order + 1.0) / 2.0 * np.square(gaussian), axis=0)
        best = np.minimum(best, (spent - np.log(delta) + _price(order)) / order)
    return np.maximum(best, 0.0)


class Tables(NamedTuple):
    """Log moments at some sizes and determinant terms, (sizes, terms, orders); nan where nothing is asked of them.

    They are convex in each of the two (in the determinant term ln(1 + K c1), not in K), so between tabulated values straight
    lines lie above them.
    """

    sizes: Array
    terms: Array
    values: Array

    def at(self, c: Array, determinant: Array) -> Iterator[Array]:
        """Of one order after the other."""
        row, column = _row(self.sizes, c), _column(self.terms, determinant)
        beyond, place, above = c - self.sizes[row], row * len(self.terms) + column, min(1, len(self.terms) - 1)
        width = self.terms[column + above] - self.terms[column]
        share = (determinant - self.terms[column]) / np.where(width > 0.0, width, 1.0)
        rise = np.zeros_like(self.values)
        rise[:-1] = np.diff(self.values, axis=0) / np.diff(self.sizes)[:, None, None]
        for k in range(self.values.shape[2]):
            values, slopes = self.values[:, :, k].ravel(), rise[:, :, k].ravel()
            lower = slopes[place] * beyond + values[place]
            if above:
                upper = slopes[place + 1] * beyond + values[place + 1]
                lower += share * (upper - lower)
            yield lower


def _row(sizes: Array, c: Array) -> Ints:
    """The last size that is not above c."""
    return np.searchsorted(sizes, c, side="right") - 1


def _column(terms: Array, determinant: Array) -> Ints:
    """The term below, of two neighbouring ones."""
    return np.clip(np.searchsorted(terms, determinant) - 1, 0, max(len(terms) - 2, 0))


def table(law: RandomLoss, c: Array) -> Tables:
    """Of one random loss."""
    sizes, terms = _knots(c, TABLE), np.zeros(1)
    values = np.full((len(sizes), 1, len(ORDERS)), np.nan)
    for i in np.flatnonzero(_asked(sizes, terms, c, np.zeros_like(c))).tolist():
        values[i, 0] = log_moments(law, float(sizes[i]))
    return Tables(sizes, terms, values)


def table_of_halves(law: RandomLoss, c: Array, determinant: Array, weight_of: Callable[[float], float], tie: Tie) -> Tables:
    """Of the mean of two; `weight_of` gives K from the determinant term ln(1 + K c1)."""
    sizes, terms = _knots(c, TABLE // 2), _knots(determinant, DETERMINANTS)
    values = np.full((len(sizes), len(terms), len(ORDERS)), np.nan)
    for i, asked in enumerate(_asked(sizes, terms, c, determinant)):
        size, new = float(sizes[i]), None
        for j in np.flatnonzero(asked).tolist():
            halves = Halves.of(law, Step(size, weight_of(float(terms[j]))), tie, FINE // 2)
            new = _half(law, size, halves.new, ORDERS) if new is None else new
            values[i, j] = 0.5 * (_half(law, size, halves.old, ORDERS) + new)
    return Tables(sizes, terms, values)


def _asked(sizes: Array, terms: Array, c: Array, determinant: Array) -> Bools:
    """Which entries of a table lie around these values, (sizes, terms)."""
    found = np.zeros((len(sizes), len(terms)), dtype=bool)
    row, column = _row(sizes, c), _column(terms, determinant)
    for i, j in product((0, 1), repeat=2):
        found[np.minimum(row + i, len(sizes) - 1), np.minimum(column + j, len(terms) - 1)] = True
    return found


def _knots(values: Array, count: int) -> Array:
    low, high = float(values.min()), float(values.max())
    if high <= low * (1.0 + 1e-12):
        return np.array([high])
    found = np.unique(np.geomspace(low, high, count))
    found[0], found[-1] = min(found[0], low), max(found[-1], high)
    return found
