"""What is measured in every recorded iteration (SPEC 6): rows by the nodes, and one set of values from them on rank 0.

Runs that go side by side are measured together: what is measured has them as its first axis. This is a channel of its own,
beside the algorithm's: what travels here is for the record, and is not released.
"""

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpadmm_mpi.data.dataset import TestSet
from dpadmm_mpi.methods import metrics

if TYPE_CHECKING:
    from dpadmm_mpi.methods.base import Plan

Array = NDArray[np.float64]
Layout = dict[str, tuple[tuple[str, ...], str]]  # name -> (dimensions behind run and iteration, description)


class Optimum(NamedTuple):
    """The solution of the centralised problem, by a solver of its own."""

    f: Array
    objective: float


class Measures(ABC):
    """What a family records of its states."""

    layout: ClassVar[Layout]
    optimum_layout: ClassVar[Layout]  # where the centralised problem is solved too
    trajectory_layout: ClassVar[Layout]  # on request
    finals: ClassVar[Layout]  # name -> (dimensions behind run, description)
    of_released: ClassVar[bool] = False  # rows() looks at what the nodes release, and at nothing that receiving changes

    def __init__(self, plan: "Plan", problems: Any) -> None:
        self.plan = plan
        self.problems = problems
        self.test: TestSet | None = None  # these two on rank 0 only
        self.optimum: Optimum | None = None

    def shared(self, state: Any) -> Array | None:
        """The hub's classifiers, (runs, d), which are sent to all ranks to be measured at; None without a hub."""
        return None

    @abstractmethod
    def rows(self, state: Any, shared: Array | None) -> Array:
        """(runs, nodes of this rank, numbers)"""

    def forget(self) -> None:
        """Whatever the work of this iteration has left to be measured: after a restart, the next one would not find it."""
        return

    @abstractmethod
    def values(self, rows: Array, state: Any) -> dict[str, Any]:
        """The record of one iteration from the rows of all nodes in node order, on rank 0: one entry for each run."""

    @abstractmethod
    def final(self, state: dict[str, Array]) -> dict[str, Array]:
        """What is kept of the last states, on rank 0; every field is (runs, all places, ...)."""


class DecentralisedMeasures(Measures):
    of_released: ClassVar[bool] = True
    layout: ClassVar[Layout] = {
        "loss": ((), "L(t): mean over nodes of the node's mean loss at its own f_i(t)"),
        "node_loss": (("node",), "mean loss of each node at its own f_i(t)"),
        "objective": ((), "sum_i O_i(f_i(t))"),
        "consensus_error": ((), "(1/N) sum_i ||f_i(t) - fbar(t)||"),
        "test_error": ((), "share of test records that the mean classifier gets wrong; nan without test records"),
        "kkt_residual": (
            ("node",),
            "relative residual of (KKT) in the data step, the largest since the row before; nan if none",
        ),
    }
    optimum_layout: ClassVar[Layout] = {
        "distance_to_optimum": ((), "(1/N) sum_i ||f_i(t) - f*|| / ||f*||, f* the centralised optimum")
    }
    trajectory_layout: ClassVar[Layout] = {"trajectory": (("node", "feature"), "f_i(t) as released: what an eavesdropper sees")}
    finals: ClassVar[Layout] = {
        "final/primal": (("node", "feature"), "f_i(T)"),
        "final/dual": (("node", "feature"), "lambda_i(T)"),
    }

    def rows(self, state: Any, shared: Array | None) -> Array:
        mean_losses = self.problems.mean_losses(state.primal)
        objectives = self.problems.values_from(mean_losses, state.primal)
        return np.concatenate([mean_losses[..., None], objectives[..., None], state.residual, state.primal], axis=-1)

    def forget(self) -> None:
        self.problems.forget_solutions()

    def values(self, rows: Array, state: Any) -> dict[str, Any]:
        node_loss, objective, residual = np.moveaxis(rows[..., :3], -1, 0)
        primals = rows[..., 3:]
        mean = primals.mean(axis=1)
        return {
            "loss": np.mean(node_loss, axis=-1),
            "node_loss": node_loss,
            "objective": np.sum(objective, axis=-1),
            "consensus_error": metrics.consensus_error(primals, mean),
            "test_error": metrics.test_error(mean, self.test),
            "kkt_residual": residual,
            "distance_to_optimum": metrics.distance(primals, None if self.optimum is None else self.optimum.f),
            "trajectory": primals,
        }

    def final(self, state: dict[str, Array]) -> dict[str, Array]:
        return {"final/primal": state["primal"], "final/dual": state["dual"]}


