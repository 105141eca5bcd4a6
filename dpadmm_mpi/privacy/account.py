"""Privacy accounts: kinds that are registered, each with its words, and what one says about a run."""

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, TypeVar

import numpy as np

from dpadmm_mpi.config.options import Options
from dpadmm_mpi.errors import InputError
from dpadmm_mpi.privacy.releases import ByRun, Releases
from dpadmm_mpi.registry import Registry, is_inside, place_of
from dpadmm_mpi.types import Array

if TYPE_CHECKING:  # the mathematics of composition is for those who compute an account: not for every rank
    from dpadmm_mpi.privacy.recorded_curves import Profile, RecordedCurve

R = TypeVar("R", bound=Releases)

ANY_DELTA = 0.5  # of pure accounts, which have none

SMALLEST_STEP, LARGEST_STEP = 1e-15, 1.0  # relative, of noise that is raised until an account is not above its target

# Kinds of account belong to the families that they are about.
accounts = Registry["AccountKind[Any]"]("account", "accounts", homes=("methods.decentralised.accounts", "methods.gaussian"))


@dataclass(frozen=True)
class Account:
    """What an account says about a run: one number per iteration and node, and what it rests on."""

    name: str  # under /privacy, and behind "node_"
    title: str
    node_values: Array  # (T+1, N): everything released up to the iteration; inf if not private
    theorem: str
    proven: bool
    neighbours: str  # what two neighbouring data sets are
    delta: float | None = None  # None: a pure bound
    label: str = ""  # in tables and legends
    column: str = ""
    details: Mapping[str, str | float] = field(default_factory=dict)  # further attributes, as which proof it is
    summary: Callable[[], Mapping[str, float]] = dict  # and those that take their time: made when the account is recorded
    profile: "Profile | None" = None  # of the worst node after the last iteration: delta over epsilon, Renyi divergences
    run_values: Array | None = None  # (runs, T+1, N) where runs differ; the largest of them are in node_values

    @property
    def values(self) -> Array:
        """The worst node's, (T+1,)."""
        return np.asarray(self.node_values.max(axis=1))


@accounts.base
class AccountKind(Options, Generic[R]):
    """A way to bound the total privacy loss of everything released.

    Every registered kind that applies to a run is recorded; tables and plots take its words from here.
    """

    applies_to: ClassVar[type[Releases]]  # the releases that it is about
    label: ClassVar[str]  # in legends
    column: ClassVar[str]  # in tables
    target: ClassVar[str]  # as privacy.target_account calls it
    line: ClassVar[Any] = ":"  # its line style in plots, as matplotlib has it
    counts_budget: ClassVar[Literal["pure", "delta", ""]] = ""  # with delta = 0, or above it; "": not what a budget is spent by

    @abstractmethod
    def compute(self, releases: R, delta: float) -> Account:
        """The account of a run."""

    def spent(self, releases: R, delta: float) -> Array:
        """Of each node at the end, (N,), as `compute` has it, perhaps sooner."""
        return np.asarray(self.compute(releases, delta).node_values[-1])

    def of_runs(self, releases: R) -> Array | None:
        """Of each node in each run, (runs, T+1, N), where that is cheap for any number of runs; None: it is not."""
        return None

    @abstractmethod
    def calibrate(self, releases: R, target: float, delta: float) -> R:
        """The same releases with the noise that brings the worst node's total to the target."""


def kinds_for(releases: Releases) -> dict[str, AccountKind[Any]]:
    """The accounts of a run, by name."""
    return {name: cls() for name, cls in accounts.items() if isinstance(releases, cls.applies_to)}


def accounts_of(releases: Releases, delta: float) -> Sequence[Account]:
    """Every account that applies; where the method has none of its own, infinity, not proven.

    Parameters
    ----------
    releases : what was released, and with which noise, as a plan has it
    delta : of (epsilon, delta)

    Returns
    -------
    The accounts, the paper's first; each has `values` of the worst node and `node_values`.

    Examples
    --------
    >>> import dpadmm_mpi as dp
    >>> privacy = {"perturbation": "objective", "alpha": 1.0}
    >>> config = dp.methods.parse({"iterations": 3, "data": {"records": 200, "features": 3}, "privacy": privacy})
    >>> plan, _ = dp.methods.make_plan(config)
    >>> [account.name for account in dp.privacy.accounts_of(plan.releases, 1e-5)]
    ['bound', 'tight', 'epsilon']
    """
    found = []
    for name, kind in kinds_for(releases).items():
        if releases.unaccounted:
            nothing = np.full((releases.iterations + 1, releases.nodes), np.inf)
            account = Account(name, kind.label, nothing, releases.unaccounted, False, "-")
        else:
            account = kind.compute(releases, delta)
        found.append(checked(account, type(kind), "compute", (releases.iterations + 1, releases.nodes)))
    return tuple(found)


