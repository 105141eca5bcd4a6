"""The records of all nodes in one place."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from dpadmm_mpi.data.dataset import Dataset, Loader, TestSet, target_of
from dpadmm_mpi.data.partitions import TEST
from dpadmm_mpi.data.records import Target
from dpadmm_mpi.data.shard import Shard
from dpadmm_mpi.types import Ints


@dataclass(frozen=True)
class MergedLoader:
    """Shards one after the other."""

    loader: Loader[Any]

    def shard(self, address: list[Any]) -> Shard:
        shards = [self.loader.shard(each) for each in address]
        y = np.concatenate([shard.y for shard in shards])
        if all(isinstance(shard.X, np.ndarray) for shard in shards):
            return Shard(np.concatenate([np.asarray(shard.X) for shard in shards]), y)
        from scipy import sparse

        return Shard(sparse.vstack([shard.X for shard in shards], format="csr"), y)


@dataclass(frozen=True)
class MergedDataset:
    """A data set whose only node has the records of all nodes of another one, node after node."""

    parts: Dataset[Any]

    @property
    def loader(self) -> MergedLoader:
        return MergedLoader(self.parts.loader)

    @property
    def features(self) -> int:
        return self.parts.features

    @property
    def target(self) -> Target:
        return target_of(self.parts)

    @property
    def sizes(self) -> Ints:
        return np.array([self.parts.sizes.sum()])

    def address(self, node: int) -> list[Any]:
        return [self.parts.address(i) for i in range(len(self.parts.sizes))]

    def sample(self, count: int) -> Shard:
        return self.parts.sample(count)

    def test(self) -> TestSet | None:
        return self.parts.test()

    def node_of_record(self) -> Ints:
        return np.where(self.parts.node_of_record() == TEST, TEST, 0)

    def description(self) -> dict[str, Any]:
        return {name: value for name, value in self.parts.description().items() if name != "node_names"}

    def feature_names(self) -> list[str] | None:
        return self.parts.feature_names()

    def notes(self) -> list[str]:
        found: list[str] = getattr(self.parts, "notes", list)()
        return found

    def leaks(self) -> list[str]:
        found: list[str] = getattr(self.parts, "leaks", list)()
        return found
