"""Noise vectors: what is drawn, how its size is set, and what it is worth.

Where the noise enters is another choice: perturbations.py.
"""

from abc import abstractmethod
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, TypeAlias

import numpy as np
from msgspec import Meta

from dpadmm_mpi.config.options import NonNegative, Options
from dpadmm_mpi.config.schedules import Schedule
from dpadmm_mpi.errors import InputError
from dpadmm_mpi.privacy.correlated_noise import Neighbours, Worth, worth
from dpadmm_mpi.problems.newton import norms
from dpadmm_mpi.registry import Registry, is_inside, place_of
from dpadmm_mpi.rng import Generator, Purpose, generators
from dpadmm_mpi.types import Array, Ints

if TYPE_CHECKING:
    from dpadmm_mpi.privacy.composition import RandomLoss

noises = Registry["Noise"]("noise", "noises")

# How many nodes pool what they know, at most, or which ones
Colluders: TypeAlias = Annotated[int, Meta(ge=0)] | list[Annotated[int, Meta(ge=0)]]


@noises.base
class Noise(Options):
    """A random vector in R^d whose size a parameter sets, for every data step and node.

    A class from outside defines `parameter`, `schedule`, `sample` and `scaled`; without `pure_loss` or `random_loss` its runs
    have an infinite privacy loss.
    """

    parameter: ClassVar[str]  # the key that sets the size; its values are recorded under /privacy
    words: ClassVar[str] = "noise parameter of the data step; nan if none"
    # Losses depend on shift * parameter^exponent, and `pure_loss` is proportional to it, so that a target can be met; 0: not so
    exponent: ClassVar[int] = 0
    default_account: ClassVar[str] = "bound"  # what a target is a value of, if nothing is said

    @property
    @abstractmethod
    def schedule(self) -> Schedule | None:
        """The value of that key."""

    @abstractmethod
    def sample(self, rng: Generator, features: int) -> Array:
        """One vector of unit size."""

    def samples(self, rngs: Iterator[Generator], count: int, features: int) -> Array:
        """One vector of unit size from each generator, (count, features); each is gone when the next one comes."""
        unit, checked = np.empty((count, features)), not is_inside(type(self))
        for k, rng in enumerate(rngs):
            vector = self.sample(rng, features)
            unit[k] = _checked(self, "sample", vector, (features,)) if checked else vector
        return unit

    @abstractmethod
    def scaled(self, unit: Array, parameter: Array) -> Array:
        """Vectors of unit size, (runs, nodes, features), at the nodes' parameters, (nodes,)."""

    def edge_std(self, parameter: Array) -> Array | None:
        """Standard deviation of what a node shares with each neighbour, with opposite signs; None: noise is each node's own."""
        return None

    def worth(self, neighbours: Neighbours) -> Worth | None:
        """What the nodes' noise is worth, given that of all others, where neighbours share some; None: it is what it is."""
        return None

    def size(self, shift: Array, parameter: Array) -> Array:
        """A shift in units of the noise: what `random_loss` is about, and what calibration scales."""
        return shift * parameter ** float(self.exponent)

    def pure_loss(self, shift: Array, parameter: Array) -> Array:
        """What the privacy loss cannot exceed where a record shifts the noise by at most `shift`; inf: no such number."""
        return np.full(np.broadcast_shapes(shift.shape, parameter.shape), np.inf)

    def random_loss(self, features: int, subspace: int) -> "RandomLoss | None":
        """The law of ln p(e) - ln p(e + v) for shifts v of a size; None: nobody knows it.

        The noise must be log-concave: the loss is convex in v. subspace = 0: v does not depend on e; otherwise the largest loss
        over the v of that size in a subspace of so many dimensions.
        """
        return None

    def log_ratio(self, noise: Array, shifted: Array, parameter: float) -> Array:
        """ln p(noise) - ln p(shifted), along the last axis: the audit's loss of a step, without the determinants."""
        raise NotImplementedError

    def score(self, noise: Array, parameter: float) -> Array:
        """The gradient of ln p, along which the audit looks for the worst neighbours."""
        raise NotImplementedError

    def norm_cdf(self, norm: Array, parameter: Array, features: int) -> Array:
        """The probability of a norm below `norm`, which the audit compares the recovered noise with."""
        raise NotImplementedError


def lacking_for_audit(cls: type[Noise]) -> list[str]:
    """What an audit asks of a noise and a class does not define; what it inherits is compared with what was drawn."""
    return [name for name in ("log_ratio", "score", "norm_cdf") if getattr(cls, name) is getattr(Noise, name)]


