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


def test_questions_to_the_file_system_are_asked_again_after_a_signal() -> None:
    """By the functions of files.py; pathlib's own give up where a network file system is interrupted."""
    questions = {"exists", "is_file", "is_dir", "stat", "lstat", "iterdir", "glob", "mkdir", "unlink", "rmdir", "rename"}
    for path in FILES:
        if path not in (PACKAGE / "files.py", PACKAGE / "registry.py"):  # the second looks at Python's own modules
            calls = [node.func for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
            asked = [call for call in calls if isinstance(call, ast.Attribute) and call.attr in questions]
            assert not asked, f"{path.name}: {[ast.unparse(call) for call in asked]}"


def test_a_rank_imports_little() -> None:
    """What a rank loads before the loop, and with the plan that it is given: no h5py, networkx, matplotlib, scipy or pandas, no
    family but its own, no accounts, no reader of files; imports are start-up time."""
    program = "import sys, dpadmm_mpi.engine.loop, dpadmm_mpi.methods.decentralised.method; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    packages = {"dp_accounting", "h5py", "networkx", "matplotlib", "scipy", "pandas", "mpi4py", "tqdm", "click", "tomllib"}
    assert not packages & {name.split(".")[0] for name in loaded}
    rooms = [
        "methods.star",
        "methods.curated",
        "methods.decentralised.accounts",
        "methods.experiment",
        "config.files",
        "data.arrays",
    ]
    rooms += ["data.catalogue", "data.readers", "privacy.composition", "privacy.curves", "privacy.recorded_curves"]
    assert not [name for name in loaded if name.startswith(tuple(f"dpadmm_mpi.{room}" for room in rooms))]
    assert "dpadmm_mpi.methods.decentralised.plan" in loaded


def test_what_is_not_loaded_yet_is_found_by_its_name_and_listed_in_the_same_order() -> None:
    """Whichever family was there first; and a class from outside cannot take the name of one that is not loaded yet."""
    program = """
import dpadmm_mpi as dp, dpadmm_mpi.methods.curated.method
from dpadmm_mpi.methods.base import methods
print(*(name for name, _ in methods.loaded()))
try:
    @dp.method("ps-admm")
    class Mine(dp.methods.Admm):
        "Mine."
except dp.InputError as error:
    print(error)
print(methods["star-admm"].__module__)
print(*methods)
print(*dp.data.sources)
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.splitlines()
    assert ran[0].split() == ["gl-admm", "gl-acc-admm", "dp-admm", "dp-acc-admm", "gl-exact-admm"]
    assert "the name is taken by" in ran[1]
    assert ran[2] == "dpadmm_mpi.methods.star.method"
    assert ran[3].split()[:7] == ["admm", "m-admm", "r-admm", "mr-admm", "star-admm", "s-admm", "ps-admm"]
    assert ran[3].split()[7:12] == ran[0].split()
    assert {"synthetic", "arrays", "adult"} < set(ran[4].split())
