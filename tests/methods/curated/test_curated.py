"""The curated family: against plain implementations and a conic solver; its maps, its optimum, its accounts and its audit."""

import numpy as np
import pytest
import reference_curated as reference
from conftest import command, shard_of

import dpadmm_mpi
from dpadmm_mpi import InputError, RunError
from dpadmm_mpi.config.options import files as configfile
from dpadmm_mpi.methods.base import make_plan
from dpadmm_mpi.methods.curated import accounts as theory
from dpadmm_mpi.methods.curated import algorithm as curated
from dpadmm_mpi.methods.curated import linear_maps
from dpadmm_mpi.methods.curated.audit import audit
from dpadmm_mpi.rng import Purpose, generator

METHODS = tuple(curated.METHODS)
PRIVATE = ("dp-admm", "dp-acc-admm")


def raw(method="gl-admm", iterations=30, **sections):
    base = {
        "name": method,
        "seed": 4,
        "iterations": iterations,
        "data": {"records": 150, "features": 5, "train": 120, "split": "uneven", "concentration": 4.0},
        "problem": {"lambda1": 0.01},
        "algorithm": {"method": method},
        "privacy": {"noise_std": 0.02} if method in PRIVATE else {},
        "record": {"trajectory": True},
    }
    for name, table in sections.items():
        base[name] = {**base.get(name, {}), **table} if isinstance(table, dict) else table
    return base


def planned(config):
    return make_plan(configfile.load(config, (), None).configs[0])


def records(dataset):
    shards = [shard_of(dataset, i) for i in range(len(dataset.sizes))]
    dense = [s.X if isinstance(s.X, np.ndarray) else s.X.toarray() for s in shards]
    return np.concatenate(dense), np.concatenate([s.y for s in shards])


