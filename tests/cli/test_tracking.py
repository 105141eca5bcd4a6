"""Event files for TensorBoard, and the example for GNU make, which goes by the exit codes."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from support import TOP, MakeConfig, WriteToml, command, needs_shared_memory

import dpadmm_mpi
from dpadmm_mpi.cli import tracking
from dpadmm_mpi.errors import InputError


def scalars(folder: Path) -> dict[str, dict[int, float]]:
    """All of a folder's event files, by a reader of the format itself: records of length, checksum, message, checksum."""
    from tensorboardX.proto.event_pb2 import Event

    found: dict[str, dict[int, float]] = {}
    for path in sorted(folder.glob("events.out.tfevents.*")):
        content, place = path.read_bytes(), 0
        while place < len(content):
            length = int.from_bytes(content[place : place + 8], "little")
            event = Event.FromString(content[place + 12 : place + 12 + length])
            place += 16 + length
            for value in event.summary.value:
                found.setdefault(value.tag, {})[event.step] = value.simple_value
    return found


@needs_shared_memory  # for tensorboardX's semaphores
def test_event_files_have_what_the_result_has(config: MakeConfig, write_toml: WriteToml, tmp_path: Path) -> None:
    pytest.importorskip("tensorboardX")
    path, out = write_toml(config("mr-admm", "objective", runs=2)), tmp_path / "out.h5"
    (tmp_path / "out.events" / "run-1").mkdir(parents=True)
    (tmp_path / "out.events" / "run-1" / "events.out.tfevents.1.old").write_bytes(b"of a run that is replaced")
    assert command("run", path, "-o", out, "--track", "TensorBoard").returncode == 0
    result = dpadmm_mpi.load(out)
    for run in range(2):
        found = scalars(tmp_path / "out.events" / f"run-{run}")
        assert {"loss", "test_error", "objective", "privacy/bound", "privacy/epsilon"} <= set(found)
        assert list(found["loss"]) == result.iteration.tolist()
        assert np.array_equal(np.array(list(found["loss"].values())), result.loss[run].astype(np.float32))
        assert found["privacy/bound"][6] == pytest.approx(result.bound[-1], rel=1e-6)


@needs_shared_memory  # for tensorboardX's semaphores
def test_an_infinite_loss_is_said(config: MakeConfig, write_toml: WriteToml, tmp_path: Path) -> None:
    """A run without noise has no points of privacy, which would look as if there were none to lose, but a text."""
    pytest.importorskip("tensorboardX")
    assert command("run", write_toml(config("admm")), "-o", tmp_path / "out.h5", "--track", "tensorboard").returncode == 0
    (file,) = (tmp_path / "out.events" / "run-0").iterdir()
    assert "privacy/bound" not in scalars(file.parent)
    assert b"not private" in file.read_bytes()


def test_without_tensorboardx_nothing_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracking, "find_spec", lambda name: None)
    with pytest.raises(InputError, match="pip install tensorboardX"):
        tracking.refuse_missing("tensorboard")


@pytest.mark.skipif(shutil.which("make") is None, reason="GNU make is not here")
def test_make_goes_on_with_a_stopped_run_and_stops_at_a_refused_one(
    config: MakeConfig, write_toml: WriteToml, tmp_path: Path
) -> None:
    def make(*words: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(["make", *words], cwd=tmp_path, capture_output=True, text=True, timeout=100, env=environment)

    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    shutil.copy(TOP / "docs" / "examples" / "Makefile", tmp_path)
    write_toml(config("admm", iterations=2000), "a.toml")
    stopped = make("table.csv", "OPTIONS=--walltime 0:00")
    assert stopped.returncode != 0 and "a.toml: stopped; make goes on with it" in stopped.stderr
    assert not (tmp_path / "a.h5").exists() and (tmp_path / "a.part.h5").exists()
    done = make("table.csv")
    assert done.returncode == 0, done.stderr
    assert dpadmm_mpi.load(tmp_path / "a.h5").complete and (tmp_path / "table.csv").read_text().count("\n") >= 2
    assert "up to date" in make("table.csv").stdout
    (tmp_path / "b.toml").write_text("itertions = 3\n")
    refused = make("table.csv")
    assert refused.returncode != 0 and 'did you mean "iterations"? (b.toml, line 1)' in refused.stderr
    assert not (tmp_path / "b.h5").exists()
