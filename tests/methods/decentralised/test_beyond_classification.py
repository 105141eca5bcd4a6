"""What [M] says about other problems and other algorithms: note 2 of 2.1, and 6.3 on step sizes and noise."""

from pathlib import Path

import numpy as np
import pytest
from support import Raw, dense, network_plan, result_of, shard_of

from dpadmm_mpi.types import Array

MEANS = '''
import numpy as np
import dpadmm_mpi as dp
from dpadmm_mpi.methods.decentralised.method import MAdmm


@dp.method("means")
class Means(MAdmm):
    """No classifier: O_i(f) = ||f - b_i||^2 / 2, b_i the mean of the node's rows; the nodes agree at the mean of all b_i."""

    def data_step(self, node, state, t):
        b = np.stack([np.asarray(problem.signed.mean(axis=0)).ravel() for problem in node.problems])
        linear, quadratic = self.penalty(node, state, t, 0.0)
        return state._replace(primal=(b - linear) / (1.0 + quadratic[:, None]))
'''


def configuration(algorithm: Raw, iterations: int, **sections: Raw) -> Raw:
    return {
        "iterations": iterations,
        "seed": 4,
        "data": {"records": 400, "features": 5, "train": 1.0},
        "network": {"graph": "random", "nodes": 5},
        "problem": {"C": 20.0, "rho": 0.5},
        "algorithm": algorithm,
    } | sections


def test_another_local_objective(tmp_path: Path) -> None:
    """[M] 2.1, note 2: not limited to classification. A class from outside brings its objective and keeps everything else."""
    (tmp_path / "means.py").write_text(MEANS)
    raw = configuration({"method": "means", "eta": [0.5, 0.6, 0.8, 1.0, 1.2], "theta": 0.5}, 300)
    raw["extensions"] = [str(tmp_path / "means.py")]
    result = result_of(raw)
    _, dataset = network_plan(raw)
    shards = [shard_of(dataset, i) for i in range(5)]
    expected = np.mean([(dense(shard.X) * shard.y[:, None]).mean(axis=0) for shard in shards], axis=0)
    assert np.abs(result["final/primal"][0] - expected).max() < 1e-8


# [M] 6.3: in ADMM the sensitivity does not depend on the step size, so that smaller steps (a larger eta) need more noise for
# privacy; in a subgradient method both the step and the noise that it needs shrink together. Whether accuracy and privacy gain
# at once is no matter of a test: results/ judges it.

ETAS = (0.5, 1.0, 2.0, 4.0)


def test_in_admm_the_noise_grows_while_the_step_shrinks() -> None:
    """The same alpha: the cost of a data step falls as 1/eta ([M] (26)), the noise in the objective grows as eta, and the node
    moves less without noise."""
    costs, moves = [], []
    for eta in ETAS:
        raw = configuration({"method": "m-admm", "eta": eta, "theta": 0.5}, 1, record={"trajectory": True})
        free = result_of(raw)["trajectory"][0]
        moves.append(np.linalg.norm(free[1] - free[0], axis=1).mean())
        private = raw | {"privacy": {"perturbation": "penalty", "alpha": 3.0}}
        costs.append(result_of(private)["privacy/bound"][-1])
        plan, _ = network_plan(private)
        perturbation, degree = plan.releases.perturbation, plan.releases.V
        factor = perturbation.objective_factor(np.full(5, eta), degree)  # type: ignore[attr-defined]
        assert factor == pytest.approx(2.0 * eta * degree)
    assert np.array(costs) * ETAS == pytest.approx(np.full(4, costs[0] * ETAS[0]))
    assert (np.diff(moves) < 0).all()


def subgradient_step(X: Array, y: Array, f: Array, neighbours_mean: Array, step: float) -> Array:
    """One step of the distributed subgradient method (Huang et al., 2015), as an oracle: mix, then descend."""
    slopes = -y / (1.0 + np.exp(y * (X @ f)))
    return np.asarray(neighbours_mean - step * (X.T @ slopes) / len(y))


def test_in_a_subgradient_method_both_shrink() -> None:
    """Replacing a record moves a step's result in proportion to the step: at most 2 step / B, and so does the noise for it."""
    rng = np.random.default_rng(6)
    X = rng.normal(size=(40, 5))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    y = np.sign(rng.normal(size=40))
    f, mixed = rng.normal(size=5), rng.normal(size=5)
    shifts = []
    for step in (1.0, 0.5, 0.25, 0.125):
        moved = []
        for n in range(40):
            other = y.copy()
            other[n] = -other[n]
            moved.append(subgradient_step(X, other, f, mixed, step) - subgradient_step(X, y, f, mixed, step))
        shifts.append(np.linalg.norm(moved, axis=1).max())
        assert shifts[-1] <= 2.0 * step / 40
    assert np.array(shifts) / (1.0, 0.5, 0.25, 0.125) == pytest.approx(np.full(4, shifts[0]))
