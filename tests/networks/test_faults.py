"""What goes wrong on a network: every kind by its law, what is received by hand, and the same bits everywhere."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import Raw

from dpadmm_mpi.audit.exact import audit
from dpadmm_mpi.config.reading import read_section
from dpadmm_mpi.engine.loop import Manner, execute
from dpadmm_mpi.errors import InputError, Stopped
from dpadmm_mpi.methods import fingerprint, make_plan, parse
from dpadmm_mpi.networks.faults import Draws, faults
from dpadmm_mpi.networks.network import Network
from dpadmm_mpi.networks.timeline import NetworkFaults, faults_on
from dpadmm_mpi.rng import Purpose
from dpadmm_mpi.storage.compare import compare
from dpadmm_mpi.storage.result import Result
from dpadmm_mpi.testing import on_ranks
from dpadmm_mpi.testing.methods import _EarlyStop
from dpadmm_mpi.types import Array

ITEMS = 4000
NEARLY_ONE = 1.0 - 2.0**-53  # of a loss rate: such an edge is there, and nothing comes along it


def draws(iterations: int = 12) -> Draws:
    ends = np.column_stack([np.arange(ITEMS), np.arange(ITEMS) + 1])
    return Draws(3, Purpose.LOSS, range(1), iterations, ends, ITEMS + 1)


def network(raw: Raw, iterations: int = 30, nodes: int = 5) -> NetworkFaults:
    section = read_section(Network, "network", {"graph": "complete", "nodes": nodes} | raw)
    section.check()
    found = faults_on(section.build(1, iterations))
    assert found is not None
    return found


def close(found: Any, share: float, count: int = ITEMS) -> bool:
    """Within four standard errors of a share of independent coins."""
    return bool(abs(np.mean(found) - share) <= 4.0 * np.sqrt(share * (1.0 - share) / count))


@pytest.mark.parametrize(
    ("name", "options", "share", "fail", "stay"),
    [
        ("uniform", {"probability": 0.3}, 0.3, 0.3, 0.3),
        ("asynchronous", {"activation": 0.6}, 0.4, 0.4, 0.4),
        ("markov", {"fail": 0.1, "recover": 0.4}, 0.2, 0.1, 0.6),
        ("bursts", {"begin": 0.1, "end": 0.4}, 0.2, 0.1, 0.6),
        ("bursts", {"begin": 0.1, "end": 0.4, "loss_in_burst": 0.5, "loss_between": 0.25}, 0.3, None, None),
        ("edges", {"rates": [(0, 1, 1.0)], "otherwise": 0.25}, 0.25, 0.25, 0.25),
    ],
)
def test_failures_have_their_law(name: str, options: Raw, share: float, fail: float | None, stay: float | None) -> None:
    """In every single iteration: how many fail, and of those that work, and of those that have failed, how many fail next."""
    failed: Any = faults[name](**options).fails(draws())[0].T  # type: ignore[attr-defined]
    assert all(close(row, share) for row in failed)
    if fail is None or stay is None:
        return
    for before, after in pairwise(failed):
        assert close(after[~before], fail, int((~before).sum())) and close(after[before], stay, int(before.sum()))


def test_delays_have_their_law() -> None:
    late: Any = faults["geometric"](mean=1.5, limit=6).delays(draws())[0].T  # type: ignore[attr-defined]
    shares = [0.4 * 0.6**k for k in range(6)] + [0.6**6]
    assert all(close(row == k, share) for row in late for k, share in enumerate(shares))
    assert (faults["fixed"](iterations=3).delays(draws()) == 3).all()  # type: ignore[attr-defined]


def test_what_is_drawn_has_its_own_address() -> None:
    """Items, runs and streams are independent of each other, a longer run begins as a short one, an item knows no others."""
    short, long = draws(5), draws(9)
    assert np.array_equal(short.uniform(), long.uniform()[..., :6])
    alone = Draws(3, Purpose.LOSS, range(1), 5, short.ends[7:8], ITEMS + 1)
    assert np.array_equal(alone.uniform()[0, 0], short.uniform()[0, 7])
    other = Draws(3, Purpose.LOSS, range(1, 2), 5, short.ends, ITEMS + 1)
    for different in (other.uniform(), short.uniform(stream=1)):
        assert abs(np.corrcoef(different.ravel(), short.uniform().ravel())[0, 1]) < 4.0 / np.sqrt(ITEMS * 6)


def test_compression() -> None:
    """Rounding is right on average, within a step, and exact at the ends; the entries that are sent are those that they say."""
    rng = np.random.default_rng(2)
    values, before = rng.standard_normal((1, 1, 20)), rng.standard_normal((1, 1, 20))
    tries = np.tile(values, (1, ITEMS, 1))
    eight: Any = faults["quantisation"](bits=3)
    sent = eight.compressed(tries, tries, rng.random(tries.shape))
    width = 2.0 * np.abs(values).max() / 7.0
    assert len(np.unique(np.round(sent / width, 9))) <= 8 and np.abs(sent - values).max() <= width
    assert (np.abs(sent.mean(axis=1) - values[0]) <= 4.0 * 0.5 * width / np.sqrt(ITEMS)).all()
    assert (sent[..., np.abs(values[0, 0]).argmax()] == values[0, 0][np.abs(values[0, 0]).argmax()]).all()
    some: Any = faults["random-k"](share=0.25)
    changed = some.compressed(tries, np.tile(before, (1, ITEMS, 1)), rng.random(tries.shape)) == values
    assert (changed.sum(axis=-1) == 5).all() and all(close(changed[0, :, entry], 0.25) for entry in range(20))
    top: Any = faults["top-k"](share=0.25)
    largest = np.argsort(-np.abs(values - before))[0, 0, :5]
    expected = before.copy()
    expected[..., largest] = values[..., largest]
    assert np.array_equal(top.compressed(values, before, np.zeros_like(values)), expected)
    assert (eight.message_bytes(20), some.message_bytes(20), top.message_bytes(20)) == (16, 48, 60)


def test_absences_and_graphs_by_hand(tmp_path: Path) -> None:
    """Turns of two nodes; a trace that begins again; graphs from a file, and drawn anew."""
    turns = network({"faults": {"absence": {"kind": "cyclic", "every": 3, "away": 1}}}, 6, nodes=2).timeline(range(1))
    assert (~turns.present[0]).astype(int).tolist() == [[0, 0], [1, 0], [0, 1], [0, 0], [1, 0], [0, 1], [0, 0]]
    (tmp_path / "trace.txt").write_text("1 0  # node 1 is away\n1 1\n")
    trace = network({"faults": {"absence": {"kind": "trace", "path": str(tmp_path / "trace.txt")}}}, 3, nodes=2)
    assert trace.timeline(range(1)).present[0].astype(int).tolist() == [[1, 1], [1, 0], [1, 1], [1, 0]]
    (tmp_path / "graphs.txt").write_text("0 1\n1 2\n\n2 0\n")
    listed = network({"faults": {"change": {"kind": "graphs", "every": 2, "path": str(tmp_path / "graphs.txt")}}}, 5, nodes=3)
    on = listed.timeline(range(1)).edges_on
    assert on is not None and listed.topology.edges.tolist() == [[0, 1], [0, 2], [1, 2]]
    assert on[0][:, [0, 1, 3]].astype(int).tolist() == [[1, 0, 1], [1, 0, 1], [0, 1, 0], [0, 1, 0], [1, 0, 1], [1, 0, 1]]
    drawn = network({"graph": "random", "probability": 0.4, "faults": {"change": 3}}, 29).timeline(range(1)).edges_on
    assert drawn is not None
    blocks = drawn[0].reshape(10, 3, -1)
    assert (blocks == blocks[:, :1]).all() and len(np.unique(blocks[:, 0], axis=0)) > 5


def test_what_is_received_by_hand() -> None:
    """Loss, random delays, absence and switching edges together, message by message: what counts, from when, and how old."""
    found = network(
        {
            "faults": {
                "loss": 0.3,
                "delay": {"kind": "geometric", "mean": 1.0, "limit": 3},
                "absence": {"kind": "markov", "fail": 0.2},
                "change": {"kind": "markov", "fail": 0.2},
            }
        }
    )
    timeline = found.timeline(range(2))
    late = np.swapaxes(found.delay.delays(found.draws(Purpose.DELAY, range(2), found.arcs)), 1, 2)  # type: ignore[union-attr]
    lost = np.swapaxes(found.loss.fails(found.draws(Purpose.LOSS, range(2), found.arcs)), 1, 2)  # type: ignore[union-attr]
    overtaken = 0
    for run in range(2):
        for arc, (receiver, sender) in enumerate(found.arcs.tolist()):
            newest = -1
            for t in range(31):
                assert timeline.edges_on is not None
                comes = []
                for s in range(t + 1):
                    sent = timeline.present[run, s, sender] and timeline.edges_on[run, s, arc] and not lost[run, s, arc]
                    if sent and s + late[run, s, arc] == t and timeline.present[run, t, receiver]:
                        comes.append(s)
                        assert timeline.delivered[run, s, arc]
                overtaken += sum(s < newest for s in comes)
                fresh = max(comes, default=-1)
                assert timeline.fresh[run, t, arc] == (t - fresh if fresh > newest else -1)
                newest = max(newest, fresh)
                assert timeline.neighbours[run, t, arc] == (newest >= 0 and timeline.edges_on[run, t, arc])
    assert overtaken > 0
    for node in range(5):
        assert np.array_equal(timeline.degree[..., node], timeline.neighbours[..., found.arcs[:, 0] == node].sum(axis=-1))


def test_bytes_by_hand() -> None:
    """A lost message was sent, an absent node sends nothing, and who has missed a message gets the next one whole."""
    found = network({"faults": {"loss": 0.4, "absence": 0.3, "compression": {"kind": "top-k", "share": 0.1}}}, nodes=3)
    timeline = found.timeline(range(1))
    sizes = found.message_bytes(timeline, 20)[0]
    for arc, (_, sender) in enumerate(found.arcs.tolist()):
        had = False
        for t in range(31):
            if timeline.present[0, t, sender]:
                assert sizes[t, arc] == (24 if had else 160)
                had = bool(timeline.delivered[0, t, arc])
            else:
                assert sizes[t, arc] == 0


# Six nodes of unequal degrees; all kinds together on every method, and one by one on a method that recycles.
EDGES = [[0, 1], [0, 2], [0, 3], [1, 2], [3, 4], [4, 5], [5, 0]]
KINDS: dict[str, Raw] = {
    "loss": {"loss": 0.3},
    "bursts": {"loss": {"kind": "bursts", "begin": 0.3}},
    "edges": {"loss": {"kind": "edges", "rates": [[0, 1, 0.8]]}},
    "fixed": {"delay": 2},
    "geometric": {"delay": {"kind": "geometric"}},
    "absence": {"absence": 0.3},
    "markov": {"absence": "markov"},
    "cyclic": {"absence": {"kind": "cyclic", "every": 3}},
    "asynchronous": {"absence": "asynchronous"},
    "switching": {"change": "markov"},
    "quantisation": {"compression": 4},
    "top-k": {"compression": "top-k"},
    "random-k": {"compression": "random-k"},
}
ALL: Raw = {"loss": 0.2, "delay": {"kind": "geometric"}, "absence": 0.2, "change": "markov", "compression": 8}
GRADIENT: Raw = {"perturbation": "gaussian", "noise_std": 1.0}
PRIMAL: Raw = {"perturbation": "primal", "noise": "gaussian", "noise_std": 0.5}
METHODS: dict[str, Raw] = {
    "admm": PRIMAL, "m-admm": PRIMAL, "r-admm": PRIMAL, "mr-admm": PRIMAL, "one-shot": PRIMAL,
    "dp-dgd": GRADIENT, "gossip": GRADIENT, "dp-gradient-tracking": GRADIENT,
}  # fmt: skip


def configuration(method: str, given: Raw | None, graph: Raw | None = None, **options: Any) -> Raw:
    network: Raw = graph or {"graph": "pairs", "pairs": EDGES}
    return {
        "runs": 2,
        "iterations": 6,
        "data": {"records": 120, "features": 3},
        "network": network | ({} if given is None else {"faults": given}),
        "algorithm": {"method": method} | options,
        "privacy": METHODS[method],
        "record": {"trajectory": True, "checkpoint": 1},
    }


def run(raw: Raw, path: Path | None = None, ranks: int = 1, stop: bool = False) -> Result:
    config = parse(raw)
    manner, stopper = Manner(resume=True), _EarlyStop() if stop else None
    found = on_ranks(ranks, lambda rank: execute(config, rank, path, manner=manner, stopper=stopper))[0]
    assert found is not None
    return found


CASES = [*((method, "all") for method in METHODS), *(("r-admm", kind) for kind in KINDS)]


@pytest.mark.parametrize(("method", "kind"), CASES)
def test_same_bits_on_all_layouts_and_after_a_restart(tmp_path: Path, method: str, kind: str) -> None:
    raw = configuration(method, ALL if kind == "all" else KINDS[kind])
    run(raw, tmp_path / "serial.h5")
    for ranks in (2, 6) if kind == "all" else ():
        run(raw, tmp_path / f"{ranks}.h5", ranks)
        assert list(compare(tmp_path / "serial.h5", tmp_path / f"{ranks}.h5")) == []
    with pytest.raises(Stopped):
        run(raw, tmp_path / "restart.h5", 2, stop=True)
    run(raw, tmp_path / "restart.h5", 3)
    assert list(compare(tmp_path / "serial.h5", tmp_path / "restart.h5")) == []


def test_a_run_that_is_extended_is_the_longer_one(tmp_path: Path) -> None:
    raw = configuration("r-admm", ALL)
    run(raw | {"iterations": 4}, tmp_path / "extended.h5")
    run(raw, tmp_path / "extended.h5", 2)
    run(raw, tmp_path / "whole.h5")
    assert list(compare(tmp_path / "extended.h5", tmp_path / "whole.h5")) == []


@pytest.mark.parametrize(
    ("key", "kind", "begun", "other"),
    [
        ("absence", "trace", "1 1 1 1 1 1\n", "0 0 0 0 0 0\n1 1 1 1 1 1\n"),
        ("change", "graphs", "0 1\n1 2\n2 3\n\n3 4\n4 5\n", "3 4\n4 5\n\n0 1\n1 2\n2 3\n"),
    ],
)
def test_a_run_goes_on_with_the_faults_that_it_had(tmp_path: Path, key: str, kind: str, begun: str, other: str) -> None:
    """From a file that has changed the ledger would follow what has not happened."""
    file = tmp_path / "faults.txt"
    raw = configuration("admm", {key: {"kind": kind, "path": str(file)}})
    file.write_text(begun)
    run(raw, tmp_path / "finished.h5")
    with pytest.raises(Stopped):
        run(raw, tmp_path / "stopped.h5", stop=True)
    file.write_text(other)
    for more, path in ((raw | {"iterations": 7}, "finished.h5"), (raw, "stopped.h5")):
        with pytest.raises(InputError, match=r"a file of network\.faults"):
            run(more, tmp_path / path)
    with pytest.raises(InputError, match=r"a file of network\.faults"):
        audit(tmp_path / "finished.h5")
    file.write_text(begun + "# the same graphs\n")
    assert run(raw, tmp_path / "stopped.h5").complete


def test_a_budget_that_would_last_for_other_data_steps_cannot_be_extended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where more iterations are too many to examine each run, budgets are counted by the worst of all runs."""
    monkeypatch.setattr("dpadmm_mpi.privacy.releases.MOST_STEPS", 80)
    raw: Raw = {
        "runs": 3,
        "iterations": 5,
        "data": {"records": 60, "features": 3},
        "network": {"graph": "complete", "nodes": 5, "faults": {"change": {"kind": "markov", "fail": 0.5}}},
        "algorithm": {"method": "admm", "eta": 0.1},
        "privacy": {
            "perturbation": "objective",
            "alpha": 0.01,
            "allow_unproven": True,
            "budget": {"epsilon": 0.15, "delta": 0.0, "when_spent": "rest"},
        },
    }
    run(raw, tmp_path / "run.h5")
    with pytest.raises(InputError, match="would last for other data steps"):
        run(raw | {"iterations": 12}, tmp_path / "run.h5")


