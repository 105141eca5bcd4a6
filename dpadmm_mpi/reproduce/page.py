"""The page about all figures that have been made: a table of verdicts first, then a section for each figure."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from dpadmm_mpi.files import exists
from dpadmm_mpi.reproduce.catalogue import CATALOGUE
from dpadmm_mpi.reproduce.claims import FAILS, HOLDS, KINDS, NOT, OPEN, PAPER_VERDICTS, REPRODUCED, RULE

Report = dict[str, Any]
PAPERS = {
    "[M]": "M-ADMM and penalty perturbation",
    "[R]": "R-ADMM and MR-ADMM",
    "[Rs]": "the slides of [R]",
    "[S]": "PS-ADMM",
    "[C]": "DP-ADMM and DP-AccADMM",
}


def write_page(folder: Path) -> None:
    """README.md in `folder`."""
    reports = [json.loads(path.read_text(encoding="utf-8")) for path in _reports(folder)]
    if not reports:
        return
    lines = [*_opening(reports), *_not_reproduced(reports)]
    for report in reports:
        lines += ["", *_section(report)]
    (folder / "README.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


def _reports(folder: Path) -> list[Path]:
    return [path for name in CATALOGUE if exists(path := folder / f"{name}.json")]


def counts(claims: Iterable[dict[str, Any]], kind: str) -> dict[str, int]:
    """How many claims of a kind have each verdict."""
    found: dict[str, int] = {}
    for claim in claims:
        if claim["kind"] == kind:
            found[claim["verdict"]] = found.get(claim["verdict"], 0) + 1
    return found


def _opening(reports: Sequence[Report]) -> list[str]:
    everything = [claim for report in reports for claim in report["claims"]]
    seconds = sum(report["compute_seconds"] for report in reports)
    return [
        "# The papers' figures, redone",
        "",
        "What the five papers say about their experiments, in their own words, and whether it comes out here.",
        "",
        *_by_paper(everything),
        "",
        *_apart(everything),
        "",
        "## By figure",
        "",
        "| figure | " + " | ".join(PAPER_VERDICTS) + " | ours | by construction | runs | seconds |",
        "|---|" + "---|" * (len(PAPER_VERDICTS) + 4),
        *(_row(f"[{report['title']}](#{report['name']}){_quick(report)}", report) for report in reports),
        _row("**all**", {"claims": everything, "runs": "", "compute_seconds": seconds}),
        "",
        "The first four columns count the papers' own claims, each quoted with its place; *ours* and *by construction* those",
        "that hold, of all. Seconds are the sum over all runs of a figure on one core each.",
        "",
        "## How it is judged",
        "",
        *RULE,
        "",
        "Claims, tests and sizes are written down in `configs/claims/NAME.toml`, the runs and every choice that a paper",
        "leaves open in `configs/NAME.toml`, all before the runs on this page. They were not written blindly: an earlier",
        "version of this page, with fewer runs, was known, and so were quick versions of some figures.",
        *_revised(everything),
        "`NAME.json` has the checksum of the claims, `NAME-claims.csv` every comparison behind a verdict, `NAME.csv` what is",
        "drawn. Written by `dpadmm reproduce all`; the papers are in the [README](../README.md#sources).",
    ]


def _by_paper(claims: Sequence[dict[str, Any]]) -> list[str]:
    """The papers' own claims, a row for each paper."""
    head = ["| paper | " + " | ".join(PAPER_VERDICTS) + " | all |", "|---|" + "---|" * (len(PAPER_VERDICTS) + 1)]
    rows = []
    for short, name in PAPERS.items():
        of_paper = [claim for claim in claims if claim["place"].split(" ")[0] == short]
        if any(claim["kind"] == "paper" for claim in of_paper):
            rows.append(_count_row(f"{short} {name}", of_paper))
    return [*head, *rows, _count_row("**all**", claims)]


def _count_row(title: str, claims: Sequence[dict[str, Any]]) -> str:
    found = counts(claims, "paper")
    return f"| {title} | {' | '.join(str(found.get(verdict, 0)) for verdict in PAPER_VERDICTS)} | {sum(found.values())} |"


