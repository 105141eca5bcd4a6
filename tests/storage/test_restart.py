"""Kill -9 at any moment, --resume: the file is the one that an undisturbed run gives, to the bit."""

import errno
import os
import random
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import numpy as np
import pytest
import tomli_w
from support import EDGES, KILLED, PROGRAMS, RESTARTS, MakeConfig, Raw, WriteToml, command, result_of, sentences

from dpadmm_mpi import load
from dpadmm_mpi.methods.base import SIDE_BY_SIDE
from dpadmm_mpi.storage.atomic_file import take_name
from dpadmm_mpi.storage.checkpoint import restart_folder
from dpadmm_mpi.storage.compare import compare

MORTAL = PROGRAMS / "mortal.py"
KILLS = 11  # in each chain
RUNS = SIDE_BY_SIDE + 2  # one group of runs after another
CHAINS = 8

Undisturbed: TypeAlias = Callable[[str], tuple[Path, Path]]


@pytest.fixture(scope="module")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The undisturbed results so far, and a graph that they share."""
    folder = tmp_path_factory.mktemp("undisturbed")
    (folder / "edges.txt").write_text("".join(f"{i} {j}\n" for i, j in EDGES))
    return folder


@pytest.fixture
def undisturbed(config: MakeConfig, shelf: Path) -> Undisturbed:
    """undisturbed(name): the configuration's file and the result of an undisturbed run of it."""

    def make(name: str) -> tuple[Path, Path]:
        raw = RESTARTS[name](config) | {"runs": RUNS, "iterations": 12}
        raw["record"] = {**raw["record"], "checkpoint": 1}
        if "path" in raw["network"]:
            raw["network"]["path"] = str(shelf / "edges.txt")
        path, result = shelf / f"{name}.toml", shelf / f"{name}.h5"
        if not result.exists():
            path.write_text(tomli_w.dumps(raw))
            process = command("run", path, "-o", result)
            assert process.returncode == 0, process.stderr
        return path, result

    return make


def assert_same(a: Path, b: Path) -> None:
    assert list(compare(a, b)) == []
    assert load(b).complete
    assert not restart_folder(b).exists()


@pytest.mark.parametrize("number", range(CHAINS))
def test_killed_again_and_again(undisturbed: Undisturbed, tmp_path: Path, number: int) -> None:
    """In the middle of a checkpoint, of a write, of an iteration, while the log is written again: 88 kills in all."""
    path, expected = undisturbed(list(RESTARTS)[number % len(RESTARTS)])
    process = command("chain", number, KILLS, "run", path, "-o", tmp_path / "out.h5", "--resume", program=MORTAL)
    assert process.returncode == 0, process.stderr
    assert int(process.stdout.split()[-1]) == KILLS
    for result in tmp_path.glob("finished-*.h5"):
        assert_same(expected, result)
    assert sorted(path.suffix for path in tmp_path.iterdir() if path.name.startswith(("out", "."))) == []  # nothing is left


@pytest.mark.parametrize("name", RESTARTS)
def test_killed_on_one_number_of_ranks_and_resumed_on_another(undisturbed: Undisturbed, tmp_path: Path, name: str) -> None:
    """One rank of two, then rank 0 of three, then in one process: gone on with on more ranks and on fewer."""
    path, expected = undisturbed(name)
    rng = random.Random(name)
    job = ("run", path, "-o", tmp_path / "out.h5", "--resume")
    for ranks, rank in ((2, 1), (3, 0)):
        count = rng.randrange(20, 60) if rank == 0 else rng.randrange(3, 10)
        process = command(rank, count, *job, ranks=ranks, program=MORTAL)
        assert process.returncode in KILLED, process.stderr
    assert command(*job).returncode == 0
    assert_same(expected, tmp_path / "out.h5")


def killed(path: Path, output: Path, count: int = 66) -> None:
    """A run that died at a step; there are two checkpoints."""
    process = command(0, count, "run", path, "-o", output, program=MORTAL)
    assert process.returncode == -signal.SIGKILL, process.stderr
    assert all((restart_folder(output) / name).exists() for name in ("checkpoint", "checkpoint.before"))


def test_finished_is_left_alone(undisturbed: Undisturbed) -> None:
    path, result = undisturbed("admm")
    before = result.read_bytes()
    process = command("run", path, "-o", result, "--resume")
    assert (process.returncode, process.stdout) == (0, f"finished before: {result}\n")
    assert result.read_bytes() == before


