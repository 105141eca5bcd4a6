"""`tune`, as Python programs call it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpadmm_mpi.api.lending import at_hand, inventory_of
from dpadmm_mpi.api.running import ConfigLike, changes_of, checked_config
from dpadmm_mpi.data import arrays
from dpadmm_mpi.methods import Config
from dpadmm_mpi.methods.base import as_table
from dpadmm_mpi.parallel.serial import Serial
from dpadmm_mpi.tuning import report
from dpadmm_mpi.tuning.search import search
from dpadmm_mpi.tuning.study import Study, Trial
from dpadmm_mpi.tuning.task import Request, Task, Wish, make_task
from dpadmm_mpi.tuning.tuners import tuners


@dataclass(frozen=True)
class Tuned:
    """What a search has found."""

    study: Study
    task: Task

    @property
    def best(self) -> Trial:
        """The best trial: `settings`, `value` (mean of the metric over the runs) and its standard `error`."""
        return self.study.best()

    @property
    def config(self) -> dict[str, Any]:
        """The configuration with the best settings, for `run`."""
        return as_table(self.tuned)

    @property
    def tuned(self) -> Config:
        return self.task.tuned_config(self.best)

    @property
    def toml(self) -> str:
        """The same as text, with where it comes from."""
        return report.toml(self.study, self.task)

    def table(self, most: int = report.SHOWN) -> str:
        """The best trials; of several methods, the best of each."""
        return report.table(self.study, self.task.metric, most)

    def plot(self, target: str | Path, method: str | None = None) -> None:
        """A slice for each setting of a method, the most important first."""
        report.draw(self.study, self.task, method or self.best.method, Path(target))


def tune(
    config: ConfigLike = None,
    *,
    data: Any = None,
    test: Any = None,
    graph: Any = None,
    overrides: str | Sequence[str] = (),
    only: str | None = None,
    extensions: str | Sequence[str] = (),
    methods: str | Sequence[str] = (),
    trials: int = 16,
    trial_runs: int = 4,
    tuner: str = "tpe",
    on: str = "synthetic",
    metric: str = "",
    space: Mapping[str, Any] | None = None,
    study: str | Path | None = None,
    **settings: Any,
) -> Tuned:
    """Find the best settings of a configuration for its privacy budget, on records that it costs no privacy to look at.

    Parameters
    ----------
    config, data, test, graph, overrides, only, extensions, **settings : as in `run`; epsilon=1.0 and delta=1e-5 are the budget
    methods : names of methods to tune; none: the configuration's own
    trials : of each method
    trial_runs : runs whose mean a trial is judged by
    tuner : "tpe" (by optuna), "random" or "grid"
    on : "synthetic", the name of a source, a data file, or a configuration whose [data] is meant
    metric : what is to be good at the end; the test error, or of numbers their mean squared error
    space : ranges by dotted key, as in {"problem.rho": "0.1:10:log"}
    study : the journal, which a later call goes on with; without it trials stay in memory

    Returns
    -------
    `.best`, the best trial; `.table()`; `.config`, for `run`; `.toml`, the same as text; `.plot(file)`

    Raises
    ------
    InputError
        Nothing was tried, or nothing that was tried meets the budget: the text says why.

    Examples
    --------
    >>> import dpadmm_mpi as dp
    >>> small = {"data": {"records": 600, "features": 4}, "problem": {"C": 20.0}}
    >>> tuned = dp.tune(small, epsilon=2.0, trials=3, trial_runs=2, tuner="random")
    >>> result = dp.run(tuned.config)
    >>> bool(result["privacy/epsilon"][-1] <= 2.0)
    True
    """
    transport = Serial()
    brought = arrays.bring(data, test, None)
    inventory = inventory_of(transport, brought)
    changed = changes_of(config, graph, settings, inventory)
    listed = [overrides] if isinstance(overrides, str) else overrides
    files = (extensions,) if isinstance(extensions, str) else tuple(extensions)
    request = Request(checked_config(config), (*changed, *listed), only, files)
    wish = Wish(
        methods=(methods,) if isinstance(methods, str) else tuple(methods),
        runs=trial_runs,
        metric=metric,
        on=on,
        space=space or {},
    )
    chosen = tuners[tuner]()
    chosen.check_installed()
    with at_hand(transport, request.config(), brought, inventory):
        task = make_task(request, wish)
        found = search(task, chosen, trials, transport, None if study is None else Path(study))
    return Tuned(found, task)
