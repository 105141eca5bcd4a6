"""Many configurations in one job: variants by number, in groups of ranks, finished ones left alone; and the self-test."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import LAUNCHES, MPI_ENVIRONMENT, RESTARTS, command, sentences

from dpadmm_mpi import load
from dpadmm_mpi.cli.run import advice_to_pack, targets
from dpadmm_mpi.config.options import files as configfile
from dpadmm_mpi.engine.several import Job, Report, _summary
from dpadmm_mpi.errors import RunError, Stopped
from dpadmm_mpi.parallel.launcher import prefer_shared_memory
from dpadmm_mpi.storage.compare import compare

VARIANTS = [{"name": f"eta {eta}", "algorithm": {"eta": eta}} for eta in (0.6, 0.7, 0.8, 0.9, 1.0)]


@pytest.fixture
def variants(config, write_toml, tmp_path):
    """A file with five variants, and the folder that a serial run of it writes."""
    path = write_toml(RESTARTS["admm"](config) | {"variant": VARIANTS})
    assert command("run", path, "-o", tmp_path / "serial").returncode == 0
    return path, sorted((tmp_path / "serial").glob("*.h5"))


def assert_same_files(expected, folder):
    assert sorted(path.name for path in folder.iterdir()) == [path.name for path in expected]
    for path in expected:
        assert list(compare(path, folder / path.name)) == []


@pytest.mark.parametrize(("ranks", "groups"), [(3, 3), (4, 2)])
def test_packed_variants_have_the_same_bits(variants, tmp_path, ranks, groups):
    path, expected = variants
    process = command("run", path, "-o", tmp_path / "packed", "--pack", groups, ranks=ranks)
    assert process.returncode == 0, process.stderr
    assert process.stdout.count("written: ") == len(VARIANTS)
    assert "error" not in process.stderr.lower()  # MPI itself has nothing to say either
    assert_same_files(expected, tmp_path / "packed")
    for file in expected:
        assert load(tmp_path / "packed" / file.name).attributes["timing"]["ranks"] == ranks // groups


@pytest.mark.parametrize(
    ("sizes", "chosen", "used"),
    [(("4", "4"), None, "^ucx"), (("4", "4"), "rdma", "rdma"), (("2", "4"), None, None), ((None, None), None, None)],
    ids=["one host", "the user's own choice", "several hosts", "another library"],
)
def test_ucx_is_left_out_on_one_host_only(sizes, chosen, used):
    names = ("OMPI_COMM_WORLD_LOCAL_SIZE", "OMPI_COMM_WORLD_SIZE", "OMPI_MCA_osc")
    environment = {name: value for name, value in zip(names, (*sizes, chosen), strict=True) if value is not None}
    prefer_shared_memory(environment)
    assert environment.get("OMPI_MCA_osc") == used


@pytest.mark.parametrize(
    ("nodes", "ranks", "advised"), [(6, 2, False), (6, 4, True), (5, 2, True), (5, 5, False), (20, 3, False)]
)
def test_packing_is_advised_where_ranks_would_wait_for_each_other(config, write_toml, nodes, ranks, advised):
    """5 nodes on 2 ranks are 3 and 2: a third of the second rank's time. Not where there are too few variants either."""
    raw = config() | {"network": {"graph": "ring", "nodes": nodes}, "sweep": {"algorithm.eta": [0.1 * k for k in range(1, 6)]}}
    raw["data"] |= {"records": 400}
    jobs = targets(configfile.load(write_toml(raw), []), None)
    assert (advice_to_pack(jobs, ranks) is not None) == advised
    assert advice_to_pack(jobs[: ranks - 1], ranks) is None


def test_the_advice_is_said_once(config, write_toml, tmp_path):
    path = write_toml(config() | {"network": {"graph": "ring", "nodes": 5}, "variant": VARIANTS})
    process = command("run", path, "-o", tmp_path / "out", ranks=4)
    assert process.returncode == 0, process.stderr
    assert process.stderr.count("with --pack, 4 variants go at a time") == 1
    assert "--pack" not in command("run", path, "-o", tmp_path / "packed", "--pack", ranks=4).stderr


FAIL = """
from dpadmm_mpi.cli.main import main as cli
from dpadmm_mpi.engine.loop import loop as engine
from dpadmm_mpi.errors import InputError, RunError
settle = engine.make_plan
def fail(config):
    if config.name == 'eta 0.7': raise {kind}('planted')
    return settle(config)
engine.make_plan = fail
cli.entry()
"""


@pytest.mark.parametrize(("kind", "code"), [("RunError", 1), ("InputError", 2)])
@pytest.mark.parametrize(("ranks", "pack"), [(None, ()), (2, ()), (4, ("--pack", 2))])
def test_a_failing_variant_is_named_and_the_others_finish(variants, tmp_path, kind, code, ranks, pack):
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
    again = command("run", path, "-o", tmp_path / "packed", *pack, "--resume", ranks=2)
    assert again.returncode == 0, again.stderr
    assert again.stdout.count("finished before: ") == len(finished)
    assert_same_files(expected, tmp_path / "packed")


