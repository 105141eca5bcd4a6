"""`dpadmm status` and `dpadmm watch`: what they read from files that are being written, and that they leave no trace."""

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from support import RESTARTS, MakeConfig, WriteToml, command, dpadmm, popen, result_of, sentences

import dpadmm_mpi
from dpadmm_mpi.engine.simulation import Simulation
from dpadmm_mpi.errors import RunError
from dpadmm_mpi.reports.live import look, sparkline
from dpadmm_mpi.storage.checkpoint import Restart, restart_folder
from dpadmm_mpi.storage.recorder import Recorder

ROWS = 9  # recorded of the second run when it was interrupted


@pytest.fixture(scope="module")
def original(shared_config: MakeConfig, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("live") / "run.h5"
    result_of(shared_config("r-admm", "objective", iterations=20, runs=3), path)
    return path


@pytest.fixture
def finished(original: Path, tmp_path: Path) -> Path:
    """A copy of the test's own."""
    return Path(shutil.copyfile(original, tmp_path / "run.h5"))


@pytest.fixture
def unfinished(finished: Path) -> Path:
    """The file as a kill after iteration 8 of the second run leaves it, changed just now."""
    with h5py.File(finished, "r+") as file:
        file.attrs["complete"] = False
        for name in ("loss", "timing/compute_seconds", "timing/wait_seconds"):
            file[name][1, ROWS:] = np.nan
            file[name][2] = np.nan
        file["timing/compute_seconds"][1, 1:ROWS] = 0.25  # of each of the six nodes, one rank
        file["timing/wait_seconds"][1, 1:ROWS] = 0.5
    return finished


def grow_old(path: Path, seconds: float) -> None:
    now = time.time()
    os.utime(path, (now - seconds, now - seconds))


def test_a_snapshot_of_a_run_under_way(unfinished: Path) -> None:
    seen = look(unfinished)
    result = dpadmm_mpi.load(unfinished)
    assert (seen.group, seen.runs, seen.iteration, seen.iterations) == (range(1, 2), 3, ROWS - 1, 20)
    np.testing.assert_array_equal(seen.loss, result.loss[1, :ROWS])
    assert [value for _, value, _ in seen.privacy] == [
        result[f"privacy/{name}"][ROWS - 1] for name in ("bound", "tight", "epsilon")
    ]
    assert seen.seconds == 6 * 0.25 + 0.5
    assert seen.left == (12 + 20) * 2.0


def test_a_snapshot_of_runs_that_go_side_by_side(unfinished: Path) -> None:
    """All three are after iteration 8; an iteration of all of them takes three times a run's share."""
    with h5py.File(unfinished, "r+") as file:
        for name in ("loss", "timing/compute_seconds", "timing/wait_seconds"):
            file[name][...] = file[name][1:2]
        file["loss"][0, :ROWS] += 0.3
    seen = look(unfinished)
    result = dpadmm_mpi.load(unfinished)
    assert (seen.group, seen.iteration) == (range(3), ROWS - 1)
    np.testing.assert_allclose(seen.loss, result.loss[1, :ROWS] + 0.1, rtol=1e-12)
    assert seen.left == 3 * 12 * 2.0
    shown = command("watch", unfinished, "--once").stdout
    assert "runs       1 to 3 of 3, iteration 8 of 20; 40% of all" in shown
    assert "6 s per iteration, 0:01:12 left" in shown


def test_of_a_file_that_is_extended_the_group_under_way_is_shown(unfinished: Path) -> None:
    """Runs 1 and 2 are ahead of the third, which the earlier part has left where it ended."""
    with h5py.File(unfinished, "r+") as file:
        for name in ("loss", "timing/compute_seconds", "timing/wait_seconds"):
            file[name][...] = file[name][1:2]
            file[name][2, ROWS - 3 :] = np.nan
    seen = look(unfinished)
    assert (seen.group, seen.iteration) == (range(2), ROWS - 1)


@pytest.mark.parametrize(
    ("name", "titles"),
    [
        ("r-admm", ("P(t), the paper's bound ", "epsilon (delta 1e-05) ")),
        ("ps-admm", ("paper's epsilon (delta ", "sound epsilon (delta ")),
        ("dp-admm", ("paper's epsilon (delta ", "sound epsilon (delta ")),
    ],
)
def test_every_family_can_be_watched(
    config: MakeConfig, write_toml: WriteToml, tmp_path: Path, name: str, titles: tuple[str, str]
) -> None:
    """Each has accounts of its own; the values shown are those in the file."""
    raw, out = RESTARTS[name](config), tmp_path / "out.h5"
    result = result_of(raw, out)
    shown = command("watch", out, "--once").stdout
    assert all(title in shown for title in titles)
    assert {value for _, value, _ in look(out).privacy} <= {
        values[-1] for key, values in result.arrays.items() if key.startswith("privacy/") and values.ndim == 1
    }
    assert "1 done" in command("status", write_toml(raw), "-o", out).stdout


def test_what_a_file_lacks_is_named(finished: Path) -> None:
    with h5py.File(finished, "r+") as file:
        del file["timing/owner"]
    process = command("watch", finished, "--once")
    assert process.returncode == 2
    assert "owner" in sentences(process)[0]


def test_the_slowest_rank_sets_the_pace(unfinished: Path) -> None:
    with h5py.File(unfinished, "r+") as file:
        file["timing/owner"][...] = [0, 0, 0, 0, 1, 2]
        file["timing/compute_seconds"][1, 1:ROWS, 5] = 3.0
        file["timing/wait_seconds"][1, 1:ROWS, :] = [2, 2, 2, 2, 2.75, 0.5]
    assert look(unfinished).seconds == 3.5


@pytest.mark.parametrize(("quiet", "state"), [(0, "running"), (30, "running"), (90, "stopped"), (1e6, "stopped")])
def test_a_file_that_no_longer_changes_has_stopped(unfinished: Path, quiet: float, state: str) -> None:
    grow_old(unfinished, quiet)
    assert look(unfinished).state == state


def test_slow_rows_are_waited_for(unfinished: Path) -> None:
    """A row that takes ten minutes: no news for a quarter of an hour is no sign of an end."""
    with h5py.File(unfinished, "r+") as file:
        file["timing/compute_seconds"][1, 1:ROWS] = 100.0
    grow_old(unfinished, 900)
    assert look(unfinished).state == "running"


def test_a_slow_row_is_as_long_as_the_file_says(unfinished: Path) -> None:
    """20 iterations of 20 s in 21 rows: three rows take a minute, however few are there yet."""
    with h5py.File(unfinished, "r+") as file:
        for name in ("loss", "timing/compute_seconds", "timing/wait_seconds"):
            file[name][1, 2:] = np.nan
        file["timing/compute_seconds"][1, 1] = 20.0 / 6
        file["timing/wait_seconds"][1, 1] = 0.0
    grow_old(unfinished, 90)
    assert look(unfinished).seconds == pytest.approx(20.0)
    assert look(unfinished).state == "stopped"


def test_a_journal_that_grows_is_a_sign_of_life(unfinished: Path) -> None:
    """Of a run on another host, where the lock says nothing."""
    with h5py.File(unfinished, "r+") as file:
        file["timing"].attrs["hosts"] = ["elsewhere"]
    grow_old(unfinished, 3600)
    restart_folder(unfinished).mkdir()
    assert look(unfinished).state == "stopped"
    for name in ("lock", "journal-1"):
        (restart_folder(unfinished) / name).touch()
    assert look(unfinished).state == "running"


def test_on_this_host_the_lock_says_whether_a_run_is_alive(unfinished: Path) -> None:
    """A killed run has stopped at once; one that is quiet for an hour runs, if its process is there."""
    restart = Restart(unfinished)
    grow_old(unfinished, 3600)
    grow_old(restart.folder / "lock", 3600)
    assert look(unfinished).state == "running"
    restart.close()
    grow_old(unfinished, 0)
    assert look(unfinished).state == "stopped"


def test_a_failure_is_shown_with_its_sentence_until_the_run_goes_on(
    config: MakeConfig, write_toml: WriteToml, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw, out = config(iterations=20), tmp_path / "out.h5"
    iterate = Simulation._iterate

    def fail(self: Simulation[Any], state: Any, t: int, runs: range) -> Any:
        if t == 5:
            raise RunError("planted")
        return iterate(self, state, t, runs)

    monkeypatch.setattr(Simulation, "_iterate", fail)
    with pytest.raises(RunError, match="planted"):
        result_of(raw, out)
    monkeypatch.undo()
    assert "failed on 1 rank: planted" in command("watch", out).stdout
    assert "1 failed" in command("status", write_toml(raw), "-o", out).stdout
    result_of(raw, out, resume=True)
    assert look(out).state == "done"


def test_an_error_of_closing_does_not_hide_the_first(
    config: MakeConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise RunError("the first")

    def fail_too(*_: Any) -> None:
        raise RunError("the second")

    monkeypatch.setattr(Simulation, "_iterate", fail)
    monkeypatch.setattr(Recorder, "close", fail_too)
    with pytest.raises(RunError, match="the first"):
        result_of(config(), tmp_path / "out.h5")


def test_a_row_on_the_disk_in_part_does_not_count(unfinished: Path) -> None:
    with h5py.File(unfinished, "r+") as file:
        file["loss"][1, ROWS] = 0.5
    assert look(unfinished).iteration == ROWS - 1
    assert look(unfinished).seconds == 2.0


def test_before_the_first_row(unfinished: Path) -> None:
    with h5py.File(unfinished, "r+") as file:
        file["loss"][...] = np.nan
    process = command("watch", unfinished, "--once")
    assert "run        1 of 3, iteration - of 20" in process.stdout
    assert "- per iteration, - left" in process.stdout


def test_status_of_every_variant(config: MakeConfig, write_toml: WriteToml, tmp_path: Path) -> None:
    names = ["whole", "half", "quiet", "other", "broken", "never"]
    raw = config(iterations=20) | {"name": "many", "variant": [{"name": name} for name in names]}
    assert command("run", write_toml(raw), cwd=tmp_path).returncode == 0
    for name in ("half", "quiet"):
        with h5py.File(tmp_path / "many" / f"{name}.h5", "r+") as file:
            file.attrs["complete"] = False
            file["loss"][0, ROWS:] = np.nan
    grow_old(tmp_path / "many" / "quiet.h5", 3600)
    (tmp_path / "many" / "broken.h5").write_bytes(b"half a file")
    (tmp_path / "many" / "never.h5").unlink()
    raw["variant"][3]["seed"] = 5
    process = command("status", write_toml(raw), cwd=tmp_path)
    lines = [line.split() for line in process.stdout.splitlines()]
    assert process.returncode == 0
    assert [line[1] for line in lines[1:7]] == ["done", "running", "stopped", "changed", "unreadable", "missing"]
    assert lines[1][2:8] == ["1", "of", "1", "20", "of", "20"]
    assert lines[2][2:8] == ["1", "of", "1", "8", "of", "20"]
    assert process.stdout.endswith("1 done, 1 running, 1 stopped, 1 missing, 1 changed, 1 unreadable\n")
    elsewhere = command("status", write_toml(raw), "-o", tmp_path / "elsewhere")
    assert elsewhere.stdout.endswith("6 missing\n")


def test_watching_once_shows_the_run_and_leaves_no_trace(unfinished: Path) -> None:
    with h5py.File(unfinished, "r+", locking=False):  # as the recorder holds it
        before = unfinished.read_bytes(), unfinished.stat().st_mtime_ns
        process = command("watch", unfinished, "--once")
        assert (unfinished.read_bytes(), unfinished.stat().st_mtime_ns) == before
    assert process.returncode == 0, process.stderr
    loss = dpadmm_mpi.load(unfinished).loss[1, ROWS - 1]
    for text in ("r-admm objective: running on 1 rank", "run        2 of 3, iteration 8 of 20; 47% of all",
                 f"loss       {loss:.6g}  █",
                 "epsilon (delta 1e-05) ", "2 s per iteration, 0:01:04 left"):  # fmt: skip
        assert text in process.stdout


def test_watching_ends_when_all_runs_of_a_folder_are_complete(unfinished: Path) -> None:
    process = watching(unfinished.parent)
    assert process.stdout is not None
    assert "running" in process.stdout.readline()
    with h5py.File(unfinished, "r+", locking=False) as file:
        file.attrs["complete"] = True
    rest, errors = process.communicate(timeout=30)
    assert "done on 1 rank" in rest
    assert (process.returncode, errors) == (0, "")


def test_control_c_ends_the_watching_quietly(unfinished: Path) -> None:
    process = watching(unfinished)
    assert process.stdout is not None
    process.stdout.readline()
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=30)[1] == ""
    assert process.returncode == 0


def test_watching_ends_when_nothing_runs_any_more(unfinished: Path) -> None:
    """A stopped run and a file that is none: each is said, and neither is waited for."""
    grow_old(unfinished, 3600)
    (unfinished.parent / "broken.h5").write_bytes(b"half a file")
    process = command("watch", unfinished.parent)
    assert process.returncode == 0
    assert "broken.h5: not a readable HDF5 file" in process.stdout
    assert "stopped on 1 rank, no change for 1:00:0" in process.stdout


def watching(path: Path) -> "subprocess.Popen[str]":
    return popen(dpadmm("watch", path), stdout=subprocess.PIPE, stderr=subprocess.PIPE)


@pytest.mark.parametrize("content", [None, b"half a file"])
def test_what_cannot_be_watched(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "x.h5"
    if content is not None:
        path.write_bytes(content)
    process = command("watch", path)
    assert process.returncode == 2
    assert sentences(process)[0].startswith(f"dpadmm: {path}: no" if content is None else f"dpadmm: {path}: not a readable")


def test_sparkline() -> None:
    assert sparkline(np.array([0.0, 7.0, 3.0])) == "▁█▄"
    assert sparkline(np.full(3, 2.0)) == "▁▁▁"
    assert sparkline(np.array([np.nan])) == ""
    assert len(sparkline(np.linspace(0, 1, 1000))) == 40
