"""What a family measures in every recorded iteration: numbers at the nodes, and one observation of them on rank 0.

Runs that go side by side are measured together: what is measured has them as its first axis. This is a channel of its own,
beside the algorithm's: what travels here is for the record, and is not released.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

import numpy as np

from dpadmm_mpi.data.dataset import TestSet
from dpadmm_mpi.errors import InputError
from dpadmm_mpi.methods.metrics import Metric, NodeMetric, Observation, Optimum, metrics
from dpadmm_mpi.methods.nodes import State
from dpadmm_mpi.problems.objective import NodeProblem
from dpadmm_mpi.registry import first_line, is_inside, place_of
from dpadmm_mpi.types import Array, Ints

S = TypeVar("S", bound=State)


class Quantity(NamedTuple):
    """A dataset of the record: its dimensions (behind run and iteration, or behind run), and what it is."""

    dims: tuple[str, ...]
    description: str
    attributes: Mapping[str, Any] = {}

    def elsewhere(self, place: str) -> "Quantity":
        """The same, measured at other points: averaged, or after consensus."""
        about = {
            key: f"{words}, {place}" if key in ("title", "column") and words else words
            for key, words in self.attributes.items()
        }
        return Quantity(self.dims, f"{self.description}; {place}", about)


Layout = dict[str, Quantity]


class Columns:
    """A row of numbers as named parts, in one order on every rank."""

    def __init__(self, widths: Mapping[str, int]) -> None:
        ends = np.cumsum(list(widths.values())).tolist()
        self.width = sum(widths.values())
        self._parts = {name: slice(end - width, end) for (name, width), end in zip(widths.items(), ends, strict=True)}

    def pack(self, values: Mapping[str, Array]) -> Array:
        """(..., numbers) of parts (..., width)."""
        return np.concatenate([values[name] for name in self._parts], axis=-1)

    def unpack(self, rows: Array) -> dict[str, Array]:
        """Views of the parts; a part of width 1 without its last axis."""
        return {
            name: rows[..., part.start] if part.stop == part.start + 1 else rows[..., part]
            for name, part in self._parts.items()
        }


class Measures(ABC, Generic[S]):
    """What a family records of its states."""

    # That are always recorded, where they apply; those that need the optimum, where it is sought
    metrics: ClassVar[tuple[str, ...]]
    descriptions: ClassVar[Mapping[str, str]]  # in the family's own words
    trajectory_layout: ClassVar[Layout]  # on request
    finals: ClassVar[Layout]  # dimensions behind run
    iterate: ClassVar[str] = ""  # the field of the state that is released and measured, to be averaged on request; "": none
    of_iterates_only: ClassVar[tuple[str, ...]] = ()  # metrics that compare the iterate with what is not averaged with it
    of_released: ClassVar[bool] = False  # at_nodes() looks at what the nodes release, and at nothing that receiving changes

    def __init__(self, features: int, sizes: Ints, recorded: Mapping[str, Metric], problems: Sequence[NodeProblem]) -> None:
        self.features, self.sizes = features, sizes
        self.problems = problems
        self.recorded = recorded
        self._at_nodes = [metric for metric in self.recorded.values() if isinstance(metric, NodeMetric)]
        self.columns = Columns(self.widths() | {_column(metric): 1 for metric in self._at_nodes})
        self.test: TestSet | None = None  # these three on rank 0 only
        self.optimum: Optimum | None = None
        self.classes = 2  # that the labels have

    @classmethod
    def layout(cls, recorded: Mapping[str, Metric], with_optimum: bool) -> Layout:
        """Datasets with a value per run and recorded iteration."""
        made: Layout = {}
        for name, metric in recorded.items():
            if metric.needs_optimum and not with_optimum:
                continue
            words = cls.descriptions.get(name) or first_line(type(metric))
            attributes = {
                "title": metric.title,
                "units": metric.unit,
                "scale": metric.scale,
                "column": metric.column,
                "lower_is_better": metric.lower_is_better,
            }
            dims = ("node",) if metric.per_node else ("class",) if metric.per_class else ()
            made[name] = Quantity(dims, words, attributes)
        return made

    @abstractmethod
    def widths(self) -> dict[str, int]:
        """What each node sends to rank 0: name -> how many numbers."""

    def shared(self, state: S) -> Array | None:
        """The hub's classifiers, (runs, d), which are sent to all ranks to be measured at; None without a hub."""
        return None

    @abstractmethod
    def at_nodes(self, state: S, shared: Array | None) -> dict[str, Array]:
        """The numbers of this rank's nodes, each (runs, nodes of this rank, width)."""

    @abstractmethod
    def points(self, state: S, shared: Array | None) -> Array:
        """Where this rank's nodes are measured, (runs, nodes of this rank, d)."""

    def rows(self, state: S, shared: Array | None) -> Array:
        """(runs, nodes of this rank, numbers)"""
        values = self.at_nodes(state, shared)
        if self._at_nodes:
            points = self.points(state, shared)
            for metric in self._at_nodes:
                numbers = [
                    _checked(metric, "at_node", metric.at_node(problem, points[:, k]), (len(points),))
                    for k, problem in enumerate(self.problems)
                ]
                values[_column(metric)] = np.array(numbers).reshape(len(self.problems), len(points)).T[..., None]
        return self.columns.pack(values)

    @staticmethod
    def _vectors(points: Array) -> Array:
        """(runs, nodes, features), also of a single feature."""
        return points if points.ndim == 3 else points[..., None]

    def forget(self) -> None:
        """Whatever the work of this iteration has left to be measured: after a restart, the next one would not find it."""
        return

    @abstractmethod
    def observe(self, numbers: Mapping[str, Array], state: S, t: int) -> Observation:
        """Iteration t, from the numbers of all nodes in node order, on rank 0."""

    def trajectory(self, numbers: Mapping[str, Array], state: S) -> dict[str, Array]:
        """What `trajectory_layout` names."""
        return {}

    def values(self, rows: Array, state: S, t: int) -> dict[str, Array]:
        """The record of iteration t from the rows of all nodes in node order, on rank 0: one entry for each run."""
        numbers = self.columns.unpack(rows)
        seen = self.observe(numbers, state, t)
        if self.classes != 2:
            seen = replace(seen, classes=self.classes)
        if self._at_nodes:
            at_nodes = {metrics.name_of(type(metric)): numbers[_column(metric)] for metric in self._at_nodes}
            seen = replace(seen, at_nodes=at_nodes)
        made = {
            name: _checked(metric, "value", metric.value(seen), self._shape(metric, rows))
            for name, metric in self.recorded.items()
        }
        return made | self.trajectory(numbers, state)

    def _shape(self, metric: Metric, rows: Array) -> tuple[int, ...]:
        """Of its values, from the rows, (runs, nodes, numbers)."""
        if metric.per_class:
            return len(rows), self.classes
        return rows.shape[: 2 if metric.per_node else 1]

    @abstractmethod
    def final(self, state: Mapping[str, Array]) -> dict[str, Array]:
        """What is kept of the last states, on rank 0; every field is (runs, all places, ...)."""


def _column(metric: Metric) -> str:
    return f"metric {metrics.name_of(type(metric))}"


def _checked(metric: Metric, function: str, numbers: Any, shape: tuple[int, ...]) -> Array:
    """What a metric from outside has measured."""
    if is_inside(type(metric)):
        return numbers
    found = np.asarray(numbers)
    if found.shape != shape or found.dtype.kind not in "fiub":
        what = "a number for each run and node" if len(shape) == 2 else "a number for each run"
        raise InputError(
            f"{place_of(type(metric))}: {function} must return {what}, an array of shape {shape}; found {found.dtype} of shape "
            f"{found.shape}"
        )
    return found.astype(np.float64)
