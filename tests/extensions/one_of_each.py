"""One class of each kind, as somebody else would write them: the tests copy this file to a folder outside the package."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

import dpadmm_mpi as dp
from dpadmm_mpi.config.options import Count, Positive
from dpadmm_mpi.plots.curves import over_iterations
from dpadmm_mpi.privacy.data_steps import DataSteps, StepCost
from dpadmm_mpi.privacy.noises import Gamma
from dpadmm_mpi.privacy.perturbations import Objective
from dpadmm_mpi.problems import NodeProblem
from dpadmm_mpi.rng import Generator
from dpadmm_mpi.types import Array, Ints


@dp.method("averaged-dual")
class AveragedDual(dp.methods.Decentralised):
    """ADMM that also keeps a running mean of its dual variables."""

    extra_state: ClassVar[tuple[str, ...]] = ("mean_dual",)

    memory: Positive = 0.5

    def dual_step(self, node: dp.methods.Node, state: dp.methods.State, t: int) -> dp.methods.State:
        state = super().dual_step(node, state, t)
        mean = self.memory * state.mean_dual + (1.0 - self.memory) * state.dual  # type: ignore[attr-defined]
        return state._replace(mean_dual=mean)  # type: ignore[call-arg]

    def accounts(self, releases: dp.privacy.Releases, delta: float) -> Sequence[dp.privacy.Account]:
        """The dual variables are made of what was released."""
        return dp.privacy.accounts_of(releases, delta)


@dp.method("half-steps")
class HalfSteps(dp.methods.Decentralised):
    """Half of every dual step; nobody has accounted for it."""

    def dual_step(self, node: dp.methods.Node, state: dp.methods.State, t: int) -> dp.methods.State:
        return state._replace(dual=0.5 * (state.dual + super().dual_step(node, state, t).dual))


@dp.noise("polar")
class Polar(Gamma):
    """Gamma noise, drawn as a sum of exponentials times a direction."""

    def samples(self, rngs: Iterator[Generator], count: int, features: int) -> Array:
        drawn = np.empty((count, features))
        for k, rng in enumerate(rngs):
            direction = rng.standard_normal(features)
            drawn[k] = rng.exponential(size=features).sum() * direction / np.linalg.norm(direction)
        return drawn

    def pure_loss(self, shift: Array, parameter: Array) -> Array:
        """The law is that of gamma noise."""
        return shift * parameter


@dp.noise("laplace")
class Laplace(dp.privacy.Noise):
    """Laplace noise in every coordinate, which nobody has accounted for."""

    parameter: ClassVar[str] = "rate"

    rate: Positive | None = None

    @property
    def schedule(self) -> float | None:
        return self.rate

    def sample(self, rng: Generator, features: int) -> Array:
        return rng.laplace(size=features)

    def scaled(self, unit: Array, parameter: Array) -> Array:
        return unit / parameter[:, None]


@dp.perturbation("twofold")
class Twofold(Objective):
    """n_i = 2 e_i in the objective's linear term: half the shift of the noise for each record."""

    source: ClassVar[str] = "one_of_each.py"

    def objective_factor(self, eta: Array, degree: Array) -> Array:
        return np.full_like(eta, 2.0)

    def paper_cost(self, r: DataSteps) -> StepCost:
        fixed, shift = super().paper_cost(r)
        return StepCost(fixed, 0.5 * shift)


@dp.loss("ramp")
class Ramp(dp.problems.Loss):
    """A hinge that is rounded off over `width`."""

    width: Positive = 1.0

    @property
    def slope_bound(self) -> float:
        return 1.0

    @property
    def curvature_bound(self) -> float:
        return 1.0 / self.width

    @property
    def decreasing(self) -> bool:
        return True

    def value(self, z: Array) -> Array:
        gap = np.maximum(1.0 - z, 0.0)
        return np.where(gap < self.width, gap**2 / (2.0 * self.width), gap - self.width / 2.0)

    def first(self, z: Array) -> Array:
        return -np.clip((1.0 - z) / self.width, 0.0, 1.0)

    def second(self, z: Array) -> Array:
        return np.where((z < 1.0) & (z > 1.0 - self.width), 1.0 / self.width, 0.0)


@dp.graph("wheel")
class Wheel(dp.networks.NamedGraph):
    """A ring around node 0."""

    spokes_every: Count = 1

    def edges(self, rng: Generator) -> Ints:
        rim = list(range(1, self.nodes))
        ring = list(zip(rim, [*rim[1:], rim[0]], strict=True))
        return np.array([*ring, *((0, i) for i in rim[:: self.spokes_every])], dtype=np.int64)


@dp.source("semicolons")
class Semicolons(dp.data.FileSource):
    """One record per line, the label first, separated by `separator`."""

    separator: str = ";"

    def read_file(self, path: Path, features: int | None) -> dp.data.Records:
        table = np.loadtxt(path, delimiter=self.separator, ndmin=2)
        return dp.data.Records(y=table[:, 0], X=np.ascontiguousarray(table[:, 1:]))


@dp.partition("growing")
class Growing(dp.data.Partition):
    """Node i gets i + 1 parts of the records."""

    def shard_sizes(self, records: int, nodes: int, rng: Generator) -> Ints:
        shares = np.cumsum(np.arange(1, nodes + 1)) * records // (nodes * (nodes + 1) // 2)
        return np.diff(shares, prepend=0)


@dp.step("shrink")
class Shrink(dp.data.Step):
    """Every feature times `factor`."""

    factor: Positive = 0.5

    def apply(self, records: dp.data.Records) -> tuple[dp.data.Records, str]:
        return replace(records, X=self.factor * np.asarray(records.matrix)), f"features times {self.factor:g}"


@dp.metric("norm")
class Norm(dp.methods.Metric):
    """Norm of the classifier"""

    title: ClassVar[str] = "norm of the classifier"
    column: ClassVar[str] = "norm"

    def value(self, seen: dp.methods.Observation) -> Array:
        return np.asarray(np.linalg.norm(seen.classifier, axis=-1))


@dp.metric("node_accuracy")
class NodeAccuracy(dp.methods.NodeMetric):
    """Share of a node's own records that it gets right"""

    title: ClassVar[str] = "accuracy at the nodes"
    per_node: ClassVar[bool] = True
    lower_is_better: ClassVar[bool] = False

    def at_node(self, problem: NodeProblem, points: Array) -> Array:
        return np.asarray((problem.margins(points) > 0.0).mean(axis=-1))


@dp.account("doubled")
class Doubled(dp.privacy.AccountKind[dp.privacy.NetworkReleases]):
    """Twice the paper's bound, for those who do not trust it."""

    applies_to: ClassVar[type[dp.privacy.Releases]] = dp.privacy.NetworkReleases
    label: ClassVar[str] = "twice the bound"
    column: ClassVar[str] = "2 P(t)"
    target: ClassVar[str] = "doubled"

    def compute(self, releases: dp.privacy.NetworkReleases, delta: float) -> dp.privacy.Account:
        bound = dp.privacy.accounts["bound"]().compute(releases, delta)
        return replace(bound, name="doubled", title="twice the paper's bound", node_values=2.0 * bound.node_values)

    def calibrate(self, releases: dp.privacy.NetworkReleases, target: float, delta: float) -> dp.privacy.NetworkReleases:
        found: dp.privacy.NetworkReleases = dp.privacy.accounts["bound"]().calibrate(releases, target / 2.0, delta)
        return found


@dp.plot("norms")
class Norms(dp.plots.PlotKind):
    """The norm of the classifier over the iterations."""

    def draw(self, request: dp.plots.Request) -> Any:
        return over_iterations(request, "norm")
