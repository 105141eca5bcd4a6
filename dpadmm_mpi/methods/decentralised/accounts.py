"""Total privacy loss of everything released over all iterations, for replacing one record of one node: three accounts.

[M] Zhang, Khalili, Liu: Improving the Privacy and Accuracy of ADMM-Based Distributed Algorithms, ICML 2018.
[R] Zhang, Khalili, Liu: Recycled ADMM, IEEE TIFS 2020.

`bound` and `tight` are pure: sums over data steps of a fixed cost and what the noise loses. `epsilon` holds with probability
1 - delta in the usual sense. Recycled steps are post-processing and add nothing.
"""

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar, Literal

import numpy as np

from dpadmm_mpi.errors import InputError
from dpadmm_mpi.methods.base import NO_NOISE
from dpadmm_mpi.methods.shared_noise import CORRELATED
from dpadmm_mpi.privacy.account import Account, AccountKind, accounts
from dpadmm_mpi.privacy.composition import RandomLoss
from dpadmm_mpi.privacy.curves import LossSteps
from dpadmm_mpi.privacy.data_steps import StepCost
from dpadmm_mpi.privacy.noises import Noise, noises
from dpadmm_mpi.privacy.perturbations import DataStepPerturbation, ObjectivePerturbation
from dpadmm_mpi.privacy.releases import NetworkReleases, Releases
from dpadmm_mpi.registry import own_behaviour
from dpadmm_mpi.types import Array, Ints

NEIGHBOURS = "replace one record of one node"
DRAWN = ("sample", "samples", "scaled")  # what the accounts of a noise are about

EPSILON_ON_RELEASE = "the exact loss of a shift of the noise by the argmin's sensitivity, composed over the data steps"
EPSILON_SIGNED = (
    "the loss decreases, so a record shifts the noise along a fixed direction: the loss of a step is at most the mean of two "
    "losses of fixed shifts of length 2h, h = G C/B (over 2 eta V for dual and penalty), slope and curvature of the old record "
    "together; composed over the data steps"
)
EPSILON_SUBSPACE = (
    "the loss of a step is dominated by the largest one over shifts of length 2h in the subspace of the two gradients, "
    "h = G C/B (over 2 eta V for dual and penalty), plus ln(1 + x); composed over the data steps"
)
TIGHT = (
    "the ratio of the determinants is at most 1 + K L'', K = C / (B (rho/N + 2 eta V)), for every K; with slope and curvature "
    "of the replaced record together a step costs max over margins z of alpha h (G + |L'(z)|) + ln(1 + K L''(z)), h = C/B "
    "(over 2 eta V for dual and penalty)"
)
NO_PURE_BOUND = "none: this noise has no pure bound"
INEXACT_NOT_PURE = "none: Gaussian noise hides where inexact solves end, and has no pure bound"
INEXACT = (
    "; and in every data step a Gaussian mechanism of sensitivity 2 tau/mu and deviation s, mu = rho/N + 2 eta V, for solves "
    "that end at a gradient of norm tau (algorithm.tolerance), released with noise N(0, s^2 I) (privacy.release_std)"
)
CALIBRATION = 1e-4  # relative, of the noise's parameter: how fine the grid is that it is found on
LARGEST_STEP = 2.0  # of its logarithm
MOST_GUESSES = 12  # by straight lines, before bisection has to do

Total = Callable[[NetworkReleases, Ints], Array]  # what some of the nodes lose


def paper_cost(r: NetworkReleases) -> StepCost:
    """The papers' cost of a data step; without noise, or without an account of it, it is infinite."""
    if isinstance(r.perturbation, DataStepPerturbation) and not unaccounted(r):
        return r.perturbation.paper_cost(r)
    return StepCost(np.full_like(r.eta, np.inf), np.zeros_like(r.eta))


def determinant(r: NetworkReleases) -> Array:
    """ln(1 + x), x = c1 C / (B mu), (K, N): the largest determinant term of a step; 0 for noise on the release.

    (k - 1) ln(1 + C / (B mu k)) for softmax with k classes.
    """
    if not isinstance(r.perturbation, ObjectivePerturbation):
        return np.zeros_like(r.eta)
    return r.slope_and_curvature(np.zeros_like(r.eta), r.weight)


def totals(r: NetworkReleases) -> Array:
    """The papers' cost of every data step, (K, N). Without noise its parameter is nan and has no part in the cost."""
    cost = paper_cost(r)
    if r.noise is None:
        return cost.fixed
    return np.where(cost.shift > 0.0, cost.fixed + pure_loss(r.noise, cost.shift, r.strength), cost.fixed)


