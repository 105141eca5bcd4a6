"""The exact privacy loss of recorded PS-ADMM runs against neighbouring data sets.

The account's adversary sees every noisy gradient of the inner steps. They are not in the file, but samples and noise have
addresses: each inner loop is computed again from the x_i^k and z^k before it, and must end at the recorded x_i^{k+1}.
Given what went before, the data part o of a noisy gradient is a mixture over the M records that may have been sampled,

    p_D(o) = (1/M) sum_m N(o; c_m a_m + u, sigma^2 I),   c_m = L'(a_m.v^s) - L'(a_m.v~),   u = (1/M) sum_m L'(a_m.v~) a_m

with a_m = y_m x_m, and the loss of a run is the sum of ln p_D(o) - ln p_D^(o) over all its inner steps. A projection on a ball
comes after that and hides nothing from this adversary.

With batches the mixture has too many parts. The indices do not depend on the records, so the adversary may have them too: each
step then is one Gaussian, and the losses are compared with the account that is conditioned on the sampling.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from dpadmm_mpi.data.dataset import Dataset
from dpadmm_mpi.methods.auditing import (
    AuditRequest,
    Examined,
    Recording,
    chi_cdf,
    distribution_findings,
    examine,
    nodes_to_audit,
    noise_findings,
    records_to_replace,
)
from dpadmm_mpi.methods.star import accounts
from dpadmm_mpi.methods.star.algorithm import dual_step
from dpadmm_mpi.methods.star.plan import StarPlan
from dpadmm_mpi.methods.star.svrg import Inner, inner_loop, iterates
from dpadmm_mpi.problems.objective import NodeProblem
from dpadmm_mpi.rng import Purpose, generator
from dpadmm_mpi.types import Array, Ints

REPLAY = 1e-8  # how well an inner loop that is computed again must fit the record, relative to its size


@examine.register
def _(plan: StarPlan, recording: Recording, dataset: Dataset[Any], request: AuditRequest) -> Examined:
    """One record of one provider, or `candidates` records of every one (or of one)."""
    nodes = nodes_to_audit(plan, recording, request)
    candidates = min(request.candidates, int(plan.sizes[nodes].min()))
    inner = plan.settings.inner
    assert inner is not None  # noise comes with inner steps
    losses, noises, findings = [], [], []
    for i in nodes:
        shard = dataset.loader.shard(dataset.address(i))
        X = shard.X if isinstance(shard.X, np.ndarray) else shard.X.toarray()
        view = ProviderView(recording, plan, inner, i, X * shard.y[:, None])
        loss, noise, gap = view.losses(records_to_replace(view.rows, i, request.record, candidates))
        losses.append(loss)
        noises.append(noise)
        if gap > REPLAY:
            findings.append(f"the recorded x_{i} are not those of this configuration's own noise and samples: off by {gap:.1e}")
    stacked = np.cumsum(np.stack(losses), axis=2)
    scaled = np.concatenate(noises)
    findings += noise_findings(scaled, chi_cdf(scaled))

    def epsilon_at(delta: float) -> Array:
        if inner.batch_size == 1:
            return np.asarray(accounts.sound_epsilon(plan.releases, delta)[-1, nodes])
        return np.asarray(accounts.sound_epsilons(plan.releases, delta)[1][-1, nodes])

    findings += distribution_findings(stacked[:, :, -1], epsilon_at)
    steps = np.arange(1, plan.iterations + 1)
    return Examined(nodes, stacked, steps, findings, against="epsilon_sound")


@dataclass(frozen=True)
class ProviderView:
    """One provider's part of the record, and its records as signed rows y x."""

    recording: Recording
    plan: StarPlan
    inner: Inner
    node: int
    rows: Array

    def losses(self, chosen: Ints) -> tuple[Array, Array, float]:
        """(losses of every run, iteration and neighbour; noise of every inner step over the claimed sigma; gap of the replay).

        The neighbours: each chosen record with the opposite label, which for a margin loss is also the antipodal record with
        its own label, as long as it is and at norm 1.
        """
        norms = np.maximum(np.linalg.norm(self.rows[chosen], axis=1), 1e-300)
        replaced, factors = np.concatenate([chosen, chosen]), np.concatenate([-np.ones(len(chosen)), -1.0 / norms])
        x, z = self.recording["trajectory"][:, :, self.node], self.recording["server_trajectory"]
        problem = self.plan.problem(self.rows)
        losses, noises, gap = np.empty((*x.shape[:2], len(replaced)))[:, 1:], [], 0.0
        for run in range(len(x)):
            dual = np.zeros(x.shape[2])
            for t in range(1, x.shape[1]):
                v, reached, chosen_records, end = self._replay(problem, x[run, t - 1], dual, z[run, t - 1], run, t)
                gap = max(gap, float(np.abs(end - x[run, t]).max()) / max(1.0, float(np.abs(end).max())))
                # The data part of the noisy gradients, from the steps themselves.
                o = (v - reached) / self.inner.eta - dual - self.inner.rho * (v - z[run, t - 1])
                o -= problem.ridge * v
                sigma = float(self.recording["privacy/noise_std"][t, self.node])
                kind = StepMixture if self.inner.batch_size == 1 else StepsSeen
                seen = kind(problem, v, o, sigma, chosen_records.reshape(len(v), -1))
                losses[run, t - 1] = [seen.loss(n, factor) for n, factor in zip(replaced, factors, strict=True)]
                noises.append(seen.noise() / sigma)
                dual = dual_step(dual, x[run, t], z[run, t], self.inner.rho)
        return losses, np.concatenate(noises), gap

    def _replay(
        self, problem: NodeProblem, start: Array, dual: Array, server: Array, run: int, t: int
    ) -> tuple[Array, Array, Ints, Array]:
        """v^0 .. v^{S-1}, what the steps reach before a projection, m_s and x_i^{k+1}, from the addresses of the run."""
        settings, inner = self.plan.settings, self.plan.settings.inner_at(t)
        m = settings.samples(run, self.node, t, len(self.rows))

        def noise() -> np.random.Generator:
            return generator(settings.seed, Purpose.INNER_NOISE, run, self.node, t)

        path = list(iterates(inner, problem, start, dual, server, m, noise(), block=1))
        v = np.stack([start, *(progress.v for progress in path[:-1])])
        reached = np.stack([progress.reached for progress in path])
        return v, reached, m, inner_loop(inner, problem, start, dual, server, m, noise())


