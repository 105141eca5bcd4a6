"""The nodes: how far apart they are, and the network with a number on each of them."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from dpadmm_mpi.plots.looks import HATCHES, dots
from dpadmm_mpi.plots.request import Request
from dpadmm_mpi.plots.scales import fit, spans, typical, widened
from dpadmm_mpi.plots.style import WIDTHS, caption, is_finite, letters, logarithmic, name_files, share_legend, spots
from dpadmm_mpi.plots.words import in_lines, listed
from dpadmm_mpi.storage.result import Result, accounts, last_row
from dpadmm_mpi.types import Array, Ints

LARGE = 120  # nodes; beyond, a layout that is quicker but may be tangled
FEW = 4  # files; from here on, two beside each other
NARROWEST = 1.7  # inches of a network in a journal's width
ROOMY = 2.4  # inches of a network; in a smaller one, nodes are smaller and have no numbers in them
MANY = 30  # nodes; from here on, no numbers in the nodes and no range on each of them
OFFSET = 0.6  # of the room between two nodes, shared by the files
CLEAR = 0.25  # of a colour scale; networks that use less of a common one get scales of their own
DARK = 0.47  # share of the colour scale below which white is read better than black


def nodes(request: Request) -> Any:
    """The nodes' losses over the iterations, from the best to the worst node, and loss and privacy of each node at the end."""
    request.needs("node_loss")
    chosen = request.one_account() if all(accounts(result) for result in request.results) else []
    private = [
        f"privacy/node_{account}" in result and is_finite(result, f"node_{account}")
        for result, (account, _) in zip(request.results, chosen, strict=False)
    ]
    figure, axes = request.panels(3 if any(private) else 2, 3.6, 3.3)
    count = len(request.results)
    ranges, at_end, totals = [], [], []
    for index, (result, look) in enumerate(request):
        end = last_row(result)[0] + 1
        t, mean = result.iteration[:end], np.nanmean(result["node_loss"][:, :end], axis=0)
        axes[0].plot(t, mean.mean(axis=1), markevery=spots(end, index, count).tolist(), **look)
        ranges.append((mean.min(axis=1), mean.max(axis=1)))
        axes[0].fill_between(t, mean.min(axis=1), mean.max(axis=1), color=look["color"], alpha=request.shade, lw=0)
        at = result["node"] + OFFSET * ((index + 0.5) / count - 0.5)
        values = result["node_loss"][:, end - 1]
        marks = {**look, "marker": look["marker"] or "o", "linestyle": "none"}
        low, high = np.nanmin(values, axis=0), np.nanmax(values, axis=0)
        ends = [mean[-1] - low, high - mean[-1]]
        axes[1].errorbar(at, mean[-1], ends if len(at) <= MANY else None, elinewidth=0.9, capsize=2, **marks)
        at_end.append((low, high) if len(at) <= MANY else (mean[-1], mean[-1]))
        if any(private) and private[index]:
            cost = result[f"privacy/node_{chosen[index][0]}"][end - 1]
            axes[2].plot(at, cost, **marks)
            totals += cost.tolist()
    fit(axes[0], ranges)
    fit(axes[1], [(np.append(low[:1], low), np.append(high[:1], high)) for low, high in at_end])  # nodes have no start
    caption(axes[0], "mean loss of the nodes, best to worst")
    caption(axes[1], "mean loss of the node at the end", "node")
    if any(private):
        titles = [title for (_, title), there in zip(chosen, private, strict=True) if there]
        caption(axes[2], f"total privacy loss of the node: {listed(titles)}", "node")
        if spans(totals):
            logarithmic(axes[2])
    most = max(len(result["node"]) for result in request.results)
    for axis in axes[1:]:
        axis.set_xlim(-0.5 - 0.02 * most, most - 0.5 + 0.02 * most)
        axis.set_xticks(range(0, most, -(-most // 10)))
        if axis.get_yscale() == "linear":
            axis.set_ylim(*widened(*axis.get_ylim()))
    name_files(figure, axes[0].get_legend_handles_labels()[0])
    return figure


def faults(request: Request) -> Any:
    """Shares of what was sent and arrives, and of the nodes that take a step, and bytes so far: mean and range of the runs."""
    request.needs("network/delivered")
    figure, axes = request.panels(3, 4.0, 3.2)
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
    titles = ("share of the messages that arrive", "share of the nodes that take a step", "sent by all nodes [MB]")
    for axis, title in zip(axes, titles, strict=True):
        caption(axis, title)
        axis.set_ylim(bottom=0.0)
    for axis in axes[:2]:
        axis.set_ylim(top=1.05)
    name_files(figure, axes[0].get_legend_handles_labels()[0])
    return figure


def partition(request: Request) -> Any:
    """For each file the records of each node, stacked by label, and beside it how far its labels are from those of all."""
    request.needs("data/label_counts")
    figure, axes = request.panels(
        2 * len(request.results), 4.2, 2.6, columns=2 if len(request.results) < FEW else 4, narrowest=NARROWEST
    )
    handles: dict[float, Any] = {}
    distances: dict[str, Any] = {}
    colours = request.colours
    for index, (result, label) in enumerate(zip(request.results, request.labels, strict=True)):
        records, distance = axes[2 * index : 2 * index + 2]
        counts, values = result["data/label_counts"], result["data/label"]
        node = np.arange(len(counts))
        width = 0.8 if len(node) <= MANY else 1.0
        below = np.zeros(len(node))
        for k, value in enumerate(values):
            look = {"color": colours[k % len(colours)], "hatch": HATCHES[k % len(HATCHES)], "edgecolor": "white"}
            bars = records.bar(node, counts[:, k], width, bottom=below, label=f"label {value:+g}", linewidth=0, **look)
            handles.setdefault(float(value), bars)
            below += counts[:, k]
        caption(records, "training records", "node", label)
        kinds = {"labels (total variation)": "data/label_distance", "mean record": "data/mean_distance"}
        for k, (words, name) in enumerate(kinds.items()):
            if name in result:
                look = {**dots(k + 2, request.grey), "label": f"distance: {words}"}
                distances.setdefault(words, distance.plot(node, result[name], **look)[0])
        caption(distance, "distance from all records", "node")
        for axis in (records, distance):
            axis.set_axisbelow(True)
            axis.set_xlim(-0.5 - 0.02 * len(node), len(node) - 0.5 + 0.02 * len(node))
            axis.xaxis.get_major_locator().set_params(integer=True)
    for alike, below_zero in ((axes[::2], 0.0), (axes[1::2], 0.03)):  # the files are to be compared; marks at zero are whole
        top = max(axis.get_ylim()[1] for axis in alike)
        for axis in alike:
            axis.set_ylim(-below_zero * top, top)
    labels = [handles[value] for value in sorted(handles)] if len(handles) <= len(HATCHES) else []
    share_legend(figure, [*labels, *distances.values()])
    return figure


def network(request: Request) -> Any:
    """Each node with its loss at the end, mean over the runs; or, if an account is asked for, with its privacy loss."""
    request.needs("graph/edges", numbers=False)
    title = "mean loss of the node at the end"
    if request.account is None:
        request.needs("node_loss")
        values = [np.nanmean(result["node_loss"][:, last_row(result)[0]], axis=0) for result in request.results]
    else:
        chosen = request.one_account()
        request.needs(f"privacy/node_{request.account}", numbers=False)
        title = f"total privacy loss of the node: {listed([title for _, title in chosen])}"
        values = [result[f"privacy/node_{request.account}"][last_row(result)[0]] for result in request.results]
    scales = scales_for(values)
    each = len(set(scales)) > 1
    figure, axes = request.panels(len(request.results), 4.2, 3.8, narrowest=2 * NARROWEST if each else NARROWEST)
    for axis, result, label, numbers, scale in zip(axes, request.results, request.labels, values, scales, strict=True):
        shades = _draw(axis, result, numbers, scale, request)
        name = in_lines(label, letters(axis))
        axis.set_title(name if np.isfinite(numbers).all() else f"{name}\nnot private: infinite", loc="center")
        if each and np.isfinite(numbers).any():
            figure.colorbar(shades, ax=axis, label=title, shrink=0.8, extend=scale.extend)
    if not each and any(np.isfinite(numbers).any() for numbers in values):
        aspect = 8 * figure.get_figheight()
        figure.colorbar(shades, ax=axes, label=title, shrink=0.8, aspect=aspect, extend=scales[0].extend)
    return figure


class Scale(NamedTuple):
    """The ends of a colour scale, and which of them numbers lie beyond."""

    low: float
    high: float
    extend: str = "neither"

    def share(self, value: float) -> float:
        return (value - self.low) / (self.high - self.low)


def scales_for(values: Sequence[Array]) -> list[Scale]:
    """One scale for all networks, which an outlier does not decide; or, where it would show no differences in any of them, one
    for each."""
    found = [numbers[np.isfinite(numbers)] for numbers in values]
    there = [numbers for numbers in found if len(numbers)]
    if not there:
        return [Scale(0.0, 1.0)] * len(values)
    low, high = typical([float(numbers.min()) for numbers in there], [float(numbers.max()) for numbers in there])
    widest = max(float(np.ptp(numbers)) for numbers in there)
    differ = [float(np.ptp(numbers)) > 0.01 * float(np.abs(numbers).max()) for numbers in there]
    if len(there) > 1 and any(differ) and widest < CLEAR * (high - low):
        return [Scale(*widened(float(n.min()), float(n.max()))) if len(n) else Scale(0.0, 1.0) for n in found]
    below, above = any(n.min() < low for n in there), any(n.max() > high for n in there)
    extend = {(False, False): "neither", (True, False): "min", (False, True): "max", (True, True): "both"}[below, above]
    return [Scale(*widened(low, high), extend)] * len(values)


def observers(request: Request) -> Any:
    """Epsilon of each node against each other, as a table of colours; and on the network, for who learns most and least."""
    request.needs("privacy/pair_epsilon", numbers=False)
    figure, axes = request.panels(3 * len(request.results), 4.2, 4.0, narrowest=WIDTHS["two-column"] / 3)
    tables = [result["privacy/pair_epsilon"] for result in request.results]
    scales = scales_for([table.ravel() for table in tables])
    title = listed([dict(accounts(result)).get("epsilon", "epsilon") for result in request.results])
    for row, (result, label, table, scale) in enumerate(zip(request.results, request.labels, tables, scales, strict=True)):
        matrix, *networks = axes[3 * row : 3 * row + 3]
        shades = _matrix(matrix, table, scale, request)
        matrix.set_title(in_lines(label, letters(matrix)), loc="center")
        learnt = np.where(np.isfinite(table), table, 0.0).sum(axis=0)
        for axis, observer, words in zip(networks, (learnt.argmax(), learnt.argmin()), ("most", "least"), strict=True):
            _draw(axis, result, table[:, observer], scale, request)
            axis.set_title(in_lines(f"against node {observer}, which learns {words}", letters(axis)), loc="center")
        if len(set(scales)) > 1:
            figure.colorbar(shades, ax=networks[-1], label=f"at the end: {title}", shrink=0.8)
    figure.get_layout_engine().set(h_pad=0.12)  # the layout forgets titles above axes of equal aspect
    if len(set(scales)) == 1:
        words, aspect = f"at the end: {title} of the node", 8 * figure.get_figheight()
        figure.colorbar(shades, ax=axes, label=words, shrink=0.8, aspect=aspect, extend=scales[0].extend)
    return figure


def _matrix(axis: Any, table: Array, scale: Scale, request: Request) -> Any:
    shades = axis.imshow(np.where(np.isfinite(table), table, np.nan), cmap=request.map, vmin=scale.low, vmax=scale.high)
    shades.cmap = shades.cmap.with_extremes(bad="0.85")
    axis.set_xlabel("observer")
    axis.set_ylabel("node whose records are protected")
    for side in (axis.xaxis, axis.yaxis):
        side.get_major_locator().set_params(integer=True)
    axis.grid(visible=False)
    return shades


def _draw(axis: Any, result: Result, values: Array, scale: Scale, request: Request) -> Any:
    edges, count = result["graph/edges"], len(result["node"])
    places = _places(edges, count)
    inches = axis.get_window_extent().width / axis.get_figure().dpi
    size = float(np.clip(9000 / len(places), 60, 700)) * min(1.0, inches / ROOMY) ** 2
    for i, j in edges:
        axis.plot(*zip(places[i], places[j], strict=True), color="0.65", linewidth=1.0 if len(edges) < 300 else 0.4, zorder=1)
    numbers = np.where(np.isfinite(values), values, np.nan)
    shades = axis.scatter(
        *places[:count].T, s=size, c=numbers, cmap=request.map, vmin=scale.low, vmax=scale.high, edgecolors="0.2",
        linewidths=0.8, zorder=2, plotnonfinite=True,
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
                text = f"{node}\n{values[node]:#.3g}" if shown and inches >= ROOMY else f"{node}"
                dark = shown and scale.share(values[node]) < DARK
            axis.text(
                *place,
                text,
                ha="center",
                va="center",
                fontsize=7 if inches >= ROOMY else 6,
                color="white" if dark else "black",
                zorder=3,
            )
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
