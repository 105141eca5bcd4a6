"""Variants, sweeps and --set: what is inherited, what is left behind, and what is refused."""

from pathlib import Path

import pytest
from support import Raw

from dpadmm_mpi.errors import InputError
from dpadmm_mpi.methods.base import as_table
from dpadmm_mpi.storage.experiments import load

BASE: Raw = {
    "algorithm": {"method": "mr-admm", "eta": 1.0, "gamma": 0.3, "theta": 0.5},
    "privacy": {"perturbation": "objective", "alpha": 1.0},
}


def configs(raw: Raw | Path, *overrides: str, only: str | None = None) -> dict[str, Raw]:
    """The resolved configurations by name, as plain tables; what a choice has no meaning for is not in them."""
    return {c.name: as_table(c) for c in load(raw, overrides, only).configs}


def privacy(raw: Raw, *overrides: str) -> Raw:
    """That section of the only configuration."""
    (found,) = configs(raw, *overrides).values()
    section: Raw = found["privacy"]
    return section


def test_variants_inherit_and_leave_behind() -> None:
    """A variant inherits key by key; keys that its own choice gives no meaning to stay behind."""
    raw = BASE | {
        "variant": [
            {"name": "as it is"},
            {"name": "R", "algorithm": {"method": "r-admm"}},
            {"name": "plain", "algorithm": {"method": "admm"}, "privacy": {"perturbation": "none"}},
            {"name": "calibrated", "privacy": {"target": 4.0}},
        ]
    }
    found = configs(raw)
    assert found["as it is"]["algorithm"]["theta"] == 0.5
    assert (found["R"]["algorithm"]["gamma"], "theta" in found["R"]["algorithm"]) == (0.3, False)
    assert not {"gamma", "alpha"} & {*found["plain"]["algorithm"], *found["plain"]["privacy"]}
    assert ("alpha" in found["calibrated"]["privacy"], found["calibrated"]["privacy"]["target"]) == (False, 4.0)


def test_sweep_is_the_product_and_set_collapses_an_axis() -> None:
    raw = BASE | {"name": "s", "sweep": {"privacy.alpha": [2.0, 1.0], "seed": [1, 2, 3]}}
    found = configs(raw)
    assert len(found) == 6
    assert found["s, alpha=1.0, seed=3"]["privacy"]["alpha"] == 1.0
    assert found["s, alpha=1.0, seed=3"]["seed"] == 3
    assert set(configs(raw, "privacy.alpha=7")) == {"s, seed=1", "s, seed=2", "s, seed=3"}
    assert load(raw).collection
    nested = BASE | {"sweep": {"privacy": {"alpha": [1.0, 2.0]}}}  # unquoted dots in TOML
    assert len(configs(nested)) == 2


def test_variants_times_sweep() -> None:
    raw = BASE | {"variant": [{"name": "a"}, {"name": "b"}], "sweep": {"seed": [1, 2]}}
    assert list(configs(raw)) == ["a, seed=1", "a, seed=2", "b, seed=1", "b, seed=2"]


def test_settings_must_agree_with_each_other_in_any_order() -> None:
    """What --set says explicitly is never dropped without a word."""
    for pair in (("privacy.alpha=2", "privacy.target=3"), ("privacy.alpha=2", "privacy.perturbation=none")):
        for order in (pair, pair[::-1]):
            with pytest.raises(InputError, match=r"privacy\.alpha"):
                configs(BASE, *order)


def test_odd_values_are_refused_in_words() -> None:
    for override in ("algorithm.method=[1]", "data=3", "privacy.alpha=[[[1]]]"):
        with pytest.raises(InputError, match="found"):
            configs(BASE, override)
    with pytest.raises(InputError, match="is set as a whole already"):
        configs(BASE, "privacy=3", "privacy.alpha=1")


