"""The examples of docs/python.md and of the README run as they are printed; docstrings: tests/docs."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import TOP


def blocks(page: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", (TOP / page).read_text(), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", ["README.md", "docs/python.md"])
def test_ten_lines(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From arrays and a graph to epsilon, a picture and predictions that beat the larger class."""
    monkeypatch.chdir(tmp_path)
    (program,) = [block for block in blocks(page) if "load_breast_cancer" in block]
    assert len([line for line in program.splitlines() if line]) <= 10
    names: dict[str, Any] = {}
    exec(program, names)
    result = names["result"]
    assert 7.9 < result["privacy/epsilon"][-1] <= 8.0
    assert (tmp_path / "private.png").read_bytes().startswith(b"\x89PNG")
    assert np.mean(result.predict(names["X"]) == names["y"]) > 0.63


def test_the_estimator_of_the_page() -> None:
    (program,) = [block for block in blocks("docs/python.md") if "cross_val_score" in block]
    names: dict[str, Any] = {}
    exec(program, names)
    assert 1.98 < names["model"].epsilon_ <= 2.0
