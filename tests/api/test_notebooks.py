"""The notebooks run from top to bottom, are stored without outputs, and show what they say."""

import ast
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient
from support import TOP

FOLDER = TOP / "docs" / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))


def outputs(notebook: Any) -> list[Any]:
    return [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]


def texts(notebook: Any) -> str:
    plain = [output.get("data", {}).get("text/plain", output.get("text", "")) for output in outputs(notebook)]
    return "\n".join(plain)


def first_steps(notebook: Any) -> None:
    assert len(notebook.cells) <= 12 and sum(cell.cell_type == "code" for cell in notebook.cells) <= 10
    assert any("<svg" in output.get("data", {}).get("text/html", "") for output in outputs(notebook))
    accuracy = ast.literal_eval(texts(notebook).splitlines()[-1])
    assert accuracy["without noise"] > 0.85 and accuracy["epsilon = 8"] > 0.63  # the larger class
    assert "epsilon (delta 1e-05): 8 for everything" in texts(notebook)


def fair_comparison(notebook: Any) -> None:
    """Three methods, and every one of them has spent epsilon = 1."""
    rows = [line.split() for line in texts(notebook).splitlines() if re.match(r"\S*admm, \d+ iterations", line)]
    assert len(rows) == 3
    assert all(abs(float(row[-1]) - 1.0) < 1e-3 for row in rows)


def own_method(notebook: Any) -> None:
    assert "infinite, nothing protects the records" in texts(notebook)


CHECKS: dict[str, Callable[[Any], None]] = {
    "first-steps": first_steps, "fair-comparison": fair_comparison, "own-method": own_method
}  # fmt: skip


@pytest.mark.filterwarnings("ignore")  # of the kernel's own libraries
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook(path: Path, tmp_path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
    NotebookClient(notebook, timeout=120, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}).execute()
    CHECKS[path.stem](notebook)


def test_notebooks_are_stored_without_outputs() -> None:
    assert {path.stem for path in NOTEBOOKS} == set(CHECKS)
    for path in NOTEBOOKS:
        for cell in json.loads(path.read_text())["cells"]:
            assert not cell.get("outputs") and cell.get("execution_count") is None, path.name
