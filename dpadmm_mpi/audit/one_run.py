"""`dpadmm audit --one-run`: what one run gives away to somebody who sees the final models alone.

T. Steinke, M. Nasr, M. Jagielski: Privacy Auditing with One (1) Training Run, NeurIPS 2023. Some records are replaced by
canaries, each of which is z or -z by the toss of a coin, and the tosses are guessed from the final models. Where the run is
epsilon-private, each guess is right with a probability of at most e^epsilon / (1 + e^epsilon), whatever the others are: many
right guesses are a lower bound on epsilon.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import numpy as np

from dpadmm_mpi.data.dataset import Dataset
from dpadmm_mpi.data.shard import Shard
from dpadmm_mpi.engine.loop import Silent
from dpadmm_mpi.engine.simulation import Simulation
from dpadmm_mpi.errors import InputError
from dpadmm_mpi.methods.base import Plan, make_plan
from dpadmm_mpi.methods.metrics import Optimum
from dpadmm_mpi.parallel.owners import assign_owners
from dpadmm_mpi.parallel.serial import Serial
from dpadmm_mpi.privacy.account import Account
from dpadmm_mpi.problems.objective import DENSE_HESSIAN
from dpadmm_mpi.rng import Purpose, generator
from dpadmm_mpi.storage.experiments import load
from dpadmm_mpi.types import Array, Ints

SHARES = (1.0, 0.5, 0.25, 0.125)  # of the canaries that are guessed, the surest first; the confidence is shared between them
LARGEST_EPSILON = 100.0


@dataclass(frozen=True)
class Guesses:
    """How many of the canaries were guessed, and how many of them rightly."""

    canaries: int
    guessed: int
    right: int


@dataclass(frozen=True)
class Verdict:
    """An account beside what was shown against it."""

    account: Account
    epsilon: float  # of the worst node with a canary
    shown: float  # no smaller epsilon is compatible with the guesses, at the confidence asked for
    guesses: Guesses  # those that show it

    @property
    def holds(self) -> bool:
        return self.shown <= self.epsilon


@dataclass(frozen=True)
class OneRunAudit:
    name: str
    everything: Guesses
    verdicts: list[Verdict]

    @property
    def findings(self) -> list[str]:
        return [
            f"{v.guesses.right} of {v.guesses.guessed} guesses are right, which shows an epsilon of {v.shown:.4g}, above the "
            f"{v.epsilon:.4g} of the account {v.account.name}"
            for v in self.verdicts
            if not v.holds
        ]


@dataclass(frozen=True)
class Canaries:
    """Signed rows that are put into the data, z or -z: the twin has the other label, or is the antipodal record.

    Where numbers or classes are predicted, the antipodal record with the same target: the largest number, or the first class.
    """

    node: Ints  # (m,)
    record: Ints  # (m,): which of the node's records it replaces
    direction: Array  # (m, d): z, of norm 1
    coin: Array  # (m,): +1 or -1

    def put_into(self, shard: Shard, node: int, target: float) -> Shard:
        mine = self.node == node
        rows, targets = np.array(shard.X), shard.y.copy()
        rows[self.record[mine]] = self.coin[mine, None] * self.direction[mine]
        targets[self.record[mine]] = target
        return Shard(rows, targets)


def audit_one_run(
    source: str | Path | Mapping[str, Any],
    canaries: int | None = None,
    confidence: float = 0.95,
    *,
    overrides: Sequence[str] = (),
    extensions: Sequence[str] = (),
) -> OneRunAudit:
    """Run a configuration once with canaries among its records, in this process, and guess them from the final models."""
    configs = load(source, overrides, None, extensions).configs
    if len(configs) > 1:
        names = ", ".join(f'"{config.name}"' for config in configs)
        raise InputError(f"--one-run: the file holds several configurations ({names}); give a file with one")
    record = msgspec.structs.replace(configs[0].record, trajectory=False, optimum=False, metrics=None)
    plan, dataset = make_plan(msgspec.structs.replace(configs[0], runs=1, record=record))
    if not plan.config.is_noisy:
        raise InputError("--one-run: a run without noise has an infinite privacy loss; there is nothing to audit")
    shards = [_records(plan, dataset, i) for i in range(plan.nodes)]
    placed = _place(plan, [np.asarray(mine.X) for mine in shards], canaries)
    target = 0.0 if plan.loss.predicts == "classes" else 1.0
    final = _final_models(plan, [placed.put_into(mine, i, target) for i, mine in enumerate(shards)])
    guesses = _guess(placed, _towards_target(final, plan.loss.outputs))
    # A canary is replaced, so nothing is said against an account of adding or removing one.
    sound = [account for account in plan.accounts if account.proven and account.neighbours.startswith("replace")]
    verdicts = [_verdict(account, placed, guesses, confidence) for account in sound]
    return OneRunAudit(plan.config.name, guesses[0], verdicts)


def _records(plan: Plan[Any], dataset: Dataset[Any], node: int) -> Shard:
    """Dense; of a margin loss signed rows, all of them with the label +1."""
    if plan.features > DENSE_HESSIAN:
        raise InputError(f"--one-run: {plan.features} features are too many for this; up to {DENSE_HESSIAN} are possible")
    shard = dataset.loader.shard(dataset.address(node))
    signed = plan.loss.predicts == "binary"
    rows = shard.into_signed() if signed else shard.X
    return Shard(rows if isinstance(rows, np.ndarray) else rows.toarray(), np.ones_like(shard.y) if signed else shard.y)


def _place(plan: Plan[Any], rows: list[Array], canaries: int | None) -> Canaries:
    """Along the directions that the records use least, where a canary stands out; the nodes take turns.

    The surest guesses come from canaries that do not share a direction: as many as features, unless more are asked for.
    """
    features = rows[0].shape[1]
    m = min(features, int(plan.sizes.sum()) // 4) if canaries is None else canaries
    number, turn = np.arange(m), np.arange(m) // plan.nodes
    node = number % plan.nodes
    if m < 1 or (np.bincount(node, minlength=plan.nodes) > plan.sizes).any():
        raise InputError(f"--canaries {m}: there must be at least one, and at every node no more of them than records")
    _, directions = np.linalg.eigh(sum(mine.T @ mine for mine in rows))  # in ascending order of the records' use
    rngs = [generator(plan.config.seed, Purpose.CANARIES, node=i) for i in range(plan.nodes)]
    order = [rng.permutation(len(mine)) for rng, mine in zip(rngs, rows, strict=True)]
    record = np.array([order[i][k] for i, k in zip(node, turn, strict=True)], dtype=np.int64)
    coin = np.array([2.0 * rngs[i].integers(2) - 1.0 for i in node])
    return Canaries(node, record, directions.T[number % features], coin)


class _Finals:
    """Keeps the final models of a run, and nothing of what is measured on the way."""

    sought = True
    found: Optimum | None = None
    reached: ClassVar[Mapping[int, tuple[int, dict[str, Array]]]] = {}

    def __init__(self) -> None:
        self.final: dict[str, Array] = {}

    def state_of(self, runs: range) -> dict[str, Array]:
        return {}

    def optimum(self, found: Optimum | None) -> None:
        pass

    def row(self, runs: range, row: int, iteration: int, values: dict[str, Array]) -> None:
        pass

    def consensus_row(self, runs: range, row: int, values: dict[str, Array]) -> None:
        pass

    def checkpoint(self, runs: range, iteration: int, state: dict[str, Array], seconds: float) -> None:
        pass

    def end_of_runs(self, runs: range, final: dict[str, Array], state: dict[str, Array]) -> None:
        self.final = final


def _towards_target(final: Array, outputs: int) -> Array:
    """(N, d): what grows along a canary; of several classes, the first's weights over the mean of all."""
    weights = final.reshape(len(final), outputs, -1)
    return np.asarray(weights[:, 0] - (weights.mean(axis=1) if outputs > 1 else 0.0))


