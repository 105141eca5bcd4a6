"""Other MPI libraries than the one in the environment: MPICH from the package index, and Debian's Open MPI and MPICH.

mpi4py's wheel takes whichever library it is pointed to, so that no environment of their own is needed.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import tomli_w
from support import MPI_ENVIRONMENT, TIMEOUT, MakeConfig, Process, needs_shared_memory, result_of

import dpadmm_mpi
from dpadmm_mpi.storage.compare import compare

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="libraries have other names elsewhere")

SYSTEM = Path("/usr/lib")
RANKS = 3


def refuse(reason: str) -> None:
    if os.environ.get("DPADMM_REQUIRE_MPI") == "1":
        pytest.fail(f"DPADMM_REQUIRE_MPI is set, but {reason}")
    pytest.skip(reason)


def pointed_to(abi: str, folder: Path, library: str) -> dict[str, str]:
    return {"MPI4PY_MPIABI": abi, "MPI4PY_LIBMPI": str(folder / library), "LD_LIBRARY_PATH": str(folder)}


def mpich_wheel(folder: Path) -> tuple[list[str], dict[str, str]]:
    words = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--ignore-installed",
        "--prefix",
        str(folder),
        "mpich",
    ]
    done = subprocess.run(words, capture_output=True, text=True, timeout=4 * TIMEOUT, check=False)
    if done.returncode:
        refuse(f"pip cannot install mpich: {done.stderr.strip().splitlines()[-1]}")
    return [str(folder / "bin" / "mpiexec")], pointed_to("mpich", folder / "lib", "libmpi.so.12")


def installed(launcher: str, library: str) -> tuple[str, Path]:
    """Both parts of a package of the system's."""
    program, found = shutil.which(launcher), sorted(SYSTEM.glob(f"*/{library}"))
    if program is None or not found:
        refuse(f"no {launcher} with {library} here; on Debian: openmpi-bin, mpich")
    return str(program), found[0]


def debian_openmpi(folder: Path) -> tuple[list[str], dict[str, str]]:
    program, library = installed("mpiexec.openmpi", "libmpi.so.40")
    (folder / "libmpi.so.40").symlink_to(library)  # alone: beside it lies the system's libpython
    return [program, "--oversubscribe"], pointed_to("openmpi", folder, "libmpi.so.40")


def debian_mpich(folder: Path) -> tuple[list[str], dict[str, str]]:
    program, library = installed("mpiexec.mpich", "libmpich.so.12")
    (folder / "libmpi.so.12").symlink_to(library)  # under the name that mpi4py asks for
    return [program], pointed_to("mpich", folder, "libmpi.so.12")


FLAVOURS: dict[str, tuple[Callable[[Path], tuple[list[str], dict[str, str]]], str]] = {
    "mpich wheel": (mpich_wheel, "MPICH Version: "),
    "Debian's Open MPI": (debian_openmpi, "Open MPI v"),
    "Debian's MPICH": (debian_mpich, "MPICH Version: "),
}


@pytest.fixture(scope="module")
def toml(shared_config: MakeConfig, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("flavours") / "config.toml"
    path.write_text(tomli_w.dumps(shared_config("mr-admm", "objective")))
    return path


@pytest.fixture(scope="module")
def serial(toml: Path) -> Path:
    path = toml.with_name("serial.h5")
    result_of(toml, path)
    return path


@pytest.mark.parametrize(
    "flavour", [pytest.param(name, marks=needs_shared_memory if "mpich" in name.lower() else ()) for name in FLAVOURS]
)
def test_other_libraries_pass_the_self_test_and_give_the_same_bits(
    flavour: str, toml: Path, serial: Path, tmp_path: Path
) -> None:
    prepare, version = FLAVOURS[flavour]
    launcher, settings = prepare(tmp_path)

    def start(*words: object) -> Process:
        return subprocess.run(
            [*launcher, "-n", str(RANKS), sys.executable, "-m", "dpadmm_mpi", *map(str, words)],
            capture_output=True, text=True, timeout=TIMEOUT, check=False, env={**os.environ, **MPI_ENVIRONMENT, **settings},
        )  # fmt: skip

    examined = start("run", "--selftest", toml)
    assert examined.returncode == 0, examined.stderr
    assert re.match(rf"{RANKS} ranks, MPI: {version}", examined.stdout)
    assert "passed in " in examined.stdout
    run = start("run", toml, "-o", tmp_path / "ranks.h5")
    assert run.returncode == 0, run.stderr
    assert re.match(version, dpadmm_mpi.load(tmp_path / "ranks.h5").attributes["timing"]["mpi"])
    assert list(compare(tmp_path / "ranks.h5", serial)) == []
