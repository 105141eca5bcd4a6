"""Strict configuration: what is refused, and with which sentence; defaults; round trip."""

import pytest

from dpadmm_mpi.config.options import files as configfile
from dpadmm_mpi.config.options import options as config
from dpadmm_mpi.config.reading import parse
from dpadmm_mpi.errors import InputError

REFUSED = [
    # unknown keys, with the nearest known one
    ({"itertions": 3}, 'itertions: unknown key; did you mean "iterations"?'),
    ({"privacy": {"aplha": 1.0}}, 'privacy.aplha: unknown key; did you mean "privacy.alpha"?'),
    ({"alpha": 1.0}, 'alpha: unknown key; did you mean "privacy.alpha"?'),
    ({"algorithm": {"eta": {"first": 1.0, "ratoi": 2.0}}}, 'eta.ratoi: unknown key; did you mean "algorithm.eta.ratio"?'),
    ({"privacy": {"alpha": [1.0, {"frist": 1.0}]}}, 'alpha[1].frist: unknown key; did you mean "privacy.alpha[1].first"?'),
    ({"data": {"quux": 1}}, "data.quux: unknown key; known here: source, train,"),
    # wrong types
    ({"runs": "ten"}, 'runs: found "ten"; expected a whole number'),
    ({"runs": 1.5}, "runs: found 1.5; expected a whole number"),
    ({"runs": True}, "runs: found true; expected a whole number"),
    ({"data": 3}, "data: found 3; expected a table"),
    ({"algorithm": {"eta": "big"}}, 'algorithm.eta: found "big"; allowed: a number, a table, a list, auto'),
    ({"algorithm": {"eta": [1.0, [1.0, "x"]]}}, 'algorithm.eta[1][1]: found "x"; expected a number'),
    ({"algorithm": {"eta": {"first": 1.0}}}, "algorithm.eta.ratio: missing"),
    ({"record": {"trajectory": 1}}, "record.trajectory: found 1; expected true or false"),
    # out of range
    ({"runs": 0}, "runs: found 0; expected a whole number >= 1"),
    ({"seed": -1}, "seed: found -1; expected a whole number >= 0"),
    ({"problem": {"rho": 0.0}}, "problem.rho: found 0.0; expected a number > 0"),
    ({"problem": {"C": float("inf")}}, "problem.C: found inf; a finite number is needed"),
    ({"algorithm": {"eta": [1.0, float("nan")]}}, "algorithm.eta[1]: found nan; a finite number is needed"),
    ({"privacy": {"perturbation": "objective", "alpha": 0.0}}, "privacy.alpha: found 0.0; expected a number > 0"),
    ({"privacy": {"perturbation": "objective", "alpha": [{"first": -2, "ratio": 1}]}}, "privacy.alpha[0].first: found -2"),
    ({"data": {"train": 1.5}}, "data.train: found 1.5; expected a number <= 1"),
    ({"data": {"sizes": [3, 0]}}, "data.sizes[1]: found 0; expected a whole number >= 1"),
    # not one of the choices
    ({"algorithm": {"method": "mradmm"}}, 'gl-admm; did you mean "mr-admm"?'),
    ({"network": {"graph": "torus"}}, 'network.graph: found "torus"; allowed: complete, edges, grid,'),
    ({"data": {"source": "npz", "path": "x", "preprocess": ["scale"]}}, 'data.preprocess[0]: found "scale"; allowed: '),
    # keys that a choice gives no meaning to, and keys that it needs
    ({"algorithm": {"method": "admm", "gamma": 1.0}}, 'algorithm.gamma: has no meaning for algorithm.method = "admm"'),
    ({"algorithm": {"method": "r-admm", "theta": 1.0}}, "choose m-admm or mr-admm"),
    ({"network": {"graph": "ring", "degree": 3}}, 'network.degree: has no meaning for network.graph = "ring"'),
    ({"network": {"graph": "edges"}}, 'network.path: missing; network.graph = "edges" needs it'),
    ({"data": {"source": "csv"}}, 'data.path: missing; data.source = "csv" needs it'),
    ({"problem": {"width": 0.3}}, 'problem.width: has no meaning for problem.loss = "logistic"'),
    # privacy that would be lost without a word
    ({"privacy": {"alpha": 1.0}}, 'privacy.alpha: has no meaning for privacy.perturbation = "none"'),
    ({"privacy": {"perturbation": "dual"}}, 'privacy.alpha: missing; perturbation = "dual" needs alpha'),
    ({"privacy": {"perturbation": "dual", "alpha": {"ratio": 1.1}}}, "needs alpha with its first value"),
    ({"privacy": {"perturbation": "dual", "alpha": 1.0, "target": 2.0}}, "privacy.alpha and privacy.target: give one"),
    ({"privacy": {"perturbation": "dual", "alpha": [{"ratio": 1.0}, 5.0], "target": 2.0}}, "privacy.alpha and privacy.target"),
    ({"algorithm": {"method": "ps-admm"}, "privacy": {"target": 1.0, "allow_unproven": True}},
     'privacy.allow_unproven: has no meaning for privacy.perturbation = "gaussian"'),
    ({"algorithm": {"method": "dp-admm"}, "privacy": {"noise_std": 1e-31}},
     "privacy.noise_std: found 1e-31; expected a number >="),
    ({"algorithm": {"method": "dp-admm"}, "privacy": {"target": 1e31}}, "privacy.target: found 1e+31; expected a number <="),
    ({"privacy": {"delta": 1e-300}}, "privacy.delta: found 1e-300; expected a number >= 1e-30"),
    # keys whose choice is itself without meaning
    ({"algorithm": {"method": "star-admm"}, "network": {"degree": 3}},
     'network.degree: has no meaning for algorithm.method = "star-admm"; remove it'),
    ({"algorithm": {"method": "star-admm"}, "problem": {"sparsity": 0.3}},
     'problem.sparsity: has no meaning for algorithm.method = "star-admm"; remove it'),
    ({"algorithm": {"method": "s-admm", "eta": "big"}}, 'algorithm.eta: found "big"; allowed: a number, auto'),
    # combinations
    ({"algorithm": {"method": "m-admm", "eta": {"ratio": 1.1}}}, "algorithm.eta: the geometric schedule needs its first value"),
    ({"record": {"trajectory": True, "every": 2}}, "record.every: must be 1 with record.trajectory"),
    ({"data": {"sizes": [10, 10], "train": 30}}, "data.sizes: they add up to 20, but data.train = 30"),
    ({"data": {"sizes": [10, 10], "split": "even"}}, 'data.sizes: has no meaning for data.split = "even"'),
]  # fmt: skip


