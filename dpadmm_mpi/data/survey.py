"""What will be made of a table, before anything runs: `dpadmm data info FILE`."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dpadmm_mpi.config.options import Options
from dpadmm_mpi.data.columns import Judgement, judge
from dpadmm_mpi.data.partitions import DEFAULT_TRAIN
from dpadmm_mpi.data.records import Column, Records, Wanted
from dpadmm_mpi.data.sources import FileSource, TableSource, sources
from dpadmm_mpi.data.targets import kind_of
from dpadmm_mpi.errors import InputError

ENDINGS = {".csv": "csv", ".tsv": "csv", ".txt": "csv", ".parquet": "parquet", ".pq": "parquet", ".npz": "npz", ".h5": "hdf5",
           ".hdf5": "hdf5", ".libsvm": "libsvm", ".svm": "libsvm"}  # fmt: skip
COMPRESSED = (".gz", ".bz2", ".xz")
LABELS = ("label", "target", "class", "y", "outcome", "diagnosis", "response", "default", "survived", "income")
PLACES = ("hospital", "site", "centre", "center", "clinic", "bank", "branch", "region", "state", "country", "client", "node")
POSITIVES = ("1", "1.0", "+1", "yes", "true", "y", "t", "positive", "malignant", "m", ">50k", "case")
RARE = 0.1  # a label with a smaller share is called rare
MOST_NODES = 200
MOST_C = 50  # goes with the default penalty eta = 1


@dataclass(frozen=True)
class ColumnSurvey:
    """One column, and what is said about it."""

    name: str
    judgement: Judgement
    missing: int
    values: str  # the range, or some categories


@dataclass(frozen=True)
class Survey:
    """A file as it was found."""

    path: Path
    source: str
    separator: str | None
    records: int
    label: str | None  # None: the format has its own place for labels
    labels: dict[str, int]  # records of each
    positive: str | None  # None: they are -1 and +1, or not two
    columns: tuple[ColumnSurvey, ...]

    @property
    def target(self) -> str:
        """What the labels are taken for: binary, classes or number."""
        return kind_of(np.array(list(self.labels)))

    @property
    def dropped(self) -> list[str]:
        return [column.name for column in self.columns if column.judgement.is_doubtful]

    @property
    def features(self) -> list[ColumnSurvey]:
        return [column for column in self.columns if not column.judgement.is_doubtful]

    @property
    def group(self) -> ColumnSurvey | None:
        """A column that says where a record is from."""
        for column in self.features:
            count = column.judgement.distinct
            named = any(place in column.name.lower() for place in PLACES) and not column.missing
            if named and count is not None and 2 <= count <= MOST_NODES:
                return column
        return None

    def steps(self) -> list[str]:
        """The suggested steps, as they stand in TOML."""
        features = self.features
        found = ['"impute"'] if any(column.missing for column in features) else []
        if any(column.judgement.kind == "number" for column in features):
            found.append('"standardise"')
        if any(column.judgement.kind == "category" for column in features):
            found.append('{ step = "one-hot", unseen = "zeros" }')
        return [*found, '"clip-rows"', '"intercept"']

    def problem(self, nodes: int) -> list[str]:
        """A [problem] section for a run without noise: a ridge of 1 on standardised features, of which clip-rows and intercept
        make features smaller by sqrt(2 d)."""
        features = 1 + sum(
            (column.judgement.distinct or 1) + bool(column.missing) if column.judgement.kind == "category" else 1
            for column in self.features
        )
        training = round(DEFAULT_TRAIN * self.records)
        C = max(1, min(MOST_C, training // nodes // 2))
        loss = {"binary": [], "classes": ['loss = "softmax"'], "number": ['loss = "huber-regression"']}[self.target]
        return [
            "[problem]",
            *loss,
            f"C = {C:.1f}",
            f"rho = {nodes * C / (2 * features * training):.2g}    # with noise, rather more",
        ]

    def toml(self) -> list[str]:
        """A [data] section, ready to paste."""
        lines = ["[data]", f'source = "{self.source}"', f"path = {in_toml(str(self.path))}"]
        if self.label is not None:
            lines.append(f"label = {in_toml(self.label)}")
        if self.positive is not None:
            number = sources[self.source] not in _tables()
            lines.append(f"positive = {self.positive if number else in_toml(self.positive)}")
        if self.dropped and self.label is not None:
            lines.append(f"drop = [{', '.join(map(in_toml, self.dropped))}]")
        return [*lines, f"preprocess = [{', '.join(self.steps())}]"]


def in_toml(text: str) -> str:
    """A text as TOML has it; what is not printable by its number."""
    plain = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join(c if c.isprintable() else f"\\U{ord(c):08x}" for c in plain) + '"'


def _tables() -> tuple[type[Options], ...]:
    return tuple(cls for _, cls in sources.items() if issubclass(cls, TableSource))


def survey(path: Path, label: str | None = None) -> Survey:
    """Read a file and judge its columns; `label` names the label's column, if it is not to be guessed."""
    suffixes = [suffix.lower() for suffix in path.suffixes if suffix.lower() not in COMPRESSED]
    name = ENDINGS.get(suffixes[-1] if suffixes else "", "csv")
    separator = None
    if name in ("csv", "parquet"):
        records, label, separator = _read_table(path, name, label)
    else:
        cls = sources[name]
        assert issubclass(cls, FileSource)
        records, label = _as_columns(cls(path=str(path)).read_file(path, None)), None
    labels, counts = np.unique(records.y, return_counts=True)
    texts = [str(value) if records.y.dtype.kind == "U" else f"{value:g}" for value in labels]
    found = dict(zip(texts, counts.tolist(), strict=True))
    columns = tuple(_survey_column(column) for column in records.columns)
    return Survey(path, name, separator, len(records), label, found, _positive(texts), columns)


