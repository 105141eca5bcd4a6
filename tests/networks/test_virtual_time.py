"""Virtual time against schedules that are worked out by hand, message by message."""

import numpy as np
import pytest
from support import MakeConfig, Raw, around_a_hub, baseline, network_plan, planned, result_of

from dpadmm_mpi.networks.virtual_time import laws
from dpadmm_mpi.types import Array

PATH = {"graph": "path", "nodes": 3}


def timed(raw: Raw, sizes: list[int], **time: object) -> Raw:
    """Nodes with so many records, so that each takes its own time."""
    data = {key: value for key, value in raw["data"].items() if key not in ("split", "concentration", "train")}
    return raw | {"network": {**raw["network"], "time": time}, "data": data | {"sizes": sizes}}


def known(raw: Raw, name: str) -> Array:
    """What a plan knows before the run, and the run records."""
    return np.asarray(planned(raw)[0].known_before[f"network/{name}"].values)


def seconds(raw: Raw) -> Array:
    return known(raw, "seconds")


def test_a_network_by_hand(config: MakeConfig) -> None:
    """Three nodes in a row with 20, 50 and 30 records; a data step passes 4 times over them at 1 ms a record.

    A round ends when the slowest message has come: 50 records * 4 passes * 1 ms = 0.2 s at node 1, then 0.05 s of latency and
    32 bytes at 320 bytes a second, 0.1 s. Recycled rounds and the exchange of the starting points have messages alone.
    """
    time = {"seconds_per_record": 1e-3, "passes_per_solve": 4.0, "latency": 0.05, "bandwidth": 320.0}
    raw = timed(config("r-admm") | {"network": PATH}, [20, 50, 30], **time)
    result = result_of(raw)
    data_round, other_round = 0.2 + 0.05 + 0.1, 0.05 + 0.1
    rounds = [other_round, data_round, other_round, data_round, other_round, data_round, other_round]
    assert np.allclose(result["network/seconds"][0], np.cumsum(rounds), rtol=1e-12)
    assert np.array_equal(result["network/bytes"][0], np.cumsum([4 * 32.0] * 7))
    assert planned(raw)[0].virtual_time_in_words == "1.65 virtual seconds, 896 bytes sent by all nodes"


def test_around_a_hub_by_hand(config: MakeConfig) -> None:
    """Two exchanges an iteration: up after the work of the slowest provider, and down; each way has its latency."""
    time = {"seconds_per_record": 1e-3, "passes_per_solve": 4.0, "latency": 0.05}
    star = timed(around_a_hub(config, "star-admm") | {"network": {"nodes": 3}, "iterations": 2}, [20, 50, 30], **time)
    assert np.allclose(seconds(star)[0], [0.05, 0.35, 0.65], rtol=1e-12)
    stochastic = timed(around_a_hub(config, "s-admm", {"inner_steps": 25}) | {"iterations": 1}, [20, 50, 30, 20, 20], **time)
    # 1 pass for the gradient and 2 * 25 records: 50 + 50 = 100 records at the slowest provider.
    assert np.allclose(seconds(stochastic)[0], [0.05, 0.05 + 0.1 + 0.1], rtol=1e-12)
    curated = timed(around_a_hub(config, "gl-admm") | {"network": {"nodes": 3}, "iterations": 2}, [20, 50, 30], **time)
    assert np.allclose(seconds(curated)[0], [0.0, 0.15, 0.3], rtol=1e-12)


def test_gradients_are_one_pass_and_trackers_travel_too(config: MakeConfig) -> None:
    time = {"seconds_per_record": 1e-3, "latency": 0.05}
    raw = baseline(config, "dp-gradient-tracking", {"step": 0.1}) | {"network": PATH, "iterations": 2}
    raw = timed(raw, [20, 50, 30], **time)
    assert np.allclose(seconds(raw)[0], [0.05, 0.05 + 0.15, 0.05 + 0.3], rtol=1e-12)
    assert np.array_equal(known(raw, "bytes")[0], np.cumsum([4 * 32.0, 8 * 32.0, 8 * 32.0]))


