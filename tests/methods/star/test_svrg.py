"""The inner loop of the stochastic methods, compiled and plain."""

import math
import subprocess
import sys

import numpy as np
import pytest
from numpy.random import Generator
from scipy import sparse
from support import result_of

from dpadmm_mpi.methods.star import svrg
from dpadmm_mpi.problems.losses import HuberHinge, Logistic, Loss, losses
from dpadmm_mpi.problems.objective import NodeProblem
from dpadmm_mpi.rng import Purpose, generator
from dpadmm_mpi.types import Array, Matrix

LOSSES: list[Loss] = [Logistic(), HuberHinge(width=0.3)]
each_loss = pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: losses.name_of(type(loss)))


def forms(loss: Loss) -> tuple[svrg.Steps, svrg.Steps, svrg.Steps]:
    """The steps compiled, uncompiled, and with numpy from the loss itself, as a loss without a scalar form has them."""
    slope = type(loss).scalar_slope
    assert slope is not None
    return svrg.compiled_steps(slope), svrg.vectorised(slope), svrg.steps_of(WithoutScalarForm(loss=loss))


class WithoutScalarForm(Loss):
    """The same loss, of which only whole arrays are known."""

    loss: Loss

    def value(self, z: Array) -> Array:
        return self.loss.value(z)

    def first(self, z: Array) -> Array:
        return self.loss.first(z)

    def second(self, z: Array) -> Array:
        return self.loss.second(z)

    @property
    def slope_bound(self) -> float:
        return self.loss.slope_bound

    @property
    def curvature_bound(self) -> float:
        return self.loss.curvature_bound


@each_loss
@pytest.mark.parametrize("noise_std", [0.0, 0.4])
def test_compiled_and_plain_loop_agree(rng: Generator, monkeypatch: pytest.MonkeyPatch, loss: Loss, noise_std: float) -> None:
    """With and without numba or a scalar form, dense and CSR records, one block and many: the same numbers."""
    pytest.importorskip("numba")
    M, d, S = 60, 33, 70
    inner = svrg.Inner(steps=S, eta=0.2, rho=1.1, v_L=1.35, extrapolated=False, noise_std=noise_std)
    X = rng.standard_normal((M, d)) * (rng.random((M, d)) < 0.3)
    X /= np.maximum(np.linalg.norm(X, axis=1, keepdims=True), 1.0)
    start, dual, server = rng.standard_normal((3, d))
    m = rng.integers(M, size=S)

    def loop(records: Matrix, loss: Loss = loss) -> Array:
        problem = NodeProblem(records, loss, 1.0, 0.0)
        return svrg.inner_loop(inner, problem, start, dual, server, m, generator(1, Purpose.INNER_NOISE))

    compiled = loop(X)
    assert len(set(forms(loss))) == 3
    assert np.max(np.abs(loop(sparse.csr_array(X)) - compiled)) < 1e-12
    assert np.max(np.abs(loop(X, WithoutScalarForm(loss=loss)) - compiled)) < 1e-12
    monkeypatch.setattr(svrg, "BLOCK", 1)
    assert np.array_equal(loop(X), compiled)
    monkeypatch.setattr(svrg, "compiled_steps", svrg.vectorised)
    assert np.max(np.abs(loop(X) - compiled)) < 1e-12


@each_loss
def test_slope_inside_the_loop_is_the_loss(loss: Loss) -> None:
    """One step of size 1 from v, one feature, no penalty: what it moves by is L'(v) - L'(v~)."""
    zero, parameters = np.zeros((1, 1)), np.array(loss.parameters, dtype=np.float64)
    for v in (-800.0, -3.0, 0.0, 0.8, 1.2, 2.0, 800.0):
        start = np.array([v])
        for steps in forms(loss):
            moved, _ = steps(start, start, np.ones((1, 1)), np.array([0]), np.zeros(1), zero, 0.0, 1.0, parameters)
            assert math.isclose(v - moved[0], loss.first(start)[0], rel_tol=1e-9, abs_tol=1e-12)


def test_numba_is_loaded_by_stochastic_methods_only() -> None:
    program = (
        "import sys, dpadmm_mpi; dpadmm_mpi.run({'iterations': 1, 'data': {'records': 50, 'features': 2}, "
        "'algorithm': {'method': 'star-admm'}}); print('numba' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stdout == "False\n"


def test_without_numba_the_methods_run() -> None:
    program = (
        "import sys; sys.modules['numba'] = None; import dpadmm_mpi; print(dpadmm_mpi.run({'iterations': 2, 'data': "
        "{'records': 50, 'features': 2}, 'algorithm': {'method': 's-admm'}})['loss'][0, -1])"
    )
    plain = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    raw = {"iterations": 2, "data": {"records": 50, "features": 2}, "algorithm": {"method": "s-admm"}}
    assert float(plain.stdout) == pytest.approx(result_of(raw)["loss"][0, -1], rel=1e-12)
