"""What is searched: a configuration, a budget, methods, a space for each, and how a point is judged."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from dpadmm_mpi.config.files import Setting
from dpadmm_mpi.config.ranges import OneOf, Point, Space, changed, in_section, settings
from dpadmm_mpi.engine.loop import execute
from dpadmm_mpi.errors import DpadmmError, InputError
from dpadmm_mpi.methods.base import Config, Method, as_table, methods, to_toml
from dpadmm_mpi.methods.experiment import experiment
from dpadmm_mpi.methods.metrics import metrics as METRICS
from dpadmm_mpi.networks.graphs import build
from dpadmm_mpi.parallel.serial import Serial
from dpadmm_mpi.privacy.account import accounts as KINDS
from dpadmm_mpi.privacy.perturbations import Calibrated, DataStepPerturbation, Objective, Perturbation, perturbations
from dpadmm_mpi.storage.experiments import read_again, source_of
from dpadmm_mpi.storage.result import Result
from dpadmm_mpi.tuning.stand_in import StandIn, stand_in
from dpadmm_mpi.tuning.study import Trial
from dpadmm_mpi.tuning.tuners import first_point
from dpadmm_mpi.types import Array

NEVER = 10**9  # iterations between recorded ones: only the first and the last are
RECORDS = "records"  # in the place of a stand-in
AVERAGE = "release.average"


@dataclass(frozen=True)
class Budget:
    """What may be spent at most, and by which account."""

    epsilon: float
    delta: float
    account: str = ""  # as privacy.target_account has it; "": the method's proven account at delta

    @property
    def words(self) -> str:
        if self.account in ("bound", "tight"):
            return f"{self.account} = {self.epsilon:g}"
        return f"epsilon = {self.epsilon:g} at delta = {self.delta:g}"


@dataclass(frozen=True)
class Request:
    """A configuration as the user names it, with changes."""

    source: str | Path | Mapping[str, Any]
    overrides: tuple[str | Setting, ...] = ()
    only: str | None = None
    extensions: tuple[str, ...] = ()
    without: tuple[str, ...] = ()  # keys of [data] that are left out

    def config(self, more: Sequence[Setting] = ()) -> Config:
        source = source_of(self.source)
        data = source.raw.get("data")
        if self.without and isinstance(data, dict):
            left = {key: value for key, value in data.items() if key not in self.without}
            source = source._replace(raw={**source.raw, "data": left})
        replaced = any(key == "data.source" for key, _ in more)  # by a stand-in, and with it all that is said of the records
        overrides = [each for each in self.overrides if not self._left_out(each, replaced)]
        configs = experiment(source, [*overrides, *more], self.only, self.extensions).configs
        if len(configs) > 1:
            names = ", ".join(f'"{config.name}"' for config in configs)
            raise InputError(f"--only: the file holds several configurations; choose one of {names}")
        return configs[0]

    def _left_out(self, override: str | Setting, replaced: bool) -> bool:
        key = override.partition("=")[0].strip() if isinstance(override, str) else override[0]
        return key.startswith("data.") and (replaced or key.removeprefix("data.") in self.without)

    @property
    def space(self) -> dict[str, Any]:
        """What the file's own [tune.space] says."""
        return in_section(source_of(self.source).raw)


@dataclass(frozen=True)
class Wish:
    """What the user asks of a search, beside the configuration."""

    epsilon: float | None = None
    delta: float | None = None
    methods: tuple[str, ...] = ()  # none: the configuration's own
    runs: int = 4
    metric: str = ""  # "": the test error, of numbers their mean squared error
    on: str = "synthetic"  # or "records"
    space: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class MethodTask:
    """One method: the settings that make the configuration its own, and its space."""

    name: str
    settings: tuple[Setting, ...]  # method, noise, budget
    space: Space
    table: Mapping[str, Any]  # the configuration with these settings, resolved

    def point_settings(self, point: Point) -> list[Setting]:
        return settings(self.space, point, dict(self.table))

    @property
    def may_leave_out_average(self) -> bool:
        """An average that the space leaves no choice about is the user's."""
        ways = self.space.get(AVERAGE)
        return isinstance(ways, OneOf) and len(ways.values) > 1


