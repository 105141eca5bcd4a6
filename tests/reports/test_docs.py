"""The examples of docs/analysis.md work as they are printed."""

import re
import shlex
import tomllib
from pathlib import Path
from typing import Any

import pytest
from fuzz.judging import say
from support import TOP, MakeConfig, result_of

import dpadmm_mpi

TEXT = (TOP / "docs" / "analysis.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)


@pytest.fixture
def folder(config: MakeConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """With small files of the names that the page uses."""
    result_of(config("mr-admm", "objective", runs=3), tmp_path / "private.h5")
    result_of(config("mr-admm"), tmp_path / "plain.h5")
    sweep = next(block for block in blocks("toml") if block.startswith("# sweep.toml"))
    dpadmm_mpi.sweep(tomllib.loads(sweep), tmp_path / "sweep")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_commands(folder: Path) -> None:
    lines = [line for block in blocks("sh") for line in block.splitlines() if not line.startswith("dpadmm run")]
    assert len(lines) == 14
    for line in lines:
        answer = say(tuple(shlex.split(line)[1:]), folder)
        assert answer.code == 0, (line, answer.error)
    made = {path.name for path in folder.iterdir()}
    assert {"comparison.svg", "private-loss-privacy.png", "network.pdf", "loss.png", "report.html"} <= made


def test_python(folder: Path) -> None:
    """One after the other, as in a notebook."""
    names: dict[str, Any] = {}
    for block in blocks("python"):
        exec(block, names)
    assert names["frame"].shape[0] == 3 * 7
    assert (len(names["results"]), len(names["table"])) == (4, 6)
    assert set(names["last"].name) == {"mr-admm objective", "mr-admm none"}
    assert (folder / "price.pdf").read_bytes().startswith(b"%PDF")
