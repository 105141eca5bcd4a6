"""The nodes of one rank: which way each node's records are stored and its argmin is found, by its own shape alone.

Small nodes are solved in batches, nodes with many records with a kept factorisation, the others by the damped Newton method.
The runs of a configuration share all of it: arrays are (runs, nodes, ...). A result is a function of the node's records and of
the arguments of all runs, on every layout and after every restart.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, overload

import numpy as np

from dpadmm_mpi.problems import quasi_newton, strategies
from dpadmm_mpi.problems.batched import Batch, padded_rows
from dpadmm_mpi.problems.objective import NodeProblem
from dpadmm_mpi.types import Array, Bools, Ints


class LocalProblems(Sequence[NodeProblem]):
    """The problems of a rank's nodes."""

    def __init__(self, problems: Iterable[NodeProblem]) -> None:
        self._problems: list[NodeProblem] = []
        self._batches: list[tuple[Ints, Batch]] = []
        self._references: dict[int, quasi_newton.Reference] = {}
        # Where solves ended, and the margins there, by the first node of those that were solved together: to be measured.
        self._solved: dict[int, tuple[Array, Array]] = {}
        small: dict[Any, list[int]] = {}
        alike: dict[Any, list[int]] = {}
        self._damped: list[int] = []
        for k, problem in enumerate(problems):
            self._problems.append(problem)
            shape = problem.features, problem.loss
            if problem.regulariser is not None:  # its curvature changes from point to point
                self._damped.append(k)
                continue
            if problem.outputs == 1 and strategies.is_small(problem.records, problem.features):
                rows = padded_rows(problem.signed)
                pending = small.setdefault((rows, *shape), [])
                pending.append(k)
                if len(pending) * rows * problem.features >= strategies.STACKED:
                    self._stack(small.pop((rows, *shape)))
                continue
            problem.leave_out_zeros()
            if not strategies.keeps_factorisation(problem.records * problem.outputs, problem.features):
                self._damped.append(k)
            else:
                together = problem.stays_in_cache and problem.outputs == 1
                alike.setdefault((problem.records, *shape) if together else k, []).append(k)
        for nodes in small.values():
            self._stack(nodes)
        self._C = np.array([problem.C for problem in self._problems])
        self._ridge = np.array([problem.ridge for problem in self._problems])
        self._kept = [some for nodes in alike.values() for some in self._together(nodes)]

    def _stack(self, nodes: list[int]) -> None:
        """Small nodes, whose records move: where they were read is free before the next ones are."""
        self._batches.append((np.array(nodes), Batch([self._problems[k] for k in nodes])))

    def _together(self, nodes: list[int]) -> list[list[int]]:
        some = [self._problems[k] for k in nodes]
        count = int(min(strategies.solved_together(problem.numbers, problem.records) for problem in some))
        return [nodes[first : first + count] for first in range(0, len(nodes), count)]

    def _solves(self, runs: int) -> Iterator[tuple[list[int], Any]]:
        """What goes side by side, as nodes and as index of (runs, nodes, ...): several nodes in the only run, or one in all."""
        for nodes in self._kept:
            if runs == 1:
                yield nodes, np.s_[0, nodes]
            else:
                yield from (([k], np.s_[:, k]) for k in nodes)

    @overload
    def __getitem__(self, index: int) -> NodeProblem: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[NodeProblem]: ...

    def __getitem__(self, index: int | slice) -> NodeProblem | Sequence[NodeProblem]:
        return self._problems[index]

    def __len__(self) -> int:
        return len(self._problems)

    def __iter__(self) -> Iterator[NodeProblem]:
        return iter(self._problems)

    def mean_losses(self, primals: Array) -> Array:
        """The mean loss of every node at its own point in every run; points are (runs, nodes, d)."""
        means = np.empty(primals.shape[:-1])
        for nodes, batch in self._batches:
            means[:, nodes] = batch.mean_losses(primals[:, nodes])
        for k in self._damped:
            means[:, k] = self._problems[k].mean_losses(primals[:, k])
        for some, rows in self._solves(len(primals)):
            means[rows] = self._mean_losses(some, primals[rows])
        return means

    def _mean_losses(self, nodes: list[int], points: Array) -> Array:
        """At the margins of the solve where it ended at the points: each node in the only run, or one in all of them."""
        problems, solved = [self._problems[k] for k in nodes], self._solved.get(nodes[0])
        known = _are_known(points, solved)
        if len(nodes) == 1:
            known[:] = known.all()
        margins = None if solved is None else solved[1]
        if margins is None or not known.all():
            fresh = quasi_newton.margins_at(problems, points)
            margins = np.where(known[:, None], margins, fresh) if margins is not None and known.any() else fresh
        return np.asarray(np.mean(problems[0].losses(margins), axis=-1))

    def forget_solutions(self) -> None:
        """What is measured after this does not depend on whether it happens to be where the last solves ended."""
        self._solved.clear()

    def values_from(self, mean_losses: Array, primals: Array) -> Array:
        """O_i of every node at its own point in every run, where the mean losses there are known already."""
        values = np.asarray(self._C * mean_losses + 0.5 * self._ridge * np.sum(primals * primals, axis=-1))
        for k in self._damped:
            if (problem := self._problems[k]).regulariser is not None:
                values[:, k] += [problem.rest(f) for f in primals[:, k]]
        return values

    def gradients(self, points: Array) -> Array:
        """grad O_i of every node at its own point in every run, by one pass over its records; points are (runs, nodes, d)."""
        found = self._ridge[:, None] * points
        for nodes, batch in self._batches:
            found[:, nodes] += batch.data_gradients(points[:, nodes])
        for k in (*self._damped, *(k for nodes in self._kept for k in nodes)):
            problem = self._problems[k]
            f = np.ascontiguousarray(points[:, k])
            found[:, k] += problem.weight * problem.at(f).sums
            if problem.regulariser is not None:
                found[:, k] += problem.rest_gradient(f)
        return found

    def argmins(self, linear: Array, quadratic: Array, start: Array, active: Bools | None = None) -> tuple[Array, Array]:
        """argmin_f O_i(f) + linear_i.f + (quadratic_i/2) ||f||^2 of every node in every run, and the relative residuals.

        Of the active nodes, (nodes,); the records of the others are left alone, and they have their start and nan. Quadratic
        terms and who is active are (nodes,), or (runs, nodes) where runs differ in them.
        """
        found, residuals = start.copy(), np.full(start.shape[:-1], np.nan)
        active = np.broadcast_to(np.ones(1, dtype=bool) if active is None else active, residuals.shape)
        quadratic = np.broadcast_to(quadratic, residuals.shape)
        for nodes, batch in self._batches:
            if active[:, nodes].any():
                found[:, nodes], residuals[:, nodes] = batch.argmins(
                    linear[:, nodes], quadratic[:, nodes], start[:, nodes], active[:, nodes]
                )
        for k in self._damped:
            for run in np.flatnonzero(active[:, k]).tolist():
                point = self._problems[k].argmin(linear[run, k], float(quadratic[run, k]), start[run, k])
                found[run, k], residuals[run, k] = point.f, point.residual
        for some, rows in self._solves(len(start)):
            if active[rows].any():
                solve = self._argmins if len(start) == 1 else self._argmins_of_runs
                found[rows], residuals[rows] = solve(some, linear[rows], quadratic[rows], start[rows], active[rows])
        return found, residuals

    def _argmins_of_runs(
        self, node: list[int], linear: Array, quadratic: Array, start: Array, active: Bools
    ) -> tuple[Array, Array]:
        """One node, in the runs in which it is active; those with the same quadratic term go side by side."""
        terms, one = np.unique(quadratic[active]), np.ones(1, dtype=bool)
        if active.all() and len(terms) == 1:
            return self._argmins(node, linear, terms, start, one)
        points, residuals = np.full_like(start, np.nan), np.full(len(start), np.nan)
        for term in terms:
            runs = np.flatnonzero(active & (quadratic == term))
            points[runs], residuals[runs] = self._argmins(node, linear[runs], np.array([term]), start[runs], one)
        self._solved.pop(node[0])  # it is of the last of them
        return np.where(active[:, None], points, start), residuals

    def _argmins(self, nodes: list[int], linear: Array, quadratic: Array, start: Array, active: Bools) -> tuple[Array, Array]:
        """Several nodes of which some are active, in the only run; or one in all of them."""
        # O_i alone, from zero: often the only solve, and no easier with a reference. Other runs would share the cost of one.
        bare = (len(start) == len(nodes)) & ~(start.any(axis=1) | linear.any(axis=1))
        if not active.all() or bare.any() != bare.all():
            return self._some_argmins(nodes, linear, quadratic, start, active)
        problems = [self._problems[k] for k in nodes]
        kept = None if bare.all() else self._references_of(nodes)
        found = quasi_newton.argmin(problems, kept, linear, quadratic, start)
        self._solved[nodes[0]] = found.f, found.margins
        return found.f, found.residual

    def _references_of(self, nodes: list[int]) -> list[quasi_newton.Reference]:
        if not all(k in self._references for k in nodes):
            self._references |= zip(nodes, quasi_newton.references([self._problems[k] for k in nodes]), strict=True)
        return [self._references[k] for k in nodes]

    def _some_argmins(
        self, nodes: list[int], linear: Array, quadratic: Array, start: Array, active: Bools
    ) -> tuple[Array, Array]:
        """One after the other; their margins are put together as those of all nodes, where no point of the others is known."""
        points, residuals = np.full_like(start, np.nan), np.full(len(nodes), np.nan)
        margins = np.zeros((len(nodes), self._problems[nodes[0]].records))
        ones = np.ones(1, dtype=bool)
        for row in np.flatnonzero(active).tolist():
            one = slice(row, row + 1)
            points[one], residuals[one] = self._argmins([nodes[row]], linear[one], quadratic[one], start[one], ones)
            margins[row] = self._solved.pop(nodes[row])[1][0]
        self._solved[nodes[0]] = points, margins
        return np.where(active[:, None], points, start), residuals


def _are_known(points: Array, points_and_margins: tuple[Array, Array] | None) -> Bools:
    """Row by row."""
    if points_and_margins is None or points_and_margins[0].shape != points.shape:
        return np.zeros(len(points), dtype=bool)
    return np.asarray((points_and_margins[0] == points).all(axis=1))
