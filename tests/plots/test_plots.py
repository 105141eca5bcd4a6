"""What the pictures hold, read back from the figures; every kind on every family of files; refusals."""

import io
import shutil
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import matplotlib
import numpy as np
import pytest
from handmade import star_file
from support import MakeConfig, command, result_of, sentences

import dpadmm_mpi
from dpadmm_mpi import plots
from dpadmm_mpi.errors import InputError
from dpadmm_mpi.plots.looks import COLOURS, MARKERS, STYLES
from dpadmm_mpi.plots.words import typeset
from dpadmm_mpi.storage.result import Result, is_proven
from dpadmm_mpi.types import Array


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of the results that the tests share; nobody changes them."""
    return tmp_path_factory.mktemp("plots")


@pytest.fixture(scope="module")
def private(shared_config: MakeConfig, folder: Path) -> Result:
    """Recycled steps, three runs."""
    return result_of(shared_config("mr-admm", "objective", runs=3), folder / "private.h5")


@pytest.fixture(scope="module")
def plain(shared_config: MakeConfig, folder: Path) -> Result:
    return result_of(shared_config("admm", record={"optimum": True}), folder / "plain.h5")


@pytest.fixture(scope="module")
def lossy() -> Result:
    """A network that loses messages."""
    return result_of({"iterations": 3, "data": {"records": 200, "features": 3}, "network": {"faults": {"loss": 0.3}}})


@pytest.fixture(scope="module")
def star(folder: Path) -> Result:
    return dpadmm_mpi.load(star_file(folder / "star.h5"))


def changed(result: Result, name: str, values: Array) -> Result:
    """The result with another array, under a name of its own."""
    root = {**result.attributes["/"], "name": f"other {name}"}
    return replace(result, arrays={**result.arrays, name: values}, attributes={**result.attributes, "/": root})


def outside(figure: Any) -> list[str]:
    """Words that reach over the edge of the picture; numbers at the ticks are left out, since not all of them are drawn."""
    figure.draw_without_rendering()
    edge = figure.bbox
    scales = [scale for axis in figure.axes for scale in (axis.xaxis, axis.yaxis)]
    ticks = {text for scale in scales for text in scale.findobj(matplotlib.text.Text) if text is not scale.label}
    words = [text for text in figure.findobj(matplotlib.text.Text) if text not in ticks and text.get_text().strip()]
    boxes = {text.get_text(): text.get_window_extent() for text in words}
    return [text for text, box in boxes.items() if box.x0 < -1 or box.y0 < -1 or box.x1 > edge.x1 + 1 or box.y1 > edge.y1 + 1]


def drawn(axis: Any) -> list[Any]:
    """Its lines, but for those that are there for a legend."""
    return [line for line in axis.get_lines() if len(line.get_ydata())]


def looks(line: Any) -> tuple[str, str, str]:
    return line.get_color(), line.get_marker(), str(line._unscaled_dash_pattern)


def legend(figure: Any) -> list[tuple[Any, Any]]:
    """Each text below the figure with its line."""
    [box] = figure.legends
    return list(zip(box.get_texts(), box.get_lines(), strict=True))


def texts(axis: Any) -> str:
    return " ".join(text.get_text() for text in axis.get_legend().get_texts())


def band_of(axis: Any) -> Array:
    return np.asarray(axis.collections[0].get_paths()[0].vertices[:, 1])


def test_overview_has_mean_range_and_privacy(private: Result, plain: Result) -> None:
    """Of several files the account to compare by, each in the look of its other curves; of a lone one every account."""
    loss, error, privacy = plots.figure([private, plain]).axes
    assert np.allclose(loss.get_lines()[0].get_ydata(), private.loss.mean(axis=0))
    assert band_of(loss).min() == pytest.approx(private.loss.min())
    assert band_of(loss).max() == pytest.approx(private.loss.max())
    assert np.allclose(error.get_lines()[1].get_ydata(), plain.test_error[0])
    [line] = drawn(privacy)  # the plain run's is infinite
    assert np.array_equal(line.get_ydata(), private.bound)
    assert looks(line) == looks(loss.get_lines()[0])
    assert [text.get_text() for text in privacy.texts] == ["1 of 2 not private: infinite"]
    lines = drawn(plots.figure([private]).axes[2])
    for each, name in zip(lines, ("bound", "tight", "epsilon"), strict=True):
        assert np.array_equal(each.get_ydata(), private[f"privacy/{name}"])
    assert len({looks(each)[2] for each in lines}) == 3
    [alone] = drawn(plots.figure([private], "privacy", "tight").axes[0])
    assert np.array_equal(alone.get_ydata(), private.tight)


@pytest.mark.parametrize("kind", ["overview", "privacy"])
def test_privacy_is_spent_in_steps(kind: str, private: Result, star: Result) -> None:
    for results in ([private], [private, star]):
        axes = plots.figure(results, kind).axes[-1 if kind == "overview" else 0 :]
        assert {line.get_drawstyle() for axis in axes for line in drawn(axis)} == {"steps-post"}


def test_a_line_style_means_a_file_or_an_account_not_both(private: Result, star: Result) -> None:
    """Several files: the same look in every panel, and one account in each."""
    results = [private, star, changed(private, "privacy/tight", 2 * private.tight)]
    for kind in ("overview", "privacy"):
        figure = plots.figure(results, kind)
        shown = {text.get_text(): looks(line) for text, line in legend(figure)}
        assert len(set(shown.values())) == 3
        for axis in figure.axes:
            assert {looks(line) for line in drawn(axis)} <= set(shown.values())
            assert len({looks(line) for line in drawn(axis)}) == len(drawn(axis))
    accounts = plots.figure(results, "privacy").axes
    assert [axis.get_title("left") for axis in accounts[:2]] == ["$P(t)$, the paper's bound", "tighter pure bound"]
    assert np.array_equal(drawn(accounts[1])[1].get_ydata(), 2 * private.tight)


def test_a_run_without_noise_alone_says_that_it_is_not_private(plain: Result) -> None:
    privacy = plots.figure([plain]).axes[-1]
    assert "not private" in privacy.texts[0].get_text()
    assert not drawn(privacy)


def test_what_is_not_proven_is_said_in_the_picture(private: Result, star: Result) -> None:
    assert r"paper's $\varepsilon$ ($\delta$ = 0.001), not proven" in texts(plots.figure([star], "privacy").axes[0])
    assert "not proven" not in texts(plots.figure([private], "privacy").axes[0])
    assert "not proven" in plots.figure([star], "loss-privacy", "epsilon_paper").axes[0].get_xlabel()


@pytest.mark.parametrize("account", ["bound", "epsilon"])
def test_loss_against_privacy_takes_the_last_iteration_of_each_price(private: Result, account: str) -> None:
    """Recycled steps cost nothing: of two iterations with equal cost the later one is drawn."""
    [line] = plots.figure([private], "loss-privacy", account).axes[0].get_lines()
    last = dict(zip(private[f"privacy/{account}"], private.loss.mean(axis=0), strict=True))
    assert len(last) == 4  # 0 and three data steps in six iterations
    assert np.allclose(line.get_xdata(), list(last))
    assert np.allclose(line.get_ydata(), list(last.values()))


def test_accounts_to_compare_by(private: Result, plain: Result, star: Result) -> None:
    """The first that all files have, a proven one before others; without one in common each its own, named."""
    assert (
        plots.figure([private, plain], "error-privacy").axes[0].get_xlabel() == "total privacy loss: $P(t)$, the paper's bound"
    )
    assert r"sound $\varepsilon$" in plots.figure([star], "error-privacy").axes[0].get_xlabel()
    mixed = plots.figure([star, private], "loss-privacy")
    names = [text.get_text() for text in mixed.legends[0].get_texts()]
    assert names == [
        r"PS-ADMM: sound $\varepsilon$ ($\delta$ = 0.001)", r"mr-admm objective: $\varepsilon$ ($\delta$ = $10^{-5}$)",
    ]  # fmt: skip
    level = plots.figure([private, plain], "loss-privacy").axes[0].get_lines()[1]
    assert set(level.get_ydata()) == {plain.loss[0, -1]}


def test_a_sound_account_goes_before_the_papers() -> None:
    """Where both are proven, as for the curated family."""
    curated = result_of({"iterations": 3, "algorithm": {"method": "dp-admm"}, "privacy": {"noise_std": 0.1}})
    assert is_proven(curated, "epsilon_paper")
    assert r"sound $\varepsilon$" in plots.figure([curated], "error-privacy").axes[0].get_xlabel()


def test_bars_reach_from_the_smallest_to_the_largest(private: Result) -> None:
    axis = plots.figure([private], "loss", bars=True).axes[0]
    [bars] = axis.collections
    for (t, low), (_, high) in bars.get_segments():
        assert (low, high) == pytest.approx((private.loss[:, int(t)].min(), private.loss[:, int(t)].max()))


def test_nodes(private: Result) -> None:
    spread, ends, privacy = plots.figure([private], "nodes").axes
    mean = private["node_loss"].mean(axis=0)
    assert np.allclose(spread.get_lines()[0].get_ydata(), mean.mean(axis=1))
    assert band_of(spread).min() == pytest.approx(mean.min())
    assert band_of(spread).max() == pytest.approx(mean.max())
    assert np.allclose(ends.get_lines()[0].get_ydata(), mean[-1])
    assert np.allclose(privacy.get_lines()[0].get_ydata(), private["privacy/node_bound"][-1])


def test_network_has_every_node_edge_and_number(private: Result) -> None:
    axis = plots.figure([private], "network", "tight").axes[0]
    [nodes] = axis.collections
    assert np.allclose(nodes.get_array(), private["privacy/node_tight"][-1])
    places = nodes.get_offsets()
    drawn = {frozenset(map(tuple, line.get_xydata())) for line in axis.get_lines()}
    assert drawn == {frozenset((tuple(places[i]), tuple(places[j]))) for i, j in private["graph/edges"]}
    assert f"{private['privacy/node_tight'][-1, 3]:#.3g}" in axis.texts[3].get_text()


def test_the_hub_of_a_star_is_a_square_in_the_middle(star: Result) -> None:
    axis = plots.figure([star], "network").axes[0]
    nodes, hub = axis.collections
    assert (len(nodes.get_offsets()), len(hub.get_offsets())) == (5, 1)
    assert len(hub.get_paths()[0].vertices) == 5  # the corners of a square, closed
    assert np.allclose(hub.get_offsets()[0], nodes.get_offsets().mean(axis=0))


def test_tradeoff_joins_files_of_one_method(config: MakeConfig) -> None:
    results = [result_of(config("r-admm", "objective", runs=2, privacy={"alpha": alpha})) for alpha in (4.0, 1.0)]
    results.append(result_of(config("admm")))
    axis = plots.figure(results, "tradeoff", "tight").axes[0]
    line = axis.containers[0].lines[0]
    assert np.allclose(line.get_xdata(), [results[1].tight[-1], results[0].tight[-1]])
    assert np.allclose(line.get_ydata(), [results[1].loss[:, -1].mean(), results[0].loss[:, -1].mean()])


def test_tradeoff_of_a_sweep_over_another_key_too_has_a_line_for_each_of_its_values(config: MakeConfig) -> None:
    points = [(eta, alpha) for eta in (0.5, 2.0) for alpha in (4.0, 1.0)]
    made = [config("admm", "objective", algorithm={"eta": eta}, privacy={"alpha": alpha}) for eta, alpha in points]
    results = [result_of(each) for each in made]
    axis = plots.figure(results, "tradeoff", "tight").axes[0]
    assert [container.get_label() for container in axis.containers] == ["admm, eta=0.5", "admm, eta=2.0"]
    for container, some in zip(axis.containers, (results[:2], results[2:]), strict=True):
        assert np.allclose(container.lines[0].get_ydata(), [result.loss[:, -1].mean() for result in reversed(some)])


def test_observers_show_who_learns_what(private: Result) -> None:
    """The table of all pairs; and on the network each node's epsilon against who learns most and who learns least."""
    table, *networks = plots.figure([private], "observers").axes[:3]
    pairs = private["privacy/pair_epsilon"]
    np.testing.assert_array_equal(np.ma.filled(table.images[0].get_array(), np.nan), pairs)
    order = np.argsort(np.nansum(pairs, axis=0))
    for axis, observer in zip(networks, (order[-1], order[0]), strict=True):
        assert f"against node {observer}, which learns" in axis.get_title()
        shown = [text.get_text() for text in axis.texts]
        assert shown == [f"{i}" if i == observer else f"{i}\n{pairs[i, observer]:#.3g}" for i in range(6)]


