"""Which conditions of the theorems a configuration meets, and by what margin, in words; before any record is touched.

The Lipschitz constant of a node's gradient is taken at its largest for records of norm 1, M_i = C c1 + rho/N.
"""

import numpy as np

from dpadmm_mpi.config import schedules
from dpadmm_mpi.methods.decentralised import accounts, convergence, sample_size
from dpadmm_mpi.networks.topology import Topology
from dpadmm_mpi.privacy.perturbations import DataStepPerturbation, Objective
from dpadmm_mpi.privacy.releases import NetworkReleases

LARGEST_NETWORK = 300  # nodes up to which eigenvalues are computed


def conditions(topology: Topology, r: NetworkReleases, ridge: float, gamma: float | None, own_penalties: bool) -> list[str]:
    """Of privacy, of the optimum and of convergence; `gamma` is that of recycled steps, None without them."""
    lines = [*_privacy(r), *_dual_steps(r)]
    if topology.nodes == 1:
        return [*lines, "-      convergence: a single node is at its optimum after one data step"]
    if topology.nodes > LARGEST_NETWORK:
        return [*lines, f"-      convergence: not examined for more than {LARGEST_NETWORK} nodes"]
    network = convergence.Network.of(topology.neighbours)
    return lines + (
        _madmm(network, r, ridge) if gamma is None else _recycled(network, r, ridge, gamma, fixed=not own_penalties)
    )


def _verdict(holds: bool) -> str:
    return "holds" if holds else "FAILS"


def _privacy(r: NetworkReleases) -> list[str]:
    margin = accounts.condition_margin(r)
    if margin is None or not isinstance(r.perturbation, DataStepPerturbation):
        return []
    worst = int(np.argmin(margin))
    words = r.perturbation.condition_words()
    return [f"{_verdict(margin[worst] > 0)}  privacy: 2 c1 < {words}, margin {margin[worst]:.4g} at node {worst}"]


def _dual_steps(r: NetworkReleases) -> list[str]:
    common = schedules.is_common(r.theta)
    return [f"{_verdict(common)}  optimum: one dual step for all nodes, so that the duals add up to zero"]


def _madmm(network: convergence.Network, r: NetworkReleases, ridge: float) -> list[str]:
    slack = (r.eta - r.theta).min()
    lines = [f"holds  convergence: eta(t+1) >= eta(t) >= theta > 0 ([M] Theorem 3.1), margin {slack:.4g}"]
    if schedules.is_common(r.theta):
        m, M = ridge, r.C * r.c1 + ridge
        for t, words in ((0, "first"), (-1, "last")):
            theta = float(r.theta[t, 0])
            sound, mu = convergence.madmm_rate(network, r.eta[t], theta, m, M, as_printed=False)
            printed, _ = convergence.madmm_rate(network, r.eta[t], theta, m, M, as_printed=True)
            lines.append(
                f"-      rate in the {words} iteration: delta(t) >= {sound:.3g} ([M] (23), best mu = {mu:.3g}); "
                f"as printed {printed:.3g}"
            )
    return lines


def _recycled(network: convergence.Network, r: NetworkReleases, ridge: float, gamma: float, fixed: bool) -> list[str]:
    names = "(iii), (iv)" if fixed else "(i), (ii)"
    M = np.full(r.nodes, r.C * r.c1 + ridge)
    # Penalties only grow: the first and the last pair of consecutive data steps, and one in between.
    steps = sorted({0, len(r.eta) // 2, max(len(r.eta) - 2, 0)})
    etas = [r.eta[min(k + ahead, len(r.eta) - 1)] for k in steps for ahead in (0, 1)]
    margins = convergence.recycling_holds(network, etas, gamma, M, fixed)
    line = (
        f"{_verdict(min(margins) > 0)}  convergence: {names} of [R] Theorem IV.1, sufficient and not necessary, margins "
        f"{margins[0]:.4g} and {margins[1]:.4g}"
    )
    if min(margins) > 0:
        return [line]
    if network.is_bipartite:
        return [line, "-      no gamma can meet them: the graph is bipartite, so D + A is singular"]
    needed = convergence.smallest_gamma(network, etas, M, fixed)
    if needed is None:
        return [line, "-      no gamma can meet them: W(D + A) is not positive definite for these penalties"]
    return [line, f"-      the smallest gamma that meets them is {needed:.4g}; it is {gamma:g} here"]


def sample_sizes(r: NetworkReleases, f_ref: float, tau: float, beta: float) -> list[str]:
    """Records per node that [R] Theorems VI.1 and VI.2 ask for."""
    plain = sample_size.without_noise(f_ref, tau, beta)
    words = f"||f_ref|| = {f_ref:g}, tau = {tau:g}, probability {1 - beta:g}"
    lines = [f"-      records per node for {words}: w * {plain:.4g} without noise ([R] Theorem VI.1, w not given)"]
    if isinstance(r.perturbation, Objective):
        noisy = sample_size.with_noise(f_ref, tau, beta, float(r.parameter.min()), r.features, r.C, r.nodes)
        size = "no number is enough" if np.isinf(noisy) else f"w * {noisy:.4g}"
        lines.append(f"-      with noise, probability {1 - 2 * beta:g}: {size} ([R] Theorem VI.2 with a = 1)")
    return lines
