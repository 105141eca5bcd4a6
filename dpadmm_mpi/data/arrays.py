"""Records that a Python program has in memory: numpy arrays, pandas frames, scipy matrices.

A configuration cannot hold records, so it names them by their sha256 (`Arrays`), and they are at hand while the program that
brought them lets a run or an audit look at them (`lent`). A result file keeps the checksum, the counts and the names of labels
and features. Records that the ranks bring themselves stay where they are: `Summary` is all that the others get to know.
"""

import hashlib
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpadmm_mpi.config.options import Choices
from dpadmm_mpi.data.dataset import Dataset, InMemory, TestSet
from dpadmm_mpi.data.partitions import TEST, Division, Even
from dpadmm_mpi.data.records import Records, Target, concatenate
from dpadmm_mpi.data.shard import NORM_SLACK, Shard, row_norms
from dpadmm_mpi.data.sources import Source, sources
from dpadmm_mpi.data.steps import Step, preprocess, steps
from dpadmm_mpi.data.targets import MOST_CLASSES, Label, check_range, kind_of, range_of, scaled_into, target_over
from dpadmm_mpi.errors import InputError
from dpadmm_mpi.types import Ints, Matrix

# From Python objects to records


def as_records(given: Any, where: str) -> Records:
    """A pair (X, y) as a matrix of float64, dense or CSR, and labels as they are; InputError, one short sentence, otherwise."""
    if not isinstance(given, tuple | list) or len(given) != 2:
        raise InputError(f"{where}: found {_kind(given)}; give the pair (X, y), features and labels")
    X, names = as_features(given[0], where)
    y = _as_labels(given[1], where)
    if X.shape[0] != len(y):
        raise InputError(f"{where}: X has {X.shape[0]} records, but y has {len(y)} labels; they must be as many")
    return Records(y=y, X=X, names=names)


def as_features(given: Any, where: str) -> tuple[Matrix, tuple[str, ...] | None]:
    """Features as a matrix of float64, with their names where they have some."""
    if hasattr(given, "columns") and hasattr(given, "dtypes"):
        return _from_frame(given, where)
    if hasattr(given, "tocsr"):
        return _from_sparse(given, where), None
    array = _as_array(given, where, "X")
    if array.ndim != 2 or not array.shape[1]:
        raise InputError(f"{where}: X has the shape {array.shape}; it must be (records, features)")
    if array.dtype.kind not in "fiub":
        raise InputError(
            f"{where}: X holds values of the type {array.dtype.name}; numbers are needed, or a pandas frame whose text columns "
            "are categories"
        )
    return np.ascontiguousarray(array, dtype=np.float64), None


def _from_sparse(given: Any, where: str) -> Any:
    from scipy.sparse import csr_matrix

    if given.dtype.kind not in "fiub":
        raise InputError(f"{where}: X holds values of the type {given.dtype.name}; numbers are needed")
    X = csr_matrix(given, dtype=np.float64, copy=True)
    X.sum_duplicates()
    return X


def _from_frame(frame: Any, where: str) -> tuple[Matrix, tuple[str, ...]]:
    """A pandas frame: categories become 0/1 columns named column=category, in the order of their dtype."""
    parts: list[NDArray[np.float64]] = []
    names: list[str] = []
    for k, name in enumerate(frame.columns):
        column = frame.iloc[:, k]
        if hasattr(column, "cat"):
            codes = np.asarray(column.cat.codes)
            if (codes < 0).any():
                raise InputError(
                    f'{where}: column "{name}" has no category in record {int(np.argmax(codes < 0))}; remove the record, or '
                    "make missing a category"
                )
            categories = [str(category) for category in column.cat.categories]
            parts.append((codes[:, None] == np.arange(len(categories))).astype(np.float64))
            names += [f"{name}={category}" for category in categories]
            continue
        if getattr(column.dtype, "kind", "O") not in "fiub":
            raise InputError(
                f'{where}: column "{name}" holds values of the type {column.dtype}; make it numbers, or categories by '
                '.astype("category"), or leave it out'
            )
        parts.append(column.to_numpy(dtype=np.float64, na_value=np.nan)[:, None])
        names.append(str(name))
    if not names:
        raise InputError(f"{where}: X is a frame without columns")
    return np.ascontiguousarray(np.hstack(parts)), tuple(names)


