"""What the commands print: plain, aligned text."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dpadmm_mpi.algorithms.decentralised import METHODS
from dpadmm_mpi.data.catalogue import Entry
from dpadmm_mpi.data.store import Store
from dpadmm_mpi.mechanisms import PERTURBATIONS
from dpadmm_mpi.plan import Plan
from dpadmm_mpi.results import Result, labels
from dpadmm_mpi.theory import privacy


def aligned(header: Sequence[str], rows: Sequence[Sequence[str]], left: tuple[int, ...] = (0,)) -> str:
    """A table: the `left` columns to the left, numbers to the right."""
    widths = [max(len(row[k]) for row in [header, *rows]) for k in range(len(header))]

    def line(row: Sequence[str]) -> str:
        cells = [cell.ljust(w) if k in left else cell.rjust(w) for k, (cell, w) in enumerate(zip(row, widths, strict=True))]
        return "  ".join(cells).rstrip()

    return "\n".join(line(row) for row in [header, *rows])


def number(value: float) -> str:
    return "-" if np.isnan(value) else f"{value:.4g}"


def results_table(results: Sequence[Result]) -> str:
    """Last recorded values, as mean and range over the runs."""
    rows = []
    for result, label in zip(results, labels(results), strict=True):
        last, runs_done = last_row(result)
        runs = str(runs_done) if runs_done == len(result["run"]) else f"{runs_done} of {len(result['run'])}"
        row = [label, status(result), str(result.iteration[last]), runs]
        for name in ("loss", "test_error", "consensus_error", "distance_to_optimum"):
            row.append(mean_and_range(result[name][:, last]) if name in result else "-")
        proven = "" if result.attributes["privacy/bound"]["proven"] else " not proven"
        accounts = (number(result[f"privacy/{name}"][last]) for name in ("tight", "epsilon"))
        rows.append([*row, number(result.bound[last]) + proven, *accounts])
    header = ["name", "status", "t", "runs", "loss", "test error", "consensus", "to optimum", "P(t)", "tight", "epsilon"]
    keep = [k for k in range(len(header)) if k != 7 or any(row[7] != "-" for row in rows)]
    return aligned([header[k] for k in keep], [[row[k] for k in keep] for row in rows])


def mean_and_range(values: NDArray[np.float64]) -> str:
    values = values[~np.isnan(values)]
    if not len(values):
        return "-"
    spread = f" ±{np.ptp(values) / 2:.2g}" if len(values) > 1 else ""
    return f"{values.mean():.4g}{spread}"


def last_row(result: Result) -> tuple[int, int]:
    """The last row that some run has reached, and the number of runs that have reached it."""
    reached = ~np.isnan(result.loss)
    if not reached.any():
        return 0, 0
    last = int(np.flatnonzero(reached.any(axis=0))[-1])
    return last, int(reached[:, last].sum())


def status(result: Result) -> str:
    return "complete" if result.complete else "incomplete"


def plan_report(plan: Plan, owner: NDArray[np.int64], conditions: Sequence[str]) -> str:
    """What `dpadmm check` says about a configuration."""
    config, releases, degree = plan.config, plan.releases, plan.graph.degree
    method = METHODS[config.algorithm.method]
    lines = [
        f"{config.name}: valid",
        "",
        f"network    {config.network.graph}, {plan.graph.nodes} nodes, {len(plan.graph.edges)} edges, "
        f"degrees {degree.min()} to {degree.max()}",
        f"data       {config.data.source}, {plan.sizes.sum()} training records, "
        f"{plan.total_records - plan.sizes.sum()} for testing, "
        f"{plan.features} features; the smallest shard has {plan.sizes.min()} records (node {plan.sizes.argmin()}), "
        f"the largest {plan.sizes.max()}",
        f"method     {config.algorithm.method} ({method.source}), {config.iterations} iterations with "
        f"{len(releases.data_steps)} data steps, {config.runs} runs",
        f"privacy    {_privacy(plan)}",
        f"layout     {_layout(owner)}",
        "",
        _node_table(plan, owner),
        "",
        *_totals(plan),
        "",
        "conditions",
        *(f"  {line}" for line in conditions),
        *(f"note       {note}" for note in plan.notes),
    ]
    return "\n".join(lines)


def data_report(entry: Entry, store: Store) -> str:
    """What `dpadmm data info` says."""
    meta = store.meta
    lines = [
        f"{entry.name}: {entry.title}",
        f"records    {meta.records:,}" + (f", of which {meta.training:,} for training" if meta.training is not None else ""),
        f"features   {meta.features}, {'sparse' if meta.sparse else 'dense'}",
        f"labels     {100 * meta.positive / meta.records:.2f} % positive",
        f"norms      {meta.smallest_norm:.6g} to {meta.largest_norm:.6g}",
        *(f"step       {step}" for step in meta.steps),
        f"licence    {entry.licence}",
        f"source     {entry.home}",
        *(f"file       {name}, sha256 {digest}" for name, digest in meta.files.items()),
        f"prepared   {store.folder}",
    ]
    return "\n".join(lines)


def _privacy(plan: Plan) -> str:
    perturbation = plan.config.privacy.perturbation
    if perturbation == "none":
        return "none: the exact values are released"
    source = PERTURBATIONS[perturbation].source
    return f"{perturbation} perturbation ({source}): {plan.ledger.theorem}; neighbours: {privacy.NEIGHBOURS}"


def _totals(plan: Plan) -> list[str]:
    """Each account at T, worst and best node, and what would improve the worst number."""
    ledger, r = plan.ledger, plan.releases
    lines = []
    for name, title in (("bound", "the paper's bound"), ("tight", "tighter pure bound"), ("epsilon", "epsilon")):
        at_end = getattr(ledger, f"node_{name}")[-1]
        title += f" at delta = {ledger.delta:g}" if name == "epsilon" else ""
        proven = "" if ledger.proven or name != "bound" else ", not proven"
        lines.append(
            f"total      {title}: {at_end.max():.6g} at node {at_end.argmax()}{proven}; best {at_end.min():.6g} at node "
            f"{at_end.argmin()}"
        )
    if r.perturbation != "none":
        worst = int(ledger.node_bound[-1].argmax())
        reasons = []
        if r.B[worst] < r.B.max():
            reasons.append(f"more records at node {worst} (it has {r.B[worst]:.0f}, others up to {r.B.max():.0f})")
        if r.V[worst] < r.V.max():
            reasons.append(f"more neighbours for node {worst} (it has {r.V[worst]:.0f}, others up to {r.V.max():.0f})")
        reasons += ["a smaller alpha", "fewer iterations", "a smaller problem.C"]
        lines.append(f"to improve {'; '.join(reasons)}")
    return lines


def _layout(owner: NDArray[np.int64]) -> str:
    ranks = owner.max() + 1
    if ranks == 1:
        return f"1 rank hosts all {len(owner)} nodes"
    counts = np.bincount(owner)
    return f"{ranks} ranks host {counts.min()} to {counts.max()} nodes each"


def _node_table(plan: Plan, owner: NDArray[np.int64]) -> str:
    r, ledger = plan.releases, plan.ledger
    rows = [
        [
            str(i), str(owner[i]), str(plan.sizes[i]), str(plan.graph.degree[i]),
            _span(r.eta[:, i]), _span(r.theta[:, i]), _span(r.alpha[:, i]),
            number(ledger.node_bound[-1, i]), number(ledger.node_tight[-1, i]), number(ledger.node_epsilon[-1, i]),
        ]
        for i in range(plan.graph.nodes)
    ]  # fmt: skip
    return aligned(["node", "rank", "records", "degree", "eta", "theta", "alpha", "P_i(T)", "tight", "epsilon"], rows)


def _span(values: NDArray[np.float64]) -> str:
    if np.isnan(values[0]):
        return "-"
    return f"{values[0]:.4g}" if values[0] == values[-1] else f"{values[0]:.4g} .. {values[-1]:.4g}"
