"""What was released, as plain records: data that the privacy accounts fold over. Enough for every account, free of records."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Self

import numpy as np

from dpadmm_mpi.privacy.data_steps import DataSteps
from dpadmm_mpi.privacy.noises import Noise
from dpadmm_mpi.privacy.perturbations import Perturbation
from dpadmm_mpi.types import Array, Bools, Ints


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

    @property
    def nodes(self) -> int:
        return len(self.V)

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
        return replace(self, iterations=last, **kept)

    def with_more_noise(self, factor: float) -> Self:
        assert self.noise is not None
        return replace(self, parameter=self.parameter * factor ** -float(self.noise.exponent))

    def of_nodes(self, nodes: Ints) -> Self:
        """Of some nodes alone: rho/N stays what it is."""
        over_nodes = {name: getattr(self, name)[:, nodes] for name in ("eta", "theta", "parameter")}
        worth = None if self.worth is None else self.worth[nodes]
        return replace(
            self, V=self.V[nodes], B=self.B[nodes], rho=self.rho * len(nodes) / self.nodes, worth=worth, **over_nodes
        )

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
        return replace(self, iterations=last, data_steps=self.data_steps[:touches], growth=self.growth[:touches])


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