def tight_totals(r: NetworkReleases) -> Array:
    """Our pure cost of every data step, (K, N): for every z, the old record shifts the noise by h |L'(z)| and weighs
    ln(1 + K L''(z)) in the determinants, the new one shifts it by h G at most.
    """
    paper = totals(r)
    if r.noise is None or not isinstance(r.perturbation, ObjectivePerturbation) or np.isinf(paper).all():
        return paper
    pure = pure_loss(r.noise, paper_cost(r).shift, r.strength)  # of both records
    if not r.noise.exponent:  # nobody says that half a shift costs half as much
        return pure + determinant(r)
    return np.where(np.isinf(paper), np.inf, pure / 2.0 + r.slope_and_curvature(pure / (2.0 * r.G), r.weight))


def loss_steps(r: NetworkReleases) -> LossSteps | None:
    """What the data steps lose, for accounts at a delta and for curves; None: without noise, or without an account of it."""
    if not isinstance(r.perturbation, DataStepPerturbation) or r.noise is None or unaccounted(r) or r.unaccounted:
        return None
    shift = np.broadcast_to(paper_cost(r).shift, r.eta.shape)
    on_release = r.perturbation.on_release
    return LossSteps(
        law=random_loss(r.noise, r.features, 0 if on_release or r.decreasing else r.subspace),
        plane=random_loss(r.noise, r.features, r.subspace) if r.decreasing and not on_release else None,
        pure=tight_totals(r),
        size=r.noise.size(shift, r.strength),
        determinant=determinant(r),
        weight=r.weight,
        on_release=on_release,
        signed=r.decreasing and not on_release,
        subspace=r.subspace,
        tie=lambda c, weight: r.slope_and_curvature(c / r.G, weight),
        inexact=r.inexact_shift if r.tolerance else None,
    )


def epsilon(r: NetworkReleases, delta: float) -> Array:
    """epsilon_i(t) at `delta`, (T+1, N)."""
    return _epsilon(r, delta)[0]


def _epsilon(r: NetworkReleases, delta: float, last: bool = False) -> tuple[Array, str]:
    """epsilon_i(t) and the proof of the worst node's at the end; with `last`, only what is there at the end is right."""
    steps = loss_steps(r)
    if steps is None:
        return _spread(np.full_like(r.eta, np.inf), r), "none"
    found = steps.epsilon(delta, last)
    # What bounds a later iteration bounds an earlier one too.
    total = np.minimum.accumulate(found.values[::-1], axis=0)[::-1]
    return _spread(total, r), str(found.proofs[-1, found.values[-1].argmax()])


def over_iterations(cost: Array, r: NetworkReleases) -> Array:
    """P_i(t), (T+1, N): the sum of the data steps up to t, from P_i(0) = 0; a run without noise is inf throughout."""
    return _spread(np.cumsum(cost, axis=0), r)


def _spread(total: Array, r: NetworkReleases) -> Array:
    """Totals after each data step, (K, N), as totals after each iteration, (T+1, N)."""
    if not r.perturbation.private:
        return np.full((r.iterations + 1, r.nodes), np.inf)
    steps_before = np.searchsorted(r.data_steps, np.arange(r.iterations + 1), side="right")
    return np.vstack([np.zeros((1, r.nodes)), total])[steps_before]


def condition_margin(r: NetworkReleases) -> Array | None:
    """(B_i/C) (rho/N + 2 . V_i) - 2 c1 with the penalty of the theorem, which needs it positive; None: it has no condition.

    It is a condition of the papers' bound alone; a noise that has no pure loss has no such bound.
    """
    if r.noise is not None and not has_pure_loss(r.noise):
        return None
    reference = r.perturbation.reference_penalty(r) if isinstance(r.perturbation, DataStepPerturbation) else None
    return None if reference is None else r.B / r.C * (r.rho / r.nodes + 2.0 * reference * r.fewest_neighbours) - 2.0 * r.c1


def condition_failure(r: NetworkReleases) -> str | None:
    """The node that breaks the theorem's condition worst, in words; None if it holds or none is needed."""
    margin = condition_margin(r)
    if margin is None or margin.min() > 0:
        return None
    assert isinstance(r.perturbation, DataStepPerturbation)
    worst = int(np.argmin(margin))
    right = margin[worst] + 2 * r.c1
    return f"at node {worst} 2 c1 = {2 * r.c1:.6g} is not below {r.perturbation.condition_words()} = {right:.6g}"


