"""Whatever is wrong with an extension is one sentence with its file and the line that is marked here by `# HERE`."""

import hashlib
import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import tomli_w
from support import command, sentences

import dpadmm_mpi as dp
from dpadmm_mpi.audit import audit
from dpadmm_mpi.errors import DpadmmError, InputError, RunError

HEAD = "from typing import ClassVar\n\nimport numpy as np\n\nimport dpadmm_mpi as dp\n\n\n"


class Case(NamedTuple):
    code: str
    sections: Mapping[str, Mapping[str, Any]]  # of the configuration
    words: str
    error: type[DpadmmError] = InputError


def a(kind: str, base: str, body: str) -> str:
    """A class called "mine" of some kind."""
    lines = "".join(f"    {line}\n" for line in body.strip("\n").split("\n"))
    here = "" if "# HERE" in body else "  # HERE"
    return f'{HEAD}@dp.{kind}("mine"){here}\nclass Mine({base}):\n    """Mine."""\n\n{lines}'


def a_method(body: str) -> str:
    return a("method", "dp.methods.Decentralised", body)


def a_metric(base: str, body: str) -> str:
    return a("metric", f"dp.methods.{base}", f'title: ClassVar[str] = "mine"\n\n{body}')


def a_source(records: str) -> str:
    return a("source", "dp.data.FileSource", f"def read_file(self, path, features):\n    return {records}")


MINE = {"algorithm": {"method": "mine"}}
METRIC = {"record": {"metrics": ["mine"]}}
SOURCE = {"data": {"source": "mine", "path": "records.txt", "records": None, "features": None}}
NOISE = {"privacy": {"perturbation": "objective", "noise": "mine", "alpha": 1.0}}

