"""The pure bounds against their closed forms, written out again; calibration; conditions; the determinant inequality."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from numpy.random import Generator
from scipy import optimize
from support import PRIVATE, MakeConfig, ledger, network_releases, result_of

from dpadmm_mpi.errors import InputError
from dpadmm_mpi.methods.decentralised import accounts as privacy
from dpadmm_mpi.privacy.account import calibrate
from dpadmm_mpi.privacy.perturbations import perturbations
from dpadmm_mpi.privacy.releases import NetworkReleases
from dpadmm_mpi.types import Array


def releases(
    perturbation: str, rng: Generator, *, N: int = 5, K: int = 4, T: int = 4, steps: Sequence[int] | None = None, **fixed: Any
) -> NetworkReleases:
    values: dict[str, Any] = {
        "iterations": T,
        "data_steps": np.arange(1, K + 1) if steps is None else np.asarray(steps),
        "eta": rng.uniform(0.5, 2.0, (K, N)),
        "theta": np.full((K, N), 0.5),
        "alpha": rng.uniform(0.3, 3.0, (K, N)),
        "V": rng.integers(1, 5, N).astype(float),
        "B": rng.integers(200, 900, N).astype(float),
        "C": 150.0,
        "rho": 0.22,
        "features": 7,
    }
    return network_releases(perturbation, **(values | fixed))


def worst(c: float, K: float) -> float:
    """max over a in [0, 1] of c (1 + a) + ln(1 + K a (1 - a)), which is concave, by golden sections."""
    found = optimize.minimize_scalar(
        lambda a: -(c * (1 + a) + math.log1p(K * a * (1 - a))), bounds=(0, 1), method="bounded", options={"xatol": 1e-12}
    )
    return max(-float(found.fun), 2 * c)


def closed_form(r: NetworkReleases, i: int, upto: int, tight: bool) -> float:
    """P_i(t) term by term, with math's functions."""
    total, name = 0.0, perturbations.name_of(type(r.perturbation))
    for k, t in enumerate(r.data_steps):
        if t > upto:
            continue
        eta, V, B, alpha = r.eta[k, i], r.V[i], r.B[i], r.parameter[k, i]
        curvature = r.rho / r.nodes + 2 * eta * V
        if name in ("dual", "penalty"):
            h = r.C / B / (2 * eta * V)
            total += worst(alpha * h, r.C / (B * curvature)) if tight else r.C * (1.4 * r.c1 + alpha) / (eta * V * B)
        elif name == "objective":
            paper = 2 * r.C / B * (1.4 * r.c1 / curvature + alpha)
            total += worst(alpha * r.C / B, r.C / (B * curvature)) if tight else paper
        else:
            total += alpha * 2 * r.C / B / curvature
    return total


@pytest.mark.parametrize("perturbation", PRIVATE)
def test_bounds_equal_their_closed_forms(perturbation: str, rng: Generator) -> None:
    r = releases(perturbation, rng, K=3, T=6, steps=[1, 3, 5])
    totals = ledger(r)
    for t in range(7):
        for i in range(5):
            assert totals["bound"].node_values[t, i] == pytest.approx(closed_form(r, i, t, tight=False), rel=1e-12)
            assert totals["tight"].node_values[t, i] == pytest.approx(closed_form(r, i, t, tight=True), rel=1e-10)
    assert np.array_equal(totals["bound"].values, totals["bound"].node_values.max(axis=1))
    assert np.array_equal(totals["tight"].values, totals["tight"].node_values.max(axis=1))


@pytest.mark.parametrize("perturbation", PRIVATE)
def test_recycled_steps_add_nothing(perturbation: str, rng: Generator) -> None:
    totals = ledger(releases(perturbation, rng, K=3, T=6, steps=[1, 3, 5]))
    for bound in (totals["bound"].node_values, totals["tight"].node_values):
        assert np.array_equal(bound[2::2], bound[1:-1:2])
        assert (np.diff(bound[[0, 1, 3, 5]], axis=0) > 0).all()


