"""`restart = "safeguarded"`: the accelerated method without momentum, which converges where the plain one is proven to.

The curator learns the curvature of f from the noisy gradients that it publishes anyway, takes the minimiser of a quadratic
model of f plus g(A x) for the next point, and falls back on the plain step where that does not pay. Everything here is computed
from what is published, so the privacy is that of the same number of plain iterations.

The plain method. With the multiplier y = rho (A x + B w - c + u) of a point (x, u), one plain iteration, [C] steps 2 to 4, is

    x+ = x - (eta/gamma) (grad f(x) + A'y),   y+ = prox of rho G* at y + rho A (2 x+ - x),   G the share of w in the problem

the iteration of Condat (2013) and Vu (2013): an averaged map T of q = (x, y) in the norm

    ||(dx, dy)||_P^2 = (gamma/eta) ||dx||^2 - 2 dy.A dx + ||dy||^2 / rho,   if eta <= 1/L_f and gamma >= eta rho ||A||^2 + 1

which knows nothing of the records. (What it is made of: P is positive definite, and grad f is cocoercive in its norm with the
constant (gamma/eta - rho ||A||^2) / L_f >= 1, so a forward step is averaged, and with the resolvent behind it T is.) A point
(x, u) matters through its q alone: the next iterate is made of x and y.

The proposal. From the last kept point x, its gradient v and the pairs (s, z), differences of points and of their gradients,

    argmin v.(p - x) + (p - x)'(H + m I)(p - x) / 2 + g(A p),   H the BFGS matrix of the pairs

by exact ADMM on this model, which asks no record. A pair enters if it could come from a convex f with L_f <= 1/eta, that is
||z||^2 <= s.z / eta, and if z is longer than the noise in it, ||z||^2 >= MARGIN 2 d sigma^2. Under heavy noise no pair enters,
H is I/eta, and the proposals are damped gradient steps.

The safeguard. A proposal is kept if its residual ||T q - q||_P is at most GROWTH times the smallest of the kept ones; then m
falls by FACTOR. If not, m grows by FACTOR and another is made from the same point; from m = 1/eta on, the plain iterate T q is
next. And no proposal is made farther from T q than BUDGET (first residual) k^-DECAY, k the number of proposals made, kept or
not, this one included.

What is proven, for exact gradients and where T has a fixed point, that is where the problem has a solution with a multiplier:
a point is given up after finitely many proposals, so the kept points go on; they are q_{j+1} = T q_j + e_j with sum ||e_j||_P
finite, and T is averaged, so they converge to a solution (quasi-Fejer monotonicity, Combettes 2001), whatever the proposals
are. A proposal that is not kept is published too, and is as far from T q_j as its own allowance, which goes to 0: so all x_t
converge to the same solution, the rejected ones included. With BUDGET as large as it is this is about the limit and not about
the first iterations. No rate is proven. With noise there is no statement beyond that of the account of privacy.
"""

from typing import NamedTuple

import numpy as np

from dpadmm_mpi.methods.curated.steps import Curator, Settings, noisy_gradient_of
from dpadmm_mpi.types import Array

NAME = "safeguarded"
PAIRS = 20  # that are remembered
GROWTH = 3.0  # of the residual, up to which a proposal is kept
FACTOR = 4.0  # of m
LEAST = 1e-12  # m times eta, at least
BUDGET = 1e6
DECAY = 1.1  # above 1, so that the distances have a finite sum
MARGIN = 4.0  # of ||z||^2 above what noise alone makes of it
SHARPNESS = 1e-10  # cosine between s and z, from which a pair says something
ROUND_OFF = 1e-4  # relative, of the condition on pairs
MODEL_STEPS = 100  # of exact ADMM on the model, at most
MODEL_ACCURACY = 1e-12
RELAXATION = 1.6  # of these
CONDITION = 1e-6  # below the largest, eigenvalues of the model do not count for its penalty


