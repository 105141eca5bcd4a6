"""`dpadmm list` and `dpadmm schema`; `dpadmm new` is tested with the extensions."""

import json
import shlex
import tomllib
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from support import TOP, command, sentences

from dpadmm_mpi.methods import methods
from dpadmm_mpi.plots import plots
from dpadmm_mpi.registry import REGISTRIES
from dpadmm_mpi.tuning import tuners

CONFIGS = sorted((TOP / "configs").glob("*.toml"))


def test_list_names_every_kind_and_every_class_with_its_options() -> None:
    assert plots and tuners  # so that they are registered here too
    kinds = command("list")
    assert kinds.returncode == 0, kinds.stderr
    assert {line.split()[0] for line in kinds.stdout.splitlines()[1:]} == set(REGISTRIES)
    listed = command("list", "methods").stdout.splitlines()
    assert [line.split()[0] for line in listed[1:12]] == list(methods)[:11]
    (recycled,) = [line for line in listed if line.startswith("r-admm ")]
    assert "gamma = 0.5" in recycled
    assert "Recycled ADMM: every second iteration reuses the step before" in recycled
    (edges,) = [line for line in command("list", "graphs").stdout.splitlines() if line.startswith("edges ")]
    assert "path (needed), nodes (unset)" in edges


def test_list_of_what_is_no_kind() -> None:
    process = command("list", "method")
    assert process.returncode == 2
    (sentence,) = sentences(process)
    assert sentence.startswith('dpadmm: "method" is not a kind; there are ')
    assert sentence.endswith('did you mean "methods"?')


@pytest.fixture(scope="module")
def validator() -> Any:
    """Of the schema that the command prints."""
    process = command("schema")
    assert process.returncode == 0, process.stderr
    schema = json.loads(process.stdout)
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_the_schema_accepts_every_configuration(validator: Any, path: Path) -> None:
    assert [error.message for error in validator.iter_errors(tomllib.loads(path.read_text()))] == []


@pytest.mark.parametrize(
    "text",
    [
        "itertions = 3",
        "runs = 0",
        "runs = 'ten'",
        "[privacy]\naplha = 1.0",
        "[algorithm]\nmethod = 'mradmm'",
        "[algorithm]\neta = 'big'",
        "[network]\ngraph = 'torus'",
        "[data]\npreprocess = ['scale']",
        "[record]\nmetrics = ['los']",
        "[problem]\nrho = 0.0",
    ],
)
def test_the_schema_refuses_what_the_program_refuses(validator: Any, text: str) -> None:
    assert not validator.is_valid(tomllib.loads(text))


def completed(*words: str) -> list[str]:
    """What the shell gets for the last word."""
    environment = {
        "_DPADMM_COMPLETE": "bash_complete",
        "COMP_WORDS": shlex.join(["dpadmm", *words]),
        "COMP_CWORD": str(len(words)),
    }
    return [line.partition(",")[2] for line in command(environment=environment).stdout.splitlines()]


def test_the_shell_completes_kinds_figures_data_sets_configurations_and_keys() -> None:
    assert completed("list", "me") == ["metrics", "methods"]
    assert completed("plot", "x.h5", "--kind", "LOSS") == ["loss", "loss-privacy"]
    assert {"adult", "a9a"} <= set(completed("data", "fetch", "a"))
    assert "recycled-fig5" in completed("reproduce", "recycled-")
    assert "quickstart" in completed("run", "quick")
    keys = completed("run", "--set", "pri")
    assert {"privacy.alpha=", "privacy.target=", "privacy.noise_std="} <= set(keys)
    assert all(key.startswith("privacy.") for key in keys)
