"""What the star methods offer beyond [S]'s main line, in runs, against plain loops: local ridge, batches, a ball, noise that
changes, g = l1, rho = auto, criterion (9) and the means over the iterations.
"""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import optimize
from support import result_of, star_plan

from dpadmm_mpi.errors import InputError
from dpadmm_mpi.methods.base import make_plan
from dpadmm_mpi.methods.experiment import parse
from dpadmm_mpi.methods.star import theory
from dpadmm_mpi.rng import Purpose, generator

SEED, D, S, K = 12, 4, 15, 4


def configuration(method: str, **sections: Any) -> dict[str, Any]:
    raw: dict[str, Any] = {
        "seed": SEED,
        "iterations": K,
        "data": {"records": 150, "features": D, "train": 120, "split": "uneven", "concentration": 5.0},
        "network": {"nodes": 5},
        "problem": {"reg": 0.05},
        "algorithm": {"method": method, "rho": 0.8, "init": "random"},
        "record": {"trajectory": True},
    }
    if method != "star-admm":
        raw["algorithm"]["inner_steps"] = S
    if method == "ps-admm":
        raw["privacy"] = {"noise_std": 0.7}
    for name, table in sections.items():
        raw[name] = {**raw.get(name, {}), **table} if isinstance(table, dict) else table
    return raw


def shards(raw: dict[str, Any]) -> list[tuple[Any, Any]]:
    plan, dataset = make_plan(parse(raw))
    found = [dataset.loader.shard(dataset.address(i)) for i in range(plan.nodes)]
    return [(shard.X, shard.y) for shard in found]


def mean_loss(X: Any, y: Any, x: Any) -> float:
    return float(np.mean(np.log1p(np.exp(-y * (X @ x)))))


def gradients(X: Any, y: Any, x: Any) -> Any:
    """Of every record's logistic loss, a row each."""
    return (-y / (1 + np.exp(y * (X @ x))))[:, None] * X


def plain_inner_loop(
    X: Any,
    y: Any,
    x: Any,
    lam: Any,
    z: Any,
    chosen: Any,
    noise: Any,
    *,
    rho: float,
    eta: float,
    ridge: float,
    radius: float | None,
    v_L: float | None = None,
) -> Any:
    """[S] Algorithm 2, lines 4 to 12, every gradient with the ridge's; `v_L`: the extrapolated average."""
    vs, u = [x], gradients(X, y, x).mean(axis=0) + ridge * x
    for m, theta in zip(chosen, noise, strict=True):
        v = vs[-1]
        ours = gradients(X[m], y[m], v).mean(axis=0) + ridge * v
        before = gradients(X[m], y[m], x).mean(axis=0) + ridge * x
        v = v - eta * (ours - before + u + lam + rho * (v - z) + theta)
        vs.append(v if radius is None or np.linalg.norm(v) <= radius else radius * v / np.linalg.norm(v))
    if v_L is None:
        return np.mean(vs[1:], axis=0)
    xi = 4 * eta / (1 - 2 * eta * v_L)
    mean = np.mean([((2 * eta - xi) * a + xi * b) / (2 * eta) for a, b in pairwise(vs)], axis=0)
    return mean if radius is None or np.linalg.norm(mean) <= radius else radius * mean / np.linalg.norm(mean)


