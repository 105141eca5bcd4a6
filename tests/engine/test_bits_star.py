"""The star family on any number of ranks, up to one for the server alone: identical to the last bit, noise on."""

from pathlib import Path

import h5py
import numpy as np
import pytest
import tomli_w
from support import command

from dpadmm_mpi.storage.compare import compare


@pytest.fixture(scope="module")
def stars(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every method as a variant, dense and sparse records of unequal providers, and the folder that a serial run wrote."""
    folder = tmp_path_factory.mktemp("stars")
    rng = np.random.default_rng(4)
    X = rng.standard_normal((90, 6)) * (rng.random((90, 6)) < 0.3)
    X /= np.maximum(np.linalg.norm(X, axis=1, keepdims=True), 1.0)
    y = np.where(rng.random(90) < 0.4, 1, -1)
    lines = [f"{c:+d} " + " ".join(f"{j + 1}:{float(v)!r}" for j, v in enumerate(x) if v) for x, c in zip(X, y, strict=True)]
    (folder / "records.svm").write_text("\n".join(lines))
    sparse = {"source": "libsvm", "path": "records.svm", "features": 6, "split": "uneven", "train": 0.8}
    dense = {"source": "synthetic", "records": 90, "features": 6, "split": "uneven", "train": 0.8}
    noise = {"privacy": {"noise_std": 0.5}}
    variants = [
        {"name": "exact", "data": sparse, "algorithm": {"method": "star-admm"}},
        {"name": "plain", "data": sparse, "algorithm": {"method": "s-admm", "averaging": "extrapolated", "inner_steps": 20}},
        {"name": "noisy dense", "data": dense, "algorithm": {"method": "ps-admm", "inner_steps": 20}} | noise,
        {"name": "noisy sparse", "data": sparse, "algorithm": {"method": "ps-admm", "inner_steps": 20}} | noise,
    ]
    raw = {
        "name": "stars",
        "seed": 5,
        "runs": 2,
        "iterations": 4,
        "network": {"nodes": 5},
        "algorithm": {"init": "random"},
        "record": {"trajectory": True, "optimum": True},
        "variant": variants,
    }
    (folder / "stars.toml").write_text(tomli_w.dumps(raw))
    process = command("run", folder / "stars.toml", "-o", folder / "serial")
    assert process.returncode == 0, process.stderr
    return folder


@pytest.mark.parametrize("ranks", [1, 3, 6])
def test_any_number_of_ranks_writes_the_same_file(stars: Path, ranks: int) -> None:
    """Six ranks for five providers: rank 0 has the server and no records."""
    process = command("run", stars / "stars.toml", "-o", stars / f"ranks-{ranks}", ranks=ranks)
    assert process.returncode == 0, process.stderr
    files = sorted((stars / "serial").iterdir())
    assert len(files) == 4
    for serial in files:
        other = stars / f"ranks-{ranks}" / serial.name
        assert list(compare(serial, other)) == [], serial.name  # what `dpadmm diff` prints
        with h5py.File(other) as file:
            assert file["timing"].attrs["ranks"] == ranks
            assert (0 in file["timing/owner"][:]) == (ranks < 6)
            if ranks == 6:  # one vector of 6 numbers to the server in every iteration, none at t = 0
                assert (file["timing/bytes_sent"][:, 1:] == 8 * 6).all()
                assert not file["timing/bytes_sent"][:, 0].any()
