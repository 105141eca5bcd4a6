"""Prepared records on disk, from which a rank reads its own rows and no others.

A folder with raw little arrays: labels.bin (int8; float64 of numbers), and either values.bin (float64, row after row) or the
CSR parts values.bin, columns.bin (int32) and starts.bin (int64); where needed groups.bin (int32), of which a partition makes
nodes, and rows.bin (int64), the numbers that records had before some were dropped; meta.json says what they are. Rows are read
through a small buffer rather than mapped into memory: mapped pages count as the rank's memory, and rows of a random split touch
all of them.
"""

import json
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpadmm_mpi.data.partitions import Traits
from dpadmm_mpi.data.records import SIGNS, Records, Target
from dpadmm_mpi.data.shard import Shard, row_norms
from dpadmm_mpi.errors import InputError, RunError, advice_on, file_in, reason_of
from dpadmm_mpi.files import make_folder, read_array, read_text, uninterrupted, write_bytes, write_text
from dpadmm_mpi.types import Ints

BUFFER = 1 << 20  # bytes of rows read at a time


@dataclass(frozen=True)
class Meta:
    records: int
    features: int
    training: int | None  # the first so many records are for training, where a test file was given
    sparse: bool
    largest_norm: float
    longest: int  # the record that has it
    smallest_norm: float
    positive: int  # records with label +1
    names: list[str] | None  # of the features
    steps: list[str]  # what preprocessing did
    files: dict[str, str]  # name -> sha256
    groups: list[str] | None = None  # names of the groups
    dropped: bool = False  # a step removed records
    warnings: list[str] = field(default_factory=list)  # about columns that are perhaps no features
    learned: list[str] = field(default_factory=list)  # what steps took from the records, which no privacy account counts
    target: Target = SIGNS

    def __post_init__(self) -> None:
        target = Target(*self.target)  # in JSON it is a list
        object.__setattr__(self, "target", target._replace(classes=tuple(target.classes)))

    @property
    def label_type(self) -> type:
        return np.float64 if self.target.kind == "number" else np.int8


