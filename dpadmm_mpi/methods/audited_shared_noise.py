"""Noise that neighbours share, as the audit sees it (docs/mathematics.md, section 3).

The loss of a step is about the law of node i's noise given everything else that the adversary knows: the noise of all other
honest nodes, recovered from what was released, and the shared parts of the colluders' edges, drawn again from their seeds. With
x the honest nodes' noise without those parts, P = M^-1 and s = noise_std,

    e_i = x_i - E[x_i | the others] = (P x)_i / P_ii   is N(0, s^2 / P_ii),

so that the loss is that of e_i. It is worked out from the edges alone, without the code of the accounts, whose claim it is
compared with.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dpadmm_mpi.methods.auditing import noise_findings
from dpadmm_mpi.networks.topology import Topology
from dpadmm_mpi.privacy.noises import CorrelatedGaussian
from dpadmm_mpi.rng import Purpose, generator
from dpadmm_mpi.types import Array, Ints

CLAIM_SLACK = 1e-6  # relative, of a deviation


@dataclass(frozen=True)
class SharedNoise:
    """The noise of all nodes in every data step, and what the adversary of each node knows of it."""

    topology: Topology
    noise: CorrelatedGaussian
    seed: int
    noise_std: Array  # (T+1,), as recorded
    data_steps: Ints
    claimed: Array  # (N,): what the accounts take the noise for, over noise_std
    drawn: Callable[[int], Array]  # of an iteration, (runs, N, d)

    @cached_property
    def colluders(self) -> list[tuple[int, ...]]:
        """Of each node: those that are named, or the worst set."""
        found = self.noise.worth(self.topology.neighbours)
        assert found is not None
        return found.colluders

    def precision(self, colluders: tuple[int, ...]) -> tuple[list[int], Array]:
        """The honest nodes, and M^-1 over them."""
        honest = [i for i in range(self.topology.nodes) if i not in colluders]
        edges = [(i, j) for i, j in self.topology.edges.tolist() if i in honest and j in honest]
        incidence = np.zeros((len(edges), len(honest)))
        for k, (i, j) in enumerate(edges):
            incidence[k, honest.index(i)], incidence[k, honest.index(j)] = 1.0, -1.0
        M = np.eye(len(honest)) + self.noise.edge_ratio**2 * incidence.T @ incidence
        return honest, np.asarray(np.linalg.inv(M), dtype=np.float64)

    def given_the_others(self, node: int, t: int) -> tuple[Array, float]:
        """e_i, (runs, d), and its standard deviation."""
        honest, P = self.precision(self.colluders[node])
        i, std = honest.index(node), float(self.noise_std[t])
        x = self.drawn(t)[:, honest] - self._known(self.colluders[node], t)[:, honest]
        return np.einsum("j,rjd->rd", P[i], x) / P[i, i], std * P[i, i] ** -0.5

    def _known(self, colluders: tuple[int, ...], t: int) -> Array:
        """The part of everybody's noise that is shared with colluders, (runs, N, d)."""
        known = np.zeros_like(self.drawn(t))
        std = self.noise.edge_ratio * float(self.noise_std[t])
        for a, b in self.topology.edges.tolist():
            if a in colluders or b in colluders:
                for run in range(len(known)):
                    address = {"run": run, "node": a * self.topology.nodes + b, "iteration": t}
                    unit = generator(self.seed, Purpose.EDGE_NOISE, **address).standard_normal(known.shape[-1])
                    known[run, a] += std * unit
                    known[run, b] -= std * unit
        return known

    def findings(self, nodes: list[int]) -> list[str]:
        """Against the claimed covariance of all nodes, and against what the accounts take the noise of each node for."""
        found = []
        for node in nodes:
            honest, P = self.precision(self.colluders[node])
            true = P[honest.index(node), honest.index(node)] ** -0.5
            if self.claimed[node] > true * (1.0 + CLAIM_SLACK):
                found.append(
                    f"the accounts take the noise of node {node} for {self.claimed[node]:.6g} times noise_std, but given what "
                    f"an eavesdropper and the nodes {list(self.colluders[node])} know it is {true:.6g} times"
                )
        return found + self._noise_findings()

    def _noise_findings(self) -> list[str]:
        """M^(-1/2) times the noise over the nodes is independent between them, each with noise_std."""
        _, P = self.precision(())
        whitened = np.linalg.cholesky(P).T  # its product with the noise has the covariance R' M R'' = I, R R' = P
        steps = self.data_steps.tolist()
        independent = np.stack([np.einsum("ij,rjd->ird", whitened, self.drawn(t)) for t in steps], axis=2)
        norms = np.linalg.norm(independent, axis=-1)
        return noise_findings(independent, self.noise.norm_cdf(norms, self.noise_std[steps], independent.shape[-1]))