def _as_labels(given: Any, where: str) -> NDArray[Any]:
    y = _as_array(given, where, "y")
    if y.ndim != 1 or not len(y):
        ravel = "; write y.ravel()" if y.ndim == 2 and y.shape[1] == 1 else ""
        raise InputError(f"{where}: y has the shape {y.shape}; it must be one label for each record, (records,){ravel}")
    if y.dtype.kind == "O":
        kinds = {
            "text" if isinstance(value, str) else "numbers" for value in y.tolist() if value == value and value is not None
        }
        if len(kinds) > 1:
            raise InputError(f"{where}: y holds numbers and text; make all labels alike")
        missing = np.array([value is None or value != value for value in y.tolist()])
        y = y if missing.any() else y.astype(str if kinds == {"text"} else np.float64)
    elif y.dtype.kind in "fiu":
        missing = np.isnan(y)
    else:
        missing = np.zeros(len(y), dtype=bool)
    if missing.any():
        raise InputError(f"{where}: the label of record {int(np.argmax(missing))} is missing; remove the record")
    if y.dtype.kind not in "fiubU":
        raise InputError(f"{where}: y holds values of the type {y.dtype.name}; labels are numbers or text")
    return y.astype(np.int64) if y.dtype.kind == "b" else y


def _as_array(given: Any, where: str, name: str) -> NDArray[Any]:
    try:
        return np.asarray(given)
    except (ValueError, TypeError):
        raise InputError(f"{where}: {name} is {_kind(given)} and no array; its rows must be equally long") from None


def _kind(given: Any) -> str:
    """What somebody has passed, in a few words whatever its size."""
    if hasattr(given, "shape"):
        return f"{type(given).__name__} of the shape {tuple(given.shape)}"
    if isinstance(given, tuple | list):
        return f"a {type(given).__name__} of {len(given)} parts"
    return f"{type(given).__name__}"


def digest(records: Records) -> str:
    """The sha256 of features, names and labels."""
    X, y = records.matrix, records.y
    dense = isinstance(X, np.ndarray)
    found = hashlib.sha256(json.dumps([list(X.shape), dense, records.names, y.dtype.kind == "U"]).encode())
    if isinstance(X, np.ndarray):
        found.update(X.data)
    else:
        for part, dtype in ((X.data, np.float64), (X.indices, np.int64), (X.indptr, np.int64)):
            found.update(np.ascontiguousarray(part, dtype=dtype).data)
    found.update(json.dumps(y.tolist()).encode() if y.dtype.kind == "U" else np.ascontiguousarray(y, dtype=np.float64).data)
    return found.hexdigest()


# What a program brings, and what the ranks tell each other about it


@dataclass(frozen=True)
class Brought:
    """The records of one rank: all of them, to be spread over the nodes, or those of some nodes."""

    whole: Records | None = None
    shards: tuple[Records, ...] = ()
    test: Records | None = None  # of rank 0

    @property
    def parts(self) -> tuple[Records, ...]:
        return self.shards if self.whole is None else (self.whole,)

    @property
    def everything(self) -> tuple[Records, ...]:
        return self.parts if self.test is None else (*self.parts, self.test)

    def span(self) -> tuple[float, float] | None:
        """Of the targets, which are numbers; None: there are none."""
        ranges = [range_of(part.y, "y") for part in self.everything]
        return (min(low for low, _ in ranges), max(high for _, high in ranges)) if ranges else None


def bring(data: Any, test: Any, shards: Any) -> Brought:
    """What was passed to `run`, checked as far as this rank can."""
    if data is not None and shards is not None:
        raise InputError("data and shards: give one of them, all records to be spread or the records of each node")
    if shards is not None and (not isinstance(shards, list | tuple) or not shards):
        raise InputError(f"shards: found {_kind(shards)}; give a list of pairs (X, y), one for each node")
    return Brought(
        None if data is None else as_records(data, "data"),
        tuple(as_records(shard, f"shards[{k}]") for k, shard in enumerate(shards or ())),
        None if test is None else as_records(test, "test"),
    )


