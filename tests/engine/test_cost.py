"""The cost model: laws that hold on every machine, and what `dpadmm check` prints. No clock is looked at."""

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from dpadmm_mpi.cli.main import cli
from dpadmm_mpi.engine.cost import Cost, RecordShape, cost, in_words, look_at
from dpadmm_mpi.engine.machine import Machine, measure
from dpadmm_mpi.methods import Config
from dpadmm_mpi.methods.base import make_plan
from dpadmm_mpi.parallel.owners import assign_owners
from dpadmm_mpi.storage.experiments import load

MACHINE = Machine(
    dense=1e-10, stream=8e-10, sparse=8e-10, product=4e-11, record=2e-9, normal=1e-8, copy=2e-10, call=4e-7, matrix=3e-7,
    small=6e-9, cores=1000,
)  # fmt: skip
DENSE = RecordShape(density=1.0, sparse=False)

DECENTRALISED: dict[str, Any] = {
    "iterations": 20,
    "data": {"source": "synthetic", "records": 100_000, "features": 100, "train": 0.9},
    "network": {"graph": "ring", "nodes": 10},
    "problem": {"C": 20.0, "rho": 0.22},
    "algorithm": {"method": "admm", "eta": 1.0},
}
STAR: dict[str, Any] = {
    **DECENTRALISED, "network": {"nodes": 10}, "problem": {"reg": 1e-4}, "algorithm": {"method": "star-admm", "rho": 0.1},
}  # fmt: skip
STOCHASTIC: dict[str, Any] = {**STAR, "algorithm": {"method": "s-admm", "rho": 0.1, "inner_steps": 500}}
CURATED: dict[str, Any] = {
    **STAR, "problem": {"lambda1": 1e-5, "map": "identity"}, "algorithm": {"method": "gl-admm", "rho": 1.0, "eta": 4.0},
}  # fmt: skip
SMALL_SHARDS = ("data.records=3000",)
FAMILIES = [DECENTRALISED, STAR, STOCHASTIC, CURATED]
every_family = pytest.mark.parametrize("raw", FAMILIES, ids=lambda raw: raw["algorithm"]["method"])


def predict(
    raw: dict[str, Any], *overrides: str, ranks: int = 1, rows: RecordShape = DENSE, machine: Machine = MACHINE
) -> Cost:
    plan, _ = make_plan(_config(raw, *overrides))
    return cost(plan, assign_owners(plan.sizes, ranks, plan.topology.has_hub), rows, lambda runs: machine)


def _config(raw: dict[str, Any], *overrides: str) -> Config:
    return load(raw, overrides, None).configs[0]


@every_family
def test_twice_the_records_take_about_twice_the_seconds_of_large_shards(raw: dict[str, Any]) -> None:
    once, twice = predict(raw, "data.records=400000"), predict(raw, "data.records=800000")
    assert 1.6 < twice.seconds / once.seconds < 2.05


@every_family
def test_memory_grows_by_what_the_shards_take(raw: dict[str, Any]) -> None:
    once, twice = predict(raw), predict(raw, "data.records=200000")
    more = twice.memory - once.memory
    assert 8 * 100 * 100_000 <= more < 2 * 8 * 100 * 100_000  # 8 bytes for each of 100 features, and little besides


@every_family
def test_more_ranks_with_cores_enough_are_never_slower_and_never_larger(raw: dict[str, Any]) -> None:
    costs = [predict(raw, ranks=ranks) for ranks in (1, 2, 5, 10)]
    assert np.all(np.diff([each.seconds for each in costs]) <= 0.0)
    assert np.all(np.diff([each.memory for each in costs]) <= 0.0)
    assert costs[-1].seconds < 0.3 * costs[0].seconds


def test_ranks_beyond_the_cores_share_them() -> None:
    two_cores = replace(MACHINE, cores=2)
    alone, shared = predict(DECENTRALISED), predict(DECENTRALISED, ranks=10, machine=two_cores)
    assert 0.5 * alone.seconds <= shared.seconds < alone.seconds
    apart = predict(DECENTRALISED, ranks=2, machine=two_cores)
    assert shared.seconds > 1.2 * apart.seconds  # cold caches
    brief = (*SMALL_SHARDS, "record.every=20")  # mostly waking up
    assert predict(DECENTRALISED, *brief, ranks=10, machine=two_cores).seconds > 2.0 * predict(DECENTRALISED, *brief).seconds


@every_family
def test_recording_less_often_is_not_slower(raw: dict[str, Any]) -> None:
    seconds = [predict(raw, f"record.every={every}").seconds for every in (1, 2, 5, 20)]
    assert np.all(np.diff(seconds) < 0.0)
    assert predict(raw, "record.every=20").file < predict(raw).file


def test_recycled_iterations_cost_half() -> None:
    """The shards are large: all but the recycled steps' few vectors is in the data steps and in the measuring."""
    sparing = "record.every=20"
    ratio = predict(DECENTRALISED, sparing, "algorithm.method=r-admm").seconds / predict(DECENTRALISED, sparing).seconds
    assert 0.5 < ratio < 0.6


