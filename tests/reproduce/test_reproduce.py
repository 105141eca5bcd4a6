"""The papers' claims as predicates: each holds where it should, fails where it should, and gives its numbers."""

import csv
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from support import MakeConfig, WriteToml, command

from dpadmm_mpi.errors import InputError, RunError
from dpadmm_mpi.methods.base import as_table
from dpadmm_mpi.reproduce import claims, making, running
from dpadmm_mpi.reproduce.catalogue import CATALOGUE
from dpadmm_mpi.reproduce.claims import Claim
from dpadmm_mpi.reproduce.figures import Figure, Variation
from dpadmm_mpi.reproduce.pictures import Panel, lines, write_table
from dpadmm_mpi.storage.experiments import load
from dpadmm_mpi.storage.result import Result


def result(means: list[float], bound: float = 1.0) -> Result:
    """Two runs whose mean over the iterations is `means`."""
    loss = np.asarray(means, dtype=float)
    arrays = {
        "iteration": np.arange(len(loss)) * 10,
        "loss": np.stack([loss - 0.01, loss + 0.01]),
        "privacy/bound": np.linspace(0.0, bound, len(loss)),
    }
    return Result("memory", arrays, {}, {"/": {"complete": True}})


A, B, C = result([5.0, 1.0], 3.0), result([5.0, 2.0], 2.0), result([5.0, 4.0], 1.0)
ABC = {"a": A, "b": B, "c": C}

DECIDED = [
    (claims.in_order(["a", "b", "c"], "loss"), True),
    (claims.in_order(["a", "c", "b"], "loss"), False),
    (claims.in_order(["c", "b", "a"], "privacy/bound"), True),
    (claims.below_all("a", ["b", "c"], "loss"), True),
    (claims.below_all("b", ["a", "c"], "loss"), False),
    (claims.better_in_both("a", "b", ("loss", "privacy/bound")), False),
    (claims.better_in_both("a", "d", ("loss", "privacy/bound")), True),
    (claims.alike(["a", "b"], "loss", 1.01), True),
    (claims.alike(["a", "b"], "loss", 0.99), False),
    (claims.close("b", "a", "loss", 1.01), True),
    (claims.close("b", "a", "loss", 0.99), False),
    (claims.at_most(["a", "b"], "loss", 2.5), True),
    (claims.at_most(["a", "b", "c"], "loss", 2.5), False),
    (claims.at_least(["b", "c"], "loss", 1.5), True),
    (claims.at_least(["a", "b", "c"], "loss", 1.5), False),
    (claims.smallest_near(["a", "b", "c"], "loss", ["a", "b"]), True),
    (claims.smallest_near(["a", "b", "c"], "loss", ["b", "c"]), False),
    (claims.near_smallest("b", ["a", "b", "c"], "loss", 1.01), True),
    (claims.near_smallest("c", ["a", "b", "c"], "loss", 1.01), False),
    (claims.trades([("b", "a"), ("c", "b")], "loss", "privacy/bound"), True),
    (claims.trades([("b", "a"), ("a", "b")], "loss", "privacy/bound"), False),
    (claims.gap_grows([("b", "a"), ("c", "b")], "loss"), True),
    (claims.gap_grows([("c", "b"), ("b", "a")], "loss"), False),
    (claims.crosses([("b", "a"), ("a", "b")], "loss"), True),
    (claims.crosses([("a", "b"), ("b", "a")], "loss"), False),
]


@pytest.mark.parametrize(("test", "holds"), DECIDED)
def test_a_predicate_decides(test: Callable[[dict[str, Result]], claims.Verdict], holds: bool) -> None:
    verdict = test(ABC | {"d": result([5.0, 9.0], 9.0)})
    assert verdict.holds is holds
    assert any(digit in verdict.numbers for digit in "123456789")