@pytest.mark.parametrize("averaging", ["uniform", "extrapolated"])
@pytest.mark.parametrize(
    ("ridge", "batch", "radius", "noise", "g"),
    [
        (0.0, 1, None, 0.7, "l2"),
        (0.3, 1, None, 0.7, "l2"),
        (0.0, 5, None, 0.7, "l2"),
        (0.0, 1, 0.4, 0.7, "l2"),
        (0.0, 1, None, [0.7, 0.2, 1.5, 0.1], "l2"),
        (0.0, 1, None, {"first": 0.9, "ratio": 0.5}, "l2"),
        (0.0, 1, None, 0.7, "l1"),
        (0.2, 3, 0.9, [1.0, 0.5, 0.3, 0.2], "l1"),
    ],
)
def test_runs_equal_plain_loops(ridge: float, batch: int, radius: float | None, noise: Any, g: str, averaging: str) -> None:
    """x_i and z of every iteration of PS-ADMM, each option alone and all together, to 1e-10."""
    algorithm = {"eta": 0.2, "batch_size": batch, "averaging": averaging} | ({} if radius is None else {"radius": radius})
    raw = configuration(
        "ps-admm",
        problem={"local_ridge": ridge, "regulariser": g},
        algorithm=algorithm,
        privacy={"noise_std": noise},
    )
    result = result_of(raw)
    sigma = [0.9 * 0.5**k for k in range(K)] if isinstance(noise, dict) else noise if isinstance(noise, list) else [noise] * K
    providers, rho, reg = shards(raw), 0.8, 0.05
    x, z = list(result["trajectory"][0, 0]), result["server_trajectory"][0, 0]
    lam = [np.zeros(D) for _ in providers]
    for k in range(1, K + 1):
        for i, (X, y) in enumerate(providers):
            random = generator(SEED, Purpose.SAMPLES, 0, i, k)
            if batch == 1:
                chosen: Any = random.integers(len(y), size=S)[:, None]
            else:
                chosen = [random.choice(len(y), batch, replace=False) for _ in range(S)]
                assert all(len(set(m)) == batch for m in chosen)
            theta = sigma[k - 1] * generator(SEED, Purpose.INNER_NOISE, 0, i, k).standard_normal((S, D))
            v_L = 0.25 + rho + ridge if averaging == "extrapolated" else None
            x[i] = plain_inner_loop(X, y, x[i], lam[i], z, chosen, theta, rho=rho, eta=0.2, ridge=ridge, radius=radius, v_L=v_L)
        centre = sum(lam[i] + rho * x[i] for i in range(5))
        if g == "l2":
            z = centre / (5 * rho + 2 * reg)
        else:
            z = np.array([(c - reg if c > reg else c + reg if c < -reg else 0.0) / (5 * rho) for c in centre])
        if radius is not None and np.linalg.norm(z) > radius:
            z = radius * z / np.linalg.norm(z)
        lam = [lam[i] + rho * (x[i] - z) for i in range(5)]
        assert np.max(np.abs(result["trajectory"][0, k] - x)) < 1e-10
        assert np.max(np.abs(result["server_trajectory"][0, k] - z)) < 1e-10
        assert result["privacy/noise_std"][k] == pytest.approx(sigma[k - 1])
        if radius is not None:
            assert np.linalg.norm(result["trajectory"][0, k], axis=1).max() <= radius * (1 + 1e-12)


def plain_optimum(providers: Any, reg: float, ridge: float, g: str) -> Any:
    """By L-BFGS-B on z = p - n with p, n >= 0, where ||z||_1 = sum(p + n); for l2 on z itself."""

    def smooth(z: Any) -> tuple[float, Any]:
        value = sum(mean_loss(X, y, z) + ridge / 2 * z @ z for X, y in providers)
        slope = sum(gradients(X, y, z).mean(axis=0) + ridge * z for X, y in providers)
        return value, slope

    if g == "l2":

        def whole(z: Any) -> tuple[float, Any]:
            value, slope = smooth(z)
            return value + reg * z @ z, slope + 2 * reg * z

        return optimize.minimize(whole, np.zeros(D), jac=True, method="BFGS", options={"gtol": 1e-9}).x

    def parts(pn: Any) -> tuple[float, Any]:
        value, slope = smooth(pn[:D] - pn[D:])
        return value + reg * pn.sum(), np.concatenate([slope + reg, reg - slope])

    bounds = [(0, None)] * (2 * D)
    pn = optimize.minimize(parts, np.zeros(2 * D), jac=True, bounds=bounds, options={"ftol": 1e-16, "gtol": 1e-10}).x
    return pn[:D] - pn[D:]


@pytest.mark.parametrize("method", ["star-admm", "s-admm"])
@pytest.mark.parametrize(("g", "reg", "ridge"), [("l2", 0.05, 0.3), ("l1", 0.3, 0.0), ("l1", 0.05, 0.2), ("l1", 5.0, 0.1)])
def test_without_noise_they_end_at_the_optimum(method: str, g: str, reg: float, ridge: float) -> None:
    """Exact and stochastic, with ridge and with l1: at scipy's optimum, which the recorded one is; l1 has exact zeros."""
    raw = configuration(
        method,
        iterations=300,
        problem={"reg": reg, "regulariser": g, "local_ridge": ridge},
        algorithm={"rho": 0.3} | ({"inner_steps": 200} if method == "s-admm" else {}),
        record={"trajectory": False, "every": 300, "optimum": True},
    )
    result = result_of(raw)
    providers = shards(raw)
    best = plain_optimum(providers, reg, ridge, g)
    assert np.max(np.abs(result["optimum/primal"] - best)) < 1e-5
    assert np.max(np.abs(result["final/server"][0] - result["optimum/primal"])) < 1e-6
    assert abs(result["objective_gap"][0, -1]) < 1e-9
    penalty = reg * (best @ best if g == "l2" else np.abs(best).sum())
    value = sum(mean_loss(X, y, best) + ridge / 2 * best @ best for X, y in providers) + penalty
    assert result.attributes["optimum"]["objective"] == pytest.approx(value, rel=1e-9)
    if g == "l1":
        zero = result["optimum/primal"] == 0.0
        assert np.array_equal(zero, np.abs(best) < 1e-6)
        assert np.array_equal(result["final/server"][0] == 0.0, zero)
        assert zero.any() or reg < 0.3


