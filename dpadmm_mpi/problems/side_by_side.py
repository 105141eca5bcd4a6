"""What solves that go side by side minimise, one in each row: several runs of one node, or one run of several nodes.

The first serves all runs by one pass over the records, the second all nodes by one call of numpy wherever the records are not
concerned. A row's numbers do not depend on the nodes beside it: records are multiplied node by node, the rest row by row.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dpadmm_mpi.problems.newton import norms
from dpadmm_mpi.problems.objective import MarginStep, NodeProblem
from dpadmm_mpi.types import Array, Ints


class Points(NamedTuple):
    """Where the solves are."""

    f: Array  # (rows, d)
    margins: Array  # (rows, B)
    gradient: Array
    residual: Array  # (rows,): the gradients relative to their terms; nan where numbers have overflowed

    def at(self, which: Ints) -> "Points":
        return Points(self.f[which], self.margins[which], self.gradient[which], self.residual[which])


class Objectives:
    """O_i(f) + linear.f and a quadratic term, which `ridge` holds together with that of O_i."""

    def __init__(self, problems: Sequence[NodeProblem], linear: Array, ridge: Array) -> None:
        self._problems = problems  # one for all rows; or one for each, with as many records as the others, and in the cache
        self.linear, self.ridge = linear, ridge  # (rows, d), and (1,) or (rows,)
        self.weight = np.array([problem.weight for problem in problems])  # of a record
        self._scales = np.array([problem.scales for problem in problems]).T
        self.of_several_nodes = len(problems) > 1
        one_output = problems[0].outputs == 1
        self._row_by_row = self.of_several_nodes or (len(linear) == 1 and problems[0].stays_in_cache and one_output)

    def of(self, which: Ints) -> "Objectives":
        """Of some rows alone."""
        if self.of_several_nodes:
            return Objectives([self._problems[k] for k in which.tolist()], self.linear[which], self.ridge[which])
        return Objectives(self._problems, self.linear[which], self.ridge)

    def start(self, f: Array, margins: Array | None) -> Points:
        """At f, with the margins there where they are known."""
        if margins is not None:
            return self.points(f, margins, self.weighted_sums(self.slopes(margins)))
        if self._row_by_row:
            return self.start(f, margins_at(self._problems, f))
        _, margins, sums = self._problems[0].at(f)
        return self.points(f, margins, sums)

    def step(self, now: Points, directions: Array) -> tuple[Points, MarginStep]:
        """A whole step along every row of `directions`."""
        if self._row_by_row:
            change = _products(self._problems, directions)
            margins = now.margins + change
            step = MarginStep(change, margins, self.weighted_sums(self.slopes(margins)))
        else:
            step = self._problems[0].step(now.margins, directions)
        return self.points(now.f + directions, step.margins, step.sums), step

    def slopes(self, margins: Array) -> Array:
        """L' of every record; the loss does not depend on the node, unless there is but one."""
        return self._problems[0].slopes(margins)

    def weighted_sums(self, weights: Array) -> Array:
        """sum_n weight_n y_n x_n"""
        if not self._row_by_row:
            return self._problems[0].weighted_sums(weights)
        sums = np.empty_like(self.linear)
        for k, problem in enumerate(self._problems):
            sums[k] = problem.transposed @ weights[k]
        return sums

    def points(self, f: Array, margins: Array, sums: Array) -> Points:
        """Gradients and their norms relative to those of their terms, where sum_n L'_n y_n x_n is known."""
        data, pull = self.weight[:, None] * sums, self.ridge[:, None] * f
        gradient = data + pull + self.linear
        scale = np.clip(norms(data) + norms(pull) + norms(self.linear), *self._scales)
        return Points(f, margins, gradient, np.where(scale < np.inf, norms(gradient) / scale, np.nan))

    def hessian(self, row: int, margins: Array) -> Array:
        k = row if self.of_several_nodes else 0
        return self._problems[k].hessian(margins, float(self.ridge[k]))


def margins_at(problems: Sequence[NodeProblem], f: Array) -> Array:
    """Of all records of one node, or of the row's own."""
    if len(problems) == 1:
        return problems[0].margins(f)
    products = _products(problems, f)
    for k, problem in enumerate(problems):
        if problem.targets is not None:
            products[k] -= problem.targets
    return products


def _products(problems: Sequence[NodeProblem], f: Array) -> Array:
    """What f adds to the margins."""
    if len(problems) == 1:
        return problems[0].products(f)
    products = np.empty((len(f), problems[0].records))
    for k, problem in enumerate(problems):
        products[k] = problem.signed @ f[k]
    return products
