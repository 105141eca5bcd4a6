"""The transport of one process, which has all the nodes: nothing travels."""

import sys
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from dpadmm_mpi.networks.topology import Channel
from dpadmm_mpi.parallel.transport import Gathering, Links, Transport
from dpadmm_mpi.types import Array, Ints

T = TypeVar("T")


class SerialLinks:
    def __init__(self, places: int) -> None:
        self.known = np.arange(places)
        self.vectors_sent = np.zeros(places, dtype=np.int64)

    def start(self, values: Array) -> None:
        self._values = values

    def finish(self) -> Array:
        return self._values

    def close(self) -> None:
        pass


class SerialGathering:
    def __init__(self, rows: Array) -> None:
        self._rows = rows

    def has_arrived(self) -> bool:
        return True

    def finish(self) -> Array:
        return self._rows


class Serial:
    """Every node in this process."""

    rank = 0
    size = 1
    library = "none"

    def broadcast(self, value: Any) -> Any:
        return value

    def deal(self, owner: Ints, make: Callable[[int], T]) -> list[T]:
        return [make(node) for node in range(len(owner))]

    def start_gather(self, rows: Array, owner: Ints) -> Gathering:
        return SerialGathering(rows)

    def gather_objects(self, value: T) -> list[T]:
        return [value]

    def highest(self, values: list[int]) -> list[int]:
        return values

    def split(self, group: int) -> Transport:
        return self

    def links(self, channel: Channel, owner: Ints, width: int, tag: int = 0) -> Links:
        return SerialLinks(len(owner))

    def abort(self, code: int) -> None:
        sys.exit(code)
