"""The solves of a rank's nodes: exact for every shape, and the same bits whatever is solved beside or before them."""

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import pytest
from numpy.random import Generator
from scipy import sparse

from dpadmm_mpi.problems import batched, strategies
from dpadmm_mpi.problems import quasi_newton as quasinewton
from dpadmm_mpi.problems.local_problems import LocalProblems
from dpadmm_mpi.problems.losses import HuberHinge, Logistic, Loss, losses
from dpadmm_mpi.problems.newton import TOLERANCE
from dpadmm_mpi.problems.objective import NodeProblem
from dpadmm_mpi.problems.records import without_zeros
from dpadmm_mpi.problems.strategies import is_small
from dpadmm_mpi.types import Array

LOGISTIC = Logistic()
LOSSES: list[Loss] = [LOGISTIC, HuberHinge(width=0.5), HuberHinge(width=0.05)]
C, RIDGE = 50.0, 0.02

Solves: TypeAlias = tuple[list[Array], Array, Array, Array]  # shards, linear, quadratic, start

# records, features, share of non-zeros: small ones go into batches, the others are solved one by one
SHAPES = {
    "one record": (1, 5, 1.0),
    "one record of many features": (1, 300, 1.0),
    "one feature": (40, 1, 1.0),
    "one feature, many records": (300_000, 1, 1.0),
    "small": (20, 20, 1.0),
    "padded": (23, 7, 0.6),
    "dense": (900, 70, 1.0),
    "sparse": (2500, 70, 0.1),
    "more features than records": (60, 90, 1.0),
}


def rows(rng: Generator, B: int, d: int, density: float) -> Array:
    X = rng.standard_normal((B, d)) * (rng.random((B, d)) < density)
    X /= np.maximum(np.linalg.norm(X, axis=1, keepdims=True), 1.0)
    return X * np.where(rng.random(B) < 0.3, 1.0, -1.0)[:, None]


def relative_gradient(X: Array, loss: Loss, f: Array, linear: Array, ridge: float) -> float:
    """From the definition of O_i, with nothing of the package but the loss."""
    parts = np.stack([C / len(X) * np.einsum("nd,n->d", X, loss.first(np.einsum("nd,d->n", X, f))), ridge * f, linear])
    return float(np.linalg.norm(parts.sum(axis=0)) / np.linalg.norm(parts, axis=1).sum())


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: f"{losses.name_of(type(loss))} {loss.curvature_bound}")
@pytest.mark.parametrize("shape", SHAPES)
def test_the_argmin_is_exact(rng: Generator, shape: str, loss: Loss) -> None:
    X = rows(rng, *SHAPES[shape])
    d = X.shape[1]
    problems = LocalProblems([NodeProblem(X.copy(), loss, C, RIDGE)])
    for size, quadratic, far in ((0.0, 0.5, 0.0), (1.0, 3.0, 1.0), (10.0, 0.0, 1.0), (1.0, 0.1, 30.0)):
        linear = size * rng.standard_normal((1, d))[0]
        found, residuals = problems.argmins(linear[None, None], np.array([quadratic]), far * rng.standard_normal((1, 1, d)))
        assert residuals[0, 0] <= TOLERANCE
        assert relative_gradient(X, loss, found[0, 0], linear, RIDGE + quadratic) <= 2 * TOLERANCE


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: f"{losses.name_of(type(loss))} {loss.curvature_bound}")
def test_columns_of_very_different_sizes_and_copies_of_columns(rng: Generator, loss: Loss) -> None:
    """Curvatures over twelve orders of magnitude, and a Hessian that is singular without the ridge."""
    for B, d in ((30, 6), (1500, 60)):
        X = rows(rng, B, d, 1.0) * np.logspace(0, -6, d)
        X[:, -1] = X[:, 0]
        problems = LocalProblems([NodeProblem(X.copy(), loss, C, RIDGE)])
        linear = rng.standard_normal(d)
        found, residuals = problems.argmins(linear[None, None], np.array([0.3]), np.zeros((1, 1, d)))
        assert residuals[0, 0] <= TOLERANCE
        assert relative_gradient(X, loss, found[0, 0], linear, RIDGE + 0.3) <= 2 * TOLERANCE


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: f"{losses.name_of(type(loss))} {loss.curvature_bound}")
@pytest.mark.parametrize("shape", SHAPES)
def test_runs_side_by_side_are_each_exact(rng: Generator, shape: str, loss: Loss) -> None:
    """Easy and hard ones together: one run starts at its argmin, one far away, one has a linear term that rules."""
    X = rows(rng, *SHAPES[shape])
    problems = LocalProblems([NodeProblem(X.copy(), loss, C, RIDGE)])
    linear = np.array([0.0, 1.0, 30.0, 1.0])[:, None] * rng.standard_normal((4, X.shape[1]))
    start = np.array([0.0, 0.0, 1.0, 30.0])[:, None] * rng.standard_normal(linear.shape)
    start[0] = problems.argmins(linear[:1, None], np.array([0.5]), start[:1, None])[0][0, 0]
    found, residuals = problems.argmins(linear[:, None], np.array([0.5]), start[:, None])
    assert residuals.max() <= TOLERANCE
    for k in range(4):
        assert relative_gradient(X, loss, found[k, 0], linear[k], RIDGE + 0.5) <= 2 * TOLERANCE
    assert np.allclose(found[0, 0], start[0], rtol=0, atol=1e-9)


