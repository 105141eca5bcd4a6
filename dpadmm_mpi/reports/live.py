"""Looking at a result file that another process is writing: how far it is, and how long it will take.

Read-only, so the writer never notices. What is read while it writes may be torn; then it is read again.
"""

import platform
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np
from numpy.typing import NDArray

from dpadmm_mpi.errors import DpadmmError
from dpadmm_mpi.files import exists, names_in, refuse_special, status
from dpadmm_mpi.hdf5 import reading, values_of
from dpadmm_mpi.showing import brief, sentence
from dpadmm_mpi.storage.checkpoint import restart_folder
from dpadmm_mpi.storage.experiments import stored_fingerprint
from dpadmm_mpi.storage.result import Result, accounts, is_proven, open_file
from dpadmm_mpi.storage.run_status import failure, is_locked
from dpadmm_mpi.storage.survey import Contents, refuse_impossible, survey

Array = NDArray[np.float64]

SILENCE = 60.0  # seconds without a change after which a run does not count as running
ROWS = 3  # ... or so many rows' worth of time, if that is longer
RECENT = 20  # rows from which the speed is taken
ATTEMPTS, PAUSE = 10, 0.1  # of reading, and the seconds between them
BARS = "▁▂▃▄▅▆▇█"
WIDTH = 40  # of a sparkline


@dataclass(frozen=True)
class Snapshot:
    """One look at a file."""

    name: str
    fingerprint: str
    complete: bool
    quiet: float  # seconds since the file, or what lies beside it for a restart, last changed
    held: bool | None  # whether a process of this host is writing it; None: not known
    failure: str | None  # the sentence with which it failed
    ranks: int
    group: range  # the runs that go side by side just now, from 0; of a finished file all
    runs: int
    iteration: int  # the last recorded one of these runs; -1 if there is none
    iterations: int
    rows: int  # of a run that has come to its end
    loss: Array  # the mean over these runs, as far as they go
    privacy: list[tuple[str, float, bool]]  # the accounts at that iteration: title, value, whether it is proven
    seconds: float  # per iteration of one run, lately; nan before the first rows

    @property
    def done(self) -> int:
        """Iterations over all runs."""
        return self.group.start * self.iterations + len(self.group) * max(self.iteration, 0)

    @property
    def share(self) -> float:
        """Of all iterations of all runs, as the bar of `dpadmm run` counts them."""
        return 1.0 if self.complete else self.done / (self.runs * self.iterations)

    @property
    def which(self) -> str:
        """The runs under way, counted from 1."""
        first, last = self.group[0] + 1, self.group[-1] + 1
        return f"{first}" if first == last else f"{first} to {last}"

    @property
    def left(self) -> float:
        """Seconds until the end at the present speed."""
        return 0.0 if self.complete else (self.runs * self.iterations - self.done) * self.seconds

    @property
    def state(self) -> str:
        if self.complete:
            return "done"
        if self.failure is not None:
            return "failed"
        if self.held is not None:
            return "running" if self.held else "stopped"
        row = len(self.group) * self.seconds * self.iterations / max(self.rows - 1, 1)
        return "running" if self.quiet < np.fmax(SILENCE, ROWS * row) else "stopped"


def look(path: Path) -> Snapshot:
    """The file as it is now; a torn read is repeated."""
    refuse_special(path)
    for attempt in range(ATTEMPTS):
        try:
            with open_file(path) as file, reading(path):
                return _read(file, path)
        except DpadmmError:  # perhaps of a file in the middle of a change
            if attempt == ATTEMPTS - 1 or not exists(restart_folder(path)):  # nobody is writing it
                raise
            time.sleep(PAUSE)
    raise AssertionError


def _read(file: h5py.File, path: Path) -> Snapshot:
    contents = survey(file, path)
    refuse_impossible({name: values_of(file[name]) for name in ("run", "node", "iteration", "timing/owner")}, path)
    loss, iteration = file["loss"][...], values_of(file["iteration"])
    compute, waited = _of_nodes(file, "compute_seconds", "mean"), _of_nodes(file, "wait_seconds", "max")
    reached = ~(np.isnan(loss) | np.isnan(compute).any(axis=2))  # a row may be on the disk in part
    counts = reached.sum(axis=1)  # rows are written from the first one on
    begun = np.flatnonzero((counts > 0) & (counts < len(iteration)))
    if not len(begun):  # all that have begun are at their end
        begun = np.flatnonzero(counts) if counts.any() else np.zeros(1, dtype=np.int64)
    begun = begun[counts[begun] == counts[begun[0]]]  # groups go in order: while a file is extended, the first is under way
    group, rows = range(int(begun[0]), int(begun[-1]) + 1), int(counts[begun[0]])
    some = slice(group.start, group.stop)
    # Of the runs in a group every one has the same share of the seconds.
    shares = compute[group.start, :rows], waited[group.start, :rows]
    here = str(file["timing"].attrs["hosts"][0]) == platform.node()  # of rank 0, which holds the lock
    return Snapshot(
        name=str(file.attrs["name"]),
        fingerprint=stored_fingerprint(str(file.attrs["config"]), str(file.attrs["config_sha256"]), path),
        complete=bool(file.attrs["complete"]),
        quiet=time.time() - _changed(path),
        held=is_locked(path) if here else None,
        failure=failure(path),
        ranks=int(file["timing"].attrs["ranks"]),
        group=group,
        runs=len(loss),
        iteration=int(iteration[rows - 1]) if rows else -1,
        iterations=int(iteration[-1]),
        rows=len(iteration),
        loss=loss[some, :rows].mean(axis=0),
        privacy=_privacy(contents, path, max(rows - 1, 0)),
        seconds=_seconds_per_iteration(file, *shares, iteration),
    )


