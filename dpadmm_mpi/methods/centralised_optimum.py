"""The centralised optimum f* of SPEC 1, by a Newton method of its own over all ranks, which rank 0 drives."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dpadmm_mpi.engine.node_queries import Nodes, Question
from dpadmm_mpi.errors import RunError
from dpadmm_mpi.methods.measures import Optimum
from dpadmm_mpi.parallel.mpi import Transport
from dpadmm_mpi.problems.newton import TOLERANCE, Point, conjugate_gradients, minimise
from dpadmm_mpi.problems.objective import SCALE_FLOOR, NodeProblem

Array = NDArray[np.float64]
Ints = NDArray[np.int64]


def centralised_optimum(
    transport: Transport, problems: Sequence[NodeProblem], owner: Ints, features: int, ridge: float, required: bool
) -> Optimum | None:
    """argmin of the sum of the nodes' losses, each with (ridge/2) ||f||^2, on rank 0.

    None elsewhere, and where it cannot be found and is not required.
    """
    network = _Network(transport, problems, owner, features, ridge)
    if transport.rank != 0:
        network.nodes.serve()
        return None
    point = minimise(network, np.zeros(features))
    network.nodes.stop()
    if point.residual > TOLERANCE:
        if not required:
            return None
        raise RunError(
            f"the centralised optimum was found to a relative residual of {point.residual:.1e} only, above {TOLERANCE:.0e}; "
            "scale the features or raise problem.rho (of a star: problem.reg)"
        )
    return Optimum(point.f, point.value)


class _Network:
    """sum_i O_i as an objective for Newton's method."""

    def __init__(self, transport: Transport, problems: Sequence[NodeProblem], owner: Ints, features: int, ridge: float) -> None:
        self.ridge = ridge  # of each node
        self._evaluation = Question(2 + 2 * features, self._evaluate_node, moves=True)
        self._product = Question(features, lambda problem, margins, v: problem.hessian_product(margins, v, ridge))
        self._diagonal = np.zeros(0)
        self.nodes = Nodes(transport, problems, owner, (self._evaluation, self._product))

    def _evaluate_node(self, problem: NodeProblem, margins: Array, f: Array) -> Array:
        """The loss, its weight C, gradient and Hessian diagonal."""
        loss = problem.C * np.mean(problem.loss.value(margins))
        diagonal = problem.hessian_diagonal(margins, self.ridge)
        return np.concatenate([[loss, problem.C], problem.data_gradient(margins), diagonal])

    def evaluate(self, f: Array) -> Point:
        rows = self.nodes.ask(self._evaluation, f)
        d = len(f)
        ridge = self.ridge * len(rows)
        value = float(rows[:, 0].sum()) + 0.5 * ridge * float(f @ f)
        data_gradient, self._diagonal = rows[:, 2 : 2 + d].sum(axis=0), rows[:, 2 + d :].sum(axis=0)
        parts = (data_gradient, ridge * f)
        scale = sum(float(np.linalg.norm(part)) for part in parts)
        floor = SCALE_FLOOR * float(rows[:, 1].sum())
        return Point(f, value, parts[0] + parts[1], max(scale, floor), abs(value), margins=np.zeros(0))

    def direction(self, point: Point) -> Array:
        return conjugate_gradients(lambda v: self.nodes.ask(self._product, v).sum(axis=0), self._diagonal, point)