def test_a_kept_factorisation_far_from_the_solution(rng: Generator) -> None:
    """Separable records: the curvature near O_i's own minimum says little about the penalised argmin, and still it is found."""
    X = np.abs(rows(rng, 1200, 60, 1.0))
    problem = NodeProblem(X, LOGISTIC, C, 1e-6)
    kept = quasinewton.references([problem])
    assert kept[0].curvatures.max() < 1e-2 * np.linalg.eigvalsh(problem.hessian(np.zeros(len(X)), 0.0)).max()
    linear = 5 * rng.standard_normal(60)
    found = quasinewton.argmin([problem], kept, linear[None], np.array([2.0]), np.zeros((1, 60)))
    assert relative_gradient(X, LOGISTIC, found.f[0], linear, 2.0 + 1e-6) <= 2 * TOLERANCE


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: f"{losses.name_of(type(loss))} {loss.curvature_bound}")
@pytest.mark.parametrize("sparse_rows", [False, True])
def test_a_reference_without_a_ridge(rng: Generator, loss: Loss, sparse_rows: bool) -> None:
    """A column of zeros, and losses that are straight at zero: the kept Hessian is one near the minimum all the same."""
    X = rows(rng, 1500, 20, 0.5)
    X[:, 3] = 0.0
    problem = NodeProblem(sparse.csr_matrix(X) if sparse_rows else X, loss, 1.0, 0.0)
    kept = quasinewton.references([problem])
    assert kept[0].curvatures.max() > 0.0
    linear, start = rng.standard_normal((3, 20)) * 0.01, np.zeros((3, 20))
    start[0] = quasinewton.argmin([problem], kept, linear[:1], np.array([0.1]), start[:1]).f[
        0
    ]  # one at its end from the beginning
    found = quasinewton.argmin([problem], kept, linear, np.array([0.1]), start)
    assert found.residual.max() <= TOLERANCE


