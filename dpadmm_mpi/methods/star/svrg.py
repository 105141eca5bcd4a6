"""The inner loop of the stochastic methods: S steps of SVRG with sampled records ([S] Algorithms 1 and 2, lines 4-11).

Glossary ([S] -> here): x_i^k -> start, v~ and v^0 too; lambda_i -> dual, z^k -> server, a_m y_m -> rows of problem.signed,
theta_k^s -> noise, C -> the ball of `radius`. What stays the same over the steps is collected in one vector,
u + lambda_i - rho z. The gradient mu_f v of a local ridge is the same for every record, and is added to rho v.
"""

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from types import FunctionType
from typing import Any, NamedTuple

import numpy as np

from dpadmm_mpi.problems.losses import Loss, ScalarSlope, source_of
from dpadmm_mpi.problems.objective import NodeProblem
from dpadmm_mpi.rng import Generator
from dpadmm_mpi.types import Array, Ints, Matrix

BLOCK = 2**14  # numbers of noise, and of sparse records, that are laid out at a time: they stay in the processor's cache


@dataclass(frozen=True)
class Inner:
    """What a configuration says about the inner loop."""

    steps: int  # S
    eta: float
    rho: float
    v_L: float  # smoothness of a record's loss plus (rho/2) ||x - z||^2
    extrapolated: bool
    noise_std: float  # sigma; 0: none
    batch_size: int = 1  # records of a step
    radius: float | None = None  # of the ball that the iterates are projected on; None: there is none

    @property
    def is_plain(self) -> bool:
        """One record at a time and no ball, as [S] has it."""
        return self.batch_size == 1 and self.radius is None

    def projected(self, v: Array) -> Array:
        """The nearest point of the ball, of every row."""
        if self.radius is None:
            return v
        norms = np.linalg.norm(v, axis=-1, keepdims=True)
        return np.asarray(v * np.minimum(1.0, self.radius / np.maximum(norms, 1e-300)))


class InnerState(NamedTuple):
    """After s steps."""

    v: Array  # v^s
    total: Array  # v^1 + ... + v^s
    reached: Array  # v^s before the projection on the ball; v^s itself, where there is none


def inner_loop(
    inner: Inner, problem: NodeProblem, start: Array, dual: Array, server: Array, samples: Ints, noise: Generator
) -> Array:
    """x_i^{k+1}, the average of the steps (docs/mathematics.md, section 8)."""
    for progress in iterates(inner, problem, start, dual, server, samples, noise, block=_block(inner, start)):
        v, total, _ = progress
    mean = total / inner.steps
    if not inner.extrapolated:
        return mean
    # The mean of (zeta v^s + xi v^{s+1}) / (2 eta): zeta + xi = 2 eta, and the sums of v^s and v^{s+1} differ by their ends.
    xi = 4.0 * inner.eta / (1.0 - 2.0 * inner.eta * inner.v_L)
    zeta = 2.0 * inner.eta - xi
    return inner.projected(mean + zeta / (2.0 * inner.eta * inner.steps) * (start - v))


