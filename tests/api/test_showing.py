"""Results show themselves: page, text, figure, frames."""

import re
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import result_of

import dpadmm_mpi as dp

RAW: dict[str, Any] = {"name": "<b>x</b>", "iterations": 4, "runs": 2, "data": {"records": 300, "features": 3}}


@pytest.fixture(scope="module")
def private() -> dp.Result:
    result = result_of(RAW, epsilon=2.0)
    assert isinstance(result, dp.Result)
    return result


def test_a_notebook_gets_table_curves_and_privacy(private: dp.Result) -> None:
    """One well-formed element with the last numbers, an inline picture and no markup from the name."""
    page = private._repr_html_()
    top = ET.fromstring(page)
    cells = [cell.text for cell in top.iter("td")]
    assert f"{private['loss'][:, -1].mean():.4g}" in " ".join(map(str, cells)) and "<b>x</b>" in cells
    assert top.find(".//{http://www.w3.org/2000/svg}svg") is not None
    words = [item.text or "" for item in top.iter("li")]
    assert any(re.match(r"epsilon \(delta 1e-05\): 2 for everything", text) for text in words)
    assert "replace one record" in words[-1]


def test_pictures_of_one_notebook_do_not_share_ids(private: dp.Result) -> None:
    ids = [set(re.findall(r'id="([^"]+)"', private._repr_html_())) for _ in range(2)]
    assert ids[0] and not ids[0] & ids[1]


def test_privacy_that_is_none_or_not_proven_is_said() -> None:
    plain = result_of(RAW)
    assert all("infinite, nothing protects the records" in sentence for sentence in plain.privacy_in_words()[:-1])
    unproven = result_of(
        {**RAW, "privacy": {"perturbation": "objective", "alpha": 1.0, "allow_unproven": True}}, eta=0.01, C=40.0
    )
    assert "NOT PROVEN" in unproven.privacy_in_words()[0] and "NOT PROVEN" in unproven.summary()


def test_summary_and_frames(private: dp.Result, tmp_path: Path) -> None:
    text = private.summary()
    assert "admm, 4 iterations, 2 runs" in text and "240 for training" in text and "5 nodes, 5 edges" in text
    assert private.to_pandas().shape[0] == 2 * 5
    assert private.to_xarray()["loss"].dims == ("run", "iteration")
    result_of(RAW, tmp_path / "a.h5")
    assert isinstance(dp.load(tmp_path / "a.h5"), dp.Result)


def test_plot_is_the_figure_of_the_commands(private: dp.Result) -> None:
    figure = private.plot("loss", result_of({**RAW, "name": "plain"}))
    assert figure.axes[0].get_ylabel() == "mean loss"
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["<b>x</b>", "plain"]
    with pytest.raises(dp.InputError, match='did you mean "loss"'):
        private.plot("los")


def test_the_server_or_the_mean_over_the_nodes_is_the_classifier(private: dp.Result) -> None:
    assert np.array_equal(private.classifier(1), private["final/primal"][1].mean(axis=0))
    star = result_of({**RAW, "algorithm": {"method": "star-admm"}})
    assert np.array_equal(star.classifier(1), star["final/server"][1])
