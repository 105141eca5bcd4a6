"""What the commands print: plain, aligned text."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from dpadmm_mpi.data.catalogue import PublicDataset
from dpadmm_mpi.data.partitions import DEFAULT_TRAIN, partitions
from dpadmm_mpi.data.sources import sources
from dpadmm_mpi.data.statistics import Statistics
from dpadmm_mpi.data.store import Store
from dpadmm_mpi.data.survey import RARE, Survey, in_toml
from dpadmm_mpi.methods.base import Plan
from dpadmm_mpi.networks.graphs import graphs
from dpadmm_mpi.registry import first_line
from dpadmm_mpi.reports.columns import number
from dpadmm_mpi.reports.meaning import in_words
from dpadmm_mpi.showing import brief, printable, sentence
from dpadmm_mpi.storage.result import Result
from dpadmm_mpi.types import Array, Ints

MOST_COLUMNS, MOST_LABELS = 200, 20  # of a table that `dpadmm data info` lists


def aligned(header: Sequence[str], rows: Sequence[Sequence[str]], left: tuple[int, ...] = (0,)) -> str:
    """A table: the `left` columns to the left, numbers to the right."""
    header, rows = list(map(printable, header)), [list(map(printable, row)) for row in rows]
    widths = [max(len(row[k]) for row in [header, *rows]) for k in range(len(header))]

    def line(row: Sequence[str]) -> str:
        cells = [cell.ljust(w) if k in left else cell.rjust(w) for k, (cell, w) in enumerate(zip(row, widths, strict=True))]
        return "  ".join(cells).rstrip()

    return "\n".join(line(row) for row in [header, *rows])


def against_table(result: Result, observers: Sequence[int]) -> str:
    """Each node's epsilon against some nodes that pool what they have seen."""
    against = result.epsilon_against(*observers)
    rows = [[str(node), "one of them" if np.isnan(value) else number(value)] for node, value in enumerate(against)]
    return aligned(["node", "epsilon"], rows)


def plan_report(
    plan: Plan[Any], owner: Ints, conditions: Sequence[str], cost: str, statistics: Statistics | None = None
) -> str:
    """What `dpadmm check` says about a configuration."""
    config, degree = plan.config, plan.topology.degree
    shape = "star" if plan.topology.has_hub else graphs.name_of(type(config.network.graph))
    source = sources.name_of(type(config.data.source))
    lines = [
        f"{brief(config.name)}: valid",
        "",
        f"network    {shape}, {plan.nodes} nodes, {len(plan.topology.edges)} edges, degrees {degree.min()} to {degree.max()}",
        f"data       {source}, {plan.sizes.sum()} training records, "
        f"{plan.total_records - plan.sizes.sum()} for testing, "
        f"{plan.features} features; the smallest shard has {plan.sizes.min()} records (node {plan.sizes.argmin()}), "
        f"the largest {plan.sizes.max()}",
        f"partition  {partitions.name_of(type(config.data.split))}{'' if statistics is None else f'; {statistics.in_words()}'}",
        f"method     {config.method_name} ({plan.source}), {plan.work_in_words}, {config.runs} run{'s' * (config.runs > 1)}",
        f"privacy    {plan.privacy_in_words}",
        *([f"free       {plan.free_in_words}"] if plan.free_in_words else []),
        *([f"time       {words}"] if (words := plan.virtual_time_in_words) else []),
        f"layout     {_layout(plan, owner)}",
        f"cost       {cost}",
        "",
        _node_table(plan, owner),
        "",
        *_totals(plan),
        "",
        "conditions",
        *(f"  {line}" for line in conditions),
        *(f"note       {sentence(note)}" for note in plan.notes),
    ]
    return "\n".join(lines)


