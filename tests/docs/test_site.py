"""The site builds without a warning, every link inside it leads somewhere, and the reference has all that there is."""

import importlib.util
import subprocess
import sys
from html import unescape
from pathlib import Path
from re import DOTALL, findall, sub
from types import ModuleType
from typing import Any

import pytest
from support import TOP

import dpadmm_mpi
import dpadmm_mpi.testing
from dpadmm_mpi.cli.main import COMMANDS
from dpadmm_mpi.config.options import fields_of
from dpadmm_mpi.registry import REGISTRIES, load_all


def load(name: str) -> Any:
    """A module of docs/building, which is no package of ours."""
    spec = importlib.util.spec_from_file_location(name, TOP / "docs" / "building" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Without executing the notebooks, which have a test of their own."""
    folder = tmp_path_factory.mktemp("site")
    arguments = ["-q", "-W", "--keep-going", "-b", "html", "-d", str(folder / "doctrees"), "-D", "nb_execution_mode=off"]
    command = [sys.executable, "-m", "sphinx", *arguments, str(TOP / "docs"), str(folder / "html")]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=280)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return folder / "html"


def test_links_inside_the_site_lead_somewhere(site: Path) -> None:
    assert load("check_links").broken_links(site) == []


def test_a_link_to_nothing_is_found(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text('<p id="here"><a href="a.html#here">x</a><a href="b.html">y</a><a href="#there">z</a></p>')
    assert load("check_links").broken_links(tmp_path) == ["a.html: #there", "a.html: b.html"]


def test_every_key_and_every_choice_is_in_the_reference(site: Path) -> None:
    page = (site / "reference" / "configuration.html").read_text()
    load_all()
    for plural in (
        "methods",
        "losses",
        "graphs",
        "sources",
        "partitions",
        "steps",
        "perturbations",
        "noises",
        "metrics",
        "faults",
        "link_laws",
    ):
        for name, cls in REGISTRIES[plural].items():
            wanted = [name, *(field.name for field in fields_of(cls) if field.role is None)]  # type: ignore[arg-type]
            missing = [word for word in wanted if f'<span class="pre">{word}</span>' not in page]
            assert cls.__module__.split(".")[0] != "dpadmm_mpi" or not missing, (plural, missing)


def test_every_public_name_is_in_the_reference(site: Path) -> None:
    page = (site / "reference" / "api.html").read_text()
    rooms = {f"dpadmm_mpi.{name}" for name in dpadmm_mpi.__all__ if isinstance(getattr(dpadmm_mpi, name), ModuleType)}
    for name in set(dpadmm_mpi.__all__) - {room.split(".")[1] for room in rooms}:
        assert f'id="dpadmm_mpi.{name}"' in page or f'@dp.{name}("NAME")' in unescape(sub(r"<[^>]+>", "", page)), name
    for name in dpadmm_mpi.testing.__all__:
        assert f'id="dpadmm_mpi.testing.{name}"' in page


def test_every_command_is_in_the_reference(site: Path) -> None:
    page = (site / "reference" / "commands.html").read_text()
    assert [name for name in COMMANDS if f'id="dpadmm-{name}"' not in page] == []


def test_the_result_file_has_words_for_every_dataset(site: Path) -> None:
    page = (site / "reference" / "result-file.html").read_text()
    for name in ("/loss", "/privacy/node_epsilon", "/final/server", "/trajectory", "/consensus/loss", "/timing/owner"):
        assert f">{name}<" in page
    assert "<td><p></p></td>" not in page.split('id="attributes-of-the-file"')[0]


def test_every_key_has_words(site: Path) -> None:
    """The comment behind a field, or above it: the table's last column is never empty."""
    page = (site / "reference" / "configuration.html").read_text()
    rows = [row for row in findall(r"<tr class=.*?</tr>", page, DOTALL) if row.count("<td>") > 2]
    assert len(rows) > 100
    assert [findall(r'class="pre">([^<]+)<', row)[0] for row in rows if row.rstrip().endswith("<td><p></p></td>\n</tr>")] == []