def _apart(claims: Sequence[dict[str, Any]]) -> list[str]:
    """What does not count for a paper."""
    ours, made = (counts(claims, kind) for kind in KINDS[1:])
    return [
        f"Not among these: {sum(ours.values())} claims of this project, of which {ours.get(HOLDS, 0)} hold, "
        f"{ours.get(FAILS, 0)} do not, {ours.get(OPEN, 0)} cannot be judged;",
        f"and {sum(made.values())} that are true by construction, from how the runs are set up or a number is defined, and "
        f"show nothing ({made.get(HOLDS, 0)} hold).",
    ]


def _revised(claims: Sequence[dict[str, Any]]) -> list[str]:
    """Claims that were changed later; older reports do not say it."""
    changed = [claim for claim in claims if claim.get("revised")]
    if not changed:
        return []
    papers = sum(claim["kind"] == "paper" for claim in changed)
    return [
        f"{len(changed)} of the {len(claims)} claims ({papers} of the papers') were changed after they had first been written "
        "down, with such results known; they say how.",
    ]


def _quick(report: Report) -> str:
    return ", quick version" if report["quick"] else ""


def _row(title: str, report: Report) -> str:
    paper = counts(report["claims"], "paper")
    cells = [str(paper.get(verdict, "")) for verdict in PAPER_VERDICTS]
    for kind in KINDS[1:]:
        found = counts(report["claims"], kind)
        cells.append(f"{found.get(HOLDS, 0)} of {sum(found.values())}" if found else "")
    return f"| {title} | {' | '.join(cells)} | {report['runs']} | {report['compute_seconds']:.0f} |"


def _not_reproduced(reports: Sequence[Report]) -> list[str]:
    """The papers' claims that did not come out, to be seen at once."""
    lines = [
        f"* [{claim['place']}](#{report['name']}): {claim['says']}"
        for report in reports
        for claim in report["claims"]
        if claim["kind"] == "paper" and claim["verdict"] == NOT
    ]
    return ["", "## What is not reproduced", "", *lines] if lines else []


def _section(report: Report) -> list[str]:
    name = report["name"]
    command = f"dpadmm reproduce {name}" + (" --quick" if report["quick"] else "")
    lines = [
        f'<a id="{name}"></a>',
        f"## {report['title']}",
        "",
        f"![{report['title']}]({name}.png)",
        "",
        f"`{command}` with [the configuration](../configs/{name}.toml) and [the claims](../configs/claims/{name}.toml);",
        f"[what is drawn]({name}.csv), [all comparisons]({name}-claims.csv), [SVG]({name}.svg).",
    ]
    for kind in KINDS:
        lines += _claims_of_kind(report, kind)
    if report["remark"]:
        lines += ["", report["remark"]]
    if report["variations"]:
        lines += _variations(report)
    return lines


def _claims_of_kind(report: Report, kind: str) -> list[str]:
    chosen = [(number, claim) for number, claim in enumerate(report["claims"], start=1) if claim["kind"] == kind]
    if not chosen:
        return []
    title = {"paper": "What the paper says", "ours": "Ours", "by construction": "By construction"}[kind]
    lines = ["", f"**{title}**", ""]
    quotes = dict.fromkeys((claim["place"], claim["quote"]) for _, claim in chosen if claim["quote"])
    lines += [f"* {place}: “{quote}”" for place, quote in quotes]
    lines += ["", "| | claim | verdict | the comparison that decides |", "|---|---|---|---|"]
    for number, claim in chosen:
        note = f" {claim['note']}" if claim["note"] else ""
        if revised := claim.get("revised"):
            note += f" (*Revised*: {revised}.)"
        verdict = claim["verdict"] if claim["verdict"] in (REPRODUCED, HOLDS) else f"**{claim['verdict']}**"
        lines.append(f"| {number} | {claim['says']}.{note} | {verdict} | {_cell(claim['measured'])} |")
    return lines


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _variations(report: Report) -> list[str]:
    """Which verdicts change when an open choice is made otherwise."""
    said = [claim["verdict"] for claim in report["claims"]]
    lines = [
        "",
        "Does it depend on what the paper leaves open? The same claims, judged again with other choices:",
        "",
        "| choice | runs | the same verdict | the others |",
        "|---|---|---|---|",
    ]
    for variation in report["variations"]:
        both = list(enumerate(zip(said, variation["verdicts"], strict=True), start=1))
        changed = [f"{number} {verdict}" for number, (before, verdict) in both if verdict != before]
        same = f"{len(both) - len(changed)} of {len(both)}"
        lines.append(f"| {variation['text']} | {variation['runs']} | {same} | {'; '.join(changed)} |")
    return lines