def accounts_of_parts(releases: R, compute: Callable[[R], Sequence[Account]]) -> Sequence[Account]:
    """The accounts of nodes that touch their records more or less often, each by its own part; who never does, spends 0.

    Where runs differ, a node's is the largest over the runs.
    """
    if (by_run := releases.by_run()) is not None:
        return _of_runs(releases, by_run, [compute(part) for part in by_run.parts])
    found = [(nodes, compute(part)) for nodes, part in releases.parts() if part.touches]
    if len(found) == 1 and len(found[0][0]) == releases.nodes:
        return found[0][1]
    joined = []
    for same in zip(*(accounts for _, accounts in found), strict=True):
        values = np.zeros((releases.iterations + 1, releases.nodes))
        for (nodes, _), account in zip(found, same, strict=True):
            values[:, nodes] = account.node_values
        worst = max(same, key=lambda account: float(account.values[-1]))
        joined.append(replace(worst, node_values=values, proven=all(account.proven for account in same)))
    return tuple(joined)


def _of_runs(releases: R, by_run: ByRun[R], of_parts: Sequence[Sequence[Account]]) -> Sequence[Account]:
    joined, kinds = [], kinds_for(releases)
    for same in zip(*of_parts, strict=True):
        values = by_run.over_iterations([account.node_values for account in same])
        if by_run.merged and (kind := kinds.get(same[0].name)) is not None and same[0].delta is None:
            usual = kind.compute(by_run.parts[0], ANY_DELTA).node_values  # not that of a method with accounts of its own
            exact = kind.of_runs(releases)
            values = exact if exact is not None and np.array_equal(usual, same[0].node_values) else values
        worst = max(same, key=lambda account: float(account.values[-1]))
        proven = all(account.proven for account in same)
        joined.append(replace(worst, node_values=values.max(axis=0), run_values=values, proven=proven))
    return tuple(joined)


def curve(found: Sequence[Account]) -> "RecordedCurve | None":
    """Of the first account that is proven, finite and knows one."""
    from dpadmm_mpi.privacy.recorded_curves import curve_of

    for account in found:
        if account.profile is not None and account.proven and np.isfinite(account.values[-1]):
            return curve_of(account.profile)
    return None


def checked(account: Any, cls: type[object], function: str, shape: tuple[int, int]) -> Account:
    """What a class from outside calls an account."""
    if not is_inside(cls):
        if not isinstance(account, Account):
            raise InputError(f"{place_of(cls)}: {function} must return an Account; found {type(account).__name__}")
        if np.shape(account.node_values) != shape:
            raise InputError(
                f"{place_of(cls)}: node_values of the account {account.name} must have the shape {shape}, one more than the "
                f"iterations, and nodes; found {np.shape(account.node_values)}"
            )
    found: Account = account
    return found


def calibrate(releases: R, target: float, account: str, delta: float) -> R:
    """The same releases with the noise that meets the target by the named account."""
    kinds = {kind.target: kind for kind in kinds_for(releases).values()}
    refuse_account(kinds, account)
    if releases.unaccounted:
        raise InputError(
            f"privacy.target: cannot be met: {releases.unaccounted}; write its `accounts`, or give the size of the noise"
        )
    kind, by_run = kinds[account], releases.by_run()
    if by_run is not None:
        return _not_above(kind, _calibrated_by_run(releases, by_run, kind, target, delta), target, delta)
    return _not_above(kind, kind.calibrate(releases, target, delta), target, delta)


def _not_above(kind: AccountKind[Any], releases: R, target: float, delta: float) -> R:
    """With as little more noise as brings the account, as it is recorded, down to the target.

    A search may look at the last step alone, or at some nodes, in an order of its own: what it ends at is then above the
    target by a rounding, or by the grid of a convolution. An account that is infinite stays so: it says that nothing is met.
    """
    step = SMALLEST_STEP
    while target < (spent := _total(kind, releases, delta)) < np.inf:
        if step > LARGEST_STEP:
            raise InputError(
                f"privacy.target: {target:g} cannot be met: the account {kind.label} is still {spent:.6g} there; raise it"
            )
        step = max(2.0 * step, 1.5 * (spent / target - 1.0))
        releases = releases.with_more_noise(1.0 + step)
    return releases


def _total(kind: AccountKind[Any], releases: Releases, delta: float) -> float:
    """Of the worst node in the worst run."""
    parts = [releases] if (by_run := releases.by_run()) is None else by_run.parts
    return max(float(kind.spent(part, delta).max()) for part in parts)


def _calibrated_by_run(releases: R, by_run: ByRun[R], kind: AccountKind[Any], target: float, delta: float) -> R:
    """For the worst node in the worst run: a part with fewer data steps is calibrated only where it fails so far."""
    first, *others = by_run.parts
    found, basis = kind.calibrate(first, target, delta), first
    for part in others:
        if _total(kind, part.as_calibrated(basis, found), delta) > target:
            found, basis = kind.calibrate(part, target, delta), part
    return releases.as_calibrated(basis, found)


def refuse_account(kinds: "dict[str, AccountKind[Any]]", account: str) -> None:
    if account not in kinds:
        from dpadmm_mpi.config.reading import one_of

        raise InputError(f'privacy.target_account: found "{account}"; there are {one_of(kinds)}')
