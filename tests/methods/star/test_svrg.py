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
from dpadmm_mpi.problems.losses import LOGISTIC as PACKAGE_LOGISTIC
from dpadmm_mpi.problems.losses import huber as package_huber
from dpadmm_mpi.problems.objective import NodeProblem
from dpadmm_mpi.rng import Purpose, generator
from dpadmm_mpi.types import Array


def loop_case(
    rng: Generator,
    d: int = 33,
    M: int = 60,
    S: int = 70,
    width: float = 0.0,
    noise_std: float = 0.4,
    extrapolated: bool = False,
):
    inner = svrg.Inner(steps=S, eta=0.2, rho=1.1, v_L=1.35, extrapolated=extrapolated, width=width, noise_std=noise_std)
    X = rng.standard_normal((M, d)) * (rng.random((M, d)) < 0.3)
    X /= np.maximum(np.linalg.norm(X, axis=1, keepdims=True), 1.0)
    vectors = [rng.standard_normal(d) for _ in range(3)]
    return inner, X, vectors, rng.integers(M, size=S)


@pytest.mark.parametrize("width", [0.0, 0.3])
@pytest.mark.parametrize("noise_std", [0.0, 0.4])
def test_compiled_and_plain_loop_agree(rng: Generator, monkeypatch: pytest.MonkeyPatch, width: float, noise_std: float) -> None:
    """With and without numba, dense and CSR records, one block and many: the same numbers."""
    pytest.importorskip("numba")
    inner, X, vectors, m = loop_case(rng, width=width, noise_std=noise_std)
    loss = package_huber(width) if width else PACKAGE_LOGISTIC

    def loop(records: tuple[Array, Array]):
        return svrg.inner_loop(inner, NodeProblem(records, loss, 1.0, 0.0), *vectors, m, generator(1, Purpose.INNER_NOISE))

    compiled = loop(X)
    assert svrg.compiled_steps() is not svrg.vectorised_steps
    assert np.max(np.abs(loop(sparse.csr_array(X)) - compiled)) < 1e-12
    monkeypatch.setattr(svrg, "BLOCK", 1)
    assert np.array_equal(loop(X), compiled)
    monkeypatch.setattr(svrg, "compiled_steps", lambda: svrg.vectorised_steps)
    assert np.max(np.abs(loop(X) - compiled)) < 1e-12


@pytest.mark.parametrize("width", [0.0, 0.3])
def test_slope_inside_the_loop_is_the_loss(width: float) -> None:
    """One step of size 1 from v, one feature, no penalty: what it moves by is L'(v) - L'(v~)."""
    loss = package_huber(width) if width else PACKAGE_LOGISTIC
    for v in (-800.0, -3.0, 0.0, 0.8, 1.2, 2.0, 800.0):
        start = np.array([v])
        for steps in (svrg.compiled_steps(), svrg.vectorised_steps):
            moved, _ = steps(start, start, np.ones((1, 1)), np.array([0]), np.zeros(1), np.zeros((1, 1)), 0.0, 1.0, width)
            assert math.isclose(v - moved[0], loss.first(start)[0], rel_tol=1e-9, abs_tol=1e-12)


def test_numba_is_loaded_by_stochastic_methods_only() -> None:
    program = (
        "import sys, dpadmm_mpi; result_of({'iterations': 1, 'data': {'records': 50, 'features': 2}, "
        "'algorithm': {'method': 'star-admm'}}); print('numba' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stdout == "False\n"


def test_without_numba_the_methods_run() -> None:
    program = (
        "import sys; sys.modules['numba'] = None; import dpadmm_mpi; print(result_of({'iterations': 2, 'data': "
        "{'records': 50, 'features': 2}, 'algorithm': {'method': 's-admm'}})['loss'][0, -1])"
    )
    plain = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    raw = {"iterations": 2, "data": {"records": 50, "features": 2}, "algorithm": {"method": "s-admm"}}
    assert float(plain.stdout) == pytest.approx(result_of(raw)["loss"][0, -1], rel=1e-12)
