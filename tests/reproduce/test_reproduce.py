"""Figures: claims, panels and variations name variants that there are; what is made is made once."""

import csv
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from reproduce.made_up import ends
from support import MakeConfig, Raw, WriteToml, command

from dpadmm_mpi.errors import InputError, RunError
from dpadmm_mpi.methods import Config
from dpadmm_mpi.reproduce import making, page, running
from dpadmm_mpi.reproduce.catalogue import CATALOGUE
from dpadmm_mpi.reproduce.claim_files import read_claims
from dpadmm_mpi.reproduce.claims import judge
from dpadmm_mpi.reproduce.figures import Figure, Variation
from dpadmm_mpi.reproduce.pictures import Panel, lines, write_table
from dpadmm_mpi.storage import experiments as configfile
from dpadmm_mpi.storage.result import Result

A, B, C = ends(0.99, 1.01, bound=3.0), ends(1.99, 2.01, bound=2.0), ends(3.99, 4.01, bound=1.0)
ABC = {"a": A, "b": B, "c": C}


def test_every_figure_names_variants_of_its_configuration() -> None:
    """Claims and panels look variants up by name: a misspelt one would only be found after hours."""

    class Recorder(dict[str, Result]):
        def __missing__(self, name: str) -> Result:
            raise AssertionError(f"{name} is no variant")

    for figure in CATALOGUE.values():
        config = making.configuration(figure.name)
        varied = ((figure.varied + v.overrides, v.of_some) for v in figure.variations)
        for overrides, of_some in [((), {}), (figure.quick, {}), *varied]:
            names = running.settings_of_each(config, overrides, of_some).keys()
            assert {name for panel in figure.panels for name, _ in panel.curves} <= set(names), figure.name
        fake = Recorder({name: _everything() for name in names})
        assert judge(read_claims(making.configuration(f"claims/{figure.name}")), fake)
        for panel in figure.panels:
            assert panel.x is None or len(panel.x) == len(panel.curves)
            assert all(panel.axes)


def _everything() -> Result:
    names = (
        "loss",
        "test_error",
        "consensus_error",
        "distance_to_optimum",
        "objective",
        "objective_gap",
        "attack/known",
        "attack/secret",
        "reported/test_error",
        "reported/above_last_iterate",
    )
    accounts = ("bound", "tight", "epsilon", "epsilon_paper", "epsilon_sound")
    arrays: dict[str, Any] = {name: np.ones((2, 60)) for name in names} | {f"privacy/{name}": np.ones(60) for name in accounts}
    arrays |= dict.fromkeys(("kkt_residual", "timing/compute_seconds"), np.ones((2, 60, 1)))
    arrays |= dict.fromkeys(("network/seconds", "network/bytes"), np.ones((2, 60)))
    arrays["trajectory"] = np.ones((2, 60, 3, 4))
    return Result("memory", arrays | {"iteration": np.arange(60), "run": np.arange(2)}, {}, {"/": {}})


