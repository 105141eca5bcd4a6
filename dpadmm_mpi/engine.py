"""The loop where mathematics and messages meet: one loop for every layout."""

import platform
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dpadmm_mpi import metrics
from dpadmm_mpi.algorithms.decentralised import Decentralised, State
from dpadmm_mpi.config import Config
from dpadmm_mpi.data.dataset import Dataset, Loader, TestSet
from dpadmm_mpi.graphs import NeighbourSum
from dpadmm_mpi.newton import Point
from dpadmm_mpi.optimum import centralised_optimum
from dpadmm_mpi.plan import Plan, make_plan
from dpadmm_mpi.problem import NodeProblem
from dpadmm_mpi.transport import Transport, agree, assign_owners, on_root

if TYPE_CHECKING:
    from dpadmm_mpi.recorder import Recorder
    from dpadmm_mpi.results import Result

Array = NDArray[np.float64]
Ints = NDArray[np.int64]


class Observer(Protocol):
    """Whoever watches a run on rank 0: a progress bar, a log."""

    def begin(self, plan: Plan) -> None: ...

    def row(self, run: int, iteration: int, values: dict[str, Any]) -> None: ...

    def end(self, seconds: float) -> None: ...


class Silent:
    def begin(self, plan: Plan) -> None:
        pass

    def row(self, run: int, iteration: int, values: dict[str, Any]) -> None:
        pass

    def end(self, seconds: float) -> None:
        pass


class TimedProblem(NodeProblem):
    """A node's problem that keeps count of the seconds spent in its solves."""

    seconds = 0.0

    def argmin(self, linear: Array, quadratic: float, start: Array) -> Point:
        begin = time.perf_counter()
        try:
            return super().argmin(linear, quadratic, start)
        finally:
            self.seconds += time.perf_counter() - begin


def execute(
    config: Config,
    transport: Transport,
    output: Path | None,
    observer: Observer,
    force: bool = False,
    threads: int = 1,
    brief: bool = False,
) -> "Result | None":
    """Run one configuration on all ranks; rank 0 returns the result (if `brief`, what a table needs), the others None."""
    from threadpoolctl import threadpool_limits

    begin = time.perf_counter()
    dataset: Dataset | None = None

    def settle() -> tuple[Plan, Loader, Ints]:
        nonlocal dataset
        plan, dataset = make_plan(config)
        return plan, dataset.loader, assign_owners(plan.sizes, transport.size)

    def address(node: int) -> Any:
        assert dataset is not None  # asked on rank 0 only
        return dataset.address(node)

    with threadpool_limits(limits=threads):
        plan, loader, owner = on_root(transport, settle)
        addresses = transport.deal(owner, address)
        problems = agree(transport, lambda: _load_problems(plan, loader, addresses))
        hosts = transport.gather_objects(platform.node())
        recorder = agree(transport, lambda: _new_recorder(output, plan, dataset, owner, hosts, transport.library, force))
        simulation = Simulation(transport, plan, owner, problems)
        if recorder is None or dataset is None:
            simulation.simulate(None, None, Silent())
            simulation.links.close()
            return None
        try:
            observer.begin(plan)
            simulation.simulate(recorder, dataset.test(), observer)
            seconds = time.perf_counter() - begin
            recorder.finish(seconds)
            observer.end(seconds)
            simulation.links.close()
            return recorder.result(brief)
        finally:
            recorder.close()


def _load_problems(plan: Plan, loader: Loader, addresses: list[Any]) -> list[TimedProblem]:
    """The problems of this rank's nodes; the rank makes or reads its own records, and no others."""
    C, ridge = plan.config.problem.C, plan.ridge
    return [TimedProblem(loader.shard(address).into_signed(), plan.loss, C, ridge) for address in addresses]


def _new_recorder(
    output: Path | None, plan: Plan, dataset: Dataset | None, owner: Ints, hosts: list[str], mpi: str, force: bool
) -> "Recorder | None":
    """The recorder on rank 0, which has the data set; None elsewhere."""
    if dataset is None:
        return None
    from dpadmm_mpi import recorder

    record = recorder.create(output, plan, force)
    try:
        record.describe(dataset, owner, hosts, mpi)
    except BaseException:
        record.discard()
        raise
    return record


