"""What is measured of the curated family: one x, the curator's, at which every shard measures its loss."""

from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np

from dpadmm_mpi.methods.curated import theory
from dpadmm_mpi.methods.curated.algorithm import State
from dpadmm_mpi.methods.curated.steps import Settings
from dpadmm_mpi.methods.measures import Layout, Measures, Quantity
from dpadmm_mpi.methods.metrics import Metric, Observation, OfMeans
from dpadmm_mpi.problems.objective import NodeProblem
from dpadmm_mpi.types import Array, Ints


class CuratedMeasures(Measures[State]):
    iterate: ClassVar[str] = "x"
    of_iterates_only: ClassVar[tuple[str, ...]] = ("consensus_error",)  # ||A x - w||
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
        self,
        features: int,
        sizes: Ints,
        recorded: Mapping[str, Metric],
        problems: Sequence[NodeProblem],
        *,
        settings: Settings,
        smoothness: float,
    ) -> None:
        super().__init__(features, sizes, recorded, problems)
        self._settings = settings
        self._smoothness = smoothness

    def widths(self) -> dict[str, int]:
        return {"node_loss": 1} | ({"loss_of_mean": 1} if self._keeps_means else {})

    @property
    def _keeps_means(self) -> bool:
        return any(isinstance(metric, OfMeans) for metric in self.recorded.values())

    def shared(self, state: State) -> Array | None:
        """x_t, and behind it the mean of x_1, ..., x_t where that is measured too."""
        if not state.x.shape[1]:
            return None
        return np.concatenate([state.x[:, 0], self._means(state)[0]], axis=1) if self._keeps_means else state.x[:, 0]

    def _means(self, state: State) -> tuple[Array, Array, Array]:
        """x~, w~ and t, one row for each run; 0 at t = 0."""
        totals, d = state.totals[:, 0], self.features
        count = totals[:, -d - 1]
        means = totals[:, : -d - 1] / np.maximum(count, 1.0)[:, None]
        return means[:, :d], means[:, d:], count

    def at_nodes(self, state: State, shared: Array | None) -> dict[str, Array]:
        assert shared is not None
        losses = np.empty((len(shared), len(self.problems), 1))
        for k, problem in enumerate(self.problems):
            losses[:, k, 0] = problem.mean_losses(shared[:, : self.features])
        if not self._keeps_means:
            return {"node_loss": losses}
        of_mean = np.empty_like(losses)
        for k, problem in enumerate(self.problems):
            of_mean[:, k, 0] = problem.mean_losses(np.ascontiguousarray(shared[:, self.features :]))
        return {"node_loss": losses, "loss_of_mean": of_mean}

    def points(self, state: State, shared: Array | None) -> Array:
        assert shared is not None
        return np.repeat(shared[:, None, : self.features], len(self.problems), axis=1)

    def observe(self, numbers: Mapping[str, Array], state: State, t: int) -> Observation:
        node_loss, s = numbers["node_loss"], self._settings
        x, w = state.x[:, 0], state.w[:, 0]
        Ax = np.array([s.A(row) for row in x])
        loss = np.sum(self.sizes * node_loss, axis=-1) / s.records
        return Observation(
            points=x[:, None],
            classifier=x,
            node_loss=node_loss,
            loss=loss,
            objective=loss + np.array([s.penalty(s.splitting.settled(row)) for row in Ax]),
            disagreement=np.linalg.norm([s.splitting.residual(*pair) for pair in zip(Ax, w, strict=True)], axis=-1),
            residual=None,
            test=self.test,
            optimum=self.optimum,
            of_family=self._criterion(numbers, state) if self._keeps_means else {},
        )

    def _criterion(self, numbers: Mapping[str, Array], state: State) -> dict[str, Array]:
        """[C] Theorem 2: R, which with A'y* = -grad f(x*) and -B'y* in the subdifferential of g is a Lagrangian's gap."""
        s, best = self._settings, self.optimum
        if best is None or best.dual is None:
            return dict.fromkeys(("mean_criterion", "mean_criterion_bound"), np.full(len(state.x), np.nan))
        x, w, count = self._means(state)
        f = np.sum(self.sizes * numbers["loss_of_mean"], axis=-1) / s.records
        missed = np.array([s.splitting.residual(s.A(a), b) for a, b in zip(x, w, strict=True)])
        R = f + np.array([s.penalty(row) for row in w]) - best.objective + missed @ best.dual
        distances = np.linalg.norm(state.totals[:, 0, -self.features :] - best.f, axis=1)
        bounds = [theory.criterion_bound(s, self._smoothness, distances[r], best.dual, int(t)) for r, t in enumerate(count)]
        return {"mean_criterion": np.where(count > 0.0, R, np.nan), "mean_criterion_bound": np.array(bounds)}

    def trajectory(self, numbers: Mapping[str, Array], state: State) -> dict[str, Array]:
        return {"server_trajectory": state.x[:, 0]}

    def final(self, state: Mapping[str, Array]) -> dict[str, Array]:
        return {
            "final/primal": np.repeat(state["x"], len(self.sizes), axis=1),
            "final/dual": state["u"][:, 0],
            "final/splitting": state["w"][:, 0],
        }


class GivenMeasures(CuratedMeasures):
    """With B or c given, w has a width of its own."""

    descriptions: ClassVar[Mapping[str, str]] = {
        **CuratedMeasures.descriptions,
        "objective": "f(x_t) + g(w), w the one with the smallest ||A x_t + B w - c||",
        "consensus_error": "||A x_t + B w_t - c||: how far the constraint is from being met",
    }
    finals: ClassVar[Layout] = {
        **CuratedMeasures.finals,
        "final/splitting": Quantity(("splitting",), "w_T"),
    }
