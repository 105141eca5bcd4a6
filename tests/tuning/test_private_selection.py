"""Settings chosen by the records: the price is the theorem's, computed here by other means, and the budget is kept."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import optimize, stats

import dpadmm_mpi as dp
from dpadmm_mpi.methods.base import make_plan
from dpadmm_mpi.privacy.recorded_curves import gamma_of, number_of_tries
from dpadmm_mpi.storage.experiments import load
from dpadmm_mpi.tuning.private_selection import Price, select
from dpadmm_mpi.tuning.report import toml
from dpadmm_mpi.tuning.study import Study
from dpadmm_mpi.tuning.task import RECORDS, Request, Task, Wish, at_the_end, make_task

DELTA, TRIES = 1e-5, 4
ORDERS = [1 + x / 10 for x in range(1, 100)] + list(range(11, 64)) + [128, 256, 512, 1024]


@pytest.fixture(scope="module")
def chosen(tmp_path_factory: pytest.TempPathFactory) -> tuple[Study, Task, Price, Path]:
    """The best of some tries on 1,600 records in a file, for epsilon = 3."""
    folder = tmp_path_factory.mktemp("private")
    rng = np.random.default_rng(5)
    X = rng.uniform(-0.5, 0.5, (1600, 3))
    np.savez(folder / "records.npz", X=X, y=np.where(X[:, 0] > 0, 1.0, -1.0))
    raw: dict[str, Any] = {
        "seed": 4,
        "data": {"source": "npz", "path": str(folder / "records.npz"), "train": 1200},
        "network": {"graph": "random", "nodes": 4},
        "problem": {"C": 20.0},
        "algorithm": {"method": "mr-admm"},
    }
    wish = Wish(epsilon=3.0, delta=DELTA, on=RECORDS, space={"privacy.noise": "gaussian"})
    task = make_task(Request(raw), wish)
    study, fixed, price = select(task, TRIES, folder / "study.jsonl", folder / "nodes.csv")
    return study, fixed, price, folder


def epsilon_of(renyi: list[float]) -> float:
    """Canonne, Kamath, Steinke 2020, Proposition 12."""
    pairs = zip(ORDERS, renyi, strict=True)
    return min(e + math.log1p(-1 / a) - math.log(DELTA * a) / (a - 1) for a, e in pairs)


def theorem_2(renyi: list[float], eta: float) -> float:
    """Papernot, Steinke 2022, Theorem 2: eps'(l) = eps(l) + (1+eta) (1-1/m) eps(m) + (1+eta) ln(1/gamma)/m + ln E[K]/(l-1)"""

    def mean(gamma: float) -> float:
        return (1 / gamma - 1) / math.log(1 / gamma) if eta == 0 else eta * (1 - gamma) / (gamma * (1 - gamma**eta))

    gamma = optimize.bisect(lambda g: mean(g) - TRIES, 1e-9, 1 - 1e-6, xtol=1e-15)
    extra = min((1 + eta) * ((1 - 1 / m) * e + math.log(1 / gamma) / m) for m, e in zip(ORDERS, renyi, strict=True))
    return epsilon_of([e + extra + math.log(TRIES) / (a - 1) for a, e in zip(ORDERS, renyi, strict=True)])


def test_the_price_is_the_theorems(chosen: tuple[Study, Task, Price, Path]) -> None:
    """The divergences of a try at least those of each try's own plan, and of its score; the total from them by Theorem 2."""
    study, task, price, _ = chosen
    every = list(price.renyi)
    assert price.total == pytest.approx(theorem_2(every, price.shape), rel=1e-6)
    assert price.total == pytest.approx(min(theorem_2(every, eta) for eta in (0.0, 0.5, 1.0)), rel=1e-6)
    assert 3.0 * 0.996 <= price.total <= 3.0
    mu = math.sqrt(2) / (400 * price.score_std)  # one of 400 test records changes each of two errors by 1/400 at most
    assert all(e >= a * mu**2 / 2 * (1 - 1e-12) for a, e in zip(ORDERS, every, strict=True))
    for trial in study.trials:
        plan, _ = make_plan(task.tuned_config(trial))
        assert plan.curve is not None
        assert np.all(plan.curve.renyi <= price.renyi * (1 + 1e-12))


