"""What is measured of the curated family: one x, the curator's, at which every shard measures its loss."""

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpadmm_mpi.methods import metrics
from dpadmm_mpi.methods.measures import Layout, Measures

if TYPE_CHECKING:
    from dpadmm_mpi.methods.curated.plan import CuratedPlan

Array = NDArray[np.float64]


class CuratedMeasures(Measures):
    plan: "CuratedPlan"

    layout: ClassVar[Layout] = {
        "loss": ((), "f(x_t): mean loss of all training records"),
        "node_loss": (("node",), "mean loss of each node's records at x_t"),
        "objective": ((), "f(x_t) + g(A x_t)"),
        "consensus_error": ((), "||A x_t - w_t||: how far the constraint is from being met"),
        "test_error": ((), "share of test records that x_t gets wrong; nan without test records"),
    }
    optimum_layout: ClassVar[Layout] = {
        "objective_gap": ((), "objective at x_t minus the smallest one"),
        "distance_to_optimum": ((), "||x_t - x*|| / ||x*||, x* the centralised optimum; ||x_t|| if x* = 0"),
    }
    trajectory_layout: ClassVar[Layout] = {"server_trajectory": (("feature",), "x_t, which the curator publishes")}
    finals: ClassVar[Layout] = {
        "final/primal": (("node", "feature"), "x_T, the same for every node"),
        "final/dual": (("constraint",), "u_T"),
        "final/splitting": (("constraint",), "w_T"),
    }

    def shared(self, state: Any) -> Array | None:
        return state.x[:, 0] if state.x.shape[1] else None

    def rows(self, state: Any, shared: Array | None) -> Array:
        assert shared is not None
        losses = np.empty((len(shared), len(self.problems), 1))
        for k, problem in enumerate(self.problems):
            losses[:, k, 0] = problem.mean_losses(shared)
        return losses

    def values(self, rows: Array, state: Any) -> dict[str, Any]:
        node_loss, s = rows[..., 0], self.plan.settings
        x, w = state.x[:, 0], state.w[:, 0]
        Ax = np.array([s.A(row) for row in x])
        loss = np.sum(self.plan.sizes * node_loss, axis=-1) / s.records
        objective = loss + np.array([s.penalty(row) for row in Ax])
        optimum = self.optimum
        return {
            "loss": loss,
            "node_loss": node_loss,
            "objective": objective,
            "consensus_error": np.linalg.norm(Ax - w, axis=-1),
            "test_error": metrics.test_error(x, self.test),
            "objective_gap": objective - (np.nan if optimum is None else optimum.objective),
            "distance_to_optimum": metrics.distance(x[:, None], None if optimum is None else optimum.f),
            "server_trajectory": x,
        }

    def final(self, state: dict[str, Array]) -> dict[str, Array]:
        return {
            "final/primal": np.repeat(state["x"], self.plan.nodes, axis=1),
            "final/dual": state["u"][:, 0],
            "final/splitting": state["w"][:, 0],
        }
