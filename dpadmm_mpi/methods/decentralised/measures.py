"""What is measured of the methods on a network: every node at its own primal variable."""

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from dpadmm_mpi.methods.decentralised.algorithm import State
from dpadmm_mpi.methods.measures import Layout, Measures, Quantity
from dpadmm_mpi.methods.metrics import Observation, mean_distance
from dpadmm_mpi.problems.local_problems import LocalProblems
from dpadmm_mpi.types import Array


class NetworkMeasures(Measures[State]):
    of_released: ClassVar[bool] = True
    metrics: ClassVar[tuple[str, ...]] = (
        "loss", "node_loss", "objective", "consensus_error", "test_error", "kkt_residual", "distance_to_optimum",
    )  # fmt: skip
    descriptions: ClassVar[Mapping[str, str]] = {
        "loss": "L(t): mean over nodes of the node's mean loss at its own f_i(t)",
        "node_loss": "mean loss of each node at its own f_i(t)",
        "objective": "sum_i O_i(f_i(t))",
        "consensus_error": "(1/N) sum_i ||f_i(t) - fbar(t)||",
        "test_error": "share of test records that the mean classifier gets wrong; nan without test records",
        "kkt_residual": "relative residual of (KKT) in the data step, the largest since the row before; nan if none",
        "distance_to_optimum": "(1/N) sum_i ||f_i(t) - f*|| / ||f*||, f* the centralised optimum",
    }
    trajectory_layout: ClassVar[Layout] = {
        "trajectory": Quantity(("node", "feature"), "f_i(t) as released: what an eavesdropper sees")
    }
    finals: ClassVar[Layout] = {
        "final/primal": Quantity(("node", "feature"), "f_i(T)"),
        "final/dual": Quantity(("node", "feature"), "lambda_i(T)"),
    }

    def widths(self) -> dict[str, int]:
        return {"node_loss": 1, "objective": 1, "residual": 1, "primal": self.features}

    @property
    def _local(self) -> LocalProblems:
        assert isinstance(self.problems, LocalProblems)
        return self.problems

    def at_nodes(self, state: State, shared: Array | None) -> dict[str, Array]:
        mean_losses = self._local.mean_losses(state.primal)
        objectives = self._local.values_from(mean_losses, state.primal)
        return {
            "node_loss": mean_losses[..., None],
            "objective": objectives[..., None],
            "residual": state.residual,
            "primal": state.primal,
        }

    def points(self, state: State, shared: Array | None) -> Array:
        return state.primal

    def forget(self) -> None:
        self._local.forget_solutions()

    def observe(self, numbers: Mapping[str, Array], state: State) -> Observation:
        primals = self._vectors(numbers["primal"])
        mean = primals.mean(axis=1)
        return Observation(
            points=primals,
            classifier=mean,
            node_loss=numbers["node_loss"],
            loss=np.mean(numbers["node_loss"], axis=-1),
            objective=np.sum(numbers["objective"], axis=-1),
            disagreement=mean_distance(primals, mean),
            residual=numbers["residual"],
            test=self.test,
            optimum=self.optimum,
        )

    def trajectory(self, numbers: Mapping[str, Array], state: State) -> dict[str, Array]:
        return {"trajectory": self._vectors(numbers["primal"])}

    def final(self, state: Mapping[str, Array]) -> dict[str, Array]:
        return {"final/primal": state["primal"], "final/dual": state["dual"]}
