"""Which conditions of the theorems a configuration meets, and by what margin, in words."""

from typing import NamedTuple

import numpy as np

from dpadmm_mpi.config import schedules
from dpadmm_mpi.methods.decentralised import accounts, convergence, sample_size
from dpadmm_mpi.networks.topology import Topology
from dpadmm_mpi.privacy.noises import Gamma
from dpadmm_mpi.privacy.perturbations import DataStepPerturbation, Objective
from dpadmm_mpi.privacy.releases import NetworkReleases
from dpadmm_mpi.types import Array


class Curvature(NamedTuple):
    """M_i, the Lipschitz constants of grad O_i, and where they come from."""

    M: Array
    words: str


class Theorems(NamedTuple):
    """What the theorems need to know of a configuration."""

    topology: Topology
    releases: NetworkReleases
    ridge: float
    curvature: Curvature
    unbounded: bool  # the penalties grow for ever

    def conditions(self, gamma: Array | None, fixed: bool, recycled: int = 1) -> list[str]:
        """Of privacy, of the optimum and of convergence; `gamma`, (steps, N), is that of recycled steps, None without them."""
        lines = [*privacy_conditions(self.releases), *_dual_steps(self.releases), *self._bounded()]
        if self.topology.nodes == 1:
            return [*lines, "-      convergence: a single node is at its optimum after one data step"]
        if self.topology.nodes > convergence.LARGEST_NETWORK:
            return [*lines, f"-      convergence: not examined for more than {convergence.LARGEST_NETWORK} nodes"]
        if gamma is not None and recycled > 1:
            return [*lines, self._recycled_more(gamma, recycled)]
        network = convergence.GraphMatrices.of(self.topology.neighbours)
        return lines + (self._madmm(network) if gamma is None else self._recycled(network, gamma, fixed))

    def _bounded(self) -> list[str]:
        """Where sum 1/eta(t) is finite, the steps along the consensus direction add up to a finite length."""
        if not self.unbounded:
            return []
        return [
            "FAILS  optimum: the penalties stay bounded ([M] Theorem 3.1 needs eta < infinity); sum 1/eta(t) is finite, so the "
            "nodes agree where they are stopped, short of the optimum; give algorithm.eta a limit"
        ]

    def _madmm(self, network: convergence.GraphMatrices) -> list[str]:
        r = self.releases
        slack = (r.eta - r.theta).min()
        falls = bool((np.diff(r.eta, axis=0) < 0).any())
        holds = slack >= 0 and not falls and not self.unbounded and schedules.is_common(r.theta)
        words = "eta(t+1) >= eta(t) >= theta > 0, bounded, theta the same for all ([M] Theorem 3.1)"
        lines = [f"{_verdict(holds)}  convergence: {words}, margin {slack:.4g}"]
        if not schedules.is_common(r.eta) or not schedules.is_common(r.theta):
            return [
                *lines,
                "-      no rate is proven: the penalties differ between the nodes, and ||.||_J of [M] (19) is no norm",
            ]
        m, M = self.ridge, float(self.curvature.M.max())
        for t, step in ((0, "first"), (-1, "last")):
            theta = float(r.theta[t, 0])
            sound, mu = convergence.madmm_rate(network, r.eta[t], theta, m, M, as_printed=False)
            printed, _ = convergence.madmm_rate(network, r.eta[t], theta, m, M, as_printed=True)
            largest, _ = convergence.madmm_largest_rate(network, float(r.eta[t, 0]), theta, m, self.curvature.M)
            lines.append(
                f"-      rate in the {step} iteration: delta(t) >= {sound:.3g} ([M] (23), best mu = {mu:.3g}); "
                f"as printed {printed:.3g}; the largest that meets (21) and (22) is {largest:.3g}; {self.curvature.words}"
            )
        return lines

    def _recycled_more(self, gammas: Array, recycled: int) -> str:
        """Beyond [R]: the recycled steps minimise a model of O_i, which lies above it where gamma is at least its curvature."""
        gamma, M = float(gammas.min(initial=np.inf)), float(self.curvature.M.max())
        words = (
            "lies above it, and none of the steps overshoots" if gamma >= M else "may lie below it: raise gamma if it diverges"
        )
        return (
            f"-      convergence: [R] Theorem IV.1 is about one recycled step after each data step, not {recycled}; the model "
            f"of O_i that they minimise {words} (gamma {gamma:g}, curvature at most {M:.4g})"
        )

    def _recycled(self, network: convergence.GraphMatrices, gammas: Array, fixed: bool) -> list[str]:
        r, M = self.releases, self.curvature.M
        names = "(iii), (iv)" if fixed else "(i), (ii)"
        # The first and the last pair of consecutive data steps, and one in between.
        steps = sorted({0, len(r.eta) // 2, max(len(r.eta) - 2, 0)})
        pairs = [(r.eta[k], r.eta[min(k + 1, len(r.eta) - 1)]) for k in steps]
        gamma = float(gammas.min(initial=np.inf))  # larger ones are easier on both conditions
        margins = convergence.recycling_holds(network, pairs, gamma, M, fixed)
        line = (
            f"{_verdict(min(margins) > 0 and not self.unbounded)}  convergence: {names} of [R] Theorem IV.1, sufficient and "
            f"not necessary, margins {margins[0]:.4g} and {margins[1]:.4g}; {self.curvature.words}"
        )
        if min(margins) > 0:
            return [line]
        if network.is_bipartite:
            return [line, "-      no gamma can meet them: the graph is bipartite, so D + A is singular"]
        needed = convergence.smallest_gamma(network, pairs, M, fixed)
        if needed is None:
            return [line, "-      no gamma can meet them: W(D + A) is not positive definite for these penalties"]
        return [line, f"-      the smallest gamma that meets them is {needed:.4g}; it is {gamma:g} here"]


def _verdict(holds: bool) -> str:
    return "holds" if holds else "FAILS"


def privacy_conditions(r: NetworkReleases) -> list[str]:
    """Of the papers' bound."""
    margin = accounts.condition_margin(r)
    if margin is None or not isinstance(r.perturbation, DataStepPerturbation):
        return []
    worst = int(np.argmin(margin))
    words = r.perturbation.condition_words()
    line = f"{_verdict(margin[worst] > 0)}  privacy: 2 c1 < {words}, margin {margin[worst]:.4g} at node {worst}"
    if margin[worst] > 0 or accounts.unaccounted(r):
        return [line]
    return [line, "-      the paper's bound alone needs it: the tighter bound and epsilon are proven without a condition"]


def _dual_steps(r: NetworkReleases) -> list[str]:
    common = schedules.is_common(r.theta)
    line = f"{_verdict(common)}  optimum: one dual step for all nodes, so that the duals add up to zero"
    if common or not schedules.is_constant(r.theta):
        return [line]
    return [line, "-      the nodes agree at argmin sum_i O_i / theta_i instead: sum_i lambda_i / theta_i stays 0"]


def sample_sizes(r: NetworkReleases, f_ref: float, tau: float, beta: float, gap: float) -> list[str]:
    """Records per node that [R] Theorems VI.1 and VI.2 ask for, and what the noise of a data step may cost."""
    words = f"||f_ref|| = {f_ref:g}, tau = {tau:g}, Delta = {gap:g}, probability {1 - beta:g}"
    plain = _size(sample_size.without_noise(f_ref, tau, beta, gap))
    lines = [f"-      records per node for {words}: {plain} without noise ([R] Theorem VI.1, w not given)"]
    if not (isinstance(r.perturbation, Objective) and isinstance(r.noise, Gamma)):
        return lines
    alpha = float(r.parameter.min())
    noisy = _size(sample_size.with_noise(f_ref, tau, beta, alpha, r.features, r.C, r.nodes, gap=gap))
    norm = sample_size.noise_norm(r.features, alpha, beta)
    cost = sample_size.noise_cost(norm, r.rho / r.nodes)
    return [
        *lines,
        f"-      with noise, probability {1 - 2 * beta:g}: {noisy} ([R] Theorem VI.2 with a = 1)",
        f"-      noise of a data step, probability {1 - beta:g}: its norm is at most {norm:.4g}, and it moves a node's own "
        f"minimum by at most {cost:.4g} of O_i ([R] Lemmas E.3 and E.1)",
    ]


def _size(records: float) -> str:
    return "no number is enough" if np.isinf(records) else f"w * {records:.4g}"
