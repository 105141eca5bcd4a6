"""`dpadmm report`: one HTML page about results, for browsers and printers, that needs no other file and no network."""

import tomllib
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from dpadmm_mpi.plots import svg
from dpadmm_mpi.plots.curves import has_numbers
from dpadmm_mpi.plots.kinds import OverIterations, OverPrivacy, plots
from dpadmm_mpi.plots.request import Request
from dpadmm_mpi.reports.columns import NOTHING, differing_settings, in_words
from dpadmm_mpi.reports.file_sections import NO_NOISE, file_section, notes_section, privacy_section
from dpadmm_mpi.reports.markup import escape, facts_table, listed, results_in_html, table
from dpadmm_mpi.reports.meaning import is_without_noise
from dpadmm_mpi.reports.method_sections import methods_section, references_section
from dpadmm_mpi.reports.result_tables import table_of
from dpadmm_mpi.showing import brief, shortened
from dpadmm_mpi.storage.infeasible import Infeasible
from dpadmm_mpi.storage.result import Result, accounts, labels, last_row

BESIDE = 6  # columns of settings that stand beside each other
LONGEST = 60  # letters of a setting there
CAPTIONS = {
    "loss-privacy": "Mean loss against the privacy that was spent.",
    "error-privacy": "Test error against the privacy that was spent.",
    "objective": "Objective.",
    "objective-gap": "Objective above that of the optimum.",
    "consensus": "Mean distance of the nodes from the mean classifier.",
    "optimum": "Distance to the centralised optimum, relative to its norm.",
}


