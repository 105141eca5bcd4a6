"""Searches: they find what was planted, go on where they were killed, and leave the records alone."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tomli_w
from scipy import stats
from support import command, dpadmm, popen

import dpadmm_mpi as dp
from dpadmm_mpi.config.ranges import Between, OneOf, Point, Space, Whole
from dpadmm_mpi.data.store import Store
from dpadmm_mpi.engine.loop import execute
from dpadmm_mpi.methods.base import make_plan
from dpadmm_mpi.parallel.serial import Serial
from dpadmm_mpi.storage.experiments import load
from dpadmm_mpi.tuning import stand_in
from dpadmm_mpi.tuning.report import importance, refuse_other
from dpadmm_mpi.tuning.search import BATCH, search
from dpadmm_mpi.tuning.study import Journal, Study, Trial
from dpadmm_mpi.tuning.task import MethodTask, Request, Task, Wish, make_task
from dpadmm_mpi.tuning.tuners import Told, tuners

SMALL: dict[str, Any] = {
    "seed": 3,
    "iterations": 20,
    "data": {"records": 1500, "features": 5},
    "network": {"graph": "random", "nodes": 4},
    "problem": {"C": 100.0, "rho": 0.1},
    "algorithm": {"method": "mr-admm", "gamma": 0.5},
    "privacy": {"perturbation": "objective", "target": 2.0, "target_account": "epsilon"},
}
PLANTED = {"x": 0.03, "k": 7, "c": "b"}
SPACE: Space = {"x": Between(1e-3, 10.0, log=True, start=5.0), "k": Whole(1, 20, start=20), "c": OneOf(("a", "b", "c"))}


def planted(point: Point) -> float:
    """Smallest, 0, at PLANTED."""
    return float(abs(np.log(point["x"] / PLANTED["x"])) + 0.3 * abs(point["k"] - PLANTED["k"]) + (point["c"] != PLANTED["c"]))


def found_by(name: str, trials: int, seed: int) -> float:
    tuner, told = tuners[name](), list[Told]()
    for number in range(1, trials):
        point = tuner.propose(SPACE, told, number, seed)
        told.append(Told(point, planted(point)))
    return min(each.value for each in told if each.value is not None)


def test_the_search_finds_a_planted_optimum() -> None:
    """80 trials of TPE come nearer than 80 at random, in the median over seeds, and near in absolute terms."""
    seeds = range(3)
    learned, by_chance = ([found_by(name, 80, seed) for seed in seeds] for name in ("tpe", "random"))
    assert np.median(learned) < 0.6 * np.median(by_chance)
    assert np.median(learned) < 0.5


def test_a_grid_goes_through_all_its_points_once() -> None:
    grid = tuners["grid"](levels=3)
    points = [tuple(grid.propose(SPACE, [], number, 1).values()) for number in range(1, 28)]
    assert len(set(points)) == 27 == len(grid.values(SPACE["x"])) * len(grid.values(SPACE["k"])) * 3  # type: ignore[attr-defined]


def test_what_cannot_be_run_is_avoided() -> None:
    """With x above 1 infeasible, TPE proposes such points less and less."""
    tuner, told = tuners["tpe"](), list[Told]()
    for number in range(1, 60):
        point = tuner.propose(SPACE, told, number, 4)
        told.append(Told(point, None if point["x"] > 1.0 else planted(point)))
    refused = [each.value is None for each in told]
    assert sum(refused[-20:]) <= 2 < sum(refused[:20])


@pytest.fixture(scope="module")
def task() -> Task:
    return make_task(Request(SMALL), Wish(runs=2))


@pytest.fixture(scope="module")
def undisturbed(task: Task, tmp_path_factory: pytest.TempPathFactory) -> tuple[Study, Path]:
    path = tmp_path_factory.mktemp("study") / "study.jsonl"
    return search(task, tuners["tpe"](), 14, Serial(), path), path


def test_trials_that_cannot_meet_the_budget_are_recorded_with_their_sentence() -> None:
    """The search goes on; the sentence is the one that a run would be refused with. Without any that can, it says why."""
    wish = Wish(runs=2, space={"algorithm.eta": "0.0001,1.0", "problem.rho": 0.001})
    study = search(make_task(Request(SMALL), wish), tuners["random"](), 6, Serial())
    refused = [trial for trial in study.trials if not trial.feasible]
    assert {trial.settings["algorithm.eta"] for trial in refused} == {0.0001}
    assert all(trial.sentence.startswith("privacy.target: 2 cannot be met") for trial in refused)
    assert {trial.settings["algorithm.eta"] for trial in study.ranked()} == {1.0}
    assert all(trial.error is not None and not trial.sentence for trial in study.ranked())
    with pytest.raises(dp.InputError, match=r"none of the \d trials could be run; the first one: privacy.target: 2 cannot"):
        Study({}, tuple(refused)).best()


def test_a_study_that_was_killed_twice_is_the_same(task: Task, undisturbed: tuple[Study, Path], tmp_path: Path) -> None:
    """Killed in the middle of a batch, and in the middle of a line: the trials are proposed anew, and are the same."""
    study, path = undisturbed
    killed, judged = tmp_path / "killed.jsonl", list[int]()
    lines = path.read_bytes().splitlines(keepends=True)
    killed.write_bytes(b"".join(lines[:7]) + b'{"number": 6, "meth')

    def until_killed(method: MethodTask, number: int, point: Point) -> Trial:
        judged.append(number)
        if number == 10:
            raise KeyboardInterrupt
        return task.judge(method, number, point)

    with pytest.raises(KeyboardInterrupt):
        search(task, tuners["tpe"](), 14, Serial(), killed, judge=until_killed)
    assert killed.read_bytes() == b"".join(lines[:11])
    assert judged == [6, 7, 8, 9, 10] and 6 % BATCH and 10 % BATCH  # both times inside a batch, and nothing is run twice
    assert search(task, tuners["tpe"](), 14, Serial(), killed).trials == study.trials
    assert killed.read_bytes() == path.read_bytes()


@pytest.mark.parametrize(("iterations", "helps"), [(2, False), (12, True)])
def test_a_trial_has_the_better_of_its_two_classifiers(iterations: int, helps: bool) -> None:
    """Run again, a trial has the value of its average only where that won by a standard error, and its settings say so: the
    configuration that comes out reports the classifier that was judged. An average that the user has fixed stays.
    """
    task = make_task(Request(SMALL), Wish(runs=3, epsilon=1.0))
    method = task.methods[0]
    point: Point = {key: each.first for key, each in method.space.items()} | {"iterations": iterations}
    result = execute(task.trial_config(method, method.point_settings(point)), Serial())
    assert result is not None
    last, averaged = (np.asarray(result[name])[:, -1] for name in ("test_error", "test_error_averaged"))
    assert helps == (np.mean(last - averaged) > stats.sem(last - averaged) + 1e-9)
    trial = task.judge(method, 0, point)
    assert trial.value == pytest.approx((averaged if helps else last).mean(), rel=1e-12)
    assert trial.settings["release.average"] == ("half" if helps else "none")
    again = execute(task.trial_config(method, list(trial.settings.items())), Serial())
    assert again is not None and ("test_error_averaged" in again) == helps
    assert np.array_equal(again["test_error_averaged" if helps else "test_error"][:, -1], averaged if helps else last)
    fixed = make_task(Request(SMALL), Wish(runs=3, epsilon=1.0, space={"release.average": "half"}))
    assert fixed.judge(fixed.methods[0], 0, point).value == pytest.approx(averaged.mean(), rel=1e-12)


def test_more_trials_go_on_and_another_search_is_refused(task: Task, tmp_path: Path) -> None:
    path = tmp_path / "study.jsonl"
    judged = lambda method, number, point: Trial(number, method.name, point, {}, planted({"x": 1.0, "k": number, "c": "a"}))  # noqa: E731
    first = search(task, tuners["random"](), 5, Serial(), path, judge=judged)
    more = search(task, tuners["random"](), 9, Serial(), path, judge=judged)
    assert more.trials[:5] == first.trials and len(more.trials) == 9
    with pytest.raises(dp.InputError, match="tuner is "):
        search(task, tuners["grid"](), 9, Serial(), path)
    (tmp_path / "other.jsonl").write_text("something else\n")
    with pytest.raises(dp.InputError, match="not a study"):
        search(task, tuners["random"](), 2, Serial(), tmp_path / "other.jsonl")


def test_two_processes_do_not_share_a_study(tmp_path: Path) -> None:
    held = Journal(tmp_path / "study.jsonl", {})
    with pytest.raises(dp.InputError, match="another process"):
        Journal(tmp_path / "study.jsonl", {})
    held.close()


def test_the_best_configuration_runs_and_meets_the_budget(task: Task, undisturbed: tuple[Study, Path]) -> None:
    """The accounts of the user's own configuration with the best settings, computed anew from its plan.

    With so few data steps the account goes up and down by a hundredth as the noise grows, for sums are rounded up on a grid.
    """
    best = undisturbed[0].best()
    config = task.tuned_config(best)
    assert (config.seed, config.runs, config.iterations) == (3, 1, best.settings["iterations"])
    assert config.network.graph == load(SMALL).configs[0].network.graph
    plan, _ = make_plan(config)
    epsilon = next(account for account in plan.accounts if account.name == "epsilon")
    assert epsilon.proven and 1.97 < epsilon.values[-1] <= 2.0


def test_under_mpiexec_after_kills_and_alone_the_study_is_the_same(tmp_path: Path) -> None:
    """`dpadmm tune`, killed -9 while it works, gone on with on two ranks: the very file of a lone undisturbed process.

    The configuration that it writes runs, and its file has the budget.
    """
    config = tmp_path / "small.toml"
    config.write_text(tomli_w.dumps(SMALL))
    words = ["tune", config, "--trials", "6", "--runs", "1"]
    alone = command(*words, "-o", tmp_path / "alone.toml", "--plot", tmp_path / "slices.png")
    assert alone.returncode == 0, alone.stderr
    assert "only these counts are used: 4 nodes with 300 records each, 300 for testing, 5 features" in alone.stderr
    study = tmp_path / "other.study.jsonl"
    process = popen(dpadmm(*words, "-o", tmp_path / "other.toml"), stderr=subprocess.DEVNULL)
    until = time.monotonic() + 60
    while time.monotonic() < until and not (study.exists() and len(study.read_bytes().splitlines()) > 3):
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    ranks = command(*words, "-o", tmp_path / "other.toml", ranks=2)
    assert ranks.returncode == 0, ranks.stderr
    assert study.read_bytes() == (tmp_path / "alone.study.jsonl").read_bytes()
    assert (tmp_path / "other.toml").read_text() == (tmp_path / "alone.toml").read_text()
    text = (tmp_path / "alone.toml").read_text()
    assert text.startswith("# Found by dpadmm tune for epsilon = 2 at delta = 1e-05, method mr-admm.\n# Tried on synthetic")
    result = dp.run(tmp_path / "alone.toml")
    assert result is not None and 1.97 < result["privacy/epsilon"][-1] <= 2.0
    assert (tmp_path / "slices.png").stat().st_size > 10_000


@pytest.fixture
def records(tmp_path: Path) -> Path:
    """A file with records whose labels are their first feature's sign."""
    rng = np.random.default_rng(5)
    X = rng.uniform(-0.5, 0.5, (900, 3))
    path = tmp_path / "records.npz"
    np.savez(path, X=X, y=np.where(X[:, 0] > 0, 1.0, -1.0))
    return path