@pytest.mark.parametrize("g", ["l2", "l1"])
@pytest.mark.parametrize("share", [0.5, 2.0])
def test_in_a_ball_they_end_at_the_optimum_over_the_ball(g: str, share: float) -> None:
    """scipy's optimum over ||z|| <= R is the recorded one, and the run without noise ends there, R below and above ||z*||."""
    problem = {"reg": 0.02, "regulariser": g, "local_ridge": 0.02}
    providers = shards(configuration("s-admm"))
    free = plain_optimum(providers, 0.02, 0.02, g)
    R = share * float(np.linalg.norm(free))
    raw = configuration(
        "s-admm",
        iterations=150,
        problem=problem,
        algorithm={"rho": 0.3, "inner_steps": 150, "radius": R, "init": "zero"},
        record={"optimum": True, "trajectory": False, "every": 150},
    )
    result = result_of(raw)

    def value(z: Any) -> float:
        penalty = z @ z if g == "l2" else np.abs(z).sum()
        return float(sum(mean_loss(X, y, z) + 0.01 * z @ z for X, y in providers) + 0.02 * penalty)

    found = result["optimum/primal"]
    if share > 1:
        assert np.max(np.abs(found - free)) < 1e-5
    else:
        assert np.linalg.norm(found) == pytest.approx(R, rel=1e-11)
        inside = {"type": "ineq", "fun": lambda z: R**2 - z @ z}
        start = R * free / np.linalg.norm(free)
        scipys = optimize.minimize(value, start, method="SLSQP", constraints=inside, options={"ftol": 1e-14, "maxiter": 500})
        assert np.max(np.abs(found - scipys.x)) < 1e-4
        assert value(found) <= scipys.fun + 1e-9
        assert value(found) > value(free) + 1e-3
    assert result.attributes["optimum"]["objective"] == pytest.approx(value(found), rel=1e-12)
    assert np.max(np.abs(result["final/server"][0] - found)) < 1e-5
    assert abs(result["objective_gap"][0, -1]) < 1e-6


@pytest.mark.parametrize("g", ["l2", "l1"])
def test_criterion_9_and_its_ergodic_form(g: str) -> None:
    """Both at every iteration, from the trajectory: P - P* + tau sum ||x_i - z|| at the iterates and at their means."""
    ergodic = {"metric": "ergodic_criterion", "tau": 2.5}
    raw = configuration(
        "ps-admm",
        problem={"local_ridge": 0.1, "regulariser": g},
        record={"optimum": True, "metrics": [ergodic]},
    )
    result = result_of(raw)
    providers, best = shards(raw), result.attributes["optimum"]["objective"]

    def criterion(x: Any, z: Any, tau: float) -> float:
        penalty = 0.05 * (z @ z if g == "l2" else np.abs(z).sum())
        P = sum(mean_loss(X, y, x[i]) + 0.05 * x[i] @ x[i] for i, (X, y) in enumerate(providers)) + penalty
        return float(P - best + tau * sum(np.linalg.norm(x[i] - z) for i in range(5)))

    x, z = result["trajectory"][0], result["server_trajectory"][0]
    for t in range(K + 1):
        assert result["criterion"][0, t] == pytest.approx(criterion(x[t], z[t], 1.0), rel=1e-11)
        means = (x[1 : t + 1].mean(axis=0), z[1 : t + 1].mean(axis=0)) if t else (x[0], z[0])
        assert result["ergodic_criterion"][0, t] == pytest.approx(criterion(*means, 2.5), rel=1e-11)


def test_the_means_survive_a_restart(tmp_path: Path) -> None:
    """Two iterations, then two more from the file: the same bits as four at once, the means over all four included."""
    raw = configuration("s-admm", record={"optimum": True, "metrics": ["ergodic_criterion"]})
    whole = result_of(raw)
    result_of(raw | {"iterations": 2}, tmp_path / "part.h5")
    parts = result_of(raw, tmp_path / "part.h5", resume=True)
    for name in ("ergodic_criterion", "criterion", "trajectory"):
        assert np.array_equal(parts[name], whole[name])