def test_the_damped_method_takes_over_where_the_kept_factorisation_fails(
    rng: Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    X = rows(rng, 900, 70, 1.0)
    problem = NodeProblem(X, LOGISTIC, C, RIDGE)
    kept, linear = quasinewton.references([problem]), rng.standard_normal(70)
    monkeypatch.setattr(quasinewton, "EVALUATIONS", 3)
    found = quasinewton.argmin([problem], kept, linear[None], np.array([1.0]), np.zeros((1, 70)))
    assert relative_gradient(X, LOGISTIC, found.f[0], linear, 1.0 + RIDGE) <= 2 * TOLERANCE


@pytest.mark.parametrize("shift", [0.0, 1e39], ids=["balanced", "too large for single precision"])
def test_single_precision_costs_neither_exactness_nor_the_damped_method(
    rng: Generator, monkeypatch: pytest.MonkeyPatch, shift: float
) -> None:
    """Starts beyond its range, or at solutions where a gradient is a small rest of large sums, beside ordinary ones."""
    monkeypatch.setattr(quasinewton, "minimise", None)
    half = rows(rng, 900, 70, 1.0)
    X = np.concatenate([half, -half]) if shift == 0.0 else half
    problem = NodeProblem(X, LOGISTIC, C, RIDGE)
    kept = quasinewton.references([problem])
    linear, start = rng.standard_normal((3, 70)), rng.standard_normal((3, 70))
    linear[0] *= 1e-6
    start[0] *= shift
    for few in (slice(None), slice(0, 1)):
        found = quasinewton.argmin([problem], kept, linear[few], np.array([1.0]), start[few])
        for f, term in zip(found.f, linear[few], strict=True):
            parts = np.stack([C / len(X) * X.T @ LOGISTIC.first(X @ f), (1.0 + RIDGE) * f, term])
            size = max(np.linalg.norm(parts, axis=1).sum(), 1e-5 * C)  # below this share of C, a gradient is round-off
            assert np.linalg.norm(parts.sum(axis=0)) <= 2 * TOLERANCE * size
        assert found.margins.dtype == np.float64
        assert np.allclose(found.margins, found.f @ X.T, rtol=0, atol=1e-12)


@pytest.fixture(params=[1, 2])
def network(request: pytest.FixtureRequest, rng: Generator) -> Solves:
    """Forty nodes, many shapes, small and large, and one data step's arguments for all of them in one run or two."""
    d, runs = 16, request.param
    sizes = np.append(rng.integers(1, 60, 32), [1100, 1100, 1100, 1500, 1100, 9000, 9000, 40_000])
    shards = [rows(rng, B, d, 0.2) for B in sizes]
    assert {bool(is_small(*X.shape)) for X in shards} == {True, False}
    assert any(without_zeros(X) is not None for X in shards)
    starts = rng.standard_normal((runs, len(sizes), d)) * 10.0 ** rng.integers(-2, 2, len(sizes))[:, None]
    linear = rng.standard_normal((runs, len(sizes), d)) * 3
    starts[:, 1::3], linear[:, 1::3] = 0.0, 0.0  # O_i alone from zero, which takes another way, beside nodes alike that do not
    return shards, linear, rng.random(len(sizes)) * 5, starts


def solve(network: Solves, nodes: Any, loss: Loss) -> Array:
    shards, linear, quadratic, start = network
    problems = LocalProblems(NodeProblem(shards[k].copy(), loss, 1.0, RIDGE) for k in nodes)
    found, residuals = problems.argmins(linear[:, nodes], quadratic[nodes], start[:, nodes])
    return np.concatenate([found, residuals[..., None], problems.mean_losses(found)[..., None]], axis=-1)


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: f"{losses.name_of(type(loss))} {loss.curvature_bound}")
def test_a_node_gets_the_same_bits_alone_and_in_any_company(rng: Generator, network: Solves, loss: Loss) -> None:
    everybody = np.arange(len(network[0]))
    together = solve(network, everybody, loss)
    assert together[..., -2].max() <= TOLERANCE
    for k in everybody:
        assert np.array_equal(solve(network, [k], loss), together[:, [k]])
    for _ in range(5):
        some = rng.permutation(everybody)[: rng.integers(2, len(everybody))]
        assert np.array_equal(solve(network, some, loss), together[:, some])


