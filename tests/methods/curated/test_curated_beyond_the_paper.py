"""The curated family beyond the paper's main line: safeguarded acceleration, B and c, sampling, decaying noise, the criterion.

Against plain code and a conic solver; nothing of the package's numerics is used on the other side.
"""

from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import Raw, all_records, curated_plan, result_of

from dpadmm_mpi.errors import InputError
from dpadmm_mpi.privacy.releases import CuratedReleases
from dpadmm_mpi.rng import Purpose, generator
from dpadmm_mpi.types import Array

N, D = 60, 4


def records(seed: int = 3, n: int = N, d: int = D) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d)) * np.array([1.0, 0.3, 0.1, 0.03])[:d]
    X /= np.linalg.norm(X, axis=1).max()
    return X, np.where(X @ np.array([1.0, -2.0, 3.0, 1.0])[:d] + 0.2 * rng.standard_normal(n) > 0, 1.0, -1.0)


def table(folder: Path, method: str, **sections: Any) -> Raw:
    X, y = records()
    np.savez(folder / "records.npz", X=X, y=y)
    base: dict[str, Any] = {
        "iterations": 30,
        "data": {"source": "npz", "path": str(folder / "records.npz"), "train": 1.0},
        "network": {"nodes": 1},
        "problem": {"lambda1": 0.01},
        "algorithm": {"method": method, "rho": 0.3},
        "record": {"trajectory": True},
    }
    for name, extra in sections.items():
        base[name] = {**base.get(name, {}), **extra} if isinstance(extra, dict) else extra
    return base


def mean_gradient(x: Array, X: Array, y: Array) -> Array:
    return np.asarray(-(X.T @ (y / (1.0 + np.exp(y * (X @ x))))) / len(y))


def objective(x: Array, X: Array, y: Array, lambda1: float) -> float:
    return float(np.mean(np.log1p(np.exp(-y * (X @ x)))) + lambda1 * np.abs(x).sum())


@pytest.mark.parametrize("rho", [0.001, 0.05, 1.0])
def test_safeguarded_reaches_the_optimum_where_plain_and_printed_do_not(tmp_path: Path, rho: float) -> None:
    """To 1e-8 in 300 iterations for every rho, where the plain method, momentum as printed and its restart are not."""
    gaps = {}
    for method, restart in (("gl-admm", None), ("gl-acc-admm", False), ("gl-acc-admm", True), ("gl-acc-admm", "safeguarded")):
        options = {"rho": rho} | ({} if restart is None else {"restart": restart})
        raw = table(tmp_path, method, algorithm=options, iterations=300, problem={"lambda1": 1e-4}, record={"optimum": True})
        gaps[restart] = abs(float(result_of(raw)["objective_gap"][0, -1]))
    assert gaps["safeguarded"] < 1e-8
    assert min(gaps[None], gaps[False], gaps[True]) > 1e-6


def test_safeguarded_on_a_map_with_more_rows_than_columns(tmp_path: Path) -> None:
    """A = [W; I], where the prox of g(A x) has no closed form: the same optimum to 1e-8."""
    np.save(tmp_path / "A.npy", np.vstack([[1.0, -1, 0, 0], [0, 1, 1, 0], np.eye(D)]))
    raw = table(
        tmp_path,
        "gl-acc-admm",
        problem={"map": "file", "map_path": str(tmp_path / "A.npy"), "lambda1": 1e-3},
        algorithm={"restart": "safeguarded"},
        iterations=300,
        record={"optimum": True},
    )
    assert abs(float(result_of(raw)["objective_gap"][0, -1])) < 1e-8


