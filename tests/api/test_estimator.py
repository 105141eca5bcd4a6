"""PrivateConsensusClassifier: scikit-learn's own checks, pipelines, and the model that it says it is."""

import subprocess
import sys
import warnings
from typing import Any

import networkx as nx
import numpy as np
import pytest
from scipy import sparse
from scipy.optimize import minimize
from sklearn.datasets import load_breast_cancer, make_classification
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator
from support import TOP

from dpadmm_mpi import InputError, PrivateConsensusClassifier

# With noise. docs/python.md has the table; without noise nothing is expected to fail.
EXPECTED_FAILED = {
    "check_classifiers_train": "asks for an accuracy of 83 % on 300 records, which epsilon = 1 over 5 nodes does not leave"
}


def test_scikit_learn_checks_without_noise() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scikit-learn's own, about what it skips
        found = check_estimator(
            PrivateConsensusClassifier(epsilon=None, norm_bound=10.0, iterations=5), on_fail=None, on_skip=None
        )
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
    assert found.strip() == "PrivateConsensusClassifier needs scikit-learn; install it with: pip install scikit-learn"


def test_impossible_settings_are_one_sentence() -> None:
    X, y = make_classification(n_samples=50, random_state=0)
    with pytest.raises(ValueError, match="norm_bound: found 0"):
        PrivateConsensusClassifier(norm_bound=0).fit(X, y)
    with pytest.raises(InputError, match="itertions: unknown setting"):
        PrivateConsensusClassifier(settings={"itertions": 3}).fit(X, y)