def theorem(r: NetworkReleases) -> str:
    if not isinstance(r.perturbation, DataStepPerturbation):
        return NO_NOISE
    if why := unaccounted(r):
        return f"not proven: {why}"
    if r.tolerance:
        return INEXACT_NOT_PURE
    return r.perturbation.theorem if r.noise is not None and has_pure_loss(r.noise) else NO_PURE_BOUND


def unaccounted(r: NetworkReleases) -> str:
    """Why perturbation or noise have no account of their own; "" if they have."""
    if not isinstance(r.perturbation, DataStepPerturbation) or r.noise is None:
        return ""
    if not r.perturbation.theorem:
        return "the perturbation has no account of its own"
    if own := own_behaviour(type(r.perturbation), ("objective_factor", "on_release"), claim="paper_cost"):
        return f"the perturbation has {own} and no paper_cost of its own"
    if has_pure_loss(r.noise) or random_loss(r.noise, 1, 0) is not None:
        return ""
    own = own_behaviour(type(r.noise), DRAWN, claim="pure_loss")
    return f"the noise has {own} and no pure_loss of its own" if own else "the noise has no account of its own"


def pure_loss(noise: Noise, shift: Array, parameter: Array) -> Array:
    """What the noise says that a shift costs at most; inf where it has changed what it draws and not said it anew."""
    if own_behaviour(type(noise), DRAWN, claim="pure_loss"):
        return np.full(shift.shape, np.inf)
    return noise.pure_loss(shift, parameter)


def _is_proven_pure(r: NetworkReleases) -> bool:
    """Infinity needs no proof where there is no noise; where there is, but without a pure bound, nothing is claimed."""
    return not unaccounted(r) and (r.noise is None or has_pure_loss(r.noise))


def has_pure_loss(noise: Noise) -> bool:
    return bool(np.isfinite(pure_loss(noise, np.ones(1), np.ones(1))).all())


def random_loss(noise: Noise, features: int, subspace: int) -> RandomLoss | None:
    """The law of the loss of a shift; None where the noise has changed what it draws and not said it anew."""
    return None if own_behaviour(type(noise), DRAWN, claim="random_loss") else noise.random_loss(features, subspace)


class NetworkAccount(AccountKind[NetworkReleases]):
    """An account of the methods on a network."""

    applies_to: ClassVar[type[Releases]] = NetworkReleases


class PureAccount(NetworkAccount):
    """A sum of what each data step costs at most."""

    @abstractmethod
    def step_totals(self, r: NetworkReleases) -> Array:
        """Of every data step, (K, N)."""

    def values(self, r: NetworkReleases) -> Array:
        if r.tolerance:
            return np.full((r.iterations + 1, r.nodes), np.inf)
        return over_iterations(self.step_totals(r), r)

    def of_runs(self, releases: NetworkReleases) -> Array | None:
        """The costs of the data steps that were taken, added up."""
        r = releases
        if r.in_runs is None or r.tolerance or not r.perturbation.private:
            return None
        runs, K, nodes = r.in_runs.taken.shape
        cost = self.step_totals(r.side_by_side()).reshape(K, runs, nodes).swapaxes(0, 1)
        total = np.cumsum(np.where(r.in_runs.taken, cost, 0.0), axis=1)
        steps_before = np.searchsorted(r.data_steps, np.arange(r.iterations + 1), side="right")
        return np.concatenate([np.zeros_like(total[:, :1]), total], axis=1)[:, steps_before]


@accounts.register("bound")
class Bound(PureAccount):
    """The paper's bound P(t): a pure privacy loss, summed over the data steps."""

    label: ClassVar[str] = "P(t), the paper's bound"
    column: ClassVar[str] = "P(t)"
    target: ClassVar[str] = "bound"
    line: ClassVar[Any] = "-"

    def compute(self, releases: NetworkReleases, delta: float) -> Account:
        r = releases
        proven = condition_failure(r) is None and _is_proven_pure(r)
        return Account("bound", "the paper's bound", self.values(r), theorem(r), proven, NEIGHBOURS)

    def step_totals(self, r: NetworkReleases) -> Array:
        return totals(r)

    def calibrate(self, releases: NetworkReleases, target: float, delta: float) -> NetworkReleases:
        """The totals are linear in the size of the loss, so the answer is exact: the smallest over the nodes."""
        r = releases
        refuse_calibration(r, pure=True)
        assert r.noise is not None
        cost = paper_cost(r)
        fixed, slope = cost.fixed.sum(axis=0), r.noise.pure_loss(cost.shift, r.strength).sum(axis=0)
        _refuse_target(fixed, target, r)
        return replace(r, parameter=r.parameter * np.min((target - fixed) / slope) ** float(r.noise.exponent))


