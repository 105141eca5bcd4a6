"""How many data steps a privacy budget lasts for, and what is released within it.

The noise does not depend on the records, so this is known before the run: every layout and every restart agrees on it, and
knowing it costs no privacy.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np

from dpadmm_mpi.errors import InputError
from dpadmm_mpi.methods.base import Config, Method
from dpadmm_mpi.privacy.account import Account, AccountKind, kinds_for
from dpadmm_mpi.privacy.perturbations import Calibrated
from dpadmm_mpi.privacy.releases import ByRun, NetworkReleases, Releases
from dpadmm_mpi.types import Array, Bools, Ints

R = TypeVar("R", bound=Releases)
N = TypeVar("N", bound=NetworkReleases)

ANY_DELTA = 0.5  # of accounts that are not looked at
ROUND_OFF = 1e-9  # of the budget, by which it is kept: the account of some nodes and of all differs in the last bits


class WithinBudget(NamedTuple, Generic[R]):
    """What is released before a budget is spent."""

    releases: R
    steps: Ints | None = None  # (N,): data steps that it lasts for; None: there is no budget
    notes: tuple[str, ...] = ()  # how long it lasts, in words


def within_budget(method: Method, config: Config, releases: R) -> WithinBudget[R]:
    """Everything, where there is no budget."""
    noise = config.privacy.perturbation
    budget = noise.budget if isinstance(noise, Calibrated) else None
    if budget is None:
        return WithinBudget(releases)
    delta = config.privacy.delta if budget.delta is None else budget.delta
    first = releases.first(1)
    parts = [first] if (by_run := first.by_run()) is None else by_run.parts
    cost = max(float(_account(method, part, delta).values[-1]) for part in parts)

    def fitting(some: Releases) -> Bools:
        """Who is within the budget: the nodes, or where runs differ what they do in them."""
        if (by_run := some.by_run()) is not None:
            return np.concatenate([fitting(part) for part in by_run.parts])
        return _spent(method, some, delta) <= budget.epsilon * (1.0 - ROUND_OFF)

    words = f"the privacy budget, epsilon = {budget.epsilon:g}" + (f" at delta = {delta:g}" if delta else "")
    kept = (_resting if budget.when_spent == "rest" else _stopping)(releases, fitting, words)
    if kept.steps is not None and not kept.steps.any():
        raise InputError(
            f"privacy.budget: found epsilon = {budget.epsilon:g}, but the first data step costs {cost:.4g}; raise "
            "it, or add more noise"
        )
    return kept


def affordable(nodes: int, steps: int, fits: Callable[[Ints, int], Bools]) -> Ints:
    """The largest number of first steps, at most `steps`, that each node can afford; fits(nodes, k) says who can afford k.

    Strides double while they fit and are halved afterwards. What is asked for does not depend on `steps`, so that a run
    that is extended later does in its first part what it has done.
    """
    count, stride, growing = np.zeros(nodes, dtype=np.int64), np.ones(nodes, dtype=np.int64), np.ones(nodes, dtype=bool)
    while stride.any():
        trial, fitting = count + stride, np.zeros(nodes, dtype=bool)
        asked = (stride > 0) & (trial <= steps)
        for k in np.unique(trial[asked]).tolist():
            some = np.flatnonzero(asked & (trial == k))
            fitting[some] = fits(some, k)
        count, growing = np.where(fitting, trial, count), growing & fitting
        stride = np.where(growing, 2 * stride, stride // 2)
    return count


def _stopping(releases: R, fitting: Callable[[Releases], Bools], words: str) -> WithinBudget[R]:
    """All nodes go on as long as everybody's budget lasts."""
    count = int(affordable(1, releases.touches, lambda _, k: np.array([fitting(releases.first(k)).all()]))[0])
    kept = releases.first(count)
    words += f", lasts for {count} of {releases.touches} data steps"
    if kept.iterations < releases.iterations:
        words += f": the run stops after iteration {kept.iterations} of {releases.iterations}"
    return WithinBudget(kept, np.full(releases.nodes, count), (words,))


def _resting(releases: R, fitting: Callable[[Releases], Bools], words: str) -> WithinBudget[R]:
    """Every node goes on as long as its own budget lasts."""
    if not isinstance(releases, NetworkReleases):
        raise InputError(
            'privacy.budget: when_spent = "rest" is for methods on a network, whose nodes can go on without their records; '
            'use "stop"'
        )
    if (by_run := releases.by_run()) is not None and releases.in_runs is not None:
        return _resting_in_runs(releases, by_run, fitting, words)  # type: ignore[return-value]
    count = _affordable_of(releases, fitting)
    fewest, most = int(count.min()), int(count.max())
    words += f", lasts for {fewest} of {releases.touches} data steps"
    if fewest < most:
        words += f" at node {count.argmin()} and for {most} at node {count.argmax()}"
    if fewest == releases.touches:
        return WithinBudget(releases, count, (words,))
    words += "; a node that has spent it leaves its records alone from then on, and sends its last value again in a data step"
    return WithinBudget(replace(releases, own_steps=count), count, (words,))


def _resting_in_runs(releases: N, by_run: ByRun[N], fitting: Callable[[Releases], Bools], words: str) -> WithinBudget[N]:
    """Every node by what it spends in each run."""
    in_runs = releases.in_runs
    assert in_runs is not None
    kept = in_runs.within(by_run.of_nodes([_affordable_of(part, fitting) for part in by_run.parts]))
    counts = kept.taken.sum(axis=1)
    words += f", lasts for {counts.min()} to {counts.max()} data steps of a node, by what it spends in each run"
    if not (kept.taken != in_runs.taken).any():
        return WithinBudget(releases, counts.max(axis=0), (words,))
    words += "; a node that has spent it leaves its records alone from then on, and sends its last value again in a data step"
    return WithinBudget(replace(releases, in_runs=kept), counts.max(axis=0), (words,))


def _affordable_of(releases: NetworkReleases, fitting: Callable[[Releases], Bools]) -> Ints:
    return affordable(releases.nodes, releases.touches, lambda nodes, k: fitting(releases.first(k).of_nodes(nodes)))


def _spent(method: Method, releases: Releases, delta: float) -> Array:
    """Of each node at the end, (N,), by the account that a budget is spent by."""
    if _has_own_accounts(method, releases):
        return np.asarray(_account(method, releases, delta).node_values[-1])
    return _kind(releases, delta)[1].spent(releases, delta)


def _account(method: Method, releases: Releases, delta: float) -> Account:
    """The account that a budget is spent by."""
    name, kind = _kind(releases, delta)
    if not _has_own_accounts(method, releases):
        account: Account = kind.compute(releases, delta)  # the others need not be computed too
    else:
        found = {account.name: account for account in method.accounts(releases, delta or ANY_DELTA)}
        if name not in found:
            raise InputError(f"privacy.budget: is spent by the account {name}, which the method does not have; remove it")
        account = found[name]
    if not account.proven:
        raise InputError(f"privacy.budget: needs an account with a proof, and there is none: {account.theorem}; remove it")
    return account


def _kind(releases: Releases, delta: float) -> tuple[str, AccountKind[Any]]:
    """The proven one at this delta, or the tighter pure bound."""
    wanted = "delta" if delta else "pure"
    kinds = [(name, kind) for name, kind in kinds_for(releases).items() if kind.counts_budget == wanted]
    if not kinds:
        raise InputError("privacy.budget: no pure account is known here; give a delta above 0")
    (found,) = kinds
    return found


def _has_own_accounts(method: Method, releases: Releases) -> bool:
    return type(method).accounts is not Method.accounts or bool(releases.unaccounted)
