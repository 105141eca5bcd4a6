"""Tables of results: which columns, in which order, turned, and set for a terminal of some width."""

import shutil
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from dpadmm_mpi.errors import InputError
from dpadmm_mpi.reports.columns import (
    NOTHING,
    UNCERTAINTIES,
    Column,
    Measured,
    Named,
    Row,
    Setting,
    Total,
    columns_of,
    find_column,
    in_words,
)
from dpadmm_mpi.showing import brief, printable, sentence, shortened
from dpadmm_mpi.storage.infeasible import Infeasible

NAME_WIDTHS = (24, 20, 16)  # of lines that long names take: the first that leaves least out
NAME_LETTERS = 60  # of a long name altogether
FIRST = ("test_error", "mean_squared_error", "epsilon", "delta", "epsilon_sound", "loss")  # what stays where room is short
SAID_ONCE = ("status", "iteration", "runs")  # below the table, where they are the same in all rows


class Wish(NamedTuple):
    """What is asked of a table."""

    columns: Sequence[str] = ()  # none: the usual ones; "all"
    sort: Sequence[str] = ()  # a minus in front: from the largest on
    pivot: Sequence[str] = ()  # whose values become rows, and last whose values become columns
    uncertainty: str = "standard-error"


USUAL = Wish()


@dataclass(frozen=True, eq=False)
class Across(Column):
    """What a column says at one value of a setting, in a table that is turned."""

    of: Column
    title: str
    key: str
    there: Mapping[int, Row]  # the row at this value, by the id of the row that stands for all of them

    @property
    def group(self) -> str:  # type: ignore[override]
        return self.of.group

    def value(self, row: Row) -> Any:
        return self.of.value(self.there[id(row)]) if id(row) in self.there else None

    def cell(self, row: Row, uncertainty: str) -> str:
        found = self.there.get(id(row))
        if found is None:
            return NOTHING
        return "infeasible" if isinstance(found, Infeasible) else self.of.cell(found, uncertainty)

    def record(self, row: Row) -> Any:
        return self.of.record(self.there[id(row)]) if id(row) in self.there else None

    def flat_key(self, part: str = "") -> str:
        return self.of.flat_key(part) + self.key.removeprefix(self.of.key)


@dataclass(frozen=True)
class ResultTable:
    """Rows, and the columns that are shown of them."""

    rows: tuple[Row, ...]
    columns: tuple[Column, ...]
    everything: tuple[Row, ...]  # in a table that is turned more than rows
    uncertainty: str
    chosen: bool  # whether somebody has asked for these columns
    turned: str = ""  # what the table shows at each value of what, in words

    @property
    def header(self) -> list[str]:
        return [printable(column.title) for column in self.columns]

    def cells(self, columns: Sequence[Column] | None = None) -> list[list[str]]:
        """All cells, row by row."""
        return [
            [printable(column.cell(row, self.uncertainty)) for column in (self.columns if columns is None else columns)]
            for row in self.rows
        ]

    @property
    def has_uncertainty(self) -> bool:
        return any("±" in cell for row in self.cells() for cell in row)

    def footnotes(self) -> list[str]:
        """What is the same in all rows, what ± means, and why rows are empty."""
        lines = [self._said_once()]
        if self.turned:
            lines.append(self.turned)
        if self.has_uncertainty:
            lines.append(f"±: {UNCERTAINTIES[self.uncertainty].words}")
        return [line for line in lines if line] + self.reasons()

    def reasons(self) -> list[str]:
        return [
            f"infeasible, {brief(row.name)}: {sentence(row.reason)}" for row in self.everything if isinstance(row, Infeasible)
        ]

    def _said_once(self) -> str:
        """What a column less says."""
        if not self.everything:
            return ""
        count, each = len(self.everything), " each" if len(self.everything) > 1 else ""
        there = {column.key: column for column in columns_of(self.everything)}
        shown = {column.key for column in self.columns}
        parts = [f"{count} configurations"] if count > 1 else []
        for key, words in (("name", "{}"), ("status", "{}"), ("iteration", "t = {}"), ("runs", "{} runs" + each)):
            cells = _said(there[key], self.everything)
            if key not in shown and len(cells) == 1 and not (self.turned and key == "name"):
                parts.append(f"1 run{each}" if (key, cells) == ("runs", {"1"}) else words.format(*cells))
        return ", ".join(parts)