def _block(inner: Inner, start: Array) -> int:
    return max(1, BLOCK // (len(start) * inner.batch_size))


def iterates(
    inner: Inner,
    problem: NodeProblem,
    start: Array,
    dual: Array,
    server: Array,
    samples: Ints,
    noise: Generator,
    *,
    block: int,
) -> Iterator[InnerState]:
    """The state after every `block` steps, or, with batches or a ball, after every one; the numbers do not depend on it."""
    margins, sums = problem.at(start[None])
    u = problem.weight * sums[0]
    fixed = (u + dual - inner.rho * server)[None]
    steps = steps_of(problem.loss) if inner.is_plain else None
    parameters, pull = np.array(problem.loss.parameters, dtype=np.float64), inner.rho + problem.ridge
    v, total = start, np.zeros_like(start)
    for first in range(0, inner.steps, block):
        m = samples[first : first + block]
        pushes = fixed
        if inner.noise_std > 0.0:
            pushes = fixed + inner.noise_std * noise.standard_normal((len(m), len(start)))
        rows, which = _records(problem.signed, m)
        slopes = problem.loss.first(margins[0, m])
        if steps is not None:
            v, total = steps(v, total, rows, which, slopes, pushes, pull, inner.eta, parameters)
            yield InnerState(v, total, v)
            continue
        for s in range(len(m)):
            push = pushes[min(s, len(pushes) - 1)]
            reached = batch_step(inner, problem.loss, v, np.atleast_2d(rows[which[s]]), np.atleast_1d(slopes[s]), push, pull)
            v = inner.projected(reached)
            total = total + v
            yield InnerState(v, total, reached)


def batch_step(inner: Inner, loss: Loss, v: Array, a: Array, slopes: Array, push: Array, pull: float) -> Array:
    """v^{s+1} before the projection, from the mean over the records `a` of a step."""
    change = loss.first(a @ v) - slopes
    return np.asarray(v - inner.eta * (change @ a / len(a) + pull * v + push))


def _records(signed: Matrix, m: Ints) -> tuple[Array, Ints]:
    """Dense rows, and which of them each step takes. Sparse ones are laid out: a step changes every feature anyway."""
    if isinstance(signed, np.ndarray):
        return np.ascontiguousarray(signed), m
    return signed[m.ravel()].toarray(), np.arange(m.size).reshape(m.shape)


Steps = Callable[[Array, Array, Array, Ints, Array, Array, float, float, Array], tuple[Array, Array]]


def steps_of(loss: Loss) -> Steps:
    """The steps for a loss: compiled, where it has a scalar form and numba is installed; otherwise with numpy."""
    scalar = type(loss).scalar_slope
    return _with_numpy(loss) if scalar is None else compiled_steps(scalar)


@cache
def compiled_steps(slope: ScalarSlope) -> Steps:
    """The steps compiled by numba, or, where it is not installed, with numpy: the same arithmetic in the same order."""
    try:
        from numba import njit
    except ImportError:
        return vectorised(slope)
    # A copy of _steps that has this loss's slope among its globals. numba keeps compiled code by name: the name holds the
    # text of the slope.
    name = f"_steps_{hashlib.sha256(source_of(slope).encode()).hexdigest()[:12]}"
    steps = FunctionType(_steps.__code__, {**globals(), "slope": njit(slope)}, name)
    steps.__qualname__ = name
    types = "Tuple((f8[::1], f8[::1]))(f8[::1], f8[::1], f8[:, ::1], i8[::1], f8[::1], f8[:, ::1], f8, f8, f8[::1])"
    try:
        compiled: Steps = njit(types, cache=True)(steps)
    except RuntimeError:  # no folder for the cache can be written: then every process compiles for itself
        compiled = njit(types)(steps)
    return compiled


def vectorised(slope: ScalarSlope) -> Steps:
    """_steps uncompiled: one more axis in front of the features, so that its loop over j takes all of them at once."""
    uncompiled = FunctionType(_steps.__code__, {**globals(), "slope": slope}, "_steps")

    def steps(
        v: Array, total: Array, rows: Array, which: Ints, slopes: Array, pushes: Array, *rest: Any
    ) -> tuple[Array, Array]:
        v, total = uncompiled(v[None], total[None], rows[:, None], which, slopes, pushes[:, None], *rest)
        return v[0], total[0]

    return steps


def _with_numpy(loss: Loss) -> Steps:
    """For a loss without a scalar form."""
    return vectorised(lambda margin, _: float(loss.first(np.array([margin]))[0]))


def slope(margin: float, parameters: Array) -> float:
    """L' of the loss; every copy of `_steps` has its own in the place of this one."""
    return 0.0


def _steps(  # noqa: PLR0917  (numba's signatures are positional)
    v: Array, total: Array, rows: Array, which: Ints, slopes: Array, pushes: Array, rho: float, eta: float, parameters: Array
) -> tuple[Array, Array]:
    """v^{s+1} = v^s - eta g^s, g^s = grad l_m(v^s) - grad l_m(v~) + u + lambda + rho (v^s - z) + noise.

    `rho` here is rho + mu_f of a local ridge. Step s takes rows[which[s]]; `slopes` are L' at v~ of what the steps take;
    `pushes` are u + lambda - rho z + noise, one for each step or one for all.
    No fused multiply-add and no reordering: compiled or not, the bits are the same.
    """
    v, total = v.copy(), total.copy()
    for s in range(len(which)):
        a, push = rows[which[s]], pushes[min(s, len(pushes) - 1)]
        change = slope(np.vdot(a, v), parameters) - slopes[s]
        for j in range(len(v)):
            v[j] -= eta * (change * a[j] + rho * v[j] + push[j])
            total[j] += v[j]
    return v, total
