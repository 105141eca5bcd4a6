"""Which settings of a configuration waste its privacy budget, and what would be gained: before a private run, in seconds.

Settings are changed one after the other, each calibrated to the same budget at the real sizes, and tried on few synthetic
records. A node's problem is a mean over its records, so that fewer of them with the very same noise show what the noise
does; what fewer records cost in accuracy is much the same before and after.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec
import numpy as np

from dpadmm_mpi.config.files import Setting
from dpadmm_mpi.engine.loop import execute
from dpadmm_mpi.errors import DpadmmError, InputError
from dpadmm_mpi.methods.base import Config, Plan, make_plan, methods
from dpadmm_mpi.parallel.serial import Serial
from dpadmm_mpi.privacy.perturbations import Calibrated, DataStepPerturbation, ObjectivePerturbation
from dpadmm_mpi.privacy.releases import CuratedReleases, NetworkReleases, StarReleases
from dpadmm_mpi.reports.tables import aligned
from dpadmm_mpi.tuning.stand_in import SEED, Facts, facts_of, same_graph, synthetic
from dpadmm_mpi.tuning.task import NEVER, Request, at_the_end, proven_at_delta
from dpadmm_mpi.types import Array

RECORDS = 2000  # at a node of the trial, at most, unless C is larger
TEST_RECORDS = 4000
RUNS = 4
FEWER = (1, 3, 6, 12)  # iterations that are tried, where there are more
SCALES = (0.1, 0.3, 1.0, 3.0)  # of the penalties
GROWTH = (0.85, 1.15)  # of the noise from a data step to the next
SURE = 2.0  # standard errors, from which on a gain is told


class Change(NamedTuple):
    """One setting, another way."""

    what: str
    now: str
    better: str
    settings: list[Setting]


@dataclass(frozen=True)
class Finding:
    """A change that helps: mean test errors before and after, and the standard error of their difference over the runs."""

    change: Change
    before: float
    after: float
    error: float

    @property
    def gain(self) -> float:
        return self.before - self.after


@dataclass(frozen=True)
class Advice:
    """Changes that help, each on top of those before it."""

    budget: str
    now: float  # test error as configured, on the trial's records
    findings: tuple[Finding, ...]
    tried: int

    @property
    def settings(self) -> dict[str, Any]:
        return {key: value for finding in self.findings for key, value in finding.change.settings}

    @property
    def predicted(self) -> float:
        return self.findings[-1].after if self.findings else self.now

    @property
    def words(self) -> str:
        if not self.findings:
            return (
                f"for {self.budget}: none of {self.tried} changes helps by more than {SURE:g} standard errors; dpadmm tune "
                "looks further"
            )
        rows = [
            [f.change.what, f.change.now, f.change.better, _percent(f.before), _percent(f.after),
             "-" if np.isnan(f.gain) else f"{100 * f.gain:.2f} ± {100 * f.error:.2f}"]
            for f in self.findings
        ]  # fmt: skip
        table = aligned(["wasted by", "now", "better", "test error", "then", "gain (points)"], rows, left=(0, 1, 2))
        change = " ".join(f"--set '{key}={_toml(value)}'" for key, value in self.settings.items())
        return f"for {self.budget}, on small synthetic records:\n{table}\nto change all of it: {change}"


def _percent(error: float) -> str:
    return "not within budget" if np.isnan(error) else f"{100 * error:.2f} %"


def _toml(value: Any) -> str:
    import tomli_w

    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {_toml(item)}" for key, item in value.items()) + " }"
    return tomli_w.dumps({"x": value}).removeprefix("x = ").strip()


def advise(request: Request, epsilon: float | None = None, delta: float | None = None) -> Advice:
    """Try a handful of changes to the configuration of a request at the same budget."""
    config = request.config()
    if not config.is_noisy or not isinstance(config.privacy.perturbation, Calibrated):
        raise InputError("advise: the run has no noise, so no budget is spent; set privacy.perturbation")
    bench = _Bench(request, facts_of(config), *_budget(config, epsilon, delta))
    found = bench.errors([])
    now = np.full(RUNS, np.nan) if found is None else found  # as it is, it may not meet the budget at all
    begin, kept, findings, tried = now, list[Setting](), list[Finding](), 0
    for lever in (_steps, _noise, _growth, _average):
        results = []
        for change in lever(request.config([*bench.budget, *kept])):
            errors = bench.errors([*kept, *change.settings])
            tried += 1
            if errors is not None:
                results.append((float(errors.mean()), change, errors))
        if not results:
            continue
        _, change, errors = min(results, key=lambda each: each[0])
        difference = now - errors
        spread = float(difference.std(ddof=1) / np.sqrt(len(difference)))
        if np.isnan(now).all() or difference.mean() > max(SURE * spread, 1.0 / TEST_RECORDS):
            findings.append(Finding(change, float(now.mean()), float(errors.mean()), spread))
            kept += change.settings
            now = errors
    return Advice(bench.words, float(begin.mean()), tuple(findings), tried)


def _budget(config: Config, epsilon: float | None, delta: float | None) -> tuple[list[Setting], str]:
    """What the configuration may spend, as settings: as given, its own target, or what its noise comes to."""
    noise = config.privacy.perturbation
    assert isinstance(noise, Calibrated)
    at = config.privacy.delta if delta is None else delta
    if epsilon is None and noise.target is not None:
        return [], f"{noise.target_account} = {noise.target:g}"
    account = "epsilon" if isinstance(noise, DataStepPerturbation) else noise.usual_account
    if epsilon is None:
        plan, _ = make_plan(config)
        found = [each for each in plan.accounts if each.proven and each.delta is not None]
        if not found or account not in proven_at_delta():
            raise InputError("advise: nothing is proven about the privacy of this run; give a budget by --budget-epsilon")
        epsilon = float(found[-1].values[-1])
    words = f"epsilon = {epsilon:.4g} at delta = {at:g}"
    return [("privacy.target", epsilon), ("privacy.target_account", account), ("privacy.delta", at)], words


class _Bench:
    """Runs changed configurations on few synthetic records, with the noise that they need on the real ones."""

    def __init__(self, request: Request, facts: Facts, budget: list[Setting], words: str) -> None:
        self.request, self.facts, self.budget, self.words = request, facts, budget, words

    def errors(self, changes: Sequence[Setting]) -> Array | None:
        """Test errors of the runs; None where the changed configuration cannot be run within the budget."""
        try:
            config = self.request.config([*self.budget, *changes])
            hub = methods[config.method_name].hub
            graph = [] if hub else same_graph(config)
            common: list[Setting] = [*changes, ("seed", (config.seed + SEED) % 2**63), ("runs", RUNS), *graph]
            real = self.request.config([*self.budget, *common, *synthetic(self.facts)])
            plan, _ = make_plan(real)
            record: list[Setting] = [("record.every", NEVER), ("record.optimum", False), ("record.trajectory", False)]
            result = execute(self.request.config([*common, *record, *self._small(plan)]), Serial())
        except DpadmmError:
            return None
        assert result is not None
        found = at_the_end(result, "test_error")
        return found if np.all(np.isfinite(found)) else None

    def _small(self, plan: Plan[Any]) -> list[Setting]:
        """Few records, and the noise of the plan for all of them."""
        at_least = float(getattr(plan.releases, "C", 0.0))
        cap = max(RECORDS, int(np.ceil(at_least)))
        sizes = tuple(min(size, cap) for size in self.facts.sizes)
        small = synthetic(Facts(sizes, min(self.facts.test, TEST_RECORDS), self.facts.features))
        return [*small, *_given_noise(plan)]


def _given_noise(plan: Plan[Any]) -> list[Setting]:
    """The noise of a plan as the configuration would give it, in the place of a target."""
    r, noise = plan.releases, plan.config.privacy.perturbation
    if isinstance(r, NetworkReleases) and isinstance(noise, DataStepPerturbation):
        sizes = [[float(value) for value in node] for node in np.asarray(r.parameter).T]
        unproven: list[Setting] = [("privacy.allow_unproven", True)] if isinstance(noise, ObjectivePerturbation) else []
        return [(f"privacy.{noise.noise.parameter}", sizes), *unproven]
    if isinstance(r, StarReleases):
        return [("privacy.noise_std", r.sigma.tolist())]
    if isinstance(r, CuratedReleases):
        shape = np.ones(r.iterations) if r.noise_shape is None else r.noise_shape
        return [("privacy.noise_std", (r.noise_std * shape).tolist())]
    raise InputError("advise: this method's noise cannot be given by its size; use dpadmm tune")


def _steps(config: Config) -> Iterator[Change]:
    """Fewer data steps and other penalties, together: how small a penalty should be depends on how many steps there are."""
    eta = msgspec.to_builtins(getattr(config.method, "eta", None))
    scales = SCALES if eta is not None and not isinstance(eta, str) else (1.0,)
    for iterations in (config.iterations, *(fewer for fewer in FEWER if fewer < config.iterations)):
        for scale in scales:
            if iterations == config.iterations and (scale == 1.0 or iterations > FEWER[-1]):  # as it is, or too slow to try
                continue
            what, now, better, settings = [], [], [], []
            if iterations != config.iterations:
                what.append("iterations")
                now.append(f"{config.iterations}")
                better.append(f"{iterations}")
                settings.append(("iterations", iterations))
            if scale != 1.0:
                what.append("algorithm.eta")
                now.append(_brief(eta))
                better.append(_brief(_scaled(eta, scale)))
                settings.append(("algorithm.eta", _scaled(eta, scale)))
            yield Change(" and ".join(what), "; ".join(now), "; ".join(better), settings)


def _scaled(schedule: Any, factor: float) -> Any:
    if isinstance(schedule, dict):
        left = {key: value for key, value in schedule.items() if value is not None}
        return {key: value if key == "ratio" else _scaled(value, factor) for key, value in left.items()}
    if isinstance(schedule, list):
        return [_scaled(part, factor) for part in schedule]
    return float(f"{factor * schedule:.4g}")


def _noise(config: Config) -> Iterator[Change]:
    noise = config.privacy.perturbation
    if isinstance(noise, DataStepPerturbation) and noise.noise.schedule is None:
        now = "gamma" if noise.noise.parameter == "alpha" else "gaussian"
        other = "gaussian" if now == "gamma" else "gamma"
        yield Change("privacy.noise", now, other, [("privacy.noise", other)])


def _growth(config: Config) -> Iterator[Change]:
    noise = config.privacy.perturbation
    if not isinstance(noise, DataStepPerturbation) or config.method.data_steps_in(config.iterations) < 2:
        return
    key, schedule = f"privacy.{noise.noise.parameter}", noise.noise.schedule
    if schedule is None:
        for ratio in GROWTH:
            yield Change(key, "the same in every data step", f"times {ratio:g} in each", [(key, {"ratio": ratio})])


def _average(config: Config) -> Iterator[Change]:
    if config.release.free.average == "none" and config.iterations > 1:
        for way in ("half", "all"):
            yield Change("release.average", "none", way, [("release.average", way)])


def _brief(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {_brief(item)}" for key, item in value.items() if item is not None) + " }"
    return f"{value:g}" if isinstance(value, int | float) else "a list"
