"""Where records come from: a class for each source, whose options are the keys of [data].

Readers, and what they need, are loaded when a file is read, which only rank 0 does.
"""

import hashlib
import json
from abc import abstractmethod
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from dpadmm_mpi.config.extensions import used_by
from dpadmm_mpi.config.options import Choice, Choices, Count, FilePath, Fraction, Options, to_table
from dpadmm_mpi.data.dataset import Dataset, StoredDataset, SyntheticDataset, SyntheticLoader, synthetic_positives
from dpadmm_mpi.data.partitions import Division, Even, Partition, partitions
from dpadmm_mpi.data.records import Records, checked
from dpadmm_mpi.data.shard import NORM_SLACK
from dpadmm_mpi.data.steps import Step, steps
from dpadmm_mpi.data.store import Store
from dpadmm_mpi.errors import InputError
from dpadmm_mpi.registry import Registry, file_of, is_inside, place_of

sources = Registry["Source"]("source", "sources")


@sources.base
class Source(Options):
    """A place that records come from."""

    @abstractmethod
    def dataset(self, division: Division, nodes: int, seed: int) -> Dataset[Any]:
        """The records, spread over the nodes; on rank 0."""


@sources.register("synthetic")
class Synthetic(Source):
    """Adult-like records from a known classifier, made node by node: a rank makes only its own."""

    records: Count = 10_000
    features: Count = 105

    def dataset(self, division: Division, nodes: int, seed: int) -> Dataset[Any]:
        if type(division.split).deal is not Partition.deal:
            name = partitions.name_of(type(division.split))
            raise InputError(
                f'data.split: "{name}" deals records by what is in them, but synthetic ones are made node by node; use a file'
            )
        training = division.training(self.records)
        sizes = division.sizes(training, nodes, seed)
        by_label = type(division.split).ordered is not Partition.ordered
        positives = synthetic_positives(division.split.ordered(sizes), sizes) if by_label else None
        return SyntheticDataset(SyntheticLoader(seed, self.features), sizes, self.records - training, positives)


class StoredSource(Source):
    """Records in files, which are read and preprocessed once, into the cache.

    For a format of your own derive from FileSource and define `read_file`.
    """

    default_steps: ClassVar[tuple[str, ...]] = ()  # where the configuration says nothing

    preprocess: Annotated[list[Step] | None, Choices(steps, "step")] = None

    @abstractmethod
    def files(self) -> dict[str, Path]:
        """The files by their names for the record; InputError with the fix where one is missing."""

    @abstractmethod
    def read(self, files: dict[str, Path]) -> Records:
        """All records, labels -1 and +1."""

    def identity(self, files: dict[str, Path]) -> list[Any]:
        """What changes with the files."""
        return [(str(path.resolve()), path.stat().st_size, path.stat().st_mtime_ns) for path in files.values()]

    @property
    def preprocessing(self) -> list[Step]:
        """The steps that the configuration asks for, or the source's own."""
        if self.preprocess is not None:
            return self.preprocess
        return [steps[name]() for name in self.default_steps]

    def identity_of_code(self) -> list[str]:
        """What changes with an extension that reads or prepares the records."""
        files = {file_of(type(part)) for part in (self, *self.preprocessing)} - {None}
        return sorted(hashlib.sha256(file.read_bytes()).hexdigest() for file in files if file is not None)

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

    def store(self) -> Store:
        """The prepared records, from the cache or made now."""
        from dpadmm_mpi.data.prepare import ensure_store  # rank 0 only: the others need not load what reads and writes

        return ensure_store(self)

    def dataset(self, division: Division, nodes: int, seed: int) -> Dataset[Any]:
        store = self.store()
        meta = store.meta
        if meta.largest_norm > 1.0 + NORM_SLACK:
            raise InputError(
                f"data: record {meta.longest} of {' and '.join(meta.files)} has norm {meta.largest_norm:.8g}, but the privacy "
                'bounds need norms of at most 1; scale the rows by ending data.preprocess with "scale-rows", as in '
                'preprocess = ["scale-rows"]'
            )
        owners, sizes = division.deal(store.labels(), nodes, seed, meta.training)
        return StoredDataset(sources.name_of(type(self)), store, owners, sizes)


class FileSource(StoredSource, kw_only=True):
    """A training file, and perhaps a test file, in some format."""

    path: FilePath
    test_path: FilePath | None = None
    positive: str | int | float | None = None  # the label that means +1, where the labels are not -1 and +1
    target: Literal["binary", "classes", "number"] | None = None  # what the labels are; None: found from them
    target_range: list[float] | None = None  # [LOW, HIGH] of numbers, known beforehand; None: found, which no account counts

    def check(self) -> None:
        if self.target_range is not None and (len(self.target_range) != 2 or not self.target_range[0] < self.target_range[1]):
            raise InputError(f"data.target_range: found {self.target_range}; two numbers are needed, the smaller one first")

    @abstractmethod
    def read_file(self, path: Path, features: int | None) -> Records:
        """One file: Records(y=labels as they are, X=matrix) or Records(y=labels, columns=...).

        `features` is the width of the training file, when the test file is read.
        """

    def files(self) -> dict[str, Path]:
        found = {}
        for key in ("path", "test_path"):
            if (given := getattr(self, key)) is not None:
                path = Path(given)
                if not path.is_file():
                    what = "it is a folder" if path.is_dir() else "no such file"
                    raise InputError(f"data.{key}: {path} cannot be read: {what}")
                found[path.name if key == "path" else f"{path.name} (test)"] = path
        return found

    def read(self, files: dict[str, Path]) -> Records:
        from dpadmm_mpi.data.records import concatenate
        from dpadmm_mpi.data.targets import with_target

        paths = list(files.values())
        records = checked(self.read_file(paths[0], None), type(self), "read_file")
        if len(paths) > 1:
            width = None if records.X is None else int(records.X.shape[1])
            records = concatenate(records, checked(self.read_file(paths[1], width), type(self), "read_file"))
        return with_target(records, self.target, self.positive, self.target_range, " and ".join(map(str, paths)))


@sources.register("csv")
class Csv(FileSource):
    """A table with a header line, numbers and categories, and a named label column; without a header, the label is last."""

    label: str = "label"
    categorical: list[str] | None = None  # columns that are categories although they look like numbers

    def read_file(self, path: Path, features: int | None) -> Records:
        from dpadmm_mpi.data.readers import read_csv

        return read_csv(path, self.label, self.categorical or ())


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

    features: Count | None = None

    def read_file(self, path: Path, features: int | None) -> Records:
        from dpadmm_mpi.data.readers import read_libsvm

        return read_libsvm(path, self.features if features is None else features)


class Data(Options):
    """Where the records come from, which of them are for training, and how they are spread over the nodes."""

    source: Annotated[Source, Choice(sources)] = Synthetic()
    train: Count | Fraction | None = None  # records for training, a count or a fraction; the rest is for testing
    split: Annotated[Partition, Choice(partitions)] = Even()

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
