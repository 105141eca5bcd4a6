"""A figure as panels of curves; drawn, and written down as a table."""

import csv
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dpadmm_mpi.reproduce.quantities import Results
from dpadmm_mpi.storage.result import Result
from dpadmm_mpi.storage.timing import COMPUTE

Array = NDArray[np.float64]
AXES = {
    "loss": "mean loss over the training records",
    "test_error": "test error",
    "reported/test_error": "test error",
    "consensus_error": "mean distance from the mean classifier",
    "distance_to_optimum": "distance to the optimum, relative",
    "objective": "objective",
    "objective_gap": "objective above its minimum",
    "privacy/bound": "bound P(t) on the privacy loss [nats]",
    "privacy/epsilon": "epsilon [nats]",
    "attack/known": "error of the rebuilt record",
    "attack/secret": "error of the rebuilt record",
}


@dataclass(frozen=True)
class Panel:
    """Curves over the iterations, or over seconds or bytes.

    With `x` it is the last values of all variants over a number, a curve for each group.
    """

    title: str
    measure: str  # an HDF5 name
    curves: Sequence[tuple[str, str]]  # (variant, label); with `x`, variants with one label make one curve
    x: Sequence[float] | None = None  # a number for each of the curves
    x_title: str = "iteration t"
    log_x: bool = False
    log_y: bool = False
    over: str = "iteration"  # or one of OVER
    y_range: tuple[float, float] | None = None  # what is shown; None: everything
    references: tuple[str, ...] = ()  # labels of curves that the others are compared with: dotted, black and grey

    @property
    def axes(self) -> tuple[str, str]:
        """What stands at the axes, with units where there are any."""
        return (OVER[self.over][0] if self.over in OVER else self.x_title), AXES[self.measure]


@dataclass(frozen=True)
class Curve:
    label: str
    x: Array
    mean: Array
    low: Array
    high: Array


def lines(panel: Panel, results: Results) -> Iterator[Curve]:
    """What a panel shows: mean and range over the runs."""
    if panel.x is None:
        for variant, label in panel.curves:
            result = results[variant]
            values = np.atleast_2d(result[panel.measure])  # an account has no runs
            if np.isfinite(values).any():
                x = OVER[panel.over][1](result) if panel.over in OVER else result.iteration
                yield Curve(label, x, values.mean(axis=0), values.min(axis=0), values.max(axis=0))
        return
    for label in dict.fromkeys(label for _, label in panel.curves):
        chosen = [(x, results[variant]) for x, (variant, name) in zip(panel.x, panel.curves, strict=True) if name == label]
        ends = [np.atleast_1d(result[panel.measure][..., -1]) for _, result in chosen]
        yield Curve(
            label,
            np.array([x for x, _ in chosen], dtype=np.float64),
            np.array([end.mean() for end in ends]),
            np.array([end.min() for end in ends]),
            np.array([end.max() for end in ends]),
        )


def seconds_so_far(result: Result) -> Array:
    """Seconds of computing up to each recorded iteration, all nodes, mean over the runs."""
    return np.asarray(np.cumsum(result[COMPUTE].sum(axis=-1).mean(axis=0)), dtype=np.float64)


# What curves may go over beside the iterations: what stands at the axis, and where the rows of a result are on it.
OVER: dict[str, tuple[str, Callable[[Result], Array]]] = {
    "computing time": ("computing time of all nodes [s]", seconds_so_far),
    "virtual time": ("virtual time [s]", lambda result: np.asarray(result["network/seconds"].mean(axis=0))),
    "bytes": ("sent by all nodes [B]", lambda result: np.asarray(result["network/bytes"].mean(axis=0))),
}


def write_table(panels: Sequence[Panel], results: Results, target: Path) -> None:
    """What is drawn, a row per point."""
    with target.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["panel", "x axis", "measure", "curve", "x", "mean", "lowest", "highest"])
        for panel in panels:
            for line in lines(panel, results):
                for point in zip(line.x, line.mean, line.low, line.high, strict=True):
                    writer.writerow(
                        [panel.title, panel.axes[0], panel.measure, line.label, *(f"{value:.6g}" for value in point)]
                    )
