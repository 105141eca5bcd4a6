"""What journals want of a figure, read back from it: quantities at the axes, scales, ends, widths, names; and the options."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from handmade import star_file
from support import command, result_of, sentences

import dpadmm_mpi
from dpadmm_mpi import plots
from dpadmm_mpi.audit import attack
from dpadmm_mpi.errors import InputError
from dpadmm_mpi.plots.network import scales_for
from dpadmm_mpi.plots.scales import typical
from dpadmm_mpi.storage.result import Result, labels, load_all


@pytest.fixture(scope="module")
def star(tmp_path_factory: pytest.TempPathFactory) -> Result:
    return dpadmm_mpi.load(star_file(tmp_path_factory.mktemp("layout") / "star.h5"))


def named(result: Result, name: str, **arrays: Any) -> Result:
    return replace(
        result,
        arrays={**result.arrays, **arrays},
        attributes={**result.attributes, "/": {**result.attributes["/"], "name": name}},
    )


def sweep(result: Result, levels: list[float]) -> list[Result]:
    """Results whose losses fall from 1 to a little above these levels."""
    fall = 0.05 * np.linspace(1.0, 0.0, result.loss.shape[1])
    found = []
    for k, level in enumerate(levels):
        loss = np.broadcast_to(level + fall, result.loss.shape).copy()
        loss[:, 0] = 1.0
        found.append(named(result, f"sweep, alpha={k}", loss=loss))
    return found


def test_quantity_and_unit_stand_at_the_axis(star: Result) -> None:
    about = {**star.attributes["loss"], "title": "mean loss", "units": "nat"}
    with_unit = replace(star, attributes={**star.attributes, "loss": about})
    [axis] = plots.figure([with_unit], "loss").axes
    assert (axis.get_ylabel(), axis.get_xlabel(), axis.get_title("left")) == ("mean loss [nat]", "iteration $t$", "")
    without = replace(star, attributes={**star.attributes, "loss": {**about, "units": "1"}})
    assert plots.figure([without], "loss").axes[0].get_ylabel() == "mean loss"
    for kind in ("overview", "privacy", "loss-privacy", "tradeoff", "nodes"):
        for axis in plots.figure([star, with_unit], kind).axes:
            assert axis.get_xlabel()
            assert axis.get_ylabel()


def test_an_outlier_does_not_flatten_the_rest(star: Result) -> None:
    """Nor is it hidden: the figure says that it is above the axis. Of a few curves none is an outlier."""
    near = [0.30, 0.31, 0.33, 0.36, 0.40]
    [axis] = plots.figure(sweep(star, [*near, 9.0]), "loss").axes
    bottom, top = axis.get_ylim()
    assert bottom < 0.30 < 0.45 < top < 0.6
    assert [text.get_text() for text in axis.texts] == ["1 of 6 above the axis"]
    [axis] = plots.figure(sweep(star, [0.3, 0.31, 9.0]), "loss").axes
    assert axis.get_ylim()[1] > 9.0
    [axis] = plots.figure(sweep(star, near), "loss").axes
    assert not axis.texts
    assert typical([0.1] * 9 + [-50.0], [0.2] * 9 + [0.3]) == (0.1, 0.3)


def test_networks_have_a_scale_that_shows_differences() -> None:
    apart = [np.array([0.30, 0.34]) + 0.01 * k for k in range(9)]
    [scale] = set(scales_for([*apart, np.array([4.0, 5.0])]))
    assert (scale.low, scale.high, scale.extend) == pytest.approx((0.30, 0.42, "max"))
    one, other = scales_for([np.array([0.30, 0.34]), np.array([50.0, 55.0])])  # in common, neither would show anything
    assert (one.low, one.high, other.low, other.high) == (0.30, 0.34, 50.0, 55.0)
    [equal] = set(scales_for([np.array([1.0, 1.0]), np.array([2.0, 2.0])]))  # there is nothing to show in either
    assert (equal.low, equal.high) == (1.0, 2.0)


def test_what_names_share_is_the_title(star: Result) -> None:
    figure = plots.figure(sweep(star, [0.3, 0.4]), "loss")
    assert figure.get_suptitle() == "sweep"
    assert [text.get_text() for text in figure.legends[0].get_texts()] == [r"$\alpha$=0", r"$\alpha$=1"]
    assert plots.figure(sweep(star, [0.3, 0.4]), "loss", title="").get_suptitle() == ""
    assert plots.figure([star], "loss", title="at $5, epsilon = 1").get_suptitle() == r"at \$5, $\varepsilon$ = 1"


def test_files_are_named_and_ordered(star: Result, tmp_path: Path) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
    for path in ("a/x=10.h5", "a/x=2.h5", "b/x=2.h5"):
        star_file(tmp_path / path)
    found = load_all([tmp_path / "a"])
    assert [Path(result.source).stem for result in found] == ["x=2", "x=10"]
    assert labels(found) == ["x=2", "x=10"]
    assert labels([*found, *load_all([tmp_path / "b"])]) == ["a/x=2", "a/x=10", "b/x=2"]


def test_the_account_that_the_noise_was_set_by_is_on_the_axis() -> None:
    privacy = {"perturbation": "objective", "target": 3.0, "target_account": "tight"}
    small = {"iterations": 2, "data": {"records": 200, "features": 3}, "algorithm": {"method": "admm"}}
    calibrated, plain = result_of({**small, "privacy": privacy}), result_of(small)
    for results in ([calibrated], [plain, calibrated]):
        assert plots.figure(results, "loss-privacy").axes[0].get_xlabel() == "total privacy loss: tighter pure bound"
    assert (
        plots.figure([plain, calibrated]).axes[-1].get_ylabel().replace("\n", " ") == "total privacy loss: tighter pure bound"
    )


def test_scales_and_ends_that_are_asked_for(star: Result) -> None:
    [axis] = plots.figure([star], "consensus", log="none", ylim=(0.0, None), xlim=(1.0, 4.0)).axes
    assert (axis.get_xscale(), axis.get_yscale()) == ("linear", "linear")
    assert (axis.get_ylim()[0], axis.get_xlim()) == (0.0, (1.0, 4.0))
    for axis in plots.figure([star], "overview", log="y").axes:
        assert (axis.get_xscale(), axis.get_yscale()) == ("linear", "log")
    far = named(star, "far", loss=star.loss * 10.0 ** np.arange(star.loss.shape[1]))
    figure = plots.figure([far], "loss", log="xy")
    figure.draw_without_rendering()
    shown = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert "10⁴" in shown


@pytest.mark.parametrize(("size", "inches", "columns"), [("one-column", 3.5, 1), ("two-column", 7.16, 3)])
def test_a_journals_width(star: Result, size: Any, inches: float, columns: int, tmp_path: Path) -> None:
    """The panels stand below each other where there is no room beside; letters are of 7 to 8 points; words are not cut off."""
    figure = plots.figure([star, named(star, "other")], "overview", size=size)
    figure.draw_without_rendering()
    assert figure.get_figwidth() == inches
    assert figure.axes[0].get_subplotspec().get_gridspec().ncols == columns
    assert {text.get_fontsize() for axis in figure.axes for text in (axis.xaxis.label, *axis.get_xticklabels())} == {8.0}
    assert all(axis.yaxis.label.get_window_extent().x0 >= 0 for axis in figure.axes)
    box = figure.legends[0].get_window_extent()
    assert box.x0 >= 0
    assert box.x1 <= figure.bbox.x1
    plots.draw([star], tmp_path / "x.pdf", "loss", size=size)
    written = (tmp_path / "x.pdf").read_bytes()
    assert b"/FontFile2" in written  # the letters themselves, as TrueType
    assert b"/Type3" not in written


def test_options_of_the_command(star: Result, tmp_path: Path) -> None:
    target = tmp_path / "p.svg"
    options = ["--kind", "loss", "--log", "y", "--xlim", "0,5", "--ylim", ",2", "--size", "one-column", "--grey"]
    process = command("plot", star.source, *options, "--title", "", "-o", target)
    assert process.returncode == 0, process.stderr
    assert f'width="{3.5 * 72:g}pt"' in target.read_text()
    process = command("plot", star.source, "--ylim", "0.2")
    assert sentences(process) == ['dpadmm: ylim: found "0.2"; write two numbers with a comma, as in 0,50 or 0,']


@pytest.mark.parametrize(
    ("kind", "options", "sentence"),
    [
        ("loss", {"log": "z"}, 'log: found "z"; it must be one of x, y, xy, none'),
        ("loss", {"size": "a4"}, 'size: found "a4"; it must be one of one-column, two-column'),
        ("loss", {"xlim": (5.0, 1.0)}, "xlim: found 5,1; the first must be smaller than the second"),
        ("overview", {"ylim": (0.0, 1.0)}, "ylim: the kind .* panels with different quantities; draw one of them"),
        ("network", {"log": "y"}, 'log: the kind "network" has no axes with numbers; remove it'),
    ],
)
def test_refusals(star: Result, kind: str, options: Any, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        plots.figure([star], kind, **options)


def test_a_logarithm_of_nothing_is_refused(star: Result) -> None:
    negative = named(star, "negative", loss=-star.loss)
    with pytest.raises(InputError, match='log: "mean loss" has no positive number; leave y out'):
        plots.figure([negative], "loss", log="y")


def test_audit_and_attack_say_what_their_axes_are(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The runs of the histogram are counted, and the accounts beside it are steps."""
    small = {"data": {"records": 100, "features": 3}, "record": {"trajectory": True}, "runs": 2}
    noisy, plain = tmp_path / "noisy.h5", tmp_path / "plain.h5"
    result = dpadmm_mpi.run(small, noisy, method="admm", iterations=2, perturbation="objective", alpha=1.0)
    dpadmm_mpi.run(small, plain, method="admm", iterations=2)
    kept: list[Any] = []
    monkeypatch.setattr("dpadmm_mpi.plots.examined.save", lambda figure, _: kept.append(figure))
    assert result is not None
    plots.audit_figure(result.audit(candidates=1), tmp_path / "x.png")
    plots.attack_figure([attack(noisy, 0, 0), attack(plain, 0, 0)], tmp_path / "x.png")
    growth, spread = kept[0].axes
    assert (spread.get_ylabel(), spread.get_xlabel()) == ("number of runs", "realised privacy loss at the end")
    assert sum(bar.get_height() for bar in spread.patches) == 2
    assert {line.get_drawstyle() for line in growth.get_lines() if len(line.get_xdata())} == {"steps-post"}
    [axis] = kept[1].axes
    assert "error" in axis.get_ylabel()
    assert "privacy loss" in axis.get_xlabel()
    assert (axis.get_xscale(), axis.get_yscale()) == ("log", "log")
