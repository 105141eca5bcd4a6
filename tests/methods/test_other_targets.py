"""Classes and numbers from a file to a result: what the labels are taken for, metrics, optimum, accounts, audit, refusals."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import Raw, dataset_of, network_plan, planned, result_of

from dpadmm_mpi.audit import audit, one_run
from dpadmm_mpi.audit.one_run import audit_one_run
from dpadmm_mpi.data.dataset import target_of
from dpadmm_mpi.errors import InputError
from dpadmm_mpi.methods.decentralised.audited_steps import InObjective, Pairs
from dpadmm_mpi.privacy.noises import Gamma
from dpadmm_mpi.problems.losses import Softmax
from dpadmm_mpi.problems.softmax import node_problem
from dpadmm_mpi.types import Array

CLASSES = ("ash", "beech", "cedar")
MODELS = one_run._final_models


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same 240 records with names of classes, and with numbers from 10 to 30."""
    folder, rng = tmp_path_factory.mktemp("targets"), np.random.default_rng(1)
    X = rng.standard_normal((240, 4))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    y = np.argmax(3 * X @ rng.standard_normal((4, 3)) + rng.gumbel(size=(240, 3)), axis=1)
    numbers = np.clip(20 + 8 * X @ rng.standard_normal(4) / 2 + rng.standard_normal(240), 10, 30)
    numbers[:2] = 10, 30
    header = ",".join(["a", "b", "c", "d", "label"])
    for name, labels in (("trees", [CLASSES[k] for k in y]), ("numbers", [repr(v) for v in numbers.tolist()])):
        rows = [",".join([*map(repr, x.tolist()), label]) for x, label in zip(X, labels, strict=True)]
        (folder / f"{name}.csv").write_text("\n".join([header, *rows]) + "\n")
    np.savez(folder / "signs.npz", X=X, y=np.where(X[:, 0] + 0.3 * rng.standard_normal(240) > 0, 1.0, -1.0))
    return folder


def configuration(files: Path, loss: str, perturbation: str = "none", method: str = "r-admm", **sections: Any) -> Raw:
    path = files / ("trees.csv" if loss == "softmax" else "numbers.csv")
    raw: Raw = {
        "iterations": 5, "runs": 2, "seed": 4,
        "data": {"source": "csv", "path": str(path), "train": 200},
        "network": {"graph": "complete", "nodes": 4},
        "problem": {"loss": loss, "C": 5.0, "rho": 0.2},
        "algorithm": {"method": method, "eta": 1.0},
        "privacy": {"perturbation": perturbation} | ({} if perturbation == "none" else {"alpha": 2.0}),
        "record": {"trajectory": True},
    }  # fmt: skip
    for name, table in sections.items():
        raw[name] = {**raw[name], **table} if isinstance(table, dict) else table
    return raw


def found(files: Path, name: str, **data: Any) -> Any:
    return target_of(dataset_of(source="csv", path=str(files / f"{name}.csv"), **data))


def test_what_labels_are_is_found_and_said(files: Path) -> None:
    assert found(files, "trees")[:2] == ("classes", CLASSES)
    assert found(files, "numbers")[:4] == ("number", (), 20.0, 10.0)
    plan, _ = planned(configuration(files, "softmax"))
    assert "the labels are 3 classes: ash, beech, cedar" in plan.notes
    plan, _ = planned(configuration(files, "huber-regression", "objective"))
    assert any("range of the targets is taken from the records" in note for note in plan.notes)
    plan, _ = planned(configuration(files, "huber-regression", "objective", data={"target_range": [0.0, 40.0]}))
    assert plan.target.scale == 20.0
    assert not any("range" in note for note in plan.notes)


@pytest.mark.parametrize(
    ("labels", "kind"),
    [([1, 2, 3], "classes"), ([0.5, 1.0, 2.0], "number"), (list(range(30)), "number"), ([-1, 1], "binary")],
    ids=str,
)
def test_numbers_that_are_classes(tmp_path: Path, labels: list[float], kind: str) -> None:
    """Few whole numbers are classes, other numbers are numbers, -1 and +1 what they always were; data.target says otherwise."""
    y = np.resize(np.array(labels, dtype=float), 60)
    np.savez(tmp_path / "y.npz", X=np.full((60, 2), 0.5), y=y)
    assert target_of(dataset_of(source="npz", path=str(tmp_path / "y.npz"))).kind == kind
    assert target_of(dataset_of(source="npz", path=str(tmp_path / "y.npz"), target="number")).kind == "number"


