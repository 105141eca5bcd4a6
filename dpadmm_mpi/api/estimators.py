"""scikit-learn estimators: a private model that nodes of a network train together. The only importer of its base classes.

x in R^d becomes (x / b, 1) / sqrt(2) with b = `norm_bound`, where a longer x is shortened to norm b first: a public number
bounds every record, as the privacy accounts need it, and the constant is the intercept.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpadmm_mpi.api.result import Result
from dpadmm_mpi.api.running import run
from dpadmm_mpi.data.shard import row_norms
from dpadmm_mpi.errors import InputError
from dpadmm_mpi.types import Array

try:
    from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
    from sklearn.utils import check_random_state
    from sklearn.utils.multiclass import check_classification_targets, unique_labels
    from sklearn.utils.validation import check_is_fitted, validate_data
except ImportError:
    raise InputError(
        "PrivateConsensusClassifier and PrivateConsensusRegressor need scikit-learn; install it with: pip install scikit-learn"
    ) from None


class _Consensus(BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """What both estimators do: records of bounded norm, a run, weights in the units of X."""

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def _train(self, X: Any, y: Any, **keys: Any) -> Array:
        """Spread the records over the nodes and let them train; a row of weights for each output, the intercept last."""
        if not self.norm_bound > 0:
            raise ValueError(f"norm_bound: found {self.norm_bound}; a positive number is needed")
        rows = _scaled(X, float(self.norm_bound))
        rows = _times(rows, 1.0 / np.maximum(row_norms(rows) * np.sqrt(2.0), 1.0))
        result = run(
            data=(_with_constant(rows), y),
            graph=self.graph,
            train=1.0,
            nodes=min(self.nodes, len(y)) if isinstance(self.graph, str) else None,
            seed=int(check_random_state(self.random_state).randint(2**31 - 1)),
            **self._keys(keys),
        )
        assert isinstance(result, Result)
        self.result_ = result
        self.epsilon_ = float(result["privacy/epsilon"][-1])
        self.n_iter_ = int(self.iterations)
        weights = result.classifier().reshape(-1, X.shape[1] + 1) / np.sqrt(2.0)
        weights[:, :-1] /= self.norm_bound
        return weights

    def _keys(self, keys: dict[str, Any]) -> dict[str, Any]:
        own = {name: getattr(self, name) for name in ("method", "eta", "C", "rho", "iterations", "epsilon")}
        return {**own, **keys, "init": "zero", "delta": self.delta, **(self.settings or {})}

    def _scores(self, X: Any) -> Array:
        check_is_fitted(self)
        X = validate_data(self, X, accept_sparse="csr", dtype=np.float64, reset=False)
        return np.asarray(X @ np.atleast_2d(self.coef_).T + self.intercept_)


class PrivateConsensusClassifier(ClassifierMixin, _Consensus):  # type: ignore[misc]
    """A linear classifier, trained by nodes that keep their records and release noisy weights.

    Two classes by the logistic loss; more by the softmax loss, whose weights are as many vectors as there are classes.

    Parameters
    ----------
    epsilon : total privacy loss at `delta`, of everything released; None: no noise, and no privacy
    delta : of (epsilon, delta)
    norm_bound : public bound on the norm of a record; longer ones are shortened to it. Never taken from the records
    nodes : number of nodes that the records are spread over, evenly and at random
    graph : how nodes are joined: a name, a networkx graph (which then says how many nodes there are), or pairs
    method : of the configuration, one on a network
    eta : the penalty
    C : weight of the loss against the regulariser
    rho : weight of the regulariser
    iterations : exchanges with the neighbours
    random_state : of the split and the noise. Whoever knows it can take the noise away: keep it None for real records
    settings : further keys of the configuration, a dictionary

    Attributes
    ----------
    classes_ : the labels
    coef_, intercept_ : of the mean classifier over the nodes, in the units of X; of several classes a row each
    result_ : the `Result` of the run, with curves and accounts
    epsilon_ : what was spent, by the account that was calibrated

    Examples
    --------
    >>> from sklearn.datasets import make_classification
    >>> from dpadmm_mpi import PrivateConsensusClassifier
    >>> X, y = make_classification(n_samples=2000, n_features=4, random_state=1)
    >>> model = PrivateConsensusClassifier(epsilon=2.0, norm_bound=4.0, random_state=1).fit(X, y)
    >>> bool(model.score(X, y) > 0.8)
    True
    """

    def __init__(
        self,
        *,
        epsilon: float | None = 1.0,
        delta: float = 1e-5,
        norm_bound: float = 1.0,
        nodes: int = 5,
        graph: Any = "complete",
        method: str = "mr-admm",
        eta: float = 0.3,
        C: float = 1.0,
        rho: float = 0.01,
        iterations: int = 10,
        random_state: Any = None,
        settings: dict[str, Any] | None = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.norm_bound = norm_bound
        self.nodes = nodes
        self.graph = graph
        self.method = method
        self.eta = eta
        self.C = C
        self.rho = rho
        self.iterations = iterations
        self.random_state = random_state
        self.settings = settings

    def fit(self, X: Any, y: Any) -> "PrivateConsensusClassifier":
        """Spread the records over the nodes and let them train.

        Parameters
        ----------
        X : features, (records, features), dense or sparse
        y : two or more different labels

        Returns
        -------
        The estimator itself.

        Raises
        ------
        ValueError
            y has one label alone, or norm_bound is not positive.
        InputError
            A key of `settings` is wrong, or the target cannot be met.

        Examples
        --------
        >>> import numpy as np
        >>> from dpadmm_mpi import PrivateConsensusClassifier
        >>> X = np.sin(np.arange(900.0)).reshape(300, 3)
        >>> model = PrivateConsensusClassifier(epsilon=None, norm_bound=2.0, nodes=2, random_state=1).fit(X, X[:, 0] > 0)
        >>> model.epsilon_, model.coef_.shape
        (inf, (1, 3))
        """
        X, y = validate_data(self, X, y, accept_sparse="csr", dtype=np.float64)
        check_classification_targets(y)
        self.classes_ = unique_labels(y)
        if len(self.classes_) < 2:
            raise ValueError("Classifier can't train when only one class is present.")
        places = np.searchsorted(self.classes_, y)
        if len(self.classes_) == 2:
            weights = self._train(X, np.where(places == 1, 1, -1))
        else:
            weights = self._train(X, places, loss="softmax", target="classes")
        self.coef_, self.intercept_ = weights[:, :-1], weights[:, -1]
        return self

    def decision_function(self, X: Any) -> Array:
        """Of two classes: positive predicts the second. Of more: a column for each, and the largest is predicted.

        Parameters
        ----------
        X : features like those of `fit`

        Returns
        -------
        (records,), or (records, classes).

        Raises
        ------
        NotFittedError
            `fit` was not called.

        Examples
        --------
        >>> import numpy as np
        >>> from dpadmm_mpi import PrivateConsensusClassifier
        >>> X = np.sin(np.arange(900.0)).reshape(300, 3)
        >>> model = PrivateConsensusClassifier(epsilon=None, norm_bound=2.0, nodes=2, random_state=1).fit(X, X[:, 0] > 0)
        >>> bool(model.decision_function([[1.0, 0.0, 0.0]])[0] > 0)
        True
        """
        scores = self._scores(X)
        return scores.ravel() if len(self.classes_) == 2 else scores

    def predict(self, X: Any) -> NDArray[Any]:
        """The likeliest class of each record.

        Parameters
        ----------
        X : features like those of `fit`

        Returns
        -------
        One of `classes_` for each record.

        Raises
        ------
        NotFittedError
            `fit` was not called.

        Examples
        --------
        >>> import numpy as np
        >>> from dpadmm_mpi import PrivateConsensusClassifier
        >>> X = np.sin(np.arange(900.0)).reshape(300, 3)
        >>> model = PrivateConsensusClassifier(epsilon=None, norm_bound=2.0, nodes=2, random_state=1).fit(X, X[:, 0] > 0)
        >>> model.predict([[1.0, 0.0, 0.0], [-1.0, 0.0, 0.0]])
        array([ True, False])
        """
        scores = self.decision_function(X)
        return np.asarray(self.classes_[(scores >= 0).astype(np.int64) if scores.ndim == 1 else scores.argmax(axis=1)])

    def predict_proba(self, X: Any) -> Array:
        """Probabilities of the classes, by the logistic model; noise in the weights makes them too sure or too shy.

        Parameters
        ----------
        X : features like those of `fit`

        Returns
        -------
        (records, classes), in the order of `classes_`.

        Raises
        ------
        NotFittedError
            `fit` was not called.

        Examples
        --------
        >>> import numpy as np
        >>> from dpadmm_mpi import PrivateConsensusClassifier
        >>> X = np.sin(np.arange(900.0)).reshape(300, 3)
        >>> model = PrivateConsensusClassifier(epsilon=None, norm_bound=2.0, nodes=2, random_state=1).fit(X, X[:, 0] > 0)
        >>> model.predict_proba([[1.0, 0.0, 0.0]]).sum(axis=1)
        array([1.])
        """
        from scipy.special import expit, softmax

        scores = self.decision_function(X)
        if scores.ndim == 2:
            return np.asarray(softmax(scores, axis=1))
        positive = expit(scores)
        return np.column_stack([1.0 - positive, positive])


class PrivateConsensusRegressor(RegressorMixin, _Consensus):  # type: ignore[misc]
    """A linear model of a number, by Huber's loss, trained by nodes that keep their records and release noisy weights.

    The target is scaled from `target_range` into [-1, 1]: residuals up to `width` there count squared, larger ones linearly.

    Parameters
    ----------
    epsilon : total privacy loss at `delta`, of everything released; None: no noise, and no privacy
    delta : of (epsilon, delta)
    norm_bound : public bound on the norm of a record; longer ones are shortened to it. Never taken from the records
    target_range : public bounds (LOW, HIGH) of y; what lies outside is clipped. None: the smallest and the largest y, which
        no privacy account counts
    width : of the quadratic part of the loss, in the scaled target
    nodes : number of nodes that the records are spread over, evenly and at random
    graph : how nodes are joined: a name, a networkx graph (which then says how many nodes there are), or pairs
    method : of the configuration, one on a network
    eta : the penalty
    C : weight of the loss against the regulariser
    rho : weight of the regulariser
    iterations : exchanges with the neighbours
    random_state : of the split and the noise. Whoever knows it can take the noise away: keep it None for real records
    settings : further keys of the configuration, a dictionary

    Attributes
    ----------
    coef_, intercept_ : of the mean model over the nodes, in the units of X and y
    result_ : the `Result` of the run, with curves and accounts
    epsilon_ : what was spent, by the account that was calibrated

    Examples
    --------
    >>> from sklearn.datasets import make_regression
    >>> from dpadmm_mpi import PrivateConsensusRegressor
    >>> X, y = make_regression(n_samples=2000, n_features=3, noise=5.0, random_state=1)
    >>> model = PrivateConsensusRegressor(epsilon=2.0, norm_bound=3.0, target_range=(-300, 300), random_state=1).fit(X, y)
    >>> bool(model.score(X, y) > 0.8)
    True
    """

    def __init__(
        self,
        *,
        epsilon: float | None = 1.0,
        delta: float = 1e-5,
        norm_bound: float = 1.0,
        target_range: tuple[float, float] | None = None,
        width: float = 0.5,
        nodes: int = 5,
        graph: Any = "complete",
        method: str = "mr-admm",
        eta: float = 0.1,
        C: float = 1.0,
        rho: float = 0.01,
        iterations: int = 10,
        random_state: Any = None,
        settings: dict[str, Any] | None = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.norm_bound = norm_bound
        self.target_range = target_range
        self.width = width
        self.nodes = nodes
        self.graph = graph
        self.method = method
        self.eta = eta
        self.C = C
        self.rho = rho
        self.iterations = iterations
        self.random_state = random_state
        self.settings = settings

    def fit(self, X: Any, y: Any) -> "PrivateConsensusRegressor":
        """Spread the records over the nodes and let them train.

        Parameters
        ----------
        X : features, (records, features), dense or sparse
        y : a number for each record

        Returns
        -------
        The estimator itself.

        Raises
        ------
        ValueError
            X or y has values that are no finite numbers, or norm_bound is not positive.
        InputError
            A key of `settings` is wrong, or the target cannot be met.

        Examples
        --------
        >>> import numpy as np
        >>> from dpadmm_mpi import PrivateConsensusRegressor
        >>> X = np.sin(np.arange(900.0)).reshape(300, 3)
        >>> model = PrivateConsensusRegressor(epsilon=None, norm_bound=2.0, nodes=2, random_state=1).fit(X, X[:, 0])
        >>> model.epsilon_, model.coef_.shape
        (inf, (3,))
        """
        X, y = validate_data(self, X, y, accept_sparse="csr", dtype=np.float64, y_numeric=True)
        span = None if self.target_range is None else [float(bound) for bound in self.target_range]
        if span is None and y.min() == y.max():  # there is nothing to scale by, and any range that has y will do
            span = [float(y[0]) - 1.0, float(y[0]) + 1.0]
        problem = {"loss": "huber-regression", "width": float(self.width)}
        weights = self._train(X, y, target="number", target_range=span, problem=problem)
        about = self.result_.attributes["data"]
        self.coef_ = about["target_scale"] * weights[0, :-1]
        self.intercept_ = float(about["target_centre"] + about["target_scale"] * weights[0, -1])
        return self

    def predict(self, X: Any) -> Array:
        """A number for each record, in the units of y.

        Parameters
        ----------
        X : features like those of `fit`

        Returns
        -------
        (records,)

        Raises
        ------
        NotFittedError
            `fit` was not called.

        Examples
        --------
        >>> import numpy as np
        >>> from dpadmm_mpi import PrivateConsensusRegressor
        >>> X = np.sin(np.arange(900.0)).reshape(300, 3)
        >>> model = PrivateConsensusRegressor(epsilon=None, norm_bound=2.0, nodes=2, random_state=1).fit(X, X[:, 0])
        >>> bool(abs(model.predict([[0.5, 0.0, 0.0]])[0] - 0.5) < 0.5)
        True
        """
        return self._scores(X).ravel()


def _scaled(X: Any, bound: float) -> Any:
    return X / (np.sqrt(2.0) * bound)


def _times(X: Any, factor: Array) -> Any:
    return X * factor[:, None] if isinstance(X, np.ndarray) else X.multiply(factor[:, None]).tocsr()


def _with_constant(X: Any) -> Any:
    """A last column of 1 / sqrt(2): with rows of norm 1 / sqrt(2), none is longer than 1."""
    column = np.full((X.shape[0], 1), 1.0 / np.sqrt(2.0))
    if isinstance(X, np.ndarray):
        return np.hstack([X, column])
    from scipy.sparse import csr_matrix, hstack

    return hstack([csr_matrix(X), csr_matrix(column)], format="csr")
