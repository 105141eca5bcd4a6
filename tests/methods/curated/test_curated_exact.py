"""gl-exact-admm, [C] (3)-(5): against MINPACK and conic solvers, at the optimum, and below its bound."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from curated_cases import curated_config
from oracles import curated as reference
from support import all_records, curated_plan, dense, result_of

from dpadmm_mpi import RunError
from dpadmm_mpi.methods.curated import exact
from dpadmm_mpi.types import Array


@pytest.mark.parametrize("case", range(6))
def test_equal_to_a_plain_implementation(tmp_path: Path, case: int) -> None:
    """Random maps with fewer and more rows than columns, l1 and l2, any rho and start: every iterate to 1e-7."""
    rng = np.random.default_rng(case)
    d, kind = int(rng.integers(1, 6)), ("l1", "l2")[case % 2]
    A = rng.standard_normal((int(rng.integers(d, d + 3)), d))
    np.save(tmp_path / "A.npy", A)
    lambda1, rho = 0.05 * rng.random(), float(10 ** rng.uniform(-2, 1))
    config = curated_config(
        "gl-exact-admm",
        12,
        seed=case,
        data={"features": d},
        problem={"lambda1": lambda1, "regulariser": kind, "map": "file", "map_path": str(tmp_path / "A.npy")},
        algorithm={"rho": rho, "init": "random"},
    )
    result = result_of(config)
    X, y = all_records(curated_plan(config)[1])
    x0 = result["server_trajectory"][0, 0]
    problem = reference.Problem(X, y, A, kind, lambda1, rho, np.nan, np.nan)
    path, w, u = reference.exact_admm(problem, x0, 12)
    np.testing.assert_allclose(result["server_trajectory"][0], path, atol=1e-7)
    np.testing.assert_allclose(result["final/splitting"][0], w, atol=1e-7)
    np.testing.assert_allclose(result["final/dual"][0], u, atol=1e-7)
    assert np.linalg.norm(path[-1] - path[0]) > 1e-2


@pytest.mark.parametrize(("kind", "map"), [("l1", "graphical-lasso"), ("l2", "identity")])
def test_it_ends_at_the_optimum_of_a_conic_solver(kind: str, map: str) -> None:
    """Its own optimum and the conic one to 1e-8 in the objective, in fewer iterations than the linearised method needs."""
    problem = {"lambda1": 0.01, "regulariser": kind, "map": map} | ({"sparsity": 0.1} if map != "identity" else {})
    gaps = {}
    for method in ("gl-exact-admm", "gl-admm"):
        record = {"optimum": True, "trajectory": False}
        config = curated_config(method, 400, problem=problem, algorithm={"rho": 0.1}, record=record)
        plan, dataset = curated_plan(config)
        _, smallest = reference.optimum(*all_records(dataset), dense(plan.settings.A.A), kind, 0.01)
        result = result_of(config)
        gaps[method] = np.abs(result["objective"][0] - smallest)
        if method == "gl-exact-admm":
            assert abs(result["objective_gap"][0, -1]) < 1e-8
            assert result["consensus_error"][0, -1] < 1e-6
    needed = {method: int(np.flatnonzero(gap > 1e-8)[-1]) + 1 for method, gap in gaps.items()}
    assert needed["gl-exact-admm"] < 400
    assert needed["gl-exact-admm"] < needed["gl-admm"]


def test_a_small_penalty_takes_many_gradients_and_is_solved_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """rho = 1e-5, where the x step is badly conditioned: solved; too few gradients end with a sentence."""
    config = curated_config("gl-exact-admm", 3, problem={"lambda1": 1e-4}, algorithm={"rho": 1e-5})
    path = result_of(config)["server_trajectory"][0]
    X, y = all_records(curated_plan(config)[1])
    w = np.zeros(5)  # w_1, for x_0 = u_0 = 0
    residual = reference.gradient(path[1], X, y) + 1e-5 * (path[1] - w)
    assert np.linalg.norm(residual) < 1e-10
    monkeypatch.setattr(exact, "ROUNDS", 3)
    with pytest.raises(RunError, match="the x step was not solved to a relative residual"):
        result_of(config)


def test_a_step_that_goes_too_far_is_shortened(monkeypatch: pytest.MonkeyPatch) -> None:
    """From an H that is far too small the first step overshoots: without the shorter ones it does not get there."""
    rounds: list[Array] = []
    begun, round_of = exact.ExactNodes.begin, exact.round_of

    def steep(self: exact.ExactNodes, x: Array) -> Any:
        c = begun(self, x)
        memory = c.memory.copy()
        memory[-(len(x) ** 2) :] *= 1e-6
        return c._replace(memory=memory)

    def watched(c: Any, gradient: Array, s: Any, first: bool) -> Any:
        rounds.append(c.x_hat)
        return round_of(c, gradient, s, first)

    config = curated_config("gl-exact-admm", 1, problem={"lambda1": 1e-4}, algorithm={"rho": 1e-4})
    honest = result_of(config)["server_trajectory"]
    monkeypatch.setattr(exact.ExactNodes, "begin", steep)
    monkeypatch.setattr(exact, "round_of", watched)
    np.testing.assert_allclose(result_of(config)["server_trajectory"], honest, atol=1e-5)
    assert max(np.linalg.norm(x) for x in rounds) > 100 * np.linalg.norm(honest[0, -1])


def test_the_criterion_stays_below_its_bound() -> None:
    """[C] (18) without its linearised part: (rho ||A (x_0 - x*)||^2 + ||y*||^2 / rho) / (2 T), with A = I."""
    metrics = ["mean_criterion", "mean_criterion_bound"]
    config = curated_config("gl-exact-admm", 40, algorithm={"rho": 0.1}, record={"optimum": True, "metrics": metrics})
    result = result_of(config)
    X, y = all_records(curated_plan(config)[1])
    best = result["optimum/primal"]
    multiplier = -reference.gradient(best, X, y)
    R, bound = result["mean_criterion"][0, 1:], result["mean_criterion_bound"][0, 1:]
    expected = (0.1 * best @ best + multiplier @ multiplier / 0.1) / (2 * np.arange(1, 41))
    np.testing.assert_allclose(bound, expected, rtol=1e-5)
    assert np.all(bound >= R)
    assert R[0] > 0.05 * bound[0]