@pytest.mark.parametrize(
    ("sections", "words"),
    [
        ({"problem": {"loss": "logistic"}}, '"logistic" is for two classes, but the labels are 3 classes: ash, beech, cedar'),
        ({"problem": {"loss": "huber-regression"}}, '"huber-regression" is for numbers, but the labels are 3 classes'),
        ({"problem": {"loss": "softmax", "classes": 2}}, "problem.classes: found 2, but the labels are 3 classes"),
        ({"record": {"metrics": ["area_under_curve"]}}, 'area_under_curve does not go with problem.loss = "softmax"'),
        ({"record": {"metrics": ["mean_squared_error"]}}, 'mean_squared_error does not go with problem.loss = "softmax"'),
        ({"data": {"target": "number"}}, 'the target "[a-z]+" is no finite number'),
        ({"data": {"target": "classes", "positive": "ash"}}, "data.positive: has no meaning"),
    ],
    ids=str,
)
def test_what_does_not_go_together_is_a_sentence(files: Path, sections: Raw, words: str) -> None:
    raw = configuration(files, "softmax", **{name: dict(table) for name, table in sections.items()})  # type: ignore[arg-type]
    with pytest.raises(InputError, match=words):
        planned(raw)


def test_least_squares_is_refused_with_noise_and_stochastic_methods_without_margins(files: Path) -> None:
    with pytest.raises(InputError, match='nothing bounds the slope of "least-squares"'):
        planned(configuration(files, "least-squares", "objective"))
    for loss in ("softmax", "huber-regression"):
        raw = configuration(files, loss) | {
            "network": {"nodes": 4},
            "problem": {"loss": loss},
            "algorithm": {"method": "s-admm"},
        }
        with pytest.raises(InputError, match="s-admm takes no loss of"):
            planned(raw)


def pooled(files: Path, raw: Raw) -> tuple[Array, Array]:
    plan, dataset = network_plan(raw)
    shards = [dataset.loader.shard(dataset.address(i)) for i in range(plan.nodes)]
    return np.concatenate([np.asarray(s.X) for s in shards]), np.concatenate([s.y for s in shards])


def test_the_network_ends_where_scikit_learn_does(files: Path) -> None:
    """Softmax over four equal nodes: sum_i (C/B) sum loss + (rho/2) ||F||^2 is scikit-learn's with its C = C / (B rho)."""
    linear_model = pytest.importorskip("sklearn.linear_model")
    raw = configuration(files, "softmax", method="admm", algorithm={"eta": 0.3}, iterations=300, runs=1, problem={"rho": 2.0})
    raw["record"] = {"optimum": True, "every": 300}
    result = result_of(raw)
    X, y = pooled(files, raw)
    model = linear_model.LogisticRegression(C=5.0 / (50 * 2.0), fit_intercept=False, tol=1e-12, max_iter=10_000).fit(X, y)
    for f in (*result["final/primal"][0], result["optimum/primal"]):
        np.testing.assert_allclose(f.reshape(3, 4), model.coef_, atol=1e-6)
    assert [str(name, "utf8") for name in result["data/feature_names"]][3:5] == ["ash: d", "beech: a"]


def test_least_squares_ends_at_the_normal_equations(files: Path) -> None:
    raw = configuration(files, "least-squares", method="admm", iterations=300, runs=1, record={"trajectory": False})
    X, y = pooled(files, raw)
    f = np.linalg.solve(5.0 / 50 * X.T @ X + 0.2 * np.eye(4), 5.0 / 50 * X.T @ y)
    np.testing.assert_allclose(result_of(raw)["final/primal"][0], np.tile(f, (4, 1)), atol=1e-8)


