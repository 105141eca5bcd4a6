"""The plan of a method with a single data step."""

from dataclasses import dataclass

import numpy as np

from dpadmm_mpi.methods.base import Assumptions
from dpadmm_mpi.methods.decentralised import accounts
from dpadmm_mpi.methods.decentralised.plan import NOT_EXAMINED, NetworkPlan
from dpadmm_mpi.methods.decentralised.theory import privacy_conditions
from dpadmm_mpi.networks.metropolis import remaining, second_eigenvalue


@dataclass(frozen=True)
class OneShotPlan(NetworkPlan):
    """Of one data step, in iteration 1."""

    @property
    def is_central(self) -> bool:
        return self.nodes == 1 and self.config.network.graph.size > 1

    @property
    def work_in_words(self) -> str:
        return "one solve" + (f" and {self.iterations - 1} averaging steps" if self.nodes > 1 and self.iterations > 1 else "")

    @property
    def _has_z_norm(self) -> bool:
        return False

    def conditions(self, assumed: Assumptions) -> list[str]:
        lines = privacy_conditions(self.releases)
        fixed = float(np.max(accounts.determinant(self.releases)))
        if self.config.is_noisy:
            lines.append(
                f"-      privacy: whatever the noise, the determinant costs up to {fixed:.4g}; algorithm.eta lowers it"
            )
        if self.nodes == 1:
            where = "" if self.config.network.graph.size == 1 else ": all records in one place, each with the same weight"
            lines.append(f"-      without noise and with eta = 0 it ends at the optimum{where}")
            return lines
        if self.faults is not None:
            return [*lines, NOT_EXAMINED]
        left = remaining(second_eigenvalue(self.topology), self.rounds - 1)
        return [
            *lines,
            f"-      consensus: {self.rounds - 1} averaging steps leave {left:.3g} of the disagreement",
            "FAILS  optimum: the mean of the nodes' own solutions is not the solution for all records; it comes near to it "
            "where the nodes' records are alike",
        ]