class Steps:
    """What one inner loop released, and how likely it was; columns are inner steps, v[0] is v~."""

    def __init__(self, problem: NodeProblem, v: Array, released: Array, sigma: float, sampled: Ints) -> None:
        self.rows, self.first = np.asarray(problem.signed), problem.loss.first
        self.margins = self.rows @ v.T  # (M, S)
        self.slopes = self.first(self.margins)
        self.change = self.slopes - self.slopes[:, :1]  # c_m
        self.rest = released - self.rows.T @ self.slopes[:, 0] / len(self.rows)  # o - u
        self.along = self.rows @ self.rest.T  # a_m.(o - u)
        self.squares = np.sum(self.rows**2, axis=1)[:, None]
        self.sigma = sigma
        self.sampled = sampled  # (S, batch size)

    def noise(self) -> Array:
        """(S, d), where these records were sampled."""
        change = self.change[self.sampled, np.arange(len(self.sampled))[:, None]]
        return np.asarray(self.rest - np.einsum("sb,sbd->sd", change, self.rows[self.sampled]) / self.sampled.shape[1])


class StepsSeen(Steps):
    """To one who has the indices of the sampled records too."""

    def loss(self, n: int, factor: float) -> float:
        """ln p_D - ln p_D^, summed over the steps, where D^ has factor * a_n in the place of a_n: the mean moves along a_n."""
        slopes = factor * self.first(factor * self.margins[n])
        hit = np.any(self.sampled == n, axis=1) / self.sampled.shape[1]
        shift = (slopes[0] - self.slopes[n, 0]) / len(self.rows) + hit * (slopes - slopes[0] - self.change[n])
        exponents = shift**2 * self.squares[n] - 2.0 * shift * (self.noise() @ self.rows[n])
        return float(np.sum(exponents)) / (2.0 * self.sigma**2)


class StepMixture(Steps):
    """To one who does not have them."""

    def __init__(self, problem: NodeProblem, v: Array, released: Array, sigma: float, sampled: Ints) -> None:
        super().__init__(problem, v, released, sigma, sampled)
        self.log_likelihood = self._log_sum(2.0 * self.change * self.along - self.change**2 * self.squares)

    def loss(self, n: int, factor: float) -> float:
        """ln p_D - ln p_D^, summed over the steps, where D^ has factor * a_n in the place of a_n.

        Everything that differs is a multiple of a_n: u moves by `shift` a_n. All exponents are without -||o - u||^2.
        """
        margins = factor * self.margins[n]
        slopes = self.first(margins)
        shift = (factor * slopes[0] - self.slopes[n, 0]) / len(self.rows)
        change, squares, along = (
            self.change.copy(),
            self.squares.copy(),
            self.along - shift * (self.rows @ self.rows[n])[:, None],
        )
        change[n], squares[n], along[n] = slopes - slopes[0], factor**2 * squares[n], factor * along[n]
        moved = 2.0 * shift * self.along[n] - shift**2 * self.squares[n]
        other = self._log_sum(moved + 2.0 * change * along - change**2 * squares)
        return float(np.sum(self.log_likelihood - other))

    def _log_sum(self, exponents: Array) -> Array:
        """ln sum_m exp(. / (2 sigma^2)) for each step."""
        scaled = exponents / (2.0 * self.sigma**2)
        largest = scaled.max(axis=0)
        return np.asarray(largest + np.log(np.exp(scaled - largest).sum(axis=0)))