def page(rows: Sequence[Result | Infeasible]) -> str:
    """The page: what was found, what differs, what was done, then, file by file, all that is known about it."""
    results = [row for row in rows if isinstance(row, Result)]
    names = list(map(brief, labels(results)))
    title = names[0] if len(names) == 1 else f"{len(names)} results"
    figures = _Figures()
    files = [file_section(result, name, figures, len(results) == 1) for result, name in zip(results, names, strict=True)]
    parts = {
        "Results": _results(rows, results, figures),
        "Notes": notes_section(results, names),
        "What differs": _differences(results, names),
        "Privacy": privacy_section(results, names),
        "Methods": methods_section(results),
        "Network and timing": "".join(files),
        "Configuration": _configuration(results),
        "Environment": _environments(results, names),
        "References": references_section(results),
    }
    sections = {_anchor(head): (head, text) for head, text in parts.items() if text}
    links = "".join(f'<a href="#{anchor}">{head}</a>' for anchor, (head, _) in sections.items())
    body = "".join(f'<section id="{anchor}">\n<h2>{head}</h2>\n{text}</section>\n' for anchor, (head, text) in sections.items())
    style = Path(__file__).with_name("report.css").read_text(encoding="utf-8")
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)}: dpadmm report</title>
<style>
{style}</style>
</head>
<body>
<h1>{escape(title)}</h1>
<p class="about">Differentially private ADMM, simulated with dpadmm-mpi. Seeded noise protects nobody's data.</p>
<nav>{links}</nav>
{body}</body>
</html>
"""


def _anchor(heading: str) -> str:
    return heading.lower().replace(" ", "-")


def _results(rows: Sequence[Result | Infeasible], results: Sequence[Result], figures: "_Figures") -> str:
    """The table, who has no noise, and the curves."""
    plain = [brief(result.name) for result in results if is_without_noise(result)]
    warning = ""
    if plain:
        who = "" if len(results) == 1 else f"{len(plain)} of {len(results)} files ({escape('; '.join(plain))}): "
        warning = f'<p class="plain">{who}{NO_NOISE}</p>\n'
    about = "Last recorded values; t is the iteration, privacy the total of everything released until then, of the worst node."
    return f'{warning}{results_in_html(table_of(rows))}<p class="about">{about}</p>\n{_curves(results, figures)}'


class _Figures:
    """Inline pictures whose ids do not meet."""

    def __init__(self) -> None:
        self._numbers = count(1)

    def __call__(self, results: Sequence[Result], kind: str, caption: str, places: Sequence[int] = ()) -> str:
        drawing = svg(results, kind, places, prefix=f"figure-{next(self._numbers)}")
        drawing = drawing.replace("<svg", f'<svg role="img" aria-label="{escape(caption)}"', 1)
        return f"<figure>{drawing}<figcaption>{escape(caption)}</figcaption></figure>\n"


def _curves(results: Sequence[Result], figures: _Figures) -> str:
    """Every kind of curve, of the files that have it; a file looks the same in all of them."""
    wide, pairs = [], []
    if len(results) > 2 and _privacy_differs(results):
        wide.append(
            figures(
                results, "tradeoff", "What the privacy costs: a point per file, at the end; bars are the range over the runs."
            )
        )
    caption = "Lines are means over the runs, bands their range. Privacy is the total so far, of the worst node."
    wide.append(figures(results, "overview", caption))
    for kind, caption in CAPTIONS.items():
        cls = plots[kind]
        assert issubclass(cls, OverIterations | OverPrivacy)
        against_privacy = issubclass(cls, OverPrivacy)
        places = [k for k, result in enumerate(results) if has_numbers(result, cls.measure)]
        if against_privacy:
            places = [k for k in places if accounts(results[k])]
        there = [results[k] for k in places]
        if not there or (against_privacy and not Request(tuple(there), kind).has_finite_account()):
            continue
        without = f" {len(results) - len(there)} of {len(results)} files have none." if len(there) < len(results) else ""
        pairs.append(figures(there, kind, caption + without, places))
    if all(has_numbers(result, "node_loss") for result in results):
        caption = "Loss of the nodes, from the best to the worst; loss and privacy of each node at the end."
        wide.append(figures(results, "nodes", caption))
    return f'{"".join(wide)}<div class="pairs">{"".join(pairs)}</div>'


def _privacy_differs(results: Sequence[Result]) -> bool:
    """Whether there is a trade-off to draw: two files with a finite account that is not the same."""
    if not all(accounts(result) for result in results) or not Request(tuple(results), "tradeoff").has_finite_account():
        return False
    ends = [float(result[f"privacy/{name}"][last_row(result)[0]]) for result in results for name, _ in accounts(result)[-1:]]
    finite = [end for end in ends if np.isfinite(end)]
    return len(finite) > 1 and max(finite) > 1.01 * min(finite)


def _differences(results: Sequence[Result], names: Sequence[str]) -> str:
    """Every setting that is not the same in all files: a row for each file, or, where they are many, for each setting."""
    keys = [key for key in ("algorithm.method", *differing_settings(results, by_absence=True)) if _differs(results, key)]
    if not keys:
        return ""
    cells = [[shortened(brief(in_words(result.settings.get(key))), LONGEST) for key in keys] for result in results]
    if len(keys) <= BESIDE:
        rows = [[name, *row] for name, row in zip(names, cells, strict=True)]
        return table(["", *keys], rows, text=tuple(range(len(keys) + 1)))
    tables = []
    for first in range(0, len(results), BESIDE):
        some = cells[first : first + BESIDE]
        rows = [[key, *values] for key, *values in zip(keys, *some, strict=True)]
        tables.append(table(["", *names[first : first + BESIDE]], rows, text=tuple(range(len(some) + 1))))
    return "".join(tables)


def _differs(results: Sequence[Result], key: str) -> bool:
    return any(result.settings.get(key) != results[0].settings.get(key) for result in results)


def _configuration(results: Sequence[Result]) -> str:
    """The configuration of a file; of several, what all of them have."""
    if len(results) == 1:
        return f"<pre>{escape(results[0].config_text)}</pre>\n"
    import tomli_w

    tables = [tomllib.loads(result.config_text) for result in results]
    common: dict[str, Any] = {}
    for key, value in tables[0].items():
        if isinstance(value, dict):
            inner = {k: v for k, v in value.items() if all(t.get(key, {}).get(k, NOTHING) == v for t in tables)}
            common |= {key: inner} if inner else {}
        elif all(table.get(key) == value for table in tables):
            common[key] = value
    about = '<p class="about">What all files have; the rest is above, under What differs.</p>\n'
    return f"{about}<pre>{escape(tomli_w.dumps(common))}</pre>\n"


def _environments(results: Sequence[Result], names: Sequence[str]) -> str:
    """What is the same everywhere once, the rest file by file."""
    facts = [_environment(result) for result in results]
    common = {key: value for key, value in facts[0].items() if all(each.get(key) == value for each in facts)}
    own = [
        [name, key, value]
        for name, each in zip(names, facts, strict=True)
        for key, value in each.items()
        if value and key not in common
    ]
    return facts_table(common) + (table(["file", "", ""], own, text=(0, 1, 2)) if own else "")


def _environment(result: Result) -> dict[str, str]:
    root = result.attributes["/"]
    facts = {
        "software": f"{root.get('software', '')} {root.get('softwareVersion', '')}",
        "dependencies": root.get("softwareDependencies", ""),
        **{f"data: {key}": listed(value) for key, value in result.attributes.get("data", {}).items()},
    }
    return {key: str(value) for key, value in facts.items()}
