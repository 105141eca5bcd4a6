"""Many configurations in one job: variants by number, in groups of ranks, finished ones left alone; and the self-test."""

import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tomli_w
from support import (
    LAUNCHES,
    MPI_ENVIRONMENT,
    RESTARTS,
    TOP,
    MakeConfig,
    Raw,
    WriteToml,
    command,
    dpadmm,
    needs_shared_memory,
    parsed,
    popen,
    sentences,
)

from dpadmm_mpi import load
from dpadmm_mpi.cli.run import advice_to_pack, targets
from dpadmm_mpi.engine import loop
from dpadmm_mpi.engine.several import Job, Report, _summary, _work
from dpadmm_mpi.errors import RunError, Stopped
from dpadmm_mpi.parallel.serial import Serial
from dpadmm_mpi.storage.compare import compare
from dpadmm_mpi.storage.experiments import load as load_experiment

VARIANTS: list[Raw] = [{"name": f"eta {eta}", "algorithm": {"eta": eta}} for eta in (0.6, 0.7, 0.8, 0.9, 1.0)]


@pytest.fixture(scope="module")
def variants(shared_config: MakeConfig, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Path]]:
    """A file with five variants, and what a serial run of it writes."""
    folder = tmp_path_factory.mktemp("variants")
    path = folder / "config.toml"
    path.write_text(tomli_w.dumps(RESTARTS["admm"](shared_config) | {"variant": VARIANTS}))
    assert command("run", path, "-o", folder / "serial").returncode == 0
    return path, sorted((folder / "serial").glob("*.h5"))


def assert_same_files(expected: list[Path], folder: Path) -> None:
    assert sorted(path.name for path in folder.iterdir()) == [path.name for path in expected]
    for path in expected:
        assert list(compare(path, folder / path.name)) == []


@needs_shared_memory
@pytest.mark.parametrize(("ranks", "groups"), [(3, 3), (4, 2)])
def test_packed_variants_have_the_same_bits(variants: tuple[Path, list[Path]], tmp_path: Path, ranks: int, groups: int) -> None:
    path, expected = variants
    process = command("run", path, "-o", tmp_path / "packed", "--pack", groups, ranks=ranks)
    assert process.returncode == 0, process.stderr
    assert process.stdout.count("written: ") == len(VARIANTS)
    assert "error" not in process.stderr.lower()  # MPI itself has nothing to say either
    assert_same_files(expected, tmp_path / "packed")
    for file in expected:
        assert load(tmp_path / "packed" / file.name).attributes["timing"]["ranks"] == ranks // groups


@pytest.mark.parametrize(
    ("nodes", "ranks", "advised"), [(6, 2, False), (6, 4, True), (5, 2, True), (5, 5, False), (20, 3, False)]
)
def test_packing_is_advised_where_ranks_would_wait_for_each_other(
    config: MakeConfig, write_toml: WriteToml, nodes: int, ranks: int, advised: bool
) -> None:
    """5 nodes on 2 ranks are 3 and 2: a third of the second rank's time. Not where there are too few variants either."""
    raw = config() | {"network": {"graph": "ring", "nodes": nodes}, "sweep": {"algorithm.eta": [0.1 * k for k in range(1, 6)]}}
    raw["data"] |= {"records": 400}
    jobs = targets(load_experiment(write_toml(raw), []), None)
    assert (advice_to_pack(jobs, ranks) is not None) == advised
    assert advice_to_pack(jobs[: ranks - 1], ranks) is None


@needs_shared_memory
def test_the_advice_is_said_once(config: MakeConfig, write_toml: WriteToml, tmp_path: Path) -> None:
    path = write_toml(config() | {"network": {"graph": "ring", "nodes": 5}, "variant": VARIANTS})
    process = command("run", path, "-o", tmp_path / "out", ranks=4)
    assert process.returncode == 0, process.stderr
    assert process.stderr.count("with --pack, 4 variants go at a time") == 1
    assert "with --pack" not in command("run", path, "-o", tmp_path / "packed", "--pack", ranks=4).stderr


