"""Arrays, frames and sparse matrices from Python: the run is the file's run, and what is wrong is one short sentence."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from support import command, result_of, sentences

import dpadmm_mpi as dp
from dpadmm_mpi.data.arrays import Summary, bring, take_stock
from dpadmm_mpi.types import Array

SETTINGS: dict[str, Any] = {"method": "mr-admm", "epsilon": 30.0, "iterations": 5, "seed": 3, "nodes": 3, "trajectory": True}
SHORT = 260  # letters of a sentence, however large the array


def records(seed: int = 1, size: int = 90) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    X = rng.uniform(-0.4, 0.4, (size, 4))
    return X, np.where(X[:, 0] + 0.1 * rng.standard_normal(size) > 0, 1.0, -1.0)


def same_numbers(a: dp.Result, b: dp.Result) -> None:
    names = ["loss", "test_error", "trajectory", "final/primal", "privacy/node_epsilon", "data/node_of_record"]
    for name in names:
        assert np.array_equal(a[name], b[name]), name


def test_arrays_give_the_bits_of_a_file(tmp_path: Path) -> None:
    """The same records through npz files: the same split, the same noise, the same numbers."""
    X, y = records()
    X_test, y_test = records(2, 30)
    np.savez(tmp_path / "a.npz", X=X, y=y)
    np.savez(tmp_path / "b.npz", X=X_test, y=y_test)
    steps = ["scale-columns", "scale-rows"]
    files = {"source": "npz", "path": str(tmp_path / "a.npz"), "test_path": str(tmp_path / "b.npz"), "preprocess": steps}
    by_file = result_of({"data": files}, **SETTINGS)
    by_array = result_of(None, data=(X, y), test=(X_test, y_test), preprocess=steps, **SETTINGS)
    same_numbers(by_file, by_array)


def test_other_forms_of_the_same_records_give_the_same_bits() -> None:
    """Lists, single precision that holds them exactly, Fortran order, text labels."""
    X, y = records()
    X = X.astype(np.float32).astype(np.float64)
    base = result_of(None, data=(X, y), **SETTINGS)
    forms = [(X.tolist(), y.tolist()), (X.astype(np.float32), y.astype(int)), (np.asfortranarray(X), y > 0)]
    for form in [*forms, (X, np.where(y > 0, "sick", "healthy")), (pd.DataFrame(X), pd.Series(y))]:
        same_numbers(base, result_of(None, data=form, **SETTINGS))


def test_sparse_records_give_the_classifier_of_dense_ones() -> None:
    X, y = records()
    X[np.abs(X) < 0.2] = 0.0
    dense = result_of(None, data=(X, y), **SETTINGS)
    for form in (sparse.csr_matrix(X), sparse.coo_array(X), sparse.csc_matrix(X)):
        found = result_of(None, data=(form, y), **SETTINGS)
        np.testing.assert_allclose(found["final/primal"], dense["final/primal"], rtol=1e-7, atol=1e-9)


def test_categories_become_columns_and_predict_takes_frames() -> None:
    """As the matrix made by hand; a frame with the columns in another order is refused."""
    X, y = records()
    colour = np.array(["red", "blue", "green"])[np.arange(90) % 3]
    kinds = pd.CategoricalDtype(["blue", "green", "red", "never"])
    frame = pd.DataFrame({"a": X[:, 0], "colour": pd.Series(colour, dtype=kinds), "b": X[:, 1]})
    by_hand = np.column_stack([X[:, 0], colour == "blue", colour == "green", colour == "red", np.zeros(90), X[:, 1]])
    found = result_of(None, data=(frame, y), preprocess=["scale-rows"], **SETTINGS)
    same_numbers(found, result_of(None, data=(by_hand, y), preprocess=["scale-rows"], **SETTINGS))
    names = ["a", "colour=blue", "colour=green", "colour=red", "colour=never", "b"]
    assert found["data/feature_names"].astype(str).tolist() == names
    assert np.array_equal(found.predict(frame), found.predict(by_hand))
    with pytest.raises(dp.InputError, match="other columns or categories"):
        found.predict(frame[["b", "colour", "a"]])


def test_predictions_are_labels_and_agree_with_the_recorded_test_error() -> None:
    X, y = records()
    X_test, y_test = records(2, 200)
    words, test_words = (np.where(labels > 0, "ill", "well") for labels in (y, y_test))
    result = result_of(None, data=(X, words), test=(X_test, test_words), positive="ill", **SETTINGS)
    assert result.labels.tolist() == ["well", "ill"]
    assert np.mean(result.predict(X_test) != test_words) == result["test_error"][0, -1]
    by_size = result_of(None, data=(X, words), test=(X_test, test_words), **SETTINGS)
    assert by_size.labels.tolist() == ["ill", "well"]  # the larger one is +1 unless positive says otherwise


def test_several_classes_give_the_bits_of_a_file_and_are_predicted(tmp_path: Path) -> None:
    X, _ = records()
    X_test, _ = records(2, 60)
    words, test_words = (np.array(["ash", "beech", "cedar"])[np.argmax(some[:, :3], axis=1)] for some in (X, X_test))
    frames = [pd.DataFrame(some, columns=list("abcd")) for some in (X, X_test)]
    for name, frame, labels in zip(("a", "b"), frames, (words, test_words), strict=True):
        frame.assign(label=labels).to_csv(tmp_path / f"{name}.csv", index=False)
    files = {"source": "csv", "path": str(tmp_path / "a.csv"), "test_path": str(tmp_path / "b.csv")}
    settings = SETTINGS | {"loss": "softmax"}
    by_file = result_of({"data": files}, **settings)
    by_array = result_of(None, data=(frames[0], words), test=(frames[1], test_words), **settings)
    same_numbers(by_file, by_array)
    for result in (by_file, by_array):
        assert np.mean(result.predict(frames[1]) != test_words) == result["test_error"][0, -1]
    with pytest.raises(dp.InputError, match="other columns or categories"):
        by_array.predict(frames[1][["b", "a", "c", "d"]])


def test_numbers_give_the_bits_of_a_file_and_are_predicted_in_their_units(tmp_path: Path) -> None:
    """Arrays, a frame and per-node shards; outside the public range they are clipped, and the file and the arrays say so."""
    (X, _), (X_test, _) = records(), records(2, 60)
    y, y_test = (20.0 + 30.0 * some[:, 0] + 5.0 * some[:, 1] for some in (X, X_test))
    np.savez(tmp_path / "a.npz", X=X, y=y)
    np.savez(tmp_path / "b.npz", X=X_test, y=y_test)
    files = {"source": "npz", "path": str(tmp_path / "a.npz"), "test_path": str(tmp_path / "b.npz")}
    names = ["loss", "mean_squared_error", "trajectory", "final/primal", "privacy/node_epsilon", "data/node_of_record"]
    ranges: list[dict[str, Any]] = [{}, {"target_range": [15.0, 30.0]}]
    for given in ranges:
        settings = SETTINGS | {"problem": {"loss": "huber-regression"}}
        by_file = result_of({"data": files | given}, **settings)
        forms = {"array": (X, y), "frame": (pd.DataFrame(X), pd.Series(y))}
        found = {name: result_of(None, data=form, test=(X_test, y_test), **given, **settings) for name, form in forms.items()}
        assert all(np.array_equal(by_file[name], found["array"][name]) for name in names)
        assert np.array_equal(found["array"]["final/primal"], found["frame"]["final/primal"])
        assert by_file.attributes["/"]["notes"] == found["array"].attributes["/"]["notes"]
        words = found["array"].attributes["/"]["notes"]
        outside = int(((y < 15) | (y > 30)).sum() + ((y_test < 15) | (y_test > 30)).sum())
        assert ("range of the targets is taken from the records, which no account counts" in words) == (not given)
        assert (f"targets outside data.target_range = [15, 30] are clipped to it; there are {outside}" in words) == bool(given)
        scale = 7.5 if given else (max(y.max(), y_test.max()) - min(y.min(), y_test.min())) / 2
        clipped = np.clip(y_test, 15, 30) if given else y_test
        error = np.mean((found["array"].predict(X_test) - clipped) ** 2) / scale**2
        assert found["array"]["mean_squared_error"][0, -1] == pytest.approx(error, rel=1e-9)
        assert found["array"].labels.size == 0
        keys = {key: value for key, value in settings.items() if key != "nodes"} | given
        parts = [(X[:20], y[:20]), (X[20:50], y[20:50]), (X[50:], y[50:])]
        held = result_of(None, shards=parts, test=(X_test, y_test), graph="complete", **keys)
        owners = np.repeat([0, 1, 2, -1], [20, 30, 40, 60])
        (tmp_path / "nodes.csv").write_text("\n".join(["record,node", *(f"{k},{v}" for k, v in enumerate(owners))]) + "\n")
        dealt = result_of(
            {"data": files | given | {"split": "node-file", "node_file": str(tmp_path / "nodes.csv")}}, **settings
        )
        assert np.array_equal(held["data/node_of_record"], dealt["data/node_of_record"])
        np.testing.assert_allclose(held["final/primal"], dealt["final/primal"], rtol=1e-12, atol=1e-14)


def test_what_the_labels_are_can_be_said() -> None:
    X, _ = records()
    few = np.arange(90) % 3
    keys: dict[str, Any] = {"iterations": 1, "nodes": 2}
    assert result_of(None, data=(X, few), loss="softmax", **keys).attributes["data"]["target"] == "classes"
    assert (
        result_of(None, data=(X, few), loss="huber-regression", target="number", **keys).attributes["data"]["target"]
        == "number"
    )
    cases: list[tuple[dict[str, Any], Any, str]] = [
        ({"target": "binary"}, few, "found 3 different labels (0, 1, 2); two are needed"),
        ({"target": "classes"}, few / 2, "broken numbers"),
        ({"target": "classes", "target_range": [0.0, 1.0]}, few, "data.target_range: is the range of numbers"),
        ({"target_range": [1.0, 0.0]}, few, "data.target_range: found [1.0, 0.0]; two numbers are needed"),
        ({"target": "number", "positive": 1}, few, "data.positive: has no meaning where labels are numbers"),
        ({"target": "number"}, np.full(90, 3.0), "the targets are all 3"),
        ({"target": "number"}, np.where(few == 1, "x", "y"), 'the target "'),
        ({"target": "number"}, np.where(few == 1, np.inf, few), 'the target "inf" is no finite number'),
    ]
    for given, y, words in cases:
        with pytest.raises(dp.InputError) as caught:
            dp.run(data=(X, y), loss="huber-regression", **keys, **given)
        assert words in str(caught.value)


def test_the_labels_of_a_measured_target_stay_with_their_rank() -> None:
    """All that the others get to know of numbers is that they are such."""
    X, _ = records()
    assert summary(X, X[:, 0]).labels == []
    assert summary(X, np.arange(90) * 3).labels == list(range(0, 270, 3))  # these may be classes
    assert take_stock([summary(X, X[:, 0]), summary(2 * X, np.arange(90) % 2)]).measured


def test_predict_prepares_new_records_or_says_why_not() -> None:
    X, y = records()
    result = result_of(None, data=(3 * X, y), preprocess=["scale-columns", "scale-rows"], **SETTINGS)
    with pytest.raises(dp.InputError, match='"scale-columns", which looks at all of them'):
        result.predict(3 * X)
    assert np.array_equal(result.predict(X, prepared=True), result.labels[(X @ result.classifier() >= 0).astype(int)])
    with pytest.raises(dp.InputError, match="X has 3 features, but the run had 4"):
        result.predict(X[:, 1:], prepared=True)


def test_shards_are_the_nodes_in_their_order(tmp_path: Path) -> None:
    X, y = records()
    parts = [(X[:20], y[:20]), (X[20:50], y[20:50]), (X[50:], y[50:])]
    keys = {key: value for key, value in SETTINGS.items() if key != "nodes"}
    result = result_of(None, shards=parts, graph="path", test=records(2, 10), **keys)
    assert result["data/sizes"].tolist() == [20, 30, 40]
    assert result["data/node_of_record"].tolist() == [0] * 20 + [1] * 30 + [2] * 40 + [-1] * 10
    loss = [np.log1p(np.exp(-v * (A @ f))).mean() for (A, v), f in zip(parts, result["final/primal"][0], strict=True)]
    np.testing.assert_allclose(result["node_loss"][0, -1], loss, rtol=1e-12)


def test_the_file_names_the_records_and_holds_none(tmp_path: Path) -> None:
    X, y = records()
    out = tmp_path / "a.h5"
    result = result_of(None, out, data=(X, y), **SETTINGS)
    (line,) = result.attributes["data"]["files"]
    assert line.startswith("arrays sha256 ") and line.split()[-1] in result.config_text
    content = out.read_bytes()
    assert not any(row.tobytes() in content for row in X)
    other = X.copy()
    other[5, 2] += 1e-12
    assert result_of(None, data=(other, y), **SETTINGS).attributes["data"]["files"][0] != line


def test_commands_say_that_the_records_are_not_at_hand(tmp_path: Path) -> None:
    """show works; what needs the records says so in one sentence; Python functions take them again, and no others."""
    X, y = records()
    out = tmp_path / "a.h5"
    first = result_of(None, out, data=(X, y), **SETTINGS)
    for words in (("run", out, "-o", tmp_path / "b.h5"), ("audit", out)):
        process = command(*words)
        (sentence,) = sentences(process)
        assert process.returncode == 2 and "were arrays of a Python program" in sentence and len(sentence) < SHORT + 60
    assert command("show", out).returncode == 0
    again = result_of(out, data=(X, y))
    same_numbers(first, again)
    seen = dp.load(out).audit(data=(X, y), candidates=3)
    assert seen.findings == [] and 0 < seen.worst.max() <= first["privacy/tight"][-1]
    with pytest.raises(dp.InputError, match="not those that were passed"):
        dp.load(out).audit(data=(X[::-1], y[::-1]))


def test_more_iterations_go_on_with_the_same_records_only(tmp_path: Path) -> None:
    X, y = records()
    out = tmp_path / "a.h5"
    keys = {**SETTINGS, "epsilon": None, "perturbation": "objective", "alpha": 3.0}
    result_of(None, out, data=(X, y), **keys)
    longer = result_of(None, out, data=(X, y), resume=True, **{**keys, "iterations": 8})
    same_numbers(longer, result_of(None, data=(X, y), **{**keys, "iterations": 8}))
    with pytest.raises(dp.InputError, match=r"data\.sha256"):
        dp.run(output=out, data=(X + 0.01, y), resume=True, **{**keys, "iterations": 9})


BAD: dict[str, tuple[Any, str]] = {
    "no pair": (np.zeros((9, 4)), "data: found ndarray of the shape (9, 4); give the pair (X, y)"),
    "one axis": ((np.zeros(9), np.ones(9)), "data: X has the shape (9,)"),
    "labels in a column": ((np.zeros((9, 4)), np.ones((9, 1))), "y has the shape (9, 1); it must be one label"),
    "lengths": ((np.zeros((9, 4)), np.ones(8)), "X has 9 records, but y has 8 labels"),
    "ragged": (([[1.0], [1.0, 2.0]], [0, 1]), "its rows must be equally long"),
    "text": ((np.array([["a"], ["b"]]), [0, 1]), "numbers are needed"),
    "nan": ((np.array([[0.1], [np.nan]]), [0, 1]), "data: record 1 has a feature that is not a finite number"),
    "missing label": ((np.zeros((2, 1)), [0.0, np.nan]), "data: the label of record 1 is missing"),
    "one label": ((np.zeros((9, 4)), np.ones(9)), "y: found one label only (1.0); two are needed"),
    "three labels": ((np.zeros((9, 4)), np.arange(9) % 3), "the labels are 3 classes: 0, 1, 2; use \"softmax\""),
    "numbers": ((np.zeros((9, 4)), np.arange(9) / 2), 'the labels are numbers from 0 to 4, scaled into [-1, 1]; use'),
    "many words": ((np.zeros((200, 4)), [f"w{k}" for k in range(200)]), "y: found 200 different labels (w0, w1,"),
    "mixed labels": ((np.zeros((2, 1)), np.array([1, "a"], dtype=object)), "y holds numbers and text"),
    "norms": ((np.full((9, 4), 5.0), np.arange(9) % 2), 'has norm 10, but the privacy bounds need norms of at most 1'),
    "text column": ((pd.DataFrame({"job": ["a", "b"]}), [0, 1]), 'column "job" holds values of the type'),
    "date": ((pd.DataFrame({"day": pd.to_datetime(["2020-01-01"] * 2)}), [0, 1]), 'column "day" holds values of the type'),
    "no category": ((pd.DataFrame({"job": pd.Categorical(["a", None])}), [0, 1]), 'column "job" has no category in record 1'),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_what_is_wrong_with_an_array_is_one_short_sentence(name: str) -> None:
    given, words = BAD[name]
    with pytest.raises(dp.InputError) as caught:
        dp.run(data=given, nodes=1)
    assert words in str(caught.value)
    assert len(str(caught.value)) < SHORT and "\n" not in str(caught.value)


def test_large_arrays_in_the_wrong_place_are_not_printed() -> None:
    """As a source, as a configuration, as a graph, as the value of a key."""
    X, y = np.zeros((569, 30)), np.arange(569) % 2
    calls: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
        (({"data": {"source": X}},), {}),
        ((X,), {}),
        ((), {"data": (X, y), "graph": X}),
        ((), {"source": X}),
        ((), {"data": X}),
        ((), {"shards": X}),
        ((), {"data": {"source": "csv", "path": X}}),
        ((), {"data": (X, y), "seed": X}),
    ]
    for arguments, keywords in calls:
        with pytest.raises(dp.InputError) as caught:
            dp.run(*arguments, **keywords)
        assert len(str(caught.value)) < SHORT, str(caught.value)[:400]


def summary(X: Any, y: Any, test: Any = None) -> Summary:
    return Summary.of(bring((X, y), test, None))


def test_ranks_whose_records_do_not_go_together() -> None:
    X, y = records()
    fits = summary(X, y)
    cases = {
        "data of rank 1: X has 3 features, but the first records have 4": summary(X[:, 1:], y),
        "X is sparse, but the first records are dense": summary(sparse.csr_matrix(X), y),
        "labels are numbers in one place and text in another": summary(X, y.astype(str)),
        "other columns or categories": summary(pd.DataFrame(X, columns=list("abcd")), y),
    }
    for words, other in cases.items():
        with pytest.raises(dp.InputError) as caught:
            take_stock([fits, other])
        assert words in str(caught.value)


def test_shards_refuse_what_looks_at_all_records_and_other_counts() -> None:
    X, y = records()
    shards = [(X[:45], y[:45]), (X[45:], y[45:])]
    with pytest.raises(dp.InputError, match='"scale-columns" looks at all records together'):
        dp.run(shards=shards, preprocess=["scale-columns"])
    with pytest.raises(dp.InputError, match="there are 2 of them, but the network has 3 nodes"):
        dp.run(shards=shards, nodes=3)
    with pytest.raises(dp.InputError, match=r"data\.train and data\.split: have no meaning"):
        dp.run(shards=shards, train=0.5)
    with pytest.raises(dp.InputError, match="test: X has 3 features"):
        dp.run(shards=shards, test=(X[:, 1:], y))
    with pytest.raises(dp.InputError, match="data and shards: give one of them"):
        dp.run(data=(X, y), shards=shards)
