"""What is measured of the curated family: one x, the curator's, at which every shard measures its loss."""

from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np

from dpadmm_mpi.methods.curated.algorithm import State
from dpadmm_mpi.methods.curated.steps import Settings
from dpadmm_mpi.methods.measures import Layout, Measures, Quantity
from dpadmm_mpi.methods.metrics import Metric, Observation
from dpadmm_mpi.problems.objective import NodeProblem
from dpadmm_mpi.types import Array, Ints


class CuratedMeasures(Measures[State]):
    metrics: ClassVar[tuple[str, ...]] = (
        "loss", "node_loss", "objective", "consensus_error", "test_error", "objective_gap", "distance_to_optimum",
    )  # fmt: skip
    descriptions: ClassVar[Mapping[str, str]] = {
        "loss": "f(x_t): mean loss of all training records",
        "node_loss": "mean loss of each node's records at x_t",
        "objective": "f(x_t) + g(A x_t)",
        "consensus_error": "||A x_t - w_t||: how far the constraint is from being met",
        "test_error": "share of test records that x_t gets wrong; nan without test records",
        "objective_gap": "objective at x_t minus the smallest one",
        "distance_to_optimum": "||x_t - x*|| / ||x*||, x* the centralised optimum; ||x_t|| if x* = 0",
    }
    trajectory_layout: ClassVar[Layout] = {"server_trajectory": Quantity(("feature",), "x_t, which the curator publishes")}
    finals: ClassVar[Layout] = {
        "final/primal": Quantity(("node", "feature"), "x_T, the same for every node"),
        "final/dual": Quantity(("constraint",), "u_T"),
        "final/splitting": Quantity(("constraint",), "w_T"),
    }

    def __init__(
        self, features: int, sizes: Ints, extra: Sequence[Metric], problems: Sequence[NodeProblem], settings: Settings
    ) -> None:
        super().__init__(features, sizes, extra, problems)
        self._settings = settings

    def widths(self) -> dict[str, int]:
        return {"node_loss": 1}

    def shared(self, state: State) -> Array | None:
        return state.x[:, 0] if state.x.shape[1] else None

    def at_nodes(self, state: State, shared: Array | None) -> dict[str, Array]:
        assert shared is not None
        losses = np.empty((len(shared), len(self.problems), 1))
        for k, problem in enumerate(self.problems):
            losses[:, k, 0] = problem.mean_losses(shared)
        return {"node_loss": losses}

    def points(self, state: State, shared: Array | None) -> Array:
        assert shared is not None
        return np.repeat(shared[:, None], len(self.problems), axis=1)

    def observe(self, numbers: Mapping[str, Array], state: State) -> Observation:
        node_loss, s = numbers["node_loss"], self._settings
        x, w = state.x[:, 0], state.w[:, 0]
        Ax = np.array([s.A(row) for row in x])
        loss = np.sum(self.sizes * node_loss, axis=-1) / s.records
        return Observation(
            points=x[:, None],
            classifier=x,
            node_loss=node_loss,
            loss=loss,
            objective=loss + np.array([s.penalty(row) for row in Ax]),
            disagreement=np.linalg.norm(Ax - w, axis=-1),
            residual=None,
            test=self.test,
            optimum=self.optimum,
        )

    def trajectory(self, numbers: Mapping[str, Array], state: State) -> dict[str, Array]:
        return {"server_trajectory": state.x[:, 0]}

    def final(self, state: Mapping[str, Array]) -> dict[str, Array]:
        return {
            "final/primal": np.repeat(state["x"], len(self.sizes), axis=1),
            "final/dual": state["u"][:, 0],
            "final/splitting": state["w"][:, 0],
        }
