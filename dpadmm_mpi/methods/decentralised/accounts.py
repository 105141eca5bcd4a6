"""Total privacy loss of everything released over all iterations, for replacing one record of one node: three accounts.

[M] Zhang, Khalili, Liu: Improving the Privacy and Accuracy of ADMM-Based Distributed Algorithms, ICML 2018.
[R] Zhang, Khalili, Liu: Recycled ADMM, IEEE TIFS 2020.

`bound` and `tight` are pure: sums over data steps of a fixed cost and what the noise loses. `epsilon` holds with probability
1 - delta in the usual sense. Recycled steps are post-processing and add nothing.
"""

from dataclasses import replace
from typing import Any, ClassVar, Literal

import numpy as np

from dpadmm_mpi.errors import InputError
from dpadmm_mpi.methods.base import NO_NOISE
from dpadmm_mpi.privacy.account import Account, AccountKind, accounts
from dpadmm_mpi.privacy.data_steps import StepCost
from dpadmm_mpi.privacy.noises import noises
from dpadmm_mpi.privacy.perturbations import DataStepPerturbation, ObjectivePerturbation
from dpadmm_mpi.privacy.releases import NetworkReleases, Releases
from dpadmm_mpi.registry import own_behaviour
from dpadmm_mpi.types import Array, Bools

NEIGHBOURS = "replace one record of one node"

EPSILON_ON_RELEASE = (
    "the exact loss alpha (||e + v|| - ||e||) of a shift by the argmin's sensitivity, composed over the data steps"
)
EPSILON_OBJECTIVE = (
    "the loss is dominated by alpha (sqrt((s + 2h)^2 + r^2 - s^2) - r) - ln(1 - x), r = ||e||, s its projection on the plane "
    "of the two gradients, h = G C/B (over 2 eta V for dual and penalty), |L'| <= G; composed over the data steps"
)
CALIBRATION = 1e-4  # relative, of alpha, where it is found by bisection
TIGHT = "as the paper's bound, with -ln(1 - x) for the ratio of the determinants, x = c1 C / (B (rho/N + 2 eta V)) < 1"


def paper_cost(r: NetworkReleases) -> StepCost:
    """The papers' cost of a data step; without noise, or without an account of it, it is infinite."""
    if isinstance(r.perturbation, DataStepPerturbation) and not unaccounted(r):
        return r.perturbation.paper_cost(r)
    return StepCost(np.full_like(r.eta, np.inf), np.zeros_like(r.eta))


def tight_cost(r: NetworkReleases) -> StepCost:
    """Our tighter cost: two neighbouring Hessians differ by a uu' - b vv', which has at most one negative eigenvalue."""
    paper = paper_cost(r)
    if not isinstance(r.perturbation, ObjectivePerturbation):
        return paper
    x = r.c1 * r.C / (r.B * r.curvature)
    with np.errstate(divide="ignore", invalid="ignore"):
        fixed = np.where(x < 1.0, -np.log1p(-x), np.inf)
    return StepCost(np.where(np.isinf(paper.fixed), np.inf, fixed), paper.shift)


def totals(cost: StepCost, r: NetworkReleases) -> Array:
    """Of every data step, (K, N). Without noise its parameter is nan and has no part in the cost."""
    if r.noise is None:
        return cost.fixed
    return np.where(cost.shift > 0.0, cost.fixed + r.noise.pure_loss(cost.shift, r.parameter), cost.fixed)


def epsilon(r: NetworkReleases, delta: float) -> Array:
    """epsilon_i(t) at `delta`, (T+1, N): the noise's account of its random loss, plus the determinant terms.

    The tighter pure bound is one too: the smallest counts.
    """
    cost = tight_cost(r)
    total = np.cumsum(totals(cost, r), axis=0)
    finite = np.isfinite(total[-1])
    if finite.any():
        total[:, finite] = np.minimum(total[:, finite], _random_epsilon(r, cost, delta, finite))
    # What bounds a later iteration bounds an earlier one too.
    total = np.minimum.accumulate(total[::-1], axis=0)[::-1]
    return _spread(total, r)


def _random_epsilon(r: NetworkReleases, cost: StepCost, delta: float, nodes: Bools) -> Array:
    """After each data step of the given nodes: the account of the random loss plus the determinant terms."""
    assert r.noise is not None
    assert isinstance(r.perturbation, DataStepPerturbation)
    if own_behaviour(type(r.noise), ("sample", "samples", "scaled"), claim="random_epsilon"):
        return np.full_like(r.eta[:, nodes], np.inf)
    shift, parameter = np.broadcast_to(cost.shift, r.eta.shape)[:, nodes], r.parameter[:, nodes]
    random = r.noise.random_epsilon(shift, parameter, r.features, r.perturbation.on_release, delta)
    return random + np.cumsum(cost.fixed[:, nodes], axis=0)


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
    """(B_i/C) (rho/N + 2 . V_i) - 2 c1 with the penalty of the theorem, which needs it positive; None: it has no condition."""
    reference = r.perturbation.reference_penalty(r) if isinstance(r.perturbation, DataStepPerturbation) else None
    return None if reference is None else r.B / r.C * (r.rho / r.nodes + 2.0 * reference * r.V) - 2.0 * r.c1


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
    return f"not proven: {why}" if (why := unaccounted(r)) else r.perturbation.theorem


