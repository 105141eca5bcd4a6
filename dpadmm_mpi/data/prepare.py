"""From raw files to a store in the cache: read, preprocess, check, write, once for each file and way of preprocessing.

Large files are prepared in a process of their own, so that rank 0 never holds more than its share.
"""

import hashlib
import json
import subprocess
import sys
from pathlib import Path

import numpy as np

from dpadmm_mpi.config.extensions import Extension, load, used_by
from dpadmm_mpi.config.options import to_table
from dpadmm_mpi.config.reading import read_section
from dpadmm_mpi.data.cache import cache_folder
from dpadmm_mpi.data.records import Records
from dpadmm_mpi.data.sources import Data, StoredSource, store_key
from dpadmm_mpi.data.steps import preprocess
from dpadmm_mpi.data.store import Store, open_store, write_store
from dpadmm_mpi.errors import InputError, RunError

VERSION = 2  # of the store and of what the steps do: a new one makes old stores unused
SMALL = 8 << 20  # bytes of raw files that are prepared in this process


def ensure_store(source: StoredSource) -> Store:
    """The prepared records of a source."""
    files = source.files()
    folder = cache_folder() / "prepared" / store_key(source, files, VERSION)
    if (store := open_store(folder)) is not None:
        return store
    if sum(path.stat().st_size for path in files.values()) <= SMALL:
        return prepare(source, files, folder)
    table = to_table(Data(source=source))
    extensions = [extension.path for extension in used_by([Data(source=source)])]
    request = json.dumps({"data": table, "folder": str(folder), "extensions": extensions})
    child = subprocess.run(
        [sys.executable, "-m", "dpadmm_mpi.data.prepare"], input=request, capture_output=True, text=True, check=False
    )
    if (store := open_store(folder)) is None:
        lines = child.stderr.strip().splitlines() or ["no reason given"]
        error = InputError if child.returncode == InputError.exit_code else RunError
        raise error(lines[-1])
    return store


def prepare(source: StoredSource, files: dict[str, Path], folder: Path) -> Store:
    records, steps = preprocess(source.read(files), source.preprocessing)
    _refuse_non_finite(records, files)
    digests = {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in files.items()}
    return write_store(folder, records, steps, digests)


def _refuse_non_finite(records: Records, files: dict[str, Path]) -> None:
    X = records.matrix
    values = X if isinstance(X, np.ndarray) else X.data
    if np.isfinite(values).all():
        return
    if isinstance(X, np.ndarray):
        row = int(np.argmax(~np.isfinite(X).all(axis=1)))
    else:
        row = int(np.searchsorted(X.indptr, np.argmax(~np.isfinite(values)), side="right")) - 1
    raise InputError(
        f"{' and '.join(files)}: record {row} has a feature that is not a finite number; remove the record, or add "
        '"drop-missing" to data.preprocess'
    )


def main() -> None:
    request = json.loads(sys.stdin.read())
    try:
        load([Extension(path) for path in request["extensions"]])
        source = read_section(Data, "data", request["data"]).source
        assert isinstance(source, StoredSource)
        prepare(source, source.files(), Path(request["folder"]))
    except (InputError, RunError) as error:
        print(error, file=sys.stderr)
        sys.exit(error.exit_code)
    except MemoryError:
        print("out of memory while preparing the data", file=sys.stderr)
        sys.exit(RunError.exit_code)


if __name__ == "__main__":
    main()