@pytest.mark.parametrize("case", range(20))
def test_equal_to_a_plain_implementation(tmp_path, case):
    """Twenty random problems: method, penalty, map, step sizes, u_0 and start all differ; every iterate to 1e-10."""
    rng = np.random.default_rng(case)
    d, kind, method = int(rng.integers(1, 7)), ("l1", "l2")[case % 2], METHODS[case // 2 % 4]
    A = rng.standard_normal((int(rng.integers(1, 9)), d))
    np.save(tmp_path / "A.npy", A)
    lambda1, rho, eta, gamma, n = 0.1 * rng.random(), 0.2 + rng.random(), 1 + rng.random(), 8 + rng.random(), 40
    settings = {
        "method": method,
        "rho": rho,
        "eta": eta,
        "gamma": gamma,
        "init": "random",
        "u0": "zero" if case % 3 else "as-printed",
    }
    problem = {"lambda1": lambda1, "regulariser": kind, "map": "file", "map_path": str(tmp_path / "A.npy")}
    data = {"features": d, "records": n, "train": 1.0, "split": "even", "concentration": None}
    config = raw(method, 25, seed=case, data=data, problem=problem, algorithm=settings)
    config["data"].pop("concentration")
    result = dpadmm_mpi.run(config)
    X, y = records(planned(config)[1])
    noise = np.zeros((25, d))
    if method in PRIVATE:  # the address of the noise: the hub is the place behind the five nodes
        noise = 0.02 * np.array([generator(case, Purpose.NOISE, 0, 5, t).standard_normal(d) for t in range(1, 26)])
    x0 = generator(case, Purpose.INIT, 0, 5).standard_normal(d)
    u0 = np.zeros(len(A)) if case % 3 else -np.linalg.pinv(A.T) @ reference.gradient(x0, X, y) / rho
    plain = reference.algorithm_3 if "acc" in method else reference.algorithm_2
    path, w, u = plain(X, y, A, x0, u0, noise, kind, lambda1, rho, eta, gamma)
    np.testing.assert_allclose(result["server_trajectory"][0], path, atol=1e-10)
    np.testing.assert_allclose(result["final/splitting"][0], w, atol=1e-10)
    np.testing.assert_allclose(result["final/dual"][0], u, atol=1e-10)
    assert (result["final/primal"][0] == result["server_trajectory"][0, -1]).all()


@pytest.mark.parametrize("map", ["identity", "graphical-lasso"])
@pytest.mark.parametrize("kind", ["l1", "l2"])
def test_without_noise_the_optimum_of_a_conic_solver(kind, map):
    """Both methods, and the package's own interior-point optimum, end at the optimum that Clarabel finds."""
    problem = {"lambda1": 0.01, "regulariser": kind, "map": map} | ({"sparsity": 0.1} if map != "identity" else {})
    for method, extra in (("gl-admm", {}), ("gl-acc-admm", {"restart": True})):
        config = raw(
            method,
            1500,
            problem=problem,
            algorithm={"rho": 0.1} | extra,
            record={"every": 1500, "optimum": True, "trajectory": False},
        )
        plan, dataset = planned(config)
        assert map == "identity" or plan.settings.A.rows > plan.features
        x, smallest = reference.optimum(*records(dataset), plan.settings.A.A, kind, 0.01)
        assert np.linalg.norm(x) > 0.1
        result = dpadmm_mpi.run(config)
        assert np.linalg.norm(result["final/primal"][0, 0] - x) < 1e-6
        assert result["objective"][0, -1] == pytest.approx(smallest, abs=1e-10)
        assert result.attributes["optimum"]["objective"] == pytest.approx(smallest, abs=1e-10)
        assert result["objective_gap"][0, -1] == pytest.approx(0.0, abs=1e-10)
        assert result["consensus_error"][0, -1] < 1e-6


def test_an_optimum_at_zero_is_zero():
    """lambda1 above every gradient at 0: x* = 0 to the bit, and distances to it are not relative."""
    config = raw("dp-admm", 5, problem={"lambda1": 1.0}, algorithm={"init": "random"}, record={"optimum": True})
    result = dpadmm_mpi.run(config)
    assert not result["optimum/primal"].any()
    assert result.attributes["optimum"]["objective"] == pytest.approx(np.log(2), abs=1e-15)
    np.testing.assert_allclose(result["distance_to_optimum"][0], np.linalg.norm(result["server_trajectory"][0], axis=1))


def iterations_needed(method, rho):
    """After which the objective stays within 1e-6 of the smallest."""
    data, problem = {"records": 500, "train": 400}, {"lambda1": 1e-3}
    config = raw(method, 800, data=data, problem=problem, algorithm={"rho": rho}, record={"optimum": True})
    return 1 + int(np.flatnonzero(dpadmm_mpi.run(config)["objective_gap"][0] >= 1e-6)[-1])


@pytest.mark.parametrize("rho", [0.01, 0.03, 0.1])
def test_acceleration_needs_fewer_iterations(rho):
    fast, plain = iterations_needed("gl-acc-admm", rho), iterations_needed("gl-admm", rho)
    assert plain < 800
    assert fast < plain / 2


def test_acceleration_as_printed_need_not_converge_and_a_restart_repairs_it():
    """lambda1/rho large: as printed, the momentum keeps it away from the optimum that ADMM reaches."""
    problem, record = {"lambda1": 0.05, "map": "graphical-lasso", "sparsity": 0.1}, {"optimum": True}
    gaps = {}
    for method, extra in (("gl-admm", {}), ("gl-acc-admm", {}), ("gl-acc-admm", {"restart": True})):
        config = raw(method, 1000, problem=problem, algorithm={"rho": 0.03} | extra, record=record)
        gaps[method, len(extra)] = dpadmm_mpi.run(config)["objective_gap"][0, -200:].max()
    assert gaps["gl-admm", 0] < 1e-7
    assert gaps["gl-acc-admm", 1] < 1e-7
    assert gaps["gl-acc-admm", 0] > 1e-4


@pytest.mark.parametrize("acc", ["", "acc-"])
def test_noise_off_is_the_plain_method_to_the_bit(acc):
    plain = dpadmm_mpi.run(raw(f"gl-{acc}admm"))
    off = raw(f"dp-{acc}admm")
    off["privacy"] = {"perturbation": "none"}
    quiet, noisy = dpadmm_mpi.run(off), dpadmm_mpi.run(raw(f"dp-{acc}admm"))
    assert quiet["server_trajectory"].tobytes() == plain["server_trajectory"].tobytes()
    assert noisy["server_trajectory"].tobytes() != plain["server_trajectory"].tobytes()
    for result in (quiet, plain):
        for name in ("epsilon_paper", "epsilon_sound"):
            assert np.isinf(result[f"privacy/node_{name}"]).all()


def test_what_is_measured():
    """Losses, objective and test error written out; uneven shards count by their records."""
    config = raw("dp-acc-admm", 8)
    result = dpadmm_mpi.run(config)
    plan, dataset = planned(config)
    x = result["server_trajectory"][0, -1]
    node_loss = []
    for i in range(5):
        shard = shard_of(dataset, i)
        node_loss.append(np.mean(np.log1p(np.exp(-shard.y * (shard.X @ x)))))
    np.testing.assert_allclose(result["node_loss"][0, -1], node_loss)
    X, y = records(dataset)
    f = np.mean(np.log1p(np.exp(-y * (X @ x))))
    assert abs(f - np.mean(node_loss)) > 1e-6
    assert result["loss"][0, -1] == pytest.approx(f)
    assert result["objective"][0, -1] == pytest.approx(f + 0.01 * np.abs(x).sum())
    w = result["final/splitting"][0]
    assert result["consensus_error"][0, -1] == pytest.approx(np.linalg.norm(x - w))
    test = dataset.test()
    wrong = sum(int((np.where(block.X @ x >= 0, 1, -1) != block.y).sum()) for block in test.blocks())
    assert result["test_error"][0, -1] == wrong / test.records
    assert plan.scales == {"constraint": 5}


# Linear maps


def test_graphical_lasso_meets_its_optimality_conditions(rng):
    """Features in two groups and a constant one: edges inside the groups only, with the signs of their partial correlations."""
    Z = rng.standard_normal((4000, 2))
    signs = np.array([1.0, 1.0, -1.0, 1.0, -1.0])
    groups = np.array([0, 0, 0, 1, 1])
    X = signs * Z[:, groups] + 0.7 * rng.standard_normal((4000, 5))
    S = np.corrcoef(X.T)
    with_constant = np.full((6, 6), np.nan)
    with_constant[:5, :5] = S
    edges, found = linear_maps.graphical_lasso_edges(with_constant, 0.3)
    assert edges.tolist() == [[0, 1], [0, 2], [1, 2], [3, 4]]
    np.testing.assert_array_equal(found, [signs[i] * signs[j] for i, j in edges])
    A = linear_maps.stacked(edges, found, 6).toarray()
    np.testing.assert_array_equal(A[4:], np.eye(6))
    np.testing.assert_array_equal(A[:4], [[1, -1, 0, 0, 0, 0], [1, 0, 1, 0, 0, 0], [0, 1, 1, 0, 0, 0], [0, 0, 0, 1, 1, 0]])
    assert len(linear_maps.graphical_lasso_edges(with_constant, 0.99)[0]) == 0


@pytest.mark.parametrize("sparse", [False, True])
def test_correlation_is_streamed_over_the_shards(tmp_path, rng, sparse):
    X = rng.random((90, 4)) * (rng.random((90, 4)) < 0.6)
    X[:, 2] = 0.3  # constant, but not zero
    X /= 2 * np.linalg.norm(X, axis=1, keepdims=True) if sparse else 2.5
    X[:, 2] = 0.3
    y = np.where(rng.random(90) < 0.5, 1.0, -1.0)
    if sparse:
        entries = [" ".join(f"{j + 1}:{float(v)!r}" for j, v in enumerate(x) if v) for x in X]
        lines = [f"{label:+g} {row}" for label, row in zip(y, entries, strict=True)]
        (tmp_path / "r.svm").write_text("\n".join(lines))
        data = {"source": "libsvm", "path": str(tmp_path / "r.svm"), "features": 4, "train": 1.0}
    else:
        np.savez(tmp_path / "r.npz", X=X, y=y)
        data = {"source": "npz", "path": str(tmp_path / "r.npz"), "train": 1.0}
    config = {"data": data, "algorithm": {"method": "gl-admm"}, "problem": {"map": "graphical-lasso", "sparsity": 0.01}}
    plan, dataset = planned(config)
    found = linear_maps.correlation(dataset)
    assert np.isnan(found[2]).all()
    varying = [0, 1, 3]
    np.testing.assert_allclose(found[np.ix_(varying, varying)], np.corrcoef(X[:, varying].T), atol=1e-12)
    assert not plan.settings.A.A[:-4, 2].any()


def test_the_pattern_is_kept_and_belongs_to_its_records(cache, monkeypatch):
    config = raw(problem={"map": "graphical-lasso", "sparsity": 0.07}, seed=77)
    first = planned(config)[0].settings.A.A
    monkeypatch.setattr(linear_maps, "graphical_lasso_edges", lambda S, sparsity: pytest.fail("computed again"))
    np.testing.assert_array_equal(planned(config)[0].settings.A.A, first)
    for path in (cache / "maps").iterdir():  # damaged, all of them
        path.write_bytes(path.read_bytes()[:-50])
    with pytest.raises(pytest.fail.Exception, match="computed again"):
        planned(config)
    for change in ({"seed": 78}, {"problem": {**config["problem"], "sparsity": 0.08}}):
        with pytest.raises(pytest.fail.Exception, match="computed again"):
            planned(config | change)


@pytest.mark.filterwarnings("error")
def test_maps_from_files(tmp_path):
    from scipy import sparse

    A = np.array([[1.0, -1, 0, 0, 0], [0, 0, 2, 0, 0]])
    np.savetxt(tmp_path / "a.csv", A, delimiter=",")
    np.savez(tmp_path / "a.npz", A=A)
    sparse.save_npz(tmp_path / "s.npz", sparse.csr_matrix(A))
    for name in ("a.csv", "a.npz", "s.npz"):
        plan, _ = planned(raw(problem={"map": "file", "map_path": str(tmp_path / name)}))
        np.testing.assert_array_equal(plan.settings.A.A, A)
        assert plan.settings.A.norm == pytest.approx(2.0)
    np.save(tmp_path / "nan.npy", A * np.nan)
    np.save(tmp_path / "wide.npy", np.ones((2, 6)))
    np.save(tmp_path / "complex.npy", A * 1j)
    np.save(tmp_path / "zeros.npy", A * 0)
    np.save(tmp_path / "rowless.npy", A[:0])
    np.savez(tmp_path / "other.npz", B=A)
    for name in ("a", "s"):
        (tmp_path / f"cut-{name}.npz").write_bytes((tmp_path / f"{name}.npz").read_bytes()[:-60])
    (tmp_path / "swapped.npz").write_bytes((tmp_path / "nan.npy").read_bytes())
    (tmp_path / "text.csv").write_text("one,two\n")
    (tmp_path / "ragged.csv").write_text("1,2,3,4,5\n1,2\n")
    (tmp_path / "empty.csv").write_text("")
    for name, words in (
        ("missing.npy", "No such file"),
        ("nan.npy", "not a finite number"),
        ("wide.npy", r"shape \(2, 6\), but the records have 5"),
        ("complex.npy", "complex numbers; A is a real matrix"),
        ("zeros.npy", "has no entry but zeros"),
        ("rowless.npy", "has no rows"),
        ("other.npz", 'cannot be read as a matrix: an .npz file must be whole and hold an array "A"'),
        ("cut-a.npz", "an .npz file must be whole"),
        ("cut-s.npz", "an .npz file must be whole"),
        ("swapped.npz", "an .npz file must be whole"),
        ("text.csv", "cannot be read as a matrix: every line must hold the same number of numbers"),
        ("ragged.csv", "every line must hold the same number of numbers"),
        ("empty.csv", "has no rows"),
    ):
        with pytest.raises(InputError, match=words):
            planned(raw(problem={"map": "file", "map_path": str(tmp_path / name)}))


def test_rank_and_singular_values_of_a_deficient_map(rng):
    """Rank 3 by construction: the squares' round-off is no singular value."""
    A = linear_maps.LinearMap(rng.standard_normal((8, 3)) @ rng.standard_normal((3, 6)))
    found, exact = A.singular_values, np.linalg.svd(A.A, compute_uv=False)
    np.testing.assert_allclose(found[:3], exact[:3], rtol=1e-9)
    assert found[3:].tolist() == [0.0] * 3
    c_1 = theory.start_constant(0.4, 9.0, 0.7, 0.25, found)
    G = 9.0 * np.eye(6) - 0.4 * 0.7 * A.A.T @ A.A
    parts = np.linalg.norm(G, 2) / 0.8 + 0.35 * exact[0] ** 2 + 0.25 / (1.4 * exact[2] ** 2)
    assert c_1 == pytest.approx(parts, rel=1e-9)


def test_the_map_is_in_the_file_and_the_audit_compares_it(tmp_path):
    A = np.array([[1.0, -1.0], [0.0, 2.0]])
    np.save(tmp_path / "A.npy", A)
    config = audited("dp-admm", runs=2)
    config["problem"] |= {"map": "file", "map_path": str(tmp_path / "A.npy")}
    result = dpadmm_mpi.run(config, tmp_path / "o.h5")
    stored = dpadmm_mpi.load(tmp_path / "o.h5")
    np.testing.assert_array_equal(stored["problem/map"], A)
    assert stored.dims["problem/map"] == ("constraint", "feature")
    assert result.attributes["problem"]["map_sha256"] == stored.attributes["problem"]["map_sha256"]
    audit(tmp_path / "o.h5")
    np.save(tmp_path / "A.npy", A[::-1])
    with pytest.raises(InputError, match="its linear map has changed"):
        audit(tmp_path / "o.h5")


def test_large_maps_are_sparse_and_do_the_same(rng, monkeypatch):
    edges, signs = np.array([[0, 3], [1, 2]]), np.array([1.0, -1.0])
    A = linear_maps.stacked(edges, signs, 5)
    dense, sparse = linear_maps.LinearMap(A.toarray()), linear_maps.LinearMap(A)
    x, v, g, weights = rng.standard_normal(5), rng.standard_normal(7), rng.standard_normal(5), rng.random(7)
    np.testing.assert_allclose(sparse(x), dense(x))
    np.testing.assert_allclose(sparse.transposed(v), dense.transposed(v))
    np.testing.assert_allclose(sparse.gram(weights), A.toarray().T @ np.diag(weights) @ A.toarray())
    for map in (dense, sparse):
        np.testing.assert_allclose(map.transposed_pseudo_inverse(g), np.linalg.pinv(A.toarray().T) @ g, atol=1e-10)
    exact = np.linalg.norm(A.toarray(), 2)
    assert dense.norm == pytest.approx(exact)
    monkeypatch.setattr(linear_maps, "LARGEST", 1)
    assert exact <= linear_maps.LinearMap(A).norm < 2 * exact
    monkeypatch.setattr(linear_maps, "DENSE_ENTRIES", 10)
    assert not isinstance(planned(raw())[0].settings.A.A, np.ndarray)
    assert np.isfinite(dpadmm_mpi.run(raw("dp-acc-admm", 5, algorithm={"u0": "as-printed"}))["loss"]).all()


# Accounts


def test_accounts_and_calibration():
    """A target is met by the account it names; paper first, sound last; sound is the larger one."""
    for account in ("paper", "sound"):
        config = raw("dp-admm", 20, privacy={"target": 2.0, "target_account": account, "delta": 1e-3})
        config["privacy"].pop("noise_std")
        plan, _ = planned(config)
        assert [a.name for a in plan.accounts] == ["epsilon_paper", "epsilon_sound"]
        epsilon = {a.name: a.values[-1] for a in plan.accounts}
        assert epsilon[f"epsilon_{account}"] == pytest.approx(2.0, rel=1e-3)
        assert epsilon["epsilon_sound"] > epsilon["epsilon_paper"]
        result = dpadmm_mpi.run(config)
        assert result["privacy/noise_std"][1:] == pytest.approx(plan.settings.noise_std)
        assert result.attributes["privacy/epsilon_sound"]["delta"] == 1e-3


def test_what_is_not_private_is_said():
    printed, _ = planned(raw("dp-admm", algorithm={"u0": "as-printed"}))
    assert all(np.isinf(a.node_values).all() for a in printed.accounts)
    assert any("not private" in note for note in printed.notes)
    assert any(line.startswith("FAILS  privacy") for line in printed.conditions(1.0, 0.1, 0.05))
    estimated, _ = planned(raw("dp-admm", problem={"map": "graphical-lasso", "sparsity": 0.1}))
    assert any("estimated from the records" in note for note in estimated.notes)
    assert all("estimated from the records" in a.theorem for a in estimated.accounts)
    assert any(line.startswith("FAILS  privacy: A") for line in estimated.conditions(1.0, 0.1, 0.05))
    assert [a.proven for a in printed.accounts] == [True, True]  # at most inf is true
    assert [a.proven for a in estimated.accounts] == [False, False]
    given, _ = planned(raw("dp-admm"))
    assert [a.proven for a in given.accounts] == [True, True]
    assert "everybody but the curator, who sees the exact gradients" in given.privacy_in_words
    assert given.notes == ()
    assert not any(line.startswith("FAILS") for line in given.conditions(1.0, 0.1, 0.05))


def test_steps_found_and_refused():
    plan, _ = planned(raw(algorithm={"rho": 0.5}))
    assert (plan.settings.eta, plan.settings.gamma) == (4.0, pytest.approx(3.0))  # 1/c1; 4 * 0.5 * ||I|| + 1
    assert any("is below the 3" in note for note in planned(raw(algorithm={"rho": 0.5, "gamma": 1.0}))[0].notes)
    assert any("is above the 1/L_f = 4" in note for note in planned(raw(algorithm={"eta": 4.1}))[0].notes)
    with pytest.raises(InputError, match=r"algorithm\.gamma: must be above 0"):
        planned(raw(algorithm={"gamma": 0.0}))
    with pytest.raises(RunError, match="grows without bound"):
        dpadmm_mpi.run(raw(iterations=500, problem={"regulariser": "l2"}, algorithm={"gamma": 0.01, "init": "random"}))


def test_check_and_show_print_it(tmp_path, write_toml):
    path = write_toml(raw("dp-acc-admm", problem={"map": "graphical-lasso", "sparsity": 0.1}))
    process = command("check", path)
    assert process.returncode == 0, process.stderr
    for words in (
        "[C] Algorithm 3",
        "epsilon_sound",
        "gamma >= eta rho",
        "estimated from the records",
        "not proven; best",
        "no bound is known for the accelerated method",
        "1 rank hosts all 5 nodes and the hub",
    ):
        assert words in process.stdout
    process = command("run", path, "-o", tmp_path / "o.h5")
    assert process.returncode == 0, process.stderr
    assert "not proven" in command("show", tmp_path / "o.h5").stdout
    assert "3 ranks host 1 to 2 nodes each, rank " in command("check", path, "--ranks", 3).stdout


# The audit


def audited(method, runs=300, **sections):
    """Few records and the smoothed hinge, which has its full slope on both sides: the sensitivity is nearly used up."""
    data, problem = {"records": 20, "features": 2, "train": 1.0}, {"loss": "huber", "lambda1": 1e-3}
    config = raw(method, 4, runs=runs, problem=problem, data=data, **sections)
    config["network"], config["data"]["split"] = {"nodes": 2}, "even"
    config["data"].pop("concentration")
    config["privacy"] = {"noise_std": 0.1}
    return config


@pytest.mark.parametrize(
    ("method", "algorithm"), [("dp-admm", {}), ("dp-acc-admm", {}), ("dp-acc-admm", {"restart": True, "init": "random"})]
)
def test_three_hundred_runs_pass_the_audit(tmp_path, method, algorithm):
    """No finding, and losses of the size that the account allows for: more than half of epsilon."""
    dpadmm_mpi.run(audited(method, algorithm=algorithm), tmp_path / "o.h5")
    report = audit(tmp_path / "o.h5", candidates=3)
    assert report.findings == []
    assert report.losses.shape == (2, 300, 4, 9)
    delta = 1 / 300
    plan, _ = planned(audited(method))
    assert report.worst.max() > 0.5 * theory.sound_epsilon(plan.releases, delta)[-1, 0]


def test_loss_of_one_step_by_hand(tmp_path):
    """One iteration from zero, logistic, A = I: the density of x_1 under both data sets written out."""
    config = audited("dp-admm", runs=3) | {"iterations": 1}
    config["problem"] = {"lambda1": 1e-3}
    dpadmm_mpi.run(config, tmp_path / "o.h5")
    report = audit(tmp_path / "o.h5", node=1, record=2)
    X, y = records(planned(config)[1])
    Z = y[:, None] * X
    n = 10 + 2  # node 1's third record
    for run in range(3):
        x = report.result["server_trajectory"][run, 1]

        def log_density(rows, x=x):
            mean = -(4.0 / 5.0) * (-0.5 * rows.mean(axis=0))  # eta = 4, gamma = 5, w_1 = u_0 = 0
            return -np.sum((x - mean) ** 2) / (2 * (0.8 * 0.1) ** 2)

        towards = -Z.mean(axis=0)  # without noise xhat_1 is a positive multiple of the mean record
        for pair, new in enumerate((-Z[n], -Z[n] / np.linalg.norm(Z[n]), towards / np.linalg.norm(towards))):
            changed = Z.copy()
            changed[n] = new
            assert report.losses[0, run, 0, pair] == pytest.approx(log_density(Z) - log_density(changed), abs=1e-9)


def test_a_neighbour_against_the_path_uses_more_of_the_sensitivity(tmp_path):
    """Logistic: a record across the path and its opposite have half the slope each, one against the path has nearly all of it.

    The mean loss of a pair is its squared shift over 2 sigma^2; (2c/n)^2 is what the account pays for.
    """
    y = np.tile([1.0, -1.0], 10)
    signed = np.repeat([[0.2, 0.0], [0.2, 0.0], [0.0, 0.3], [0.0, -0.3]], 5, axis=0)
    np.savez(tmp_path / "r.npz", X=y[:, None] * signed, y=y)
    config = audited("dp-admm", runs=10) | {"iterations": 100, "problem": {"lambda1": 1e-5}}
    config["data"] = {"source": "npz", "path": str(tmp_path / "r.npz"), "train": 1.0}
    config["privacy"] = {"noise_std": 0.01}
    dpadmm_mpi.run(config, tmp_path / "o.h5")
    report = audit(tmp_path / "o.h5", candidates=1)
    assert report.findings == []
    last = (report.losses[:, :, -1] - report.losses[:, :, -2]).mean(axis=1)  # of the last iteration, (nodes, pairs)
    share = last / ((2 / 20) ** 2 / (2 * 0.01**2))
    assert share[:, :2].max() < 0.15  # (0.5 + 0.3 / 2)^2 / 4
    assert share[:, 2].min() > 0.2  # up to (1 + (0.3 / 2)^2) / 4


def test_the_audit_shows_no_share_of_an_epsilon_of_0(tmp_path):
    config = audited("dp-admm", runs=2) | {"privacy": {"noise_std": 1e9}}
    dpadmm_mpi.run(config, tmp_path / "o.h5")
    process = command("audit", tmp_path / "o.h5", "--candidates", 3)
    assert process.returncode == 0
    assert process.stderr == ""
    assert [line.split()[-2:] for line in process.stdout.splitlines()[1:3]] == [["0", "-"]] * 2


def half(noise, seed, run, hub, t, noise_std, d):
    return noise(seed, run, hub, t, noise_std / 2, d)


def reused(noise, seed, run, hub, t, noise_std, d):
    return noise(seed, run, hub, min(t, 3), noise_std, d)


def same_in_every_run(noise, seed, run, hub, t, noise_std, d):
    return noise(seed, 0, hub, t, noise_std, d)


FAULTS = {half: "is not N(0, noise_std^2)", reused: "noise is used again", same_in_every_run: "noise is used again"}


@pytest.mark.parametrize("fault", FAULTS)
def test_planted_faults_are_caught(tmp_path, monkeypatch, fault):
    original = curated.gaussian_noise
    monkeypatch.setattr(curated, "gaussian_noise", lambda *arguments: fault(original, *arguments))
    dpadmm_mpi.run(audited("dp-acc-admm", runs=100), tmp_path / "o.h5")
    monkeypatch.undo()
    findings = audit(tmp_path / "o.h5", candidates=2).findings
    assert any(FAULTS[fault] in finding for finding in findings), findings


def test_an_account_that_is_too_small_is_caught(tmp_path, monkeypatch):
    dpadmm_mpi.run(audited("dp-admm"), tmp_path / "o.h5")
    account = theory.sound_epsilon
    monkeypatch.setattr(theory, "sound_epsilon", lambda r, delta: account(r, delta) * 0.1 - 0.5)
    assert any("incompatible" in finding for finding in audit(tmp_path / "o.h5", candidates=3).findings)


def test_audit_command(tmp_path):
    dpadmm_mpi.run(audited("dp-admm", runs=20), tmp_path / "o.h5")
    process = command("audit", tmp_path / "o.h5", "--candidates", 3)
    assert process.returncode == 0, process.stderr
    assert "nothing found against the accounts" in process.stdout
    for config, words in (
        (audited("dp-admm", runs=2, algorithm={"u0": "as-printed"}), "not private"),
        (audited("dp-admm", runs=2, record={"trajectory": False}), "holds no trajectory"),
        (raw("gl-admm"), "nothing to audit"),
    ):
        dpadmm_mpi.run(config, tmp_path / "n.h5", force=True)
        with pytest.raises(InputError, match=words):
            audit(tmp_path / "n.h5")


def test_a9a_acceleration_pays_from_some_epsilon_on(fetched):
    """[C] Fig. 2: DP-AccADMM below DP-ADMM in test accuracy where the noise is large, above it where it is small.

    By more than three standard errors of the difference of the means, both times.
    """
    for epsilon, runs, sign in ((0.03, 4, -1), (1.0, 2, +1)):
        accuracy = {}
        for method in PRIVATE:
            config = {
                "runs": runs,
                "iterations": 300,
                "data": {"source": fetched("a9a")},
                "problem": {"lambda1": 1e-5, "map": "graphical-lasso"},
                "algorithm": {"method": method, "rho": 0.1},
                "privacy": {"target": epsilon, "delta": 1e-3},
                "record": {"every": 300},
            }
            result = dpadmm_mpi.run(config)
            assert len(result["constraint"]) == 123 + 52  # edges at the default sparsity
            accuracy[method] = 1 - result["test_error"][:, -1]
        gain = sign * (accuracy["dp-acc-admm"].mean() - accuracy["dp-admm"].mean())
        error = np.sqrt(sum(values.var(ddof=1) / runs for values in accuracy.values()))
        assert gain > 3 * error, (epsilon, accuracy)
    assert accuracy["dp-acc-admm"].min() > 0.84
