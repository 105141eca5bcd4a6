"""What the data steps of a node are worth: delta over epsilon, epsilon at a delta, the Renyi divergence at an order.

Use it like this. A method on a network says what its data steps lose at most (`loss_steps` in
methods/decentralised/accounts.py), and

    steps = loss_steps(releases)                 # LossSteps: (K, N) arrays
    steps.epsilon(1e-5).values                   # epsilon after every data step of every node, (K, N)
    curve = steps.curve(node)                    # PrivacyCurve of all data steps of a node
    curve = steps.curve(node, upto=10)           # ... of its first 10 data steps
    curve.delta(np.array([0.5, 1.0]))            # the delta of each epsilon; delta(0) is the advantage of the best attacker
    curve.epsilon(np.array([1e-5, 1e-6]))        # the epsilon of each delta
    curve.renyi(np.array([2.0, 8.0]))            # Renyi divergence at each order above 1; curves add up over releases
    curve.zcdp()                                 # the smallest rho with renyi(order) <= rho order, as far as can be shown

Every number is the smallest of those that are proven, and an upper bound, for replacing one record of the node, over all that
is released. The proofs are in docs/mathematics.md, section 3.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from dpadmm_mpi.privacy import composition
from dpadmm_mpi.privacy.composition import ORDERS, Composed, MeanOfSums, RandomLoss, Step, Tie
from dpadmm_mpi.privacy.sampled_steps import gaussian_delta, gaussian_epsilon
from dpadmm_mpi.types import Array, Ints

COMPOSITIONS = 600  # convolutions that an account of all nodes may take
LARGE = 40.0  # epsilon from which on the worst shift of a subspace is looked at too

PURE = "the tighter pure bound"
INEXACT = ", and a Gaussian mechanism for the inexact solves"
SHARES = (1e-6, 1e-2, 0.3, 0.99)  # of delta for the inexact solves


class Epsilons(NamedTuple):
    """Epsilon at a delta, (K, N), or (1, N) after the last step alone, and the name of each one's proof."""

    values: Array
    proofs: "np.ndarray[tuple[int, ...], np.dtype[np.str_]]"


