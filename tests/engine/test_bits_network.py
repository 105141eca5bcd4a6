"""Serial and any number of ranks: the recorded results are identical to the last bit."""

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from support import EDGES, NETWORK_METHODS, PERTURBATIONS, Raw, command

SOURCES = ("synthetic", "npz", "libsvm")


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One file with every method and perturbation as variants, and the folder that a serial run of it wrote.

    Six nodes of unequal degrees, uneven shards, two runs, noise on; dense, sparse and synthetic records.
    """
    import tomli_w

    folder = tmp_path_factory.mktemp("everything")
    (folder / "edges.txt").write_text("".join(f"{i} {j}\n" for i, j in EDGES))
    rng = np.random.default_rng(3)
    X = rng.standard_normal((150, 7)) * (rng.random((150, 7)) < 0.25)
    X /= np.maximum(np.linalg.norm(X, axis=1, keepdims=True), 1.0)
    y = np.where(rng.random(150) < 0.4, 1.0, -1.0)
    np.savez(folder / "records.npz", X=X, y=y)
    lines = [
        f"{label:+g} " + " ".join(f"{j + 1}:{float(v)!r}" for j, v in enumerate(x) if v) for x, label in zip(X, y, strict=True)
    ]
    (folder / "records.svm").write_text("\n".join(lines))
    common: Raw = {"records": None, "features": None, "split": "uneven", "concentration": 4.0, "train": 0.8}
    data = {
        "synthetic": common | {"source": "synthetic", "records": 150, "features": 7},
        "npz": common | {"source": "npz", "path": "records.npz", "split": "by-label", "concentration": None},
        "libsvm": common | {"source": "libsvm", "path": "records.svm", "features": 7},
    }
    variants = []
    for method in NETWORK_METHODS:
        for number, perturbation in enumerate(PERTURBATIONS):
            eta: Any = 0.7 if method in ("admm", "r-admm") else [0.5, 0.6, 0.7, 0.8, 0.9, 1.0]
            if method == "mr-admm" and perturbation != "dual":
                eta = [{"first": first, "ratio": 1.05} for first in eta]
            source = SOURCES[number % len(SOURCES)]
            table: Raw = {
                "name": f"{method} {perturbation} {source}",
                "data": {key: value for key, value in data[source].items() if value is not None},
                "algorithm": {"method": method, "eta": eta},
                "privacy": {"perturbation": perturbation} | ({"alpha": 4.0} if perturbation != "none" else {}),
            }
            if method == "mr-admm" and number % 2:
                table["algorithm"]["theta"] = 0.5
            variants.append(table)
    raw = {
        "name": "everything",
        "seed": 5,
        "runs": 2,
        "iterations": 5,
        "network": {"graph": "edges", "path": "edges.txt"},
        "problem": {"C": 2.0, "rho": 0.4},
        "record": {"trajectory": True, "optimum": True},
        "variant": variants,
    }
    (folder / "everything.toml").write_text(tomli_w.dumps(raw))
    process = command("run", folder / "everything.toml", "-o", folder / "serial")
    assert process.returncode == 0, process.stderr
    assert len(list((folder / "serial").iterdir())) == len(NETWORK_METHODS) * len(PERTURBATIONS)
    return folder


@pytest.mark.parametrize("ranks", [2, 4, 6])
def test_every_method_and_perturbation_on_any_number_of_ranks(everything: Path, ranks: int) -> None:
    from dpadmm_mpi.storage.compare import compare

    process = command("run", everything / "everything.toml", "-o", everything / f"ranks-{ranks}", ranks=ranks)
    assert process.returncode == 0, process.stderr
    for serial in sorted((everything / "serial").iterdir()):
        other = everything / f"ranks-{ranks}" / serial.name
        assert list(compare(serial, other)) == [], serial.name
        with h5py.File(other) as file:
            assert file["timing"].attrs["ranks"] == ranks
            assert len(np.unique(file["timing/owner"])) == ranks


def test_diff_command_says_identical_and_notices_a_seed(everything: Path, tmp_path: Path) -> None:
    name = "mr-admm objective synthetic"
    first = everything / "serial" / "mr-admm-objective-synthetic.h5"
    command("run", everything / "everything.toml", "--only", name, "-o", tmp_path / "same", ranks=2)
    command("run", everything / "everything.toml", "--only", name, "--set", "seed=6", "-o", tmp_path / "other", ranks=2)
    same = command("diff", first, tmp_path / "same" / first.name)
    assert (same.returncode, same.stdout) == (0, "identical\n")
    other = command("diff", first, tmp_path / "other" / first.name)
    assert other.returncode == 1
    assert "/loss[0, 0]: " in other.stdout
    assert "identical" not in other.stdout


def test_diff_sees_one_flipped_bit(everything: Path, tmp_path: Path) -> None:
    original = everything / "serial" / "admm-dual-npz.h5"
    copy = tmp_path / "copy.h5"
    copy.write_bytes(original.read_bytes())
    with h5py.File(copy, "r+") as file:
        bits = file["trajectory"][...].view(np.uint64)
        bits[1, 3, 2, 4] ^= 1
        file["trajectory"][...] = bits.view(np.float64)
    process = command("diff", original, copy)
    assert process.returncode == 1
    assert process.stdout.startswith("/trajectory[1, 3, 2, 4]: ")
    assert "(1 of 504 differ)" in process.stdout


def test_the_recorded_configuration_runs_again(everything: Path, tmp_path: Path) -> None:
    """Out of the file, as text, from another folder: the same result, also when the result file itself is run."""
    original = everything / "serial" / "r-admm-penalty-libsvm.h5"
    with h5py.File(original) as file:
        (tmp_path / "again.toml").write_text(file.attrs["config"])
    assert command("run", tmp_path / "again.toml", "-o", tmp_path / "again.h5").returncode == 0
    assert command("run", original, "-o", tmp_path / "once-more.h5").returncode == 0
    for name in ("again.h5", "once-more.h5"):
        assert command("diff", original, tmp_path / name).stdout == "identical\n"