def test_without_resume_what_is_not_finished_is_refused(undisturbed: Undisturbed, tmp_path: Path) -> None:
    path, _ = undisturbed("admm")
    killed(path, tmp_path / "out.h5")
    process = command("run", path, "-o", tmp_path / "out.h5")
    assert process.returncode == 2
    assert "is not finished; go on with it with --resume" in sentences(process)[0]


def test_resume_and_force_exclude_each_other(undisturbed: Undisturbed, tmp_path: Path) -> None:
    path, _ = undisturbed("admm")
    process = command("run", path, "-o", tmp_path / "out.h5", "--resume", "--force")
    assert process.returncode == 2
    assert "--force and --resume" in sentences(process)[0]


@pytest.mark.parametrize("finished", [True, False])
def test_a_changed_configuration_is_refused_with_its_keys(undisturbed: Undisturbed, tmp_path: Path, finished: bool) -> None:
    path, result = undisturbed("admm")
    if not finished:
        result = tmp_path / "out.h5"
        killed(path, result)
    process = command("run", path, "-o", result, "--resume", "--set", "problem.C=2", "--set", "iterations=11")
    assert process.returncode == 2
    assert "iterations (12 there, 11 here), problem.C (3.0 there, 2.0 here)" in sentences(process)[0]


def test_patience_may_change(undisturbed: Undisturbed, tmp_path: Path) -> None:
    """It decides on when a job gives up, not on what is computed; at its default it is no part of the configuration's text."""
    path, result = undisturbed("admm")
    assert "patience" not in str(load(result).attributes["/"]["config"])
    killed(path, tmp_path / "out.h5")
    changed = ("--resume", "--set", "record.patience=90")
    assert command("run", path, "-o", tmp_path / "out.h5", *changed).returncode == 0
    assert {line.split(":")[0] for line in compare(result, tmp_path / "out.h5")} == {"/@config", "/@config_sha256"}
    assert command("run", path, "-o", result, *changed).stdout == f"finished before: {result}\n"


@pytest.mark.parametrize("name", RESTARTS)
def test_extension(undisturbed: Undisturbed, tmp_path: Path, name: str) -> None:
    """A finished run of 6 iterations goes on to 12 on two ranks, with a kill in between: as 12 from the beginning."""
    path, expected = undisturbed(name)
    out = tmp_path / "out.h5"
    assert command("run", path, "-o", out, "--set", "iterations=6").returncode == 0
    process = command(0, 40, "run", path, "-o", out, "--resume", program=MORTAL)
    assert process.returncode == -signal.SIGKILL
    assert command("run", path, "-o", out, "--resume", ranks=2).returncode == 0
    assert_same(expected, out)


def test_extension_of_an_unfinished_run(undisturbed: Undisturbed, tmp_path: Path) -> None:
    path, expected = undisturbed("r-admm")
    out = tmp_path / "out.h5"
    process = command(0, 100, "run", path, "-o", out, "--set", "iterations=8", program=MORTAL)
    assert process.returncode == -signal.SIGKILL
    assert command("run", path, "-o", out, "--resume").returncode == 0
    assert_same(expected, out)


@pytest.mark.parametrize(
    ("privacy", "record", "reason"),
    [
        ({"target": 20.0, "alpha": None}, {}, "privacy.target is spread over all iterations"),
        ({}, {"every": 4, "trajectory": False}, "its last row is not a multiple of record.every = 4"),
    ],
)
def test_an_extension_that_would_change_the_first_part_is_refused(
    config: MakeConfig, write_toml: WriteToml, tmp_path: Path, privacy: Raw, record: Raw, reason: str
) -> None:
    path, out = write_toml(config("r-admm", "objective", privacy=privacy, record=record)), tmp_path / "out.h5"
    assert command("run", path, "-o", out).returncode == 0
    before = out.read_bytes()
    process = command("run", path, "-o", out, "--resume", "--set", "iterations=12")
    assert process.returncode == 2
    assert reason in sentences(process)[0]
    assert out.read_bytes() == before


