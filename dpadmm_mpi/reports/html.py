"""`dpadmm report`: one HTML page about results, for browsers and printers, that needs no other file and no network."""

import html
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
from dpadmm_mpi.reports.meaning import attacker_rows, in_words
from dpadmm_mpi.reports.tables import mean_and_range, number, result_cells, status
from dpadmm_mpi.showing import brief, paragraph
from dpadmm_mpi.storage.result import Result, accounts, is_proven, labels, last_row

MANY = 200  # nodes; a table of more is left out
CAPTIONS = {
    "loss-privacy": "Mean loss against the privacy that was spent.",
    "error-privacy": "Test error against the privacy that was spent.",
    "objective": "Objective.",
    "objective-gap": "Objective above that of the optimum.",
    "consensus": "Mean distance of the nodes from the mean classifier.",
    "optimum": "Distance to the centralised optimum, relative to its norm.",
}


def escape(text: object) -> str:
    """For HTML, with what is not printable written out, which a page may not hold."""
    return html.escape(paragraph(text))


def page(results: Sequence[Result]) -> str:
    """The page: what was found, then, file by file, all that is known about it."""
    names = list(map(brief, labels(results)))
    title = names[0] if len(names) == 1 else f"{len(names)} results"
    figures = _Figures()
    sections = [_file(f"file-{k}", result, name, figures) for k, (result, name) in enumerate(zip(results, names, strict=True))]
    links = "".join(f'<a href="#file-{k}">{escape(name)}</a>' for k, name in enumerate(names))
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
<nav>{links if len(names) > 1 else ""}</nav>
<section id="results">
<h2>Results</h2>
{_table(*result_cells(results, errors=True), text=(0, 1))}
<p class="about">Last recorded values: mean over the runs, ±half the range (standard error of the mean). t is the iteration;
privacy is the total of everything released until then, of the worst node.</p>
{_curves(results, figures)}
</section>
{"".join(sections)}
</body>
</html>
"""


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
    caption = "Lines are means over the runs, bands their range. Privacy is the total so far, of the worst node."
    wide, pairs = [figures(results, "overview", caption)], []
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


def _file(anchor: str, result: Result, name: str, figures: _Figures) -> str:
    root = result.attributes["/"]
    notes = list(filter(None, str(root.get("notes", "")).split("\n")))
    if not result.complete:
        notes.insert(0, "This run did not end; what it had recorded is shown.")
    listed = "".join(f"<li>{escape(note)}</li>" for note in notes)
    return f"""<section class="file" id="{anchor}">
