"""What is measured of the gradient methods: every node at what it sends, as of the other methods on a network."""

from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np

from dpadmm_mpi.methods.decentralised.algorithm import State
from dpadmm_mpi.methods.decentralised.measures import NetworkMeasures
from dpadmm_mpi.methods.measures import Layout, Quantity
from dpadmm_mpi.methods.metrics import Metric
from dpadmm_mpi.problems.objective import NodeProblem
from dpadmm_mpi.types import Array, Ints


class GradientMeasures(NetworkMeasures):
    metrics: ClassVar[tuple[str, ...]] = (
        "loss", "node_loss", "objective", "consensus_error", "test_error", "objective_gap", "distance_to_optimum",
    )  # fmt: skip
    descriptions: ClassVar[Mapping[str, str]] = {
        name: text.replace("f_i(t)", "psi_i(t)") for name, text in NetworkMeasures.descriptions.items()
    }
    trajectory_layout: ClassVar[Layout] = {
        "trajectory": Quantity(("node", "feature"), "psi_i(t) as released: what an eavesdropper sees")
    }
    finals: ClassVar[Layout] = {"final/primal": Quantity(("node", "feature"), "psi_i(T), as sent in the last iteration")}

    def __init__(self, features: int, sizes: Ints, recorded: Mapping[str, Metric], problems: Sequence[NodeProblem]) -> None:
        super().__init__(features, sizes, recorded, problems, None)

    def final(self, state: Mapping[str, Array]) -> dict[str, Array]:
        return {"final/primal": state["primal"]}


class TrackingMeasures(GradientMeasures):
    """The trackers travel too."""

    of_released: ClassVar[bool] = False  # psi_i is made after the first of two exchanges
    trajectory_layout: ClassVar[Layout] = GradientMeasures.trajectory_layout | {
        "tracker_trajectory": Quantity(("node", "feature"), "y_i(t-1) + g~_i(t) - g~_i(t-1) as released")
    }
    finals: ClassVar[Layout] = GradientMeasures.finals | {
        "final/tracker": Quantity(("node", "feature"), "the tracker as sent in the last iteration")
    }

    def __init__(
        self, features: int, sizes: Ints, recorded: Mapping[str, Metric], problems: Sequence[NodeProblem], keeps: bool
    ) -> None:
        self._keeps = keeps  # whether trajectories are wanted
        super().__init__(features, sizes, recorded, problems)

    def widths(self) -> dict[str, int]:
        return super().widths() | ({"tracker": self.features} if self._keeps else {})

    def at_nodes(self, state: State, shared: Array | None) -> dict[str, Array]:
        values = super().at_nodes(state, shared)
        return values | {"tracker": np.asarray(state._asdict()["tracker"])} if self._keeps else values

    def trajectory(self, numbers: Mapping[str, Array], state: State) -> dict[str, Array]:
        if not self._keeps:
            return {}
        return super().trajectory(numbers, state) | {"tracker_trajectory": self._vectors(numbers["tracker"])}

    def final(self, state: Mapping[str, Array]) -> dict[str, Array]:
        return super().final(state) | {"final/tracker": state["tracker"]}
