"""What was released, as plain records: data that the privacy accounts fold over. Enough for every account, free of records."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, NamedTuple, Self, TypeVar

import numpy as np

from dpadmm_mpi.privacy.data_steps import DataSteps
from dpadmm_mpi.privacy.noises import Noise
from dpadmm_mpi.privacy.perturbations import Perturbation
from dpadmm_mpi.types import Array, Bools, Ints

MOST_STEPS = 600  # of all columns, that accounts are computed for one by one where runs differ


@dataclass(frozen=True, kw_only=True)
class Releases:
    """Everything that is ever released in a run."""

    iterations: int  # T, or K of [S]
    features: int
    unaccounted: str = ""  # why no account holds; "": they do

    @property
    def nodes(self) -> int:
        raise TypeError("a kind of releases says how many nodes there are")

    @property
    def touches(self) -> int:
        """How often the records are touched: in every iteration, unless a kind says otherwise."""
        return self.iterations

    def first(self, touches: int) -> Self:
        """What is released before the records are touched once more."""
        raise TypeError("a kind of releases says what its first part is")

    def with_more_noise(self, factor: float) -> Self:
        """The same with noise that is larger by a factor."""
        raise TypeError("a kind of releases says how its noise grows")

    def parts(self) -> Sequence[tuple[Ints, Self]]:
        """Nodes with what they release, where not all touch their records equally often."""
        return [(np.arange(self.nodes), self)]

    def by_run(self) -> "ByRun[Self] | None":
        """What each node releases in each run, where runs differ in that; None: they do not."""
        return None

    def as_calibrated(self, before: Self, after: Self) -> Self:
        """With the noise that calibration has made of `before`, of other releases, in `after`."""
        raise TypeError("a kind of releases that differ between runs says how their noise is calibrated")


R = TypeVar("R", bound=Releases)


class ByRun(NamedTuple, Generic[R]):
    """What the nodes release in each run: a column for each way to do it, in parts with equally many data steps.

    The data steps of a part are those that the node itself takes, and numbered as its iterations: 1, 2, ...
    """

    parts: Sequence[R]
    part: Ints  # (runs, nodes): that of a node in a run; -1: it never takes a data step
    column: Ints  # (runs, nodes): in that part
    steps: Ints  # (runs, T+1, nodes): data steps that a node has taken by the end of an iteration
    merged: bool = False  # a column is the worst of all runs, as there are too many to examine each

    def over_iterations(self, values: Sequence[Array]) -> Array:
        """(runs, T+1, nodes) of values after every own data step of the columns of each part, (steps + 1, columns)."""
        found = np.full(self.steps.shape, values[0][0, 0])
        for number, of_part in enumerate(values):
            run, node = np.nonzero(self.part == number)
            found[run, :, node] = of_part[self.steps[run, :, node], self.column[run, node][:, None]]
        return found

    def of_nodes(self, values: Sequence[Ints]) -> Ints:
        """(runs, nodes) of a number for each column of each part; 0 where a node takes no data step."""
        found = np.zeros(self.part.shape, dtype=np.int64)
        for number, of_part in enumerate(values):
            here = self.part == number
            found[here] = of_part[self.column[here]]
        return found


@dataclass(frozen=True)
class InRuns:
    """Where runs differ in what nodes do, (runs, K, N) each."""

    taken: Bools  # whether a node takes a data step
    V: Array  # its neighbours in it

    def first(self, touches: int) -> "InRuns":
        return InRuns(self.taken[:, :touches], self.V[:, :touches])

    def within(self, most: Ints) -> "InRuns":
        """With so many of its data steps at most for each node and run, (runs, N)."""
        before: Ints = np.cumsum(self.taken, axis=1) - self.taken
        return InRuns(self.taken & (before < most[:, None, :]), self.V)

    def by_iteration(self, data_steps: Ints, iterations: int) -> Ints:
        """Data steps that a node has taken by the end of an iteration, (runs, T+1, N)."""
        by_step = np.concatenate([np.zeros_like(self.taken[:, :1], dtype=np.int64), np.cumsum(self.taken, axis=1)], axis=1)
        return by_step[:, np.searchsorted(data_steps, np.arange(iterations + 1), side="right")]


@dataclass(frozen=True, kw_only=True)
class NetworkReleases(DataSteps, Releases):
    """K data steps of N nodes on a network, with noise at some place in them; its parameters are (K, N), nan without noise."""

    perturbation: Perturbation
    noise: Noise | None
    parameter: Array
    tolerance: float = 0.0  # norm of the gradient that a solve may end at; 0: solves are exact
    release_std: float = 0.0  # of the Gaussian noise that hides where they end
    worth: Array | None = None  # (N,) of noise that neighbours share: its deviation given all others' over the parameter
    own_steps: Ints | None = None  # (N,) data steps before a node rests: it leaves its records alone from then on; None: all
    in_runs: InRuns | None = None  # where faults of the network make runs differ; V is then of the network without them

    @property
    def nodes(self) -> int:
        return self.V.shape[-1]

    @property
    def touches(self) -> int:
        return len(self.data_steps)

    @property
    def strength(self) -> Array:
        """The parameter of the noise that protects each node, given what is known of it, (K, N)."""
        return self.parameter if self.worth is None else self.parameter * self.worth

    @property
    def inexact_shift(self) -> Array:
        """What inexact solves shift the Gaussian noise on the release by, over its deviation: 2 tau / (mu s), (K, N)."""
        if not self.tolerance:
            return np.zeros_like(self.eta)
        return 2.0 * self.tolerance / (self.curvature * self.release_std)

    @property
    def active(self) -> Bools:
        """Whether a node touches its records in a data step, (K, N)."""
        if self.own_steps is None:
            return np.ones(self.eta.shape, dtype=bool)
        return np.arange(self.touches)[:, None] < self.own_steps

    def steps_of(self, node: int) -> Ints:
        """The iterations in which a node touches its records."""
        return self.data_steps[self.active[:, node]]

    def first(self, touches: int) -> Self:
        last = self.iterations if touches >= self.touches else int(self.data_steps[touches]) - 1
        kept = {name: getattr(self, name)[:touches] for name in ("data_steps", "eta", "theta", "parameter")}
        if self.V.ndim == 2:
            kept["V"] = self.V[:touches]
        in_runs = None if self.in_runs is None else self.in_runs.first(touches)
        return replace(self, iterations=last, in_runs=in_runs, **kept)

    def with_more_noise(self, factor: float) -> Self:
        assert self.noise is not None
        return replace(self, parameter=self.parameter * factor ** -float(self.noise.exponent))

    def of_nodes(self, nodes: Ints) -> Self:
        """Of some nodes alone: rho/N stays what it is."""
        over_nodes = {name: getattr(self, name)[:, nodes] for name in ("eta", "theta", "parameter")}
        worth = None if self.worth is None else self.worth[nodes]
        return replace(
            self, V=self.V[..., nodes], B=self.B[nodes], rho=self.rho * len(nodes) / self.nodes, worth=worth, **over_nodes
        )

    @property
    def fewest_neighbours(self) -> Array:
        """In any data step that is taken, (N,); of a node that takes none, as without faults."""
        if self.in_runs is not None:
            fewest = np.where(self.in_runs.taken, self.in_runs.V, np.inf).min(axis=(0, 1))
            return np.where(np.isinf(fewest), self.V, fewest)
        return self.V if self.V.ndim == 1 else np.asarray(self.V.min(axis=0))

    def by_run(self) -> "ByRun[Self] | None":
        """Nodes that do the same in several runs share a column. Where there are more columns than can be examined, the k-th
        data step of a node is the worst that it is in any run.
        """
        if self.in_runs is None:
            return None
        taken, counts = self.in_runs.taken, self.in_runs.taken.sum(axis=1)
        runs, _, nodes = taken.shape
        order = np.argsort(~taken, axis=1, kind="stable")  # of each node and run, first the data steps that it takes
        rows = {"eta": self.eta, "theta": self.theta, "parameter": self.parameter, "V": self.in_runs.V}
        own = {name: np.take_along_axis(np.broadcast_to(rows[name], taken.shape), order, axis=1) for name in rows}
        parts, part, column = [], np.full((runs, nodes), -1), np.zeros((runs, nodes), dtype=np.int64)
        merged = self._is_too_much(own, counts)
        if merged:
            own, counts = {name: self._worst(name, own[name], counts) for name in own}, counts.max(axis=0, keepdims=True)
        for number, steps in enumerate(np.unique(counts[counts > 0])[::-1].tolist()):
            run, node = np.nonzero(counts == steps)
            table = np.concatenate([node[None], *(own[name][run, :steps, node].T for name in own)])
            _, chosen, place = np.unique(table, axis=1, return_index=True, return_inverse=True)
            parts.append(self._part(steps, node[chosen], {name: own[name][run, :steps, node].T[:, chosen] for name in own}))
            if merged:
                part[:, node], column[:, node] = number, place.ravel()
            else:
                part[run, node], column[run, node] = number, place.ravel()
        none = self._part(1, np.arange(nodes), {name: own[name][0, :1] for name in own})
        return ByRun(parts or [none], part, column, self.in_runs.by_iteration(self.data_steps, self.iterations), merged)

    def side_by_side(self) -> Self:
        """All data steps of all nodes in all runs, (K, runs * N): also those that are not taken, as without faults."""
        assert self.in_runs is not None
        runs, K, nodes = self.in_runs.taken.shape
        V = np.where(self.in_runs.taken, self.in_runs.V, self.V).swapaxes(0, 1).reshape(K, runs * nodes)
        tiled: dict[str, Any] = {name: np.tile(getattr(self, name), (1, runs)) for name in ("eta", "theta", "parameter")}
        worth = None if self.worth is None else np.tile(self.worth, runs)
        return replace(self, V=V, B=np.tile(self.B, runs), rho=self.rho * runs, worth=worth, in_runs=None, **tiled)

    def _part(self, steps: int, nodes: Ints, own: dict[str, Array]) -> Self:
        """So many data steps of some nodes, with penalties, noise and neighbours of their own, (steps, columns)."""
        worth = None if self.worth is None else self.worth[nodes]
        count = {"iterations": steps, "data_steps": np.arange(1, steps + 1), "rho": self.rho * len(nodes) / self.nodes}
        return replace(self, B=self.B[nodes], worth=worth, in_runs=None, **count, **own)  # type: ignore[arg-type]

    def _is_too_much(self, own: dict[str, Array], counts: Ints) -> bool:
        """Whether there are more data steps in all columns than can be examined, and it is known which noise protects more."""
        runs, K, nodes = own["eta"].shape
        if counts.sum() <= MOST_STEPS or (self.noise is not None and self.noise.exponent == 0):
            return False
        late = np.arange(K)[:, None] >= counts[:, None]
        table = (
            np.concatenate([np.where(late, np.nan, own[name]) for name in own], axis=1).swapaxes(0, 1).reshape(-1, runs * nodes)
        )
        table = np.concatenate([np.nan_to_num(table, nan=-1.0), np.tile(np.arange(nodes), runs)[None]])
        _, chosen = np.unique(table, axis=1, return_index=True)
        return int(counts.ravel()[chosen].sum()) > MOST_STEPS

    def _worst(self, name: str, values: Array, counts: Ints) -> Array:
        """Over the runs in which a node takes so many data steps, (1, K, N) of (runs, K, N)."""
        larger = name == "parameter" and self.noise is not None and self.noise.exponent > 0
        late = np.arange(values.shape[1])[:, None] >= counts[:, None]
        worst = np.where(late, -np.inf if larger else np.inf, values)
        return np.asarray(worst.max(axis=0, keepdims=True) if larger else worst.min(axis=0, keepdims=True))

    def as_calibrated(self, before: Self, after: Self) -> Self:
        """All noise is larger or smaller by a factor."""
        return replace(self, parameter=self.parameter * (after.parameter[0, 0] / before.parameter[0, 0]))

    def parts(self) -> Sequence[tuple[Ints, Self]]:
        if self.own_steps is None:
            return super().parts()
        whole = replace(self, own_steps=None)
        found = []
        for steps in np.unique(self.own_steps).tolist():
            nodes = np.flatnonzero(self.own_steps == steps)
            found.append((nodes, replace(whole.first(steps).of_nodes(nodes), iterations=self.iterations)))
        return found


@dataclass(frozen=True, kw_only=True)
class GaussianReleases(Releases):
    """Gradients with Gaussian noise; noise_std is sigma, 0 for none."""

    noise_std: float

    def with_more_noise(self, factor: float) -> Self:
        return replace(self, noise_std=self.noise_std * factor)


@dataclass(frozen=True, kw_only=True)
class GradientReleases(GaussianReleases):
    """K noisy gradients of each of N nodes, from which all else that travels is computed.

    Glossary: B record counts, (N,); C and G as in the problem: one record weighs C/B, and the slope of its loss is at most G;
    noise_std is sigma of the first gradient; growth is sigma_k / sigma_1, (K,); worth is that of noise that neighbours share,
    (N,), as in NetworkReleases.
    """

    data_steps: Ints  # (K,) the iterations that touch the records
    growth: Array
    B: Array
    C: float
    G: float
    taken: Bools | None = None  # (runs, K, N): whether a node takes a data step, where nodes may be absent; None: all
    worth: Array | None = None

    @property
    def nodes(self) -> int:
        return len(self.B)

    @property
    def touches(self) -> int:
        return len(self.data_steps)

    @property
    def sensitivity(self) -> Array:
        """How far replacing one record moves the gradient of its node, 2 G C / B_i, (N,)."""
        return 2.0 * self.G * self.C / self.B

    @property
    def sigma(self) -> Array:
        """Of every gradient, (K,)."""
        return self.noise_std * self.growth

    def first(self, touches: int) -> Self:
        last = self.iterations if touches >= self.touches else int(self.data_steps[touches]) - 1
        taken = None if self.taken is None else self.taken[:, :touches]
        return replace(self, iterations=last, data_steps=self.data_steps[:touches], growth=self.growth[:touches], taken=taken)


@dataclass(frozen=True, kw_only=True)
class PublishedReleases(GaussianReleases):
    """Of a method that comes with an account of its paper."""


@dataclass(frozen=True, kw_only=True)
class StarReleases(PublishedReleases):
    """Everything that N providers release in K outer iterations of S inner steps ([S] Algorithm 2): S noisy gradients each.

    Glossary: M record counts, (N,); G Lipschitz constant of one record's loss; noise_std is sigma of the first iteration, the
    same for all providers and steps, 0 for none; growth is sigma_k / sigma_1, (K,), empty where sigma does not change; c is the
    constant of [S] Theorem 2, which is not given there.
    """

    inner_steps: int  # S
    M: Array
    G: float = 1.0
    batch_size: int = 1  # records of an inner step
    growth: Array = field(default_factory=lambda: np.zeros(0))
    c: float = 1.0

    def first(self, touches: int) -> Self:
        return replace(self, iterations=touches, growth=self.growth[:touches])

    @property
    def sigma(self) -> Array:
        """Of every outer iteration, (K,)."""
        return self.noise_std * (self.growth if len(self.growth) else np.ones(self.iterations))

    @property
    def nodes(self) -> int:
        return len(self.M)


@dataclass(frozen=True, kw_only=True)
class CuratedReleases(PublishedReleases):
    """Everything that the curator of n records in `shards` shards releases in T iterations ([C] Algorithms 2 and 3).

    Glossary: noise_std is sigma, of the noise added to the mean gradient, 0 for none; c bounds the gradient of one record's
    loss; mu splits epsilon in [C] Theorem 1; noise_shape: the noise of iteration t is noise_std times its t-th entry, None: 1;
    batch: each gradient is the mean over so many records, drawn without replacement, None: over all; u0_as_printed: u_0 comes
    from the exact gradient; map_from_records: A is estimated from the records, which no account pays for.
    """

    records: int  # n
    shards: int
    c: float = 1.0
    mu: float = 0.5
    u0_as_printed: bool = False
    map_from_records: bool = False
    noise_shape: Array | None = None
    batch: int | None = None

    @property
    def nodes(self) -> int:
        return self.shards

    def first(self, touches: int) -> Self:
        shape = self.noise_shape
        return replace(self, iterations=touches, noise_shape=None if shape is None else shape[:touches])

    @property
    def averaged(self) -> int:
        """Records in the mean of one gradient."""
        return self.records if self.batch is None else self.batch

    @property
    def steps(self) -> Array:
        """sum_{s <= t} (noise_std / sigma_s)^2 for t = 0, ..., T: as many iterations with noise_std cost as much."""
        if self.noise_shape is None:
            return np.arange(self.iterations + 1.0)
        return np.concatenate([[0.0], np.cumsum(self.noise_shape**-2.0)])

    @property
    def mean_std(self) -> float:
        """The root of the mean of sigma_t^2."""
        return self.noise_std if self.noise_shape is None else self.noise_std * float(np.sqrt(np.mean(self.noise_shape**2)))