@pytest.mark.parametrize("rho", [0.001, 0.05, 1.0])
def test_safeguarded_on_breast_cancer(tmp_path: Path, rho: float) -> None:
    """scikit-learn's data, 30 features: from iteration 150 on within 1e-8, where the plain method is not within 1e-3."""
    load: Any = import_module("sklearn.datasets").load_breast_cancer
    X, y = load(return_X_y=True)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    np.savez(tmp_path / "cancer.npz", X=X / np.linalg.norm(X, axis=1).max(), y=np.where(y > 0, 1.0, -1.0))
    gaps = {}
    for method, options in (("gl-admm", {}), ("gl-acc-admm", {"restart": "safeguarded"})):
        raw = table(tmp_path, method, algorithm={"rho": rho} | options, iterations=300, problem={"lambda1": 1e-3})
        raw |= {"data": raw["data"] | {"path": str(tmp_path / "cancer.npz")}, "record": {"optimum": True}}
        gaps[method] = np.abs(np.array(result_of(raw)["objective_gap"][0]))
    assert gaps["gl-acc-admm"][150:].max() < 1e-8
    assert gaps["gl-admm"][-1] > 1e-3


def test_every_proposal_of_the_safeguarded_method_uses_up_its_budget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Proposals that are never kept: they come nearer to the plain iterates all the same, and so does what is published."""
    from dpadmm_mpi.methods.curated import safeguarded

    distances: list[float] = []

    def thrown(memory: Any, s: Any) -> Any:
        allowed = safeguarded.BUDGET * memory.first[0] * (memory.made[0] + 1.0) ** -safeguarded.DECAY
        x = memory.plain_x + np.sqrt(s.eta / s.gamma) * allowed * np.array([1.0, 0, 0, 0]) / 2
        u = memory.plain_u - s.A(x - memory.plain_x)  # with the same A x + u, so with the same multiplier
        distances.append(float(np.linalg.norm(x - memory.plain_x)))
        return x, u

    monkeypatch.setattr(safeguarded, "BUDGET", 1.0)
    monkeypatch.setattr(safeguarded, "GROWTH", -1.0)
    monkeypatch.setattr(safeguarded, "_proposal", thrown)
    raw = table(tmp_path, "gl-acc-admm", algorithm={"restart": "safeguarded"}, iterations=600, record={"optimum": True})
    path = np.array(result_of(raw)["server_trajectory"])[0]
    assert len(distances) > 250
    assert distances[-1] < 0.005 * distances[0]
    steps = np.linalg.norm(np.diff(path, axis=0), axis=1)
    assert steps[-50:].max() < 0.02 * steps[:50].max()


def test_safeguarded_with_bad_models_still_converges(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The proof asks nothing of the proposals: random ones are kept up to the budget, and then the plain steps go on."""
    from dpadmm_mpi.methods.curated import safeguarded

    rng = np.random.default_rng(1)
    raw = table(tmp_path, "gl-acc-admm", algorithm={"restart": "safeguarded"}, iterations=400, record={"optimum": True})
    plain = table(tmp_path, "gl-admm", iterations=200, record={"optimum": True})
    honest = safeguarded._minimiser

    def thrown(H: Any, linear: Any, memory: Any, s: Any) -> Any:
        x, w, multiplier = honest(H, linear, memory, s)
        return x + 0.3 * rng.standard_normal(len(x)), w, multiplier

    monkeypatch.setattr(safeguarded, "BUDGET", 1.0)
    monkeypatch.setattr(safeguarded, "_minimiser", thrown)
    bad = np.array(result_of(raw)["objective_gap"][0])
    assert bad[-4:].min() <= 1.1 * float(result_of(plain)["objective_gap"][0, -1])


@pytest.mark.parametrize("noise_std", [0.2, 1e-3])
def test_safeguarded_under_noise_is_no_worse_than_plain(tmp_path: Path, noise_std: float) -> None:
    """Noise is not taken for curvature: the worst gap of 10 runs is below twice that of the plain method."""
    worst = {}
    for method, options in (("dp-admm", {}), ("dp-acc-admm", {"restart": "safeguarded"})):
        raw = table(tmp_path, method, algorithm=options, privacy={"noise_std": noise_std}, record={"optimum": True}, runs=10)
        worst[method] = np.array(result_of(raw)["objective_gap"])[:, -5:].max()
    assert worst["dp-acc-admm"] < 2.0 * worst["dp-admm"]


