"""Losses of what a model says about a record, with the constants that the privacy proofs need (docs/mathematics.md, section 1).

A loss is a class: three vectorised functions and the constants that enter every sensitivity. What it is a function of is one of
three outputs: the margin z = y f.x, the residual z = f.x - y, or a score f_c.x for each class. Its compiled form, for the inner
loops of the stochastic methods, belongs to it too.
"""

import inspect
import math
from abc import abstractmethod
from collections.abc import Callable
from typing import Annotated, ClassVar

import msgspec
import numpy as np

from dpadmm_mpi.config.options import Options, Positive
from dpadmm_mpi.errors import InputError
from dpadmm_mpi.registry import Registry, is_inside, own_behaviour, place_of
from dpadmm_mpi.types import Array

ScalarSlope = Callable[[float, Array], float]  # L' at one margin, from `parameters`

losses = Registry["Loss"]("loss", "losses")


@losses.base
class Loss(Options):
    """A convex, twice differentiable loss, of the margin unless a class says otherwise.

    The privacy accounts rest on `slope_bound` and `curvature_bound`: a loss that breaks them is refused.
    """

    predicts: ClassVar[str] = "binary"  # or "classes", "number": which metrics apply
    takes: ClassVar[tuple[str, ...]] = ("binary",)  # the kinds of targets that it can be a loss of
    gives_probabilities: ClassVar[bool] = False  # exp(-L) is the probability of a record's label
    curvature_is_constant: ClassVar[bool] = False  # a solve with a kept Hessian takes a step or two
    # L' at a single number, in plain Python that numba can compile, where the loss has such a form; it gets `parameters`.
    scalar_slope: ClassVar[ScalarSlope | None] = None

    @abstractmethod
    def value(self, z: Array) -> Array:
        """L(z)"""

    @abstractmethod
    def first(self, z: Array) -> Array:
        """L'(z)"""

    @abstractmethod
    def second(self, z: Array) -> Array:
        """L''(z)"""

    @property
    @abstractmethod
    def slope_bound(self) -> float:
        """|L'| <= slope_bound: G in [S], c in [C], 1 in [M] and [R]; of several outputs: the norm of the gradient in them"""

    @property
    @abstractmethod
    def curvature_bound(self) -> float:
        """0 <= L'' <= curvature_bound: c1 of the papers; of several outputs: the trace of the Hessian in them"""

    @property
    def outputs(self) -> int:
        """Numbers that it is a function of: f has so many vectors of as many features as a record has."""
        return 1

    @property
    def span(self) -> int:
        """Dimension of the space that the gradients of two records, which stay while f changes, can lie in."""
        return 2

    def fitted(self, kind: str, classes: int) -> "Loss":
        """For the targets at hand; it `takes` their kind."""
        return self

    @property
    def decreasing(self) -> bool:
        """Whether L' <= 0 everywhere. The smaller epsilon account rests on it, so it is claimed, never assumed."""
        return False

    def slope_and_curvature(self, c: Array, weight: Array) -> Array:
        """max of c s |L'(z)| + ln(1 + weight s^2 L''(z)) over margins z and norms s <= 1; c may be negative.

        Slope and curvature of one record may not be largest together. Here each is taken at its bound. Of several outputs: the
        norm of the gradient, and the logarithm of the determinant of I + weight s^2 times the Hessian.
        """
        return self.slope_bound * np.maximum(c, 0.0) + np.log1p(self.curvature_bound * weight)

    @property
    def parameters(self) -> tuple[float, ...]:
        """What `scalar_slope` gets."""
        return ()


def _exp_minus_abs(z: Array) -> Array:
    return np.exp(-np.abs(z))


def _logistic_slope(margin: float, parameters: Array) -> float:
    t = math.exp(-abs(margin))
    return -(t if margin >= 0.0 else 1.0) / (1.0 + t)


@losses.register("logistic")
class Logistic(Loss):
    """log(1 + exp(-z))"""

    gives_probabilities: ClassVar[bool] = True
    slope_bound: ClassVar[float] = 1.0
    curvature_bound: ClassVar[float] = 0.25
    decreasing: ClassVar[bool] = True
    scalar_slope: ClassVar[ScalarSlope | None] = staticmethod(_logistic_slope)

    def value(self, z: Array) -> Array:
        t = np.asarray(np.abs(z))  # one array for all passes: a new one for each takes as long again
        np.negative(t, out=t)
        np.log1p(np.exp(t, out=t), out=t)
        t += np.maximum(-z, 0.0)
        return t

    def first(self, z: Array) -> Array:
        # -1 / (1 + exp(z)), in as few passes as can be: a solve calls it more often than anything else.
        with np.errstate(over="ignore"):  # 1 / inf is the right answer
            t = np.exp(z)
        t += 1.0
        return np.divide(-1.0, t, out=t)

    def second(self, z: Array) -> Array:
        t = _exp_minus_abs(z)
        return t / (1.0 + t) ** 2

    def slope_and_curvature(self, c: Array, weight: Array) -> Array:
        """With a = |L'|, L'' = a (1 - a): the maximum over a in [0, 1] is at a root of a quadratic equation, or at an end.

        s = 1 is the worst: s^2 a (1 - a) <= (s a) (1 - s a).
        """
        root = np.sqrt(4.0 + c**2 * (1.0 + 4.0 / weight))
        a = np.where(np.abs(c) < weight, 2.0 * (1.0 + c / weight) / (2.0 - c + root), c > 0.0)
        a = np.clip(a, 0.0, 1.0)
        return np.asarray(c * a + np.log1p(weight * a * (1.0 - a)))


