"""The privacy loss of one data step with gamma noise as a random variable, and its (epsilon, delta) composition.

The noise e in R^d has a density proportional to exp(-alpha ||e||). With u = alpha ||e|| ~ Gamma(d) and c = alpha times the
largest shift that one record makes, the loss of a data step is at most

    L = sqrt(u^2 + 2 u c b + c^2) - u                       plus the determinant term, which is a number

- noise in the objective: the two gradients lie in a plane that the pair of data sets fixes, and the shift is at most c along
  the noise's projection on it: b^2 ~ Beta(1, (d-2)/2). For d < 3 the plane is everything: b = 1 and L = c.
- noise on the release: the shift does not depend on the noise, so b is the cosine between the two, (1+b)/2 ~
  Beta((d-1)/2, (d-1)/2), and the loss is exactly L.

Given the past this holds in every data step whatever the records, so the sum over steps is dominated by the sum of
independent copies, and delta(epsilon) <= E[(1 - exp(epsilon - sum))_+]. All rounding is upwards.
"""

from functools import lru_cache

import numpy as np

from dpadmm_mpi.types import Array

ORDERS = np.concatenate([np.geomspace(0.05, 1.0, 12)[:-1], np.geomspace(1.0, 500.0, 50)])  # lambda of the moments
COSINES = 20_000  # cells of the cosine between noise and shift
TRIFLE = 1e-9  # share of delta that losses may have which are not looked at one by one
TABLE = 48  # values of c at which the moments are tabulated


@lru_cache(maxsize=8)
def _radius_cells(features: int) -> tuple[Array, Array]:
    """Lower edges of cells of u and their probabilities: fine in the bulk, finer towards u = 0, where the loss is largest."""
    from scipy.special import gammaincinv

    p = np.concatenate([[0.0], np.geomspace(1e-24, 1e-3, 64), np.linspace(1e-3, 1.0, 150)[1:]])
    return np.maximum(gammaincinv(features, p[:-1]), 1e-300), np.diff(p)


def survival(loss: Array, c: float, features: int, on_release: bool) -> Array:
    """P(L > loss), rounded up: within a cell of u the loss is largest at the lower edge.

    L > l means b > x with x = (2 u l + l^2 - c^2) / (2 u c).
    """
    if not on_release and features < 3:
        return (loss < c).astype(np.float64)
    u, weight = _radius_cells(features)
    with np.errstate(over="ignore"):  # far below every cosine
        x = (loss / c)[:, None] + ((loss**2 - c**2) / (2.0 * c))[:, None] / u[None, :]
    tail = _cosine_tail(x, features) if on_release else _plane_tail(x, features)
    tail[loss >= c] = 0.0
    return np.asarray(tail @ weight)


def _plane_tail(x: Array, features: int) -> Array:
    """P(b > x) for the share b of a uniform direction's length that lies in a plane."""
    return np.asarray((1.0 - np.clip(x, 0.0, 1.0) ** 2) ** ((features - 2) / 2.0))


def _cosine_tail(x: Array, features: int) -> Array:
    """P(b > x) for the cosine b between a fixed and a uniform direction; x is rounded down to the table's grid."""
    if features == 1:
        return np.where(x < -1.0, 1.0, np.where(x < 1.0, 0.5, 0.0))
    place = np.floor((np.clip(x, -1.0, 1.0) + 1.0) * (COSINES / 2)).astype(np.int64)
    return _cosine_table(features)[place]


@lru_cache(maxsize=8)
def _cosine_table(features: int) -> Array:
    from scipy.special import betaincc

    half = (features - 1) / 2.0
    return np.asarray(betaincc(half, half, np.linspace(0.0, 1.0, COSINES + 1)))


def loss_grid(c: float, features: int, on_release: bool, spacing: float) -> tuple[int, Array]:
    """(first, probabilities): P(L rounded up = (first + k) * spacing)."""
    top = int(np.ceil(c / spacing * (1.0 - 1e-12)))
    first = -top if on_release else 0
    tail = survival(spacing * np.arange(first, top, dtype=np.float64), c, features, on_release)
    return first, np.diff(np.concatenate([[1.0], np.minimum(tail, 1.0), [0.0]])) * -1.0


