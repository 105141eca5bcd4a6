"""Where records come from: a class for each source, whose options are the keys of [data].

Readers, and what they need, are loaded when a file is read, which only rank 0 does.
"""

import hashlib
import json
import re
from abc import abstractmethod
from glob import glob
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from msgspec import Meta

from dpadmm_mpi.config.extensions import used_by
from dpadmm_mpi.config.options import Choice, Choices, Count, FilePath, Fraction, Options, to_table
from dpadmm_mpi.data.dataset import (
    Dataset,
    StoredDataset,
    SyntheticDataset,
    SyntheticLoader,
    synthetic_labels,
    synthetic_positives,
)
from dpadmm_mpi.data.partitions import TEST, Division, Even, Grouped, Partition, Traits, partitions
from dpadmm_mpi.data.records import Records, Wanted, checked
from dpadmm_mpi.data.shard import NORM_SLACK
from dpadmm_mpi.data.steps import Step, steps
from dpadmm_mpi.data.store import Store
from dpadmm_mpi.errors import InputError
from dpadmm_mpi.files import is_file, read_bytes, refuse_special, size_of, status
from dpadmm_mpi.registry import Registry, file_of, is_inside, place_of
from dpadmm_mpi.types import Ints

MOST_RECORDS = 1 << 28  # made: files have tables of this size, of 2 GB each

sources = Registry["Source"]("source", "sources", homes=("data.sources", "data.arrays", "data.catalogue"))


@sources.base
class Source(Options):
    """A place that records come from."""

    @abstractmethod
    def dataset(self, division: Division, nodes: int, seed: int) -> Dataset[Any]:
        """The records, spread over the nodes; on rank 0."""


@sources.register("synthetic")
class Synthetic(Source):
    """Adult-like records from a known classifier, made node by node: a rank makes only its own."""

    records: Annotated[int, Meta(ge=1, le=MOST_RECORDS)] = 10_000  # training and test records together
    features: Count = 105  # numbers of a record

    def dataset(self, division: Division, nodes: int, seed: int) -> Dataset[Any]:
        training, split = division.training(self.records), type(division.split)
        if split.by_labels_alone:
            sizes, labelled = division.sizes_by_label(synthetic_labels(training), nodes, seed)
            return SyntheticDataset(SyntheticLoader(seed, self.features), sizes, self.records - training, labelled)
        if split.deal is not Partition.deal or split.spread is not Partition.spread:
            name = partitions.name_of(split)
            raise InputError(
                f'data.split: "{name}" deals records by what is in them, but synthetic ones are made node by node; use a file'
            )
        sizes = division.sizes(training, nodes, seed)
        by_label = split.ordered is not Partition.ordered
        positives = synthetic_positives(division.split.ordered(sizes), sizes) if by_label else None
        return SyntheticDataset(SyntheticLoader(seed, self.features), sizes, self.records - training, positives)