def _huber_slope(margin: float, parameters: Array) -> float:
    width = parameters[0]
    return float(-min(max(1.0 + width - margin, 0.0), 2.0 * width) / (2.0 * width))


@losses.register("huber")
class HuberHinge(Loss):
    """The hinge max(0, 1 - z), smoothed over 1 - width <= z <= 1 + width.

    Chaudhuri, Monteleoni, Sarwate: Differentially Private Empirical Risk Minimization, 2011, (17). L'' jumps at the two ends.
    The gradient stays Lipschitz and the whole local objective strongly convex, so the map from noise to argmin is still
    one-to-one and differentiable almost everywhere, which is what the proofs use.
    """

    slope_bound: ClassVar[float] = 1.0
    decreasing: ClassVar[bool] = True
    scalar_slope: ClassVar[ScalarSlope | None] = staticmethod(_huber_slope)

    width: Positive = 0.5  # half the width of the smoothed part

    @property
    def curvature_bound(self) -> float:
        return 1.0 / (2.0 * self.width)

    @property
    def parameters(self) -> tuple[float, ...]:
        return (self.width,)

    def _overlap(self, z: Array) -> Array:
        return np.clip(1.0 + self.width - z, 0.0, 2.0 * self.width)

    def value(self, z: Array) -> Array:
        return self._overlap(z) ** 2 / (4.0 * self.width) + np.maximum(1.0 - self.width - z, 0.0)

    def first(self, z: Array) -> Array:
        return -self._overlap(z) / (2.0 * self.width)

    def second(self, z: Array) -> Array:
        return np.where(np.abs(1.0 - z) < self.width, 1.0 / (2.0 * self.width), 0.0)


class ResidualLoss(Loss):
    """A loss of the residual z = f.x - y, for targets y that are numbers, scaled into [-1, 1]."""

    predicts: ClassVar[str] = "number"
    takes: ClassVar[tuple[str, ...]] = ("number", "binary")


@losses.register("huber-regression")
class HuberRegression(ResidualLoss):
    """z^2 / (2 width) for residuals z = f.x - y up to `width`, |z| - width / 2 for larger ones."""

    slope_bound: ClassVar[float] = 1.0

    width: Positive = 0.5  # largest residual that is squared

    @property
    def curvature_bound(self) -> float:
        return 1.0 / self.width

    def value(self, z: Array) -> Array:
        inside = np.minimum(np.abs(z), self.width)
        return inside**2 / (2.0 * self.width) + (np.abs(z) - inside)

    def first(self, z: Array) -> Array:
        return np.clip(z / self.width, -1.0, 1.0)

    def second(self, z: Array) -> Array:
        return np.where(np.abs(z) < self.width, 1.0 / self.width, 0.0)


@losses.register("least-squares")
class LeastSquares(ResidualLoss):
    """z^2 / 2 of the residual z = f.x - y; nothing bounds its slope, so that no noise makes it private."""

    curvature_is_constant: ClassVar[bool] = True
    slope_bound: ClassVar[float] = math.inf
    curvature_bound: ClassVar[float] = 1.0

    def value(self, z: Array) -> Array:
        return 0.5 * z * z

    def first(self, z: Array) -> Array:
        return z.copy()

    def second(self, z: Array) -> Array:
        return np.ones_like(z)


@losses.register("softmax")
class Softmax(Loss):
    """log sum_c exp(f_c.x) - f_y.x over the classes c: multinomial logistic regression.

    The functions are those of the first term, of scores with the classes along the axis before the last; the second term is
    linear, and softmax.py adds it. The gradient in the scores is p - e_y, of norm at most sqrt(2), the Hessian diag p - p p',
    of rank k - 1 and trace at most 1 - 1/k.
    """

    predicts: ClassVar[str] = "classes"
    takes: ClassVar[tuple[str, ...]] = ("classes", "binary")
    gives_probabilities: ClassVar[bool] = True
    slope_bound: ClassVar[float] = math.sqrt(2.0)

    classes: Annotated[int, msgspec.Meta(ge=2)] | None = None  # their number; None: as many as the labels have

    @property
    def outputs(self) -> int:
        assert self.classes is not None  # `fitted`
        return self.classes

    @property
    def curvature_bound(self) -> float:
        return 1.0 if self.classes is None else 1.0 - 1.0 / self.classes

    @property
    def span(self) -> int:
        """Gradients (p - e_y) x': k - 1 dimensions for each of two records, as the entries of p - e_y add up to zero."""
        return 2 * (self.outputs - 1)

    def slope_and_curvature(self, c: Array, weight: Array) -> Array:
        """The determinant has k - 1 factors 1 + weight lambda, and the lambda add up to 1 - 1/k: (k - 1) ln(1 + weight/k)."""
        return self.slope_bound * np.maximum(c, 0.0) + (self.outputs - 1) * np.log1p(weight / self.outputs)

    def fitted(self, kind: str, classes: int) -> "Softmax":
        if self.classes is not None and self.classes < classes:
            raise InputError(f"problem.classes: found {self.classes}, but the labels are {classes} classes; raise or remove it")
        return Softmax(classes=self.classes or classes)

    def value(self, z: Array) -> Array:
        largest = z.max(axis=-2, keepdims=True)
        return np.asarray(np.log(np.exp(z - largest).sum(axis=-2)) + largest[..., 0, :])

    def first(self, z: Array) -> Array:
        """The probabilities p."""
        p = z - z.max(axis=-2, keepdims=True)
        np.exp(p, out=p)
        p /= p.sum(axis=-2, keepdims=True)
        return p

    def second(self, z: Array) -> Array:
        """The diagonal of the Hessian."""
        p = self.first(z)
        return np.asarray(p * (1.0 - p))


