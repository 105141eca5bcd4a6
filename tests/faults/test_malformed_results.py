"""A result file that is not as it must be is refused by every command: one sentence with the object, whatever is wrong."""

import itertools
import logging
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import h5py
import pytest
from faults.mutations import HARMLESS, IMPOSSIBLE, MUTATIONS, Mutation, cut
from support import result_of

from dpadmm_mpi.cli.main import entry
from dpadmm_mpi.storage.result import load

COMMANDS: dict[str, list[str]] = {
    "show": ["bad.h5"],
    "plot": ["bad.h5", "-o", "bad.png"],
    "report": ["bad.h5", "-o", "bad.html"],
    "watch": ["bad.h5", "--once"],
    "diff": ["good.h5", "bad.h5"],
    "audit": ["bad.h5", "--candidates", "1", "--adversaries", "0"],
    "attack": ["bad.h5"],
    "compose": ["bad.h5"],
    "run": ["good.h5", "-o", "bad.h5", "--resume", "--serial", "--set", "iterations=5"],
}
READERS = ("show", "plot", "report", "audit", "attack", "compose")  # of all values
Call = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("malformed")
    raw = {
        "iterations": 3,
        "runs": 2,
        "algorithm": {"method": "admm"},
        "data": {"records": 100, "features": 3},
        "privacy": {"perturbation": "objective", "alpha": 1.0},
        "record": {"trajectory": True, "optimum": True},
    }
    result_of(raw, place / "good.h5")
    os.mkfifo(place / "pipe")
    return place


@pytest.fixture
def call(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Call]:
    """`dpadmm WORDS` in this process, among the files: exit code, output and what is on standard error."""
    logger, hooks = logging.getLogger("dpadmm_mpi"), (sys.excepthook, sys.unraisablehook)
    before = logger.level, logger.handlers
    monkeypatch.chdir(folder)

    def run(*words: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["dpadmm", *words])
        with pytest.raises(SystemExit) as end:
            entry()
        said = capsys.readouterr()
        return int(end.value.code or 0), said.out, said.err

    yield run
    logger.level, logger.handlers = before
    sys.excepthook, sys.unraisablehook = hooks


def spoil(folder: Path, mutation: Mutation) -> None:
    shutil.copy(folder / "good.h5", folder / "bad.h5")
    with h5py.File(folder / "bad.h5", "r+") as file:
        mutation(file)


def assert_refused(folder: Path, call: Call, command: str) -> None:
    before = (folder / "bad.h5").read_bytes()
    shutil.rmtree(folder / "bad.h5.restart", ignore_errors=True)
    code, output, errors = call(command, *COMMANDS[command])
    assert code in (1, 2), (output, errors)
    assert errors.startswith("dpadmm: ")
    assert "bad.h5" in errors
    assert "internal error" not in errors
    assert errors.count("\n") == 1
    assert len(errors) <= 600
    assert (folder / "bad.h5").read_bytes() == before


# Each mutation meets one command, each command some twenty mutations.
@pytest.mark.parametrize(("name", "command"), list(zip(MUTATIONS, itertools.cycle(COMMANDS), strict=False)))
def test_a_malformed_file_is_refused(folder: Path, call: Call, name: str, command: str) -> None:
    spoil(folder, MUTATIONS[name])
    assert_refused(folder, call, command)


@pytest.mark.parametrize(("name", "command"), list(zip(IMPOSSIBLE, itertools.cycle(READERS), strict=False)))
def test_impossible_numbers_are_refused(folder: Path, call: Call, name: str, command: str) -> None:
    spoil(folder, IMPOSSIBLE[name])
    assert_refused(folder, call, command)


@pytest.mark.parametrize("number", range(9))
def test_a_file_damaged_from_outside_is_refused(folder: Path, call: Call, number: int) -> None:
    content = list(cut((folder / "good.h5").read_bytes()).values())[number]
    (folder / "bad.h5").write_bytes(content)
    for command in ("show", "watch", "diff"):
        assert_refused(folder, call, command)


@pytest.mark.parametrize("name", HARMLESS)
def test_what_no_command_needs_may_be_missing(folder: Path, name: str) -> None:
    spoil(folder, HARMLESS[name])
    assert load(folder / "bad.h5").loss.shape == (2, 4)


def test_a_good_file_passes_every_command(folder: Path, call: Call) -> None:
    """Otherwise the tests above would prove nothing."""
    for command, words in COMMANDS.items():
        shutil.copy(folder / "good.h5", folder / "bad.h5")
        code, _, errors = call(command, *words)
        assert code == 0, (command, errors)


def test_another_configuration_than_the_file_was_made_with_is_refused_by_the_audit(folder: Path, call: Call) -> None:
    def other(file: h5py.File) -> None:
        file.attrs["config"] = file.attrs["config"].replace("features = 3", "features = 4")

    spoil(folder, other)
    assert_refused(folder, call, "audit")
    assert "/feature has 3 entries, but its configuration makes 4" in call("audit", *COMMANDS["audit"])[2]
