"""What is measured of a run (docs/mathematics.md, section 7): one class each, with its words, its unit and its axis.

Tables, plots, reports and the result files take all of that from here; a metric from outside needs nothing else. Every metric
has one value for each of the runs that go side by side.
"""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np

from dpadmm_mpi.config.options import Options, Positive
from dpadmm_mpi.data.dataset import TestSet
from dpadmm_mpi.data.shard import Shard
from dpadmm_mpi.errors import InputError
from dpadmm_mpi.problems.losses import Loss
from dpadmm_mpi.problems.objective import NodeProblem
from dpadmm_mpi.registry import Registry
from dpadmm_mpi.types import Array, Bools, Ints

metrics = Registry["Metric"]("metric", "metrics")


class Optimum(NamedTuple):
    """The solution of the centralised problem, by a solver of its own."""

    f: Array
    objective: float
    gradients: Array | None = None  # (nodes, d): grad O_i at f, which add up to zero; where the method needs them
    dual: Array | None = None  # multiplier of the constraint, in the curated family


class Split(NamedTuple):
    """A point (x_1, ..., x_N; z) of a problem whose nodes and server have copies of their own."""

    objective: Array  # (runs,): sum_i f_i(x_i) + g(z)
    apart: Array  # (runs, nodes): ||x_i - z||


@dataclass(frozen=True)
class Observation:
    """What rank 0 knows of one recorded iteration; the first axis are the runs that go side by side."""

    points: Array  # (runs, nodes, features): what each node has; one row where all have the same
    classifier: Array  # (runs, features): what is tested; with several outputs, one vector after the other
    node_loss: Array  # (runs, nodes): mean loss of each node's records
    loss: Array  # (runs,)
    objective: Array  # (runs,)
    disagreement: Array  # (runs,)
    residual: Array | None  # (runs, nodes): of the exact solves
    test: TestSet | None
    optimum: Optimum | None
    classes: int = 2  # that the labels have
    z_distance: Array | None = None  # (runs,): ||Z(t) - Z*||_J^2 of [M], where it is a norm
    current: Split | None = None  # these two where there is a server: the last iterates,
    ergodic: Split | None = None  # and the means over the iterations, where a metric asks for them
    at_nodes: Mapping[str, Array] = field(default_factory=dict)  # what metrics have measured at the nodes, (runs, nodes)
    of_family: Mapping[str, Array] = field(default_factory=dict)  # what one family alone measures, (runs,)


@metrics.base
class Metric(Options):
    """A number for each run and recorded iteration, or, `per_node` or `per_class`, for each node or class too.

    The first line of the docstring is the description in the result file. A metric from outside is recorded where
    record.metrics names it.
    """

    title: ClassVar[str]  # in plots and reports
    column: ClassVar[str] = ""  # in tables; "": not shown there
    unit: ClassVar[str] = ""
    lower_is_better: ClassVar[bool] = True
    scale: ClassVar[str] = "linear"  # or "log", for what approaches zero by powers of ten
    per_node: ClassVar[bool] = False
    per_class: ClassVar[bool] = False
    of: ClassVar[tuple[str, ...]] = ("binary", "classes", "number")  # what a loss may predict that it applies to
    of_points: ClassVar[bool] = True  # says something of any points, also of averages; not of the steps that led there
    needs_optimum: ClassVar[bool] = False  # is recorded where the centralised problem is solved too
    hint: ClassVar[str] = ""  # how to get it, where a file has none

    @abstractmethod
    def value(self, seen: Observation) -> Array:
        """(runs,), or (runs, nodes), or (runs, classes)"""

    def applies_to(self, loss: Loss) -> bool:
        return loss.predicts in self.of


class NodeMetric(Metric):
    """A metric that looks at the records: each node measures, and rank 0 gets one number from each.

    What is measured here is for the record and is not released.
    """

    @abstractmethod
    def at_node(self, problem: NodeProblem, points: Array) -> Array:
        """(runs,) of one node, at its point in every run, (runs, features)."""

    def value(self, seen: Observation) -> Array:
        """The mean over the nodes; or all of them, if `per_node`."""
        numbers = seen.at_nodes[metrics.name_of(type(self))]
        return numbers if self.per_node else np.asarray(numbers.mean(axis=1))


@metrics.register("loss")
class MeanLoss(Metric):
    """Mean over nodes of the node's mean loss at its own point"""

    title: ClassVar[str] = "mean loss"
    column: ClassVar[str] = "loss"

    def value(self, seen: Observation) -> Array:
        return seen.loss


