"""What a configuration will cost, before it runs: seconds per iteration, memory of a rank, size of the file.

How much there is to do (passes over the records, matrix products, calls of numpy) follows from the plan; where a count depends
on the numbers, as the evaluations of a solve do, it is a typical one. How long each takes on this machine is in machine.py.
Right to a factor of two: scripts/bench/cost.py compares.
"""

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np

from dpadmm_mpi.data.dataset import TEST_BLOCK, TEST_IN_MEMORY, Dataset
from dpadmm_mpi.data.sources import StoredSource
from dpadmm_mpi.engine.machine import Machine
from dpadmm_mpi.methods.base import Plan
from dpadmm_mpi.methods.curated.plan import CuratedPlan
from dpadmm_mpi.methods.decentralised.plan import NetworkPlan
from dpadmm_mpi.methods.gradient.plan import GradientPlan
from dpadmm_mpi.methods.star.plan import StarPlan
from dpadmm_mpi.problems import strategies
from dpadmm_mpi.problems.objective import DENSE_HESSIAN
from dpadmm_mpi.storage.layout import bytes_needed
from dpadmm_mpi.types import Array, Ints

SAMPLE = 256  # records that the density is taken from

# Typical counts.
EVALUATIONS, QUIET_EVALUATIONS = 11, 7.5  # of a solve with a kept factorisation, with noise and without
ROUGH_EVALUATIONS = 6  # before the Hessian that is kept
SMALL_STEPS = 8  # of a small node's solve by gradients
NEWTON_STEPS = 3.5  # of a damped Newton solve that starts at the iterate before
GRADIENTS_SOLVED = 5.0  # of a curator's exact x step
PRODUCTS = 30  # with the Hessian, of a Newton step by conjugate gradients
EIGENVECTORS = 10  # d^3 multiplications of an eigendecomposition
OPTIMUM_STEPS = 10  # Newton steps of the centralised optimum
CENTRE_STEPS = 80  # Newton steps of the curated optimum, over all centres
# Calls of numpy, and of what is around them, in units of the smallest one. Those down to CALLS_NODE serve all runs that go side
# by side, and CALLS_EVALUATION and CALLS_NODE the nodes of a rank that are solved together in one run.
CALLS_ITERATION = 150  # of a rank, with its exchange of messages
CALLS_TURN = 3000  # lost by a rank that shares its core, in every iteration: it falls asleep, and wakes up to cold caches
CALLS_ROW = 400  # of rank 0, with its share of what is written at a time
CALLS_EVALUATION = 60
CALLS_PRODUCTS = 15  # of an evaluation, for each node
CALLS_SPARSE = 50  # before scipy begins with a product
CALLS_NODE = 25  # around the work of a node of a hub, or to measure a large node
CALLS_BATCH_STEP = 120
CALLS_SETUP = 50  # of a node: its records, its problem, its place in graph and accounts
CALLS_NOISE = 13
CALLS_INNER_STEP = 25  # of one SVRG step without numba
COLD = 1.25  # times as long as on a core of its own takes a rank that shares one
# Copies of a number, in units of one within the cache.
COPIES_TEST = 3  # a block of test records
COPIES_READ = 7  # from a file
COPIES_GATHER = 10  # the wanted rows of what was read
# Bytes.
NODE = 3e3  # a node's objects
PER_RECORD = 40.0  # of the largest shard, for each run: what a solve has of it at a time
PROCESS = 75e6  # Python with what every run loads
COMPILER = 90e6  # numba


class RecordShape(NamedTuple):
    """What the records look like as they come from their source."""

    density: float  # share of non-zeros
    sparse: bool  # stored as CSR


class Cost(NamedTuple):
    """Of the slowest rank, but for the file."""

    seconds: float  # per iteration of one run
    setup: float  # seconds before the first iteration, and in it for what is kept
    memory: float  # bytes
    file: float  # bytes
    after: float = 0.0  # seconds of the consensus steps of one run


def look_at(dataset: Dataset[Any]) -> RecordShape:
    """From the first records of node 0."""
    X = dataset.sample(SAMPLE).X
    if isinstance(X, np.ndarray):
        return RecordShape(np.count_nonzero(X) / X.size, sparse=False)
    return RecordShape(X.nnz / (X.shape[0] * X.shape[1]), sparse=True)


