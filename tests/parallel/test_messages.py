"""What travels between ranks: released values only, 8 d bytes per edge and direction with one rank per node."""

from pathlib import Path
from typing import Any, TypeAlias

import h5py
import numpy as np
import pytest
from support import EDGES, PROGRAMS, RESTARTS, MakeConfig, WriteToml, command, needs_shared_memory

from dpadmm_mpi.storage.compare import compare
from dpadmm_mpi.types import Array, Ints

SPY = PROGRAMS / "spy.py"
FEATURES, ITERATIONS = 4, 6

Traffic: TypeAlias = tuple[int, list[Any], Array, Ints, Array]  # ranks, messages of each, trajectory, owners, bytes


@pytest.fixture(params=[2, 3, 6])
def traffic(request: pytest.FixtureRequest, config: MakeConfig, write_toml: WriteToml, tmp_path: Path) -> Traffic:
    """The messages of every rank of a private run, and the run's file."""
    path = write_toml(config("mr-admm", "objective", iterations=ITERATIONS, features=FEATURES))
    process = command(tmp_path, "run", path, "-o", tmp_path / "out.h5", ranks=request.param, program=SPY)
    assert process.returncode == 0, process.stderr
    logs = [np.load(tmp_path / f"rank-{rank}.npz") for rank in range(request.param)]
    with h5py.File(tmp_path / "out.h5") as file:
        return request.param, logs, file["trajectory"][0], file["timing/owner"][...], file["timing/bytes_sent"][0]


def test_messages_hold_exactly_the_released_vectors(traffic: Traffic) -> None:
    """Byte by byte: the t-th message from rank a to b is f_i(t) of a's nodes with a neighbour at b, nothing else."""
    _, logs, trajectory, owner, _ = traffic
    links = {(i, j) for i, j in EDGES} | {(j, i) for i, j in EDGES}
    for rank, log in enumerate(logs):
        expected_peers = {int(owner[j]) for i, j in links if owner[i] == rank and owner[j] != rank}
        assert {int(name.split("-")[1]) for name in log if name.startswith("to")} == expected_peers
        for peer in expected_peers:
            nodes = sorted({i for i, j in links if owner[i] == rank and owner[j] == peer})
            sent = log[f"to-{peer}"]  # (messages, bytes)
            assert sent.shape == (ITERATIONS + 1, 8 * FEATURES * len(nodes))
            for t in range(ITERATIONS + 1):
                assert sent[t].tobytes() == trajectory[t][nodes].tobytes()


def test_nothing_else_is_called_on_the_edges_channel(traffic: Traffic) -> None:
    _, logs, *_ = traffic
    for log in logs:
        assert set(log["calls"]) <= {"Get_rank", "Send_init", "Recv_init"}


def test_bytes_are_counted_as_they_travel(traffic: Traffic) -> None:
    ranks, logs, _, owner, counted = traffic
    for rank, log in enumerate(logs):
        assert counted[:, owner == rank].sum() == sum(log[name].size for name in log if name.startswith("to"))
    if ranks == 6:  # one rank per node: 8 d bytes per edge and direction and iteration, no overhead at all
        degree = np.bincount(np.array(EDGES).ravel())
        assert np.array_equal(counted, np.tile(8 * FEATURES * degree, (ITERATIONS + 1, 1)))


@pytest.mark.parametrize("method", ["r-admm", "star-admm", "dp-admm"])
def test_rows_that_travel_while_ranks_work_on_are_the_rows_of_ranks_that_wait(
    config: MakeConfig, write_toml: WriteToml, tmp_path: Path, method: str
) -> None:
    """The record does not depend on when rank 0 writes a row down; nothing is lost, doubled or out of order."""
    path = write_toml(RESTARTS[method](config) | {"runs": 3, "iterations": 9})
    for name, patience in (("waits", "0.0"), ("works on", "1e9")):
        program = tmp_path / "program.py"
        program.write_text(
            "from dpadmm_mpi.cli.main import entry\n"
            "from dpadmm_mpi.engine import simulation\n"
            f"simulation.PATIENCE = {patience}\n"
            "entry()\n"
        )
        process = command("run", path, "-o", tmp_path / f"{name}.h5", ranks=3, program=program)
        assert process.returncode == 0, process.stderr
    assert list(compare(tmp_path / "waits.h5", tmp_path / "works on.h5")) == []
    with h5py.File(tmp_path / "works on.h5") as file:
        assert np.isfinite(file["loss"][...]).all()
        assert (file["timing/compute_seconds"][:, 1:] > 0.0).all()