@noises.register("gamma")
class Gamma(Noise):
    """Density proportional to exp(-alpha ||e||): the norm is Gamma(d, 1/alpha), the direction uniform.

    [M] section 4, [R] section III.C. `alpha` is a schedule like eta.
    """

    parameter: ClassVar[str] = "alpha"
    exponent: ClassVar[int] = 1

    alpha: Schedule | None = None  # density exp(-alpha ||e||); a schedule like eta

    @property
    def schedule(self) -> Schedule | None:
        return self.alpha

    def sample(self, rng: Generator, features: int) -> Array:
        return self.samples(iter([rng]), 1, features)[0]

    def samples(self, rngs: Iterator[Generator], count: int, features: int) -> Array:
        """Gamma(d) times a normal vector of length 1."""
        direction = np.empty((count, features))
        radii = list[float]()
        for row, rng in zip(direction, rngs, strict=True):
            rng.standard_normal(out=row)
            radii.append(rng.standard_gamma(features))
        return np.asarray(np.array(radii)[:, None] * direction / norms(direction)[:, None])

    def scaled(self, unit: Array, parameter: Array) -> Array:
        return unit / parameter[:, None]

    def pure_loss(self, shift: Array, parameter: Array) -> Array:
        return shift * parameter

    def random_loss(self, features: int, subspace: int) -> "RandomLoss | None":
        from dpadmm_mpi.privacy.gamma_noise import GammaLoss

        return GammaLoss(features, subspace)

    def log_ratio(self, noise: Array, shifted: Array, parameter: float) -> Array:
        """alpha (||e^|| - ||e||)"""
        return np.asarray(parameter * (norms(shifted) - norms(noise)))

    def score(self, noise: Array, parameter: float) -> Array:
        return np.asarray(-parameter * noise / np.maximum(norms(noise)[..., None], 1e-300))

    def norm_cdf(self, norm: Array, parameter: Array, features: int) -> Array:
        from scipy.special import gammainc

        return np.asarray(gammainc(features, parameter * norm))


@noises.register("gaussian")
class Gaussian(Noise):
    """N(0, noise_std^2 I).

    [M] section 6.3, [R] section VII.B. It has no pure bound, but an epsilon, and a Renyi curve at every order. `noise_std` is a
    schedule like eta.
    """

    parameter: ClassVar[str] = "noise_std"
    words: ClassVar[str] = "standard deviation of the noise in the data step; nan if none"
    exponent: ClassVar[int] = -1
    default_account: ClassVar[str] = "epsilon"

    noise_std: Schedule | None = None  # standard deviation; a schedule like eta

    @property
    def schedule(self) -> Schedule | None:
        return self.noise_std

    def sample(self, rng: Generator, features: int) -> Array:
        return rng.standard_normal(features)

    def scaled(self, unit: Array, parameter: Array) -> Array:
        return unit * parameter[:, None]

    def random_loss(self, features: int, subspace: int) -> "RandomLoss | None":
        from dpadmm_mpi.privacy.normal_noise import NormalLoss

        return NormalLoss(features, subspace)

    def log_ratio(self, noise: Array, shifted: Array, parameter: float) -> Array:
        """(||e^||^2 - ||e||^2) / (2 sigma^2)"""
        return np.asarray((np.vecdot(shifted, shifted) - np.vecdot(noise, noise)) / (2.0 * parameter**2))

    def score(self, noise: Array, parameter: float) -> Array:
        return np.asarray(-noise / parameter**2)

    def norm_cdf(self, norm: Array, parameter: Array, features: int) -> Array:
        from scipy.special import gammainc

        return np.asarray(gammainc(0.5 * features, 0.5 * (norm / parameter) ** 2))


@noises.register("correlated-gaussian")
class CorrelatedGaussian(Gaussian):
    """N(0, noise_std^2 I) of each node's own, and a part shared with each neighbour that cancels in the sum over the nodes.

    Neighbours agree on a secret seed. The shared part of an edge is N(0, (edge_ratio noise_std)^2 I), added by one end and
    taken away by the other. All nodes have the same noise_std. The accounts hold against an eavesdropper who sees all that is
    released together with `colluders` nodes, honest but curious, who pool their seeds: any so many, or those that are named.
    """

    edge_ratio: NonNegative = 1.0  # standard deviation of the noise on an edge : noise_std
    colluders: Colluders = 1  # how many nodes pool what they know, at most, or which ones

    def edge_std(self, parameter: Array) -> Array | None:
        return self.edge_ratio * parameter

    def worth(self, neighbours: Neighbours) -> Worth | None:
        return worth(neighbours, self.edge_ratio, self.colluders)


def draw(noise: Noise, seed: int, runs: range, nodes: Ints, iteration: int, parameter: Array, features: int) -> Array:
    """e_i(t), (runs, nodes, d), each from its own address; without what neighbours share (correlated_noise.py)."""
    rngs = generators(seed, Purpose.NOISE, runs, nodes, iteration)
    unit = noise.samples(rngs, len(runs) * len(nodes), features)
    unit = unit.reshape(len(runs), len(nodes), features)
    return _checked(noise, "scaled", noise.scaled(unit, parameter), unit.shape)


def _checked(noise: Noise, function: str, vectors: Any, shape: tuple[int, ...]) -> Array:
    """What a noise from outside has drawn."""
    if not is_inside(type(noise)):
        found = np.asarray(vectors)
        if found.shape != shape or found.dtype.kind not in "fiu":
            raise InputError(f"{place_of(type(noise))}: {function} must return numbers of shape {shape}; found {found.shape}")
    drawn: Array = vectors
    return drawn
