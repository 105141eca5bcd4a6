"""Neighbouring data sets that lose the most in recorded runs, found by ascent over the record that replaces another."""

from collections.abc import Sequence

import numpy as np

from dpadmm_mpi.methods.decentralised.audited_steps import AuditedStep, Pairs, as_one
from dpadmm_mpi.problems.newton import norms
from dpadmm_mpi.problems.objective import NodeProblem
from dpadmm_mpi.types import Array, Ints

ITERATIONS = 30
FIRST_LENGTH = 0.5  # of a step in the unit ball; longer after each success, half as long after each failure
MOST_CLASSES = 4  # that a replacement may have
GOALS = 2  # the mean of the runs, and the largest


def worst_replacements(steps: Sequence[AuditedStep], records: Ints) -> Pairs:
    """For each record the row of norm at most 1 with the largest mean loss over the runs, and that with the largest of any run.

    Projected ascent from several starts along the gradient of the noise's part, to first order where the argmin must be solved
    for; whether a step is taken is decided by the whole loss. Where records have targets, each start has one of a few, which
    it keeps.
    """
    values = _targets(steps[0].problem)
    starts = np.stack([_starts(steps, n, values) for n in records])  # (records, starts, d)
    points = np.repeat(starts[:, None], GOALS, axis=1)
    shape, d = points.shape[:-1], points.shape[-1]
    replaced = np.broadcast_to(records[:, None, None], shape).ravel()
    mean_goal = np.broadcast_to(np.arange(GOALS)[:, None] == 0, shape).ravel()
    new, length = points.reshape(-1, d), np.full(len(replaced), FIRST_LENGTH)
    targets = None if values is None else np.broadcast_to(np.repeat(values, shape[-1] // len(values)), shape).ravel()
    one, count = as_one(steps), len(steps)
    totals, shifts = _totals(one, count, Pairs(replaced, new, targets))
    for _ in range(ITERATIONS):
        weights = np.where(mean_goal, 1.0 / len(totals), totals == totals.max(axis=0))
        gradient = one.ascent(Pairs(replaced, new, targets), shifts, np.tile(weights, (count, 1)))
        trial = _in_ball(new + length[:, None] * _unit(gradient))
        tried, shifts_tried = _totals(one, count, Pairs(replaced, trial, targets))
        better = _goal(tried, mean_goal) > _goal(totals, mean_goal)
        new, totals = np.where(better[:, None], trial, new), np.where(better, tried, totals)
        shifts[:, better] = shifts_tried[:, better]
        length = np.where(better, np.minimum(1.5 * length, 2.0), 0.5 * length)
    best = _goal(totals, mean_goal).reshape(shape).argmax(axis=-1)
    chosen = np.take_along_axis(new.reshape(*shape, d), best[..., None, None], axis=2)[:, :, 0]
    own = None if targets is None else np.take_along_axis(targets.reshape(shape), best[..., None], axis=2).ravel()
    return Pairs(np.repeat(records, GOALS), chosen.reshape(-1, d), own)


def _targets(problem: NodeProblem) -> Array | None:
    """That a replacement may have: both ends of the range, or some classes; None for margins."""
    if problem.targets is None:
        return None
    return np.arange(min(problem.outputs, MOST_CLASSES), dtype=np.float64) if problem.outputs > 1 else np.array([-1.0, 1.0])


def _starts(steps: Sequence[AuditedStep], record: int, targets: Array | None) -> Array:
    """The antipodal row; one that pushes against the mean noise; the steepest at the mean argmin; zero, without curvature.

    For each target: of a class, its part of f counts; at the lower end of a range the slope has the other sign.
    """
    noise = np.mean([step.transposed_shift(_unit(step.noise)[:, None]).mean(axis=(0, 1)) for step in steps], axis=0)
    f = np.mean([step.f.mean(axis=0) for step in steps], axis=0)
    row, k = steps[0].rows[record], steps[0].problem.outputs
    some = np.zeros(1) if targets is None else targets
    parts = [(noise.reshape(k, -1)[c], f.reshape(k, -1)[c]) for c in (some.astype(int) if k > 1 else np.zeros(len(some), int))]
    signs = np.where(some < 0.0, -1.0, 1.0)
    return _unit(np.concatenate([-sign * np.stack([row, *part, 0.0 * row]) for sign, part in zip(signs, parts, strict=True)]))


def _totals(one: AuditedStep, steps: int, pairs: Pairs) -> tuple[Array, Array]:
    """Losses to first order, (R, P), and the shifts of the noise."""
    shifts = one.first_order_shifts(pairs)
    losses = one.losses_at(pairs, shifts)
    return np.asarray(losses.reshape(steps, -1, losses.shape[1]).sum(axis=0)), shifts


def _goal(totals: Array, mean_goal: Array) -> Array:
    return np.where(mean_goal, totals.mean(axis=0), totals.max(axis=0))


def _unit(vectors: Array) -> Array:
    return np.asarray(vectors / np.maximum(norms(vectors)[..., None], 1e-300))


def _in_ball(vectors: Array) -> Array:
    return np.asarray(vectors / np.maximum(norms(vectors)[..., None], 1.0))