def test_runs_that_do_not_ask_keep_no_means() -> None:
    """The state is as wide as before: old checkpoints fit."""
    assert "ergodic_criterion" not in result_of(configuration("star-admm", record={"optimum": True}))
    plan, _ = make_plan(parse(configuration("star-admm")))
    nodes = plan.make_nodes(np.arange(6), [plan.problem(X * y[:, None]) for X, y in shards(configuration("star-admm"))])
    assert nodes.initial(range(1)).total.shape == (1, 6, 0)


def test_theorem_3_can_apply_and_its_bound_holds() -> None:
    """With a local ridge all three margins are positive, and without noise the ergodic criterion stays below (10)."""
    ridge, rho, eta, steps = 0.4, 0.3, 0.02, 500
    v_L = 0.25 + rho + ridge
    assert min(theory.step_margins(rho, eta, steps, v_L, ridge)) > 0
    raw = configuration(
        "s-admm",
        iterations=20,
        problem={"local_ridge": ridge},
        algorithm={"rho": rho, "eta": eta, "inner_steps": steps, "averaging": "extrapolated", "init": "zero"},
        record={"optimum": True, "metrics": ["ergodic_criterion"], "trajectory": False},
    )
    result = result_of(raw)
    distance = float(np.linalg.norm(result["optimum/primal"]))
    A = theory.start_cost(rho, ridge, distance, tau=1.0)
    bounds = [theory.suboptimality_bound(A, 0.0, 5, k) for k in range(1, 21)]
    assert np.all(result["ergodic_criterion"][0, 1:] <= bounds)
    plan, _ = make_plan(parse(raw))
    from dpadmm_mpi.methods.base import Assumptions

    lines = plan.conditions(Assumptions(f_ref=distance))
    assert [line[:5] for line in lines if "Theorem 3" in line] == ["holds"] * 3
    assert not [line for line in lines if "not proven here" in line]


def test_rho_auto_is_the_geometric_mean_of_the_curvatures() -> None:
    """sqrt(c1 (local_ridge + 2 reg/N)), recorded; after 20 iterations nearer to the optimum than a tenth or ten times of it."""
    gaps = {}
    for problem in ({"reg": 0.01}, {"reg": 0.001, "local_ridge": 0.05}):
        mu = problem.get("local_ridge", 0.0) + 2 * problem["reg"] / 5
        found = np.sqrt(0.25 * mu)
        for rho in ("auto", 0.1 * found, 10 * found):
            algorithm = {"rho": rho, "init": "zero"}
            raw = configuration("star-admm", iterations=20, problem=problem, algorithm=algorithm, record={"optimum": True})
            result = result_of(raw)
            gaps[rho] = abs(result["objective_gap"][0, -1])
            if rho == "auto":
                assert result["algorithm/rho"][1:] == pytest.approx(found, rel=1e-14)
        assert gaps["auto"] < min(gaps[0.1 * found], gaps[10 * found])


def test_targets_with_a_shape_are_met() -> None:
    """noise_std = { ratio } and a target: the noise falls by the ratio and the total meets the target."""
    raw = configuration("ps-admm") | {"privacy": {"noise_std": {"ratio": 0.8}, "target": 4.0, "delta": 1e-3}}
    result = result_of(raw)
    sigma = result["privacy/noise_std"][1:, 0]
    assert sigma[1:] / sigma[:-1] == pytest.approx(0.8)
    assert result["privacy/epsilon_sound"][-1] == pytest.approx(4.0, rel=1e-3)


def test_paper_c_scales_a_run() -> None:
    runs = [result_of(configuration("ps-admm", algorithm={"paper_c": c})) for c in (1.0, 9.0)]
    assert runs[1]["privacy/epsilon_paper"][1:] == pytest.approx(3 * runs[0]["privacy/epsilon_paper"][1:])
    assert np.array_equal(runs[0]["trajectory"], runs[1]["trajectory"])
    assert "c = 9" in runs[1].attributes["privacy/epsilon_paper"]["theorem"]


