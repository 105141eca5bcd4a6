"""What every family of methods offers: a method with its options, and a plan of one run.

`Config` is one experiment: every section is resolved to the classes that it names. `Plan` is what the engine, the recorder
and the tables ask for; it is settled on rank 0 before the first iteration, so that what cannot work is refused in time.
"""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Generic, NamedTuple, Protocol, Self, TypeVar

import numpy as np
from msgspec import field
from numpy.typing import NDArray

from dpadmm_mpi.config.extensions import Extension
from dpadmm_mpi.config.options import Choice, Choices, Count, Name, NonNegative, Options, Part, Seed, fields_of, to_table
from dpadmm_mpi.config.ranges import OneOf, Space, Whole
from dpadmm_mpi.config.reading import Ruling, one_of
from dpadmm_mpi.data.dataset import Dataset, notes_of, target_of
from dpadmm_mpi.data.records import Target
from dpadmm_mpi.data.shard import Shard
from dpadmm_mpi.data.sources import Data
from dpadmm_mpi.errors import InputError
from dpadmm_mpi.methods.measures import Layout, Measures
from dpadmm_mpi.methods.metrics import METRICS_OF, Metric, Optimum
from dpadmm_mpi.methods.metrics import metrics as METRICS
from dpadmm_mpi.methods.nodes import Nodes, State
from dpadmm_mpi.methods.release import AGREEMENT, AVERAGED, CONSENSUS, FreeAccuracy, FreeOnNetwork, FreeSteps, recorded_steps
from dpadmm_mpi.networks.graphs import Hub, graphs
from dpadmm_mpi.networks.metropolis import acceleration, second_eigenvalue, steps_until
from dpadmm_mpi.networks.network import Network
from dpadmm_mpi.networks.timeline import NetworkFaults, Timeline, faults_on
from dpadmm_mpi.networks.topology import Topology
from dpadmm_mpi.networks.virtual_time import Clock, Leg
from dpadmm_mpi.privacy.account import Account, accounts_of, accounts_of_parts, checked, curve
from dpadmm_mpi.privacy.perturbations import NoPerturbation, Perturbation, Privacy, perturbations
from dpadmm_mpi.privacy.releases import Releases
from dpadmm_mpi.problems.losses import Logistic, Loss, check_constants
from dpadmm_mpi.problems.losses import losses as LOSSES
from dpadmm_mpi.problems.objective import NodeProblem
from dpadmm_mpi.registry import Registry, own_behaviour, place_of
from dpadmm_mpi.types import Array, Bools, Ints, Matrix

if TYPE_CHECKING:
    from dpadmm_mpi.privacy.recorded_curves import RecordedCurve

CLASSIFIERS = ("final/primal", "final/server")  # of what is kept of a last state, what is measured
MOST_STEPS = 1 << 28  # iterations times nodes: plans have tables of this size
SIDE_BY_SIDE = 16  # runs at most: more would hardly make a pass over the records cheaper for each
STATE_NUMBERS = 1 << 22  # ... and at most so many numbers in a field of their states,
RECORD_NUMBERS = 1 << 22  # or one for each record of the largest shard: a solve has a few vectors of these

NO_NOISE = "none: the exact values are released"

S = TypeVar("S", bound=State)

methods = Registry["Method"](
    "method",
    "methods",
    homes=(
        "methods.decentralised.method",
        "methods.star.method",
        "methods.curated.method",
        "methods.gradient.method",
        "methods.one_shot.method",
        "methods.decentralised.arc_admm",
    ),
)


class Terms(Options):
    """What a problem has beside the loss, in the family of a method."""