<h2>{escape(name)}</h2>
<p class="about">{escape(Path(result.source).name)}, {status(result)}, {escape(str(root.get("date", "")))}</p>
<h3>Notes</h3>
{f'<ul class="notes">{listed}</ul>' if notes else "<p>None.</p>"}
<h3>Privacy</h3>
{_privacy(result)}
<h3>Network</h3>
{_network(result, figures)}
<h3>Timing</h3>
{_facts(_timing(result))}
<h3>Environment</h3>
{_facts(_environment(result))}
<h3>Configuration</h3>
<pre>{escape(result.config_text)}</pre>
</section>
"""


def _privacy(result: Result) -> str:
    """Every account at the end, with what it rests on."""
    last, rows = last_row(result)[0], []
    for name, title in accounts(result):
        about = result.attributes[f"privacy/{name}"]
        nodes = result[f"privacy/node_{name}"][last] if f"privacy/node_{name}" in result else np.array([np.nan])
        rows.append([
            title, number(result[f"privacy/{name}"][last]), number(nodes.min()), "yes" if is_proven(result, name) else "no",
            str(about.get("neighbouring_relation", "")), str(about.get("theorem", "")),
        ])  # fmt: skip
    if not rows:
        return "<p>The file has no privacy account.</p>"
    header = ["account", "worst node", "best node", "proven", "neighbouring data sets", "theorem"]
    return _table(header, rows, text=(0, 3, 4, 5)) + _meaning(result)


def _meaning(result: Result) -> str:
    """What the accounts mean for a person in the data."""
    if (curve := result.curve) is None:
        return ""
    sentences = "".join(f"<li>{escape(sentence)}</li>" for sentence in in_words(curve))
    rows = [[f"{100 * accused:g} %", f"{100 * found:.3g} %"] for accused, found in attacker_rows(curve)]
    return f"<p>Of everything that one run releases:</p><ul>{sentences}</ul>" + _table(
        ["of the innocent records, accused", "of the guilty records, found at most"], rows, text=()
    )


def _network(result: Result, figures: _Figures) -> str:
    nodes, last = len(result["node"]), last_row(result)[0]
    edges = result["graph/edges"] if "graph/edges" in result else np.empty((0, 2), dtype=int)
    parts = []
    if len(edges) and has_numbers(result, "node_loss"):
        parts.append(figures([result], "network", f"{nodes} nodes, {len(edges)} edges; loss of each node at the end."))
    if nodes > MANY:
        return "".join(parts)
    columns: dict[str, list[str]] = {"node": [str(node) for node in result["node"]]}
    if "data/sizes" in result:
        columns["records"] = [str(size) for size in result["data/sizes"]]
    if len(edges):
        columns["neighbours"] = [str((edges == node).sum()) for node in result["node"]]
    if has_numbers(result, "node_loss"):
        columns["loss"] = [mean_and_range(result["node_loss"][:, last, node]) for node in range(nodes)]
    for name, title in accounts(result):
        if f"privacy/node_{name}" in result:
            head = title if is_proven(result, name) else f"{title}, not proven"
            columns[head] = [number(value) for value in result[f"privacy/node_{name}"][last]]
    if "timing/owner" in result:
        columns["rank"] = [str(rank) for rank in result["timing/owner"]]
    rows = [list(row) for row in zip(*columns.values(), strict=True)]
    return "".join(parts) + _table(list(columns), rows, text=())


def _timing(result: Result) -> dict[str, str]:
    about = result.attributes.get("timing", {})
    facts: dict[str, Any] = {}
    if "seconds" in about:
        facts["seconds, start to end"] = number(about["seconds"])
    for name, title in (
        ("compute_seconds", "seconds of solving, all nodes"),
        ("wait_seconds", "seconds of waiting, all nodes"),
    ):
        if f"timing/{name}" in result:
            facts[title] = number(float(np.nansum(result[f"timing/{name}"])))
    if "timing/bytes_sent" in result:
        facts["bytes sent between ranks"] = f"{np.nansum(result['timing/bytes_sent']):,.0f}"
    facts["ranks"] = about.get("ranks", "")
    facts["hosts"] = _listed(list(dict.fromkeys(np.atleast_1d(about.get("hosts", [])).tolist())))
    facts["MPI"] = about.get("mpi", "")
    return {key: str(value) for key, value in facts.items()}


def _environment(result: Result) -> dict[str, str]:
    root = result.attributes["/"]
    method = tomllib.loads(result.config_text).get("algorithm", {}).get("method", "")
    facts = {
        "software": f"{root.get('software', '')} {root.get('softwareVersion', '')}",
        "dependencies": root.get("softwareDependencies", ""),
        "method": method,
        "date": root.get("date", ""),
        "configuration, SHA-256": root.get("config_sha256", ""),
        **{f"data: {key}": _listed(value) for key, value in result.attributes.get("data", {}).items()},
    }
    return {key: str(value) for key, value in facts.items()}


def _listed(value: Any) -> str:
    return "; ".join(map(str, np.atleast_1d(value)))


def _facts(facts: dict[str, str]) -> str:
    return _table(None, [[key, value] for key, value in facts.items() if value], text=(0, 1))


def _table(header: Sequence[str] | None, rows: Sequence[Sequence[str]], text: tuple[int, ...]) -> str:
    """An HTML table; the `text` columns to the left, numbers to the right."""

    def line(tag: str, cells: Sequence[str]) -> str:
        marks = [' class="text"' if k in text else "" for k in range(len(cells))]
        return "<tr>" + "".join(f"<{tag}{m}>{escape(cell)}</{tag}>" for m, cell in zip(marks, cells, strict=True)) + "</tr>\n"

    head = f"<thead>{line('th', header)}</thead>\n" if header else ""
    return f'<div class="wide"><table>{head}<tbody>{"".join(line("td", row) for row in rows)}</tbody></table></div>\n'
