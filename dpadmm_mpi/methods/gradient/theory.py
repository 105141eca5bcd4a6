"""What is known of the convergence of the gradient methods, as conditions in words (docs/baselines.md).

Glossary: L Lipschitz constant of every grad O_i, m strong convexity, a step, c contraction of the mixing between two gradients.
"""

from typing import NamedTuple

import numpy as np

from dpadmm_mpi.methods.base import condition
from dpadmm_mpi.networks.metropolis import remaining
from dpadmm_mpi.types import Array


class Mixing(NamedTuple):
    """What is done between two gradients."""

    contraction: float  # of one step
    steps: int
    accelerated: bool

    @property
    def leaves(self) -> float:
        """The share of the disagreement that is left."""
        if self.accelerated:
            return remaining(self.contraction, self.steps)
        return float(self.contraction**self.steps)


def tracking_matrix(a: float, L: float, m: float, c: float) -> Array:
    """Bounds the norms (disagreement of the trackers, of the points, distance of their mean) of one iteration by those before.

    With x~, y~ the parts of points and trackers that disagree and e the distance of the mean of the points to the optimum,
        x~(t) <= c (x~ + a y~),   e(t) <= q e + a L x~,   y~(t+1) <= c y~ + c L (x~(t) + x~ + a L (x~ + e)),
    q = max(|1 - a m|, |1 - a L|).
    """
    q = max(abs(1.0 - a * m), abs(1.0 - a * L))
    return np.array([
        [c + c**2 * L * a, c * L * (1.0 + c + a * L), c * a * L**2],
        [c * a, c, 0.0],
        [0.0, a * L, q],
    ])  # fmt: skip


def tracking_rate(a: float, L: float, m: float, c: float) -> float:
    """The spectral radius of `tracking_matrix`: below 1, gradient tracking converges at least this fast."""
    return float(np.abs(np.linalg.eigvals(tracking_matrix(a, L, m, c))).max())


def largest_tracking_step(L: float, m: float, c: float) -> float:
    """The largest step for which `tracking_rate` is below 1, by bisection; 2/L at c = 0."""
    low, high = 0.0, 2.0 / L
    while high - low > 1e-6 * high:
        middle = (low + high) / 2.0
        low, high = (middle, high) if tracking_rate(middle, L, m, c) < 1.0 else (low, middle)
    return low


def descent(steps: Array, momentum: float, L: float, mixing: Mixing) -> list[str]:
    """Of dp-dgd and gossip."""
    largest = 2.0 * (1.0 + momentum) / L
    c = mixing.leaves
    lines = [
        condition(largest - float(steps.max()), "convergence: step <= 2 (1 + momentum) / L, of the mean (Polyak 1964)"),
        f"-      the mixing between two gradients leaves {c:.3g} of the disagreement (Metropolis weights, second eigenvalue "
        f"{mixing.contraction:.4g})",
    ]
    if c == 0.0:
        return [*lines, "holds  optimum: mixing is complete, so this is gradient descent on the mean of the objectives"]
    words = "optimum: the step decays; with a constant one the nodes end near to it, at a distance of the order of the step"
    falls = bool(len(steps) > 1 and steps[-1] < steps[0])
    return [*lines, f"{'holds' if falls else 'FAILS'}  {words}; dp-gradient-tracking has no such gap"]


def tracking(steps: Array, L: float, m: float, contraction: float) -> list[str]:
    """Of dp-gradient-tracking."""
    a = float(steps.max())
    largest, rate = largest_tracking_step(L, m, contraction), tracking_rate(a, L, m, contraction)
    lines = [condition(largest - a, f"convergence: step <= {largest:.4g}, sufficient and not necessary")]
    if rate < 1.0:
        lines.append(f"-      rate: the distance to the optimum shrinks at least like {rate:.6g}^t")
    return lines


def noise_line(sigma: Array, features: int, nodes: int, L: float, radius: float) -> str:
    """How large the noise is beside the gradients, in what the mean of all nodes does."""
    norm = float(np.sqrt(np.mean(sigma**2) * features / nodes))
    return (
        f"-      noise in the mean gradient of all nodes: its norm is about {norm:.4g}, where gradients at a distance of "
        f"{radius:g} from the optimum are at most {L * radius:.4g}"
    )
