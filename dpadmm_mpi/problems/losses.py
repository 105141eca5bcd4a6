"""Margin losses L(z), z = y f.x, with the constants that the privacy proofs need (SPEC 1).

A loss is data plus three vectorised functions; another loss is one more object.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Loss:
    name: str
    value: Callable[[Array], Array]
    first: Callable[[Array], Array]  # L'
    second: Callable[[Array], Array]  # L''
    slope_bound: float  # |L'| <= slope_bound; the sensitivities in theory/ are stated for 1
    c1: float  # 0 <= L'' <= c1


def _exp_minus_abs(z: Array) -> Array:
    return np.exp(-np.abs(z))


def _logistic_value(z: Array) -> Array:
    return np.maximum(-z, 0.0) + np.log1p(_exp_minus_abs(z))


def _logistic_first(z: Array) -> Array:
    # -1 / (1 + exp(z)), in as few passes as can be: a solve calls it more often than anything else.
    with np.errstate(over="ignore"):  # 1 / inf is the right answer
        t = np.exp(z)
    t += 1.0
    return np.divide(-1.0, t, out=t)


def _logistic_second(z: Array) -> Array:
    t = _exp_minus_abs(z)
    return t / (1.0 + t) ** 2


LOGISTIC = Loss("logistic", _logistic_value, _logistic_first, _logistic_second, slope_bound=1.0, c1=0.25)


def huber(width: float) -> Loss:
    """The hinge, smoothed over 1 - width <= z <= 1 + width (Chaudhuri et al. 2011, (17)); c1 = 1/(2 width).

    L'' jumps at the two ends. The gradient stays Lipschitz and the whole local objective strongly convex, so the map
    from noise to argmin is still one-to-one and differentiable almost everywhere, which is what the proofs use.
    """

    def overlap(z: Array) -> Array:
        return np.clip(1.0 + width - z, 0.0, 2.0 * width)

    def value(z: Array) -> Array:
        return overlap(z) ** 2 / (4.0 * width) + np.maximum(1.0 - width - z, 0.0)

    def first(z: Array) -> Array:
        return -overlap(z) / (2.0 * width)

    def second(z: Array) -> Array:
        return np.where(np.abs(1.0 - z) < width, 1.0 / (2.0 * width), 0.0)

    return Loss("huber", value, first, second, slope_bound=1.0, c1=1.0 / (2.0 * width))