@dataclass(frozen=True)
class Store:
    """Small and picklable: the records stay on disk until asked for."""

    folder: str
    meta: Meta

    def labels(self) -> NDArray[np.float64]:
        return self._part("labels", self.meta.label_type, 0, self.meta.records).astype(np.float64)

    def traits(self) -> Traits:
        """What a partition may know of the records."""
        numbers = self._part("rows", np.int64, 0, self.meta.records) if self.meta.dropped else None
        groups = None if self.meta.groups is None else self._part("groups", np.int32, 0, self.meta.records).astype(np.int64)
        return Traits(self.labels(), numbers, groups, tuple(self.meta.groups or ()))

    def read(self, rows: Ints) -> Shard:
        """The records with these numbers, ascending."""
        y = self.labels()[rows]
        return Shard(self._sparse_rows(rows) if self.meta.sparse else self._dense_rows(rows), y)

    def _dense_rows(self, rows: Ints) -> NDArray[np.float64]:
        width = self.meta.features
        X = np.empty((len(rows), width))
        block = max(1, BUFFER // (8 * width))
        for first in range(0, self.meta.records, block):
            here = slice(*np.searchsorted(rows, [first, first + block]))
            if here.start < here.stop:
                count = min(block, self.meta.records - first)
                X[here] = self._part("values", np.float64, first * width, count * width).reshape(count, width)[
                    rows[here] - first
                ]
        return X

    def _sparse_rows(self, rows: Ints) -> Any:
        from scipy.sparse import csr_matrix

        block = max(1, BUFFER // 64)
        lengths, values, columns = np.zeros(len(rows), dtype=np.int64), [], []
        for first in range(0, self.meta.records, block):
            here = slice(*np.searchsorted(rows, [first, first + block]))
            if here.start == here.stop:
                continue
            starts = self._part("starts", np.int64, first, min(block, self.meta.records - first) + 1)
            mine = rows[here] - first
            lengths[here] = starts[mine + 1] - starts[mine]
            span = int(starts[-1] - starts[0])
            # Entries of the wanted rows among those of the block.
            wanted = np.repeat(starts[mine] - starts[0] - _before(lengths[here]), lengths[here]) + np.arange(
                lengths[here].sum()
            )
            values.append(self._part("values", np.float64, int(starts[0]), span)[wanted])
            columns.append(self._part("columns", np.int32, int(starts[0]), span)[wanted])
        indptr = np.concatenate([[0], np.cumsum(lengths)])
        parts = (np.concatenate(values or [[]]), np.concatenate(columns or [[]]).astype(np.int32), indptr)
        return csr_matrix(parts, shape=(len(rows), self.meta.features))

    def _part(self, name: str, dtype: type, first: int, count: int) -> NDArray[Any]:
        path = Path(self.folder) / f"{name}.bin"
        try:
            part: NDArray[Any] = read_array(path, dtype, first, count)
        except OSError as error:
            raise RunError(
                f"{path} cannot be read on this machine ({reason_of(error)}); set DPADMM_DATA to a folder that all ranks see"
            ) from None
        if len(part) != count:
            raise InputError(f"{path} is cut short; remove the folder {self.folder} and run again")
        return part


def _before(lengths: Ints) -> Ints:
    return np.cumsum(lengths) - lengths


def open_store(folder: Path) -> Store | None:
    """The store in a folder; None if there is none. The folder appears whole or not at all."""
    try:
        raw = json.loads(read_text(folder / "meta.json"))
        return Store(str(folder), Meta(**raw))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise InputError(f"{file_in(error, folder)} cannot be read ({reason_of(error)}); {advice_on(error)}") from None
    except (ValueError, TypeError) as error:
        raise InputError(f"{folder} is damaged ({error}); remove the folder and run again") from None


def write_store(
    folder: Path,
    records: Records,
    steps: list[str],
    files: dict[str, str],
    *,
    warnings: Sequence[str] = (),
    learned: Sequence[str] = (),
) -> Store:
    """Write records so that others see all of the store or nothing; two writers at once do not disturb each other."""
    X = records.matrix
    sparse = not isinstance(X, np.ndarray)
    norms = row_norms(X)
    meta = Meta(
        records=len(records),
        features=int(X.shape[1]),
        training=records.training,
        sparse=sparse,
        largest_norm=float(norms.max()),
        longest=int(norms.argmax()),
        smallest_norm=float(norms.min()),
        positive=int((records.y > 0).sum()),
        names=None if records.names is None else list(records.names),
        steps=steps,
        files=files,
        groups=None if records.groups is None else list(records.group_names),
        dropped=records.rows is not None,
        warnings=list(warnings),
        learned=list(learned),
        target=records.target,
    )
    parts: dict[str, NDArray[Any]] = {"labels": records.y.astype(meta.label_type)}
    if not isinstance(X, np.ndarray):
        parts |= {"values": X.data, "columns": X.indices.astype(np.int32), "starts": X.indptr.astype(np.int64)}
    else:
        parts["values"] = np.ascontiguousarray(X, dtype=np.float64)
    if records.groups is not None:
        parts["groups"] = records.groups.astype(np.int32)
    if records.rows is not None:
        parts["rows"] = records.rows
    try:
        make_folder(folder.parent)
        scratch = Path(uninterrupted(tempfile.mkdtemp, prefix=".writing-", dir=folder.parent))
    except OSError as error:
        raise RunError(
            f"{folder.parent} cannot be written ({reason_of(error)}); set DPADMM_DATA to a folder with room for the data"
        ) from None
    try:
        for name, values in parts.items():
            write_bytes(scratch / f"{name}.bin", np.ascontiguousarray(values).data)
        write_text(scratch / "meta.json", json.dumps(asdict(meta)))
        uninterrupted(scratch.chmod, 0o755)
        uninterrupted(scratch.rename, folder)
    except OSError as error:
        if (stored := open_store(folder)) is not None:
            return stored  # somebody else was faster
        raise RunError(f"{folder} cannot be written ({reason_of(error)}); set DPADMM_DATA to a folder with more room") from None
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return Store(str(folder), meta)
