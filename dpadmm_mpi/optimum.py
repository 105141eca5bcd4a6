"""The centralised optimum f* of SPEC 1, by a Newton method of its own over all ranks.

Rank 0 drives; the others answer. Every request is a vector that goes out and a row per node that comes back, summed on
rank 0 in node order, so f* has the same bits on every layout. This is measurement, not traffic of an algorithm.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from dpadmm_mpi.errors import RunError
from dpadmm_mpi.measures import Optimum
from dpadmm_mpi.newton import TOLERANCE, Point, conjugate_gradients, minimise
from dpadmm_mpi.problem import SCALE_FLOOR, NodeProblem
from dpadmm_mpi.transport import Transport

Array = NDArray[np.float64]
Ints = NDArray[np.int64]


class _Ask(IntEnum):
    STOP = 0
    EVALUATE = 1  # value, gradient and Hessian diagonal at the vector, which becomes the current point
    PRODUCT = 2  # Hessian at the current point times the vector


def centralised_optimum(
    transport: Transport, problems: Sequence[NodeProblem], owner: Ints, features: int, ridge: float, required: bool
) -> Optimum | None:
    """argmin of the sum of the nodes' losses, each with (ridge/2) ||f||^2, on rank 0.

    None elsewhere, and where it cannot be found and is not required.
    """
    network = _Network(transport, problems, owner, ridge)
    if transport.rank != 0:
        network.serve()
        return None
    point = minimise(network, np.zeros(features))
    network.ask(_Ask.STOP, point.f)
    if point.residual > TOLERANCE:
        if not required:
            return None
        raise RunError(
            f"the centralised optimum was found to a relative residual of {point.residual:.1e} only, above {TOLERANCE:.0e}; "
            "scale the features or raise problem.rho (of a star: problem.reg)"
        )
    return Optimum(point.f, point.value)


@dataclass
class _Network:
    """sum_i O_i as an objective for Newton's method."""

    transport: Transport
    problems: Sequence[NodeProblem]
    owner: Ints  # of the nodes
    ridge: float  # of each node
    _margins: list[Array] = field(default_factory=list)  # of this rank's nodes, at the current point
    _diagonal: Array = field(default_factory=lambda: np.zeros(0))

    def evaluate(self, f: Array) -> Point:
        rows = self.ask(_Ask.EVALUATE, f)
        d = len(f)
        ridge = self.ridge * len(rows)
        value = float(rows[:, 0].sum()) + 0.5 * ridge * float(f @ f)
        data_gradient, self._diagonal = rows[:, 2 : 2 + d].sum(axis=0), rows[:, 2 + d :].sum(axis=0)
        parts = (data_gradient, ridge * f)
        scale = sum(float(np.linalg.norm(part)) for part in parts)
        floor = SCALE_FLOOR * float(rows[:, 1].sum())
        return Point(f, value, parts[0] + parts[1], max(scale, floor), abs(value), margins=np.zeros(0))

    def direction(self, point: Point) -> Array:
        return conjugate_gradients(lambda v: self.ask(_Ask.PRODUCT, v).sum(axis=0), self._diagonal, point)

    def ask(self, what: _Ask, vector: Array) -> Array:
        self.transport.broadcast((what, vector))
        rows = self.transport.gather(self._answer(what, vector), self.owner)
        assert rows is not None
        return rows

    def serve(self) -> None:
        what = None
        while what != _Ask.STOP:
            what, vector = self.transport.broadcast(None)
            self.transport.gather(self._answer(what, vector), self.owner)

    def _answer(self, what: _Ask, vector: Array) -> Array:
        """One row per node of this rank, which may be none."""
        d = len(vector)
        if what == _Ask.EVALUATE:
            self._margins = [np.asarray(p.signed @ vector) for p in self.problems]
            rows = [
                np.concatenate([[p.C * np.mean(p.loss.value(m)), p.C], p.data_gradient(m), p.hessian_diagonal(m, self.ridge)])
                for p, m in zip(self.problems, self._margins, strict=True)
            ]
            return np.array(rows).reshape(-1, 2 + 2 * d)
        if what == _Ask.PRODUCT:
            rows = [p.hessian_product(m, vector, self.ridge) for p, m in zip(self.problems, self._margins, strict=True)]
            return np.array(rows).reshape(-1, d)
        return np.zeros((len(self.problems), 1))