def _final_models(plan: Plan[Any], shards: list[Shard]) -> Array:
    """One run with these records, in this process: every node's final model, (N, d)."""
    from threadpoolctl import threadpool_limits

    owner = assign_owners(plan.sizes, 1, plan.topology.has_hub)
    log = _Finals()
    with threadpool_limits(limits=1):
        Simulation(Serial(), plan, owner, plan.problems(shards)).simulate(log, Silent(), None)
    return log.final["final/primal"][0]


def _guess(canaries: Canaries, final: Array) -> list[Guesses]:
    """The surest guesses first: a model has a larger margin on what it was trained with."""
    margins = np.vecdot(canaries.direction, final[canaries.node])
    right = (np.sign(margins) == canaries.coin)[np.argsort(-np.abs(margins), kind="stable")]
    counts = [max(1, round(share * len(right))) for share in SHARES]
    return [Guesses(len(right), count, int(right[:count].sum())) for count in counts]


def _verdict(account: Account, canaries: Canaries, guesses: list[Guesses], confidence: float) -> Verdict:
    level = (1.0 - confidence) / len(guesses)
    shown = [lower_bound(some, account.delta or 0.0, level) for some in guesses]
    best = int(np.argmax(shown))
    return Verdict(account, float(account.node_values[-1, canaries.node].max()), shown[best], guesses[best])


def lower_bound(guesses: Guesses, delta: float, level: float) -> float:
    """The smallest epsilon with which so many right guesses have a probability of `level` or more; 0 if none is needed."""
    low, high = 0.0, LARGEST_EPSILON
    if p_value(guesses, low, delta) >= level:
        return 0.0
    while high - low > 1e-6:
        middle = 0.5 * (low + high)
        low, high = (middle, high) if p_value(guesses, middle, delta) < level else (low, middle)
    return low


def p_value(guesses: Guesses, epsilon: float, delta: float) -> float:
    """The largest probability of so many right guesses under (epsilon, delta): Steinke, Nasr, Jagielski, Theorem 5.2.

    With W ~ Binomial(r, e^epsilon / (1 + e^epsilon)): P(W >= v) + 2 m delta max over i of P(v - i <= W < v) / i.
    """
    from scipy.special import bdtr, expit

    m, r, v = guesses.canaries, guesses.guessed, guesses.right
    below = np.append(bdtr(np.arange(v), r, expit(epsilon)), 0.0)  # P(W <= k), k = 0, ..., v - 1; then k = -1
    at_most = below[v - 1]
    steps = np.arange(1, v + 1)
    nearly = (at_most - below[v - 1 - steps]) / steps
    return float(1.0 - at_most + 2.0 * m * delta * nearly.max(initial=0.0))