def test_the_last_variants_of_a_pack_leave_ranks_idle(config, write_toml, tmp_path):
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


def test_a_signal_at_one_rank_stops_every_group(config, write_toml, tmp_path):
    """It reaches one rank of the first group; the second hears of it, and the launcher sees 75."""
    path = write_toml(
        config("admm", iterations=200_000, record={"every": 100, "trajectory": False}) | {"variant": VARIANTS[:2]}
    )
    mpiexec = str(Path(sys.executable).parent / "mpiexec")
    job = [
        mpiexec,
        "-n",
        "4",
        sys.executable,
        "-m",
        "dpadmm_mpi",
        "run",
        str(path),
        "-o",
        str(tmp_path / "packed"),
        "--pack",
        "2",
    ]
    for _ in range(LAUNCHES):
        process = subprocess.Popen(
            job, env={**os.environ, **MPI_ENVIRONMENT}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
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


def test_packed_variants_stop_in_time(config, write_toml, tmp_path):
    path = write_toml(config("admm", iterations=20_000) | {"variant": VARIANTS[:2]})
    process = command("run", path, "-o", tmp_path / "packed", "--pack", 2, "--walltime", "0:03", ranks=2)
    assert process.returncode == 75, process.stderr
    (sentence,) = sentences(process)
    assert sentence.count("stopped by --walltime after iteration ") == 2
    assert len(list((tmp_path / "packed").glob("*.restart/checkpoint"))) == 2


def test_index(variants, tmp_path):
    path, expected = variants
    assert command("run", path, "-o", tmp_path / "some", "--index", 3).returncode == 0
    assert_same_files([expected[3]], tmp_path / "some")
    assert command("run", path, "-o", tmp_path / "some", "--resume").returncode == 0
    assert_same_files(expected, tmp_path / "some")
    process = command("run", path, "-o", tmp_path / "some", "--index", 5)
    assert process.returncode == 2
    assert "numbered from 0 to 4" in sentences(process)[0]


def test_selftest_names_hosts_and_nodes(config, write_toml, tmp_path):
    import platform

    process = command("run", "--selftest", write_toml(RESTARTS["admm"](config)), ranks=3, cwd=tmp_path)
    assert process.returncode == 0, process.stderr
    lines = process.stdout.splitlines()
    hosts = [line for line in lines if line.startswith("    rank ")]
    assert [line.split(":")[0].strip() for line in hosts] == [f"rank {rank} on {platform.node()}" for rank in range(3)]
    assert sorted(int(i) for line in hosts for i in line.split("nodes ")[1].split(", ")) == list(range(6))
    assert lines[-1].startswith("passed in ")
    assert not list(tmp_path.glob("*.h5"))


def test_selftest_with_too_many_ranks_speaks_once(config, write_toml):
    process = command("run", "--selftest", write_toml(RESTARTS["admm"](config)), ranks=7)
    assert process.returncode == 2
    assert sentences(process) == ["dpadmm: started on 7 ranks, but the network has 6 nodes; use at most 6 ranks"]


@pytest.mark.parametrize("fault", ["configuration", "message"])
def test_selftest_finds_what_does_not_fit(config, write_toml, tmp_path, fault):
    program = tmp_path / "fault.py"
    program.write_text(
        "from dpadmm_mpi import cli, launch, selftest, transport\n"
        "if launch.announced_rank() == 1:\n"
        + {
            "configuration": "    selftest._digest = lambda content: 'another'\n",
            "message": "    start = transport.MpiLinks.start\n"
            "    transport.MpiLinks.start = lambda self, values: start(self, values + 1.0)\n",
        }[fault]
        + "cli.entry()\n"
    )
    process = command("run", "--selftest", write_toml(RESTARTS["admm"](config)), ranks=3, program=program)
    assert process.returncode == 1
    (sentence,) = sentences(process)
    expected = {"configuration": "rank 1 on ", "message": "messages along the edges arrive wrongly"}
    assert expected[fault] in sentence
    assert "passed" not in process.stdout


def test_the_file_of_a_job_is_its_own(variants):
    """Nothing but result files is left in a folder."""
    _, expected = variants
    assert all(Path(path).suffix == ".h5" for path in expected[0].parent.iterdir())


def test_sentences_come_in_the_order_of_the_variants_whichever_group_had_them():
    jobs = [Job(configfile.load({"name": name}).configs[0], Path(f"{name}.h5")) for name in "abc"]
    reports = [
        Report([], {"c.h5": RunError("c failed")}, {}),
        Report([], {"a.h5": RunError("a failed")}, {"b.h5": Stopped("b")}),
    ]
    assert str(_summary(jobs, reports)) == "a failed; c failed; b"
