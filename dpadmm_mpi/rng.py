"""Randomness by address: (seed, purpose, run, node, iteration) -> generator.

Nothing else in the package creates a generator. Philox is a counter-based cipher, so an address is a place in
its counter rather than a hash: two different addresses can never share a random number, and a rank that
hosts node i draws what any other rank would have drawn for it.
"""

from collections.abc import Iterator
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

Generator = np.random.Generator


class Purpose(IntEnum):
    """What the randomness is for; the numbers are part of every result and never change."""

    NOISE = 1
    INIT = 2
    GRAPH = 3
    SPLIT = 4
    RECORDS = 5
    TEST_RECORDS = 6
    CLASSIFIER = 7
    SAMPLES = 8
    INNER_NOISE = 9
    RELEASE = 10
    EDGE_NOISE = 11  # its address has an edge in the place of the node
    LOSS = 12  # from here to CHANGE the address has two nodes in the place of the node, and a stream in that of the iteration
    DELAY = 13
    ABSENCE = 14
    CHANGE = 15  # of redrawn graphs, the number of the graph in the place of the iteration
    COMPRESSION = 16
    LATENCY = 17  # two nodes in the place of the node, an exchange of an iteration in that of the iteration
    BANDWIDTH = 18
    CANARIES = 20
    TRIALS = 30
    TRIES = 31
    SCORES = 32


def generator(seed: int, purpose: Purpose, run: int = 0, node: int = 0, iteration: int = 0) -> Generator:
    """The generator of one address. The lowest counter word is left to the draws themselves."""
    key = np.array([seed, purpose], dtype=np.uint64)
    counter = np.array([0, iteration, node, run], dtype=np.uint64)
    return np.random.Generator(np.random.Philox(key=key, counter=counter))


def generators(seed: int, purpose: Purpose, runs: range, nodes: NDArray[np.int64], iteration: int) -> Iterator[Generator]:
    """The generators of all nodes in the first run, in the second, ...: each is gone when the next one comes.

    The same as `generator` for each address, at a fraction of the cost: one cipher is moved from address to address.
    """
    cipher = np.random.Philox(key=np.array([seed, purpose], dtype=np.uint64))
    rng = np.random.Generator(cipher)
    # Plain tuples: taking the words out of arrays costs four times as much as all else.
    key, unused = (seed, int(purpose)), (0, 0, 0, 0)
    place: dict[str, Any] = {**cipher.state, "buffer": unused}
    for run in runs:
        for node in nodes.tolist():
            place["state"] = {"counter": (0, iteration, node, run), "key": key}
            cipher.state = place  # type: ignore[assignment]  # any sequence of words will do
            yield rng