@pytest.mark.parametrize("damage", ["flipped", "cut", "gone", "journal", "log"])
def test_damaged_files(undisturbed: Undisturbed, tmp_path: Path, damage: str) -> None:
    """Of a damaged checkpoint the one before is used, and that is said; a damaged log is written again."""
    path, expected = undisturbed("m-admm")
    out = tmp_path / "out.h5"
    killed(path, out)
    checkpoint = restart_folder(out) / "checkpoint"
    content = bytearray(checkpoint.read_bytes())
    if damage == "flipped":
        content[len(content) // 2] ^= 1
        checkpoint.write_bytes(content)
    elif damage == "cut":
        checkpoint.write_bytes(content[:100])
    elif damage == "gone":
        checkpoint.unlink()
    elif damage == "journal":
        (journal,) = restart_folder(out).glob("journal-*")
        journal.write_bytes(journal.read_bytes()[:300])
    else:
        out.write_bytes(b"\0" * 1000)
    process = command("run", path, "-o", out, "--resume")
    assert process.returncode == 0, process.stderr
    assert ("is damaged" in process.stderr) == (damage in ("flipped", "cut", "journal"))
    assert_same(expected, out)


def test_a_foreign_file_is_not_gone_on_with(undisturbed: Undisturbed, tmp_path: Path) -> None:
    path, _ = undisturbed("admm")
    (tmp_path / "out.h5").write_text("precious")
    process = command("run", path, "-o", tmp_path / "out.h5", "--resume")
    assert process.returncode == 2
    assert (tmp_path / "out.h5").read_text() == "precious"


def test_changed_data_are_refused(config: MakeConfig, write_toml: WriteToml, tmp_path: Path, edge_file: Path) -> None:
    path = write_toml(config("admm", iterations=12, runs=RUNS, record={"checkpoint": 1}))
    killed(path, tmp_path / "out.h5")
    edge_file.write_text(edge_file.read_text() + "3 5\n")
    process = command("run", path, "-o", tmp_path / "out.h5", "--resume")
    assert process.returncode == 2
    assert "its data, graph or map file has changed" in sentences(process)[0]


@pytest.mark.parametrize("finished", [False, True])
def test_a_changed_map_is_refused(config: MakeConfig, write_toml: WriteToml, tmp_path: Path, finished: bool) -> None:
    """By a killed run, and by a finished one that is to be extended."""
    np.save(tmp_path / "A.npy", np.eye(5))
    raw = RESTARTS["dp-acc-admm"](config) | {"runs": RUNS, "iterations": 12}
    raw["problem"], raw["record"] = {"map": "file", "map_path": str(tmp_path / "A.npy")}, {"checkpoint": 1}
    path, more = write_toml(raw), ["--set", "iterations=24"] if finished else []
    if finished:
        assert command("run", path, "-o", tmp_path / "out.h5").returncode == 0
    else:
        killed(path, tmp_path / "out.h5")
    np.save(tmp_path / "A.npy", 2 * np.eye(5))
    process = command("run", path, "-o", tmp_path / "out.h5", "--resume", *more)
    assert process.returncode == 2
    assert "map file has changed" in sentences(process)[0]
    np.save(tmp_path / "A.npy", np.eye(5))
    process = command("run", path, "-o", tmp_path / "out.h5", "--resume", *more)
    assert process.returncode == 0, process.stderr


def test_a_full_disk_keeps_what_was_recorded(undisturbed: Undisturbed, tmp_path: Path) -> None:
    """No byte behind a limit that lies within the journal: one sentence, and the run goes on when there is room again."""
    path, expected = undisturbed("admm")
    out = tmp_path / "out.h5"
    process = command("full", 60_000, "run", path, "-o", out, program=MORTAL)
    assert process.returncode == 1
    assert len(sentences(process)) == 1
    assert "make room and go on with --resume" in sentences(process)[0]
    assert (restart_folder(out) / "checkpoint").exists()
    assert command("run", path, "-o", out, "--resume").returncode == 0
    assert_same(expected, out)


def test_a_second_process_is_refused(undisturbed: Undisturbed, tmp_path: Path) -> None:
    from dpadmm_mpi.storage.checkpoint import Restart

    path, expected = undisturbed("admm")
    out = tmp_path / "out.h5"
    killed(path, out)
    first = Restart(out)  # as another process would
    process = command("run", path, "-o", out, "--resume")
    assert process.returncode == 2
    assert "another process is writing it" in sentences(process)[0]
    first.close()
    assert command("run", path, "-o", out, "--resume").returncode == 0
    assert_same(expected, out)


def test_python_interface(undisturbed: Undisturbed, tmp_path: Path) -> None:
    path, expected = undisturbed("mr-admm")
    killed(path, tmp_path / "out.h5", 50)
    result = result_of(path, tmp_path / "out.h5", resume=True)
    assert result.complete
    assert_same(expected, tmp_path / "out.h5")


@pytest.mark.parametrize("ranks", [None, 2])
def test_a_working_folder_that_is_gone_is_said(undisturbed: Undisturbed, tmp_path: Path, ranks: int | None) -> None:
    """Not waited for: it will not come back."""
    path, _ = undisturbed("admm")
    (tmp_path / "gone").mkdir()
    program = tmp_path / "gone.py"
    program.write_text(
        "import os, shutil\n"
        f"os.chdir({str(tmp_path / 'gone')!r})\n"
        "from dpadmm_mpi.cli.main import entry\n"
        "from dpadmm_mpi.engine import loop\n"
        "settle = loop.make_plan\n"
        f"loop.make_plan = lambda config: (shutil.rmtree({str(tmp_path / 'gone')!r}), settle(config))[1]\n"
        "entry()\n"
    )
    process = command("run", path, "-o", "out.h5", program=program, ranks=ranks)
    assert process.returncode == 2
    assert "out.h5 cannot be created (its folder has been removed)" in sentences(process)[0]


@pytest.mark.parametrize("exists", [True, False])
def test_a_kill_while_the_new_file_is_made_leaves_the_old_one(undisturbed: Undisturbed, tmp_path: Path, exists: bool) -> None:
    """--force replaces a finished result by a file that can be read, and not before; where there is none, none appears."""
    path, expected = undisturbed("admm")
    out = tmp_path / "out.h5"
    if exists:
        shutil.copy(expected, out)
    program = tmp_path / "die.py"
    program.write_text(
        "import os, signal\n"
        "from dpadmm_mpi.cli.main import entry\n"
        "from dpadmm_mpi.storage.layout import LogFile\n"
        "LogFile._describe_data = lambda *_: os.kill(os.getpid(), signal.SIGKILL)\n"
        "entry()\n"
    )
    process = command("run", path, "-o", out, "--force", "--set", "seed=5", program=program)
    assert process.returncode == -signal.SIGKILL
    assert out.exists() == exists
    if exists:
        assert list(compare(expected, out)) == []
    assert command("run", path, "-o", out, "--force").returncode == 0
    assert_same(expected, out)


@pytest.mark.parametrize("links", [True, False])
def test_a_name_is_taken_only_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, links: bool) -> None:
    """Also on a file system without hard links."""
    if not links:
        monkeypatch.setattr(os, "link", lambda *_: (_ for _ in ()).throw(PermissionError(errno.EPERM, "no links")))
    for name in ("first", "second"):
        (tmp_path / name).write_text(name)
    take_name(tmp_path / "first", tmp_path / "out", force=False)
    with pytest.raises(FileExistsError):
        take_name(tmp_path / "second", tmp_path / "out", force=False)
    assert (tmp_path / "out").read_text() == "first"
    assert not (tmp_path / "first").exists()
    take_name(tmp_path / "second", tmp_path / "out", force=True)
    assert (tmp_path / "out").read_text() == "second"


@pytest.mark.parametrize("seed", [1, 3, 4])
def test_a_step_that_moves_nothing_is_measured_alike_after_a_restart(tmp_path: Path, seed: int) -> None:
    """Large nodes, whose solves know the margins at their ends: a restart before the step after them does not."""
    raw: Raw = {
        "seed": seed,
        "iterations": 6,
        "data": {"source": "synthetic", "records": 4000, "features": 70, "train": 1.0},
        "network": {"graph": "complete", "nodes": 2},
        "problem": {"C": 1900.0, "rho": 0.2},
        "algorithm": {"method": "r-admm", "eta": 1.0, "gamma": 1e25},
        "privacy": {"perturbation": "dual", "alpha": 0.05},
    }
    result_of(raw, tmp_path / "undisturbed.h5")
    result_of(raw | {"iterations": 5}, tmp_path / "out.h5")
    result_of(raw, tmp_path / "out.h5", resume=True)
    assert_same(tmp_path / "undisturbed.h5", tmp_path / "out.h5")
