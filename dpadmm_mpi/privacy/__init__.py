"""Noises and the places where they enter, releases as plain records, accounts over them, composition and calibration.

Nothing here sees a record or a message.
"""

from dpadmm_mpi.privacy.account import Account, AccountKind, accounts, accounts_of
from dpadmm_mpi.privacy.noises import Noise, noises
from dpadmm_mpi.privacy.perturbations import DataStepPerturbation, Perturbation, Privacy, perturbations
from dpadmm_mpi.privacy.releases import CuratedReleases, NetworkReleases, Releases, StarReleases

__all__ = [
    "Account",
    "AccountKind",
    "CuratedReleases",
    "DataStepPerturbation",
    "NetworkReleases",
    "Noise",
    "Perturbation",
    "Privacy",
    "Releases",
    "StarReleases",
    "accounts",
    "accounts_of",
    "noises",
    "perturbations",
]
