"""Schedules by hand; every named graph; what is refused."""

import pytest
from support import Raw, result_of

from dpadmm_mpi.config import schedules
from dpadmm_mpi.config.schedules import Geometric, Schedule
from dpadmm_mpi.errors import InputError


def expand(value: Schedule, steps: int = 3, nodes: int = 2) -> list[list[float]]:
    values: list[list[float]] = schedules.expand(value, steps, nodes, "algorithm.eta").tolist()
    return values


def test_schedules_by_hand() -> None:
    assert expand(2.0) == [[2, 2], [2, 2], [2, 2]]
    assert expand(Geometric(first=1.0, ratio=2.0)) == [[1, 1], [2, 2], [4, 4]]
    assert expand([1.0, 2.0, 3.0]) == [[1, 1], [2, 2], [3, 3]]  # over data steps
    assert expand([1.0, 5.0]) == [[1, 5], [1, 5], [1, 5]]  # over nodes
    assert expand([1.0, 5.0], steps=2) == [[1, 5], [1, 5]]  # as many as nodes: over nodes
    assert expand([Geometric(first=1.0, ratio=3.0), [4.0, 5.0, 6.0]]) == [[1, 4], [3, 5], [9, 6]]


def test_an_ambiguous_list_is_said() -> None:
    """As many numbers as nodes and as data steps: one per node, and a note that it is so."""
    common = {"data": {"records": 60, "features": 3}, "network": {"nodes": 3}}
    for iterations, expected in ((3, True), (4, False)):
        raw = {**common, "iterations": iterations, "algorithm": {"method": "m-admm", "eta": [1.0, 1.1, 1.2]}}
        result = result_of(raw)
        assert result["algorithm/eta"][1].tolist() == [1.0, 1.1, 1.2]
        assert ("read as one per node" in result.attributes["/"]["notes"]) == expected


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        ([1.0, 2.0, 3.0, 4.0], r"found a list of 4; one entry per node \(2\) or one per data step \(3\)"),
        ([Geometric(first=1.0, ratio=1.0)], r"found a list of 1; one entry per node \(2\) is needed"),
        ([1.0, [1.0, 2.0]], r"algorithm.eta\[1\]: found a list of 2 values; one per data step is needed, 3"),
        (Geometric(first=1.0, ratio=1e200), "leaves the range of numbers"),
    ],
)
def test_schedules_that_do_not_fit(value: Schedule, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        expand(value)


@pytest.mark.parametrize(
    ("algorithm", "sentence"),
    [
        ({"method": "admm", "eta": [1.0, 1.0, 1.0, 1.0, 2.0]}, "admm has one fixed penalty .* use m-admm"),
        ({"method": "r-admm", "eta": {"first": 1.0, "ratio": 1.1}}, "r-admm has one fixed penalty .* use mr-admm"),
        ({"method": "mr-admm", "eta": {"first": 1.0, "ratio": 0.9}}, r"falls from 1 to 0.9 at node 0, data step 2"),
        ({"method": "m-admm", "eta": [1.0, 1.0, 0.9, 1.0]}, "falls from 1 to 0.9 at node 0, data step 3"),
        ({"method": "m-admm", "eta": 1.0, "theta": 2.0}, "found 2 at node 0, data step 1, above the penalty 1"),
        ({"method": "mr-admm", "eta": 1.0, "theta": [1.0, 1.0, 1.5, 1.0, 1.0]}, "found 1.5 at node 2, data step 1"),
    ],
)
def test_penalties_that_a_method_does_not_take(algorithm: Raw, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        result_of({"iterations": 4, "algorithm": algorithm})


def test_dual_perturbation_needs_a_fixed_penalty_and_neighbours() -> None:
    for method in ("m-admm", "mr-admm"):
        growing = {"method": method, "eta": {"first": 1.0, "ratio": 1.1}}
        with pytest.raises(InputError, match=r'"dual" is defined for a fixed penalty.*use "penalty"'):
            result_of({"algorithm": growing, "privacy": {"perturbation": "dual", "alpha": 1.0}})
    for perturbation in ("dual", "penalty"):
        with pytest.raises(InputError, match="a single node has none"):
            result_of({"network": {"nodes": 1}, "privacy": {"perturbation": perturbation, "alpha": 1.0}})
