"""Everything that is settled before the first iteration, on rank 0: what cannot work is refused before a record is solved for.

`Plan` is what the engine, the recorder and the tables ask for; each family of methods (families/) fills it in.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dpadmm_mpi.config.options import CURATED, DECENTRALISED, Config
from dpadmm_mpi.data.dataset import Dataset, prepare
from dpadmm_mpi.methods.algorithm import Algorithm
from dpadmm_mpi.methods.measures import Measures, Optimum
from dpadmm_mpi.networks import graphs
from dpadmm_mpi.networks.graphs import Graph
from dpadmm_mpi.privacy.account import Account
from dpadmm_mpi.problems.losses import LOGISTIC, Loss, huber
from dpadmm_mpi.problems.objective import NodeProblem

if TYPE_CHECKING:
    from dpadmm_mpi.parallel.mpi import Transport

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

SIDE_BY_SIDE = 16  # runs at most: more would hardly make a pass over the records cheaper for each
STATE_NUMBERS = 1 << 22  # ... and at most so many numbers in a field of their states,
RECORD_NUMBERS = 1 << 22  # or one for each record of the largest shard: a solve has a few vectors of these


@dataclass(frozen=True)
class Plan(ABC):
    """What every rank knows; small, and free of records."""

    config: Config
    graph: Graph
    sizes: Ints
    total_records: int  # training and test
    features: int
    notes: tuple[str, ...]  # what the user should know about this configuration

    @property
    def nodes(self) -> int:
        return self.graph.nodes

    @property
    def loss(self) -> Loss:
        return loss_of(self.config)

    @property
    def recorded(self) -> Ints:
        """The iterations that get a row: 0, every `record.every`-th, and the last."""
        every, last = self.config.record.every, self.config.iterations
        return np.unique(np.append(np.arange(0, last + 1, every), last))

    @property
    def groups_of_runs(self) -> list[range]:
        """The runs that go side by side and share every pass over the records; by the configuration alone, not the layout."""
        runs = self.config.runs
        size = min(STATE_NUMBERS // (self.nodes * self.features), RECORD_NUMBERS // int(self.sizes.max()))
        size = max(1, min(SIDE_BY_SIDE, size))
        return [range(first, min(first + size, runs)) for first in range(0, runs, size)]

    @property
    def seeks_optimum(self) -> bool:
        """Whether the centralised problem is solved too."""
        return self.config.record.optimum

    @property
    def scales(self) -> Mapping[str, int]:
        """Dimensions of the family's own, beside run, iteration, node and feature."""
        return {}

    @property
    def map_sha256(self) -> str:
        """Of the linear map of the curated family, which the configuration names but does not hold; "": there is none."""
        return ""

    @property
    def map_for_the_record(self) -> Array | None:
        """The map, if it is small."""
        return None

    @property
    @abstractmethod
    def source(self) -> str:
        """Where the method is written down."""

    @property
    def work_in_words(self) -> str:
        return f"{self.config.iterations} iterations"

    @property
    @abstractmethod
    def accounts(self) -> Sequence[Account]:
        """The privacy accounts; computed when somebody asks: rank 0 for the record, nobody else."""

    @property
    @abstractmethod
    def schedules(self) -> Mapping[str, tuple[Array, str]]:
        """What was used, for the record: HDF5 name -> values (T+1, N) and description."""

    @property
    @abstractmethod
    def privacy_in_words(self) -> str: ...

    @abstractmethod
    def improvements(self) -> list[str]:
        """What would lower the largest privacy loss; nothing for a run without noise."""

    @abstractmethod
    def conditions(self, f_ref: float, tau: float, beta: float) -> list[str]:
        """Which conditions of the theorems hold, and by what margin."""

    @abstractmethod
    def problem(self, signed: Any) -> NodeProblem:
        """The problem of a node with these signed rows."""

    def problems(self, shards: Iterable[Any]) -> Sequence[NodeProblem]:
        """The problems of a rank's nodes, from the signed rows of each."""
        return [self.problem(signed) for signed in shards]

    @abstractmethod
    def algorithm(self, places: Ints, problems: Any) -> Algorithm: ...

    @property
    @abstractmethod
    def measures_class(self) -> type[Measures]:
        """What is recorded; its tables tell the recorder what to make room for."""

    def measures(self, problems: Sequence[NodeProblem]) -> Measures:
        return self.measures_class(self, problems)

    @abstractmethod
    def optimum(self, transport: "Transport", problems: Sequence[NodeProblem], owner: Ints) -> Optimum | None:
        """The centralised optimum, on rank 0; all ranks call."""


def loss_of(config: Config) -> Loss:
    width = config.problem.width
    return LOGISTIC if width is None else huber(width)


def make_plan(config: Config) -> tuple[Plan, Dataset]:
    graph = graphs.build(config.network, config.seed)
    dataset = prepare(config.data, graph.nodes, config.seed)
    if config.algorithm.method in DECENTRALISED:
        from dpadmm_mpi.methods.decentralised import plan as decentralised

        return decentralised.make_plan(config, graph, dataset), dataset
    if config.algorithm.method in CURATED:
        from dpadmm_mpi.methods.curated import plan as curated

        return curated.make_plan(config, graph, dataset), dataset
    from dpadmm_mpi.methods.star import plan as star

    return star.make_plan(config, graph, dataset), dataset
