"""A result that shows itself: in a notebook, as text, as a figure; and the classifier in it."""

from itertools import count
from pathlib import Path
from typing import Any, Unpack

import numpy as np
from numpy.typing import NDArray

from dpadmm_mpi.api.lending import at_hand, inventory_of
from dpadmm_mpi.audit.exact import Audit, audit
from dpadmm_mpi.data import arrays
from dpadmm_mpi.data.arrays import Arrays
from dpadmm_mpi.data.records import Records
from dpadmm_mpi.data.sources import StoredSource
from dpadmm_mpi.data.steps import preprocess, steps
from dpadmm_mpi.errors import InputError
from dpadmm_mpi.methods import Config
from dpadmm_mpi.methods.base import as_table
from dpadmm_mpi.parallel.serial import Serial
from dpadmm_mpi.plots import figure, svg
from dpadmm_mpi.plots.request import Layout
from dpadmm_mpi.reports.markup import escape
from dpadmm_mpi.reports.result_tables import results_table, table_of
from dpadmm_mpi.showing import brief, sentence
from dpadmm_mpi.storage import result as stored
from dpadmm_mpi.storage.experiments import read_again
from dpadmm_mpi.storage.result import accounts, is_proven, last_row
from dpadmm_mpi.types import Array, Matrix

# What predict uses, the first that a file has.
_CLASSIFIERS = {
    "final/consensus": "the mean over the nodes after consensus",
    "final/averaged_server": "the average of the server's iterates",
    "final/averaged": "the mean over the nodes of their averaged iterates",
    "final/server": "the server's last iterate",
    "final/primal": "the mean over the nodes of their last iterates",
}
_FIGURES = count(1)  # ids of the pictures of one notebook must not meet