def test_a_method_that_mixes_has_the_penalty_of_one_neighbour_whoever_was_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one that waits until it has heard somebody, as a class from outside does unless it says otherwise."""
    raw = configuration("one-shot", {"loss": 0.3})
    monkeypatch.setattr(type(parse(raw).method), "counts_heard", True)
    releases = make_plan(parse(raw))[0].releases
    assert (releases.in_runs.V == 1.0).all()  # type: ignore[attr-defined]


def same(a: Result, b: Result) -> bool:
    """What is computed, and what it costs; of gossip on a perfect network more is known about pairs of nodes."""
    names = [name for name in a.arrays if name.split("/")[0] in ("trajectory", "loss", "final", "privacy")]
    if "algorithm/step" in a:
        names = [name for name in names if "pair" not in name]
    return all(np.array_equal(a[name], b[name], equal_nan=True) for name in names)


@pytest.mark.parametrize("method", METHODS)
def test_faults_that_do_nothing_and_an_edge_that_loses_everything(method: str) -> None:
    """No loss, no delay, everybody there: as without the section. An edge that loses everything: as without the edge."""
    perfect = run(configuration(method, None))
    never: Raw = {
        "loss": 0.0,
        "delay": 0,
        "absence": {"kind": "uniform", "probability": 0.0},
        "change": {"kind": "markov", "fail": 0},
    }
    assert same(perfect, run(configuration(method, never))) and "network/delivered" not in run(configuration(method, never))
    assert fingerprint(parse(configuration(method, {"loss": 0, "delay": 0}))) == fingerprint(parse(configuration(method, None)))
    without = {"graph": "pairs", "pairs": [pair for pair in EDGES if pair != [0, 1]]}
    plain: Raw = {"accelerated": False} if method == "gossip" else {}
    expected = run(configuration(method, None, without, **plain))
    dead: Raw = {"loss": {"kind": "edges", "rates": [[1, 0, 1.0]]}}
    assert same(expected, run(configuration(method, dead, **plain)))
    if method != "one-shot":  # whose acceleration depends on the edges that there are
        silent = {"loss": {"kind": "edges", "rates": [[1, 0, NEARLY_ONE]]}}
        found = run(configuration(method, silent, **plain))
        assert not np.array_equal(found["graph/edges"], expected["graph/edges"]) and same(expected, found)


def test_a_network_that_does_not_hold_together_and_wrong_words(tmp_path: Path) -> None:
    sentences: list[tuple[Raw, str]] = [
        ({"loss": 1.0}, "never hear of each other"),
        ({"loss": 2}, "network.faults.loss.probability: found 2"),
        ({"loss": "fixed"}, 'network.faults.loss.kind: found "fixed"; allowed: uniform, bursts, edges'),
        ({"loss": {"probability": 0.1}}, "a table with kind"),
        ({"lost": 0.1}, 'network.faults.lost: unknown key; did you mean "network.faults.loss"'),
        ({"delay": {"kind": "geometric", "men": 2}}, 'did you mean "network.faults.delay.mean"'),
        ({"change": 3}, "network.faults.change: network.graph is not a drawn one"),
        ({"loss": {"kind": "edges", "rates": [[1, 5, 0.5]]}}, "no edge between the nodes 1 and 5"),
        ({"absence": {"kind": "trace", "path": str(tmp_path / "none.txt")}}, "network.faults.absence.path"),
    ]
    for given, sentence in sentences:
        with pytest.raises(InputError, match=sentence.replace("(", r"\(")):
            parse(configuration("admm", given)).network.build(1, 6)
    star = {"algorithm": {"method": "ps-admm"}, "privacy": {"target": 1.0}, "network": {"faults": {"loss": 0.1}}}
    with pytest.raises(InputError, match=r"network\.faults: ps-admm needs a network without them"):
        parse(star)
    with pytest.raises(InputError, match=r"release\.consensus"):
        run(configuration("admm", {"loss": 0.1}) | {"release": {"consensus": 3}})


def weights(A: Array) -> Array:
    """Metropolis, of the neighbours that are counted: row i of A says whom node i has heard."""
    V = A.sum(axis=1)
    W = A / (1.0 + np.maximum(V[:, None], V[None, :]))
    return np.asarray(W + np.diag(1.0 - W.sum(axis=1)))


@pytest.mark.parametrize("delay", [0, 2])
def test_gossip_by_hand(delay: int) -> None:
    """dp-dgd without noise from what was recorded to arrive and who was there, written out for one run."""
    raw = configuration("dp-dgd", {"loss": 0.4, "absence": 0.3, "delay": delay}, momentum=0.5, step=0.5)
    raw["privacy"] = {"perturbation": "none"}
    result = run(raw)
    from dpadmm_mpi.methods import make_plan

    _, dataset = make_plan(parse(raw))
    shards = [dataset.loader.shard(dataset.address(i)) for i in range(6)]
    run_number, N = 1, 6
    delivered, active = result["network/delivered"][run_number], result["network/active"][run_number]
    psi, m, held = np.zeros((N, 3)), np.zeros((N, 3)), np.full((N, N, 3), np.nan)
    sent: list[Array] = []
    for t in range(7):
        if t > 0:
            A = (~np.isnan(held[..., 0])).astype(float)
            mixed = np.einsum("ij,ijd->id", weights(A) * A, np.nan_to_num(held)) + np.diag(weights(A))[:, None] * psi
            for i in range(N):
                if active[t, i]:
                    X, y = np.asarray(shards[i].X), shards[i].y
                    slope = -y / (1.0 + np.exp(y * (X @ mixed[i])))
                    m[i] = 0.5 * m[i] + X.T @ slope / len(y) + 0.01 / N * mixed[i]
                    psi[i] = mixed[i] - 0.5 * m[i]
        sent.append(psi.copy())
        for arc, (i, j) in enumerate(result["network/arcs"].tolist()):
            if t >= delay and delivered[t - delay, arc]:
                held[i, j] = sent[t - delay][j]
        assert np.allclose(result["trajectory"][run_number, t], psi, rtol=0, atol=1e-12)