def test_safeguarded_decides_by_what_is_published(tmp_path: Path) -> None:
    """The audit replays every xhat from the published x alone, and finds the noise to be what it is: post-processing."""
    raw = table(
        tmp_path,
        "dp-acc-admm",
        algorithm={"restart": "safeguarded"},
        privacy={"noise_std": 1e-3},
        iterations=40,
    )
    result = result_of(raw)
    from dpadmm_mpi.methods.curated.audit import _replay

    plan, dataset = curated_plan(raw)
    shards = [dataset.loader.shard(dataset.address(0)).into_signed()]
    _, noises = _replay(np.array(result["server_trajectory"]), shards, plan.loss, plan.settings)
    drawn = [1e-3 * generator(1, Purpose.NOISE, 0, 1, t).standard_normal(D) for t in range(1, 41)]
    np.testing.assert_allclose(noises[0], drawn, atol=1e-9)


def test_safeguarded_and_resumed_state_is_the_whole_state(tmp_path: Path) -> None:
    """What is not in the state does not survive a restart: a run in one go and one from its middle have the same bits."""
    raw = table(tmp_path, "gl-acc-admm", algorithm={"restart": "safeguarded"}, iterations=20)
    whole = result_of(raw)
    from dpadmm_mpi.methods.base import make_plan
    from dpadmm_mpi.methods.curated.algorithm import State
    from dpadmm_mpi.methods.experiment import experiment

    plan, dataset = make_plan(experiment(raw).configs[0])
    problems = plan.problems([dataset.loader.shard(dataset.address(0))])
    places = np.array([0, 1])
    state = plan.make_nodes(places, problems).initial(range(1))
    for t in range(1, 21):
        nodes = plan.make_nodes(places, problems)  # fresh ones: nothing but the state goes on
        state = State(*(np.array(part) for part in state))
        state = nodes.receive(state, t, range(1), 0, state.query[:, ::-1])
        state = nodes.work(state, t, range(1), 1)
        state = nodes.receive(state, t, range(1), 1, state.gradient[:, ::-1])
    np.testing.assert_array_equal(state.x[0, 0], np.array(whole["server_trajectory"])[0, -1])


@pytest.mark.parametrize("shape", ["square", "tall"])
def test_a_given_B_and_c_against_a_conic_solver(tmp_path: Path, shape: str) -> None:
    """min f(x) + lambda1 ||w||_1 s.t. A x + B w = c: the iterates come to the solution that cvxpy finds, B square or tall."""
    cp: Any = import_module("cvxpy")  # has no types
    rng = np.random.default_rng(5)
    rows, columns = (D, D) if shape == "square" else (D, 2)
    A, B = np.eye(D), rng.standard_normal((rows, columns)) + 2 * np.eye(rows, columns)
    c = 0.3 * rng.standard_normal(rows)
    raw = table(
        tmp_path,
        "gl-acc-admm",
        problem={"map_B": B.tolist(), "map_c": c.tolist(), "lambda1": 0.02},
        algorithm={"restart": "safeguarded", "rho": 0.1},
        iterations=400,
        record={"optimum": True},
    )
    result = result_of(raw)
    X, y = records()
    x, w = cp.Variable(D), cp.Variable(columns)
    loss = cp.sum(cp.logistic(-cp.multiply(y, X @ x))) / N
    cp.Problem(cp.Minimize(loss + 0.02 * cp.norm1(w)), [A @ x + B @ w == c]).solve(solver="SCS", eps=1e-9, max_iters=100_000)
    np.testing.assert_allclose(np.array(result["server_trajectory"])[0, -1], x.value, atol=2e-4)
    np.testing.assert_allclose(np.array(result["final/splitting"])[0], w.value, atol=2e-4)
    assert float(result["consensus_error"][0, -1]) < 1e-6
    np.testing.assert_allclose(np.array(result["optimum/primal"]), x.value, atol=2e-4)
    assert abs(float(result["objective_gap"][0, -1])) < 1e-8


