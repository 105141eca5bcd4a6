"""Another regulariser than the ridge: derivatives, the optimum, privacy by the audit."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.optimize import check_grad, minimize

import dpadmm_mpi
from dpadmm_mpi.audit import audit
from dpadmm_mpi.methods.base import make_plan
from dpadmm_mpi.methods.experiment import parse
from dpadmm_mpi.problems.regularisers import PseudoHuber, Ridge, SmoothRegulariser, smooth_regularisers

STRENGTH, SMOOTHING = 3.0, 0.1
RAW: dict[str, Any] = {
    "iterations": 400,
    "data": {"records": 500, "features": 5, "train": 1.0},
    "network": {"graph": "complete", "nodes": 4},
    "problem": {"C": 10.0, "rho": 2.0, "regulariser": "pseudo-huber", "strength": STRENGTH, "smoothing": SMOOTHING},
    "algorithm": {"method": "admm", "eta": 0.5},
}


@pytest.mark.parametrize("regulariser", [Ridge(), PseudoHuber(strength=2.0, smoothing=0.3)])
def test_derivatives_fit_and_the_rest_is_convex(regulariser: SmoothRegulariser, rng: np.random.Generator) -> None:
    for f in rng.standard_normal((20, 6)):
        assert check_grad(lambda x: float(regulariser.rest(x)), regulariser.rest_gradient, f) < 1e-6
        step = 1e-6 * rng.standard_normal(6)
        change = regulariser.rest_gradient(f + step) - regulariser.rest_gradient(f - step)
        assert np.allclose(change, 2 * regulariser.rest_curvature(f) * step, atol=1e-10)
        assert (regulariser.rest_curvature(f) >= 0).all()
    assert set(smooth_regularisers) >= {"ridge", "pseudo-huber"}


def test_every_method_ends_at_the_optimum_of_scipy() -> None:
    _, dataset = make_plan(parse(RAW))
    shards = [dataset.loader.shard(dataset.address(i)) for i in range(4)]

    def objective(f: Any) -> float:
        loss = sum(10.0 * np.mean(np.logaddexp(0, -shard.y * (np.asarray(shard.X) @ f))) for shard in shards)
        rest = STRENGTH * np.sum(SMOOTHING**2 * (np.sqrt(1 + (f / SMOOTHING) ** 2) - 1))
        return float(loss + 2.0 * (f @ f / 2 + rest))

    best = minimize(objective, np.zeros(5), method="BFGS", options={"gtol": 1e-10})
    for method in ("admm", "mr-admm"):
        result = dpadmm_mpi.run(RAW | {"algorithm": {"method": method, "eta": 0.5}, "record": {"optimum": True}})
        assert result is not None
        assert np.nanmax(result["kkt_residual"]) <= 1e-10
        assert result["distance_to_optimum"][0, -1] < 1e-6
        assert result.attributes["optimum"]["objective"] == pytest.approx(best.fun, rel=1e-9)
        assert result["objective"][0, -1] == pytest.approx(best.fun, rel=1e-9)


@pytest.mark.parametrize("perturbation", ["objective", "primal"])
def test_the_audit_finds_nothing(perturbation: str, tmp_path: Path) -> None:
    private = {"perturbation": perturbation, "alpha": 3.0}
    few = RAW | {"iterations": 4, "runs": 40, "privacy": private, "record": {"trajectory": True}}
    dpadmm_mpi.run(few, tmp_path / "a.h5")
    assert audit(tmp_path / "a.h5", candidates=3).findings == []