FAIL = """
from dpadmm_mpi.cli.main import entry
from dpadmm_mpi.engine import loop
from dpadmm_mpi.errors import InputError, RunError
settle = loop.make_plan
def fail(config):
    if config.name == 'eta 0.7': raise {kind}('planted')
    return settle(config)
loop.make_plan = fail
entry()
"""


@needs_shared_memory
@pytest.mark.parametrize(("kind", "code"), [("RunError", 1), ("InputError", 2)])
@pytest.mark.parametrize(("ranks", "pack"), [(None, ()), (2, ()), (4, ("--pack", 2))])
def test_a_failing_variant_is_named_and_the_others_finish(
    variants: tuple[Path, list[Path]], tmp_path: Path, kind: str, code: int, ranks: int | None, pack: tuple[object, ...]
) -> None:
    """One variant fails on all its ranks after the checks: it is named at the end, everything else is done and shown."""
    path, expected = variants
    program = tmp_path / "fail.py"
    program.write_text(FAIL.format(kind=kind))
    process = command("run", path, "-o", tmp_path / "packed", *pack, ranks=ranks, program=program)
    assert process.returncode == code
    assert sentences(process) == ['dpadmm: variant "eta 0.7": planted']
    finished = [file for file in expected if file.name != "eta-0.7.h5"]
    assert process.stdout.count("written: ") == len(finished)
    assert_same_files(finished, tmp_path / "packed")
    again = command("run", path, "-o", tmp_path / "packed", *pack, "--resume", ranks=2 if pack else None)
    assert again.returncode == 0, again.stderr
    assert again.stdout.count("finished before: ") == len(finished)
    assert_same_files(expected, tmp_path / "packed")


@needs_shared_memory
def test_the_last_variants_of_a_pack_leave_ranks_idle(config: MakeConfig, write_toml: WriteToml, tmp_path: Path) -> None:
    """Four ranks, and one variant left whose network has three nodes: three ranks take it."""
    small = RESTARTS["admm"](config) | {"network": {"graph": "ring", "nodes": 3}, "variant": VARIANTS[:4]}
    path = write_toml(small)
    assert command("run", path, "-o", tmp_path / "packed", "--pack", ranks=4).returncode == 0
    last = tmp_path / "packed" / "eta-0.8.h5"
    last.rename(tmp_path / "expected.h5")
    process = command("run", path, "-o", tmp_path / "packed", "--pack", "--resume", ranks=4)
    assert process.returncode == 0, process.stderr
    assert process.stdout.count("written: ") == 1
    assert list(compare(tmp_path / "expected.h5", last)) == []
    assert load(last).attributes["timing"]["ranks"] == 3