def test_calls_are_shared_by_runs_that_go_side_by_side() -> None:
    """Shards of a few hundred records, where the calls are most of it; from 16 runs on there is nothing more to share."""
    small = (*SMALL_SHARDS, "data.features=90")
    seconds = [predict(DECENTRALISED, *small, f"runs={runs}", ranks=10).seconds for runs in (1, 4, 16, 64)]
    assert seconds[0] > 1.5 * seconds[1] > 1.5 * seconds[2]
    assert seconds[2] == seconds[3]


def test_calls_are_shared_by_nodes_of_a_rank_that_are_solved_together() -> None:
    """In one run: the nodes of ten ranks on one rank take less than ten times as long, large ones do not."""
    small = (*SMALL_SHARDS, "data.features=90", "record.every=20")
    assert predict(DECENTRALISED, *small).seconds < 6 * predict(DECENTRALISED, *small, ranks=10).seconds
    large = ("data.records=10000000", "record.every=20")
    assert predict(DECENTRALISED, *large).seconds > 9 * predict(DECENTRALISED, *large, ranks=10).seconds


def test_inner_steps_and_noise_are_counted() -> None:
    few, many = predict(STOCHASTIC), predict(STOCHASTIC, "algorithm.inner_steps=50000")
    noisy = predict(STOCHASTIC, "algorithm.inner_steps=50000", "algorithm.method=ps-admm", "privacy.noise_std=0.1")
    assert few.seconds < many.seconds < noisy.seconds
    vectors = 10 * 50_000 * 100 * MACHINE.normal  # one normal number for each provider, step and feature
    assert noisy.seconds - many.seconds >= vectors


def test_records_of_zeros_take_less() -> None:
    sparse = predict(DECENTRALISED, rows=RecordShape(density=0.02, sparse=True))
    assert sparse.seconds < predict(DECENTRALISED).seconds and sparse.memory < predict(DECENTRALISED).memory


def test_many_small_nodes_cost_in_proportion_to_their_number() -> None:
    small = ["data.features=20", "data.train=1.0"]
    once = predict(DECENTRALISED, *small, "network.nodes=1000", "data.records=20000")
    twice = predict(DECENTRALISED, *small, "network.nodes=2000", "data.records=40000")
    assert 1.8 < twice.seconds / once.seconds < 2.05


def test_the_density_is_that_of_the_records() -> None:
    _, dataset = make_plan(_config(DECENTRALISED))
    X = dataset.loader.shard(dataset.address(3)).X
    found = look_at(dataset)
    assert found.density == pytest.approx(np.mean(X != 0.0), rel=0.1)
    assert not found.sparse


def test_this_machine_takes_time_for_everything() -> None:
    machine = measure(3)
    assert all(value >= 0.0 for value in vars(machine).values()) and machine.cores >= 1
    assert min(machine.dense, machine.sparse, machine.product, machine.call) > 0.0


def test_the_words_of_check() -> None:
    plan, _ = make_plan(_config(DECENTRALISED, "runs=3"))
    owner = assign_owners(plan.sizes, 2)
    assert in_words(plan, owner, Cost(seconds=0.02, setup=0.0, memory=75e6, file=1.2e6)) == (
        "about 20 ms per iteration of a run (1.2 s for 3 runs of 20) on 2 ranks; memory about 75 MB per rank, file 1.2 MB"
    )
    long = in_words(plan, owner, Cost(seconds=90.0, setup=3600.0, memory=3.2e9, file=25e6))
    assert long == (
        "about 1.5 min per iteration of a run (2.5 h for 3 runs of 20, of which 60 min before the first) on 2 ranks; "
        "memory about 3.2 GB per rank, file 25 MB"
    )


SHARED = r"5 ranks that share 3 cores take about \S+ times as long as 3 ranks; start as many ranks as there are cores.*"


@pytest.mark.parametrize(("cores", "advice"), [(5, None), (3, SHARED)])
def test_check_prints_the_cost_on_as_many_ranks_as_asked_for_and_what_is_faster(
    monkeypatch: pytest.MonkeyPatch, cores: int, advice: str | None
) -> None:
    monkeypatch.setattr("dpadmm_mpi.parallel.launcher.usable_cores", lambda: set(range(cores)))
    outcome = CliRunner().invoke(cli, ["check", "--ranks", "5"])
    assert outcome.exit_code == 0
    (line,) = [line for line in outcome.stdout.splitlines() if line.startswith("cost ")]
    work, space = line.removeprefix("cost       ").split("; ")
    assert re.fullmatch(r"about \S+ m?s per iteration of a run \(.* for 3 runs of 50.*\) on 5 ranks", work)
    assert re.fullmatch(r"memory about \S+ MB per rank, file \S+ MB", space)
    said = [line.removeprefix("advice     ") for line in outcome.stdout.splitlines() if "share" in line and "cores" in line]
    assert [bool(advice and re.fullmatch(advice, line)) for line in said] == ([] if advice is None else [True])
