"""Randomness by address: (seed, purpose, run, node, iteration) -> generator.

Nothing else in the package creates a generator. Philox is a counter-based cipher, so an address is a place in
its counter rather than a hash: two different addresses can never share a random number, and a rank that
hosts node i draws what any other rank would have drawn for it.
"""

from enum import IntEnum

import numpy as np

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


def generator(seed: int, purpose: Purpose, run: int = 0, node: int = 0, iteration: int = 0) -> Generator:
    """The generator of one address. The lowest counter word is left to the draws themselves."""
    key = np.array([seed, purpose], dtype=np.uint64)
    counter = np.array([0, iteration, node, run], dtype=np.uint64)
    return np.random.Generator(np.random.Philox(key=key, counter=counter))