def test_python_values_are_welcome(tmp_path: Path) -> None:
    import numpy as np

    raw = {"runs": np.int64(2), "data": {"source": "npz", "path": tmp_path / "a.npz"}, "algorithm": {"eta": np.float64(2.0)}}
    [one] = configs(raw).values()
    assert (one["runs"], one["algorithm"]["eta"], one["data"]["path"]) == (2, 2.0, str(tmp_path / "a.npz"))
    with pytest.raises(InputError, match="3: unknown key"):
        configs({3: 4})  # type: ignore[dict-item]  # as a careless user might


def test_set_overrides_everything() -> None:
    raw = BASE | {"variant": [{"name": "a", "runs": 2}]}
    [one] = configs(raw, "runs=9", "algorithm.eta={first = 1.0, ratio = 1.1}", "algorithm.init=zero").values()
    assert (one["runs"], one["algorithm"]["init"], one["algorithm"]["eta"]["ratio"]) == (9, "zero", 1.1)


@pytest.mark.parametrize(
    ("raw", "overrides", "sentence"),
    [
        ({"variant": [{"runs": 2}]}, (), "variant[0].name: missing"),
        ({"variant": {"name": "x"}}, (), "write each as [[variant]]"),
        ({"variant": [{"name": "a b"}, {"name": "a-b"}]}, (), "same file name"),
        ({"variant": [{"name": "a", "runs": 0}]}, (), 'variant "a": runs: found 0'),
        ({"sweep": {"seed": 3}}, (), "sweep.seed: found 3; a list"),
        ({"sweep": {"sead": [3]}}, (), 'sead: unknown key; did you mean "seed"?'),
        ({}, ("runs",), '--set runs: found no "="'),
        ({}, ("privcy.alpha=1",), 'privcy: unknown key; did you mean "privacy"?'),
    ],
)
def test_bad_collections_are_refused(raw: Raw, overrides: tuple[str, ...], sentence: str) -> None:
    with pytest.raises(InputError) as caught:
        load(raw, overrides)
    assert sentence in str(caught.value)


def test_only_picks_a_variant_or_names_them_all() -> None:
    raw = {"variant": [{"name": "a"}, {"name": "b"}]}
    assert list(configs(raw, only="b")) == ["b"]
    with pytest.raises(InputError, match='no such variant; there are "a", "b"'):
        configs(raw, only="c")


def test_only_takes_a_variants_name_for_all_its_points() -> None:
    raw = BASE | {"variant": [{"name": "a"}, {"name": "b"}], "sweep": {"seed": [1, 2]}}
    assert list(configs(raw, only="b")) == ["b, seed=1", "b, seed=2"]


def test_with_only_the_other_variants_need_not_take_what_is_set() -> None:
    raw = BASE | {
        "variant": [{"name": "MR"}, {"name": "plain", "algorithm": {"method": "admm"}, "privacy": {"perturbation": "none"}}]
    }
    assert configs(raw, "algorithm.gamma=0.9", only="MR")["MR"]["algorithm"]["gamma"] == 0.9
    with pytest.raises(InputError, match=r'variant "plain": algorithm\.gamma'):
        configs(raw, "algorithm.gamma=0.9")
    with pytest.raises(InputError, match=r'variant "plain": algorithm\.gamma'):
        configs(raw, "algorithm.gamma=0.9", only="plain")


def test_a_target_and_the_growth_of_alpha_go_together() -> None:
    for order in (("privacy.target=2", "privacy.alpha={ratio=1.1}"), ("privacy.alpha={ratio=1.1}", "privacy.target=2")):
        found = privacy(BASE, *order)
        assert (found["target"], found["alpha"]) == (2.0, {"ratio": 1.1})


def test_paths_are_meant_from_the_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "c.toml").write_text('[data]\nsource = "npz"\npath = "../d.npz"\n')
    found = configs(tmp_path / "sub" / "c.toml")
    assert list(found) == ["c"]
    assert found["c"]["data"]["path"] == str(tmp_path / "d.npz")


