"""Losses, a node's objective, and the exact solvers of it: damped Newton, a kept factorisation, batches of small nodes."""

from dpadmm_mpi.problems.local_problems import LocalProblems
from dpadmm_mpi.problems.losses import HuberHinge, Logistic, Loss, losses
from dpadmm_mpi.problems.objective import NodeProblem

__all__ = ["HuberHinge", "LocalProblems", "Logistic", "Loss", "NodeProblem", "losses"]