def test_two_classes_by_softmax_are_the_binary_program(files: Path) -> None:
    """With twice the rho, as f_0 = -f_1 there: the same predictions, and f_1 - f_0 is the binary classifier."""
    raw = configuration(files, "softmax", method="admm", iterations=400, runs=1, record={"every": 400, "trajectory": False})
    raw["algorithm"]["eta"] = 0.3
    raw["data"] = {"source": "npz", "path": str(files / "signs.npz"), "train": 200}
    two = result_of(raw | {"problem": {"loss": "softmax", "C": 5.0, "rho": 0.4}})
    binary = result_of(raw | {"problem": {"loss": "logistic", "C": 5.0, "rho": 0.2}})
    f = two["final/primal"][0].reshape(4, 2, 4)
    np.testing.assert_allclose(f[:, 1] - f[:, 0], binary["final/primal"][0], atol=1e-7)
    assert two["test_error"][0, -1] == binary["test_error"][0, -1]


def test_metrics_against_scikit_learn(files: Path) -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    for loss in ("softmax", "huber-regression"):
        raw = configuration(files, loss, "objective")
        result, (_, dataset) = result_of(raw), planned(raw)
        test = dataset.test()
        assert test is not None
        (block,) = test.blocks()
        assert ("test_error" in result) == (loss == "softmax")
        for run in range(2):
            f = result["final/primal"][run].mean(axis=0)
            if loss == "softmax":
                scores = np.asarray(block.X @ f.reshape(3, 4).T)
                p = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
                assert result["log_loss"][run, -1] == pytest.approx(metrics.log_loss(block.y, p, labels=[0, 1, 2]))
                said = scores.argmax(axis=1)
                assert result["test_error"][run, -1] == pytest.approx(1 - metrics.accuracy_score(block.y, said))
                recall = metrics.recall_score(block.y, said, average=None, labels=[0, 1, 2])
                np.testing.assert_allclose(result["class_error"][run, -1], 1 - recall)
            else:
                said = np.asarray(block.X @ f)
                assert result["mean_squared_error"][run, -1] == pytest.approx(metrics.mean_squared_error(block.y, said))
                assert result["mean_absolute_error"][run, -1] == pytest.approx(metrics.mean_absolute_error(block.y, said))


def test_metrics_of_two_classes_against_scikit_learn(files: Path) -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    raw = configuration(files, "logistic", "objective", record={"metrics": ["area_under_curve", "class_error", "log_loss"]})
    raw["data"] = {"source": "npz", "path": str(files / "signs.npz"), "train": 200}
    result, (_, dataset) = result_of(raw), planned(raw)
    test = dataset.test()
    assert test is not None
    (block,) = test.blocks()
    scores = np.asarray(block.X @ result["final/primal"][1].mean(axis=0))
    assert result["area_under_curve"][1, -1] == pytest.approx(metrics.roc_auc_score(block.y, scores))
    assert result["log_loss"][1, -1] == pytest.approx(metrics.log_loss(block.y, 1 / (1 + np.exp(-scores))))
    recall = metrics.recall_score(block.y, np.where(scores >= 0, 1, -1), average=None, labels=[-1, 1])
    np.testing.assert_allclose(result["class_error"][1, -1], 1 - recall)


def test_pure_accounts_have_the_constants_of_the_loss(files: Path) -> None:
    """Three data steps, worked out by hand: sqrt(2) and trace 2/3 for three classes, 1 and 1/width for Huber."""
    mu, h = 0.2 / 4 + 2 * 3, 5.0 / 50
    for loss, G, c1, determinant in (
        ("softmax", np.sqrt(2), 2 / 3, 2 * np.log1p(h / mu / 3)),
        ("huber-regression", 1.0, 2.0, np.log1p(2 * h / mu)),
    ):
        plan, _ = network_plan(configuration(files, loss, "objective"))
        totals = {account.name: account.values[-1] for account in plan.accounts}
        assert totals["bound"] == pytest.approx(3 * 2 * h * (1.4 * c1 / mu + 2.0 * G))
        assert totals["tight"] == pytest.approx(3 * (2 * h * 2.0 * G + determinant))
        assert 0 < totals["epsilon"] <= totals["tight"]
        plan, _ = network_plan(configuration(files, loss, "primal"))
        assert plan.accounts[0].values[-1] == pytest.approx(3 * 2.0 * 2 * G * h / mu)