@dataclass(frozen=True)
class LossSteps:
    """What K data steps of N nodes lose at most, for replacing one record of the node. Arrays are (K, N).

    The loss of a step is that of a shift of the noise plus a determinant term. `pure` bounds it whatever the noise; inf:
    nothing does. `size` is the largest shift in units of the noise, `determinant` bounds the determinant term, `weight` is K of
    docs/mathematics.md.
    """

    law: RandomLoss | None  # of the loss of a shift, in a fixed direction or in a subspace; None: nobody knows it
    plane: RandomLoss | None  # in a subspace, where the other one is in a fixed direction for the sake of the sign
    pure: Array
    size: Array
    determinant: Array
    weight: Array
    on_release: bool  # the shift does not depend on the noise of the step
    signed: bool  # noise in the objective, and the loss decreases: slopes have one sign, and directions are fixed
    subspace: int  # otherwise: dimension of what the two gradients span
    tie: Tie  # slope and curvature of one record together
    inexact: Array | None = None  # sensitivity over deviation of the Gaussian mechanism that a step is besides; None: none

    @property
    def proof(self) -> str:
        if self.on_release:
            return "the exact loss of the largest shift"
        if self.signed:
            return "the sign of the slope, slope and curvature together"
        return f"the largest loss in {self.subspace} dimensions"

    @cached_property
    def composable(self) -> bool:
        """Whether the last sums of all nodes can be convolved; otherwise moments have to do."""
        return sum(len(pairs) for pairs in self._different(self._different_nodes[0])) <= COMPOSITIONS

    @cached_property
    def _different_nodes(self) -> tuple[Ints, Ints]:
        """Nodes that differ in their steps, and for each node the place of its like among them."""
        both = np.vstack([self.size, self.determinant, self.weight])
        _, chosen, place = np.unique(both, axis=1, return_index=True, return_inverse=True)
        return chosen, place.ravel()

    def _different(self, nodes: Ints) -> list[set[Step]]:
        return [set(self._steps(int(node), len(self.size))) for node in nodes]

    def epsilon(self, delta: float, last: bool = False) -> Epsilons:
        """After each data step of each node; with `last`, nothing is convolved for those before the last one."""
        if self.inexact is not None:
            return self._with_inexact(self.inexact, delta, last)
        total = np.cumsum(self.pure, axis=0)
        found, proofs = _pure_epsilon(total, delta), np.full(total.shape, PURE, dtype=object)
        chosen, place = self._different_nodes
        for way, values in self._of_nodes(chosen, delta, last):
            values = values[:, place]
            smaller = values < found[-len(values) :]
            found[-len(values) :] = np.where(smaller, values, found[-len(values) :])
            proofs[-len(values) :][smaller] = f"{self.proof}, by {way}"
        return Epsilons(found, proofs)

    def _with_inexact(self, inexact: Array, delta: float, last: bool) -> Epsilons:
        """The steps and their Gaussian mechanisms: delta split between the two, or moments added up."""
        exact, mu = replace(self, inexact=None), np.sqrt(np.cumsum(inexact**2, axis=0))
        if self._is_gaussian:
            together = np.sqrt(np.cumsum(self.size**2 + inexact**2, axis=0))
            return Epsilons(gaussian_epsilon(together, delta), np.full(mu.shape, "Gaussian differential privacy", dtype=object))
        values, proofs = np.full(mu.shape, np.inf), np.full(mu.shape, PURE, dtype=object)
        for share in SHARES:
            main = exact.epsilon(delta * (1.0 - share), last)
            total = main.values + gaussian_epsilon(mu, delta * share)
            proofs = np.where(total < values, main.proofs + INEXACT, proofs)
            values = np.minimum(values, total)
        if self.law is not None:
            moments = self._moments(self.size, self.determinant, delta, inexact)
            proofs = np.where(moments < values, f"{self.proof}, by moments{INEXACT}", proofs)
            values = np.minimum(values, moments)
        return Epsilons(values, proofs)

    def last_epsilon(self, delta: float, nodes: Ints, by_convolution: bool) -> Array:
        """After the last data step of some nodes, by one way: never below `epsilon` with that way."""
        if self.inexact is not None:
            return np.asarray(self.epsilon(delta, last=True).values[-1, nodes])
        pure = _pure_epsilon(self.pure.sum(axis=0)[nodes], delta)
        if self.law is None:
            return pure
        if self._is_gaussian:
            return np.minimum(pure, gaussian_epsilon(np.sqrt(np.sum(self.size[:, nodes] ** 2, axis=0)), delta))
        if by_convolution:
            return np.minimum(pure, [self._composed(int(node), delta, every_step=False)[-1] for node in nodes])
        chosen, place = self._different_nodes
        return np.minimum(pure, self._moments(self.size[:, chosen], self.determinant[:, chosen], delta)[-1, place[nodes]])

    @property
    def _is_gaussian(self) -> bool:
        """The sum of the losses is Gaussian."""
        return self.on_release and self.law is not None and not np.isnan(self.law.as_one(self.size[:, 0]))

    def _of_nodes(self, nodes: Ints, delta: float, last: bool) -> Iterator[tuple[str, Array]]:
        """The ways in which epsilon is computed for some nodes, with their values after every step, or after the last."""
        if self.law is None:
            return
        size, determinant = self.size[:, nodes], self.determinant[:, nodes]
        if self._is_gaussian:
            yield "Gaussian differential privacy", gaussian_epsilon(np.sqrt(np.cumsum(size**2, axis=0)), delta)
            return
        every_step = size.size <= COMPOSITIONS and not last
        if every_step or self.composable:
            yield "convolution", np.stack([self._composed(int(node), delta, every_step) for node in nodes], axis=1)
        yield "moments", self._moments(size, determinant, delta)

    def _composed(self, node: int, delta: float, every_step: bool) -> Array:
        totals = self._totals(node, len(self.size), every_step)
        found = np.array([total.epsilon(delta) + shift for total, shift in totals])
        if self.plane is None or found[-1] < LARGE:
            return found
        # A hinge is a poor stand-in for what it bounds where losses are large.
        fixed = np.cumsum(self.determinant[:, node])[-len(found) :]
        return np.minimum(found, composition.composed_epsilon(self.plane, self.size[:, node], delta, every_step) + fixed)

    def _totals(self, node: int, upto: int, every_step: bool) -> Iterator[tuple[Composed | MeanOfSums, float]]:
        """The laws of the sums, and what is to be added to them."""
        assert self.law is not None
        c, fixed = self.size[:upto, node], np.cumsum(self.determinant[:upto, node])
        if not every_step:
            fixed = fixed[-1:]
        if self.signed:
            for total in composition.means_of_sums(self.law, self._steps(node, upto), self.tie, every_step):
                yield total, 0.0
        else:
            for plain, shift in zip(composition.composed(self.law, c, every_step), fixed, strict=True):
                yield plain, float(shift)

    def _steps(self, node: int, upto: int) -> list[Step]:
        return [Step(c, K) for c, K in zip(self.size[:upto, node].tolist(), self.weight[:upto, node].tolist(), strict=True)]

    def _moments(self, size: Array, determinant: Array, delta: float, inexact: Array | float = 0.0) -> Array:
        assert self.law is not None
        if self.signed:
            tables = composition.table_of_halves(self.law, size, determinant, self._weight_of, self.tie)
            return composition.moment_epsilon(tables, size, determinant, delta, inexact)
        tables = composition.table(self.law, size)
        return composition.moment_epsilon(tables, size, determinant, delta, inexact) + np.cumsum(determinant, axis=0)

    def _weight_of(self, determinant: float) -> float:
        """K from ln(1 + K c1), which all steps and nodes share the c1 of."""
        return float(np.expm1(determinant) * self.weight.flat[0] / np.expm1(self.determinant.flat[0]))

    def log_moments(self, node: int, upto: int, orders: Array) -> Array:
        """Bounds on ln E exp(order loss), (orders,), summed over the steps; order + 1 is the order of the Renyi divergence."""
        assert self.law is not None
        total = np.zeros(len(orders))
        counts: dict[Step, int] = {}
        for step in self._steps(node, upto):
            counts[step] = counts.get(step, 0) + 1
        halves = self.signed
        for step, count in counts.items():
            if halves:
                total += count * composition.log_moments_of_halves(self.law, step, self.tie, orders)
            else:
                total += count * composition.log_moments(self.law, step.c, orders)
        return total if halves else total + orders * self.determinant[:upto, node].sum()

    def curve(self, node: int, upto: int | None = None) -> "PrivacyCurve":
        """Of the first `upto` data steps of a node, or of all."""
        upto = len(self.size) if upto is None else upto
        if upto == 0:
            return PrivacyCurve([Pure(0.0)])
        if self.inexact is not None:
            return self._inexact_curve(node, upto, float(np.linalg.norm(self.inexact[:upto, node])))
        proofs: list[Proof] = [Pure(float(self.pure[:upto, node].sum()))]
        if self.law is None:
            return PrivacyCurve(proofs)
        if self.on_release and not np.isnan(mu := self.law.as_one(self.size[:upto, node])):
            return PrivacyCurve([*proofs, GaussianProof(mu)])
        slopes, rests = zip(*(self.law.growth(c) for c in self.size[:upto, node].tolist()), strict=True)
        growth = (sum(slopes), sum(rests) + float(self.determinant[:upto, node].sum()))
        moments = Moments(lambda orders: self.log_moments(node, upto, orders), growth)
        return PrivacyCurve([*proofs, Convolution(lambda: next(self._totals(node, upto, every_step=False))), moments])

    def _inexact_curve(self, node: int, upto: int, mu: float) -> "PrivacyCurve":
        main = replace(self, inexact=None).curve(node, upto)
        if any(isinstance(proof, GaussianProof) for proof in main.proofs):
            return PrivacyCurve(
                [GaussianProof(float(np.hypot(proof.mu, mu))) for proof in main.proofs if isinstance(proof, GaussianProof)]
            )
        proofs: list[Proof] = [WithGaussian(main, mu)]
        for proof in main.proofs:
            if isinstance(proof, Moments):
                proofs.append(proof.with_gaussian(mu))
        return PrivacyCurve(proofs)