class Summary(NamedTuple):
    """All that the other ranks get to know about the records of one: no features, no record's label."""

    spread: bool
    digests: list[str]
    widths: list[int]
    sparse: list[bool]
    labels: list[Label]  # that occur; none where they can only be numbers to predict
    measured: bool  # they can only be such numbers
    names: tuple[str, ...] | None
    test: str  # checksum; "": none

    @classmethod
    def of(cls, brought: Brought) -> "Summary":
        everything = brought.everything
        found = [np.unique(part.y) for part in everything]
        measured = any(_are_measured(labels) for labels in found)
        return cls(
            spread=brought.whole is not None,
            digests=[digest(part) for part in brought.parts],
            widths=[int(part.matrix.shape[1]) for part in everything],
            sparse=[not isinstance(part.X, np.ndarray) for part in brought.parts],
            labels=[] if measured else [label for labels in found for label in labels.tolist()],
            measured=measured,
            names=everything[0].names if everything else None,
            test="" if brought.test is None else digest(brought.test),
        )


def _are_measured(labels: NDArray[Any]) -> bool:
    """Whether these different labels can be nothing but numbers to predict: broken ones, or more than classes can be."""
    if labels.dtype.kind == "U" or len(labels) <= 2:
        return False
    return len(labels) > MOST_CLASSES or bool(np.any(labels != np.rint(labels)))


@dataclass(frozen=True)
class Inventory:
    """What all ranks have together."""

    sha256: str
    labels: tuple[Label, ...]  # that occur, ascending
    names: tuple[str, ...] | None
    shards: int  # that were brought, one for each node; 0: records to be spread over the nodes
    holders: Ints | None  # rank that has the records of each node; None: rank 0 has everything
    measured: bool = False  # some labels can only be numbers to predict, and `labels` does not have them
    span: tuple[float, float] | None = None  # of the targets that are numbers, where no range was given


def take_stock(summaries: Sequence[Summary]) -> Inventory:
    """Of the summaries of all ranks, in their order; refuses records that do not go together."""
    bringing = [rank for rank, summary in enumerate(summaries) if summary.digests]
    first = summaries[bringing[0]]
    if len(bringing) > 1:
        _refuse_copies([summaries[rank] for rank in bringing])
    _refuse_unlike(summaries, first)
    labels: set[Any] = {label for summary in summaries for label in summary.labels}
    if len({isinstance(label, str) for label in labels}) > 1:
        raise InputError("y: labels are numbers in one place and text in another; make all labels alike")
    digests = [found for summary in summaries for found in summary.digests]
    spread = first.spread and bringing == [0]
    identity = json.dumps(["spread" if spread else "shards", *digests, summaries[0].test])
    held = np.repeat(np.arange(len(summaries)), [len(summary.digests) for summary in summaries])
    return Inventory(
        hashlib.sha256(identity.encode()).hexdigest(),
        tuple(sorted(labels)),
        first.names,
        0 if spread else len(digests),
        None if bringing == [0] else held,
        any(summary.measured for summary in summaries),
    )


def _refuse_copies(bringing: Sequence[Summary]) -> None:
    if len({tuple(summary.digests) for summary in bringing}) == 1:
        raise InputError(
            "data: every rank has brought the very same records; bring them on rank 0 alone, data=None on the others, or "
            "on each rank its own"
        )


def _refuse_unlike(summaries: Sequence[Summary], first: Summary) -> None:
    """Matrices of other widths, names or kinds than the first."""
    parts = [
        (f"rank {rank}" if len(summaries) > 1 else "", summary, place)
        for rank, summary in enumerate(summaries)
        for place in range(len(summary.widths))
    ]
    for rank, summary, place in parts:
        is_test = place >= len(summary.digests)
        what = "test" if is_test else "data" if summary.spread else f"shards[{place}]"
        where = f"{what} of {rank}" if rank else what
        if summary.widths[place] != first.widths[0]:
            raise InputError(
                f"{where}: X has {summary.widths[place]} features, but the first records have {first.widths[0]}; all must have "
                "the same"
            )
        if summary.names != first.names:
            raise InputError(f"{where}: X has other columns or categories than the first records; all must have the same")
        if not is_test and summary.sparse[place] != first.sparse[0]:
            kinds = ("dense", "sparse")
            raise InputError(
                f"{where}: X is {kinds[summary.sparse[place]]}, but the first records are {kinds[first.sparse[0]]}; make all "
                "alike"
            )