def test_iterations_to_a_level_are_counted_to_the_last_crossing() -> None:
    wavy = result([5.0, 1.0, 3.0, 1.0, 1.0])
    assert claims.first_below(wavy, "loss", 2.0) == 30
    assert claims.first_below(wavy, "loss", 9.0) == 0
    assert claims.first_below(wavy, "loss", 0.5) == np.inf
    quick = {"quick": result([5.0, 1.0, 1.0, 1.0, 1.0]), "wavy": wavy}
    assert claims.at_most_times(["wavy"], "quick", "loss", 2.0, 3.0)(quick).holds
    assert not claims.at_most_times(["wavy"], "quick", "loss", 2.0, 2.9)(quick).holds
    assert not claims.at_most_times(["wavy"], "quick", "loss", 0.1, 3.0)(quick).holds


def test_every_figure_names_variants_of_its_configuration() -> None:
    """Claims and panels look variants up by name: a misspelt one would only be found after hours."""

    class Recorder(dict[str, Result]):
        def __missing__(self, name: str) -> Result:
            raise AssertionError(f"{name} is no variant")

    for figure in CATALOGUE.values():
        config = making.configuration(figure.name)
        versions = [((), {}), (figure.quick, {}), *((figure.quick + v.overrides, v.of_some) for v in figure.variations)]
        for overrides, of_some in versions:
            names = running.settings_of_each(config, overrides, of_some).keys()
            assert {name for panel in figure.panels for name, _ in panel.curves} <= set(names), figure.name
        fake = Recorder({name: _everything() for name in names})
        for claim in figure.claims:
            assert isinstance(claim.test(fake).holds, bool | np.bool_), claim.text
        for panel in figure.panels:
            assert panel.x is None or len(panel.x) == len(panel.curves)


def _everything() -> Result:
    names = ("loss", "test_error", "consensus_error", "distance_to_optimum", "objective", "objective_gap")
    accounts = ("bound", "tight", "epsilon", "epsilon_paper", "epsilon_sound")
    arrays = {name: np.ones((2, 3)) for name in names} | {f"privacy/{name}": np.ones(3) for name in accounts}
    return Result("memory", arrays | {"iteration": np.arange(3)}, {}, {"/": {}})


def test_lines_have_mean_and_range_and_the_table_repeats_them(tmp_path: Path) -> None:
    over_time = Panel("p", "loss", [("a", "A")])
    (line,) = lines(over_time, ABC)
    assert line.x.tolist() == [0, 10]
    assert np.allclose([line.low[-1], line.mean[-1], line.high[-1]], [0.99, 1.0, 1.01])
    over_x = Panel("q", "loss", [("a", "A"), ("c", "A"), ("b", "B")], x=[1.0, 3.0, 2.0])
    first, second = lines(over_x, ABC)
    assert first.x.tolist() == [1.0, 3.0]
    assert np.allclose(first.mean, [1.0, 4.0])
    assert np.allclose(second.mean, [2.0])
    write_table([over_time, over_x], ABC, tmp_path / "t.csv")
    with (tmp_path / "t.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["mean"] for row in rows] == ["5", "1", "1", "4", "2"]
    assert [row["curve"] for row in rows] == ["A", "A", "A", "A", "B"]


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, config: MakeConfig, write_toml: WriteToml) -> Figure:
    """A figure of two small variants, whose second claim does not hold."""
    raw = config("admm") | {
        "variant": [{"name": "plain"}, {"name": "private", "privacy": {"perturbation": "dual", "alpha": 5.0}}]
    }
    path = write_toml(raw, "tiny.toml")
    monkeypatch.setattr(making, "configuration", lambda name: path)
    figure = Figure(
        name="tiny",
        title="Two curves",
        says="Noise costs accuracy.",
        claims=[
            Claim("noise costs", claims.in_order(["plain", "private"], "loss")),
            Claim("noise gains", claims.in_order(["private", "plain"], "loss")),
        ],
        panels=[Panel("loss", "loss", [("plain", "plain"), ("private", "private")])],
        quick=("iterations=5",),
    )
    monkeypatch.setitem(CATALOGUE, "tiny", figure)
    return figure