@accounts.register("tight")
class Tight(PureAccount):
    """A tighter pure bound, without a condition: another estimate of the determinants, tied to the slope."""

    label: ClassVar[str] = "tighter pure bound"
    column: ClassVar[str] = "tight"
    target: ClassVar[str] = "tight"
    counts_budget: ClassVar[Literal["pure", "delta", ""]] = "pure"
    line: ClassVar[Any] = (0, (1, 1.5))

    def step_totals(self, r: NetworkReleases) -> Array:
        return tight_totals(r)

    def calibrate(self, releases: NetworkReleases, target: float, delta: float) -> NetworkReleases:
        """The totals grow with the size of the loss; met to the last bits, from below."""
        refuse_calibration(releases, pure=True)
        return met(releases, target, lambda r, nodes: tight_totals(r).sum(axis=0)[nodes], by_itself=False, exactly=True)

    def compute(self, releases: NetworkReleases, delta: float) -> Account:
        r = releases
        has_determinant = isinstance(r.perturbation, ObjectivePerturbation) and r.noise is not None and has_pure_loss(r.noise)
        words = TIGHT if has_determinant and not unaccounted(r) and not r.tolerance else theorem(r)
        return Account("tight", "tighter pure bound", self.values(r), words, _is_proven_pure(r), NEIGHBOURS)


@accounts.register("epsilon")
class Epsilon(NetworkAccount):
    """Epsilon at delta: the random losses of all data steps, composed."""

    label: ClassVar[str] = "epsilon"
    column: ClassVar[str] = "epsilon"
    target: ClassVar[str] = "epsilon"
    counts_budget: ClassVar[Literal["pure", "delta", ""]] = "delta"
    line: ClassVar[Any] = (0, (5, 1.5, 1, 1.5))

    def compute(self, releases: NetworkReleases, delta: float) -> Account:
        r = releases
        values, proof = _epsilon(r, delta)
        steps = loss_steps(r)
        curve = steps.curve(int(values[-1].argmax())) if steps is not None else None

        def summary() -> dict[str, float]:
            impure = r.noise is not None and not has_pure_loss(r.noise)
            return {"zcdp_rho": curve.zcdp()} if curve is not None and impure else {}

        return Account(
            "epsilon",
            f"epsilon at delta = {delta:g}",
            values,
            _words(r) + (INEXACT if r.tolerance else "") + ("" if r.worth is None else CORRELATED),
            not unaccounted(r),
            NEIGHBOURS,
            delta,
            details={"proof": proof},
            summary=summary,
            profile=curve,
        )

    def spent(self, releases: NetworkReleases, delta: float) -> Array:
        """To the last bit."""
        return _epsilon(releases, delta, last=True)[0][-1]

    def calibrate(self, releases: NetworkReleases, target: float, delta: float) -> NetworkReleases:
        """Epsilon grows with the size of the loss and is met to CALIBRATION."""
        refuse_calibration(releases, pure=False)
        steps = loss_steps(releases)
        by_convolution = steps is not None and steps.composable

        def total(r: NetworkReleases, nodes: Ints) -> Array:
            steps = loss_steps(r)
            assert steps is not None
            return steps.last_epsilon(delta, nodes, by_convolution)

        return met(releases, target * (1.0 - 1e-9), total, by_convolution, exactly=False)


def _words(r: NetworkReleases) -> str:
    """What `epsilon` rests on."""
    if not isinstance(r.perturbation, DataStepPerturbation):
        return NO_NOISE
    if r.perturbation.on_release:
        return EPSILON_ON_RELEASE
    return EPSILON_SIGNED if r.decreasing else EPSILON_SUBSPACE


def refuse_calibration(r: NetworkReleases, pure: bool) -> None:
    """Refuse a target that this noise cannot meet."""
    assert r.noise is not None
    name = noises.name_of(type(r.noise))
    if not r.noise.exponent:
        raise InputError(f'privacy.target: the noise "{name}" cannot be calibrated; give privacy.{r.noise.parameter} instead')
    if pure and r.tolerance:
        raise InputError('privacy.target_account: with privacy.release_std there is no pure bound; choose "epsilon"')
    if pure and not has_pure_loss(r.noise):
        raise InputError(f'privacy.target_account: the noise "{name}" has no pure bound; choose "epsilon"')


