"""What a search has found, and the file that it is kept in: a line of JSON for what is searched, and one for each trial."""

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from dpadmm_mpi.config.ranges import Point
from dpadmm_mpi.config.reading import show
from dpadmm_mpi.errors import InputError
from dpadmm_mpi.files import make_folder

FORMAT = "dpadmm tune, version 1"


@dataclass(frozen=True)
class Trial:
    """Settings that were tried, and how good they were."""

    number: int  # of its method, from 0
    method: str
    point: Point
    settings: dict[str, Any]  # the keys of the configuration that it sets
    value: float | None = None  # mean of the metric over the runs; None: they could not be run, and `sentence` says why
    error: float | None = None  # standard error of the mean; None with one run
    sentence: str = ""

    @property
    def feasible(self) -> bool:
        return self.value is not None


@dataclass(frozen=True)
class Study:
    """All trials, in their order."""

    about: Mapping[str, Any]  # what is searched, on what, by what
    trials: tuple[Trial, ...]
    lower_is_better: bool = True
    notes: tuple[str, ...] = field(default=())  # what the user should know

    def of(self, method: str) -> list[Trial]:
        return [trial for trial in self.trials if trial.method == method]

    @property
    def methods(self) -> list[str]:
        return list(dict.fromkeys(trial.method for trial in self.trials))

    def ranked(self, method: str | None = None) -> list[Trial]:
        """Those that could be run, the best first; of equal ones the earlier."""
        some = [trial for trial in self.trials if trial.value is not None and method in (None, trial.method)]
        return sorted(some, key=lambda trial: _sign(self.lower_is_better) * _known(trial))

    def best(self, method: str | None = None) -> Trial:
        ranked = self.ranked(method)
        if not ranked:
            why = next((trial.sentence for trial in self.trials if trial.sentence), "there is none")
            raise InputError(f"tune: none of the {len(self.trials)} trials could be run; the first one: {why}")
        return ranked[0]


def _known(trial: Trial) -> float:
    assert trial.value is not None
    return trial.value


def _sign(lower_is_better: bool) -> float:
    return 1.0 if lower_is_better else -1.0


class Journal:
    """The trials of a study as they are finished: in memory, or in a file that a later call goes on with."""

    def __init__(self, path: Path | None, about: Mapping[str, Any]) -> None:
        self.trials: list[Trial] = []
        self._file: BinaryIO | None = None
        self._about = json.loads(json.dumps({"format": FORMAT, **about}))
        if path is not None:
            self._open(path)

    def _open(self, path: Path) -> None:
        make_folder(path.parent)
        try:
            self._file = path.open("a+b")
        except OSError as error:
            raise InputError(f"{path}: cannot be written: {error.strerror}") from None
        _lock(self._file, path)
        self._file.seek(0)
        lines = self._file.read().splitlines(keepends=True)
        if lines and not lines[-1].endswith(b"\n"):  # whoever wrote it was killed there
            self._file.truncate(sum(map(len, lines[:-1])))
            lines.pop()
        self._file.seek(0, os.SEEK_END)
        if not lines:
            self._write(self._about)
            return
        try:
            found, *trials = [json.loads(line) for line in lines]
            self._refuse_other(found, path)
            self.trials = [Trial(**trial) for trial in trials]
        except InputError:
            self.close()
            raise
        except (ValueError, TypeError, AttributeError):
            self.close()
            raise InputError(f"{path}: not a study of dpadmm tune; name another file with --study") from None

    def _refuse_other(self, found: Mapping[str, Any], path: Path) -> None:
        """A study goes on with what it has begun with; only more trials may be asked for."""
        if found.get("format") != FORMAT:
            raise ValueError
        wanted = self._about
        for key in dict.fromkeys([*wanted, *found]):
            if key != "trials" and found.get(key) != wanted.get(key):
                what = show(found.get(key)), show(wanted.get(key))
                raise InputError(
                    f"{path}: this study is about something else: {key} is {what[0]} there and {what[1]} here; name "
                    "another file with --study, or remove it"
                )

    def add(self, trials: Iterable[Trial]) -> None:
        for trial in trials:
            self.trials.append(trial)
            if self._file is not None:
                self._write(asdict(trial))

    def _write(self, table: Mapping[str, Any]) -> None:
        assert self._file is not None
        self._file.write(json.dumps(table).encode() + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


def _lock(file: BinaryIO, path: Path) -> None:
    import fcntl

    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        raise InputError(f"{path}: another process is working on this study; wait for it, or name another file") from None
    except OSError:  # a file system without locks
        return


def in_order(trials: Sequence[Trial], methods: Sequence[str]) -> tuple[Trial, ...]:
    return tuple(sorted(trials, key=lambda trial: (methods.index(trial.method), trial.number)))