def cost(plan: Plan[Any], owner: Ints, rows: RecordShape, measure: Callable[[int], Machine]) -> Cost:
    """The model. `owner` has the rank of every place; measure(runs) tells what passes for so many runs at a time take."""
    alone, runs = _Work(plan, owner, rows, measure(1)), len(plan.groups_of_runs[0])
    work = _Work(plan, owner, rows, measure(runs), runs, alone)
    machine = work.machine
    ranks = int(owner.max()) + 1

    def per_rank(of_nodes: Array, of_each: float, of_root: float) -> Array:
        total = np.bincount(owner[: plan.nodes], weights=of_nodes, minlength=ranks) + of_each
        total[0] += of_root
        return np.asarray(total)

    def on_cores(seconds: Array, turn: float) -> float:
        if ranks <= machine.cores:
            return float(seconds.max())
        return float(max(seconds.max(), np.sum(COLD * seconds + turn) / machine.cores))

    points = 1 if plan.free.first is None else 2  # at which is measured
    recorded = points * len(plan.recorded) / (plan.iterations + 1)
    exchange = CALLS_ITERATION * work.shared_call
    iteration = per_rank(work.node_step() + recorded * work.node_measure(), exchange, recorded * work.root_measure())
    steps, measured = plan.consensus_steps, len(plan.consensus_recorded)
    consensus = per_rank(
        steps * work.node_vectors() + measured * work.node_measure(), steps * exchange, measured * work.root_measure()
    )
    setup = per_rank(alone.node_setup(), 0.0, 0.0)
    memory = per_rank(work.node_bytes(), PROCESS + (COMPILER if work.compiles else 0.0), work.root_bytes())
    turn = CALLS_TURN * work.shared_call
    after = on_cores(consensus, steps * turn)
    return Cost(on_cores(iteration, turn), on_cores(setup, 0.0), float(memory.max()), work.file_bytes(), after)