@pytest.mark.parametrize("loss", ["softmax", "huber-regression"])
def test_nodes_rest_when_their_budget_is_spent(files: Path, loss: str) -> None:
    """Nodes of unequal sizes: a resting one keeps its value, and until one rests all is as without a budget."""
    raw = configuration(
        files, loss, "objective", "admm", iterations=6, runs=1, data={"sizes": [20, 40, 60, 80], "split": "sizes"}
    )
    del raw["data"]["train"]
    whole = result_of(raw)
    budget = {"epsilon": float(whole["privacy/epsilon"][-1]) / 2, "when_spent": "rest"}
    result = result_of(raw | {"privacy": raw["privacy"] | {"budget": budget}})
    steps, f = result["privacy/budget_steps"], result["trajectory"][0]
    assert 0 < steps.min() < steps.max()
    for t in range(1, len(f)):
        np.testing.assert_array_equal((f[t] == f[t - 1]).all(axis=1), t > steps)
    np.testing.assert_array_equal(f[: steps.min() + 1], whole["trajectory"][0, : steps.min() + 1])


def softmax_by_hand(X: Array, y: Array, f: Array) -> tuple[Array, Array]:
    """Gradient and Hessian of the sum over the records, by Kronecker products."""
    gradient, hessian = np.zeros(12), np.zeros((12, 12))
    for x, label in zip(X, y.astype(int), strict=True):
        p = np.exp(f.reshape(3, 4) @ x)
        p /= p.sum()
        gradient += np.kron(p - np.eye(3)[label], x)
        hessian += np.kron(np.diag(p) - np.outer(p, p), np.outer(x, x))
    return gradient, hessian


def test_audited_step_of_softmax_is_that_of_the_two_data_sets() -> None:
    """Shift of the noise and ratio of the determinants, from both data sets in full."""
    rng = np.random.default_rng(2)
    X, y, f = rng.uniform(-0.5, 0.5, (9, 4)), rng.integers(3, size=9).astype(float), rng.standard_normal((2, 12))
    problem = node_problem(X, Softmax(classes=3), 5.0, 0.3, targets=y)
    step = InObjective(problem, Gamma(), 1.0, 0.4, f, np.zeros_like(f), factor=2.0)
    pairs = Pairs(np.array([4, 7]), rng.uniform(-0.5, 0.5, (2, 4)), np.array([2.0, 0.0]))
    for k, n in enumerate(pairs.replaced):
        other_X, other_y = X.copy(), y.copy()
        other_X[n], other_y[n] = pairs.new[k], [2.0, 0.0][k]
        for run in range(2):
            (g, H), (g2, H2) = softmax_by_hand(X, y, f[run]), softmax_by_hand(other_X, other_y, f[run])
            np.testing.assert_allclose(step.shifts(pairs)[run, k], -5 / 9 * (g2 - g) / 2.0, atol=1e-12)
            logs = [np.linalg.slogdet(5 / 9 * matrix + 0.7 * np.eye(12))[1] for matrix in (H, H2)]
            assert step.log_determinants(pairs)[run, k] == pytest.approx(logs[0] - logs[1], abs=1e-12)


@pytest.mark.parametrize("perturbation", ["objective", "penalty", "primal"])
@pytest.mark.parametrize("loss", ["softmax", "huber-regression"])
def test_the_audit_finds_nothing_and_a_planted_fault(files: Path, tmp_path: Path, loss: str, perturbation: str) -> None:
    """Exact losses stay below every account; the same released values with a smaller claim do not."""
    import h5py

    path = tmp_path / "run.h5"
    result_of(configuration(files, loss, perturbation, runs=3), path)
    report = audit(path, candidates=10)
    assert report.findings == []
    assert report.worst.max() > 0
    with h5py.File(path, "r+") as file:
        for name in ("node_bound", "node_tight"):
            file[f"privacy/{name}"][...] = 0.2 * report.worst.max()
    assert any("more than the" in finding for finding in audit(path, candidates=10).findings)