def unaccounted(r: NetworkReleases) -> str:
    """Why perturbation or noise have no account of their own; "" if they have."""
    if not isinstance(r.perturbation, DataStepPerturbation) or r.noise is None:
        return ""
    if not r.perturbation.theorem:
        return "the perturbation has no account of its own"
    if own := own_behaviour(type(r.perturbation), ("objective_factor", "on_release"), claim="paper_cost"):
        return f"the perturbation has {own} and no paper_cost of its own"
    if own := own_behaviour(type(r.noise), ("sample", "samples", "scaled"), claim="pure_loss"):
        return f"the noise has {own} and no pure_loss of its own"
    finite = np.isfinite(r.noise.pure_loss(np.ones(1), np.ones(1))).all()
    return "" if finite else "the noise has no account of its own"


class NetworkAccount(AccountKind[NetworkReleases]):
    """An account of the methods on a network."""

    applies_to: ClassVar[type[Releases]] = NetworkReleases


class PureAccount(NetworkAccount):
    """A sum of what each data step costs at most."""

    def cost(self, r: NetworkReleases) -> StepCost:
        return paper_cost(r)

    def calibrate(self, releases: NetworkReleases, target: float, delta: float) -> NetworkReleases:
        """The totals are linear in the scale, so the answer is exact: the smallest over the nodes."""
        return _calibrate_pure(releases, target, self.cost(releases))


@accounts.register("bound")
class Bound(PureAccount):
    """The paper's bound P(t): a pure privacy loss, summed over the data steps."""

    label: ClassVar[str] = "P(t), the paper's bound"
    column: ClassVar[str] = "P(t)"
    target: ClassVar[str] = "bound"
    line: ClassVar[Any] = "-"

    def compute(self, releases: NetworkReleases, delta: float) -> Account:
        r = releases
        values = over_iterations(totals(paper_cost(r), r), r)
        proven = condition_failure(r) is None and not unaccounted(r)
        return Account("bound", "the paper's bound", values, theorem(r), proven, NEIGHBOURS)


@accounts.register("tight")
class Tight(PureAccount):
    """A tighter pure bound, with another estimate of the determinants."""

    label: ClassVar[str] = "tighter pure bound"
    column: ClassVar[str] = "tight"
    target: ClassVar[str] = "tight"
    counts_budget: ClassVar[Literal["pure", "delta", ""]] = "pure"
    line: ClassVar[Any] = (0, (1, 1.5))

    def cost(self, r: NetworkReleases) -> StepCost:
        return tight_cost(r)

    def compute(self, releases: NetworkReleases, delta: float) -> Account:
        r = releases
        values = over_iterations(totals(tight_cost(r), r), r)
        return Account("tight", "tighter pure bound", values, f"{theorem(r)}; {TIGHT}", not unaccounted(r), NEIGHBOURS)


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
        on_release = isinstance(r.perturbation, DataStepPerturbation) and r.perturbation.on_release
        words = (EPSILON_ON_RELEASE if on_release else EPSILON_OBJECTIVE) if r.perturbation.private else NO_NOISE
        title = f"epsilon at delta = {delta:g}"
        return Account("epsilon", title, epsilon(r, delta), words, not unaccounted(r), NEIGHBOURS, delta)

    def calibrate(self, releases: NetworkReleases, target: float, delta: float) -> NetworkReleases:
        """Epsilon grows with the scale of alpha and is met from below, to CALIBRATION."""
        r = releases

        def total(scale: float) -> float:
            return float(epsilon(replace(r, parameter=scale * r.parameter), delta)[-1].max())

        # Epsilon is never above the pure bound.
        safe = float(_calibrate_pure(r, target, tight_cost(r)).parameter[0, 0] / r.parameter[0, 0])
        above = 2.0 * safe
        while total(above) <= target:
            safe, above = above, 2.0 * above
        while above > safe * (1.0 + CALIBRATION):
            middle = float(np.sqrt(safe * above))
            safe, above = (middle, above) if total(middle) <= target else (safe, middle)
        return replace(r, parameter=safe * r.parameter)


def _calibrate_pure(r: NetworkReleases, target: float, cost: StepCost) -> NetworkReleases:
    assert r.noise is not None
    if not r.noise.calibrates:
        name = noises.name_of(type(r.noise))
        raise InputError(f'privacy.target: the noise "{name}" cannot be calibrated; give privacy.{r.noise.parameter} instead')
    fixed = cost.fixed.sum(axis=0)
    slope = r.noise.pure_loss(cost.shift, r.parameter).sum(axis=0)
    worst = int(np.argmax(fixed))
    if fixed[worst] >= target:
        raise InputError(
            f"privacy.target: {target:g} cannot be met: at node {worst} the determinant term alone costs "
            f"{fixed[worst]:.6g} over {len(r.data_steps)} data steps; raise the target or eta, or use fewer iterations"
        )
    return replace(r, parameter=r.parameter * np.min((target - fixed) / slope))