@dataclass(frozen=True)
class Task:
    request: Request
    base: Config  # as the request has it
    budget: Budget
    methods: tuple[MethodTask, ...]
    stand_in: StandIn
    runs: int
    metric: str

    @property
    def lower_is_better(self) -> bool:
        return METRICS[self.metric].lower_is_better

    def method(self, name: str) -> MethodTask:
        return next(each for each in self.methods if each.name == name)

    def about(self) -> dict[str, Any]:
        """What distinguishes this search from others; extensions and paths are in the configuration."""
        return {
            "config": to_toml(self.base),
            "budget": self.budget.words,
            "on": self.stand_in.words,
            "metric": self.metric,
            "runs": self.runs,
            "methods": {each.name: {key: r.words for key, r in each.space.items()} for each in self.methods},
        }

    def trial_config(self, method: MethodTask, chosen: Sequence[Setting]) -> Config:
        """The first and the last iteration are recorded, and nothing that takes time and is not asked for."""
        record: list[Setting] = [
            ("record.metrics", [self.metric]),
            ("record.optimum", METRICS[self.metric].needs_optimum),
            ("record.trajectory", False),
            ("record.every", NEVER),
        ]
        hub = methods[method.name].hub  # which has no graph to choose
        stand_in = [each for each in self.stand_in.settings if not (hub and each[0].startswith("network."))]
        return self.request.config([*method.settings, *stand_in, *chosen, *record, ("runs", self.runs)])

    def judge(self, method: MethodTask, number: int, point: Point) -> Trial:
        """Run a point on the stand-in. What cannot be run, or does not keep the budget, is no failure of the search."""
        chosen = method.point_settings(point)
        trial = Trial(number, method.name, point, dict(chosen))
        try:
            result = execute(self.trial_config(method, chosen), Serial())
            assert result is not None
            refuse_overspending(result, self.budget)
        except DpadmmError as error:
            return replace(trial, sentence=str(error))
        values = at_the_end(result, self.metric)
        if method.may_leave_out_average and not average_helps(result, self.metric):
            values = last_iterate(result, self.metric)
            trial = without_average(trial)
        if not np.all(np.isfinite(values)):
            return replace(trial, sentence=f"the metric {self.metric} is not a number at the end")
        spread = float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else None
        return replace(trial, value=float(values.mean()), error=spread)

    def tuned_config(self, trial: Trial) -> Config:
        """The user's configuration with the settings of a trial: own records, seed, graph and number of runs."""
        method = self.method(trial.method)
        return self.request.config([*method.settings, *trial.settings.items(), ("name", f"{self.base.name}, tuned")])


def at_the_end(result: Result, metric: str) -> Array:
    """Of every run; where released iterates are averaged, at the average, which is what one uses then."""
    averaged = f"{metric}_averaged"
    return np.asarray(result[averaged if averaged in result else metric])[:, -1]


def last_iterate(result: Result, metric: str) -> Array:
    """Of every run, whatever is averaged."""
    return np.asarray(result[metric])[:, -1]


def average_helps(result: Result, metric: str) -> bool:
    """Better than the last iterate by more than a standard error of the difference; both are of the same runs."""
    gain = last_iterate(result, metric) - at_the_end(result, metric)
    if not METRICS[metric].lower_is_better:
        gain = -gain
    error = gain.std(ddof=1) / np.sqrt(len(gain)) if len(gain) > 1 else 0.0
    return bool(gain.mean() > error * (1.0 + 1e-9))  # of few test records the two are often equal, but for rounding


def without_average(trial: Trial) -> Trial:
    """The same run, of which the last iterate is used."""
    return replace(trial, settings={**trial.settings, AVERAGE: "none"})


def refuse_overspending(result: Result, budget: Budget) -> None:
    """The account of what was released, computed anew, must be proven and keep the budget."""
    noise = read_again(result.config_text, Path("trial")).privacy.perturbation
    assert isinstance(noise, Calibrated)
    names = [name for name, kind in KINDS.items() if kind.target == noise.target_account and f"privacy/{name}" in result]
    for name in names:
        spent, about = float(result[f"privacy/{name}"][-1]), result.attributes[f"privacy/{name}"]
        if not about.get("proven", False):
            raise InputError(f"privacy: the account {name} is not proven: {about.get('theorem', '')}")
        if spent > budget.epsilon:
            raise InputError(f"privacy: the account {name} is {spent:.6g}, above the budget of {budget.epsilon:g}")
    if not names:
        raise InputError(f'privacy: there is no account "{noise.target_account}" to keep the budget by')


