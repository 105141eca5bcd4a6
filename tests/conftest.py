"""Fixtures of all tests."""

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tomli_w
from hypothesis import settings
from hypothesis.configuration import set_hypothesis_home_dir
from support import EDGES, MakeConfig, Raw, WriteToml, command

# The same examples in every run, whatever the machine has to do besides; and no folder among the sources.
settings.register_profile("tests", derandomize=True, database=None, deadline=None)
settings.load_profile("tests")
set_hypothesis_home_dir(Path(tempfile.gettempdir()) / "dpadmm-hypothesis")


@pytest.fixture(scope="session", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache of the tests' own, also for the processes that they start."""
    folder = tmp_path_factory.mktemp("cache")
    os.environ["DPADMM_DATA"] = str(folder)
    return folder


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder with the papers' data sets, from DPADMM_TEST_DATA."""
    folder = os.environ.get("DPADMM_TEST_DATA")
    if not folder:
        pytest.skip("DPADMM_TEST_DATA does not name a folder with the papers' data sets")
    assert Path(folder).is_dir()
    return Path(folder)


@pytest.fixture(scope="session")
def fetched(real_data: Path, cache: Path) -> Callable[[str], str]:
    """fetched(name): the data set brought into the tests' cache, as `dpadmm data fetch --from` does it."""

    def bring(name: str) -> str:
        process = command("data", "fetch", name, "--from", real_data)
        assert process.returncode == 0, process.stderr
        return name

    return bring


@pytest.fixture
def edge_file(tmp_path: Path) -> Path:
    path = tmp_path / "edges.txt"
    path.write_text("".join(f"{i} {j}\n" for i, j in EDGES))
    return path


@pytest.fixture
def config(edge_file: Path) -> MakeConfig:
    """make(method, perturbation, **sections): a small, quick configuration with unequal degrees and uneven shards."""

    def make(
        method: str = "admm",
        perturbation: str = "none",
        iterations: int = 6,
        runs: int = 1,
        features: int = 4,
        **sections: Any,
    ) -> Raw:
        eta: Any = {
            "admm": 0.7,
            "r-admm": 0.7,
            "m-admm": [0.5 + 0.1 * i for i in range(6)],
            "mr-admm": [{"first": 0.5 + 0.1 * i, "ratio": 1.02} for i in range(6)],
        }[method]
        if perturbation == "dual" and method == "mr-admm":
            eta = [0.5 + 0.1 * i for i in range(6)]
        raw: Raw = {
            "name": f"{method} {perturbation}",
            "seed": 11,
            "runs": runs,
            "iterations": iterations,
            "data": {"source": "synthetic", "features": features, "records": 240, "train": 200, "split": "uneven",
                     "concentration": 5.0},
            "network": {"graph": "edges", "path": str(edge_file)},
            "problem": {"C": 3.0, "rho": 0.5},
            "algorithm": {"method": method, "eta": eta},
            "privacy": {"perturbation": perturbation},
            "record": {"trajectory": True},
        }  # fmt: skip
        if perturbation != "none":
            raw["privacy"]["alpha"] = 5.0
        for name, table in sections.items():
            raw[name] = {**raw[name], **table} if isinstance(table, dict) else table
            raw[name] = {key: value for key, value in raw[name].items() if value is not None}
        return raw

    return make


@pytest.fixture
def write_toml(tmp_path: Path) -> WriteToml:
    def write(raw: Raw, name: str = "config.toml") -> Path:
        path = tmp_path / name
        path.write_text(tomli_w.dumps(raw))
        return path

    return write


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20180710)