class StoredSource(Source):
    """Records in files, which are read and preprocessed once, into the cache.

    For a format of your own derive from FileSource and define `read_file`.
    """

    default_steps: ClassVar[tuple[str, ...]] = ()  # where the configuration says nothing

    preprocess: Annotated[list[Step] | None, Choices(steps, "step")] = None  # what is done to the records, in this order

    @abstractmethod
    def files(self) -> dict[str, Path]:
        """The files by their names for the record; InputError with the fix where one is missing."""

    @abstractmethod
    def read(self, files: dict[str, Path]) -> Records:
        """All records, labels -1 and +1."""

    def identity(self, files: dict[str, Path]) -> list[Any]:
        """What changes with the files."""
        return [(str(path.resolve()), size_of(path), status(path).st_mtime_ns) for path in files.values()]

    @property
    def preprocessing(self) -> list[Step]:
        """The steps that the configuration asks for, or the source's own."""
        if self.preprocess is not None:
            return self.preprocess
        return [steps[name]() for name in self.default_steps]

    def identity_of_code(self) -> list[str]:
        """What changes with an extension that reads or prepares the records."""
        files = {file_of(type(part)) for part in (self, *self.preprocessing)} - {None}
        return sorted(hashlib.sha256(read_bytes(file)).hexdigest() for file in files if file is not None)

    def store_key(self, files: dict[str, Path], version: int) -> str:
        """A name for the prepared records: changes with the files and with everything that shapes the records."""
        name = sources.name_of(type(self))
        options = {key: value for key, value in to_table(self).items() if key not in ("path", "test_path", "preprocess")}
        prepared = [{"step": steps.name_of(type(step))} | to_table(step) for step in self.preprocessing]
        identity = [self.identity(files), name, options, prepared, self.identity_of_code(), version]
        return f"{name}-{hashlib.sha256(json.dumps(identity).encode()).hexdigest()[:16]}"

    def request(self) -> dict[str, Any]:
        """From which another process makes the same source."""
        section = Data(source=self)
        return {"data": to_table(section), "extensions": [extension.path for extension in used_by([section])]}

    def store(self, group_column: str | None = None) -> Store:
        """The prepared records, from the cache or made now; grouped by a column, if one is named."""
        from dpadmm_mpi.data.prepare import ensure_store  # rank 0 only: the others need not load what reads and writes

        return ensure_store(self, group_column)

    def dataset(self, division: Division, nodes: int, seed: int) -> Dataset[Any]:
        store = self.store(division.split.group_column)
        meta = store.meta
        if meta.largest_norm > 1.0 + NORM_SLACK:
            raise InputError(
                f"data: record {meta.longest} of {' and '.join(meta.files)} has norm {meta.largest_norm:.8g}, but the privacy "
                'bounds need norms of at most 1; scale the rows by ending data.preprocess with "scale-rows", as in '
                'preprocess = ["scale-rows"]'
            )
        traits = store.traits()
        owners, sizes = division.deal(traits.labels, nodes, seed, meta.training, traits)
        names = _node_names(traits, owners) if isinstance(division.split, Grouped) else None
        return StoredDataset(sources.name_of(type(self)), store, owners, sizes, names)


def _node_names(traits: Traits, owners: Ints) -> list[str]:
    """The group that each node is."""
    assert traits.groups is not None
    nodes, first = np.unique(owners, return_index=True)
    return [traits.group_names[traits.groups[record]] for node, record in zip(nodes, first, strict=True) if node != TEST]


def files_at(given: str, key: str, single: bool = False) -> list[Path]:
    """The file of a path, or those of a pattern such as node-*.csv, in the order of the numbers in their names."""
    path = Path(given)
    if is_file(path):
        return [path]
    found = [] if single else [found for found in map(Path, glob(given)) if is_file(found)]  # noqa: PTH207  # absolute patterns too
    if not found:
        refuse_special(path, f"{key}: ")
        raise InputError(f"{key}: {path} cannot be read: no such file")
    return sorted(found, key=lambda each: [int(p) if p.isdigit() else p for p in re.split(r"(\d+)", str(each))])


def _in_words(files: dict[str, Path]) -> str:
    shown = [str(path) for path in files.values()]
    return " and ".join(shown) if len(shown) <= 3 else f"{shown[0]} and {len(shown) - 1} other files"


class FileSource(StoredSource, kw_only=True):
    """A training file, or a pattern that names several, and perhaps a test file, in some format."""

    path: FilePath  # the file, meant from the configuration's folder
    test_path: FilePath | None = None  # a test file of its own
    positive: str | int | float | None = None  # the label that means +1, where the labels are not -1 and +1
    target: Literal["binary", "classes", "number"] | None = None  # what the labels are; None: found from them
    target_range: list[float] | None = None  # [LOW, HIGH] of numbers, known beforehand; None: found, which no account counts

    def check(self) -> None:
        if self.target_range is not None:
            from dpadmm_mpi.data.targets import check_range

            check_range(self.target_range)

    @abstractmethod
    def read_file(self, path: Path, features: int | None) -> Records:
        """One file: Records(y=labels as they are, X=matrix) or Records(y=labels, columns=...).

        `features` is the width of the training file, when the test file is read.
        """

    def files(self) -> dict[str, Path]:
        found = {}
        for path in files_at(self.path, "data.path"):
            found[path.name if path.name not in found else str(path)] = path
        if self.test_path is not None:
            (path,) = files_at(self.test_path, "data.test_path", single=True)
            found[f"{path.name} (test)"] = path
        return found

    def read(self, files: dict[str, Path]) -> Records:
        from dpadmm_mpi.data.records import concatenate, stack
        from dpadmm_mpi.data.targets import with_target

        names, paths = list(files), list(files.values())
        test = None if self.test_path is None else paths.pop()
        parts = [checked(self.read_file(paths[0], None), type(self), "read_file")]
        width = None if parts[0].X is None else int(parts[0].X.shape[1])
        parts += [checked(self.read_file(path, width), type(self), "read_file") for path in paths[1:]]
        records = parts[0] if len(parts) == 1 else stack(parts, names[: len(parts)])
        if test is not None:
            records = concatenate(records, checked(self.read_file(test, width), type(self), "read_file"))
        return with_target(records, self.target, self.positive, self.target_range, _in_words(files))