@pytest.mark.parametrize("kind", ["l1", "l2"])
def test_the_optimum_with_B_and_c_and_its_multiplier(tmp_path: Path, kind: str) -> None:
    """A tall map, B and c: x*, w* and y* meet the conditions of optimality, written out, and the criterion is below (18)."""
    rng = np.random.default_rng(8)
    A, B, c = rng.standard_normal((6, D)), rng.standard_normal((6, 3)), np.zeros(6)
    c = A @ rng.standard_normal(D) + B @ rng.standard_normal(3)
    np.save(tmp_path / "A.npy", A)
    problem = {
        "map": "file",
        "map_path": str(tmp_path / "A.npy"),
        "map_B": B.tolist(),
        "map_c": c.tolist(),
        "regulariser": kind,
    }
    metrics = ["mean_criterion", "mean_criterion_bound"]
    raw = table(tmp_path, "gl-admm", problem=problem | {"lambda1": 0.05}, record={"optimum": True, "metrics": metrics})
    result = result_of(raw)
    X, y = records()
    plan, dataset = curated_plan(raw)
    from dpadmm_mpi.engine.node_queries import find_optimum
    from dpadmm_mpi.parallel.serial import Serial

    problems = plan.problems([dataset.loader.shard(dataset.address(0))])
    best = find_optimum(plan.optimum_search(), Serial(), problems, np.zeros(1, dtype=np.int64))
    assert best is not None and best.dual is not None
    x = np.array(result["optimum/primal"])
    np.testing.assert_allclose(best.f, x, atol=1e-12)
    w = np.linalg.lstsq(B, c - A @ x, rcond=None)[0]
    np.testing.assert_allclose(A @ x + B @ w, c, atol=1e-9)
    np.testing.assert_allclose(A.T @ best.dual, -mean_gradient(x, X, y), atol=1e-7)
    slope = -B.T @ best.dual
    if kind == "l2":
        np.testing.assert_allclose(slope, 0.05 * w, atol=1e-7)
    else:
        assert np.abs(slope).max() <= 0.05 + 1e-7
        assert slope @ w == pytest.approx(0.05 * np.abs(w).sum(), abs=1e-7)
    R, bound = np.array(result["mean_criterion"])[0, 1:], np.array(result["mean_criterion_bound"])[0, 1:]
    assert np.all(bound >= R)
    assert np.all(R > -1e-8)


def test_a_constraint_that_nothing_meets_has_no_optimum(tmp_path: Path) -> None:
    np.save(tmp_path / "A.npy", np.eye(D + 1, D))
    problem = {"map": "file", "map_path": str(tmp_path / "A.npy"), "map_B": [[1.0]] + [[0.0]] * D, "map_c": [0.0] * D + [1.0]}
    with pytest.raises(InputError, match="no x and w meet"):
        result_of(table(tmp_path, "gl-admm", problem=problem, record={"optimum": True}))


def test_a_given_B_and_c_step_by_step(tmp_path: Path) -> None:
    """[C] Algorithm 2 with B = diag and c, written out: every iterate to 1e-12. From files as from lists."""
    b, c, lambda1, rho, eta = np.array([-1.0, 2.0, -0.5, 1.5]), np.array([0.1, 0.0, -0.2, 0.3]), 0.02, 0.3, 4.0
    np.save(tmp_path / "B.npy", np.diag(b))
    np.savetxt(tmp_path / "c.csv", c[:, None], delimiter=",")
    raw = table(
        tmp_path,
        "gl-admm",
        problem={"map_B": str(tmp_path / "B.npy"), "map_c": str(tmp_path / "c.csv"), "lambda1": lambda1},
    )
    got = np.array(result_of(raw)["server_trajectory"])[0]
    X, y = records()
    x, u, gamma = np.zeros(D), np.zeros(D), eta * rho + 1.0
    for t in range(1, 31):
        target = (c - x - u) / b
        w = np.sign(target) * np.maximum(np.abs(target) - lambda1 / (rho * b**2), 0.0)
        x = x - eta / gamma * (mean_gradient(x, X, y) + rho * (x + b * w - c + u))
        u = u + x + b * w - c
        np.testing.assert_allclose(got[t], x, atol=1e-12)