@pytest.mark.parametrize(
    ("method", "sections", "sentence"),
    [
        ("s-admm", {"algorithm": {"batch_size": 99}}, r"algorithm.batch_size: found 99, but node \d has \d+ records"),
        ("ps-admm", {"privacy": {"noise_std": [1.0, 2.0]}}, "privacy.noise_std: found a list of 2; one for each iteration is"),
        ("ps-admm", {"privacy": {"noise_std": {"ratio": 0.9}}}, "privacy.noise_std: the geometric law needs its first value"),
        ("ps-admm", {"privacy": {"target": 1.0}}, "needs one of privacy.target"),
        ("star-admm", {"problem": {"reg": 0.0}, "algorithm": {"rho": "auto"}}, 'algorithm.rho: "auto" needs problem.reg or'),
        ("s-admm", {"problem": {"local_ridge": 2.0}, "algorithm": {"eta": 1.0}}, r"v_L = c1 \+ rho \+ local_ridge = 3.05"),
        ("star-admm", {"problem": {"regulariser": "l3"}}, "problem.regulariser"),
    ],
)  # fmt: skip
def test_what_cannot_work_is_refused_with_the_fix(method: str, sections: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        result_of(configuration(method, **sections))


@pytest.mark.parametrize(
    ("problem", "algorithm", "noise"),
    [
        ({"local_ridge": 0.2}, {}, [2.0, 1.5, 1.0, 3.0]),
        ({}, {"radius": 0.3}, 2.0),
        ({}, {"batch_size": 4}, [2.0, 1.0, 0.7, 0.5]),
        ({"local_ridge": 0.1}, {"batch_size": 3, "radius": 0.5, "averaging": "extrapolated"}, 1.0),
    ],
)
def test_the_audit_holds_with_every_option(tmp_path: Path, problem: Any, algorithm: Any, noise: Any) -> None:
    """The replay finds the recorded x_i, and noise of the claimed sizes also where a ball has cut the steps short."""
    from dpadmm_mpi.audit import audit
    from dpadmm_mpi.methods.star import accounts

    path = tmp_path / "run.h5"
    raw = configuration("ps-admm", runs=20, problem=problem, algorithm=algorithm, privacy={"noise_std": noise})
    result_of(raw, path)
    report = audit(path, candidates=2)
    assert report.findings == []
    plan, _ = star_plan(raw)
    assert np.all(report.worst < accounts.sound_epsilons(plan.releases, 1e-5)[1][-1])
    assert report.worst.max() > 0.1


def test_the_loss_of_a_batch_by_hand(tmp_path: Path) -> None:
    """Batches of 3 in a ball, one provider: each step's two Gaussian densities at the noisy gradient, written out."""
    from dpadmm_mpi.audit import audit

    raw = configuration("ps-admm", algorithm={"batch_size": 3, "radius": 0.4, "eta": 0.2}, privacy={"noise_std": 0.5})
    result = result_of(raw, tmp_path / "run.h5")
    report = audit(tmp_path / "run.h5", node=2, record=1)
    X, y = shards(raw)[2]
    flipped, stretched = y.copy(), X.copy()
    flipped[1] *= -1
    stretched[1] /= -np.linalg.norm(X[1])
    lam, expected = np.zeros(D), np.zeros(2)
    for k in range(1, K + 1):
        x, z = result["trajectory"][0, k - 1, 2], result["server_trajectory"][0, k - 1]
        random = generator(SEED, Purpose.SAMPLES, 0, 2, k)
        chosen = [random.choice(len(y), 3, replace=False) for _ in range(S)]
        theta = 0.5 * generator(SEED, Purpose.INNER_NOISE, 0, 2, k).standard_normal((S, D))
        v = x
        for m, noise in zip(chosen, theta, strict=True):

            def mean(A: Any, b: Any, v: Any = v, m: Any = m, x: Any = x) -> Any:
                change = gradients(A[m], b[m], v) - gradients(A[m], b[m], x)
                return change.mean(axis=0) + gradients(A, b, x).mean(axis=0)

            o = mean(X, y) + noise
            for pair, other in enumerate((mean(X, flipped), mean(stretched, y))):
                expected[pair] += (np.sum((o - other) ** 2) - noise @ noise) / (2 * 0.5**2)
            v = v - 0.2 * (o + lam + 0.8 * (v - z))
            v = v * min(1.0, 0.4 / np.linalg.norm(v))
        np.testing.assert_allclose(report.losses[0, 0, k - 1], expected, rtol=1e-7, atol=1e-9)
        lam = lam + 0.8 * (result["trajectory"][0, k, 2] - result["server_trajectory"][0, k])
    assert np.abs(expected).max() > 0.05


def test_half_the_noise_in_batches_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from dpadmm_mpi.audit import audit
    from dpadmm_mpi.methods.star import plan as family

    whole = family._inner
    monkeypatch.setattr(family, "_inner", lambda *given: replace(whole(*given), noise_std=0.35))
    result_of(configuration("ps-admm", runs=10, algorithm={"batch_size": 3, "radius": 0.5}), tmp_path / "run.h5")
    findings = audit(tmp_path / "run.h5", candidates=2).findings
    assert any("not of the claimed size" in finding for finding in findings), findings