class Memory(NamedTuple):
    """What the curator remembers beside x, w, u. Vectors first, numbers last."""

    steps: Array  # (PAIRS, d): s, the newest last; zero where there is none
    changes: Array  # (PAIRS, d): z
    last_x: Array  # where the newest gradient was taken
    last_gradient: Array
    kept_x: Array  # the last kept point, and its gradient
    kept_gradient: Array
    plain_x: Array  # T of it
    plain_u: Array
    damping: Array  # (1,): m eta, from LEAST to 1; 0: there was no gradient yet
    residual: Array  # (1,): the smallest of a kept point
    first: Array  # (1,): of the first
    made: Array  # (1,): how many proposals were, kept or not
    trial: Array  # (1,): 1 if xhat is a proposal, 0 if it is a plain iterate


def _shapes(s: Settings) -> list[tuple[int, ...]]:
    vector, numbers = (s.features,), (1,)
    return [(PAIRS, s.features), (PAIRS, s.features), *[vector] * 5, (s.A.rows,), *[numbers] * 5]


def numbers(s: Settings) -> int:
    """In the memory; none if the method is another one."""
    return sum(int(np.prod(shape)) for shape in _shapes(s)) if s.restart == NAME else 0


def _unpacked(values: Array, s: Settings) -> Memory:
    shapes = _shapes(s)
    ends = np.cumsum([int(np.prod(shape)) for shape in shapes])[:-1]
    return Memory(*(part.reshape(shape) for part, shape in zip(np.split(values, ends), shapes, strict=True)))


def _packed(memory: Memory) -> Array:
    return np.concatenate([part.ravel() for part in memory])


def follow(c: Curator, x: Array, w: Array, u: Array, s: Settings) -> Curator:
    """The next xhat and uhat, from the plain iterate x, w, u of the present ones."""
    memory = _learned(_unpacked(c.memory, s), c.x_hat, noisy_gradient_of(c, x, s), s)
    residual = _norm(x - c.x_hat, _multiplier(x, u, s) - _multiplier(c.x_hat, c.u_hat, s), s)
    trial = memory.trial[0] == 1.0
    if trial and not residual <= GROWTH * memory.residual[0]:
        exhausted = memory.damping[0] >= 1.0
        memory = memory._replace(damping=np.minimum(FACTOR * memory.damping, 1.0))
    else:
        exhausted = False
        memory = _kept(memory, x, u, residual, trial)
    proposed = None if exhausted else _proposal(memory, s)
    x_hat, u_hat = (memory.plain_x, memory.plain_u) if proposed is None else proposed
    made = float(proposed is not None)
    memory = memory._replace(trial=np.array([made]), made=memory.made + made)
    return c._replace(x=x, x_hat=x_hat, w=w, u=u, u_hat=u_hat, memory=_packed(memory))


def _learned(memory: Memory, x: Array, gradient: Array, s: Settings) -> Memory:
    """With the pair that the newest gradient makes, if it can be one."""
    newest = memory._replace(last_x=x, last_gradient=gradient)
    if memory.damping[0] == 0.0:
        return newest
    step, change = x - memory.last_x, gradient - memory.last_gradient
    product, square = float(step @ change), float(change @ change)
    sharp = product > SHARPNESS * float(np.linalg.norm(step)) * np.sqrt(square)
    heard = square >= MARGIN * 2.0 * s.features * s.largest_noise**2
    if not (sharp and heard and square <= (1.0 + ROUND_OFF) * product / s.eta):
        return newest
    return newest._replace(
        steps=np.concatenate([memory.steps[1:], step[None]]), changes=np.concatenate([memory.changes[1:], change[None]])
    )