# Records at hand


@dataclass(frozen=True)
class Lent:
    """What a run may look at on this rank."""

    inventory: Inventory
    brought: Brought
    shards: dict[int, Shard] = field(default_factory=dict)  # prepared, by node: of those that lie here
    sizes: Ints | None = None  # of all nodes' shards; None: the records are to be spread
    features: int = 0  # of the shards
    clipped: int = 0  # targets of all nodes' shards that lie outside the given range


_LENT: ContextVar[Lent | None] = ContextVar("lent", default=None)


@contextmanager
def lent(records: Lent | None) -> Iterator[None]:
    """These records are at hand meanwhile."""
    token = _LENT.set(records)
    try:
        yield
    finally:
        _LENT.reset(token)


def _at_hand(sha256: str) -> Lent:
    found = _LENT.get()
    if found is None or found.inventory.sha256 != sha256:
        other = "" if found is None else f", and not those that were passed (sha256 {found.inventory.sha256[:12]})"
        raise InputError(
            f"data: the records (sha256 {sha256[:12]}) were arrays of a Python program and are not in any file{other}; pass "
            "them again, as in dpadmm_mpi.run(FILE, data=(X, y)) or dpadmm_mpi.load(FILE).audit(data=(X, y))"
        )
    return found


def as_signs(y: NDArray[Any], labels: tuple[Label, ...]) -> NDArray[np.float64]:
    """-1 and +1 of two labels."""
    return np.where(y == labels[1], 1.0, -1.0)


def as_places(y: NDArray[Any], labels: tuple[Label, ...]) -> NDArray[np.float64]:
    """The place of each label among several."""
    return np.searchsorted(np.array(labels), y).astype(np.float64)


def refuse_unfit(records: Records, where: str) -> None:
    """Values that are no numbers, and rows that are too long for the privacy bounds."""
    X = records.matrix
    values = X if isinstance(X, np.ndarray) else X.data
    if not np.isfinite(values).all():
        flat = int(np.argmax(~np.isfinite(values)))
        row = flat // X.shape[1] if isinstance(X, np.ndarray) else int(np.searchsorted(X.indptr, flat, side="right")) - 1
        raise InputError(
            f"{where}: record {row} has a feature that is not a finite number; remove the record, or begin preprocess with "
            '"drop-missing"'
        )
    norms = row_norms(X)
    if norms.max() > 1.0 + NORM_SLACK:
        raise InputError(
            f"{where}: record {int(norms.argmax())} has norm {norms.max():.6g}, but the privacy bounds need norms of at most "
            '1; scale the features, and let preprocess=["scale-rows"] shorten what is longer'
        )


# The source