def test_waiting_ranks_leave_the_cores_to_others(tmp_path: Path) -> None:
    """A rank that waits a second for its neighbour uses little processor time; one that spins would use all of it."""
    program = tmp_path / "wait.py"
    program.write_text(
        "import time, numpy as np\n"
        "from mpi4py import MPI\n"
        "from dpadmm_mpi.networks import Channel\n"
        "from dpadmm_mpi.parallel.mpi import Mpi\n"
        "transport = Mpi(MPI.COMM_WORLD)\n"
        "links = transport.links(Channel(((1,), (0,))), np.array([0, 1]), 3)\n"
        "links.start(np.zeros((1, 3)))\n"
        "links.finish()\n"
        "if transport.rank: time.sleep(1.5)\n"
        "before = time.process_time()\n"
        "links.start(np.zeros((1, 3)))\n"
        "links.finish()\n"
        "if transport.rank == 0: print(time.process_time() - before)\n"
    )
    process = command(program=program, ranks=2)
    assert process.returncode == 0, process.stderr
    assert float(process.stdout) < 0.5


@pytest.mark.parametrize("width", [3, 200_000], ids=["short", "long"])
def test_a_message_that_nobody_has_looked_at_yet_is_not_overwritten(tmp_path: Path, width: int) -> None:
    """Ranks of a path and of a star, of which one sleeps: the others go on, and what it finds is what was sent to it."""
    program = tmp_path / "late.py"
    program.write_text(
        "import time, numpy as np\n"
        "from mpi4py import MPI\n"
        "from dpadmm_mpi.networks import Channel\n"
        "from dpadmm_mpi.parallel.mpi import Mpi\n"
        "transport = Mpi(MPI.COMM_WORLD)\n"
        f"rank, width, owner, wrong = transport.rank, {width}, np.arange(3), 0\n"
        "path, star = Channel(((1,), (0, 2), (1,))), Channel(((), (0,), (0,)))\n"
        "links = {'path': transport.links(path, owner, width, 0), 'star': transport.links(star, owner, width, 1)}\n"
        "for t in range(12):\n"
        "    for k, (name, channel) in enumerate((('path', path), ('star', star), ('star', star))):\n"
        "        values = np.full((1, width), 100.0 * t + 10.0 * k + rank)\n"
        "        links[name].start(values)\n"
        "        values[:] = np.nan\n"
        "        if rank == t % 3: time.sleep(0.02)\n"
        "        received = links[name].finish()[1:]\n"
        "        expected = [100.0 * t + 10.0 * k + sender for sender in channel.senders[rank]]\n"
        "        wrong += not all((row == number).all() for row, number in zip(received, expected, strict=True))\n"
        "for channel in links.values(): channel.close()\n"
        "if sum(transport.gather_objects(wrong)): raise SystemExit('wrong values')\n"
    )
    process = command(program=program, ranks=3)
    assert process.returncode == 0, process.stderr


@needs_shared_memory
def test_every_number_of_a_counter_is_handed_out_once(tmp_path: Path) -> None:
    program = tmp_path / "counter.py"
    program.write_text(
        "import time\n"
        "from mpi4py import MPI\n"
        "from dpadmm_mpi.parallel.mpi import Counter, Mpi\n"
        "world = Mpi(MPI.COMM_WORLD)\n"
        "counter, numbers = Counter(world), []\n"
        "while not numbers or numbers[-1] < 40:\n"
        "    numbers.append(counter.next())\n"
        "    time.sleep(0.001 * (1 + world.rank))\n"
        "everywhere = world.gather_objects(numbers)\n"
        "counter.close()\n"
        "if world.rank == 0: print(sorted(sum(everywhere, [])) == list(range(43)), min(map(len, everywhere)))\n"
    )
    process = command(program=program, ranks=3)
    assert process.returncode == 0, process.stderr
    whole, fewest = process.stdout.split()
    assert whole == "True"
    assert int(fewest) > 1