def bins(c: Array) -> float:
    """Cells of the grid for the mean c of a node: rounding up costs half a cell per step on average, at most 0.1 %."""
    if len(c) <= 100 and len(np.unique(c)) <= 4:
        return 4000.0  # a fine grid costs nothing here
    return float(np.clip(10_000 / np.sqrt(len(c)), 500, 1000))


def moment_epsilon(c: Array, features: int, on_release: bool, delta: float) -> Array:
    """Epsilon after each step of each node, (K, N), from the moments E exp(lambda L): valid, cheap, a few percent loose.

    The logarithm of the moments is convex in c, so between tabulated values of c a straight line lies above it. Conversion:
    (1 - exp(-x))_+ <= exp(lambda x) lambda^lambda / (1 + lambda)^(1 + lambda), optimised over lambda.
    """
    knots = np.unique(np.geomspace(c.min(), c.max(), TABLE)) if c.max() > c.min() * (1 + 1e-12) else np.array([c.max()])
    knots[-1] = max(knots[-1], c.max())
    log_moments = np.stack([_log_moments(float(knot), features, on_release) for knot in knots])
    best = np.full(c.shape, np.inf)
    for k, order in enumerate(ORDERS):
        spent = np.cumsum(np.interp(c, knots, log_moments[:, k]), axis=0)
        price = np.log(1.0 / delta) + order * np.log(order) - (1.0 + order) * np.log1p(order)
        best = np.minimum(best, (spent + price) / order)
    return np.maximum(best, 0.0)


def _log_moments(c: float, features: int, on_release: bool) -> Array:
    spacing = c / 300
    first, probability = loss_grid(c, features, on_release, spacing)
    loss = spacing * (first + np.arange(len(probability)))
    exponent = ORDERS[:, None] * loss[None, :]
    largest = exponent.max(axis=1, keepdims=True)
    return np.log(np.exp(exponent - largest) @ probability) + largest[:, 0]


def composed_epsilon(c: Array, features: int, on_release: bool, delta: float, every_step: bool) -> Array:
    """Epsilon after each of the K steps of one node, or, if not `every_step`, after the last.

    The distributions of the steps are convolved on a common grid by one Fourier transform of each.
    """
    spacing = float(np.mean(c)) / bins(c)
    grids = {value: loss_grid(value, features, on_release, spacing) for value in np.unique(c).tolist()}
    steps = [grids[value] for value in c.tolist()]
    lengths = 1 + np.cumsum([len(probability) - 1 for _, probability in steps])
    firsts = np.cumsum([first for first, _ in steps])
    # What rounding may take from a tail: each of the transforms errs by a few units of the last place of its largest value.
    delta -= _size(int(lengths[-1])) * len(c) * np.finfo(np.float64).eps * 1e-3
    if delta <= 0.0:
        return np.full(len(c) if every_step else 1, np.inf)
    found, size = [], 0
    for k in range(len(c)) if every_step else (len(c) - 1,):
        if lengths[k] > size:  # after few steps a short transform is enough
            size = _size(int(lengths[k]))
            transforms = {value: np.fft.rfft(probability, size) for value, (_, probability) in grids.items()}
            values, counts = np.unique(c[: k + 1], return_counts=True)
            total = np.prod([transforms[value] ** count for value, count in zip(values.tolist(), counts, strict=True)], axis=0)
        else:
            total = total * transforms[float(c[k])]
        found.append(_epsilon_of(np.fft.irfft(total, size)[: lengths[k]], int(firsts[k]), spacing, delta))
    return np.array(found)


def _size(length: int) -> int:
    """The power of two that holds so many points."""
    return 1 << (length - 1).bit_length()


def _epsilon_of(probability: Array, first: int, spacing: float, delta: float) -> float:
    """The smallest epsilon >= 0 with E[(1 - exp(epsilon - L))_+] <= delta, for P(L = (first + k) spacing) = probability[k].

    Between two points of the grid the expectation is mass - exp(epsilon) * tilted, over the losses above.
    """
    probability = np.maximum(probability, 0.0)
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
