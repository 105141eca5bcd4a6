"""Records: sources, preprocessing steps, partitions over the nodes, and the store from which a rank reads its own."""

from typing import TYPE_CHECKING

from dpadmm_mpi.data.dataset import Dataset, Loader, TestSet
from dpadmm_mpi.data.partitions import Partition, partitions
from dpadmm_mpi.data.records import Column, Records
from dpadmm_mpi.data.shard import Shard
from dpadmm_mpi.data.sources import Data, FileSource, Source, StoredSource, sources
from dpadmm_mpi.data.steps import Step, steps
from dpadmm_mpi.registry import loaded_when_asked_for

if TYPE_CHECKING:
    from dpadmm_mpi.data.arrays import Arrays
    from dpadmm_mpi.data.catalogue import PublicDataset, is_fetched, public_datasets
else:
    __getattr__ = loaded_when_asked_for(
        {"data.arrays": ("Arrays",), "data.catalogue": ("PublicDataset", "is_fetched", "public_datasets")}
    )

__all__ = [
    "Arrays",
    "Column",
    "Data",
    "Dataset",
    "FileSource",
    "Loader",
    "Partition",
    "PublicDataset",
    "Records",
    "Shard",
    "Source",
    "Step",
    "StoredSource",
    "TestSet",
    "is_fetched",
    "partitions",
    "public_datasets",
    "sources",
    "steps",
]
