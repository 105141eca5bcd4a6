"""What is free: more accuracy from what was released, without another look at the records (docs/budget.md).

Whatever is computed from released values alone is post-processing and costs no privacy. Nothing in this module has records: its
functions take released vectors, as (runs, places, features), and give vectors.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Generic, Literal, TypeVar

import msgspec
import numpy as np
from msgspec import Meta, field

from dpadmm_mpi.config.options import Auto, Count, Options
from dpadmm_mpi.methods.nodes import State, extended, replaced
from dpadmm_mpi.types import Array, Ints

S = TypeVar("S", bound=State)

AGREEMENT = 1e-6  # of their disagreement, what consensus = "auto" leaves to the nodes at most
AVERAGED, CONSENSUS = "averaged", "consensus"  # further fields of a state, and how what is measured at them is called
BEFORE = "consensus_before"


class Since(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The iterations from one on."""

    first: Count = field(name="from")


class FreeAccuracy(Options):
    """What any method can have whose released vectors are iterates: their running average."""

    average: Literal["none", "half", "all"] | Since = "none"  # over which of the released iterates a mean is kept

    def averages_from(self, iterations: int) -> int | None:
        """The first iteration of the average; None: there is none. The second half is that of all iterations of the run."""
        if isinstance(self.average, Since):
            return self.average.first
        return {"none": None, "half": iterations // 2 + 1, "all": 1}[self.average]

    def recycled(self) -> int | None:
        """Recycled steps after each data step; None: the method has none."""
        return None

    def consensus_steps(self) -> int | Auto:
        return 0


class FreeOnNetwork(FreeAccuracy):
    """On a network without a hub also consensus: averaging with the neighbours, after the last iteration."""

    consensus: Annotated[int, Meta(ge=0)] | Auto = 0  # steps; "auto": until a millionth of the disagreement is left

    def consensus_steps(self) -> int | Auto:
        return self.consensus


class FreeWithRecycling(FreeOnNetwork):
    """And of a method that recycles, how often."""

    recycle: Annotated[int, Meta(ge=0)] = 1  # recycled steps after each data step

    def recycled(self) -> int | None:
        return self.recycle


@dataclass(frozen=True)
class FreeSteps(Generic[S]):
    """The free steps of a run: a running average of the iterates, and consensus steps behind the last iteration.

    The state of the method gets further fields; the method's own are never changed.
    """

    iterate: str  # the field of the state that is released, and measured
    first: int | None  # iteration of the average; None: there is none
    accelerations: tuple[float, ...]  # w_k of every consensus step

    @property
    def fields(self) -> tuple[str, ...]:
        averaged = () if self.first is None else (AVERAGED,)
        return (*averaged, CONSENSUS, BEFORE) if self.accelerations else averaged

    def begin(self, state: S) -> S:
        """The state before the first iteration, with the further fields: the average of nothing is the point itself."""
        if not self.fields:
            return state
        return extended(state, dict.fromkeys(self.fields, getattr(state, self.iterate)))

    def averaged(self, state: S, t: int) -> S:
        """Iteration t has a new iterate: the mean of those from the first one on; before it, the iterate itself."""
        if self.first is None:
            return state
        point = getattr(state, self.iterate)
        mean = point if t <= self.first else running_mean(getattr(state, AVERAGED), point, t - self.first + 1)
        return replaced(state, {AVERAGED: mean})

    def at(self, state: S, name: str) -> S:
        """The state with another vector in the place of the iterate, to be measured there."""
        return replaced(state, {self.iterate: getattr(state, name)})

    def begin_consensus(self, state: S) -> S:
        """From the averages, or from the last iterates where there are none."""
        start = getattr(state, self.iterate if self.first is None else AVERAGED)
        return replaced(state, {CONSENSUS: start, BEFORE: start})

    def consensus_step(self, state: S, step: int, own_weights: Array, incoming: Array) -> S:
        """x(k+1), k = step - 1, from the weighted sum of what the neighbours have sent; weights are (places, 1)."""
        now, before, w = getattr(state, CONSENSUS), getattr(state, BEFORE), self.accelerations[step - 1]
        return replaced(state, {CONSENSUS: w * (own_weights * now + incoming) + (1.0 - w) * before, BEFORE: now})

    def finals(self, state: Mapping[str, Array]) -> dict[str, Mapping[str, Array]]:
        """The last state as it is measured at the further vectors, by their names."""
        return {name: {**state, self.iterate: state[name]} for name in (AVERAGED, CONSENSUS) if name in self.fields}


def running_mean(mean: Array, point: Array, count: int) -> Array:
    """Of `count` points with the new one, from that of those before."""
    return mean + (point - mean) / count


def recorded_steps(steps: int, every: int) -> Ints:
    """The consensus steps that get a row: every so many, and the last."""
    return np.array([k for k in range(1, steps + 1) if k % every == 0 or k == steps], dtype=np.int64)