def test_minus_identity_given_is_the_default(tmp_path: Path) -> None:
    """B = -I and c = 0 in so many words: the same iterates."""
    default = result_of(table(tmp_path, "gl-acc-admm"))["server_trajectory"]
    given = result_of(table(tmp_path, "gl-acc-admm", problem={"map_B": (-np.eye(D)).tolist(), "map_c": [0.0] * D}))[
        "server_trajectory"
    ]
    np.testing.assert_allclose(np.array(given), np.array(default), atol=1e-12)


@pytest.mark.parametrize(
    ("problem", "words"),
    [
        ({"map_B": [[1.0, 1.0]] * D}, "not independent"),
        ({"map_B": [[1.0]]}, "as many"),
        ({"map_c": [1.0]}, "as many"),
        ({"map_B": "missing.npy"}, "cannot be read"),
    ],
)
def test_a_B_or_c_that_does_not_fit_is_refused(tmp_path: Path, problem: dict[str, Any], words: str) -> None:
    """With the key and the reason."""
    with pytest.raises(InputError, match=words):
        result_of(table(tmp_path, "gl-admm", problem=problem))


def test_the_criterion_and_its_bound(tmp_path: Path) -> None:
    """R(x~, y~) of [C] Theorem 2 from the recorded path by its definition, with gradients; and it stays below the bound."""
    raw = table(
        tmp_path, "gl-admm", iterations=60, record={"optimum": True, "metrics": ["mean_criterion", "mean_criterion_bound"]}
    )
    result = result_of(raw)
    X, y = records()
    path, best = np.array(result["server_trajectory"])[0], np.array(result["optimum/primal"])
    lambda1, rho, eta = 0.01, 0.3, 4.0
    u, ws = np.zeros(D), []
    for before, after in pairwise(path):
        q = before + u
        ws.append(np.sign(q) * np.maximum(np.abs(q) - lambda1 / rho, 0.0))
        u = u + after - ws[-1]
    x, w = path[1:].mean(axis=0), np.mean(ws, axis=0)
    slope = -mean_gradient(best, X, y)  # g'(y*), for A = I
    loss_part = objective(x, X, y, 0.0) - objective(best, X, y, 0.0) - mean_gradient(best, X, y) @ (x - best)
    R = loss_part + lambda1 * (np.abs(w).sum() - np.abs(best).sum()) - slope @ (w - best)
    assert float(result["mean_criterion"][0, -1]) == pytest.approx(R, abs=1e-8)
    assert R > 1e-5
    bound = (best @ best) / (2 * eta) + rho / 2 * (best @ best) + slope @ slope / (2 * rho)
    assert float(result["mean_criterion_bound"][0, -1]) == pytest.approx(bound / 60, rel=1e-6)
    R_all, bounds = np.array(result["mean_criterion"])[0, 1:], np.array(result["mean_criterion_bound"])[0, 1:]
    assert np.all(R_all <= bounds)
    assert np.isnan(result["mean_criterion"][0, 0])


def test_the_criterion_needs_the_optimum(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="optimum = true"):
        result_of(table(tmp_path, "gl-admm", record={"metrics": ["mean_criterion"]}))