@pytest.mark.parametrize("kind", list(plots.plots))
def test_every_kind_draws_one_and_many_of_both_families(
    kind: str, private: Result, plain: Result, star: Result, lossy: Result, tmp_path: Path
) -> None:
    """Of the files that have what it draws; a file that has not is named in one sentence."""
    groups = {
        "optimum": [[plain], [plain, private]], "objective-gap": [[star]], "observers": [[private], [plain], [private, plain]],
        "attacker": [[private], [private, plain, star]], "faults": [[lossy], [lossy, lossy]],
    }  # fmt: skip
    for number, results in enumerate(groups.get(kind, [[private], [star], [private, plain, star]])):
        target = tmp_path / f"{number}.png"
        plots.draw(results, target, kind, bars=bool(number))
        assert target.read_bytes().startswith(b"\x89PNG")
    if kind == "observers":
        with pytest.raises(InputError, match=rf"{star.source} has no /privacy/pair_epsilon"):
            plots.figure([star], kind)
    elif kind == "attacker":
        with pytest.raises(InputError, match=rf"{plain.source} has no /privacy/curve"):
            plots.figure([plain, star], kind)
    elif kind == "faults":
        with pytest.raises(InputError, match=rf"{star.source} has no /network/delivered"):
            plots.figure([star], kind)
    elif kind in groups:
        lacking, hint = (star, "run it again with") if kind == "optimum" else (plain, "star and curated methods record it with")
        with pytest.raises(InputError, match=rf"{lacking.source} has no /\w+, which .*; {hint} record.optimum = true"):
            plots.figure([lacking], kind)


