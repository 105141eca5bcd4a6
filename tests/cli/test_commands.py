"""The commands as a user types them: what they print, what they return."""

import os
import platform
import re
import shlex
import subprocess
import sys
import zipfile
from importlib import metadata
from pathlib import Path

import pytest
from support import PROGRAMS, TOP, MakeConfig, WriteToml, command, result_of, sentences

import dpadmm_mpi
from dpadmm_mpi.cli.main import cli
from dpadmm_mpi.storage.experiments import load


@pytest.fixture
def two_files(config: MakeConfig, tmp_path: Path) -> tuple[Path, Path]:
    result_of(config("mr-admm", "objective", runs=2), tmp_path / "private.h5")
    result_of(config("admm"), tmp_path / "plain.h5")
    return tmp_path / "private.h5", tmp_path / "plain.h5"


def test_run_check_show(config: MakeConfig, write_toml: WriteToml, tmp_path: Path) -> None:
    path = write_toml(config("mr-admm", "objective", runs=2))
    check = command("check", path, "--ranks", 3)
    assert check.returncode == 0
    for text in (
        "mr-admm objective: valid",
        "edges, 6 nodes, 6 edges, degrees 1 to 4",
        "3 ranks host",
        "total      the paper's bound: ",
        "holds  privacy: 2 c1 <",
    ):
        assert text in check.stdout
    run = command("run", path, "-o", tmp_path / "a.h5")
    assert run.returncode == 0
    assert f"written: {tmp_path / 'a.h5'}" in run.stdout
    assert "note: the dual steps differ" in run.stderr
    # A log that is no terminal: times, and at its head who runs what where.
    lines = re.findall(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[+-]\d\d:\d\d (.*)", run.stderr, re.MULTILINE)
    assert lines[0] == f"dpadmm {metadata.version('dpadmm-mpi')} on {platform.node()}, 1 rank"
    assert lines[1] == f"command: {shlex.join(['dpadmm', 'run', str(path), '-o', str(tmp_path / 'a.h5')])}"
    sha = dpadmm_mpi.load(tmp_path / "a.h5").attributes["/"]["config_sha256"][:16]
    assert lines[2].endswith(f": mr-admm on 6 nodes, 2 runs of 6 iterations, configuration sha256 {sha}")
    show = command("show", tmp_path / "a.h5")
    result = dpadmm_mpi.load(tmp_path / "a.h5")
    assert f"{result.loss[:, -1].mean():.4g}" in show.stdout
    assert f"{result.bound[-1]:.4g}" in show.stdout
    assert "complete" in show.stdout
    # Every node's total privacy is in the check, before the run.
    for bound in result["privacy/node_bound"][-1]:
        assert f"{bound:.4g}" in check.stdout


def test_show_says_inf_for_a_run_without_noise(two_files: tuple[Path, Path]) -> None:
    lines = command("show", *two_files).stdout.splitlines()
    assert "inf" in lines[2]
    assert "inf" not in lines[1]


def test_variants_write_a_folder(config: MakeConfig, write_toml: WriteToml, tmp_path: Path) -> None:
    raw = config() | {"name": "many", "variant": [{"name": "one, a"}, {"name": "two", "seed": 4}]}
    process = command("run", write_toml(raw), cwd=tmp_path)
    assert process.returncode == 0, process.stderr
    assert sorted(p.name for p in (tmp_path / "many").iterdir()) == ["one-a.h5", "two.h5"]
    again = command("run", tmp_path / "config.toml", cwd=tmp_path)
    assert (again.returncode, "exists" in again.stderr) == (2, True)


def test_one_variant_is_one_file_and_folders_are_read(config: MakeConfig, write_toml: WriteToml, tmp_path: Path) -> None:
    raw = config() | {"variant": [{"name": "one"}, {"name": "two", "seed": 4}]}
    path = write_toml(raw)
    assert command("run", path, "--only", "two", "-o", tmp_path / "two.h5").returncode == 0
    assert (tmp_path / "two.h5").is_file()
    refused = command("run", path, "-o", tmp_path / "both.h5")
    assert (refused.returncode, "name a folder" in refused.stderr) == (2, True)
    assert command("run", path, "-o", tmp_path / "folder").returncode == 0
    shown = command("show", tmp_path / "folder").stdout.splitlines()
    assert [line.split()[0] for line in shown[1:3]] == ["one", "two"]
    assert command("plot", tmp_path / "folder", "-o", tmp_path / "p.png").returncode == 0


def test_only_the_first_process_speaks(two_files: tuple[Path, Path]) -> None:
    """Under a launcher, commands other than run do their work once."""
    assert command("show", two_files[0], ranks=2).stdout.count("name ") == 1


def test_force_keeps_what_it_cannot_replace(config: MakeConfig, write_toml: WriteToml, tmp_path: Path) -> None:
    """The configuration itself, a pipe, and an old result when the disk has no room for the new one."""
    path = write_toml(config())
    itself = command("run", path, "-o", path, "--force")
    assert (itself.returncode, "the configuration itself" in itself.stderr) == (2, True)
    os.mkfifo(tmp_path / "pipe")  # not a device of the system's: a test never touches those
    assert "not an ordinary file" in command("run", path, "-o", tmp_path / "pipe", "--force").stderr
    old = tmp_path / "old.h5"
    old.write_text("precious")
    sabotage = PROGRAMS / "sabotage.py"
    full = command("full-disk", 0, "run", path, "-o", old, "--force", program=sabotage)
    assert (full.returncode, old.read_text()) == (1, "precious")
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".")] == []