CASES = {
    "syntax error": Case("x = 1\ndef f(:  # HERE\n", {}, "invalid syntax"),
    "exception at import": Case(f"{HEAD}x = 1 / 0  # HERE\n", {}, "ZeroDivisionError: division by zero"),
    "exit at import": Case("import sys\nsys.exit(3)  # HERE\n", {}, "SystemExit: 3"),
    "signature": Case(
        a_method("def dual_step(self, node, state):  # HERE\n    return state"),
        MINE,
        'method "mine": dual_step(self, node, state) must take (self, node, state, t)',
    ),
    "name of the package's own": Case(
        f'{HEAD}@dp.method("admm")  # HERE\nclass Mine(dp.methods.Admm):\n    """Mine."""\n',
        {},
        'method "admm": the name is taken by',
    ),
    "not derived": Case(
        f'{HEAD}@dp.loss("mine")  # HERE\nclass Mine:\n    """Mine."""\n',
        {},
        "the class must derive from dpadmm_mpi.problems.losses.Loss",
    ),
    "another kind": Case(
        f'{HEAD}@dp.loss("mine")  # HERE\nclass Mine(dp.methods.Admm):\n    """Mine."""\n',
        {},
        "the class must derive from dpadmm_mpi.problems.losses.Loss",
    ),
    "abstract": Case(
        a("loss", "dp.problems.Loss", "def value(self, z):\n    return z"),
        {},
        "it must define curvature_bound, first, second, slope_bound",
    ),
    "no docstring": Case(
        f'{HEAD}@dp.method("mine")  # HERE\nclass Mine(dp.methods.Admm):\n    pass\n', {}, "it needs a docstring"
    ),
    "no title": Case(
        a("metric", "dp.methods.Metric", "def value(self, seen):\n    return seen.loss"), METRIC, "it must define title"
    ),
    "a name that is none": Case(
        f'{HEAD}@dp.method("my own")  # HERE\nclass Mine(dp.methods.Admm):\n    """Mine."""\n', {}, "not a name"
    ),
    "sends what it does not release": Case(
        a_method('sends: ClassVar[tuple[str, ...]] = ("primal", "dual")'), MINE, 'Mine sends "dual" in iteration 0'
    ),
    "sends what it does not have": Case(
        a_method('sends: ClassVar[tuple[str, ...]] = ("ghost",)\nreleased: ClassVar[tuple[str, ...]] = ("ghost",)'),
        MINE,
        'Mine sends "ghost" in iteration 0',
    ),
    "penalty of one term": Case(
        a_method("def penalty(self, node, state, t, noise):\n    return super().penalty(node, state, t, noise)[0]"),
        MINE,
        "penalty must return the linear and the quadratic term, of the shapes (1, 3, 3) and (3,); found a ndarray",
    ),
    "penalty of other shapes": Case(
        a_method("def penalty(self, node, state, t, noise):\n    return state.primal, node.eta(t)"),
        MINE,
        "of the shapes (1, 3, 3) and (3,); found a tuple of 2 with the shapes ((1, 3, 3), (3, 1))",
    ),
    "constants of a loss": Case(
        a("loss", "dp.problems.Logistic", "slope_bound: ClassVar[float] = 0.5"),
        {"problem": {"loss": "mine"}},
        "slope_bound = 0.5, but |first| is 1 at z = -50",
    ),
    "derivative of a loss": Case(
        a("loss", "dp.problems.Logistic", "def first(self, z):\n    return 0.5 * super().first(z)"),
        {"problem": {"loss": "mine"}},
        "first is not the derivative of value",
    ),
    "metric of another shape": Case(
        a_metric("Metric", "def value(self, seen):\n    return seen.classifier"),
        METRIC,
        "value must return a number for each run, an array of shape (1,); found float64 of shape (1, 3)",
    ),
    "metric of nothing": Case(
        a_metric("Metric", "def value(self, seen):\n    return None"), METRIC, "value must return a number for each run"
    ),
    "metric at the nodes of another shape": Case(
        a_metric("NodeMetric", "def at_node(self, problem, points):\n    return points"),
        METRIC,
        "at_node must return a number for each run",
    ),
    "source of no records": Case(a_source("[1, 2]"), SOURCE, "read_file must return Records(y=labels, X=matrix), but it"),
    "source of too many rows": Case(
        a_source("dp.data.Records(y=np.array([1.0, -1.0]), X=np.zeros((3, 2)))"),
        SOURCE,
        "X has the shape (3, 2), and y 2 labels",
    ),
    "source of text": Case(
        a_source('dp.data.Records(y=np.array([1.0, -1.0]), X=np.array([["a"], ["b"]]))'), SOURCE, "X is not a matrix of numbers"
    ),
    "source without a data set": Case(
        a("source", "dp.data.Source", "def dataset(self, division, nodes, seed):\n    return None"),
        {"data": {"source": "mine", "records": None, "features": None}},
        "dataset must return a Dataset of 3 nodes, but what it returns lacks",
    ),
    "step that forgets the words": Case(
        a("step", "dp.data.Step", "def apply(self, records):\n    return records"),
        {"data": {"source": "libsvm", "path": "libsvm.txt", "preprocess": ["mine"], "records": None, "features": None}},
        "apply must return two things",
    ),
    "partition that loses records": Case(
        a("partition", "dp.data.Partition", "def shard_sizes(self, records, nodes, rng):\n    return np.ones(3, dtype=int)"),
        {"data": {"split": "mine"}},
        "shard_sizes must return 3 whole numbers above 0 that add up to 96; found [1, 1, 1]",
    ),
    "edges beyond the nodes": Case(
        a("graph", "dp.networks.NamedGraph", "def edges(self, rng):\n    return [(0, 1), (1, 3)]"),
        {"network": {"graph": "mine"}},
        "edges must join two of the nodes 0 to 2",
    ),
    "edges that are none": Case(
        a("graph", "dp.networks.NamedGraph", "def edges(self, rng):\n    return None"),
        {"network": {"graph": "mine"}},
        "edges must return pairs of node numbers",
    ),
    "graph that raises": Case(
        a("graph", "dp.networks.NamedGraph", "def edges(self, rng):\n    return [][1]  # HERE"),
        {"network": {"graph": "mine"}},
        "IndexError: list index out of range",
    ),
    "noise of another length": Case(
        a("noise", "dp.privacy.Noise", """
parameter: ClassVar[str] = "alpha"

alpha: float = 1.0

@property
def schedule(self):
    return self.alpha

def sample(self, rng, features):
    return rng.standard_normal(2)

def scaled(self, unit, parameter):
    return unit
"""),
        NOISE,
        "sample must return numbers of shape (3,); found (2,)",
    ),
    "account that is none": Case(
        a("account", "dp.privacy.AccountKind", """
applies_to: ClassVar[type] = dp.privacy.NetworkReleases
label: ClassVar[str] = "mine"
column: ClassVar[str] = "mine"
target: ClassVar[str] = "mine"

def compute(self, releases, delta):
    return 1.0

def calibrate(self, releases, target, delta):
    return releases
"""),
        {},
        "compute must return an Account; found float",
    ),
    "step that forgets the state": Case(
        a_method("def dual_step(self, node, state, t):\n    state._replace(dual=state.primal)"),
        MINE,
        "dual_step must return the state, with the fields primal, dual",
    ),
    "step that changes a shape": Case(
        a_method("def dual_step(self, node, state, t):\n    return state._replace(dual=state.dual[..., :2])"),
        MINE,
        "dual_step must leave the shape of dual as it is, (1, 3, 3); found (1, 3, 2)",
    ),
    "step that raises in the middle": Case(
        a_method('def dual_step(self, node, state, t):\n    return state if t < 3 else {}["nothing"]  # HERE'),
        MINE,
        "KeyError: 'nothing'",
        RunError,
    ),
    "metric that raises": Case(
        a_metric("Metric", "def value(self, seen):\n    return seen.nothing  # HERE"),
        METRIC,
        "AttributeError: 'Observation' object has no attribute 'nothing'",
        RunError,
    ),
    "data step that raises in numpy": Case(
        a_method("def data_step(self, node, state, t):\n    np.linalg.inv(np.zeros((2, 2)))  # HERE"),
        MINE,
        "LinAlgError: Singular matrix",
        RunError,
    ),
}  # fmt: skip


