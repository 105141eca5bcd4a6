"""HDF5 -> arrays, xarray, pandas. Needs the file only, not the program state that wrote it."""

import math
import re
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import h5py
import numpy as np
from numpy.typing import NDArray

from dpadmm_mpi.config.files import dotted
from dpadmm_mpi.errors import InputError
from dpadmm_mpi.files import is_folder, names_in
from dpadmm_mpi.hdf5 import open_to_read, reading, values_of
from dpadmm_mpi.methods.metrics import metrics as METRICS
from dpadmm_mpi.privacy.account import accounts as KINDS
from dpadmm_mpi.privacy.recorded_curves import RecordedCurve
from dpadmm_mpi.storage.descriptions import NO_UNIT
from dpadmm_mpi.storage.survey import refuse_foreign, refuse_impossible, survey


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
        """Of the configuration."""
        return str(self.attributes["/"].get("name", Path(self.source).stem))

    @property
    def complete(self) -> bool:
        """Whether the run has ended; otherwise what it did not reach is nan."""
        return bool(self.attributes["/"]["complete"])

    @property
    def config_text(self) -> str:
        """The resolved configuration, TOML."""
        return str(self.attributes["/"]["config"])

    @cached_property
    def settings(self) -> dict[str, Any]:
        """The resolved configuration by dotted key, as in result.settings["privacy.alpha"]."""
        return dotted(tomllib.loads(self.config_text))

    @property
    def iteration(self) -> NDArray[Any]:
        """The recorded iterations, from 0."""
        return self["iteration"]

    @property
    def loss(self) -> NDArray[Any]:
        """Mean over the nodes of their mean losses, (run, iteration)."""
        return self["loss"]

    @property
    def test_error(self) -> NDArray[Any]:
        """Of the mean classifier, (run, iteration)."""
        return self["test_error"]

    @property
    def bound(self) -> NDArray[Any]:
        """P(t), the paper's bound."""
        return self["privacy/bound"]

    @property
    def tight(self) -> NDArray[Any]:
        """The tighter pure bound on the total privacy loss, (iteration,)."""
        return self["privacy/tight"]

    def epsilon_against(self, *observers: int) -> NDArray[Any]:
        """Epsilon of every node against some nodes that pool what they have seen; nan: one of them.

        The coalition is as near to a node as its nearest member, so that the largest of /privacy/pair_epsilon counts.

        Parameters
        ----------
        *observers : the nodes, counted from 0

        Returns
        -------
        (nodes,)

        Raises
        ------
        InputError
            The file has no /privacy/pair_epsilon, or no such node.

        Examples
        --------
        >>> import numpy as np, dpadmm_mpi as dp
        >>> privacy = {"perturbation": "objective", "alpha": 1.0}
        >>> data = {"records": 200, "features": 3}
        >>> result = dp.run({"iterations": 2, "algorithm": {"method": "admm"}, "data": data, "privacy": privacy})
        >>> against = result.epsilon_against(0, 1)  # five nodes on a ring: 3 is two edges away from both
        >>> bool(against[3] < against[2]), bool(np.isnan(against[0]))
        (True, True)
        """
        if "privacy/pair_epsilon" not in self:
            raise InputError(f"{self.source} has no /privacy/pair_epsilon: it is of methods on a network, with up to 300 nodes")
        pairs, chosen = self["privacy/pair_epsilon"], list(observers)
        for node in chosen:
            if not 0 <= node < len(pairs):
                raise InputError(f"node {node}: there are the nodes 0 to {len(pairs) - 1}")
        if "privacy/worth" in self and len(chosen) > (most := tomllib.loads(self.config_text)["privacy"].get("colluders", 1)):
            raise InputError(
                f"{self.source}: neighbours share noise in it, and its accounts hold against {most} of them who pool their "
                f"seeds, not {len(chosen)}; run it with privacy.colluders = {len(chosen)}"
            )
        return np.asarray(pairs[:, chosen].max(axis=1, initial=0.0))

    @property
    def curve(self) -> RecordedCurve | None:
        """delta over epsilon of everything released; None without noise, without proof, or in a file of version 1."""
        if "privacy/curve" not in self:
            return None
        return RecordedCurve(self["privacy/curve_epsilon"], self["privacy/curve"], self["privacy/renyi"])

    def to_xarray(self) -> Any:
        """An xarray.Dataset; names in groups keep their path, as in "privacy/bound", their dimensions do not.

        Returns
        -------
        A Dataset with the attributes of the file and of every array.

        Raises
        ------
        InputError
            xarray is not installed.

        Examples
        --------
        >>> import dpadmm_mpi as dp
        >>> result = dp.run({"iterations": 2, "data": {"records": 200, "features": 3}})
        >>> result.to_xarray()["loss"].sel(run=0).dims
        ('iteration',)
        """
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

    def to_pandas(self) -> Any:
        """A tidy pandas.DataFrame: a row for each run and iteration that was reached, a column for each number of them.

        Measurements keep their name; the privacy accounts, which are the same in all runs, lose the "privacy/" before it.

        Returns
        -------
        A frame with the columns run, iteration, loss, ...

        Raises
        ------
        InputError
            pandas is not installed.

        Examples
        --------
        >>> import dpadmm_mpi as dp
        >>> result = dp.run({"iterations": 2, "runs": 2, "data": {"records": 200, "features": 3}})
        >>> result.to_pandas()[["run", "iteration"]].to_numpy().tolist()
        [[0, 0], [0, 1], [0, 2], [1, 0], [1, 1], [1, 2]]
        """
        try:
            import pandas as pd
        except ImportError:
            raise InputError("to_pandas needs pandas; install it with: pip install pandas") from None
        shape = self.loss.shape
        columns = {
            "run": np.repeat(self["run"], shape[1]),
            "iteration": np.tile(self.iteration, shape[0]),
            **{name: self[name].ravel() for name in measurements(self)},
            **{name: np.tile(self[f"privacy/{name}"], shape[0]) for name, _ in accounts(self)},
        }
        return pd.DataFrame(columns)[~np.isnan(self.loss.ravel())].reset_index(drop=True)