@sources.register("arrays")
class Arrays(Source):
    """Records that a Python program brings, by run(data=(X, y)) or run(shards=[(X, y), ...]); named by their checksum."""

    sha256: str  # of the records
    positive: Label | None = None  # the label that means +1; unset: the larger of the two
    target: Literal["binary", "classes", "number"] | None = None  # what the labels are; None: found from them
    target_range: list[float] | None = None  # [LOW, HIGH] of numbers, known beforehand; None: found, which no account counts
    preprocess: Annotated[list[Step] | None, Choices(steps, "step")] = None  # what is done to the records, in this order

    def check(self) -> None:
        if self.target_range is not None:
            check_range(self.target_range)

    def dataset(self, division: Division, nodes: int, seed: int) -> Dataset[Any]:
        found = _at_hand(self.sha256)
        return self._spread(found, division, nodes, seed) if found.sizes is None else self._held(found, division, nodes)

    def kind(self, inventory: Inventory) -> str:
        """Of the labels: "binary", "classes" or "number"."""
        found = inventory.labels
        kind: str | None = self.target
        if kind is None:
            kind = "number" if inventory.measured else kind_of(np.array(found), self.positive, self.target_range)
        if kind != "number" and self.target_range is not None:
            raise InputError('data.target_range: is the range of numbers; set target="number", or remove it')
        if kind != "binary" and self.positive is not None:
            raise InputError(f"data.positive: has no meaning where labels are {_KINDS[kind]}; remove it")
        if kind != "number" and inventory.measured:
            raise InputError(
                f"y: holds broken numbers, or more different ones than the {MOST_CLASSES} classes that can be told apart, but "
                f'data.target = "{kind}"; remove it, and the labels are numbers to predict'
            )
        return kind

    def labels(self, inventory: Inventory) -> tuple[Label, ...]:
        """What -1 and +1 stand for, or the classes; none of numbers."""
        kind, found = self.kind(inventory), inventory.labels
        if kind == "number":
            return ()
        if not 2 <= len(found) <= (2 if kind == "binary" else MOST_CLASSES):
            shown = ", ".join(map(str, found[:4])) + (", ..." if len(found) > 4 else "")
            several = "two are needed" if kind == "binary" else f"2 to {MOST_CLASSES} classes can be told apart"
            raise InputError(f"y: found {_labels_in_words(len(found))} ({shown}); {several}")
        if self.positive is None:
            return found
        if self.positive not in found:
            raise InputError(f"data.positive: no label is {self.positive!r}; the labels are {found[0]!r} and {found[1]!r}")
        return (found[0], found[1]) if self.positive == found[1] else (found[1], found[0])

    def needs_range(self, inventory: Inventory) -> bool:
        """Whether the range of the targets has to be found."""
        return self.target_range is None and self.kind(inventory) == "number"

    def meaning(self, inventory: Inventory) -> Target:
        """What the labels are."""
        if self.kind(inventory) != "number":
            labels = self.labels(inventory)
            names = tuple(label if isinstance(label, str) else f"{label:g}" for label in labels)
            return Target("binary" if len(names) == 2 and self.target != "classes" else "classes", names)
        span = inventory.span if self.target_range is None else self.target_range
        assert span is not None  # `needs_range`
        return target_over(span, self.target_range is None, "y")

    def with_target(self, records: Records, inventory: Inventory, where: str) -> Records:
        """Labels as numbers, and what they are."""
        target = self.meaning(inventory)
        if target.kind == "number":
            return scaled_into(records, target, where)
        labels = self.labels(inventory)
        signed = target.kind == "binary"
        return replace(records, y=as_signs(records.y, labels) if signed else as_places(records.y, labels), target=target)

    def prepare(self, brought: Brought, inventory: Inventory) -> list[tuple[Shard, int]]:
        """The shards of this rank after the steps, each alone, and how many of its targets were clipped."""
        apart = [steps.name_of(type(step)) for step in self.preprocess or () if not step.by_record]
        if apart:
            raise InputError(
                f'data.preprocess: "{apart[0]}" looks at all records together, but each node has its own here; do it before, '
                "with public numbers"
            )
        prepared = []
        for k, part in enumerate(brought.parts):
            where = f"shards[{k}]" if brought.whole is None else "data"
            made = preprocess(self.with_target(part, inventory, where), self.preprocess or ()).records
            refuse_unfit(made, where)
            prepared.append((Shard(made.matrix, made.y), made.target.clipped))
        return prepared

    def _held(self, found: Lent, division: Division, nodes: int) -> "ArrayDataset":
        """Each node's records lie where the node is; rank 0 knows how many."""
        sizes = found.sizes
        assert sizes is not None
        if len(sizes) != nodes:
            raise InputError(
                f"shards: there are {len(sizes)} of them, but the network has {nodes} nodes; one for each is needed"
            )
        if division.train is not None or type(division.split) is not Even:
            raise InputError("data.train and data.split: have no meaning where each node's records are given; remove them")
        test = self._test(found)
        owners = np.repeat(np.append(np.arange(nodes), TEST), np.append(sizes, 0 if test is None else test.records))
        words = [f"{steps.name_of(type(step))}: at each node" for step in self.preprocess or ()]
        travelling = found.shards if found.inventory.holders is None else None
        return ArrayDataset(self._about(found, words), sizes, owners, found.features, test, travelling)

    def _test(self, found: Lent) -> Shard | None:
        if (given := found.brought.test) is None:
            return None
        made = preprocess(self.with_target(given, found.inventory, "test"), self.preprocess or ()).records
        refuse_unfit(made, "test")
        return Shard(made.matrix, made.y)

    def _spread(self, found: Lent, division: Division, nodes: int, seed: int) -> "ArrayDataset":
        """All records go through the steps together, and then to the nodes."""
        whole = found.brought.whole
        assert whole is not None
        together = whole if found.brought.test is None else concatenate(whole, found.brought.test)
        prepared = preprocess(self.with_target(together, found.inventory, "data"), self.preprocess or ())
        records = prepared.records
        refuse_unfit(records, "data")
        owners, sizes = division.deal(records.y, nodes, seed, records.training)
        everything = Shard(records.matrix, records.y)
        index = np.flatnonzero(owners == TEST)
        about = replace(self._about(found, prepared.done), names=records.names, learned=prepared.learned, target=records.target)
        test = everything.rows(index) if len(index) else None
        return ArrayDataset(about, sizes, owners, everything.features, test, everything)

    def _about(self, found: Lent, words: list[str]) -> "About":
        target = self.meaning(found.inventory)._replace(clipped=found.clipped)
        return About(self.sha256, words, self.labels(found.inventory), found.inventory.names, target)