@pytest.mark.parametrize(("raw", "sentence"), REFUSED)
def test_refused_in_one_sentence(raw, sentence):
    with pytest.raises(InputError) as caught:
        parse(raw)
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


def test_allow_unproven_is_false_where_it_has_a_meaning():
    proven = {"perturbation": "dual", "alpha": 1.0}
    assert parse({"privacy": proven}).privacy.allow_unproven is False
    assert parse({"privacy": proven | {"allow_unproven": True}}).privacy.allow_unproven is True
    assert parse({"privacy": {"allow_unproven": False}}).privacy.allow_unproven is None


def test_an_empty_configuration_is_complete():
    """Defaults that work: nothing is left open but what its choice leaves open."""
    parsed = parse({})
    assert (parsed.network.nodes, parsed.data.records, parsed.privacy.perturbation) == (5, 10_000, "none")
    assert parsed.algorithm.gamma is None
    assert parse({"algorithm": {"method": "r-admm"}}).algorithm.gamma == 0.5


def test_resolved_text_parses_to_the_same_configuration():
    import tomllib

    raw = {
        "name": 'quotes " and ümlauts',
        "data": {"sizes": [10, 20]},
        "network": {"nodes": 2, "graph": "small-world", "degree": 2},
        "problem": {"loss": "huber"},
        "algorithm": {"method": "mr-admm", "eta": [{"first": 1, "ratio": 1.04}, [1.0, 2.0]], "theta": 0.1},
        "privacy": {"perturbation": "objective", "target": 3, "alpha": {"ratio": 1.01}},
    }
    parsed = parse(raw)
    again = parse(tomllib.loads(config.to_toml(parsed)))
    assert again == parsed
    assert config.fingerprint(again) == config.fingerprint(parsed)
    assert config.fingerprint(parse(raw | {"seed": 2})) != config.fingerprint(parsed)


BASE = {
    "algorithm": {"method": "mr-admm", "eta": 1.0, "gamma": 0.3, "theta": 0.5},
    "privacy": {"perturbation": "objective", "alpha": 1.0},
}


