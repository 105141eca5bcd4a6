"""The inner loop of the stochastic methods: S steps of SVRG, one sampled record each ([S] Algorithms 1 and 2, lines 4-11).

Glossary ([S] -> here): x_i^k -> start, v~ and v^0 too; lambda_i -> dual, z^k -> server, a_m y_m -> rows of problem.signed,
theta_k^s -> noise. What stays the same over the steps is collected in one vector, u + lambda_i - rho z.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpadmm_mpi.problems.objective import NodeProblem
from dpadmm_mpi.rng import Generator

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

BLOCK = 2**14  # numbers of noise, and of sparse records, that are laid out at a time: they stay in the processor's cache


@dataclass(frozen=True)
class Inner:
    """What a configuration says about the inner loop."""

    steps: int  # S
    eta: float
    rho: float
    v_L: float  # smoothness of a record's loss plus (rho/2) ||x - z||^2
    extrapolated: bool
    width: float  # of the Huber loss; 0: logistic
    noise_std: float  # sigma; 0: none


class Progress(NamedTuple):
    """After s steps."""

    v: Array  # v^s
    total: Array  # v^1 + ... + v^s


def inner_loop(
    inner: Inner, problem: NodeProblem, start: Array, dual: Array, server: Array, samples: Ints, noise: Generator
) -> Array:
    """x_i^{k+1}, the average of the steps (SPEC 8.1)."""
    for progress in iterates(inner, problem, start, dual, server, samples, noise, max(1, BLOCK // len(start))):
        v, total = progress
    mean = total / inner.steps
    if not inner.extrapolated:
        return mean
    # The mean of (zeta v^s + xi v^{s+1}) / (2 eta): zeta + xi = 2 eta, and the sums of v^s and v^{s+1} differ by their ends.
    xi = 4.0 * inner.eta / (1.0 - 2.0 * inner.eta * inner.v_L)
    zeta = 2.0 * inner.eta - xi
    return mean + zeta / (2.0 * inner.eta * inner.steps) * (start - v)


def iterates(
    inner: Inner,
    problem: NodeProblem,
    start: Array,
    dual: Array,
    server: Array,
    samples: Ints,
    noise: Generator,
    block: int,
) -> Iterator[Progress]:
    """The state after every `block` steps; the numbers do not depend on `block`."""
    _, margins, sums = problem.at(start[None])
    u = problem.weight * sums[0]
    fixed = (u + dual - inner.rho * server)[None]
    steps = compiled_steps()
    v, total = start, np.zeros_like(start)
    for first in range(0, inner.steps, block):
        m = samples[first : first + block]
        pushes = fixed
        if inner.noise_std > 0.0:
            pushes = fixed + inner.noise_std * noise.standard_normal((len(m), len(start)))
        rows, which = _records(problem.signed, m)
        v, total = steps(v, total, rows, which, problem.loss.first(margins[0, m]), pushes, inner.rho, inner.eta, inner.width)
        yield Progress(v, total)


def _records(signed: Any, m: Ints) -> tuple[Array, Ints]:
    """Dense rows, and which of them each step takes. Sparse ones are laid out: a step changes every feature anyway."""
    if isinstance(signed, np.ndarray):
        return np.ascontiguousarray(signed), m
    return signed[m].toarray(), np.arange(len(m))


Steps = Callable[[Array, Array, Array, Ints, Array, Array, float, float, float], tuple[Array, Array]]


@cache
def compiled_steps() -> Steps:
    """The steps compiled by numba, or, where it is not installed, with numpy: the same arithmetic in the same order."""
    try:
        from numba import njit
    except ImportError:
        return vectorised_steps
    types = "Tuple((f8[::1], f8[::1]))(f8[::1], f8[::1], f8[:, ::1], i8[::1], f8[::1], f8[:, ::1], f8, f8, f8)"
    try:
        compiled: Steps = njit(types, cache=True)(_steps)
    except RuntimeError:  # no folder for the cache can be written: then every process compiles for itself
        compiled = njit(types)(_steps)
    return compiled


def vectorised_steps(
    v: Array, total: Array, rows: Array, which: Ints, slopes: Array, pushes: Array, rho: float, eta: float, width: float
) -> tuple[Array, Array]:
    """_steps uncompiled: one more axis in front of the features, so that its loop over j takes all of them at once."""
    v, total = _steps(v[None], total[None], rows[:, None], which, slopes, pushes[:, None], rho, eta, width)
    return v[0], total[0]


def _steps(
    v: Array, total: Array, rows: Array, which: Ints, slopes: Array, pushes: Array, rho: float, eta: float, width: float
) -> tuple[Array, Array]:
    """v^{s+1} = v^s - eta g^s, g^s = grad l_m(v^s) - grad l_m(v~) + u + lambda + rho (v^s - z) + noise.

    Step s takes rows[which[s]]; `slopes` are L' at v~ of what the steps take; `pushes` are u + lambda - rho z + noise, one
    for each step or one for all.
    No fused multiply-add and no reordering: compiled or not, the bits are the same.
    """
    v, total = v.copy(), total.copy()
    for s in range(len(which)):
        a, push = rows[which[s]], pushes[min(s, len(pushes) - 1)]
        margin = np.vdot(a, v)
        if width > 0.0:  # losses.huber
            slope = -min(max(1.0 + width - margin, 0.0), 2.0 * width) / (2.0 * width)
        else:  # losses.LOGISTIC
            t = math.exp(-abs(margin))
            slope = -(t if margin >= 0.0 else 1.0) / (1.0 + t)
        change = slope - slopes[s]
        for j in range(len(v)):
            v[j] -= eta * (change * a[j] + rho * v[j] + push[j])
            total[j] += v[j]
    return v, total
