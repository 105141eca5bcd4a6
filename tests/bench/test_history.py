"""scripts/bench/run.py --history, on made-up figures: a slow-down is seen, and noise is not."""

import importlib
import json
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from support import TOP

Night = Callable[..., int]
UP, DOWN = {"at_least": 1.0}, {"at_most": 12.0}


@pytest.fixture
def night(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Night:
    """One run of the benchmarks, of which one remains, with one figure; the exit code."""
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "1")  # run.py sets it
    monkeypatch.syspath_prepend(TOP / "scripts" / "bench")
    run, common = importlib.import_module("run"), importlib.import_module("common")

    def measure(value: float, cpu: str = "a processor", **row: Any) -> int:
        rows = [common.Row("records", "ours : theirs", value, **row)]
        monkeypatch.setitem(sys.modules, "records", SimpleNamespace(rows=lambda rounds: rows))
        monkeypatch.setattr(run, "machine", lambda: {"cpu": cpu, "cores": 2})
        monkeypatch.setattr(sys, "argv", ["run.py", "--history", str(tmp_path / "history.jsonl"), "records"])
        return int(run.main())

    return measure


def exit_codes(night: Night, values: Iterable[float], **row: Any) -> list[int]:
    return [night(value, **row) for value in values]


@pytest.mark.parametrize(
    ("row", "worse", "little", "better"), [(UP, 2.9, 3.4, 5.1), (DOWN, 5.1, 4.6, 2.9)], ids=["at least", "at most"]
)
def test_a_change_beyond_the_factor_is_seen_if_it_is_for_the_worse(
    night: Night, row: dict[str, float], worse: float, little: float, better: float, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_codes(night, [4.0, 4.0, 3.9, 4.0, 4.0, little, better], **row) == [0] * 7
    assert "worse" not in capsys.readouterr().out
    assert night(worse, **row) == 1
    assert f"worse than before: records: ours : theirs: {worse}, where the median of 7 before is " in capsys.readouterr().out


def test_a_figure_that_varies_by_itself_may_do_so(night: Night) -> None:
    usual = 0.02 * (1.0 + 0.3 * np.random.default_rng(1).standard_normal(60))
    assert np.sum(usual[10:] > 1.25 * 0.02) >= 5
    assert not any(exit_codes(night, usual, **DOWN)[10:])
    assert night(0.08, **DOWN) == 1


def test_one_bad_night_hides_nothing(night: Night) -> None:
    assert exit_codes(night, [4.0, 4.1, 3.9, 4.0, 4.1, 1.0, 4.0, 2.9], **UP) == [0] * 5 + [1, 0, 1]


def test_too_few_lines_and_those_of_other_machines_say_nothing(night: Night) -> None:
    assert exit_codes(night, [4.0] * 4 + [1.0], **UP) == [0] * 5
    assert exit_codes(night, [9.0] * 5, cpu="a faster one", **UP) == [0] * 5
    assert night(4.0, **UP) == 0
    assert night(4.0, cpu="a faster one", **UP) == 1


def test_what_is_no_ratio_or_has_no_target_is_kept_but_not_judged(night: Night, tmp_path: Path) -> None:
    assert exit_codes(night, [4.0] * 5 + [1.0], is_ratio=False, **UP) == [0] * 6
    assert exit_codes(night, [4.0, 1.0]) == [0] * 2
    lines = [json.loads(line) for line in (tmp_path / "history.jsonl").read_text().splitlines()]
    assert [line["figures"]["records: ours : theirs"] for line in lines] == [4.0] * 5 + [1.0, 4.0, 1.0]
    assert all(line.keys() == {"date", "commit", "machine", "figures"} for line in lines)