def configs(raw, *overrides, only=None):
    return {c.name: c for c in configfile.load(raw, overrides, only).configs}


def test_variants_inherit_and_leave_behind():
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
    assert found["as it is"].algorithm.theta == 0.5
    assert (found["R"].algorithm.gamma, found["R"].algorithm.theta) == (0.3, None)
    assert (found["plain"].algorithm.gamma, found["plain"].privacy.alpha) == (None, None)
    assert (found["calibrated"].privacy.alpha, found["calibrated"].privacy.target) == (None, 4.0)


def test_sweep_is_the_product_and_set_collapses_an_axis():
    raw = BASE | {"name": "s", "sweep": {"privacy.alpha": [2.0, 1.0], "seed": [1, 2, 3]}}
    found = configs(raw)
    assert len(found) == 6
    assert found["s, alpha=1.0, seed=3"].privacy.alpha == 1.0
    assert found["s, alpha=1.0, seed=3"].seed == 3
    assert set(configs(raw, "privacy.alpha=7")) == {"s, seed=1", "s, seed=2", "s, seed=3"}
    assert configfile.load(raw).collection
    nested = BASE | {"sweep": {"privacy": {"alpha": [1.0, 2.0]}}}  # unquoted dots in TOML
    assert len(configs(nested)) == 2


def test_variants_times_sweep():
    raw = BASE | {"variant": [{"name": "a"}, {"name": "b"}], "sweep": {"seed": [1, 2]}}
    assert list(configs(raw)) == ["a, seed=1", "a, seed=2", "b, seed=1", "b, seed=2"]


def test_settings_must_agree_with_each_other_in_any_order():
    """What --set says explicitly is never dropped without a word."""
    for pair in (("privacy.alpha=2", "privacy.target=3"), ("privacy.alpha=2", "privacy.perturbation=none")):
        for order in (pair, pair[::-1]):
            with pytest.raises(InputError, match=r"privacy\.alpha"):
                configs(BASE, *order)


def test_odd_values_are_refused_in_words():
    for override in ("algorithm.method=[1]", "data=3", "privacy.alpha=[[[1]]]"):
        with pytest.raises(InputError, match="found"):
            configs(BASE, override)
    with pytest.raises(InputError, match="is set as a whole already"):
        configs(BASE, "privacy=3", "privacy.alpha=1")


def test_python_values_are_welcome(tmp_path):
    import numpy as np

    raw = {"runs": np.int64(2), "data": {"source": "npz", "path": tmp_path / "a.npz"}, "algorithm": {"eta": np.float64(2.0)}}
    [one] = configs(raw).values()
    assert (one.runs, one.algorithm.eta, one.data.path) == (2, 2.0, str(tmp_path / "a.npz"))
    with pytest.raises(InputError, match="3: unknown key"):
        configs({3: 4})


def test_set_overrides_everything():
    raw = BASE | {"variant": [{"name": "a", "runs": 2}]}
    [one] = configs(raw, "runs=9", "algorithm.eta={first = 1.0, ratio = 1.1}", "algorithm.init=zero").values()
    assert (one.runs, one.algorithm.init, one.algorithm.eta.ratio) == (9, "zero", 1.1)


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
def test_bad_collections_are_refused(raw, overrides, sentence):
    with pytest.raises(InputError) as caught:
        configfile.load(raw, overrides)
    assert sentence in str(caught.value)


def test_only_picks_a_variant_or_names_them_all():
    raw = {"variant": [{"name": "a"}, {"name": "b"}]}
    assert list(configs(raw, only="b")) == ["b"]
    with pytest.raises(InputError, match='no such variant; there are "a", "b"'):
        configs(raw, only="c")


def test_only_takes_a_variants_name_for_all_its_points():
    raw = BASE | {"variant": [{"name": "a"}, {"name": "b"}], "sweep": {"seed": [1, 2]}}
    assert list(configs(raw, only="b")) == ["b, seed=1", "b, seed=2"]