@pytest.mark.parametrize("evaluations", [60, 5], ids=["found", "some by the damped method"])
@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: f"{losses.name_of(type(loss))} {loss.curvature_bound}")
def test_easy_and_hard_nodes_that_are_solved_together(
    rng: Generator, monkeypatch: pytest.MonkeyPatch, loss: Loss, evaluations: int
) -> None:
    """One is at its end from the beginning, others are far away or have to be searched for: none disturbs another."""
    monkeypatch.setattr(quasinewton, "EVALUATIONS", evaluations)
    sizes = []
    argmin = quasinewton.argmin

    def noted(problems: Sequence[NodeProblem], *rest: Any) -> Any:
        sizes.append(len(problems))
        return argmin(problems, *rest)

    monkeypatch.setattr(quasinewton, "argmin", noted)
    shards = [rows(rng, 700, 40, 1.0) for _ in range(6)]
    linear = np.array([0.0, 1.0, 30.0, 1.0, 1.0, 1.0])[:, None] * rng.standard_normal((1, 6, 40))
    quadratic = np.array([0.5, 0.0, 3.0, 0.1, 0.1, 9.0])
    start = np.array([0.0, 0.0, 1.0, 30.0, 1e4, 1e-3])[:, None] * rng.standard_normal((1, 6, 40))

    def solve(nodes: list[int]) -> tuple[Array, Array]:
        problems = LocalProblems(NodeProblem(shards[k].copy(), loss, C, RIDGE) for k in nodes)
        return problems.argmins(linear[:, nodes], quadratic[nodes], start[:, nodes])

    start[0, 0] = solve([0])[0][0, 0]
    found, residuals = solve(list(range(6)))
    assert max(sizes) == 6
    assert residuals.max() <= TOLERANCE
    for k, X in enumerate(shards):
        assert relative_gradient(X, loss, found[0, k], linear[0, k], RIDGE + quadratic[k]) <= 2 * TOLERANCE
        assert solve([k])[0].tobytes() == found[:, [k]].tobytes()


@pytest.mark.parametrize("loss", LOSSES[:2], ids=["logistic", "huber"])
def test_small_nodes_take_hessians_only_where_gradients_are_slow(
    rng: Generator, monkeypatch: pytest.MonkeyPatch, loss: Loss
) -> None:
    """A large quadratic term makes the objectives nearly round; without one, some take steps of Newton's method."""
    asked = []
    directions = batched.Tilted.directions

    def noted(self: Any, at: Any) -> Array:
        asked.append(len(at.f))
        return directions(self, at)

    monkeypatch.setattr(batched.Tilted, "directions", noted)
    shards, linear = [rows(rng, 20, 20, 1.0) for _ in range(50)], rng.standard_normal((1, 50, 20))
    problems = LocalProblems(NodeProblem(X.copy(), loss, 20.0, RIDGE) for X in shards)
    for quadratic, by_newton in ((8.0, False), (0.1, True)):
        _, residuals = problems.argmins(linear, np.full(50, quadratic), np.zeros((1, 50, 20)))
        assert bool(asked) == by_newton
        assert residuals.max() <= TOLERANCE