@methods.base
class Method(Options):
    """An algorithm with its options, which are the keys of [algorithm]."""

    source: ClassVar[str] = ""  # where it is written down
    formulas: ClassVar[tuple[str, ...]] = ()  # its steps, in the LaTeX that reports/mathml.py knows, for the report
    hub: ClassVar[bool] = False  # a server or curator in the middle, every node talks to it alone
    stands_faults: ClassVar[bool] = False  # it can go on where messages are lost or nodes are absent: [network.faults]
    terms: ClassVar[type[Terms]]  # of [problem]
    perturbations: ClassVar[tuple[type[Perturbation], ...]] = (NoPerturbation,)  # that it goes with
    default_perturbation: ClassVar[str] = "none"
    predicts: ClassVar[tuple[str, ...]] = ("binary", "classes", "number")  # what its losses may
    release: ClassVar[type[FreeAccuracy]] = FreeOnNetwork  # of [release]
    steps: ClassVar[tuple[str, ...]] = ()  # what a subclass may define anew, and thereby loses the inherited privacy accounts

    @abstractmethod
    def plan(self, config: "Config", topology: Topology, dataset: Dataset[Any]) -> "Plan[Any]":
        """Everything that is settled before the first iteration."""

    def arranged(self, topology: Topology, dataset: Dataset[Any]) -> tuple[Topology, Dataset[Any]]:
        """Where the records are, if not with the nodes of the network."""
        return topology, dataset

    def data_steps_in(self, iterations: int) -> int:
        """How many of the iterations touch the records."""
        return iterations

    def recycling(self, steps: int | None) -> Self:
        """The method with so many recycled steps after each data step; None: it has none."""
        return self

    def check_faults(self, network: Network) -> None:
        """Refuse what this method does not stand, by InputError with the key."""
        if network.faults.kinds and not self.stands_faults:
            raise InputError(
                f"network.faults: {methods.name_of(type(self))} needs a network without them; remove the section, or choose a "
                "method on a network without a hub"
            )

    def under_faults(self, faults: NetworkFaults) -> str:
        """What is known about this method on a network with faults, in words."""
        change = "; the graph need not be connected in any iteration, all of its edges together are" if faults.change else ""
        return (
            f"network.faults: a node goes on from what it has received last of each neighbour{change}; no theorem says that "
            f"{methods.name_of(type(self))} converges then"
        )

    def check_privacy(self, perturbation: Perturbation) -> None:
        """Refuse noise whose options do not suffice, by InputError with the key."""

    def accounts(self, releases: Releases, delta: float) -> Sequence[Account]:
        """The privacy accounts of what was released.

        They are about the steps of the class that defines them: a subclass with steps of its own records infinity and
        "not proven" until it defines `accounts` too.
        """
        return accounts_of(releases, delta)

    @classmethod
    def tuned(cls) -> Space:
        """The ranges that `dpadmm tune` searches for the best settings, by dotted key; a subclass adds its own options.

        >>> methods["admm"].tuned()["iterations"].words
        '1:12:log'
        """
        return {"iterations": Whole(1, 64, log=True, start=8), **cls.tuned_release()}

    @classmethod
    def tuned_release(cls) -> Space:
        """What may be made of released values at no cost, where the method has options for it.

        That nothing is averaged needs no trial of its own: every trial is judged by the last iterate too.
        """
        options = getattr(cls, "release", None)
        known: Space = {"release.average": OneOf(("half", "all")), "release.recycle": Whole(1, 6, log=True, start=1)}
        names = [] if options is None else [f"release.{each.name}" for each in fields_of(options)]
        return {key: each for key, each in known.items() if key in names}

    def own_step(self, unless: str = "") -> str:
        """A step that a class from outside defines anew, in words; "" if none does, or only above one that defines `unless`."""
        own = own_behaviour(type(self), (*self.steps, "plan"), unless)
        return f"{methods.name_of(type(self))} has {own}" if own else ""

    def unaccounted(self) -> str:
        """Why the inherited accounts say nothing about this class; "" if they do."""
        own = self.own_step(unless="accounts")
        return f"not proven: {own} and no account of its own" if own else ""

    @classmethod
    def ruling(cls) -> Ruling:
        """What this method decides about the other sections."""
        joined = tuple(graph for _, graph in graphs.items() if not issubclass(graph, Hub))
        return Ruling(
            key="algorithm.method",
            name=methods.name_of(cls),
            takes={"network.graph": (Hub,) if cls.hub else joined, "privacy.perturbation": cls.perturbations},
            defaults={"privacy.perturbation": cls.default_perturbation} | ({"network.graph": "hub"} if cls.hub else {}),
            parts={"problem.terms": cls.terms, "release.free": cls.release},
            synonyms={"network.graph": {"star": "hub"}} if cls.hub else {},
        )


