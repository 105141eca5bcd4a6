"""The nodes: how far apart they are, and the network with a number on each of them."""

from typing import Any

import numpy as np

from dpadmm_mpi.plots.style import (
    COLOURS,
    MAP,
    Request,
    caption,
    in_lines,
    is_finite,
    leave_out_the_start,
    listed,
    logarithmic,
    name_files,
    panels,
    spans,
    spots,
    widened,
)
from dpadmm_mpi.storage.result import Result, accounts, last_row
from dpadmm_mpi.types import Array, Ints

LARGE = 120  # nodes; beyond, a layout that is quicker but may be tangled
MANY = 30  # from here on, no numbers in the nodes and no range on each of them
OFFSET = 0.6  # of the room between two nodes, shared by the files
DARK = 0.47  # share of the colour scale below which white is read better than black


def nodes(request: Request) -> Any:
    """The nodes' losses over the iterations, from the best to the worst node, and loss and privacy of each node at the end."""
    request.needs("node_loss")
    chosen = request.one_account() if all(accounts(result) for result in request.results) else []
    private = [
        f"privacy/node_{account}" in result and is_finite(result, f"node_{account}")
        for result, (account, _) in zip(request.results, chosen, strict=False)
    ]
    figure, axes = panels(3 if any(private) else 2, 3.6, 3.3)
    count = len(request.results)
    ranges, totals = [], []
    for index, (result, look) in enumerate(request):
        end = last_row(result)[0] + 1
        t, mean = result.iteration[:end], np.nanmean(result["node_loss"][:, :end], axis=0)
        axes[0].plot(t, mean.mean(axis=1), markevery=spots(end, index, count).tolist(), **look)
        ranges.append((mean.min(axis=1), mean.max(axis=1)))
        axes[0].fill_between(t, mean.min(axis=1), mean.max(axis=1), color=look["color"], alpha=request.shade, lw=0)
        at = result["node"] + OFFSET * ((index + 0.5) / count - 0.5)
        values = result["node_loss"][:, end - 1]
        dots = {"color": look["color"], "linestyle": "none", "marker": look["marker"] or "o"}
        ends = [mean[-1] - np.nanmin(values, axis=0), np.nanmax(values, axis=0) - mean[-1]]
        axes[1].errorbar(at, mean[-1], ends if len(at) <= MANY else None, elinewidth=0.9, capsize=2, **dots)
        if any(private) and private[index]:
            cost = result[f"privacy/node_{chosen[index][0]}"][end - 1]
            axes[2].plot(at, cost, **dots)
            totals += cost.tolist()
    leave_out_the_start(axes[0], ranges)
    caption(axes[0], "loss: mean of the nodes, best to worst")
    caption(axes[1], "loss of each node at the end", "node")
    if any(private):
        titles = [title for (_, title), there in zip(chosen, private, strict=True) if there]
        caption(axes[2], in_lines(f"each node: {listed(titles)}", 46), "node")
        if spans(totals):
            logarithmic(axes[2])
    most = max(len(result["node"]) for result in request.results)
    for axis in axes[1:]:
        axis.set_xlim(-0.5 - 0.02 * most, most - 0.5 + 0.02 * most)
        axis.set_xticks(range(0, most, -(-most // 10)))
        if axis.get_yscale() == "linear":
            axis.set_ylim(*widened(*axis.get_ylim()))
    name_files(request, figure, axes[0].get_legend_handles_labels()[0])
    return figure


def faults(request: Request) -> Any:
    """Shares of what was sent and arrives, and of the nodes that take a step, and bytes so far: mean and range of the runs."""
    request.needs("network/delivered")
    figure, axes = panels(3, 4.0, 3.2)
    count = len(request.results)
    for index, (result, look) in enumerate(request):
        end = last_row(result)[0] + 1
        t, marks = result.iteration[:end], {**look, "markevery": spots(end, index, count).tolist()}
        shares = {
            0: result["network/delivered"][:, :end].mean(axis=2),
            1: result["network/active"][:, :end].mean(axis=2),
            2: result["network/bytes"][:, :end] / 1e6,
        }
        for panel, values in shares.items():
            axes[panel].plot(t, values.mean(axis=0), **marks)
            axes[panel].fill_between(t, values.min(axis=0), values.max(axis=0), color=look["color"], alpha=request.shade, lw=0)
    titles = ("messages that arrive, share of all ways of the edges", "nodes that take a step, share", "sent by all nodes [MB]")
    for axis, title in zip(axes, titles, strict=True):
        caption(axis, title)
        axis.set_ylim(bottom=0.0)
    for axis in axes[:2]:
        axis.set_ylim(top=1.05)
    name_files(request, figure, axes[0].get_legend_handles_labels()[0])
    return figure


def partition(request: Request) -> Any:
    """For each file the records of each node, stacked by label, and below how far its labels are from those of all."""
    request.needs("data/label_counts")
    figure, axes = panels(2 * len(request.results), 4.2, 2.6, columns=len(request.results))
    for index, (result, label) in enumerate(zip(request.results, request.labels, strict=True)):
        records, distance = axes[index], axes[index + len(request.results)]
        counts, values = result["data/label_counts"], result["data/label"]
        node = np.arange(len(counts))
        width = 0.8 if len(node) <= MANY else 1.0
        below = np.zeros(len(node))
        for k, value in enumerate(values):
            name = f"label {value:+g}" if len(values) <= len(COLOURS) else None
            records.bar(node, counts[:, k], width, bottom=below, color=COLOURS[k % len(COLOURS)], label=name, linewidth=0)
            below += counts[:, k]
        caption(records, in_lines(label, 42), "node")
        records.set_ylabel("training records")
        if len(values) <= len(COLOURS):
            records.legend()
        distance.plot(node, result["data/label_distance"], "o", color=COLOURS[0], label="labels (total variation)")
        if "data/mean_distance" in result:
            distance.plot(node, result["data/mean_distance"], "s", color=COLOURS[1], label="mean record")
        caption(distance, "distance of the node from all", "node")
        distance.set_ylim(bottom=0.0)
        distance.legend()
    return figure


def network(request: Request) -> Any:
    """Each node with its loss at the end, mean over the runs; or, if an account is asked for, with its privacy loss."""
    request.needs("graph/edges", numbers=False)
    title = "loss of the node at the end"
    if request.account is None:
        request.needs("node_loss")
        values = [np.nanmean(result["node_loss"][:, last_row(result)[0]], axis=0) for result in request.results]
    else:
        chosen = request.one_account()
        request.needs(f"privacy/node_{request.account}", numbers=False)
        title = f"at the end: {listed([title for _, title in chosen])}"
        values = [result[f"privacy/node_{request.account}"][last_row(result)[0]] for result in request.results]
    figure, axes = panels(len(request.results), 4.2, 3.8)
    finite = np.concatenate(values)[np.isfinite(np.concatenate(values))]
    low, high = widened(finite.min(), finite.max()) if len(finite) else (0.0, 1.0)
    for axis, result, label, numbers in zip(axes, request.results, request.labels, values, strict=True):
        shades = _draw(axis, result, numbers, low, high)
        name = in_lines(label, 42)  # not wider than the panel
        axis.set_title(name if np.isfinite(numbers).all() else f"{name}\nnot private: infinite", loc="center")
    if len(finite):
        figure.colorbar(shades, ax=axes, label=title, shrink=0.8, aspect=8 * figure.get_figheight())
    return figure


def observers(request: Request) -> Any:
    """Epsilon of each node against each other, as a table of colours; and on the network, for who learns most and least."""
    request.needs("privacy/pair_epsilon", numbers=False)
    figure, axes = panels(3 * len(request.results), 4.2, 4.0)
    tables = [result["privacy/pair_epsilon"] for result in request.results]
    everything = np.concatenate([table.ravel() for table in tables])
    finite = everything[np.isfinite(everything)]
    low, high = widened(finite.min(), finite.max()) if len(finite) else (0.0, 1.0)
    for row, (result, label, table) in enumerate(zip(request.results, request.labels, tables, strict=True)):
        matrix, *networks = axes[3 * row : 3 * row + 3]
        shades = _matrix(matrix, table, low, high)
        matrix.set_title(in_lines(label, 42), loc="center")
        learnt = np.where(np.isfinite(table), table, 0.0).sum(axis=0)
        for axis, observer, words in zip(networks, (learnt.argmax(), learnt.argmin()), ("most", "least"), strict=True):
            _draw(axis, result, table[:, observer], low, high)
            axis.set_title(f"against node {observer}, which learns {words}", loc="center")
    title = listed([dict(accounts(result)).get("epsilon", "epsilon") for result in request.results])
    figure.get_layout_engine().set(h_pad=0.12)  # the layout forgets titles above axes of equal aspect
    figure.colorbar(shades, ax=axes, label=f"at the end: {title} of the node", shrink=0.8, aspect=8 * figure.get_figheight())
    return figure


def _matrix(axis: Any, table: Array, low: float, high: float) -> Any:
    shades = axis.imshow(np.where(np.isfinite(table), table, np.nan), cmap=MAP, vmin=low, vmax=high)
    shades.cmap = shades.cmap.with_extremes(bad="0.85")
    axis.set_xlabel("observer")
    axis.set_ylabel("node whose records are protected")
    for side in (axis.xaxis, axis.yaxis):
        side.get_major_locator().set_params(integer=True)
    axis.grid(visible=False)
    return shades


def _draw(axis: Any, result: Result, values: Array, low: float, high: float) -> Any:
    edges, count = result["graph/edges"], len(result["node"])
    places = _places(edges, count)
    size = float(np.clip(9000 / len(places), 60, 700))
    for i, j in edges:
        axis.plot(*zip(places[i], places[j], strict=True), color="0.65", linewidth=1.0 if len(edges) < 300 else 0.4, zorder=1)
    numbers = np.where(np.isfinite(values), values, np.nan)
    shades = axis.scatter(
        *places[:count].T, s=size, c=numbers, cmap=MAP, vmin=low, vmax=high, edgecolors="0.2", linewidths=0.8, zorder=2,
        plotnonfinite=True,
    )  # fmt: skip
    shades.cmap = shades.cmap.with_extremes(bad="0.85")
    if len(places) > count:  # the hub of a star, which has no records
        axis.scatter(*places[count:].T, s=1.3 * size, marker="s", color="white", edgecolors="0.2", linewidths=1.2, zorder=2)
    if len(places) <= MANY:
        for node, place in enumerate(places):
            if node >= count:
                text, dark = "hub", False
            else:
                shown = np.isfinite(values[node])
                text = f"{node}\n{values[node]:#.3g}" if shown else f"{node}"
                dark = shown and (values[node] - low) / (high - low) < DARK
            axis.text(*place, text, ha="center", va="center", fontsize=7, color="white" if dark else "black", zorder=3)
    axis.set_aspect("equal")
    centre = (places.max(axis=0) + places.min(axis=0)) / 2
    half = max(0.6 * np.ptp(places, axis=0).max(), 0.5)  # a square, also around a line of nodes or a lone one
    axis.set_xlim(centre[0] - half, centre[0] + half)
    axis.set_ylim(centre[1] - half, centre[1] + half)
    axis.set_axis_off()
    return shades


def _places(edges: Ints, count: int) -> Array:
    """Where the nodes stand; the hub of a star in the middle."""
    import networkx as nx

    graph = nx.Graph()
    graph.add_nodes_from(range(max(count, int(edges.max(initial=0)) + 1)))
    graph.add_edges_from(edges.tolist())
    degrees = dict(graph.degree())
    hub = max(degrees, key=lambda node: degrees[node])
    if degrees[hub] == len(graph) - 1 == len(edges) > 1:
        rest = [node for node in graph if node != hub]
        places = nx.circular_layout(rest) | {hub: np.zeros(2)}
    elif len(graph) <= LARGE:
        places = nx.kamada_kawai_layout(graph)
    else:
        places = nx.spring_layout(graph, seed=1, iterations=100, method="force")
    return np.array([places[node] for node in range(len(graph))])
