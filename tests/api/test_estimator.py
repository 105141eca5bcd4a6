"""The scikit-learn estimators: scikit-learn's own checks, pipelines, and the models that they say they are."""

import subprocess
import sys
import warnings
from typing import Any

import networkx as nx
import numpy as np
import pytest
from scipy import sparse
from scipy.optimize import minimize
from sklearn.datasets import load_breast_cancer, load_iris, make_classification, make_regression
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator
from support import TOP

from dpadmm_mpi import InputError, PrivateConsensusClassifier, PrivateConsensusRegressor

# With noise. docs/python.md has the table; without noise nothing is expected to fail.
EXPECTED_FAILED = {
    "check_classifiers_train": "asks for an accuracy of 83 % on 300 records, which epsilon = 1 over 5 nodes does not leave",
    "check_regressors_train": "asks for an R^2 of 0.5 on 200 records, which epsilon = 1 over 5 nodes does not leave",
}
WITHOUT_NOISE = {
    "classifier": PrivateConsensusClassifier(epsilon=None, norm_bound=10.0, iterations=5),
    "regressor": PrivateConsensusRegressor(epsilon=None, norm_bound=10.0, iterations=20, eta=0.02),
}


@pytest.mark.parametrize("name", WITHOUT_NOISE)
def test_scikit_learn_checks_without_noise(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scikit-learn's own, about what it skips
        found = check_estimator(WITHOUT_NOISE[name], on_fail=None, on_skip=None)
    failed = [f"{check['check_name']}: {check['exception']}" for check in found if check["status"] == "failed"]
    skipped = [check["check_name"] for check in found if check["status"] == "skipped"]
    assert not failed
    assert skipped in (["check_array_api_input"], [])
    assert len(found) >= 50


def test_the_page_lists_every_check_that_is_expected_to_fail() -> None:
    page = (TOP / "docs" / "python.md").read_text()
    assert all(f"`{name}`" in page for name in EXPECTED_FAILED)


def test_without_noise_it_is_logistic_regression() -> None:
    """Against a solver that shares no code: sum_i (C/B_i) sum L + rho/2 ||w||^2 in the scaled features, with intercept."""
    X, y = make_classification(n_samples=200, n_features=3, n_informative=3, n_redundant=0, random_state=0)
    bound = float(np.linalg.norm(X, axis=1).max())
    settings = {"problem": {"loss": "logistic"}}
    model = PrivateConsensusClassifier(
        epsilon=None, norm_bound=bound, nodes=4, method="admm", eta=0.2, rho=0.1, iterations=400, settings=settings
    ).fit(X, y)
    A = np.column_stack([X / bound, np.ones(200)]) / np.sqrt(2)
    signs = 2.0 * y - 1.0

    def objective(w: Any) -> float:
        return float(np.logaddexp(0, -signs * (A @ w)).sum() / 50 + 0.1 / 2 * w @ w)

    w = minimize(objective, np.zeros(4), tol=1e-12).x
    np.testing.assert_allclose(model.coef_[0] * bound * np.sqrt(2), w[:3], atol=2e-4)
    np.testing.assert_allclose(model.intercept_ * np.sqrt(2), w[3:], atol=2e-4)
    np.testing.assert_allclose(model.predict_proba(X)[:, 1], 1 / (1 + np.exp(-A @ w)), atol=2e-4)


def test_three_classes_without_noise_are_multinomial_regression() -> None:
    """Against scikit-learn's, with the penalty on the intercept too: sum_i (C/B) sum loss + (rho/2) ||F||^2."""
    X, y = load_iris(return_X_y=True)
    names = np.array(["setosa", "versicolor", "virginica"])[y]
    bound = float(np.linalg.norm(X, axis=1).max())
    model = PrivateConsensusClassifier(
        epsilon=None, norm_bound=bound, nodes=3, method="admm", eta=0.1, rho=0.1, iterations=400
    ).fit(X, names)
    A = np.column_stack([X / bound, np.ones(150)]) / np.sqrt(2)
    oracle = LogisticRegression(C=1.0 / (50 * 0.1), fit_intercept=False, tol=1e-12, max_iter=10_000).fit(A, y)
    np.testing.assert_allclose(model.coef_ * bound * np.sqrt(2), oracle.coef_[:, :-1], atol=1e-5)
    np.testing.assert_allclose(model.intercept_ * np.sqrt(2), oracle.coef_[:, -1], atol=1e-5)
    np.testing.assert_allclose(model.predict_proba(X), oracle.predict_proba(A), atol=1e-5)
    assert np.array_equal(model.predict(X), np.array(["setosa", "versicolor", "virginica"])[oracle.predict(A)])
    private = PrivateConsensusClassifier(epsilon=20.0, norm_bound=bound, nodes=3, iterations=2, random_state=0).fit(X, names)
    assert 19.9 < private.epsilon_ <= 20.0
    assert set(private.predict(X)) <= set(names)


def test_the_regressor_is_huber_regression_in_the_units_of_y() -> None:
    """Against a solver that shares no code; targets outside the public range are clipped; in a pipeline; R^2 is the score."""
    X, y = make_regression(n_samples=400, n_features=3, noise=5.0, random_state=1)
    y = 100.0 + y
    bound, low, high = float(np.linalg.norm(X, axis=1).max()), -50.0, 200.0
    assert ((y < low) | (y > high)).any()
    keys: dict[str, Any] = {"norm_bound": bound, "target_range": (low, high), "nodes": 4, "random_state": 0}
    model = PrivateConsensusRegressor(epsilon=None, method="admm", eta=0.01, rho=0.01, iterations=400, **keys).fit(X, y)
    A = np.column_stack([X / bound, np.ones(400)]) / np.sqrt(2)
    scaled = (np.clip(y, low, high) - 75.0) / 125.0

    def objective(w: Any) -> float:
        z = np.abs(A @ w - scaled)
        return float(np.where(z < 0.5, z**2, z - 0.25).sum() / 100 + 0.01 / 2 * w @ w)

    w = minimize(objective, np.zeros(4), tol=1e-12).x
    np.testing.assert_allclose(model.predict(X), 75.0 + 125.0 * (A @ w), atol=0.05)
    np.testing.assert_allclose(X @ model.coef_ + model.intercept_, model.predict(X))
    residual = np.sum((y - model.predict(X)) ** 2) / np.sum((y - y.mean()) ** 2)
    assert model.score(X, y) == pytest.approx(1.0 - residual)
    private = PrivateConsensusRegressor(epsilon=4.0, eta=0.05, **keys)
    scores = cross_val_score(make_pipeline(StandardScaler(), private), X, y, cv=2, error_score="raise")
    assert scores.mean() > 0.5  # the mean of y alone gives 0
    assert 3.99 < private.fit(X, y).epsilon_ <= 4.0
    notes = private.result_.attributes["/"]["notes"]
    assert "clipped" in notes and "taken from the records" not in notes
    assert "taken from the records" in private.set_params(target_range=None).fit(X, y).result_.attributes["/"]["notes"]


def test_long_records_are_shortened_to_the_public_bound() -> None:
    """A record ten times as long as the bound counts as one of that length; what is trained on has norm 1 at most."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 2))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    y = (X[:, 0] > 0).astype(int)
    long = np.where(np.arange(60)[:, None] % 2 == 0, 10.0, 1.0) * X
    kept: dict[str, Any] = {"epsilon": None, "nodes": 3, "random_state": 0}
    a, b = (PrivateConsensusClassifier(**kept).fit(records, y) for records in (X, long))
    np.testing.assert_allclose(a.coef_, b.coef_, rtol=1e-9)
    c = PrivateConsensusClassifier(**kept).fit(sparse.csr_matrix(long), y)
    np.testing.assert_allclose(a.coef_, c.coef_, rtol=1e-6)


def test_in_a_pipeline_with_cross_validation() -> None:
    """The breast cancer table: a useful private classifier, and what it has spent."""
    X, y = load_breast_cancer(return_X_y=True)
    model = PrivateConsensusClassifier(
        epsilon=4.0, norm_bound=6.0, nodes=3, graph=nx.complete_graph(3), iterations=2, random_state=0
    )
    scores = cross_val_score(make_pipeline(StandardScaler(), model), X, y, cv=3, error_score="raise")
    # The larger class alone gives 0.63; folds scatter by 0.05 with the noise, their mean by 0.03.
    assert scores.mean() > 0.7
    model.fit(StandardScaler().fit_transform(X), np.where(y == 1, "benign", "malignant"))
    assert 3.99 < model.epsilon_ <= 4.0
    assert set(model.predict(X[:20])) <= {"benign", "malignant"}
    assert len(model.result_["node"]) == 3


def test_scikit_learn_is_loaded_by_the_estimator_alone() -> None:
    program = (
        "import sys; sys.modules['sklearn'] = None; sys.modules['sklearn.base'] = None; import dpadmm_mpi; dpadmm_mpi.run\n"
        "try: dpadmm_mpi.PrivateConsensusClassifier\n"
        "except dpadmm_mpi.InputError as error: print(error)"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert found.strip().endswith("need scikit-learn; install it with: pip install scikit-learn")


def test_impossible_settings_are_one_sentence() -> None:
    X, y = make_classification(n_samples=50, random_state=0)
    with pytest.raises(ValueError, match="norm_bound: found 0"):
        PrivateConsensusClassifier(norm_bound=0).fit(X, y)
    with pytest.raises(InputError, match="itertions: unknown setting"):
        PrivateConsensusClassifier(settings={"itertions": 3}).fit(X, y)
