"""record.nodes = false: mean and maximum over the nodes in the place of what each of them has in every row."""

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from support import RESTARTS, MakeConfig, Raw, command, result_of, sentences

from dpadmm_mpi.errors import InputError
from dpadmm_mpi.reports.live import look

METHODS = ("admm", "m-admm", "mr-admm", "ps-admm", "dp-admm", "gossip", "arc-admm")
FAULTS = {"loss": 0.2, "absence": 0.6}  # so that some nodes take no step between two rows, and have no residual


def configured(make: MakeConfig, name: str, nodes: bool) -> Raw:
    raw: Any = RESTARTS[name](make) | {"runs": 2, "iterations": 4}
    raw["record"] = {"every": 2, "nodes": nodes}
    if name in ("gossip", "m-admm"):
        raw["network"] = {**raw["network"], "faults": FAULTS}
    return raw


@pytest.mark.parametrize("name", METHODS)
def test_all_else_is_the_same_to_the_bit(config: MakeConfig, name: str) -> None:
    """Whatever is in both files; and mean and maximum, of the values that the other file has node by node."""
    whole, found = (result_of(configured(config, name, nodes)) for nodes in (True, False))
    rows = len(whole.iteration)
    assert not [key for key, dims in found.dims.items() if "node" in dims and "iteration" in dims]
    left_out = {key for key in whole.arrays if key not in found.arrays}
    assert {key for key, dims in whole.dims.items() if {"iteration", "node"} <= set(dims)} <= left_out
    compared = 0
    for key, values in found.arrays.items():
        if key in whole:
            assert key.startswith("timing/") or values.tobytes() == whole[key].tobytes(), key
            continue
        of_nodes, how = key.rsplit("_", 1)
        each = whole[of_nodes]
        assert each.shape == (*values.shape, len(whole["node"])), key
        if key.startswith("timing/"):
            continue
        expected = np.empty_like(values)
        for at in np.ndindex(values.shape):
            some = each[at][~np.isnan(each[at])]
            expected[at] = (some.max() if len(some) else np.nan) if how == "max" else np.mean(each[at])
        assert values.tobytes() == expected.tobytes(), key
        compared += values.shape[1] == rows
    assert compared >= 2
    assert found["final/primal"].shape == whole["final/primal"].shape


def test_the_configuration_keeps_its_text_unless_nodes_are_left_out(config: MakeConfig) -> None:
    raw: Any = configured(config, "admm", nodes=True)
    asked = result_of(raw)
    del raw["record"]["nodes"]
    assert asked.attributes["/"]["config"] == result_of(raw).attributes["/"]["config"]
    assert "record.nodes" not in asked.settings


@pytest.fixture
def file(config: MakeConfig, tmp_path: Path) -> Path:
    result_of(configured(config, "admm", nodes=False), tmp_path / "out.h5")
    return tmp_path / "out.h5"


def test_commands_know_such_files(file: Path, tmp_path: Path) -> None:
    for words in (
        ("show", file),
        ("report", file, "-o", tmp_path / "page.html"),
        ("diff", file, file),
        ("watch", file),
        ("plot", file, "-o", tmp_path / "overview.png"),
    ):
        process = command(*words)
        assert process.returncode == 0, process.stderr
    assert look(file).rows == 3


@pytest.mark.parametrize("kind", ["nodes", "network"])
def test_plots_of_nodes_are_refused_in_a_sentence(file: Path, tmp_path: Path, kind: str) -> None:
    process = command("plot", file, "--kind", kind, "-o", tmp_path / "nodes.png")
    assert process.returncode == 2
    (sentence,) = sentences(process)
    assert "has no /node_loss" in sentence
    assert "record.nodes = false, so set it to true and run again" in sentence


def test_released_vectors_need_the_nodes(config: MakeConfig) -> None:
    raw: Any = configured(config, "admm", nodes=False)
    raw["record"] = {"nodes": False, "trajectory": True}
    with pytest.raises(InputError, match=r"record\.nodes: must be true with record\.trajectory = true"):
        result_of(raw)


@pytest.mark.parametrize("name", ["timing/wait_seconds_max", "loss"])
def test_a_damaged_file_is_refused(file: Path, name: str) -> None:
    with h5py.File(file, "r+") as f:
        del f[name]
    process = command("show", file)
    assert process.returncode == 2
    assert f"/{name} is missing; the file is damaged" in sentences(process)[0]