class Result(stored.Result):
    """One configuration's results: arrays by their HDF5 name, attributes by object name.

    result["loss"], result["privacy/bound"]; result.attributes["/"]["complete"]; result.dims["loss"] = ("run", "iteration").
    In a notebook it shows a table, curves and the privacy in words. `run` and `load` make it.

    Examples
    --------
    >>> import dpadmm_mpi as dp
    >>> result = dp.run({"data": {"records": 200, "features": 3}}, epsilon=1.0, iterations=2)
    >>> result["loss"].shape, result.dims["privacy/node_epsilon"], float(result.attributes["privacy/epsilon"]["delta"])
    ((1, 3), ('iteration', 'node'), 1e-05)
    """

    @classmethod
    def of(cls, result: stored.Result) -> "Result":
        """The same results, which show themselves.

        Parameters
        ----------
        result : as it is stored

        Returns
        -------
        A Result with the same arrays.

        Examples
        --------
        >>> import dpadmm_mpi as dp
        >>> result = dp.run({"data": {"records": 200, "features": 3}}, epsilon=1.0, iterations=2)
        >>> dp.Result.of(result).arrays is result.arrays
        True
        """
        return cls(result.source, result.arrays, result.dims, result.attributes)

    @property
    def config(self) -> Config:
        """The resolved configuration."""
        return read_again(self.config_text, Path(self.source))

    @property
    def labels(self) -> NDArray[Any]:
        """What -1 and +1 stand for, themselves where the records did not come from Python; of several classes, their names.

        None where numbers are predicted.
        """
        about = self.attributes["data"]
        if about.get("target") == "number":
            return np.empty(0)
        return np.asarray(about.get("labels", about["classes"] if about.get("target") == "classes" else [-1, 1]))

    @property
    def _outputs(self) -> int:
        """Scores of one record."""
        about = self.attributes["data"]
        return self.config.problem.loss.fitted(about.get("target", "binary"), len(about.get("classes", (-1, 1)))).outputs

    def privacy_in_words(self) -> list[str]:
        """A sentence for each account: the total at the end, of whom it holds, by what proof.

        Returns
        -------
        The sentences; at the end what neighbouring data sets are.

        Examples
        --------
        >>> import dpadmm_mpi as dp
        >>> result = dp.run({"data": {"records": 200, "features": 3}}, epsilon=1.0, iterations=2)
        >>> [sentence[:43] for sentence in result.privacy_in_words() if sentence.startswith("epsilon")]
        ['epsilon (delta 1e-05): 1 for everything tha']
        """
        last, _ = last_row(self)
        sentences = []
        for name, title in accounts(self):
            about, total = self.attributes[f"privacy/{name}"], float(self[f"privacy/{name}"][last])
            if not np.isfinite(total):
                sentences.append(f"{title}: infinite, nothing protects the records ({about['theorem']})")
                continue
            proof = "; proof:" if is_proven(self, name) else ", NOT PROVEN, after"
            sentences.append(f"{title}: {total:.4g} for everything that is released until the end{proof} {about['theorem']}")
        if sentences:
            name = accounts(self)[0][0]
            sentences.append(
                f"The worst node counts; neighbours: {self.attributes[f'privacy/{name}']['neighbouring_relation']}."
            )
        return [sentence(words) for words in sentences]

    def summary(self) -> str:
        """What was run on what, the last values and the privacy, as text.

        Returns
        -------
        Several lines, as in print(result.summary()).

        Examples
        --------
        >>> import dpadmm_mpi as dp
        >>> result = dp.run({"data": {"records": 200, "features": 3}}, epsilon=1.0, iterations=2)
        >>> print(result.summary().splitlines()[1])
        network: 5 nodes, 5 edges
        """
        config, data = self.config, self.attributes["data"]
        records, sizes = len(self["data/node_of_record"]), self["data/sizes"]
        lines = [
            f"{brief(self.name)}: {config.method_name}, {config.iterations} iterations, "
            f"{config.runs} run{'s' * (config.runs > 1)}" + ("" if self.complete else " (incomplete)"),
            f"network: {len(self['node'])} nodes, {len(self['graph/edges'])} edges",
            f"records: {sizes.sum()} for training, {sizes.min()} to {sizes.max()} at a node, {records - sizes.sum()} for "
            f"testing, {len(self['feature'])} features; {data['source']}",
            "",
            results_table([self]),
            "",
            *([f"classifier: {self.classifier_in_words}"] if "release" in as_table(config) else []),
            *self.privacy_in_words(),
            *(f"note: {sentence(note)}" for note in str(self.attributes["/"].get("notes", "")).splitlines()),
        ]
        return "\n".join(lines)

    def plot(
        self,
        kind: str = "overview",
        *others: stored.Result,
        account: str | None = None,
        bars: bool = False,
        **layout: Unpack[Layout],
    ) -> Any:
        """A matplotlib Figure, which a notebook shows.

        Parameters
        ----------
        kind : a kind of `dpadmm plot`, "overview", "network", ..., or a measurement by its name
        *others : results to compare with
        account : the privacy account; none: the first that fits
        bars : ranges as bars, not as bands
        **layout : log, xlim, ylim, size, title and grey, as `dpadmm_mpi.plots.figure` has them

        Returns
        -------
        A matplotlib Figure; save it by .savefig("figure.pdf").

        Raises
        ------
        InputError
            There is no such kind, or the results lack what it shows.

        Examples
        --------
        >>> import dpadmm_mpi as dp
        >>> result = dp.run({"data": {"records": 200, "features": 3}}, epsilon=1.0, iterations=2)
        >>> len(result.plot("loss").axes)
        1
        """
        return figure([self, *others], kind, account, bars, **layout)

    def _repr_html_(self) -> str:
        """Table, curves and privacy, for a notebook."""
        table = table_of([self])
        header, rows = table.header, table.cells()
        cells = "".join(f"<th>{escape(cell)}</th>" for cell in header)
        body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
        listed = "".join(f"<li>{escape(words)}</li>" for words in self.privacy_in_words())
        try:
            curves = svg([self], "overview", prefix=f"dpadmm-{next(_FIGURES)}")
        except InputError as error:
            curves = f"<p>{escape(str(error))}</p>"  # without matplotlib, or before the first row
        return f"<div><table><thead><tr>{cells}</tr></thead><tbody>{body}</tbody></table>{curves}<ul>{listed}</ul></div>"

    def audit(
        self,
        *,
        data: Any = None,
        test: Any = None,
        shards: Any = None,
        candidates: int = 20,
        node: int | None = None,
        record: int | None = None,
    ) -> Audit:
        """The exact privacy loss of this run, as `dpadmm audit` has it; it needs every released vector (`trajectory=True`).

        Parameters
        ----------
        data, test, shards : the records of the run once more, where they were arrays
        candidates : records that are replaced at each node
        node, record : one node only; one of its records only

        Returns
        -------
        `worst`, the largest loss of each of `nodes`; `findings`, what is wrong, empty for a sound run.

        Raises
        ------
        InputError
            The run cannot be audited, or these are not its records.

        Examples
        --------
        >>> import dpadmm_mpi as dp
        >>> small = {"data": {"records": 100, "features": 3}, "record": {"trajectory": True}}
        >>> result = dp.run(small, method="admm", iterations=2, perturbation="objective", alpha=1.0)
        >>> audit = result.audit(candidates=2)
        >>> len(audit.findings), bool(audit.worst.max() <= result["privacy/tight"][-1])
        (0, True)
        """
        brought, serial = arrays.bring(data, test, shards), Serial()
        with at_hand(serial, self.config, brought, inventory_of(serial, brought)):
            return audit(self, candidates, node, record)

    def classifier(self, run: int = 0) -> Array:
        """The weights that `predict` uses, of one run: the server's, or the mean over the nodes.

        Those after consensus or of the averages where [release] asks for them; `classifier_in_words` says which.

        Parameters
        ----------
        run : which of the repetitions

        Returns
        -------
        (features,); with softmax the vector of each class, one after the other.

        Examples
        --------
        >>> import dpadmm_mpi as dp
        >>> result = dp.run({"data": {"records": 200, "features": 3}}, epsilon=1.0, iterations=2)
        >>> result.classifier().shape, result.classifier_in_words
        ((3,), 'the mean over the nodes of their last iterates, /final/primal')
        """
        name = self._classifier_name
        return np.asarray(self[name][run] if name.endswith("server") else self[name][run].mean(axis=0))

    @property
    def _classifier_name(self) -> str:
        return next(name for name in _CLASSIFIERS if name in self)

    @property
    def classifier_in_words(self) -> str:
        """Which weights `predict` uses."""
        return f"{_CLASSIFIERS[self._classifier_name]}, /{self._classifier_name}"

    def decision_function(self, X: Any, run: int = 0, prepared: bool = False) -> Array:
        """f.x of every record; positive predicts the second of `labels`. With softmax, that of each class, (records, classes).

        Parameters
        ----------
        X : features like those of the run, before its preprocessing
        run : which of the repetitions
        prepared : X is as the run's records were after preprocessing

        Returns
        -------
        (records,), or (records, classes).

        Raises
        ------
        InputError
            The run is not complete, X has other features, or the run's preprocessing cannot be done to new records alone.

        Examples
        --------
        >>> import dpadmm_mpi as dp
        >>> result = dp.run({"data": {"records": 200, "features": 3}}, epsilon=1.0, iterations=2)
        >>> result.decision_function([[0.0, 0.0, 0.0]])
        array([0.])
        """
        if not self.complete:
            raise InputError(f"{self.source}: the run is not complete, and has no classifier yet")
        matrix = self._features(X, prepared)
        scores = np.asarray(matrix @ self.classifier(run).reshape(self._outputs, -1).T)
        return scores if self._outputs > 1 else scores.ravel()

    def predict(self, X: Any, run: int = 0, prepared: bool = False) -> NDArray[Any]:
        """Labels of new records, by the classifier at the end that `classifier_in_words` names.

        Parameters
        ----------
        X : features like those of the run, before its preprocessing
        run : which of the repetitions
        prepared : X is as the run's records were after preprocessing

        Returns
        -------
        One of `labels` for each record; of a regression, numbers in the units of the targets.

        Raises
        ------
        InputError
            X has other features, or the run's preprocessing cannot be done to new records alone.

        Examples
        --------
        >>> import dpadmm_mpi as dp
        >>> result = dp.run({"data": {"records": 200, "features": 3}}, epsilon=1.0, iterations=2)
        >>> new = [[0.1, 0.2, 0.3], [-0.1, -0.2, -0.3]]
        >>> sorted(result.predict(new).tolist())
        [-1, 1]
        """
        scores, about = self.decision_function(X, run, prepared), self.attributes["data"]
        if about.get("target") == "number":
            return np.asarray(about["target_centre"] + about["target_scale"] * scores)
        if self._outputs > 1:
            return self.labels[scores[:, : len(self.labels)].argmax(axis=1)]
        return self.labels[(scores >= 0).astype(np.int64)]

    def _features(self, X: Any, prepared: bool) -> Matrix:
        matrix, names = arrays.as_features(X, "predict")
        source = self.config.data.source
        wanted = [] if prepared or not isinstance(source, Arrays | StoredSource) else list(source.preprocess or ())
        apart = [steps.name_of(type(step)) for step in wanted if not step.by_record]
        if apart:
            raise InputError(
                f'predict: the run\'s records went through "{apart[0]}", which looks at all of them and cannot be done to '
                "others alone; prepare X in the same way and say prepared=True"
            )
        if wanted:
            filled = preprocess(Records(y=np.zeros(matrix.shape[0]), X=matrix, names=names), wanted).records
            if len(filled) != matrix.shape[0]:
                raise InputError("predict: X lacks values; remove the records without them")
            matrix, names = filled.matrix, filled.names
        expected = [str(name) for name in self["data/feature_names"].astype(str)] if "data/feature_names" in self else None
        width = len(self["feature"]) // self._outputs
        if matrix.shape[1] != width:
            raise InputError(f"predict: X has {matrix.shape[1]} features, but the run had {width}")
        if expected is not None and self._outputs > 1:  # CLASS: FEATURE
            expected = [name.removeprefix(f"{self.attributes['data']['classes'][0]}: ") for name in expected[:width]]
        if names is not None and expected is not None and list(names) != expected:
            raise InputError("predict: X has other columns or categories than the run's records, or in another order")
        values = matrix if isinstance(matrix, np.ndarray) else matrix.data
        if not np.isfinite(values).all():
            raise InputError("predict: X has a value that is not a finite number; remove the record")
        return matrix
