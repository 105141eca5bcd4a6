"""Total privacy loss of everything released over all iterations, for replacing one record of one node: three accounts.

[M] Zhang, Khalili, Liu: Improving the Privacy and Accuracy of ADMM-Based Distributed Algorithms, ICML 2018.
[R] Zhang, Khalili, Liu: Recycled ADMM, IEEE TIFS 2020.

`bound` and `tight` are pure: sums over data steps of `fixed + slope * alpha`. `epsilon` holds with probability 1 - delta in
the usual sense. Recycled steps are post-processing and add nothing.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpadmm_mpi.errors import InputError
from dpadmm_mpi.privacy.account import Account
from dpadmm_mpi.privacy.gamma_noise import composed_epsilon, moment_epsilon
from dpadmm_mpi.privacy.releases import Releases

Array = NDArray[np.float64]

NEIGHBOURS = "replace one record of one node"

THEOREMS = {
    "none": "none: the exact values are released",
    "dual": "[M] Theorem 4.1, (26)",
    "penalty": "[M] Theorem 4.1, (26)",
    "objective": "[R] Theorem V.1, (32), summed over the data steps",
    "primal": "noise on the argmin: its sensitivity is that of the gradient over the strong convexity",
}
EPSILON = {
    "none": "none: the exact values are released",
    "primal": "the exact loss alpha (||e + v|| - ||e||) of a shift by the argmin's sensitivity, composed over the data steps",
}
EPSILON_OBJECTIVE = (
    "the loss is dominated by alpha (sqrt((s + 2h)^2 + r^2 - s^2) - r) - ln(1 - x), r = ||e||, s its projection on the plane "
    "of the two gradients, h = C/B (over 2 eta V for dual and penalty); composed over the data steps"
)
COMPOSITIONS = 600  # convolutions that an account may take
CALIBRATION = 1e-4  # relative, of alpha, where it is found by bisection
TIGHT = "as the paper's bound, with -ln(1 - x) for the ratio of the determinants, x = c1 C / (B (rho/N + 2 eta V)) < 1"


class StepCost(NamedTuple):
    """Cost of each data step at each node, (K, N): fixed + slope * alpha."""

    fixed: Array
    slope: Array

    def total(self, alpha: Array) -> Array:
        """Without noise alpha is nan and has no part in the cost."""
        return np.where(self.slope > 0.0, self.fixed + self.slope * alpha, self.fixed)


def needs_condition(r: Releases) -> bool:
    """Noise in the objective: the density of the released argmin has a determinant, which the theorems bound."""
    return r.perturbation in ("dual", "penalty", "objective")


def paper_cost(r: Releases) -> StepCost:
    """The papers' cost of a data step."""
    if r.perturbation in ("dual", "penalty"):
        # [M] (26): C (1.4 c1 + alpha) / (eta V B)
        share = r.C / (r.eta * r.V * r.B)
        return StepCost(1.4 * r.c1 * share, share)
    if r.perturbation == "objective":
        # [R] (32): (2C/B) (1.4 c1 / (rho/N + 2 eta V) + alpha)
        share = np.broadcast_to(2.0 * r.C / r.B, r.eta.shape)
        return StepCost(share * 1.4 * r.c1 / r.curvature, share)
    if r.perturbation == "primal":
        # Sensitivity of the argmin, (2C/B) / (rho/N + 2 eta V)
        return StepCost(np.zeros_like(r.eta), 2.0 * r.C / (r.B * r.curvature))
    return StepCost(np.full_like(r.eta, np.inf), np.zeros_like(r.eta))


def tight_cost(r: Releases) -> StepCost:
    """Our tighter cost: two neighbouring Hessians differ by a uu' - b vv', which has at most one negative eigenvalue."""
    paper = paper_cost(r)
    if not needs_condition(r):
        return paper
    x = r.c1 * r.C / (r.B * r.curvature)
    with np.errstate(divide="ignore", invalid="ignore"):
        fixed = np.where(x < 1.0, -np.log1p(-x), np.inf)
    return StepCost(fixed, paper.slope)


def epsilon(r: Releases, delta: float) -> Array:
    """epsilon_i(t) at `delta`, (T+1, N): gamma_noise.py's account of the random loss, plus the determinant terms.

    By convolution after every data step, or, where that would take more than COMPOSITIONS convolutions, after the last
    one, and from the moments before it. Both are upper bounds, and so is the tighter pure bound: the smallest counts.
    """
    cost = tight_cost(r)
    total = np.cumsum(cost.total(r.alpha), axis=0)
    finite = np.isfinite(total[-1])
    if finite.any():
        total[:, finite] = np.minimum(total[:, finite], _random_epsilon(r, cost, delta, finite))
    # What bounds a later iteration bounds an earlier one too.
    total = np.minimum.accumulate(total[::-1], axis=0)[::-1]
    return _spread(total, r)


def _random_epsilon(r: Releases, cost: StepCost, delta: float, nodes: NDArray[np.bool_]) -> Array:
    """After each data step of the given nodes: the account of the random loss plus the determinant terms."""
    c = (cost.slope * r.alpha)[:, nodes]  # alpha times the largest shift by one record, in units of the noise
    columns, node = np.unique(c, axis=1, return_inverse=True)  # equal nodes once
    on_release = r.perturbation == "primal"
    random = moment_epsilon(columns, r.features, on_release, delta)
    every_step = columns.size <= COMPOSITIONS
    if every_step or sum(len(np.unique(column)) for column in columns.T) <= COMPOSITIONS:
        for k, column in enumerate(columns.T):
            composed = composed_epsilon(column, r.features, on_release, delta, every_step)
            random[-len(composed) :, k] = np.minimum(random[-len(composed) :, k], composed)
    return random[:, node.ravel()] + np.cumsum(cost.fixed[:, nodes], axis=0)


