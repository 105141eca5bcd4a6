"""Networks with faults: what the nodes do, what it costs each of them, what others learn, and an audit that sees it."""

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from audit_cases import small
from scipy.optimize import brentq, minimize
from scipy.stats import norm
from support import Raw, result_of

from dpadmm_mpi.audit import audit
from dpadmm_mpi.methods import make_plan, parse
from dpadmm_mpi.storage.result import Result
from dpadmm_mpi.types import Array, Ints

RHO, C, ETA, GAMMA, ALPHA, N = 0.5, 3.0, 0.8, 0.4, 2.0, 5
FAULTS: Raw = {"loss": 0.5, "absence": {"kind": "markov", "fail": 0.3}, "change": {"kind": "markov", "fail": 0.2}}


def configuration(method: str, privacy: Raw, given: Raw | None = None, runs: int = 3, **options: Any) -> Raw:
    return {
        "seed": 4,
        "runs": runs,
        "iterations": 8,
        "data": {"records": 100, "features": 2},
        "network": {"graph": "complete", "nodes": N, "faults": FAULTS if given is None else given},
        "problem": {"C": C, "rho": RHO},
        "algorithm": {"method": method} | options,
        "privacy": privacy,
        "record": {"trajectory": True},
    }


def neighbours(result: Result, run: int) -> Ints:
    """(T+1, N): how many senders a node has heard by the end of an exchange and has an edge to, from what was recorded."""
    arcs, delivered = result["network/arcs"].tolist(), result["network/delivered"][run]
    edges = {(i, j): k for k, (i, j) in enumerate(result["graph/edges"].tolist())}
    found = np.zeros((delivered.shape[0], N), dtype=np.int64)
    heard: set[int] = set()
    for t in range(len(delivered)):
        heard |= set(np.flatnonzero(delivered[t]).tolist())
        for arc in heard:
            i, j = arcs[arc]
            found[t, i] += result["network/edges"][run, t, edges[min(i, j), max(i, j)]]
    return found


def objective(x: Array, X: Array, y: Array, dual: Array, middles: list[Array]) -> float:
    """Of a data step."""
    loss = C / len(y) * np.log1p(np.exp(-y * (X @ x))).sum() + RHO / N * 0.5 * (x @ x)
    return float(loss + 2 * dual @ x + ETA * sum(np.sum((middle - x) ** 2) for middle in middles))


def test_recycled_admm_by_hand() -> None:
    """Every step written out and solved by scipy, from who was there and what was recorded to arrive: data steps, dual steps
    with the edges of the iteration, recycled steps; without noise.
    """
    raw = configuration("r-admm", {"perturbation": "none"}, eta=ETA, gamma=GAMMA)
    result = result_of(raw)
    _, dataset = make_plan(parse(raw))
    shards = [dataset.loader.shard(dataset.address(i)) for i in range(N)]
    run, arcs = 2, result["network/arcs"].tolist()
    edges = {(i, j): k for k, (i, j) in enumerate(result["graph/edges"].tolist())}
    active, delivered = result["network/active"][run], result["network/delivered"][run]
    f, lam, g = result["trajectory"][run, 0].copy(), np.zeros((N, 2)), np.zeros((N, 2))
    held: dict[tuple[int, int], Array] = {}
    nb: list[list[int]] = [[] for _ in range(N)]
    steps = 0
    for t in range(9):
        new = f.copy()
        for i in np.flatnonzero(active[t]).tolist() if t else ():
            around, V = np.sum([held[i, j] for j in nb[i]], axis=0), len(nb[i])
            assert V > 0
            if t % 2:
                X, y = np.asarray(shards[i].X), shards[i].y

                middles = [(f[i] + held[i, j]) / 2 for j in nb[i]]
                new[i] = minimize(objective, f[i], (X, y, lam[i], middles), method="BFGS", options={"gtol": 1e-10}).x
                g[i] = -2 * lam[i] - ETA * (2 * V * new[i] - V * f[i] - around)
                steps += 1
            else:
                new[i] = f[i] - (g[i] + 2 * lam[i] + ETA * (V * f[i] - around)) / (2 * ETA * V + GAMMA)
        f = new
        for arc, (i, j) in enumerate(arcs):
            if delivered[t, arc]:
                held[i, j] = f[j].copy()
        nb = [
            [j for j in range(N) if (i, j) in held and result["network/edges"][run, t, edges[min(i, j), max(i, j)]]]
            for i in range(N)
        ]
        for i in np.flatnonzero(active[t]).tolist() if t % 2 else ():
            lam[i] = lam[i] + ETA / 2 * sum((f[i] - held[i, j] for j in nb[i]), np.zeros(2))
        assert np.allclose(result["trajectory"][run, t], f, rtol=0, atol=2e-6), t
    assert 5 < steps < 4 * N


