"""A history of the benchmarks: a line of JSON for each run of them, and what has become worse since.

A figure is compared with its median in the earlier lines from the same kind of machine (processor and number of cores). It has
become worse if it is beyond that by FACTOR, and by more than a few times its usual distance: some figures vary by themselves.
Only ratios are compared, because the speed of a machine changes from hour to hour, and only those with a target, which says
whether more or less is better.
"""

import json
import math
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from common import Row

FACTOR = 1.25
DEVIATIONS = 5.0  # median deviations from the median, which are 3.4 standard deviations of normal noise
FEWEST, MOST = 5, 30  # earlier lines that are compared with


def add(path: Path, rows: list[Row], machine: dict[str, Any]) -> list[str]:
    """Append a line to the file; what has become worse, in words."""
    lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    alike = [line["figures"] for line in lines if _kind(line["machine"]) == _kind(machine)]
    figures = {_name(row): row.value for row in rows if math.isfinite(row.value)}
    now = datetime.now(UTC).isoformat(timespec="seconds")
    line = {"date": now, "commit": _commit(), "machine": machine, "figures": figures}
    with path.open("a") as file:
        file.write(json.dumps(line) + "\n")
    return [words for row in rows if (words := _worse(row, [each[_name(row)] for each in alike if _name(row) in each]))]


def _worse(row: Row, earlier: list[float]) -> str | None:
    if not row.is_ratio or not row.target or len(earlier) < FEWEST:
        return None
    values = np.array(earlier[-MOST:])
    median = float(np.median(values))
    noise = DEVIATIONS * float(np.median(np.abs(values - median)))
    if row.at_most is not None:
        worse = row.value > max(median * FACTOR, median + noise)
    else:
        worse = row.value < min(median / FACTOR, median - noise)
    return f"{_name(row)}: {row.value:.4g}, where the median of {len(values)} before is {median:.4g}" if worse else None


def _name(row: Row) -> str:
    return f"{row.benchmark}: {row.figure}"


def _kind(machine: dict[str, Any]) -> tuple[str, int]:
    return machine["cpu"], machine["cores"]


def _commit() -> str | None:
    words = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        return subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None