def test_the_limits_of_a_softmax_step_fail_where_the_loss_claims_too_small_a_slope(
    files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Noise and accounts for a slope of 0.3 where it is up to sqrt(2): both limits of a single step notice it."""
    raw = configuration(files, "softmax", "objective", runs=3)
    for slope, caught in ((Softmax.slope_bound, False), (0.3, True)):
        monkeypatch.setattr(Softmax, "slope_bound", slope)
        path = tmp_path / f"{slope}.h5"
        result_of(raw, path)
        findings = audit(path, candidates=10).findings
        for words in ("more than the largest loss that a data step can have", "more than the proof of epsilon allows"):
            assert any(words in finding for finding in findings) == caught, (slope, findings)


def test_the_limits_of_a_softmax_step_need_the_determinants() -> None:
    """Over many noise vectors, records and classes no loss exceeds them; without their determinant term some do."""
    rng = np.random.default_rng(5)
    X, y = rng.standard_normal((6, 4)), rng.integers(3, size=6).astype(float)
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    problem = node_problem(X, Softmax(classes=3), 6.0, 0.05, targets=y)
    f, noise = 0.3 * rng.standard_normal((40, 12)), rng.standard_normal((40, 12))
    step = InObjective(problem, Gamma(), 0.01, 0.1, f, noise, factor=1.0)
    new = rng.standard_normal((30, 4))
    pairs = Pairs(rng.integers(6, size=30), 0.05 * new, rng.integers(3, size=30).astype(float))
    losses, limits = step.losses(pairs), step.limits(pairs)
    assert (losses <= limits).all()
    plane = np.stack([X[pairs.replaced], pairs.new], axis=-1)
    q = np.linalg.qr(plane)[0]
    inside = np.einsum("pdk,pek,rce->rpcd", q, q, noise.reshape(40, 3, 4)).reshape(40, 30, 12)
    shifted = noise[:, None] + 2 * np.sqrt(2) * inside / np.linalg.norm(inside, axis=-1, keepdims=True)
    by_noise = 0.01 * (np.linalg.norm(shifted, axis=-1) - np.linalg.norm(noise, axis=-1)[:, None])
    assert (losses > by_noise).any()


@pytest.mark.parametrize("perturbation", ["objective", "primal"])
@pytest.mark.parametrize("loss", ["softmax", "huber-regression"])
def test_the_search_finds_worse_neighbours_than_the_corners(files: Path, tmp_path: Path, loss: str, perturbation: str) -> None:
    """At the same records, in the runs that it searches in; what it finds is a record, and sound accounts cover it."""
    path = tmp_path / "run.h5"
    result_of(configuration(files, loss, perturbation, runs=2), path)
    found = audit(path, candidates=2, adversaries=2)
    assert found.findings == []
    losses = found.losses[:, :1, -1]  # of the run that was searched
    corners, searched = losses[..., :6].max(axis=-1), losses[..., 6:].max(axis=-1)
    assert (searched >= corners - 1e-6).all() and (searched > 1.02 * corners).any()


@pytest.mark.parametrize("loss", ["softmax", "huber-regression"])
def test_one_run_guesses_the_canaries_of_other_targets(tmp_path: Path, loss: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """30 directions that no record uses: they are guessed where noise hides nothing, and a strong claim is refuted."""
    rng = np.random.default_rng(3)
    X = np.zeros((200, 34))
    X[:, :4] = rng.uniform(-0.5, 0.5, (200, 4))
    np.savez(tmp_path / "r.npz", X=X, y=np.argmax(X[:, :3], axis=1) if loss == "softmax" else X[:, 0] + 0.1)
    raw: Raw = {
        "iterations": 3,
        "data": {"source": "npz", "path": str(tmp_path / "r.npz"), "train": 1.0},
        "network": {"nodes": 4},
        "algorithm": {"init": "zero"},
        "problem": {"loss": loss, "C": 5.0},
        "privacy": {"perturbation": "objective", "alpha": 1e4},
    }
    loud = audit_one_run(raw, canaries=30)
    assert loud.findings == []
    assert loud.everything.right >= 28
    assert max(verdict.shown for verdict in loud.verdicts) > 1.0
    quiet = audit_one_run(raw | {"privacy": {"perturbation": "objective", "alpha": 0.5}}, canaries=30)
    assert quiet.everything.right < 25
    monkeypatch.setattr(one_run, "_final_models", lambda plan, shards: final_with(plan, shards, raw))
    claimed = audit_one_run(raw | {"privacy": {"perturbation": "objective", "alpha": 0.5}}, canaries=30)
    assert any("which shows an epsilon of" in finding for finding in claimed.findings)


def final_with(plan: Any, shards: Any, raw: Raw) -> Array:
    """The models of a run with almost no noise, whatever the plan says: the planted fault."""
    louder, _ = network_plan(raw | {"runs": 1})
    return MODELS(louder, shards)