def claims(loss: Loss) -> tuple[bool, Callable[[Array, Array], Array] | None]:
    """(whether L' <= 0, slope and curvature together): what a loss says beyond its bounds.

    A class from outside that changes the functions and inherits a claim has not made it.
    """
    functions = ("value", "first", "second")
    decreasing = loss.decreasing and not own_behaviour(type(loss), functions, claim="decreasing")
    own = own_behaviour(type(loss), (*functions, "slope_bound", "curvature_bound"), claim="slope_and_curvature")
    return decreasing, None if own else loss.slope_and_curvature


def check_constants(loss: Loss) -> None:
    """Refuse a loss from outside whose constants or derivatives are wrong on sampled points; the package's own are tested."""
    if is_inside(type(loss)):
        return
    for problem in wrong_constants(loss):
        raise InputError(f"{place_of(type(loss))}: {problem}; the privacy accounts rest on it")


def wrong_constants(loss: Loss) -> list[str]:
    """What is wrong with the statements of a loss about itself, on points from -50 to 50."""
    z = np.unique(np.round(np.concatenate([np.linspace(-50.0, 50.0, 2001), np.linspace(-4.0, 4.0, 4001)]), 6))
    with np.errstate(all="ignore"):
        value, first, second = (np.asarray(f(z.copy()), dtype=np.float64) for f in (loss.value, loss.first, loss.second))
    for name, numbers in (("value", value), ("first", first), ("second", second)):
        if numbers.shape != z.shape or not np.isfinite(numbers).all():
            return [f"{name}(z) must give a finite number for each z"]
    found, slack = [], 1.0 + 1e-9
    if np.abs(first).max() > loss.slope_bound * slack:
        k = int(np.abs(first).argmax())
        found.append(f"slope_bound = {loss.slope_bound:g}, but |first| is {abs(first[k]):g} at z = {z[k]:g}")
    if second.max() > loss.curvature_bound * slack:
        k = int(second.argmax())
        found.append(f"curvature_bound = {loss.curvature_bound:g}, but second is {second[k]:g} at z = {z[k]:g}")
    if second.min() < 0.0:
        found.append(f"second is {second.min():g} at z = {z[int(second.argmin())]:g}: the loss is not convex")
    if loss.decreasing and first.max() > 0.0:
        found.append(f"decreasing, but first is {first.max():g} at z = {z[int(first.argmax())]:g}")
    gap = np.diff(z)
    rise = np.diff(value) / gap  # lies between the slopes at the ends, for the loss is convex
    outside = np.maximum(rise - first[1:], first[:-1] - rise)
    if outside.max() > 1e-6 * max(1.0, loss.slope_bound):
        found.append(f"first is not the derivative of value near z = {z[int(outside.argmax())]:g}")
    bend = np.diff(first) - gap * np.maximum(second[1:], second[:-1])
    if bend.max() > 1e-2 * gap.max() * max(1.0, loss.curvature_bound):
        found.append(f"second is not the derivative of first near z = {z[int(bend.argmax())]:g}")
    return found or _wrong_tie(loss, z, first, second)


def _wrong_tie(loss: Loss, z: Array, first: Array, second: Array) -> list[str]:
    """Margins with more slope and curvature together than the loss says; nothing is said where the slope has no bound."""
    if not math.isfinite(loss.slope_bound):
        return []
    for c in (-1.0, 0.0, 0.1, 1.0):
        most = loss.slope_and_curvature(np.full_like(z, c), np.ones_like(z))
        excess = c * np.abs(first) + np.log1p(second) - most
        if excess.max() > 1e-9 * (1.0 + np.abs(most).max()):
            k = int(excess.argmax())
            return [f"slope_and_curvature({c:g}, 1) is {most[k]:g}, but the margin z = {z[k]:g} has {most[k] + excess[k]:g}"]
    return []


def source_of(function: ScalarSlope) -> str:
    """The text of a scalar slope, which a compiled copy in a cache must belong to."""
    try:
        return inspect.getsource(function)
    except (OSError, TypeError):
        return repr(function)
