"""The self-test of a job's ranks, hosts and messages."""

from pathlib import Path

import pytest
from support import RESTARTS, MakeConfig, WriteToml, command, sentences


def test_selftest_names_hosts_and_nodes(config: MakeConfig, write_toml: WriteToml, tmp_path: Path) -> None:
    import platform

    process = command("run", "--selftest", write_toml(RESTARTS["admm"](config)), ranks=3, cwd=tmp_path)
    assert process.returncode == 0, process.stderr
    lines = process.stdout.splitlines()
    hosts = [line for line in lines if line.startswith("    rank ")]
    assert [line.split(":")[0].strip() for line in hosts] == [f"rank {rank} on {platform.node()}" for rank in range(3)]
    assert sorted(int(i) for line in hosts for i in line.split("nodes ")[1].split(", ")) == list(range(6))
    assert lines[-1].startswith("passed in ")
    assert not list(tmp_path.glob("*.h5"))


def test_selftest_with_too_many_ranks_speaks_once(config: MakeConfig, write_toml: WriteToml) -> None:
    process = command("run", "--selftest", write_toml(RESTARTS["admm"](config)), ranks=7)
    assert process.returncode == 2
    assert sentences(process) == ["dpadmm: started on 7 ranks, but the network has 6 nodes; use at most 6 ranks"]


@pytest.mark.parametrize("fault", ["configuration", "message"])
def test_selftest_finds_what_does_not_fit(config: MakeConfig, write_toml: WriteToml, tmp_path: Path, fault: str) -> None:
    program = tmp_path / "fault.py"
    program.write_text(
        "from dpadmm_mpi.cli.main import entry\n"
        "from dpadmm_mpi.engine import selftest\n"
        "from dpadmm_mpi.parallel import launcher, mpi\n"
        "if launcher.announced_rank() == 1:\n"
        + {
            "configuration": "    selftest._digest = lambda content: 'another'\n",
            "message": "    start = mpi.MpiLinks.start\n"
            "    mpi.MpiLinks.start = lambda self, values: start(self, values + 1.0)\n",
        }[fault]
        + "entry()\n"
    )
    process = command("run", "--selftest", write_toml(RESTARTS["admm"](config)), ranks=3, program=program)
    assert process.returncode == 1
    (sentence,) = sentences(process)
    expected = {"configuration": "rank 1 on ", "message": "messages along the edges arrive wrongly"}
    assert expected[fault] in sentence
    assert "passed" not in process.stdout
