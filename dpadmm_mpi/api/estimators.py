"""A scikit-learn estimator: a private classifier that nodes of a network train together. The only importer of its base classes.

x in R^d becomes (x / b, 1) / sqrt(2) with b = `norm_bound`, where a longer x is shortened to norm b first: a public number
bounds every record, as the privacy accounts need it, and the constant is the intercept.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpadmm_mpi.api.running import run
from dpadmm_mpi.data.shard import row_norms
from dpadmm_mpi.errors import InputError
from dpadmm_mpi.types import Array

try:
    from sklearn.base import BaseEstimator, ClassifierMixin
    from sklearn.utils import check_random_state
    from sklearn.utils.multiclass import check_classification_targets, unique_labels
    from sklearn.utils.validation import check_is_fitted, validate_data
except ImportError:
    raise InputError("PrivateConsensusClassifier needs scikit-learn; install it with: pip install scikit-learn") from None


class PrivateConsensusClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """A linear classifier for two classes, trained by nodes that keep their records and release noisy weights.

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
    classes_ : the two labels
    coef_, intercept_ : of the mean classifier over the nodes, in the units of X
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

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.classifier_tags.multi_class = False
        return tags

    def fit(self, X: Any, y: Any) -> "PrivateConsensusClassifier":
        """Spread the records over the nodes and let them train.

        Parameters
        ----------
        X : features, (records, features), dense or sparse
        y : two different labels

        Returns
        -------
        The estimator itself.

        Raises
        ------
        ValueError
            y has not two different labels, or norm_bound is not positive.
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
        if len(self.classes_) > 2:
            raise ValueError(f"Only binary classification is supported. The type of the target is multiclass: {self.classes_}")
        if len(self.classes_) < 2:
            raise ValueError("Classifier can't train when only one class is present.")
        if not self.norm_bound > 0:
            raise ValueError(f"norm_bound: found {self.norm_bound}; a positive number is needed")
        rows = _scaled(X, float(self.norm_bound))
        rows = _times(rows, 1.0 / np.maximum(row_norms(rows) * np.sqrt(2.0), 1.0))
        by_name = isinstance(self.graph, str)
        result = run(
            data=(_with_constant(rows), np.where(y == self.classes_[1], 1, -1)),
            graph=self.graph,
            train=1.0,
            nodes=min(self.nodes, len(y)) if by_name else None,
            seed=int(check_random_state(self.random_state).randint(2**31 - 1)),
            **self._keys(),
        )
        assert result is not None
        self.result_ = result
        weights = result.classifier()
        self.coef_ = (weights[:-1] / (np.sqrt(2.0) * self.norm_bound))[None, :]
        self.intercept_ = weights[-1:] / np.sqrt(2.0)
        self.epsilon_ = float(result["privacy/epsilon"][-1])
        self.n_iter_ = int(self.iterations)
        return self

    def _keys(self) -> dict[str, Any]:
        keys = {name: getattr(self, name) for name in ("method", "eta", "C", "rho", "iterations", "epsilon")}
        return {**keys, "init": "zero", "delta": self.delta, **(self.settings or {})}

    def decision_function(self, X: Any) -> Array:
        """Positive predicts the second class.

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
        >>> from dpadmm_mpi import PrivateConsensusClassifier
        >>> X = np.sin(np.arange(900.0)).reshape(300, 3)
        >>> model = PrivateConsensusClassifier(epsilon=None, norm_bound=2.0, nodes=2, random_state=1).fit(X, X[:, 0] > 0)
        >>> bool(model.decision_function([[1.0, 0.0, 0.0]])[0] > 0)
        True
        """
        check_is_fitted(self)
        X = validate_data(self, X, accept_sparse="csr", dtype=np.float64, reset=False)
        return np.asarray(X @ self.coef_[0] + self.intercept_[0])

    def predict(self, X: Any) -> NDArray[Any]:
        """The likelier class of each record.

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
        positive = self.decision_function(X) >= 0
        return np.asarray(self.classes_[positive.astype(np.int64)])

    def predict_proba(self, X: Any) -> Array:
        """Probabilities of the two classes, by the logistic model; noise in the weights makes them too sure or too shy.

        Parameters
        ----------
        X : features like those of `fit`

        Returns
        -------
        (records, 2), in the order of `classes_`.

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
        from scipy.special import expit

        positive = expit(self.decision_function(X))
        return np.column_stack([1.0 - positive, positive])


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