def test_a_far_away_start_does_not_hide_the_rest(private: Result) -> None:
    """The curve comes in from above; it is not cut where the start is near the rest, or below it."""
    loss = 0.3 + 0.01 * np.zeros_like(private.loss)
    loss[:, -1] = 0.2
    for start, seen in ((9.0, False), (0.35, True), (0.0, True)):
        loss[:, 0] = start
        axis = plots.figure([changed(private, "loss", loss.copy())], "loss").axes[0]
        bottom, top = axis.get_ylim()
        assert (bottom <= start <= top) == seen
        assert bottom < 0.2 < 0.3 < top < 0.5
        assert axis.get_lines()[0].get_ydata()[0] == pytest.approx(start)


def test_a_logarithmic_axis_only_where_numbers_lie_far_apart(star: Result) -> None:
    """Of distances; a distance that is zero throughout, as of a lone node, is drawn as zero, without a warning."""
    assert plots.figure([star], "consensus").axes[0].get_yscale() == "log"
    for level in (0.0, 5.0):
        flat = changed(star, "consensus_error", np.full_like(star["consensus_error"], level))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            axis = plots.figure([flat], "consensus").axes[0]
        assert axis.get_yscale() == "linear"
        assert set(axis.get_lines()[0].get_ydata()) == {level}
    sums = changed(star, "objective", 1000 * star["objective"])
    assert plots.figure([star, sums], "objective").axes[0].get_yscale() == "log"
    assert plots.figure([star], "objective").axes[0].get_yscale() == "linear"