def test_lines_have_mean_and_range_and_the_table_repeats_them(tmp_path: Path) -> None:
    over_time = Panel("p", "loss", [("a", "A")])
    (line,) = lines(over_time, ABC)
    assert line.x.tolist() == [0, 1]
    assert np.allclose([line.low[-1], line.mean[-1], line.high[-1]], [0.99, 1.0, 1.01])
    over_x = Panel("q", "loss", [("a", "A"), ("c", "A"), ("b", "B")], x=[1.0, 3.0, 2.0])
    first, second = lines(over_x, ABC)
    assert first.x.tolist() == [1.0, 3.0]
    assert np.allclose(first.mean, [1.0, 4.0])
    assert np.allclose(second.mean, [2.0])
    write_table([over_time, over_x], ABC, tmp_path / "t.csv")
    with (tmp_path / "t.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["mean"] for row in rows] == ["9", "1", "1", "4", "2"]
    assert [row["curve"] for row in rows] == ["A", "A", "A", "A", "B"]


def _claim(says: str, low: str, high: str) -> Raw:
    return {"kind": "ours", "says": says, "test": {"is": "below", "low": [low], "high": [high]}}


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, config: MakeConfig, write_toml: WriteToml) -> Figure:
    """A figure of two small variants, whose second claim does not hold."""
    raw = config("admm", runs=8) | {
        "variant": [{"name": "plain"}, {"name": "private", "privacy": {"perturbation": "dual", "alpha": 0.5}}]
    }
    path = write_toml(raw, "tiny.toml")
    write_toml({"claim": [_claim("noise costs", "plain", "private"), _claim("noise gains", "private", "plain")]}, "claims.toml")
    monkeypatch.setattr(making, "configuration", lambda name: path.with_name("claims.toml" if "/" in name else "tiny.toml"))
    figure = Figure(
        name="tiny",
        title="Two curves",
        panels=[Panel("loss", "loss", [("plain", "plain"), ("private", "private")])],
        quick=("iterations=5",),
    )
    monkeypatch.setitem(CATALOGUE, "tiny", figure)
    return figure


def test_a_figure_is_made_and_judged_and_not_made_twice(tiny: Figure, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report = making.make(tiny, tmp_path / "out", quick=False, vary=False)
    assert [claim["verdict"] for claim in report["claims"]] == ["holds", "does not hold"]
    for ending in ("png", "svg", "csv", "json"):
        assert (tmp_path / "out" / f"tiny.{ending}").stat().st_size > 100
    assert json.loads((tmp_path / "out" / "tiny.json").read_text())["claims"] == report["claims"]
    page.write_page(tmp_path / "out")
    text = (tmp_path / "out" / "README.md").read_text()
    for words in ("![Two curves](tiny.png)", "| 2 | noise gains. | **does not hold** |", "1 of 2"):
        assert words in text
    monkeypatch.setattr(running, "_run", lambda command: "must not run again")
    assert making.make(tiny, tmp_path / "out", quick=False, vary=False)["claims"] == report["claims"]


def test_every_variation_is_one_that_its_variants_take_and_changes_something() -> None:
    for figure in CATALOGUE.values():
        config = making.configuration(figure.name)
        full = configfile.load(config, figure.varied).configs
        for variation in figure.variations:
            settings = running.settings_of_each(config, figure.varied + variation.overrides, variation.of_some)
            varied = list(running.configs_of_each(config, settings).values())
            assert varied != full, f"{figure.name}, {variation.text}"


def test_a_variation_of_some_variants_reaches_those_and_no_others(tiny: Figure, tmp_path: Path) -> None:
    """What is set for the private variant would be refused by the plain one; and it comes after what is set for both."""
    variations = [
        Variation("more noise", ("seed=5",), {"priv*": ("privacy.alpha=0.5", "seed=6")}),
        Variation("much more noise", ("seed=5",), {"private": ("privacy.alpha=0.1",)}),
    ]
    varied = replace(tiny, variations=variations, varied=("runs=3", "iterations=5"))
    report = making.make(varied, tmp_path / "out", quick=True, vary=True)
    assert [(v["text"], v["runs"], len(v["verdicts"])) for v in report["variations"]] == [(v.text, 3, 2) for v in variations]
    assert "with more noise: " in "\n".join(making.verdict_lines(report))
    ran = [configfile.load(path).configs[0] for path in (tmp_path / "out" / "data" / "tiny-variations").glob("*.h5")]
    assert sorted((c.name, c.iterations, c.runs, c.seed, _alpha(c)) for c in ran) == [
        ("plain", 5, 3, 5, 0.0),  # once for both variations
        ("private", 5, 3, 5, 0.1),
        ("private", 5, 3, 6, 0.5),
    ]


def _alpha(config: Config) -> float:
    noise = getattr(config.privacy.perturbation, "noise", None)
    return float(noise.alpha) if noise else 0.0


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