class Algorithm(Options):
    """Which method, and with which parameters."""

    method: Annotated[Method, Choice(methods)]  # what the nodes do

    def check(self) -> None:
        self.method.check()


def _terms() -> list[tuple[str, type[Options]]]:
    return [(name, cls.terms) for name, cls in methods.items()]


class Problem(Options):
    """sum over the nodes of their losses, and what the family adds."""

    loss: Annotated[Loss, Choice(LOSSES)] = Logistic()  # L, of a margin, a residual or several scores
    terms: Annotated[Terms, Part(_terms)] = Terms()

    def check(self) -> None:
        self.terms.check()
        check_constants(self.loss)


def _releases() -> list[tuple[str, type[Options]]]:
    return [(name, cls.release) for name, cls in methods.items()]


class Release(Options):
    """What is made of released values, at no cost in privacy."""

    free: Annotated[FreeAccuracy, Part(_releases)] = FreeAccuracy()


class Record(Options):
    """What is written down."""

    every: Count = 1  # iterations between rows
    nodes: bool = True  # what is recorded of each node in every row; false: its mean over the nodes and the largest
    trajectory: bool = False  # keep every released vector, which is the eavesdropper's view
    checkpoint: Count = 50  # iterations after which the log is on disk, and a checkpoint due
    optimum: bool = False  # solve the centralised problem too and record the distance to it
    metrics: Annotated[list[Metric] | None, Choices(METRICS, "metric")] = None  # beside those of the family
    patience: NonNegative | None = None  # seconds that a host may be silent in a job; 20 unless given, 0: for ever

    def check(self) -> None:
        if self.trajectory and self.every != 1:
            raise InputError("record.every: must be 1 with record.trajectory = true, which keeps every released vector")
        if self.trajectory and not self.nodes:
            raise InputError("record.nodes: must be true with record.trajectory = true, which keeps what every node released")
        for metric in self.metrics or ():
            if metric.needs_optimum and not self.optimum:
                name = METRICS.name_of(type(metric))
                raise InputError(f"record.metrics: {name} compares with the centralised optimum; set record.optimum = true")


class Config(Options, kw_only=True):
    """One experiment."""

    name: Name = "run"  # in tables, figures and file names
    seed: Seed = 1  # everything random is addressed under it
    runs: Count = 1  # repetitions: same data and graph, other noise and starting point
    iterations: Count = 50  # recycled ones included
    data: Data = Data()
    network: Network = Network()
    problem: Problem = Problem()
    algorithm: Algorithm
    privacy: Privacy = Privacy()
    release: Release = Release()
    record: Record = Record()
    extensions: list[Extension] = field(default_factory=list)  # Python files with classes of your own

    @property
    def method(self) -> Method:
        return self.algorithm.method.recycling(self.release.free.recycled())

    @property
    def method_name(self) -> str:
        return methods.name_of(type(self.algorithm.method))

    @property
    def is_noisy(self) -> bool:
        return self.privacy.perturbation.private


def final_name(place: str, kept: str) -> str:
    """Of a classifier at the averages, or after consensus: final/averaged, or of a server final/averaged_server."""
    return f"final/{place}" if kept == CLASSIFIERS[0] else f"final/{place}_server"


def to_toml(config: Config) -> str:
    """The resolved configuration as TOML text; parsing it gives the same configuration.

    Parameters
    ----------
    config : as `parse` gives it

    Returns
    -------
    TOML with every default filled in.

    Examples
    --------
    >>> import dpadmm_mpi as dp
    >>> config = dp.methods.parse({"data": {"records": 200, "features": 3}})
    >>> "records = 200" in dp.methods.to_toml(config)
    True
    """
    import tomli_w

    return tomli_w.dumps(as_table(config))