def table_of(rows: Sequence[Row], wish: Wish = USUAL) -> ResultTable:
    """The table that somebody wishes for; InputError names the option and the column that is not there."""
    if wish.uncertainty not in UNCERTAINTIES:
        raise InputError(f'--uncertainty: found "{wish.uncertainty}"; it must be one of {", ".join(UNCERTAINTIES)}')
    there, rows = columns_of(rows), tuple(rows)
    for word in reversed(wish.sort):
        rows = _sorted(rows, find_column(word.removeprefix("-"), there, rows, "--sort"), word.startswith("-"))
    chosen = _chosen(wish.columns, there, rows)
    if wish.pivot:
        return _turned(rows, there, chosen, wish)
    return ResultTable(rows, chosen or tuple(_usual(there, rows)), rows, wish.uncertainty, bool(chosen))


def everything_of(rows: Sequence[Row], wish: Wish = USUAL) -> ResultTable:
    """The table for programs: unless some columns are asked for, all of them."""
    return table_of(rows, wish if wish.columns or wish.pivot else wish._replace(columns=("all",)))


def _chosen(words: Sequence[str], there: Sequence[Column], rows: Sequence[Row]) -> tuple[Column, ...]:
    found: list[Column] = []
    for word in words:
        if word == "all":
            found += there
        elif word == "settings":
            found += [column for column in there if isinstance(column, Setting)]
        else:
            found.append(find_column(word, there, rows, "--columns"))
    return tuple(dict.fromkeys(found))


def _usual(there: Sequence[Column], rows: Sequence[Row]) -> list[Column]:
    """What a person wants to see: no column that is empty, and none that says the same in every row."""
    columns = []
    for column in there:
        cells = _said(column, rows)
        if column.usual and cells and not (len(cells) == 1 and column.key in SAID_ONCE):
            columns.append(column)
    swept = any(isinstance(column, Setting) and column.swept for column in columns)
    if swept and len({columns[0].cell(row, "none") for row in rows}) == 1 and isinstance(columns[0], Named):
        return columns[1:]  # one sweep, whose settings tell the rows apart
    return columns


def _said(column: Column, rows: Sequence[Row]) -> set[str]:
    """The different cells of a column, without empty ones."""
    return {column.cell(row, "none") for row in rows} - {NOTHING}


def _sorted(rows: tuple[Row, ...], column: Column, descending: bool) -> tuple[Row, ...]:
    """By numbers, then by texts; rows without a value stay at the end."""
    values = {id(row): column.value(row) for row in rows}
    missing = {key for key, value in values.items() if value is None or value != value}
    there = sorted((row for row in rows if id(row) not in missing), key=lambda row: _order(values[id(row)]), reverse=descending)
    return (*there, *(row for row in rows if id(row) in missing))


def _order(value: Any) -> tuple[bool, float, str]:
    is_number = isinstance(value, int | float)
    return (not is_number, float(value) if is_number else 0.0, "" if is_number else in_words(value))


def _turned(rows: tuple[Row, ...], there: Sequence[Column], chosen: tuple[Column, ...], wish: Wish) -> ResultTable:
    """A row for each value of some settings, a column for each value of the last one."""
    *down_words, across_word = wish.pivot
    across = find_column(across_word, there, rows, "--pivot")
    down = [find_column(word, there, rows, "--pivot") for word in down_words]
    if not down:
        usual = _usual(there, rows)
        down = [c for c in usual if (isinstance(c, Setting | Named) or c.key == "method") and c.key != across.key]
    shown = [column for column in chosen if column not in (across, *down)] or [_best(there)]
    groups: dict[tuple[str, ...], dict[str, Row]] = {}
    for row in rows:
        place = tuple(column.cell(row, "none") for column in down)
        value = across.cell(row, "none")
        if value in groups.setdefault(place, {}):
            at = ", ".join(f"{column.title} = {cell}" for column, cell in zip(down, place, strict=True))
            raise InputError(
                f"--pivot: two files have {across.title} = {value}{f' and {at}' if at else ''}; name what tells them apart "
                f"too, as in --pivot NAME,{across_word}"
            )
        groups[place][value] = row
    stand_for = [next(iter(group.values())) for group in groups.values()]
    values = sorted({(_order(across.value(row)), across.cell(row, "none")) for row in rows})
    columns = list(down)
    for column in shown:
        for _, value in values:
            there_at = {id(first): g[value] for first, g in zip(stand_for, groups.values(), strict=True) if value in g}
            said = f"{across.title}={value}"
            title = said if len(shown) == 1 else f"{column.title}, {said}"
            columns.append(Across(column, title, f"{column.key}, {across.key}={value}", there_at))
    words = f"{' and '.join(column.title for column in shown)}, at each {across.title}"
    return ResultTable(tuple(stand_for), tuple(columns), rows, wish.uncertainty, True, words)