def test_the_ledger_counts_the_data_steps_that_were_taken() -> None:
    """[R] (32) for each data step of each node in each run, with the neighbours that it had, from what was recorded."""
    raw = configuration("r-admm", {"perturbation": "objective", "alpha": ALPHA, "allow_unproven": True}, eta=ETA)
    result = result_of(raw)
    B, expected = result["data/sizes"], np.zeros((3, 9, N))
    for run in range(3):
        V = neighbours(result, run)
        for t in range(1, 9):
            mu = RHO / N + 2 * ETA * V[t - 1]
            step = 2 * C / B * (1.4 * 0.25 / mu + ALPHA)
            expected[run, t] = expected[run, t - 1] + (step if t % 2 else 0.0) * result["network/active"][run, t]
    assert np.allclose(result["privacy/run_bound"], expected, rtol=1e-12, atol=0)
    assert np.array_equal(result["privacy/node_bound"], result["privacy/run_bound"].max(axis=0))
    assert len(np.unique(expected[:, -1])) > 5
    for name in ("tight", "epsilon"):
        of_runs = result[f"privacy/run_{name}"]
        assert (of_runs <= result["privacy/run_bound"] * (1 + 1e-12)).all()
        assert np.array_equal(of_runs == 0.0, expected == 0.0) and (np.diff(of_runs, axis=1) >= 0.0).all()


def test_many_runs_cost_no_less_than_each_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there are too many runs to examine, a node's k-th data step is its worst in any run: never below the exact one."""
    from dpadmm_mpi.privacy import releases

    raw = configuration("mr-admm", {"perturbation": "penalty", "alpha": {"first": 1.0, "ratio": 1.1}, "allow_unproven": True})
    exact = result_of(raw)
    monkeypatch.setattr(releases, "MOST_STEPS", 10)
    merged = result_of(raw)
    for name in ("bound", "tight"):  # sums, which cost nothing to be exact
        assert np.allclose(merged[f"privacy/run_{name}"], exact[f"privacy/run_{name}"], rtol=1e-12, atol=0)
    # Both are computed on grids of their own.
    assert (merged["privacy/run_epsilon"] >= exact["privacy/run_epsilon"] * (1.0 - 5e-3)).all()
    assert (merged["privacy/run_epsilon"] > exact["privacy/run_epsilon"] * 1.01).any()


def gaussian_epsilon(mu: float, delta: float) -> float:
    """Balle and Wang 2018, solved for epsilon."""

    def excess(epsilon: float) -> float:
        return float(norm.cdf(mu / 2 - epsilon / mu) - np.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu) - delta)

    return float(brentq(excess, 0.0, 200.0, xtol=1e-13)) if mu else 0.0


def test_gradients_and_targets() -> None:
    """A gradient that is not taken costs nothing, and a target is met by the worst node in the worst run."""
    result = result_of(configuration("dp-dgd", {"perturbation": "gaussian", "target": 1.0}))
    sigma = np.nanmax(result["privacy/noise_std"])
    taken = result["network/active"][:, 1:].sum(axis=1)
    expected = [
        [gaussian_epsilon(2 * C / B * np.sqrt(k) / sigma, 1e-5) for k, B in zip(row, result["data/sizes"], strict=True)]
        for row in taken
    ]
    assert np.allclose(result["privacy/run_epsilon_sound"][:, -1], expected, rtol=1e-9)
    assert np.max(expected) == pytest.approx(1.0, rel=1e-9)
    assert taken.min() < taken.max()
    network = result_of(configuration("r-admm", {"perturbation": "primal", "noise": "gaussian", "target": 1.0}))
    assert 1.0 - 1e-3 < network["privacy/run_epsilon"].max() <= 1.0