def test_a_figure_is_made_and_judged_and_not_made_twice(tiny: Figure, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report = making.make(tiny, tmp_path / "out", quick=False, vary=False)
    assert [verdict["holds"] for verdict in report["claims"]] == [True, False]
    for ending in ("png", "svg", "csv", "json"):
        assert (tmp_path / "out" / f"tiny.{ending}").stat().st_size > 100
    assert json.loads((tmp_path / "out" / "tiny.json").read_text())["claims"] == report["claims"]
    making.write_page(tmp_path / "out")
    page = (tmp_path / "out" / "README.md").read_text()
    for text in ("![Two curves](tiny.png)", "Noise costs accuracy.", "| noise gains | **does not hold** |", "1 of 2"):
        assert text in page
    monkeypatch.setattr(running, "_run", lambda command: "must not run again")
    assert making.make(tiny, tmp_path / "out", quick=False, vary=False)["claims"] == report["claims"]


def test_every_variation_is_one_that_its_variants_take_and_changes_something() -> None:
    for figure in CATALOGUE.values():
        config = making.configuration(figure.name)
        quick = load(config, figure.quick).configs
        for variation in figure.variations:
            settings = running.settings_of_each(config, figure.quick + variation.overrides, variation.of_some)
            varied = [load(config, words, only=name).configs[0] for name, words in settings.items()]
            assert varied != quick, f"{figure.name}, {variation.text}"


def test_a_variation_of_some_variants_reaches_those_and_no_others(tiny: Figure, tmp_path: Path) -> None:
    """What is set for the private variant would be refused by the plain one; and it comes after what is set for both."""
    variations = [
        Variation("more noise", ("runs=2", "seed=5"), {"priv*": ("privacy.alpha=0.5", "seed=6")}),
        Variation("much more noise", ("runs=2", "seed=5"), {"private": ("privacy.alpha=0.1",)}),
    ]
    report = making.make(replace(tiny, variations=variations), tmp_path / "out", quick=True, vary=True)
    assert [(v["text"], v["holds"]) for v in report["variations"]] == [(v.text, [True, False]) for v in variations]
    ran = [load(path).configs[0] for path in (tmp_path / "out" / "data" / "tiny-variations").glob("*.h5")]
    found = [(c.name, c.iterations, c.runs, c.seed, as_table(c)["privacy"].get("alpha")) for c in ran]
    assert sorted(found) == [
        ("plain", 5, 2, 5, None),  # once for both variations
        ("private", 5, 2, 5, 0.1),
        ("private", 5, 2, 6, 0.5),
    ]


def test_a_variation_of_a_variant_that_is_not_there_is_refused(tiny: Figure, tmp_path: Path) -> None:
    misspelt = Variation("more noise", of_some={"priv*": ("privacy.alpha=0.5",), "Priv*": ("privacy.alpha=0.5",)})
    with pytest.raises(InputError, match=r'tiny\.toml: "Priv\*" fits the name of no variant'):
        making.make(replace(tiny, variations=[misspelt]), tmp_path / "out", quick=True, vary=True)


def test_a_failing_run_is_one_sentence(tiny: Figure, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "_run", lambda command: "the disk is full")
    with pytest.raises(RunError, match="the disk is full"):
        making.make(tiny, tmp_path / "out", quick=True, vary=False)


def test_results_of_another_configuration_are_not_taken(tiny: Figure, tmp_path: Path) -> None:
    making.make(tiny, tmp_path / "out", quick=False, vary=False)
    path = making.configuration("tiny")
    path.write_text(path.read_text().replace("seed = 11", "seed = 12"))
    with pytest.raises(InputError, match="another configuration"):
        making.make(tiny, tmp_path / "out", quick=False, vary=False)


def test_the_command_lists_the_figures_and_refuses_others() -> None:
    listed = command("reproduce").stdout
    assert all(name in listed for name in CATALOGUE)
    process = command("reproduce", "recycled-fig6")
    assert process.returncode == 2
    assert '"recycled-fig6" is not a figure' in process.stderr
