"""The last recorded values of results for other programs: JSON, CSV, LaTeX."""

import csv
import json
import math
import re
import tomllib
from collections.abc import Sequence
from io import StringIO
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpadmm_mpi.reports.tables import result_cells, standard_error, status
from dpadmm_mpi.showing import brief
from dpadmm_mpi.storage.result import Result, accounts, is_proven, labels, last_row, measurements

_FORMULA = ("=", "+", "-", "@")  # what formulas of spreadsheets begin with


def summaries(results: Sequence[Result]) -> list[dict[str, Any]]:
    """Of each result: what it is, mean and spread of every measurement over the runs, every privacy account."""
    return [_summary(result, label) for result, label in zip(results, labels(results), strict=True)]


def _summary(result: Result, label: str) -> dict[str, Any]:
    last, runs = last_row(result)
    return {
        "name": label,
        "file": result.source,
        "status": status(result),
        "method": tomllib.loads(result.config_text).get("algorithm", {}).get("method"),
        "iteration": int(result.iteration[last]),
        "runs": runs,
        "measurements": {name: _spread(result[name][:, last]) for name in measurements(result)},
        "privacy": {
            name: {
                "total": float(result[f"privacy/{name}"][last]),
                "proven": is_proven(result, name),
                "delta": float(result.attributes[f"privacy/{name}"].get("delta", 0.0)),
            }
            for name, _ in accounts(result)
        },
    }


def _spread(values: NDArray[np.float64]) -> dict[str, float]:
    values = values[~np.isnan(values)]
    if not len(values):
        return dict.fromkeys(("mean", "smallest", "largest", "standard_error"), math.nan)
    error = standard_error(values) if len(values) > 1 else math.nan
    spread = {"mean": values.mean(), "smallest": values.min(), "largest": values.max(), "standard_error": error}
    return {name: float(value) for name, value in spread.items()}


def to_json(results: Sequence[Result]) -> str:
    """JSON knows neither infinity nor nan: they become "inf" and null. Text is whole, in ASCII."""

    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: plain(part) for key, part in value.items()}
        if isinstance(value, float) and not math.isfinite(value):
            return None if math.isnan(value) else str(value)
        return value

    return json.dumps([plain(each) for each in summaries(results)], indent=2, allow_nan=False)


def to_csv(results: Sequence[Result]) -> str:
    """A line for each file; loss_mean, loss_smallest, ..., privacy_bound_total, ...; empty where there is no number."""
    rows = []
    for summary in summaries(results):
        row = {key: value for key, value in summary.items() if key not in ("measurements", "privacy")}
        for name, spread in summary["measurements"].items():
            row |= {f"{name}_{key}": value for key, value in spread.items()}
        for name, account in summary["privacy"].items():
            row |= {f"privacy_{name}_{key}": value for key, value in account.items()}
        rows.append({key: "" if isinstance(value, float) and math.isnan(value) else value for key, value in row.items()})
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    columns = list(dict.fromkeys(key for row in rows for key in row))
    writer.writerow(map(_no_formula, columns))
    writer.writerows([_no_formula(row.get(key, "")) for key in columns] for row in rows)
    return text.getvalue().rstrip("\n")


def _no_formula(cell: Any) -> Any:
    """A text that a spreadsheet would take for a formula gets an apostrophe, which makes it one that it shows as it is."""
    if not isinstance(cell, str):
        return cell
    shown = brief(cell)
    return f"'{shown}" if shown.startswith(_FORMULA) and not _is_number(shown) else shown


def _is_number(text: str) -> bool:
    return re.fullmatch(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?|[+-]?inf", text) is not None


_LATEX = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "±": r"$\pm$"}
_LATEX |= {character: f"\\{character}" for character in "&%$#_{}"}
_LATEX |= {"<": r"\textless{}", ">": r"\textgreater{}"}


def to_latex(results: Sequence[Result]) -> str:
    """The table of `dpadmm show` as a tabular; it needs the package booktabs."""
    header, rows = result_cells(results, errors=True)
    lines = [
        r"% \usepackage{booktabs}",
        rf"\begin{{tabular}}{{ll{'r' * (len(header) - 2)}}}",
        r"\toprule",
        " & ".join(map(_escaped, header)) + r" \\",
        r"\midrule",
        *(" & ".join([*map(_escaped, row[:2]), *map(_numbers, row[2:])]) + r" \\" for row in rows),
        r"\bottomrule",
        r"\end{tabular}",
    ]
    return "\n".join(lines)


def _escaped(text: str) -> str:
    return "".join(_LATEX.get(character, character) for character in brief(text))


def _numbers(cell: str) -> str:
    """1e-05 as a power of ten, inf as the sign, nothing as a dash."""
    cell = _escaped(cell)
    cell = re.sub(r"(-?[\d.]+)e([+-]\d+)", lambda m: rf"${m[1]} \times 10^{{{int(m[2])}}}$", cell)
    return "--" if cell == "-" else re.sub(r"\binf\b", r"$\\infty$", cell)
