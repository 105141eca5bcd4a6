"""Several results as one table: what `sweep` and `load_all` give."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, overload

from dpadmm_mpi.api.result import Result
from dpadmm_mpi.errors import InputError
from dpadmm_mpi.plots import figure
from dpadmm_mpi.reports import exports
from dpadmm_mpi.reports.markup import results_in_html
from dpadmm_mpi.reports.result_tables import Wish, everything_of, table_of, text_of
from dpadmm_mpi.storage.infeasible import Infeasible, load_rows
from dpadmm_mpi.storage.result import Result as Stored

Words = str | Sequence[str]


class Results(Sequence[Result]):
    """Several results, as a list and as a table with a row for each; `sweep` and `load_all` make it.

    Settings of which two results have different values are columns. Configurations that could not run are rows of the table,
    without numbers; they are in `infeasible` and not in the list. In a notebook it shows the table.

    Examples
    --------
    >>> import dpadmm_mpi as dp
    >>> small = {"iterations": 2, "data": {"records": 200, "features": 3}}
    >>> results = dp.sweep(small, over={"eta": [0.5, 1.0]})
    >>> len(results), results[0].settings["algorithm.eta"], results.infeasible
    (2, 0.5, [])
    """

    def __init__(self, rows: Iterable[Stored | Infeasible]) -> None:
        self.rows: list[Result | Infeasible] = [Result.of(row) if isinstance(row, Stored) else row for row in rows]
        self._results = [row for row in self.rows if isinstance(row, Result)]

    def __len__(self) -> int:
        return len(self._results)

    @overload
    def __getitem__(self, index: int) -> Result: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Result]: ...
    def __getitem__(self, index: int | slice) -> Result | Sequence[Result]:
        return self._results[index]

    def __repr__(self) -> str:
        without = f", {len(self.infeasible)} infeasible" if self.infeasible else ""
        return f"Results({len(self)} results{without})\n{self.table()}"

    @property
    def infeasible(self) -> list[Infeasible]:
        """What could not run, each with its `name`, its `settings` and the `reason`."""
        return [row for row in self.rows if isinstance(row, Infeasible)]

    def table(
        self, columns: Words = (), *, sort: Words = (), pivot: Words = (), uncertainty: str = "standard-error", width: int = 80
    ) -> str:
        """The table of `dpadmm show`, as text.

        Parameters
        ----------
        columns : names of columns, in a list or with commas between them; none: the usual ones, as far as there is room
        sort : columns to sort by; with a minus in front, from the largest on
        pivot : a setting whose values become columns; before it, those whose values become rows
        uncertainty : what stands behind ±: "standard-error", "interval" (95 %), "half-range" or "none"
        width : letters of a line

        Returns
        -------
        Several lines.

        Raises
        ------
        InputError
            There is no such column.

        Examples
        --------
        >>> import dpadmm_mpi as dp
        >>> small = {"iterations": 2, "data": {"records": 200, "features": 3}}
        >>> results = dp.sweep(small, over={"eta": [0.5, 1.0], "seed": [1, 2]})
        >>> print(results.table("eta, seed", sort="-eta").splitlines()[1].split())
        ['1', '1']
        """
        return text_of(table_of(self.rows, _wish(columns, sort, pivot, uncertainty)), width)

    def to_pandas(self) -> Any:
        """A pandas.DataFrame with a row for each configuration: the columns of `dpadmm show --csv`.

        name, file, status, method, iteration, runs, the settings that differ by their dotted keys, of each measurement
        loss_mean, loss_smallest, loss_largest, loss_standard_error and loss_interval (half of the 95 % interval), of each
        account privacy_epsilon_total, privacy_epsilon_proven and privacy_epsilon_delta.

        Returns
        -------
        A frame.

        Raises
        ------
        InputError
            pandas is not installed.

        Examples
        --------
        >>> import dpadmm_mpi as dp
        >>> small = {"iterations": 2, "data": {"records": 200, "features": 3}}
        >>> frame = dp.sweep(small, over={"eta": [0.5, 1.0]}).to_pandas()
        >>> frame["algorithm.eta"].tolist(), frame["loss_mean"].shape
        ([0.5, 1.0], (2,))
        """
        try:
            import pandas as pd
        except ImportError:
            raise InputError("to_pandas needs pandas; install it with: pip install pandas") from None
        return pd.DataFrame(exports.records(everything_of(self.rows)))

    def to_latex(
        self,
        columns: Words = (),
        *,
        sort: Words = (),
        pivot: Words = (),
        uncertainty: str = "standard-error",
        caption: str = "",
        label: str = "",
    ) -> str:
        """The table as LaTeX, with numbers as mathematics; it needs the package booktabs.

        Parameters
        ----------
        columns, sort, pivot, uncertainty : as in `table`
        caption : none: what the numbers are
        label : none: tab:results

        Returns
        -------
        A table environment.

        Raises
        ------
        InputError
            There is no such column.

        Examples
        --------
        >>> import dpadmm_mpi as dp
        >>> small = {"iterations": 2, "data": {"records": 200, "features": 3}}
        >>> results = dp.sweep(small, over={"eta": [0.5, 1.0]})
        >>> print(results.to_latex("eta").splitlines()[7])
        $\\eta$ \\\\
        """
        return exports.to_latex(table_of(self.rows, _wish(columns, sort, pivot, uncertainty)), caption, label)

    def plot(self, kind: str = "tradeoff", *, account: str | None = None, bars: bool = False) -> Any:
        """A matplotlib Figure of all results.

        Parameters
        ----------
        kind : a kind of `dpadmm plot`, "tradeoff", "overview", ..., or a measurement by its name
        account : the privacy account; none: the first that fits
        bars : ranges as bars, not as bands

        Returns
        -------
        A matplotlib Figure; save it by .savefig("figure.pdf").

        Raises
        ------
        InputError
            There is no such kind, or the results lack what it shows.

        Examples
        --------
        >>> import dpadmm_mpi as dp
        >>> results = dp.sweep({"iterations": 2, "data": {"records": 200, "features": 3}}, over={"epsilon": [1.0, 2.0]})
        >>> len(results.plot("loss").axes)
        1
        """
        return figure(self._results, kind, account, bars)

    def _repr_html_(self) -> str:
        return results_in_html(table_of(self.rows))


def _wish(columns: Words, sort: Words, pivot: Words, uncertainty: str) -> Wish:
    def listed(words: Words) -> tuple[str, ...]:
        parts = words.split(",") if isinstance(words, str) else words
        return tuple(part.strip() for part in parts if part.strip())

    return Wish(listed(columns), listed(sort), listed(pivot), uncertainty)


def load_all(paths: str | Path | Iterable[str | Path]) -> Results:
    """The results in a folder, or in several files and folders, as a list and as a table.

    Parameters
    ----------
    paths : a folder that `dpadmm run` or `sweep` has written to, a file, or several of them

    Returns
    -------
    The results in the order of their names, and what could not run.

    Raises
    ------
    InputError
        A file is not there, not a result, or damaged; or a folder has none.

    Examples
    --------
    >>> import tempfile
    >>> import dpadmm_mpi as dp
    >>> small = {"name": "small", "iterations": 2, "data": {"records": 200, "features": 3}}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = dp.sweep(small, folder, over={"eta": [0.5, 1.0]})
    ...     results = dp.load_all(folder)
    >>> [result.name for result in results]
    ['small, eta=0.5', 'small, eta=1.0']
    """
    listed = [paths] if isinstance(paths, str | Path) else list(paths)
    return Results(load_rows(map(Path, listed)))