@needs_shared_memory
def test_a_signal_at_one_rank_stops_every_group(config: MakeConfig, write_toml: WriteToml, tmp_path: Path) -> None:
    """It reaches one rank of the first group; the second hears of it, and the launcher sees 75."""
    path = write_toml(
        config("admm", iterations=200_000, record={"every": 100, "trajectory": False}) | {"variant": VARIANTS[:2]}
    )
    job = dpadmm("run", path, "-o", tmp_path / "packed", "--pack", 2, ranks=4)
    for _ in range(LAUNCHES):
        process = popen(job, env={**os.environ, **MPI_ENVIRONMENT}, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        while process.poll() is None and len(list((tmp_path / "packed").glob("*.h5.restart/checkpoint"))) < 2:
            time.sleep(0.02)
        if process.poll() is None:
            break
    children = Path(f"/proc/{process.pid}/task").glob("*/children")
    ranks = sorted(int(pid) for child in children for pid in child.read_text().split())
    os.kill(ranks[1], signal.SIGTERM)
    _, errors = process.communicate(timeout=50)
    assert process.returncode == 75, errors
    assert errors.count("stopped by SIGTERM after iteration ") == 2
    assert all(f'variant "{variant["name"]}": stopped by' in errors for variant in VARIANTS[:2])


@needs_shared_memory
def test_packed_variants_stop_in_time(config: MakeConfig, write_toml: WriteToml, tmp_path: Path) -> None:
    path = write_toml(config("admm", iterations=20_000) | {"variant": VARIANTS[:2]})
    process = command("run", path, "-o", tmp_path / "packed", "--pack", 2, "--walltime", "0:03", ranks=2)
    assert process.returncode == 75, process.stderr
    (sentence,) = sentences(process)
    assert sentence.count("stopped by --walltime after iteration ") == 2
    assert len(list((tmp_path / "packed").glob("*.restart/checkpoint"))) == 2


def test_index(variants: tuple[Path, list[Path]], tmp_path: Path) -> None:
    path, expected = variants
    assert command("run", path, "-o", tmp_path / "some", "--index", 3).returncode == 0
    assert_same_files([expected[3]], tmp_path / "some")
    assert command("run", path, "-o", tmp_path / "some", "--resume").returncode == 0
    assert_same_files(expected, tmp_path / "some")
    process = command("run", path, "-o", tmp_path / "some", "--index", 5)
    assert process.returncode == 2
    assert "numbered from 0 to 4" in sentences(process)[0]


def test_configurations_with_the_same_records_go_on_with_them(config: MakeConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bits are those of a configuration by itself, whatever came before it; records are read where they are others."""
    data = {"records": 2000, "train": 1600}
    private = config("m-admm", "objective", runs=3, features=40, data=data, record={"trajectory": False})
    changes: list[tuple[Raw, bool]] = [  # and whether its records and problems are those of the one before
        ({}, False),
        ({"privacy": {"perturbation": "none"}, "runs": 1}, True),
        ({"algorithm": {"method": "r-admm", "eta": 0.6}}, True),
        ({"network": {"graph": "ring", "nodes": 6}}, True),
        ({"problem": {"C": 4.0, "rho": 0.5}}, False),
        ({"problem": {"C": 4.0, "rho": 0.6}}, False),
        ({"problem": {"C": 4.0, "rho": 0.6, "loss": "huber"}}, False),
        ({"seed": 12}, False),
        ({"seed": 12, "data": private["data"] | {"concentration": 9.0}}, False),
        ({"seed": 12, "data": private["data"] | {"concentration": 9.0, "records": 1900}}, False),
    ]
    loaded: list[tuple[Any, ...]] = []
    load_problems = loop._load_problems

    def noting(*about: Any) -> Any:
        loaded.append(about)
        return load_problems(*about)

    monkeypatch.setattr(loop, "_load_problems", noting)
    handed_on, expected = loop.HandedOn(), 0
    for change, as_before in changes:
        chosen = parsed(private | change)
        found = loop.execute(chosen, Serial(), handed_on=handed_on)
        expected += not as_before
        assert len(loaded) == expected, change
        assert handed_on.problems[0].features == 40
        alone = loop.execute(chosen, Serial())
        del loaded[expected:]
        assert found is not None
        assert alone is not None
        for name in ("loss", "test_error", "kkt_residual", "final/primal", "data/label_counts"):
            np.testing.assert_array_equal(found[name], alone[name], err_msg=f"{name}, {change}")


def test_the_file_of_a_job_is_its_own(variants: tuple[Path, list[Path]]) -> None:
    """Nothing but result files is left in a folder."""
    _, expected = variants
    assert all(Path(path).suffix == ".h5" for path in expected[0].parent.iterdir())


def test_sentences_come_in_the_order_of_the_variants_whichever_group_had_them() -> None:
    jobs = [Job(load_experiment({"name": name}).configs[0], Path(f"{name}.h5")) for name in "abc"]
    reports = [
        Report([], {"c.h5": RunError("c failed")}, {}),
        Report([], {"a.h5": RunError("a failed")}, {"b.h5": Stopped("b")}),
    ]
    assert str(_summary(jobs, reports)) == "a failed; c failed; b"


FIGURE = TOP / "configs" / "recycled-fig5.toml"


def test_recycling_methods_count_half() -> None:
    """[R] Fig. 5: the curves of 50 data steps come before those of 25, which even out what is left at the end."""
    jobs = targets(load_experiment(FIGURE), Path("out"))
    steps = {"admm": 50, "m-admm": 50, "r-admm": 25, "mr-admm": 25}
    assert [_work(job) for job in jobs] == [job.config.runs * steps[job.config.method_name] for job in jobs]
