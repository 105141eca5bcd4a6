"""Tables and text as HTML."""

import html
from collections.abc import Sequence
from typing import Any

import numpy as np

from dpadmm_mpi.reports.result_tables import ResultTable
from dpadmm_mpi.showing import paragraph


def escape(text: object) -> str:
    """For HTML, with what is not printable written out, which a page may not hold."""
    return html.escape(paragraph(text))


def results_in_html(results: ResultTable) -> str:
    """A table of results with its footnotes, for a page or a notebook."""
    text = tuple(k for k, column in enumerate(results.columns) if column.is_text)
    notes = "".join(f'<p class="about">{escape(words)}</p>\n' for words in results.footnotes())
    return table(results.header, results.cells(), text) + notes


def listed(value: Any) -> str:
    return "; ".join(map(str, np.atleast_1d(value)))


def facts_table(facts: dict[str, str]) -> str:
    return table(None, [[key, value] for key, value in facts.items() if value], text=(0, 1))


def table(header: Sequence[str] | None, rows: Sequence[Sequence[str]], text: tuple[int, ...]) -> str:
    """An HTML table; the `text` columns to the left, numbers to the right."""

    def line(tag: str, cells: Sequence[str]) -> str:
        marks = [' class="text"' if k in text else "" if "±" in cell else ' class="short"' for k, cell in enumerate(cells)]
        return "<tr>" + "".join(f"<{tag}{m}>{escape(cell)}</{tag}>" for m, cell in zip(marks, cells, strict=True)) + "</tr>\n"

    head = f"<thead>{line('th', header)}</thead>\n" if header else ""
    return f'<div class="wide"><table>{head}<tbody>{"".join(line("td", row) for row in rows)}</tbody></table></div>\n'
