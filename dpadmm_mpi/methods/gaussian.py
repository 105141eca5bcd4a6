"""What the methods with Gaussian noise on gradients share: a sound account, and the paper's where there is one.

Each family says what they are for its own releases.
"""

from dataclasses import replace
from functools import singledispatch
from typing import Any, ClassVar, Literal

from dpadmm_mpi.config.ranges import Between, Space
from dpadmm_mpi.config.schedules import has_size, lacks_first
from dpadmm_mpi.errors import InputError
from dpadmm_mpi.methods.base import Method, methods
from dpadmm_mpi.privacy.account import Account, AccountKind, accounts, calibrate
from dpadmm_mpi.privacy.perturbations import GradientPerturbation, NoisyGradients, Perturbation
from dpadmm_mpi.privacy.releases import GaussianReleases, PublishedReleases, Releases


@singledispatch
def paper_account(releases: PublishedReleases, delta: float) -> Account:
    """The paper's account of a family's releases."""
    raise TypeError(f"no account for {type(releases).__name__}")


@singledispatch
def sound_account(releases: GaussianReleases, delta: float) -> Account:
    """A sound account of a family's releases."""
    raise TypeError(f"no account for {type(releases).__name__}")


@singledispatch
def paper_noise(releases: PublishedReleases, target: float, delta: float) -> float:
    """The standard deviation that meets a target by the paper's account."""
    raise TypeError(f"no account for {type(releases).__name__}")


@singledispatch
def sound_noise(releases: GaussianReleases, target: float, delta: float) -> float:
    """The standard deviation that meets a target by the sound account.

    Where there is a paper's, the search begins there and goes upwards only: who asks for the sound account never gets less
    noise than the paper prescribes for the same numbers.
    """
    raise TypeError(f"no account for {type(releases).__name__}")


def papers_noise_std(releases: PublishedReleases, target: float, delta: float) -> float:
    """Where the search by a sound account begins."""
    return calibrate(releases, target, EpsilonPaper.target, delta).noise_std


@accounts.register("epsilon_paper")
class EpsilonPaper(AccountKind[PublishedReleases]):
    """The paper's epsilon at delta, of Gaussian noise on gradients."""

    applies_to: ClassVar[type[Releases]] = PublishedReleases
    label: ClassVar[str] = "paper's epsilon"
    column: ClassVar[str] = "epsilon paper"
    target: ClassVar[str] = "paper"
    line: ClassVar[Any] = (0, (8, 2))

    def compute(self, releases: PublishedReleases, delta: float) -> Account:
        return paper_account(releases, delta)

    def calibrate(self, releases: PublishedReleases, target: float, delta: float) -> PublishedReleases:
        return replace(releases, noise_std=paper_noise(releases, target, delta))


@accounts.register("epsilon_sound")
class EpsilonSound(AccountKind[GaussianReleases]):
    """Epsilon at delta by an account that counts everything, of Gaussian noise on gradients."""

    applies_to: ClassVar[type[Releases]] = GaussianReleases
    label: ClassVar[str] = "sound epsilon"
    column: ClassVar[str] = "epsilon sound"
    target: ClassVar[str] = "sound"
    counts_budget: ClassVar[Literal["pure", "delta", ""]] = "delta"
    line: ClassVar[Any] = (0, (3, 1.5))

    def compute(self, releases: GaussianReleases, delta: float) -> Account:
        return sound_account(releases, delta)

    def calibrate(self, releases: GaussianReleases, target: float, delta: float) -> GaussianReleases:
        return replace(releases, noise_std=sound_noise(releases, target, delta))


def tuned_noise(method: type[Method]) -> Space:
    """How the noise of a method that has some may change over the iterations."""
    noisy = GradientPerturbation in method.perturbations
    return {"privacy.noise_std.ratio": Between(0.9, 1.1, start=1.0)} if noisy else {}


def needs_target_or_size(method: Method, perturbation: Perturbation) -> None:
    """Gaussian noise is of a given size, or calibrated; one of the two."""
    if not isinstance(perturbation, NoisyGradients):
        return
    if perturbation.target is None and lacks_first(perturbation.noise_std):
        raise InputError("privacy.noise_std: the geometric law needs its first value, as { first = 1.0, ratio = 0.98 }")
    if has_size(perturbation.noise_std) == (perturbation.target is not None):
        raise InputError(
            f"privacy.target: {methods.name_of(type(method))} needs one of privacy.target, an epsilon that the noise is "
            'calibrated to, and privacy.noise_std (or perturbation = "none")'
        )


def refuse_mu(method: Method, perturbation: Perturbation) -> None:
    """Refuse the option that the curated methods alone take."""
    if isinstance(perturbation, GradientPerturbation) and perturbation.mu is not None:
        raise InputError(
            f"privacy.mu: is of the curated methods' Theorem 1, and {methods.name_of(type(method))} has none; remove it"
        )