@metrics.register("test_error")
class TestError(Metric):
    """Share of test records that the classifier gets wrong, where 0 predicts +1; nan without test records"""

    title: ClassVar[str] = "test error of the mean classifier"
    column: ClassVar[str] = "test error"
    of: ClassVar[tuple[str, ...]] = ("binary", "classes")

    def value(self, seen: Observation) -> Array:
        classifiers, test = seen.classifier, seen.test
        if test is None:
            return np.full(len(classifiers), np.nan)
        wrong = np.zeros(len(classifiers))
        for block in test.blocks():
            wrong += np.sum(_wrong(scores_of(classifiers, block), block), axis=0)
        return wrong / test.records


def scores_of(classifiers: Array, block: Shard) -> Array:
    """(records, runs, outputs)"""
    d = block.features
    if classifiers.shape[-1] == d:  # BLAS makes a few rows faster than columns, and what is counted then lies together
        columns: Any = block.X.T
        return np.asarray(classifiers @ columns).T[..., None]
    scores = np.asarray(block.X @ classifiers.reshape(-1, d).T)
    return scores.reshape(block.records, len(classifiers), -1)


def _wrong(scores: Array, block: Shard) -> Array:
    """(records, runs): whether the prediction is not the label; a score of 0 predicts +1."""
    if scores.shape[-1] == 1:
        return np.asarray((scores[..., 0] >= 0.0) != (block.y > 0.0)[:, None])
    return np.asarray(scores.argmax(axis=-1) != _labels(block)[:, None])


def _labels(block: Shard) -> Ints:
    """Classes counted from 0, also where they are -1 and +1."""
    return np.maximum(block.y, 0.0).astype(np.int64)


class TestMean(Metric):
    """A mean over the test records; nan without them."""

    @abstractmethod
    def of_records(self, scores: Array, block: Shard) -> Array:
        """(records, runs), from the scores, (records, runs, outputs)."""

    def value(self, seen: Observation) -> Array:
        if seen.test is None:
            return np.full(len(seen.classifier), np.nan)
        total = np.zeros(len(seen.classifier))
        for block in seen.test.blocks():
            total += self.of_records(scores_of(seen.classifier, block), block).sum(axis=0)
        return total / seen.test.records


@metrics.register("log_loss")
class LogLoss(TestMean):
    """Mean over the test records of -ln of the probability that the mean classifier gives to the label; nan without them"""

    title: ClassVar[str] = "log loss on the test records"
    column: ClassVar[str] = "log loss"
    of: ClassVar[tuple[str, ...]] = ("binary", "classes")
    hint: ClassVar[str] = 'losses with probabilities record it: record.metrics = ["log_loss"]'

    def applies_to(self, loss: Loss) -> bool:
        return super().applies_to(loss) and loss.gives_probabilities

    def of_records(self, scores: Array, block: Shard) -> Array:
        if scores.shape[-1] == 1:
            return np.logaddexp(0.0, -block.y[:, None] * scores[..., 0])
        own = np.take_along_axis(scores, _labels(block)[:, None, None], axis=-1)[..., 0]
        return np.asarray(np.logaddexp.reduce(scores, axis=-1) - own)


@metrics.register("mean_squared_error")
class MeanSquaredError(TestMean):
    """Mean squared error of the test records' targets, scaled into [-1, 1]; times /data's target_scale^2 in their own unit"""

    title: ClassVar[str] = "mean squared error on the test records"
    column: ClassVar[str] = "squared error"
    of: ClassVar[tuple[str, ...]] = ("number",)

    def of_records(self, scores: Array, block: Shard) -> Array:
        return np.asarray((scores[..., 0] - block.y[:, None]) ** 2)


@metrics.register("mean_absolute_error")
class MeanAbsoluteError(TestMean):
    """Mean absolute error of the test records' targets, scaled into [-1, 1]; times /data's target_scale in their own unit"""

    title: ClassVar[str] = "mean absolute error on the test records"
    column: ClassVar[str] = "absolute error"
    of: ClassVar[tuple[str, ...]] = ("number",)

    def of_records(self, scores: Array, block: Shard) -> Array:
        return np.abs(scores[..., 0] - block.y[:, None])