def write(folder: Path, case: Case, name: str = "mine.py") -> tuple[Path, Path, int]:
    """The extension, a configuration that uses it, and the line that is to blame."""
    extension, config = folder / name, folder / "config.toml"
    extension.write_text(case.code)
    (folder / "records.txt").write_text("1 0\n-1 1\n")
    (folder / "libsvm.txt").write_text("".join(f"{1 - 2 * (k % 2):+d} 1:0.{k + 1}\n" for k in range(9)))
    raw: dict[str, Any] = {
        "iterations": 5,
        "extensions": [name],
        "data": {"records": 120, "features": 3},
        "network": {"nodes": 3},
    }
    for section, table in case.sections.items():
        raw[section] = {key: value for key, value in {**raw.get(section, {}), **table}.items() if value is not None}
    config.write_text(tomli_w.dumps(raw))
    line = next(number for number, text in enumerate(case.code.split("\n"), 1) if "# HERE" in text)
    return extension, config, line


@pytest.mark.parametrize("name", CASES)
def test_one_sentence_with_file_and_line(tmp_path: Path, name: str) -> None:
    case = CASES[name]
    extension, config, line = write(tmp_path, case)
    with pytest.raises(DpadmmError) as caught:
        dp.run(config, tmp_path / "out.h5")
    assert type(caught.value) is case.error
    text = str(caught.value)
    assert text.startswith(f"{extension}, line {line}: "), text
    assert case.words in text
    assert "\n" not in text


