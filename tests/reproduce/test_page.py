"""The page: a table first, the kinds of claims apart, and nothing too long to read."""

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from dpadmm_mpi.reproduce import making, page
from dpadmm_mpi.reproduce.catalogue import CATALOGUE


def claim(kind: str, verdict: str, says: str = "so it is") -> dict[str, Any]:
    paper = {"place": "[R] V, Fig. 9", "quote": "we see that it is so"} if kind == "paper" else {"place": "", "quote": ""}
    numbers = {"test": "loss", "runs": 10, "interval": [0.1, 0.2], "measured": "a < b: 1 and 2", "note": ""}
    return {"kind": kind, "verdict": verdict, "says": says, **paper, **numbers}


@pytest.fixture
def made(tmp_path: Path) -> Path:
    names = list(CATALOGUE)
    claims = {
        names[1]: [
            claim("paper", "reproduced") | {"revised": "was stronger"},
            claim("paper", "not reproduced", "too good"),
            claim("ours", "does not hold"),
        ],
        names[0]: [claim("paper", "reproduced"), claim("paper", "cannot be judged"), claim("by construction", "holds")],
    }
    for name, some in claims.items():
        report = {"name": name, "title": f"Figure {name}", "remark": "", "quick": False, "runs": 10, "claims": some}
        varied = [{"text": "ring", "runs": 10, "verdicts": ["reproduced"] * 2 + ["holds"]}]
        report |= {"variations": varied, "compute_seconds": 12.0, "claims_sha256": "", "seconds": 1.0}
        (tmp_path / f"{name}.json").write_text(json.dumps(report))
    page.write_page(tmp_path)
    return tmp_path


def test_it_opens_with_a_table_of_the_kinds_apart(made: Path) -> None:
    lines = (made / "README.md").read_text().splitlines()
    papers = next(k for k, line in enumerate(lines) if line.startswith("| paper |"))
    assert papers < 6
    assert lines[papers] == "| paper | reproduced | direction only | not reproduced | cannot be judged | all |"
    assert lines[papers + 2 : papers + 4] == [
        "| [R] R-ADMM and MR-ADMM | 2 | 0 | 1 | 1 | 4 |",
        "| **all** | 2 | 0 | 1 | 1 | 4 |",
    ]
    assert "1 claims of this project, of which 0 hold, 1 do not, 0 cannot be judged" in lines[papers + 5]
    assert "1 that are true by construction" in lines[papers + 6]
    head = next(k for k, line in enumerate(lines) if line.startswith("| figure |"))
    assert lines[head].split(" | ")[1:7] == [
        "reproduced", "direction only", "not reproduced", "cannot be judged", "ours", "by construction",
    ]  # fmt: skip
    first, second = list(CATALOGUE)[:2]
    assert lines[head + 2] == f"| [Figure {first}](#{first}) | 1 |  |  | 1 |  | 1 of 1 | 10 | 12 |"
    assert lines[head + 3] == f"| [Figure {second}](#{second}) | 1 |  | 1 |  | 0 of 1 |  | 10 | 12 |"
    assert lines[head + 4] == "| **all** | 2 |  | 1 | 1 | 0 of 1 | 1 of 1 |  | 24 |"


def test_it_says_what_is_not_reproduced_and_what_changes(made: Path) -> None:
    text = (made / "README.md").read_text()
    before, _, after = text.partition("<a id=")
    second = list(CATALOGUE)[1]
    assert f"* [[R] V, Fig. 9](#{second}): too good" in before
    assert "all before the runs on this page" in before
    assert "1 of the 6 claims (1 of the papers') were changed after they had first been written" in before
    assert "| 1 | so it is. (*Revised*: was stronger.) | reproduced |" in after
    assert "“we see that it is so”" in after
    assert "| 2 | too good. | **not reproduced** |" in after
    assert "| ring | 10 | 1 of 3 | 2 reproduced; 3 holds |" in after


def test_counts_never_mix_kinds() -> None:
    some = [
        claim("paper", "reproduced"),
        claim("ours", "holds"),
        claim("ours", "cannot be judged"),
        claim("paper", "reproduced"),
    ]
    assert page.counts(some, "paper") == {"reproduced": 2}
    assert page.counts(some, "ours") == {"holds": 1, "cannot be judged": 1}
    assert page.counts(some, "by construction") == {}


def test_nothing_made_nothing_written(tmp_path: Path) -> None:
    page.write_page(tmp_path)
    assert not list(tmp_path.iterdir())


def test_the_quick_version_from_end_to_end(fetched: Any, tmp_path: Path) -> None:
    fetched("adult")
    name = "recycled-fig3"
    report = making.make(CATALOGUE[name], tmp_path, quick=True, vary=False)
    again = making.make(CATALOGUE[name], tmp_path, quick=True, vary=False)
    assert [one["verdict"] for one in report["claims"]] == [one["verdict"] for one in again["claims"]]
    assert len(report["claims"]) >= 6
    for one in json.loads((tmp_path / f"{name}.json").read_text())["claims"]:
        assert {"kind", "place", "quote", "test", "runs", "verdict", "interval"} <= one.keys()
    with (tmp_path / f"{name}-claims.csv").open() as file:
        assert {row["claim"] for row in csv.DictReader(file)} == {str(k + 1) for k in range(len(report["claims"]))}
    page.write_page(tmp_path)
    assert "quick version" in (tmp_path / "README.md").read_text()
    for ending in ("png", "svg", "csv"):
        assert (tmp_path / f"{name}.{ending}").stat().st_size > 100