def as_table(config: Config) -> dict[str, Any]:
    """The resolved configuration as plain tables; without `extensions` where there are none, in [release] without what is
    as the papers have it, and without record.nodes where it is true: configurations from before these were there keep their
    text.
    """
    table, usual = to_table(config), to_table(type(config.release.free)())
    table["release"] = {key: value for key, value in table["release"].items() if value != usual[key]}
    if table["record"]["nodes"]:
        del table["record"]["nodes"]
    return {key: value for key, value in table.items() if value or key not in ("extensions", "release")}


def fingerprint(config: Config) -> str:
    """What tells configurations apart: two with the same fingerprint give the same bits.

    Parameters
    ----------
    config : as `parse` gives it

    Returns
    -------
    The sha256 of its TOML text, 64 hexadecimal digits.

    Examples
    --------
    >>> import dpadmm_mpi as dp
    >>> config = dp.methods.parse({"data": {"records": 200, "features": 3}})
    >>> len(dp.methods.fingerprint(config))
    64
    """
    return hashlib.sha256(to_toml(config).encode()).hexdigest()


class Question(NamedTuple):
    """Something that rank 0 asks every node: a vector goes out, and a row of numbers comes back."""

    width: int  # numbers in a node's answer
    answer: Callable[[NodeProblem, Array, Array], Array]  # from its problem, its margins at the current point, and the vector
    moves: bool = False  # the vector becomes the current point first


Ask = Callable[[Question, Array], Array]  # the answers, (nodes, width), in node order


class OptimumSearch(Protocol):
    """The search for the centralised optimum, which rank 0 drives by asking the nodes. Measurement, not traffic."""

    questions: Sequence[Question]

    def find(self, ask: Ask) -> Optimum | None: ...


class Assumptions(NamedTuple):
    """What the theorems are asked about, beside the configuration."""

    f_ref: float = 1.0  # norm of a reference classifier, or of the optimum
    tau: float = 0.1  # excess loss
    beta: float = 0.05  # failure probability
    dataset: Dataset[Any] | None = None  # the records, where they may be looked at
    gap: float = 0.0  # Delta, the loss of an iteration above that of its limit


class Schedules(NamedTuple):
    """What was used, for the record: values (T+1, N) and description."""

    values: Array
    description: str


class Known(NamedTuple):
    """A dataset of the record that is known before the run."""

    values: NDArray[Any]
    dims: tuple[str, ...]
    description: str