def met(r: NetworkReleases, target: float, total: Total, by_itself: bool, exactly: bool) -> NetworkReleases:
    """The same releases with the largest losses, in the shape that they have, whose totals are at most the target.

    A node that another one exceeds in every size and determinant is not the worst one, so only the others are looked at: one
    after the other, if each has a total `by_itself`.
    """
    assert r.noise is not None
    exponent = float(r.noise.exponent)
    shift = paper_cost(r).shift * np.ones_like(r.eta)
    size = r.noise.size(shift, r.strength)
    unit = target / size.sum(axis=0).max()
    chosen = undominated(np.vstack([size, determinant(r), r.inexact_shift]))
    few = r.of_nodes(chosen)

    def scaled(strength: float, of: NetworkReleases = r) -> NetworkReleases:
        return replace(of, parameter=of.parameter * (strength * unit) ** exponent)

    _refuse_target(determinant(r).sum(axis=0), target, r)
    everyone = np.arange(few.nodes)
    if r.tolerance and total(scaled(1e-12, few), everyone).max() >= target:
        raise InputError(
            f"privacy.target: {target:g} cannot be met: the inexact solves alone cost as much; raise the target or "
            "privacy.release_std, or lower algorithm.tolerance"
        )
    largest_first = np.argsort(-size[:, chosen].sum(axis=0), kind="stable")
    found = np.inf
    for nodes in largest_first[:, None] if by_itself else [everyone]:

        def spent(strength: float, of: Ints = nodes) -> float:
            return float(total(scaled(strength, few), of).max())

        found = largest_within(spent, target, found, exactly)
    return scaled(found)


def largest_within(spent: Callable[[float], float], target: float, most: float, exactly: bool) -> float:
    """The largest strength, up to `most`, at which something that grows with it is at most the target.

    It is one of a grid: powers of two, and what bisection makes of the range between two of them. Where the total reaches the
    target is guessed from what has been asked so far, and then both ends of that cell of the grid are asked.
    """
    low, high, asked = 0.0, np.inf, 1.0 if np.isinf(most) else most
    logs: list[tuple[float, float]] = []
    while True:
        value = spent(asked)
        low, high = (asked, high) if value <= target else (low, asked)
        if low == most:
            return low
        logs.append((np.log(asked), np.log(max(value, 1e-300) / target)))
        cell = _cell(_crossing(logs, low, high), exactly)
        if cell == (low, high):
            return low
        asked = cell[1] if cell[0] == low else cell[0]


def _crossing(logs: list[tuple[float, float]], low: float, high: float) -> float:
    """Where the line through the last two points is 0, on a logarithmic scale; or, if that says nothing, somewhere between."""
    before, (x, y) = [(logs[0][0] - 1.0, logs[0][1] - 1.0), *logs][-2:]
    if len(logs) < MOST_GUESSES and y != before[1]:
        step = y * (x - before[0]) / (y - before[1])
        guess = float(np.exp(x - np.clip(step, -LARGEST_STEP, LARGEST_STEP)))
        if low < guess < high:
            return guess
    if low == 0.0:
        return high / 2.0
    return 2.0 * low if np.isinf(high) else min(float(np.sqrt(low * high)), float(np.nextafter(high, 0.0)))


def _cell(x: float, exactly: bool) -> tuple[float, float]:
    """The cell of the grid that x lies in."""
    low = 2.0 ** np.floor(np.log2(x))
    high = 2.0 * low
    while high > low * (1.0 + (4e-16 if exactly else CALIBRATION)):
        middle = (low + high) / 2.0 if exactly else float(np.sqrt(low * high))
        if not low < middle < high:
            break
        low, high = (middle, high) if middle <= x else (low, middle)
    return low, high


def _refuse_target(fixed: Array, target: float, r: NetworkReleases) -> None:
    """What the determinants cost without any shift, (N,), is less than the target, or no noise can meet it."""
    worst = int(np.argmax(fixed))
    if fixed[worst] >= target:
        raise InputError(
            f"privacy.target: {target:g} cannot be met: at node {worst} the determinant term alone costs "
            f"{fixed[worst]:.6g} over {len(r.data_steps)} data steps; raise the target or eta, or use fewer iterations"
        )


def undominated(costs: Array) -> Ints:
    """Columns that no other one exceeds, or equals, in every row."""
    order = np.argsort(-costs.sum(axis=0), kind="stable")
    kept: list[int] = []
    for i in order.tolist():
        if not kept or not (costs[:, kept] >= costs[:, [i]]).all(axis=0).any():
            kept.append(i)
    return np.sort(np.array(kept))