def make_task(request: Request, wish: Wish) -> Task:
    """Everything that is settled before the first trial; what cannot work is refused here."""
    base = _base(request, wish)
    budget = _budget(base, wish)
    own = {**request.space, **wish.space}
    records = int(base.data.dataset(build(base.network.graph, base.seed).nodes, base.seed).sizes.min())
    names = dict.fromkeys(wish.methods or (base.method_name,))
    made = tuple(_method_task(request, base, name, budget, own, records) for name in names)
    if wish.on == RECORDS:
        stand = StandIn((), "the records themselves")
    else:
        stand = stand_in(base, wish.on, lambda more: request.config([*_size_of(base, wish), *more]))
    return Task(request, base, budget, made, stand, wish.runs, _metric(wish.metric, base))


def _base(request: Request, wish: Wish) -> Config:
    """The configuration as it is; one that lacks the size of its noise gets it from the budget."""
    try:
        return request.config()
    except InputError as error:
        if wish.epsilon is None or not str(error).startswith("privacy."):
            raise
        return request.config([("privacy.target", wish.epsilon)])


def _size_of(base: Config, wish: Wish) -> list[Setting]:
    """What `_base` had to add."""
    noise = base.privacy.perturbation
    if wish.epsilon is None or not isinstance(noise, Calibrated) or noise.target is None:
        return []
    return [("privacy.target", noise.target)]


def _budget(config: Config, wish: Wish) -> Budget:
    noise = config.privacy.perturbation
    if wish.epsilon is not None:
        return Budget(wish.epsilon, config.privacy.delta if wish.delta is None else wish.delta)
    if wish.delta is not None:
        raise InputError("--delta: has no meaning without --budget-epsilon; give both")
    if not isinstance(noise, Calibrated) or noise.target is None:
        raise InputError("tune: there is no budget; give one by --budget-epsilon 1.0, or privacy.target in the configuration")
    account = str(noise.target_account)
    return Budget(noise.target, config.privacy.delta, "" if account in proven_at_delta() else account)


def proven_at_delta() -> list[str]:
    """The accounts that a budget at a delta is spent by, as privacy.target_account calls them."""
    return list(dict.fromkeys(kind.target for _, kind in KINDS.items() if kind.counts_budget == "delta"))


def _method_task(request: Request, base: Config, name: str, budget: Budget, own: Mapping[str, Any], records: int) -> MethodTask:
    cls = methods[name]
    noise = type(base.privacy.perturbation)
    if not (issubclass(noise, Calibrated) and issubclass(noise, cls.perturbations)):
        noise = _usual_noise(name, cls)
    assert issubclass(noise, Calibrated)
    account = budget.account or ("epsilon" if issubclass(noise, DataStepPerturbation) else noise().usual_account)
    chosen: list[Setting] = [
        ("algorithm.method", name),
        ("privacy.perturbation", perturbations.name_of(noise)),
        ("privacy.target", budget.epsilon),
        ("privacy.target_account", account),
        ("privacy.delta", budget.delta),
    ]
    space = changed(cls.tuned(), own, "tune.space.")
    try:
        config = request.config(chosen)
    except InputError:  # of another family's method, some settings have no meaning here until the space gives them one
        table = {**source_of(request.source).raw, "records": records}
        config = request.config([*chosen, *settings(space, first_point(space), table)])
    return MethodTask(name, tuple(chosen), space, {**as_table(config), "records": records})


def _usual_noise(name: str, cls: type[Method]) -> type[Calibrated]:
    """What a method takes where the configuration has no noise for it: its own default, the objective's, or any."""
    ways: list[type[Perturbation]] = [perturbations[cls.default_perturbation], Objective]
    for kind in [*ways, *(kind for _, kind in perturbations.items())]:
        if issubclass(kind, Calibrated) and issubclass(kind, cls.perturbations):
            return kind
    raise InputError(f"--method {name}: has no noise, so there is no budget to tune it for; dpadmm list methods has others")


def _metric(wanted: str, config: Config) -> str:
    name = wanted or ("mean_squared_error" if config.problem.loss.predicts == "number" else "test_error")
    metric = METRICS[name]
    if metric.per_node or metric.per_class:
        raise InputError(f"--metric {name}: has several values for each run; choose one with a single value, as test_error")
    return name