_KINDS = {"binary": "two", "classes": "classes", "number": "numbers"}


def _labels_in_words(count: int) -> str:
    return "one label only" if count == 1 else f"{count} different labels"


@dataclass(frozen=True)
class About:
    """What is written down of the records."""

    sha256: str
    words: list[str]
    labels: tuple[Label, ...]
    names: tuple[str, ...] | None
    target: Target
    learned: list[str] = field(default_factory=list)  # from all records together, by the steps


@dataclass(frozen=True)
class ArrayLoader:
    """Finds a node's records where they lie, or has been sent them."""

    sha256: str

    def shard(self, address: int | Shard) -> Shard:
        if isinstance(address, Shard):
            return address
        return _copy(_at_hand(self.sha256).shards[address])


def _copy(shard: Shard) -> Shard:
    """Whoever asks for a shard may take over its memory."""
    return Shard(shard.X.copy(), shard.y)


@dataclass(frozen=True)
class ArrayDataset:
    """Records in memory: an address is a node's number where its records lie with it already, else the records themselves."""

    about: About
    sizes: Ints
    owners: Ints  # node of each record
    features: int
    test_records: Shard | None
    travelling: Shard | dict[int, Shard] | None  # all records, or those of each node; None: the nodes have theirs

    @property
    def target(self) -> Target:
        return self.about.target

    @property
    def loader(self) -> ArrayLoader:
        return ArrayLoader(self.about.sha256)

    @cached_property
    def _by_node(self) -> list[Ints]:
        """The records of test, node 0, node 1, ..., each ascending."""
        order = np.argsort(self.owners, kind="stable")
        return np.split(order, np.cumsum(np.bincount(self.owners + 1, minlength=len(self.sizes) + 1))[:-1])

    def address(self, node: int) -> int | Shard:
        if isinstance(self.travelling, Shard):
            return self.travelling.rows(self._by_node[node + 1])
        return node if self.travelling is None else _copy(self.travelling[node])

    def sample(self, count: int) -> Shard:
        first = self.loader.shard(self.address(0))
        return first.rows(np.arange(min(count, first.records)))

    def test(self) -> TestSet | None:
        return None if self.test_records is None else InMemory(self.test_records)

    def node_of_record(self) -> Ints:
        return self.owners

    def description(self) -> dict[str, Any]:
        return {
            "source": "arrays",
            "files": [f"arrays sha256 {self.about.sha256}"],
            "preprocessing": self.about.words or ["none"],
            **self._labels(),
        }

    def _labels(self) -> dict[str, Any]:
        if self.target.kind == "number":
            return {"target": "number", "target_centre": self.target.centre, "target_scale": self.target.scale}
        return {"labels": list(self.about.labels), "target": self.target.kind, "classes": list(self.target.classes)}

    def leaks(self) -> list[str]:
        return self.about.learned

    def feature_names(self) -> list[str] | None:
        return None if self.about.names is None else list(self.about.names)
