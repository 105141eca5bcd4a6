"""Claims, and the rule that turns a test over the runs into a verdict.

A claim is of one kind: *paper*, a sentence of a paper, quoted with its place and taken in its own strength; *ours*; or *by
construction*, which follows from how the runs are set up or a number is defined, and shows nothing. The kinds are never counted
together.

A claim has a test of what is said, in the strength in which it is said, and a paper's claim may have a second, weaker one: its
direction without its size. The rule:

* reproduced: the test says yes, every 95 % interval lies entirely on the claimed side, with the claimed size;
* direction only: it does not, but the weaker test says yes (for a test with a size `by` > 0: the same without the size);
* not reproduced: an interval lies entirely on the other side of what is claimed, size included, or of the weaker statement;
* cannot be judged: an interval includes the limit between both.

Of ours, and of what is by construction: holds, does not hold, cannot be judged, by the same test.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import msgspec

from dpadmm_mpi.reproduce.intervals import Outcome
from dpadmm_mpi.reproduce.predicates import AnyTest, Below, Row, TestOutcome
from dpadmm_mpi.reproduce.quantities import Results

Kind = Literal["paper", "ours", "by construction"]
KINDS: tuple[Kind, ...] = ("paper", "ours", "by construction")
REPRODUCED, DIRECTION, NOT, OPEN = "reproduced", "direction only", "not reproduced", "cannot be judged"
HOLDS, FAILS = "holds", "does not hold"
PAPER_VERDICTS = (REPRODUCED, DIRECTION, NOT, OPEN)
OTHER_VERDICTS = (HOLDS, FAILS, OPEN)


class Claim(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    kind: Kind
    says: str  # the claim as it is tested, in a line
    test: AnyTest
    weaker: AnyTest | None = None
    place: str = ""  # "[R] VIII.A, Fig. 1(a)"
    quote: str = ""  # the paper's own words
    note: str = ""  # why the verdict is what it is, where that is known
    revised: str = ""  # how it differs from what was written down first, before any results were seen

    def __post_init__(self) -> None:
        if self.kind == "paper" and not (self.place and self.quote):
            raise ValueError(f'the claim "{self.says}" is a paper\'s: it needs its place and a quote')
        if self.kind != "paper" and self.weaker:
            raise ValueError(f'the claim "{self.says}" is not a paper\'s: it says what it says, and needs no weaker test')

    @property
    def direction(self) -> AnyTest | None:
        """The weaker test: the one given, or the test without its size."""
        if self.weaker or self.kind != "paper":
            return self.weaker
        if isinstance(self.test, Below) and self.test.by > 0.0:
            return msgspec.structs.replace(self.test, by=0.0)
        return None

    def words(self) -> str:
        """The test, in words."""
        weaker = f"; direction: {self.direction.words()}" if self.direction else ""
        return self.test.words() + weaker


@dataclass(frozen=True)
class Judgement:
    claim: Claim
    verdict: str
    strong: TestOutcome
    weak: TestOutcome | None

    @property
    def measured(self) -> str:
        """The comparison that decides, in a line."""
        return described(self.strong.deciding)


def judge(claims: Sequence[Claim], results: Results) -> list[Judgement]:
    return [_judgement(claim, results) for claim in claims]


def _judgement(claim: Claim, results: Results) -> Judgement:
    strong = claim.test.evidence(results)
    weak = claim.direction.evidence(results) if claim.direction else None
    if claim.kind == "paper":
        verdict = verdict_of(strong.outcome, weak.outcome if weak else None)
    else:
        verdict = {Outcome.YES: HOLDS, Outcome.NO: FAILS, Outcome.OPEN: OPEN}[strong.outcome]
    return Judgement(claim, verdict, strong, weak)


def verdict_of(strong: Outcome, weak: Outcome | None) -> str:
    """The rule above."""
    if strong is Outcome.YES:
        return REPRODUCED
    if weak is Outcome.YES:
        return DIRECTION
    return NOT if Outcome.NO in (strong, weak) else OPEN


def described(row: Row) -> str:
    """A row with its means and its interval."""
    means = " and ".join(f"{mean:.4g}" for mean in row.means)
    here = row.interval
    if here.runs == 0:
        return f"{row.label}: {means}"
    if len(row.means) == 1:
        return f"{row.label}: {means} [{here.low:.3g}, {here.high:.3g}]"
    return f"{row.label}: {means}; {here.mean:.3g} [{here.low:.3g}, {here.high:.3g}]"


RULE = (
    "The rule: runs of one number share their start and their records, so curves are compared run by run, with the 95 %",
    "interval of the mean difference (Student's t). *Reproduced*: the interval lies entirely on the claimed side, with",
    "the claimed size (“significantly”, “much”: 10 % unless a claim says otherwise). *Direction only*: without the size,",
    "or only the weaker statement written beside the claim. *Not reproduced*: an interval lies entirely on the other side",
    "of what is claimed. *Cannot be judged*: an interval includes the limit between both; an effect may be there, these",
    "runs do not tell. Intervals are over noise and starts, on one graph and one split; other graphs and splits are among",
    "the variations. They are not corrected for the number of claims; a claim about many curves at once may say that it is.",
)
