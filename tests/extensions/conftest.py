"""Extensions in a folder outside the package, and what they leave behind in this process."""

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from support import command

from dpadmm_mpi.registry import REGISTRIES

HERE = Path(__file__).parent


@pytest.fixture(autouse=True)
def leave_no_classes() -> Iterator[None]:
    """What a test registers in this process is gone after it: an account, once registered, is in every later run."""
    classes, modules = [(registry, registry.items()) for registry in REGISTRIES.values()], set(sys.modules)
    yield
    for registry, before in classes:
        registry.replace_all(before)
    for name in set(sys.modules) - modules:
        if name.startswith("dpadmm_extension_"):
            del sys.modules[name]


def furnish(folder: Path) -> Path:
    """mine.py with one class of each kind, all.toml, which uses them, and the records that it reads."""
    shutil.copy(HERE / "one_of_each.py", folder / "mine.py")
    shutil.copy(HERE / "all.toml", folder)
    rng = np.random.default_rng(1)
    X = rng.uniform(-1.0, 1.0, (240, 4))
    y = np.where(X @ [1.0, -2.0, 1.0, 0.5] + 0.3 * rng.standard_normal(240) > 0.0, 1.0, -1.0)
    np.savetxt(folder / "records.txt", np.column_stack([y, X]), delimiter=";", fmt="%.17g")
    return folder


@pytest.fixture(scope="session")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A furnished folder, with the result of an undisturbed run in one process: serial.h5."""
    folder = furnish(tmp_path_factory.mktemp("extensions"))
    process = command("run", folder / "all.toml", "-o", folder / "serial.h5")
    assert process.returncode == 0, process.stderr
    return folder


@pytest.fixture
def own(tmp_path: Path, shelf: Path) -> Path:
    """A furnished folder of the test's own, in which it may change things; serial.h5 comes from another place."""
    return furnish(tmp_path)
