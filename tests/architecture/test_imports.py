"""Some things happen in one place only, and a rank loads little. Which room may import which is checked by import-linter."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support import TOP

PACKAGE = TOP / "dpadmm_mpi"
FILES = sorted(PACKAGE.rglob("*.py"))


def imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
            yield str(node.module)


@pytest.mark.parametrize("room", ["methods", "privacy", "problems", "networks"])
def test_mathematics_sees_no_messages_and_no_files(room: str) -> None:
    forbidden = ("parallel", "engine", "storage", "mpi4py", "h5py", "cli", "reports", "plots", "audit")
    paths = list((PACKAGE / room).rglob("*.py"))
    assert paths
    for path in paths:
        ours = [name for name in imports(path) if name.startswith("dpadmm_mpi.") and name.split(".")[1] in forbidden]
        theirs = [name for name in imports(path) if name.split(".")[0] in forbidden]
        assert not ours + theirs, f"{path.name} imports {ours + theirs}"


def test_accounts_and_theory_never_see_records_or_solvers() -> None:
    forbidden = ("dpadmm_mpi.data", "dpadmm_mpi.problems.objective", "dpadmm_mpi.problems.local_problems")
    names = ("accounts.py", "theory.py", "convergence.py", "sample_size.py")
    paths = [path for path in FILES if path.parent.name == "privacy" or path.name in names]
    assert len(paths) > 10
    for path in paths:
        assert not [name for name in imports(path) if name.startswith(forbidden)], path


@pytest.mark.parametrize(("module", "home"), [("mpi4py", "parallel/mpi.py"), ("matplotlib", "plots/style.py")])
def test_one_module_imports_the_messages_and_one_the_pictures(module: str, home: str) -> None:
    users = {
        path.relative_to(PACKAGE).as_posix() for path in FILES if any(name.split(".")[0] == module for name in imports(path))
    }
    assert users == {home}


def test_generators_are_created_in_one_module() -> None:
    makers = ("default_rng", "Philox", "PCG64", "RandomState", "SeedSequence", "random.seed", "np.random.normal")
    for path in FILES:
        if path != PACKAGE / "rng.py":
            assert not [maker for maker in makers if maker in path.read_text()], path


def test_a_rank_imports_little() -> None:
    """What a rank loads before the loop: no h5py, networkx, matplotlib, scipy or pandas; imports are start-up time."""
    program = "import sys, dpadmm_mpi.engine.loop; print(*sorted({m.split('.')[0] for m in sys.modules}))"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    assert not {"dp_accounting", "h5py", "networkx", "matplotlib", "scipy", "pandas", "mpi4py", "tqdm", "click"} & set(loaded)