class _Work:
    """Seconds and bytes of every node, (N,), and of rank 0. B records, d features, `entries` numbers stored of a shard."""

    def __init__(
        self, plan: Plan[Any], owner: Ints, rows: RecordShape, machine: Machine, runs: int = 1, alone: "_Work | None" = None
    ) -> None:
        self.plan, self.rows, self.machine, self.runs = plan, rows, machine, runs
        self.alone = alone or self  # one run by itself: what is not shared
        self.B, self.d = plan.sizes.astype(np.float64), plan.features
        self.test_records = plan.total_records - float(self.B.sum())
        self.shared_call = machine.call / runs
        self.decentralised = isinstance(plan, NetworkPlan | GradientPlan)
        self.curated = isinstance(plan, CuratedPlan)
        self.noisy = plan.config.is_noisy
        self.exact = plan.solves_exactly
        self.gradients = GRADIENTS_SOLVED if isinstance(plan, CuratedPlan) and plan.settings.exact else 1.0
        d = self.d
        self.small = np.zeros(len(self.B), dtype=bool)
        self.sparse = np.full(len(self.B), rows.sparse)
        if self.exact:
            self.small = strategies.is_small(self.B, d)
            self.sparse |= strategies.becomes_sparse(self.B, d, rows.density)
            self.sparse &= ~self.small
        self.kept = self.exact & ~self.small & strategies.keeps_factorisation(self.B, d)
        self.entries = self.B * d * np.where(self.sparse, rows.density, 1.0)
        self.together = np.ones(len(self.B))
        if runs == 1:
            hosted = np.bincount(owner)[owner[: len(self.B)]]
            at_most = np.where(self.entries <= strategies.IN_CACHE, strategies.solved_together(self.entries, self.B), 1.0)
            self.together = np.clip(at_most, 1.0, hosted)
        inner = plan.settings.inner if isinstance(plan, StarPlan) else None
        self.inner_steps = None if inner is None else inner.steps
        self.compiles = self.inner_steps is not None and find_spec("numba") is not None

    def node_step(self) -> Array:
        """One iteration, the mean over those that touch the records and those that do not."""
        m = self.machine
        if self.curated:
            return self.gradients * (self._gradient() + CALLS_NODE * self.shared_call)
        if not self.decentralised:
            return self._solve() if self.inner_steps is None else self.alone._inner_loop(self.inner_steps)
        noise = (CALLS_NOISE * m.call + self.d * m.normal) if self.noisy else 0.0
        work = self._solve() if self.exact else self._gradient() + CALLS_NODE * self.shared_call
        return (work + noise) * self.plan.data_step_share + self.node_vectors()

    def node_vectors(self) -> Array:
        """The dual step or a consensus step, and sums over the neighbours."""
        return np.asarray((20 + 2 * self.plan.topology.degree[: len(self.B)]) * self.d * self.machine.copy)

    def node_measure(self) -> Array:
        """The mean loss: at the node's own point, and with a server at the server's too."""
        m = self.machine
        one = (
            self._pass()
            + 2.0 * self.B * m.record
            + np.where(self.small, 3.0 * m.matrix, CALLS_NODE / self.together * self.shared_call)
        )
        return one if self.decentralised or self.curated else 2.0 * one

    def root_measure(self) -> float:
        """The test set, and the row."""
        m, plan, d = self.machine, self.plan, self.d
        records = self.test_records
        stored = d * (3.0 * self.rows.density if self.rows.sparse else 1.0)  # numbers of a record; CSR: columns and places too
        runs = self.runs
        test = records * stored * (m.stream + COPIES_TEST * m.copy / runs)  # blocks of it are copied
        if self._test_on_disk():
            # The rows of a random split are everywhere in the file; once for all runs.
            test += stored * (plan.total_records * COPIES_READ + records * COPIES_GATHER) * m.copy / runs
        return test + CALLS_ROW * self.shared_call + plan.nodes * (5 * d + 20) * m.copy

    def node_setup(self) -> Array:
        """What is kept of a node, and the centralised optimum."""
        m = self.machine
        reference = ROUGH_EVALUATIONS * self._evaluation() + self._hessian() + EIGENVECTORS * self.d**3 * m.product
        seconds = np.where(self.kept, reference, 0.0) + CALLS_SETUP * m.call
        if not self.plan.seeks_optimum:
            return seconds
        if self.curated:
            return seconds + CENTRE_STEPS * (self._hessian() + self._gradient())
        return seconds + OPTIMUM_STEPS * PRODUCTS * (self._gradient() + CALLS_NODE * self.shared_call)

    def _pass(self, from_memory: bool = True) -> Array:
        """Over a shard, which comes from the memory if it is large and has not just been fetched."""
        m = self.machine
        dense = np.where((self.entries > strategies.IN_CACHE) & from_memory, m.stream, m.dense)
        return np.where(self.sparse, self.entries * m.sparse + CALLS_SPARSE * self.shared_call, self.entries * dense)

    def _gradient(self) -> Array:
        """Two passes, and L' of every record between them; the records are fetched once."""
        return self._pass() + self._pass(from_memory=False) + self.B * self.machine.record

    def _evaluation(self) -> Array:
        """One step of quasi_newton.py, with two products with Q; the line search has some more vectors of B numbers."""
        m = self.machine
        calls = (CALLS_EVALUATION / self.together + CALLS_PRODUCTS) * self.shared_call
        return self._gradient() + 2.0 * self.B * m.record + 2.0 * self.d**2 * m.dense + calls

    def _hessian(self) -> Array:
        m = self.machine
        by_columns = self.B * (self.rows.density * self.d) ** 2 * 3.5 * m.sparse  # scipy's product of two sparse matrices
        weighted = self.B * self.d * (self.d * m.product + 3.0 * m.copy)  # in blocks
        return np.where(self.sparse, by_columns, weighted)

    def _solve(self) -> Array:
        """An exact argmin, by batched.py, quasi_newton.py or newton.py; only the second solves runs side by side."""
        one_by_one = np.where(self.small, self.alone._small_solve(), self.alone._newton_solve())
        evaluations = EVALUATIONS if self.noisy else QUIET_EVALUATIONS
        return np.where(self.kept, evaluations * self._evaluation(), one_by_one)

    def _newton_solve(self) -> Array:
        m, d = self.machine, self.d
        factorised = self._hessian() + d**3 / 3.0 * m.product
        direction = factorised if d <= DENSE_HESSIAN else PRODUCTS * self._gradient()
        return NEWTON_STEPS * (direction + self._gradient() + self.B * m.record + (CALLS_EVALUATION + CALLS_PRODUCTS) * m.call)

    def _small_solve(self) -> Array:
        m, d = self.machine, self.d
        nodes_at_a_time = strategies.nodes_in_a_chunk(self.B, d)
        gradients = SMALL_STEPS * (
            self._gradient()
            + 2.0 * self.B * m.record
            + 20.0 * d * m.copy
            + 2.0 * m.matrix
            + CALLS_BATCH_STEP * m.call / nodes_at_a_time
        )
        newton = NEWTON_STEPS * (
            self._gradient()
            + 3.0 * self.B * m.record
            + self.B * d * (2.5 * d * m.product + 4.0 * m.copy)  # small products are less efficient
            + d**2 * m.small
            + 4.0 * m.matrix
            + CALLS_BATCH_STEP * m.call / nodes_at_a_time
        )
        return np.where(strategies.gradients_pay(self.B, d), gradients, newton)

    def _inner_loop(self, steps: int) -> Array:
        """svrg.py: one full gradient, then steps on single records, laid out densely."""
        m, d = self.machine, self.d
        step = d * (
            4.0 * m.dense + (m.normal + 2.0 * m.copy if self.noisy else 0.0) + (2.0 * m.copy if self.rows.sparse else 0.0)
        )
        step += 4.0 * m.record if self.compiles else CALLS_INNER_STEP * m.call
        return self._gradient() + steps * step + 2 * CALLS_NODE * m.call

    def node_bytes(self) -> Array:
        """The shard, twice while it changes its storage; what is kept; the state, and copies on their way."""
        d = self.d
        stored = np.where(self.sparse, 12.0, 8.0) * self.entries
        changes = self.sparse & (not self.rows.sparse)
        kept = np.where(self.kept, 8.0 * (d * d + 2.0 * self.B * self.runs), 0.0)
        kept += np.where(self.kept & (self.entries <= strategies.IN_CACHE), 4.0 * self.entries, 0.0)  # in single precision
        state = 160.0 * d * self.runs
        return stored + np.where(changes, 8.0 * self.B * d, 0.0) + kept + state + NODE

    def root_bytes(self) -> float:
        width = 8.0 * self.d * (1.5 * self.rows.density if self.rows.sparse else 1.0)
        test = (TEST_BLOCK if self._test_on_disk() else self.test_records) * width
        solve = 0.0 if self.small.all() else PER_RECORD * float(self.B.max()) * self.runs
        return float(test + solve + self.file_bytes() / max(1, self.plan.config.runs))

    def file_bytes(self) -> float:
        fields = 4 + len(self.plan.free.fields)  # of a state, at most
        return float(bytes_needed(self.plan, {"state": (fields * self.plan.nodes, self.d)}))

    def _test_on_disk(self) -> bool:
        return isinstance(self.plan.config.data.source, StoredSource) and 8.0 * self.test_records * self.d > TEST_IN_MEMORY


