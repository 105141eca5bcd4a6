"""What is measured of the methods on a network: every node at its own primal variable."""

from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np

from dpadmm_mpi.methods.decentralised.algorithm import State
from dpadmm_mpi.methods.measures import Layout, Measures, Quantity
from dpadmm_mpi.methods.metrics import Metric, Observation, Optimum, mean_distance
from dpadmm_mpi.problems.local_problems import LocalProblems
from dpadmm_mpi.problems.objective import NodeProblem
from dpadmm_mpi.types import Array, Ints


class ZNorm:
    """||Z(t) - Z*||_J^2 = (1/theta) ||Y(t) - Y*||^2 + <f - f*, W(t) (D + A) (f - f*)>, [M] Theorem 3.1, for one penalty.

    2 Lambda(t) = sqrt(D - A) Y(t) and grad O(f*) = -sqrt(D - A) Y*, so that the first term is
    (1/theta) <2 Lambda + grad O(f*), (D - A)^+ (2 Lambda + grad O(f*))>.
    """

    def __init__(self, laplacian: Array, signless: Array, eta: Array, theta: Array) -> None:
        self._laplacian, self._signless = laplacian, signless  # D - A, D + A
        self._inverse = np.linalg.pinv(laplacian, hermitian=True)
        self._eta, self._theta = eta, theta  # (T+1,): theta is nan in recycled steps

    def __call__(self, primals: Array, duals: Array, optimum: Optimum, t: int) -> Array:
        """(runs,); `duals` are those before the dual step of iteration t, which follows from the primals."""
        assert optimum.gradients is not None
        step = 0.0 if t == 0 or np.isnan(self._theta[t]) else float(self._theta[t])
        twice = 2.0 * duals + step * (self._laplacian @ primals) + optimum.gradients
        last = self._theta[1 : t + 1] if t else self._theta[1:2]
        theta = float(last[~np.isnan(last)][-1])
        eta = float(self._eta[max(t, 1)])
        gap = primals - optimum.f
        dual_part = np.sum(twice * (self._inverse @ twice), axis=(1, 2)) / theta
        return np.asarray(dual_part + eta * np.sum(gap * (self._signless @ gap), axis=(1, 2)))


class NetworkMeasures(Measures[State]):
    iterate: ClassVar[str] = "primal"
    of_released: ClassVar[bool] = True
    metrics: ClassVar[tuple[str, ...]] = (
        "loss", "node_loss", "objective", "consensus_error", "test_error", "kkt_residual", "solve_residual",
        "distance_to_optimum", "z_distance",
    )  # fmt: skip
    descriptions: ClassVar[Mapping[str, str]] = {
        "loss": "L(t): mean over nodes of the node's mean loss at its own f_i(t)",
        "node_loss": "mean loss of each node at its own f_i(t)",
        "objective": "sum_i O_i(f_i(t))",
        "consensus_error": "(1/N) sum_i ||f_i(t) - fbar(t)||",
        "test_error": "share of test records that the mean classifier gets wrong; nan without test records",
        "kkt_residual": "relative residual of (KKT) in the data step, the largest since the row before; nan if none",
        "solve_residual": "norm of the gradient where the solve of a data step ended, at most the attribute tolerance; the "
        "largest since the row before; nan if none",
        "distance_to_optimum": "(1/N) sum_i ||f_i(t) - f*|| / ||f*||, f* the centralised optimum",
    }
    trajectory_layout: ClassVar[Layout] = {
        "trajectory": Quantity(("node", "feature"), "f_i(t) as released: what an eavesdropper sees")
    }
    finals: ClassVar[Layout] = {
        "final/primal": Quantity(("node", "feature"), "f_i(T)"),
        "final/dual": Quantity(("node", "feature"), "lambda_i(T)"),
    }

    def __init__(
        self, features: int, sizes: Ints, recorded: Mapping[str, Metric], problems: Sequence[NodeProblem], norm: ZNorm | None
    ) -> None:
        self._norm = norm  # None: there is no such norm, or nobody asks for it
        super().__init__(features, sizes, recorded, problems)

    def widths(self) -> dict[str, int]:
        duals = {} if self._norm is None else {"dual": self.features}
        return {"node_loss": 1, "objective": 1, "residual": 1, "primal": self.features} | duals

    @property
    def _local(self) -> LocalProblems:
        assert isinstance(self.problems, LocalProblems)
        return self.problems

    def at_nodes(self, state: State, shared: Array | None) -> dict[str, Array]:
        mean_losses = self._local.mean_losses(state.primal)
        objectives = self._local.values_from(mean_losses, state.primal)
        values = {
            "node_loss": mean_losses[..., None],
            "objective": objectives[..., None],
            "residual": state.residual,
            "primal": state.primal,
        }
        return values if self._norm is None else values | {"dual": state.dual}

    def points(self, state: State, shared: Array | None) -> Array:
        return state.primal

    def forget(self) -> None:
        self._local.forget_solutions()

    def observe(self, numbers: Mapping[str, Array], state: State, t: int) -> Observation:
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
            z_distance=self._z_distance(numbers, t),
        )

    def _z_distance(self, numbers: Mapping[str, Array], t: int) -> Array | None:
        if self._norm is None or self.optimum is None or self.optimum.gradients is None:
            return None
        return self._norm(self._vectors(numbers["primal"]), self._vectors(numbers["dual"]), self.optimum, t)

    def trajectory(self, numbers: Mapping[str, Array], state: State) -> dict[str, Array]:
        return {"trajectory": self._vectors(numbers["primal"])}

    def final(self, state: Mapping[str, Array]) -> dict[str, Array]:
        return {"final/primal": state["primal"], "final/dual": state["dual"]}
