"""The laws of every source: the records as they are in the file, from the cache the second time, on every number of ranks."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from dpadmm_mpi.config.options import to_table
from dpadmm_mpi.data.partitions import Division, Even
from dpadmm_mpi.data.shard import NORM_SLACK, Shard
from dpadmm_mpi.data.sources import Source, StoredSource, sources
from dpadmm_mpi.engine.loop import execute
from dpadmm_mpi.files import status
from dpadmm_mpi.methods.experiment import experiment
from dpadmm_mpi.registry import first_line, place_of
from dpadmm_mpi.storage.compare import compare
from dpadmm_mpi.testing.laws import Laws
from dpadmm_mpi.testing.threads import Threads, on_ranks
from dpadmm_mpi.types import Array

NODES = 3


def check_source(source: Source, X: ArrayLike, y: ArrayLike) -> None:
    """The laws of every source.

    The records arrive as they are in the file, to the bit, with labels -1 and +1. The second time they come from the cache. A
    run has the same bits on 1, 2 and 3 ranks.

    Parameters
    ----------
    source : the source with its options, of a class registered by @dp.source("NAME")
    X : the features that are in its file, (records, features); after its preprocessing steps, if it has any
    y : the labels; -1 and +1, or as in the file, where the option `positive` says which one is +1

    Raises
    ------
    AssertionError
        A sentence for each law that the source breaks.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> import dpadmm_mpi as dp
    >>> X, y = np.eye(6), np.array([1.0, -1.0, 1.0, -1.0, 1.0, -1.0])
    >>> with tempfile.NamedTemporaryFile(suffix=".npz") as file:
    ...     np.savez(file, X=X, y=y)
    ...     dp.testing.check_source(dp.data.sources["npz"](path=file.name), X, y)
    """
    cls = type(source)
    laws = Laws(f"{place_of(cls)}: {cls.__name__}")
    laws.expect(bool(first_line(cls)), "it needs a docstring, whose first line says what it is")
    if cls not in dict(sources.items()).values():
        laws.expect(False, 'it is not registered: put @dp.source("NAME") above the class')
        laws.conclude()
    wanted, labels = np.asarray(X, dtype=np.float64), _signs(y, getattr(source, "positive", None))
    with tempfile.TemporaryDirectory(prefix="dpadmm-check-") as name, _cache(Path(name) / "cache"):
        folder = Path(name)
        with laws.law("records"):
            laws.broken += _wrong_records(_records(source, len(labels)), wanted, labels)
            before = _files(folder / "cache")
            laws.broken += _wrong_records(_records(source, len(labels)), wanted, labels)
            laws.expect(
                _files(folder / "cache") == before, "the second time they must come from the cache, and are prepared again"
            )
            with laws.law("ranks"):
                laws.broken += _differences(source, np.linalg.norm(wanted, axis=1).max() > 1.0 + NORM_SLACK, folder)
    laws.conclude()


def _signs(y: ArrayLike, positive: Any) -> Array:
    labels = np.asarray(y).ravel()
    return np.asarray(labels, dtype=np.float64) if positive is None else np.where(labels == positive, 1.0, -1.0)


@contextmanager
def _cache(folder: Path) -> Iterator[None]:
    """A cache that is empty at first."""
    before = os.environ.get("DPADMM_DATA")
    os.environ["DPADMM_DATA"] = str(folder)
    try:
        yield
    finally:
        if before is None:
            del os.environ["DPADMM_DATA"]
        else:
            os.environ["DPADMM_DATA"] = before


def _files(folder: Path) -> dict[str, int]:
    return {str(path): status(path).st_mtime_ns for path in folder.rglob("*")}


def _records(source: Source, count: int) -> Shard:
    """All of them, as a single node would get them."""
    if isinstance(source, StoredSource):
        from dpadmm_mpi.data.prepare import ensure_store

        store = ensure_store(source)
        return store.read(np.arange(store.meta.records))
    dataset = source.dataset(Division(count, Even()), nodes=1, seed=1)
    return dataset.loader.shard(dataset.address(0))


def _wrong_records(found: Shard, X: Array, y: Array) -> Iterator[str]:
    features = found.X if isinstance(found.X, np.ndarray) else found.X.toarray()
    if features.shape != X.shape:
        yield f"the features have the shape {features.shape}, but {X.shape} are in the file"
    elif not np.array_equal(features, X):
        row = int(np.argmax((features != X).any(axis=1)))
        yield f"the features of record {row} are {features[row][:4]}, but {X[row][:4]} are in the file"
    if not np.isin(found.y, (-1.0, 1.0)).all():
        yield "the labels must be -1 and +1; with the option `positive`, others become that"
    elif found.y.shape != y.shape:
        yield f"there are {len(found.y)} labels, but {len(y)} are in the file"
    elif not np.array_equal(found.y, y):
        row = int(np.argmax(found.y != y))
        yield f"the label of record {row} is {found.y[row]:g}, but {y[row]:g} is in the file"


def _differences(source: Source, scaled: bool, folder: Path) -> Iterator[str]:
    """Between runs on one rank and on others; rows that are too long for the privacy bounds are scaled first."""
    data: dict[str, Any] = {"source": sources.name_of(type(source)), **to_table(source)}
    if scaled and isinstance(source, StoredSource):
        data["preprocess"] = [*data.get("preprocess", list(source.default_steps)), "scale-rows"]
    raw = {"name": "check", "iterations": 2, "data": data, "network": {"graph": "path", "nodes": NODES}}
    config = experiment(raw).configs[0]
    for ranks in range(1, NODES + 1):

        def work(transport: Threads, path: Path = folder / f"{ranks}.h5") -> None:
            execute(config, transport, path)

        on_ranks(ranks, work)
        for difference in list(compare(folder / "1.h5", folder / f"{ranks}.h5"))[:1]:
            yield f"{ranks} ranks give other bits than one: {difference}"