def test_privacy_is_logarithmic_where_files_spend_very_differently(star: Result, tmp_path: Path) -> None:
    near, far = (dpadmm_mpi.load(star_file(tmp_path / f"{sound}.h5", f"{sound}", sound=sound)) for sound in (50.0, 4000.0))
    for kind in ("loss-privacy", "tradeoff"):
        assert plots.figure([star, near], kind).axes[0].get_xscale() == "linear"
        assert plots.figure([star, far], kind).axes[0].get_xscale() == "log"


def test_against_privacy_only_where_something_is_private(private: Result, plain: Result) -> None:
    for kind in ("loss-privacy", "error-privacy", "tradeoff"):
        with pytest.raises(
            InputError, match=rf"{plain.source}: P\(t\), the paper's bound is infinite, and the kind \"{kind}\""
        ):
            plots.figure([plain], kind)
        looks = [(line.get_color(), line.get_marker()) for line in plots.figure([private, plain], kind).axes[0].get_lines()]
        assert (COLOURS[1], MARKERS[1]) in looks  # the level of the file without noise


def test_the_accounts_are_explained_beside_the_curves_not_on_them(private: Result, star: Result) -> None:
    for result in (star, private):
        figure = plots.figure([result])
        figure.draw_without_rendering()
        axis = figure.axes[-1]
        highest = max(axis.transData.transform((0, line.get_ydata().max()))[1] for line in drawn(axis))
        assert axis.get_legend().get_window_extent().y0 > highest