@dataclass(frozen=True)
class Plan(ABC, Generic[S]):
    """What every rank knows; small, and free of records."""

    config: Config
    topology: Topology
    sizes: Ints
    total_records: int  # training and test
    loss: Loss  # for the targets at hand
    target: Target  # what the labels are
    features: int  # numbers in a vector f: those of a record, for each output of the loss
    releases: Releases
    notes: tuple[str, ...]  # what the user should know about this configuration
    budget_steps: Ints | None  # (N,): data steps that the privacy budget lasts for; None: there is no budget

    @property
    def nodes(self) -> int:
        return self.topology.nodes

    @property
    def iterations(self) -> int:
        """That are run: fewer than the configuration has where a privacy budget ends the run."""
        return self.releases.iterations

    @property
    def faults(self) -> NetworkFaults | None:
        """What goes wrong on the network; None: nothing."""
        return faults_on(self.topology)

    @property
    def rounds(self) -> int:
        """All exchanges of a run that follow each other: the iterations, and the consensus steps behind them."""
        return self.iterations + self.consensus_steps

    @property
    def consensus_steps(self) -> int:
        return len(self.free.accelerations)

    @property
    def consensus_recorded(self) -> Ints:
        """The consensus steps that get a row."""
        return recorded_steps(self.consensus_steps, self.config.record.every)

    @cached_property
    def free(self) -> FreeSteps[S]:
        """What is made of released values; refuses what makes no sense here. Settled on rank 0, as the plan is."""
        asked, iterate = self.config.release.free, self.measures_class.iterate
        first = asked.averages_from(self.iterations)
        if first is not None and first > self.config.iterations:
            raise InputError(
                f"release.average: from = {first} is behind the last iteration, {self.config.iterations}; lower it"
            )
        steps = asked.consensus_steps()
        if steps != 0 and self.faults is not None:
            raise InputError("release.consensus: is for a network without faults; remove it, or network.faults")
        if not iterate and (first is not None or steps != 0):
            raise InputError(f"release: {self.config.method_name} releases nothing that could be averaged; remove the section")
        return FreeSteps(iterate, first, self._accelerations(steps) if steps else ())

    def _accelerations(self, steps: int | str) -> tuple[float, ...]:
        eigenvalue = second_eigenvalue(self.topology)
        if steps != "auto":
            return acceleration(eigenvalue, int(steps))
        if eigenvalue == 1.0:
            raise InputError('release.consensus: the graph is not connected, so no number of steps is enough for "auto"')
        return () if self.nodes == 1 else acceleration(eigenvalue, steps_until(eigenvalue, AGREEMENT))

    @property
    def free_in_words(self) -> str:
        """What is made of released values; "": nothing."""
        free, words = self.free, []
        if free.first is not None:
            words.append(f"average of the released iterates from iteration {free.first} on")
        recycled = self.config.release.free.recycled()
        if recycled not in (None, 1):
            words.append(f"{recycled} recycled steps after each data step")
        if free.accelerations:
            start = "the averages" if free.first is not None else "the last iterates"
            words.append(f"{self.consensus_steps} consensus steps from {start}")
        return "; ".join(words)

    @property
    def recorded(self) -> Ints:
        """The iterations that get a row: 0, every `record.every`-th, and the last."""
        every, last = self.config.record.every, self.iterations
        return np.append(np.arange(0, last, every), last)

    @property
    def is_central(self) -> bool:
        """All records are in one place, on rank 0; further ranks have nothing to do."""
        return False

    @property
    def groups_of_runs(self) -> list[range]:
        """The runs that go side by side and share every pass over the records; by the configuration alone, not the layout."""
        runs = self.config.runs
        size = min(STATE_NUMBERS // (self.nodes * self.features), RECORD_NUMBERS // int(self.sizes.max()))
        size = max(1, min(SIDE_BY_SIDE, size))
        return [range(first, min(first + size, runs)) for first in range(0, runs, size)]

    @property
    def seeks_optimum(self) -> bool:
        """Whether the centralised problem is solved too."""
        return self.config.record.optimum

    @property
    def metrics(self) -> dict[str, Metric]:
        """What is recorded, by name: of the family's and the loss's own what applies, and what the configuration adds."""
        always = {name: METRICS[name]() for name in (*self.measures_class.metrics, *METRICS_OF[self.loss.predicts])}
        fitting = {name: metric for name, metric in always.items() if metric.applies_to(self.loss)}
        return fitting | {METRICS.name_of(type(metric)): metric for metric in self.config.record.metrics or ()}

    @property
    def layout(self) -> Layout:
        """Every dataset with a value per run and recorded iteration, but for the timing."""
        made = self.measures_class.layout(self.metrics, self.seeks_optimum)
        return made | self.measures_class.trajectory_layout if self.config.record.trajectory else made

    def _measured_at(self, place: str) -> Layout:
        """What is measured at the averages too, by the names that the metrics have themselves."""
        of_points = [name for name, metric in self.metrics.items() if metric.of_points]
        chosen = [name for name in of_points if name not in self.measures_class.of_iterates_only]
        return {name: entry.elsewhere(place) for name, entry in self.layout.items() if name in chosen}

    @property
    def averaged_layout(self) -> Layout:
        """Every dataset with a value per run and recorded iteration, of the averages."""
        if self.free.first is None:
            return {}
        return {f"{name}_{AVERAGED}": entry for name, entry in self._measured_at(AVERAGED).items()}

    @property
    def consensus_layout(self) -> Layout:
        """Every dataset with a value per run and recorded consensus step."""
        if not self.consensus_steps:
            return {}
        return {f"{CONSENSUS}/{name}": entry for name, entry in self._measured_at(f"after {CONSENSUS}").items()}

    @property
    def finals(self) -> Layout:
        """What is kept of the last states; dimensions behind run."""
        made = dict(self.measures_class.finals)
        for name in (AVERAGED, CONSENSUS):
            if name in self.free.fields:
                made |= {
                    final_name(name, kept): entry._replace(description=f"{entry.description}, {name}")
                    for kept, entry in self.measures_class.finals.items()
                    if kept in CLASSIFIERS
                }
        return made

    @property
    def scales(self) -> Mapping[str, int]:
        """Dimensions beside run, iteration, node and feature; those of the family's own come on top."""
        classes = any(metric.per_class for metric in self.metrics.values())
        arcs = {} if self.faults is None else {"arc": len(self.topology.arcs)}
        return arcs | ({"class": len(self.target.classes)} if classes else {})

    @property
    def map_sha256(self) -> str:
        """Of the linear map of the curated family, which the configuration names but does not hold; "": there is none."""
        return ""

    @property
    def map_for_the_record(self) -> Array | None:
        """The map, if it is small."""
        return None

    @property
    def source(self) -> str:
        """Where the method is written down."""
        return self.config.method.source or place_of(type(self.config.method))

    def names_of(self, features: list[str] | None) -> list[str] | None:
        """Of the numbers in f, from those of a record's features: with several outputs, CLASS: FEATURE."""
        if features is None or self.loss.outputs == 1:
            return features
        classes = [*self.target.classes, *map(str, range(len(self.target.classes), self.loss.outputs))]
        return [f"{name}: {feature}" for name in classes for feature in features]

    @property
    def work_in_words(self) -> str:
        return f"{self.iterations} iterations"

    @property
    def data_step_share(self) -> float:
        """Of the iterations, those that touch the records."""
        return 1.0

    @cached_property
    def accounts(self) -> Sequence[Account]:
        """The privacy accounts; computed when somebody asks: rank 0 for the record, nobody else."""
        method, shape = self.config.method, (self.iterations + 1, self.releases.nodes)
        found = accounts_of_parts(self.releases, lambda part: method.accounts(part, self.config.privacy.delta))
        return tuple(checked(account, type(method), "accounts", shape) for account in found)

    @cached_property
    def curve(self) -> "RecordedCurve | None":
        """delta over epsilon of everything that the worst node releases; None without noise or proof."""
        return curve(self.accounts)

    @property
    def known_before(self) -> Mapping[str, Known]:
        """What is recorded before the first iteration beside accounts and schedules, by its HDF5 name."""
        if self.budget_steps is None:
            return self.virtual_time
        text = "data steps that the node's privacy budget lasts for, of those that the configuration has"
        steps = Known(self.budget_steps, ("node",), text)
        return {"privacy/budget_steps": steps, **self.virtual_time}

    @property
    def takes_part_in_words(self) -> str:
        """When a node takes a step."""
        return "it is there"

    def takes_part(self, timeline: Timeline) -> Bools:
        """Who takes a step, (runs, iterations + 1, nodes)."""
        return timeline.present

    @cached_property
    def virtual_time(self) -> dict[str, Known]:
        """When iterations end, and what was sent by then; {}: nobody asks."""
        time = self.config.network.time
        if not time.is_given:
            return {}
        found = [
            Clock(time, self.topology, self.sizes, 8 * self.features, self.config.seed, runs).elapsed(
                self.legs(time.passes, runs)
            )
            for runs in self.groups_of_runs
        ]
        return {
            f"network/{name}": Known(np.concatenate(values)[:, self.recorded], ("run", "iteration"), words)
            for name, words, values in (
                ("seconds", "virtual time at the end of the iteration, in seconds since the start", [e.seconds for e in found]),
                ("bytes", "bytes that all nodes have sent since the start, lost ones included", [e.bytes_sent for e in found]),
            )
        }

    @property
    def virtual_time_in_words(self) -> str:
        """Of all iterations; "": nobody asks."""
        if not self.virtual_time:
            return ""
        seconds, sent = (self.virtual_time[f"network/{name}"].values[:, -1] for name in ("seconds", "bytes"))
        spread = "" if seconds.max() == seconds.min() else f" ({seconds.min():.4g} to {seconds.max():.4g} in a run)"
        return f"{seconds.mean():.4g} virtual seconds{spread}, {sent.mean():,.0f} bytes sent by all nodes"

    def legs(self, passes_per_solve: float, runs: range) -> list[Leg]:
        """The exchanges of an iteration, and the passes over the records before each, for virtual time."""
        return [self._leg("edges", passes_per_solve if self.solves_exactly else 1.0)]

    def _leg(self, channel: str, passes: Array | float, first: int = 0) -> Leg:
        """An exchange of every iteration from `first` on, with passes over the records from iteration 1 on."""
        t = np.arange(self.iterations + 1)
        return Leg(channel, passes * np.ones((1, 1, self.nodes)) * (t > 0)[:, None], t >= first)

    @property
    @abstractmethod
    def schedules(self) -> Mapping[str, Schedules]:
        """What was used, by its HDF5 name."""

    @property
    @abstractmethod
    def privacy_in_words(self) -> str: ...

    @abstractmethod
    def improvements(self) -> list[str]:
        """What would lower the largest privacy loss; nothing for a run without noise."""

    @abstractmethod
    def conditions(self, assumed: Assumptions) -> list[str]:
        """Which conditions of the theorems hold, and by what margin."""

    @abstractmethod
    def problem(self, signed: Matrix, targets: Array | None = None) -> NodeProblem:
        """The problem of a node with these records, as `as_loss_takes` has them."""

    def problems(self, shards: Iterable[Shard]) -> Sequence[NodeProblem]:
        """The problems of a rank's nodes, which take over the memory of their records."""
        return list(self.each_problem(shards))

    @property
    def problem_terms(self) -> tuple[Any, ...] | None:
        """Everything but the records that `problems` depends on: where it is the same, so are they. None: nothing is known."""
        return None

    def each_problem(self, shards: Iterable[Shard]) -> Iterator[NodeProblem]:
        """One after the other, as their records come."""
        return (self.problem(*as_loss_takes(self.loss, shard)) for shard in shards)

    @property
    def solves_exactly(self) -> bool:
        """Whether an iteration is an exact argmin at every node."""
        return False

    @abstractmethod
    def make_nodes(self, places: Ints, problems: Sequence[NodeProblem]) -> Nodes[S]:
        """The places of one rank."""

    @property
    @abstractmethod
    def measures_class(self) -> type[Measures[S]]:
        """What is recorded; its tables tell the recorder what to make room for."""

    @abstractmethod
    def measures(self, problems: Sequence[NodeProblem]) -> Measures[S]: ...

    @abstractmethod
    def optimum_search(self) -> OptimumSearch:
        """The search for the centralised optimum."""


TARGETS = {"binary": "two classes", "classes": "several classes", "number": "numbers"}


def fitted_loss(config: Config, dataset: Dataset[Any]) -> Loss:
    """The loss of the configuration for the targets of the records; InputError where they do not go together."""
    loss, target = config.problem.loss, target_of(dataset)
    name = LOSSES.name_of(type(loss))
    if target.kind not in loss.takes:
        fitting = one_of(f'"{other}"' for other, cls in LOSSES.items() if target.kind in cls.takes)
        others = one_of(f'"{kind}"' for kind in loss.takes)
        or_else = f", or set data.target = {others}" if hasattr(config.data.source, "target") else ""
        raise InputError(
            f'problem.loss: "{name}" is for {TARGETS[loss.predicts]}, but the labels are {target.words}; use {fitting}{or_else}'
        )
    if loss.predicts not in config.method.predicts:
        fitting = one_of(f'"{other}"' for other, cls in methods.items() if loss.predicts in cls.predicts)
        raise InputError(
            f'problem.loss: {config.method_name} takes no loss of {TARGETS[loss.predicts]}, as "{name}" is; use the '
            f"method {fitting}"
        )
    if config.is_noisy and not np.isfinite(loss.slope_bound):
        raise InputError(
            f'problem.loss: nothing bounds the slope of "{name}", so one record may change everything and no noise makes it '
            'private; use "huber-regression", or privacy.perturbation = "none"'
        )
    fitted = loss.fitted(target.kind, len(target.classes))
    for metric in config.record.metrics or ():
        if not metric.applies_to(fitted):
            raise InputError(
                f'record.metrics: {METRICS.name_of(type(metric))} does not go with problem.loss = "{name}"; remove it'
            )
    return fitted


def target_notes(config: Config, dataset: Dataset[Any]) -> list[str]:
    """What the user should know of the labels, where they are not the usual two."""
    target = target_of(dataset)
    notes = [] if target.kind == "binary" else [f"the labels are {target.words}"]
    if target.range_from_records and config.is_noisy:
        notes.append("the range of the targets is taken from the records, which no account counts; give data.target_range")
    if target.clipped:
        low, high = target.centre - target.scale, target.centre + target.scale
        notes.append(f"targets outside data.target_range = [{low:g}, {high:g}] are clipped to it; there are {target.clipped}")
    return notes


def as_loss_takes(loss: Loss, shard: Shard) -> tuple[Matrix, Array | None]:
    """Rows and targets: y_n x_n alone for a margin loss. The memory of the shard is taken over."""
    if loss.predicts == "binary":
        return shard.into_signed(), None
    return shard.X, np.maximum(shard.y, 0.0) if loss.predicts == "classes" else shard.y  # of two classes: -1 becomes 0


def make_plan(config: Config) -> tuple[Plan[Any], Dataset[Any]]:
    """What a run will do, and on which records: graph, schedules, calibrated noise, releases, accounts. Nothing is run.

    Parameters
    ----------
    config : as `parse` gives it

    Returns
    -------
    The plan, and the data set spread over the nodes.

    Raises
    ------
    InputError
        It cannot work: data are missing, the graph is not connected, a target cannot be met, a theorem's condition fails.

    Examples
    --------
    >>> import dpadmm_mpi as dp
    >>> config = dp.methods.parse({"data": {"records": 200, "features": 3}})
    >>> plan, dataset = dp.methods.make_plan(config)
    >>> plan.nodes, plan.sizes.tolist()
    (5, [32, 32, 32, 32, 32])
    """
    topology = config.network.build(config.seed, config.iterations)
    if (config.iterations + 1) * topology.nodes > MOST_STEPS:
        raise InputError(
            f"iterations: {config.iterations:,} iterations of {topology.nodes:,} nodes; at most {MOST_STEPS:,} steps of nodes "
            "are possible"
        )
    dataset = config.data.dataset(topology.nodes, config.seed)
    topology, dataset = config.method.arranged(topology, dataset)
    plan = config.method.plan(config, topology, dataset)
    notes = notes_of(dataset, config.is_noisy)
    if plan.faults is not None:
        notes = [*notes, config.method.under_faults(plan.faults)]
    if notes:
        plan = replace(plan, notes=(*plan.notes, *notes))
    _ = plan.free  # here, where what cannot work is refused, and every rank gets the same numbers
    return plan, dataset


def perturbation_name(config: Config) -> str:
    return perturbations.name_of(type(config.privacy.perturbation))


def condition(margin: float, words: str) -> str:
    """A condition in the words of `dpadmm check`; it holds if its margin is not negative."""
    return f"{'holds' if margin >= 0.0 else 'FAILS'}  {words}, margin {margin:.4g}"