@pytest.mark.parametrize("perturbation", ["dual", "penalty", "objective"])
def test_tight_bound_is_never_above_the_papers_where_that_is_proven(perturbation: str, rng: Generator) -> None:
    for _ in range(50):
        r = releases(perturbation, rng, C=float(rng.uniform(1, 700)))
        if privacy.condition_failure(r) is None:
            assert (privacy.tight_totals(r) <= privacy.totals(r)).all()


def test_figures_of_the_scale_check() -> None:
    """SPEC 7: N=5, B=8000, C=1750, eta=1, 25 data steps; smallest degree 2, and complete graph; and the tight 10.94."""
    for V, expected in ((2.0, (22.8, 11.9, 6.4)), (4.0, (22.4, 11.4, 5.9))):
        for alpha, value in zip((2.0, 1.0, 0.5), expected, strict=True):
            shape = (25, 5)
            r = network_releases(
                "objective", iterations=50, data_steps=np.arange(1, 51, 2), eta=np.ones(shape), theta=np.ones(shape),
                alpha=np.full(shape, alpha), V=np.full(5, V), B=np.full(5, 8000.0), C=1750.0, rho=0.22, features=105,
            )  # fmt: skip
            totals = ledger(r)
            assert totals["bound"].values[-1] == pytest.approx(value, abs=0.06)
            if (V, alpha) == (2.0, 1.0):
                assert (round(totals["bound"].values[-1], 2), round(totals["tight"].values[-1], 2)) == (11.88, 10.94)


@pytest.mark.parametrize("perturbation", PRIVATE)
def test_calibration_meets_the_target(perturbation: str, rng: Generator) -> None:
    """One scale for all nodes, so that the worst node is at the target and nobody above it; the shape of alpha stays."""
    r = releases(perturbation, rng)
    for target in (3.0, 11.4, 40.0):
        calibrated = calibrate(r, target, "bound", 1e-5)
        assert ledger(calibrated)["bound"].values[-1] == pytest.approx(target, rel=1e-12)
        assert np.allclose(calibrated.parameter / calibrated.parameter[0, 0], r.parameter / r.parameter[0, 0], rtol=1e-14)


def test_a_target_below_the_determinant_term_has_no_answer(rng: Generator) -> None:
    r = releases("objective", rng)
    fixed = privacy.paper_cost(r).fixed.sum(axis=0).max()
    with pytest.raises(InputError, match=r"privacy.target: .* determinant term alone costs"):
        calibrate(r, 0.999 * fixed, "bound", 1e-5)
    assert ledger(calibrate(r, 1.001 * fixed, "bound", 1e-5))["bound"].values[-1] == pytest.approx(1.001 * fixed, rel=1e-12)


def test_no_noise_is_infinite_everywhere(rng: Generator) -> None:
    totals = ledger(releases("none", rng, alpha=np.full((4, 5), np.nan)))
    assert np.isinf(totals["bound"].node_values).all()
    assert np.isinf(totals["tight"].node_values).all()


def test_tight_bound_is_finite_for_every_x(rng: Generator) -> None:
    """One record, C = B, next to no strong convexity: x is far above 1, and the determinant term is ln(1 + x)."""
    r = releases("objective", rng, C=1.0, B=np.array([1.0, 500, 500, 500, 500]), eta=np.full((4, 5), 0.001), c1=0.25)
    x = r.c1 * r.C / (r.B * r.curvature)
    assert x[:, 0].min() > 1
    expected = np.sum(2 * r.C / r.B * r.parameter + np.log(1 + x), axis=0)
    np.testing.assert_allclose(ledger(r)["tight"].node_values[-1], expected, rtol=1e-12)
    assert ledger(r)["tight"].proven
    assert (ledger(r)["epsilon"].node_values[-1] <= expected).all()


def margin(perturbation: str, **values: Any) -> Array:
    found = privacy.condition_margin(network_releases(perturbation, **values))
    assert found is not None
    return found


def test_condition_by_hand() -> None:
    """One node pair, B=10, C=2, rho=1, N=2, eta=0.3, V=1: 5 (0.5 + 0.6) - 0.5 = 5."""
    ones = np.ones((1, 2))
    values: dict[str, Any] = {
        "iterations": 1, "data_steps": np.array([1]), "eta": 0.3 * ones, "theta": 0.2 * ones, "alpha": ones, "V": np.ones(2),
        "B": np.full(2, 10.0), "C": 2.0, "rho": 1.0, "features": 3,
    }  # fmt: skip
    assert np.allclose(margin("objective", **values), 5.0)
    # [M] has theta in place of eta(1): 5 (0.5 + 0.4) - 0.5 = 4.
    assert np.allclose(margin("penalty", **values), 4.0)