def _kept(memory: Memory, x: Array, u: Array, residual: float, was_proposed: bool) -> Memory:
    """The newest point is kept."""
    damping = np.ones(1) if memory.damping[0] == 0.0 else memory.damping
    return memory._replace(
        kept_x=memory.last_x,
        kept_gradient=memory.last_gradient,
        plain_x=x,
        plain_u=u,
        residual=np.array([residual]) if memory.damping[0] == 0.0 else np.minimum(memory.residual, residual),
        first=np.array([residual]) if memory.damping[0] == 0.0 else memory.first,
        damping=np.maximum(damping / FACTOR, LEAST) if was_proposed else damping,
    )


def _proposal(memory: Memory, s: Settings) -> tuple[Array, Array] | None:
    """xhat and uhat, or None if the minimiser of the model is too far away."""
    H = _curvature(memory, s.eta)
    H.flat[:: s.features + 1] += memory.damping[0] / s.eta
    x, w, multiplier = _minimiser(H, memory.kept_gradient - H @ memory.kept_x, memory, s)
    u = multiplier / s.rho - s.splitting.residual(s.A(x), w)
    far = _norm(x - memory.plain_x, multiplier - _multiplier(memory.plain_x, memory.plain_u, s), s)
    allowed = BUDGET * memory.first[0] * (memory.made[0] + 1.0) ** -DECAY
    return (x, u) if far <= allowed else None


def _curvature(memory: Memory, eta: float) -> Array:
    """H: BFGS from a multiple of the identity, which is at most 1/eta."""
    found = np.flatnonzero(memory.steps.any(axis=1))
    d = memory.steps.shape[1]
    if not len(found):
        return np.eye(d) / eta
    s, z = memory.steps[-1], memory.changes[-1]
    H = np.eye(d) * min(1.0 / eta, float(z @ z) / float(s @ z))
    for k in found:
        s, z = memory.steps[k], memory.changes[k]
        Hs = H @ s
        H += np.outer(z, z) / float(s @ z) - np.outer(Hs, Hs) / float(s @ Hs)
    return H


def _minimiser(H: Array, linear: Array, memory: Memory, s: Settings) -> tuple[Array, Array, Array]:
    """argmin x'Hx/2 + linear.x + g(w), A x + B w = c, its w and its multiplier: relaxed exact ADMM from the plain iterate.

    The penalty lies between the smallest and the largest curvature.
    """
    eigenvalues = np.linalg.eigvalsh(H)
    smallest = max(float(eigenvalues[0]), CONDITION * float(eigenvalues[-1]))
    penalty = float(np.sqrt(smallest * float(eigenvalues[-1]))) / s.A.norm**2
    inverse = np.linalg.inv(H + penalty * s.A.square)
    x, y = memory.plain_x, _multiplier(memory.plain_x, memory.plain_u, s)
    w, v = s.splitting.settled(s.A(x)), y / penalty
    nothing = np.zeros(s.A.rows)
    for _ in range(MODEL_STEPS):
        rest = s.splitting.residual(nothing, w)  # B w - c
        x = inverse @ (-penalty * s.A.transposed(rest + v) - linear)
        Ax = s.A(x)
        relaxed = RELAXATION * Ax + (RELAXATION - 1.0) * rest
        before, w = w, s.split(relaxed + v, penalty)
        v = s.splitting.residual(relaxed + v, w)
        missed = np.linalg.norm(s.splitting.residual(Ax, w)) + np.linalg.norm(w - before)
        if missed <= MODEL_ACCURACY * (1.0 + np.linalg.norm(w)):
            break
    return x, w, penalty * v


def _multiplier(x: Array, u: Array, s: Settings) -> Array:
    """y = rho (A x + B w - c + u), with the w that the next iteration makes of x and u."""
    q = s.A(x) + u
    return s.rho * s.splitting.residual(q, s.split(q, s.rho))


def _norm(dx: Array, dy: Array, s: Settings) -> float:
    """||(dx, dy)||_P"""
    square = s.gamma / s.eta * float(dx @ dx) - 2.0 * float(dy @ s.A(dx)) + float(dy @ dy) / s.rho
    return float(np.sqrt(max(square, 0.0)))
