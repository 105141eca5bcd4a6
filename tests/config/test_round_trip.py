"""Any configuration that is accepted is written and read back as itself."""

import tomllib
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support import CURATED_METHODS, NETWORK_METHODS, Raw, names_of

from dpadmm_mpi.data.partitions import Partition, partitions
from dpadmm_mpi.methods import fingerprint, parse, to_toml
from dpadmm_mpi.methods.base import as_table
from dpadmm_mpi.networks.graphs import NamedGraph, graphs

POSITIVE = st.floats(1e-6, 1e6)
FRACTION = st.floats(0.01, 1.0)
COUNT = st.integers(1, 10**6)
SEED = st.integers(0, 2**63 - 1)
NAME = st.text(min_size=1, max_size=20)


def table(**keys: st.SearchStrategy[Any]) -> st.SearchStrategy[Raw]:
    """Some of the keys."""
    return st.fixed_dictionaries({}, optional=keys)


GEOMETRIC = st.fixed_dictionaries({"first": POSITIVE, "ratio": POSITIVE})
SCHEDULE: st.SearchStrategy[Any] = (
    POSITIVE | GEOMETRIC | st.lists(POSITIVE | GEOMETRIC | st.lists(POSITIVE, min_size=1, max_size=3), min_size=1, max_size=3)
)
METRICS = st.lists(st.sampled_from(["loss", "test_error", "objective"]), max_size=2)
RECORD = table(every=st.just(1), trajectory=st.booleans(), checkpoint=COUNT, optimum=st.booleans(), metrics=METRICS)
TRAIN = st.one_of(COUNT, FRACTION)


@st.composite
def data(draw: st.DrawFn) -> Raw:
    split = draw(st.sampled_from(names_of(partitions, Partition)))
    own: Raw = {
        "uneven": table(concentration=POSITIVE),
        "by-label": table(skew=FRACTION),
        "dirichlet": table(concentration=POSITIVE),
        "shards": table(chunks=COUNT),
        "by-column": st.fixed_dictionaries({"column": NAME}),
        "node-file": st.just({"node_file": "/tmp/nodes.txt"}),
        "sizes": st.fixed_dictionaries({"sizes": st.lists(COUNT, min_size=1, max_size=3)}),
    }
    raw: Raw = {"split": split} | draw(own.get(split, st.just({})))
    if split != "sizes":
        raw |= draw(table(train=TRAIN))
    if draw(st.booleans()):
        return raw | draw(table(source=st.just("synthetic"), records=COUNT, features=COUNT))
    steps = st.lists(st.sampled_from(["drop-missing", "one-hot", "scale-columns", "scale-rows"]), max_size=3)
    file = {"source": st.just("csv"), "path": st.just("/tmp/a table.csv")}
    more = {
        "label": NAME,
        "positive": NAME | st.integers(-3, 3),
        "categorical": st.lists(NAME, max_size=2),
        "preprocess": steps,
    }
    return raw | draw(st.fixed_dictionaries(file, optional=more | {"preprocess": steps}))


@st.composite
def network_methods(draw: st.DrawFn) -> Raw:
    method = draw(st.sampled_from(NETWORK_METHODS))
    keys: dict[str, st.SearchStrategy[Any]] = {"eta": SCHEDULE, "init": st.sampled_from(["random", "zero"])}
    if method in ("m-admm", "mr-admm"):
        keys["theta"] = SCHEDULE
    if method in ("r-admm", "mr-admm"):
        keys["gamma"] = st.floats(0.0, 1e6)
    privacy: Raw = draw(st.just({"perturbation": "none"}) | st.just({}))
    if draw(st.booleans()):
        privacy = {"perturbation": draw(st.sampled_from(["dual", "penalty", "objective", "primal"]))}
        calibrated = st.fixed_dictionaries(
            {"target": POSITIVE},
            optional={"target_account": st.sampled_from(["bound", "tight", "epsilon"]), "alpha": st.just({"ratio": 1.01})},
        )
        privacy |= draw(st.fixed_dictionaries({"alpha": SCHEDULE}) | calibrated)
        if privacy["perturbation"] != "primal":
            privacy |= draw(table(allow_unproven=st.booleans()))
    graph = draw(st.sampled_from([name for name in names_of(graphs, NamedGraph) if name != "hub"]))
    own: Raw = {
        "random": table(probability=FRACTION),
        "regular": table(degree=COUNT),
        "small-world": table(degree=COUNT, rewiring=FRACTION),
        "scale-free": table(degree=COUNT),
    }
    return {
        "algorithm": {"method": method} | draw(table(**keys)),
        "privacy": privacy | draw(table(delta=st.floats(1e-30, 0.99))),
        "network": {"graph": "ring" if graph == "hub" else graph}
        | draw(table(nodes=COUNT))
        | draw(own.get(graph, st.just({}))),
        "problem": draw(table(C=POSITIVE, rho=POSITIVE)) | draw(losses()),
    }


