"""`dpadmm new`: what it writes passes its own test and runs."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from support import command, sentences

KINDS = ("method", "loss", "metric", "source")


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_written_works(tmp_path: Path, kind: str) -> None:
    process = command("new", kind, f"my-{kind}", cwd=tmp_path)
    assert process.returncode == 0, process.stderr
    tested = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-W", "error", "-p", "no:cacheprovider", f"test_my_{kind}.py"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert tested.returncode == 0, tested.stdout
    if kind == "source":
        rng = np.random.default_rng(1)
        table = np.column_stack([np.where(rng.random(60) < 0.5, 1.0, -1.0), rng.uniform(-1.0, 1.0, (60, 4))])
        np.savetxt(tmp_path / "records.txt", table, delimiter=";")
    process = command("run", f"my_{kind}.toml", "--set", "iterations=4", cwd=tmp_path)
    assert process.returncode == 0, process.stderr
    assert (tmp_path / f"my-{kind}.h5").exists()


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    assert command("new", "loss", "mine", cwd=tmp_path).returncode == 0
    process = command("new", "metric", "mine", cwd=tmp_path)
    assert process.returncode == 2
    assert "mine.py exists; choose another name" in sentences(process)[0]


def test_a_name_that_is_none(tmp_path: Path) -> None:
    process = command("new", "loss", "Mine!", cwd=tmp_path)
    assert process.returncode == 2
    assert "use lower-case letters, digits and hyphens" in sentences(process)[0]