@metrics.register("class_error")
class ClassError(Metric):
    """Share of the test records of each class that the mean classifier gets wrong; nan without such records"""

    title: ClassVar[str] = "test error of each class"
    per_class: ClassVar[bool] = True
    of: ClassVar[tuple[str, ...]] = ("binary", "classes")
    hint: ClassVar[str] = 'run it again with record.metrics = ["class_error"]'

    def value(self, seen: Observation) -> Array:
        k = seen.classes
        wrong, count = np.zeros((len(seen.classifier), k)), np.zeros(k)
        for block in () if seen.test is None else seen.test.blocks():
            is_class = _labels(block)[:, None] == np.arange(k)
            wrong += _wrong(scores_of(seen.classifier, block), block).T.astype(np.float64) @ is_class
            count += is_class.sum(axis=0)
        return np.where(count > 0.0, wrong / np.maximum(count, 1.0), np.nan)


@metrics.register("area_under_curve")
class AreaUnderCurve(Metric):
    """Share of pairs of a positive and a negative test record that the mean classifier puts in the right order, ties half"""

    title: ClassVar[str] = "area under the ROC curve"
    column: ClassVar[str] = "area"
    lower_is_better: ClassVar[bool] = False
    of: ClassVar[tuple[str, ...]] = ("binary", "classes")
    hint: ClassVar[str] = 'runs with two classes record it: record.metrics = ["area_under_curve"]'

    def applies_to(self, loss: Loss) -> bool:
        return super().applies_to(loss) and loss.outputs <= 2

    def value(self, seen: Observation) -> Array:
        if seen.test is None:
            return np.full(len(seen.classifier), np.nan)
        blocks = list(seen.test.blocks())
        scores = np.concatenate([scores_of(seen.classifier, block) for block in blocks])
        above = scores[..., -1] - (scores[..., 0] if scores.shape[-1] == 2 else 0.0)
        positive = np.concatenate([block.y > 0.0 for block in blocks])
        return np.array([_area(column, positive) for column in above.T])


def _area(scores: Array, positive: Bools) -> float:
    """By the ranks of the positive records (Mann and Whitney)."""
    from scipy.stats import rankdata

    n, m = int(positive.sum()), int((~positive).sum())
    return float((rankdata(scores)[positive].sum() - n * (n + 1) / 2.0) / (n * m)) if n and m else float("nan")


@metrics.register("objective")
class TotalObjective(Metric):
    """The objective of the whole network"""

    title: ClassVar[str] = "objective"

    def value(self, seen: Observation) -> Array:
        return seen.objective


@metrics.register("objective_gap")
class ObjectiveGap(Metric):
    """The objective less that of the centralised optimum"""

    title: ClassVar[str] = "objective above the optimum's"
    column: ClassVar[str] = "gap"
    scale: ClassVar[str] = "log"
    needs_optimum: ClassVar[bool] = True
    hint: ClassVar[str] = "star and curated methods record it with record.optimum = true"

    def value(self, seen: Observation) -> Array:
        return seen.objective - (np.nan if seen.optimum is None else seen.optimum.objective)


@metrics.register("consensus_error")
class ConsensusError(Metric):
    """Mean distance of the nodes from the mean classifier"""

    title: ClassVar[str] = "mean distance from the mean classifier"
    column: ClassVar[str] = "consensus"
    scale: ClassVar[str] = "log"

    def value(self, seen: Observation) -> Array:
        return seen.disagreement


@metrics.register("distance_to_optimum")
class DistanceToOptimum(Metric):
    """(1/N) sum_i ||f_i - f*|| / ||f*||, f* the centralised optimum; not relative where f* = 0, nan where it was not found"""

    title: ClassVar[str] = "relative distance to the optimum"
    column: ClassVar[str] = "to optimum"
    scale: ClassVar[str] = "log"
    needs_optimum: ClassVar[bool] = True
    hint: ClassVar[str] = "run it again with record.optimum = true"

    def value(self, seen: Observation) -> Array:
        if seen.optimum is None:
            return np.full(len(seen.points), np.nan)
        f = seen.optimum.f
        norm = float(np.linalg.norm(f))
        mean_distance = np.mean(np.linalg.norm(seen.points - f, axis=-1), axis=-1)
        return np.asarray(mean_distance / norm if norm > 0.0 else mean_distance)


