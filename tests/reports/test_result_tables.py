"""Tables of results: for people, and as JSON, CSV and LaTeX."""

import json
import re
from pathlib import Path
from statistics import fmean, stdev

import numpy as np
import pytest
from handmade import star_file
from support import MakeConfig, command, result_of

import dpadmm_mpi


@pytest.fixture(scope="module")
def shown(shared_config: MakeConfig, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Three files: private with three runs, without noise and with one run, of the star family; with difficult names."""
    folder = tmp_path_factory.mktemp("shown")
    result_of(shared_config("mr-admm", "objective", runs=3, iterations=5), folder / "out.h5")
    result_of(shared_config("admm") | {"name": 'a,b "50%" & $_x^2_$ \\ {#~}'}, folder / "plain.h5")
    return [folder / "out.h5", folder / "plain.h5", star_file(folder / "star.h5")]


def test_show_has_mean_range_and_standard_error(shown: list[Path]) -> None:
    private = dpadmm_mpi.load(shown[0])
    lines = command("show", *shown).stdout.splitlines()
    for name in ("loss", "test_error"):
        values = private[name][:, -1].tolist()
        error = stdev(values) / 3**0.5
        assert f"{fmean(values):.4g} ±{(max(values) - min(values)) / 2:.2g} ({error:.2g})" in lines[1]
    assert "not proven" in lines[3]
    assert lines[4].startswith("mean ±half the range (standard error")


def test_a_column_that_no_file_has_is_left_out(shown: list[Path]) -> None:
    heads = [command("show", path).stdout.splitlines()[0] for path in shown]
    assert "gap" not in heads[0]
    assert "to optimum" in heads[0]
    assert "to optimum" not in heads[2]
    assert heads[2].split()[-5:] == ["consensus", "epsilon", "paper", "epsilon", "sound"]
    assert "P(t)" not in heads[2]
    rows = command("show", *shown).stdout.splitlines()
    assert {"P(t)", "gap"} <= set(rows[0].split())
    assert rows[3].rstrip().endswith("40")


def test_show_json(shown: list[Path]) -> None:
    """Plain JSON: infinity as text, what is not there as null."""
    private, plain, star = json.loads(command("show", *shown, "--json").stdout, parse_constant=pytest.fail)
    loaded = dpadmm_mpi.load(shown[0])
    values = loaded.loss[:, -1].tolist()
    expected = {
        "mean": fmean(values),
        "smallest": min(values),
        "largest": max(values),
        "standard_error": stdev(values) / 3**0.5,
    }
    assert private["measurements"]["loss"] == pytest.approx(expected)
    assert private["privacy"]["epsilon"] == {"total": loaded["privacy/epsilon"][-1], "proven": True, "delta": 1e-5}
    assert (private["runs"], private["iteration"], private["status"], private["method"]) == (3, 5, "complete", "mr-admm")
    assert plain["name"] == 'a,b "50%" & $_x^2_$ \\ {#~}'
    assert plain["privacy"]["bound"]["total"] == "inf"
    assert plain["measurements"]["loss"]["standard_error"] is None
    assert star["measurements"]["objective_gap"]["mean"] == pytest.approx(
        dpadmm_mpi.load(shown[2])["objective_gap"][:, -1].mean()
    )
    assert star["privacy"]["epsilon_paper"]["proven"] is False


def test_show_csv(shown: list[Path]) -> None:
    """As another program reads it; the same numbers as the JSON."""
    import io

    import pandas as pd

    text = command("show", *shown, "--csv").stdout
    frame = pd.read_csv(io.StringIO(text))
    objects = json.loads(command("show", *shown, "--json").stdout)
    assert frame["name"].tolist() == [each["name"] for each in objects]
    assert frame["loss_mean"].tolist() == [each["measurements"]["loss"]["mean"] for each in objects]
    assert frame["privacy_bound_total"][0] == objects[0]["privacy"]["bound"]["total"]
    assert np.isinf(frame["privacy_bound_total"][1])
    assert np.isnan(frame["privacy_bound_total"][2])
    assert frame["privacy_epsilon_sound_total"][2] == 40


def test_show_latex(shown: list[Path]) -> None:
    """Every special character of a name is escaped, every row has as many cells, and numbers are mathematics."""
    lines = command("show", *shown, "--latex").stdout.splitlines()
    rows = [line for line in lines if line.endswith(r" \\")]
    assert len(rows) == 4
    assert len({len(re.findall(r"(?<!\\)&", row)) for row in rows}) == 1
    (columns,) = re.findall(r"tabular\}\{(\w+)\}", "\n".join(lines))
    assert len(columns) == len(re.findall(r"(?<!\\)&", rows[0])) + 1
    name = r'a,b "50\%" \& \$\_x\textasciicircum{}2\_\$ \textbackslash{} \{\#\textasciitilde{}\}'
    assert rows[2].startswith(name + " & complete")
    assert r"$\infty$" in rows[2]
    assert r"$\pm$" in rows[1]
    assert "inf" not in rows[2].replace(r"\infty", "")