class StarMeasures(Measures):
    layout: ClassVar[Layout] = {
        "loss": ((), "L(t): mean over providers of the provider's mean loss at its own x_i(t)"),
        "node_loss": (("node",), "mean loss of each provider at its own x_i(t)"),
        "objective": ((), "sum_i f_i(z(t)) + reg ||z(t)||^2, f_i the mean loss of provider i, z(t) the server's"),
        "consensus_error": ((), "(1/N) sum_i ||x_i(t) - z(t)||"),
        "test_error": ((), "share of test records that the server's z(t) gets wrong; nan without test records"),
        "kkt_residual": (
            ("node",),
            "relative residual of the provider's exact argmin, the largest since the row before; nan for inner steps",
        ),
    }
    optimum_layout: ClassVar[Layout] = {
        "objective_gap": ((), "objective less that of the centralised optimum"),
        "distance_to_optimum": ((), "(1/N) sum_i ||x_i(t) - f*|| / ||f*||, f* the centralised optimum"),
    }
    trajectory_layout: ClassVar[Layout] = {
        "trajectory": (("node", "feature"), "x_i(t) as sent to the server"),
        "server_trajectory": (("feature",), "z(t) as sent to the providers"),
    }
    finals: ClassVar[Layout] = {
        "final/primal": (("node", "feature"), "x_i(T)"),
        "final/dual": (("node", "feature"), "lambda_i(T)"),
        "final/server": (("feature",), "z(T)"),
    }

    def shared(self, state: Any) -> Array | None:
        return state.primal[:, -1] if state.primal.shape[1] > len(self.problems) else None

    def rows(self, state: Any, shared: Array | None) -> Array:
        assert shared is not None
        own = len(self.problems)
        losses = np.empty((len(shared), own, 2))
        for k, problem in enumerate(self.problems):
            losses[:, k, 0] = problem.mean_losses(state.primal[:, k])
            losses[:, k, 1] = problem.mean_losses(shared)
        return np.concatenate([losses, state.residual[:, :own], state.primal[:, :own]], axis=-1)

    def values(self, rows: Array, state: Any) -> dict[str, Any]:
        node_loss, server_loss, residual = np.moveaxis(rows[..., :3], -1, 0)
        primals, z = rows[..., 3:], state.primal[:, -1]
        reg = float(self.plan.config.problem.reg or 0.0)
        objective = np.sum(server_loss, axis=-1) + reg * np.vecdot(z, z)
        optimum = self.optimum
        return {
            "loss": np.mean(node_loss, axis=-1),
            "node_loss": node_loss,
            "objective": objective,
            "consensus_error": metrics.consensus_error(primals, z),
            "test_error": metrics.test_error(z, self.test),
            "kkt_residual": residual,
            "objective_gap": objective - (np.nan if optimum is None else optimum.objective),
            "distance_to_optimum": metrics.distance(primals, None if optimum is None else optimum.f),
            "trajectory": primals,
            "server_trajectory": z,
        }

    def final(self, state: dict[str, Array]) -> dict[str, Array]:
        primal, dual = state["primal"], state["dual"]
        return {"final/primal": primal[:, :-1], "final/dual": dual[:, :-1], "final/server": primal[:, -1]}
