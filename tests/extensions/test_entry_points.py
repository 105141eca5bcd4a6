"""Packages that are installed and announce extensions: found by name, without a word in the configuration."""

from pathlib import Path

import pytest
from support import command, sentences

import dpadmm_mpi as dp

CODE = '''
"""Installed elsewhere."""

import dpadmm_mpi as dp


@dp.method("installed-admm")
class InstalledAdmm(dp.methods.Admm):
    """ADMM of an installed package."""
'''


def install(folder: Path, code: str) -> dict[str, str]:
    """A package as pip leaves it; the environment that finds it."""
    (folder / "elsewhere.py").write_text(code)
    info = folder / "elsewhere-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: elsewhere\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[dpadmm_mpi.extensions]\nelsewhere = elsewhere\n")
    return {"PYTHONPATH": str(folder)}


@pytest.fixture
def arguments(tmp_path: Path) -> list[object]:
    small = 'iterations = 3\n[data]\nrecords = 200\nfeatures = 3\n[algorithm]\nmethod = "installed-admm"\n'
    (tmp_path / "small.toml").write_text(small)
    return ["run", tmp_path / "small.toml", "-o", tmp_path / "out.h5"]


def test_a_method_of_an_installed_package(tmp_path: Path, arguments: list[object]) -> None:
    environment = install(tmp_path, CODE)
    process = command(*arguments, environment=environment)
    assert process.returncode == 0, process.stderr
    assert str(tmp_path / "elsewhere.py") in dp.load(tmp_path / "out.h5").config_text
    process = command("run", tmp_path / "out.h5", "-o", tmp_path / "again.h5", environment=environment)
    assert process.returncode == 0, process.stderr
    assert command("diff", tmp_path / "out.h5", tmp_path / "again.h5").stdout == "identical\n"


def test_listed(tmp_path: Path) -> None:
    process = command("list", "methods", environment=install(tmp_path, CODE))
    assert process.returncode == 0, process.stderr
    assert "ADMM of an installed package." in process.stdout


def test_a_broken_package_is_one_sentence(tmp_path: Path, arguments: list[object]) -> None:
    process = command(*arguments, environment=install(tmp_path, "import nothing_of_that_name\n"))
    assert process.returncode == 2
    (sentence,) = sentences(process)
    assert "elsewhere = elsewhere of an installed package cannot be loaded" in sentence
    assert "repair or uninstall it" in sentence
