"""Records that it costs no privacy to look at, in the place of a configuration's own.

`synthetic` uses these facts of the real records, which count as public, and nothing else: how many there are, how many each
node has, how many are for testing, the number of features, and that there are two classes. No record is read for it, beyond
what preparing the file for a run does anyway. The graph, which is public too, stays the same.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from dpadmm_mpi.config.files import Setting
from dpadmm_mpi.config.options import to_table
from dpadmm_mpi.data.dataset import target_of
from dpadmm_mpi.data.sources import sources
from dpadmm_mpi.errors import InputError
from dpadmm_mpi.files import is_file
from dpadmm_mpi.methods.base import Config
from dpadmm_mpi.networks.graphs import Hub, build
from dpadmm_mpi.registry import did_you_mean
from dpadmm_mpi.storage.experiments import load

SEED = 1_000_003  # added to the configuration's own: other noise, and other records where its own are synthetic too
LEAST_TEST = 0.05  # of the training records, that a public data set must have besides
TEST_SHARE = 0.25  # of the training records, where there are no test records
ENDINGS = {
    ".csv": "csv", ".tsv": "csv", ".parquet": "parquet", ".npz": "npz", ".h5": "hdf5", ".hdf5": "hdf5", ".libsvm": "libsvm",
    ".svm": "libsvm", ".txt": "libsvm",
}  # fmt: skip


class Facts(NamedTuple):
    """What is used of the real records."""

    sizes: tuple[int, ...]  # training records of each node
    test: int  # records for testing
    features: int

    @property
    def training(self) -> int:
        return sum(self.sizes)


def facts_of(config: Config) -> Facts:
    """Counts alone; InputError where the records are not of two classes."""
    topology = build(config.network.graph, config.seed)
    dataset = config.data.dataset(topology.nodes, config.seed)
    target = target_of(dataset)
    if target.kind != "binary":
        raise InputError(
            f"--on synthetic: the made-up records have two classes, but the labels are {target.words}; name a public data set, "
            "as in --on public.csv"
        )
    sizes = tuple(int(size) for size in dataset.sizes)
    test = len(dataset.node_of_record()) - sum(sizes)
    return Facts(sizes, test or round(TEST_SHARE * sum(sizes)), int(dataset.features))


class StandIn(NamedTuple):
    """What to set in a configuration so that other records take the place of its own."""

    settings: tuple[Setting, ...]
    words: str  # on which records


def stand_in(config: Config, on: str, made: Callable[[Sequence[Setting]], Config]) -> StandIn:
    """`on`: synthetic, the name of a source, a data file, or a configuration whose [data] is meant; `made` applies settings."""
    common = [("seed", (config.seed + SEED) % 2**63), *same_graph(config)]
    if on == "synthetic":
        facts = facts_of(config)
        return StandIn((*common, *synthetic(facts)), _in_words(facts))
    settings, words = _public(config, on, made)
    return StandIn((*common, *settings), words)


def synthetic(facts: Facts) -> Sequence[Setting]:
    return [
        ("data.source", "synthetic"),
        ("data.records", facts.training + facts.test),
        ("data.features", facts.features),
        ("data.train", facts.training),
        ("data.split", "sizes"),
        ("data.sizes", list(facts.sizes)),
    ]


def _in_words(facts: Facts) -> str:
    sizes = f"{min(facts.sizes)}" + (f" to {max(facts.sizes)}" if len(set(facts.sizes)) > 1 else "")
    return (
        f"synthetic records; of the real ones only these counts are used: {len(facts.sizes)} nodes with {sizes} records "
        f"each, {facts.test} for testing, {facts.features} features, two classes"
    )


def same_graph(config: Config) -> list[Setting]:
    """A drawn graph by its edges: another seed would draw another one."""
    graph = config.network.graph
    if isinstance(graph, Hub) or not graph.random:
        return []
    topology = build(graph, config.seed)
    pairs = [[int(i), int(j)] for i, j in topology.edges]
    return [("network.graph", "pairs"), ("network.pairs", pairs), ("network.nodes", topology.nodes)]


def _public(config: Config, on: str, made: Callable[[Sequence[Setting]], Config]) -> tuple[list[Setting], str]:
    """As many records at each node as there really are, if the public data set has so many: privacy depends on it."""
    found = _named(on)
    nodes = build(config.network.graph, config.seed).nodes
    public = made([*found, ("data.train", 0.5), ("data.split", "even")])
    there = len(public.data.dataset(nodes, config.seed).node_of_record())
    sizes = [int(size) for size in config.data.dataset(nodes, config.seed).sizes]
    if there >= (1.0 + LEAST_TEST) * sum(sizes):
        as_many = [("data.train", sum(sizes)), ("data.split", "sizes"), ("data.sizes", sizes)]
        return [*found, *as_many], f"the public records of {on}"
    words = f"the public records of {on}, which are fewer than the real ones ({there}), so that noise does more harm to them"
    return [*found, ("data.train", 0.8), ("data.split", "even")], words


def _named(on: str) -> list[Setting]:
    path = Path(on)
    if path.suffix == ".toml":
        table = to_table(load(path).configs[0].data)
        return [(f"data.{key}", value) for key, value in table.items() if key not in ("train", "split", "sizes")]
    if is_file(path):
        if path.suffix not in ENDINGS:
            raise InputError(f"--on {on}: the ending of the file does not say what it is; there are {', '.join(ENDINGS)}")
        return [("data.source", ENDINGS[path.suffix]), ("data.path", str(path.resolve()))]
    if on in sources and on != "arrays":
        return [("data.source", on)]
    known = ["synthetic", *sources]
    raise InputError(f"--on {on}: neither a file nor a source; there are {', '.join(known)}{did_you_mean(on, known)}")