def test_determinant_ratio_of_neighbouring_hessians(rng: Generator) -> None:
    """ln(1 + x) holds for random and for worst records, also for x > 1: det(H + mu I) over two data sets differing in one."""
    largest = 0.0
    for _ in range(300):
        d, B = int(rng.integers(1, 5)), int(rng.integers(1, 6))
        C, mu = float(rng.uniform(0.2, B)), float(10 ** rng.uniform(-3.0, 0.5))
        x_bound = 0.25 * C / (B * mu)
        X = rng.standard_normal((B + 1, d))
        X /= np.maximum(np.linalg.norm(X, axis=1, keepdims=True), 1.0)
        w = rng.uniform(0.0, 0.25, B + 1)
        w[B] = 0.25

        def log_determinant(
            rows: list[int], X: Array = X, w: Array = w, C: float = C, B: int = B, mu: float = mu, d: int = d
        ) -> float:
            return float(np.linalg.slogdet(C / B * (X[rows].T * w[rows]) @ X[rows] + mu * np.eye(d))[1])

        common = list(range(B - 1))
        ratio = abs(log_determinant([*common, B - 1]) - log_determinant([*common, B]))
        assert ratio <= math.log1p(x_bound) + 1e-12
        largest = max(largest, ratio / math.log1p(x_bound))
    assert largest > 0.9  # and nothing smaller would do


@pytest.mark.parametrize("perturbation", PRIVATE)
def test_an_unproven_bound_is_refused_with_the_node_and_both_numbers(config: MakeConfig, perturbation: str) -> None:
    """Noise in the objective needs the condition; noise on the release does not. The tighter bound stays proven."""
    weak = config("r-admm", perturbation, problem={"C": 4.0, "rho": 1e-3}, algorithm={"eta": 0.001})
    if perturbation == "primal":
        assert result_of(weak).attributes["privacy/bound"]["proven"]
        return
    with pytest.raises(InputError, match=r"not proven .* at node \d 2 c1 = 0.5 is not below .* = 0\.\d+.*allow_unproven"):
        result_of(weak)
    result = result_of(weak, overrides="privacy.allow_unproven=true")
    assert not result.attributes["privacy/bound"]["proven"]
    assert result.attributes["privacy/tight"]["proven"]
    assert "not proven" in result.attributes["/"]["notes"]


@pytest.mark.parametrize("account", ["tight", "epsilon"])
def test_who_asks_for_a_proven_account_need_not_meet_the_papers_condition(config: MakeConfig, account: str) -> None:
    """A target of `tight` or `epsilon` runs, says so, and both are marked as proven; one of `bound` is refused."""
    privacy = {"alpha": None, "target": 14.0, "target_account": account}
    raw = config("r-admm", "objective", problem={"C": 4.0, "rho": 1e-3}, algorithm={"eta": 0.001}, privacy=privacy)
    result = result_of(raw)
    assert 14.0 * 0.999 <= result[f"privacy/{account}"][-1] <= 14.0 * (1 + 1e-12)
    assert not result.attributes["privacy/bound"]["proven"]
    assert result.attributes["privacy/tight"]["proven"]
    assert result.attributes["privacy/epsilon"]["proven"]
    assert "bound is not proven" in result.attributes["/"]["notes"]
    with pytest.raises(InputError, match="target_account"):
        result_of(raw, overrides="privacy.target_account=bound")


