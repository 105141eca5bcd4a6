"""Does `dpadmm tune` find as good settings as a grid of 200 points, in a tenth of the time?

    python scripts/bench/tune.py --trials 20 --seeds 3 --epsilon 1

Both judge points alike: MR-ADMM of the quickstart, mean test error of 4 runs on the stand-in, every point calibrated to the
budget. The grid is one that somebody might write who knows the papers; it has no averages. The searches differ in the seed of
their proposals alone, and go once from the space's own first point and once from a random one: the first point was chosen after
a look at other records, and hides what the search itself finds. Times are processor times of this process. At the end all
winners run on the quickstart's own records, which no search has seen, with 10 runs.
"""

import argparse
import itertools
import time
from dataclasses import replace
from pathlib import Path

import msgspec

import dpadmm_mpi as dp
from dpadmm_mpi.cli.tune import TRIALS
from dpadmm_mpi.config.ranges import Point
from dpadmm_mpi.parallel.serial import Serial
from dpadmm_mpi.rng import Purpose, generator
from dpadmm_mpi.tuning.search import search
from dpadmm_mpi.tuning.study import Study, Trial
from dpadmm_mpi.tuning.task import MethodTask, Request, Task, Wish, at_the_end, make_task
from dpadmm_mpi.tuning.tuners import random_point, tuners

GRID = {
    "iterations": (1, 3, 5, 10, 20),
    "algorithm.eta": (0.03, 0.1, 0.3, 1.0, 3.0),
    "problem.rho": (0.05, 0.22, 1.0, 5.0),
    "privacy.noise": ("gamma", "gaussian"),
}
QUICKSTART = Path(__file__).parents[2] / "configs" / "quickstart.toml"


def searched(task: Task, trials: int, seed: int, from_first: bool) -> Study:
    def judge(method: MethodTask, number: int, point: Point) -> Trial:
        if number == 0 and not from_first:
            point = random_point(method.space, generator(seed, Purpose.TRIALS))
        return task.judge(method, number, point)

    return search(
        replace(task, base=msgspec.structs.replace(task.base, seed=seed)), tuners["tpe"](), trials, Serial(), judge=judge
    )


def gridded(task: Task) -> Study:
    points = [dict(zip(GRID, values, strict=True)) for values in itertools.product(*GRID.values())]
    return Study({}, tuple(task.judge(task.methods[0], number, point) for number, point in enumerate(points)))


def show(name: str, study: Study, task: Task, seconds: float) -> None:
    best = study.best()
    settings = dict([*task.methods[0].settings, *best.settings.items(), ("runs", 10), ("record.optimum", False)])
    final = dp.run(QUICKSTART, overrides=[("seed", 8), *settings.items()])
    errors = at_the_end(final, "test_error")
    feasible = sum(trial.feasible for trial in study.trials)
    print(
        f"{name}: {len(study.trials)} points ({feasible} feasible), {seconds:.1f} s; the best, trial {best.number}: "
        f"{best.value:.5f} +- {best.error:.5f} on the stand-in, {errors.mean():.5f} +- "
        f"{errors.std(ddof=1) / 10**0.5:.5f} on the quickstart's own records\n  {best.settings}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=TRIALS)
    parser.add_argument("--seeds", type=int, default=3, help="searches of each kind")
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--no-grid", action="store_true")
    given = parser.parse_args()
    task = make_task(Request(QUICKSTART), Wish(epsilon=given.epsilon))
    times = []
    for from_first, seed in itertools.product((True, False), range(8, 8 + given.seeds)):
        begin = time.process_time()
        study = searched(task, given.trials, seed, from_first)
        times.append(time.process_time() - begin)
        show(f"tune, seed {seed}, from {'the first point' if from_first else 'a random point'}", study, task, times[-1])
    if given.no_grid:
        return
    by_grid = make_task(Request(QUICKSTART), Wish(epsilon=given.epsilon, space={key: list(each) for key, each in GRID.items()}))
    begin = time.process_time()
    study = gridded(by_grid)
    seconds = time.process_time() - begin
    show("grid", study, by_grid, seconds)
    print("time of tune / time of grid:", ", ".join(f"{each / seconds:.3f}" for each in times))


if __name__ == "__main__":
    main()
