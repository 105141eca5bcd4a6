"""What a column of a table seems to be: a feature, or an id, a date, free text, a constant.

Nothing is decided here: a run warns, and `dpadmm data info` suggests.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dpadmm_mpi.data.records import Column, looks_like_dates
from dpadmm_mpi.types import Array

JUDGED = 100_000  # values of a column that are looked at
MANY = 100  # categories: each is a feature of its own, and noise comes with every feature
FEW_RECORDS = 20  # below, different values in all records are nothing strange
MOSTLY = 0.9  # of the values
WORDS = 4  # from so many in a value on, on average, it is a text that somebody wrote

_ID = re.compile(r"(^|[^a-z])(id|ids|uuid|guid|index|idx|key|nr|number|unnamed: \d+)$|^(id|uuid)[^a-z]|[a-z]I[dD]$")


@dataclass(frozen=True)
class Judgement:
    """`kind` is number, category, constant, id, date, text or many; the last five are perhaps no features."""

    kind: str
    distinct: int | None  # None: not counted, because numbers with decimals are none of these
    words: str = ""  # a doubt

    @property
    def is_doubtful(self) -> bool:
        return bool(self.words)


def judge(column: Column) -> Judgement:
    """From the first JUDGED values."""
    values = column.values[:JUDGED]
    present = values[~column.missing[:JUDGED]]
    if not column.is_text:
        return _judge_numbers(column.name, present)
    distinct = len(np.unique(present))
    if distinct < 2:
        return Judgement("constant", distinct, "has the same value in all records")
    if looks_like_dates(column):
        return Judgement("date", distinct, "holds dates")
    if len(present) >= FEW_RECORDS and distinct > MOSTLY * len(present):
        if np.char.count(present, " ").mean() >= WORDS - 1:
            return Judgement("text", distinct, "holds free text")
        return Judgement("id", distinct, "is another one in nearly every record, as an id is")
    if distinct > MANY:
        return Judgement("many", distinct, f"has {distinct} categories, each of which one-hot makes a feature of")
    return Judgement("category", distinct)


def _judge_numbers(name: str, present: Array) -> Judgement:
    if not len(present) or present.min() == present.max():
        return Judgement("constant", min(1, len(present)), "has the same value in all records")
    if not np.array_equal(present, np.rint(present)):
        return Judgement("number", None)
    distinct = len(np.unique(present))
    named = bool(_ID.search(name) or _ID.search(name.lower()))
    if len(present) >= FEW_RECORDS and (distinct == len(present) or (named and distinct > MOSTLY * len(present))):
        return Judgement("id", distinct, "is another whole number in nearly every record, as an id or an index is")
    return Judgement("number", distinct)


def doubts(columns: Sequence[Column]) -> list[str]:
    """A sentence for each column that is perhaps no feature."""
    found = []
    for column in columns:
        judgement = judge(column)
        if judgement.is_doubtful:
            found.append(
                f'column "{column.name}" {judgement.words}; if it is no feature, drop it with data.drop = ["{column.name}"]'
            )
    return found