def test_an_infinite_account_is_said_where_it_would_be(private: Result, plain: Result) -> None:
    partly = changed(private, "privacy/tight", np.full_like(private.tight, np.inf))
    said = [[text.get_text() for text in axis.texts] for axis in plots.figure([private, plain, partly], "privacy").axes]
    assert said == [["1 of 3 not private: infinite"], ["2 of 3 not private: infinite"], ["1 of 3 not private: infinite"]]
    assert "tighter pure bound: infinite" in texts(plots.figure([partly], "privacy").axes[0])


@pytest.mark.parametrize("kind", ["overview", "loss", "privacy", "loss-privacy", "nodes", "network"])
def test_no_words_are_cut_off_at_the_edge(kind: str, private: Result, plain: Result, star: Result) -> None:
    """Long names, a title with two accounts, many files."""
    long = changed(private, "loss", private.loss)
    long.attributes["/"]["name"] = "a name that goes on " * 6
    for results in ([private], [long], [long, plain, star], [long, plain, star] * 3):
        assert outside(plots.figure(results, kind)) == []


def test_a_long_legend_leaves_the_panels_their_size(private: Result) -> None:
    def height(count: int) -> float:
        figure = plots.figure([private] * count, "loss")
        figure.draw_without_rendering()
        return float(figure.axes[0].get_window_extent().height)

    assert height(30) == pytest.approx(height(2), rel=0.1)


def test_networks_of_one_or_two_places_are_drawn(private: Result, tmp_path: Path) -> None:
    """A lone node, and one provider with its hub: a square view, with the places apart and inside."""
    curated = dpadmm_mpi.load(star_file(tmp_path / "one.h5", nodes=1))
    figure = plots.figure([curated], "network")
    figure.draw_without_rendering()
    axis = figure.axes[0]
    at, hub = (axis.transData.transform(places.get_offsets()[0]) for places in axis.collections)
    box = axis.get_window_extent()
    assert box.width > 200
    assert box.height > 200
    assert np.linalg.norm(at - hub) > 0.5 * box.width
    assert box.contains(*at)
    assert box.contains(*hub)


def test_nodes_are_counted_in_whole_numbers(tmp_path: Path) -> None:
    for nodes, ticks in ((1, [0]), (5, [0, 1, 2, 3, 4]), (30, list(range(0, 30, 3)))):
        axis = plots.figure([dpadmm_mpi.load(star_file(tmp_path / f"{nodes}.h5", nodes=nodes))], "nodes").axes[1]
        assert axis.get_xticks().tolist() == ticks


def test_numbers_that_are_as_good_as_equal_look_equal(star: Result) -> None:
    """A thousandth more is no other colour, nor far away on the axis."""
    costs = star["privacy/node_epsilon_sound"].copy()
    costs[-1, 0] *= 1.001
    alike = changed(star, "privacy/node_epsilon_sound", costs)
    bottom, top = plots.figure([alike], "nodes").axes[2].get_ylim()
    assert top - bottom > 3
    [nodes, _] = plots.figure([alike], "network", "epsilon_sound").axes[0].collections
    assert np.ptp(nodes.norm(nodes.get_array())) < 0.02


def test_a_result_keeps_its_look_among_others(private: Result, plain: Result, star: Result) -> None:
    lines = plots.figure([plain, star], "loss", places=(3, 1)).axes[0].get_lines()
    assert [(line.get_color(), line.get_marker()) for line in lines] == [(COLOURS[k], MARKERS[k]) for k in (3, 1)]


def test_more_and_less_in_a_file_than_expected(tmp_path: Path) -> None:
    """Accounts and measurements of tomorrow, nothing but losses, no test records."""
    path = star_file(tmp_path / "extra.h5", extra=True, gap=False)
    extra = dpadmm_mpi.load(path)
    assert "moments, not proven" in texts(plots.figure([extra], "privacy").axes[0])
    assert plots.figure([extra], "network", "moments").axes
    with h5py.File(path, "r+") as file:
        del file["privacy"], file["objective"]
        file["test_error"][...] = np.nan
    result = dpadmm_mpi.load(path)
    assert len(plots.figure([result]).axes) == 2
    assert len(plots.figure([result], "nodes").axes) == 2
    for kind, sentence in {
        "test-error": "has no test records",
        "objective": "has no /objective, which",
        "loss-privacy": "has no privacy account",
    }.items():
        with pytest.raises(InputError, match=sentence):
            plots.figure([result], kind)