def _of_nodes(file: h5py.File, name: str, instead: str) -> Array:
    """(runs, rows, nodes); without record.nodes as if every node had the mean, or the largest."""
    if f"timing/{name}" in file:
        return np.asarray(file[f"timing/{name}"][...])
    every = file[f"timing/{name}_{instead}"][...][..., None]
    return np.broadcast_to(every, (*every.shape[:-1], len(file["node"])))


def _changed(path: Path) -> float:
    """When the log or its restart folder was last written to."""
    newest = status(path).st_mtime
    with suppress(FileNotFoundError):  # the folder goes when the run is complete
        for part in names_in(restart_folder(path)):
            newest = max(newest, status(part).st_mtime)
    return newest


def _privacy(contents: Contents, path: Path, row: int) -> list[tuple[str, float, bool]]:
    """What the file's own accounts say, whatever the family."""
    totals = [name for name, dims in contents.dims.items() if name.startswith("privacy/") and dims == ("iteration",)]
    arrays = {name: contents.datasets[name][...] for name in totals}
    part = Result(str(path), arrays, {name: contents.dims[name] for name in totals}, contents.attributes)
    return [(title, float(part[f"privacy/{name}"][row]), is_proven(part, name)) for name, title in accounts(part)]


def _seconds_per_iteration(file: h5py.File, compute: Array, waited: Array, iteration: NDArray[np.int64]) -> float:
    """From the recorded seconds of the slowest rank; the first row covers iteration 0 and tells nothing."""
    rows = len(compute)
    first = max(1, rows - RECENT)
    if rows <= first:
        return float("nan")
    owner = file["timing/owner"][...]
    of_rank = [compute[first:, owner == rank].sum(axis=1) + waited[first:, owner == rank].max(axis=1) for rank in set(owner)]
    return float(np.max(of_rank, axis=0).sum() / (iteration[rows - 1] - iteration[first - 1]))


def frame(seen: Snapshot) -> str:
    """A few lines for a terminal."""
    iteration = "-" if seen.iteration < 0 else str(seen.iteration)
    ranks = "1 rank" if seen.ranks == 1 else f"{seen.ranks} ranks"
    why = f", no change for {duration(seen.quiet)}" if seen.state == "stopped" else ""
    if seen.state == "failed":
        why = f": {sentence(seen.failure)}"
    privacy = [f"{brief(title)} {total:.4g}{'' if proven else ' not proven'}" for title, total, proven in seen.privacy]
    loss = f"{seen.loss[-1]:.6g}" if len(seen.loss) else "-"
    speed = "-" if np.isnan(seen.seconds) else f"{len(seen.group) * seen.seconds:.3g} s"
    runs = "run " if len(seen.group) == 1 else "runs"
    lines = [
        f"{brief(seen.name)}: {seen.state} on {ranks}{why}",
        f"  {runs}       {seen.which} of {seen.runs}, iteration {iteration} of {seen.iterations}; {seen.share:.0%} of all",
        f"  loss       {loss}  {sparkline(seen.loss)}",
        f"  privacy    {'; '.join(privacy)}",
        f"  time       {speed} per iteration, {duration(seen.left)} left",
    ]
    return "\n".join(line.rstrip() for line in lines)


def duration(seconds: float) -> str:
    if np.isnan(seconds):
        return "-"
    minutes, rest = divmod(round(seconds), 60)
    return f"{rest} s" if minutes == 0 else f"{minutes // 60}:{minutes % 60:02}:{rest:02}"


def sparkline(values: Array, width: int = WIDTH) -> str:
    """The values as a row of bars, at most `width` of them, from the smallest to the largest."""
    values = values[np.isfinite(values)]
    if not len(values):
        return ""
    chosen = values[np.unique(np.linspace(0, len(values) - 1, width).round().astype(int))]
    spread = np.ptp(chosen)
    if spread == 0.0:
        return BARS[0] * len(chosen)
    heights = ((chosen - chosen.min()) / spread * (len(BARS) - 1)).round().astype(int)
    return "".join(BARS[height] for height in heights)
