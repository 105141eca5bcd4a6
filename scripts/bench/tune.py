"""Does `dpadmm tune` find as good settings as a grid of 200 points, in a tenth of the time?

    python scripts/bench/tune.py [TRIALS] [EPSILON]

Both judge points alike: MR-ADMM of the quickstart, mean test error of 4 runs on the stand-in, every point calibrated to the
budget. The grid is one that somebody might write who knows the papers. Times are processor times of this process. At the end
both winners run on the quickstart's own records, which neither search has seen, with 10 runs.
"""

import itertools
import sys
import time
from pathlib import Path

import numpy as np

import dpadmm_mpi as dp
from dpadmm_mpi.parallel.serial import Serial
from dpadmm_mpi.tuning.search import search
from dpadmm_mpi.tuning.study import Study
from dpadmm_mpi.tuning.task import Request, Wish, make_task
from dpadmm_mpi.tuning.tuners import tuners

GRID = {
    "iterations": (1, 3, 5, 10, 20),
    "algorithm.eta": (0.03, 0.1, 0.3, 1.0, 3.0),
    "problem.rho": (0.05, 0.22, 1.0, 5.0),
    "privacy.noise": ("gamma", "gaussian"),
}
QUICKSTART = Path(__file__).parents[2] / "configs" / "quickstart.toml"

trials = int(sys.argv[1]) if len(sys.argv) > 1 else 20
epsilon = float(sys.argv[2]) if len(sys.argv) > 2 else 1.0
task = make_task(Request(QUICKSTART), Wish(epsilon=epsilon))
by_grid = make_task(Request(QUICKSTART), Wish(epsilon=epsilon, space={**{key: list(values) for key, values in GRID.items()}}))
method = by_grid.methods[0]

begin = time.process_time()
tuned = search(task, tuners["tpe"](), trials, Serial())
tune_seconds = time.process_time() - begin

begin = time.process_time()
points = [dict(zip(GRID, values, strict=True)) for values in itertools.product(*GRID.values())]
grid = Study({}, tuple(by_grid.judge(method, number, point) for number, point in enumerate(points)))
grid_seconds = time.process_time() - begin

for name, study, seconds, made in (("tune", tuned, tune_seconds, task), ("grid", grid, grid_seconds, by_grid)):
    best = study.best()
    settings = dict([*made.methods[0].settings, *best.settings.items(), ("runs", 10), ("record.optimum", False)])
    final = dp.run(QUICKSTART, overrides=[("seed", 8), *settings.items()])
    errors = np.asarray(final["test_error"][:, -1])
    feasible = sum(trial.feasible for trial in study.trials)
    print(f"{name}: {len(study.trials)} points ({feasible} feasible), {seconds:.1f} s of processor time")
    print(
        f"  best: {best.value:.5f} +- {best.error:.5f} on the stand-in, {errors.mean():.5f} +- "
        f"{errors.std(ddof=1) / 10**0.5:.5f} on the quickstart's own records"
    )
    print(f"  {best.settings}")
print(f"time of tune / time of grid: {tune_seconds / grid_seconds:.3f}")