def losses() -> st.SearchStrategy[Raw]:
    return (
        st.just({})
        | st.just({"loss": "logistic"})
        | st.fixed_dictionaries({"loss": st.just("huber")}, optional={"width": POSITIVE})
    )


@st.composite
def hub_methods(draw: st.DrawFn) -> Raw:
    method = draw(st.sampled_from(["star-admm", "s-admm", "ps-admm", *CURATED_METHODS]))
    auto = POSITIVE | st.just("auto")
    keys: dict[str, st.SearchStrategy[Any]] = {"rho": POSITIVE, "init": st.sampled_from(["random", "zero"])}
    problem: dict[str, st.SearchStrategy[Any]] = {"reg": st.floats(0.0, 1e6)}
    if method in ("s-admm", "ps-admm"):
        keys |= {"eta": auto, "inner_steps": COUNT, "averaging": st.sampled_from(["uniform", "extrapolated"])}
    if method in CURATED_METHODS:
        if method != "gl-exact-admm":
            keys |= {"eta": auto, "gamma": auto, "u0": st.sampled_from(["zero", "as-printed"])}
        problem = {"lambda1": st.floats(0.0, 1e6), "regulariser": st.sampled_from(["l1", "l2"])}
        if "acc" in method:
            keys["restart"] = st.booleans()
    privacy: Raw = {}
    if method in ("ps-admm", "dp-admm", "dp-acc-admm"):
        target = st.fixed_dictionaries({"target": POSITIVE}, optional={"target_account": st.sampled_from(["paper", "sound"])})
        privacy = draw(st.fixed_dictionaries({"noise_std": POSITIVE}) | target | st.just({"perturbation": "none"}))
    return {
        "algorithm": {"method": method} | draw(table(**keys)),
        "privacy": privacy | draw(table(delta=st.floats(1e-30, 0.99))),
        "network": draw(table(nodes=COUNT, graph=st.sampled_from(["hub", "star"]))),
        "problem": draw(table(**problem)) | draw(losses()),
    }


@st.composite
def configurations(draw: st.DrawFn) -> Raw:
    raw: Raw = draw(table(name=NAME, seed=SEED, runs=COUNT, iterations=COUNT))
    return raw | draw(network_methods() | hub_methods()) | {"data": draw(data()), "record": draw(RECORD)}


@settings(max_examples=300, suppress_health_check=[HealthCheck.too_slow])
@given(configurations())
def test_parse_write_parse(raw: Raw) -> None:
    """The same configuration, text and fingerprint; and what was said is what it holds."""
    config = parse(raw)
    text = to_toml(config)
    again = parse(tomllib.loads(text))
    assert again == config
    assert to_toml(again) == text
    assert fingerprint(again) == fingerprint(config)
    resolved = as_table(config)
    for section, said in raw.items():
        if isinstance(said, dict):
            for key, value in said.items():
                if (key, value) != ("graph", "star"):  # which of a method with a hub means the hub
                    assert resolved[section][key] == value, f"{section}.{key}"
        else:
            assert resolved[section] == said