def test_with_only_the_other_variants_need_not_take_what_is_set():
    raw = BASE | {
        "variant": [{"name": "MR"}, {"name": "plain", "algorithm": {"method": "admm"}, "privacy": {"perturbation": "none"}}]
    }
    assert configs(raw, "algorithm.gamma=0.9", only="MR")["MR"].algorithm.gamma == 0.9
    with pytest.raises(InputError, match=r'variant "plain": algorithm\.gamma'):
        configs(raw, "algorithm.gamma=0.9")
    with pytest.raises(InputError, match=r'variant "plain": algorithm\.gamma'):
        configs(raw, "algorithm.gamma=0.9", only="plain")


def test_a_target_and_the_growth_of_alpha_go_together():
    for order in (("privacy.target=2", "privacy.alpha={ratio=1.1}"), ("privacy.alpha={ratio=1.1}", "privacy.target=2")):
        [one] = configs(BASE, *order).values()
        assert (one.privacy.target, one.privacy.alpha.ratio) == (2.0, 1.1)


def test_paths_are_meant_from_the_configuration(tmp_path, monkeypatch):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "c.toml").write_text('[data]\nsource = "npz"\npath = "../d.npz"\n')
    [one] = configfile.load(tmp_path / "sub" / "c.toml").configs
    assert one.data.path == str(tmp_path / "d.npz")
    assert one.name == "c"


@pytest.mark.parametrize(
    ("content", "sentence"),
    [(None, "no such configuration file"), (b"a = ", "not valid TOML"), (b"\xff\xfe", "cannot be read")],
)
def test_unreadable_files_are_refused(tmp_path, content, sentence):
    path = tmp_path / "c.toml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError, match=sentence):
        configfile.load(path)


NOISY = {"privacy": {"perturbation": "objective", "alpha": 1.0}}
GAUSSIAN_BASE = {"algorithm": {"method": "ps-admm"}, "privacy": {"target": 1.0, "target_account": "paper"}}


def ways_to_name_a_method(method):
    """A variant, --set and a sweep."""
    return (
        ({"variant": [{"name": "v", "algorithm": {"method": method}}]}, ()),
        ({}, (f"algorithm.method={method}",)),
        ({"sweep": {"algorithm.method": [method]}}, ()),
    )


@pytest.mark.parametrize("method", ["r-admm", "m-admm"])
def test_naming_another_method_of_the_family_keeps_the_noise(method):
    for more, overrides in ways_to_name_a_method(method):
        (found,) = configfile.load(NOISY | more, overrides).configs
        assert (found.privacy.perturbation, found.privacy.alpha) == ("objective", 1.0)


@pytest.mark.parametrize("method", ["admm", "mr-admm"])
def test_gaussian_noise_is_not_lost_without_a_word(method):
    """A method that could be private must say what it takes instead."""
    for more, overrides in ways_to_name_a_method(method):
        with pytest.raises(InputError, match=f'"gaussian" is inherited, but {method} does not take it'):
            configfile.load(GAUSSIAN_BASE | more, overrides)
    said = {"variant": [{"name": "v", "algorithm": {"method": method}, "privacy": {"perturbation": "none"}}]}
    assert configfile.load(GAUSSIAN_BASE | said).configs[0].privacy.perturbation == "none"


@pytest.mark.parametrize(("base", "method"), [(NOISY, "s-admm"), (NOISY, "gl-admm"), (GAUSSIAN_BASE, "star-admm")])
def test_a_method_without_noise_leaves_it_behind(base, method):
    for more, overrides in ways_to_name_a_method(method):
        assert configfile.load(base | more, overrides).configs[0].privacy.perturbation == "none"


def test_a_gaussian_method_does_not_inherit_another_noise():
    for more, overrides in ways_to_name_a_method("ps-admm"):
        with pytest.raises(InputError, match="ps-admm needs one of"):
            configfile.load(NOISY | more, overrides)


def test_a_target_alone_is_inherited_by_gaussian_methods():
    for more, overrides in ways_to_name_a_method("dp-admm"):
        found = configfile.load({"privacy": {"target": 2.0}} | more, overrides).configs[0].privacy
        assert (found.perturbation, found.target, found.target_account) == ("gaussian", 2.0, "sound")


@pytest.mark.parametrize("instead", [{"perturbation": "none"}, {"noise_std": 2.0}])
def test_a_target_takes_its_account_along_when_it_is_left_behind(instead):
    raw = GAUSSIAN_BASE | {"variant": [{"name": "v", "privacy": instead}]}
    found = configfile.load(raw).configs[0].privacy
    assert (found.target, found.target_account) == (None, None)
