"""Losses, a node's objective, and the exact solvers of it: damped Newton, a kept factorisation, batches of small nodes."""

from dpadmm_mpi.problems.local_problems import LocalProblems
from dpadmm_mpi.problems.losses import HuberHinge, HuberRegression, LeastSquares, Logistic, Loss, ResidualLoss, Softmax, losses
from dpadmm_mpi.problems.objective import NodeProblem
from dpadmm_mpi.problems.softmax import SoftmaxProblem, node_problem

__all__ = [
    "HuberHinge", "HuberRegression", "LeastSquares", "LocalProblems", "Logistic", "Loss", "NodeProblem", "ResidualLoss",
    "Softmax", "SoftmaxProblem", "losses", "node_problem",
]  # fmt: skip