def test_what_is_written_is_the_very_try_that_was_chosen(chosen: tuple[Study, Task, Price, Path]) -> None:
    """Run again, the configuration gives the score of the best try less its noise, from the same split and graph."""
    study, task, price, folder = chosen
    text = toml(study, task, price)
    assert f"# epsilon = {price.total:.4g} at delta = 1e-05 (Papernot and Steinke 2022, Theorem 2)" in text
    (folder / "best.toml").write_text(text)
    again = dp.run(folder / "best.toml")
    assert again is not None
    best = study.best()
    assert abs(float(at_the_end(again, "test_error")[0]) - float(best.value or 0.0)) < 5 * price.score_std
    assert again["privacy/epsilon"][-1] <= price.each * (1 + 1e-9)
    before, _ = make_plan(task.base)
    after = load(folder / "best.toml").configs[0]
    plan, dataset = make_plan(after)
    owners = task.base.data.dataset(4, task.base.seed).node_of_record()
    assert np.array_equal(dataset.node_of_record(), owners)
    assert np.array_equal(plan.topology.edges, before.topology.edges)


def test_tries_have_noise_of_their_own(chosen: tuple[Study, Task, Price, Path]) -> None:
    study, *_ = chosen
    seeds = [trial.settings["seed"] for trial in study.trials]
    assert len(set(seeds)) == len(seeds)


def test_a_selection_goes_on_as_it_was(chosen: tuple[Study, Task, Price, Path], tmp_path: Path) -> None:
    study, task, _, folder = chosen
    lines = (folder / "study.jsonl").read_bytes().splitlines(keepends=True)
    (tmp_path / "study.jsonl").write_bytes(b"".join(lines[:2]))
    wish = Wish(epsilon=3.0, delta=DELTA, on=RECORDS, space={"privacy.noise": "gaussian"})
    again, _, _ = select(make_task(Request(task.request.source), wish), TRIES, tmp_path / "study.jsonl", folder / "nodes.csv")
    assert again.trials == study.trials


@pytest.mark.parametrize("shape", [0.0, 0.5, 1.0])
def test_numbers_of_tries_have_their_law(shape: float) -> None:
    """Against scipy's laws where they have the same: log-series, and the geometric; and the mean, over a grid of shares."""
    gamma = gamma_of(shape, 6.0)
    drawn = np.array([number_of_tries(shape, gamma, (k + 0.5) / 20_000) for k in range(20_000)])
    assert drawn.min() == 1 and drawn.mean() == pytest.approx(6.0, rel=5e-3)
    law = {0.0: stats.logser(1 - gamma), 1.0: stats.geom(gamma)}.get(shape)
    for k in (1, 2, 5):
        negative_binomial = stats.nbinom(0.5, gamma)
        expected = law.pmf(k) if law is not None else negative_binomial.pmf(k) / (1 - negative_binomial.pmf(0))
        assert np.mean(drawn == k) == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize(
    ("more", "wish", "words"),
    [
        ({}, Wish(epsilon=1.0, on=RECORDS), "the records are synthetic"),
        ({"data": {"source": "npz", "path": "x.npz"}}, Wish(epsilon=1.0, on=RECORDS, metric="log_loss"), "sensitivity"),
        (
            {"data": {"source": "npz", "path": "x.npz"}, "network": {"faults": {"loss": 0.3}}},
            Wish(epsilon=1.0, on=RECORDS),
            "faults of its own",
        ),
    ],
)
def test_what_has_no_price_is_refused(
    more: dict[str, Any], wish: Wish, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    np.savez("x.npz", X=np.eye(50) / 2, y=np.where(np.arange(50) % 2, 1.0, -1.0))
    task = make_task(Request({"data": {"records": 50, "features": 3}, **more}), wish)
    with pytest.raises(dp.InputError, match=words):
        select(task, 2, None, tmp_path / "nodes.csv")