def test_lost_messages_and_absent_nodes_by_hand(config: MakeConfig) -> None:
    """Who is there waits for what does not come until its timeout; who is absent does nothing, and nobody waits there."""
    raw = timed(
        config("admm", iterations=40, runs=2) | {"network": PATH},
        [20, 50, 30],
        seconds_per_record=1e-3,
        passes_per_solve=4.0,
        latency=0.05,
        timeout=0.3,
    )
    raw["network"]["faults"] = {"loss": 0.3, "absence": {"kind": "uniform", "probability": 0.3}}
    arcs, work = [(0, 1), (1, 0), (1, 2), (2, 1)], [0.08, 0.2, 0.12]
    faults = network_plan(raw)[0].faults
    assert faults is not None
    delivered, active = faults.timeline(range(2)).delivered, faults.timeline(range(2)).present
    for run in range(2):
        clock, expected = 0.0, []
        for t in range(41):
            knows = [any(delivered[run, :t, a].any() for a in range(4) if arcs[a][0] == i) for i in range(3)]
            took = [active[run, t, i] and knows[i] for i in range(3)]  # no step before a neighbour was heard
            own = [work[i] if took[i] else 0.0 for i in range(3)]
            ends = own.copy()
            for a, (i, j) in enumerate(arcs):
                if active[run, t, i]:
                    ends.append(own[j] + 0.05 if delivered[run, t, a] else own[i] + 0.3)
            clock += max(ends)
            expected.append(clock)
        assert np.allclose(seconds(raw)[run], expected, rtol=1e-12)
    sent = 32.0 * sum(active[:, :, j] for _, j in arcs)
    assert np.array_equal(known(raw, "bytes"), np.cumsum(sent, axis=1))


@pytest.mark.parametrize(
    ("kind", "options", "mean", "deviation"),
    [
        ("uniform", {"low": 1.0, "high": 3.0}, 2.0, np.sqrt(4 / 12)),
        ("exponential", {"mean": 2.0, "least": 1.0}, 3.0, 2.0),
        ("lognormal", {"median": 2.0, "sigma": 0.5}, 2.0 * np.exp(0.125), 2.0 * np.exp(0.125) * np.sqrt(np.expm1(0.25))),
    ],
)
def test_drawn_latencies(config: MakeConfig, kind: str, options: Raw, mean: float, deviation: float) -> None:
    """On one edge a round lasts as long as the later of two messages; over the runs, once for all of them or anew for each."""
    assert kind in laws
    raw = timed(
        config("admm", iterations=400, runs=2) | {"network": PATH | {"nodes": 2}}, [100, 100], latency={"kind": kind, **options}
    )
    rounds = np.diff(seconds(raw), axis=1)
    u = np.random.default_rng(1).random((200_000, 2))
    later = np.sort(laws[kind](**options).of(u), axis=1)[:, 1]
    assert abs(laws[kind](**options).of(u).mean() - mean) < 4 * deviation / np.sqrt(u.size)
    assert abs(rounds.mean() - later.mean()) < 4 * later.std() / np.sqrt(rounds.size)
    assert len(np.unique(rounds)) == rounds.size
    raw["network"]["time"]["latency"]["each"] = "edge"
    assert np.ptp(np.diff(seconds(raw), axis=1)) < 1e-9


def test_an_edge_has_one_latency_both_ways(config: MakeConfig) -> None:
    """Around a server with one provider: down at first, then up and down; drawn for each message, no two are alike."""
    raw = around_a_hub(config, "star-admm") | {"network": {"nodes": 1}, "iterations": 1}
    latency = {"kind": "uniform", "low": 1.0, "high": 3.0, "each": "edge"}
    down, both = np.diff(seconds(timed(raw, [100], latency=latency))[0], prepend=0.0)
    assert both == pytest.approx(2.0 * down, rel=1e-12)
    down, both = np.diff(seconds(timed(raw, [100], latency=latency | {"each": "message"}))[0], prepend=0.0)
    assert both != pytest.approx(2.0 * down, rel=1e-3)


def test_without_the_section_nothing_is_recorded(config: MakeConfig) -> None:
    assert not any(name.startswith("network/") for name in result_of(config("admm", iterations=1)).dims)


def test_a_budget_that_ends_a_run_on_a_faulty_network_changes_no_time(config: MakeConfig) -> None:
    """Faults are drawn for all iterations that were asked for, and the clock stops with the run."""
    raw = config("admm") | {"network": {**PATH, "faults": {"loss": 0.3, "absence": 0.2, "change": "markov"}}}
    raw = timed(raw | {"iterations": 8}, [20, 50, 30], seconds_per_record=1e-3, latency=0.05, timeout=0.3)
    noise = {"perturbation": "objective", "alpha": 1.0, "allow_unproven": True}
    whole = seconds(raw | {"privacy": noise})
    budget = float(planned(raw | {"privacy": noise})[0].accounts[1].values[4])
    ended = seconds(raw | {"privacy": noise | {"budget": {"epsilon": budget, "delta": 0.0}}})
    assert 1 < ended.shape[1] < whole.shape[1] and np.array_equal(ended, whole[:, : ended.shape[1]])