def test_incomplete_files(private: Result, tmp_path: Path) -> None:
    """Rows that no run reached are not drawn, and the name says so; a file without any row is refused."""
    path = Path(shutil.copy(private.source, tmp_path / "private.h5"))
    with h5py.File(path, "r+") as file:
        for name in ("loss", "test_error", "node_loss"):
            file[name][1, 3:] = np.nan
            file[name][:, 5:] = np.nan
        file.attrs["complete"] = False
    cut = dpadmm_mpi.load(path)
    figure = plots.figure([cut])
    assert [len(line.get_xdata()) for axis in figure.axes for line in axis.get_lines() if len(line.get_xdata())] == [5] * 5
    assert "(incomplete)" in figure.get_suptitle()
    assert command("plot", path, "-o", tmp_path / "p.png").returncode == 0
    assert "incomplete" in command("show", path).stdout
    for kind in ("nodes", "network", "loss-privacy", "tradeoff"):
        plots.figure([cut], kind)
    with h5py.File(path, "r+") as file:
        file["loss"][...] = np.nan
    with pytest.raises(InputError, match=r"has no number in /loss.*nothing was recorded"):
        plots.figure([dpadmm_mpi.load(path)])


def test_strange_names_are_drawn_as_they_are(config: MakeConfig) -> None:
    """Neither mathematics nor hidden: dollars, leading underscores, very long names."""
    names = ["$x_1$ & <b>", "_hidden", "long " * 40]
    results = [result_of(config(iterations=2) | {"name": name}) for name in names]
    shown = [text.get_text() for text in plots.figure(results, "loss").legends[0].get_texts()]
    assert [text.split("\n")[0].strip()[:8] for text in shown] == ["$x_1$ & ", "_hidden", "long lon"]
    assert max(len(line) for text in shown for line in text.split("\n")) <= 60
    for result in results:
        assert plots.figure([result], "loss").get_suptitle().strip()


@pytest.mark.parametrize(
    ("words", "formulas"),
    [
        ("epsilon (delta 1e-05)", r"$\varepsilon$ ($\delta$ = $10^{-5}$)"),
        ("P(t) of 2.5e+06", r"$P(t)$ of $2.5\times 10^{6}$"),
        ("m-admm, alpha=0.5, eta = 2", r"m-admm, $\alpha$=0.5, $\eta$ = 2"),
        ("costs $5 at epsilon", r"costs \$5 at $\varepsilon$"),
        ("an alpha version, epsilon_sound, 1e5x", None),
    ],
)
def test_formulas(words: str, formulas: str | None) -> None:
    assert typeset(words) == formulas


@pytest.mark.parametrize("kind", ["overview", "loss-privacy", "network", "nodes", "tradeoff"])
def test_no_formula_comes_from_a_file(kind: str, private: Result, star: Result, tmp_path: Path) -> None:
    """Names and titles of accounts that would be, or would break, formulas of matplotlib are drawn as they are."""
    for name in (r"$\frac{1}{epsilon}$", r"\$epsilon$ $\nonsense{", r"\epsilon $ delta 1e-5"):
        strange = changed(private, "loss", private.loss)
        strange.attributes["/"]["name"] = name
        strange.attributes["privacy/bound"] = {**private.attributes["privacy/bound"], "title": name}
        for results in ([strange], [strange, star]):
            figure = plots.figure(results, kind)
            figure.savefig(tmp_path / "x.svg")  # a formula that is none cannot be drawn
            for text in figure.findobj(matplotlib.text.Text):
                if text.get_parse_math() and "frac" in text.get_text():
                    assert r"\$\frac{1}" in text.get_text()


