"""`dpadmm diff`: are two result files the same to the bit?"""

from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from dpadmm_mpi.hdf5 import reading, values_of
from dpadmm_mpi.storage.result import open_file
from dpadmm_mpi.storage.survey import survey


def compare(a: Path, b: Path) -> Iterator[str]:
    """The differences between two files, to the bit, but for /timing and the date; nothing if there are none."""
    with open_file(a) as file_a, open_file(b) as file_b:
        first, second = _comparable(file_a, a), _comparable(file_b, b)
        for name in sorted(first.keys() | second.keys()):
            if name not in first or name not in second:
                yield f"{name}: only in {a if name in first else b}"
            else:
                yield from _differences(name, first[name], second[name])


def _comparable(file: h5py.File, path: Path) -> dict[str, Any]:
    """Every dataset and attribute that two equal runs share."""
    found = survey(file, path)
    content: dict[str, Any] = {}
    for name, attributes in found.attributes.items():
        if name.split("/")[0] == "timing":
            continue
        place = f"/{name.strip('/')}"
        content |= {f"{place}@{key}": value for key, value in attributes.items() if (name, key) != ("/", "date")}
        if name in found.datasets:
            with reading(f"{path}: {place}"):
                content[place] = values_of(found.datasets[name])
    return content


def _differences(name: str, a: Any, b: Any) -> Iterator[str]:
    a, b = np.asarray(a), np.asarray(b)
    if a.dtype.kind in "OUS" or b.dtype.kind in "OUS":  # text: line by line
        lines = [str(value).split("\n") for value in (a.ravel().tolist(), b.ravel().tolist())]
        if a.ndim == b.ndim == 0:
            lines = [str(value).split("\n") for value in (a, b)]
        for x, y in zip_longest(*lines, fillvalue="(nothing)"):
            if x != y:
                yield f"{name}: {x} and {y}"
                return
    elif a.dtype != b.dtype or a.shape != b.shape:
        yield f"{name}: {a.dtype} {a.shape} and {b.dtype} {b.shape}"
    elif a.tobytes() != b.tobytes():
        if not a.ndim and a.dtype.itemsize != 8:  # a truth value
            yield f"{name}: {a} and {b}"
            return
        bits = np.atleast_1d(a).view(f"u{a.dtype.itemsize}") != np.atleast_1d(b).view(f"u{a.dtype.itemsize}")
        index = tuple(int(k) for k in np.argwhere(bits)[0])
        values = np.atleast_1d(a)[index].item(), np.atleast_1d(b)[index].item()
        yield f"{name}{list(index)}: {values[0]} and {values[1]} ({int(bits.sum())} of {a.size} differ)"
