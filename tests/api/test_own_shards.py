"""Under mpiexec each rank brings its own records: same bits as in one process, and no record travels."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import PROGRAMS, Process, command, result_of

from dpadmm_mpi.storage.compare import compare

OWN = PROGRAMS / "own_shards.py"
EDGES = np.array([[0, 1], [1, 2], [2, 3], [3, 0]])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four shards of unequal size and test records, for the program and for this process."""
    rng = np.random.default_rng(5)
    made: dict[str, Any] = {"nodes": 4, "edges": EDGES}
    for k, size in enumerate((30, 50, 20, 41)):
        made[f"X{k}"] = rng.uniform(-1, 1, (size, 5))
        made[f"y{k}"] = np.where(made[f"X{k}"][:, 0] + 0.3 * rng.standard_normal(size) > 0, "ill", "well")
    made["X_test"] = rng.uniform(-1, 1, (40, 5))
    made["y_test"] = np.where(made["X_test"][:, 0] > 0, "ill", "well")
    path = tmp_path_factory.mktemp("shards")
    np.savez(path / "records.npz", **made)
    given = np.load(path / "records.npz")
    result_of(
        None,
        path / "serial.h5",
        shards=[(given[f"X{k}"], given[f"y{k}"]) for k in range(4)],
        test=(given["X_test"], given["y_test"]),
        graph=EDGES,
        method="mr-admm",
        epsilon=20.0,
        iterations=6,
        preprocess=["scale-rows"],
        trajectory=True,
    )
    return path


def start(folder: Path, mode: str, ranks: int) -> Process:
    return command(mode, folder / f"{mode}.h5", folder / mode, ranks=ranks, program=OWN)


@pytest.mark.parametrize(("mode", "ranks"), [("own", 4), ("pairs", 2), ("root", 2)])
def test_same_bits_as_in_one_process(folder: Path, mode: str, ranks: int) -> None:
    process = start(folder, mode, ranks)
    assert process.returncode == 0, process.stderr
    assert list(compare(folder / "serial.h5", folder / f"{mode}.h5")) == []


def test_numbers_have_the_range_of_all_ranks(tmp_path: Path) -> None:
    """Each rank knows its own targets only; scaled by the range of all, the bits are those of one process."""
    rng = np.random.default_rng(6)
    made: dict[str, Any] = {"nodes": 3, "edges": np.array([[0, 1], [1, 2]]), "loss": "huber-regression"}
    for k, name in enumerate(("0", "1", "2", "_test")):
        made[f"X{name}"] = rng.uniform(-1, 1, (20, 3))
        made[f"y{name}"] = 10.0 * k + made[f"X{name}"][:, 0]
    np.savez(tmp_path / "records.npz", **made)
    shards = [(made[f"X{k}"], made[f"y{k}"]) for k in range(3)]
    keys: dict[str, Any] = {
        "method": "mr-admm",
        "epsilon": 20.0,
        "iterations": 6,
        "trajectory": True,
        "preprocess": ["scale-rows"],
    }
    keys |= {"graph": made["edges"], "test": (made["X_test"], made["y_test"]), "loss": "huber-regression"}
    result = result_of(None, tmp_path / "serial.h5", shards=shards, **keys)
    everything = np.concatenate([made[f"y{name}"] for name in ("0", "1", "2", "_test")])
    assert result.attributes["data"]["target_scale"] == (everything.max() - everything.min()) / 2
    process = start(tmp_path, "own", 3)
    assert process.returncode == 0, process.stderr
    assert list(compare(tmp_path / "serial.h5", tmp_path / "own.h5")) == []
    sent = b"".join((tmp_path / f"own-{rank}.bin").read_bytes() for rank in range(3))
    floats = [pickle.dumps(float(value))[-9:-1] for value in everything]
    assert sum(text in sent for text in floats) <= 6  # the smallest and the largest of each rank, and no other target


def test_no_record_travels_when_each_rank_brings_its_own(folder: Path) -> None:
    """No row, as it was brought or as it was prepared, is in any pickled message; rank 0 with everything is the control."""
    found = {}
    given = np.load(folder / "records.npz")
    for mode, ranks in (("own", 4), ("root", 2)):
        if not (folder / f"{mode}-0.bin").exists():
            assert start(folder, mode, ranks).returncode == 0
        sent = b"".join((folder / f"{mode}-{rank}.bin").read_bytes() for rank in range(ranks))
        rows = np.concatenate([given[f"X{k}"] for k in range(4)])
        norms = np.sqrt(np.einsum("ij,ij->i", rows, rows))
        prepared = rows * (1.0 / np.maximum(norms, 1.0)[:, None])
        found[mode] = sum(row.tobytes() in sent for row in [*rows, *prepared])
    assert found["own"] == 0
    assert found["root"] >= 50  # rank 0 sends what the others host


def test_copies_of_the_same_records_end_all_ranks_with_one_sentence(folder: Path) -> None:
    process = start(folder, "same", 2)
    assert process.returncode == 2
    (sentence,) = process.stdout.strip().splitlines()
    assert "every rank has brought the very same records" in sentence