def test_a_large_batch_in_chunks_gives_the_same_bits(rng: Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    X, linear = np.stack([rows(rng, 9, 16, 1.0) for _ in range(300)]), rng.standard_normal((2, 300, 16))
    quadratic, start = 3 * rng.random(300), rng.standard_normal((2, 300, 16)) * 10.0 ** rng.integers(-2, 2, 300)[:, None]

    def found(chunk: int) -> tuple[Array, Array]:
        monkeypatch.setattr(strategies, "CHUNK", chunk)
        problems = LocalProblems(NodeProblem(x.copy(), LOGISTIC, 5.0, RIDGE) for x in X)
        return problems.argmins(linear, quadratic, start)

    first = found(1 << 16)
    for chunk in (1, 700, 1 << 20):
        for a, b in zip(first, found(chunk), strict=True):
            assert np.array_equal(a, b)


def test_a_solve_depends_on_its_arguments_and_not_on_the_solves_before(rng: Generator, network: Solves) -> None:
    """What a restart from primal and dual arrays needs: nothing that is kept has seen an earlier iteration."""
    shards, linear, quadratic, start = network
    fresh = solve(network, np.arange(len(shards)), LOGISTIC)
    problems = LocalProblems(NodeProblem(X.copy(), LOGISTIC, 1.0, RIDGE) for X in shards)
    for _ in range(3):
        problems.argmins(rng.standard_normal(linear.shape), 9 * rng.random(len(shards)), rng.standard_normal(start.shape))
    found, residuals = problems.argmins(linear, quadratic, start)
    assert np.array_equal(np.concatenate([found, residuals[..., None]], axis=-1), fresh[..., :-1])


def test_losses_and_objectives_are_those_of_the_nodes(network: Solves) -> None:
    shards, _, _, f = network
    problems = LocalProblems(NodeProblem(X.copy(), LOGISTIC, 1.0, RIDGE) for X in shards)
    means = problems.mean_losses(f)
    values = problems.values_from(means, f)
    for run in range(len(f)):
        pairs = list(zip(shards, f[run], strict=True))
        assert np.allclose(means[run], [np.mean(np.log1p(np.exp(-(X @ v)))) for X, v in pairs], rtol=1e-12)
        assert np.allclose(values[run], [p.value(v) for p, v in zip(problems, f[run], strict=True)], rtol=1e-12)


@pytest.mark.parametrize("runs", [1, 2, 6])
@pytest.mark.parametrize("shape", SHAPES)
def test_measuring_between_solves_changes_no_bit_of_them(rng: Generator, shape: str, runs: int) -> None:
    """At the solution, elsewhere, or not at all; and what is measured is the mean loss at the points that were asked for."""
    X = rows(rng, *SHAPES[shape])
    d = X.shape[1]
    quiet, measured = (LocalProblems([NodeProblem(X.copy(), LOGISTIC, C, RIDGE)]) for _ in range(2))
    f = g = np.zeros((runs, 1, d))
    for number in range(4):
        linear = rng.standard_normal((runs, 1, d))
        f, _ = quiet.argmins(linear, np.array([0.5]), f)
        g, _ = measured.argmins(linear, np.array([0.5]), g)
        assert np.array_equal(f, g)
        assert np.allclose(measured.mean_losses(g), mean_losses(X, g), rtol=1e-12)
        if number % 2:  # a step that touches no records
            f = g = g + 0.1 * rng.standard_normal(g.shape)
            assert np.allclose(measured.mean_losses(g), mean_losses(X, g), rtol=1e-12)


def mean_losses(X: Array, points: Array) -> Array:
    return np.asarray(np.logaddexp(0.0, -np.einsum("rkd,nd->rkn", points, X)).mean(axis=-1))


@pytest.mark.parametrize("runs", [1, 3])
def test_what_is_measured_does_not_depend_on_earlier_solves(rng: Generator, runs: int) -> None:
    """A step that moves nothing leaves the points where the solves ended: a restart, which knows of none, measures the same."""
    shards = [rows(rng, 900, 70, 1.0) for _ in range(3)]
    for _ in range(5):
        problems, restarted = (LocalProblems(NodeProblem(X.copy(), LOGISTIC, C, RIDGE) for X in shards) for _ in range(2))
        f, _ = problems.argmins(30 * rng.standard_normal((runs, 3, 70)), np.ones(3), np.zeros((runs, 3, 70)))
        problems.forget_solutions()
        assert problems.mean_losses(f).tobytes() == restarted.mean_losses(f).tobytes()


def test_what_is_measured_does_not_depend_on_the_nodes_beside(rng: Generator) -> None:
    """One node stays where its solve ended, the other is moved from there."""
    shards = [rows(rng, 900, 70, 1.0) for _ in range(2)]
    for _ in range(10):
        linear, shift = 30 * rng.standard_normal((1, 2, 70)), np.array([0.0, 1.0])[:, None] * rng.standard_normal((1, 2, 70))

        def measured(nodes: list[int]) -> Array:
            problems = LocalProblems(NodeProblem(shards[k].copy(), LOGISTIC, C, RIDGE) for k in nodes)
            f, _ = problems.argmins(linear[:, nodes], np.ones(len(nodes)), np.zeros((1, len(nodes), 70)))  # noqa: B023
            return problems.mean_losses(f + shift[:, nodes])  # noqa: B023

        together = measured([0, 1])
        for k in (0, 1):
            assert measured([k]).tobytes() == together[:, [k]].tobytes()
