"""Making a figure: results, pictures, the table behind them, verdicts; and the page about all of them."""

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dpadmm_mpi.errors import InputError
from dpadmm_mpi.reproduce.catalogue import CATALOGUE
from dpadmm_mpi.reproduce.claims import Claim, Results
from dpadmm_mpi.reproduce.drawing import draw
from dpadmm_mpi.reproduce.figures import Figure
from dpadmm_mpi.reproduce.pictures import write_table
from dpadmm_mpi.reproduce.running import results_of, results_of_variation

Verdicts = list[dict[str, Any]]


def make(figure: Figure, folder: Path, quick: bool, vary: bool) -> dict[str, Any]:
    """Run what is missing, draw, judge; everything about the figure is written into `folder`."""
    begin = time.perf_counter()
    folder.mkdir(parents=True, exist_ok=True)
    config = configuration(figure.name)
    results = results_of(config, folder / "data" / _work(figure, quick), figure.quick if quick else ())
    for ending in ("png", "svg"):
        draw(figure, results, folder / f"{figure.name}.{ending}")
    write_table(figure.panels, results, folder / f"{figure.name}.csv")
    report: dict[str, Any] = {
        "name": figure.name,
        "title": figure.title,
        "says": figure.says,
        "remark": figure.remark,
        "quick": quick,
        "claims": judge(figure.claims, results),
        "variations": [],
        "compute_seconds": sum(float(result.attributes["timing"]["seconds"]) for result in results.values()),
    }
    if vary:
        place = folder / "data" / f"{figure.name}-variations"
        for variation in figure.variations:
            varied = results_of_variation(config, place, (*figure.quick, *variation.overrides), variation.of_some)
            held = [verdict["holds"] for verdict in judge(figure.claims, varied)]
            report["variations"].append({"text": variation.text, "holds": held})
    report["seconds"] = time.perf_counter() - begin
    (folder / f"{figure.name}.json").write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    return report


def judge(claims: Sequence[Claim], results: Results) -> Verdicts:
    verdicts = []
    for claim in claims:
        verdict = claim.test(results)
        verdicts.append({"claim": claim.text, "holds": bool(verdict.holds), "numbers": verdict.numbers})
    return verdicts


def configuration(name: str) -> Path:
    """The figure's TOML file; packaged, or in a source tree the one beside the package."""
    package = Path(__file__).parent.parent
    for folder in (package / "configs", package.parent / "configs"):
        if (path := folder / f"{name}.toml").exists():
            return path
    raise InputError(f"the configuration {name}.toml is missing from this installation; install dpadmm-mpi again")


def _work(figure: Figure, quick: bool) -> str:
    return f"{figure.name}-quick" if quick else figure.name


def verdict_lines(report: dict[str, Any]) -> list[str]:
    lines = [f"{report['name']}: {report['title']}"]
    for verdict in report["claims"]:
        word = "holds         " if verdict["holds"] else "DOES NOT HOLD "
        lines += [f"  {word} {verdict['claim']}", f"                 {verdict['numbers']}"]
    for variation in report["variations"]:
        lines.append(f"  with {variation['text']}: {sum(variation['holds'])} of {len(variation['holds'])} claims hold (quick)")
    return lines


def write_page(folder: Path) -> None:
    """README.md in `folder`: a section for every figure that has been made there."""
    reports = [json.loads(path.read_text(encoding="utf-8")) for path in _reports(folder)]
    if not reports:
        return
    lines = [
        "# The papers' figures, redone",
        "",
        "Written by `dpadmm reproduce all`. Every section has the picture, what the paper says, whether it holds here and with",
        "which numbers (last iteration, mean over the runs). `NAME.csv` holds what is drawn, `NAME.json` the verdicts. Seconds",
        "are the sum over all runs of a figure on one core each.",
        "",
        "| figure | claims that hold | seconds |",
        "|---|---|---|",
    ]
    for report in reports:
        held = sum(verdict["holds"] for verdict in report["claims"])
        quick = ", quick version" if report["quick"] else ""
        anchor = f"[{report['title']}](#{report['name']})"
        lines.append(f"| {anchor}{quick} | {held} of {len(report['claims'])} | {report['compute_seconds']:.0f} |")
    for report in reports:
        lines += ["", *_section(report)]
    (folder / "README.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


def _reports(folder: Path) -> list[Path]:
    return [path for name in CATALOGUE if (path := folder / f"{name}.json").exists()]


def _section(report: dict[str, Any]) -> list[str]:
    name = report["name"]
    command = f"dpadmm reproduce {name}" + (" --quick" if report["quick"] else "")
    lines = [
        f'<a id="{name}"></a>',
        f"## {report['title']}",
        "",
        f"![{report['title']}]({name}.png)",
        "",
        f"`{command}` with [configs/{name}.toml](../configs/{name}.toml); [what is drawn]({name}.csv), [SVG]({name}.svg).",
        "",
        f"The paper: {report['says']}",
        "",
        "| claim | here | numbers |",
        "|---|---|---|",
    ]
    for verdict in report["claims"]:
        lines.append(f"| {verdict['claim']} | {'holds' if verdict['holds'] else '**does not hold**'} | {verdict['numbers']} |")
    if report["remark"]:
        lines += ["", report["remark"]]
    if report["variations"]:
        lines += ["", "Does it depend on what the paper leaves open? The quick version with other choices:", ""]
        lines += ["| choice | " + " | ".join(str(k + 1) for k in range(len(report["claims"]))) + " |"]
        lines += ["|---" * (len(report["claims"]) + 1) + "|"]
        for variation in report["variations"]:
            marks = " | ".join("yes" if holds else "no" for holds in variation["holds"])
            lines.append(f"| {variation['text']} | {marks} |")
        lines += ["", "(columns: the claims above, in order)"]
    return lines