def _pure_epsilon(total: Array, delta: float) -> Array:
    """Of totals that no loss exceeds."""
    left = np.maximum(1.0 - delta - delta * np.exp(-total), 1e-300)
    return np.maximum(total + np.log(left), 0.0)


class Proof(ABC):
    """One way to bound the total loss."""

    @abstractmethod
    def delta(self, epsilon: Array) -> Array:
        """Of each epsilon >= 0."""

    @abstractmethod
    def epsilon(self, delta: float) -> float:
        """Of a delta."""

    def renyi(self, orders: Array) -> Array:
        """Renyi divergence at each order above 1."""
        return np.full(len(orders), np.inf)

    @property
    def growth(self) -> tuple[float, float]:
        """(slope, rest): from order 2 on the divergence is at most slope order + rest."""
        return np.inf, np.inf


@dataclass(frozen=True)
class Pure(Proof):
    """No loss is above `total`: nothing is worse than randomised response (Kairouz, Oh, Viswanath, 2015)."""

    total: float

    def delta(self, epsilon: Array) -> Array:
        if np.isinf(self.total):
            return np.ones(len(epsilon))
        return np.maximum(-np.expm1(epsilon - self.total), 0.0) / (1.0 + np.exp(-self.total))

    def epsilon(self, delta: float) -> float:
        return float(_pure_epsilon(np.array(self.total), delta))

    def renyi(self, orders: Array) -> Array:
        """(ln(p^order q^(1-order) + q^order p^(1-order))) / (order - 1), p = 1/(1 + exp(-total)), q = 1 - p"""
        if np.isinf(self.total):
            return super().renyi(orders)
        log_p, log_q = -np.log1p(np.exp(-self.total)), -self.total - np.log1p(np.exp(-self.total))
        sides = np.logaddexp(orders * log_p + (1.0 - orders) * log_q, orders * log_q + (1.0 - orders) * log_p)
        return np.clip(sides / (orders - 1.0), 0.0, self.total)

    @property
    def growth(self) -> tuple[float, float]:
        return 0.0, self.total