def accounts(result: Result) -> list[tuple[str, str]]:
    """Name and title of each privacy account in the file, the paper's first.

    "privacy/NAME" is the total of the worst node in each iteration, "privacy/node_NAME" that of every node.
    """
    there = [name.removeprefix("privacy/") for name in result.arrays if name.startswith("privacy/")]
    totals = [name for name in there if result.dims.get(f"privacy/{name}") == ("iteration",)]
    found = []
    for name in [*(name for name in KINDS if name in totals), *(name for name in totals if name not in KINDS)]:
        about = result.attributes[f"privacy/{name}"]
        # Files of version 1 have no titles.
        title = str(about.get("title") or (KINDS[name].label if name in KINDS else name.replace("_", " ")))
        delta = about.get("delta")
        found.append((name, title if delta is None else f"{title} (delta {delta:g})"))
    return found


def curve_needed(result: Result) -> RecordedCurve:
    """For those who cannot go on without it."""
    if (curve := result.curve) is None:
        why = "it has no finite, proven account" if accounts(result) else "it has no privacy account"
        raise InputError(
            f"{result.source} has no /privacy/curve: {why}, or an earlier version wrote it; run it again with noise"
        )
    return curve


def account_column(result: Result, account: str) -> str:
    """What the account is called in tables."""
    known = KINDS[account].column if account in KINDS else account.replace("_", " ")
    return str(result.attributes[f"privacy/{account}"].get("column") or known)


def is_proven(result: Result, account: str) -> bool:
    """Whether the conditions of the account's theorem hold; an account that does not say so is not proven."""
    return bool(result.attributes[f"privacy/{account}"].get("proven", False))


class Words(NamedTuple):
    """What a measurement is called, and how it is shown."""

    title: str
    column: str  # in tables; "": not shown there
    unit: str
    scale: str  # of an axis: linear or log

    @property
    def axis(self) -> str:
        """The title with its unit."""
        return f"{self.title} [{self.unit}]" if self.unit else self.title


def words_for(result: Result, name: str) -> Words:
    """From the file itself; for one of version 1, which does not say, from the metric of that name."""
    about, known = result.attributes.get(name, {}), METRICS.find(name)
    return Words(
        str(about.get("title") or (known.title if known else name.replace("_", " "))),
        str(about.get("column", known.column if known else "")),
        str(about.get("units", known.unit if known else "")).removeprefix(NO_UNIT),
        "log" if about.get("scale", known.scale if known else "linear") == "log" else "linear",
    )


def measurements(result: Result) -> list[str]:
    """Names of all datasets with one number for each run and iteration, the familiar ones first."""
    there = [name for name, dims in result.dims.items() if dims == ("run", "iteration")]
    return [*(name for name in METRICS if name in there), *(name for name in there if name not in METRICS)]


def last_row(result: Result) -> tuple[int, int]:
    """The last row that some run has reached, and the number of runs that have reached it."""
    reached = ~np.isnan(result.loss)
    if not reached.any():
        return 0, 0
    last = int(np.flatnonzero(reached.any(axis=0))[-1])
    return last, int(reached[:, last].sum())


def load_all(paths: Iterable[Path]) -> list[Result]:
    """The results in files, and in all files of folders."""
    files: list[Path] = []
    for path in paths:
        inside = sorted(names_in(path, "*.h5"), key=_in_order) if is_folder(path) else [path]
        if not inside:
            raise InputError(f"{path}: a folder without result files")
        files += inside
    return [load(path) for path in files]


def _in_order(path: Path) -> list[tuple[float, str]]:
    """With numbers in their names by these: 2 before 10."""
    parts = re.split(r"(\d+(?:\.\d+)?)", path.stem)
    return [(float(part), "") if k % 2 else (math.inf, part) for k, part in enumerate(parts)]


def labels(results: Sequence[Result]) -> list[str]:
    """The configurations' names, or, where two are the same, the files', with their folders where that is not enough."""
    paths = [Path(result.source) for result in results]
    for names in ([result.name for result in results], [path.stem for path in paths]):
        if len(set(names)) == len(names):
            return names
    return [f"{path.parent.name}/{path.stem}" if path.parent.name else path.stem for path in paths]


def load(path: str | Path) -> Result:
    """The results in a file, complete or not."""
    path = Path(path)
    with open_file(path) as file:
        return read(file, str(path))


def read_attributes(path: Path) -> dict[str, Any]:
    """The attributes of a result file itself; nothing else is read."""
    with open_to_read(path) as file:
        return refuse_foreign(file, path)


def open_file(path: Path) -> h5py.File:
    """A result file for reading; one sentence if it is none."""
    file = open_to_read(path)
    try:
        refuse_foreign(file, path)
    except BaseException:
        file.close()
        raise
    return file


def read(file: h5py.File, source: str, skip: Sequence[str] = ()) -> Result:
    contents = survey(file, source)
    arrays = {}
    for name, dataset in contents.datasets.items():
        if name not in skip:
            with reading(f"{source}: /{name}"):
                arrays[name] = values_of(dataset)
    refuse_impossible(arrays, source)
    return Result(source, arrays, {name: contents.dims[name] for name in arrays}, contents.attributes)