def _read_table(path: Path, name: str, label: str | None) -> tuple[Records, str, str | None]:
    from dpadmm_mpi.data import readers
    from dpadmm_mpi.data.fast_tables import parquet_header, read_any_csv, read_parquet

    if name == "parquet":
        label = label or _guess_label(parquet_header(path), path)
        return read_parquet(path, Wanted(label)), label, None
    separator = readers.detected_separator(path)
    label = label or _guess_label(readers.csv_header(path, separator), path)
    return read_any_csv(path, Wanted(label), separator), label, separator


def _guess_label(header: list[str], path: Path) -> str:
    lower = [name.lower() for name in header]
    for name in LABELS:
        if name in lower:
            return header[lower.index(name)]
    shown = ", ".join(header[:12]) + (", ..." if len(header) > 12 else "")
    raise InputError(f"{path}: no column looks like the label; name it with --label; the columns are {shown}")


def _as_columns(records: Records) -> Records:
    """A matrix as columns 0, 1, ...; a sparse one has too many to be looked at one by one."""
    X = records.X
    if not isinstance(X, np.ndarray):
        return records
    return Records(y=records.y, columns=tuple(Column(str(k), X[:, k]) for k in range(X.shape[1])))


def _positive(labels: list[str]) -> str | None:
    """Which of two labels means +1, if they are not -1 and +1; the second one where nothing speaks for the first."""
    if len(labels) > 2:
        return None
    try:
        if {float(label) for label in labels} <= {-1.0, 1.0}:
            return None
    except ValueError:
        pass
    return next((label for label in labels if label.lower() in POSITIVES), labels[-1])


def _survey_column(column: Column) -> ColumnSurvey:
    missing = column.missing
    present = column.values[~missing]
    if not len(present):
        values = "-"
    elif column.is_text:
        kinds = np.unique(present[:1000])
        values = ", ".join(kinds[:3].tolist()) + (", ..." if len(kinds) > 3 else "")
    else:
        values = f"{present.min():g} to {present.max():g}"
    return ColumnSurvey(column.name, judge(column), int(missing.sum()), values)