class TableSource(FileSource, kw_only=True):
    """A table with named columns, of which one is the label."""

    label: str = "label"  # the label's column
    categorical: list[str] | None = None  # columns that are categories although they look like numbers
    drop: list[str] | None = None  # columns that are no features
    keep: list[str] | None = None  # the columns that are features; None: all but those of drop

    def check(self) -> None:
        super().check()
        if self.drop is not None and self.keep is not None:
            raise InputError("data.drop: data.keep says already which columns are features; remove one of the two")
        for key in ("drop", "keep"):
            if self.label in (getattr(self, key) or ()):
                raise InputError(f'data.{key}: "{self.label}" is the label, which is no feature; remove it')

    def wanted(self) -> Wanted:
        """Which columns, and as what."""
        keep = None if self.keep is None else tuple(self.keep)
        return Wanted(self.label, tuple(self.categorical or ()), tuple(self.drop or ()), keep)


@sources.register("csv")
class Csv(TableSource):
    """A table with a header line, numbers and categories, and a named label column; without a header, the label is last."""

    separator: Annotated[str, Meta(min_length=1, max_length=1)] | None = None  # None: detected

    def read_file(self, path: Path, features: int | None) -> Records:
        from dpadmm_mpi.data.fast_tables import read_any_csv

        return read_any_csv(path, self.wanted(), self.separator)


@sources.register("parquet")
class Parquet(TableSource):
    """A table in Parquet format, which pyarrow reads, with a named label column."""

    def read_file(self, path: Path, features: int | None) -> Records:
        from dpadmm_mpi.data.fast_tables import read_parquet

        return read_parquet(path, self.wanted())


@sources.register("npz")
class Npz(FileSource):
    """Arrays X and y in an npz file, or y and the CSR parts data, indices, indptr, shape."""

    def read_file(self, path: Path, features: int | None) -> Records:
        from dpadmm_mpi.data.readers import read_npz

        return read_npz(path)


@sources.register("hdf5")
class Hdf5(FileSource):
    """Datasets X and y in an HDF5 file, or y and the CSR parts, as in npz."""

    def read_file(self, path: Path, features: int | None) -> Records:
        from dpadmm_mpi.data.readers import read_hdf5

        return read_hdf5(path)


@sources.register("libsvm")
class Libsvm(FileSource):
    """`label index:value ...` per line, features counted from 1; `features`, if the file does not use them all."""

    features: Count | None = None  # numbers of a record, if the file does not use them all

    def read_file(self, path: Path, features: int | None) -> Records:
        from dpadmm_mpi.data.readers import read_libsvm

        return read_libsvm(path, self.features if features is None else features)


class Data(Options):
    """Where the records come from, which of them are for training, and how they are spread over the nodes."""

    source: Annotated[Source, Choice(sources)] = Synthetic()  # where the records come from
    train: Count | Fraction | None = None  # records for training, a count or a fraction; the rest is for testing
    split: Annotated[Partition, Choice(partitions)] = Even()  # how the training records are spread over the nodes

    def check(self) -> None:
        self.source.check()
        total = self.split.total()
        if total is not None and isinstance(self.train, int) and total != self.train:
            raise InputError(f"data.sizes: they add up to {total}, but data.train = {self.train}; make them agree")

    def dataset(self, nodes: int, seed: int) -> Dataset[Any]:
        return _checked(self.source, self.source.dataset(Division(self.train, self.split), nodes, seed), nodes)


def _checked(source: Source, dataset: Any, nodes: int) -> Dataset[Any]:
    """What a source from outside calls its records."""
    if not is_inside(type(source)):
        needed = ("sizes", "features", "loader", "address", "sample", "test", "node_of_record", "description", "feature_names")
        lacking = [name for name in needed if not hasattr(dataset, name)]
        if lacking or len(dataset.sizes) != nodes:
            wrong = f"lacks {', '.join(lacking)}" if lacking else f"is about {len(dataset.sizes)}"
            raise InputError(
                f"{place_of(type(source))}: dataset must return a Dataset of {nodes} nodes, but what it returns {wrong}"
            )
    found: Dataset[Any] = dataset
    return found