@dataclass(frozen=True)
class GaussianProof(Proof):
    """The loss is N(mu^2/2, mu^2): mu-Gaussian differential privacy, exactly."""

    mu: float

    def delta(self, epsilon: Array) -> Array:
        return gaussian_delta(epsilon, self.mu)

    def epsilon(self, delta: float) -> float:
        return float(gaussian_epsilon(np.array([self.mu]), delta)[0])

    def renyi(self, orders: Array) -> Array:
        return orders * self.mu**2 / 2.0


@dataclass(frozen=True)
class Convolution(Proof):
    """The law of the sum, and a number to be added; made when somebody asks."""

    make: Callable[[], tuple[Composed | MeanOfSums, float]]

    @cached_property
    def _made(self) -> tuple[Composed | MeanOfSums, float]:
        return self.make()

    def delta(self, epsilon: Array) -> Array:
        total, shift = self._made
        return total.delta(epsilon - shift)

    def epsilon(self, delta: float) -> float:
        total, shift = self._made
        return total.epsilon(delta) + shift


@dataclass(frozen=True)
class Moments(Proof):
    """ln E exp(order loss) at every order."""

    logs: Callable[[Array], Array]
    growth: tuple[float, float] = (np.inf, np.inf)

    @cached_property
    def _usual(self) -> Array:
        return self.logs(ORDERS)

    def delta(self, epsilon: Array) -> Array:
        return composition.delta_of_moments(self._usual, ORDERS, epsilon)

    def epsilon(self, delta: float) -> float:
        return float(composition.epsilon_of_moments(self._usual, ORDERS, delta))

    def renyi(self, orders: Array) -> Array:
        return self.logs(orders - 1.0) / (orders - 1.0)

    def with_gaussian(self, mu: float) -> "Moments":
        """And N(mu^2/2, mu^2) besides."""
        slope, rest = self.growth
        return Moments(lambda orders: self.logs(orders) + orders * (orders + 1.0) * mu**2 / 2.0, (slope + mu**2 / 2.0, rest))