def test_mu_moves_the_papers_noise(tmp_path: Path) -> None:
    """[C] (8) with mu = 0.3, written out; the default is 0.5; the sound account does not know mu."""
    epsilon, delta, T = 0.7, 1e-3, 30
    for mu in (0.3, 0.5):
        alpha = np.log(1 / delta) / ((1 - mu) * epsilon) + 1
        privacy = {"target": epsilon, "target_account": "paper", "delta": delta} | ({} if mu == 0.5 else {"mu": mu})
        result = result_of(table(tmp_path, "dp-admm", privacy=privacy))
        sigma = np.sqrt(alpha * T / (2 * N**2 * epsilon * mu))
        assert float(result["privacy/noise_std"][-1, 0]) == pytest.approx(sigma, rel=1e-12)
    with pytest.raises(InputError, match=r"privacy\.mu"):
        result_of({"iterations": 2, "algorithm": {"method": "ps-admm"}, "privacy": {"noise_std": 1.0, "mu": 0.3}})


def test_decaying_noise_is_drawn_and_paid_for(tmp_path: Path) -> None:
    """sigma_t = 0.1 * 0.9^(t-1): the path written out, and both accounts from the sum of 1/sigma_t^2."""
    from dp_accounting import GaussianDpEvent
    from dp_accounting.rdp import RdpAccountant

    raw = table(tmp_path, "dp-admm", privacy={"noise_std": {"first": 0.1, "ratio": 0.9}, "delta": 1e-3})
    result = result_of(raw)
    X, y = records()
    x, u, rho, eta, lambda1 = np.zeros(D), np.zeros(D), 0.3, 4.0, 0.01
    sigmas = 0.1 * 0.9 ** np.arange(30)
    for t, sigma in enumerate(sigmas, 1):
        q = x + u
        w = np.sign(q) * np.maximum(np.abs(q) - lambda1 / rho, 0.0)
        noise = sigma * generator(1, Purpose.NOISE, 0, 1, t).standard_normal(D)
        x = x - eta / (eta * rho + 1) * (mean_gradient(x, X, y) + noise + rho * (x - w + u))
        u = u + x - w
    np.testing.assert_allclose(np.array(result["server_trajectory"])[0, -1], x, atol=1e-10)
    np.testing.assert_allclose(np.array(result["privacy/noise_std"])[1:, 0], sigmas, rtol=1e-12)
    accountant = RdpAccountant()
    for sigma in sigmas:
        accountant.compose(GaussianDpEvent(sigma * N / 2))
    assert float(result["privacy/epsilon_sound"][-1]) == pytest.approx(accountant.get_epsilon(1e-3), rel=1e-9)
    b = np.sum(sigmas**-2.0) / (2 * N**2 * 0.5)
    assert float(result["privacy/epsilon_paper"][-1]) == pytest.approx((b + np.sqrt(b**2 + 8 * b * np.log(1e3))) / 2, rel=1e-9)


def test_a_target_calibrates_the_first_of_a_decaying_noise(tmp_path: Path) -> None:
    """The total at the end is the target, and the ratio is kept."""
    raw = table(tmp_path, "dp-admm", privacy={"noise_std": {"ratio": 0.95}, "target": 2.0, "delta": 1e-3})
    result = result_of(raw)
    assert 1.999 < float(result["privacy/epsilon_sound"][-1]) <= 2.0
    noise = np.array(result["privacy/noise_std"])[1:, 0]
    np.testing.assert_allclose(noise[1:] / noise[:-1], 0.95, rtol=1e-12)