def in_words(plan: Plan[Any], owner: Ints, found: Cost) -> str:
    config, ranks = plan.config, int(owner.max()) + 1
    total = found.setup + config.runs * (plan.iterations * found.seconds + found.after)
    before = f", of which {_duration(found.setup)} before the first" if found.setup > 0.1 * total else ""
    runs, each = (f"{config.runs} runs", "iteration of a run") if config.runs > 1 else ("1 run", "iteration")
    where = "1 rank" if ranks == 1 else f"{ranks} ranks"
    return (
        f"about {_duration(found.seconds)} per {each} ({_duration(total)} for {runs} of {plan.iterations}{before}) on "
        f"{where}; memory about {_size(found.memory)} per rank, file {_size(found.file)}"
    )


def _duration(seconds: float) -> str:
    for unit, length in (("h", 3600.0), ("min", 60.0), ("s", 1.0)):
        if seconds >= 1.5 * length:
            return f"{seconds / length:.2g} {unit}"
    return f"{1e3 * seconds:.2g} ms" if seconds < 0.1 else f"{seconds:.2g} s"


def _size(size: float) -> str:
    return f"{size / 1e9:.2g} GB" if size >= 1e9 else f"{size / 1e6:.3g} MB" if size >= 1e7 else f"{size / 1e6:.2g} MB"