class Simulation:
    """The nodes of this rank and their links, through all runs."""

    def __init__(self, transport: Transport, plan: Plan, owner: Ints, problems: list[TimedProblem]) -> None:
        nodes = np.flatnonzero(owner == transport.rank)
        self.transport = transport
        self.plan = plan
        self.owner = owner
        self.problems = problems
        self.algorithm = Decentralised(plan.settings, nodes, problems)
        self.links = transport.links(plan.graph, owner, plan.features * len(self.algorithm.released))
        self.neighbour_sum = NeighbourSum(plan.graph, nodes, self.links.known)
        self.optimum: Array | None = None
        self._waited = 0.0
        self._exchanges = 0

    def simulate(self, recorder: "Recorder | None", test: TestSet | None, observer: Observer) -> None:
        """All runs; `recorder`, `test` and `observer` matter on rank 0 only."""
        if self.plan.seeks_optimum:
            required = self.plan.config.record.optimum
            found = centralised_optimum(self.transport, self.problems, self.owner, self.plan.features, required)
            if found is not None and recorder is not None:
                self.optimum = found.f
                recorder.optimum(found.f, found.value)
        for run in range(self.plan.config.runs):
            state = self._one_run(run, recorder, test, observer)
            primal = self.transport.gather(state.primal, self.owner)
            dual = self.transport.gather(state.dual, self.owner)
            if recorder is not None and primal is not None and dual is not None:
                recorder.end_of_run(run, primal, dual)

    def _one_run(self, run: int, recorder: "Recorder | None", test: TestSet | None, observer: Observer) -> State:
        algorithm = self.algorithm
        row_of = {int(t): row for row, t in enumerate(self.plan.recorded)}
        residuals = np.full(len(self.problems), np.nan)
        state = algorithm.initial(run)
        for t in range(self.plan.config.iterations + 1):
            if t > 0:
                state, fresh = algorithm.local_step(state, t, run)
                residuals = np.fmax(residuals, fresh)
            state = algorithm.receive(state, t, self._exchange(state))
            if t in row_of:
                values = self._measure(state, residuals, test)
                residuals = np.full(len(self.problems), np.nan)
                if recorder is not None and values is not None:
                    recorder.row(run, row_of[t], t, values)
                    observer.row(run, t, values)
        return state

    def _exchange(self, state: State) -> Array:
        """Only the fields that the algorithm releases leave the node."""
        released = [getattr(state, field) for field in self.algorithm.released]
        begin = time.perf_counter()
        known = self.links.exchange(np.hstack(released))
        self._waited += time.perf_counter() - begin
        self._exchanges += 1
        return self.neighbour_sum(known)

    def _measure(self, state: State, residuals: Array, test: TestSet | None) -> dict[str, Any] | None:
        """One row of the record, on rank 0; sums over nodes happen there, in node order."""
        vector_bytes = 8 * self.plan.features * len(self.algorithm.released)
        rows = np.empty((len(self.problems), 6 + self.plan.features))
        for k, (problem, f) in enumerate(zip(self.problems, state.primal, strict=True)):
            mean_loss = problem.mean_loss(f)
            rows[k, :3] = mean_loss, problem.value_from(mean_loss, f), problem.seconds
            problem.seconds = 0.0
        rows[:, 3] = residuals
        rows[:, 4] = self._waited
        rows[:, 5] = vector_bytes * self.links.vectors_sent * self._exchanges
        rows[:, 6:] = state.primal
        self._waited, self._exchanges = 0.0, 0
        gathered = self.transport.gather(rows, self.owner)
        if gathered is None:
            return None
        node_loss, objective, seconds, residual, waited, sent = gathered[:, :6].T
        primals = gathered[:, 6:]
        values = {
            "loss": float(np.mean(node_loss)),
            "node_loss": node_loss,
            "objective": float(np.sum(objective)),
            "consensus_error": metrics.consensus_error(primals),
            "test_error": metrics.test_error(primals, test),
            "kkt_residual": residual,
            "timing/compute_seconds": seconds,
            "timing/wait_seconds": waited,
            "timing/bytes_sent": sent,
            "trajectory": primals,
        }
        if self.plan.seeks_optimum:
            values["distance_to_optimum"] = metrics.distance(primals, self.optimum)
        return values