def test_a_budget_is_spent_by_what_a_node_does() -> None:
    """A node rests when its own data steps have spent the budget, in each run at another time; who was absent rests later."""
    free = result_of(configuration("admm", {"perturbation": "objective", "alpha": 2.0, "allow_unproven": True}))
    budget = {"epsilon": 0.6 * float(free["privacy/epsilon"][-1]), "when_spent": "rest"}
    private = {"perturbation": "objective", "alpha": 2.0, "allow_unproven": True, "budget": budget}
    result = result_of(configuration("admm", private))
    spent, would = result["privacy/run_epsilon"], free["privacy/run_epsilon"]
    assert (spent <= budget["epsilon"]).all()
    last = spent.shape[1] - np.argmax(spent[:, ::-1] < spent[:, -1:], axis=1)  # the data step that was the last one
    stopped = would[:, -1] > budget["epsilon"]
    assert stopped.any() and (~stopped).any() and len(np.unique(last[stopped])) > 1
    assert np.array_equal(spent[:, -1][~stopped], would[:, -1][~stopped])
    moved = (np.diff(result["trajectory"], axis=1) != 0).any(axis=-1)  # a node that rests sends its last value again
    assert np.array_equal(moved, np.diff(spent, axis=1) > 0)


def test_others_learn_what_has_arrived() -> None:
    """Sets of what every node can know, handed on message by message, against /privacy/pair_epsilon."""
    result = result_of(
        configuration("admm", {"perturbation": "objective", "alpha": 2.0, "allow_unproven": True}, {"loss": 0.8}, runs=2)
    )
    arcs, worst = result["network/arcs"].tolist(), np.zeros((N, N))
    for run in range(2):
        known: list[set[tuple[int, int]]] = [set() for _ in range(N)]  # (node, iteration): what depends on that release
        for t in range(9):
            said = [known[j] | {(j, t)} for j in range(N)]
            for arc, (i, j) in enumerate(arcs):
                if result["network/delivered"][run, t, arc]:
                    known[i] = known[i] | said[j]
        for i in range(N):
            for j in range(N):
                heard = max((t for node, t in known[j] if node == i), default=0)
                worst[i, j] = max(worst[i, j], result["privacy/run_epsilon"][run, heard, i])
    np.fill_diagonal(worst, np.nan)
    assert np.array_equal(result["privacy/pair_epsilon"], worst, equal_nan=True)
    assert np.nanmin(worst) < 0.9 * np.nanmax(worst)


@pytest.mark.parametrize("method", ["r-admm", "dp-gradient-tracking"])
def test_sound_runs_pass_the_audit(tmp_path: Path, method: str) -> None:
    given = {"loss": 0.4, "delay": {"kind": "geometric"}, "absence": "asynchronous", "change": {"kind": "markov"}}
    noise = (
        {"perturbation": "gaussian", "noise_std": 1.0} if "gradient" in method else {"perturbation": "objective", "alpha": 2.0}
    )
    result_of(
        configuration(method, noise | ({} if "gradient" in method else {"allow_unproven": True}), given, runs=20),
        tmp_path / "o.h5",
    )
    report = audit(tmp_path / "o.h5", candidates=2)
    assert report.findings == [] and report.worst.max() > 0.0


def test_a_ledger_that_forgets_lost_messages_is_caught(tmp_path: Path) -> None:
    """A data step whose messages were all lost was heard by an eavesdropper: not to charge it is found, and so is a node that
    is charged less than one of its runs.
    """
    raw = small("admm", "objective", runs=40, network={"faults": {"loss": 0.5}})
    raw["privacy"]["allow_unproven"] = True
    result = result_of(raw, tmp_path / "o.h5")
    assert audit(tmp_path / "o.h5", candidates=3).findings == []
    arrived = result["network/delivered"][:, :, [1, 0]]  # two nodes: the arc that leaves node 0 is the second one
    forgotten = np.diff(result["privacy/run_tight"], axis=1, prepend=0.0) * ~arrived
    assert (forgotten > 0.0).any()
    with h5py.File(tmp_path / "o.h5", "r+") as file:
        file["privacy/run_tight"][...] -= np.cumsum(forgotten, axis=1)
    findings = audit(tmp_path / "o.h5", candidates=3).findings
    assert any("alone, more than the tighter bound charges for it" in finding for finding in findings)
    with h5py.File(tmp_path / "o.h5", "r+") as file:
        file["privacy/run_tight"][...] = result["privacy/run_tight"]
        file["privacy/node_tight"][...] *= 0.5
    assert "the tighter bound of a node is below that of one of its runs" in audit(tmp_path / "o.h5", candidates=3).findings
