"""Tables of results: for people, and as JSON, CSV, LaTeX and data frames, which say the same."""

import csv
import io
import json
import re
from pathlib import Path
from statistics import fmean, stdev

import h5py
import numpy as np
import pytest
from fuzz.judging import say
from handmade import star_file
from support import MakeConfig, Raw, WriteToml, result_of

import dpadmm_mpi
from dpadmm_mpi.errors import InputError
from dpadmm_mpi.reports.exports import to_latex
from dpadmm_mpi.reports.result_tables import Wish, table_of, text_of

T_3_RUNS = 4.302653  # 97.5 % quantile of Student's t with 2 degrees of freedom, from a table
SWEEP: Raw = {
    "name": "a sweep",
    "iterations": 2,
    "runs": 3,
    "data": {"records": 200, "features": 3},
    "problem": {"C": 20.0},
    "algorithm": {"method": "r-admm"},
    "privacy": {"perturbation": "objective", "target": 1.0, "target_account": "epsilon"},
    "sweep": {"privacy.target": [1e-9, 1.0, 20.0], "algorithm.eta": [0.5, 2.0]},
}


def show(*words: object) -> str:
    """`dpadmm show` in this process."""
    found = say(("show", *map(str, words)), Path.cwd())
    assert found.code == 0, found.error
    return found.output


