"""Strict configuration: what is refused, and with which sentence; defaults; round trip."""

import tomllib

import pytest
from support import Raw

from dpadmm_mpi.data.sources import Synthetic
from dpadmm_mpi.errors import InputError
from dpadmm_mpi.methods import Admm, RAdmm, fingerprint, parse, to_toml
from dpadmm_mpi.networks.graphs import Ring
from dpadmm_mpi.privacy.perturbations import Dual, NoPerturbation

REFUSED: list[tuple[Raw, str]] = [
    # unknown keys, with the nearest known one
    ({"itertions": 3}, 'itertions: unknown key; did you mean "iterations"?'),
    ({"privacy": {"aplha": 1.0}}, 'privacy.aplha: unknown key; did you mean "privacy.alpha"?'),
    ({"alpha": 1.0}, 'alpha: unknown key; did you mean "privacy.alpha"?'),
    ({"algorithm": {"eta": {"first": 1.0, "ratoi": 2.0}}}, 'eta.ratoi: unknown key; did you mean "algorithm.eta.ratio"?'),
    ({"privacy": {"perturbation": "dual", "alpha": [1.0, {"frist": 1.0}]}},
     'alpha[1].frist: unknown key; did you mean "privacy.alpha[1].first"?'),
    ({"data": {"quux": 1}}, "data.quux: unknown key; known here: source, records, features, preprocess, path,"),
    # wrong types
    ({"runs": "ten"}, 'runs: found "ten"; expected a whole number'),
    ({"runs": 1.5}, "runs: found 1.5; expected a whole number"),
    ({"runs": True}, "runs: found true; expected a whole number"),
    ({"data": 3}, "data: found 3; expected a table"),
    ({"algorithm": {"eta": "big"}}, 'algorithm.eta: found "big"; expected a number or a table or a list'),
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
    ({"algorithm": {"method": "mradmm"}}, 'star-admm; did you mean "mr-admm"?'),
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
    ({"privacy": {"alpha": 1.0}},
     'privacy.alpha: has no meaning for privacy.perturbation = "none"; remove it or choose dual, penalty,'),
    ({"privacy": {"perturbation": "dual"}}, 'privacy.alpha: missing; perturbation = "dual" needs alpha'),
    ({"privacy": {"perturbation": "dual", "alpha": {"ratio": 1.1}}}, "needs alpha with its first value"),
    ({"privacy": {"perturbation": "dual", "alpha": 1.0, "target": 2.0}}, "privacy.alpha and privacy.target: give one"),
    ({"privacy": {"perturbation": "dual", "alpha": [{"ratio": 1.0}, 5.0], "target": 2.0}}, "privacy.alpha and privacy.target"),
    ({"algorithm": {"method": "ps-admm"}, "privacy": {"target": 1.0, "allow_unproven": True}},
     'privacy.allow_unproven: has no meaning for algorithm.method = "ps-admm"; remove it'),
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
    # keys of a choice within a choice
    ({"algorithm": {"method": "gl-admm"}, "problem": {"map_path": "x"}},
     'problem.map_path: has no meaning for problem.map = "identity"; remove it or choose file'),
    ({"algorithm": {"method": "ps-admm"}, "privacy": {"alpha": 1.0}}, 'no meaning for algorithm.method = "ps-admm"; remove it'),
    # choices that do not go together
    ({"network": {"graph": "hub"}}, 'network.graph: "hub" does not go with admm, which takes ring, path,'),
    ({"algorithm": {"method": "ps-admm"}, "network": {"graph": "ring"}}, '"ring" does not go with ps-admm, which takes hub'),
    ({"algorithm": {"method": "gl-admm"}, "privacy": {"perturbation": "gaussian"}}, '"gaussian" does not go with gl-admm'),
    ({"algorithm": {"method": "gl-exact-admm"}, "privacy": {"perturbation": "gaussian"}},
     '"gaussian" does not go with gl-exact-admm'),
    ({"record": {"metrics": ["los"]}}, 'record.metrics[0]: found "los"; allowed: '),
    # combinations
    ({"algorithm": {"method": "m-admm", "eta": {"ratio": 1.1}}}, "algorithm.eta: the geometric schedule needs its first value"),
    ({"record": {"trajectory": True, "every": 2}}, "record.every: must be 1 with record.trajectory"),
    ({"data": {"sizes": [10, 10], "train": 30}}, "data.sizes: they add up to 20, but data.train = 30"),
    ({"data": {"sizes": [10, 10], "split": "even"}}, 'data.sizes: has no meaning for data.split = "even"'),
]  # fmt: skip


@pytest.mark.parametrize(("raw", "sentence"), REFUSED)
def test_refused_in_one_sentence(raw: Raw, sentence: str) -> None:
    with pytest.raises(InputError) as caught:
        parse(raw)
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


def test_allow_unproven_is_false_where_it_has_a_meaning() -> None:
    proven = {"perturbation": "dual", "alpha": 1.0}
    for said, found in (({}, False), ({"allow_unproven": False}, False), ({"allow_unproven": True}, True)):
        noise = parse({"privacy": proven | said}).privacy.perturbation
        assert isinstance(noise, Dual)
        assert noise.allow_unproven is found
    # What is the case anyway may be said, and leaves no trace.
    assert parse({"privacy": {"allow_unproven": False}}) == parse({})


def test_an_empty_configuration_is_complete() -> None:
    """Defaults that work: nothing is left open but what its choice leaves open."""
    parsed = parse({})
    assert parsed.network.graph == Ring(nodes=5)
    assert isinstance(parsed.data.source, Synthetic)
    assert parsed.data.source.records == 10_000
    assert isinstance(parsed.privacy.perturbation, NoPerturbation)
    assert isinstance(parsed.algorithm.method, Admm)
    assert not hasattr(parsed.algorithm.method, "gamma")
    recycled = parse({"algorithm": {"method": "r-admm"}}).algorithm.method
    assert isinstance(recycled, RAdmm)
    assert recycled.gamma == 0.5


def test_resolved_text_parses_to_the_same_configuration() -> None:
    raw: Raw = {
        "name": 'quotes " and ümlauts',
        "data": {"sizes": [10, 20]},
        "network": {"nodes": 2, "graph": "small-world", "degree": 2},
        "problem": {"loss": "huber"},
        "algorithm": {"method": "mr-admm", "eta": [{"first": 1, "ratio": 1.04}, [1.0, 2.0]], "theta": 0.1},
        "privacy": {"perturbation": "objective", "target": 3, "alpha": {"ratio": 1.01}},
    }
    parsed = parse(raw)
    again = parse(tomllib.loads(to_toml(parsed)))
    assert again == parsed
    assert fingerprint(again) == fingerprint(parsed)
    assert fingerprint(parse(raw | {"seed": 2})) != fingerprint(parsed)
