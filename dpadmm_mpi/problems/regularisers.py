"""Regularisers R(f) of the network problem: smooth, 1-strongly convex, a sum over the features.

All that the privacy proofs need of R is its strong convexity; the exact solvers need its derivatives. R(f) is ||f||^2 / 2 plus
a convex rest, so that the quadratic part stays where the solvers have it.
"""

from abc import abstractmethod
from typing import ClassVar

import numpy as np

from dpadmm_mpi.config.options import NonNegative, Options, Positive
from dpadmm_mpi.registry import Registry
from dpadmm_mpi.types import Array

smooth_regularisers = Registry["SmoothRegulariser"]("regulariser", "smooth_regularisers")


@smooth_regularisers.base
class SmoothRegulariser(Options):
    """R(f) = ||f||^2 / 2 + rest(f), rest convex and separable; functions are of vectors along the last axis."""

    is_ridge: ClassVar[bool] = False  # there is no rest

    @abstractmethod
    def rest(self, f: Array) -> Array:
        """The rest at each vector."""

    @abstractmethod
    def rest_gradient(self, f: Array) -> Array:
        """Its gradient."""

    @abstractmethod
    def rest_curvature(self, f: Array) -> Array:
        """The diagonal of its Hessian, not negative."""


@smooth_regularisers.register("ridge")
class Ridge(SmoothRegulariser):
    """R(f) = ||f||^2 / 2"""

    is_ridge: ClassVar[bool] = True

    def rest(self, f: Array) -> Array:
        return np.zeros(f.shape[:-1])

    def rest_gradient(self, f: Array) -> Array:
        return np.zeros_like(f)

    def rest_curvature(self, f: Array) -> Array:
        return np.zeros_like(f)


@smooth_regularisers.register("pseudo-huber")
class PseudoHuber(SmoothRegulariser):
    """R(f) = ||f||^2 / 2 + strength sum_k s^2 (sqrt(1 + (f_k / s)^2) - 1), s = smoothing: nearly s |f_k| far from zero"""

    strength: NonNegative = 1.0  # weight of the pseudo-Huber part
    smoothing: Positive = 0.1  # width of its rounded tip

    def _root(self, f: Array) -> Array:
        return np.sqrt(1.0 + (f / self.smoothing) ** 2)

    def rest(self, f: Array) -> Array:
        return np.asarray(self.strength * self.smoothing**2 * np.sum(self._root(f) - 1.0, axis=-1))

    def rest_gradient(self, f: Array) -> Array:
        return np.asarray(self.strength * f / self._root(f))

    def rest_curvature(self, f: Array) -> Array:
        return np.asarray(self.strength / self._root(f) ** 3)
