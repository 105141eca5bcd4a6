"""The last recorded values of results for other programs: JSON, CSV, LaTeX."""

import csv
import json
import math
import re
from collections.abc import Sequence
from io import StringIO
from typing import Any

from dpadmm_mpi.reports.columns import NOTHING, Column, Row, in_words
from dpadmm_mpi.reports.result_tables import ResultTable
from dpadmm_mpi.showing import brief

_FORMULA = ("=", "+", "-", "@")  # what formulas of spreadsheets begin with


def to_json(table: ResultTable) -> str:
    """An object for each row. JSON knows neither infinity nor nan: they become "inf" and null. Text is whole, in ASCII."""

    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: plain(part) for key, part in value.items()}
        if isinstance(value, list):
            return [plain(part) for part in value]
        if isinstance(value, float) and not math.isfinite(value):
            return None if math.isnan(value) else str(value)
        return value if isinstance(value, str | int | float | bool | None) else str(value)

    return json.dumps([plain(_object(row, table)) for row in table.rows], indent=2, allow_nan=False)


def _object(row: Row, table: ResultTable) -> dict[str, Any]:
    """What a row is, its settings, the mean and spread of every measurement over the runs, every privacy account."""
    found: dict[str, Any] = {}
    for column in table.columns:
        record = column.record(row)
        if not column.group:
            found[column.key] = record
        elif (part := found.setdefault(column.group, {})) is not None and record is not None:
            part[column.key] = record
    return found


def records(table: ResultTable) -> list[dict[str, Any]]:
    """A flat dictionary for each row: loss_mean, loss_smallest, ..., privacy_bound_total, ...; all with the same keys."""
    flat: list[dict[str, Any]] = [{} for _ in table.rows]
    for column in table.columns:
        found = [column.record(row) for row in table.rows]
        parts = dict.fromkeys(part for record in found if _has_parts(column, record) for part in record)
        for each, record in zip(flat, found, strict=True):
            if parts:
                each |= {column.flat_key(part): None if record is None else record[part] for part in parts}
            else:
                each[column.flat_key()] = record
    return flat


def _has_parts(column: Column, record: Any) -> bool:
    return column.group in ("measurements", "privacy") and isinstance(record, dict)


def to_csv(table: ResultTable) -> str:
    """A line for each row of the table; empty where there is no number."""

    def written(value: Any) -> Any:
        if value is None or (isinstance(value, float) and math.isnan(value)):
            return ""
        return in_words(value) if isinstance(value, list | dict) else value

    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    rows = records(table)
    writer.writerow(map(_no_formula, rows[0] if rows else ()))
    writer.writerows([_no_formula(written(value)) for value in row.values()] for row in rows)
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
_LETTERS = ("alpha", "beta", "gamma", "delta", "eta", "theta", "lambda", "mu", "rho", "sigma", "tau", "omega")
SYMBOLS = {name: rf"\{name}" for name in _LETTERS} | {"epsilon": r"\varepsilon", "noise_std": r"\sigma"}
SYMBOLS |= {"P(t)": "P(t)", "t": "t", "C": "C"}


def to_latex(table: ResultTable, caption: str = "", label: str = "") -> str:
    """A table environment with numbers as mathematics; it needs the package booktabs."""
    kinds = ["l" if column.is_text else "r" for column in table.columns]
    rows = [
        [_escaped(cell) if column.is_text else _numbers(cell) for cell, column in zip(row, table.columns, strict=True)]
        for row in table.cells()
    ]
    words = _escaped(caption) if caption else _sentences(table.footnotes())
    lines = [
        r"% \usepackage{booktabs}",
        r"\begin{table}",
        r"\centering",
        rf"\caption{{{words}}}",
        rf"\label{{{re.sub(r'[^A-Za-z0-9:._-]+', '-', label or 'tab:results')}}}",
        rf"\begin{{tabular}}{{{''.join(kinds)}}}",
        r"\toprule",
        " & ".join(map(_heading, table.header)) + r" \\",
        r"\midrule",
        *(" & ".join(row) + r" \\" for row in rows),
        r"\bottomrule",
        r"\end{tabular}",
        r"\end{table}",
    ]
    return "\n".join(lines)


def _sentences(footnotes: Sequence[str]) -> str:
    """The footnotes as a caption; what could not run has its sentence in the other forms."""
    words = [words for words in footnotes if not words.startswith("infeasible, ")]
    text = " ".join(f"{_escaped(part[:1].upper() + part[1:])}." for part in ["last recorded values", *words])
    return re.sub(r"\bt = (\d+)", r"$t = \1$", text)


def _heading(title: str) -> str:
    """With Greek letters where they are meant: alpha, epsilon sound, eta=0.5."""
    if (at := re.fullmatch(r"(.*?)([\w.]+)=([^=]+)", title)) is not None and _symbol(at[2]) is not None:
        return f"{_escaped(at[1])}${_symbol(at[2])} = {_escaped(at[3])}$"
    words = title.split(" ")
    return " ".join(_escaped(word) if (sign := _symbol(word)) is None else f"${sign}$" for word in words)


def _symbol(word: str) -> str | None:
    return SYMBOLS.get(word.split(".")[-1])


def _escaped(text: str) -> str:
    return "".join(_LATEX.get(character, character) for character in brief(text))


_NUMBER = r"-?(?:\d+\.?\d*(?:e[+-]\d+)?|inf)"


def _numbers(cell: str) -> str:
    """A number, with what is behind ±, as mathematics; 1e-05 as a power of ten; nothing as a dash."""
    if cell == NOTHING:
        return "--"
    found = re.fullmatch(rf"({_NUMBER})(?: ±({_NUMBER}))?( not proven)?", cell)
    if found is None:
        return _escaped(cell)
    mean, half, mark = found.groups()
    spread = "" if half is None else rf" \pm {_mathematics(half)}"
    return f"${_mathematics(mean)}{spread}${mark or ''}"


def _mathematics(number: str) -> str:
    mantissa, _, exponent = number.replace("inf", r"\infty").partition("e")
    if not exponent:
        return mantissa
    power = f"10^{{{int(exponent)}}}"
    return power if mantissa == "1" else rf"{mantissa} \times {power}"
