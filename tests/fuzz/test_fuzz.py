"""Damaged inputs end in an answer, or in a sentence with exit code 1 or 2. A fixed budget; scripts/fuzz.sh is the long form."""

from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dpadmm_mpi.errors import InputError
from dpadmm_mpi.reports import live
from dpadmm_mpi.storage import probe
from fuzz import seeds
from fuzz.judging import files_in, say, wrong_with
from fuzz.mutations import Case, Edit, fitting
from fuzz.run_many import unpacked

Judge: TypeAlias = Callable[[Case], None]
Recorded: TypeAlias = tuple[list[Case], list[Case]]

KEPT = sorted((seeds.KEPT / "failed").glob("*.tar.gz"))
# matplotlib takes a second for a picture: pictures have a test of their own, and the long form.
SLOW = ("plot", "report", "audit", "attack", "compose")


@pytest.fixture(scope="module")
def recorded() -> Recorded:
    """Seeds: results, restart folders."""
    results, stopped, config = seeds.made()
    quick = [case for case in seeds.result_seeds(results, config) if case.words[0] not in SLOW]
    return quick, seeds.restart_seeds(stopped, config)


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """`watch` reads a file that is being written several times; a file without end is waited for."""
    monkeypatch.setattr(live, "PAUSE", 0.0)
    monkeypatch.setattr(probe, "PATIENCE", 3.0)


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory) -> Judge:
    def examine(case: Case) -> None:
        folder = tmp_path_factory.mktemp("damaged")
        case.write(folder)
        before = files_in(folder)
        answer = say(case.words, folder)
        assert not wrong_with(answer, files_in(folder) - before), f"dpadmm {' '.join(case.words)}: {answer.error[:600]}"

    return examine


def edits_of(case: Case) -> st.SearchStrategy[list[Edit]]:
    return st.lists(st.tuples(st.sampled_from(fitting(case)), st.integers(0, 2**32 - 1)), min_size=1, max_size=3)


def draw(data: st.DataObject, of: list[Case]) -> Case:
    case = data.draw(st.sampled_from(of), label="seed")
    return case.edited(data.draw(edits_of(case), label="edits"))


def budget(examples: int) -> settings:
    return settings(max_examples=examples, suppress_health_check=list(HealthCheck))


CONFIGS, FILES = seeds.config_seeds(), seeds.data_seeds()
CHECKED = [case for case in CONFIGS if case.words[0] == "check"]


@budget(150)
@given(st.data())
def test_damaged_configurations(judge: Judge, data: st.DataObject) -> None:
    judge(draw(data, CHECKED))


@budget(25)
@given(st.data())
def test_damaged_configurations_that_are_run(judge: Judge, data: st.DataObject) -> None:
    judge(draw(data, [case for case in CONFIGS if case.words[0] == "run"]))


@budget(150)
@given(st.data())
def test_damaged_records_graphs_partitions_and_maps(judge: Judge, data: st.DataObject) -> None:
    judge(draw(data, FILES))


@budget(50)
@given(st.data())
def test_damaged_results(judge: Judge, recorded: Recorded, data: st.DataObject) -> None:
    judge(draw(data, recorded[0]))


@budget(30)
@given(st.data())
def test_damaged_restart_folders(judge: Judge, recorded: Recorded, data: st.DataObject) -> None:
    judge(draw(data, recorded[1]))


@pytest.mark.parametrize("path", KEPT, ids=lambda path: path.name.split(".")[0])
def test_inputs_that_failed_once(judge: Judge, path: Path) -> None:
    judge(unpacked(path.read_bytes()))


def test_ranks_do_not_loop_in_a_file_without_end(recorded: Recorded, tmp_path: Path) -> None:
    """They must not fork, and let a new interpreter go first; it says which file it was."""
    case = unpacked((seeds.KEPT / "failed" / "result-without-end.tar.gz").read_bytes())
    files = []
    for name, content in (("fine", recorded[0][0].files["r.h5"]), ("endless", case.files["r.h5"])):
        files.append(tmp_path / f"{name}.h5")
        files[-1].write_bytes(content)
    probe.probe(files[:1], forks=False)
    with pytest.raises(InputError, match=r"endless\.h5: damaged: HDF5's library does not come to an end in it"):
        probe.probe(files, forks=False)


def test_the_judge_is_not_asleep() -> None:
    """Every way to fail is one."""
    from fuzz.judging import Answer

    fine = Answer(2, "", "dpadmm: c.toml: no such configuration file\n")
    assert not wrong_with(fine, set())
    assert wrong_with(fine, {"new.h5"})
    for answer in (
        Answer(2, "", ""),
        Answer(3, "", "dpadmm: x\n"),
        Answer(-11, "", ""),
        Answer(1, "", "dpadmm: internal error, KeyError: x; run again with --debug for the traceback\n"),
        Answer(2, "", "dpadmm: \x1b[2J\n"),
        Answer(0, "a\rb\n", ""),
        Answer(2, "", "dpadmm: x\n" * 4),
        Answer(2, "", "x" * 601),
    ):
        assert wrong_with(answer, set()), answer