def test_errors_are_one_sentence_without_a_traceback(tmp_path: Path) -> None:
    for arguments in (
        ("run", tmp_path / "no.toml"),
        ("show", tmp_path / "no.h5"),
        ("diff", "a", "b"),
        ("plot", tmp_path / "no.h5"),
        ("report", tmp_path / "no.h5"),
    ):
        process = command(*arguments)
        assert process.returncode == 2
        assert len(sentences(process)) == 1
        assert "Traceback" not in process.stderr
    assert "Traceback" in command("run", tmp_path / "no.toml", "--debug").stderr


def test_every_command_has_help_with_an_example() -> None:
    for name in (name for name in cli.commands if name != "data"):
        text = command(name, "--help").stdout
        assert f"dpadmm {name}" in text.split("Options")[0].split("\n", 1)[1]
    assert command("--help").returncode == 0
    assert command("--version").stdout.strip().endswith(metadata.version("dpadmm-mpi"))


def test_wheel_holds_the_quickstart(tmp_path: Path) -> None:
    """`dpadmm run` without a file works from an installed wheel."""
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=TOP, check=True, capture_output=True)
    [wheel] = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        assert "dpadmm_mpi/reports/report.css" in archive.namelist()
        assert archive.read("dpadmm_mpi/configs/quickstart.toml") == (TOP / "configs" / "quickstart.toml").read_bytes()


def test_the_quickstart_is_valid() -> None:
    assert "quickstart: valid" in command("check").stdout
    for path in (TOP / "configs").glob("*.toml"):
        assert load(path).configs


def test_compose_adds_up_what_runs_cost(config: MakeConfig, tmp_path: Path) -> None:
    """Two runs cost more than one and less than the sum; a choice is priced; a file without noise is refused."""
    curated = {
        "iterations": 5,
        "data": {"source": "synthetic", "records": 200, "features": 3},
        "network": {"nodes": 2},
        "algorithm": {"method": "dp-admm"},
        "privacy": {"target": 1.0},
    }
    for name in ("a", "b"):
        result_of(curated, tmp_path / f"{name}.h5")
    both = command("compose", tmp_path / "a.h5", tmp_path / "b.h5")
    assert both.returncode == 0
    rows = {line.split()[0]: line.split() for line in both.stdout.splitlines()}
    one, total = float(rows["a"][1]), float(rows["together"][1])
    assert one < total < 2 * one
    assert "1 in 1,000 innocent records finds at most" in both.stdout
    chosen = command("compose", tmp_path / "a.h5", tmp_path / "b.h5", "--selection")
    assert "chosen by the records: epsilon" in chosen.stdout
    shown = command("show", tmp_path / "a.h5", tmp_path / "b.h5")
    assert "if the records themselves choose the best of these 2 rows" in shown.stdout
    result_of(config("admm"), tmp_path / "plain.h5")
    refused = command("compose", tmp_path / "a.h5", tmp_path / "plain.h5")
    assert refused.returncode == 2
    assert "has no /privacy/curve" in sentences(refused)[0]
