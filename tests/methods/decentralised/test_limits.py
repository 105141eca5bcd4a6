"""Where the nodes end: growing penalties stop short, a limit lets them go on, unequal dual steps lead elsewhere."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import minimize

import dpadmm_mpi
from dpadmm_mpi.methods.base import Assumptions, make_plan
from dpadmm_mpi.methods.experiment import parse

Array = NDArray[np.float64]
NODES, C, RHO = 5, 10.0, 0.5


def configuration(algorithm: dict[str, Any], iterations: int = 400, **sections: Any) -> dict[str, Any]:
    raw: dict[str, Any] = {
        "iterations": iterations,
        "seed": 3,
        "data": {"records": 500, "features": 4, "train": 1.0, "split": "by-label", "skew": 0.6},
        "network": {"graph": "complete", "nodes": NODES},
        "problem": {"C": C, "rho": RHO},
        "algorithm": algorithm,
        "record": {"optimum": True, "every": iterations},
    }
    return raw | sections


def weighted_optimum(raw: dict[str, Any], weights: Array) -> Array:
    """argmin sum_i w_i O_i by scipy, from the records themselves; no code of the package but the making of records."""
    _, dataset = make_plan(parse(raw))
    shards = [dataset.loader.shard(dataset.address(i)) for i in range(NODES)]

    def total(f: Array) -> tuple[float, Array]:
        value, gradient = 0.0, np.zeros_like(f)
        for weight, shard in zip(weights, shards, strict=True):
            z = shard.y * (np.asarray(shard.X) @ f)
            value += weight * (C * np.mean(np.logaddexp(0.0, -z)) + RHO / NODES * float(f @ f) / 2)
            slopes = -shard.y / (1.0 + np.exp(z))
            gradient += weight * (C * np.asarray(shard.X).T @ slopes / len(z) + RHO / NODES * f)
        return value, gradient

    found = minimize(total, np.zeros(4), jac=True, method="BFGS", options={"gtol": 1e-12})
    return np.asarray(found.x)


FREEZING = {"method": "m-admm", "eta": {"first": 1.05, "ratio": 1.05}, "theta": 1.0}


def test_growing_penalties_stop_short_and_a_limit_lets_the_nodes_go_on() -> None:
    """eta = 1.05^t: agreement far from the optimum, however long it runs; with a limit within 1e-6 of it."""
    ends = [dpadmm_mpi.run(configuration(FREEZING, iterations)) for iterations in (300, 600)]
    distances = [float(end["distance_to_optimum"][0, -1]) for end in ends if end is not None]
    assert min(distances) > 0.01
    assert distances[1] == pytest.approx(distances[0], rel=1e-3)  # frozen, not slow
    assert all(end is not None and end["consensus_error"][0, -1] < 1e-6 for end in ends)
    assert all(end is not None and "short of the optimum" in end.attributes["/"]["notes"] for end in ends)
    limited = FREEZING | {"eta": {"first": 1.05, "ratio": 1.05, "limit": 1.5}}
    result = dpadmm_mpi.run(configuration(limited, 1500))
    assert result is not None
    assert result["distance_to_optimum"][0, -1] < 1e-6
    assert "short of the optimum" not in result.attributes["/"]["notes"]


def lines(algorithm: dict[str, Any]) -> str:
    plan, dataset = make_plan(parse(configuration(algorithm)))
    return "\n".join(plan.conditions(Assumptions(dataset=dataset)))


@pytest.mark.parametrize("method", ["m-admm", "mr-admm"])
def test_check_does_not_say_that_growing_penalties_converge(method: str) -> None:
    said = lines(FREEZING | {"method": method})
    assert "holds  convergence" not in said
    assert "give algorithm.eta a limit" in said
    assert "give algorithm.eta a limit" not in lines(FREEZING | {"method": method, "eta": 1.0})


def test_check_gives_no_rate_for_unequal_penalties() -> None:
    unequal = {"method": "m-admm", "eta": [1.0, 1.5, 2.0, 1.0, 1.2], "theta": 1.0}
    assert "no rate is proven" in lines(unequal)
    assert "delta(t) >=" not in lines(unequal)
    assert "delta(t) >=" in lines(unequal | {"eta": 1.5})


def test_the_curvature_of_the_records_is_said_and_smaller_than_that_of_the_norms() -> None:
    plan, dataset = make_plan(parse(configuration({"method": "m-admm", "eta": 1.5, "theta": 1.0})))
    with_records, without = (" ".join(plan.conditions(Assumptions(dataset=d))) for d in (dataset, None))
    assert "largest eigenvalue" in with_records
    assert "records of norm 1" in without
    rates = [float(text.split("delta(t) >= ")[1].split()[0]) for text in (with_records, without)]
    assert rates[0] > rates[1]


@pytest.mark.parametrize(
    ("algorithm", "weights"),
    [
        ({"method": "mr-admm", "eta": [1.0, 1.5, 2.0, 1.0, 1.2], "gamma": 0.5}, [1.0, 1.5, 2.0, 1.0, 1.2]),
        ({"method": "m-admm", "eta": 2.0, "theta": [1.0, 1.5, 2.0, 1.0, 1.2]}, [1.0, 1.5, 2.0, 1.0, 1.2]),
    ],
)
def test_unequal_dual_steps_end_at_the_weighted_optimum(algorithm: dict[str, Any], weights: list[float]) -> None:
    """sum_i lambda_i / theta_i stays 0, so the limit is argmin sum_i O_i / theta_i, to 1e-6; and not the optimum."""
    raw = configuration(algorithm, 3000)
    result = dpadmm_mpi.run(raw)
    assert result is not None
    expected = weighted_optimum(raw, 1.0 / np.array(weights))
    assert np.linalg.norm(result["final/primal"][0] - expected, axis=1).max() < 1e-6 * np.linalg.norm(expected)
    assert np.linalg.norm(weighted_optimum(raw, np.ones(NODES)) - expected) > 1e-3 * np.linalg.norm(expected)
    assert "argmin sum_i O_i / theta_i" in result.attributes["/"]["notes"]


def test_gamma_may_be_a_schedule(rng: np.random.Generator) -> None:
    """A constant schedule is the number; a growing one is recorded and changes the recycled steps from its second value on."""
    base = {"method": "mr-admm", "eta": 1.0}
    record = {"record": {"trajectory": True}}
    one, same, growing = (
        dpadmm_mpi.run(configuration(base | {"gamma": gamma}, 6, **record))
        for gamma in (0.5, {"first": 0.5, "ratio": 1.0}, {"first": 0.5, "ratio": 2.0})
    )
    assert one is not None and same is not None and growing is not None
    assert np.array_equal(one["trajectory"], same["trajectory"])
    assert growing["algorithm/gamma"][2::2, 0].tolist() == [0.5, 1.0, 2.0]
    assert np.array_equal(one["trajectory"][:, :4], growing["trajectory"][:, :4])
    assert not np.allclose(one["trajectory"][:, 4], growing["trajectory"][:, 4])


@pytest.mark.parametrize(
    ("algorithm", "words"),
    [
        ({"method": "m-admm", "eta": {"first": 2.0, "ratio": 0.99, "limit": 1.0}, "theta": 0.5}, "falls from"),
        ({"method": "m-admm", "eta": 1.0, "theta": 1.5}, "above the penalty"),
    ],
)
def test_what_no_theorem_covers_runs_when_it_is_allowed(algorithm: dict[str, Any], words: str) -> None:
    with pytest.raises(dpadmm_mpi.InputError, match=f"{words}.*allow_unproven"):
        dpadmm_mpi.run(configuration(algorithm, 5))
    result = dpadmm_mpi.run(configuration(algorithm | {"allow_unproven": True}, 5))
    assert result is not None
    assert "no theorem covers that" in result.attributes["/"]["notes"]
