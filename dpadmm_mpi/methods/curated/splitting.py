"""The constraint A x + B w = c of the curated family ([C] (2)): what w does in it, and the step of w, [C] (3).

B = -I and c = 0, so that w = A x, is one class; a B or c that is given is the other.
"""

import hashlib
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from dpadmm_mpi.errors import InputError, RunError
from dpadmm_mpi.methods.curated.linear_maps import HUGE, UNREADABLE, load_array
from dpadmm_mpi.methods.curated.regularisers import Regulariser
from dpadmm_mpi.types import Array

SWEEPS = 20_000  # over the coordinates of w, at most
EXACT = 1e-13  # the last change of a coordinate, relative to the largest


class Splitting(ABC):
    """How w enters A x + B w = c."""

    @abstractmethod
    def columns(self, rows: int) -> int:
        """How many numbers w has, where A has so many rows."""

    @abstractmethod
    def residual(self, Ax: Array, w: Array) -> Array:
        """A x + B w - c, where A x may hold u too."""

    @abstractmethod
    def step(self, q: Array, regulariser: Regulariser, lambda1: float, rho: float) -> Array:
        """argmin_w lambda1 h(w) + (rho/2) ||q + B w - c||^2, [C] (3) with q = A x + u."""

    @abstractmethod
    def sha256(self, of_map: str) -> str:
        """Of the whole constraint, from that of A."""

    @abstractmethod
    def settled(self, Ax: Array) -> Array:
        """The w with the smallest ||A x + B w - c||."""


class Direct(Splitting):
    """A x - w = 0"""

    def columns(self, rows: int) -> int:
        return rows

    def residual(self, Ax: Array, w: Array) -> Array:
        return Ax - w

    def step(self, q: Array, regulariser: Regulariser, lambda1: float, rho: float) -> Array:
        return regulariser.prox(q, lambda1 / rho)

    def sha256(self, of_map: str) -> str:
        return of_map

    def settled(self, Ax: Array) -> Array:
        return Ax


DIRECT = Direct()


@dataclass(frozen=True, eq=False)
class Given(Splitting):
    """A x + B w = c; the columns of B are independent, so every step of w has one solution."""

    B: Array
    c: Array

    def columns(self, rows: int) -> int:
        return int(self.B.shape[1])

    def residual(self, Ax: Array, w: Array) -> Array:
        return np.asarray(Ax + self.B @ w - self.c)

    def sha256(self, of_map: str) -> str:
        return hashlib.sha256(of_map.encode() + str(self.B.shape).encode() + self.B.tobytes() + self.c.tobytes()).hexdigest()

    @cached_property
    def _gram(self) -> Array:
        return np.asarray(self.B.T @ self.B)

    @cached_property
    def _inverse(self) -> Array:
        return np.asarray(np.linalg.pinv(self.B), dtype=np.float64)

    def settled(self, Ax: Array) -> Array:
        return np.asarray(self._inverse @ (self.c - Ax))

    def step(self, q: Array, regulariser: Regulariser, lambda1: float, rho: float) -> Array:
        """Coordinate after coordinate until none moves: each is a prox of its own. At once where B'B is diagonal."""
        H = self._gram
        target = self.B.T @ (self.c - q)
        w = self.settled(q)
        squares = H.diagonal()
        diagonal = not np.any(H - np.diag(squares))
        for _ in range(SWEEPS):
            moved = 0.0
            for k, square in enumerate(squares):
                rest = (target[k] - H[k] @ w + square * w[k]) / square
                new = float(regulariser.prox(np.array([rest]), lambda1 / (rho * square))[0])
                moved, w[k] = max(moved, abs(new - w[k])), new
            if diagonal or moved <= EXACT * (1.0 + float(np.abs(w).max())):
                return w
        raise RunError(
            f"problem.map_B: the step of w is not found within {SWEEPS} sweeps, for the columns of B are nearly dependent; "
            "give a B with a smaller condition number"
        )


def splitting_of(B: Any, c: Any, rows: int) -> Splitting:
    """The constraint of problem.map_B and problem.map_c, each a file's name, numbers, or None; A has so many rows."""
    if B is None and c is None:
        return DIRECT
    matrix = -np.eye(rows) if B is None else _numbers(B, "problem.map_B")
    vector = np.zeros(rows) if c is None else _numbers(c, "problem.map_c").ravel()
    if matrix.ndim != 2 or matrix.shape[0] != rows or not matrix.shape[1]:
        raise InputError(f"problem.map_B: has the shape {matrix.shape}; A has {rows} rows, and B needs as many")
    if len(vector) != rows:
        raise InputError(f"problem.map_c: has {len(vector)} numbers; A has {rows} rows, and c needs as many")
    if np.linalg.matrix_rank(matrix) < matrix.shape[1]:
        raise InputError("problem.map_B: its columns are not independent, so w is not determined; leave out those that depend")
    return Given(np.ascontiguousarray(matrix), vector)


def _numbers(value: Any, key: str) -> Array:
    try:
        found = np.asarray(load_array(Path(value)) if isinstance(value, str) else value, dtype=np.float64)
    except OSError as error:
        raise InputError(f"{key}: {value} cannot be read: {error.strerror}; name a file that is there") from None
    except UNREADABLE:
        raise InputError(f"{key}: holds no array of numbers; give an .npy or .csv file, or rows of equal length") from None
    if not np.isfinite(found).all() or np.abs(found).max(initial=0.0) > HUGE:
        raise InputError(f"{key}: has an entry that is not a finite number, or beyond {HUGE:g}; replace it")
    return found
