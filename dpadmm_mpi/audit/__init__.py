"""Trying to prove the accounts wrong: the exact privacy loss of recorded runs, and attacks on what was released."""

from dpadmm_mpi.audit.attack import Attack, attack
from dpadmm_mpi.audit.exact import Audit, audit
from dpadmm_mpi.audit.one_run import OneRunAudit, audit_one_run

__all__ = ["Attack", "Audit", "OneRunAudit", "attack", "audit", "audit_one_run"]
