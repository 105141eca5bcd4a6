"""Every predicate on hand-made results, for every verdict; the rule; the files that claims are written down in."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from reproduce.made_up import ends

from dpadmm_mpi.errors import InputError
from dpadmm_mpi.reproduce.claim_files import read_claims
from dpadmm_mpi.reproduce.claims import Claim, judge, verdict_of
from dpadmm_mpi.reproduce.intervals import Outcome
from dpadmm_mpi.reproduce.predicates import Within

RESULTS = {
    "one": ends(1.0, 1.01, 0.99, 1.0, bound=1.0),
    "little more": ends(1.02, 1.03, 1.02, 1.02, bound=1.00001),
    "two": ends(2.0, 2.01, 1.99, 2.0, bound=2.0),
    "three": ends(3.0, 3.0, 3.02, 3.01, bound=3.0),
    "wild": ends(-9.0, 11.0, 5.0, -3.0),
    "single": ends(2.0),
}
PAPER = {"kind": "paper", "says": "so", "place": "[R] V", "quote": "we see"}


def verdict(kind: str = "paper", weaker: dict[str, Any] | None = None, **test: Any) -> str:
    table = {**PAPER, "kind": kind, "test": test} | ({"weaker": weaker} if weaker else {})
    (found,) = judge([msgspec.convert(table, Claim)], RESULTS)
    assert any(digit in found.measured for digit in "123456789")
    return found.verdict


def below(low: str, high: str, **more: Any) -> dict[str, Any]:
    return {"is": "below", "low": [low], "high": [high], **more}


@pytest.mark.parametrize(
    ("test", "expected"),
    [
        (below("one", "two"), "reproduced"),
        (below("one", "two", by=0.5), "reproduced"),
        (below("one", "little more", by=0.1), "direction only"),  # lower, but not by the size
        (below("two", "one"), "not reproduced"),
        (below("two", "one", by=0.1), "not reproduced"),
        (below("one", "wild"), "cannot be judged"),
        (below("one", "wild", by=0.1), "cannot be judged"),
        (below("single", "single"), "cannot be judged"),  # a single run has no interval
        (below("little more", "one", by=-0.1), "reproduced"),  # at most so much above
        (below("one", "two", measure="privacy/bound"), "reproduced"),
        (below("two", "one", measure="privacy/bound"), "not reproduced"),
        (below("one", "one", measure="test_error", high_measure="loss"), "reproduced"),  # a tenth of it
        (below("one", "one", measure="loss", high_measure="test_error"), "not reproduced"),
        (below("one", "little more", measure="privacy/bound"), "cannot be judged"),  # the same: calibrated
        ({"is": "below", "low": ["one", "two"], "high": ["three", "two"]}, "cannot be judged"),  # two against itself
        ({"is": "below", "low": [["two", "one"]], "high": [["three", "one"]]}, "reproduced"),  # of differences
        ({"is": "rising", "order": ["one", "two", "three"]}, "reproduced"),
        ({"is": "rising", "order": ["one", "three", "two"]}, "not reproduced"),
        ({"is": "rising", "order": ["one", "two", "wild"]}, "cannot be judged"),
        ({"is": "alike", "names": ["one", "little more"], "within": 0.05}, "reproduced"),
        ({"is": "alike", "names": ["one", "two"], "within": 0.05}, "not reproduced"),
        ({"is": "alike", "names": ["two", "one"], "within": 0.05}, "not reproduced"),
        ({"is": "alike", "names": ["one", "wild"], "within": 0.05}, "cannot be judged"),
        ({"is": "alike", "names": ["one", "little more"], "within": 1e-4, "measure": "privacy/bound"}, "reproduced"),
        ({"is": "within", "names": ["one", "two"], "at_most": 2.1}, "reproduced"),
        ({"is": "within", "names": ["one", "two"], "at_most": 1.9}, "not reproduced"),
        ({"is": "within", "names": ["wild"], "at_most": 1.0}, "cannot be judged"),
        ({"is": "within", "names": ["two"], "at_least": 1.9}, "reproduced"),
        ({"is": "within", "names": ["one", "two"], "at_least": 1.9}, "not reproduced"),
        ({"is": "within", "names": ["two"], "at_most": 2.0, "measure": "privacy/bound"}, "reproduced"),  # met exactly
        ({"is": "none above", "names": ["t*", "wild"], "limit": 3.5}, "reproduced"),
        ({"is": "none above", "names": ["one", "t*"], "limit": 1.5}, "not reproduced"),
        ({"is": "none above", "names": ["wild", "single"], "limit": 0.0}, "reproduced"),  # above, but not significantly
        ({"is": "none above", "names": ["one"], "limit": 0.992}, "reproduced"),  # p = 0.07
        ({"is": "none above", "names": ["one"], "limit": 0.99}, "not reproduced"),  # p = 0.046, and by itself significant
        ({"is": "none above", "names": ["one", "wild"], "limit": 0.99}, "reproduced"),  # one of two: p has to be below 0.025
    ],
)
def test_a_predicate_decides(test: dict[str, Any], expected: str) -> None:
    assert verdict(**test) == expected


def test_the_weaker_statement_decides_on_the_direction() -> None:
    strong: dict[str, Any] = {"is": "rising", "order": ["one", "three", "two"]}
    assert verdict(**strong, weaker=below("one", "two")) == "direction only"
    assert verdict(**strong, weaker=below("two", "one")) == "not reproduced"
    assert verdict(**strong, weaker=below("one", "wild")) == "not reproduced"
    assert verdict(**below("one", "wild"), weaker=below("one", "wild", by=-0.1)) == "cannot be judged"
    assert verdict(**below("one", "wild"), weaker=below("two", "one")) == "not reproduced"


@pytest.mark.parametrize("kind", ["ours", "by construction"])
def test_what_no_paper_says_holds_or_does_not(kind: str) -> None:
    assert verdict(kind, **below("one", "two")) == "holds"
    assert verdict(kind, **below("two", "one")) == "does not hold"
    assert verdict(kind, **below("one", "little more", by=0.1)) == "does not hold"
    assert verdict(kind, **below("one", "wild")) == "cannot be judged"


def test_the_rule_for_all_outcomes() -> None:
    yes, no, open_ = Outcome.YES, Outcome.NO, Outcome.OPEN
    table = {(a, b): verdict_of(a, b) for a in (yes, no, open_) for b in (yes, no, open_, None)}
    assert {found for (a, _), found in table.items() if a is yes} == {"reproduced"}
    assert table[no, yes] == table[open_, yes] == "direction only"
    assert table[no, no] == table[no, open_] == table[no, None] == table[open_, no] == "not reproduced"
    assert table[open_, open_] == table[open_, None] == "cannot be judged"


def test_a_file_makes_claims_of_all_words(tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    path.write_text(
        "[[claim]]\n" + "\n".join(f'{key} = "{value}"' for key, value in PAPER.items()).replace('"so"', '"{a} on {d}"') + "\n"
        'test.is = "within"\ntest.names = ["x, {a}", ["y", "{d}"]]\ntest.at_most = "{a}"\n'
        'each.a = ["1", "2"]\neach.d = ["u", "v"]\n'
    )
    claims = read_claims(path)
    assert [claim.says for claim in claims] == ["1 on u", "1 on v", "2 on u", "2 on v"]
    test = claims[2].test
    assert isinstance(test, Within)
    assert test.names == ["x, 2", ["y", "u"]]
    assert test.at_most == 2.0
    listed = path.read_text().partition("each.a")[0] + 'each = [{ a = "1", d = "u" }, { a = "2", d = "v" }]\n'
    path.write_text(listed)
    assert [claim.says for claim in read_claims(path)] == ["1 on u", "2 on v"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"quote": ""}, "needs its place and a quote"),
        ({"place": ""}, "needs its place and a quote"),
        ({"kind": "theirs"}, "Invalid enum value 'theirs'"),
        ({"kind": "ours", "weaker": below("a", "b")}, "needs no weaker test"),
        ({"test": {"is": "above"}}, "above"),
        ({"test": below("a", "b", of="middle")}, 'found "middle"'),
        ({"test": {"is": "within", "names": ["a"]}}, "needs one of at_most and at_least"),
        ({"strength": "much"}, "strength"),
    ],
)
def test_a_claim_that_is_not_one_is_refused(change: dict[str, Any], message: str, tmp_path: Path) -> None:
    import tomli_w

    path = tmp_path / "c.toml"
    path.write_text(tomli_w.dumps({"claim": [{**PAPER, "test": below("a", "b")} | change]}))
    with pytest.raises(InputError, match=message):
        read_claims(path)


def test_a_file_without_claims_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    for text in ("", "claims = 3", "[[claim"):
        path.write_text(text)
        with pytest.raises(InputError, match=r"c\.toml"):
            read_claims(path)
