"""Dependencies point one way, and some things happen in one place only."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "dpadmm_mpi"
FILES = sorted(PACKAGE.rglob("*.py"))


def imports(path: Path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
            yield node.module


@pytest.mark.parametrize("room", ["algorithms", "theory"])
def test_mathematics_sees_no_messages_and_no_files(room: str) -> None:
    forbidden = ("transport", "engine", "recorder", "mpi4py", "h5py", "results", "cli")
    for path in (PACKAGE / room).rglob("*.py"):
        seen = [name for name in imports(path) if any(word in name.split(".") for word in forbidden)]
        assert not seen, f"{path.name} imports {seen}"


def test_theory_never_sees_records_or_solvers() -> None:
    for path in (PACKAGE / "theory").rglob("*.py"):
        assert not [name for name in imports(path) if name.startswith(("dpadmm_mpi.data", "dpadmm_mpi.problems.objective"))]


def test_only_transport_imports_mpi4py_and_only_plots_matplotlib() -> None:
    for module, home in (("mpi4py", "transport.py"), ("matplotlib", "plots/style.py")):
        users = {
            path.relative_to(PACKAGE).as_posix()
            for path in FILES
            if any(name.split(".")[0] == module for name in imports(path))
        }
        assert users == {home}


def test_only_streams_creates_generators() -> None:
    makers = ("default_rng", "Philox", "PCG64", "RandomState", "SeedSequence", "random.seed", "np.random.normal")
    for path in FILES:
        if path.name != "streams.py":
            assert not [maker for maker in makers if maker in path.read_text()], path.name


def test_a_rank_imports_little() -> None:
    """What a rank loads before the loop: no h5py, networkx, matplotlib, scipy or pandas; imports are start-up time."""
    program = "import sys, dpadmm_mpi.engine; print(*sorted({m.split('.')[0] for m in sys.modules}))"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    assert not {"dp_accounting", "h5py", "networkx", "matplotlib", "scipy", "pandas", "mpi4py", "tqdm", "click"} & set(loaded)


def test_modules_can_be_read_in_one_sitting() -> None:
    long = {path.name: len(path.read_text().splitlines()) for path in FILES if len(path.read_text().splitlines()) > 350}
    assert not long
