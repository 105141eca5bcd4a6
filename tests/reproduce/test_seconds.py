"""Panels over seconds, as [C] Fig. 1 has them."""

import numpy as np
from support import result_of

from dpadmm_mpi.reproduce.pictures import Panel, lines


def test_a_panel_over_seconds_has_what_was_computed_until_then() -> None:
    """x: the seconds of all nodes, mean over the runs, added up over the iterations; y: the mean over the runs."""
    raw = {"iterations": 6, "runs": 3, "data": {"records": 200, "features": 4}, "algorithm": {"method": "gl-admm"}}
    result = result_of(raw | {"record": {"optimum": True}})
    (curve,) = lines(Panel("a", "objective_gap", [("v", "ADMM")], over="computing time"), {"v": result})
    spent = result["timing/compute_seconds"].sum(axis=2).mean(axis=0)
    np.testing.assert_allclose(curve.x, [spent[: k + 1].sum() for k in range(7)], rtol=1e-12)
    assert curve.x[-1] > curve.x[1] > 0.0
    np.testing.assert_allclose(curve.mean, result["objective_gap"].mean(axis=0))
