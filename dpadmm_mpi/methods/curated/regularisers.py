"""The term g(A x) of the curated problem: its value and its prox."""

from abc import abstractmethod
from typing import ClassVar

import numpy as np

from dpadmm_mpi.config.options import Options
from dpadmm_mpi.registry import Registry
from dpadmm_mpi.types import Array

regularisers = Registry["Regulariser"]("regulariser", "regularisers")


@regularisers.base
class Regulariser(Options):
    """g(w) = lambda1 h(w), h convex."""

    smooth: ClassVar[bool] = False  # lambda1 ||w||^2 / 2, which the search for the optimum takes as it is

    @abstractmethod
    def value(self, w: Array, lambda1: float) -> float:
        """lambda1 h(w)"""

    @abstractmethod
    def prox(self, v: Array, threshold: float) -> Array:
        """argmin_w threshold h(w) + ||v - w||^2 / 2"""


@regularisers.register("l1")
class L1(Regulariser):
    """lambda1 ||A f||_1: the lasso, fused along the edges of a graph"""

    def value(self, w: Array, lambda1: float) -> float:
        return lambda1 * float(np.abs(w).sum())

    def prox(self, v: Array, threshold: float) -> Array:
        """Soft-thresholding."""
        return np.asarray(np.sign(v) * np.maximum(np.abs(v) - threshold, 0.0))


@regularisers.register("l2")
class L2(Regulariser):
    """lambda1 ||A f||^2 / 2"""

    smooth: ClassVar[bool] = True

    def value(self, w: Array, lambda1: float) -> float:
        return lambda1 * (0.5 * float(w @ w))

    def prox(self, v: Array, threshold: float) -> Array:
        return np.asarray(v / (1.0 + threshold))
