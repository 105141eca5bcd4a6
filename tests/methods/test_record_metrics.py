"""record.metrics: what is recorded beside the metrics of a family, and that nothing else changes."""

from typing import ClassVar

import numpy as np
import pytest
from support import Raw, dense, parsed, planned, result_of, shard_of

from dpadmm_mpi.errors import InputError
from dpadmm_mpi.methods import NodeMetric, metrics
from dpadmm_mpi.problems.objective import NodeProblem
from dpadmm_mpi.types import Array

METHODS = ["mr-admm", "star-admm", "s-admm", "gl-acc-admm"]


@metrics.register("worst-margin-of-the-tests")
class WorstMargin(NodeMetric):
    """The smallest margin of a node's records, scaled."""

    title: ClassVar[str] = "smallest margin"
    column: ClassVar[str] = "margin"
    unit: ClassVar[str] = "1"
    lower_is_better: ClassVar[bool] = False
    per_node: ClassVar[bool] = True

    scale_by: float = 1.0

    def at_node(self, problem: NodeProblem, points: Array) -> Array:
        return np.asarray(self.scale_by * problem.margins(points).min(axis=1))


def raw(method: str, *wanted: str | Raw) -> Raw:
    return {
        "runs": 2,
        "iterations": 4,
        "data": {"records": 120, "features": 4, "train": 100},
        "network": {"nodes": 5},
        "algorithm": {"method": method, "init": "random"},
        "record": {"optimum": True, "trajectory": True} | ({"metrics": list(wanted)} if wanted else {}),
    }


@pytest.mark.parametrize("method", METHODS)
def test_more_is_recorded_and_nothing_else_changes(method: str) -> None:
    """A metric of the package that the family has not by itself, and one from outside with an option, to the bit."""
    plain = result_of(raw(method))
    more = result_of(raw(method, "objective_gap", {"metric": "worst-margin-of-the-tests", "scale_by": 2.0}))
    for name, values in plain.arrays.items():
        if not name.startswith("timing"):
            assert values.tobytes() == more[name].tobytes(), name
    assert np.array_equal(more["objective_gap"], more["objective"] - more.attributes["optimum"]["objective"])
    about = more.attributes["worst-margin-of-the-tests"]
    assert about["title"] == "smallest margin"
    assert (about["column"], about["units"], about["lower_is_better"]) == ("margin", "1", False)
    assert about["description"] == "The smallest margin of a node's records, scaled."
    assert more.dims["worst-margin-of-the-tests"] == ("run", "iteration", "node")
    _, dataset = planned(raw(method))
    points = more["trajectory"] if "trajectory" in more else np.repeat(more["server_trajectory"][:, :, None], 5, axis=2)
    for node in range(5):
        shard = shard_of(dataset, node)
        signed = shard.y[:, None] * dense(shard.X)
        expected = 2.0 * (points[:, :, node] @ signed.T).min(axis=-1)
        np.testing.assert_allclose(more["worst-margin-of-the-tests"][:, :, node], expected, rtol=1e-9)


@pytest.mark.parametrize("method", METHODS)
def test_a_residual_where_nothing_is_solved_is_nan(method: str) -> None:
    residual = result_of(raw(method, "kkt_residual"))["kkt_residual"]
    assert residual.shape == (2, 5, 5)
    assert np.isnan(residual).all() == (method in ("s-admm", "gl-acc-admm"))


def test_what_cannot_be_recorded_is_refused() -> None:
    without = raw("admm", "objective_gap")
    without["record"]["optimum"] = False
    with pytest.raises(InputError, match=r"record\.metrics: objective_gap compares with .*; set record\.optimum = true"):
        parsed(without)
    with pytest.raises(InputError, match=r'record\.metrics\[1\]: found "los"; allowed: .*; did you mean "loss"\?'):
        parsed(raw("admm", "loss", "los"))
    with pytest.raises(InputError, match=r"record\.metrics\[0\]\.scale: unknown key"):
        parsed(raw("admm", {"metric": "loss", "scale": 2}))