@pytest.fixture(scope="module")
def shown(shared_config: MakeConfig, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Three files: private with three runs, without noise and with one run, of the star family; with difficult names."""
    folder = tmp_path_factory.mktemp("shown")
    result_of(shared_config("mr-admm", "objective", runs=3, iterations=5), folder / "out.h5")
    result_of(shared_config("admm") | {"name": 'a,b "50%" & $_x^2_$ \\ {#~}'}, folder / "plain.h5")
    return [folder / "out.h5", folder / "plain.h5", star_file(folder / "star.h5")]


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two settings, three values and two; no noise meets the smallest target."""
    folder = tmp_path_factory.mktemp("swept")
    dpadmm_mpi.sweep(SWEEP, folder / "out")
    return folder / "out"


@pytest.mark.parametrize("uncertainty", ["standard-error", "interval", "half-range", "none"])
def test_what_stands_behind_the_mean_is_chosen_and_said(shown: list[Path], uncertainty: str) -> None:
    private = dpadmm_mpi.load(shown[0])
    lines = show(shown[0], "--uncertainty", uncertainty).splitlines()
    for name in ("loss", "test_error"):
        values = private[name][:, -1].tolist()
        error = stdev(values) / 3**0.5
        halves = {"standard-error": error, "interval": T_3_RUNS * error, "half-range": (max(values) - min(values)) / 2}
        behind = "" if uncertainty == "none" else f" ±{halves[uncertainty]:.2g}"
        assert f" {fmean(values):.4g}{behind}  " in lines[1]
    words = {"standard-error": "standard error", "interval": "95 %", "half-range": "half the range", "none": ""}[uncertainty]
    said = [line for line in lines if line.startswith("±: ")]
    assert len(said) == (uncertainty != "none") and all(words in line for line in said)


def test_columns_are_what_some_file_has(shown: list[Path]) -> None:
    heads = [show(path, "--columns", "all") for path in shown]
    assert "gap" not in heads[0]
    assert "to optimum" in heads[0]
    assert "to optimum" not in heads[2]
    assert "P(t)" not in heads[2]
    table = table_of(dpadmm_mpi.load_all(shown).rows)
    assert {"P(t)", "gap", "epsilon sound", "delta"} <= set(table.header)
    assert table.cells()[2][-3:] == ["0.5 not proven", "40", "0.001"]  # the star's, beside its delta


def test_swept_settings_are_columns_and_the_rest_is_said_once(swept: Path) -> None:
    lines = show(swept).splitlines()
    assert lines[0].split()[:4] == ["status", "target", "eta", "loss"]  # in the order of the sweep; no name, it is the same
    assert [line.split()[:3] for line in lines[1:7]] == [
        ["infeasible", "1e-09", "0.5"],
        ["infeasible", "1e-09", "2"],
        ["complete", "1", "0.5"],
        ["complete", "1", "2"],
        ["complete", "20", "0.5"],
        ["complete", "20", "2"],
    ]
    assert "6 configurations, a sweep, t = 2, 3 runs each" in lines
    assert sum(line.startswith("infeasible, a sweep, target=1e-09, eta=") for line in lines) == 2
    assert "privacy.target: 1e-09 cannot be met" in " ".join(" ".join(lines).split())


def test_all_forms_say_the_same(swept: Path) -> None:
    """Means, settings, totals and deltas: JSON, CSV, a data frame and LaTeX, against the files themselves."""
    objects = json.loads(show(swept, "--json"), parse_constant=pytest.fail)
    rows = list(csv.DictReader(io.StringIO(show(swept, "--csv"))))
    frame = dpadmm_mpi.load_all(swept).to_pandas()
    table = dpadmm_mpi.load_all(swept).to_latex("target,eta,loss,epsilon,delta", uncertainty="none")
    cells = [line.removesuffix(r" \\").split(" & ") for line in table.splitlines() if line.endswith(r" \\")]
    assert cells[0] == ["target", r"$\eta$", "loss", r"$\varepsilon$", r"$\delta$"]
    assert len(objects) == len(rows) == len(frame) == len(cells) - 1 == 6
    for each, row, (_, series), line in zip(objects, rows, frame.iterrows(), cells[1:], strict=True):
        target, eta = each["settings"]["privacy.target"], each["settings"]["algorithm.eta"]
        assert (float(row["privacy.target"]), float(row["algorithm.eta"])) == (target, eta)
        assert (series["privacy.target"], series["algorithm.eta"]) == (target, eta)
        assert line[1] == f"${eta:g}$"
        if target == 1e-9:
            assert each["status"] == row["status"] == series["status"] == "infeasible"
            assert "cannot be met" in each["reason"] and each["reason"] == row["reason"] == series["reason"]
            assert each["measurements"] == each["privacy"] == {}
            assert row["loss_mean"] == "" and np.isnan(series["loss_mean"])
            assert line[2:] == ["--", "--", "--"]
            continue
        with h5py.File(each["file"]) as file:
            loss, epsilon = file["loss"][:, -1].tolist(), float(file["privacy/epsilon"][-1])
        expected = {"mean": fmean(loss), "smallest": min(loss), "largest": max(loss), "standard_error": stdev(loss) / 3**0.5}
        expected["interval"] = T_3_RUNS * expected["standard_error"]
        assert each["measurements"]["loss"] == pytest.approx(expected, rel=1e-6)
        for name, value in each["measurements"]["loss"].items():
            assert float(row[f"loss_{name}"]) == series[f"loss_{name}"] == value
        assert each["privacy"]["epsilon"] == {"total": epsilon, "proven": True, "delta": 1e-5}
        assert float(row["privacy_epsilon_total"]) == series["privacy_epsilon_total"] == epsilon
        assert line[2:] == [f"${fmean(loss):.4g}$", f"${epsilon:.4g}$", "$10^{-5}$"]


def test_infinity_and_nothing_in_json_and_csv(shown: list[Path]) -> None:
    private, plain, star = json.loads(show(*shown, "--json"), parse_constant=pytest.fail)
    assert (private["runs"], private["iteration"], private["status"], private["method"]) == (3, 5, "complete", "mr-admm")
    assert plain["name"] == 'a,b "50%" & $_x^2_$ \\ {#~}'
    assert plain["privacy"]["bound"]["total"] == "inf"
    assert plain["measurements"]["loss"]["standard_error"] is None
    assert star["privacy"]["epsilon_paper"]["proven"] is False
    rows = list(csv.DictReader(io.StringIO(show(*shown, "--csv"))))
    assert [row["privacy_bound_total"] for row in rows[1:]] == ["inf", ""]
    assert rows[2]["privacy_epsilon_sound_total"] == "40.0"


def test_pivot(swept: Path) -> None:
    """A row for each value of one setting, a column for each of the other; the numbers are those of the plain table."""
    results = dpadmm_mpi.load_all(swept)
    lines = show(swept, "--pivot", "target,eta", "--columns", "loss", "--uncertainty", "none").splitlines()
    assert [line.split() for line in lines[:2]] == [["target", "eta=0.5", "eta=2"], ["1e-09", "infeasible", "infeasible"]]
    losses = [f"{result.loss[:, -1].mean():.4g}" for result in results]
    assert lines[2].split() == ["1", *losses[:2]]
    assert lines[3].split() == ["20", *losses[2:]]
    assert "loss, at each eta" in lines
    [_, row, _] = csv.DictReader(io.StringIO(show(swept, "--pivot", "eta", "--columns", "loss", "--csv")))
    assert float(row["loss_mean, algorithm.eta=2"]) == results[1].loss[:, -1].mean()
    with pytest.raises(InputError, match=r"--pivot: two files have eta = 0\.5"):
        table_of(results[::2], Wish(pivot=("seed", "eta")))


def test_sort(swept: Path) -> None:
    def order(*words: str) -> list[str]:
        return [line.split()[0] for line in show(swept, "--columns", "target,eta,epsilon", *words).splitlines()[1:7]]

    assert order("--sort", "epsilon") == ["1", "1", "20", "20", "1e-09", "1e-09"]  # rows without a value at the end
    assert order("--sort", "-epsilon")[:2] == ["20", "20"]
    assert order("--sort", "eta,-target") == ["20", "1", "1e-09"] * 2


@pytest.mark.parametrize("words", [("--columns", "losss"), ("--sort", "losss"), ("--pivot", "losss")])
def test_a_column_that_is_not_there(swept: Path, words: tuple[str, str]) -> None:
    found = say(("show", str(swept), *words), Path.cwd())
    assert found.code == 2
    assert f'{words[0]}: no column "losss"; there are name, file, ' in found.error
    assert 'did you mean "loss"?' in found.error


@pytest.mark.parametrize("columns", [(), ("all",), ("name", "loss", "test error", "P(t)", "tight", "epsilon", "consensus")])
def test_a_table_fits_80_columns(shown: list[Path], columns: tuple[str, ...]) -> None:
    """Long names take several lines; what is left out is said, and what was asked for is there."""
    rows = dpadmm_mpi.load_all(shown).rows
    for row in rows[:2]:
        row.attributes["/"]["name"] = f"{'a very long name of an experiment ' * 5}{row.source[-6:]}"  # type: ignore[union-attr]
    table = table_of(rows, Wish(columns))
    text = text_of(table, 80)
    assert max(map(len, text.splitlines())) <= 80
    words = re.findall(r"\S+", text)
    assert all(part in words or f"{part}," in words for column in table.header for part in column.split())
    assert ("left out, for 80 columns: " in text) == (columns == ())
    assert max(map(len, text_of(table, 400).split("\n\n")[0].splitlines())) > 80


def test_latex(shown: list[Path]) -> None:
    """Every special character of a name is escaped, every row has as many cells, numbers are mathematics; caption and label."""
    text = show(*shown, "--latex", "--caption", "50 % & more", "--label", "tab:my table")
    lines = text.splitlines()
    rows = [line for line in lines if line.endswith(r" \\")]
    assert len(rows) == 4
    assert len({len(re.findall(r"(?<!\\)&", row)) for row in rows}) == 1
    (columns,) = re.findall(r"tabular\}\{(\w+)\}", text)
    assert len(columns) == len(re.findall(r"(?<!\\)&", rows[0])) + 1
    name = r'a,b "50\%" \& \$\_x\textasciicircum{}2\_\$ \textbackslash{} \{\#\textasciitilde{}\}'
    assert rows[2].startswith(f"{name} & ")
    assert r" & $\infty$ & $\infty$" in rows[2]
    assert re.search(r" & \$0\.\d+ \\pm 0\.\d+\$ & ", rows[1])
    assert "inf" not in rows[2].replace(r"\infty", "")
    assert {r"\caption{50 \% \& more}", r"\label{tab:my-table}"} <= set(lines)
    usual = to_latex(table_of(dpadmm_mpi.load_all(shown).rows))
    assert r"$\pm$: standard error of the mean over the runs." in usual
    assert r"\label{tab:results}" in usual


def test_a_variant_that_cannot_run_does_not_stop_the_others(write_toml: WriteToml, tmp_path: Path) -> None:
    """One that is no configuration, and one that no noise meets: said, noted, rows of the table; the exit code is 2."""
    raw = SWEEP | {"runs": 1, "sweep": {"privacy.target": [-1.0, 1e-9, 1.0]}}
    out = tmp_path / "out"
    ran = say(("run", str(write_toml(raw)), "-o", str(out)), tmp_path)
    assert ran.code == 2
    first, last = (line for line in ran.error.splitlines() if "variant " in line)
    assert first.startswith('dpadmm: note: variant "a sweep, target=-1.0": privacy.target: found -1')
    assert first.endswith("; and 1 more cannot run; the others run")
    assert re.search(r"; and 1 more cannot run; the others are done \([^()]*config\.toml, lines 17, 21\)$", last)
    assert [path.name for path in out.glob("*.h5")] == ["a-sweep-target=1.0.h5"]
    assert [line.split()[0] for line in ran.output.splitlines()[1:4]] == ["complete", "infeasible", "infeasible"]
    status = say(("status", "config.toml", "-o", "out"), tmp_path).output
    assert [line.split()[3] for line in status.splitlines()[1:4]] == ["infeasible", "infeasible", "done"]
    assert "1 done, 2 infeasible" in status and "1e-09 cannot be met" in " ".join(status.split())
    again = say(("run", "config.toml", "-o", "out", "--resume"), tmp_path)
    assert again.code == 2 and "finished before: out/a-sweep-target=1.0.h5" in again.output
    # As jobs of an array: every variant keeps its number.
    assert say(("run", "config.toml", "-o", "one", "--index", "0"), tmp_path).code == 2
    assert say(("run", "config.toml", "-o", "one", "--index", "2"), tmp_path).code == 0
    # What can run now has no note any more.
    write_toml(raw | {"sweep": {"privacy.target": [1e-9, 1.0]}, "privacy": {"perturbation": "primal", "target": 1.0}})
    assert say(("run", "config.toml", "-o", "out", "--force"), tmp_path).code == 0
    assert "infeasible" not in say(("status", "config.toml", "-o", "out"), tmp_path).output
    assert [path.name for path in out.glob("*.infeasible.toml")] == ["a-sweep-target=-1.0.infeasible.toml"]


def test_nothing_runs_where_no_variant_can(write_toml: WriteToml, tmp_path: Path) -> None:
    path = write_toml(SWEEP | {"sweep": {"privacy.target": [1e-9, 1e-8]}})
    ran = say(("run", str(path), "-o", "out"), tmp_path)
    assert ran.code == 2
    assert ran.output == ""
    assert "1e-09 cannot be met" in ran.error
    assert re.search(r"; and 1 more cannot run \([^()]*config\.toml, lines 17, 21\)\n\Z", ran.error)
    assert not (tmp_path / "out").exists()
    with pytest.raises(InputError, match="cannot be met"):
        dpadmm_mpi.sweep(path)
    with pytest.raises(InputError, match=r'variant "a sweep, target=-1": privacy\.target: found -1'):
        dpadmm_mpi.sweep(SWEEP | {"sweep": {"privacy.target": [-1, -2]}})


def test_notes_of_strangers_are_read_with_care(tmp_path: Path) -> None:
    (tmp_path / "x.infeasible.toml").write_text('reason = "\\u001b[2J"\n[config]\nname = "=1+\\u001b]0;owned"\n')
    found = say(("show", str(tmp_path)), tmp_path)
    assert found.code == 0
    assert all(line.isprintable() for line in found.output.splitlines())
    assert r"\x1b[2J" in found.output
    (tmp_path / "x.infeasible.toml").write_text('reason = 3\n[config]\nname = "x"\n')
    assert "reason or config is missing" in say(("show", str(tmp_path)), tmp_path).error
    assert say(("report", str(tmp_path), "-o", "r.html"), tmp_path).code == 2


def test_sweeps_from_python(tmp_path: Path) -> None:
    """Keywords and dotted keys, None for no noise; each point has the bits of `run` with the same settings."""
    small = {"iterations": 2, "data": {"records": 200, "features": 3}, "problem": {"C": 20.0}}
    results = dpadmm_mpi.sweep(small, tmp_path, over={"epsilon": [1.0, None], "algorithm.eta": np.array([0.5, 2.0])}, seed=4)
    assert results is not None
    assert [result.name for result in results] == [
        f"run, epsilon={epsilon}, eta={eta}" for epsilon in ("1.0", "None") for eta in (0.5, 2.0)
    ]
    alone = result_of(small, epsilon=1.0, eta=2.0, seed=4)
    np.testing.assert_array_equal(results[1].loss, alone.loss)
    assert results[3].settings["privacy.perturbation"] == "none"
    again = dpadmm_mpi.load_all(tmp_path)
    assert sorted(result.name for result in again) == sorted(result.name for result in results)
    assert results.table("target,eta").splitlines()[0].split() == ["target", "eta"]
    with pytest.raises(InputError, match="exists"):
        dpadmm_mpi.sweep(small, tmp_path, over={"epsilon": [1.0], "eta": [0.5]}, seed=4)
    with pytest.raises(InputError, match="over: eta has 'one'"):
        dpadmm_mpi.sweep(small, over={"eta": "one"})
    with pytest.raises(InputError, match="nowhere"):
        dpadmm_mpi.load_all(tmp_path / "nowhere.h5")
