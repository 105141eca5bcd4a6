"""From raw files to a store in the cache: read, preprocess, check, write, once for each file and way of preprocessing.

Large files are prepared in a process of their own, so that rank 0 never holds more than its share.
"""

import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from dpadmm_mpi.config.options import Data
from dpadmm_mpi.data import readers
from dpadmm_mpi.data.cache import cache_folder, raw_files, verify
from dpadmm_mpi.data.catalogue import CATALOGUE
from dpadmm_mpi.data.records import Records, concatenate, preprocess
from dpadmm_mpi.data.store import Store, open_store, write_store
from dpadmm_mpi.errors import InputError, RunError

VERSION = 1  # of the store and of what the steps do: a new one makes old stores unused
SMALL = 8 << 20  # bytes of raw files that are prepared in this process


def ensure_store(data: Data) -> Store:
    """The prepared records of a file source or a data set of the catalogue."""
    files = _files(data)
    folder = cache_folder() / "prepared" / _key(data, files)
    if (store := open_store(folder)) is not None:
        return store
    if sum(path.stat().st_size for path in files.values()) <= SMALL:
        return prepare(data, files, folder)
    request = json.dumps({"data": msgspec.to_builtins(data), "folder": str(folder)})
    child = subprocess.run(
        [sys.executable, "-m", "dpadmm_mpi.data.prepare"], input=request, capture_output=True, text=True, check=False
    )
    if (store := open_store(folder)) is None:
        lines = child.stderr.strip().splitlines() or ["no reason given"]
        error = InputError if child.returncode == InputError.exit_code else RunError
        raise error(lines[-1])
    return store


def steps_of(data: Data) -> list[str]:
    """The preprocessing that the configuration asks for, or the data set's own."""
    if data.preprocess is not None:
        return list(data.preprocess)
    return list(CATALOGUE[data.source].preprocess) if data.source in CATALOGUE else []


def prepare(data: Data, files: dict[str, Path], folder: Path) -> Store:
    records, steps = preprocess(_read(data, files), steps_of(data))
    _refuse_non_finite(records, files)
    digests = {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in files.items()}
    return write_store(folder, records, steps, digests)


def _files(data: Data) -> dict[str, Path]:
    if data.source in CATALOGUE:
        return raw_files(CATALOGUE[data.source])
    found = {}
    for key in ("path", "test_path"):
        if (given := getattr(data, key)) is not None:
            path = Path(given)
            if not path.is_file():
                raise InputError(f"data.{key}: {path} cannot be read: {'it is a folder' if path.is_dir() else 'no such file'}")
            found[path.name if key == "path" else f"{path.name} (test)"] = path
    return found


def _key(data: Data, files: dict[str, Path]) -> str:
    """A name for the store: changes with the files and with everything that shapes the records."""
    identity: list[Any]
    if data.source in CATALOGUE:
        identity = [file.sha256 for file in CATALOGUE[data.source].files]
    else:
        identity = [(str(path.resolve()), path.stat().st_size, path.stat().st_mtime_ns) for path in files.values()]
    options = [data.source, data.label, data.positive, data.categorical, data.features, steps_of(data), VERSION]
    return f"{data.source}-{hashlib.sha256(json.dumps([identity, options]).encode()).hexdigest()[:16]}"


def _read(data: Data, files: dict[str, Path]) -> Records:
    if data.source in CATALOGUE:
        entry = CATALOGUE[data.source]
        for file in entry.files:
            verify(files[file.name], file)
        return entry.read(files)
    paths = list(files.values())
    records = _read_file(data, paths[0], data.features)
    if len(paths) > 1:
        width = None if records.X is None else int(records.X.shape[1])
        records = concatenate(records, _read_file(data, paths[1], width))
    return readers.with_signs(records, data.positive, " and ".join(map(str, paths)))


def _read_file(data: Data, path: Path, features: int | None) -> Records:
    if data.source == "csv":
        return readers.read_csv(path, str(data.label), data.categorical or ())
    if data.source == "libsvm":
        return readers.read_libsvm(path, features)
    return readers.read_npz(path) if data.source == "npz" else readers.read_hdf5(path)


def _refuse_non_finite(records: Records, files: dict[str, Path]) -> None:
    values: Any = records.X if isinstance(records.X, np.ndarray) else records.X.data
    if np.isfinite(values).all():
        return
    if isinstance(records.X, np.ndarray):
        row = int(np.argmax(~np.isfinite(records.X).all(axis=1)))
    else:
        row = int(np.searchsorted(records.X.indptr, np.argmax(~np.isfinite(values)), side="right")) - 1
    raise InputError(
        f"{' and '.join(files)}: record {row} has a feature that is not a finite number; remove the record, or add "
        '"drop-missing" to data.preprocess'
    )


def main() -> None:
    request = json.loads(sys.stdin.read())
    data = msgspec.convert(request["data"], Data)
    try:
        prepare(data, _files(data), Path(request["folder"]))
    except (InputError, RunError) as error:
        print(error, file=sys.stderr)
        sys.exit(error.exit_code)
    except MemoryError:
        print("out of memory while preparing the data", file=sys.stderr)
        sys.exit(RunError.exit_code)


if __name__ == "__main__":
    main()