@dataclass(frozen=True)
class WithGaussian(Proof):
    """Other releases and a Gaussian mechanism: epsilon and delta of the two add up, split in the best way."""

    main: "PrivacyCurve"
    mu: float

    def delta(self, epsilon: Array) -> Array:
        splits = [np.where(epsilon >= e, self.main.delta(np.maximum(epsilon - e, 0.0)), 1.0) for e in self._epsilons]
        return np.minimum(np.min([d + g for d, g in zip(splits, self._deltas, strict=True)], axis=0), 1.0)

    @cached_property
    def _epsilons(self) -> Array:
        return np.concatenate([[0.0], self.mu * np.arange(0.5, 9.0, 0.5)])

    @cached_property
    def _deltas(self) -> Array:
        return gaussian_delta(self._epsilons, self.mu)

    def epsilon(self, delta: float) -> float:
        gaussian = [gaussian_epsilon(np.array([self.mu]), delta * share)[0] for share in SHARES]
        return float(
            min(self.main.epsilon(np.array([delta * (1.0 - s)]))[0] + g for s, g in zip(SHARES, gaussian, strict=True))
        )

    def renyi(self, orders: Array) -> Array:
        return self.main.renyi(orders) + orders * self.mu**2 / 2.0

    @property
    def growth(self) -> tuple[float, float]:
        slope, rest = min((proof.growth for proof in self.main.proofs), key=lambda growth: growth[0])
        return slope + self.mu**2 / 2.0, rest


class PrivacyCurve:
    """The smallest of what several proofs say about the same releases."""

    def __init__(self, proofs: list[Proof]) -> None:
        self.proofs = proofs

    def delta(self, epsilon: Array) -> Array:
        """The delta of each epsilon >= 0; it falls."""
        epsilon = np.atleast_1d(np.asarray(epsilon, dtype=np.float64))
        return np.clip(np.min([proof.delta(epsilon) for proof in self.proofs], axis=0), 0.0, 1.0)

    def epsilon(self, delta: Array) -> Array:
        """The epsilon of each delta; inf where nothing is proven."""
        deltas = np.atleast_1d(np.asarray(delta, dtype=np.float64)).tolist()
        return np.array([min(proof.epsilon(each) for proof in self.proofs) for each in deltas])

    def renyi(self, orders: Array) -> Array:
        """Renyi divergence at each order above 1; it grows with the order."""
        orders = np.atleast_1d(np.asarray(orders, dtype=np.float64))
        return np.min([proof.renyi(orders) for proof in self.proofs], axis=0)

    def zcdp(self) -> float:
        """The smallest rho with renyi(order) <= rho order for all orders, as far as can be shown.

        The divergence grows with the order, so between two orders it is at most the value at the upper one; above the largest
        one `growth` says how.
        """
        for proof in self.proofs:
            if isinstance(proof, GaussianProof):
                return proof.mu**2 / 2.0
        orders = 1.0 + np.concatenate([np.geomspace(1e-4, 1.0, 200), np.geomspace(1.0, 2000.0, 400)[1:]])
        low, high = np.array([0]), np.array([len(orders) - 1])
        values = np.full(len(orders), np.nan)
        values[[0, -1]] = self.renyi(orders[[0, -1]])
        largest = max(values[0], min(proof.growth[0] + proof.growth[1] / orders[-1] for proof in self.proofs))
        while len(low):  # halves of ranges of orders, but for those where the bound by their ends is not above the largest
            bound, narrow = values[high] / orders[low], high == low + 1
            largest = max(largest, np.max(bound[narrow], initial=0.0))
            wide = ~narrow & (bound > largest)
            low, high = low[wide], high[wide]
            middle = (low + high) // 2
            values[middle] = self.renyi(orders[middle])
            low, high = np.append(low, middle), np.append(middle, high)
        return float(largest)