@pytest.mark.parametrize(
    ("content", "sentence"),
    [(None, "no such configuration file"), (b"a = ", "not valid TOML"), (b"\xff\xfe", "cannot be read")],
)
def test_unreadable_files_are_refused(tmp_path: Path, content: bytes | None, sentence: str) -> None:
    path = tmp_path / "c.toml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError, match=sentence):
        load(path)


NOISY: Raw = {"privacy": {"perturbation": "objective", "alpha": 1.0}}


GAUSSIAN_BASE: Raw = {"algorithm": {"method": "ps-admm"}, "privacy": {"target": 1.0, "target_account": "paper"}}


def ways_to_name_a_method(method: str) -> tuple[tuple[Raw, tuple[str, ...]], ...]:
    """A variant, --set and a sweep."""
    return (
        ({"variant": [{"name": "v", "algorithm": {"method": method}}]}, ()),
        ({}, (f"algorithm.method={method}",)),
        ({"sweep": {"algorithm.method": [method]}}, ()),
    )


@pytest.mark.parametrize("method", ["r-admm", "m-admm"])
def test_naming_another_method_of_the_family_keeps_the_noise(method: str) -> None:
    for more, overrides in ways_to_name_a_method(method):
        found = privacy(NOISY | more, *overrides)
        assert (found["perturbation"], found["alpha"]) == ("objective", 1.0)


@pytest.mark.parametrize("method", ["admm", "mr-admm"])
def test_gaussian_noise_is_not_lost_without_a_word(method: str) -> None:
    """A method that could be private must say what it takes instead."""
    for more, overrides in ways_to_name_a_method(method):
        with pytest.raises(InputError, match=f'"gaussian" is inherited, but {method} does not take it'):
            load(GAUSSIAN_BASE | more, overrides)
    said = {"variant": [{"name": "v", "algorithm": {"method": method}, "privacy": {"perturbation": "none"}}]}
    assert privacy(GAUSSIAN_BASE | said)["perturbation"] == "none"


@pytest.mark.parametrize(("base", "method"), [(NOISY, "s-admm"), (NOISY, "gl-admm"), (GAUSSIAN_BASE, "star-admm")])
def test_a_method_without_noise_leaves_it_behind(base: Raw, method: str) -> None:
    for more, overrides in ways_to_name_a_method(method):
        assert privacy(base | more, *overrides)["perturbation"] == "none"


@pytest.mark.parametrize(("method", "perturbation"), [("admm", "gaussian"), ("dp-admm", "objective"), ("one-shot", "dual")])
def test_noise_that_a_method_does_not_take_is_refused(method: str, perturbation: str) -> None:
    """Where method and noise stand in one file nothing is inherited, so nothing may be left behind: that would be a run without
    noise."""
    with pytest.raises(InputError, match=f'"{perturbation}" does not go with {method}'):
        load({"algorithm": {"method": method}, "privacy": {"perturbation": perturbation, "target": 1.0}}, ())


def test_a_gaussian_method_does_not_inherit_another_noise() -> None:
    for more, overrides in ways_to_name_a_method("ps-admm"):
        with pytest.raises(InputError, match="ps-admm needs one of"):
            load(NOISY | more, overrides)


def test_a_target_alone_is_inherited_by_gaussian_methods() -> None:
    for more, overrides in ways_to_name_a_method("dp-admm"):
        found = privacy({"privacy": {"target": 2.0}} | more, *overrides)
        assert (found["perturbation"], found["target"], found["target_account"]) == ("gaussian", 2.0, "sound")


@pytest.mark.parametrize("instead", [{"perturbation": "none"}, {"noise_std": 2.0}])
def test_a_target_takes_its_account_along_when_it_is_left_behind(instead: Raw) -> None:
    raw = GAUSSIAN_BASE | {"variant": [{"name": "v", "privacy": instead}]}
    assert not {"target", "target_account"} & privacy(raw).keys()
