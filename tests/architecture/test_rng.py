"""Random numbers: each has an address, and each address a stream of its own."""

from typing import Any

import numpy as np
from numpy.random import Generator

from dpadmm_mpi.rng import Purpose, generator, generators
from dpadmm_mpi.types import Array


def test_generators_of_many_addresses_are_those_of_each(rng: Generator) -> None:
    """Whatever was drawn from the one before."""
    nodes, runs = np.array([3, 0, 12]), range(2, 4)
    addresses = [(run, int(node)) for run in runs for node in nodes]
    for (run, node), moved in zip(addresses, generators(5, Purpose.NOISE, runs, nodes, 7), strict=True):
        fresh = generator(5, Purpose.NOISE, run, node, 7)
        assert np.array_equal(moved.standard_normal(5), fresh.standard_normal(5))
        assert moved.integers(1000, dtype=np.uint32) == fresh.integers(1000, dtype=np.uint32)  # half a word is left over
        assert moved.standard_gamma(3) == fresh.standard_gamma(3)


def test_addresses_are_streams_of_their_own() -> None:
    """Equal addresses give equal numbers; an address that differs in one place gives others, uncorrelated."""
    base: dict[str, Any] = {"seed": 5, "purpose": Purpose.NOISE, "run": 1, "node": 2, "iteration": 3}

    def draw(**changed: Any) -> Array:
        return generator(**(base | changed)).standard_normal(1000)

    assert np.array_equal(draw(), draw())
    others = [draw(seed=6), draw(purpose=Purpose.INIT), draw(run=2), draw(node=1), draw(iteration=2)]
    others.append(draw(run=2, node=1))  # the same digits elsewhere
    for other in others:
        assert abs(np.corrcoef(draw(), other)[0, 1]) < 5 / np.sqrt(1000)