def data_report(entry: type[PublicDataset], store: Store) -> str:
    """What `dpadmm data info` says."""
    meta = store.meta
    lines = [
        f"{entry.name()}: {first_line(entry)}",
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


def survey_report(survey: Survey, nodes: int) -> str:
    """What `dpadmm data info FILE` says."""
    separator = {None: "", "\t": ", separated by tabs"}.get(survey.separator, f', separated by "{survey.separator}"')
    rows = [
        [
            brief(c.name),
            c.judgement.kind,
            str(c.missing or "-"),
            str(c.judgement.distinct or "-"),
            brief(c.values),
            brief(c.judgement.words),
        ]
        for c in survey.columns[:MOST_COLUMNS]
    ]
    counted = list(survey.labels.items())
    shares = ", ".join(f"{brief(name)} ({100 * count / survey.records:.1f} %)" for name, count in counted[:MOST_LABELS])
    shares += f" and {len(counted) - MOST_LABELS} more" if len(counted) > MOST_LABELS else ""
    if survey.target == "number":
        values = [float(label) for label in survey.labels]
        shares = f"numbers from {min(values):g} to {max(values):g}"
    lines = [
        f"{printable(survey.path)}: {survey.source}{separator}, {survey.records:,} records, {len(survey.columns)} columns and "
        "the label",
        f"label      {brief(survey.label or 'y')}: {shares}",
        "",
        aligned(["column", "kind", "missing", "distinct", "values", "doubt"], rows, left=(0, 1, 4, 5)),
        *([f"... and {len(survey.columns) - MOST_COLUMNS} more columns"] if len(survey.columns) > MOST_COLUMNS else []),
        "",
        *_advice(survey),
        f"partition  {_partition_of(survey, nodes)}",
        "",
        *survey.toml(),
        *_group_lines(survey),
        "",
        *survey.problem(nodes),
        "",
        "[network]",
        f"nodes = {nodes}",
    ]
    return "\n".join(lines)


def _advice(survey: Survey) -> list[str]:
    """A sentence for each thing to know before the steps are taken."""
    found = []
    if len(survey.labels) < 2:
        found.append("note       all labels are the same; two different ones are needed")
    elif survey.target == "number":
        found.append(
            "note       for a private run say what the targets lie between: target_range = [LOWEST, HIGHEST] in [data]"
        )
    else:
        rare, share = min(((name, count / survey.records) for name, count in survey.labels.items()), key=lambda pair: pair[1])
        if share < RARE:
            found.append(
                f"note       label {brief(rare)} is rare: who never says {brief(rare)} has an error of {100 * share:.1f} %, "
                'so compare with that; split = "stratified" gives every node some'
            )
    if survey.dropped:
        found.append(f"note       {sentence(', '.join(survey.dropped))} would be dropped: remove what is a feature from drop")
    if any("standardise" in step or "impute" in step for step in survey.steps()):
        found.append(
            "note       impute and standardise learn from the records, which no privacy account counts; for a private run give "
            'what is publicly known: { step = "impute", values = { NAME = VALUE } }, '
            '{ step = "standardise", ranges = { NAME = [LOWEST, HIGHEST] } }'
        )
    return found


def _partition_of(survey: Survey, nodes: int) -> str:
    training = round(DEFAULT_TRAIN * survey.records)
    words = f"even: {training // nodes} training records at each of {nodes} nodes, {survey.records - training} for testing"
    if (group := survey.group) is not None:
        words += f'; or one node for each of the {group.judgement.distinct} values of "{brief(group.name)}"'
    return words


def _group_lines(survey: Survey) -> list[str]:
    if (group := survey.group) is None:
        return []
    return ['# split = "by-column"', f"# column = {in_toml(group.name)}    # with network.nodes = {group.judgement.distinct}"]


def _totals(plan: Plan[Any]) -> list[str]:
    """Each account at T, worst and best node, and what would improve the worst number."""
    lines = []
    for account in plan.accounts:
        at_end = account.node_values[-1]
        proven = "" if account.proven else ", not proven"
        lines.append(
            f"total      {account.title}: {at_end.max():.6g} at node {at_end.argmax()}{proven}; best {at_end.min():.6g} "
            f"at node {at_end.argmin()}"
        )
    if plan.curve is not None:
        lines += [f"means      {sentence}" for sentence in in_words(plan.curve)]
    if ways := plan.improvements():
        lines.append(f"to improve {'; '.join(ways)}")
    return lines


def _layout(plan: Plan[Any], owner: Ints) -> str:
    ranks = owner.max() + 1
    if ranks == 1:
        return f"1 rank hosts all {plan.nodes} nodes" + (" and the hub" if plan.topology.has_hub else "")
    counts = np.bincount(owner[: plan.nodes], minlength=ranks)
    hub = f", rank {owner[-1]} the hub" if plan.topology.has_hub else ""
    return f"{ranks} ranks host {counts.min()} to {counts.max()} nodes each{hub}"


def _node_table(plan: Plan[Any], owner: Ints) -> str:
    accounts = plan.accounts
    used = {name.split("/")[-1]: schedule.values for name, schedule in plan.schedules.items()}
    rows = [
        [str(i), str(owner[i]), str(plan.sizes[i]), str(plan.topology.degree[i])]
        + [_span(values[:, i]) for values in used.values()]
        + [number(account.node_values[-1, i]) for account in accounts]
        for i in range(plan.nodes)
    ]
    return aligned(["node", "rank", "records", "degree", *used, *(account.name for account in accounts)], rows)


def _span(values: Array) -> str:
    values = values[~np.isnan(values)]
    if not len(values):
        return "-"
    return f"{values[0]:.4g}" if values[0] == values[-1] else f"{values[0]:.4g} .. {values[-1]:.4g}"
