"""The examples of docs/analysis.md work as they are printed."""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from support import TOP, MakeConfig, command, result_of

TEXT = (TOP / "docs" / "analysis.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)


@pytest.fixture
def folder(config: MakeConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """With small files of the names that the page uses."""
    result_of(config("mr-admm", "objective", runs=3), tmp_path / "private.h5")
    result_of(config("mr-admm"), tmp_path / "plain.h5")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_commands(folder: Path) -> None:
    lines = [line for block in blocks("sh") for line in block.splitlines() if not line.startswith("dpadmm run")]
    assert len(lines) == 9
    for line in lines:
        process = command(*shlex.split(line)[1:], cwd=folder)
        assert process.returncode == 0, (line, process.stderr)
    made = {path.name for path in folder.iterdir()}
    assert {"comparison.svg", "private-loss-privacy.png", "network.pdf", "loss.png", "report.html"} <= made


def test_python(folder: Path) -> None:
    """One after the other, as in a notebook."""
    names: dict[str, Any] = {}
    for block in blocks("python"):
        exec(block, names)
    assert names["frame"].shape[0] == 3 * 7
    assert set(names["last"].name) == {"mr-admm objective", "mr-admm none"}
    assert (folder / "price.pdf").read_bytes().startswith(b"%PDF")