def test_curves_look_different_also_in_grey(private: Result) -> None:
    """The first eight by their markers alone; forty by marker and line style; and nothing in a grey figure has a colour."""
    lines = plots.figure([private] * 40, "loss").axes[0].get_lines()
    assert len({line.get_marker() for line in lines[:8]}) == 8
    assert len({looks(line)[1:] for line in lines}) == 40
    assert np.gcd(len(STYLES), len(MARKERS)) == np.gcd(len(COLOURS), len(MARKERS)) == np.gcd(len(COLOURS), len(STYLES)) == 1
    for kind in ("overview", "nodes", "network"):
        figure = plots.figure([private] * 9, kind, grey=True)
        figure.savefig(pixels := io.BytesIO(), format="rgba")
        red, green, blue, _ = np.frombuffer(pixels.getvalue(), np.uint8).reshape(-1, 4).astype(int).T
        assert max(np.abs(red - green).max(), np.abs(green - blue).max()) <= 1


def test_a_picture_leaves_the_users_matplotlib_alone(private: Result, tmp_path: Path) -> None:
    before = dict(matplotlib.rcParams)
    plots.draw([private], tmp_path / "p.svg")
    assert dict(matplotlib.rcParams) == before
    plots.draw([private], tmp_path / "again.svg")
    assert (tmp_path / "p.svg").read_bytes() == (tmp_path / "again.svg").read_bytes()


@pytest.mark.parametrize(("ending", "start"), [("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF")])
def test_plot_command(private: Result, plain: Result, tmp_path: Path, ending: str, start: bytes) -> None:
    process = command("plot", private.source, plain.source, "-o", tmp_path / f"p.{ending}")
    assert process.returncode == 0, process.stderr
    assert (tmp_path / f"p.{ending}").read_bytes().startswith(start)


def test_plot_names_its_file_after_the_kind(private: Result, tmp_path: Path) -> None:
    file = shutil.copy(private.source, tmp_path / "private.h5")
    assert f"written: {tmp_path / 'private.png'}" in command("plot", file).stdout
    process = command("plot", file, "--kind", "loss-privacy", "--account", "epsilon")
    assert f"written: {tmp_path / 'private-loss-privacy.png'}" in process.stdout


def test_refusals_are_one_sentence(private: Result, tmp_path: Path) -> None:
    file = private.source
    for arguments, sentence in {
        ("--kind", "los"): 'kind: found "los"; it must be one of overview, loss,',
        ("--kind", "netwrk"): 'observers; did you mean "network"?',
        ("--kind", "objective-gap"): "has no /objective_gap",
        ("--account", "epsilon_sound"): 'has no account "epsilon_sound"; it has bound, tight, epsilon',
        ("-o", str(tmp_path / "p.xyz")): 'found the ending ".xyz"; it must be one of .png, .svg, .pdf',
        ("-o", str(tmp_path / "no" / "p.png")): "cannot be written: No such file or directory",
    }.items():
        process = command("plot", file, *arguments)
        assert process.returncode == 2
        [said] = sentences(process)
        assert sentence in said
        assert len(process.stderr.splitlines()) == 1


def test_help_names_every_kind() -> None:
    text = command("plot", "--help").stdout
    for kind in plots.plots:
        assert kind in text


def test_curves_over_seconds_and_bytes(shared_config: MakeConfig, private: Result, tmp_path: Path) -> None:
    """The same values, where virtual time or bytes were at each row; refused where nothing of that was recorded."""
    raw = shared_config("admm")
    timed = result_of(raw | {"network": raw["network"] | {"time": {"latency": 0.5}}}, tmp_path / "timed.h5")
    for x, title in (("seconds", "virtual time [s]"), ("bytes", "sent by all nodes [B]")):
        [axis] = plots.figure([timed], "loss", x=x).axes
        assert axis.get_xlabel() == title
        assert np.array_equal(axis.lines[0].get_xdata(), timed[f"network/{x}"][0])
        assert np.array_equal(axis.lines[0].get_ydata(), timed["loss"][0])
    for results, kind, x, words in (
        ([timed, private], "loss", "seconds", r"has no /network/seconds; give \[network.time\]"),
        ([timed], "tradeoff", "bytes", "is not drawn over the iterations"),
        ([timed], "loss", "hours", 'found "hours"; it must be one of iteration, seconds, bytes'),
    ):
        with pytest.raises(InputError, match=words):
            plots.figure(results, kind, x=x)
    process = command("plot", tmp_path / "timed.h5", "--kind", "loss", "--x", "seconds", "-o", tmp_path / "a.svg")
    assert process.returncode == 0 and "virtual time" in (tmp_path / "a.svg").read_text()
