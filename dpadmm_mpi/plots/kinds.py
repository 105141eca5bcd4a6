"""Kinds of figures: a class each, which draws a request."""

from abc import abstractmethod
from typing import Any, ClassVar

from dpadmm_mpi.config.options import Options
from dpadmm_mpi.plots import attacker, curves, network
from dpadmm_mpi.plots.request import Request
from dpadmm_mpi.registry import Registry

plots = Registry["PlotKind"]("kind", "plots")


@plots.base
class PlotKind(Options):
    """A figure of one or several results."""

    has_axis: ClassVar[bool] = False  # its curves go over the iterations, or over seconds or bytes in their place

    @abstractmethod
    def draw(self, request: Request) -> Any:
        """A matplotlib Figure; `panels`, `caption` and the rest of plots.style help to give it the common look."""


@plots.register("overview")
class Overview(PlotKind):
    """Loss, test error and privacy over the iterations."""

    has_axis: ClassVar[bool] = True

    def draw(self, request: Request) -> Any:
        return curves.overview(request)


class OverIterations(PlotKind):
    """One measurement over the iterations."""

    has_axis: ClassVar[bool] = True
    measure: ClassVar[str]

    def draw(self, request: Request) -> Any:
        return curves.over_iterations(request, self.measure)


@plots.register("loss")
class LossCurve(OverIterations):
    """The mean loss over the iterations."""

    measure: ClassVar[str] = "loss"


@plots.register("test-error")
class TestErrorCurve(OverIterations):
    """The test error over the iterations."""

    measure: ClassVar[str] = "test_error"


@plots.register("objective")
class ObjectiveCurve(OverIterations):
    """The objective over the iterations."""

    measure: ClassVar[str] = "objective"


@plots.register("objective-gap")
class ObjectiveGapCurve(OverIterations):
    """The objective above the optimum's over the iterations."""

    measure: ClassVar[str] = "objective_gap"


@plots.register("consensus")
class ConsensusCurve(OverIterations):
    """How far the nodes are apart over the iterations."""

    measure: ClassVar[str] = "consensus_error"


@plots.register("optimum")
class OptimumCurve(OverIterations):
    """The distance to the optimum over the iterations."""

    measure: ClassVar[str] = "distance_to_optimum"


@plots.register("privacy")
class PrivacyCurve(PlotKind):
    """The total privacy loss over the iterations, all accounts."""

    has_axis: ClassVar[bool] = True

    def draw(self, request: Request) -> Any:
        return curves.privacy(request)


class OverPrivacy(PlotKind):
    """One measurement against the privacy that was spent."""

    measure: ClassVar[str]

    def draw(self, request: Request) -> Any:
        return curves.over_privacy(request, self.measure)


@plots.register("loss-privacy")
class LossOverPrivacy(OverPrivacy):
    """The loss against the privacy that was spent."""

    measure: ClassVar[str] = "loss"


@plots.register("error-privacy")
class ErrorOverPrivacy(OverPrivacy):
    """The test error against the privacy that was spent."""

    measure: ClassVar[str] = "test_error"


@plots.register("tradeoff")
class Tradeoff(PlotKind):
    """Loss and test error at the end against privacy, a point per file."""

    def draw(self, request: Request) -> Any:
        return curves.tradeoff(request)


@plots.register("attacker")
class Attacker(PlotKind):
    """What an attacker can find at most, over how many innocent records he accuses."""

    def draw(self, request: Request) -> Any:
        return attacker.attacker(request)


@plots.register("nodes")
class NodesFigure(PlotKind):
    """How far the nodes are apart, loss and privacy of each."""

    def draw(self, request: Request) -> Any:
        return network.nodes(request)


@plots.register("partition")
class PartitionFigure(PlotKind):
    """How the records are spread: labels of each node, and how far its labels are from those of all."""

    def draw(self, request: Request) -> Any:
        return network.partition(request)


@plots.register("network")
class NetworkFigure(PlotKind):
    """The network with each node's loss, or with --account its privacy."""

    def draw(self, request: Request) -> Any:
        return network.network(request)


@plots.register("faults")
class FaultsFigure(PlotKind):
    """What goes wrong on the network: messages that arrive, nodes that take a step, bytes sent, over the iterations."""

    def draw(self, request: Request) -> Any:
        return network.faults(request)


@plots.register("observers")
class ObserversFigure(PlotKind):
    """Who learns what: epsilon of every node against every other, and on the network against two of them."""

    def draw(self, request: Request) -> Any:
        return network.observers(request)