def test_the_audit_says_where_an_argmin_is_none(tmp_path: Path) -> None:
    body = (
        "def argmin_behind(self, node, before, primal, t):\n    return primal[0]\n\n"
        "def accounts(self, releases, delta):\n    return dp.privacy.accounts_of(releases, delta)"
    )
    noise: dict[str, Any] = {"perturbation": "objective", "alpha": 1.0, "allow_unproven": True}
    extension, config, line = write(
        tmp_path, Case(a_method(body), {**MINE, "privacy": noise, "record": {"trajectory": True}}, "")
    )
    dp.run(config, tmp_path / "out.h5")
    with pytest.raises(InputError) as caught:
        audit(tmp_path / "out.h5", candidates=2)
    words = "argmin_behind must return the argmins, of the shape (1, 3, 3); found (3, 3)"
    assert str(caught.value) == f"{extension}, line {line}: {words}"


@pytest.mark.parametrize("name", ["exception at import", "metric of another shape", "step that raises in the middle"])
def test_said_once_on_three_ranks(tmp_path: Path, name: str) -> None:
    """Before the first iteration, on one rank alone, and on all of them at once."""
    case = CASES[name]
    extension, config, line = write(tmp_path, case)
    process = command("run", config, "-o", tmp_path / "out.h5", ranks=3)
    assert process.returncode == case.error.exit_code
    (sentence,) = sentences(process)
    assert f"{extension}, line {line}: " in sentence
    assert case.words in sentence


def test_said_on_the_command_line(tmp_path: Path) -> None:
    case = CASES["sends what it does not release"]
    extension, config, line = write(tmp_path, case)
    process = command("run", config, "-o", tmp_path / "out.h5")
    assert process.returncode == 2
    (sentence,) = sentences(process)
    assert sentence.startswith(f"dpadmm: {extension}, line {line}: ")


def test_two_extensions_with_one_name(tmp_path: Path) -> None:
    case = Case(a_method("memory: float = 0.5"), MINE, "")
    first, config, _ = write(tmp_path, case)
    second = tmp_path / "other.py"
    second.write_text(case.code)
    with pytest.raises(InputError) as caught:
        dp.run(config, extensions=[str(second)])
    assert f'{second}, line 8: method "mine": the name is taken by {first}, line 8; choose another one' in str(caught.value)


def test_a_repaired_file_can_be_loaded_again(tmp_path: Path) -> None:
    """In a notebook: what was registered before the error does not stand in the way."""
    good = a_method("memory: float = 0.5")
    _, config, _ = write(tmp_path, Case(good + "\n\nx = 1 / 0\n", MINE, ""))
    with pytest.raises(InputError, match="ZeroDivisionError"):
        dp.run(config)
    write(tmp_path, Case(good, MINE, ""))
    assert dp.run(config) is not None


def recorded(source: Path | dict[str, Any]) -> str:
    """The configuration in the record of a run."""
    result = dp.run(source)
    assert result is not None
    return result.config_text


def test_a_file_that_is_edited_after_its_import_is_recorded_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Imported under its own name, then changed on the disk: what runs is what was imported, and the record says so."""
    good = a_method("memory: float = 0.5")
    extension, config, _ = write(tmp_path, Case(good, MINE, ""), "edited_later.py")
    imported = hashlib.sha256(extension.read_bytes()).hexdigest()
    monkeypatch.syspath_prepend(tmp_path)
    module = importlib.import_module("edited_later")
    extension.write_text(good.replace("0.5", "0.75") + "\n")
    raw: dict[str, Any] = {"algorithm": {"method": "mine"}, "data": {"records": 60, "features": 3}, "iterations": 2}
    for source in (config, raw):
        text = recorded(source)
        assert f'sha256 = "{imported}"' in text
        assert "memory = 0.5\n" in text
    importlib.reload(module)
    again = recorded(config)
    assert hashlib.sha256(extension.read_bytes()).hexdigest() in again
    assert "memory = 0.75\n" in again


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"extensions: .*nowhere\.py cannot be read: No such file or directory"):
        dp.run({"extensions": [str(tmp_path / "nowhere.py")]})
