"""What is measured of the star methods: every provider at its own x_i, and all of them at the server's z."""

from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np

from dpadmm_mpi.methods.measures import Layout, Measures, Quantity
from dpadmm_mpi.methods.metrics import Metric, Observation, Split, mean_distance
from dpadmm_mpi.methods.star.algorithm import Settings, State, ergodic_means
from dpadmm_mpi.problems.objective import NodeProblem
from dpadmm_mpi.types import Array, Ints


class StarMeasures(Measures[State]):
    iterate: ClassVar[str] = "primal"
    metrics: ClassVar[tuple[str, ...]] = (
        "loss", "node_loss", "objective", "consensus_error", "test_error", "kkt_residual", "objective_gap",
        "distance_to_optimum", "criterion",
    )  # fmt: skip
    descriptions: ClassVar[Mapping[str, str]] = {
        "loss": "L(t): mean over providers of the provider's mean loss at its own x_i(t)",
        "node_loss": "mean loss of each provider at its own x_i(t)",
        "objective": "sum_i f_i(z(t)) + g(z(t)), f_i the mean loss of provider i with its local ridge, z(t) the server's",
        "consensus_error": "(1/N) sum_i ||x_i(t) - z(t)||",
        "test_error": "share of test records that the server's z(t) gets wrong; nan without test records",
        "kkt_residual": "relative residual of the provider's exact argmin, the largest since the row before; "
        "nan for inner steps",
        "objective_gap": "objective less that of the centralised optimum",
        "distance_to_optimum": "(1/N) sum_i ||x_i(t) - f*|| / ||f*||, f* the centralised optimum",
    }
    trajectory_layout: ClassVar[Layout] = {
        "trajectory": Quantity(("node", "feature"), "x_i(t) as sent to the server"),
        "server_trajectory": Quantity(("feature",), "z(t) as sent to the providers"),
    }
    finals: ClassVar[Layout] = {
        "final/primal": Quantity(("node", "feature"), "x_i(T)"),
        "final/dual": Quantity(("node", "feature"), "lambda_i(T)"),
        "final/server": Quantity(("feature",), "z(T)"),
    }

    def __init__(
        self, features: int, sizes: Ints, recorded: Mapping[str, Metric], problems: Sequence[NodeProblem], settings: Settings
    ) -> None:
        self.settings = settings
        super().__init__(features, sizes, recorded, problems)

    def widths(self) -> dict[str, int]:
        always = {"node_loss": 1, "server_loss": 1, "residual": 1, "primal": self.features}
        return always | ({"ergodic_loss": 1, "mean": self.features} if self.settings.ergodic else {})

    def shared(self, state: State) -> Array | None:
        return state.primal[:, -1] if state.primal.shape[1] > len(self.problems) else None

    def at_nodes(self, state: State, shared: Array | None) -> dict[str, Array]:
        assert shared is not None
        own = len(self.problems)
        losses = np.empty((len(shared), own, 2))
        for k, problem in enumerate(self.problems):
            losses[:, k, 0] = problem.mean_losses(state.primal[:, k])
            losses[:, k, 1] = problem.mean_losses(shared)
        numbers = {
            "node_loss": losses[..., :1],
            "server_loss": losses[..., 1:],
            "residual": state.residual[:, :own],
            "primal": state.primal[:, :own],
        }
        if self.settings.ergodic:
            means = ergodic_means(state)[:, :own]
            at_means = [problem.mean_losses(means[:, k]) for k, problem in enumerate(self.problems)]
            numbers |= {"ergodic_loss": np.reshape(at_means, (own, len(shared), 1)).swapaxes(0, 1), "mean": means}
        return numbers

    def points(self, state: State, shared: Array | None) -> Array:
        return state.primal[:, : len(self.problems)]

    def observe(self, numbers: Mapping[str, Array], state: State, t: int) -> Observation:
        primals, z, s = self._vectors(numbers["primal"]), state.primal[:, -1], self.settings
        ergodic = None
        if s.ergodic:
            ergodic = self._split(numbers["ergodic_loss"], self._vectors(numbers["mean"]), ergodic_means(state)[:, -1])
        return Observation(
            points=primals,
            classifier=z,
            node_loss=numbers["node_loss"],
            loss=np.mean(numbers["node_loss"], axis=-1),
            objective=np.sum(numbers["server_loss"], axis=-1) + s.server_term(z) + s.nodes * s.ridge_term(z),
            disagreement=mean_distance(primals, z),
            residual=numbers["residual"],
            test=self.test,
            optimum=self.optimum,
            current=self._split(numbers["node_loss"], primals, z),
            ergodic=ergodic,
        )

    def _split(self, losses: Array, x: Array, z: Array) -> Split:
        """P and ||x_i - z|| where the mean losses at x_i are known."""
        s = self.settings
        objective = np.sum(losses + s.ridge_term(x), axis=-1) + s.server_term(z)
        return Split(objective, np.linalg.norm(x - z[:, None], axis=-1))

    def trajectory(self, numbers: Mapping[str, Array], state: State) -> dict[str, Array]:
        return {"trajectory": self._vectors(numbers["primal"]), "server_trajectory": state.primal[:, -1]}

    def final(self, state: Mapping[str, Array]) -> dict[str, Array]:
        primal, dual = state["primal"], state["dual"]
        return {"final/primal": primal[:, :-1], "final/dual": dual[:, :-1], "final/server": primal[:, -1]}
