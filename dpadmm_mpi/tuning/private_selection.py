"""Settings chosen by the records themselves, with what the choice costs in the account.

Papernot, Steinke: Hyperparameter Tuning with Renyi Differential Privacy, ICLR 2022, Theorem 2. The mechanism Q draws one of
the candidates, settings that are fixed beforehand and do not depend on the records, runs it with noise of its own, and gives
its model a score. K, the number of tries, is drawn from a truncated negative binomial law; the best try is what is released,
and nothing else: its model, its settings and its score.

Who is protected from the score? It is taken from test records, which are somebody's too, so Gaussian noise is added to it:
one test record changes a test error by 1/n at most. A try has two of them, at the average of the released iterates and at the
last one, so one test record moves the pair by sqrt(2)/n at most; the better of the two noisy ones is the score. A record is
either for training or for testing, which is fixed by a file and does not depend on it; so Q costs whichever is more, the run
or the score, and not both.

Letters: mu, sensitivity of the score over its noise; K, tries; the shape and gamma of K's law are eta and gamma of the paper.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dpadmm_mpi.config.files import Setting
from dpadmm_mpi.config.ranges import Point
from dpadmm_mpi.data.dataset import partition_table
from dpadmm_mpi.data.sources import Synthetic
from dpadmm_mpi.engine.loop import execute
from dpadmm_mpi.errors import DpadmmError, InputError
from dpadmm_mpi.files import make_folder
from dpadmm_mpi.methods.base import Config, make_plan, methods
from dpadmm_mpi.networks.graphs import build
from dpadmm_mpi.parallel.serial import Serial
from dpadmm_mpi.privacy.gaussian_noise import ORDERS
from dpadmm_mpi.privacy.recorded_curves import epsilon_of, gamma_of, number_of_tries, selection
from dpadmm_mpi.rng import Purpose, generator
from dpadmm_mpi.tuning.search import Unwatched, Watcher
from dpadmm_mpi.tuning.stand_in import StandIn, same_graph
from dpadmm_mpi.tuning.study import Journal, Study, Trial
from dpadmm_mpi.tuning.task import MethodTask, Task, at_the_end, last_iterate, without_average
from dpadmm_mpi.tuning.tuners import first_point, random_point
from dpadmm_mpi.types import Array

SCORE_SHARE = 0.8  # of the epsilon of a try, that its score costs those who are tested
CALIBRATION = 4e-3  # relative, by which the whole stays below the budget
ONLY_METRIC = "test_error"  # whose sensitivity is known


class Candidate(NamedTuple):
    """Settings that a try may have."""

    method: MethodTask
    point: Point
    settings: list[Setting]


@dataclass(frozen=True)
class Price:
    """What the choice costs, all of it."""

    each: float  # epsilon of a try, which the candidates are calibrated to
    total: float  # epsilon of the best of them, at delta
    mean_tries: float
    shape: float
    score_std: float  # of the noise on each of the two test errors of a try
    renyi: Array  # of a try, at ORDERS

    @property
    def tries_words(self) -> str:
        law = {0.0: "logarithmic", 0.5: "negative binomial (1/2)", 1.0: "geometric"}[self.shape]
        return f"a number of tries from the {law} distribution with mean {self.mean_tries:g}"


def select(
    task: Task, tries: int, study: Path | None, nodes_file: Path, watcher: Watcher | None = None
) -> tuple[Study, Task, Price]:
    """The best of K tries on the records; the study has all of them, of which only the best may be published.

    The returned task has the files and seeds that make the chosen configuration do again what the best try did.
    """
    watcher = watcher or Unwatched()
    test_records = _refuse(task)
    fixed = _with_fixed_split(task, nodes_file)
    candidates = _candidates(fixed, tries)
    price = price_of(fixed, candidates, tries, test_records)
    rng = generator(task.base.seed, Purpose.TRIES)
    count = number_of_tries(price.shape, gamma_of(price.shape, tries), float(rng.random())) if tries > 1 else 1
    drawn = rng.integers(len(candidates), size=count)
    about = {**fixed.about(), "tuner": "private selection", "seed": task.base.seed, "trials": tries, "each": price.each}
    journal = Journal(study, about)
    try:
        watcher.begin(count)
        for number, which in enumerate(drawn.tolist()):
            if number >= len(journal.trials):
                journal.add([_try(fixed, candidates[which], number, price)])
            watcher.trial(journal.trials[number])
    finally:
        watcher.end()
        journal.close()
    return Study(about, tuple(journal.trials[:count])), fixed, price


def _refuse(task: Task) -> int:
    """What has no sound price; the number of test records otherwise."""
    if isinstance(task.base.data.source, Synthetic):
        raise InputError("--private-selection: the records are synthetic, and need no protection; leave it out")
    if task.metric != ONLY_METRIC:
        raise InputError(f"--private-selection: only {ONLY_METRIC} has a known sensitivity; found --metric {task.metric}")
    if task.budget.account:
        raise InputError("--private-selection: its price is an epsilon at a delta; give the budget by --budget-epsilon")
    if task.base.network.faults.kinds:
        raise InputError(
            "--private-selection: every try would have faults of its own, and with them another price; remove network.faults"
        )
    dataset = _dataset(task.base)
    test = dataset.test()
    if test is None:
        raise InputError("--private-selection: there are no test records to choose by; set data.train below 1")
    return int(test.records)


def _dataset(config: Config) -> Any:
    return config.data.dataset(build(config.network.graph, config.seed).nodes, config.seed)


def _with_fixed_split(task: Task, nodes_file: Path) -> Task:
    """The same nodes, records and test records whatever the seed, so that each try may have noise of its own."""
    make_folder(nodes_file.parent)
    nodes_file.write_text(partition_table(_dataset(task.base)), encoding="utf-8")
    settings: list[Setting] = [("data.split", "node-file"), ("data.node_file", str(nodes_file.resolve()))]
    request = replace(task.request, without=("train",))
    words = f"the records themselves, {task.base.data.source.__class__.__name__.lower()}"
    return replace(task, request=request, stand_in=StandIn((*settings, *same_graph(task.base)), words), runs=1)


def _candidates(task: Task, count: int) -> list[Candidate]:
    """`count` settings for each method: drawn before anything is looked at; those that cannot be run are left out."""
    found = []
    for method in task.methods:
        for number in range(count):
            rng = generator(task.base.seed, Purpose.TRIALS, iteration=number)
            point = random_point(method.space, rng) if number else first_point(method.space)
            found.append(Candidate(method, point, method.point_settings(point)))
    return found


def price_of(task: Task, candidates: list[Candidate], tries: float, test_records: int) -> Price:
    """The largest epsilon of a try with which the choice keeps the budget. Leaves out of `candidates` what cannot be run."""
    budget = task.budget

    def priced(each: float) -> Price:
        worst = np.zeros(len(ORDERS))
        for candidate in list(candidates):
            renyi = _renyi(task, candidate, each)
            if renyi is None:
                candidates.remove(candidate)
            else:
                worst = np.maximum(worst, renyi)
        if not candidates:
            raise InputError("--private-selection: no candidate can be calibrated to the budget; give more --trials or epsilon")
        mu = _gaussian_mu(SCORE_SHARE * each, budget.delta)
        try_renyi = np.maximum(worst, ORDERS * mu**2 / 2.0)
        chosen, shape = selection(try_renyi, tries)
        total = epsilon_of(chosen, budget.delta)
        return Price(each, total, tries, shape, np.sqrt(2.0) / (test_records * mu), try_renyi)

    return _largest(priced, budget.epsilon)


def _largest(priced: Callable[[float], Price], budget: float) -> Price:
    """The total grows with the epsilon of a try, nearly in proportion; where that leads outside, by bisection."""
    low, high, best = 0.0, budget, None
    each = 0.5 * budget
    for _ in range(20):
        price = priced(each)
        low, high, best = (each, high, price) if price.total <= budget else (low, each, best)
        if best is not None and best.total >= budget * (1.0 - CALIBRATION):
            break
        each *= budget * (1.0 - 0.5 * CALIBRATION) / price.total
        if not low < each < high:
            each = 0.5 * (low + high)
    if best is None:
        raise InputError("--private-selection: the choice alone costs more than the budget; raise it, or lower --trials")
    return best


def _gaussian_mu(epsilon: float, delta: float) -> float:
    """Of a Gaussian mechanism with this epsilon at delta, by its Renyi divergences."""
    low, high = 0.0, 1.0
    while epsilon_of(ORDERS * high**2 / 2.0, delta) < epsilon:
        low, high = high, 2.0 * high
    for _ in range(50):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if epsilon_of(ORDERS * middle**2 / 2.0, delta) <= epsilon else (low, middle)
    return low


def _renyi(task: Task, candidate: Candidate, epsilon: float) -> Array | None:
    """Divergences of a candidate that is calibrated to epsilon; None if it cannot be, or nothing is proven."""
    try:
        plan, _ = make_plan(try_config(task, candidate, epsilon, 0))
        curve = plan.curve
    except DpadmmError:
        return None
    return None if curve is None else curve.renyi


def try_settings(task: Task, candidate: Candidate, epsilon: float, number: int) -> dict[str, Any]:
    """What makes the configuration that of a try: its noise is its own by its seed, records and graph stay the same."""
    hub = methods[candidate.method.name].hub
    seed = int(generator(task.base.seed, Purpose.TRIES, run=1, iteration=number).integers(2**62))
    same = [each for each in task.stand_in.settings if not (hub and each[0].startswith("network."))]
    return dict([*candidate.settings, *same, ("privacy.target", epsilon), ("seed", seed), ("runs", 1)])


def try_config(task: Task, candidate: Candidate, epsilon: float, number: int) -> Config:
    return task.request.config([*candidate.method.settings, *try_settings(task, candidate, epsilon, number).items()])


def _try(task: Task, candidate: Candidate, number: int, price: Price) -> Trial:
    settings = try_settings(task, candidate, price.each, number)
    trial = Trial(number, candidate.method.name, candidate.point, settings)
    try:
        result = execute(try_config(task, candidate, price.each, number), Serial())
    except DpadmmError as error:
        return replace(trial, sentence=str(error))
    assert result is not None
    noise = price.score_std * generator(task.base.seed, Purpose.SCORES, iteration=number).standard_normal(2)
    averaged = float(at_the_end(result, task.metric)[0] + noise[0])
    last = float(last_iterate(result, task.metric)[0] + noise[1])
    if candidate.method.may_leave_out_average and last <= averaged:
        return replace(without_average(trial), value=last)
    return replace(trial, value=averaged)
