"""What a page says about each file: its privacy, its network, its timing."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from dpadmm_mpi.plots.curves import has_numbers
from dpadmm_mpi.reports.columns import mean_and, number, status
from dpadmm_mpi.reports.markup import escape, facts_table, listed, table
from dpadmm_mpi.reports.meaning import FALSE_POSITIVES, attacker_rows, in_words, is_without_noise
from dpadmm_mpi.storage.result import Result, accounts, is_proven, last_row

MANY = 200  # nodes; a table of more is left out
NO_NOISE = "Without noise: exact values are released, nothing protects the records, and every privacy loss is infinite."


class Draw(Protocol):
    """Makes a figure with its caption."""

    def __call__(self, results: Sequence[Result], kind: str, caption: str) -> str: ...


def privacy_section(results: Sequence[Result], names: Sequence[str]) -> str:
    """Every account with what it rests on, once, and what the files' privacy means for a person in the data."""
    plain = [name for result, name in zip(results, names, strict=True) if is_without_noise(result)]
    private = [(result, name) for result, name in zip(results, names, strict=True) if name not in plain]
    if not any(accounts(result) for result in results):
        return "<p>No file has a privacy account.</p>\n" if len(results) > 1 else "<p>The file has no privacy account.</p>\n"
    parts = [_no_noise(plain, len(results)), _accounts(private), _meaning(private)]
    return "".join(parts)


def _no_noise(plain: Sequence[str], files: int) -> str:
    if not plain:
        return ""
    who = "" if files == 1 else f"{escape('; '.join(plain))}: "
    return f'<p class="plain">{who}{NO_NOISE}</p>\n'


def _over_all_nodes(result: Result, name: str) -> float | None:
    """A total over runs, rows and nodes, also where the nodes' mean alone was recorded."""
    if name in result:
        return float(np.nansum(result[name]))
    mean = f"{name}_mean"
    return len(result["node"]) * float(np.nansum(result[mean])) if mean in result else None


def _accounts(private: Sequence[tuple[Result, str]]) -> str:
    """What each account rests on; of one file also its totals."""
    found: dict[tuple[str, ...], list[str]] = {}
    totals: dict[tuple[str, ...], list[str]] = {}
    for result, name in private:
        last = last_row(result)[0]
        for account, title in accounts(result):
            about = result.attributes[f"privacy/{account}"]
            key = (
                title,
                "yes" if is_proven(result, account) else "no",
                str(about.get("neighbouring_relation", "")),
                str(about.get("theorem", "")),
            )
            found.setdefault(key, []).append(name)
            nodes = result[f"privacy/node_{account}"][last] if f"privacy/node_{account}" in result else np.array([np.nan])
            totals[key] = [number(result[f"privacy/{account}"][last]), number(nodes.min())]
    if not found:
        return ""
    if len(private) == 1:
        header = ["account", "worst node", "best node", "proven", "neighbouring data sets", "theorem"]
        return table(header, [[key[0], *totals[key], *key[1:]] for key in found], text=(0, 3, 4, 5))
    rows = [[title, "all" if len(who) == len(private) else "; ".join(who), *rest] for (title, *rest), who in found.items()]
    return table(["account", "files", "proven", "neighbouring data sets", "theorem"], rows, text=(0, 1, 2, 3, 4))


def _meaning(private: Sequence[tuple[Result, str]]) -> str:
    """What the accounts mean for a person in the data."""
    curves = [(curve, name) for result, name in private if (curve := result.curve) is not None]
    if not curves:
        return ""
    sentences = "".join(f"<li>{escape(sentence)}</li>" for sentence in in_words(curves[0][0])) if len(curves) == 1 else ""
    header = ["", *(f"found, accusing {100 * rate:g} %" for rate in FALSE_POSITIVES), "right on a coin flip", "mu"]
    rows = [
        [
            name,
            *(f"{100 * found:.3g} %" for _, found in attacker_rows(curve)),
            f"{50 + 50 * curve.advantage:.1f} %",
            f"{curve.gaussian_mu:.3g}",
        ]
        for curve, name in curves
    ]
    about = (
        "Of everything that one run releases: which share of the guilty records an attacker finds at most who accuses so many "
        "of the innocent, how often they are right at most between two neighbouring data sets, and the mu of a Gaussian "
        "mechanism that is no more private."
    )
    return f"<p>{about}</p>\n" + (f"<ul>{sentences}</ul>" if sentences else "") + table(header, rows, text=(0,))


