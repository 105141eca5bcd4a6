"""Neighbouring data sets that lose the most in recorded runs, found by ascent over the record that replaces another."""

from collections.abc import Sequence

import numpy as np

from dpadmm_mpi.methods.decentralised.audited_steps import AuditedStep, Pairs
from dpadmm_mpi.types import Array, Ints

ITERATIONS = 30
FIRST_LENGTH = 0.5  # of a step in the unit ball; longer after each success, half as long after each failure
GOALS = 2  # the mean of the runs, and the largest


def worst_replacements(steps: Sequence[AuditedStep], records: Ints) -> Pairs:
    """For each record the row of norm at most 1 with the largest mean loss over the runs, and that with the largest of any run.

    Projected ascent from several starts along the gradient of the noise's part, to first order where the argmin must be solved
    for; whether a step is taken is decided by the whole loss.
    """
    starts = np.stack([_starts(steps, n) for n in records])  # (records, starts, d)
    points = np.repeat(starts[:, None], GOALS, axis=1)
    shape, d = points.shape[:-1], points.shape[-1]
    replaced = np.broadcast_to(records[:, None, None], shape).ravel()
    mean_goal = np.broadcast_to(np.arange(GOALS)[:, None] == 0, shape).ravel()
    new, length = points.reshape(-1, d), np.full(len(replaced), FIRST_LENGTH)
    totals = _totals(steps, Pairs(replaced, new))
    for _ in range(ITERATIONS):
        weights = np.where(mean_goal, 1.0 / len(totals), totals == totals.max(axis=0))
        gradient = np.sum([step.ascent(Pairs(replaced, new), weights) for step in steps], axis=0)
        trial = _in_ball(new + length[:, None] * _unit(gradient))
        tried = _totals(steps, Pairs(replaced, trial))
        better = _goal(tried, mean_goal) > _goal(totals, mean_goal)
        new, totals = np.where(better[:, None], trial, new), np.where(better, tried, totals)
        length = np.where(better, np.minimum(1.5 * length, 2.0), 0.5 * length)
    best = _goal(totals, mean_goal).reshape(shape).argmax(axis=-1)
    chosen = np.take_along_axis(new.reshape(*shape, d), best[..., None, None], axis=2)[:, :, 0]
    return Pairs(np.repeat(records, GOALS), chosen.reshape(-1, d))


def _starts(steps: Sequence[AuditedStep], record: int) -> Array:
    """The antipodal row; one that pushes against the mean noise; the steepest at the mean argmin; zero, without curvature."""
    noise = np.mean([step.transposed_shift(_unit(step.noise)[:, None]).mean(axis=(0, 1)) for step in steps], axis=0)
    f = np.mean([step.f.mean(axis=0) for step in steps], axis=0)
    return _unit(-np.stack([steps[0].rows[record], noise, f, np.zeros_like(f)]))


def _totals(steps: Sequence[AuditedStep], pairs: Pairs) -> Array:
    """(R, P)"""
    return np.asarray(np.sum([step.first_order_losses(pairs) for step in steps], axis=0))


def _goal(totals: Array, mean_goal: Array) -> Array:
    return np.where(mean_goal, totals.mean(axis=0), totals.max(axis=0))


def _unit(vectors: Array) -> Array:
    return np.asarray(vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), 1e-300))


def _in_ball(vectors: Array) -> Array:
    return np.asarray(vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), 1.0))
