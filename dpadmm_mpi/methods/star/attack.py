"""What the releases of a star method say about one record, to one who knows all others of its provider ([S] 2.4).

x_i and z travel, so lambda_i is known too, by (6). Consensus ADMM solves (4) exactly, so every iteration tells

    grad f_i(x_i^{k+1}) = -lambda_i^k - rho (x_i^{k+1} - z^k)

and, less what the known records and the ridge give, the unknown record's (1/M) L'(a.x) a, a = y x of it.

The stochastic methods release the average of S inner steps. Its mean over samples and noise is nearly that of the same steps
with the full gradient, which moves by R (1/M) L'(a.x) a because of the unknown record, R the response of the average to a
push that is the same in every step: per eigenvalue h of the Hessian plus mu_f + rho, with r = 1 - eta h,

    uniform:       R = -(1/h) (1 - (r / S) (1 - r^S) / (1 - r))
    extrapolated:  the same, plus zeta / (2 eta S) times what moves v^0 - v^S, (1 - r^S) / h

What remains, R^-1 (x_i^{k+1} - that of the known records), is the record's gradient plus an error: the noise, and the sampled
differences, which vanish as the iterates come to rest. Each iteration counts by the size of its error. With a ball or where
the steps are long the response is not this one, and the attack is only as good as the approximation.
"""

from typing import NamedTuple

import numpy as np

from dpadmm_mpi.methods.auditing import Recording
from dpadmm_mpi.methods.star.algorithm import dual_step
from dpadmm_mpi.methods.star.plan import StarPlan
from dpadmm_mpi.methods.star.svrg import Inner
from dpadmm_mpi.problems.objective import NodeProblem
from dpadmm_mpi.types import Array


class StarEvidence(NamedTuple):
    """What every iteration says about the unknown record a: v = weight L'(a.f) a + error."""

    v: Array  # (K, d)
    f: Array  # (K, d)
    scale: Array  # (K,): one over the error's size; 1 without
    weight: float


def evidence(plan: StarPlan, recording: Recording, known: Array, run: int, node: int) -> StarEvidence:
    """`known` are the provider's other records as signed rows; the size of the provider is known too."""
    x, z = recording["trajectory"][run, :, node], recording["server_trajectory"][run]
    s, M = plan.settings, len(known) + 1
    rest = NodeProblem(known, plan.loss, C=len(known) / M, ridge=s.local_ridge)  # the same weight 1/M per record
    dual = np.zeros(x.shape[1])
    vs, fs, scales = [], [], []
    for t in range(1, len(x)):
        if s.inner is None:
            v = -dual - s.rho * (x[t] - z[t - 1]) - _gradient(rest, x[t])
            f, scale = x[t], 1.0
        else:
            v, scale = _from_average(s.inner_at(t), rest, x[t - 1], x[t], dual - s.rho * z[t - 1])
            f = x[t - 1]
        vs.append(v)
        fs.append(f)
        scales.append(scale)
        dual = dual_step(dual, x[t], z[t], s.rho)
    return StarEvidence(np.array(vs), np.array(fs), np.array(scales), 1.0 / M)


def _gradient(problem: NodeProblem, x: Array) -> Array:
    return problem.data_gradient(problem.margins(x[None])[0]) + problem.ridge * x


def _from_average(inner: Inner, rest: NodeProblem, start: Array, end: Array, push: Array) -> tuple[Array, float]:
    """The push that the unknown record adds, and one over the size of its error; `push` is lambda_i - rho z."""
    v, total, spread = start, np.zeros_like(start), 0.0
    slopes = rest.loss.first(rest.margins(start[None])[0])
    for _ in range(inner.steps):
        margins = rest.margins(v[None])[0]
        change = rest.loss.first(margins) - slopes
        spread += float(np.mean(change**2)) / inner.batch_size  # of a sampled difference, for records of norm 1
        v = inner.projected(v - inner.eta * (rest.data_gradient(margins) + (rest.ridge + inner.rho) * v + push))
        total += v
    expected = total / inner.steps
    if inner.extrapolated:
        expected = inner.projected(expected + _extrapolation(inner) * (start - v))
    h, Q = np.linalg.eigh(rest.hessian(rest.margins(start[None])[0], rest.ridge + inner.rho))
    push_of_record = Q @ ((Q.T @ (end - expected)) / response(inner, h))
    error = np.sqrt((inner.noise_std**2 + spread / inner.steps / len(start)) / inner.steps)
    return push_of_record, 1.0 / max(float(error), 1e-12)


def response(inner: Inner, h: Array) -> Array:
    """R for every eigenvalue h, so that the average moves by R p if p is added to every step's gradient."""
    S, r = inner.steps, 1.0 - inner.eta * h
    end = -(1.0 - r**S) / h  # how far v^S moves: v^s moves by -(1 - r^s) / h
    mean = -(1.0 - r * (1.0 - r**S) / (S * (1.0 - r))) / h
    return np.asarray(mean - _extrapolation(inner) * end if inner.extrapolated else mean)


def _extrapolation(inner: Inner) -> float:
    """zeta / (2 eta S): the extrapolated average is the uniform one plus this times v^0 - v^S."""
    xi = 4.0 * inner.eta / (1.0 - 2.0 * inner.eta * inner.v_L)
    return (2.0 * inner.eta - xi) / (2.0 * inner.eta * inner.steps)