def _best(there: Sequence[Column]) -> Column:
    """What a table shows of which nothing is said."""
    by_key = {column.key: column for column in there if isinstance(column, Measured)}
    return next((by_key[key] for key in FIRST if key in by_key), there[0])


# On a terminal


def terminal_width() -> int:
    """Of the terminal, or as COLUMNS says; 80 where there is none."""
    return shutil.get_terminal_size((80, 24)).columns


def text_of(table: ResultTable, width: int | None = None) -> str:
    """The table with its footnotes, no line of the table wider than the terminal.

    Columns that somebody has asked for go below each other where there is no room beside each other; of the usual ones the
    less important are left out, which is said.
    """
    width = terminal_width() if width is None else width
    tried = [(of_names, *_blocks(table, width, of_names)) for of_names in NAME_WIDTHS]
    of_names, blocks, left_out = min(tried, key=lambda each: len(each[1]) + len(each[2]))
    lines = ["\n\n".join(_block(table, block, of_names) for block in blocks)]
    if left_out:
        names = ", ".join(column.title for column in left_out)
        lines += wrapped(f"left out, for {width} columns: {names} (--columns all shows them)", width)
    for words in table.footnotes():
        lines += wrapped(words, width)
    return "\n".join(lines)


def wrapped(words: str, width: int | None = None) -> list[str]:
    """A sentence in lines of a terminal's width."""
    width = terminal_width() if width is None else width
    return textwrap.wrap(printable(words), max(width, 20), subsequent_indent="  ", break_on_hyphens=False) or [""]


def _blocks(table: ResultTable, width: int, of_names: int) -> tuple[list[list[Column]], list[Column]]:
    """Columns that fit beside each other, and those for which there is no room."""
    widths = {id(column): _width(table, column, of_names) for column in table.columns}

    def total(columns: Sequence[Column]) -> int:
        return sum(widths[id(column)] + 2 for column in columns) - 2

    if total(table.columns) <= width:
        return [list(table.columns)], []
    first, *rest = table.columns
    if table.chosen:
        blocks = [[first]]
        for column in rest:
            if total([*blocks[-1], column]) > width and len(blocks[-1]) > 1:
                blocks.append([first])
            blocks[-1].append(column)
        return blocks, []
    kept = [first]
    recorded = {_name(metric) for row in table.rows for metric in row.settings.get("record.metrics", ())}
    for column in sorted(rest, key=lambda column: 1 if column.key in recorded else _importance(column)):
        if total([*kept, column]) <= width:
            kept.append(column)
    return [[column for column in table.columns if column in kept]], [column for column in rest if column not in kept]


def _name(metric: str | dict[str, Any]) -> str:
    """Of a metric in record.metrics, a name or a table."""
    return metric if isinstance(metric, str) else str(metric.get("metric"))


def _importance(column: Column) -> int:
    if isinstance(column, Setting):
        return 0 if column.swept else 23
    if column.key == "status":
        return 1
    if column.key in FIRST:
        return 2 + FIRST.index(column.key)
    return 19 if column.key == "method" else 20 if isinstance(column, Total) else 21 if isinstance(column, Measured) else 22


def _width(table: ResultTable, column: Column, of_names: int) -> int:
    longest = max(len(column.title), *(len(cell) for [cell] in table.cells([column]))) if table.rows else len(column.title)
    return min(longest, of_names) if column.is_text else longest


def _block(table: ResultTable, columns: Sequence[Column], of_names: int) -> str:
    """Some columns as aligned text; long names take several lines."""
    widths = [_width(table, column, of_names) for column in columns]
    lines = []
    for row in [[printable(column.title) for column in columns], *table.cells(columns)]:
        parts = [
            _in_lines(cell, width) if column.is_text else [cell.rjust(width)]
            for cell, width, column in zip(row, widths, columns, strict=True)
        ]
        for k in range(max(map(len, parts))):
            cells = [part[k] if k < len(part) else "" for part in parts]
            lines.append("  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip())
    return "\n".join(lines)


def _in_lines(cell: str, width: int) -> list[str]:
    """A name in lines of a width; the middle of a very long one is left out."""
    if len(cell) <= width:
        return [cell]
    return textwrap.wrap(shortened(cell, max(NAME_LETTERS, width)), width, break_on_hyphens=False)


def results_table(rows: Sequence[Row], wish: Wish = USUAL, width: int | None = None) -> str:
    """Last recorded values with their footnotes, as text."""
    return text_of(table_of(rows, wish), width)
