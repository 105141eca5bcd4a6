"""How the records of the nodes differ: how many there are, their labels, and where their means lie."""

from typing import ClassVar

import numpy as np
from msgspec import Struct

from dpadmm_mpi.types import Array, Ints, Matrix

MANY_LABELS = 20  # more different ones, of a number that is to be predicted, are counted in so many bins


class Statistics(Struct, frozen=True):
    """Of the training records; computed for the record, not released by the nodes."""

    LABEL_DISTANCE: ClassVar[str] = "total variation distance of the node's labels from those of all training records"
    MEAN_DISTANCE: ClassVar[str] = "distance of the node's mean record from the mean of all training records"

    labels: Array  # the different ones
    counts: Ints  # (nodes, labels)
    mean_distance: Array | None  # None: not taken

    @property
    def sizes(self) -> Ints:
        return self.counts.sum(axis=1)

    @property
    def shares(self) -> Array:
        """Of each label at each node."""
        return self.counts / self.sizes[:, None]

    @property
    def label_distance(self) -> Array:
        """Half of the sum over the labels of |share at the node - share of all|, for each node."""
        everywhere = self.counts.sum(axis=0) / self.counts.sum()
        return 0.5 * np.abs(self.shares - everywhere).sum(axis=1)

    def _share_of_the_last(self) -> list[str]:
        """Of two labels, where it says it all."""
        if len(self.labels) > 2:
            return []
        last, overall = self.shares[:, -1], self.counts[:, -1].sum() / self.counts.sum()
        return [f"share of label {self.labels[-1]:+g} from {last.min():.3f} to {last.max():.3f}, {overall:.3f} of all"]

    def in_words(self) -> str:
        sizes = self.sizes
        words = [
            f"{sizes.min()} to {sizes.max()} records per node",
            *self._share_of_the_last(),
            f"labels differ from those of all by {self.label_distance.mean():.3f} on average and "
            f"{self.label_distance.max():.3f} at most (total variation)",
        ]
        if self.mean_distance is not None:
            words.append(f"mean records by {self.mean_distance.mean():.3g} and {self.mean_distance.max():.3g}")
        return "; ".join(words)


class Counting:
    """Statistics of records that come in blocks."""

    def __init__(self, nodes: int, features: int) -> None:
        self._nodes = nodes
        self._sums: Array | None = np.zeros((nodes, features))
        self._node_of: list[Ints] = []
        self._labels: list[Array] = []

    def add(self, node_of: Ints, labels: Array, X: Matrix | None) -> None:
        """Some training records; without X, no means are taken."""
        self._node_of.append(node_of)
        self._labels.append(labels)
        if X is None or self._sums is None:
            self._sums = None
        elif isinstance(X, np.ndarray):
            order = np.argsort(node_of, kind="stable")
            here, first = np.unique(node_of[order], return_index=True)
            if len(here):
                self._sums[here] += np.add.reduceat(X[order], first, axis=0)
        else:
            entries = np.repeat(node_of, np.diff(X.indptr))
            np.add.at(self._sums, (entries, X.indices), X.data)

    def statistics(self) -> Statistics:
        node_of, labels = np.concatenate(self._node_of), np.concatenate(self._labels)
        values, label_of = np.unique(labels, return_inverse=True)
        if len(values) > MANY_LABELS:
            ends = np.linspace(values[0], values[-1], MANY_LABELS + 1)
            values, label_of = (ends[:-1] + ends[1:]) / 2, np.searchsorted(ends[1:-1], labels, side="right")
        cells = np.bincount(node_of * len(values) + label_of, minlength=self._nodes * len(values))
        counts = cells.reshape(self._nodes, len(values))
        distance = None
        if self._sums is not None:
            mean = self._sums.sum(axis=0) / len(labels)
            distance = np.linalg.norm(self._sums / np.maximum(counts.sum(axis=1), 1)[:, None] - mean, axis=1)
        return Statistics(values, counts, distance)
