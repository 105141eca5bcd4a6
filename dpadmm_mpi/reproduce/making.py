"""Making a figure: results, pictures, the tables behind them, verdicts."""

import csv
import hashlib
import json
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from dpadmm_mpi.errors import InputError
from dpadmm_mpi.files import exists, make_folder
from dpadmm_mpi.reproduce.attacks import with_attacks
from dpadmm_mpi.reproduce.claim_files import read_claims
from dpadmm_mpi.reproduce.claims import Claim, Judgement, judge
from dpadmm_mpi.reproduce.drawing import draw
from dpadmm_mpi.reproduce.figures import Figure
from dpadmm_mpi.reproduce.pictures import write_table
from dpadmm_mpi.reproduce.predicates import TestOutcome
from dpadmm_mpi.reproduce.quantities import Results
from dpadmm_mpi.reproduce.reported import with_reported
from dpadmm_mpi.reproduce.running import results_of, results_of_variation
from dpadmm_mpi.storage.result import Result


def make(figure: Figure, folder: Path, quick: bool, vary: bool) -> dict[str, Any]:
    """Run what is missing, draw, judge; everything about the figure is written into `folder`."""
    begin = time.perf_counter()
    make_folder(folder)
    config, written_down = configuration(figure.name), configuration(f"claims/{figure.name}")
    claims = read_claims(written_down)
    results = _measured(figure, results_of(config, folder / "data" / _work(figure, quick), figure.quick if quick else ()))
    for ending in ("png", "svg"):
        draw(figure, results, folder / f"{figure.name}.{ending}")
    write_table(figure.panels, results, folder / f"{figure.name}.csv")
    judgements = judge(claims, results)
    _write_evidence(judgements, folder / f"{figure.name}-claims.csv")
    report: dict[str, Any] = {
        "name": figure.name,
        "title": figure.title,
        "remark": figure.remark,
        "quick": quick,
        "runs": _most_runs(results),
        "claims_sha256": hashlib.sha256(written_down.read_bytes()).hexdigest(),
        "claims": [_entry(judgement) for judgement in judgements],
        "variations": _vary(figure, claims, config, folder) if vary else [],
        "compute_seconds": sum(float(result.attributes["timing"]["seconds"]) for result in results.values()),
        "seconds": time.perf_counter() - begin,
    }
    (folder / f"{figure.name}.json").write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    return report


def _measured(figure: Figure, results: Results) -> dict[str, Result]:
    """With what is found from the recorded arrays."""
    return with_reported(with_attacks(results) if figure.attacked else results)


def _vary(figure: Figure, claims: Sequence[Claim], config: Path, folder: Path) -> list[dict[str, Any]]:
    place = folder / "data" / f"{figure.name}-variations"
    found = []
    for variation in figure.variations:
        varied = results_of_variation(config, place, (*figure.varied, *variation.overrides), variation.of_some)
        varied = _measured(figure, varied)
        verdicts = [judgement.verdict for judgement in judge(claims, varied)]
        found.append({"text": variation.text, "runs": _most_runs(varied), "verdicts": verdicts})
    return found


def _most_runs(results: Results) -> int:
    return max(len(result["run"]) for result in results.values())


def _entry(judgement: Judgement) -> dict[str, Any]:
    """A judgement for JSON."""
    claim, deciding = judgement.claim, judgement.strong.deciding.interval
    return {
        "kind": claim.kind,
        "says": claim.says,
        "place": claim.place,
        "quote": claim.quote,
        "test": claim.words(),
        "runs": judgement.strong.runs,
        "verdict": judgement.verdict,
        "interval": [deciding.low, deciding.high] if deciding.runs != 1 else None,  # one run has none
        "measured": judgement.measured,
        "note": claim.note,
        "revised": claim.revised,
    }


def _write_evidence(judgements: Sequence[Judgement], target: Path) -> None:
    """Every comparison behind the verdicts, a row each."""
    with target.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        columns = ["claim", "kind", "verdict", "test", "comparison", "means", "difference", "low", "high", "runs", "outcome"]
        writer.writerow(columns)
        for number, judgement in enumerate(judgements, start=1):
            head = [number, judgement.claim.kind, judgement.verdict]
            _write_rows(writer, [*head, "as said"], judgement.strong)
            if judgement.weak:
                _write_rows(writer, [*head, "direction"], judgement.weak)


def _write_rows(writer: Any, head: list[Any], evidence: TestOutcome) -> None:
    for row in evidence.rows:
        numbers = asdict(row.interval)
        means = " ".join(f"{mean:.6g}" for mean in row.means)
        interval = [f"{numbers[key]:.6g}" for key in ("mean", "low", "high")]
        writer.writerow([*head, row.label, means, *interval, numbers["runs"], row.outcome.value])


def configuration(name: str) -> Path:
    """The TOML file of that name; packaged, or in a source tree the one beside the package."""
    package = Path(__file__).parent.parent
    for folder in (package / "configs", package.parent / "configs"):
        if exists(path := folder / f"{name}.toml"):
            return path
    raise InputError(f"the configuration {name}.toml is missing from this installation; install dpadmm-mpi again")


def _work(figure: Figure, quick: bool) -> str:
    return f"{figure.name}-quick" if quick else figure.name


def verdict_lines(report: dict[str, Any]) -> list[str]:
    lines = [f"{report['name']}: {report['title']}"]
    for claim in report["claims"]:
        lines += [f"  {claim['verdict']:<17} {claim['kind']}: {claim['says']}", f"{'':20}{claim['measured']}"]
    said = [claim["verdict"] for claim in report["claims"]]
    for variation in report["variations"]:
        same = sum(a == b for a, b in zip(said, variation["verdicts"], strict=True))
        lines.append(f"  with {variation['text']}: {same} of {len(said)} verdicts are the same")
    return lines
