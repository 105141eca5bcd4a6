"""The HDF5 file of one configuration, written by rank 0 while the run goes on; and again after a kill."""

import errno
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

import h5py
import numpy as np

from dpadmm_mpi.errors import InputError, RunError, reason_of, unreported_writes
from dpadmm_mpi.files import remove, sync_folder, uninterrupted
from dpadmm_mpi.methods.base import Plan
from dpadmm_mpi.methods.metrics import Optimum
from dpadmm_mpi.storage.atomic_file import claim, take_name
from dpadmm_mpi.storage.checkpoint import Restart
from dpadmm_mpi.storage.journal import Entry, pack, unpack
from dpadmm_mpi.storage.layout import LogFile, Shapes, bytes_needed, recorded_value
from dpadmm_mpi.storage.result import Result, read
from dpadmm_mpi.types import Array

FLUSH_SECONDS = 1.0  # a killed run loses less than this
LARGE = (
    "trajectory", "server_trajectory", "final/primal", "final/dual", "final/averaged", "final/consensus",
    "data/node_of_record", "data/record", "restart/state", "restart/number", "problem/map",
)  # fmt: skip


class Recorder(LogFile):
    """Buffers rows and writes them, to the log and to the journal beside it; one for each file."""

    def __init__(self, file: h5py.File, plan: Plan[Any], shapes: Shapes, restart: Restart | None = None) -> None:
        unreported_writes.clear()  # those of a log before this one
        super().__init__(file, plan, "the result" if restart is None else str(restart.log), shapes)
        self.restart = restart
        self.reached: dict[int, tuple[int, dict[str, Array]]] = {}  # run -> iteration and state, of an earlier part
        self.found: Optimum | None = None  # by an earlier part, or this one
        self.sought = False
        self._earlier_seconds = 0.0
        self._pending: list[dict[str, Array]] = []
        self._next = (range(0), 0)  # runs and first row of what is pending
        self._flushed = time.monotonic()
        self._flushed_iteration = 0
        self._finished = False

    def optimum(self, found: Optimum | None) -> None:
        """What the search for the centralised optimum has found."""
        self._put_optimum(found)
        if self.restart is not None:
            arrays = {} if found is None else {"f": found.f, "objective": np.array(found.objective)}
            if found is not None and found.gradients is not None:
                arrays["gradients"] = found.gradients
            if found is not None and found.dual is not None:
                arrays["dual"] = found.dual
            self.restart.add(Entry("optimum", arrays=pack(arrays)))

    def _put_optimum(self, found: Optimum | None) -> None:
        self.found, self.sought = found, True
        if found is not None:
            with self._writing():
                self._dataset("optimum/primal", found.f, ("feature",), "f*, the centralised optimum")
                if found.gradients is not None:
                    text = "gradient of each node's objective at f*; they add up to zero"
                    self._dataset("optimum/gradients", found.gradients, ("node", "feature"), text)
                self._describe_group("optimum")
                self.file["optimum"].attrs["objective"] = found.objective
                if found.dual is not None:
                    self._dataset("optimum/dual", found.dual, ("constraint",), "multiplier of the constraint A x - w = 0 there")
                self._to_disk()

    def row(self, runs: range, row: int, iteration: int, values: dict[str, Array]) -> None:
        """The measurements of one recorded iteration; `values` has an entry for every name in the layout, (runs, ...)."""
        if not self._pending:
            self._next = (runs, row)
        self._pending.append({name: recorded_value(name, values) for name in self._layout})
        due = iteration - self._flushed_iteration >= self._plan.config.record.checkpoint
        if due or time.monotonic() - self._flushed > FLUSH_SECONDS:
            with self._writing():
                self._write_pending()
                uninterrupted(self.file.flush)
            self._flushed_iteration = iteration

    def consensus_row(self, runs: range, row: int, values: dict[str, Array]) -> None:
        """The measurements of a consensus step, which are few and written at once."""
        blocks = {name: recorded_value(name, values)[:, None] for name in self._consensus_layout}
        with self._writing():
            self._write_pending()
            self._put_rows(runs.start, row, blocks)
        if self.restart is not None:
            self.restart.add(Entry("rows", runs.start, row, pack(blocks)))

    def end_of_runs(self, runs: range, final: dict[str, Array], state: dict[str, Array]) -> None:
        with self._writing():
            self._write_pending()
            self._put_final(runs, final, state)
            uninterrupted(self.file.flush)
        if self.restart is not None:
            self.restart.add(Entry("state", runs.start, self._plan.rounds, pack(state)))
        self._flushed_iteration = 0

    def _put_final(self, runs: range, final: dict[str, Array], state: dict[str, Array]) -> None:
        which = slice(runs.start, runs.stop)
        for name, values in final.items():
            self.file[name][which] = values
            self.file[name].flush()
        fields = [state[name].reshape(len(runs), -1) for name in self._shapes]
        states = self.file["restart/state"]
        states[which] = np.concatenate(fields, axis=1)
        states.flush()

    def checkpoint(self, runs: range, iteration: int, state: dict[str, Array], seconds: float) -> None:
        """Everything up to here, safely on the disk; `state` is empty between two groups of runs."""
        assert self.restart is not None
        with self._writing():
            self._write_pending()
            uninterrupted(self.file.flush)
        self.restart.save(runs.start, iteration, state, self._earlier_seconds + seconds)

    def state_of(self, runs: range) -> dict[str, Array]:
        """What an earlier part has reached in these runs."""
        states = [self.reached.pop(run)[1] for run in runs]
        return {name: np.stack([state[name] for state in states]) for name in self._shapes}

    def replay(self, entries: Iterable[Entry], seconds: float, final: Callable[[dict[str, Array]], dict[str, Array]]) -> None:
        """Write the log again from what an earlier part recorded; `final` says what is kept of a last state."""
        self._earlier_seconds = seconds
        with self._writing():
            for entry in entries:
                arrays = unpack(entry.arrays)
                if entry.kind == "rows":
                    self._put_rows(entry.run, entry.at, arrays)
                elif entry.kind == "state":
                    runs = range(entry.run, entry.run + len(next(iter(arrays.values()))))
                    # A field without width is one that this configuration does not use, and an older state may lack.
                    arrays |= {name: np.zeros((len(runs), *shape)) for name, shape in self._shapes.items() if 0 in shape}
                    for r, run in enumerate(runs):
                        self.reached[run] = (entry.at, {name: values[r] for name, values in arrays.items()})
                    if entry.at == self._plan.rounds:
                        self._put_final(runs, final(arrays), arrays)
                elif entry.kind == "optimum":
                    gradients, dual = arrays.get("gradients"), arrays.get("dual")
                    found = Optimum(arrays["f"], float(arrays["objective"]), gradients, dual) if arrays else None
                    self._put_optimum(found)

    def publish(self, force: bool) -> None:
        """Give the new file its name: whole, and not before; what has that name until then is only replaced by force."""
        assert self.restart is not None
        with self._writing():
            self._to_disk()
            try:
                take_name(self.restart.new_log, self.restart.log, force)
            except FileExistsError:
                raise InputError(f"{self.name} exists; choose another place with -o, or replace it with --force") from None
            sync_folder(self.restart.log.parent)

    def finish(self, seconds: float) -> None:
        """The data first, safely; only then the mark that the file is complete."""
        with self._writing():
            self.file["timing"].attrs["seconds"] = self._earlier_seconds + seconds
            self._to_disk()
            if unreported_writes:
                raise OSError(unreported_writes[0])
            self.file.attrs.modify("complete", True)
            self._to_disk()
        self._finished = True

    def result(self, brief: bool = False) -> Result:
        return read(self.file, self.name, skip=LARGE if brief else ())

    def close(self) -> None:
        """With what was recorded before a failure. What a restart needs goes when the log is closed and complete."""
        try:
            with self._writing():
                try:
                    self._write_pending()
                finally:
                    self.file.close()
            if self._finished and self.restart is not None:
                self.restart.remove()
        finally:
            if self.restart is not None:
                self.restart.close()

    def discard(self) -> None:
        """Remove a file that has no name yet."""
        with suppress(OSError, RuntimeError):  # h5py cannot close what it could not write
            self.file.close()
        if self.restart is not None:
            with suppress(OSError):  # written anew next time
                remove(self.restart.new_log)

    def _put_rows(self, run: int, row: int, blocks: dict[str, Array]) -> None:
        """Blocks are (runs, rows, ...), from this run and row on."""
        for name, block in blocks.items():
            dataset = self.file[name]
            dataset[run : run + block.shape[0], row : row + block.shape[1]] = block
            dataset.flush()  # now: what fails when the dataset is forgotten is lost without a word

    def _write_pending(self) -> None:
        if self._pending:
            runs, row = self._next
            blocks = {name: np.stack([values[name] for values in self._pending], axis=1) for name in self._layout}
            self._put_rows(runs.start, row, blocks)
            if self.restart is not None:
                self.restart.add(Entry("rows", runs.start, row, pack(blocks)))
        self._pending = []
        self._flushed = time.monotonic()


def create(plan: Plan[Any], shapes: Shapes, restart: Restart | None) -> Recorder:
    """A recorder for a new file, which has no name until it is published; or, without a restart folder, for one in memory."""
    if restart is None:
        return Recorder(h5py.File("result", "x", driver="core", backing_store=False), plan, shapes)
    try:
        claim(restart.new_log, bytes_needed(plan, shapes))
        # No lock: readers may look at a running job. The file is ours, whatever else is going on.
        return Recorder(uninterrupted(h5py.File, restart.new_log, "w", locking=False), plan, shapes, restart)
    except OSError as error:
        reason, path = reason_of(error), restart.log
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise RunError(f"{path} does not fit on the disk ({reason}); make room or choose another place with -o") from None
        raise InputError(f"{path} cannot be created ({reason}); choose another place with -o") from None
