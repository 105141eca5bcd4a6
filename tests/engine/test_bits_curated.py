"""The curated family on any number of ranks, also with a rank for the hub alone: identical to the last bit."""

from pathlib import Path

import h5py
import numpy as np
import pytest
import tomli_w
from support import Raw, command

from dpadmm_mpi.storage.compare import compare

VARIANTS: dict[str, Raw] = {
    "plain": {"algorithm": {"method": "gl-admm"}, "problem": {"regulariser": "l2"}},
    "exact": {"algorithm": {"method": "gl-exact-admm", "init": "random"}},
    "accelerated": {"algorithm": {"method": "gl-acc-admm", "restart": True}},
    "private": {
        "algorithm": {"method": "dp-admm", "init": "random"},
        "problem": {"map": "graphical-lasso", "sparsity": 0.05},
        "privacy": {"target": 3.0},
    },
    "as printed": {"algorithm": {"method": "dp-acc-admm", "u0": "as-printed"}, "privacy": {"noise_std": 0.05}},
    "sparse": {
        "algorithm": {"method": "dp-acc-admm"},
        "privacy": {"noise_std": 0.05},
        "data": {"source": "libsvm", "path": "records.svm", "features": 6},
    },
}


@pytest.fixture(scope="module")
def serial(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with all variants on five uneven shards, and the folder that a serial run of it wrote."""
    folder = tmp_path_factory.mktemp("curated")
    rng = np.random.default_rng(3)
    X = rng.random((120, 6)) * (rng.random((120, 6)) < 0.3) / 3
    entries = [" ".join(f"{j + 1}:{float(v)!r}" for j, v in enumerate(x) if v) for x in X]
    labels = np.where(rng.random(120) < 0.4, "+1", "-1")
    (folder / "records.svm").write_text("\n".join(f"{y} {row}" for y, row in zip(labels, entries, strict=True)))
    raw: Raw = {
        "name": "curated",
        "seed": 5,
        "runs": 2,
        "iterations": 12,
        "network": {"nodes": 5},
        "problem": {"lambda1": 0.003},
        "record": {"trajectory": True, "optimum": True},
        "variant": [{"name": name, **table} for name, table in VARIANTS.items()],
    }
    for table in raw["variant"]:
        table["data"] = table.get("data", {"records": 120, "features": 6}) | {"train": 0.8, "split": "uneven"}
    (folder / "curated.toml").write_text(tomli_w.dumps(raw))
    process = command("run", folder / "curated.toml", "-o", folder / "serial")
    assert process.returncode == 0, process.stderr
    return folder


@pytest.mark.parametrize("ranks", [2, 6])
def test_any_number_of_ranks(serial: Path, ranks: int) -> None:
    process = command("run", serial / "curated.toml", "-o", serial / f"ranks-{ranks}", ranks=ranks)
    assert process.returncode == 0, process.stderr
    files = sorted((serial / "serial").iterdir())
    assert len(files) == len(VARIANTS)
    for file in files:
        other = serial / f"ranks-{ranks}" / file.name
        assert list(compare(file, other)) == [], file.name
        with h5py.File(other) as result:
            assert result["timing"].attrs["ranks"] == ranks
            owners = np.unique(result["timing/owner"])
            assert owners.tolist() == (list(range(1, 6)) if ranks == 6 else list(range(ranks)))
    assert command("diff", file, other).stdout == "identical\n"