def test_sampled_gradients_and_their_account(tmp_path: Path) -> None:
    """12 of 60 records in each iteration, on three shards: the path written out, the account as dp-accounting has it."""
    from dp_accounting import GaussianDpEvent, NeighboringRelation, SampledWithoutReplacementDpEvent
    from dp_accounting.rdp import RdpAccountant

    raw = table(
        tmp_path,
        "dp-admm",
        algorithm={"batch": 0.2},
        privacy={"noise_std": 0.5, "delta": 1e-3},
        network={"nodes": 3},
        data={"split": "even"},
    )
    result = result_of(raw)
    from dpadmm_mpi.methods.base import make_plan
    from dpadmm_mpi.methods.experiment import experiment

    dataset = make_plan(experiment(raw).configs[0])[1]
    X, y = all_records(dataset)
    x, u, rho, eta, lambda1 = np.zeros(D), np.zeros(D), 0.3, 4.0, 0.01
    for t in range(1, 31):
        chosen = generator(1, Purpose.SAMPLES, 0, 3, t).choice(N, 12, replace=False)
        q = x + u
        w = np.sign(q) * np.maximum(np.abs(q) - lambda1 / rho, 0.0)
        noise = 0.5 * generator(1, Purpose.NOISE, 0, 3, t).standard_normal(D)
        x = x - eta / (eta * rho + 1) * (mean_gradient(x, X[chosen], y[chosen]) + noise + rho * (x - w + u))
        u = u + x - w
    np.testing.assert_allclose(np.array(result["server_trajectory"])[0, -1], x, atol=1e-10)
    accountant = RdpAccountant(neighboring_relation=NeighboringRelation.REPLACE_ONE)
    accountant.compose(SampledWithoutReplacementDpEvent(N, 12, GaussianDpEvent(0.5 * 12 / 2)), 30)
    assert float(result["privacy/epsilon_sound"][-1]) == pytest.approx(accountant.get_epsilon(1e-3), rel=1e-4)


def test_a_batch_of_all_records_is_the_full_gradient(tmp_path: Path) -> None:
    """To the bit; and more records than there are is refused."""
    full = np.array(result_of(table(tmp_path, "gl-admm"))["server_trajectory"])
    batch = np.array(result_of(table(tmp_path, "gl-admm", algorithm={"batch": N}))["server_trajectory"])
    np.testing.assert_array_equal(batch, full)
    with pytest.raises(InputError, match=r"algorithm\.batch"):
        result_of(table(tmp_path, "gl-admm", algorithm={"batch": N + 1}))


def test_sampling_lowers_the_noise_that_a_target_needs() -> None:
    """Relative to the sensitivity of the batch, by more than half at a rate of 0.1: the calibration takes the sampling in."""
    from dpadmm_mpi.methods.curated.accounts import sound_epsilon
    from dpadmm_mpi.methods.gaussian import sound_noise

    full = CuratedReleases(iterations=20, features=3, noise_std=1.0, records=1000, shards=2)
    sampled = CuratedReleases(iterations=20, features=3, noise_std=1.0, records=1000, shards=2, batch=100)
    found = sound_noise(sampled, 1.0, 1e-5)
    assert found * 100 < 0.5 * sound_noise(full, 1.0, 1e-5) * 1000
    met = CuratedReleases(iterations=20, features=3, noise_std=found, records=1000, shards=2, batch=100)
    assert 0.999 < sound_epsilon(met, 1e-5)[-1, 0] <= 1.0


def test_rho_auto_is_what_it_says(tmp_path: Path) -> None:
    """lambda1 sqrt(rows) / ||A|| for l1, lambda1 for l2."""
    for regulariser, expected in (("l1", 0.01 * 2.0), ("l2", 0.01)):
        raw = table(tmp_path, "gl-admm", algorithm={"rho": "auto"}, problem={"regulariser": regulariser})
        assert float(result_of(raw)["algorithm/rho"][-1, 0]) == pytest.approx(expected)


def test_check_says_the_gradient_complexity(tmp_path: Path) -> None:
    """n T, or batch times T."""
    from dpadmm_mpi.methods.base import Assumptions, make_plan
    from dpadmm_mpi.methods.experiment import experiment

    for options, number in (({}, 1800), ({"batch": 10}, 300)):
        plan, _ = make_plan(experiment(table(tmp_path, "gl-admm", algorithm=options)).configs[0])
        assert any(f"= {number} gradients" in line for line in plan.conditions(Assumptions()))
