"""HDF5 -> arrays, xarray, tables. Needs the file only, not the program state that wrote it."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from dpadmm_mpi.errors import InputError


@dataclass(frozen=True, repr=False)
class Result:
    """One configuration's results: arrays by their HDF5 name, attributes by object name.

    result["loss"], result["privacy/bound"]; result.attributes["/"]["complete"]; result.dims["loss"] = ("run", "iteration").
    """

    source: str
    arrays: dict[str, NDArray[Any]]
    dims: dict[str, tuple[str, ...]]
    attributes: dict[str, dict[str, Any]]

    def __repr__(self) -> str:
        names = ", ".join(sorted(self.arrays))
        return f"Result({self.name!r}, {'complete' if self.complete else 'incomplete'}, from {self.source}: {names})"

    def __getitem__(self, name: str) -> NDArray[Any]:
        if name not in self:
            raise KeyError(f"{name}; there are {', '.join(sorted(self.arrays))}")
        return self.arrays[name.strip("/")]

    def __contains__(self, name: str) -> bool:
        return name.strip("/") in self.arrays

    @property
    def name(self) -> str:
        return str(self.attributes["/"].get("name", Path(self.source).stem))

    @property
    def complete(self) -> bool:
        return bool(self.attributes["/"]["complete"])

    @property
    def config_text(self) -> str:
        """The resolved configuration, TOML."""
        return str(self.attributes["/"]["config"])

    @property
    def iteration(self) -> NDArray[Any]:
        return self["iteration"]

    @property
    def loss(self) -> NDArray[Any]:
        return self["loss"]

    @property
    def test_error(self) -> NDArray[Any]:
        return self["test_error"]

    @property
    def bound(self) -> NDArray[Any]:
        """P(t), the paper's bound."""
        return self["privacy/bound"]

    @property
    def tight(self) -> NDArray[Any]:
        return self["privacy/tight"]

    def to_xarray(self) -> Any:
        """An xarray.Dataset; names in groups keep their path, as in "privacy/bound", their dimensions do not."""
        try:
            import xarray as xr
        except ImportError:
            raise InputError("to_xarray needs xarray; install it with: pip install xarray") from None
        scales = {name for names in self.dims.values() for name in names}
        variables = {
            name: ([dim.split("/")[-1] for dim in self.dims[name]], values, self.attributes.get(name, {}))
            for name, values in self.arrays.items()
            if name not in scales
        }
        coords = {name.split("/")[-1]: values for name, values in self.arrays.items() if name in scales}
        return xr.Dataset(variables, coords=coords, attrs=self.attributes["/"])


def load_all(paths: Iterable[Path]) -> list[Result]:
    """The results in files, and in all files of folders."""
    files: list[Path] = []
    for path in paths:
        inside = sorted(path.glob("*.h5")) if path.is_dir() else [path]
        if not inside:
            raise InputError(f"{path}: a folder without result files")
        files += inside
    return [load(path) for path in files]


def labels(results: Sequence[Result]) -> list[str]:
    """The configurations' names, or, where two are the same, the files'."""
    names = [result.name for result in results]
    return names if len(set(names)) == len(names) else [Path(result.source).stem for result in results]


def load(path: str | Path) -> Result:
    """The results in a file, complete or not."""
    path = Path(path)
    with open_file(path) as file:
        return read(file, str(path))


def open_file(path: Path) -> h5py.File:
    """A result file for reading; one sentence if it is none."""
    if not path.exists():
        raise InputError(f"{path}: no such file")
    try:
        file = h5py.File(path, "r")
        kind = file.attrs.get("format")
    except (OSError, RuntimeError) as error:
        raise InputError(f"{path}: not a readable HDF5 file, perhaps cut short ({error})") from None
    if kind != "dpadmm_mpi":
        file.close()
        raise InputError(f"{path}: an HDF5 file, but not one of dpadmm_mpi's results")
    return file


def read(file: h5py.File, source: str, skip: Sequence[str] = ()) -> Result:
    arrays, dims = {}, {}
    try:
        attributes = {"/": _attributes(file)}
        for name, item in objects(file):
            attributes[name] = _attributes(item)
            if isinstance(item, h5py.Dataset) and name not in skip:
                arrays[name] = item[...]
                dims[name] = tuple(_dimension(item, axis) for axis in range(item.ndim))
    except (OSError, RuntimeError, KeyError) as error:
        raise InputError(f"{source}: damaged, cannot be read to the end ({error})") from None
    return Result(source, arrays, dims, attributes)


def objects(file: h5py.File) -> list[tuple[str, Any]]:
    """Groups and datasets by name, in alphabetical order."""
    found: list[tuple[str, Any]] = []
    file.visititems(lambda name, item: found.append((name, item)))
    return sorted(found, key=lambda pair: pair[0])


_SCALE_ATTRIBUTES = {"CLASS", "NAME", "DIMENSION_LIST", "REFERENCE_LIST"}  # HDF5's own bookkeeping of dimension scales


def _attributes(item: Any) -> dict[str, Any]:
    return {key: value for key, value in item.attrs.items() if key not in _SCALE_ATTRIBUTES}


def _dimension(dataset: h5py.Dataset, axis: int) -> str:
    """The name of an axis: that of the scale attached to it, or the dataset's own if it is a scale."""
    scales = dataset.dims[axis].values()
    return str(scales[0].name if scales else dataset.name).strip("/")


def compare(a: Path, b: Path) -> Iterator[str]:
    """The differences between two files, to the bit, but for /timing and the date; nothing if there are none."""
    with open_file(a) as file_a, open_file(b) as file_b:
        first, second = _comparable(file_a), _comparable(file_b)
        for name in sorted(first.keys() | second.keys()):
            if name not in first or name not in second:
                yield f"{name}: only in {a if name in first else b}"
            else:
                yield from _differences(name, first[name], second[name])


def _comparable(file: h5py.File) -> dict[str, Any]:
    """Every dataset and attribute that two equal runs share."""
    content = {f"/@{key}": value for key, value in _attributes(file).items() if key != "date"}
    for name, item in objects(file):
        if name.split("/")[0] == "timing":
            continue
        content |= {f"/{name}@{key}": value for key, value in _attributes(item).items()}
        if isinstance(item, h5py.Dataset):
            content[f"/{name}"] = item[...]
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
        if a.dtype.itemsize != 8:  # a truth value
            yield f"{name}: {a} and {b}"
            return
        bits = np.atleast_1d(a).view(np.uint64) != np.atleast_1d(b).view(np.uint64)
        index = tuple(int(k) for k in np.argwhere(bits)[0])
        values = np.atleast_1d(a)[index].item(), np.atleast_1d(b)[index].item()
        yield f"{name}{list(index)}: {values[0]} and {values[1]} ({int(bits.sum())} of {a.size} differ)"
