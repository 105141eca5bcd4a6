"""Fixtures of all tests."""

import compileall
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tomli_w
from hypothesis import settings
from hypothesis.configuration import set_hypothesis_home_dir
from support import TOP, MakeConfig, Raw, WriteToml, command, small_configs, write_edges

# The same examples in every run, whatever the machine has to do besides; and no folder among the sources.
settings.register_profile("tests", derandomize=True, database=None, deadline=None)
settings.load_profile("tests")
set_hypothesis_home_dir(Path(tempfile.gettempdir()) / "dpadmm-hypothesis")

LONGEST = (
    "hosts/test_hosts.py",
    "faults/test_injected_faults.py",
    "engine/test_bits_network.py",
    "reproduce/test_page.py",
    "docs/test_site.py",
    "slurm/test_slurm.py",
    "storage/test_restart.py",
)


def pytest_configure() -> None:
    """The package is compiled once, also where Python is told to keep nothing compiled: hundreds of processes start here."""
    compileall.compile_dir(TOP / "dpadmm_mpi", quiet=2)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest files first: one that is begun last would leave the other core without work."""
    items.sort(key=lambda item: not str(item.path).endswith(LONGEST))


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
    return write_edges(tmp_path / "edges.txt")


@pytest.fixture
def config(edge_file: Path) -> MakeConfig:
    """make(method, perturbation, **sections): a small, quick configuration with unequal degrees and uneven shards."""
    return small_configs(edge_file)


@pytest.fixture(scope="session")
def shared_config(tmp_path_factory: pytest.TempPathFactory) -> MakeConfig:
    """The same, for results that several tests share."""
    return small_configs(write_edges(tmp_path_factory.mktemp("edges") / "edges.txt"))


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