def over_iterations(cost: Array, r: Releases) -> Array:
    """P_i(t), (T+1, N): the sum of the data steps up to t, from P_i(0) = 0; a run without noise is inf throughout."""
    return _spread(np.cumsum(cost, axis=0), r)


def _spread(total: Array, r: Releases) -> Array:
    """Totals after each data step, (K, N), as totals after each iteration, (T+1, N)."""
    if r.perturbation == "none":
        return np.full((r.iterations + 1, r.nodes), np.inf)
    steps_before = np.searchsorted(r.data_steps, np.arange(r.iterations + 1), side="right")
    return np.vstack([np.zeros((1, r.nodes)), total])[steps_before]


def condition_margin(r: Releases) -> Array:
    """(B_i/C) (rho/N + 2 eta_i(1) V_i) - 2 c1, which both theorems need positive; [M] has theta in place of eta_i(1)."""
    reference = r.eta[0] if r.perturbation == "objective" else r.theta.min(axis=0)
    return r.B / r.C * (r.rho / r.nodes + 2.0 * reference * r.V) - 2.0 * r.c1


def condition_in_words(r: Releases) -> str:
    step = "eta(1)" if r.perturbation == "objective" else "theta"
    return f"(B/C)(rho/N + 2 {step} V)"


def condition_failure(r: Releases) -> str | None:
    """The node that breaks the theorem's condition worst, in words; None if it holds or none is needed."""
    if not needs_condition(r):
        return None
    margin = condition_margin(r)
    worst = int(np.argmin(margin))
    if margin[worst] > 0:
        return None
    right = margin[worst] + 2 * r.c1
    return f"at node {worst} 2 c1 = {2 * r.c1:.6g} is not below {condition_in_words(r)} = {right:.6g}"


def calibrate(r: Releases, target: float, account: str = "bound", delta: float = 1e-5) -> Releases:
    """The same releases with alpha scaled so that the total of the worst node, by this account, meets the target.

    The pure totals are linear in the scale, so the answer is exact: the smallest over the nodes. Epsilon grows with the scale
    and is met from below, to CALIBRATION.
    """
    if account != "epsilon":
        return _calibrate_pure(r, target, paper_cost(r) if account == "bound" else tight_cost(r))

    def total(scale: float) -> float:
        return float(epsilon(replace(r, alpha=scale * r.alpha), delta)[-1].max())

    safe = float(_calibrate_pure(r, target, tight_cost(r)).alpha[0, 0] / r.alpha[0, 0])  # epsilon is never above the pure bound
    above = 2.0 * safe
    while total(above) <= target:
        safe, above = above, 2.0 * above
    while above > safe * (1.0 + CALIBRATION):
        middle = float(np.sqrt(safe * above))
        safe, above = (middle, above) if total(middle) <= target else (safe, middle)
    return replace(r, alpha=safe * r.alpha)


def _calibrate_pure(r: Releases, target: float, cost: StepCost) -> Releases:
    fixed = cost.fixed.sum(axis=0)
    slope = (cost.slope * r.alpha).sum(axis=0)
    worst = int(np.argmax(fixed))
    if fixed[worst] >= target:
        raise InputError(
            f"privacy.target: {target:g} cannot be met: at node {worst} the determinant term alone costs "
            f"{fixed[worst]:.6g} over {len(r.data_steps)} data steps; raise the target or eta, or use fewer iterations"
        )
    return replace(r, alpha=r.alpha * np.min((target - fixed) / slope))


@dataclass(frozen=True)
class Ledger:
    """Bounds per iteration, for the record."""

    node_bound: Array  # P_i(t), the paper's, (T+1, N)
    node_tight: Array
    node_epsilon: Array  # at delta
    delta: float
    theorem: str
    proven: bool

    @property
    def bound(self) -> Array:
        return self.node_bound.max(axis=1)

    @property
    def tight(self) -> Array:
        return self.node_tight.max(axis=1)

    @property
    def epsilon(self) -> Array:
        return self.node_epsilon.max(axis=1)


def ledger(r: Releases, delta: float) -> Ledger:
    return Ledger(
        node_bound=over_iterations(paper_cost(r).total(r.alpha), r),
        node_tight=over_iterations(tight_cost(r).total(r.alpha), r),
        node_epsilon=epsilon(r, delta),
        delta=delta,
        theorem=THEOREMS[r.perturbation],
        proven=condition_failure(r) is None,
    )


def accounts(l: Ledger, perturbation: str) -> tuple[Account, Account, Account]:
    """The three accounts, for the record."""
    random_loss = EPSILON.get(perturbation, EPSILON_OBJECTIVE)
    return (
        Account("bound", "the paper's bound", l.node_bound, l.theorem, l.proven, NEIGHBOURS),
        Account("tight", "tighter pure bound", l.node_tight, f"{l.theorem}; {TIGHT}", True, NEIGHBOURS),
        Account("epsilon", f"epsilon at delta = {l.delta:g}", l.node_epsilon, random_loss, True, NEIGHBOURS, l.delta),
    )
