"""Trying to prove the accounts wrong: the exact privacy loss of recorded runs, and attacks on what was released."""

from dpadmm_mpi.audit.attack import Attack, attack
from dpadmm_mpi.audit.exact import Audit, audit

__all__ = ["Attack", "Audit", "attack", "audit"]