def notes_section(results: Sequence[Result], names: Sequence[str]) -> str:
    """Every note once, with the files that have it."""
    found: dict[str, list[str]] = {}
    for result, name in zip(results, names, strict=True):
        if not result.complete:
            found.setdefault("This run did not end; what it had recorded is shown.", []).append(name)
        for note in filter(None, str(result.attributes["/"].get("notes", "")).split("\n")):
            found.setdefault(note, []).append(name)
    lines = "".join(
        f"<li>{escape(note)}{'' if len(results) == 1 else f' <em>({escape(_who(who, results))})</em>'}</li>"
        for note, who in found.items()
    )
    return f'<ul class="notes">{lines}</ul>\n' if lines else ""


def _who(names: Sequence[str], results: Sequence[Result]) -> str:
    return "all files" if len(names) == len(results) else "; ".join(names)


def file_section(result: Result, name: str, draw: Draw, alone: bool) -> str:
    """Network and timing of a file; of several they are folded, and not printed."""
    root = result.attributes["/"]
    about = (
        f"{Path(result.source).name}, {status(result)}, {root.get('date', '')}; configuration {root.get('config_sha256', '')}"
    )
    inside = f"{_network(result, draw)}\n{facts_table(_timing(result))}"
    if alone:
        return f'<p class="about">{escape(about)}</p>\n{inside}\n'
    return f'<details><summary>{escape(name)}</summary>\n<p class="about">{escape(about)}</p>\n{inside}\n</details>\n'


def _network(result: Result, draw: Draw) -> str:
    nodes, last = len(result["node"]), last_row(result)[0]
    edges = result["graph/edges"] if "graph/edges" in result else np.empty((0, 2), dtype=int)
    parts = []
    if len(edges) and has_numbers(result, "node_loss"):
        parts.append(draw([result], "network", f"{nodes} nodes, {len(edges)} edges; loss of each node at the end."))
    if nodes > MANY:
        return "".join(parts)
    columns: dict[str, list[str]] = {"node": [str(node) for node in result["node"]]}
    if "data/sizes" in result:
        columns["records"] = [str(size) for size in result["data/sizes"]]
    if len(edges):
        columns["neighbours"] = [str((edges == node).sum()) for node in result["node"]]
    if has_numbers(result, "node_loss"):
        columns["loss"] = [mean_and(result["node_loss"][:, last, node]) for node in range(nodes)]
    for name, title in accounts(result):
        if f"privacy/node_{name}" in result and not is_without_noise(result):
            head = title if is_proven(result, name) else f"{title}, not proven"
            columns[head] = [number(value) for value in result[f"privacy/node_{name}"][last]]
    if "timing/owner" in result:
        columns["rank"] = [str(rank) for rank in result["timing/owner"]]
    rows = [list(row) for row in zip(*columns.values(), strict=True)]
    return "".join(parts) + table(list(columns), rows, text=())


def _timing(result: Result) -> dict[str, str]:
    about = result.attributes.get("timing", {})
    facts: dict[str, Any] = {}
    if "seconds" in about:
        facts["seconds, start to end"] = number(about["seconds"])
    for name, title in (
        ("compute_seconds", "seconds of solving, all nodes"),
        ("wait_seconds", "seconds of waiting, all nodes"),
    ):
        if (total := _over_all_nodes(result, f"timing/{name}")) is not None:
            facts[title] = number(total)
    if (total := _over_all_nodes(result, "timing/bytes_sent")) is not None:
        facts["bytes sent between ranks"] = f"{total:,.0f}"
    facts["ranks"] = about.get("ranks", "")
    facts["hosts"] = listed(list(dict.fromkeys(np.atleast_1d(about.get("hosts", [])).tolist())))
    facts["MPI"] = about.get("mpi", "")
    return {key: str(value) for key, value in facts.items()}