def test_condition_with_growing_schedules_and_at_its_boundary() -> None:
    """[R] looks at eta(1), [M] at the smallest theta; equality is not enough."""
    eta = np.array([[0.3, 0.3], [0.9, 0.9]])
    theta = np.array([[0.25, 0.25], [0.2, 0.2]])
    two: dict[str, Any] = {
        "iterations": 2, "data_steps": np.array([1, 2]), "eta": eta, "theta": theta, "alpha": np.ones((2, 2)),
        "V": np.ones(2), "B": np.full(2, 10.0), "C": 2.0, "rho": 1.0, "features": 3,
    }  # fmt: skip
    assert np.allclose(margin("objective", **two), 5 * (0.5 + 0.6) - 0.5)
    assert np.allclose(margin("penalty", **two), 5 * (0.5 + 0.4) - 0.5)
    boundary = two | {"B": np.full(2, 2.0), "rho": 0.5, "eta": np.full((2, 2), 0.125)}  # 1 (0.25 + 0.25) = 2 c1
    assert privacy.condition_failure(network_releases("objective", **boundary)) is not None


def test_another_loss_has_its_own_c1(config: MakeConfig) -> None:
    """Huber of width 0.3: c1 = 1/0.6 in the recorded bounds and in the condition."""
    result = result_of(config("r-admm", "objective", iterations=1, problem={"loss": "huber", "width": 0.3}))
    sizes, degree = result["data/sizes"], np.bincount(result["graph/edges"].ravel())
    curvature = 0.5 / 6 + 2 * 0.7 * degree
    assert np.allclose(result["privacy/node_bound"][1], 2 * 3 / sizes * (1.4 / 0.6 / curvature + 5.0), rtol=1e-12)
    assert np.allclose(
        result["privacy/node_tight"][1], np.log(1 + 3 / 0.6 / (sizes * curvature)) + 2 * 3 / sizes * 5.0, rtol=1e-12
    )


def test_the_record_names_theorem_relation_and_proof(config: MakeConfig) -> None:
    for perturbation, theorem in (("penalty", "[M] Theorem 4.1"), ("objective", "[R] Theorem V.1")):
        attributes = result_of(config("mr-admm", perturbation)).attributes["privacy/bound"]
        assert theorem in attributes["theorem"]
        assert attributes["neighbouring_relation"] == "replace one record of one node"
        assert attributes["proven"]


def test_a_run_records_the_ledger_of_what_it_did(config: MakeConfig) -> None:
    """Bound, alpha and eta in the file fit together by the closed form, with recycled steps and unequal nodes."""
    result = result_of(config("mr-admm", "objective", iterations=5, privacy={"alpha": {"first": 5.0, "ratio": 0.9}}))
    alpha, eta, sizes = result["privacy/alpha"], result["algorithm/eta"], result["data/sizes"]
    degree = np.bincount(result["graph/edges"].ravel())
    assert np.isnan(alpha[[0, 2, 4]]).all()
    assert np.allclose(alpha[[1, 3, 5], 0], [5.0, 4.5, 4.05])
    for i in range(6):
        steps = [2 * 3 / sizes[i] * (1.4 * 0.25 / (0.5 / 6 + 2 * eta[t, i] * degree[i]) + alpha[t, i]) for t in (1, 3, 5)]
        assert result["privacy/node_bound"][-1, i] == pytest.approx(sum(steps), rel=1e-12)
        assert result["privacy/node_bound"][2, i] == pytest.approx(steps[0], rel=1e-12)


def test_target_instead_of_alpha(config: MakeConfig) -> None:
    for perturbation in ("dual", "penalty", "objective", "primal"):
        raw = config("r-admm", perturbation, privacy={"alpha": None, "target": 2.5})
        assert result_of(raw).bound[-1] == pytest.approx(2.5, rel=1e-9)
        alpha, sizes = result_of(raw)["privacy/alpha"], result_of(raw)["data/sizes"]
        assert np.ptp(alpha[1]) == 0  # one number for all nodes
        if perturbation == "objective":  # the recorded alpha is the one that the bound is made of
            degree = np.bincount(result_of(raw)["graph/edges"].ravel())
            steps = 3 * 2 * 3.0 / sizes * (1.4 * 0.25 / (0.5 / 6 + 1.4 * degree) + alpha[1])
            assert steps.max() == pytest.approx(2.5, rel=1e-9)
    growing = config("r-admm", "objective", privacy={"alpha": {"ratio": 1.5}, "target": 2.5})
    result = result_of(growing)
    assert result.bound[-1] == pytest.approx(2.5, rel=1e-9)
    assert result["privacy/alpha"][3, 0] == pytest.approx(1.5 * result["privacy/alpha"][1, 0])
