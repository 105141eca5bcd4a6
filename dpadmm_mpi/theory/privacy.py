"""Total privacy loss of everything released over all iterations, pure, for replacing one record of one node.

[M] Zhang, Khalili, Liu: Improving the Privacy and Accuracy of ADMM-Based Distributed Algorithms, ICML 2018.
[R] Zhang, Khalili, Liu: Recycled ADMM, IEEE TIFS 2020.

Every bound is a sum over data steps of `fixed + slope * alpha`; recycled steps are post-processing and add nothing.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpadmm_mpi.errors import InputError
from dpadmm_mpi.mechanisms import Releases

Array = NDArray[np.float64]

NEIGHBOURS = "replace one record of one node"

THEOREMS = {
    "none": "none: the exact values are released",
    "dual": "[M] Theorem 4.1, (26)",
    "penalty": "[M] Theorem 4.1, (26)",
    "objective": "[R] Theorem V.1, (32), summed over the data steps",
    "primal": "noise on the argmin: its sensitivity is that of the gradient over the strong convexity",
}
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


def over_iterations(cost: Array, r: Releases) -> Array:
    """P_i(t), (T+1, N): the sum of the data steps up to t, from P_i(0) = 0; a run without noise is inf throughout."""
    if r.perturbation == "none":
        return np.full((r.iterations + 1, r.nodes), np.inf)
    per_iteration = np.zeros((r.iterations + 1, r.nodes))
    per_iteration[r.data_steps] = cost
    return np.cumsum(per_iteration, axis=0)


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


def calibrate(r: Releases, target: float) -> Releases:
    """The same releases with alpha scaled so that the paper's P(T) = max_i P_i(T) meets the target.

    P_i(T) is linear in the scale, so the answer is exact: the smallest over the nodes.
    """
    cost = paper_cost(r)
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
    theorem: str
    proven: bool

    @property
    def bound(self) -> Array:
        return self.node_bound.max(axis=1)

    @property
    def tight(self) -> Array:
        return self.node_tight.max(axis=1)


def ledger(r: Releases) -> Ledger:
    return Ledger(
        node_bound=over_iterations(paper_cost(r).total(r.alpha), r),
        node_tight=over_iterations(tight_cost(r).total(r.alpha), r),
        theorem=THEOREMS[r.perturbation],
        proven=condition_failure(r) is None,
    )
