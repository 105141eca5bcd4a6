"""A privacy account as it is recorded: one number per iteration and node, and what it rests on."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Account:
    name: str  # under /privacy, and behind "node_"
    title: str
    node_values: Array  # (T+1, N): everything released up to the iteration; inf if not private
    theorem: str
    proven: bool
    neighbours: str  # what two neighbouring data sets are
    delta: float | None = None  # None: a pure bound

    @property
    def values(self) -> Array:
        """The worst node's, (T+1,)."""
        return np.asarray(self.node_values.max(axis=1))