def test_the_stand_in_never_reads_the_records(records: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once the file is prepared, no record is taken from the store: neither for the facts nor in a trial."""
    raw = {**SMALL, "data": {"source": "npz", "path": str(records), "split": "uneven"}, "problem": {"C": 20.0}}
    config = load(raw).configs[0]
    sizes = config.data.dataset(4, 3).sizes  # prepares the file

    def refuse(*_: object) -> None:
        raise AssertionError("a record was read")

    monkeypatch.setattr(Store, "read", refuse)
    made = make_task(Request(raw), Wish(runs=2))
    trial = made.judge(made.methods[0], 0, {key: each.first for key, each in made.methods[0].space.items()})
    assert trial.feasible, trial.sentence
    used = made.trial_config(made.methods[0], [])
    assert used.data.dataset(4, used.seed).sizes.tolist() == sizes.tolist()
    with pytest.raises(AssertionError, match="a record was read"):
        dp.run(raw)


def test_other_records_of_the_same_counts_make_the_same_study(records: Path, tmp_path: Path) -> None:
    """What is found depends on the counts alone: with all features changed, and all labels, every trial is the same."""
    other = tmp_path / "other.npz"
    arrays = np.load(records)
    np.savez(other, X=arrays["X"][::-1] ** 2, y=-arrays["y"])
    studies = []
    for path in (records, other):
        made = make_task(Request({**SMALL, "data": {"source": "npz", "path": str(path)}}), Wish(runs=2))
        studies.append(search(made, tuners["random"](), 2, Serial()).trials)
    assert studies[0] == studies[1]


def test_a_public_data_set_is_used_with_the_real_sizes(records: Path) -> None:
    """A public file with enough records gives each node as many as it really has; one with too few is used as it is."""
    small = {**SMALL, "data": {"records": 500, "features": 5}}
    used = make_task(Request(small), Wish(on=str(records)))
    config = used.trial_config(used.methods[0], [])
    assert config.data.dataset(4, config.seed).sizes.tolist() == [100, 100, 100, 100]
    too_few = make_task(Request(SMALL), Wish(on=str(records)))
    assert "fewer than the real ones (900)" in too_few.stand_in.words
    with pytest.raises(dp.InputError, match=r"--on adlt: neither a file nor a source.*did you mean \"adult\""):
        make_task(Request(SMALL), Wish(on="adlt"))


def test_the_drawn_graph_stays_the_same_on_the_stand_in(task: Task) -> None:
    real, _ = make_plan(load(SMALL).configs[0])
    tried, _ = make_plan(task.trial_config(task.methods[0], []))
    assert np.array_equal(real.topology.edges, tried.topology.edges)
    assert tried.config.seed == real.config.seed + stand_in.SEED


def test_methods_of_all_families_are_tuned_from_one_configuration() -> None:
    names = ("admm", "ps-admm", "dp-acc-admm")
    tuned = dp.tune(SMALL, methods=names, trials=2, trial_runs=1, tuner="random", overrides="privacy.target=8.0")
    assert tuple(tuned.study.methods) == names
    assert [len(tuned.study.of(name)) for name in names] == [2, 2, 2]
    assert all(tuned.study.ranked(name) for name in names)
    assert [line.split()[0] for line in tuned.table().splitlines()[1:]] == sorted(
        names, key=lambda name: float(tuned.study.best(name).value or 0.0)
    )
    assert dp.run(tuned.config) is not None


@pytest.mark.parametrize(
    ("raw", "wish", "words"),
    [
        ({**SMALL, "privacy": {"perturbation": "objective", "alpha": 1.0}}, Wish(), "there is no budget; give one by"),
        (SMALL, Wish(methods=("s-admm",)), "s-admm: has no noise"),
        (SMALL, Wish(delta=1e-6), "--delta: has no meaning without"),
        (SMALL, Wish(metric="node_loss"), "--metric node_loss: has several values"),
    ],
)
def test_what_cannot_be_tuned_is_refused_before_the_first_trial(raw: Any, wish: Wish, words: str) -> None:
    with pytest.raises(dp.InputError, match=words):
        make_task(Request(raw), wish)


def test_what_matters_is_found_first() -> None:
    """Of made-up trials whose value depends on one key alone."""
    rng = np.random.default_rng(2)
    points: list[Point] = [{"x": float(np.exp(rng.uniform(-6, 2))), "k": int(rng.integers(1, 21)), "c": "a"} for _ in range(40)]
    trials = tuple(Trial(n, "m", point, {}, 0.1 * (point["k"] - 9) ** 2) for n, point in enumerate(points))
    shares = importance(Study({}, trials), "m", SPACE)
    assert next(iter(shares)) == "k" and shares["k"] > 0.8 > 0.3 > shares["x"] and shares["c"] == 0.0


def test_somebody_elses_configuration_is_not_replaced(tmp_path: Path) -> None:
    own = tmp_path / "own.toml"
    own.write_text("iterations = 3\n")
    with pytest.raises(dp.InputError, match="exists and is not of dpadmm tune"):
        refuse_other(own, force=False)
    refuse_other(own, force=True)


def test_without_optuna_the_command_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    import builtins

    real: Callable[..., Any] = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name == "optuna":
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(dp.InputError, match=r'pip install "dpadmm-mpi\[tune\]"'):
        dp.tune(SMALL, trials=1)


def test_the_journal_is_plain_lines(undisturbed: tuple[Study, Path]) -> None:
    first, *trials = [json.loads(line) for line in undisturbed[1].read_text().splitlines()]
    assert first["budget"] == "epsilon = 2 at delta = 1e-05" and first["methods"]["mr-admm"]["iterations"] == "1:12:log"
    assert [trial["number"] for trial in trials] == list(range(14))
