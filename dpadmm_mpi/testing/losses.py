"""The laws of every loss: derivatives, constants, shapes, solvers, and accounts that use the constants."""

from collections.abc import Iterator

import numpy as np

from dpadmm_mpi.config.options import to_table
from dpadmm_mpi.errors import InputError
from dpadmm_mpi.methods.base import make_plan
from dpadmm_mpi.methods.experiment import experiment
from dpadmm_mpi.methods.star.svrg import steps_of
from dpadmm_mpi.privacy.releases import NetworkReleases
from dpadmm_mpi.problems.local_problems import LocalProblems
from dpadmm_mpi.problems.losses import Loss, losses, wrong_constants
from dpadmm_mpi.problems.newton import TOLERANCE
from dpadmm_mpi.problems.objective import NodeProblem
from dpadmm_mpi.registry import first_line, place_of
from dpadmm_mpi.rng import Purpose, generator
from dpadmm_mpi.testing.laws import Laws
from dpadmm_mpi.types import Array

SHAPES = ((0,), (1,), (7,), (3, 5), (2, 3, 4))
WEIGHTS = (1.0, 100.0)  # C of the problems that are solved
CLOSE = 1e-12

# Records and features for each way of solving (problems/strategies.py).
STRATEGIES = {
    "in a batch of small nodes": (40, 5),
    "with a kept factorisation": (500, 30),
    "by the damped Newton method": (40, 70),
}


def check_loss(loss: Loss) -> None:
    """The laws of every loss.

    `first` and `second` are the derivatives, and the constants hold on sampled points. The functions take arrays of any shape,
    number by number, and leave them as they are. The solvers reach a relative residual of 1e-10, whichever way a node's
    problem is solved. The scalar form, if there is one, agrees with `first`. The constants reach the privacy accounts.

    Parameters
    ----------
    loss : the loss with its options, of a class registered by @dp.loss("NAME")

    Raises
    ------
    AssertionError
        A sentence for each law that the loss breaks.

    Examples
    --------
    >>> import dpadmm_mpi as dp
    >>> dp.testing.check_loss(dp.problems.HuberHinge(width=0.1))
    """
    cls = type(loss)
    if loss.predicts == "classes":
        raise InputError(f"{place_of(cls)}: {cls.__name__} is a loss of several outputs, and the laws are about losses of one")
    laws = Laws(f"{place_of(cls)}: {cls.__name__}")
    laws.expect(bool(first_line(cls)), "it needs a docstring, whose first line says what it is")
    with laws.law("constants"):
        laws.broken += wrong_constants(loss)
    with laws.law("shapes"):
        laws.broken += _wrong_shapes(loss)
    for way, (records, features) in STRATEGIES.items():
        with laws.law(f"solved {way}"):
            residual = _largest_residual(loss, records, features)
            laws.expect(residual <= TOLERANCE, f"solved {way}, the residual is {residual:.1e}, above {TOLERANCE:g}")
    with laws.law("scalar form"):
        laws.broken += _wrong_scalar_form(loss)
    registered = cls in dict(losses.items()).values()
    laws.expect(registered, 'it is not registered: put @dp.loss("NAME") above the class')
    if registered and np.isfinite(loss.slope_bound):  # otherwise noise is refused, and there is no account
        with laws.law("accounts"):
            laws.broken += _wrong_accounts(loss)
    laws.conclude()


def _points(count: int, iteration: int = 0) -> Array:
    return 3.0 * generator(1, Purpose.INIT, iteration=iteration).standard_normal(count)


def _wrong_shapes(loss: Loss) -> Iterator[str]:
    for function in (loss.value, loss.first, loss.second):
        for shape in SHAPES:
            z = _points(int(np.prod(shape))).reshape(shape)
            given = z.copy()
            found = np.asarray(function(given))
            if not np.array_equal(given, z):
                yield f"{function.__name__}(z) must not change z"
            if found.shape != shape:
                yield f"{function.__name__}(z) has the shape {found.shape} for z of shape {shape}; it must be the same"
                break
            one_by_one = [float(np.asarray(function(np.array([number])))[0]) for number in z.ravel()]
            if not np.allclose(found.ravel(), one_by_one, rtol=CLOSE, atol=CLOSE):
                yield f"{function.__name__}(z) of an array of shape {shape} is not that of its numbers one by one"
                break


def _largest_residual(loss: Loss, records: int, features: int) -> float:
    """Over runs side by side, nodes and sizes of the problem; by the gradients themselves, not by what the solver says."""
    rng, worst = generator(2, Purpose.RECORDS, node=features), 0.0
    for C in WEIGHTS:
        rows = rng.standard_normal((2, records, features))
        rows /= np.linalg.norm(rows, axis=-1, keepdims=True)
        problems = LocalProblems([NodeProblem(signed, loss, C, 0.1) for signed in rows.copy()])
        for runs in (1, 3):
            linear, start = rng.standard_normal((2, runs, 2, features))
            quadratic = np.array([0.5, 2.0])
            found, residuals = problems.argmins(linear, quadratic, start)
            worst = max(worst, float(residuals.max()))
            slopes = loss.first(np.einsum("nbd,rnd->rnb", rows, found))
            data = C / records * np.einsum("nbd,rnb->rnd", rows, slopes)
            pull = (0.1 + quadratic)[:, None] * found
            scale = sum(np.linalg.norm(part, axis=-1) for part in (data, pull, linear))
            gradient = np.linalg.norm(data + pull + linear, axis=-1) / np.maximum(scale, 1e-5 * C)
            worst = max(worst, float(gradient.max()) - CLOSE)
    return worst


def _wrong_scalar_form(loss: Loss) -> Iterator[str]:
    scalar = type(loss).scalar_slope
    if scalar is None:
        return
    z, parameters = np.linspace(-20.0, 20.0, 401), np.array(loss.parameters, dtype=np.float64)
    one_by_one = np.array([scalar(float(number), parameters) for number in z])
    off = np.abs(one_by_one - loss.first(z.copy()))
    if not off.max() <= CLOSE * max(1.0, loss.slope_bound):
        yield f"scalar_slope is off by {off.max():.1e} from first at z = {z[int(off.argmax())]:g}"
    steps_of(loss)  # numba, where it is installed, can compile it


def _wrong_accounts(loss: Loss) -> Iterator[str]:
    """[R] (32), summed over the data steps, with the constants that the loss states."""
    C, rho, alpha, steps = 2.0, 1.0, 3.0, 4
    raw = {
        "iterations": steps,
        "data": {"records": 400, "features": 3, "train": 300},
        "problem": {"loss": losses.name_of(type(loss)), **to_table(loss), "C": C, "rho": rho},
        "privacy": {"perturbation": "objective", "alpha": alpha, "allow_unproven": True},
    }
    plan, _ = make_plan(experiment(raw).configs[0])
    r = plan.releases
    assert isinstance(r, NetworkReleases)
    curvature = rho / r.nodes + 2.0 * r.eta * r.V
    expected = (2.0 * C / r.B * (1.4 * loss.curvature_bound / curvature + loss.slope_bound * alpha)).sum(axis=0)
    bound = next(account for account in plan.accounts if account.name == "bound")
    if not np.allclose(bound.node_values[-1], expected, rtol=1e-9):
        yield (
            f"the account says {bound.node_values[-1].max():.6g}, but slope_bound = {loss.slope_bound:g} and curvature_bound = "
            f"{loss.curvature_bound:g} make it {expected.max():.6g}"
        )