@metrics.register("z_distance")
class ZDistance(Metric):
    """||Z(t) - Z*||_J^2 of primals and duals, [M] (19): never grows without noise and with one penalty for all"""

    of_points: ClassVar[bool] = False
    title: ClassVar[str] = "squared distance of primals and duals to the optimum, in the norm of [M] (19)"
    scale: ClassVar[str] = "log"
    needs_optimum: ClassVar[bool] = True
    hint: ClassVar[str] = "methods on a network with one penalty for all record it with record.optimum = true"

    def value(self, seen: Observation) -> Array:
        return np.full(len(seen.points), np.nan) if seen.z_distance is None else seen.z_distance


@metrics.register("criterion")
class Criterion(Metric):
    """P(x, z) - P* + tau sum_i ||x_i - z|| at the last iterates, P = sum_i f_i(x_i) + g(z): [S] (9)"""

    of_points: ClassVar[bool] = False
    title: ClassVar[str] = "criterion (9) of [S]"
    needs_optimum: ClassVar[bool] = True
    hint: ClassVar[str] = "star methods record it with record.optimum = true"

    tau: Positive = 1.0  # tau_i of every provider

    def point(self, seen: Observation) -> Split | None:
        return seen.current

    def value(self, seen: Observation) -> Array:
        at = self.point(seen)
        if at is None or seen.optimum is None:
            return np.full(len(seen.points), np.nan)
        return np.asarray(at.objective - seen.optimum.objective + self.tau * at.apart.sum(axis=1))


@metrics.register("ergodic_criterion")
class ErgodicCriterion(Criterion):
    """The criterion (9) of [S] at the means of x_i and z over the iterations, which (10) and Theorems 3 and 4 are about"""

    title: ClassVar[str] = "criterion (9) of [S] at the means over the iterations"
    hint: ClassVar[str] = 'star methods record it with record.optimum = true and record.metrics = ["ergodic_criterion"]'

    def point(self, seen: Observation) -> Split | None:
        return seen.ergodic


@metrics.register("node_loss")
class NodeLoss(Metric):
    """Mean loss of each node's records"""

    title: ClassVar[str] = "mean loss of each node"
    per_node: ClassVar[bool] = True

    def value(self, seen: Observation) -> Array:
        return seen.node_loss


@metrics.register("kkt_residual")
class KktResidual(Metric):
    """Relative residual of the exact argmin, the largest since the row before; nan if none"""

    of_points: ClassVar[bool] = False
    title: ClassVar[str] = "relative residual of the local solves"
    scale: ClassVar[str] = "log"
    per_node: ClassVar[bool] = True

    def value(self, seen: Observation) -> Array:
        return np.full(seen.node_loss.shape, np.nan) if seen.residual is None else seen.residual


@metrics.register("solve_residual")
class SolveResidual(KktResidual):
    """Norm of the gradient where the local solves ended, the largest since the row before; nan if none"""

    title: ClassVar[str] = "norm of the gradient where the local solves ended"


# What a loss adds to the metrics that a family always records, by what it predicts.
METRICS_OF: Mapping[str, tuple[str, ...]] = {
    "binary": (),
    "classes": ("log_loss", "class_error"),
    "number": ("mean_squared_error", "mean_absolute_error"),
}


def mean_distance(points: Array, centre: Array) -> Array:
    """(1/N) sum_i ||f_i - centre||; points are (runs, nodes, features), the centres (runs, features)."""
    return np.asarray(np.mean(np.linalg.norm(points - centre[:, None], axis=-1), axis=-1))


class OfMeans(Metric):
    """A metric of the means of the iterates; record.metrics names it."""

    of_points: ClassVar[bool] = False
    scale: ClassVar[str] = "log"
    needs_optimum: ClassVar[bool] = True
    hint: ClassVar[str] = "curated methods record it with record.optimum = true and record.metrics"

    def value(self, seen: Observation) -> Array:
        name = metrics.name_of(type(self))
        if name not in seen.of_family:
            raise InputError(f"record.metrics: {name} is of the curated methods; remove it")
        return seen.of_family[name]


@metrics.register("mean_criterion")
class MeanCriterion(OfMeans):
    """R(x~, y~) of [C] Theorem 2: f + g at the means of x_1..x_t and w_1..w_t, less the optimum, plus y*.(A x~ + B w~ - c)"""

    title: ClassVar[str] = "criterion R at the mean iterates"


@metrics.register("mean_criterion_bound")
class MeanCriterionBound(OfMeans):
    """The bound of [C] (18) on the expectation of mean_criterion; for u_0 = 0 with ||u*|| itself; nan at t = 0"""

    title: ClassVar[str] = "bound (18) on the criterion R"
